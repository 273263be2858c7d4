"""A life: nights of a world from its first period to after its last, all drawn from one number.

By night one command releases what is due, at times into a full disk, over a line that is cut, from
a store that does not answer, telling a webhook that is slow, or killed. By day the operator does
something. After each of both :mod:`tests.nights.truth` holds what there is against what is said.
"""

import contextlib
import gc
import io
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import duckdb

from flows.cli import main as cli
from flows.ledger.account import Account
from flows.released.file import opening
from flows.released.file.units import OUTPUTS
from tests.nights.plates import Plates, Sheet, new_sheet
from tests.nights.surroundings import Clock, Hook, Store, around
from tests.nights.wire import Fault, Killed, Wire
from tests.nights.world import FIRST, World, act

IS_WHOLE = 16
"""Of so many lives one has no file from a plate, and renews its series each night."""
_CALM = 0.4
KILLED = -9


@dataclass
class Weather:
    """What goes wrong in a night."""

    fault: Fault | None = None
    store: str = "well"
    hook: str = "well"

    @property
    def is_fine(self) -> bool:
        """Whether nothing does."""
        return self == Weather()

    @classmethod
    def drawn(cls, random: Random, *, is_stored: bool) -> "Weather":
        """The weather of a night, or of something that the operator does."""
        if random.random() < _CALM:
            return cls()
        kinds = ["kill", "kill", "disk", "disk", "line", "line", "hook", "hook"]
        what = random.choice([*kinds, *(["store"] * 4 if is_stored else [])])
        if what == "hook":
            return cls(hook=random.choice(Hook.MODES))
        if what == "store":
            return cls(store=random.choice(Store.MODES))
        return cls(Fault.drawn(what, random), hook=random.choice(("well", "well", *Hook.MODES)))


@dataclass
class Ran:
    """A command that was run: how it ended, and all its words."""

    code: int
    out: str
    words: str

    @property
    def document(self) -> dict[str, Any]:
        """What it printed with ``--json``."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@dataclass
class Life:
    """A world, what is around it, and what was seen of it so far."""

    number: int
    world: World
    clock: Clock
    store: Store
    hook: Hook
    wire: Wire
    is_whole: bool
    diary: list[str] = field(default_factory=list)
    n_nights: int = 0
    weather: Weather = field(default_factory=Weather)
    """That of the last step."""
    answers: list[tuple[str, Ran]] = field(default_factory=list)
    """Commands that the operator ran last, and how each ended."""

    def command(self, *words: object) -> Ran:
        """Run a command of the program in this weather; killed, it ends by :data:`KILLED`."""
        self.store.be(self.weather.store)
        self.hook.mode = self.weather.hook
        self.hook.begin(self.wire.links)
        try:
            with self.wire.failing(self.weather.fault):
                return self.ask(*words)
        finally:
            self.hook.end()

    def ask(self, *words: object) -> Ran:
        """Run a command that nothing goes wrong with."""
        out, err, log = io.StringIO(), io.StringIO(), io.StringIO()
        handler, logger = logging.StreamHandler(log), logging.getLogger("clusterdp")
        logger.addHandler(handler)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = cli.run([str(word) for word in words])
        except Killed:
            code = KILLED
        finally:
            logger.removeHandler(handler)
        return Ran(code, out.getvalue(), out.getvalue() + err.getvalue() + log.getvalue())

    def night(self, weather: Weather) -> tuple[Ran, list[Path]]:
        """The run of a night; gives the configurations in the order that they were named in."""
        self.weather = weather
        configs = [one.config for one in self.world.places]
        self.world.random.shuffle(configs)
        ran = self.command("release", *configs, "--due", "--json")
        self.n_nights += 1
        self.note(
            f"{self.clock.moment:%m-%d %H:%M} {weather} {[one.stem for one in configs]}: {ran.code}"
        )
        return ran, configs

    def operate(self, weather: Weather) -> str | None:
        """Let the operator do something; what, and how that ended."""
        self.weather = weather
        self.answers.clear()

        def command(*words: object, is_calm: bool = False) -> int:
            self.weather = Weather() if is_calm else weather
            ran = self.command(*words)
            self.answers.append((str(words[0]), ran))
            return ran.code

        said = act(self.world, command)
        if said is not None:
            why = "".join(f" ({ran.words.strip()})" for _, ran in self.answers if ran.code)
            self.note(f"the operator {said}{why} {'' if weather.is_fine else weather}")
        return said

    def note(self, line: str) -> None:
        """Put a line into the diary."""
        self.diary.append(line)


@contextmanager
def living(number: int, plates: Plates) -> Iterator[Life]:
    """The life of a number, from its beginning; its files go with the block."""
    random = Random(number)  # noqa: S311 - of a test
    is_whole = number % IS_WHOLE == 0
    folder = Path(tempfile.mkdtemp(prefix="clusterdp-nights-", dir=plates.folder))
    clock, wire, hook = Clock(), Wire(), Hook()
    store = Store(folder / "store", clock)
    life = Life(number, World.drawn(folder, random), clock, store, hook, wire, is_whole)
    try:
        with around(clock, store, hook), wire.laid(), ExitStack() as stack:
            if not is_whole:
                for patched in _thin(plates, wire):
                    stack.enter_context(patched)
            yield life
    finally:
        shutil.rmtree(folder)


def _thin(plates: Plates, wire: Wire) -> list[Any]:
    """What makes a night cheap: files from plates, and no series beside them."""

    def publish(tables: Any, sheet: Sheet) -> None:
        plates.publish(wire, tables, sheet)

    def estimate(*given: Any) -> Any:
        return plates.estimate(*given)

    return [
        patch("flows.release.new_draft", new_sheet),
        patch("flows.release.publish", publish),
        patch("flows.release.estimate", estimate),
        patch.object(Account, "renew_series", lambda *_: ()),
        patch("flows.operate.status.stated_warnings", lambda _: ()),
        patch("flows.released.file.read.foreign_code", lambda *_: None),  # macros name a release
        patch("flows.released.file.opening._checked", _name),  # all are printed, or no files
    ]


def _name(connection: duckdb.DuckDBPyConnection) -> opening._Units:
    """Say where the units of a printed file are, without the rest of :func:`opening._checked`."""
    schema, stored = opening._stored_units(connection)
    return opening._Units(schema, by_tables=stored is not None and OUTPUTS in stored)


def steps(life: Life) -> Iterator[tuple[str, Ran | None, list[Path]]]:
    """Let the nights pass, one after the other: after each step it is time to look.

    Gives what the step was (``night`` or ``day``), what was run and of which configurations. The
    last nights are calm, with all logs there.
    """
    world, random = life.world, life.world.random
    number = 0
    while number < world.n_days + 2:
        world.arrive(number)
        jump = random.choice((0,) * 12 + (-30, -2, 1, 3))
        life.clock.moment = _moment(number + jump)
        yield "night", *life.night(Weather.drawn(random, is_stored=world.is_stored))
        if random.random() < 0.5:
            weather = Weather.drawn(random, is_stored=world.is_stored)
            if life.operate(weather if random.random() < 0.3 else Weather()) is not None:
                yield "day", None, []
        number += 1
    world.mend()
    for later in (1, 2):
        life.clock.moment = _moment(number + later)
        yield "night", *life.night(Weather())


def _moment(number: int) -> datetime:
    first = datetime.combine(FIRST + timedelta(1), datetime.min.time(), UTC)
    return first + timedelta(days=number, hours=3, minutes=15)


def without_looking_for_garbage() -> None:
    """Let this process look for garbage seldom: nights leave little."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
