"""Ledgers of every version, as it wrote them, in both databases: nothing that was spent is lost.

They are in ``written/``, made by the code of their version (:mod:`tests.flows.ledger.write_down`).
"""

import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flows.ledger.attempts import AttemptLog
from flows.ledger.database import Ledger
from flows.ledger.ends import OLDER as TABLES_OF_BEFORE
from flows.ledger.ends import Attempt
from flows.ledger.migrations import OLDEST, VERSION
from flows.ledger.place import ledger_url
from flows.ledger.rules import Entry, State
from flows.ledger.tables import CHARGES, METADATA, VERSION_TABLE, select
from flows.operate.copies.reconcile import reconcile
from flows.operate.copies.refill import loaded, refill
from privatizers.accounting.budget import Budget
from schemas.errors import InputError
from tests.flows.ledger.people import members, publish, terms
from tests.flows.ledger.write_down import NIGHTS, RUNS, VERSIONS, WRITTEN
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

OLDER = ("1", "2", "3", "3-runs", "4")
"""Ledgers of versions before; the last two have runs in every state."""
ledgers = pytest.mark.parametrize("name", [*OLDER, "5"])


def written(name: str, url: sa.URL) -> Ledger:
    """The ledger that a version wrote."""
    kind = url.get_backend_name()
    text = (WRITTEN / f"version-{name}.{kind}.sql").read_text(encoding="utf-8")
    if kind == "sqlite":
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


def number(name: str) -> int:
    return int(name.partition("-")[0])


def expected(name: str) -> list[tuple[str, str, Budget, State]]:
    return OF_EVERYBODY if name == "1" else [*OF_EVERYBODY, *OF_UNITS]


def entries(ledger: Ledger) -> list[Entry]:
    with ledger.reading() as connection:
        assert connection is not None
        return select(connection, sa.true())


def told(ledger: Ledger) -> list[tuple[str, str, Budget, State]]:
    found = entries(ledger)
    return [(one.population, one.name.release_id, one.cost, one.state) for one in found]


def attempts(ledger: Ledger) -> list[Attempt]:
    return AttemptLog(ledger, "trial").attempts()


def version_of(ledger: Ledger) -> int:
    with ledger.engine.connect() as connection:
        return int(connection.execute(sa.select(VERSION_TABLE.c.version)).scalar_one())


def test_every_version_is_written_down() -> None:
    names = {path.name for path in WRITTEN.iterdir()}
    kinds = ("sqlite", "postgresql")
    every = (*OLDER, str(VERSION))
    assert names == {f"version-{name}.{kind}.sql" for name in every for kind in kinds}
    assert {number(name) for name in every} == set(range(OLDEST, VERSION + 1))


@ledgers
def test_a_ledger_of_any_version_is_read_as_it_is(name: str, url: sa.URL) -> None:
    ledger = written(name, url)
    before = all_of(ledger)
    assert told(ledger) == expected(name)
    spent = ledger.statement(terms("nights"), exact=True).spent
    assert spent.epsilon == (1.35 if name == "1" else 2.35)
    assert attempts(ledger) == (RUNS if name in ("3-runs", "4", "5") else [])
    assert AttemptLog(ledger, "nights").attempts() == []  # its one run has published
    assert [one.versions for one in entries(ledger)[:5]] == [VERSIONS if name == "5" else None] * 5
    assert all_of(ledger) == before


def all_of(ledger: Ledger) -> dict[str, list[Any]]:
    """All that is in a ledger's tables, and in the file that it is."""
    with ledger.engine.connect() as connection:
        everything = {
            table: sorted(map(repr, connection.exec_driver_sql(f"SELECT * FROM {table}")))
            for table in sa.inspect(connection).get_table_names()
        }
    file = ledger.file
    return everything | {"": [] if file is None else [file.read_bytes(), *file.parent.glob("*")]}


@ledgers
def test_a_ledger_of_any_version_is_brought_up_to_date_by_the_first_change(
    name: str, url: sa.URL
) -> None:
    ledger = written(name, url)
    before, kept = entries(ledger), attempts(ledger)
    ledger.give_back(1)
    assert version_of(ledger) == VERSION
    assert attempts(ledger) == kept
    with ledger.engine.connect() as connection:
        tables = set(sa.inspect(connection).get_table_names())
    assert tables == set(METADATA.tables)
    assert tables.isdisjoint(TABLES_OF_BEFORE)
    after = entries(ledger)
    assert [one.state for one in after[:2]] == [VOID, PUBLISHING]
    assert after[1:] == before[1:]
    ledger.publish(2)
    assert entries(ledger)[1].state == PUBLISHED
    with ledger.engine.connect() as connection:
        columns = {each["name"] for each in sa.inspect(connection).get_columns(CHARGES.name)}
    assert columns == {column.name for column in CHARGES.columns}


@ledgers
def test_who_has_paid_is_known_after_it(name: str, url: sa.URL) -> None:
    ledger = written(name, url)
    everybody = Budget(1.35, 4e-9)  # of those that count, in people
    of = terms("nights", cost=0.5)
    for person in range(1, 8):
        with ledger.turn("people"):
            accounts = ledger.accounts(of, members([person], "nights"), "later")
        (paid,) = accounts.paid(accounts.codes).values()
        n_nights = 0 if name == "1" else sum(person in NIGHTS[night] for night in "abc")
        assert paid == Budget(0.5 * n_nights)
        assert accounts.everybody == everybody
    publish(ledger, of, "later", members([1], "nights"))
    assert entries(ledger)[-1].name.release_id == "nights.later.r1"


@ledgers
def test_a_backup_of_any_version_can_be_put_back(name: str, url: sa.URL, tmp_path: Path) -> None:
    ledger = written(name, url)
    before = all_of(ledger)
    backup = backed_up(ledger, tmp_path / "backup")
    assert all_of(ledger) == before
    assert backup.version == number(name)
    target = Ledger(ledger_url("sqlite:///new/ledger.sqlite", tmp_path))
    with loaded(backup) as source:
        found = reconcile(source, [], [])
        refill(target, backup, source)
    settled = dict.fromkeys(found.lost, LOST)
    assert set(settled) >= {"trial.reserved.r1", "trial.publishing.r1"}
    assert version_of(target) == VERSION
    assert told(target) == [
        (population, release, cost, settled.get(release, state))
        for population, release, cost, state in expected(name)
    ]
    assert attempts(target) == attempts(ledger)


DAMAGES = {
    "clusterdp_runs": ("facts = '7'", "facts = '{\"sample_ratio_p\": -1}'", "state = 'paid'"),
    "clusterdp_attempts": ("state = 'perhaps'", "host = ''"),
}


@pytest.mark.parametrize(("table", "damage"), [(t, d) for t, each in DAMAGES.items() for d in each])
def test_what_is_damaged_of_older_runs_stops_no_release(
    table: str, damage: str, url: sa.URL
) -> None:
    """Nothing hangs on it; what a charge says that is damaged stops everything."""
    ledger = written("3-runs", url)
    day = "2026-11-10" if table == "clusterdp_attempts" else "2026-11-09"
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {table} SET {damage} WHERE period = '{day}'")
    kept = [run for run in RUNS if run.period != day]
    assert attempts(ledger) == kept
    ledger.give_back(1)
    assert attempts(ledger) == kept


def test_a_ledger_of_a_later_program_is_refused_by_name(url: sa.URL) -> None:
    ledger = written(str(VERSION), url)
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
@ledgers
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_migration_that_is_killed_leaves_the_old_or_the_new(
    name: str, url: sa.URL, when: str
) -> None:
    """At its commit; before every single call of SQLite's in tests/faults/test_kill.py."""
    ledger = written(name, url)
    given = url.render_as_string(hide_password=False)
    done = subprocess.run([sys.executable, "-c", KILLED, when, given], check=False)
    assert done.returncode == -signal.SIGKILL
    is_done = when == "after"
    assert version_of(ledger) == (VERSION if is_done else number(name))
    assert told(ledger)[1:] == expected(name)[1:]
    assert told(ledger)[0][3] == (VOID if is_done else RESERVED)
    ledger.give_back(1)
    assert (version_of(ledger), told(ledger)[0][3]) == (VERSION, VOID)


KILLED_AT_EACH = """
import json, os, signal, sys
from pathlib import Path
import sqlalchemy as sa
from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url
from tests.flows.ledger.test_migrations import attempts, told, version_of

url = ledger_url(sys.argv[1], Path.cwd())


def die_at(number, when):
    left = [number]

    def hook(connection, cursor, statement, *_):
        if statement.split()[0] not in ("SELECT", "PRAGMA"):  # which change nothing
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(sa.Engine, f"{when}_cursor_execute", hook)


def begun(number, when):
    child = os.fork()
    if child == 0:
        die_at(number, when)
        Ledger(url).give_back(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


seen, end = [], -signal.SIGKILL
while end:
    for when in ("after", "before"):
        end = begun(len(seen) // 2, when)
        ledger = Ledger(url)
        seen.append([end, version_of(ledger), repr(told(ledger)), repr(attempts(ledger))])
        if not end:
            break
print(json.dumps(seen))
"""


@pytest.mark.process
@pytest.mark.parametrize("name", OLDER)
def test_a_migration_that_is_killed_at_any_statement_leaves_the_old(name: str, url: sa.URL) -> None:
    """Before and after each that changes something, in both databases, until it comes through."""
    ledger = written(name, url)
    kept = attempts(ledger)
    old = [-signal.SIGKILL, number(name), repr(told(ledger)), repr(kept)]
    given = url.render_as_string(hide_password=False)
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EACH, given], capture_output=True, text=True, check=True
    )
    *deaths, through = json.loads(done.stdout)
    assert len(deaths) > 2 * (len(kept) if number(name) < 4 else 0) + 6
    assert deaths == [old] * len(deaths)
    assert through == [0, VERSION, repr(told(ledger)), repr(kept)]
    assert told(ledger) == [(*expected(name)[0][:3], VOID), *expected(name)[1:]]
