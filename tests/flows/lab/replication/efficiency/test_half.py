"""The variance of the effect on a half, worked out: what releases have, and as small as is said."""

import numpy as np
import pytest

from flows.lab.replication.efficiency.half import (
    PLANNED_TABLES,
    half_releases,
    half_variance,
    plain_variance,
)
from flows.lab.replication.efficiency.noise import PLANNED, PUBLIC, UNIFORM, spreads
from flows.lab.replication.experiment_one import GRID, SIZES, population, shares_of
from privatizers.domain.lattice import lattice_of
from privatizers.lab.simulation.simulate import simulate
from privatizers.lab.simulation.trial import Trial
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.planning.grids import even_grid
from privatizers.planning.optimal_design import LearnFrom, OptimalRequest, optimal_design
from tests.support.distances import assert_near

pytestmark = pytest.mark.statistical  # plans are made, and tables solved


@pytest.mark.parametrize(("epsilon", "most"), [(1.0, 0.95), (2.0, 0.87)])
def test_planned_tables_are_sharper_than_what_is_planned_without(
    epsilon: float, most: float
) -> None:
    """The figures are the same in every run: nothing here is left to chance."""
    releases, random = half_releases(epsilon), np.random.default_rng(round(1e3 * epsilon))
    found = {
        name: np.mean([half_variance(one, *release, random) for one in spreads(2)])
        for name, release in releases.items()
    }
    assert found[PLANNED_TABLES] <= most * found[PLANNED]
    assert found[PUBLIC] < found[UNIFORM]
    assert min(found.values()) > np.mean([plain_variance(one) for one in spreads(2)])


def planned_by_hand(levels: int, learn_from: LearnFrom) -> tuple[ClusterOptimalDP, np.ndarray]:
    grid = even_grid(-5.0, 6.0, levels)
    guess, lattice = (1 / levels,) * levels, lattice_of(grid)
    asked = OptimalRequest(grid, guess, 2.0, 0.0, "means", lattice, 0.2, learn_from=learn_from)
    return optimal_design(asked).mechanism, np.array(grid)


@pytest.mark.parametrize(
    ("learn_from", "n_releases", "bound"), [("nothing", 2_000, 0.16), ("arms", 300, 0.41)]
)
def test_it_is_the_variance_that_simulated_releases_have(
    learn_from: LearnFrom, n_releases: int, bound: float
) -> None:
    """Its standard error is √(2/n) of n releases, and the bound 5 of them: 6e-7 each.

    Releases that learn are fewer, as each solves for tables of its own. Outcomes are rounded onto 6
    levels. Without the weight of the means it would be 83 % more.
    """
    levels, people = 6, population(np.random.default_rng(4))
    mechanism, grid = planned_by_hand(levels, learn_from)
    worked_out = half_variance(shares_of(people), mechanism, grid, np.random.default_rng(1))
    inside = np.random.default_rng(3).permuted(np.tile(np.arange(2), SIZES.sum() // 2)) == 0
    trial = Trial(grid, SIZES, people, mechanism, support=GRID)
    found = simulate(trial, n_releases, np.random.default_rng(9), inside=inside).of("combined")
    error = float(np.sqrt(2 / n_releases))
    assert_near(found.std_dev**2 / worked_out, 1.0, error, bound / error)
