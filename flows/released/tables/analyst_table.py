"""A table of units that an analyst gives beside a release, how it fits that, and its covariates."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

from flows.released.file.evidence import Released, deviations, read_frame, units_of
from flows.runtime.reading.table_files import id_column, read_table
from schemas.arrays import Ints
from schemas.errors import InputError
from schemas.tables import ASSIGNED_TO

UNIT_ID = "unit_id"
MAX_LEVELS = 50
"""The most values of a column of text; with more it holds ids or misread numbers, not categories.
"""
GREATEST = 1e70
"""The greatest number that is read: its fourth power stays within doubles."""

_TEXT = (pl.String, pl.Categorical, pl.Enum)
_WHOLE_NUMBER = "^(0|-?[1-9][0-9]*)$"


class NoIdsError(InputError):
    """A table none of whose ids is in the release."""


@dataclass(frozen=True, kw_only=True)
class TableFit:
    """How the rows of an analyst's table fit a release."""

    n_rows: int
    n_matched: int
    """Units of the table that are in the release."""
    n_unmatched: int
    """Units of the table that are not in the release."""
    n_duplicates: int
    """Rows that repeat another; they count once."""
    n_missing: int
    """Rows without an id, or without another value that every row needs; they are left out."""


@dataclass(frozen=True)
class AnalystTable:
    """The rows of an analyst's table, without copies and without incomplete rows."""

    file: Path
    rows: pl.DataFrame
    """``unit_id``, as text, and the columns of the analyst."""
    n_units: int
    """Different ids in ``rows``."""
    n_rows: int
    """All rows of the file."""
    n_missing: int
    n_duplicates: int

    @classmethod
    def of(cls, file: Path, rows: pl.DataFrame, required: list[str]) -> "AnalystTable":
        """Leave out rows without a value in one of the ``required`` columns, and copies of rows.

        Raises InputError where no row is left.
        """
        complete = rows.drop_nulls(required)
        n_units = complete[UNIT_ID].n_unique()
        is_distinct = n_units == complete.height
        distinct = complete if is_distinct else complete.unique(maintain_order=True)
        if distinct.is_empty():
            needed = " and ".join("an id" if name == UNIT_ID else f"a {name}" for name in required)
            raise InputError(f"{file}: has no row with {needed}")
        n_missing, n_duplicates = rows.height - complete.height, complete.height - distinct.height
        return cls(file, distinct, n_units, rows.height, n_missing, n_duplicates)

    @property
    def names(self) -> list[str]:
        """The columns besides the id."""
        return self.rows.columns[1:]

    def fit(self, n_matched: int, release: Path, *, has_text_ids: bool) -> dict[str, int]:
        """The fields of :class:`TableFit`, where ``n_matched`` units are in the release.

        ``has_text_ids`` says whether the release's ids are text, and not whole numbers. Raises
        NoIdsError where there are none.
        """
        if n_matched == 0:
            why = self._why_none(has_text_ids=has_text_ids)
            raise NoIdsError(
                f"{self.file}: none of its {self.n_units:,} ids is in {release.absolute()}{why}. "
                "Is it the table of another release? Where ids are released hashed, clusterdp "
                "hash-ids makes them fit"
            )
        return {
            "n_rows": self.n_rows,
            "n_matched": n_matched,
            "n_unmatched": self.n_units - n_matched,
            "n_duplicates": self.n_duplicates,
            "n_missing": self.n_missing,
        }

    def _why_none(self, *, has_text_ids: bool) -> str:
        """What kind of ids the table has where it is not the release's."""
        are_whole = self.rows[UNIT_ID].str.contains(_WHOLE_NUMBER)
        if has_text_ids and are_whole.all():
            return (
                ": the release's ids are text, these are all numbers. Did they lose leading zeros, "
                "or a prefix? Read the column as text"
            )
        if not has_text_ids and not are_whole.any():
            return (
                ": the release's ids are whole numbers, none of these is one (written plainly, as "
                "42: no zeros before it, no decimals, no spaces)"
            )
        return ""


def read_covariates(file: Path, frame: pl.DataFrame | None) -> AnalystTable:
    """Read the table: a row for each unit, and a Float64 or String column for each covariate."""
    table = read_table(file) if frame is None else frame
    ids = id_column(table, file, UNIT_ID).cast(pl.String)
    names = [name for name in table.columns if name != UNIT_ID]
    if not names:
        raise InputError(f"{file}: has no column besides {UNIT_ID!r}")
    is_text = file.suffix.lower() == ".csv"
    columns = [_values(table[name], file, is_text=is_text) for name in names]
    covariates = AnalystTable.of(file, pl.DataFrame([ids.alias(UNIT_ID), *columns]), [UNIT_ID])
    if covariates.n_units < covariates.rows.height:
        repeated = covariates.rows.group_by(UNIT_ID).len().filter(pl.col("len") > 1)
        raise InputError(
            f"{file}: {repeated.height:,} ids stand in rows that contradict each other; a unit has "
            "one row"
        )
    return covariates


def _values(column: pl.Series, file: Path, *, is_text: bool) -> pl.Series:
    """The column as Float64 or String, null where missing.

    Text of a CSV file (``is_text``) becomes numbers where all of it can. Raises InputError for
    other types, infinite values and values beyond ±:data:`GREATEST`.
    """
    kind = column.dtype
    if isinstance(kind, _TEXT) or kind == pl.Boolean:
        text = column.cast(pl.String).str.strip_chars()
        text = text.set(text == "", None)
        numbers = text.cast(pl.Float64, strict=False) if is_text else None
        if numbers is None or numbers.null_count() > text.null_count():
            return text
    elif kind.is_numeric() or kind == pl.Null:
        numbers = column.cast(pl.Float64)
    else:
        raise InputError(
            f"{file}: column {column.name!r} is {kind}; it has to be numbers, text or booleans"
        )
    if n_infinite := int(numbers.is_infinite().sum()):
        raise InputError(f"{file}: column {column.name!r} has {n_infinite:,} infinite values")
    numbers = numbers.fill_nan(None)
    if n_large := int((numbers.abs() > GREATEST).sum()):
        raise InputError(
            f"{file}: column {column.name!r} has {n_large:,} values beyond ±{GREATEST:g}, which "
            "cannot be computed with; measure it in another unit"
        )
    return numbers


def column_codes(table: AnalystTable) -> list[tuple[str, str]]:
    """Each column's name in the table, and its name in SQL."""
    return [(name, f"x{place}") for place, name in enumerate(table.names)]


def units_beside(
    connection: duckdb.DuckDBPyConnection, table: AnalystTable, every: Sequence[Released]
) -> pl.DataFrame:
    """The units of the release: ``cluster arm known d0 … x0 …``, null where the table has no value.

    ``d0`` and so on are the outcomes of ``every`` metric; then comes ``assigned_to``, where it is
    published. The rows are in the order of ids, so that sums are the same every time.
    """
    codes = ", ".join(f"t.{code}" for _, code in column_codes(table))
    assigned = f", {ASSIGNED_TO}" if every[0].manifest.assigned else ""
    renamed = table.rows.rename(dict(column_codes(table)))
    connection.register("covariates", renamed.to_arrow())
    query = f"""
    SELECT u.* EXCLUDE (unit_id), t.unit_id IS NOT NULL AS known, {codes}
    FROM (SELECT unit_id, cluster, arm, {deviations(every)}{assigned} FROM {units_of(every)}) AS u
    LEFT JOIN covariates AS t ON t.unit_id = u.unit_id::VARCHAR
    ORDER BY u.unit_id
    """  # noqa: S608 - constants of ours
    return read_frame(connection, query)


def level_codes(texts: pl.Series, name: str, file: Path) -> tuple[list[str], Ints]:
    """Return the different texts in order, and the place of each row's among them, −1 for null.

    Raises InputError where there are more than :data:`MAX_LEVELS`.
    """
    levels = texts.drop_nulls().unique().sort()
    if len(levels) > MAX_LEVELS:
        raise InputError(
            f"{file}: column {name!r} has {len(levels):,} different texts, more than {MAX_LEVELS}: "
            "group them, or leave the column out; numbers have to be numbers in every row"
        )
    codes = texts.cast(pl.Enum(levels)).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    return levels.to_list(), codes.astype(np.int64)
