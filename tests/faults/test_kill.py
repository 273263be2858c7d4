"""Killed at any moment: nothing half under a public name, and the next run finishes the job.

Three sweeps. A whole run is killed at places within its steps and between them, and from outside at
random moments. Where charges are made and files get their names, the same act is repeated and
killed one call of the operating system or of SQLite later each time, until one comes through.
"""

import hashlib
import inspect
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from flows.config.model.experiment import Config
from flows.ledger.account import Account
from flows.ledger.database import Ledger
from flows.ledger.migrations import VERSION
from flows.ledger.place import ledger_url
from flows.ledger.rules import Fingerprint
from flows.released.checksums import read_sums
from flows.released.file.draft import LATEST, complete, workplace
from flows.released.file.read import read_release
from flows.runtime.files import replace_file
from schemas.released import Manifest
from schemas.series import SERIES
from tests.conftest import PATIENCE, Builder, Experiment, a_log, build_experiment, released, rows
from tests.flows.ledger.test_migrations import OLDER, attempts, entries, version_of, written

EPSILON = 2.0  # of one release

# A process of its own, in which a child is forked for every death; it says how each ended.
HEAD = """
import importlib, io, json, os, shutil, signal, sqlite3, sys, time
from contextlib import closing
from pathlib import Path

FOLDER, *GIVEN = sys.argv[1:]
FOLDER = Path(FOLDER)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def begun(act, *given):
    child = os.fork()
    if child == 0:
        act(*given)
        os._exit(0)
    return child


def end_of(child):
    return -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

RUNS = """
import gc
# What a run imports on its way, but no thread of it: each child would import it anew.
import _strptime, encodings.utf_8_sig
import numpy.testing, pandera.backends.polars.container, pyarrow.compute, pyarrow.pandas_compat
import schemas.raw_frame, scipy.special, scipy.stats, sqlalchemy.dialects.sqlite.pysqlite
import flows.ledger.shelves.files
from flows.release import release_period

flows.ledger.shelves.files._YOUNG = 10**18  # what is noted hangs on no clock then
gc.freeze()


def run(folder):
    release_period(f"{folder}/trial.toml", "b", False)


def run_to(place, folder):
    when, _, name = place.partition(" ")
    name, _, number = name.partition("#")
    left = [int(number or 1)]
    owner, name = owner_of(name)
    original = getattr(owner, name)

    def act_and_die(*given, **named):
        left[0] -= 1
        is_it = left[0] == 0  # another thread may begin the next call meanwhile
        if is_it and when == "before":
            die()
        result = original(*given, **named)
        if is_it:
            die()
        return result

    setattr(owner, name, act_and_die)
    run(folder)


def owner_of(name):
    *parts, name = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            owner = getattr(owner, part)
        return owner, name


def usual_time():
    begin = time.perf_counter()
    assert end_of(begun(run, FOLDER / "usual")) == 0
    return time.perf_counter() - begin


def kill_after(delay, folder):
    child = begun(run, folder)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return end_of(child)


usual = usual_time()
ends = []
for number, place in enumerate(GIVEN):
    folder = FOLDER / str(number)
    if place.startswith("at "):
        ends.append(kill_after(usual * float(place.removeprefix("at ")), folder))
    else:
        ends.append(end_of(begun(run_to, place, folder)))
print(json.dumps(ends))
"""

CALLS = """
import gc
import sqlalchemy.dialects.sqlite.pysqlite  # as above: what a child imports, it reads
from flows.ledger.rules import Fingerprint
from flows.ledger.account import Account
from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url
import flows.ledger.attempts
from flows.config.model.experiment import Config
from flows.config.load import load
from flows.runtime.files import replace_file
from flows.released.file.draft import workplace

# Whatever changes nothing may be left out: a death before it is one before the next call.
READING = {
    "fspath", "stat", "lstat", "fstat", "listdir", "scandir", "getpid", "getcwd", "urandom",
    "text_encoding", "fileno", "cursor", "fetchone", "fetchall", "create_function", "flock",
}
QUERIES = "SELECT", "BEGIN", "PRAGMA main.table_info", "PRAGMA temp.table_info"
NOTHING_OPEN = {"rollback", "commit", "close"}  # change nothing outside of a transaction


def die_before_call(number):
    left = [number]

    def hook(frame, event, called):
        if event == "c_call" and asks_the_system(called) and not asks_alone(frame, called):
            left[0] -= 1
            if left[0] < 0:
                die()

    sys.setprofile(hook)


def asks_the_system(called):
    of = getattr(called, "__self__", None)
    if called.__name__ in READING or isinstance(of, sqlite3.Cursor) and called.__name__ == "close":
        return False
    if isinstance(of, (io.IOBase, sqlite3.Connection, sqlite3.Cursor)):
        return True
    return called.__module__ in ("posix", "io", "_io", "fcntl")


def asks_alone(frame, called):
    # It reads, or lets go of what was read: by a query, a file, a descriptor.
    of, name = getattr(called, "__self__", None), called.__name__
    if isinstance(of, sqlite3.Cursor):
        return str(frame.f_locals.get("statement", "")).lstrip().startswith(QUERIES)
    if isinstance(of, sqlite3.Connection):
        return name in NOTHING_OPEN and not of.in_transaction
    return isinstance(of, io.BufferedReader) or called.__module__ == "posix" and name == "close"


def publish(folder, number):
    config = CONFIG.model_copy(update={"directory": folder})
    account = Account.of(config)
    die_before_call(number)
    with workplace(config.releases) as place:
        charge = account.reserve("b", Fingerprint("k:r", "k:u", "k:s"), place, revise=False)
        if charge.is_new:
            with account.publishing(charge):
                charge.draft.write_text("whole")


def replace(folder, number):
    die_before_call(number)
    with replace_file(folder / "file", mode=0o600) as file:
        file.write(b"new")


def migrate(folder, number):
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", folder))
    die_before_call(number)
    ledger.give_back(1)


act, template = GIVEN
if act == "publish":
    CONFIG = load(Path(template) / "trial.toml")
gc.freeze()
ends = []
while not ends or ends[-1] == signal.SIGKILL:
    folder = copy_of(Path(template), FOLDER / str(len(ends)))
    ends.append(end_of(begun(globals()[act], folder, len(ends))))
print(json.dumps(ends))
"""


def copy_of(template: Path, target: Path) -> Path:
    """Copy an experiment, releases as links, and let the copy's ledger speak of the copy."""

    def link_or_copy(source: str, copy: str) -> None:
        (os.link if source.endswith(".duckdb") else shutil.copy)(source, copy)

    shutil.copytree(template, target, copy_function=link_or_copy)
    if (target / "ledger.sqlite").exists():
        with closing(sqlite3.connect(target / "ledger.sqlite")) as ledger:
            tables = {name for (name,) in ledger.execute("SELECT name FROM sqlite_master")}
            for table, column in (("charges", "path"), ("charges", "draft"), ("files", "path")):
                query = f"UPDATE clusterdp_{table} SET {column} = replace({column}, ?, ?)"
                if f"clusterdp_{table}" in tables:  # an old ledger has no notes of files
                    ledger.execute(query, (f"{template}/", f"{target}/"))
            ledger.commit()
    return target


def ends_of(script: str, folder: Path, *given: str | Path) -> list[int]:
    """Let one act be killed in each folder; by which signal each ended, 0 where it came through."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + inspect.getsource(copy_of) + script, folder, *given],
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,  # some forty runs
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ends: list[int] = json.loads(done.stdout.splitlines()[-1])
    assert set(ends) <= {0, signal.SIGKILL}, done.stderr
    return ends


def state_of_b(account: Account) -> str | None:
    """The state of the last charge for a release of period b, if there is one."""
    entries = account.statement().entries
    states = [entry.state.value for entry in entries if entry.name.period == "b"]
    return states[-1] if states else None


# whole runs


class Death(NamedTuple):
    """How far a run had come when it was killed."""

    charge: str | None
    """The state of its charge."""
    public: bool = False
    """Whether its release had its name."""


UNCHARGED = Death(None)
RESERVED = Death("reserved")
COMPLETE = Death("publishing")
LINKED = Death("publishing", public=True)
PUBLIC = Death("published", public=True)

COMMIT = "sqlalchemy.engine.default.DefaultDialect.do_commit"

A_LATER_RELEASE = {
    "after flows.runtime.working_folders._locked_folder": UNCHARGED,
    "after flows.release.validate": UNCHARGED,
    "after flows.raw.charge.fingerprint": UNCHARGED,
    "after flows.raw.charge.digest_units": UNCHARGED,
    f"before {COMMIT}#1": UNCHARGED,  # of what dead runs left
    f"after {COMMIT}#2": UNCHARGED,  # of the key of the accounts
    "after flows.raw.charge.set_known_aside": UNCHARGED,
    "before os.fsync": UNCHARGED,  # while it writes who is in the release
    f"before {COMMIT}#4": UNCHARGED,
    f"after {COMMIT}#4": RESERVED,
    "after flows.ledger.account.sweep": RESERVED,
    "before os.fsync#3": RESERVED,  # while it writes the quarantine
    "before flows.raw.drawing.strata_counts.stochastic_levels": RESERVED,
    "after flows.release.privatize": RESERVED,
    "after flows.released.publish._insert": RESERVED,
    "after flows.released.publish.add_estimates": RESERVED,
    "after flows.ledger.account.complete": RESERVED,
    f"before {COMMIT}#5": RESERVED,
    f"after {COMMIT}#5": COMPLETE,
    "before os.link": COMPLETE,
    "after os.link": LINKED,
    f"before {COMMIT}#6": LINKED,
    f"after {COMMIT}#6": PUBLIC,
    "before flows.ledger.shelves.shelf.point_latest#3": PUBLIC,
    "after os.link#2": PUBLIC,  # of latest, beside it
    "after flows.ledger.shelves.shelf.point_latest#3": PUBLIC,
    "after flows.operate.series.renew._write": PUBLIC,
    "before flows.operate.series.renew.sync_directory": PUBLIC,
    "before shutil.rmtree": PUBLIC,
}
THE_FIRST_RELEASE = {
    "before flows.runtime.reading.key_files._make_key": UNCHARGED,
    "before os.link": UNCHARGED,  # of the key of digests
    "after os.link": UNCHARGED,
    "after flows.runtime.reading.key_files._make_key": UNCHARGED,
    "after os.link#2": UNCHARGED,  # of the key of accounts
    "after flows.ledger.database.make_private": UNCHARGED,
    f"before {COMMIT}#1": UNCHARGED,
    f"after {COMMIT}#1": UNCHARGED,
    f"after {COMMIT}#4": RESERVED,
    "after flows.ledger.account.complete": RESERVED,
    "before os.link#3": COMPLETE,
    "after os.link#3": LINKED,
    "before flows.ledger.shelves.shelf.point_latest": PUBLIC,
}
PLACES = [
    *((place, True, death) for place, death in A_LATER_RELEASE.items()),
    *((place, False, death) for place, death in THE_FIRST_RELEASE.items()),
]
A_FEW = 5  # random moments


class Killed(NamedTuple):
    """A run of period b that was killed, and whether period a had been released before it."""

    place: str
    built: Experiment
    account: Account
    later: bool


Kill = Callable[[Iterable[tuple[str, bool]]], list[Killed]]


@pytest.fixture(scope="module")
def kill(tmp_path_factory: pytest.TempPathFactory) -> Kill:
    """Gives a function that kills a run at each of some places, all in one process."""
    log = rows(*a_log(60).rows(), ("x", "fax", "east", 1.0))
    folder = tmp_path_factory.mktemp("templates")
    enough = {"epsilon": EPSILON, "budget_epsilon": 2 * EPSILON}
    first, later = (build_experiment(folder / name, log, privacy=enough) for name in "fl")
    later.run("a")
    config = later.load()

    def kill_at(places: Iterable[tuple[str, bool]]) -> list[Killed]:
        given = list(places)
        copies = tmp_path_factory.mktemp("copies")
        for number, (_, is_later) in enumerate(given):
            copy_of((later if is_later else first).folder, copies / str(number))
        copy_of(later.folder, copies / "usual")
        ends = ends_of(RUNS, copies, *[place for place, _ in given])
        missed = [place for (place, _), end in zip(given, ends, strict=True) if end == 0]
        assert [place for place in missed if not place.startswith("at ")] == []
        found = []
        for number, (place, is_later) in enumerate(given):
            built = Experiment(copies / str(number) / "trial.toml")
            account = Account.of(config.model_copy(update={"directory": built.folder}))
            found.append(Killed(place, built, account, is_later))
        return found

    return kill_at


@pytest.fixture(scope="module")
def killed(kill: Kill) -> dict[tuple[str, bool], Killed]:
    """One run killed at each place, and a few at random moments (``at 0``, ``at 1``, …)."""
    places = [(place, later) for place, later, _ in PLACES]
    moments = random_moments(A_FEW)
    found = kill([*places, *moments])
    names = [*places, *((f"at {i}", later) for i, (_, later) in enumerate(moments))]
    return dict(zip(names, found, strict=True))


def random_moments(count: int) -> list[tuple[str, bool]]:
    """Places anywhere in the usual time of a run; says which."""
    seed = random.SystemRandom().getrandbits(32)
    generator = random.Random(seed)  # noqa: S311 - moments of death are no secret
    moments = [(f"at {generator.uniform(0, 1.1):.4f}", True) for _ in range(count)]
    print(f"random kills, seed {seed}: {moments}")  # noqa: T201 - for whoever sees one fail
    return moments


@pytest.mark.parametrize(("place", "later", "death"), PLACES)
def test_a_run_that_is_killed_leaves_nothing_half_and_the_next_finishes_the_job(
    killed: dict[tuple[str, bool], Killed], place: str, death: Death, *, later: bool
) -> None:
    one = killed[place, later]
    public = (one.built.releases / "trial.b.r1.duckdb").exists()
    assert Death(state_of_b(one.account), public) == death
    assert_the_next_run_finishes_the_job(one)


@pytest.mark.parametrize("moment", range(A_FEW))
def test_a_run_that_is_killed_at_any_moment_is_finished_too(
    killed: dict[tuple[str, bool], Killed], moment: int
) -> None:
    one = killed[f"at {moment}", True]
    print(f"killed {one.place} of its time, as {state_of_b(one.account)}")  # noqa: T201 - caught
    assert_the_next_run_finishes_the_job(one)


@pytest.mark.soak
def test_a_hundred_runs_that_are_killed_at_random_are_finished_too(kill: Kill) -> None:
    deaths: dict[str | None, int] = {}
    for one in kill(random_moments(100)):
        state = state_of_b(one.account)
        deaths[state] = deaths.get(state, 0) + 1
        assert_the_next_run_finishes_the_job(one)
    print(deaths)  # noqa: T201 - how they were spread
    assert {None, "reserved"} <= set(deaths)


def assert_the_next_run_finishes_the_job(one: Killed) -> None:
    built, releases = one.built, one.built.releases
    assert_sound(one)
    state = state_of_b(one.account)
    drafts = [digest(path) for path in releases.glob(".draft-*/release.duckdb")]

    result = built.run("b")
    assert result.release_id == "trial.b.r1"
    assert result.status == ("unchanged" if state in ("publishing", "published") else "published")
    if state == "publishing":
        assert [digest(result.path)] == drafts  # the very bytes that may have been seen
    periods = ["a", "b"] if one.later else ["b"]
    entries = [name for name in built.entries if not name.startswith("ledger.sqlite.accounts/")]
    assert entries == [
        "account.key",
        "ledger.sqlite",
        "log.parquet",
        "quarantine/",
        "quarantine/digest.key",
        "quarantine/trial/",
        *[f"quarantine/trial/trial.{period}.r1.parquet" for period in periods],
        "releases/",
        "releases/trial/",
        "releases/trial/SHA256SUMS",
        f"releases/trial/{LATEST}",
        f"releases/trial/{SERIES}",
        *[f"releases/trial/trial.{period}.r1.duckdb" for period in periods],
        "trial.toml",
    ]
    assert (releases / LATEST).samefile(result.path)
    assert_each_charge_has_its_units(one)
    assert result.statement.spent.epsilon == EPSILON * len(periods)
    assert_sound(one)


def assert_each_charge_has_its_units(one: Killed) -> None:
    """Every charge that counts, and no other, has a list of all who are in it."""
    statement = one.account.statement(exact=True)
    assert statement.tally is not None
    assert (statement.tally.n_units, statement.tally.lost) == (60, frozenset())
    folder = one.built.folder / "ledger.sqlite.accounts"
    found = {path.name for path in folder.iterdir() if path.suffix != ".lock"}
    lists = {entry.roster for entry in statement.entries if entry.counts}
    sums = {name for name in found if name.count("-") == 2}
    assert found - sums == lists


def assert_sound(killed: Killed) -> None:
    """Whatever has a public name is whole and charged for, whether or not anybody cleaned up."""
    built = killed.built
    series = built.releases / SERIES
    public = [path for path in built.releases.glob("*.duckdb") if path.name not in (LATEST, SERIES)]
    if series.exists():
        assert series.stat().st_mode & 0o777 == 0o444
        told = released(series, "SELECT DISTINCT release_id FROM cumulative")["release_id"]
        assert {f"{one}.duckdb" for one in told} <= {path.name for path in public}
    found = {path.stem: sound_manifest(path.read_bytes()) for path in public}
    assert {path.stat().st_mode & 0o777 for path in public} <= {0o444}
    if (built.releases / LATEST).exists():
        assert any((built.releases / LATEST).samefile(path) for path in public)
    for path in built.quarantine.glob("[!.]*"):
        assert pl.read_parquet(path).height == 1
    key = built.quarantine.parent / "digest.key"
    assert not key.exists() or len(key.read_bytes()) == 32

    statement = killed.account.statement()
    charged = {entry.name.release_id: entry.cost for entry in statement.entries if entry.counts}
    assert set(found) <= set(charged)
    assert all(charged[name].epsilon == found[name].epsilon == EPSILON for name in found)
    assert statement.spent.epsilon >= EPSILON * len(found)


@cache
def sound_manifest(content: bytes) -> Manifest:
    """What a public file of these bytes states; read once, as the same bytes say the same."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.duckdb"
        copy.write_bytes(content)
        one = read_release(copy)
    assert one.row_counts["units"] == one.manifest.n_units == 60
    assert one.row_counts["estimates"] >= 1  # put in by one statement
    return one.manifest


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_run_that_is_interrupted_cleans_up_at_once(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    built = experiment()
    monkeypatch.setattr("flows.released.publish._insert", interrupt)
    with pytest.raises(KeyboardInterrupt):
        built.run("b")
    assert not built.releases.exists()
    config = built.load()
    assert state_of_b(Account.of(config)) == "void"


# one call after another

DIGESTS = Fingerprint("k:r", "k:u", "k:s")
STATES_AT_DEATH = {
    "the first release": {None, "reserved", "publishing", "published"},
    "a dead run to finish": {"publishing", "published"},
    "a dead run to void": {"reserved", "void", "publishing", "published"},
}


def a_scene(folder: Path, name: str) -> Config:
    """An experiment whose releases are one line each, before the run of period b."""
    privacy = {"epsilon": EPSILON, "budget_epsilon": 2 * EPSILON, "account": "population"}
    built = build_experiment(folder, privacy=privacy)
    config = built.load()
    account = Account.of(config)
    if name != "the first release":
        assert publish_line(account, built.releases, "a", "earlier") == "published"
    if "dead" in name:
        dead = built.releases / ".draft-dead"
        dead.mkdir()
        charge = account.reserve("b", DIGESTS, dead, revise=False)
        charge.draft.write_text("of the dead")
        if "finish" in name:
            complete(charge.draft)
            ledger = Ledger(ledger_url(config.ledger.url, config.directory))
            assert charge.receipt.charge is not None
            ledger.begin_publishing(charge.receipt.charge, digest(charge.draft))
    return config


def publish_line(account: Account, releases: Path, period: str, line: str) -> str:
    """What a run does about its charge and its file; says what became of it."""
    with workplace(releases) as folder:
        charge = account.reserve(period, DIGESTS, folder, revise=False)
        assert charge.name.release_id == f"trial.{period}.r1"
        if not charge.is_new:
            return "unchanged"
        with account.publishing(charge):
            charge.draft.write_text(line)
        return "published"


def calls_of(act: str, template: Path, folder: Path) -> list[Path]:
    """Kill an act before each call that it makes; its folders, the last where it came through."""
    ends = ends_of(CALLS, folder, act, template)
    assert ends == [signal.SIGKILL] * (len(ends) - 1) + [0]
    return [folder / str(number) for number in range(len(ends))]


@pytest.mark.parametrize("scene", STATES_AT_DEATH)
def test_publishing_that_is_killed_before_any_call_is_finished_by_the_next_run(
    tmp_path: Path, scene: str
) -> None:
    config = a_scene(tmp_path / "template", scene)
    (tmp_path / "runs").mkdir()
    folders = calls_of("publish", tmp_path / "template", tmp_path / "runs")
    assert len(folders) > 50  # 54 of the scene that has least to do
    earlier = {} if scene == "the first release" else {"trial.a.r1.duckdb": "earlier"}
    seen = set()
    for folder in folders:
        account = Account.of(config.model_copy(update={"directory": folder}))
        seen.add(state_of_b(account))
        assert_publishing_can_be_finished(account, folder / "releases" / "trial", earlier)
    assert seen == STATES_AT_DEATH[scene]


def assert_publishing_can_be_finished(
    account: Account, releases: Path, earlier: dict[str, str]
) -> None:
    state, before = state_of_b(account), contents(releases)
    latest = before.pop(LATEST, None)
    line = before.get("trial.b.r1.duckdb")
    assert before == earlier | ({} if line is None else {"trial.b.r1.duckdb": line})
    assert line in ("whole", "of the dead", None)
    assert latest in (before.values() if earlier else {*before.values(), None})
    if line is not None:
        assert state in ("publishing", "published")
    if state == "published":
        assert line is not None
    drafts = {path.read_text() for path in releases.glob(".draft-*/release.duckdb")}

    finished = state in ("publishing", "published")
    told = publish_line(account, releases, "b", "anew")
    assert told == ("unchanged" if finished else "published")
    after = contents(releases)
    assert after.pop(LATEST) == after["trial.b.r1.duckdb"]
    if not finished:
        assert after == earlier | {"trial.b.r1.duckdb": "anew"}
    else:
        assert after["trial.b.r1.duckdb"] in ({line} if line is not None else drafts)
    assert (
        len(list(releases.iterdir())) == len(after) + 2
    )  # latest and the sums: nothing lies about
    assert set(read_sums(releases) or {}) == set(after)
    assert account.statement().spent.epsilon == EPSILON * len(after)
    assert state_of_b(account) == "published"


def contents(releases: Path) -> dict[str, str]:
    """What stands under a public name."""
    return {path.name: path.read_text() for path in releases.glob("*.duckdb")}


def test_replacing_a_file_that_is_killed_before_any_call_leaves_the_old_or_the_new(
    tmp_path: Path,
) -> None:
    for name in ("template", "runs"):
        (tmp_path / name).mkdir()
    (tmp_path / "template" / "file").write_text("old")
    folders = calls_of("replace", tmp_path / "template", tmp_path / "runs")
    assert len(folders) > 5
    left = [(folder / "file").read_text() for folder in folders]
    assert left[0] == "old"
    assert set(left) == {"old", "new"}
    assert left == sorted(left, reverse=True)  # once it is new it stays so
    for folder in folders:
        with replace_file(folder / "file", mode=0o600) as file:
            file.write(b"newer")
        assert [path.name for path in folder.iterdir()] == ["file"]
        assert (folder / "file").read_text() == "newer"


@pytest.mark.parametrize("name", OLDER)
def test_a_migration_that_is_killed_before_any_call_leaves_the_old_or_the_new(
    tmp_path: Path, name: str
) -> None:
    for folder in ("template", "runs"):
        (tmp_path / folder).mkdir()
    before = written(name, ledger_url("sqlite:///ledger.sqlite", tmp_path / "template"))
    version, kept = version_of(before), attempts(before)
    known = [entry.name for entry in entries(before)]
    folders = calls_of("migrate", tmp_path / "template", tmp_path / "runs")
    assert len(folders) > 5
    seen = []
    for place in folders:
        ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", place))
        seen.append((version_of(ledger), entries(ledger)[0].state))
        assert [entry.name for entry in entries(ledger)] == known
        assert attempts(ledger) == kept
        ledger.give_back(1)
        assert (version_of(ledger), entries(ledger)[0].state) == (VERSION, "void")
    assert set(seen) == {(version, "reserved"), (VERSION, "void")}
    assert seen == sorted(seen)  # once it is new it stays so
