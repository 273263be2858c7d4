"""Killed at random under load: several commands at once on one ledger, again and again.

Two experiments share people, ledger and budget; of each night's sixty people fifty come back the
next. Releases, revisions, backups (and whatever else is in :func:`commands`) run three at a time,
and all three are killed at once, anywhere in their time. After each round nothing may be half or
understated; at the end the next runs finish the job, nothing lies about, and every backup that was
completed can be put back, which is killed, too.
"""

import json
import random
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import app
from flows.ledger.account import Account
from flows.ledger.rules import OPEN
from flows.ledger.statement import Statement
from flows.operate.copies.folder import open_backup
from flows.operate.restore import restore
from flows.released.file.draft import LATEST
from privatizers.accounting.budget import Budget, total
from privatizers.accounting.histories import cost_of
from schemas.series import SERIES
from tests.conftest import PATIENCE, Experiment, a_log, build_experiment, released, toml
from tests.faults.test_kill import EPSILON, HEAD, sound_manifest

NIGHTS = ("a", "b", "c", "d")
EXPERIMENTS = ("autumn", "winter")
AT_ONCE = 3

KILLER = """
import gc, random
import _strptime, encodings.utf_8_sig
import numpy.testing, pandera.backends.polars.container, pyarrow.compute, pyarrow.pandas_compat
import schemas.raw_frame, scipy.special, scipy.stats, sqlalchemy.dialects.sqlite.pysqlite
import flows.release, flows.operate.backup, flows.operate.restore, flows.cli.night.release
from flows.cli.main import run, _program

_program()
gc.freeze()


def act(command):
    for stream in (1, 2):
        os.dup2(os.open(FOLDER / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
    os._exit(run(command))


def left():
    mine = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if parent == str(os.getpid()):
                mine.append(int(entry))
    return mine


for line in sys.stdin:
    asked = json.loads(line)
    begin = time.perf_counter()
    children = [begun(act, command) for command in asked["commands"]]
    if asked["after"] is not None:
        time.sleep(asked["after"])
        for child in children:
            os.kill(child, signal.SIGKILL)
    ends = [end_of(child) for child in children]
    seconds = time.perf_counter() - begin
    print(json.dumps({"ends": ends, "seconds": seconds, "left": left()}), flush=True)
"""


def commands() -> set[str]:
    """All commands that there are."""
    return {command.name or "" for command in app.registered_commands}


@dataclass
class Killer:
    """A process that forks a child for each command, and kills all of them at a moment."""

    process: "subprocess.Popen[str]"

    def run(self, *given: list[str], after: float | None = None) -> dict[str, Any]:
        """Run commands at once, to their end or for so many seconds; how each ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"commands": given, "after": after}), file=self.process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert found["left"] == []  # no process outlives its command
        return found


@contextmanager
def killing(folder: Path) -> Iterator[Killer]:
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + KILLER, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Killer(process)
    finally:
        process.communicate(timeout=PATIENCE)


@dataclass
class World:
    """Two experiments that share a ledger, and what has happened to them."""

    folder: Path
    draw: random.Random
    killer: Killer
    built: dict[str, Experiment] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    usual: float = 1.0
    number: int = 0

    def build(self) -> None:
        people = a_log(60 + 10 * len(NIGHTS))
        logs = {f"{night}.parquet": people[10 * i : 10 * i + 60] for i, night in enumerate(NIGHTS)}
        for name in EXPERIMENTS:
            built = build_experiment(
                self.folder / name,
                logs,
                source={"path": "{period}.parquet"},
                privacy={"epsilon": EPSILON, "population": "people"},
                ledger={"url": "sqlite:///../kept/ledger.sqlite"},
                retention={"quarantine": "1d"},
            )
            text = built.config.read_text(encoding="utf-8")
            built.config.write_text(text.replace('"trial"', f'"{name}"', 1), encoding="utf-8")
            self.built[name] = built
        (self.folder / "backups").mkdir(mode=0o700)
        found = self.killer.run(*[self.release(name, "a") for name in EXPERIMENTS])
        assert found["ends"] == [0, 0]
        self.usual = self.killer.run(*[self.release(name, "b") for name in EXPERIMENTS])["seconds"]

    def release(self, name: str, night: str, *more: str) -> list[str]:
        return ["release", str(self.built[name].config), "--period", night, *more]

    @property
    def configs(self) -> list[Path]:
        return [one.config for one in self.built.values()]

    def a_command(self, kind: str = "") -> list[str]:
        """Any of what may be going on at night, or of a kind."""
        kinds = ["release"] * 2 + ["revise"] * 3 + ["backup"] + ["prune"] * ("prune" in commands())
        kind = kind or self.draw.choice(kinds)
        name, night = self.draw.choice(EXPERIMENTS), self.draw.choice(NIGHTS)
        if kind == "release":
            return self.release(name, night)
        if kind == "revise":
            return self.release(name, night, "--revise")
        if kind == "backup":
            self.number += 1
            output = self.folder / "backups" / str(self.number)
            return ["backup", *map(str, self.configs), "-o", str(output)]
        return [kind, str(self.built[name].config)]

    def a_round(self, given: list[list[str]]) -> None:
        """Kill some commands anywhere in their time; backups take a fraction of a release's."""
        is_quick = {command[0] for command in given} == {"backup"}
        after = self.draw.uniform(0.0, (0.3 if is_quick else 1.3) * self.usual)
        for command, end in zip(given, self.killer.run(*given, after=after)["ends"], strict=True):
            assert end in (9, 0, -4), (command, (self.folder / "told").read_text()[-2000:])
            kind = f"{command[0]}{' --revise' if '--revise' in command else ''}"
            (self.kills if end == 9 else self.ended)[kind] += 1

    def account(self, name: str) -> Account:
        return Account.of(self.built[name].load())

    def files(self) -> list[Path]:
        """Everything under a public name."""
        found = [
            path for one in self.built.values() for path in (releases_of(one)).glob("*.duckdb")
        ]
        return [path for path in found if path.name not in (LATEST, SERIES)]

    def stated(self) -> dict[str, Budget]:
        """What everybody has paid, by what files say of who is in them."""
        paid: dict[str, list[Budget]] = {}
        for path in self.files():
            manifest = sound_manifest(path.read_bytes())
            assert manifest.release_id == path.stem
            for unit in units_in(path):
                paid.setdefault(unit, []).append(Budget(manifest.epsilon))
        return {unit: total(costs) for unit, costs in paid.items()}

    def check(self) -> None:
        """Nothing is half, and nothing understated."""
        statement = assert_covers(self.account("autumn"), self.stated())
        charged = {entry.name.release_id for entry in statement.entries if entry.counts}
        assert {path.stem for path in self.files()} <= charged
        for folder in (self.folder / "backups").glob("[!.]*"):
            open_backup(folder)  # whole, since it has its name


def releases_of(built: Experiment) -> Path:
    return built.folder / "releases" / built.folder.name


_units: dict[Path, list[str]] = {}


def units_in(path: Path) -> list[str]:
    """Who is in a release; read once, as it never changes."""
    if path not in _units:
        _units[path] = released(path, "units")["unit_id"].to_list()
    return _units[path]


def assert_covers(account: Account, stated: dict[str, Budget]) -> Statement:
    """As many people as ever have paid at least as much as files say, and none has less."""
    statement = account.statement(exact=True)
    everybody = total(each.cost for each in statement.entries if each.counts and not each.roster)
    assert statement.tally is not None
    assert statement.tally.lost == frozenset()
    paid = [
        (everybody + cost_of(history)).epsilon
        for history, n in statement.tally.histories.items()
        for _ in range(n)
    ]
    owed = [each.epsilon for each in stated.values()]
    ranked = zip_longest(sorted(paid)[::-1], sorted(owed)[::-1], fillvalue=everybody.epsilon)
    assert all(have >= need for have, need in ranked)
    assert statement.spent.epsilon >= max(owed)
    return statement


@pytest.mark.parametrize("n_kills", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_commands_that_are_killed_under_load_lose_nothing(tmp_path: Path, n_kills: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"random kills under load, seed {seed}")  # noqa: T201 - for whoever sees one fail
    draw = random.Random(seed)  # noqa: S311 - moments of death are no secret
    with killing(tmp_path) as killer:
        world = World(tmp_path, draw, killer)
        world.build()
        states: Counter[str] = Counter()
        while world.kills.total() < 0.8 * n_kills:
            backups = draw.random() < 0.2
            world.a_round([world.a_command("backup" * backups) for _ in range(AT_ONCE)])
            world.check()
            found = world.account("autumn").statement().entries
            states.update(str(entry.state) for entry in found if entry.state in OPEN)
        finish(world)
        restore_all(world, n_kills)
    print(dict(world.kills), dict(world.ended), dict(states))  # noqa: T201 - how they were spread


def finish(world: World) -> None:
    """The next runs finish the job, and nothing lies about."""
    for night in NIGHTS:
        both = world.killer.run(*[world.release(name, night) for name in EXPERIMENTS])
        assert both["ends"] == [0, 0], told_in(world)
    last = ["backup", *map(str, world.configs), "-o", str(world.folder / "backups" / "last")]
    assert world.killer.run(last)["ends"] == [0], told_in(world)
    world.check()
    entries = world.account("autumn").statement().entries
    assert {str(entry.state) for entry in entries} <= {"published", "void"}
    assert {entry.name.release_id for entry in entries if entry.counts} == {
        path.stem for path in world.files()
    }
    for name, built in world.built.items():
        releases = releases_of(built)
        nights = {f"{name}.{night}.r1.duckdb" for night in NIGHTS}
        names = {path.name for path in releases.iterdir()}
        assert nights | {"SHA256SUMS", LATEST, SERIES} <= names
        assert [one for one in names if one.startswith(".")] == []
        assert hidden(built.folder) == []
    assert hidden(world.folder / "backups") == []
    registers = world.folder / "kept" / "ledger.sqlite.accounts"
    rosters = {entry.roster for entry in entries if entry.counts}
    own = {path.name for path in registers.glob("*-*") if path.name.count("-") == 1}
    assert own == rosters


def told_in(world: World) -> str:
    return (world.folder / "told").read_text()[-2000:]


def hidden(folder: Path) -> list[Path]:
    return list(folder.rglob(".*"))


def restore_all(world: World, n_kills: int) -> None:
    """Put every backup back, killed as it goes, then to the end."""
    stated = world.stated()
    backups = sorted((world.folder / "backups").iterdir())
    while world.kills.total() < n_kills or backups:
        if not backups:
            backups = [world.folder / "backups" / "last"]
        backup = backups.pop()
        world.number += 1
        configs = [a_copy(built, f"{backup.name}-{world.number}") for built in world.built.values()]
        command = ["restore", str(backup), *map(str, configs), "--complete"]
        for _ in range(2):
            world.usual = min(world.usual, 1.0)
            world.a_round([command, command])
            account = Account.of(Experiment(configs[0]).load())
            if account.statement().entries:
                assert_covers(account, stated)
        restore(backup, configs, complete=True)
        assert_covers(Account.of(Experiment(configs[0]).load()), stated)


def a_copy(built: Experiment, name: str) -> Path:
    """The same experiment with a ledger and keys elsewhere, and the releases that there are."""
    sections = tomllib.loads(built.config.read_text(encoding="utf-8"))
    sections["ledger"] = {"url": f"sqlite:///../restored/{name}.sqlite", "key_file": f"{name}.key"}
    sections["quarantine"] = {"directory": f"../restored/{name}-{built.folder.name}"}
    path = built.folder / f"{name}.toml"
    path.write_text(toml(sections, sections.pop("experiment")), encoding="utf-8")
    return path
