"""The experiments of a life, the logs that come for them, and what their operator does by day."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from tests.conftest import toml

FIRST = date(2026, 10, 23)
"""The first period; clocks of Zurich go back two days later."""
LATENESS, MISSING = timedelta(hours=2), timedelta(days=2)
EPSILON = 2.0
PERSON, OUTCOME = "person-", 987654.5
"""What nothing that is said may show: how ids begin, and an outcome."""
REASON = "wrong prices"
EVENTS = ("failed", "refused", "late", "lost")
"""What people want to be told; of so few people ``one_value`` hangs on noise."""
LEDGER = "ledger.sqlite"


def day_of(number: int) -> str:
    """A period, from 0; its night is that of the next day."""
    return (FIRST + timedelta(number)).isoformat()


_DIGESTS: dict[tuple[object, ...], str] = {}


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, read again wherever anything was done to it since."""
    found = path.stat()
    seen = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    if seen not in _DIGESTS:
        _DIGESTS[seen] = sha256(path.read_bytes()).hexdigest()
    return _DIGESTS[seen]


@dataclass(frozen=True)
class Place:
    """A configuration: an experiment, and the folder that it releases into."""

    config: Path
    experiment: str
    directory: str = "releases"

    @property
    def releases(self) -> Path:
        """The folder of its releases."""
        return self.config.parent / self.directory / self.experiment

    @property
    def files(self) -> dict[str, str]:
        """The digests of the files that are there, by release id."""
        found = self.releases.glob(f"{self.experiment}.*.duckdb")
        return {path.stem: digest_of(path) for path in found}


@dataclass(frozen=True)
class Row:
    """A charge, as it stands in the ledger's table."""

    experiment: str
    period: str
    revision: int
    release_id: str | None
    epsilon: float
    state: str
    sha256: str | None
    withdrawn: str | None
    is_pruned: bool


@dataclass
class World:
    """A folder with experiments on one ledger, and what is true of them."""

    folder: Path
    random: Random
    n_days: int
    places: list[Place] = field(default_factory=list)
    content: dict[tuple[str, str], int | None] = field(default_factory=dict)
    """Of each log that is there: its number of people; None where it is broken."""
    damaged: dict[Path, bytes] = field(default_factory=dict)
    """Files that the operator has removed or overwritten, as they were."""
    coming: list[tuple[int, str, str, int | None]] = field(default_factory=list)
    """What comes when: night, experiment, period, content."""
    budget: float = 1000.0
    account: str = "unit"
    zone: str = "UTC"
    is_shared: bool = True
    is_stored: bool = False
    backup: Path | None = None

    @classmethod
    def drawn(cls, folder: Path, random: Random) -> "World":
        """One of many worlds."""
        world = cls(folder, random, random.randint(3, 5))
        world.account = random.choice(("unit", "population"))
        world.zone = random.choice(("UTC", "Europe/Zurich"))
        world.is_shared, world.is_stored = random.random() < 0.5, random.random() < 0.4
        shape = random.choice(("one", "one", "two experiments", "two folders"))
        autumn = Place(folder / "autumn.toml", "autumn")
        others = {
            "two experiments": [Place(folder / "spring.toml", "spring")],
            "two folders": [Place(folder / "theirs.toml", "autumn", "theirs")],
        }
        world.places = [autumn, *others.get(shape, [])]
        if random.random() < 0.3:
            world.budget = EPSILON * random.randint(1, world.n_days)
        (folder / "hook").write_text("https://hook.invalid/very-secret")
        (folder / "hook").chmod(0o600)
        for experiment in world.experiments:
            world._log(experiment, "kept").parent.mkdir(parents=True)
            world._log(experiment, "kept").write_text("")
            world.coming += world._drawn_logs(experiment)
        world.write_configs()
        return world

    @property
    def experiments(self) -> list[str]:
        """Their names."""
        return sorted({one.experiment for one in self.places})

    @property
    def until(self) -> str:
        """The last period."""
        return day_of(self.n_days - 1)

    def due_at(self, period: str) -> datetime:
        """When a period is due; a zone's days begin an hour or two before those of UTC."""
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - a line

        midnight = datetime.combine(date.fromisoformat(period) + timedelta(1), datetime.min.time())
        return midnight.replace(tzinfo=ZoneInfo(self.zone)).astimezone(UTC) + LATENESS

    def of(self, experiment: str) -> list[Place]:
        """The places of an experiment."""
        return [one for one in self.places if one.experiment == experiment]

    def population(self, experiment: str) -> list[str]:
        """The experiments that the same people pay for."""
        return self.experiments if self.is_shared else [experiment]

    def write_configs(self) -> None:
        """Write what the configurations say by now."""
        for place in self.places:
            kept = "s3://bucket" if self.is_stored else "logs"
            population = "people" if self.is_shared else place.experiment
            sections: dict[str, Any] = {
                "source": {"path": f"{kept}/{place.experiment}/{{period}}.csv"},
                "columns": {"unit": "id", "arm": "arm", "outcome": "visits"},
                "arms": {"control": "none", "treatments": ["mail"]},
                "outcome": {"values": [0, 1]},
                "privacy": {
                    "mechanism": "uniform-prior-dp", "strata_statistic": "none",
                    "epsilon": EPSILON, "budget_epsilon": self.budget, "account": self.account,
                    "population": population,
                },
                "schedule": {
                    "since": day_of(0), "until": self.until, "timezone": self.zone,
                    "lateness": "2h", "missing_after": "2d",
                },
                "publish": {"directory": place.directory},
                "notify": {"webhook_file": "hook", "on": list(EVENTS)},
                "retention": {"releases": "2d"},
            }  # fmt: skip
            place.config.write_text(toml(sections, place.experiment))

    def arrive(self, night: int) -> None:
        """Let come what comes before a night."""
        for at, experiment, period, content in self.coming:
            if at == night:
                self.bring(experiment, period, content)
        self.coming = [one for one in self.coming if one[0] > night]

    def bring(self, experiment: str, period: str, content: int | None) -> None:
        """Let a log be there, of so many people, or a broken one."""
        lines = ["id,arm,visits"]
        for number in range(content or 0):
            visits = OUTCOME if number % 5 == 0 else number % 2
            lines.append(f"{PERSON}{number:04},{('none', 'mail')[number % 2]},{visits}")
        text = "nothing,of\nthe,kind" if content is None else "\n".join(lines)
        self._log(experiment, period).write_text(f"{text}\n")
        self.content[experiment, period] = content

    def mend(self) -> None:
        """Let everything come that is still missing or broken, whatever the night."""
        self.arrive(10_000)
        for experiment in self.experiments:
            for number in range(self.n_days):
                if self.content.get((experiment, day_of(number))) is None:
                    self.bring(experiment, day_of(number), self.size(number))

    @staticmethod
    def size(number: int) -> int:
        """How many people a day has: few sizes, so that few plates are made."""
        return 10 + 4 * (number % 3)

    def rows(self) -> list[Row]:
        """The charges that stand in the ledger."""
        if not (self.folder / LEDGER).exists():
            return []
        query = (
            "SELECT experiment, period, revision, slot, CAST(epsilon AS REAL), state, file_sha256, "
            "withdrawn, pruned_at IS NOT NULL FROM clusterdp_charges"
        )
        with closing(sqlite3.connect(self.folder / LEDGER)) as ledger:
            try:
                return [Row(*row) for row in ledger.execute(query)]
            except sqlite3.OperationalError:  # no table yet
                return []

    def _log(self, experiment: str, period: str) -> Path:
        folder = "store/bucket" if self.is_stored else "logs"
        return self.folder / folder / experiment / f"{period}.csv"

    def _drawn_logs(self, experiment: str) -> Iterator[tuple[int, str, str, int | None]]:
        """When logs come: on time, late, broken first, or never; and again with late rows."""
        for number in range(self.n_days + 1):  # one more, should the end be put off
            period, size, draw = day_of(number), self.size(number), self.random.random()
            if draw < 0.70:
                yield number, experiment, period, size
            elif draw < 0.82:
                yield number + self.random.randint(1, 4), experiment, period, size
            elif draw < 0.94:
                yield number, experiment, period, None
                yield number + self.random.randint(1, 3), experiment, period, size
            if draw < 0.1:
                yield number + 2, experiment, period, size + 4


# what the operator does by day

Command = Callable[..., int]
"""Runs a command of the program; gives its exit code."""


def act(world: World, command: Command) -> str | None:
    """Do one thing; says what, None where there was nothing to do it with."""
    return world.random.choice(_ACTS)(world, command)


def _some_release(world: World, *, withdrawn: bool = False) -> tuple[Place, Row] | None:
    found = [
        (place, row)
        for row in world.rows()
        if row.state == "published" and (row.withdrawn is not None) == withdrawn
        for place in world.of(row.experiment)
        if (place.releases / f"{row.release_id}.duckdb").exists()
    ]
    return world.random.choice(found) if found else None


def _withdraw(world: World, command: Command) -> str | None:
    if (found := _some_release(world)) is None:
        return None
    place, row = found
    code = command("withdraw", place.config, row.release_id, "--reason", REASON)
    return f"withdraws {row.release_id}: {code}"


def _undo(world: World, command: Command) -> str | None:
    if (found := _some_release(world, withdrawn=True)) is None:
        return None
    place, row = found
    code = command("withdraw", place.config, row.release_id, "--undo")
    return f"uses {row.release_id} again: {code}"


def _revise(world: World, command: Command) -> str | None:
    if (found := _some_release(world, withdrawn=world.random.random() < 0.5)) is None:
        return None
    place, row = found
    code = command("release", place.config, "--period", row.period, "--revise", "--json")
    return f"revises {row.release_id} in {place.directory}: {code}"


def _again(world: World, command: Command) -> str | None:
    """Release a period by hand that is public; where its rows have changed that is a conflict."""
    if (found := _some_release(world)) is None:
        return None
    place, row = found
    code = command("release", place.config, "--period", row.period, "--json")
    return f"releases {row.release_id} again: {code}"


def _prune(world: World, command: Command) -> str:
    place = world.random.choice(world.places)
    return f"prunes {place.directory}: {command('prune', place.config)}"


def _damage(world: World, _: Command) -> str | None:
    if (found := _some_release(world)) is None:
        return None
    path = found[0].releases / f"{found[1].release_id}.duckdb"
    world.damaged.setdefault(path, path.read_bytes())  # what it was before any damage
    path.unlink()
    if world.random.random() < 0.4:
        path.write_bytes(b"another")
    return f"damages {path.name}"


def _put_back(world: World, _: Command) -> str | None:
    if not world.damaged:
        return None
    for path, content in world.damaged.items():
        path.unlink(missing_ok=True)
        path.write_bytes(content)
    world.damaged.clear()
    return "puts files back"


def _pay_more(world: World, _: Command) -> str:
    world.budget += 2 * EPSILON
    world.write_configs()
    return f"lets people pay {world.budget}"


def _go_on(world: World, _: Command) -> str:
    world.n_days += 1
    world.write_configs()
    return f"puts the end off to {world.until}"


def _back_up(world: World, command: Command) -> str | None:
    if not (world.folder / LEDGER).exists():
        return None
    folder = world.folder / f"backup-{world.random.randrange(10**6)}"
    code = command("backup", *_configs(world), "-o", folder)
    world.backup = folder if code == 0 else world.backup
    return f"backs up: {code}"


def _restore(world: World, command: Command) -> str | None:
    """Lose the ledger, and put it back as it was at the last backup."""
    if world.backup is None or world.damaged:
        return None
    charged = {row.release_id for row in world.rows() if row.state in ("published", "lost")}
    there = {name for place in world.places for name in place.files}
    lost = [word for one in sorted(charged - there, key=str) for word in ("--lost", one)]
    (world.folder / LEDGER).unlink()
    shutil.rmtree(world.folder / f"{LEDGER}.accounts", ignore_errors=True)
    words = ["restore", world.backup, *_configs(world), "--complete", *lost]
    code = command(*words) and command(*words, is_calm=True)
    return f"loses the ledger and restores it: {code}"


def _configs(world: World) -> Sequence[Path]:
    return [one.config for one in world.places]


_ACTS: Sequence[Callable[[World, Command], str | None]] = (
    _withdraw, _undo, _revise, _again, _prune, _damage, _put_back, _put_back, _pay_more, _go_on,
    _back_up, _back_up, _restore,
)  # fmt: skip
