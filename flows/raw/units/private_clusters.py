"""Clusters that are private: read leniently, and randomised before anything else sees them.

A unit's raw cluster is never a reason to set a row aside, to fail or to warn, and no number but
those made of randomised clusters leaves these steps: not how many clusters occur, nor their sizes.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.config.model.declared import LogFacts
from flows.config.model.sections import GREATEST_FEATURE, Columns, PrivateClusters
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.reading.columns import number, private_label
from flows.raw.reading.stores import LogFile
from flows.raw.spill.sorted_runs import Stored, Table, handed, received
from flows.raw.spill.workspace import Workspace, each
from flows.raw.units.rows import Rows, positions
from flows.runtime.progress import Progress
from privatizers.mechanisms.label_response import LabelResponse
from schemas.arrays import Floats, Ints
from schemas.raw import ARM, CLUSTER

_SIZE = "n_units"

# reading


def private_clusters(
    frame: pl.DataFrame, path: LogFile, columns: Columns, private: PrivateClusters
) -> pl.Expr:
    """The raw cluster of each row, a Categorical of declared names, never null.

    That of its label, or of the nearest centre; ``missing`` where there is none, where it cannot be
    read or where it is not declared, all by public rules.
    """
    kind = pl.Enum(private.names)
    if private.centres is None:
        (name,) = columns.clusters
        found = private_label(frame, path, name).cast(kind, strict=False)
        return found.fill_null(private.missing_name).cast(pl.Categorical)
    texts = {name: number(frame, path, name, "feature") for name in private.features or ()}
    points = frame.select(**texts).to_numpy().astype(np.float64, copy=False)
    centres = np.array(list(private.centres.values()), dtype=np.float64)
    unknown = private.names.index(private.missing_name)
    names = pl.Series(private.names, dtype=kind)
    return pl.lit(names.gather(nearest(points, centres, unknown)).cast(pl.Categorical))


def nearest(points: Floats, centres: Floats, unknown: int) -> Ints:
    """The position of the centre nearest to each point, in Euclidean distance; ties to the first.

    ``points`` have the shape [n, d], ``centres`` [k, d]. A point with a coordinate that is not a
    number, or beyond ±10¹⁰⁰, gets ``unknown``.
    """
    least = np.full(len(points), np.inf)
    found = np.full(len(points), unknown, dtype=np.int64)
    readable: NDArray[np.bool_] = np.all(np.abs(points) <= GREATEST_FEATURE, axis=1)
    sound = np.where(readable[:, np.newaxis], points, 0.0)
    for position, centre in enumerate(centres):
        distance = ((sound - centre) ** 2).sum(axis=1)
        nearer = readable & (distance < least)
        least[nearer], found[nearer] = distance[nearer], position
    return found


# randomising


def with_randomised_clusters(
    private: PrivateClusters | None, rows: Rows, workspace: Workspace | None
) -> Rows:
    """The rows with clusters as they are published; all that is counted of them is counted anew.

    Every unit's cluster is drawn by itself, once. Rows whose clusters are public stay as they are.
    """
    if private is None:
        return rows
    names = tuple(sorted(private.names))
    response = LabelResponse.of(len(names), private.epsilon)
    sizes = np.zeros((len(names), len(rows.arms)), dtype=np.int64)
    drawn = []
    calls = [(part, names, len(rows.arms), response) for part in rows.parts]
    with Progress("randomising clusters", rows.n_units) as progress:
        for part, part_sizes in each(workspace, randomise_part, calls):
            sizes += received(part_sizes)[_SIZE].to_numpy().reshape(sizes.shape)
            drawn.append(part)
            progress.advance(part.n_rows)
    return Rows(tuple(drawn), rows.unit_type, rows.arms, names, sizes)


def randomise_part(
    part: Stored,
    names: tuple[str, ...],
    n_arms: int,
    response: LabelResponse,
    workspace: Workspace | None,
) -> tuple[Stored, Table]:
    """Draw the clusters of one part; its rows with these, and their sizes."""
    kind = pl.Enum(names)
    rows = part.load()
    drawn = response.draw(positions(rows[CLUSTER].cast(kind)))
    labels = pl.Series(CLUSTER, names, dtype=kind).gather(drawn.astype(np.uint32))
    place = drawn.astype(np.int64) * n_arms + positions(rows[ARM])
    counts = np.bincount(place, minlength=len(names) * n_arms)
    sizes = handed(pl.DataFrame({_SIZE: counts}), workspace, "sizes")
    return part.with_rows(rows.with_columns(labels), workspace, "clusters"), sizes


# what else may be known


@values_free
def known_sizes(facts: LogFacts, rows: Sealed[Rows]) -> Ints:
    """Units by cluster and arm, shape [clusters, arms], as far as a design may know them.

    Where clusters are private, by arm alone: shape [1, arms].
    """
    sizes = rows.open().sizes
    return sizes if facts.clusters == "public" else sizes.sum(axis=0, keepdims=True)


def known_clusters(facts: LogFacts, rows: Sealed[Rows]) -> tuple[str, ...]:
    """The names of the clusters of :func:`known_sizes`; none where clusters are not public."""
    return rows.open().clusters if facts.clusters == "public" else ()


def without_private_clusters(facts: LogFacts, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that are set aside, for their unit or arm: kept without their outcome, and this.

    Of a site, whose clusters are cells of its covariates, without the column.
    """
    if facts.clusters == "dropped":
        return rows.drop(CLUSTER)
    if facts.clusters == "public":
        return rows
    return rows.with_columns(pl.lit(None, pl.String).alias(CLUSTER))
