"""The cells of margins, and the number of the cell that each unit is in, by public facts alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from estimators.strata.evidence import distinct
from flows.config.model.sections import MARGIN_OF
from flows.raw.spill.sorted_runs import Stored, Table, handed, received
from flows.raw.spill.workspace import Workspace, each
from flows.raw.units.rows import Rows, positions
from schemas.arrays import Ints
from schemas.raw import ARM
from schemas.tables import MOST_CELLS, NO_VALUE, margin_code

_VALUE, _UNITS = "value", "units"


@dataclass(frozen=True)
class MarginCells:
    """The cells of a margin: an attribute's values, or those of several together."""

    attribute: str
    """Its name, or all of them, as released."""
    values: tuple[str, ...]
    """Of each cell, for people; shape [C]."""
    sizes: Ints
    """Units, shape [C, arms]."""


@dataclass(frozen=True)
class Margins:
    """The cells of all margins of a release, and who is in which."""

    cells: tuple[MarginCells, ...] = ()
    codes: tuple[Stored, ...] = ()
    """For each part of the rows a column a margin with the numbers of cells; none without any."""


def margins_of(
    rows: Rows,
    margins: Sequence[Sequence[str]],
    columns: dict[str, str],
    min_stratum: int,
    workspace: Workspace | None,
) -> Margins:
    """Lay out the cells of margins, each of one attribute or several; ``columns`` are theirs.

    A value is a cell of its own, no value too, where every arm has ``min_stratum`` units of it; of
    more than 200 such values those with the most units in their smallest arm. All others of the
    margin are one cell, the last.
    """
    if not margins:
        return Margins()
    named = tuple(tuple(columns[name] for name in names) for names in margins)
    found = list(each(workspace, number_values, [(part, named, rows.arms) for part in rows.parts]))
    cells, of_values = [], []
    for at, names in enumerate(margins):
        tables = [received(of_part[at]) for _, of_part in found]
        laid_out, cell_of = _laid_out(MARGIN_OF.join(names), tables, min_stratum)
        cells.append(laid_out)
        of_values.append(cell_of)
    calls = [
        (local, [cell_of[nth] for cell_of in of_values]) for nth, (local, _) in enumerate(found)
    ]
    return Margins(tuple(cells), tuple(each(workspace, number_cells, calls)))


def _laid_out(
    attribute: str, tables: Sequence[pl.DataFrame], min_stratum: int
) -> tuple[MarginCells, list[NDArray[np.uint8]]]:
    """The cells of a margin, and for each part the cell of each of its values, in their order."""
    names = [name for name in tables[0].columns if name.startswith(_VALUE)]
    every = pl.concat(tables).group_by(names).sum().sort(names, nulls_last=True)
    sizes: Ints = every.drop(names).to_numpy()
    least = sizes.min(axis=1)
    order = np.argsort(-least, kind="stable")
    own = np.zeros(len(sizes), dtype=np.bool_)
    own[order[: MOST_CELLS - 1]] = True
    own &= least >= max(min_stratum, 1)
    if (~own).sum() == 1:  # nobody to share with
        own[:] = True
    cell = np.where(own, np.cumsum(own) - 1, own.sum()).astype(np.uint8)
    labels = pl.concat_str(
        [pl.col(name).fill_null(NO_VALUE) for name in names], separator=MARGIN_OF
    )
    values = every.filter(pl.Series(own)).select(labels).to_series().to_list()
    of_cells = sizes[own]
    if not own.all():
        values.append(f"{int((~own).sum()):,} other values")
        of_cells = np.vstack([of_cells, sizes[~own].sum(axis=0)])
    coded = every.select(names).with_columns(cell=cell)
    found = [
        table.select(names)
        .join(coded, on=names, how="left", nulls_equal=True, maintain_order="left")["cell"]
        .to_numpy()
        for table in tables
    ]
    return MarginCells(attribute, tuple(values), of_cells), found


# what workers do


def number_values(
    part: Stored,
    margins: Sequence[Sequence[str]],
    arms: tuple[str, ...],
    workspace: Workspace | None,
) -> tuple[Stored, list[Table]]:
    """Number the values of each margin in one part, of the rows and in a table.

    A table has a row a value, and the units of each arm that have it.
    """
    arm = positions(part.column(ARM)).astype(np.int64)
    numbered, tables = [], []
    for at, names in enumerate(margins):
        codes, values = _numbered([part.column(name) for name in names])
        counts = np.bincount(codes * len(arms) + arm, minlength=len(values) * len(arms))
        units = {
            f"{_UNITS} {nth}": of_arm for nth, of_arm in enumerate(counts.reshape(-1, len(arms)).T)
        }
        tables.append(handed(values.with_columns(**units), workspace, "values"))
        numbered.append(pl.Series(margin_code(at), codes.astype(np.uint32)))
    return part.with_rows(pl.DataFrame(numbered), workspace, "numbers"), tables


def number_cells(
    numbers: Stored, cell_of: Sequence[NDArray[np.uint8]], workspace: Workspace | None
) -> Stored:
    """The numbers of cells in place of those of values, which are removed."""
    frame = numbers.load()
    numbers.remove()
    codes = zip(frame.get_columns(), cell_of, strict=True)
    cells = pl.DataFrame([pl.Series(one.name, cell[one.to_numpy()]) for one, cell in codes])
    return numbers.with_rows(cells, workspace, "cells")


def _numbered(columns: Sequence[pl.Series]) -> tuple[NDArray[np.int64], pl.DataFrame]:
    """The number of each row's values among those that there are, and these, as text."""
    codes, values = _numbered_alone(columns[0])
    found = pl.DataFrame({f"{_VALUE} 0": values})
    for at, column in enumerate(columns[1:], 1):
        more, others = _numbered_alone(column)
        codes *= len(others)
        codes += more
        there, codes = distinct(codes, found.height * len(others))
        found = found[there // len(others)].with_columns(
            others[there % len(others)].alias(f"{_VALUE} {at}")
        )
    return codes, found


def _numbered_alone(column: pl.Series) -> tuple[NDArray[np.int64], pl.Series]:
    if column.dtype.is_float():
        column = column + 0.0  # one text for both zeros
    labels = column.cast(pl.String).cast(pl.Categorical)
    physical = labels.to_physical()
    values = labels.unique()
    codes = values.to_physical()
    nothing = int(codes.fill_null(0).to_numpy().max(initial=0)) + 1
    place = np.zeros(nothing + 1, dtype=np.int64)
    place[codes.fill_null(nothing).to_numpy()] = np.arange(len(values))
    return place[physical.fill_null(nothing).to_numpy()], values.cast(pl.String)
