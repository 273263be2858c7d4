"""Two outcomes that are drawn together: prices, what belongs together, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from privatizers.lab.simulation.trial import Trial
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.paired_optimal_dp import (
    PairedOptimalDP,
    check_pairing,
    drawn_together,
    own_price,
    price_together,
)
from privatizers.optimal_response.learnt_guess import public_response
from privatizers.planning.design import StatisticName
from privatizers.planning.optimal_design import OptimalRequest, optimal_design


def alone(k: int, epsilon: float, statistic: StatisticName = "counts") -> ClusterOptimalDP:
    grid, shares = tuple(float(one) for one in range(k)), np.arange(k, 0, -1.0)
    guess = tuple((shares / shares.sum()).tolist())
    return optimal_design(
        OptimalRequest(grid, guess, epsilon, strata_statistic=statistic, learn_from="nothing")
    ).mechanism


def pair_of(statistic: StatisticName) -> tuple[PairedOptimalDP, PairedOptimalDP]:
    return drawn_together(alone(2, 0.5, statistic), alone(3, 1.5, statistic))


@pytest.mark.parametrize("statistic", ["none", "counts"])
def test_both_cost_what_their_parts_are(statistic: StatisticName) -> None:
    pair = pair_of(statistic)
    assert price_together(*pair) == pytest.approx(2.0, abs=1e-12)
    assert price_together(*pair) <= 2.0


def test_one_outcome_alone_is_protected_by_its_statistic_and_the_whole_table() -> None:
    for one in pair_of("counts"):
        whole = one.parameters.statistic_epsilon + one.table.epsilon
        assert own_price(one) == pytest.approx(whole, abs=1e-12)


def test_no_counts_change_the_table_and_weights_are_made_of_its_noise() -> None:
    for one in pair_of("counts"):
        guess = np.array(one.parameters.guess)
        counts = np.array([[1000] + [0] * (len(guess) - 1), [0] * (len(guess) - 1) + [1000]])
        (table,) = one.strata(counts).response.tables_used
        assert table is one.table.sides[one.place]
        own = public_response(np.array(one.parameters.grid), guess, one.pair[one.place].epsilon, 1)
        assert one.noise_by_guess < 0.75 * float(guess @ own.tables_used[0].noise)


def test_a_pair_is_released_whole_or_not_at_all() -> None:
    first, second = pair_of("none")
    check_pairing([first, second])
    check_pairing([alone(2, 1.0), alone(2, 1.0), alone(3, 1.0)])
    others = drawn_together(alone(2, 0.6, "none"), alone(3, 1.5, "none"))
    for wrong in (
        [first],
        [second, first],
        [first, first],
        [first, alone(3, 1.0)],
        [first, others[1]],
    ):
        with pytest.raises(AssertionError, match="drawn together"):
            check_pairing(wrong)
    with pytest.raises(ValueError, match="not those of the pair"):
        replace(first, place=1)


def test_a_trial_of_one_outcome_is_refused() -> None:
    first, _ = pair_of("none")
    with pytest.raises(ValueError, match="draws another outcome together"):
        Trial(
            np.array([0.0, 1.0]),
            np.array([[2, 2]]),
            np.zeros((2, 4), dtype=np.int64),
            first,
        )
