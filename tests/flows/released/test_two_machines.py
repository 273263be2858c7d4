"""Two machines with one ledger and one store, at one time: one series, and no word that is wrong.

Each has its own host name, and its own disk under the same path, as two that were set up alike: by
namespaces of Linux, so that neither sees the other's files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

import clusterdp
from flows.ledger.account import Account
from flows.ledger.rules import State
from tests.conftest import PATIENCE, a_log, build_experiment
from tests.flows.released.test_shelved import AT, LOG, beside, check_whole, names, odd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Experiment
    from tests.postgresql import PostgreSQL
    from tests.support.odd_store import OddStore

__all__ = ["odd"]  # a fixture

pytest_plugins = ["tests.postgresql"]
pytestmark = pytest.mark.process

NIGHTS = [f"2026-11-{day:02}" for day in range(1, 7)]
NAMES = ("one", "two")
SPACES = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "--uts"]
SETUP = 'hostname "$1" && mount --bind "$2" "$3" && shift 3 && exec "$@"'
PROGRAM = """
import json, os, sys
from flows.operate.status import status
from flows.release import release_period
from schemas.errors import ClusterdpError

for line in sys.stdin:
    period = line.strip()
    try:
        if period == "status":
            found = status(sys.argv[1])
            (one,) = found.experiments
            said = [found.exit_code, [[each.state, each.reason] for each in one.periods]]
        else:
            made = release_period(sys.argv[1], period)
            said = [made.status, [made.release_id, *made.warnings]]
    except ClusterdpError as error:
        said = [type(error).__name__, str(error)]
    print(json.dumps(said), flush=True)
os._exit(0)
"""


@dataclass
class Machine:
    """One of the two."""

    name: str
    built: Experiment
    process: subprocess.Popen[str]

    def begin(self, *periods: str) -> None:
        """Let it release these nights, one after the other."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{period}\n" for period in periods))
        self.process.stdin.flush()

    def end(self) -> tuple[Any, Any]:
        """How the next of them ended, and what it said."""
        assert self.process.stdout is not None
        found, said = json.loads(self.process.stdout.readline())
        return found, said

    def run(self, period: str) -> tuple[Any, Any]:
        self.begin(period)
        return self.end()

    def check_unchanged(self, *periods: str) -> None:
        """These nights are there, and nothing is said of them but which releases they are."""
        for period in periods:
            assert self.run(period) == ("unchanged", [f"trial.{period}.r1"])


@pytest.fixture(params=["unit", "population"])
def machines(
    request: pytest.FixtureRequest, tmp_path: Path, odd: OddStore, postgresql: PostgreSQL
) -> Iterator[list[Machine]]:
    """Both, after the first night, which one has made and two has brought."""
    if subprocess.run([*SPACES, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces can be made here")
    ledger = {"url": postgresql.database(), "key_file": "ledger.key"}
    if request.param == "population":
        del ledger["key_file"]
    disk = tmp_path / "disk"
    disk.mkdir()
    made = []
    for name in NAMES:
        (tmp_path / name).mkdir()
        built = build_experiment(
            tmp_path / name / "trial",
            {f"logs/{night}.csv": a_log(80) for night in NIGHTS},
            source=LOG,
            publish={"directory": AT},
            ledger=ledger,
            privacy={"account": request.param, "mechanism": None},
        )
        program = [sys.executable, "-c", PROGRAM, f"{disk}/trial/{built.config.name}"]
        setup = ["sh", "-c", SETUP, "sh", name, str(tmp_path / name), str(disk)]
        process = subprocess.Popen(
            [*SPACES, *setup, *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        made.append(Machine(name, built, process))
    one, two = made
    try:
        assert one.run(NIGHTS[0]) == ("published", [f"trial.{NIGHTS[0]}.r1"])
        for key in one.built.config.parent.rglob("*.key"):  # as docs/stores.md says
            copy = two.built.config.parent / key.relative_to(one.built.config.parent)
            copy.parent.mkdir(exist_ok=True, mode=0o700)
            shutil.copy2(key, copy)
        two.check_unchanged(NIGHTS[0])
        yield made
    finally:
        for machine in made:
            machine.process.kill()
            machine.process.communicate(timeout=PATIENCE)


def check_ends(night: str, ends: list[tuple[Any, Any]]) -> None:
    """One has published it; the other was told so, or by whom it is being released."""
    release_id = f"trial.{night}.r1"
    (winner,) = [place for place, (found, _) in enumerate(ends) if found == "published"]
    assert ends[winner][1] == [release_id]
    found, said = ends[1 - winner]
    if found == "unchanged":
        assert said == [release_id]
        return
    host = NAMES[winner]
    being_released = rf"{release_id} is being released by another run \(on {host}, .*Wait for it"
    on_its_way = rf"was released as {release_id}.* not here: {host} released it into .* run again"
    meanwhile = "changed while its accounts were read; nothing was charged. Run it again"
    assert found == "ConflictError"
    assert re.search(rf"{being_released}|{on_its_way}|{meanwhile}", said), said


def test_both_at_once_make_one_series(machines: list[Machine], odd: OddStore) -> None:
    check_what_is_not_put_up_yet(machines, odd, NIGHTS[1])
    ends = {}
    for night in NIGHTS[2:4]:  # both begin a night at once
        for machine in machines:
            machine.begin(night)
        ends[night] = [machine.end() for machine in machines]
    for machine in machines:  # and each goes on by itself
        machine.begin(*NIGHTS[4:])
    for night in NIGHTS[4:]:
        ends[night] = [machine.end() for machine in machines]
    for night, of_night in ends.items():
        check_ends(night, of_night)
    for machine in machines:
        machine.check_unchanged(*NIGHTS)
        assert machine.run("status") == (0, [["published", None]] * len(NIGHTS))
    check_whole(odd)
    assert len(beside(odd)["SHA256SUMS"].splitlines()) == len(NIGHTS)
    assert names(odd).count("series.duckdb") == 1
    entries = Account.of(machines[0].built.load()).entries()
    assert [one.name.period for one in entries if one.state == State.PUBLISHED] == NIGHTS
    assert not [one for one in entries if one.state not in (State.PUBLISHED, State.VOID)]
    files = [
        {path.name: path.read_bytes() for path in machine.built.releases.glob("trial.*")}
        for machine in machines
    ]
    assert files[0] == files[1]
    assert len(files[0]) == len(NIGHTS)
    for place, night in enumerate(NIGHTS[:4]):
        release = clusterdp.open(f"{AT}/trial/trial.{night}.r1.duckdb")
        taught = [re.search(before, str(release.manifest)) for before in NIGHTS[:place]]
        assert all(taught), night  # by all that were put up before, whoever made them


def check_what_is_not_put_up_yet(machines: list[Machine], odd: OddStore, night: str) -> None:
    """One is held up while it puts the night up, of which two is told."""
    one, two = machines
    begun, done = Event(), Event()

    def loses(key: str) -> str:
        if f"{night}.r1." in key and not begun.is_set():
            begun.set()
            assert done.wait(PATIENCE)
        return ""

    odd.loses = loses
    one.begin(night)
    assert begun.wait(PATIENCE)
    found, said = two.run(night)
    assert found == "ConflictError"
    assert f"was released as trial.{night}.r1, from the same rows and settings, but its" in said
    assert "not here: one released it into" in said
    assert "Where publish.directory is a store, run again once it is put up there" in said
    code, periods = two.run("status")
    assert (code, [state for state, _ in periods]) == (0, ["published", "published"])
    assert periods[1][1].startswith("its file is not here: one released it into ")
    done.set()
    assert one.end() == ("published", [f"trial.{night}.r1"])
    two.check_unchanged(night)
