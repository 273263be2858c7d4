"""Nights on a real Prefect server: what deployments and `serve` do where a schedule is configured.

The clock runs a night in seconds: each run sees the moment that it would be by then. It is replaced
where all clocks are, in the process of each run.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flows.config.load import load
from flows.deployed import served_release
from flows.ledger.account import Account
from flows.ledger.attempts import AttemptLog
from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url
from flows.operate.status import status
from flows.operate.verify import verify
from flows.runtime import clock
from schemas.errors import BudgetError, ConfigError
from tests.conftest import PATIENCE, Builder, Experiment, a_log, write_content

if TYPE_CHECKING:
    from tests.postgresql import PostgreSQL

pytest_plugins = ["tests.postgresql"]

LIGHT = {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}


def day(number: int) -> str:
    """The period of a night, from 0; clocks go back on the way."""
    return (date(2026, 10, 10) + timedelta(days=number)).isoformat()


def states(built: Experiment) -> dict[str, str]:
    (found,) = status(built.config).experiments
    return {one.period: str(one.state) for one in found.periods}


def reasons(built: Experiment) -> set[str | None]:
    (found,) = status(built.config).experiments
    return {one.reason for one in found.periods}


# the flow, a night after the other


def test_a_served_night_catches_up_and_ends_in_a_state(
    prefect_harness: Path, experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = experiment(
        {f"{day(number)}.csv": a_log(160) for number in (0, 2)},
        source={"path": "{period}.csv"},
        schedule={"since": day(0)},
        privacy=LIGHT | {"budget_epsilon": 4.0},
    )
    write_content(built.folder / f"{day(1)}.csv", "nothing")
    served: Any = served_release([str(built.config)])

    def night(number: int) -> Any:
        moment = datetime.fromisoformat(f"{day(number)}T03:15").replace(tzinfo=UTC)
        monkeypatch.setattr(clock, "now", lambda: moment)
        return served(str(built.config), schedule_timezone="UTC", return_state=True)

    first = night(3)
    assert first.name == "BadInput"
    assert first.message.startswith(
        f"trial: of 3 periods that were due, 1 are not published: {day(1)} (failed): "
    )
    write_content(built.folder / f"{day(1)}.csv", a_log(160))
    refused = night(3)
    assert refused.name == "Refused"
    built.config.write_text(built.config.read_text().replace("= 4.0", "= 9.0"))
    assert night(3).name == "Completed"
    assert states(built) == dict.fromkeys(map(day, range(3)), "published") | {day(3): "waiting"}
    assert night(3).name == "Completed"  # nothing is due
    assert served(str(built.config), "by-hand", return_state=True).name == "BadInput"


def test_nights_on_a_server_s_ledger_need_a_key_that_is_named(
    postgresql: "PostgreSQL", experiment: Builder
) -> None:
    """It is asked for before any log is read; with it, each unit pays for its own nights."""
    url = postgresql.database()
    built = experiment(
        {f"{day(0)}.csv": a_log(160), f"{day(1)}.csv": a_log(320)},
        source={"path": "{period}.csv"},
        privacy=LIGHT | {"budget_epsilon": 4.0},
        ledger={"url": url},
    )
    for period in (day(0), "no-such-period"):
        for step in (built.check, built.run):
            with pytest.raises(ConfigError, match=r"ledger\.key_file: missing"):
                step(period)
    assert built.files == [f"{day(0)}.csv", f"{day(1)}.csv", "trial.toml"]
    built.config.write_text(f'{built.config.read_text()}key_file = "account.key"\n')
    for number in (0, 1):
        built.check(day(number))
        built.run(day(number))
    told = Account.of(built.load()).statement(exact=True).tally
    assert told is not None
    assert (told.n_units, told.most.epsilon, told.median_epsilon) == (320, 4.0, 2.0)
    write_content(built.folder / f"{day(2)}.csv", a_log(320))
    with pytest.raises(BudgetError, match="160 of its 320 units cannot pay"):
        built.run(day(2))


# thirty nights of `serve`

SECONDS = 9.0  # that a night takes
NIGHTS = 30
LATE, BROKEN, REFUSED, KILLED, RESTARTED, MISSED = 4, 9, 13, 18, 21, (24, 25, 26)

SERVE = """
import os, signal, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from flows.ledger import account
from flows.runtime import clock

CONFIG, BEGIN, SECONDS, KILLED = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
FIRST = datetime(2026, 10, 10, tzinfo=UTC)
FLAG = Path(CONFIG).with_name("to-be-killed")
make_public = account.make_public


def or_die(draft, path):
    if KILLED in path.name and FLAG.exists():
        FLAG.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    make_public(draft, path)


# Processes of runs import this, too.
clock.now = lambda: FIRST + timedelta(days=(time.time() - BEGIN) / SECONDS)
account.make_public = or_die

if __name__ == "__main__":
    from flows.orchestration.prefect_settings import configure_prefect

    configure_prefect(Path(CONFIG).parent, log_level="INFO")
    import prefect.schedules
    from flows.operate.serve import serve_releases

    every = prefect.schedules.Interval(timedelta(seconds=SECONDS))
    prefect.schedules.Cron = lambda cron, timezone: every
    serve_releases([Path(CONFIG)], "15 3 * * *", "UTC")
"""


@contextmanager
def serving(built: Experiment, begin: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves, with its server and its runs; nothing of it is left at the end."""
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    ours |= {"PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    told = [str(built.config), str(begin), str(SECONDS), day(KILLED)]
    script = built.folder / "serve_nights.py"  # of a file: Prefect deploys no other flow
    script.write_text(SERVE)
    with (built.folder / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, script, *told],
            cwd=built.folder, env=ours, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=PATIENCE)


def wait_until(
    process: "subprocess.Popen[bytes]",
    built: Experiment,
    wanted: dict[int, str],
    begin: float,
    number: float,
) -> None:
    """Wait for a night, and then for states that come of it, however slow the machine is."""
    time.sleep(max(begin + number * SECONDS - time.time(), 0))
    deadline = time.monotonic() + PATIENCE
    named = {day(one): state for one, state in wanted.items()}
    while not named.items() <= (found := states(built)).items():
        assert time.monotonic() < deadline, (named, found, reasons(built))
        assert process.poll() is None
        time.sleep(1.0)


@pytest.mark.soak
def test_thirty_nights_of_serve(
    own_postgresql: "PostgreSQL", experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One late, one broken, one refused, one worker killed, one with the database restarted, three
    missed: at the end there are the right files, charges and states."""
    nights = [day(number) for number in range(NIGHTS)]
    built = experiment(
        {f"{one}.csv": a_log(160) for one in nights if one != day(LATE)},
        source={"path": "{period}.csv"},
        schedule={"since": nights[0]},
        privacy=LIGHT | {"budget_epsilon": 2.0 * REFUSED},
        ledger={"url": own_postgresql.database(), "key_file": "account.key"},
    )
    write_content(built.folder / f"{day(BROKEN)}.csv", "nothing")
    (built.folder / "to-be-killed").touch()
    begin = time.time() + 20.0
    first = datetime(2026, 10, 10, tzinfo=UTC)
    monkeypatch.setattr(
        clock, "now", lambda: first + timedelta(days=(time.time() - begin) / SECONDS)
    )

    with serving(built, begin) as process:
        come = partial(wait_until, process, built)
        come({LATE: "failed", LATE + 1: "published"}, begin, 6)
        write_content(built.folder / f"{day(LATE)}.csv", a_log(160))
        come({LATE: "published"}, begin, 8)
        come({BROKEN: "failed"}, begin, BROKEN + 1)
        write_content(built.folder / f"{day(BROKEN)}.csv", a_log(160))
        come({BROKEN: "published"}, begin, BROKEN + 2)
        come({REFUSED: "refused"}, begin, REFUSED + 1)
        text = built.config.read_text()
        built.config.write_text(text.replace(f"= {2.0 * REFUSED}", f"= {2.0 * NIGHTS}"))
        come({REFUSED: "published"}, begin, REFUSED + 2)
        come({KILLED: "published"}, begin, KILLED + 2)
        assert not (built.folder / "to-be-killed").exists()
        time.sleep(max(begin + (RESTARTED + 1.1) * SECONDS - time.time(), 0))
        own_postgresql.restart()
        come({RESTARTED: "published"}, begin, RESTARTED + 2)
    time.sleep(max(begin + (MISSED[-1] + 2) * SECONDS - time.time(), 0))
    missed = {states(built).get(day(number)) for number in MISSED}
    with serving(built, begin) as process:
        wait_until(process, built, {NIGHTS - 1: "published"}, begin, NIGHTS + 1)
    assert missed == {"due"}
    found = {one: states(built)[one] for one in nights}
    assert found == dict.fromkeys(nights, "published")
    assert_all_is_as_it_should(built, nights)


def assert_all_is_as_it_should(built: Experiment, nights: list[str]) -> None:
    config = load(built.config)
    public = sorted(path.name for path in built.releases.glob("trial.2026-1[01]-??.r*.duckdb"))
    for one in nights:
        assert f"trial.{one}.r1.duckdb" in public
    assert not [name for name in public if ".r1." not in name]
    assert list(built.releases.glob(".*")) == []
    entries = [entry for entry in Account.of(config).statement().entries if entry.counts]
    assert sorted(entry.path.name for entry in entries) == public
    assert {str(entry.state) for entry in entries} == {"published"}
    log = AttemptLog(Ledger(ledger_url(config.ledger.url, config.directory)), "trial")
    last = {one.period: str(one.state) for one in log.attempts()}
    # who was killed left no word; the ledger says that it is public
    assert {last[one] for one in nights} <= {"published", "running"}
    files = [*built.releases.glob("trial.*.duckdb"), built.releases / "latest.duckdb"]
    for ledger in (built.config, None):
        verdicts = verify(files, ledger=ledger).releases
        assert {one.intact for one in verdicts} == {True}
