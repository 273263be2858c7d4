"""The rows that a release is made of: in the order of their units, in one part or in several."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.raw.spill.sorted_runs import Stored, Table, handed, received
from flows.raw.spill.workspace import Workspace
from schemas.arrays import Bools, Ints
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT

COLUMNS = (UNIT, ARM, CLUSTER, OUTCOME)


@dataclass(frozen=True)
class Rows:
    """Sound rows, one a unit, in the order of units: the parts one after the other."""

    parts: tuple[Stored, ...]
    """Columns ``unit``, ``arm`` (an Enum of the declared arms), ``cluster``, ``outcome``, and
    ``outcome 2`` and so on where there are several; and public facts as configured: ``payer``,
    ``assigned``, attributes."""
    unit_type: pl.DataType
    arms: tuple[str, ...]
    """Control first."""
    clusters: tuple[str, ...]
    """Names, sorted."""
    sizes: Ints
    """Units, shape [clusters, arms]."""

    @property
    def n_units(self) -> int:
        """How many there are."""
        return sum(part.n_rows for part in self.parts)

    def frames(self) -> Iterator[pl.DataFrame]:
        """The parts, one after the other; ``cluster`` an Enum of :attr:`clusters`."""
        for part in self.parts:
            yield labelled(part, self.clusters)

    def by_part(self, values: NDArray[Any]) -> Iterator[tuple[Stored, NDArray[Any]]]:
        """The parts, each with a view of those values that are of its rows, of shape [n]."""
        ends = accumulate(part.n_rows for part in self.parts)
        for part, end in zip(self.parts, ends, strict=True):
            yield part, values[end - part.n_rows : end]

    def columns(self, name: str) -> Iterator[pl.Series]:
        """One column, part by part; arms and clusters as Enums."""
        for part in self.parts:
            column = part.column(name)
            is_text = name == CLUSTER and not isinstance(part.place, pl.DataFrame)
            yield column.cast(pl.Enum(self.clusters)) if is_text else column


def labelled(part: Stored, clusters: tuple[str, ...], length: int | None = None) -> pl.DataFrame:
    """A part's rows, or so many of them, their clusters an Enum; in memory they are one already."""
    rows = part.load(0, length)
    if isinstance(part.place, pl.DataFrame):
        return rows
    return rows.with_columns(pl.col(CLUSTER).cast(pl.Enum(clusters)))


def rows_of(
    parts: Sequence[tuple[Stored, Table]], arms: tuple[str, ...], unit_type: pl.DataType
) -> Rows:
    """Put the parts of a log together; beside each stands who is where in it (:func:`counted`)."""
    places = [received(place) for _, place in parts]
    names = pl.concat([pl.Series(dtype=pl.String), *(place[CLUSTER] for place in places)])
    names = names.unique().sort()
    kind = pl.Enum(names)
    sizes = np.zeros((len(names), len(arms)), dtype=np.int64)
    for place in places:
        sizes[positions(place[CLUSTER].cast(kind))] += place.drop(CLUSTER).to_numpy()
    labelled_parts = [
        Stored(part.n_rows, part.place.with_columns(relabelled(part.place[CLUSTER], kind)))
        if isinstance(part.place, pl.DataFrame)  # the others are labelled when they are loaded
        else part
        for part, _ in parts
    ]
    return Rows(tuple(labelled_parts), unit_type, arms, tuple(names.to_list()), sizes)


def rows_where(rows: Rows, kept: Bools, workspace: Workspace | None) -> Rows:
    """Some of the rows, shape [n], where they were: in memory, or in files of the workspace."""
    parts = []
    for part, wanted in rows.by_part(kept):
        if wanted.any():
            frame = part.load().filter(pl.Series(wanted))
            place = counted(frame, len(rows.arms), None)
            parts.append((part.with_rows(frame, workspace, "kept"), place))
        part.remove()
    return rows_of(parts, rows.arms, rows.unit_type)


def counted(rows: pl.DataFrame, n_arms: int, workspace: Workspace | None) -> Table:
    """The clusters of some rows as text, and a column for each arm: its units in each of them."""
    codes = positions(rows[CLUSTER])
    width = int(codes.max(initial=0)) + 1
    place = codes.astype(np.int64)
    place *= n_arms
    place += positions(rows[ARM])
    counts = np.bincount(place, minlength=width * n_arms).reshape(width, n_arms)
    there = np.flatnonzero(counts.any(axis=1))
    columns = {f"arm {arm}": counts[there, arm] for arm in range(n_arms)}
    frame = pl.DataFrame({CLUSTER: names_of(rows[CLUSTER], there).cast(pl.String), **columns})
    return handed(frame, workspace, "places")


def relabelled(labels: pl.Series, kind: pl.Enum) -> pl.Series:
    """Labels, none of them missing, as an Enum that has them all; each name is looked up once."""
    if len(labels) == 0:
        return labels.cast(kind)
    codes = positions(labels)
    occurs = np.bincount(codes)  # a third of the time of looking for unique labels
    there = np.flatnonzero(occurs)
    place = np.zeros(len(occurs), dtype=np.uint32)
    place[there] = positions(names_of(labels, there).cast(pl.String).cast(kind))
    return pl.Series(labels.name, place[codes]).cat.to(kind)


def names_of(labels: pl.Series, codes: NDArray[np.int64]) -> pl.Series:
    """The labels of these codes, in the type of ``labels``."""
    return pl.Series(codes.astype(np.uint32)).cast(labels.to_physical().dtype).cat.to(labels.dtype)


def positions(labels: pl.Series) -> NDArray[np.uint32]:
    """Position of each label of an Enum among its names."""
    return labels.to_physical().to_numpy().astype(np.uint32, copy=False)
