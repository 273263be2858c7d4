"""Writes a ledger of the present version down as SQL, in both databases, for tests of migrations.

Run it once when the version of ledgers rises, before anything else changes them::

    python -m tests.flows.ledger.write_down

What is in ``written/`` is never written anew: ledgers of that version are out there.
"""

import re
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from flows.config.model.declared import Terms
from flows.ledger.attempts import AttemptLog
from flows.ledger.database import Ledger
from flows.ledger.ends import Attempt, AttemptState
from flows.ledger.migrations import VERSION
from flows.ledger.place import ledger_url
from flows.ledger.rules import ChargeRequest, Fingerprint, State
from flows.ledger.tables import insert, row_of
from privatizers.accounting.budget import Budget
from schemas.names import ReleaseName

WRITTEN = Path(__file__).parent / "written"
HERE = Path("/somewhere/releases/trial")
NO_LIMIT = Budget(float("inf"), float("inf"))
DIGEST = "d" * 64
VERSIONS = {"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}
"""Of a log's tables, since version 5: of charges for everybody."""
NIGHTS = {"a": [1, 2, 3], "b": [2, 3, 4], "c": [5], "d": [6]}
"""Who is in the nights of a population with accounts by unit: two that are public, one that is
reserved, one that was given back."""


def _moment(day: int, hour: int = 4) -> datetime:
    return datetime(2026, 11, day, hour, 15, tzinfo=UTC)


_RUN = Attempt("0" * 12, "", AttemptState.FAILED, host="unknown", at=_moment(1))
_HERE = replace(_RUN, host="a-machine")
_FACTS = {"seconds": 7, "n_units": 160, "n_read": 161, "sample_ratio_p": 0.25}
RUNS = [
    replace(_RUN, run=f"{1:012x}", period="published"),
    replace(
        replace(_RUN, **_FACTS, set_aside={"unit_missing": 1}),  # type: ignore[arg-type] # by name
        run=f"{2:012x}",
        period="published",
        state=AttemptState.PUBLISHED,
        at=_moment(2),
        release_id="trial.published.r1",
    ),
    *(
        replace(
            _HERE,
            run=f"trial.2026-11-0{day}",
            period=f"2026-11-0{day}",
            state=state,
            reason=f"why it is {state}",
            at=_moment(day),
        )
        for day, state in enumerate(list(AttemptState)[2:], 3)
    ),
    replace(
        _HERE,
        run=f"{6:012x}",
        period="2026-11-06",
        state=AttemptState.RUNNING,
        at=_moment(6, 3),
        folder=HERE / f".draft-{6:012x}-of-a-run",
    ),
    replace(
        _RUN,
        run=f"{8:012x}",
        period="found",
        state=AttemptState.PUBLISHED,
        at=_moment(7),
        release_id="trial.found.r3",
    ),
    replace(_RUN, run=f"{9:012x}", period="2026-11-09", at=_moment(9)),
    replace(
        _HERE,
        run="trial.2026-11-10",
        period="2026-11-10",
        reason="before there were runs",
        at=_moment(10),
    ),
]
"""Runs of the experiment ``trial`` in every state. Version 3 had them in two tables, as
``version-3-runs`` has: some of these with a reason and a machine, and some with an identifier."""


def tell(ledger: Ledger) -> None:
    """Charge in every state, for everybody; and by unit where the version has that."""
    for state in State:
        _charge(ledger, Terms("trial", "people", Budget(0.1, 1e-9), NO_LIMIT), state)
    _charge(ledger, Terms("winter", "people", Budget(0.25), NO_LIMIT), State.PUBLISHED)
    _charge(ledger, Terms("trial@north", "others", Budget(4.0), NO_LIMIT), State.PUBLISHED)
    of = Terms("trial", "people", Budget(0.1, 1e-9), NO_LIMIT)
    name = ReleaseName("trial", "found", 3)
    path = HERE / f"{name.release_id}.duckdb"
    with ledger.alone() as connection:  # one of another ledger's
        insert(connection, row_of(of.population, name, Budget(0.7), State.PUBLISHED, path))
    _note(ledger)


def _note(ledger: Ledger) -> None:
    """Withdraw a release, and prune another."""
    from flows.ledger.marks import note_pruned, note_withdrawal  # noqa: PLC0415 - since version 3

    moment = datetime(2026, 11, 20, 3, 15, tzinfo=UTC)
    note_withdrawal(ledger, "trial", "trial.published.r1", "wrong prices", moment)
    note_pruned(ledger, [one.id for one in ledger.entries_of("winter")], moment)


def tell_of_units(ledger: Ledger) -> None:
    """Charge by unit, and note runs."""
    from tests.flows.ledger.people import (  # noqa: PLC0415 - version 1 has none
        members,
        publish,
        reserve,
        terms,
    )

    of = terms("nights", cost=Budget(0.5))
    for night, people in NIGHTS.items():
        if night in "ab":
            publish(ledger, of, night, members(people, "nights"))
    reserve(ledger, of, "c", members(NIGHTS["c"], "nights"))
    charge = reserve(ledger, of, "d", members(NIGHTS["d"], "nights")).charge
    assert charge is not None
    ledger.give_back(charge)
    log = AttemptLog(ledger, "trial")
    for run in RUNS:
        log.keep(run)
    log.note_told("2026-11-03", "refused", _moment(3, 3))


def _charge(ledger: Ledger, of: Terms, state: State) -> None:
    digests = Fingerprint(f"k-1:rows {state}", f"k-1:units {of.experiment} {state}", "k-1:settings")
    draft = HERE / ".draft-of-a-run"
    asked = ChargeRequest(of, str(state), digests, HERE, draft, versions=VERSIONS)
    charge = ledger.reserve(asked).charge
    assert charge is not None
    if state == State.VOID:
        ledger.give_back(charge)
    if state in (State.PUBLISHING, State.PUBLISHED, State.LOST):
        ledger.begin_publishing(charge, DIGEST)
    if state == State.PUBLISHED:
        ledger.publish(charge)
    if state == State.LOST:
        ledger.abandon(of.experiment, f"{of.experiment}.{state}.r1")


def as_sqlite(folder: Path) -> str:
    """SQL that makes a ledger in SQLite, its registers as comments."""
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", folder))
    tell(ledger)
    tell_of_units(ledger)
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        lines = list(connection.iterdump())
    registers = sorted((folder / "ledger.sqlite.accounts").glob("*-*"))
    lines += [f"-- register {path.name} {path.read_bytes().hex()}" for path in registers]
    return "\n".join(lines) + "\n"


def as_postgresql(url: str, folder: Path, pg_dump: Path) -> str:
    """SQL that makes a ledger in PostgreSQL."""
    ledger = Ledger(ledger_url(url, folder))
    tell(ledger)
    tell_of_units(ledger)
    plain = url.replace("postgresql+psycopg", "postgresql")
    done = subprocess.run(
        [pg_dump, "--no-owner", "--no-acl", "--inserts", plain],
        capture_output=True,
        text=True,
        check=True,
    )
    kept = [line for line in done.stdout.splitlines() if _is_statement(line)]
    return "\n".join(kept) + "\n"


def _is_statement(line: str) -> bool:
    return line != "" and not re.match(r"--|\\|SET |SELECT pg_catalog.set_config", line)


def main() -> None:
    """Write both files."""
    from tests.postgresql import _programs, a_server  # noqa: PLC0415 - a plug-in of the tests

    programs = _programs()
    assert programs is not None
    folder = Path(tempfile.mkdtemp())
    socket.gethostname = lambda: "a-machine"
    try:
        file = WRITTEN / f"version-{VERSION}.sqlite.sql"
        assert not file.exists(), f"{file} is written down already"
        file.write_text(as_sqlite(folder), encoding="utf-8")
        with a_server(programs) as server:
            text = as_postgresql(server.emptied(), folder, programs / "pg_dump")
        file.with_name(f"version-{VERSION}.postgresql.sql").write_text(text, encoding="utf-8")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
