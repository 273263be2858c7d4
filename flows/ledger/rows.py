"""Rows of a ledger, read back: a row that this program did not write so is refused, by its number.

Somebody may have edited a ledger by hand, or another program may have written to it. What such a
row means nobody knows, and a guess could let people pay more than they may.
"""

import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flows.ledger.rules import Entry, Fingerprint, State, Withdrawal
from privatizers.accounting.budget import Budget
from schemas.errors import InputError, shown
from schemas.names import ReleaseName

_TABLE = "clusterdp_charges"
_DIGESTS = ("rows_digest", "units_digest", "settings_digest")


def entry_of(row: sa.Row[Any]) -> Entry:
    """Return the charge that a row of the ledger stands for; raises InputError where it is none."""
    found = _Row(row)
    name = ReleaseName(found.text("experiment"), found.text("period"), found.revision())
    state = found.state()
    slot = found.text_or_nothing("slot")
    if slot != (None if state == State.VOID else name.release_id):
        raise found.wrong("slot", f"not what a charge in the state {state} has")
    digests = [found.text_or_nothing(each) for each in _DIGESTS]
    rows, units, settings = digests
    return Entry(
        id=found.number,
        population=found.text("population"),
        name=name,
        cost=Budget(found.amount("epsilon"), found.amount("delta")),
        state=state,
        path=Path(found.place("path")),
        draft=None if found.text_or_nothing("draft") is None else Path(found.place("draft")),
        host=found.text("host"),
        created_at=found.time("created_at"),
        fingerprint=None
        if rows is None or units is None or settings is None
        else Fingerprint(rows, units, settings),
        roster=found.text_or_nothing("roster"),
        most=found.most(),
        file_sha256=found.digest("file_sha256"),
        withdrawal=found.withdrawal(),
        pruned_at=found.time_or_nothing("pruned_at"),
    )


class _Row:
    """A row, whose values may be of any type: SQLite keeps whatever it is given."""

    def __init__(self, row: sa.Row[Any]) -> None:
        self._values = row._mapping
        number = self._values["id"]
        self.number: int = number if isinstance(number, int) else -1

    def wrong(self, column: str, why: str) -> InputError:
        """Say what is wrong with a column; digests are not for anybody's eyes."""
        value = self._values[column]
        said = "" if column in _DIGESTS or value is None else f" {shown(value)}"
        return InputError(
            f"the ledger's table {_TABLE}: {column}{said} in the row with the id {self.number} is "
            f"{why}; nobody but clusterdp may write to a ledger, so put the row back as it was, "
            "from a copy"
        )

    def text(self, column: str) -> str:
        """A text that has to be there."""
        found = self.text_or_nothing(column)
        if not found:
            raise self.wrong(column, "empty")
        return found

    def text_or_nothing(self, column: str) -> str | None:
        value = self._values[column]
        if value is not None and not isinstance(value, str):
            raise self.wrong(column, "not text")
        return value

    def digest(self, column: str) -> str | None:
        """A SHA-256 in small hexadecimals; None where none was known."""
        value = self.text_or_nothing(column)
        if value is not None and not re.fullmatch("[0-9a-f]{64}", value):
            raise self.wrong(column, "not a SHA-256")
        return value

    def place(self, column: str) -> str:
        """A path, which may be of another machine."""
        found = self.text(column)
        if "\0" in found:
            raise self.wrong(column, "no path")
        return found

    def revision(self) -> int:
        value = self._values["revision"]
        if not isinstance(value, int) or value < 1:
            raise self.wrong("revision", "not a whole number from 1 on")
        return value

    def amount(self, column: str) -> float:
        """An ε or δ as it is written: text, for a double would say more digits than were meant."""
        try:
            found = float(self.text(column))
        except ValueError:
            found = math.nan
        if not (found >= 0.0 and math.isfinite(found)):
            raise self.wrong(column, "not a number from 0 on")
        return found

    def most(self) -> Budget:
        """The most that a unit had paid; nothing where the release has no register."""
        if self.text_or_nothing("roster") is None:
            return Budget()
        return Budget(self.amount("most_epsilon"), self.amount("most_delta"))

    def state(self) -> State:
        found = self.text("state")
        if found not in tuple(State):
            raise self.wrong("state", f"none of {', '.join(State)}")
        return State(found)

    def withdrawal(self) -> Withdrawal | None:
        reason = self.text_or_nothing("withdrawn")
        return None if reason is None else Withdrawal(reason, self.time("withdrawn_at"))

    def time_or_nothing(self, column: str) -> datetime | None:
        return None if self._values[column] is None else self.time(column)

    def time(self, column: str) -> datetime:
        """UTC, without a time zone attached; SQLite keeps it as text."""
        value = self._values[column]
        try:
            found = datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            found = None
        if not isinstance(found, datetime):
            raise self.wrong(column, "not a time")
        return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)
