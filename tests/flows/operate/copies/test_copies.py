"""Ledgers copied and put back, in both databases: what comes back never says that less was spent.

Releases are one line each here, which says their id and what they cost.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from flows.ledger.database import Ledger
from flows.ledger.migrations import VERSION
from flows.ledger.place import ledger_url
from flows.ledger.rules import State
from flows.ledger.tables import CHARGES
from flows.operate.copies.folder import (
    MANIFEST,
    TABLES,
    Backup,
    new_backup,
    open_backup,
    write_private,
)
from flows.operate.copies.reconcile import Found
from flows.operate.copies.refill import loaded
from flows.operate.copies.snapshot import take_snapshot
from flows.released.checksums import SUMS
from privatizers.accounting.budget import Budget
from schemas.errors import ConfigError, InputError
from tests.flows.ledger.people import members, publish, reserve, terms
from tests.support.modes import mode

if TYPE_CHECKING:  # not imported twice, as it is a plug-in
    pass

from tests.flows.operate.copies.copied import backed_up, entries, line, put_back, tally

pytest_plugins = ["tests.postgresql"]

RESERVED, PUBLISHING, PUBLISHED, LOST, VOID = State


# the same again


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_is_put_back_is_what_was_copied(
    ledger: Ledger, other: Callable[[str], Ledger], tmp_path: Path, releases: Path, kind: str
) -> None:
    """From each database into each: charges in every state, accounts, sums of registers."""
    of = terms(cost=Budget(0.1, 1e-9))
    for night in range(6):
        publish(ledger, of, f"n{night}", members(range(10 * night, 10 * night + 30)))
    given_back = reserve(ledger, of, "void", members([1, 2])).charge
    assert given_back is not None
    ledger.give_back(given_back)
    stuck = reserve(ledger, of, "stuck", members([5])).charge
    assert stuck is not None
    ledger.begin_publishing(stuck, "0" * 64)
    ledger.abandon("trial", "trial.stuck.r1")
    known = tally(ledger, of)
    reserve(ledger, of, "open", members([1, 99]))
    for night in range(6):
        line(releases, f"trial.n{night}.r1", 0.1)

    target = other(kind)
    found = put_back(backed_up(ledger, tmp_path / "backup"), target, releases, cost=0.1)
    assert found == Found(lost=["trial.open.r1"])
    before, after = entries(ledger), entries(target)
    assert [one.state for one in after] == [PUBLISHED] * 6 + [VOID, LOST, LOST]
    assert after[:-1] == before[:-1]
    assert after[-1].roster is None  # nobody knows what became of it
    again = tally(target, of)
    assert (again.histories, again.lost) == (known.histories, frozenset())
    assert again.most == known.most + of.cost
    publish(target, of, "later", members([1]))
    ids = [one.id for one in entries(target)]
    assert len(set(ids)) == len(ids) == 10


def test_a_backup_is_its_owner_s_alone(tmp_path: Path) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    publish(ledger, terms(), "a", members(range(9)))
    folder = backed_up(ledger, tmp_path / "backup").folder
    assert mode(folder) == 0o700
    assert len(list(folder.iterdir())) == 4
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "backup",
        "ledger.sqlite",
        "ledger.sqlite.accounts",
    ]


def test_there_is_no_backup_of_nothing(tmp_path: Path) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    (tmp_path / "folder").mkdir()
    assert take_snapshot(ledger, tmp_path / "folder") is None
    assert list((tmp_path / "folder").iterdir()) == []
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_register_that_was_lost_already_is_told_and_counts_for_everybody(
    tmp_path: Path, releases: Path, other: Callable[[str], Ledger]
) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    publish(ledger, terms(), "a", members(range(9)))
    publish(ledger, terms(), "b", members([100]))
    folder = tmp_path / "ledger.sqlite.accounts"
    (damaged,) = folder.glob("*-1")
    damaged.write_bytes(damaged.read_bytes()[:-8] + b"\0" * 8)
    for path in folder.glob("*-*-*"):
        path.unlink()  # sums
    backup = backed_up(ledger, tmp_path / "backup")
    assert backup.lost == ("trial.a.r1",)
    target = other("sqlite")
    put_back(backup, target, releases)
    with target.turn("people"):
        accounts = target.accounts(terms(), members([100]), "c")
    assert accounts.everybody == Budget(2.0)
    assert accounts.paid(accounts.codes) == {1: Budget(2.0)}


def test_a_row_that_nobody_should_have_written_is_refused_before_it_is_needed(
    tmp_path: Path,
) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    publish(ledger, terms(), "a", members([1]))
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as edited:
        edited.execute("UPDATE clusterdp_charges SET created_at = 'yesterday'")
        edited.commit()
    with pytest.raises(InputError, match="created_at 'yesterday' in the row with the id 1"):
        backed_up(ledger, tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ledger.sqlite",
        "ledger.sqlite.accounts",
    ]


# damage


def test_a_backup_with_a_byte_of_any_file_altered_is_refused(backup: Backup) -> None:
    for path in sorted(backup.folder.iterdir()):
        content = path.read_bytes()
        for place in (0, len(content) // 2, len(content) - 1):
            damaged = bytearray(content)
            damaged[place] ^= 1
            path.write_bytes(damaged)
            with pytest.raises(InputError, match="backup"):
                open_backup(backup.folder)
        path.write_bytes(content)
    assert open_backup(backup.folder) == backup


def test_a_backup_that_lacks_a_file_or_has_another_is_refused(backup: Backup) -> None:
    for path in sorted(backup.folder.iterdir()):
        away = path.rename(backup.folder.parent / "away")
        with pytest.raises(InputError, match="no backup that can be restored"):
            open_backup(backup.folder)
        away.rename(path)
    (backup.folder / "another").touch()
    with pytest.raises(InputError, match="'another' is none of the backup's"):
        open_backup(backup.folder)


def test_a_link_in_a_backup_is_not_followed(backup: Backup) -> None:
    path = backup.folder / TABLES
    path.symlink_to(path.rename(backup.folder.parent / "elsewhere"))
    with pytest.raises(InputError, match="is not what was written"):
        open_backup(backup.folder)


@pytest.mark.parametrize("text", ["{}", "[]", "nothing", '{"format": 2}', '{"format": 1}'])
def test_a_list_of_contents_that_is_none_is_refused(backup: Backup, text: str) -> None:
    sums = (backup.folder / SUMS).read_text()
    old = (backup.folder / MANIFEST).read_bytes()
    (backup.folder / MANIFEST).write_text(text)
    (backup.folder / SUMS).write_text(
        sums.replace(sha256(old).hexdigest(), sha256(text.encode()).hexdigest())
    )
    with pytest.raises(InputError, match="the clusterdp that made it"):
        open_backup(backup.folder)


def test_a_ledger_of_a_later_version_is_refused_by_name(backup: Backup) -> None:
    with closing(sqlite3.connect(backup.folder / TABLES)) as later:
        later.execute("UPDATE clusterdp_ledger SET version = version + 1")
        later.commit()
    told = pytest.raises(InputError, match=f"has version {VERSION + 1}.* up to {VERSION}")
    with told, loaded(backup):
        pass


def test_a_backup_is_whole_or_not_at_all(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        write_private(folder / "file", b"some")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), new_backup(tmp_path / "backup") as folder:
        fail(folder)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "backup").mkdir()
    with pytest.raises(ConfigError, match="is there already"), new_backup(tmp_path / "backup"):
        pass
    with pytest.raises(ConfigError, match="is no folder"), new_backup(tmp_path / "none" / "b"):
        pass


def test_the_time_of_a_backup_is_when_its_ledger_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 11, 20, 3, 15, 0, 7, tzinfo=UTC)
    monkeypatch.setattr("flows.runtime.clock.now", lambda: now)
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    publish(ledger, terms(), "a", members([1]))
    backup = backed_up(ledger, tmp_path / "backup")
    assert backup.made_at == now.replace(microsecond=0)
    written = json.loads((backup.folder / MANIFEST).read_text())
    assert written["made_at"] == "2026-11-20T03:15:00Z"


def test_the_backup_of_a_ledger_leaves_it_as_it_is(url: sa.URL, tmp_path: Path) -> None:
    ledger = Ledger(url)
    publish(ledger, terms(), "a", members([1]))
    before = entries(ledger)
    with ledger.alone() as connection:  # a run that holds the ledger is not waited for
        connection.execute(sa.select(CHARGES.c.id))
        backed_up(Ledger(url), tmp_path / "backup")
    assert entries(ledger) == before
