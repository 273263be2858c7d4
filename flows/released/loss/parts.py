"""What each thing that is published of an outcome tells of one unit, from a release alone.

A unit is in one stratum, one pool and one arm, so of those one counts, and all have the same noise.
Probabilities are published as multiples of 2⁻⁵³: they are read as whole numbers, and compared
exactly.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import duckdb
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
from schemas.arrays import Floats
from schemas.released import Metric

_UNIT: Final = 2**53
"""What the probabilities of a row add up to, in whole numbers."""
_ROUNDED: Final = 1 + Fraction(1, 2**48)
"""What rounding may have taken from a published product of a scale and a step."""
_STEP, _ULPS, _MOST_OF_A_STEP = 1e-9, 4, 1e-4
"""How near a value of a grid lies to whole steps: 10⁻⁹ of one, or as near as doubles allow."""
_EVERYTHING: Final = Decimal("Infinity")
"""The loss of what tells all."""

_WHOLE: Final = f"probability * {_UNIT}"
_ROWS: Final = f"""
    SELECT coalesce(bool_and(whole AND total = {_UNIT}), true), min(least) FROM (
        SELECT bool_and(probability BETWEEN 0 AND 1 AND {_WHOLE} = floor({_WHOLE})) AS whole,
            sum(try_cast({_WHOLE} AS HUGEINT)) AS total, min(probability) AS least
        FROM main.{{table}} WHERE metric = $metric GROUP BY {{row}})"""  # noqa: S608 - ours
# Of the outputs that doubles cannot tell from the worst, whole numbers find it.
_WORST: Final = f"""
    WITH outputs AS (
        SELECT max({_WHOLE}) AS most, min({_WHOLE}) AS least FROM main.randomiser
        WHERE metric = $metric GROUP BY "table", output HAVING max(probability) > 0)
    SELECT DISTINCT try_cast(most AS HUGEINT), try_cast(least AS HUGEINT) FROM outputs
    WHERE least = 0 OR most / least >= 0.999999 * (
        SELECT max(most / least) FROM outputs WHERE least > 0)"""  # noqa: S608 - ours
_LEAVES_OUT: Final = """
    SELECT coalesce(bool_or(total IS DISTINCT FROM n_units), false) FROM (
        SELECT {of}, sum(noisy_count) AS total FROM main.{table}
        WHERE metric = $metric GROUP BY {of})
    LEFT JOIN (
        SELECT {of}, sum(n_units) AS n_units FROM main.pools WHERE metric = $metric GROUP BY {of}
    ) USING ({of})"""
_SCALE: Final = "SELECT min(noise_scale) FROM main.{table} WHERE metric = $metric"
_GRID: Final = "SELECT outcome FROM main.outcomes WHERE metric = $metric ORDER BY outcome"
_PRIORS: Final = """
    SELECT d.probability, coalesce(c.noisy_count, 'NaN'::DOUBLE) / p.n_units AS share
    FROM (FROM main.debias WHERE metric = $metric) AS d
    JOIN (FROM main.pools WHERE metric = $metric) AS p USING (pool, arm)
    LEFT JOIN (FROM main.counts WHERE metric = $metric) AS c USING (pool, arm, outcome)
    ORDER BY pool, arm, outcome"""
_MADE_OF: Final = {
    "cluster-dp": "the noisy counts",
    "cluster-free-dp": "the noisy counts",
    "uniform-prior-dp": "nothing",
}
"""What mechanisms make their priors of."""


@dataclass(frozen=True)
class Step:
    """One of the things that were published of a unit's outcome."""

    name: str
    loss: Decimal
    """ε of it alone, with δ = 0."""
    how: How
    """Whether ``loss`` is what neighbours differ by, an upper bound of it, or taken on trust."""
    told: Pair | None = None
    """Neighbours that differ by no less than any do; None: of them only ``loss`` is known."""

    @property
    def pair(self) -> Pair:
        """Neighbours that differ by no less than any do."""
        return coin(self.loss) if self.told is None else self.told


@dataclass(frozen=True)
class Published:
    """An outcome in a file that is open; its rows keep the rules of readers."""

    connection: duckdb.DuckDBPyConnection
    metric: Metric

    def asked(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query about it."""
        return self.connection.execute(query, {"metric": self.metric.metric}).fetchall()

    def has(self, query: str, **parts: str) -> Any:
        """The only number of a query about it."""
        return self.asked(query.format(**parts))[0][0]

    @cached_property
    def grid(self) -> tuple[Fraction, ...]:
        """The values of its grid, increasing; shape [K]."""
        return tuple(Fraction(value) for (value,) in self.asked(_GRID))

    def steps_above(self, step: float) -> list[Fraction]:
        """How many steps each value of its grid lies above the lowest, shape [K]."""
        return [(value - self.grid[0]) / Fraction(step) for value in self.grid]

    def moved(self, table: str, of: str) -> int:
        """How many of a table's noisy counts one outcome in place of another moves by one."""
        leaves_out = self.has(_LEAVES_OUT, table=table, of=of)
        return 1 if self.metric.n_outcomes == 2 and not leaves_out else 2

    @cached_property
    def priors(self) -> tuple[bool, Fraction]:
        """Whether priors are of whole multiples that add up to 1, and the least of any."""
        ((are_whole, least),) = self.asked(_ROWS.format(table="debias", row="pool, arm"))
        return bool(are_whole), Fraction(least)

    @property
    def priors_and_shares(self) -> tuple[Floats, Floats]:
        """Priors, and the noisy shares that they were made of (NaN without); shape [S, K] each."""
        found = self.connection.execute(_PRIORS, {"metric": self.metric.metric}).fetchnumpy()
        prior, share = (
            found[name].reshape(-1, len(self.grid)) for name in ("probability", "share")
        )
        return prior, share

    @cached_property
    def told_apart(self) -> Decimal:
        """The loss of its tables: by how much an output tells two outcomes apart at most."""
        worst = self.asked(_WORST)
        if not all(least for _, least in worst):
            return _EVERYTHING
        return logarithm(max(Fraction(most, least) for most, least in worst))


def steps_of(published: Published) -> Iterator[Step]:
    """Everything that was published of an outcome."""
    metric, scale = published.metric, published.metric.noise_scale
    if scale is not None and metric.grid_step is None:
        yield _of_counts("counts", scale, published.moved("counts", "pool, arm"))
    elif scale is not None and metric.grid_step is not None:
        most = max(1, round(published.steps_above(metric.grid_step)[-1]))
        name = "noisy means in pools" if metric.strata_statistic == "means" else "noisy differences"
        yield Step(name, _over(most, scale), "exact", shift(scale, most))
    scale = published.has(_SCALE, table="squares")
    if scale is not None and metric.grid_step is not None:
        yield _squares(published, Fraction(scale), metric.grid_step)
    scale = published.has(_SCALE, table="arm_counts")
    if scale is not None:
        yield _of_counts("arm_counts", scale, published.moved("arm_counts", "arm"))
    if metric.resampling_probability is not None:
        least = min(published.priors[1], Fraction(metric.truncation_threshold or 0.0))
        yield _redrawn(Fraction(metric.resampling_probability), least)
    if metric.response_epsilon is not None:
        loss = max(Decimal(metric.response_epsilon), published.told_apart)
        yield Step("units", loss, "bound")


def _of_counts(name: str, scale: float, moved: int) -> Step:
    return Step(name, _over(moved, scale), "exact", cells(scale, moved))


def _over(moved: int | Fraction, scale: float | Fraction) -> Decimal:
    return decimal_of(Fraction(moved) / Fraction(scale))


def _squares(published: Published, scale: Fraction, step: float) -> Step:
    """Of (y − c)², c the middle: it moves by their greatest difference, in whole (h/2)²."""
    steps, grid = [round(one) for one in published.steps_above(step)], published.grid
    squares = [(2 * one - steps[-1]) ** 2 for one in steps]
    width = (grid[-1] - grid[0]) / max(1, steps[-1])
    moved = (max(squares) - min(squares)) * width**2 / 4
    return Step("squares", _over(moved, scale * _ROUNDED), "exact")


def _redrawn(rate: Fraction, least: Fraction) -> Step:
    """Outcomes drawn anew at ``rate`` λ from priors of at least γ: ln(1 + (1 − λ)/(λγ))."""
    if least <= 0:
        return Step("units", _EVERYTHING, "exact")
    loss = logarithm(1 + (1 - rate) / (rate * least))
    return Step("units", loss, "exact", response(rate, least))


def broken_rules(published: Published, mechanism: str) -> Iterator[str]:
    """Every rule that tables break of which the loss is computed.

    ``mechanism`` says what priors are made of.
    """
    metric = published.metric
    if metric.grid_step is not None and not _on_steps(published, metric.grid_step):
        yield "outcomes: every value is whole steps of metrics.grid_step from the lowest"
    is_one = metric.strata_statistic == "count-and-complement"
    if is_one and published.moved("counts", "pool, arm") != 1:
        yield "counts: a count and its complement are two, and add up to the pool's units"
    if metric.response_epsilon is not None:
        row = '"table", outcome, other_outcome'
        if not published.has(_ROWS, table="randomiser", row=row):
            yield "randomiser: probabilities are whole multiples of 2⁻⁵³ that add up to 1"
        if published.told_apart > _within(metric.response_epsilon):
            yield "randomiser: no output tells outcomes apart by more than metrics.response_epsilon"
    if metric.resampling_probability is not None and metric.truncation_threshold is not None:
        yield from broken_priors(published, mechanism, metric.truncation_threshold)


def _on_steps(published: Published, step: float) -> bool:
    grid = published.grid
    ulp = math.ulp(float(max(abs(grid[0]), abs(grid[-1]))))
    near = Fraction(min(max(_STEP, _ULPS * ulp / step), _MOST_OF_A_STEP))
    above = published.steps_above(step)
    return all(abs(one - round(one)) <= near for one in above) and round(above[-1]) >= 1


def _within(epsilon: float) -> Decimal:
    with exactly():
        return Decimal(epsilon) * (1 + Decimal(10) ** -55)  # more than logarithms are rounded up by


def broken_priors(published: Published, mechanism: str, threshold: float) -> Iterator[str]:
    """Every rule that priors of at least a ``threshold`` γ break."""
    are_whole, least = published.priors
    if not are_whole:
        yield "debias: probabilities are whole multiples of 2⁻⁵³ that add up to 1"
    if least < Fraction(threshold):
        yield "debias: no probability is below metrics.truncation_threshold"
    if mechanism not in _MADE_OF:
        yield "release: mechanism is one whose priors this program knows"
        return
    k = published.metric.n_outcomes
    priors, shares = published.priors_and_shares
    expected = np.full_like(shares, 1.0 / k)
    if mechanism != "uniform-prior-dp":
        expected = _truncated(shares, threshold)
    near = (k + 8) * 2.0**-52
    if not bool(np.all(np.abs(priors - expected) <= near)):
        yield f"debias: probabilities are those that {mechanism} makes of {_MADE_OF[mechanism]}"


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
