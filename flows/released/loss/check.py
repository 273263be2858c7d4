"""What a release costs a unit, worked out from the released file alone.

Nothing here prices, plans or draws a release: what a run computes and what this computes can be
compared. What a file cannot show is said (:attr:`Loss.trusted`).

A unit is in one stratum, one pool and one arm, so of those one counts, and all have the same noise.
Probabilities are published as multiples of 2⁻⁵³: they are read as whole numbers, and compared
exactly.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

from flows.released.estimates.stated import check_stated
from flows.released.file.read import open_release, read_manifest
from flows.released.loss import pairs
from flows.released.loss.loss import How, Loss, MetricLoss, Part
from flows.released.loss.pairs import Pair
from schemas.arrays import Floats
from schemas.errors import InputError
from schemas.released import Manifest, Metric

_UNIT: Final = 2**53  # what the probabilities of a row add up to, in whole numbers
_ROUNDED: Final = 1 + Fraction(1, 2**48)
"""What rounding may have taken from a published product of a scale and a step."""
_STEP, _ULPS, _MOST_OF_A_STEP = 1e-9, 4, 1e-4
"""How near a value of a grid lies to whole steps: 10⁻⁹ of one, or as near as doubles allow."""
_EVERYTHING: Final = Decimal("Infinity")
_LOGARITHMS: Final = Decimal(f"1.{1:055}")  # of a loss: more than logarithms are rounded up by
_NEAR: Final = 1e-9  # of what a file says was computed: a run rounds up by less

_WHOLE: Final = f"probability * {_UNIT}"
_ROWS: Final = f"""
    SELECT coalesce(bool_and(whole AND total = {_UNIT}), true), min(least) FROM (
        SELECT bool_and(probability BETWEEN 0 AND 1 AND {_WHOLE} = floor({_WHOLE})) AS whole,
            sum(try_cast({_WHOLE} AS HUGEINT)) AS total, min(probability) AS least
        FROM main.{{table}} WHERE metric = $metric GROUP BY {{row}})"""  # noqa: S608 - ours
_WORST: Final = """
    SELECT max(probability) AS most, min(probability) AS least FROM main.randomiser
    WHERE metric = $metric GROUP BY "table", output HAVING max(probability) > 0"""
_LEAVES_OUT: Final = """
    SELECT coalesce(bool_or(total IS DISTINCT FROM n_units), false) FROM (
        SELECT {of}, sum(noisy_count) AS total FROM main.{table}
        WHERE metric = $metric GROUP BY {of})
    LEFT JOIN (
        SELECT {of}, sum(n_units) AS n_units FROM main.pools WHERE metric = $metric GROUP BY {of}
    ) USING ({of})"""
_ONCE: Final = "SELECT count(*) = count(DISTINCT unit_id) FROM temp.main.drawn"
_SCALES: Final = "SELECT min(noise_scale) FROM main.{table} WHERE metric = $metric GROUP BY {of}"
_CENTRES: Final = "SELECT centre FROM main.squares WHERE metric = $metric"
_GRID: Final = "SELECT outcome FROM main.outcomes WHERE metric = $metric ORDER BY outcome"
_PRIORS: Final = """
    SELECT d.probability, coalesce(c.noisy_count, 'NaN'::DOUBLE) / p.n_units AS share
    FROM (FROM main.debias WHERE metric = $metric) AS d
    JOIN (FROM main.pools WHERE metric = $metric) AS p USING (pool, arm)
    LEFT JOIN (FROM main.counts WHERE metric = $metric) AS c USING (pool, arm, outcome)
    ORDER BY pool, arm, outcome"""
_OF_COUNTS: Final = ("cluster-dp", "cluster-free-dp")  # there is one that makes priors of nothing


@dataclass(frozen=True)
class Step:
    """One of the things that were published of a unit's outcome."""

    name: str
    loss: Decimal
    """ε of it alone, with δ = 0."""
    how: How = "exact"
    """Whether ``loss`` is what neighbours differ by, an upper bound of it, or taken on trust."""
    told: tuple[Pair, ...] = ()
    """Neighbours that differ by no less than any do; of them only ``loss`` is known without."""


@dataclass(frozen=True)
class Published:
    """An outcome in a file that is open, what it costs, and the rules that its tables break.

    Its rows keep the rules of readers, but for those on losses.
    """

    connection: duckdb.DuckDBPyConnection
    mechanism: str
    metric: Metric

    def asked(self, query: str, **parts: str) -> duckdb.DuckDBPyConnection:
        """What a query about it gives."""
        return self.connection.execute(query.format(**parts), {"metric": self.metric.metric})

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Everything that was published of it; of its units last."""
        return tuple(self._steps())

    @cached_property
    def pure(self) -> Decimal:
        """ε with δ = 0."""
        return sum((step.loss for step in self.steps), Decimal(0))

    @cached_property
    def least(self) -> tuple[Decimal, Decimal]:
        """The least ε at the stated δ, and the least δ at the stated ε."""
        stated, allowed = _read(self.metric.epsilon), _read(self.metric.delta)
        if allowed == 0 and self.pure <= stated:
            return self.pure, Decimal(0)
        told = pairs.together(
            pair for step in self.steps for pair in step.told or (pairs.coin(step.loss),)
        )
        delta = Decimal(0) if self.pure <= stated else pairs.delta_of(told, stated)
        epsilon = pairs.epsilon_of(told, allowed, self.pure) if allowed else self.pure
        return min(epsilon, stated) if allowed and delta <= allowed else epsilon, delta

    def _steps(self) -> Iterator[Step]:
        metric, scale, step = self.metric, self.metric.noise_scale, self.metric.grid_step
        steps, width = [round(one) for one in self.above], self.grid[-1] - self.grid[0]
        most = max(1, steps[-1])
        if scale is not None and step is None:
            yield self._of_counts("counts", "pool, arm", scale)
        elif scale is not None:
            name = "means in pools" if metric.strata_statistic == "means" else "differences"
            yield Step(f"noisy {name}", _over(most, scale), told=(pairs.shift(scale, most),))
        squares = [(2 * one - steps[-1]) ** 2 for one in steps]
        moved = (max(squares) - min(squares)) * (width / most) ** 2 / 4
        for least in self.scales("squares"):  # of (y − c)², c the middle: whole (h/2)²
            yield Step("squares", _over(moved, least * _ROUNDED))
        for least in self.scales("arm_counts"):
            yield self._of_counts("arm_counts", "arm", least)
        # Of a margin one sum moves, by the grid's range; a unit is in one cell of each.
        losses = [_over(width, least * _ROUNDED) for least in self.scales("margins", "margin")]
        if losses:
            yield Step("margins", sum(losses, Decimal(0)))
        if metric.resampling_probability is not None:
            rate = Fraction(metric.resampling_probability)  # λ, and priors are of at least γ
            least = min(self.rows("debias")[1], Fraction(metric.truncation_threshold or 0.0))
            loss = pairs.logarithm(1 + (1 - rate) / (rate * least)) if least > 0 else _EVERYTHING
            yield Step("units", loss, told=(pairs.response(rate, least),) if least > 0 else ())
        if metric.response_epsilon is not None:
            yield Step("units", max(Decimal(metric.response_epsilon), self.told_apart), "bound")

    def _of_counts(self, table: str, of: str, scale: float | Fraction) -> Step:
        moved = self.moved(table, of)
        return Step(table, _over(moved, scale), told=(pairs.coin(_over(1, scale)),) * moved)

    @cached_property
    def grid(self) -> tuple[Fraction, ...]:
        """The values of its grid, increasing; shape [K]."""
        return tuple(Fraction(value) for (value,) in self.asked(_GRID).fetchall())

    @property
    def above(self) -> list[Fraction]:
        """How many steps, if there are any, each value of its grid lies above the lowest."""
        step = Fraction(self.metric.grid_step or 1)
        return [(value - self.grid[0]) / step for value in self.grid]

    def scales(self, table: str, of: str = "metric") -> list[Fraction]:
        """The least scale of noise in a table, of each group of its rows that there is."""
        return [Fraction(one) for (one,) in self.asked(_SCALES, table=table, of=of).fetchall()]

    def moved(self, table: str, of: str) -> int:
        """How many of a table's noisy counts one outcome in place of another moves by one."""
        if self.metric.n_outcomes != 2 or (table, self.metric.strata_statistic) == ("counts",) * 2:
            return 2  # each with noise of its own, whatever they happen to add up to
        ((leaves_out,),) = self.asked(_LEAVES_OUT, table=table, of=of).fetchall()
        return 2 if leaves_out else 1

    def rows(self, table: str, row: str = "pool, arm") -> tuple[bool, Fraction]:
        """Whether rows are whole multiples of 2⁻⁵³ that add up to 1, and the least of any."""
        ((are_whole, least),) = self.asked(_ROWS, table=table, row=row).fetchall()
        return bool(are_whole), Fraction(least)

    @cached_property
    def told_apart(self) -> Decimal:
        """The loss of its tables: by how much an output tells two outcomes apart at most.

        Divisions are rounded in order, so the worst is one of those that doubles find worst.
        """
        most, least = self.asked(_WORST).fetchnumpy().values()
        if not least.all():
            return _EVERYTHING
        ratio = most / least
        worst = np.unique(np.stack([most, least])[:, ratio == ratio.max()], axis=1).T.tolist()
        return pairs.logarithm(max(Fraction(one) / Fraction(other) for one, other in worst))

    def broken(self) -> Iterator[str]:
        """Every rule that its tables break, and what is said of its price that is too little."""
        metric = self.metric
        yield from self._broken_grid()
        is_one = metric.strata_statistic == "count-and-complement"
        if is_one and self.moved("counts", "pool, arm") != 1:
            yield "counts: a count and its complement are two, and add up to the pool's units"
        if metric.response_epsilon is not None:
            if not self.rows("randomiser", '"table", outcome, other_outcome')[0]:
                yield "randomiser: probabilities are whole multiples of 2⁻⁵³ that add up to 1"
            if self.told_apart > Decimal(metric.response_epsilon) * _LOGARITHMS:
                yield "randomiser: no output tells outcomes apart by more than response_epsilon"
        yield from self._broken_priors()
        epsilon, delta = self.least
        if delta > _read(metric.delta):
            listed = " and ".join(f"{step.name} ({float(step.loss):.6g})" for step in self.steps)
            yield f"metrics: epsilon is less than what {listed} cost"
        elif metric.computed_epsilon < float(epsilon) * (1.0 - _NEAR):
            yield "metrics: computed_epsilon is less than it is"
        elif metric.computed_delta < float(delta) * (1.0 - _NEAR):
            yield "metrics: computed_delta is less than it is"

    def _broken_grid(self) -> Iterator[str]:
        """Every rule that values break by which sums, and sums of squares, are moved."""
        step, middle = self.metric.grid_step, float((self.grid[0] + self.grid[-1]) / 2)
        if step is not None:
            ulp = math.ulp(float(max(abs(self.grid[0]), abs(self.grid[-1]))))
            near = Fraction(min(max(_STEP, _ULPS * ulp / step), _MOST_OF_A_STEP))
            if round(self.above[-1]) < 1 or any(abs(one - round(one)) > near for one in self.above):
                yield "outcomes: every value is whole steps of metrics.grid_step from the lowest"
        if {one for (one,) in self.asked(_CENTRES).fetchall()} - {middle}:
            yield "squares: the centre is the middle of the outcomes, to the last digit"

    def _broken_priors(self) -> Iterator[str]:
        """Every rule that priors of at least the stated γ break, where there are any."""
        threshold = self.metric.truncation_threshold
        if self.metric.resampling_probability is None or threshold is None:
            return
        are_whole, least = self.rows("debias")
        if not are_whole:
            yield "debias: probabilities are whole multiples of 2⁻⁵³ that add up to 1"
        if least < Fraction(threshold):
            yield "debias: no probability is below metrics.truncation_threshold"
        if self.mechanism not in (*_OF_COUNTS, "uniform-prior-dp"):
            yield "release: mechanism is one whose priors this program knows"
            return
        k = self.metric.n_outcomes
        priors, shares = (one.reshape(-1, k) for one in self.asked(_PRIORS).fetchnumpy().values())
        of_counts = self.mechanism in _OF_COUNTS
        expected = _truncated(shares, threshold) if of_counts else np.full_like(shares, 1.0 / k)
        if not bool(np.all(np.abs(priors - expected) <= (k + 8) * 2.0**-52)):
            yield f"debias: probabilities are those that {self.mechanism} makes of counts"


def _written(stated: float) -> Decimal:
    """What a number prints as, which is added up."""
    return Decimal(repr(float(stated)))


def _read(stated: float) -> Decimal:
    """The lesser of the double and the number that it prints as."""
    return min(Decimal(stated), _written(stated))


def _over(moved: int | Fraction, scale: float | Fraction) -> Decimal:
    return pairs.decimal_of(Fraction(moved) / Fraction(scale))


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


def check_loss(path: Path) -> Loss:
    """Work out what a released file costs a unit, from the file alone, and compare.

    Raises InputError where it is no release that can be read; one that costs more than it states
    is read, and :attr:`Loss.broken` says why.
    """
    with open_release(path, at_any_loss=True) as connection, pairs.exactly():
        manifest = read_manifest(connection)
        priced = [Published(connection, manifest.mechanism, metric) for metric in manifest.outcomes]
        besides = _written(manifest.cluster_epsilon or 0.0)
        if manifest.outcomes[0].drawn_with and not any(one.metric.delta for one in priced):
            besides -= priced[0].steps[-1].loss  # what two outcomes share was counted for both
        parts = [
            Part(one.metric.metric, _up(step.loss), 0.0, step.name, step.how)
            for one in priced
            for step in one.steps
            # What the units of two outcomes are is one for both.
            if one is priced[0] or step.name != "units" or one.metric.drawn_with is None
        ]
        if manifest.cluster_epsilon is not None:
            parts.append(Part(None, manifest.cluster_epsilon, 0.0, "clusters", "stated"))
        metrics = tuple(MetricLoss(one.metric.metric, *map(_up, one.least)) for one in priced)
        return Loss(
            path=path.absolute(),
            release_id=manifest.release_id,
            stated_epsilon=manifest.epsilon,
            stated_delta=manifest.delta,
            epsilon=_up(sum((one.least[0] for one in priced), besides)),
            delta=_up(sum((Decimal(one.delta) for one in metrics), Decimal(0))),
            parts=tuple(parts),
            trusted=tuple(_trusted(manifest)),
            broken=tuple(_broken(manifest, priced, besides, path)),
            metrics=metrics,
            rows_each=manifest.rows_each or 1,
        )


def _broken(
    manifest: Manifest, priced: Sequence[Published], besides: Decimal, path: Path
) -> Iterator[str]:
    """Every rule that an outcome's tables break, and those of the whole file."""
    for one in priced:
        name = f"of {one.metric.metric}, " if len(priced) > 1 else ""
        yield from (f"{name}{rule}" for rule in one.broken())
    connection = priced[0].connection
    if connection.execute(_ONCE).fetchall() != [(True,)]:
        yield "units: each unit stands once, for twice costs twice"
    try:
        check_stated(connection, path)
    except InputError:
        yield "estimates and ends, and what macros read: they follow from the other tables"
    # With a δ an outcome takes what is stated for it of the ε, and its loss without.
    taken = (_written(one.metric.epsilon) if one.metric.delta else one.pure for one in priced)
    if sum(taken, besides) > _written(manifest.epsilon):
        yield "release: epsilon is less than what its metrics and clusters cost together"
    if sum((_written(one.metric.delta) for one in priced), Decimal(0)) > _written(manifest.delta):
        yield "release: delta is less than what its metrics have together"


def _trusted(manifest: Manifest) -> Iterator[str]:
    """What no file can show."""
    yield "That noise and outcomes were drawn as the file says, once, from chance nobody knows."
    yield (
        "That grid, guess, forecasts, weights, scales, which units take part, all that is said of "
        "these but their outcomes, their order and who was set aside follow from public facts, the "
        "files that guess_from names among them."
    )
    yield "That comments in the file, and bytes that none of its rows takes, tell of no outcome."
    if manifest.mechanism == "cluster-optimal-dp":
        yield (
            "That tables of randomiser, and their likely outputs, follow from noisy counts or "
            "public guesses, and would have kept response_epsilon whatever these had been."
        )
    if manifest.has_private_clusters:
        yield "That clusters were randomised at cluster_epsilon before anything else used them."
    if manifest.rows_each is not None:
        yield f"That whoever pays has {manifest.rows_each} units in the release at most."


def _up(value: Decimal) -> float:
    """The least double that is not below a number."""
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)
