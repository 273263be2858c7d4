"""What each thing that is published of an outcome tells of one unit, from a release alone.

A unit is in one stratum, one pool and one arm, so of those one counts, and all have the same noise.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np

from flows.released.loss.loss import How
from flows.released.loss.pairs import (
    Pair,
    cells,
    coin,
    decimal_of,
    exactly,
    logarithm,
    response,
    shift,
)
from flows.released.loss.published import Priors, Published, Tables
from schemas.arrays import Floats

_ROUNDED: Final = 1 + Fraction(1, 2**48)
"""What rounding may have taken from a published product of a scale and a step."""
_STEP, _ULPS, _MOST_OF_A_STEP = 1e-9, 4, 1e-4
"""How near a value of a grid lies to whole steps: 10⁻⁹ of one, or as near as doubles allow."""
_LAST_BITS = 2.0**-52
_EVERYTHING: Final = Decimal("Infinity")
"""The loss of what tells all."""


@dataclass(frozen=True)
class Step:
    """One of the things that were published of a unit's outcome."""

    name: str
    loss: Decimal
    """ε of it alone, with δ = 0."""
    how: How
    """Whether ``loss`` is what neighbours differ by, an upper bound of it, or taken on trust."""
    pair: Callable[[], Pair]
    """Neighbours that differ by no less than any do."""


def steps_of(published: Published) -> tuple[Step, ...]:
    """Everything that was published of an outcome."""
    of_arms = *_squares(published), *_arm_counts(published)
    return (*_statistic(published), *of_arms, *_units(published))


def broken_rules(published: Published) -> Iterator[str]:
    """Every rule that tables break of which the loss is computed."""
    metric, grid = published.metric, published.grid
    if metric.grid_step is not None and not _on_steps(grid, metric.grid_step):
        yield "outcomes: every value is whole steps of metrics.grid_step from the lowest"
    if metric.strata_statistic == "count-and-complement" and _moved(published) != 1:
        yield "counts: a count and its complement are two, and add up to the pool's units"
    if published.tables is not None:
        yield from _broken_tables(published.tables, metric.response_epsilon or 0.0)


def broken_priors(published: Published, mechanism: str) -> Iterator[str]:
    """Every rule that priors break; ``mechanism`` says what they are made of."""
    priors, least = published.priors, published.metric.truncation_threshold
    if priors is None or least is None:
        return
    if not priors.are_whole:
        yield "debias: probabilities are whole multiples of 2⁻⁵³ that add up to 1"
    if priors.least < Fraction(least):
        yield "debias: no probability is below metrics.truncation_threshold"
    expected = _priors_of(priors, mechanism, least)
    if expected is None:
        yield "release: mechanism is one whose priors this program knows"
    elif not bool(np.all(np.abs(priors.probabilities - expected) <= _near(expected))):
        yield f"debias: probabilities are those that {mechanism} makes of {_MADE_OF[mechanism]}"


_MADE_OF: Final = {
    "cluster-dp": "the noisy counts",
    "cluster-free-dp": "the noisy counts",
    "uniform-prior-dp": "nothing",
}


def _near(expected: Floats) -> float:
    return float(expected.shape[1] + 8) * _LAST_BITS


def _priors_of(priors: Priors, mechanism: str, least: float) -> Floats | None:
    """The priors that a mechanism makes; NaN where it lacks what to make them of."""
    if mechanism == "uniform-prior-dp":
        return np.full_like(priors.shares, 1.0 / priors.shares.shape[1])
    return _truncated(priors.shares, least) if mechanism in _MADE_OF else None


def _truncated(shares: Floats, least: float) -> Floats:
    """Algorithm 2 of Javanmard, Mirrokni and Pouget-Abadie (2025): clip, and renormalise.

    q = clip(share, γ, 1);  ζ = q − γ where Σq > 1, else 1 − q;  q̃ = q + ζ/Σζ · (1 − Σq).
    """
    clipped = np.clip(shares, least, 1.0)
    over = clipped.sum(axis=1, keepdims=True) - 1.0
    room = np.where(over > 0.0, clipped - least, 1.0 - clipped)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(over == 0.0, 0.0, room / room.sum(axis=1, keepdims=True))
    found: Floats = clipped - part * over
    return found


def _broken_tables(tables: Tables, epsilon: float) -> Iterator[str]:
    if not tables.are_whole:
        yield "randomiser: probabilities are whole multiples of 2⁻⁵³ that add up to 1"
    if tables.ratio is None or logarithm(tables.ratio) > _within(epsilon):
        yield "randomiser: no output tells outcomes apart by more than metrics.response_epsilon"


def _within(epsilon: float) -> Decimal:
    with exactly():
        return Decimal(epsilon) * (1 + Decimal(10) ** -55)  # more than logarithms are rounded up by


def _statistic(published: Published) -> Iterator[Step]:
    metric, scale = published.metric, published.metric.noise_scale
    if scale is None:
        return
    if metric.grid_step is None:
        yield _of_counts("counts", scale, _moved(published))
        return
    most = max(1, _steps(published.grid, metric.grid_step)[-1])
    name = "noisy means in pools" if metric.strata_statistic == "means" else "noisy differences"
    yield Step(name, _over(most, scale), "exact", partial(shift, scale, most))


def _moved(published: Published) -> int:
    """How many noisy counts one outcome in place of another moves by one."""
    is_one = published.metric.n_outcomes == 2 and not published.counts_leave_out
    return 1 if is_one else 2


def _of_counts(name: str, scale: float, moved: int) -> Step:
    return Step(name, _over(moved, scale), "exact", partial(cells, scale, moved))


def _over(moved: int | Fraction, scale: float | Fraction) -> Decimal:
    return decimal_of(Fraction(moved) / Fraction(scale))


def _squares(published: Published) -> Iterator[Step]:
    """Of (y − c)², c the middle: it moves by their greatest difference, in whole (h/2)²."""
    scale, step = published.square_scale, published.metric.grid_step
    if scale is None or step is None:
        return
    steps = _steps(published.grid, step)
    squares = [(2 * one - steps[-1]) ** 2 for one in steps]
    width = (published.grid[-1] - published.grid[0]) / max(1, steps[-1])
    moved = (max(squares) - min(squares)) * width**2 / 4
    loss = _over(moved, Fraction(scale) * _ROUNDED)
    yield Step("squares", loss, "exact", partial(coin, loss))


def _arm_counts(published: Published) -> Iterator[Step]:
    if published.arm_scale is not None:
        is_one = published.metric.n_outcomes == 2 and not published.arms_leave_out
        yield _of_counts("arm_counts", published.arm_scale, 1 if is_one else 2)


def _units(published: Published) -> Iterator[Step]:
    """Randomised outcomes: by what is declared, or by what is published where that tells more."""
    metric, priors, tables = published.metric, published.priors, published.tables
    if priors is not None and metric.resampling_probability is not None:
        declared = Fraction(metric.truncation_threshold or 0.0)
        yield _redrawn(Fraction(metric.resampling_probability), min(priors.least, declared))
    if tables is not None and metric.response_epsilon is not None:
        realised = _EVERYTHING if tables.ratio is None else logarithm(tables.ratio)
        loss = max(Decimal(metric.response_epsilon), realised)
        yield Step("units", loss, "bound", partial(coin, loss))


def _redrawn(rate: Fraction, least: Fraction) -> Step:
    """Outcomes drawn anew at ``rate`` λ from priors of at least γ: ln(1 + (1 − λ)/(λγ))."""
    if least <= 0:
        return Step("units", _EVERYTHING, "exact", partial(coin, _EVERYTHING))
    loss = logarithm(1 + (1 - rate) / (rate * least))
    return Step("units", loss, "exact", partial(response, rate, least))


def _steps(grid: tuple[Fraction, ...], step: float) -> list[int]:
    """How many steps each value of a grid lies above the lowest: the nearest whole number."""
    return [round((value - grid[0]) / Fraction(step)) for value in grid]


def _on_steps(grid: tuple[Fraction, ...], step: float) -> bool:
    ulp = math.ulp(float(max(abs(grid[0]), abs(grid[-1]))))
    near = Fraction(min(max(_STEP, _ULPS * ulp / step), _MOST_OF_A_STEP))
    above = [(value - grid[0]) / Fraction(step) for value in grid]
    return all(abs(one - round(one)) <= near for one in above) and round(above[-1]) >= 1
