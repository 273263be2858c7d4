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
from flows.released.loss.pairs import Pair, delta_of, epsilon_of, total
from flows.released.loss.parts import Step, broken_priors, broken_rules, steps_of
from flows.released.loss.published import read_published
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
        found = epsilon_of(self._pairs, allowed, self.pure)
        return min(found, _read(self.metric.epsilon)) if self.delta <= allowed else found

    @cached_property
    def delta(self) -> Decimal:
        """The least δ at the stated ε."""
        stated = _read(self.metric.epsilon)
        return Decimal(0) if self.pure <= stated else delta_of(self._pairs, stated)

    @cached_property
    def _pairs(self) -> list[Pair]:
        return [step.pair() for step in self.steps]


def check_loss(path: Path) -> Loss:
    """Work out what a released file costs a unit, from the file alone, and compare.

    Raises InputError where it is no release that can be read; one that costs more than it states
    is read, and :attr:`Loss.broken` says why.
    """
    with open_release(path, at_any_loss=True) as connection:
        manifest = read_manifest(connection)
        found = [read_published(connection, one) for one in manifest.outcomes]
        rules = [
            _named(manifest, one.metric, rule)
            for one in found
            for rule in (*broken_rules(one), *broken_priors(one, manifest.mechanism))
        ]
        rules += _broken_whole(connection, path)
    priced = [_Priced(one.metric, steps_of(one)) for one in found]
    return _loss(path, manifest, priced, rules)


def _broken_whole(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[str]:
    ((once,),) = connection.execute(_ONCE).fetchall()
    if not once:
        yield "units: each unit stands once, for twice costs twice"
    try:
        check_stated(connection, path)
    except InputError:
        yield "estimates and ends: they follow from the other tables, and cost nothing then"


def _named(manifest: Manifest, metric: Metric, rule: str) -> str:
    return rule if len(manifest.outcomes) == 1 else f"of {metric.metric}, {rule}"


def _loss(path: Path, manifest: Manifest, priced: Sequence[_Priced], rules: Sequence[str]) -> Loss:
    metrics = tuple(map(_metric_loss, priced))
    besides = _besides(manifest, priced)
    spent = total([*map(_charged, priced), besides])
    return Loss(
        path=path.absolute(),
        release_id=manifest.release_id,
        stated_epsilon=manifest.epsilon,
        stated_delta=manifest.delta,
        epsilon=_shown(total([*(one.epsilon for one in priced), besides]), manifest.epsilon),
        delta=_up(total(Decimal(one.delta) for one in metrics)),
        rows_each=manifest.rows_each or 1,
        metrics=metrics,
        parts=tuple(_parts(manifest, priced)),
        trusted=tuple(_trusted(manifest)),
        broken=(*rules, *_overspent(manifest, priced, spent)),
    )


def _besides(manifest: Manifest, priced: Sequence[_Priced]) -> Decimal:
    """What clusters cost, less what two outcomes share and was counted for both."""
    shared = Decimal(0)
    if priced[0].metric.drawn_with is not None and not any(one.metric.delta for one in priced):
        shared = priced[0].steps[-1].loss.copy_negate()
    return total([_written(manifest.cluster_epsilon or 0.0), shared])


def _charged(one: _Priced) -> Decimal:
    """What an outcome takes of the release's ε: its loss, or with a δ what is stated for it."""
    return one.pure if one.metric.delta == 0.0 else _written(one.metric.epsilon)


def _overspent(manifest: Manifest, priced: Sequence[_Priced], spent: Decimal) -> Iterator[str]:
    """Every sum that is more than what is stated."""
    for one in priced:
        for rule in _underpriced(one):
            yield _named(manifest, one.metric, rule)
    if spent > _written(manifest.epsilon):
        yield "release: epsilon is less than what its metrics and clusters cost together"
    if total(_written(one.metric.delta) for one in priced) > _written(manifest.delta):
        yield "release: delta is less than what its metrics have together"


def _underpriced(one: _Priced) -> Iterator[str]:
    """What is said of an outcome's price that is too little."""
    metric = one.metric
    if one.delta > _read(metric.delta):
        yield f"metrics: epsilon is less than what {_listed(one)} cost"
    elif metric.computed_epsilon < float(one.epsilon) * (1.0 - _NEAR):
        yield "metrics: computed_epsilon is less than it is"
    elif metric.computed_delta < float(one.delta) * (1.0 - _NEAR):
        yield "metrics: computed_delta is less than it is"


def _listed(one: _Priced) -> str:
    return " and ".join(f"{step.name} ({float(step.loss):.6g})" for step in one.steps)


def _metric_loss(one: _Priced) -> MetricLoss:
    metric = one.metric
    return MetricLoss(
        metric=metric.metric,
        stated_epsilon=metric.epsilon,
        stated_delta=metric.delta,
        epsilon=_shown(one.epsilon, metric.epsilon),
        delta=_shown(one.delta, metric.delta),
    )


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


def _shown(value: Decimal, stated: float) -> float:
    """A number rounded up, but to no more than what is stated where it is within that."""
    return min(_up(value), stated) if value <= Decimal(stated) else _up(value)
