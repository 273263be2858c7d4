"""Checks of an audit: their bound on false alarms is one, their laws are right, and they see.

Exact, but for the tests of power, whose draws are the real ones: each of these fails with a
probability far below 1e-6, as it looks 10 and more standard errors beyond a limit.
"""

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privatizers.lab.audit.checks import (
    Check,
    Events,
    judge,
    laplace,
    noise_events,
    response_events,
    responses,
    rounding_events,
    sizes,
)
from privatizers.mechanisms.randomised_response import RandomisedResponse
from privatizers.noise.randomness import discrete_laplace, random_words
from schemas.arrays import Floats


def one(what: str, happened: float, expected: float, trials: float) -> Events:
    return Events((what,), np.array([happened]), np.array([expected]), np.array([trials]))


@pytest.mark.parametrize(("n", "p"), [(7, 0.5), (40, 0.02), (400, 0.9)])
def test_a_surprise_bounds_the_exact_tail(n: int, p: float) -> None:
    """Of a binomial: P(as far or further on that side) ≤ e^−surprise, for every outcome."""
    happened = np.arange(n + 1.0)
    events = Events(("x",) * (n + 1), happened, np.full(n + 1, n * p), np.full(n + 1, float(n)))
    bound = np.exp(-events.surprise)
    above, below = stats.binom.sf(happened - 1, n, p), stats.binom.cdf(happened, n, p)
    tail = np.where(happened >= n * p, above, below)
    assert np.all(tail <= bound * (1 + 1e-9))


def test_trials_of_different_probabilities_are_bounded_too() -> None:
    p = np.array([0.9, 0.1, 0.5, 0.02, 0.7])
    law = np.ones(1)
    for each in p:
        law = np.convolve(law, [1 - each, each])
    for happened in range(6):
        surprise = float(one("x", happened, float(p.sum()), 5).surprise[0])
        tail = law[happened:].sum() if happened >= p.sum() else law[: happened + 1].sum()
        assert tail <= math.exp(-surprise) * (1 + 1e-9)


def test_what_cannot_happen_is_a_failure_and_what_must_is_none() -> None:
    assert not judge("x", [one("never", 1, 0.0, 10)], 1e-9).holds
    assert judge("x", [one("always", 10, 10.0, 10)], 1e-9).holds
    assert not judge("x", [one("always", 9, 10.0, 10)], 1e-9).holds
    assert judge("x", [], 1e-9).holds


def test_a_failure_says_what_was_seen() -> None:
    check = judge("heads", [one("a coin", 900, 500.0, 1000)], 1e-4)
    assert not check.holds
    assert check.evidence == "a coin: 900 of 1,000 times, expected 500.0"
    assert judge("same", ["a is another"]).evidence == "a is another"
    assert judge("same", [], seen="seen") == Check("same", holds=True, evidence="seen")


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5])
def test_laws_of_noise_are_those_of_its_definition(scale: float) -> None:
    a, reach = math.exp(-1 / scale), int(60 * scale) + 5
    k = np.arange(-reach, reach + 1)
    p = (1 - a) / (1 + a) * a ** np.abs(k)
    trials = laplace(k, scale)
    assert trials.equal == pytest.approx((p**2).sum())
    for name, happened, chance in zip(trials.kinds, trials.happened, trials.chance, strict=True):
        assert chance[0] == pytest.approx(p[happened].sum()), name
    # No size is likelier to be exceeded than its bound says: Chernoff's, of one noise.
    for size in range(1, 20):
        one = sizes(np.array([[size]]), scale, ["one"])
        far = np.abs(k) >= size if size > one.expected[0] else np.abs(k) <= size
        assert p[far].sum() <= math.exp(-one.surprise[0]) * (1 + 1e-9)
        assert one.expected[0] == pytest.approx((np.abs(k) * p).sum())


def test_noise_that_is_off_is_seen_and_other_noise_is_not() -> None:
    noise = discrete_laplace(400_000, 6.0).reshape(100, 4, 1000)
    cells = ["a", "b", "c", "d"]

    def holds(of: NDArray[np.int64], scale: float = 6.0) -> bool:
        return judge("noise", noise_events(of, scale, "noise", cells), 1e-6).holds

    assert holds(noise)
    assert not holds(noise, 6.0 * 0.96)
    assert not holds(noise, 6.0 * 1.04)
    assert not holds(2 * (noise // 2))
    for axis in range(3):  # of two that follow each other by runs, cells or numbers
        half = np.take(noise, np.arange(noise.shape[axis] // 2), axis)
        assert not holds(np.repeat(half, 2, axis))
    one_cell = noise.copy()
    one_cell[:, 2] = discrete_laplace(100_000, 5.5).reshape(100, 1000)
    assert not holds(one_cell)
    for other in (noise, -noise):
        pairs = laplace(noise.ravel(), 6.0).both(laplace(other.ravel(), 6.0))
        assert not judge("pairs", [pairs.counted("noises")], 1e-6).holds


def from_each(prior: Floats) -> Floats:
    """Tables of draws that do not hang on the outcome."""
    return np.broadcast_to(prior[:, np.newaxis], (*prior.shape, prior.shape[1]))


@pytest.mark.parametrize("kind", ["prior", "tables"])
def test_expected_draws_are_those_of_every_unit_by_itself(kind: str) -> None:
    """Transitions, pairs and all, against sums over units one by one."""
    prior = np.array([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]])
    levels, strata = np.array([0, 1, 2, 2, 1, 0]), np.array([0, 0, 0, 1, 1, 1])
    law = 0.6 * np.eye(3)[levels] + 0.4 * prior[strata]
    found = responses(levels, strata, levels, from_each(prior), np.arange(2), 0.4)
    if kind == "tables":
        q = 0.6 * np.eye(3) + 0.4 * prior[:, np.newaxis]
        found = responses(levels, strata, levels, q, np.arange(2))
    expected: dict[str, float] = {}
    for each in response_events([found], "a unit", [(strata, ["here", "there"])]):
        expected |= dict(zip(each.what, each.expected.tolist(), strict=True))
    kept, low = law[np.arange(6), levels], law[:, 0]
    assert expected["a unit is kept"] == pytest.approx(kept.sum())
    assert expected["there is kept"] == pytest.approx(kept[3:].sum())
    for i, j in product(range(3), range(3)):
        assert expected[f"a unit {i} became {j}"] == pytest.approx(law[levels == i, j].sum())
    for name, chance in {"is kept": kept, "is low": low, "is odd": law[:, 1]}.items():
        pairs = sum(float(chance[place] * chance[place + 1]) for place in (0, 2, 4))
        assert expected[f"each of two of a unit, 1 apart, {name}"] == pytest.approx(pairs)


def test_draws_that_are_off_are_seen_and_others_are_not() -> None:
    prior = np.full((1, 4), 0.25)
    levels = np.arange(300_000) % 4
    strata = np.zeros_like(levels)

    def holds(drawn: NDArray[np.int64], rate: float = 0.5) -> bool:
        found = responses(levels, strata, drawn, from_each(prior), np.arange(1), rate)
        return judge("draws", response_events([found], "a unit"), 1e-6).holds

    drawn = RandomisedResponse(0.5, prior).draw(levels, strata).astype(np.int64)
    assert holds(drawn)
    assert not holds(drawn, 0.5 * 1.03)
    assert not holds(drawn, 0.5 / 1.03)
    half = drawn.copy()
    half[150_000:] = (drawn[:150_000] - levels[:150_000] + levels[150_000:]) % 4
    assert not holds(half)  # one draw for two units
    again = RandomisedResponse(1.0 - 2.0**-53, prior).draw(levels[:150_000], strata[:150_000])
    value = np.repeat(again.astype(np.int64), 2)
    coin = random_words(300_000) * 2.0**-53 < 0.5
    shared = np.where(coin, value, levels)
    assert not holds(shared)  # coins of their own, and one new value for two units
    last = drawn.copy()
    last[63::64] = levels[63::64]
    assert not holds(last)


def test_rounding_that_is_off_is_seen_and_other_rounding_is_not() -> None:
    grid = np.array([0.0, 1.0, 4.0])
    values: Floats = (random_words(200_000) * 2.0**-53 * 4.0).astype(np.float64)
    lower = (values >= 1.0).astype(np.int64)
    share = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
    levels = lower + (random_words(len(values)) * 2.0**-53 < share)

    def holds(found: NDArray[np.int64], *, nearest: bool = False) -> bool:
        events = rounding_events(found, values, grid, "one", nearest=nearest)
        return judge("rounding", events, 1e-6).holds

    assert holds(levels)
    assert not holds(lower + np.diff(np.floor(np.cumsum(share)), prepend=0.0).astype(np.int64))
    assert not holds(lower + (share > 0.5))
    elsewhere = levels.copy()
    elsewhere[7] = 2 - 2 * lower[7]  # a single one that is at a point farther away
    assert not holds(elsewhere)
    closer = lower + (share > 0.5)
    assert holds(closer, nearest=True)
    assert not holds(levels, nearest=True)
    swapped = closer.copy()
    swapped[[0, 1]] += np.where(share[:2] > 0.5, -1, 1)
    assert not holds(swapped, nearest=True)
