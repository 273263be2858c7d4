"""What the ledger notes of releases after they were published, in both databases."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from flows.config.model.declared import Terms
from flows.ledger.database import Ledger
from flows.ledger.marks import (
    closing_of,
    lists_of,
    note_pruned,
    note_withdrawal,
)
from flows.ledger.migrations import VERSION
from flows.ledger.place import ledger_url
from flows.ledger.rules import ChargeRequest, Fingerprint, State
from flows.ledger.standing import standings
from flows.ledger.tables import SINCE
from privatizers.accounting.budget import Budget
from schemas.errors import ConfigError, InputError
from tests.flows.ledger.write_down import WRITTEN

NOW = datetime(2026, 11, 20, 3, 15, 30, tzinfo=UTC)
TERMS = Terms("trial", "people", Budget(1.0, 0.25), Budget(10.0, 1.0))

pytest_plugins = ["tests.postgresql"]
pytestmark = pytest.mark.process  # one of the two is a server


@contextmanager
def database(url: sa.URL) -> Iterator[sa.Connection]:
    """The ledger's database itself; nothing of it stays open."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        yield connection


def published(ledger: Ledger, period: str, folder: Path) -> int:
    """Charge for a release, and publish it."""
    made_from = Fingerprint(f"k:{period}", "k:u", "k:s")
    granted = ledger.reserve(ChargeRequest(TERMS, period, made_from, folder, folder / period))
    assert granted.charge is not None
    ledger.begin_publishing(granted.charge, "0" * 64)
    ledger.publish(granted.charge)
    return granted.charge


def test_what_is_noted_is_read_back_and_changes_no_amount(ledger: Ledger, tmp_path: Path) -> None:
    charges = [published(ledger, period, tmp_path) for period in "ab"]
    before = ledger.statement(TERMS).spent
    assert note_withdrawal(ledger, "trial", "trial.a.r1", "wrong", NOW)
    assert not note_withdrawal(ledger, "trial", "trial.a.r1", "wrong", NOW)
    note_pruned(ledger, charges, NOW)
    note_pruned(ledger, charges, NOW.replace(year=2027))  # the first time counts
    lists = lists_of(ledger.entries_of("trial"), None)
    one = lists.withdrawn["trial.a.r1"]
    assert (one.reason, one.withdrawn_at) == ("wrong", "2026-11-20T03:15:30Z")
    assert [(p.pruned_at, p.epsilon, p.delta, p.sha256) for p in lists.pruned.values()] == [
        ("2026-11-20T03:15:30Z", 1.0, 0.25, "0" * 64)
    ] * 2
    assert ledger.statement(TERMS).spent == before == Budget(2.0, 0.5)
    found = standings(None, NOW, ledger.entries_of("trial"), {}, {})
    assert [str(one.state) for one in found] == ["withdrawn", "pruned"]
    assert note_withdrawal(ledger, "trial", "trial.a.r1", None, NOW)
    assert lists_of(ledger.entries_of("trial"), None).withdrawn == {}


@pytest.mark.parametrize("named", ["trial.a.r1", "trial.b.r1", "other.c.r1"])
def test_what_is_not_public_cannot_be_withdrawn(ledger: Ledger, tmp_path: Path, named: str) -> None:
    made_from = Fingerprint("k:r", "k:u", "k:s")
    ledger.reserve(ChargeRequest(TERMS, "a", made_from, tmp_path, tmp_path / "run"))
    with pytest.raises(ConfigError, match="only a published release of 'trial'"):
        note_withdrawal(ledger, "trial", named, "wrong", NOW)
    assert ledger.unfinished_folders() == {tmp_path / "run"}
    assert {one.state for one in ledger.entries_of("trial")} == {State.RESERVED}


def test_a_ledger_of_version_2_is_read_as_it_is_and_brought_up_to_date(
    ledger: Ledger, url: sa.URL, tmp_path: Path
) -> None:
    charge = published(ledger, "a", tmp_path)
    with database(url) as connection:
        for name in (name for name, version in SINCE.items() if version > 2):
            connection.execute(sa.text(f"ALTER TABLE clusterdp_charges DROP COLUMN {name}"))
        connection.execute(sa.text("UPDATE clusterdp_ledger SET version = 2"))
    (entry,) = ledger.entries_of("trial")
    assert (entry.withdrawal, entry.pruned_at, entry.file_sha256) == (None, None, "0" * 64)
    note_pruned(ledger, [charge], NOW)
    (entry,) = ledger.entries_of("trial")
    assert entry.pruned_at == NOW
    with database(url) as connection:
        version = connection.execute(sa.text("SELECT version FROM clusterdp_ledger")).scalar()
    assert version == VERSION


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_time_that_is_none_is_told_by_its_row(
    ledger: Ledger, url: sa.URL, tmp_path: Path
) -> None:
    """In SQLite alone: PostgreSQL keeps nothing but times there."""
    published(ledger, "a", tmp_path)
    with database(url) as connection:
        connection.execute(sa.text("UPDATE clusterdp_charges SET pruned_at = 'soon'"))
    with pytest.raises(InputError, match="pruned_at 'soon' in the row with the id 1"):
        ledger.entries_of("trial")


def test_without_an_end_nothing_closes() -> None:
    assert closing_of("trial", None, list, NOW) is None


def test_a_ledger_that_was_written_down_has_its_notes(tmp_path: Path) -> None:
    text = (WRITTEN / "version-3.sqlite.sql").read_text(encoding="utf-8")
    url = ledger_url("sqlite:///ledger.sqlite", tmp_path)
    with closing(sqlite3.connect(str(url.database))) as connection:
        connection.executescript(text)
    lists = lists_of(Ledger(url).entries_of("trial"), None)
    assert [one.reason for one in lists.withdrawn.values()] == ["wrong prices"]
    assert set(lists_of(Ledger(url).entries_of("winter"), None).pruned) == {"winter.published.r1"}
