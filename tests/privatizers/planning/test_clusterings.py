"""What clusters bring to effects within values, against the best linear estimate worked out."""

import numpy as np
import pytest

from privatizers.domain.lattice import lattice_of
from privatizers.mechanisms.uniform_prior_dp import UniformPriorDP
from privatizers.planning.design import Request, StatisticName, design
from privatizers.planning.forecast import planned_noise, statistic_noise_of
from privatizers.planning.margin_split import Crossed, effects_of_values
from privatizers.planning.planner import sampling_variance
from privatizers.planning.question import Question
from schemas.arrays import Ints

GRID = (0.0, 1.0, 2.0)


@pytest.mark.parametrize("statistic", ["counts", "means", "none"])
def test_values_have_the_variance_of_the_best_linear_estimate(statistic: StatisticName) -> None:
    # Three clusters, the last two of which share a pool, and two values across them.
    sizes = np.array([[9, 8], [7, 12], [2, 1], [1, 2], [0, 3]])
    crossed = Crossed(sizes, np.array([0, 0, 1, 2, 2]), np.array([0, 1, 0, 1, 0]))
    values, guess = np.array(GRID), np.array([0.6, 0.3, 0.1])
    asked = Question(1.0, 0.0, values, guess, (GRID,), (statistic,), crossed.sizes_now, 5)
    mechanism = design(
        Request("uniform-prior-dp", 3, statistic, 1.0, lattice=lattice_of(GRID))
    ).mechanism
    assert isinstance(mechanism, UniformPriorDP)
    unit = planned_noise(mechanism, values, guess).of_mean
    of_pool = statistic_noise_of(values, mechanism.parameters).second
    pool, value = np.array([0, 0, 1, 1, 1]), crossed.other

    def of_arm(n: Ints) -> list[float]:
        """Variances of means of all units of each value, by generalised least squares."""
        pools, values_of = np.repeat(pool, n), np.repeat(value, n)
        known = np.eye(len(pools)) / unit
        for one in (0, 1):
            known += np.outer(pools == one, pools == one) / of_pool
        means = [(values_of == one) / np.count_nonzero(values_of == one) for one in (0, 1)]
        return [float(mean @ np.linalg.solve(known, mean)) for mean in means]

    n = np.array([sizes[value == one].sum(axis=0) for one in (0, 1)])
    sampling = sampling_variance(asked, values) * (1.0 / n).sum(axis=1)
    expected = np.sum([of_arm(of_pairs) for of_pairs in sizes.T], axis=0) + sampling
    found = effects_of_values(crossed, asked, GRID, mechanism)
    np.testing.assert_allclose(found, expected[np.newaxis], rtol=1e-9)


def test_a_value_that_an_arm_has_nobody_of_has_no_effect() -> None:
    crossed = Crossed(np.array([[9, 8], [4, 0]]), np.zeros(2, dtype=np.int64), np.array([0, 1]))
    values = np.array(GRID)
    asked = Question(1.0, 0.0, values, np.full(3, 1 / 3), (GRID,), ("none",), crossed.sizes_now)
    mechanism = design(Request("uniform-prior-dp", 3, "none", 1.0)).mechanism
    found = effects_of_values(crossed, asked, GRID, mechanism)
    assert np.isfinite(found).tolist() == [[True, False]]
