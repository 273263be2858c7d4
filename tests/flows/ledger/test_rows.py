"""The codec of rows: what is written is read again, and what is no row is refused by its column."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from flows.ledger.rules import Entry, Fingerprint, State, Withdrawal
from flows.ledger.tables import CHARGES, ENTRY
from privatizers.accounting.budget import Budget
from schemas.errors import InputError
from schemas.names import ReleaseName

NOW = datetime(2026, 11, 20, 3, 15, 30, tzinfo=UTC)
CHARGE = Entry(
    id=7,
    population="people",
    name=ReleaseName("trial", "p", 2),
    cost=Budget(0.1, 1e-9),
    state=State.PUBLISHED,
    path=Path("/releases/trial.p.r2.duckdb"),
    draft=Path("/releases/.draft"),
    host="here",
    created_at=NOW,
    fingerprint=Fingerprint("key:rows", "key:units", "key:settings"),
    roster="people-7",
    most=Budget(0.30000000000000004, 1e-9),
    file_sha256="a" * 64,
    withdrawal=Withdrawal("wrong prices", NOW),
    pruned_at=NOW,
    versions={"source.table": "5d0b 17"},
)
WITHOUT: dict[str, Any] = dict.fromkeys(
    ("draft", "fingerprint", "roster", "file_sha256", "withdrawal", "pruned_at", "versions")
)


def row_of(entry: Entry) -> dict[str, Any]:
    return ENTRY.values(**vars(entry))


@pytest.mark.parametrize("entry", [CHARGE, replace(CHARGE, **WITHOUT)], ids=["all", "least"])
def test_what_is_written_is_read_again(entry: Entry) -> None:
    row = row_of(entry)
    assert ENTRY.read(row) == entry
    assert {*row, "slot"} == set(CHARGES.c.keys())
    assert row["most_epsilon"] == "0.30000000000000004"  # with all its digits


def test_times_are_whole_seconds_in_utc() -> None:
    moment = datetime(2026, 11, 20, 4, 15, 30, 999, timezone(timedelta(hours=1)))
    row = ENTRY.values(created_at=moment)
    assert row == {"created_at": NOW.replace(tzinfo=None)}  # the column has no time zone
    for written in (row["created_at"], "2026-11-20 03:15:30.000000", "2026-11-20T04:15:30+01:00"):
        assert ENTRY.read({**row_of(CHARGE), "created_at": written}).created_at == NOW


def test_what_is_not_there_takes_all_its_columns_with_it() -> None:
    assert ENTRY.values(withdrawal=None) == {"withdrawn": None, "withdrawn_at": None}


@pytest.mark.parametrize("column", sorted(set(CHARGES.c.keys()) - {"slot", "id"}))
def test_bytes_are_in_no_column(column: str) -> None:
    with pytest.raises(InputError) as failure:
        ENTRY.read({**row_of(CHARGE), column: b"\0secret"})
    message = str(failure.value)
    assert message.startswith(f"the ledger's table clusterdp_charges: {column} ")
    assert "in the row with the id 7 is not" in message
    assert "secret" not in message or not column.endswith("_digest")


@pytest.mark.parametrize(
    "column",
    ["population", "experiment", "revision", "epsilon", "delta", "state", "path", "host",
     "created_at", "units_digest", "settings_digest", "most_epsilon", "withdrawn_at"],
)  # fmt: skip
def test_a_part_that_is_missing_is_told_by_its_column(column: str) -> None:
    """What may be missing is missing whole: half a fingerprint is none of this program's."""
    with pytest.raises(InputError, match=f"clusterdp_charges: {column} in the row with the id 7"):
        ENTRY.read({**row_of(CHARGE), column: None})
