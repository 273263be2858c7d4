"""A table of units that an analyst gives beside a release, and how it fits the release."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from schemas.errors import InputError

UNIT_ID = "unit_id"
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
