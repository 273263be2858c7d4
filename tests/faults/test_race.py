"""Many runs at once: a budget is never spent twice, and no name is given twice.

Sixteen processes wait at a barrier and then ask one ledger at once, round after round. That they
do meet there is shown by the same race without the ledger's lock, which is lost nearly every time.
"""

import json
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
import sqlalchemy as sa

from flows.config.model.declared import Terms
from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url
from flows.ledger.rules import ChargeRequest, Fingerprint, State
from privatizers.accounting.budget import Budget
from privatizers.accounting.histories import cost_of
from schemas.errors import ClusterdpError
from tests.flows.ledger.people import members, reserve, terms
from tests.support import zygote

if TYPE_CHECKING:  # the processes of the race import this file, and need nothing of these
    from tests.conftest import Builder, Program, Ran
    from tests.postgresql import PostgreSQL

pytest_plugins = ["tests.postgresql"]

RUNNERS = 16
PATIENCE = 900.0
"""Seconds after which a race counts as stuck."""

GRANTED = "granted"


class End(NamedTuple):
    """How asking ended."""

    kind: str
    """Granted, or the class of the error."""
    told: str
    """The release's id, or the error's text."""


@dataclass(frozen=True)
class Task:
    """What one process is to ask for."""

    url: sa.URL
    asked: ChargeRequest
    locked: bool
    people: tuple[int, ...] | None = None
    """Who is to be released, where each of them has an account."""


# what the processes do


def _run(start: Barrier, mine: Connection) -> None:
    ledgers: dict[sa.URL, Ledger] = {}
    while (task := mine.recv()) is not None:
        ledger = ledgers.setdefault(task.url, Ledger(task.url))
        mine.send(_ask(ledger, task, start))


def _ask(ledger: Ledger, task: Task, start: Barrier) -> End:
    try:
        with nullcontext() if task.locked else patch.object(Ledger, "alone", _not_alone):
            start.wait(PATIENCE)
            if task.people is None:
                receipt = ledger.reserve(task.asked)
            else:
                who = members(task.people, task.asked.terms.experiment)
                receipt = reserve(ledger, task.asked.terms, task.asked.period, who)
    except ClusterdpError as error:
        return End(type(error).__name__, str(error))
    except Exception as error:  # whatever it is, the test is to say it
        return End(type(error).__name__, repr(error))
    return End(GRANTED, receipt.decision.name.release_id)


@contextmanager
def _not_alone(ledger: Ledger) -> Iterator[sa.Connection]:
    """What the ledger would do if it trusted an ordinary transaction."""
    with ledger.engine.connect() as connection, connection.begin():
        yield connection


class Runners:
    """Processes that have begun, and wait to be told what to ask for."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])  # sixteen imports would take half a minute
        self._start = context.Barrier(RUNNERS)  # kept, as it is gone for all once it is gone here
        self._lines: list[Connection] = []
        self._processes = []
        for _ in range(RUNNERS):
            ours, theirs = context.Pipe()
            process = context.Process(target=_run, args=(self._start, theirs), daemon=True)
            process.start()
            theirs.close()
            self._lines.append(ours)
            self._processes.append(process)

    def ask(
        self,
        url: sa.URL,
        asked: Sequence[ChargeRequest],
        *,
        locked: bool = True,
        people: Sequence[tuple[int, ...]] | None = None,
    ) -> tuple[End, ...]:
        """Let each process ask for one thing, all at once; how each ended."""
        whom: Sequence[tuple[int, ...] | None] = people or [None] * RUNNERS
        for line, one, who in zip(self._lines, asked, whom, strict=True):
            line.send(Task(url, one, locked, who))
        return tuple(self._answer(line) for line in self._lines)

    def _answer(self, line: Connection) -> End:
        assert line.poll(PATIENCE), "the race is stuck"
        end = line.recv()
        assert isinstance(end, End)
        return end

    def stop(self) -> None:
        """Send them home."""
        for line in self._lines:
            line.send(None)
        for line, process in zip(self._lines, self._processes, strict=True):
            process.join(PATIENCE)
            process.close()
            line.close()


@pytest.fixture(scope="module")
def runners() -> Iterator[Runners]:
    runners = Runners()
    yield runners
    runners.stop()


# what they ask


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], sa.URL]:
    """Gives URLs of ledgers that are not there yet."""
    if request.param == "postgresql":
        server: PostgreSQL = request.getfixturevalue("postgresql")
        return lambda: ledger_url(server.database(), tmp_path)
    numbers = count(1)
    return lambda: ledger_url(f"sqlite:///new{next(numbers)}/ledger.sqlite", tmp_path)


def applications(population: str, budget: float, directory: Path) -> list[ChargeRequest]:
    """One for each process: each asks for ε = 1 and another period, of one of two experiments."""
    return [
        ChargeRequest(
            terms=Terms(f"{population}-{number % 2}", population, Budget(1.0), Budget(budget, 0.0)),
            period=f"p{number}",
            fingerprint=Fingerprint(*(f"k:{which}{population}{number}" for which in "rus")),
            directory=directory,
            draft=None,
        )
        for number in range(RUNNERS)
    ]


def spend(url: sa.URL, population: str, amount: float, directory: Path) -> None:
    """Let the population pay before the race; what earlier races left open is settled."""
    one = applications(population, amount, directory)[0]
    terms = replace(one.terms, cost=Budget(amount))
    Ledger(url).reserve(replace(one, terms=terms, period="before"), lambda _: State.PUBLISHED)


class Outcome(NamedTuple):
    """How a race ended."""

    kinds: dict[str, int]
    """How many ended in which way."""
    left: float
    """What is left of the budget, below zero where too much was spent."""


def outcome(url: sa.URL, asked: Sequence[ChargeRequest], ends: Sequence[End]) -> Outcome:
    names = [end.told for end in ends if end.kind == GRANTED]
    assert len(names) == len(set(names)), "a name was given twice"
    statement = Ledger(url).statement(asked[0].terms)
    assert {entry.name.release_id for entry in statement.entries} >= set(names)
    left = statement.terms.limit.epsilon - statement.spent.epsilon
    return Outcome(Counter(end.kind for end in ends), left)


def races_for_the_last_unit(
    runners: Runners, url: sa.URL, directory: Path, *, locked: bool = True
) -> Iterator[Outcome]:
    """In every round there is a new population that has spent k of its k + 1."""
    for number in count():
        population, paid = f"people{number}", float(number % 7 + 1)
        spend(url, population, paid, directory)
        asked = applications(population, paid + 1, directory)
        yield outcome(url, asked, runners.ask(url, asked, locked=locked))


ONE_GOT_IT = Outcome({GRANTED: 1, "BudgetError": RUNNERS - 1}, 0.0)


# the races


@pytest.mark.parametrize("rounds", [50, pytest.param(1000, marks=pytest.mark.soak)])
def test_of_sixteen_that_ask_for_the_last_unit_of_a_budget_one_gets_it(
    runners: Runners, new_url: Callable[[], sa.URL], tmp_path: Path, rounds: int
) -> None:
    races = races_for_the_last_unit(runners, new_url(), tmp_path)
    for number, found in enumerate(islice(races, rounds)):
        assert found == ONE_GOT_IT, f"round {number}"


def test_without_the_lock_more_than_one_gets_it(
    runners: Runners, new_url: Callable[[], sa.URL], tmp_path: Path
) -> None:
    """The negative control: the same race with an ordinary transaction in the lock's place.

    Of 40 such rounds one came out well, so ten that do are no accident.
    """
    races = races_for_the_last_unit(runners, new_url(), tmp_path, locked=False)
    assert any(found.left < 0 for found in islice(races, 10))


def test_where_a_server_gives_old_snapshots_one_gets_it_all_the_same(
    runners: Runners, postgresql: "PostgreSQL", tmp_path: Path
) -> None:
    """As is where ``default_transaction_isolation`` is set for a database or a user."""
    for level in ("repeatable read", "serializable"):
        database = postgresql.database({"default_transaction_isolation": level})
        races = races_for_the_last_unit(runners, ledger_url(database, tmp_path), tmp_path)
        for found in islice(races, 3):
            assert found == ONE_GOT_IT, level


def test_of_sixteen_that_make_the_ledger_at_once_one_gets_the_budget(
    runners: Runners, new_url: Callable[[], sa.URL], tmp_path: Path
) -> None:
    for number in range(3):
        url, asked = new_url(), applications(f"people{number}", 1.0, tmp_path)
        assert outcome(url, asked, runners.ask(url, asked)) == ONE_GOT_IT


def test_of_sixteen_that_ask_for_one_period_one_gets_it(
    runners: Runners, new_url: Callable[[], sa.URL], tmp_path: Path
) -> None:
    url = new_url()
    for number in range(3):
        asked = [applications(f"people{number}", 100.0, tmp_path)[0]] * RUNNERS
        ends = runners.ask(url, asked)
        found = outcome(url, asked, ends)
        assert found == Outcome({GRANTED: 1, "ConflictError": RUNNERS - 1}, 99.0)
        name = f"people{number}-0.p0.r1"
        assert {end.told for end in ends if end.kind == GRANTED} == {name}
        assert all(f"{name} is being released" in end.told for end in ends if end.kind != GRANTED)


def test_of_sixteen_as_many_get_their_release_as_the_budget_has_room_for(
    runners: Runners, new_url: Callable[[], sa.URL], tmp_path: Path
) -> None:
    url = new_url()
    for number, room in enumerate((5, 11, 15)):
        asked = applications(f"people{number}", float(room), tmp_path)
        kinds = Counter({GRANTED: room, "BudgetError": RUNNERS - room})
        assert outcome(url, asked, runners.ask(url, asked)) == Outcome(kinds, 0.0)


# where each unit has an account


def _overlapping(random: np.random.Generator) -> list[tuple[int, ...]]:
    """People for each process, drawn from sixty."""
    return [
        tuple(random.choice(60, int(random.integers(5, 25)), replace=False).tolist())
        for _ in range(RUNNERS)
    ]


def _paid_by(ledger: Ledger, of: Terms) -> Counter[float]:
    """How many have paid how much, by the ledger."""
    counted = ledger.statement(of, exact=True).tally
    assert counted is not None
    found: Counter[float] = Counter()
    for history, n in counted.histories.items():
        found[cost_of(history).epsilon] += n
    return found


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_of_sixteen_with_the_same_people_none_lets_one_of_them_pay_too_much(
    runners: Runners, new_url: Callable[[], sa.URL], tmp_path: Path, rounds: int
) -> None:
    """Whoever was refused could not have been granted, either: a unit of theirs had too little."""
    random = np.random.default_rng(5)
    for _ in range(rounds):
        url, people = new_url(), _overlapping(random)
        of = terms(cost=1.0, limit=3.0)
        asked = [replace(one, terms=of) for one in applications("people", 3.0, tmp_path)]
        ends = runners.ask(url, asked, people=people)
        assert {end.kind for end in ends} <= {GRANTED, "BudgetError"}, ends
        granted = [who for who, end in zip(people, ends, strict=True) if end.kind == GRANTED]
        times = Counter(one for who in granted for one in who)
        assert max(times.values()) <= 3
        assert _paid_by(Ledger(url), of) == Counter(float(n) for n in times.values())
        for who, end in zip(people, ends, strict=True):
            if end.kind != GRANTED:
                assert max(times[one] for one in who) == 3


# through the command line


def test_of_four_programs_that_release_at_once_one_gets_the_budget(
    clusterdp: "Program", experiment: "Builder", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygote, "_fork", lambda *_: None)  # all four take as long to start
    built = experiment(privacy={"epsilon": 1.5, "budget_epsilon": 1.5})
    release = partial(clusterdp, "release", built.config, "--json", "--period")
    with ThreadPoolExecutor(4) as pool:
        ends: list[Ran] = list(pool.map(release, ["p1", "p2", "p3", "p4"]))
    assert sorted(end.returncode for end in ends) == [0, 3, 3, 3], [end.stderr for end in ends]
    (winner,) = [json.loads(end.stdout) for end in ends if end.returncode == 0]
    assert winner["ledger"]["spent_epsilon"] == winner["ledger"]["budget_epsilon"] == 1.5
    for end in ends:
        if end.returncode == 3:
            assert json.loads(end.stdout)["error"]["kind"] == "budget"
            assert "refused: this release costs epsilon 1.5" in end.stderr
            assert winner["release_id"] in end.stderr
    releases = {path.name for path in built.releases.iterdir()}
    assert releases == {
        "SHA256SUMS",
        "latest.duckdb",
        "series.duckdb",
        f"{winner['release_id']}.duckdb",
    }
    config = built.load()
    terms = Terms("trial", "trial", Budget(1.5), Budget(1.5))
    (entry,) = Ledger(ledger_url(config.ledger.url, config.directory)).entries(terms)
    assert (entry.name.release_id, entry.state) == (winner["release_id"], State.PUBLISHED)
