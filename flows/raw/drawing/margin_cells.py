"""The cells of margins, and the number of the cell that each unit is in, by public facts alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from estimators.strata.evidence import distinct
from estimators.strata.margins import CellSizes
from flows.config.model.experiment import Config
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.spill.sorted_runs import Stored, Table, handed, received
from flows.raw.spill.workspace import Workspace, each
from flows.raw.units.rows import Rows, names_of, positions
from flows.runtime.threads import in_parallel
from privatizers.planning.margin_split import MarginFacts
from schemas.arrays import Ints
from schemas.margin_codes import packed, unpacked
from schemas.raw import ARM, CLUSTER, attribute_columns
from schemas.tables import MARGIN_OF, MARGINS, MOST_CELLS, no_value

_LOOKED_AT = 1 << 18
_VALUE, _UNITS, _NUMBER = "value", "units", "number"


Numbers = list[tuple[Stored, list[Table]]]
"""Of each part of the rows: what :func:`number_values` gives."""


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
    """For each part of the rows the numbers of cells (:func:`packed`); none without any."""


def margins_of(
    rows: Rows,
    margins: Sequence[Sequence[str]],
    columns: dict[str, str],
    min_stratum: int,
    workspace: Workspace | None,
    numbers: Numbers | None = None,
) -> Margins:
    """Lay out the cells of margins, each of one attribute or several; ``columns`` are theirs.

    A value is a cell of its own, no value too, where every arm has ``min_stratum`` units of it; of
    more than 200 such values those with the most units in their smallest arm. All others of the
    margin are one cell, the last. ``numbers`` are those of the rows' values, where they are known.
    """
    if not margins:
        return Margins()
    found = _numbers(rows, margins, columns, workspace) if numbers is None else numbers
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


@values_free
def number_margins(
    config: Config, rows: Sealed[Rows], workspace: Workspace | None
) -> Sealed[Numbers]:
    """Number the values of all margins, which needs no design: it may be done beside others."""
    raw = rows.open()
    columns = dict(zip(config.columns.named_attributes, attribute_columns(50), strict=False))
    return Sealed(_numbers(raw, config.margins, columns, workspace), raw.n_units)


def _numbers(
    rows: Rows,
    margins: Sequence[Sequence[str]],
    columns: dict[str, str],
    workspace: Workspace | None,
) -> Numbers:
    named = tuple(tuple(columns[name] for name in names) for names in margins)
    return list(each(workspace, number_values, [(part, named, rows.arms) for part in rows.parts]))


@values_free
def margin_facts(config: Config, rows: Sealed[Rows]) -> MarginFacts | None:
    """Public sizes of cells by cluster and arm, for a plan; None where there are no margins.

    Of some 260,000 units, evenly from all of them, as if all were like these.
    """
    if not config.margins:
        return None
    raw = rows.open()
    every = -(-raw.n_units // _LOOKED_AT)
    columns = dict(zip(config.columns.named_attributes, attribute_columns(50), strict=False))
    names = dict.fromkeys(columns[name] for margin in config.margins for name in margin)
    some = pl.DataFrame(
        [
            pl.concat([*raw.columns(name)]).gather_every(every).alias(name)
            for name in (ARM, CLUSTER, *names)
        ]
    )
    few = -(-config.privacy.min_stratum // every)
    looked_at = replace(raw, parts=(Stored(some.height, some),))
    margins = margins_of(looked_at, config.margins, columns, few, None)
    codes = codes_of(margins.codes[0].load())
    arm, cluster = positions(some[ARM]), positions(some[CLUSTER]).astype(np.int64)
    sizes, arms = [len(one.values) for one in margins.cells], []
    for at, n_units in enumerate(raw.sizes.sum(axis=0).tolist()):
        in_arm = arm == at
        times = n_units / max(int(in_arm.sum()), 1)
        of_arm = CellSizes.of_units(
            cluster[in_arm], [code[in_arm] for code in codes], sizes, len(raw.clusters)
        )
        by_pool = replace(of_arm.by_pool, n_units=times * of_arm.by_pool.n_units)
        arms.append(replace(of_arm, by_pool=by_pool, pairs=times * of_arm.pairs))
    attributes = tuple(one.attribute for one in margins.cells)
    return MarginFacts(tuple(arms), attributes, sum((one.values for one in margins.cells), ()))


def codes_of(frame: pl.DataFrame) -> list[NDArray[np.uint8]]:
    """The numbers of cells of units, one array a margin, from their columns as they are stored."""
    columns = [name for name in frame.columns if name.startswith(MARGINS)]
    n_margins = max((int(name.removeprefix(MARGINS)) for name in columns), default=0)
    return unpacked([frame[name].to_numpy() for name in columns], n_margins)


def _laid_out(
    attribute: str, tables: Sequence[pl.DataFrame], min_stratum: int
) -> tuple[MarginCells, list[NDArray[np.uint8]]]:
    """The cells of a margin, and for each part the cell of the values of each number."""
    names = [name for name in tables[0].columns if name.startswith(_VALUE)]
    every = pl.concat(tables).drop(_NUMBER).group_by(names).sum().sort(names, nulls_last=True)
    sizes: Ints = every.drop(names).to_numpy()
    least = sizes.min(axis=1)
    order = np.argsort(-least, kind="stable")
    own = np.zeros(len(sizes), dtype=np.bool_)
    own[order[: MOST_CELLS - 1]] = True
    own &= least >= max(min_stratum, 1)
    if (~own).sum() == 1:  # nobody to share with
        own[:] = True
    cell = np.where(own, np.cumsum(own) - 1, own.sum()).astype(np.uint8)
    none = no_value({text for name in names for text in every[name]})
    labels = pl.concat_str([pl.col(name).fill_null(none) for name in names], separator=MARGIN_OF)
    values = every.filter(pl.Series(own)).select(labels).to_series().to_list()
    of_cells = sizes[own]
    if not own.all():
        values.append(f"{int((~own).sum()):,} other values")
        of_cells = np.vstack([of_cells, sizes[~own].sum(axis=0)])
    coded = every.select(names).with_columns(cell=cell)
    found = []
    for table in tables:
        own_cell = table.join(coded, on=names, how="left", nulls_equal=True, maintain_order="left")
        numbers = table[_NUMBER].to_numpy()
        of_number = np.zeros(int(numbers.max(initial=0)) + 1, dtype=np.uint8)
        of_number[numbers] = own_cell["cell"].to_numpy()
        found.append(of_number)
    return MarginCells(attribute, tuple(values), of_cells), found


# what workers do


def number_values(
    part: Stored,
    margins: Sequence[Sequence[str]],
    arms: tuple[str, ...],
    workspace: Workspace | None,
) -> tuple[Stored, list[Table]]:
    """Number the values of each margin in one part, of the rows and in a table.

    A table has a row a value, its number, and the units of each arm that have it.
    """
    arm = positions(part.column(ARM))
    of_margins, tables = [], []
    columns = ([part.column(name) for name in names] for names in margins)
    for at, (codes, there, values) in enumerate(in_parallel(_numbered, columns)):
        counts = np.bincount(codes * np.uint32(len(arms)) + arm, minlength=len(arms))
        counts.resize((int(codes.max(initial=0)) + 1, len(arms)))
        units = {f"{_UNITS} {nth}": of_arm[there] for nth, of_arm in enumerate(counts.T)}
        table = values.with_columns(pl.Series(_NUMBER, there), **units)
        tables.append(handed(table, workspace, "values"))
        of_margins.append(pl.Series(f"{_NUMBER} {at}", codes))
    return part.with_rows(pl.DataFrame(of_margins), workspace, "numbers"), tables


def number_cells(
    numbers: Stored, cell_of: Sequence[NDArray[np.uint8]], workspace: Workspace | None
) -> Stored:
    """The numbers of cells as they are stored, in place of those of values, which are removed."""
    columns = [one.to_numpy() for one in numbers.load().get_columns()]
    numbers.remove()
    return numbers.with_rows(pl.DataFrame(packed(cell_of, columns)), workspace, "cells")


_Numbered = tuple[NDArray[np.uint32], Ints, pl.DataFrame]
"""The number of each row's values, the numbers that there are, and their values as text."""


def _numbered(columns: Sequence[pl.Series]) -> _Numbered:
    codes, there, values = _numbered_alone(columns[0], 0)
    for at, column in enumerate(columns[1:], 1):
        more, others, names = _numbered_alone(column, at)
        both = np.searchsorted(there, codes) * len(others) + np.searchsorted(others, more)
        pairs, place = distinct(both, len(there) * len(others))
        values = values[pairs // len(others)].hstack(names[pairs % len(others)])
        codes, there = place.astype(np.uint32), np.arange(len(pairs))
    return codes, there, values


def _numbered_alone(column: pl.Series, at: int) -> _Numbered:
    """By the numbers that text has as a Categorical, and one more where there is none."""
    if column.dtype.is_float():
        column = column.set((column == 0.0).fill_null(value=False), 0.0)  # one text for both
    labels = column.cast(pl.String).cast(pl.Categorical)
    physical = labels.to_physical()
    nothing = int(physical.drop_nulls().to_numpy().max(initial=0)) + 1
    codes: NDArray[np.uint32] = physical.fill_null(nothing).to_numpy()
    there = np.flatnonzero(np.bincount(codes))
    known = there[there < nothing]
    values = names_of(labels, known).cast(pl.String)
    if len(known) < len(there):
        values = values.extend(pl.Series([None], dtype=pl.String))
    return codes, there, pl.DataFrame({f"{_VALUE} {at}": values})
