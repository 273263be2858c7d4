"""Ledgers of every version, as it wrote them, in both databases: nothing that was spent is lost.

They are in ``written/``, made by the code of their version (:mod:`tests.flows.ledger.write_down`).
"""

import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from flows.ledger.database import VERSION, Ledger
from flows.ledger.migrations import OLDEST
from flows.ledger.place import ledger_url
from flows.ledger.rules import Entry, State
from flows.ledger.tables import CHARGES, VERSION_TABLE, select
from flows.operate.copies.reconcile import reconcile
from flows.operate.copies.refill import loaded, refill
from privatizers.accounting.budget import Budget
from schemas.errors import InputError
from tests.flows.ledger.people import members, publish, terms
from tests.flows.ledger.write_down import NIGHTS, WRITTEN
from tests.flows.operate.copies.copied import backed_up

pytest_plugins = ["tests.postgresql"]

RESERVED, PUBLISHING, PUBLISHED, LOST, VOID = State
OF_EVERYBODY = [
    ("people", "trial.reserved.r1", Budget(0.1, 1e-9), RESERVED),
    ("people", "trial.publishing.r1", Budget(0.1, 1e-9), PUBLISHING),
    ("people", "trial.published.r1", Budget(0.1, 1e-9), PUBLISHED),
    ("people", "trial.lost.r1", Budget(0.1, 1e-9), LOST),
    ("people", "trial.void.r1", Budget(0.1, 1e-9), VOID),
    ("people", "winter.published.r1", Budget(0.25), PUBLISHED),
    ("others", "trial@north.published.r1", Budget(4.0), PUBLISHED),
    ("people", "trial.found.r3", Budget(0.7), PUBLISHED),
]
"""What every version has written."""
OF_UNITS = [
    ("people", "nights.a.r1", Budget(0.5), PUBLISHED),
    ("people", "nights.b.r1", Budget(0.5), PUBLISHED),
    ("people", "nights.c.r1", Budget(0.5), RESERVED),
    ("people", "nights.d.r1", Budget(0.5), VOID),
]
"""And those since version 2."""

versions = pytest.mark.parametrize("version", range(OLDEST, VERSION + 1))


def written(version: int, url: sa.URL) -> Ledger:
    """The ledger that a version wrote."""
    name = url.get_backend_name()
    text = (WRITTEN / f"version-{version}.{name}.sql").read_text(encoding="utf-8")
    if name == "sqlite":
        file = Path(url.database or "")
        file.parent.mkdir(mode=0o700, exist_ok=True)
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(text)
        folder = file.with_name(f"{file.name}.accounts")
        for register, content in re.findall(r"^-- register (\S+) ([0-9a-f]+)$", text, re.M):
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / register).write_bytes(bytes.fromhex(content))
    else:
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(text)
        engine.dispose()
    return Ledger(url)


def expected(version: int) -> list[tuple[str, str, Budget, State]]:
    return OF_EVERYBODY if version == 1 else [*OF_EVERYBODY, *OF_UNITS]


def entries(ledger: Ledger) -> list[Entry]:
    with ledger.reading() as connection:
        assert connection is not None
        return select(connection, sa.true())


def told(ledger: Ledger) -> list[tuple[str, str, Budget, State]]:
    found = entries(ledger)
    return [(one.population, one.name.release_id, one.cost, one.state) for one in found]


def version_of(ledger: Ledger) -> int:
    with ledger.engine.connect() as connection:
        return int(connection.execute(sa.select(VERSION_TABLE.c.version)).scalar_one())


def test_every_version_is_written_down() -> None:
    names = {path.name for path in WRITTEN.iterdir()}
    kinds = ("sqlite", "postgresql")
    every = range(OLDEST, VERSION + 1)
    assert names == {f"version-{version}.{kind}.sql" for version in every for kind in kinds}


@versions
def test_a_ledger_of_any_version_is_read_as_it_is(version: int, url: sa.URL) -> None:
    ledger = written(version, url)
    assert told(ledger) == expected(version)
    spent = ledger.statement(terms("nights")).spent
    assert spent.epsilon == (1.35 if version == 1 else 2.35)
    assert version_of(ledger) == version


@versions
def test_a_ledger_of_any_version_is_brought_up_to_date_by_the_first_change(
    version: int, url: sa.URL
) -> None:
    ledger = written(version, url)
    before = entries(ledger)
    ledger.give_back(1)
    assert version_of(ledger) == VERSION
    after = entries(ledger)
    assert [one.state for one in after[:2]] == [VOID, PUBLISHING]
    assert after[1:] == before[1:]
    ledger.publish(2)
    assert entries(ledger)[1].state == PUBLISHED
    with ledger.engine.connect() as connection:
        columns = {each["name"] for each in sa.inspect(connection).get_columns(CHARGES.name)}
    assert columns == {column.name for column in CHARGES.columns}


@versions
def test_who_has_paid_is_known_after_it(version: int, url: sa.URL) -> None:
    ledger = written(version, url)
    everybody = Budget(1.35, 4e-9)  # of those that count, in people
    of = terms("nights", cost=0.5)
    for person in range(1, 8):
        with ledger.turn("people"):
            accounts = ledger.accounts(of, members([person], "nights"), "later")
        (paid,) = accounts.paid(accounts.codes).values()
        n_nights = 0 if version == 1 else sum(person in NIGHTS[night] for night in "abc")
        assert paid == Budget(0.5 * n_nights)
        assert accounts.everybody == everybody
    publish(ledger, of, "later", members([1], "nights"))
    assert entries(ledger)[-1].name.release_id == "nights.later.r1"


@versions
def test_a_backup_of_any_version_can_be_put_back(version: int, url: sa.URL, tmp_path: Path) -> None:
    backup = backed_up(written(version, url), tmp_path / "backup")
    assert backup.version == version
    target = Ledger(ledger_url("sqlite:///new/ledger.sqlite", tmp_path))
    with loaded(backup) as source:
        found = reconcile(source, [], [])
        refill(target, backup, source)
    settled = dict.fromkeys(found.lost, LOST)
    assert set(settled) >= {"trial.reserved.r1", "trial.publishing.r1"}
    assert version_of(target) == VERSION
    assert told(target) == [
        (population, name, cost, settled.get(name, state))
        for population, name, cost, state in expected(version)
    ]


def test_a_ledger_of_a_later_program_is_refused_by_name(url: sa.URL) -> None:
    ledger = written(VERSION, url)
    with ledger.engine.begin() as connection:
        connection.execute(sa.update(VERSION_TABLE).values(version=VERSION + 1))
    with pytest.raises(InputError, match=f"has version {VERSION + 1}.* up to {VERSION}"):
        Ledger(url).give_back(2)
    assert version_of(ledger) == VERSION + 1


KILLED = """
import os, signal, sys
import sqlalchemy as sa
from pathlib import Path
from sqlalchemy.engine.default import DefaultDialect
from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url

when, url = sys.argv[1:]
commit = DefaultDialect.do_commit

def die(self, connection):
    if when == "after":
        commit(self, connection)
    os.kill(os.getpid(), signal.SIGKILL)

DefaultDialect.do_commit = die
Ledger(ledger_url(url, Path.cwd())).give_back(1)
"""


@pytest.mark.process
@versions
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_migration_that_is_killed_leaves_the_old_or_the_new(
    version: int, url: sa.URL, when: str
) -> None:
    """At its commit; before every single call of SQLite's in tests/faults/test_kill.py."""
    ledger = written(version, url)
    given = url.render_as_string(hide_password=False)
    done = subprocess.run([sys.executable, "-c", KILLED, when, given], check=False)
    assert done.returncode == -signal.SIGKILL
    is_done = when == "after"
    assert version_of(ledger) == (VERSION if is_done else version)
    assert told(ledger)[1:] == expected(version)[1:]
    assert told(ledger)[0][3] == (VOID if is_done else RESERVED)
    ledger.give_back(1)
    assert (version_of(ledger), told(ledger)[0][3]) == (VERSION, VOID)
