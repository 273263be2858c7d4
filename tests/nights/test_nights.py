"""A few hundred nights, in which all holds, and bugs that they find by themselves.

A finding is the number of a life, which ``make nights LIFE=17`` lives again; see README.md.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from flows.ledger import marks
from flows.ledger.attempts import AttemptLog
from flows.ledger.shelves.files import Files, FileState
from flows.operate.watch import sending
from flows.raw.reading import stores
from schemas.errors import InputError
from tests.nights import surroundings
from tests.nights.life import living
from tests.nights.plates import Plates
from tests.nights.seen import paid_when_tried, tried_as
from tests.nights.soak import Progress, live, soak
from tests.nights.world import Place, Row, World

NIGHTS = 200
MOST_LIVES = 40
"""Lives of some eight nights each in which a planted bug has to be found."""

Plant = AbstractContextManager[Any]


@pytest.fixture(scope="module")
def plates(tmp_path_factory: pytest.TempPathFactory) -> Plates:
    return Plates(tmp_path_factory.mktemp("plates"))


def test_some_hundred_nights_hold(tmp_path: Path) -> None:
    """A soak that goes on: what is lived first is not lived again."""
    begun = soak(1, tmp_path / "nights.json")
    assert begun.lives == 1
    progress = soak(NIGHTS, tmp_path / "nights.json")
    assert progress.nights >= NIGHTS
    assert progress.findings == []
    assert progress == Progress.of(tmp_path / "nights.json")


FOUND = (81, 85, 1114, 1259, 2091, 5011, 5111, 5126, 30306, 30816)
"""Lives that ended in a finding once: of the simulator's reckoning with budgets (two), of an end
said again, of a period that is said to wait though its ledger failed; of a folder that stayed
locked, of folders that cannot be synced (two), of a file that the operator damaged twice; of a file
that lay in its experiment's other folder when the ledger was restored; of files that a prune which
was killed had left: said to be gone, and counted."""


@pytest.mark.parametrize("number", FOUND)
def test_a_life_that_was_a_finding_holds(plates: Plates, number: int) -> None:
    with living(number, plates) as life:
        assert live(life) is None


class TestPaidWhenTried:
    """What people had paid when a night tried a period that it could not release."""

    AUTUMN, THEIRS = Place(Path("autumn.toml"), "autumn"), Place(Path("theirs.toml"), "autumn", "t")
    SPRING = Place(Path("spring.toml"), "spring")

    def paid(self, *places: Place, of: Place, period: str, is_shared: bool = True) -> float:
        """By a night that has charged for b to d, after one before it that charged for a."""
        world = World(Path(), Random(0), 4, [*places], is_shared=is_shared)  # noqa: S311 - no draw
        rows = [
            Row(one, day, 1, f"{one}.{day}.r1", 2.0, "published", "", None, False)
            for one in world.experiments
            for day in "abd"
        ]
        rows.append(replace(rows[0], release_id=None, state="void"))
        before = {row.release_id for row in rows if row.period == "a" and row.release_id}
        return paid_when_tried(
            world, rows, before, [one.config for one in places], of.config, period
        )

    def test_what_comes_after_a_period_is_not_paid_yet(self) -> None:
        assert self.paid(self.AUTUMN, of=self.AUTUMN, period="c") == 4.0
        assert self.paid(self.AUTUMN, of=self.AUTUMN, period="e") == 6.0

    def test_another_experiment_has_paid_once_its_turn_has_come(self) -> None:
        assert self.paid(self.AUTUMN, self.SPRING, of=self.AUTUMN, period="c") == 6.0
        assert self.paid(self.SPRING, self.AUTUMN, of=self.AUTUMN, period="c") == 10.0
        apart = self.paid(self.SPRING, self.AUTUMN, of=self.AUTUMN, period="c", is_shared=False)
        assert apart == 4.0

    def test_the_second_folder_tries_again_what_the_first_could_not_release(self) -> None:
        assert self.paid(self.AUTUMN, self.THEIRS, of=self.AUTUMN, period="c") == 4.0
        assert self.paid(self.AUTUMN, self.THEIRS, of=self.THEIRS, period="c") == 6.0


def test_both_folders_trials_of_a_period_are_known() -> None:
    tried = [("autumn", "a", "failed"), ("autumn", "b", "published"), ("autumn", "a", "refused")]
    names = ("experiment", "period", "status")
    document = {"releases": [dict(zip(names, one, strict=True)) for one in tried]}
    assert tried_as(document, "autumn", "a") == ["failed", "refused"]
    assert tried_as(document, "spring", "a") == []


# planted bugs


def _silence_is_no_file() -> Iterator[Plant]:
    """A store that gives no answer is taken for one that has no file."""

    def entries(*given: Any, **named: Any) -> Any:
        try:
            return stores.entries(*given, **named)
        except InputError:
            return ()

    yield patch("flows.raw.reading.stored_logs.entries", entries)


def _closed_with_open_periods() -> Iterator[Plant]:
    """An experiment has ended though periods of it were never public."""
    closing_of = marks.closing_of

    def closing(experiment: str, schedule: Any, periods: Any, now: Any) -> Any:
        settled = [one for one in periods() if one.is_settled]
        return closing_of(experiment, schedule, lambda: settled, now)

    yield patch("flows.ledger.account.closing_of", closing)


def _closed_a_period_early() -> Iterator[Plant]:
    """The last period is not waited for."""
    closing_of = marks.closing_of

    def closing(experiment: str, schedule: Any, periods: Any, now: Any) -> Any:
        until = None if schedule.until is None else schedule.until - timedelta(days=1)
        before = [one for one in periods() if until is None or one.period <= until.isoformat()]
        return closing_of(experiment, replace(schedule, until=until), lambda: before, now)

    yield patch("flows.ledger.account.closing_of", closing)


def _end_is_said_each_night() -> Iterator[Plant]:
    """Nobody notes that the end was said."""
    note_told = AttemptLog.note_told

    def note(log: AttemptLog, period: str, event: str, now: Any) -> None:
        if event != "closed":
            note_told(log, period, event, now)

    yield patch.object(AttemptLog, "note_told", note)


def _two_folders_are_one() -> Iterator[Plant]:
    """What lies in another folder of the experiment is taken for what lies here."""
    look = Files.look

    def found(files: Files, entries: Any) -> dict[int, FileState]:
        here = {FileState.ELSEWHERE: FileState.HERE}
        return {entry: here.get(one, one) for entry, one in look(files, entries).items()}

    yield patch.object(Files, "look", found)


def _told_in_the_middle() -> Iterator[Plant]:
    """Releases wait for the webhook that is told of those before."""
    yield patch("flows.operate.watch.notices.WAITING", ContextVar("nothing waits", default=None))


def _webhook_is_waited_for() -> Iterator[Plant]:
    """A webhook that does not answer holds up the night."""
    yield patch.object(surroundings, "_FOR_EVER", 0.5)
    yield patch("flows.operate.watch.notices.send", partial(sending.send, seconds=3600.0))


def _silent_webhook_is_asked_again() -> Iterator[Plant]:
    """Each notice waits for a webhook that has not answered the one before."""

    def send(config: Any, notice: Any, _: set[str]) -> list[str]:
        return sending.send(config, notice, set(), surroundings.SECONDS)

    yield patch("flows.operate.watch.notices.send", send)


def _webhook_fails_the_night() -> Iterator[Plant]:
    """A notice that was not sent is an error of the run."""

    def send(config: Any, notice: Any, silent: set[str]) -> list[str]:
        if problems := sending.send(config, notice, silent, surroundings.SECONDS):
            raise InputError(problems[0])
        return []

    yield patch("flows.operate.watch.notices.send", send)
    yield patch("flows.operate.watch.run._never_failing", ExitStack)


def _charge_is_dropped() -> Iterator[Plant]:
    """A run that fails behind the link gives its charge back, though the file is public."""
    yield patch("flows.ledger.account.has_name", lambda *_: False)


# Each with a life that was found to show it, which is lived first, and how the finding may begin.
PLANTED = {
    _silence_is_no_file: (7, "a file that is there is said not to be"),
    _closed_with_open_periods: (2, "closed.json"),
    _closed_a_period_early: (1, "another end|closed.json"),
    _end_is_said_each_night: (1, "the end is said again|the end is said twice"),
    _two_folders_are_one: (1, "status says what is not so"),
    _told_in_the_middle: (1, "a release came after|asked again after no answer"),
    _webhook_is_waited_for: (1, "a run waited for the webhook"),
    _silent_webhook_is_asked_again: (3, "asked again after no answer"),
    _webhook_fails_the_night: (
        19,
        "nobody was told|the end was never said|ended well|the exit code|run and status differ",
    ),
    _charge_is_dropped: (30, "a file that nobody has paid for"),
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda one: one.__name__.strip("_"))
def test_a_planted_bug_is_found(plates: Plates, plant: Any) -> None:
    """Which life shows a bug moves as the code does: then others are lived until one does."""
    first, beginnings = PLANTED[plant]
    found = None
    for number in (first, *range(1, MOST_LIVES)):  # none of which is whole but every sixteenth
        with living(number, plates) as life, ExitStack() as stack:
            for planted in plant():
                stack.enter_context(planted)
            found = live(life)
        if found is not None:
            break
    assert found is not None
    assert found.startswith(tuple(beginnings.split("|"))), found
