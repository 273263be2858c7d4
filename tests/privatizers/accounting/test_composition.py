"""What charges come to together: by hand, by all sets of coins, and by dp-accounting."""

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld

from privatizers.accounting.budget import Budget, total
from privatizers.accounting.composition import composed_epsilon

LATTICE = 2.0**-16
"""Of the sum of all ε, for each different price: what the lattice may add."""


@pytest.mark.parametrize(
    ("prices", "delta", "by_hand"),
    [
        # p² = (e/(1 + e))² = 0.534447: 1 − e^(ε − 2) = 0.1/0.534447
        ([Budget(1.0), Budget(1.0)], 0.1, 1.792841),
        # 1 − 0.9/0.99² = 0.081726 is left: 1 − e^(ε − 2) = 0.081726/0.534447
        ([Budget(1.0, 0.01), Budget(1.0, 0.01)], 0.1, 1.834043),
        # p₁ p₂ = 0.731059 · 0.880797 = 0.643914: 1 − e^(ε − 3) = 0.1/0.643914
        ([Budget(1.0), Budget(2.0)], 0.1, 2.831226),
        # p = 0.731059: 1 − e^(ε − 1) = 0.1/0.731059
        ([Budget(1.0)], 0.1, 0.852905),
    ],
)
def test_few_charges_by_hand(prices: list[Budget], delta: float, by_hand: float) -> None:
    found = composed_epsilon(prices, delta)
    more = LATTICE * len({each.epsilon for each in prices}) * total(prices).epsilon
    assert by_hand - 1e-6 <= found <= by_hand + more + 1e-6


def exact_delta(prices: list[Budget], epsilon: float) -> float:
    """Theorem 1.5 over all sets of coins."""
    told = []
    for signs in product((1, -1), repeat=len(prices)):
        loss = math.fsum(sign * each.epsilon for sign, each in zip(signs, prices, strict=True))
        chance = math.prod(
            1.0 / (1.0 + math.exp(-sign * each.epsilon))
            for sign, each in zip(signs, prices, strict=True)
        )
        told.append(chance * max(-math.expm1(epsilon - loss), 0.0))
    kept = math.prod(1.0 - each.delta for each in prices)
    return 1.0 - kept * (1.0 - math.fsum(told))


@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_least_that_holds_but_for_the_lattice(seed: int) -> None:
    random = np.random.default_rng(seed)
    amounts = random.choice(random.uniform(0.01, 2.0, size=4), size=9)
    deltas = random.choice([0.0, 1e-6, 1e-3], size=9)
    prices = [Budget(*map(float, pair)) for pair in zip(amounts, deltas, strict=True)]
    whole = total(prices)
    delta = whole.delta + float(random.choice([1e-6, 1e-3, 0.05]))
    found = composed_epsilon(prices, delta)
    assert exact_delta(prices, found) <= delta
    less = found - 1.01 * LATTICE * len(set(amounts.tolist())) * whole.epsilon
    assert exact_delta(prices, less) > delta


def by_dp_accounting(prices: list[Budget], delta: float) -> float:
    """Its pessimistic estimate, on a lattice of its own."""
    composed = pld.identity(value_discretization_interval=1e-4)
    for each in prices:
        price = common.DifferentialPrivacyParameters(each.epsilon, each.delta)
        composed = composed.compose(pld.from_privacy_parameters(price, 1e-4))
    return float(composed.get_epsilon_for_delta(delta))


@pytest.mark.parametrize(
    ("prices", "delta"),
    [
        ([Budget(0.1)] * 90, 1e-6),
        ([Budget(0.1, 1e-8)] * 30 + [Budget(0.25)] * 10, 1e-5),
        ([Budget(0.5, 1e-6)] * 40, 1e-4),
    ],
)
def test_dp_accounting_agrees(prices: list[Budget], delta: float) -> None:
    """It rounds each loss up by 1e-4 at most, and n of them by n times that."""
    found, other = composed_epsilon(prices, delta), by_dp_accounting(prices, delta)
    assert found < 0.99 * total(prices).epsilon
    assert found == pytest.approx(other, abs=1e-4 * len(prices) + 1e-3 * found)


def test_it_is_never_more_than_the_sum_and_is_it_where_nothing_is_left() -> None:
    for prices in ([Budget(0.5)] * 3, [Budget(0.5, 1e-6)], [Budget(700.0)] * 3, [Budget(0.0)] * 2):
        whole = total(prices)
        assert composed_epsilon(prices, whole.delta) <= whole.epsilon
        assert composed_epsilon(prices, 0.3) <= whole.epsilon
    assert composed_epsilon([Budget(0.5)] * 3, 0.0) == 1.5


@pytest.mark.parametrize(
    ("prices", "delta"),
    [([Budget(1.0, 1e-6)] * 2, 1e-6), ([Budget(1.0)], 1.0), ([Budget(math.inf)], 0.1)],
)
def test_where_nothing_holds_nothing_is_said(prices: list[Budget], delta: float) -> None:
    with pytest.raises(ValueError, match="no epsilon holds"):
        composed_epsilon(prices, delta)


def test_a_year_of_different_charges_takes_no_second() -> None:
    """365 different prices; about 0.1 s."""
    prices = [Budget(0.01 + n * 1e-5) for n in range(365)]
    assert 0.2 * total(prices).epsilon < composed_epsilon(prices, 1e-6) < total(prices).epsilon
