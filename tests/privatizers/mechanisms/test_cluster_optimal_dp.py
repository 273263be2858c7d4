"""What Cluster-Optimal-DP publishes of strata: noisy counts, and tables that these alone choose."""

import math
from typing import Any

import numpy as np
import pytest

from privatizers.accounting.accountant import pure_epsilon
from privatizers.accounting.events import (
    BoundedResponse,
    CountsNoise,
    SquareNoise,
    SumNoise,
    Together,
)
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.parameters import OptimalParameters, event_of
from privatizers.mechanisms.statistics.noisy_squares import NoisySquares
from privatizers.optimal_response.learnt_guess import public_response
from privatizers.optimal_response.response import OptimalResponse
from schemas.arrays import Floats, Ints

GRID, GUESS = (0.0, 1.0, 2.0), (0.5, 0.3, 0.2)
LATTICE = Lattice((0, 1, 2))


def mechanism(**changed: Any) -> ClusterOptimalDP:
    known: dict[str, Any] = {
        "grid": GRID,
        "guess": GUESS,
        "response_epsilon": 1.9,
        "noise_scale": 20.0,
    }
    return ClusterOptimalDP(OptimalParameters(**{**known, **changed}))


COUNTS = np.array([[900, 50, 50], [5, 900, 95], [3, 2, 1]])


@pytest.mark.parametrize(
    ("changed", "event"),
    [
        ({}, Together((CountsNoise(20.0, 2), BoundedResponse(1.9)))),
        (
            {"grid": (0.0, 1.0), "guess": (0.5, 0.5)},
            Together((CountsNoise(20.0, 1), BoundedResponse(1.9))),
        ),
        ({"lattice": LATTICE}, Together((SumNoise(20.0, 2), BoundedResponse(1.9)))),
        ({"noise_scale": None}, BoundedResponse(1.9)),
        (
            {"noise_scale": None, "arm_noise_scale": 50.0},
            Together((CountsNoise(50.0, 2), BoundedResponse(1.9))),
        ),
        (
            {"lattice": LATTICE, "arm_noise_scale": 50.0},
            Together((SumNoise(20.0, 2), CountsNoise(50.0, 2), BoundedResponse(1.9))),
        ),
    ],
)
def test_the_event_is_the_statistic_and_the_tables(changed: dict[str, Any], event: object) -> None:
    assert event_of(mechanism(**changed).parameters) == event


def test_squares_are_paid_for_beside_means() -> None:
    squares = NoisySquares.of_price(LATTICE, 0.1, of_means=True)
    assert squares is not None
    parameters = mechanism(lattice=LATTICE, squares=squares).parameters
    event = event_of(parameters)
    assert isinstance(event, Together)
    assert {type(part) for part in event.parts} == {SumNoise, SquareNoise, BoundedResponse}
    assert pure_epsilon(event) == pytest.approx(2 / 20.0 + 0.1 + 1.9, rel=1e-12)


@pytest.mark.parametrize(
    "changed",
    [
        {"guess": (0.5, 0.5)},
        {"grid": (0.0,), "guess": (1.0,)},
        {"grid": tuple(map(float, range(26))), "guess": (1 / 26,) * 26},
        {"response_epsilon": 0.0},
        {"response_epsilon": math.inf},
        {"noise_scale": 0.0},
        {"lattice": Lattice((0, 1))},
        {"arm_noise_scale": 0.0},
        {"arm_noise_scale": 5.0, "learns": False},
    ],
)
def test_what_no_table_can_be_made_of_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        mechanism(**changed)


def test_tables_are_those_that_the_published_counts_choose() -> None:
    group = np.array([0, 1, 0])
    chosen = mechanism()
    release = chosen.strata(COUNTS, group)
    assert release.noisy_counts is not None
    assert not np.array_equal(release.noisy_counts, COUNTS)
    again = chosen.response(release.noisy_counts, COUNTS.sum(axis=1), group)
    np.testing.assert_array_equal(release.response.table_of, again.table_of)
    np.testing.assert_array_equal(release.response.units, again.units)
    np.testing.assert_array_equal(release.response.values, again.values)


def test_raw_counts_reach_nothing_but_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of raw counts ``response`` gets the units there are, which are public."""
    given: list[tuple[Ints | None, Ints, Ints | None]] = []
    honest = ClusterOptimalDP.response

    def watching(
        self: ClusterOptimalDP,
        noisy: Ints | None,
        sizes: Ints,
        group: Ints,
        arms: Ints | None,
        guesses: Floats | None,
    ) -> OptimalResponse:
        given.append((noisy, sizes, arms))
        assert guesses is None
        return honest(self, noisy, sizes, group, arms)

    monkeypatch.setattr(ClusterOptimalDP, "response", watching)
    release = mechanism(arm_noise_scale=30.0).strata(COUNTS, np.array([0, 1, 0]))
    ((noisy, sizes, arms),) = given
    assert noisy is release.noisy_counts
    assert arms is release.noisy_arms
    np.testing.assert_array_equal(sizes, [1000, 1000, 6])


def test_counts_of_arms_have_noise_of_their_own() -> None:
    """And tables follow them alone: the counts of strata may say what they like."""
    chosen = mechanism(arm_noise_scale=2.0)
    group, exact = np.array([0, 1, 0]), np.array([[903, 52, 51], [5, 900, 95]])
    release = chosen.strata(COUNTS, group)
    assert release.noisy_arms is not None
    assert release.noisy_counts is not None
    noise = release.noisy_arms - exact
    assert np.abs(noise).max() < 2.0 * 40  # of P(|Z| ≥ 80) = e⁻⁴⁰
    sums = np.zeros_like(exact)
    np.add.at(sums, group, release.noisy_counts - COUNTS)
    assert not np.array_equal(noise, sums)
    nonsense = np.zeros_like(COUNTS)
    small = np.array([10, 10, 10])  # too few for tables of their own
    by_arms = [
        chosen.response(noisy, small, group, 10 * release.noisy_arms)
        for noisy in (nonsense, nonsense + 500)
    ]
    np.testing.assert_array_equal(by_arms[0].units, by_arms[1].units)
    np.testing.assert_array_equal(by_arms[0].table_of, by_arms[1].table_of)


def test_what_is_not_to_be_learnt_from_is_not() -> None:
    release = mechanism(learns=False).strata(100 * COUNTS, np.array([0, 1, 0]))
    public = public_response(np.array(GRID), np.array(GUESS), 1.9, 3)
    assert release.noisy_counts is not None
    np.testing.assert_array_equal(release.response.units, public.units)


@pytest.mark.parametrize("changed", [{"noise_scale": None}, {"lattice": LATTICE}])
def test_without_counts_every_stratum_has_the_public_guesss_table(changed: dict[str, Any]) -> None:
    release = mechanism(**changed).strata(COUNTS, np.array([0, 1, 0]))
    public = public_response(np.array(GRID), np.array(GUESS), 1.9, 3)
    assert release.noisy_counts is None
    assert (release.noisy_sums is None) == ("lattice" not in changed)
    np.testing.assert_array_equal(release.response.units, public.units)
    np.testing.assert_array_equal(release.response.table_of, 0)


def test_a_count_and_its_complement_share_one_noise() -> None:
    release = mechanism(grid=(0.0, 1.0), guess=(0.5, 0.5)).strata(np.array([[40, 60], [7, 3]]))
    assert release.noisy_counts is not None
    np.testing.assert_array_equal(release.noisy_counts.sum(axis=1), [100, 10])


def test_the_noise_of_weights_is_that_of_the_public_guesss_table_whatever_was_learnt() -> None:
    chosen, guess = mechanism(), np.array(GUESS)
    before = chosen.response_noise(guess)
    chosen.strata(COUNTS)
    assert chosen.response_noise(guess) == before
    (table,) = public_response(np.array(GRID), guess, 1.9, 1).tables_used
    assert before.of_mean == pytest.approx(float(guess @ table.noise), rel=1e-9)
    assert before.of_square > 0


def test_small_clusters_share_a_pool() -> None:
    sizes = np.array([[50, 50], [3, 50], [50, 50], [2, 2]])
    assert mechanism().pool_of(sizes, 10).tolist() == [0, 2, 1, 2]
