"""What a release costs a unit, worked out from the released file alone.

Nothing here prices, plans or draws a release: what a run computes and what this computes can be
compared. What a file cannot show is said (:attr:`Loss.trusted`).
"""

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import duckdb

from flows.released.estimates.stated import check_stated
from flows.released.file.read import open_release, read_manifest
from flows.released.loss.loss import Loss, MetricLoss, Part
from flows.released.loss.pairs import exactly
from flows.released.loss.parts import Published, written
from schemas.errors import InputError
from schemas.released import Manifest

_ONCE = "SELECT count(*) = count(DISTINCT unit_id) FROM main.units"


def check_loss(path: Path) -> Loss:
    """Work out what a released file costs a unit, from the file alone, and compare.

    Raises InputError where it is no release that can be read; one that costs more than it states
    is read, and :attr:`Loss.broken` says why.
    """
    with open_release(path, at_any_loss=True) as connection, exactly():
        manifest = read_manifest(connection)
        priced = [Published(connection, manifest.mechanism, metric) for metric in manifest.outcomes]
        besides = [written(manifest.cluster_epsilon or 0.0)]
        if manifest.outcomes[0].drawn_with is not None and not any(
            one.metric.delta for one in priced
        ):
            besides.append(-priced[0].steps[-1].loss)  # what two share was counted for both
        metrics = tuple(
            MetricLoss(one.metric.metric, _up(one.epsilon), _up(one.delta)) for one in priced
        )
        return Loss(
            path=path.absolute(),
            release_id=manifest.release_id,
            stated_epsilon=manifest.epsilon,
            stated_delta=manifest.delta,
            epsilon=_up(sum([one.epsilon for one in priced] + besides, Decimal(0))),
            delta=_up(sum((Decimal(one.delta) for one in metrics), Decimal(0))),
            parts=tuple(_parts(manifest, priced)),
            trusted=tuple(_trusted(manifest)),
            broken=(*_broken(priced), *_broken_whole(connection, manifest, priced, besides, path)),
            metrics=metrics,
            rows_each=manifest.rows_each or 1,
        )


def _broken(priced: Sequence[Published]) -> Iterator[str]:
    for one in priced:
        name = f"of {one.metric.metric}, " if len(priced) > 1 else ""
        yield from (f"{name}{rule}" for rule in one.broken())


def _broken_whole(
    connection: duckdb.DuckDBPyConnection,
    manifest: Manifest,
    priced: Sequence[Published],
    besides: list[Decimal],
    path: Path,
) -> Iterator[str]:
    ((once,),) = connection.execute(_ONCE).fetchall()
    if not once:
        yield "units: each unit stands once, for twice costs twice"
    try:
        check_stated(connection, path)
    except InputError:
        yield "estimates and ends: they follow from the other tables, and cost nothing then"
    if sum([one.charged for one in priced] + besides, Decimal(0)) > written(manifest.epsilon):
        yield "release: epsilon is less than what its metrics and clusters cost together"
    deltas = (written(one.metric.delta) for one in priced)
    if sum(deltas, Decimal(0)) > written(manifest.delta):
        yield "release: delta is less than what its metrics have together"


def _parts(manifest: Manifest, priced: Sequence[Published]) -> Iterator[Part]:
    for one in priced:
        for step in one.steps:
            if one is not priced[0] and step.name == "units" and one.metric.drawn_with is not None:
                continue  # it is what the first outcome's units are, too
            yield Part(one.metric.metric, _up(step.loss), 0.0, step.name, step.how)
    if manifest.cluster_epsilon is not None:
        yield Part(None, manifest.cluster_epsilon, 0.0, "clusters", "stated")


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


def _up(value: Decimal) -> float:
    """The least double that is not below a number."""
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)
