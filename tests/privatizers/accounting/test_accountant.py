"""Prices are never understated, and two independent ways to work them out agree."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatizers.accounting import accountant
from privatizers.accounting.accountant import (
    calibrate,
    delta_at,
    epsilon_at,
    paths,
    pure_epsilon,
    pure_loss,
)
from privatizers.accounting.budget import Budget, total, written
from privatizers.accounting.events import (
    CountsNoise,
    Disjoint,
    Event,
    Response,
    Together,
    Unprotected,
)
from privatizers.accounting.rounding import counts_loss, realised_threshold
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.parameters import Parameters, event_of
from privatizers.noise.randomness import UNIT
from schemas.arrays import Floats
from schemas.errors import ConfigError
from tests.composition import composed_delta, composed_epsilon
from tests.support.guarantee import guarantee

rates = st.floats(0.05, 0.99)
scales = st.floats(0.3, 20)
grid_sizes = st.integers(2, 12)
shares = st.floats(0.01, 1)  # of 1/K: the least probability


@st.composite
def parameters(draw: st.DrawFn, noisy: bool | None = None) -> Parameters:
    k = draw(grid_sizes)
    scale = draw(scales) if noisy else draw(st.none() | scales) if noisy is None else None
    return Parameters.of(k, draw(rates), draw(shares) / k, scale)


def release(scale: float, moved: int, rate: float, least: float) -> Event:
    return Together((CountsNoise(scale, moved), Response(rate, least)))


# Events


def test_an_event_says_what_was_done_to_a_stratum_and_nothing_of_a_price() -> None:
    assert event_of(Parameters.of(3, 0.5, 0.25, 4.0)) == release(4.0, 2, 0.5, 0.25)
    assert event_of(Parameters.of(2, 0.5, 0.25, 4.0)) == release(4.0, 1, 0.5, 0.25)
    assert event_of(Parameters.of(3, 0.5, 0.25, None)) == Response(0.5, 0.25)


@pytest.mark.parametrize(
    "impossible",
    [
        lambda: CountsNoise(0.0, 2),
        lambda: CountsNoise(math.inf, 2),
        lambda: CountsNoise(math.nan, 2),
        lambda: CountsNoise(1.0, 0),
        lambda: Response(0.0, 0.1),
        lambda: Response(1.0, 0.1),
        lambda: Response(0.5, 0.0),
        lambda: Response(0.5, 0.51),
    ],
)
def test_what_cannot_have_been_done_is_no_event(impossible: Callable[[], Event]) -> None:
    with pytest.raises(ValueError, match="no such event"):
        impossible()


# Budgets

amounts = st.floats(0, 1e6)
budgets = st.builds(Budget, amounts, st.floats(0, 1))


def test_ten_releases_of_a_tenth_cost_one() -> None:
    spent = sum([Budget(0.1, 1e-7)] * 10, Budget())
    assert spent == Budget(1.0, 1e-6)
    assert spent.fits_into(Budget(1.0, 1e-6))
    assert not (spent + Budget(5e-324)).fits_into(Budget(1.0, 1e-6))


@settings(max_examples=150, deadline=None)
@given(st.lists(budgets, max_size=8))
def test_a_sum_is_never_below_the_written_numbers_and_is_the_next_above(
    spent: list[Budget],
) -> None:
    together = total(spent)
    for name in ("epsilon", "delta"):
        exact = sum((Fraction(written(getattr(each, name))) for each in spent), Fraction(0))
        found = getattr(together, name)
        assert Fraction(written(found)) >= exact
        if found > 0:
            assert Fraction(written(math.nextafter(found, 0.0))) < exact


@settings(max_examples=150, deadline=None)
@given(budgets, budgets)
def test_what_is_left_and_what_is_spent_never_exceed_the_limit(
    limit: Budget, spent: Budget
) -> None:
    left = limit.left_after(spent)
    if spent.fits_into(limit):
        assert Fraction(written(left.epsilon)) + Fraction(written(spent.epsilon)) <= Fraction(
            written(limit.epsilon)
        )
        assert (spent + left).fits_into(limit)
    else:
        assert 0.0 in (left.epsilon, left.delta)


def test_budgets_compare_by_both_components() -> None:
    assert Budget(1, 0) < Budget(1, 1e-9) <= Budget(1, 1e-9)
    assert Budget(2, 1e-9) > Budget(1, 1e-9) >= Budget(1, 0)
    one, other = Budget(1, 0), Budget(0, 1e-9)
    assert not any((one <= other, one >= other, one < other, one > other))
    assert not one.fits_into(other)


def test_an_infinite_price_fits_into_no_finite_budget() -> None:
    spent = Budget(1.0) + Budget(math.inf)
    assert spent.epsilon == math.inf
    assert not spent.fits_into(Budget(1e300))
    assert Budget(1.0).left_after(spent) == Budget()


@pytest.mark.parametrize("amount", [-1e-300, math.nan, -math.inf])
def test_a_budget_is_never_negative(amount: float) -> None:
    with pytest.raises(ValueError, match="epsilon is at least 0"):
        Budget(amount)
    with pytest.raises(ValueError, match="delta is at least 0"):
        Budget(0.0, amount)


# Pure prices


@settings(max_examples=200, deadline=None)
@given(parameters())
def test_a_release_costs_its_guarantee(given_to: Parameters) -> None:
    price, claim = pure_epsilon(event_of(given_to)), guarantee(ClusterDP(given_to))
    assert price == claim
    assert written(price) >= pure_loss(event_of(given_to))


def test_people_of_disjoint_strata_pay_once_and_those_of_several_releases_each_time() -> None:
    cheap, dear = Response(0.9, 0.25), release(2.0, 2, 0.5, 0.125)
    assert pure_epsilon(Disjoint((cheap, dear, cheap))) == pure_epsilon(dear)
    assert pure_epsilon(Disjoint((dear,) * 1_000_000)) == pure_epsilon(dear)
    twice = pure_epsilon(Together((Disjoint((cheap, dear)), dear)))
    assert twice == pytest.approx(2 * pure_epsilon(dear), rel=1e-15)
    assert pure_epsilon(Together(())) == pure_epsilon(Disjoint(())) == 0.0


def test_what_is_unprotected_costs_more_than_any_budget() -> None:
    event = Together((Response(0.5, 0.25), Disjoint((Unprotected(), Response(0.5, 0.25)))))
    assert pure_epsilon(event) == epsilon_at(event, 1e-3) == math.inf
    assert delta_at(event, 1e9) == 1.0
    assert composed_epsilon([event], 1e-3) == math.inf
    assert composed_delta([event], 1e9) == 1.0


def test_disjoint_parts_are_alternatives() -> None:
    one, other = Response(0.5, 0.25), Response(0.9, 0.25)
    event = Together((Disjoint((one, other)), Disjoint((one, other))))
    assert paths(event) == {
        frozenset({(one, 2)}),
        frozenset({(one, 1), (other, 1)}),
        frozenset({(other, 2)}),
    }


# δ(ε)


def listed_pair(scale: float, moved: int, rate: float, least: float) -> tuple[Floats, Floats]:
    """The dominating pair written out: noise integers one by one, and three draws of a response.

    Noise beyond 60 scales, 1e-26 of it, is left out.
    """
    noise = np.arange(-math.ceil(60 * scale), math.ceil(60 * scale) + 1)
    normaliser = math.tanh(1 / (2 * scale))
    cell = normaliser * np.exp(-np.abs(noise) / scale)
    shifted = normaliser * np.exp(-np.abs(noise + 1) / scale)
    p = np.array([1 - rate + rate * least, rate * least, rate * (1 - 2 * least)])
    q = p[[1, 0, 2]]
    for _ in range(moved):
        p, q = np.multiply.outer(p, cell).ravel(), np.multiply.outer(q, shifted).ravel()
    return p, q


PAIRS = [
    (1.0, 2, 0.5, 0.1),
    (1.0, 1, 0.5, 0.1),
    (3.0, 2, 0.8, 0.02),
    (0.3, 2, 0.3, 0.25),
    (2.0, 2, 0.99, 1 / 3),
    (5.0, 1, 0.9, 0.5),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_delta_is_that_of_the_dominating_pair_written_out(
    pair: tuple[float, int, float, float],
) -> None:
    p, q = listed_pair(*pair)
    event = release(*pair)
    for share in (0.0, 0.1, 0.4, 0.7, 0.95, 0.999):
        epsilon = share * pure_epsilon(event)
        exact = float((p - math.exp(epsilon) * q).clip(0).sum())
        assert delta_at(event, epsilon) == pytest.approx(exact, rel=1e-6, abs=1e-15)


@settings(max_examples=100, deadline=None)
@given(parameters(), st.floats(0, 1))
def test_delta_falls_to_zero_at_the_pure_epsilon_and_not_before(
    given_to: Parameters, share: float
) -> None:
    event = event_of(given_to)
    pure = pure_epsilon(event)
    assert delta_at(event, pure) == 0.0
    assert delta_at(event, pure * (1 - 1e-9)) > 0.0
    assert 0 <= delta_at(event, pure) <= delta_at(event, share * pure) <= delta_at(event, 0.0) < 1


@settings(max_examples=60, deadline=None)
@given(parameters(), st.floats(-12, -0.5).map(lambda power: 10**power))
def test_epsilon_at_delta_is_the_least_double_that_delta_allows(
    given_to: Parameters, delta: float
) -> None:
    event = event_of(given_to)
    epsilon = epsilon_at(event, delta)
    assert delta_at(event, epsilon) <= delta
    if epsilon > 0:
        assert delta_at(event, math.nextafter(epsilon, 0.0)) > min(Decimal(delta), written(delta))
    assert epsilon <= epsilon_at(event, 0.0) == pure_epsilon(event)


def test_over_disjoint_strata_delta_is_the_greatest() -> None:
    one, other = release(1.0, 2, 0.9, 0.25), release(20.0, 2, 0.5, 0.25)
    both = Disjoint((one, other))
    for epsilon in (0.1, 0.5, 1.0, 1.5, 2.0):
        assert delta_at(both, epsilon) == max(delta_at(one, epsilon), delta_at(other, epsilon))


@pytest.mark.parametrize(
    "refused",
    [
        lambda event: delta_at(event, -0.1),
        lambda event: delta_at(event, math.nan),
        lambda event: epsilon_at(event, 1.0),
        lambda event: epsilon_at(event, -1e-9),
        lambda event: epsilon_at(event, math.nan),
    ],
)
def test_impossible_questions_are_refused(refused: Callable[[Event], float]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        refused(Response(0.5, 0.25))


# Against dp-accounting

INTERVAL = 1e-4  # of its lattice; every step of an event is rounded up by less


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_dp_accounting_agrees_to_its_discretisation(pair: tuple[float, int, float, float]) -> None:
    """Each of n steps raises the loss by less than an interval h: δ(ε) ≤ its δ ≤ δ(ε − n h)."""
    event = release(*pair)
    n_steps = pair[1] + 1
    for share in (0.05, 0.1, 0.4, 0.7, 0.95, 0.999):
        epsilon = share * pure_epsilon(event)
        bound = composed_delta([event], epsilon, INTERVAL)
        # 2e-12: what `composed_delta` adds for the arithmetic of dp-accounting, and its error.
        above = delta_at(event, epsilon - n_steps * INTERVAL) + 2e-12
        assert delta_at(event, epsilon) <= bound <= above


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_many_releases_cost_the_same_both_ways(delta: float) -> None:
    releases = [release(10.0, 2, 0.95, 0.08)] * 8
    exact = epsilon_at(Together(tuple(releases)), delta)
    bound = composed_epsilon(releases, delta, INTERVAL)
    assert exact <= bound <= exact + 8 * 3 * INTERVAL
    coarse = composed_epsilon(releases, delta)
    assert exact <= coarse <= exact + pure_epsilon(Together(tuple(releases))) / 1000


def test_a_year_of_releases_costs_far_less_at_a_delta_than_the_pure_sum() -> None:
    nightly = [release(10.0, 2, 0.95, 0.08)] * 365
    pure = composed_epsilon(nightly, 0.0)
    assert pure == pytest.approx(365 * pure_epsilon(nightly[0]), rel=1e-15)
    assert composed_epsilon(nightly, 1e-6) < pure / 5


# Calibration


@settings(max_examples=60, deadline=None)
@given(grid_sizes, shares, st.floats(0.05, 8), st.none() | st.floats(1, 200))
def test_without_delta_calibration_is_that_of_the_closed_form(
    k: int, share: float, epsilon: float, scale: float | None
) -> None:
    least = realised_threshold(share / k, k)
    counts = None if scale is None else CountsNoise(scale, 2)
    budget = min(Decimal(epsilon), written(epsilon))
    with localcontext(prec=60):
        left = budget - (counts_loss(scale, 2) if scale is not None else 0)
        expected = math.ceil(UNIT / (1 + Decimal(least) * (left.exp() - 1))) / UNIT
    if left <= 0 or expected >= 1:
        with pytest.raises(ConfigError) as caught:
            calibrate(epsilon, 0.0, least, counts)
        assert caught.value.key == "privacy.epsilon"
    else:
        assert calibrate(epsilon, 0.0, least, counts) == expected


@settings(max_examples=40, deadline=None)
@given(
    grid_sizes,
    shares,
    st.floats(0.2, 8),
    st.none() | st.floats(2, 40),  # times 1/ε: the counts take at most ε
    st.sampled_from([0.0, 1e-9, 1e-6, 1e-4, 1e-2]),
)
def test_calibrated_parameters_never_cost_more_than_asked_and_a_step_less_would(
    k: int, share: float, epsilon: float, factor: float | None, delta: float
) -> None:
    least = realised_threshold(share / k, k)
    counts = () if factor is None else (CountsNoise(factor / epsilon, 2),)
    try:
        rate = calibrate(epsilon, delta, least, *counts)
    except ConfigError:
        dearest = Together((*counts, Response((UNIT - 1) / UNIT, least)))
        assert delta_at(dearest, epsilon) > delta
        return
    assert (rate * UNIT).is_integer()
    assert delta_at(Together((*counts, Response(rate, least))), epsilon) <= delta
    if rate > 1 / UNIT:
        less = Together((*counts, Response(rate - 1 / UNIT, least)))
        assert delta_at(less, epsilon) > min(Decimal(delta), written(delta))


def test_a_delta_buys_a_little() -> None:
    """METHOD: under 11 % of variance at ε = 1 and δ = 1e-4; V grows with λ/(1 − λ) and more."""
    counts = CountsNoise(20.0, 2)
    pure, approximate = (calibrate(1.0, delta, 1 / 24, counts) for delta in (0.0, 1e-4))
    assert pure > approximate > 0.9 * pure


@given(rate=rates, scale=scales, part=st.floats(0.1, 0.9))
def test_what_is_compared_is_never_below_the_exact_delta_nor_in_its_last_digit(
    rate: float, scale: float, part: float
) -> None:
    event, least = release(scale, 1, rate, 0.25), Decimal("0.25")
    with localcontext(prec=150):
        kept, a = 1 - Decimal(rate) * (1 - least), (-1 / Decimal(scale)).exp()
        other = Decimal(rate) * least
        loss = (kept / other).ln()
        epsilon = Decimal(part * float(loss))
        of_response = {loss: kept, -loss: other, Decimal(0): Decimal(rate) * (1 - 2 * least)}
        of_counts = {1 / Decimal(scale): 1 / (1 + a), -1 / Decimal(scale): a / (1 + a)}
        exact = sum(
            p * q * max(Decimal(0), 1 - (epsilon - one - other).exp())
            for one, p in of_response.items()
            for other, q in of_counts.items()
        )
        assert accountant._delta(accountant._curve(event), epsilon) >= exact
        assert pure_loss(event) >= loss + 1 / Decimal(scale)
