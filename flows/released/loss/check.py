"""What a release costs a unit, worked out from the released file alone.

Nothing here prices, plans or draws a release: what a run computes and what this computes can be
compared. What a file cannot show is said (:attr:`Loss.trusted`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import duckdb

from flows.released.estimates.stated import check_stated
from flows.released.file.read import open_release, read_manifest
from flows.released.loss.loss import Loss, MetricLoss, Part
from flows.released.loss.pairs import delta_of, epsilon_of, total
from flows.released.loss.parts import Published, Step, broken_rules, steps_of
from schemas.errors import InputError
from schemas.released import Manifest, Metric

_NEAR = 1e-9
"""Of what a file says was computed: a run rounds up by less."""
_ONCE = "SELECT count(*) = count(DISTINCT unit_id) FROM main.units"


@dataclass(frozen=True)
class _Priced:
    """An outcome, what was published of it, and what that costs."""

    metric: Metric
    steps: tuple[Step, ...]
    rules: tuple[str, ...]
    """Those that its tables break."""

    @cached_property
    def pure(self) -> Decimal:
        """ε with δ = 0."""
        return total(step.loss for step in self.steps)

    @cached_property
    def epsilon(self) -> Decimal:
        """The least ε at the stated δ."""
        allowed = _read(self.metric.delta)
        if allowed == 0:
            return self.pure
        found = epsilon_of([step.pair for step in self.steps], allowed, self.pure)
        return min(found, _read(self.metric.epsilon)) if self.delta <= allowed else found

    @cached_property
    def delta(self) -> Decimal:
        """The least δ at the stated ε."""
        stated = _read(self.metric.epsilon)
        if self.pure <= stated:
            return Decimal(0)
        return delta_of([step.pair for step in self.steps], stated)

    @property
    def charged(self) -> Decimal:
        """What it takes of the release's ε: its loss, or with a δ what is stated for it."""
        return self.pure if self.metric.delta == 0.0 else _written(self.metric.epsilon)

    @property
    def broken(self) -> Iterator[str]:
        """Every rule that its tables break, and what is said of its price that is too little."""
        yield from self.rules
        if self.delta > _read(self.metric.delta):
            listed = " and ".join(f"{step.name} ({float(step.loss):.6g})" for step in self.steps)
            yield f"metrics: epsilon is less than what {listed} cost"
        elif self.metric.computed_epsilon < float(self.epsilon) * (1.0 - _NEAR):
            yield "metrics: computed_epsilon is less than it is"
        elif self.metric.computed_delta < float(self.delta) * (1.0 - _NEAR):
            yield "metrics: computed_delta is less than it is"


def check_loss(path: Path) -> Loss:
    """Work out what a released file costs a unit, from the file alone, and compare.

    Raises InputError where it is no release that can be read; one that costs more than it states
    is read, and :attr:`Loss.broken` says why.
    """
    with open_release(path, at_any_loss=True) as connection:
        manifest = read_manifest(connection)
        priced = [_priced(connection, manifest, metric) for metric in manifest.outcomes]
        of_whole = list(_broken_whole(connection, path))
    besides = [_written(manifest.cluster_epsilon or 0.0)]
    if manifest.outcomes[0].drawn_with is not None and not any(one.metric.delta for one in priced):
        besides.append(
            priced[0].steps[-1].loss.copy_negate()
        )  # what two outcomes share was counted for both
    if total([*(one.charged for one in priced), *besides]) > _written(manifest.epsilon):
        of_whole.append("release: epsilon is less than what its metrics and clusters cost together")
    if total(_written(one.metric.delta) for one in priced) > _written(manifest.delta):
        of_whole.append("release: delta is less than what its metrics have together")
    metrics = tuple(
        MetricLoss(one.metric.metric, _up(one.epsilon), _up(one.delta)) for one in priced
    )
    return Loss(
        path=path.absolute(),
        release_id=manifest.release_id,
        stated_epsilon=manifest.epsilon,
        stated_delta=manifest.delta,
        epsilon=_up(total([*(one.epsilon for one in priced), *besides])),
        delta=_up(total(Decimal(one.delta) for one in metrics)),
        rows_each=manifest.rows_each or 1,
        metrics=metrics,
        parts=tuple(_parts(manifest, priced)),
        trusted=tuple(_trusted(manifest)),
        broken=(*_named(priced), *of_whole),
    )


def _priced(connection: duckdb.DuckDBPyConnection, manifest: Manifest, metric: Metric) -> _Priced:
    published = Published(connection, metric)
    rules = tuple(broken_rules(published, manifest.mechanism))
    return _Priced(metric, tuple(steps_of(published)), rules)


def _named(priced: Sequence[_Priced]) -> Iterator[str]:
    for one in priced:
        name = f"of {one.metric.metric}, " if len(priced) > 1 else ""
        yield from (f"{name}{rule}" for rule in one.broken)


def _broken_whole(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[str]:
    ((once,),) = connection.execute(_ONCE).fetchall()
    if not once:
        yield "units: each unit stands once, for twice costs twice"
    try:
        check_stated(connection, path)
    except InputError:
        yield "estimates and ends: they follow from the other tables, and cost nothing then"


def _parts(manifest: Manifest, priced: Sequence[_Priced]) -> Iterator[Part]:
    for one in priced:
        for step in one.steps:
            if one is not priced[0] and step.name == "units" and one.metric.drawn_with is not None:
                continue  # it is what the first outcome's units are, too
            yield Part(one.metric.metric, step.name, _up(step.loss), 0.0, step.how)
    if manifest.cluster_epsilon is not None:
        yield Part(None, "clusters", manifest.cluster_epsilon, 0.0, "stated")


def _trusted(manifest: Manifest) -> Iterator[str]:
    """What no file can show."""
    yield (
        "That noise and randomised outcomes were drawn as the file says, once, from chance that "
        "nobody knows: what was drawn does not show how."
    )
    yield (
        "That grid, weights, scales, which units take part and who was set aside follow from "
        "public facts."
    )
    if manifest.mechanism == "cluster-optimal-dp":
        yield (
            "That the tables of randomiser were chosen by noisy counts of the file, or by public "
            "guesses, and would have kept response_epsilon whatever these had been."
        )
    if manifest.has_private_clusters:
        yield "That clusters were randomised at cluster_epsilon before anything else used them."
    if manifest.rows_each is not None:
        yield f"That whoever pays has {manifest.rows_each} units in the release at most."


def _written(stated: float) -> Decimal:
    """The number that a stated one prints as, which is what is added up."""
    return Decimal(repr(float(stated)))


def _read(stated: float) -> Decimal:
    """The lesser of the double and the number that it prints as."""
    return min(Decimal(stated), _written(stated))


def _up(value: Decimal) -> float:
    """The least double that is not below a number."""
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)
