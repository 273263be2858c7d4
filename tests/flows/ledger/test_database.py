"""The ledger in its databases: what is charged stays charged, and what fails says so in a line."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
import sqlalchemy as sa

from flows.config.model.declared import Terms
from flows.ledger.database import Ledger
from flows.ledger.migrations import VERSION
from flows.ledger.place import ledger_url
from flows.ledger.rules import OPEN, ChargeRequest, Entry, Fingerprint, State
from flows.ledger.statement import Statement
from flows.ledger.tables import METADATA
from privatizers.accounting.budget import Budget
from schemas.errors import BudgetError, ClusterdpError, ConfigError, ConflictError
from schemas.names import ReleaseName
from tests.conftest import told
from tests.support.modes import mode

if TYPE_CHECKING:  # not imported twice, as it is a plug-in
    from tests.postgresql import PostgreSQL

pytest_plugins = ["tests.postgresql"]

RESERVED, PUBLISHING, PUBLISHED, LOST, VOID = State

NO_LIMIT = Budget(float("inf"), float("inf"))
HERE = Path("/somewhere/releases/trial")
SECRET = "open-s3same/é"  # noqa: S105 - nobody's; named, as a traceback shows the tests' own lines


def terms(
    experiment: str = "trial",
    population: str = "people",
    *,
    cost: Budget | float = 1.0,
    limit: Budget = NO_LIMIT,
) -> Terms:
    return Terms(experiment, population, cost if isinstance(cost, Budget) else Budget(cost), limit)


def application(
    period: str = "p",
    of: Terms | None = None,
    *,
    rows: str = "r",
    units: str = "u",
    draft: Path | None = None,
    revise: bool = False,
) -> ChargeRequest:
    made_from = Fingerprint(f"key:{rows}", f"key:{units}", "key:s")
    return ChargeRequest(of or terms(), period, made_from, HERE, draft, revise)


def charge(ledger: Ledger, period: str = "p", of: Terms | None = None) -> int:
    """Charge for a release; gives the number of the charge."""
    number = ledger.reserve(application(period, of)).charge
    assert number is not None
    return number


def states(ledger: Ledger, of: Terms | None = None) -> dict[str, State]:
    """What the ledger says of each release, void or not."""
    return {one.name.release_id: one.state for one in ledger.statement(of or terms()).entries}


def epsilon(ledger: Ledger, of: Terms | None = None) -> float:
    return ledger.statement(of or terms()).spent.epsilon


def assert_untold(error: BaseException, *secrets: str) -> None:
    """Neither the error nor its traceback, causes and all, has any of this."""
    shown = told(error)
    for secret in secrets:
        assert secret not in shown


def assert_one_plain_line(error: ClusterdpError, *words: str, exit_code: int = 2) -> None:
    assert error.exit_code == exit_code
    assert "\n" not in str(error)
    for word in words:
        assert word in str(error)


# what a reservation gives


def test_a_charge_is_there_before_anything_is_drawn(ledger: Ledger) -> None:
    receipt = ledger.reserve(application(draft=HERE / ".draft-x"))
    assert receipt.decision.name == ReleaseName("trial", "p", 1)
    assert receipt.decision.unchanged is None
    assert receipt.path == HERE / "trial.p.r1.duckdb"
    assert receipt.statement == ledger.statement(terms())
    (entry,) = receipt.statement.entries
    assert (entry.id, entry.state, entry.cost) == (receipt.charge, RESERVED, Budget(1.0))
    assert (entry.population, entry.name) == ("people", receipt.decision.name)
    assert (entry.path, entry.draft) == (receipt.path, HERE / ".draft-x")
    assert entry.created_at.tzinfo is UTC


def test_digests_are_kept_to_compare_with_and_are_in_no_statement(ledger: Ledger) -> None:
    receipt = ledger.reserve(application())
    assert [entry.fingerprint for entry in ledger.entries(terms())] == [application().fingerprint]
    assert [entry.fingerprint for entry in receipt.statement.entries] == [None]
    assert [entry.fingerprint for entry in ledger.statement(terms()).entries] == [None]


def test_charges_stand_in_the_order_they_were_made(ledger: Ledger) -> None:
    for period in "cab":
        charge(ledger, period)
    assert list(states(ledger)) == ["trial.c.r1", "trial.a.r1", "trial.b.r1"]
    assert epsilon(ledger) == 3.0
    assert ledger.statement(terms()).n_releases == 3


def test_another_program_reads_what_one_has_charged(ledger: Ledger, url: sa.URL) -> None:
    charge(ledger)
    assert Ledger(url).statement(terms()) == ledger.statement(terms())
    assert epsilon(Ledger(url)) == 1.0


def test_the_same_again_is_unchanged_and_charges_nothing(ledger: Ledger, tmp_path: Path) -> None:
    asked = ChargeRequest(terms(), "p", application().fingerprint, tmp_path, None)
    number = ledger.reserve(asked).charge
    assert number is not None
    ledger.begin_publishing(number)
    (tmp_path / "trial.p.r1.duckdb").touch()
    ledger.publish(number)
    before = ledger.statement(terms())
    again = ledger.reserve(asked)
    assert again.charge is None
    assert [again.decision.unchanged] == ledger.entries(terms())
    assert again.path == tmp_path / "trial.p.r1.duckdb"
    assert again.statement == ledger.statement(terms()) == before


def test_a_refusal_charges_nothing(ledger: Ledger) -> None:
    poor = terms(limit=Budget(1.5))
    charge(ledger, "a", poor)
    before = ledger.statement(poor)
    with pytest.raises(BudgetError):
        ledger.reserve(application("b", poor))
    with pytest.raises(ConflictError):
        ledger.reserve(application("a", poor))
    assert ledger.statement(poor) == before


def test_a_revision_is_charged_again(ledger: Ledger) -> None:
    number = charge(ledger)
    ledger.begin_publishing(number)
    ledger.publish(number)
    with pytest.raises(ConflictError, match="--revise"):
        ledger.reserve(application(rows="other"))
    receipt = ledger.reserve(application(rows="other", revise=True))
    assert receipt.decision.name == ReleaseName("trial", "p", 2)
    assert states(ledger) == {"trial.p.r1": PUBLISHED, "trial.p.r2": RESERVED}
    assert epsilon(ledger) == 2.0


@pytest.mark.parametrize(
    "amount",
    [0.1, 0.30000000000000004, 1e-9, 5e-324, 1.7976931348623157e308, 12345678901234567890.0, 0.0],
)
def test_amounts_come_back_as_they_were_written(ledger: Ledger, amount: float) -> None:
    cost = Budget(amount, amount / 1e10)
    charge(ledger, "p", terms(cost=cost))
    (entry,) = ledger.statement(terms()).entries
    assert (entry.cost.epsilon, entry.cost.delta) == (cost.epsilon, cost.delta)


def test_written_amounts_add_up_to_what_they_say(ledger: Ledger) -> None:
    tenths = terms(cost=Budget(0.1, 1e-7), limit=Budget(0.3, 1.0))
    for period in "abc":
        charge(ledger, period, tenths)
    assert ledger.statement(tenths).spent == Budget(0.3, 3e-7)
    with pytest.raises(BudgetError):
        ledger.reserve(application("d", tenths))


# from state to state

HOW_TO_GET_THERE: dict[State, tuple[Callable[[Ledger, int], object], ...]] = {
    RESERVED: (),
    PUBLISHING: (Ledger.begin_publishing,),
    PUBLISHED: (Ledger.begin_publishing, Ledger.publish),
    LOST: (Ledger.begin_publishing, lambda ledger, _: ledger.abandon("trial", "trial.p.r1")),
    VOID: (Ledger.give_back,),
}


def charge_in(state: State, ledger: Ledger) -> int:
    """Charge for a release, and bring the charge into a state."""
    number = charge(ledger)
    for step in HOW_TO_GET_THERE[state]:
        step(ledger, number)
    assert states(ledger) == {"trial.p.r1": state}
    return number


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(
    ("act", "leads"),
    [
        (Ledger.publish, {PUBLISHING: PUBLISHED}),
        (Ledger.give_back, {RESERVED: VOID}),
        (Ledger.withdraw, {PUBLISHING: VOID}),
    ],
)
def test_a_charge_goes_where_it_may_and_stays_where_it_may_not(
    ledger: Ledger, state: State, act: Callable[[Ledger, int], None], leads: dict[State, State]
) -> None:
    number = charge_in(state, ledger)
    other = charge(ledger, "another")
    act(ledger, number)
    after = leads.get(state, state)
    assert states(ledger) == {"trial.p.r1": after, "trial.another.r1": RESERVED}
    assert other != number
    assert epsilon(ledger) == 1.0 + (after != VOID)


@pytest.mark.parametrize("state", State)
def test_only_a_reservation_may_begin_to_publish(ledger: Ledger, state: State) -> None:
    number = charge_in(state, ledger)
    if state == RESERVED:
        ledger.begin_publishing(number)
        assert states(ledger) == {"trial.p.r1": PUBLISHING}
    else:
        with pytest.raises(ClusterdpError) as failure:
            ledger.begin_publishing(number)
        assert_one_plain_line(failure.value, "given back", "nothing was published", exit_code=1)
        assert states(ledger) == {"trial.p.r1": state}


@pytest.mark.parametrize(("state", "after"), [(RESERVED, VOID), (PUBLISHING, LOST)])
def test_an_operator_settles_what_a_dead_run_left(
    ledger: Ledger, state: State, after: State
) -> None:
    number = charge_in(state, ledger)
    charge(ledger, "another")
    assert ledger.abandon("trial", "trial.p.r1") == after
    assert states(ledger) == {"trial.p.r1": after, "trial.another.r1": RESERVED}
    with pytest.raises(ClusterdpError, match="given back"):  # should the run live after all
        ledger.begin_publishing(number)


@pytest.mark.parametrize(
    ("state", "why"),
    [(PUBLISHED, "published already"), (LOST, "lost already"), (VOID, "not in the ledger")],
)
def test_what_is_settled_cannot_be_abandoned(ledger: Ledger, state: State, why: str) -> None:
    charge_in(state, ledger)
    with pytest.raises(ConfigError, match=rf"--abandon: trial\.p\.r1 is {why}; nothing was"):
        ledger.abandon("trial", "trial.p.r1")
    assert states(ledger) == {"trial.p.r1": state}


@pytest.mark.parametrize(
    ("experiment", "release_id"),
    [("trial", "trial.p.r2"), ("trial", "nonsense"), ("other", "trial.p.r1")],
)
def test_what_is_not_of_the_experiment_cannot_be_abandoned(
    ledger: Ledger, experiment: str, release_id: str
) -> None:
    charge(ledger)
    with pytest.raises(ConfigError, match=f"{release_id} is not in the ledger"):
        ledger.abandon(experiment, release_id)
    assert states(ledger) == {"trial.p.r1": RESERVED}


@pytest.mark.parametrize("state", State)
def test_a_name_is_given_again_only_where_it_was_given_back(ledger: Ledger, state: State) -> None:
    charge_in(state, ledger)
    if state in OPEN:
        with pytest.raises(ConflictError, match=r"trial\.p\.r1 is being released"):
            ledger.reserve(application(revise=True))
        return
    name = ledger.reserve(application(revise=True)).decision.name
    assert name.revision == (1 if state == VOID else 2)
    assert epsilon(ledger) == (1.0 if state == VOID else 2.0)
    assert ledger.known("trial") == {"trial.p.r1", name.release_id}
    assert len(ledger.statement(terms()).entries) == 2


# what dead runs left


@pytest.mark.parametrize("after", State)
@pytest.mark.parametrize("before", OPEN)
def test_what_became_of_an_unfinished_charge_is_found_out_first(
    ledger: Ledger, before: State, after: State
) -> None:
    charge_in(before, ledger)
    asked_about: list[Entry] = []

    def resolve_charge(entry: Entry) -> State:
        asked_about.append(entry)
        return after

    ledger.reserve(application("next"), resolve_charge)
    assert [(entry.name.period, entry.state) for entry in asked_about] == [("p", before)]
    assert states(ledger) == {"trial.p.r1": after, "trial.next.r1": RESERVED}
    assert epsilon(ledger) == 1.0 + (after != VOID)


@pytest.mark.parametrize("state", [PUBLISHED, LOST, VOID])
def test_what_is_settled_is_not_asked_about_again(ledger: Ledger, state: State) -> None:
    charge_in(state, ledger)
    ledger.reserve(application("next"), lambda _: pytest.fail("asked"))


def test_charges_of_all_populations_are_settled(ledger: Ledger) -> None:
    theirs = terms("their-trial", "they")
    charge(ledger, "p", theirs)
    ledger.reserve(application(), lambda _: VOID)
    assert states(ledger, theirs) == {"their-trial.p.r1": VOID}


@pytest.mark.parametrize("after", [VOID, PUBLISHED, LOST])
def test_what_was_settled_stays_so_where_the_run_is_refused(ledger: Ledger, after: State) -> None:
    charge_in(PUBLISHING, ledger)
    with pytest.raises(BudgetError):
        ledger.reserve(application("next", terms(limit=Budget(0.5))), lambda _: after)
    assert states(ledger) == {"trial.p.r1": after}


def test_a_budget_that_was_given_back_can_be_spent_at_once(ledger: Ledger) -> None:
    poor = terms(limit=Budget(1.0))
    charge(ledger, "dead", poor)
    assert ledger.reserve(application("next", poor), lambda _: VOID).charge is not None


def test_a_failure_to_settle_leaves_everything_as_it_was(ledger: Ledger) -> None:
    charge(ledger, "a")
    charge(ledger, "b")

    def resolve_charge(entry: Entry) -> State:
        if entry.name.period == "b":
            raise KeyboardInterrupt
        return VOID

    with pytest.raises(KeyboardInterrupt):
        ledger.reserve(application("next"), resolve_charge)
    assert states(ledger) == {"trial.a.r1": RESERVED, "trial.b.r1": RESERVED}
    charge(ledger, "next")  # nobody holds the lock


def test_working_folders_of_open_charges_are_told(ledger: Ledger) -> None:
    for period in "abc":
        ledger.reserve(application(period, draft=HERE / f".draft-{period}"))
    for number in (1, 2):
        ledger.begin_publishing(number)
    ledger.publish(2)
    ledger.reserve(application("x", draft=None))
    told = ledger.reserve(application("d", draft=HERE / ".draft-d")).unfinished
    assert told == tuple(HERE / f".draft-{period}" for period in "acd")


# who pays


def test_experiments_on_the_same_people_share_a_statement(ledger: Ledger) -> None:
    first, second = terms("one", cost=0.5), terms("two", cost=0.25)
    charge(ledger, "p", first)
    charge(ledger, "p", second)
    assert states(ledger, first) == states(ledger, second)
    assert states(ledger, first) == {"one.p.r1": RESERVED, "two.p.r1": RESERVED}
    assert epsilon(ledger, first) == epsilon(ledger, second) == 0.75
    with pytest.raises(BudgetError, match=r"one\.p\.r1 0\.5, two\.p\.r1 0\.25"):
        ledger.reserve(application("q", terms("two", limit=Budget(1.5))))


def test_other_people_pay_for_themselves(ledger: Ledger) -> None:
    ours, theirs = terms("one", limit=Budget(1.0)), terms("two", "they", limit=Budget(1.0))
    charge(ledger, "p", ours)
    charge(ledger, "p", theirs)
    assert states(ledger, ours) == {"one.p.r1": RESERVED}
    assert states(ledger, theirs) == {"two.p.r1": RESERVED}
    assert epsilon(ledger, ours) == epsilon(ledger, theirs) == 1.0
    assert ledger.known("one") == {"one.p.r1"}


def test_an_experiment_that_changes_its_population_is_still_known(ledger: Ledger) -> None:
    before, after = terms(population="before"), terms(population="after")
    charge(ledger, "p", before)
    with pytest.raises(ConflictError):
        ledger.reserve(application("p", after))
    charge(ledger, "q", after)
    assert states(ledger, after) == {"trial.q.r1": RESERVED}
    assert [entry.name.period for entry in ledger.entries(after)] == ["p", "q"]


def test_entries_are_those_of_the_population_or_the_experiment(ledger: Ledger) -> None:
    for of in (terms("one", "a"), terms("two", "a"), terms("one", "b"), terms("two", "b")):
        charge(ledger, of.population, of)
    ids = [entry.name.release_id for entry in ledger.entries(terms("one", "a"))]
    assert ids == ["one.a.r1", "two.a.r1", "one.b.r1"]


def test_the_same_units_under_another_population_are_told(ledger: Ledger) -> None:
    one, other = terms("one", "a", cost=0.1), terms("two", "b")
    for period in "pqr":
        ledger.reserve(application(period, one, units="same"))
    ledger.give_back(3)
    ledger.reserve(application("x", one, units="different"))
    receipt = ledger.reserve(application("p", other, units="same"))
    assert receipt.same_people == {"a": Budget(0.2)}
    assert receipt.statement.spent == Budget(1.0)
    assert ledger.reserve(application("q", other, units="new")).same_people == {}


def test_a_statement_says_its_amounts() -> None:
    empty = Statement(terms(limit=Budget(2.0, float("inf"))), ())
    assert empty.as_json() == {
        "population": "people",
        "spent_epsilon": 0.0,
        "spent_delta": 0.0,
        "budget_epsilon": 2.0,
        "budget_delta": None,
        "n_releases": 0,
    }


def test_a_statement_counts_what_counts(ledger: Ledger) -> None:
    charge_in(VOID, ledger)
    charge(ledger, "q", terms(cost=Budget(0.5, 1e-6)))
    said = ledger.statement(terms(limit=Budget(2.0, 1e-5))).as_json()
    assert (said["spent_epsilon"], said["spent_delta"], said["n_releases"]) == (0.5, 1e-6, 1)
    assert (said["budget_epsilon"], said["budget_delta"]) == (2.0, 1e-5)


# reading


def test_reading_what_is_not_there_makes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.statement(terms()) == Statement(terms(), ())
    assert ledger.entries(terms()) == []
    assert ledger.known("trial") == set()
    assert list(tmp_path.iterdir()) == []


def test_reading_makes_no_tables(postgresql: "PostgreSQL", tmp_path: Path) -> None:
    url = ledger_url(postgresql.emptied(), tmp_path)
    Ledger(url).statement(terms())
    assert tables(url) == set()
    charge(Ledger(url))
    assert tables(url) == set(METADATA.tables)


def tables(url: sa.URL) -> set[str]:
    where = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(where) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {name for (name,) in found.fetchall()}


def test_reading_changes_no_file(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    charge(ledger)
    before = (file.read_bytes(), file.stat())
    ledger.statement(terms())
    ledger.entries(terms())
    ledger.known("trial")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (before[0], before[1].st_mtime_ns)
    assert list(tmp_path.iterdir()) == [file]


# the file


def test_the_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        charge(Ledger(ledger_url("sqlite:///kept/here/ledger.sqlite", tmp_path)))
    finally:
        os.umask(before)
    assert mode(tmp_path / "kept/here/ledger.sqlite") == 0o600
    assert mode(tmp_path / "kept/here") == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(0o755)
    charge(Ledger(ledger_url("sqlite:///kept/ledger.sqlite", tmp_path)))
    assert mode(tmp_path / "kept") == 0o755
    assert mode(tmp_path / "kept/ledger.sqlite") == 0o600


def test_a_run_that_was_killed_before_it_made_the_tables_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").touch(0o600)
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    assert ledger.statement(terms()).entries == ()
    assert ledger.entries(terms()) == []
    assert ledger.known("trial") == set()
    assert (tmp_path / "ledger.sqlite").read_bytes() == b""
    charge(ledger)
    assert epsilon(ledger) == 1.0


ACTS: dict[str, Callable[[Ledger], object]] = {
    "reserve": lambda ledger: ledger.reserve(application()),
    "begin_publishing": lambda ledger: ledger.begin_publishing(1),
    "publish": lambda ledger: ledger.publish(1),
    "give_back": lambda ledger: ledger.give_back(1),
    "withdraw": lambda ledger: ledger.withdraw(1),
    "abandon": lambda ledger: ledger.abandon("trial", "trial.p.r1"),
    "statement": lambda ledger: ledger.statement(terms()),
    "entries": lambda ledger: ledger.entries(terms()),
    "known": lambda ledger: ledger.known("trial"),
}
every_act = pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)


@every_act
def test_a_file_that_is_no_database_is_told(
    tmp_path: Path, act: Callable[[Ledger], object]
) -> None:
    file = tmp_path / "ledger.sqlite"
    file.write_text("unit,arm,outcome\n" * 1000)
    with pytest.raises(ClusterdpError) as failure:
        act(Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path)))
    assert_one_plain_line(failure.value, str(file), "not a database")
    assert file.read_text() == "unit,arm,outcome\n" * 1000


def test_a_folder_in_the_file_s_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").mkdir()
    with pytest.raises(ClusterdpError) as failure:
        charge(Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path)))
    assert_one_plain_line(failure.value, "ledger.sqlite", "is a folder, not a file")


def test_a_file_in_the_folder_s_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    with pytest.raises(ClusterdpError, match=r"ledger\.url: .*\(Not a directory\)"):
        charge(Ledger(ledger_url("sqlite:///kept/ledger.sqlite", tmp_path)))


def test_a_file_that_cannot_be_made_is_told() -> None:
    with pytest.raises(ClusterdpError, match=r"ledger /proc/ledger\.sqlite: cannot be made"):
        charge(Ledger(ledger_url("sqlite:////proc/ledger.sqlite", Path("/"))))


def test_a_file_that_others_hold_for_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.ledger.database._WAIT_SECONDS", 0)
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    charge(ledger)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ClusterdpError) as failure:
            charge(ledger, "q")
        assert_one_plain_line(failure.value, "locked")
        assert states(ledger) == {"trial.p.r1": RESERVED}  # who only reads need not wait


def test_a_server_that_others_hold_for_too_long_is_told(
    postgresql: "PostgreSQL", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ledger_url(postgresql.emptied(), tmp_path)
    charge(Ledger(url))
    monkeypatch.setattr("flows.ledger.database._WAIT_SECONDS", "0.001")
    impatient = Ledger(url)
    with Ledger(url).alone(), pytest.raises(ClusterdpError) as failure:
        charge(impatient, "q")
    assert_one_plain_line(failure.value, "lock timeout")
    assert states(impatient) == {"trial.p.r1": RESERVED}


FAILING = {
    "sqlite": (
        "CREATE TRIGGER full BEFORE INSERT ON clusterdp_charges "
        "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    ),
    "postgresql": "ALTER TABLE clusterdp_charges ADD CONSTRAINT full_disk CHECK (id < 2)",
}


def test_a_charge_that_fails_shows_no_digest(url: sa.URL) -> None:
    """Not even with ``--debug``, or in Prefect's log of the run, which has the traceback."""
    rows, units = "DIGEST-1", "DIGEST-2"
    charge(Ledger(url))
    with Ledger(url).alone() as connection:
        connection.execute(sa.text(FAILING[url.get_backend_name()]))
    with pytest.raises(ClusterdpError) as failure:
        Ledger(url).reserve(application("q", rows=rows, units=units))
    assert_one_plain_line(failure.value, "full")
    assert_untold(failure.value, rows, units)
    assert states(Ledger(url)) == {"trial.p.r1": RESERVED}


@every_act
def test_a_ledger_of_another_version_is_told(url: sa.URL, act: Callable[[Ledger], object]) -> None:
    charge(Ledger(url))
    with Ledger(url).alone() as connection:
        connection.execute(sa.text("UPDATE clusterdp_ledger SET version = version + 1"))
    with pytest.raises(ClusterdpError) as failure:
        act(Ledger(url))
    assert_one_plain_line(failure.value, f"version {VERSION + 1}", f"up to {VERSION}")


# rows that nobody should have written


EDITS = {
    "an unknown state": ("state", "'paid'", "state 'paid' in the row with the id 1 is none of res"),
    "no state": ("state", "''", "state '' in the row with the id 1 is empty"),
    "a negative epsilon": ("epsilon", "'-1.0'", "epsilon '-1.0' in the row with the id 1 is not a"),
    "an epsilon that is no number": ("epsilon", "'nan'", "epsilon 'nan' in the row"),
    "an endless epsilon": ("epsilon", "'inf'", "epsilon 'inf' in the row"),
    "text for epsilon": ("epsilon", "'two'", "epsilon 'two' in the row"),
    "thousands of digits": ("epsilon", f"'{'9' * 5000}'", "epsilon '999"),
    "bytes for delta": (
        "delta",
        "x'00ff'",
        "delta b'\\x00\\xff' in the row with the id 1 is not text",
    ),
    "a negative delta": ("delta", "'-0.1'", "delta '-0.1' in the row"),
    "text for a revision": ("revision", "'first'", "revision 'first' in the row"),
    "revision 0": ("revision", "0", "revision 0 in the row"),
    "no time": ("created_at", "'yesterday'", "created_at 'yesterday' in the row"),
    "a number for a time": ("created_at", "7", "created_at 7 in the row"),
    "no path": ("path", "''", "path '' in the row with the id 1 is empty"),
    "a path with a null": ("path", "'a' || char(0) || 'b'", "path 'a\\x00b' in the row"),
    "bytes for a draft": ("draft", "x'00'", "draft b'\\x00' in the row with the id 1 is not text"),
    "another name": (
        "slot",
        "'trial.q.r7'",
        "slot 'trial.q.r7' in the row with the id 1 is not wh",
    ),
    "no name": (
        "slot",
        "NULL",
        "slot in the row with the id 1 is not what a charge in the state res",
    ),
    "bytes for a digest": ("rows_digest", "x'dead'", "rows_digest in the row with the id 1 is not"),
}


@pytest.mark.parametrize(("column", "value", "says"), EDITS.values(), ids=EDITS)
def test_a_row_that_was_edited_is_refused_by_its_number(
    tmp_path: Path, column: str, value: str, says: str
) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    charge(ledger)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as other:
        other.execute(f"UPDATE clusterdp_charges SET {column} = {value}")
        other.commit()
    for act in (charge, lambda one: one.statement(terms()), lambda one: one.entries(terms())):
        with pytest.raises(ClusterdpError) as failure:
            act(ledger)
        assert_one_plain_line(failure.value, says, "put the row back")
        assert len(str(failure.value)) < 400


def test_a_ledger_that_states_two_versions_is_told(tmp_path: Path) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    charge(ledger)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as other:
        other.execute("INSERT INTO clusterdp_ledger VALUES (7)")
        other.commit()
    with pytest.raises(ClusterdpError) as failure:
        charge(ledger)
    assert_one_plain_line(failure.value, "states several versions")


def test_a_ledger_without_a_column_is_told(tmp_path: Path) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    charge(ledger)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as other:
        other.execute("ALTER TABLE clusterdp_charges DROP COLUMN host")
    with pytest.raises(ClusterdpError) as failure:
        charge(ledger)
    assert_one_plain_line(failure.value, "no such column", "host")


def test_half_a_ledger_is_told(tmp_path: Path) -> None:
    ledger, file = (
        Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path)),
        tmp_path / "ledger.sqlite",
    )
    for period in ("p", "q", "r"):
        charge(ledger, period)
    file.write_bytes(file.read_bytes()[:9000])
    with pytest.raises(ClusterdpError) as failure:
        charge(ledger, "s")
    assert_one_plain_line(failure.value, "malformed")


NO_LEDGERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "is a pipe, not a file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
    "a folder": (lambda path: path.mkdir(), "is a folder, not a file"),
    "a circle": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
}


@every_act
@pytest.mark.parametrize(("make", "says"), NO_LEDGERS.values(), ids=NO_LEDGERS)
def test_what_is_no_file_is_no_empty_ledger(
    tmp_path: Path, act: Callable[[Ledger], object], make: Callable[[Path], object], says: str
) -> None:
    """Nor is it waited for."""
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    make(tmp_path / "ledger.sqlite")
    with pytest.raises(ClusterdpError) as failure:
        act(ledger)
    assert_one_plain_line(failure.value, "ledger.sqlite", says)


# the server


@every_act
def test_a_server_that_cannot_be_reached_is_told(
    tmp_path: Path, act: Callable[[Ledger], object]
) -> None:
    url = f"postgresql+psycopg://me:{quote(SECRET, safe='')}@/charges?host={tmp_path}"
    with pytest.raises(ClusterdpError) as failure:
        act(Ledger(ledger_url(url, tmp_path)))
    assert_one_plain_line(failure.value, "charges", str(tmp_path), "nothing is released without")
    assert_untold(failure.value, "s3same")


@every_act
def test_a_wrong_password_is_told_but_not_shown(
    postgresql: "PostgreSQL", tmp_path: Path, act: Callable[[Ledger], object]
) -> None:
    with pytest.raises(ClusterdpError) as failure:
        act(Ledger(ledger_url(postgresql.guarded(SECRET), tmp_path)))
    assert_one_plain_line(failure.value, "password authentication failed", "guarded:***@")
    assert_untold(failure.value, "s3same")


def test_a_right_password_opens(postgresql: "PostgreSQL", tmp_path: Path) -> None:
    from tests.postgresql import PASSWORD  # noqa: PLC0415 - see the top

    postgresql.emptied()
    ledger = Ledger(ledger_url(postgresql.guarded(PASSWORD), tmp_path))
    assert ledger.statement(terms()).entries == ()


def test_a_password_is_hidden_wherever_it_stands_in_the_url(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://me@/charges?host={tmp_path}&password={quote(SECRET)}"
    with pytest.raises(ClusterdpError) as failure:
        charge(Ledger(ledger_url(url, tmp_path)))
    assert_untold(failure.value, "s3same")


def test_options_in_the_url_are_heard(postgresql: "PostgreSQL", tmp_path: Path) -> None:
    with_schema = f"{postgresql.emptied()}&options=-csearch_path%3Dprivacy"
    with pytest.raises(ClusterdpError, match="no schema has been selected to create in"):
        charge(Ledger(ledger_url(with_schema, tmp_path)))


def test_a_database_that_is_not_there_is_told(postgresql: "PostgreSQL", tmp_path: Path) -> None:
    url = ledger_url(postgresql.emptied(), tmp_path).set(database="nobodys")
    with pytest.raises(ClusterdpError) as failure:
        charge(Ledger(url))
    assert_one_plain_line(failure.value, "nobodys")


def test_a_server_that_goes_away_in_the_middle_is_told(
    postgresql: "PostgreSQL", tmp_path: Path
) -> None:
    url = ledger_url(postgresql.emptied(), tmp_path)
    charge(Ledger(url))

    def resolve_charge(_: Entry) -> State:
        with Ledger(url).engine.connect() as other:
            other.execute(
                sa.text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
            )
        return State.VOID

    with pytest.raises(ClusterdpError) as failure:
        Ledger(url).reserve(application("q"), resolve_charge)
    assert_one_plain_line(failure.value, "terminating connection", "run again")
    assert states(Ledger(url)) == {"trial.p.r1": RESERVED}  # nothing was settled by half


# its URL


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:///ledger.sqlite", "/etc/trial/ledger.sqlite"),
        ("sqlite:///kept/ledger.sqlite", "/etc/trial/kept/ledger.sqlite"),
        ("sqlite+pysqlite:///ledger.sqlite", "/etc/trial/ledger.sqlite"),
        ("sqlite:////var/lib/ledger.sqlite", "/var/lib/ledger.sqlite"),
        ("sqlite:///~/ledger.sqlite", "/home/me/ledger.sqlite"),
    ],
)
def test_a_file_is_found_from_the_configuration_s_folder(
    url: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    parsed = ledger_url(url, Path("/etc/trial"))
    assert (parsed.drivername, parsed.database) == ("sqlite+pysqlite", file)


@pytest.mark.parametrize(
    "url",
    ["postgresql+psycopg://me:pw@host:5433/db?sslmode=require", "postgresql://me:pw@host:5433/db"],
)
def test_a_server_is_spoken_to_by_the_driver_that_is_there(url: str) -> None:
    parsed = ledger_url(url, Path("/etc/trial"))
    assert parsed.drivername == "postgresql+psycopg"
    assert (parsed.username, parsed.password, parsed.host) == ("me", "pw", "host")
    assert (parsed.port, parsed.database) == (5433, "db")
    assert parsed.query == ({"sslmode": "require"} if "?" in url else {})


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///file:ledger?mode=memory&uri=true",
        "sqlite:///ledger.sqlite?timeout=1",
    ],
)
def test_a_ledger_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^ledger\.url: a SQLite ledger is a plain file"):
        ledger_url(url, Path("/etc/trial"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ledger.sqlite",
        "/var/lib/ledger.sqlite",
        "mysql://me:open-sesame@host/db",
        "duckdb:///ledger.duckdb",
        "postgresql+nonsense://me:open-sesame@host/db",
        "sqlite+nonsense:///ledger.sqlite",
        "postgresql://me:open-sesame@host:port/db",
    ],
)
def test_what_is_no_ledger_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^ledger\.url: not sqlite:///FILE or") as failure:
        ledger_url(url, Path("/etc/trial"))
    assert "sesame" not in str(failure.value)
