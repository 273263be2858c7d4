"""The price of tables that keep an ε, alone and beside noisy statistics."""

import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatizers.accounting.accountant import (
    calibrate_bounded,
    delta_at,
    epsilon_at,
    pure_epsilon,
    pure_loss,
)
from privatizers.accounting.events import (
    BoundedResponse,
    CountsNoise,
    Disjoint,
    Event,
    SquareNoise,
    SumNoise,
    Together,
)
from privatizers.optimal_response.whole_numbers import table_of
from schemas.errors import ConfigError
from tests.composition import composed_delta

bounds = st.floats(0.01, 10)
scales = st.floats(0.3, 100)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_what_no_table_keeps_is_no_event(epsilon: float) -> None:
    with pytest.raises(ValueError, match="no such event"):
        BoundedResponse(epsilon)


@settings(max_examples=60, deadline=None)
@given(bounds, scales, st.integers(1, 2))
def test_its_pure_price_is_its_epsilon_and_adds_up(bound: float, scale: float, moved: int) -> None:
    assert pure_loss(BoundedResponse(bound)) == Decimal(bound)
    event = Together((CountsNoise(scale, moved), BoundedResponse(bound)))
    exact = Decimal(bound) + Decimal(moved) / Decimal(scale)
    assert Decimal(pure_epsilon(event)) >= exact
    assert pure_epsilon(event) == pytest.approx(bound + moved / scale, rel=1e-14)
    assert pure_epsilon(Disjoint((event,) * 3)) == pure_epsilon(event)


@pytest.mark.parametrize("bound", [0.3, 1.0, 4.0])
def test_alone_its_delta_is_that_of_binary_randomised_response(bound: float) -> None:
    """δ(ε) = (e^ε₂ − e^ε)/(1 + e^ε₂), of which every ε₂-private draw is a function."""
    for share in (0.0, 0.3, 0.9):
        epsilon = share * bound
        most = Decimal(bound).exp()
        exact = (most - Decimal(epsilon).exp()) / (1 + most)
        found = delta_at(BoundedResponse(bound), epsilon)
        assert Decimal(found) >= exact
        assert found == pytest.approx(float(exact), rel=1e-12)
    assert delta_at(BoundedResponse(bound), bound) == 0.0
    assert epsilon_at(BoundedResponse(bound), 0.0) == pytest.approx(bound, rel=1e-14)


def pairs(bound: float, scale: float, moved: int) -> tuple[list[float], list[float]]:
    """P and Q of a binary response beside noisy counts, one by one."""
    a = math.exp(-1 / scale)
    p, q = np.array([1.0]), np.array([1.0])
    for ratio in [1 / a] * moved + [math.exp(bound)]:
        one = np.array([ratio, 1.0]) / (1 + ratio)
        p, q = np.outer(p, one).ravel(), np.outer(q, one[::-1]).ravel()
    return p.tolist(), q.tolist()


@pytest.mark.parametrize("moved", [1, 2])
@pytest.mark.parametrize(("bound", "scale"), [(1.9, 20.0), (0.5, 2.0), (4.0, 0.7)])
def test_beside_counts_its_delta_is_a_sum_over_pairs(
    bound: float, scale: float, moved: int
) -> None:
    p, q = (np.array(side) for side in pairs(bound, scale, moved))
    event = Together((CountsNoise(scale, moved), BoundedResponse(bound)))
    for share in (0.0, 0.4, 0.8, 0.999):
        epsilon = share * pure_epsilon(event)
        exact = float((p - math.exp(epsilon) * q).clip(0).sum())
        assert delta_at(event, epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_a_table_has_no_more_delta_than_it_is_priced_at(epsilon: float) -> None:
    table = table_of(np.array([0.0, 1.0, 2.0, 5.0]), np.array([0.6, 0.2, 0.1, 0.1]), epsilon)
    q = table.probabilities
    for share in (0.0, 0.5, 0.99):
        at = share * epsilon
        worst = max(
            float((q[x] - math.exp(at) * q[other]).clip(0).sum())
            for x in range(4)
            for other in range(4)
        )
        assert worst <= delta_at(BoundedResponse(epsilon), at) + 1e-15


STATISTICS: dict[str, Callable[[], Event | None]] = {
    "nothing": lambda: None,
    "counts": lambda: CountsNoise(100.0, 2),
    "complement": lambda: CountsNoise(50.0, 1),
    "sums": lambda: SumNoise(300.0, 11),
    "sums and squares": lambda: Together((SumNoise(300.0, 11), SquareNoise(900.0, 30))),
}


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("name", STATISTICS)
def test_calibration_gives_the_greatest_epsilon_of_tables(name: str, delta: float) -> None:
    statistic, epsilon = STATISTICS[name](), 2.0

    def cost(bound: float) -> float:
        response = BoundedResponse(bound)
        event = response if statistic is None else Together((statistic, response))
        return delta_at(event, epsilon)

    found = calibrate_bounded(epsilon, delta, statistic)
    assert cost(found) <= delta
    following = math.nextafter(found, math.inf)
    if statistic is None and delta == 0.0:
        assert found == epsilon
    # Beyond it the price is over ε, or, where δ is rounded up to a double, at it to the last digit.
    assert cost(following * (1 + 1e-13)) > delta
    pure = Decimal(0) if statistic is None else pure_loss(statistic)
    if delta == 0.0:
        assert Decimal(found) + pure <= Decimal(epsilon)
        assert Decimal(following) + pure > Decimal(epsilon)


def test_an_epsilon_that_the_statistic_uses_up_is_refused() -> None:
    with pytest.raises(ConfigError, match="too small"):
        calibrate_bounded(1.0, 0.0, CountsNoise(2.0, 2))


@pytest.mark.parametrize("share", [0.2, 0.7, 0.95])
def test_many_releases_cost_no_more_than_by_another_library(share: float) -> None:
    """Its bound is above the exact δ, and above that of an ε that is the lattice's rounding less.

    It is rounded up, so below δ(ε) it cannot be if both are right.
    """
    event = Together((CountsNoise(3.0, 2), BoundedResponse(1.0)))
    epsilon, interval = share * pure_epsilon(event), 1e-5
    bound = composed_delta([event], epsilon, interval)
    steps = 3
    assert delta_at(event, epsilon) <= bound
    assert bound <= delta_at(event, epsilon - steps * interval) + 2e-12
