"""What became of charges since a backup: whatever happened, all that was published is paid for."""

import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url
from flows.ledger.rules import State
from flows.operate.copies.folder import (
    Backup,
)
from flows.operate.copies.reconcile import Found, Payer, reconcile
from flows.operate.copies.refill import is_there_whole, loaded, refill
from flows.released.checksums import SUMS
from flows.released.file.draft import draft_in
from privatizers.accounting.budget import Budget, total
from schemas.errors import ConfigError, ConflictError, InputError
from schemas.names import ReleaseName
from tests.flows.ledger.people import asked, members, publish, reserve, terms

if TYPE_CHECKING:  # not imported twice, as it is a plug-in
    from tests.postgresql import PostgreSQL

from tests.flows.operate.copies.copied import backed_up, entries, line, put_back, shelf, tally

pytest_plugins = ["tests.postgresql"]

RESERVED, PUBLISHING, PUBLISHED, LOST, VOID = State


# what happened since

VERY, ANOTHER, DRAFT, NO_FILE = "the very file", "another file", "its draft", "no file"
AFTER = {
    # What was only reserved may have been given back, and its name taken by other people's.
    (RESERVED, VERY): ("widened", PUBLISHED, None),
    (RESERVED, ANOTHER): ("widened", PUBLISHED, None),
    (RESERVED, NO_FILE): ("lost", LOST, None),
    (RESERVED, DRAFT): ("lost", LOST, None),
    (PUBLISHING, VERY): ("published", PUBLISHED, "kept"),
    (PUBLISHING, ANOTHER): ("widened", PUBLISHED, None),
    (PUBLISHING, NO_FILE): ("lost", LOST, None),
    (PUBLISHING, DRAFT): (None, PUBLISHING, "kept"),
}


@pytest.mark.parametrize(("state", "file"), AFTER)
def test_a_charge_that_was_open_is_settled_by_its_file(
    tmp_path: Path, releases: Path, other: Callable[[str], Ledger], state: State, file: str
) -> None:
    ledger, of = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path)), terms()
    place = releases / ".draft-of-a-run"
    place.mkdir()
    with ledger.turn(of.population):
        accounts = ledger.accounts(of, members([1, 2]), "a")
        charge = ledger.reserve(asked(of, "a", accounts, draft=place)).charge
    assert charge is not None
    content = b"trial.a.r1 2.0"
    if state == PUBLISHING:
        ledger.begin_publishing(charge, sha256(content).hexdigest())
    backup = backed_up(ledger, tmp_path / "backup")
    if file in (VERY, ANOTHER):
        line(releases, "trial.a.r1", 2.0 if file == VERY else 3.0)
    elif file == DRAFT:
        draft_in(place).write_bytes(content)

    target = other("sqlite")
    found = put_back(backup, target, releases)
    told, after, roster = AFTER[state, file]
    assert found == (Found() if told is None else Found(**{told: ["trial.a.r1"]}))
    (entry,) = entries(target)
    assert entry.state == after
    assert (entry.roster is not None) == (roster is not None)
    assert entry.cost == Budget(3.0 if file == ANOTHER else 2.0)
    if roster is None:  # a later run compares it with nothing, and everybody pays
        assert entry.fingerprint is None
        written = releases / "trial.a.r1.duckdb"
        its_own = sha256(written.read_bytes()).hexdigest() if written.exists() else None
        assert entry.file_sha256 == its_own


def test_a_file_may_be_in_any_folder_of_its_experiment(
    tmp_path: Path, releases: Path, other: Callable[[str], Ledger]
) -> None:
    ledger, of = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path)), terms()
    with ledger.turn(of.population):
        accounts = ledger.accounts(of, members([1]), "a")
        charge = ledger.reserve(asked(of, "a", accounts, draft=releases)).charge
    assert charge is not None
    ledger.begin_publishing(charge, sha256(b"trial.a.r1 2.0").hexdigest())
    backup = backed_up(ledger, tmp_path / "backup")
    line(releases, "trial.a.r1")
    (tmp_path / "second").mkdir()
    for folders in ((releases, tmp_path / "second"), (tmp_path / "second", releases)):
        payers = [Payer(shelf(folder), "people", Budget(2.0)) for folder in folders]
        with loaded(backup) as source:
            assert reconcile(source, payers, []) == Found(published=["trial.a.r1"])


def test_a_file_that_claims_less_than_was_charged_does_not_lower_the_charge(
    tmp_path: Path, releases: Path, other: Callable[[str], Ledger]
) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    reserve(ledger, terms(), "a", members([1]))
    backup = backed_up(ledger, tmp_path / "backup")
    line(releases, "trial.a.r1", 0.5)
    target = other("sqlite")
    put_back(backup, target, releases)
    assert entries(target)[0].cost == Budget(2.0)


def test_what_was_published_since_is_charged_to_everybody(
    backup: Backup, releases: Path, other: Callable[[str], Ledger]
) -> None:
    line(releases, "trial.a.r1")
    line(releases, "trial.a.r2", 3.0)
    line(releases, "trial.b.r1", 0.25)
    target = other("sqlite")
    found = put_back(backup, target, releases)
    assert found == Found(entered=["trial.a.r2", "trial.b.r1"])
    with target.turn("people"):
        accounts = target.accounts(terms(), members([1, 999]), "c")
    assert accounts.everybody == Budget(3.25)
    assert target.statement(terms()).spent == Budget(5.25)


def test_a_stray_file_that_is_no_release_stops_it(
    backup: Backup, releases: Path, other: Callable[[str], Ledger]
) -> None:
    line(releases, "trial.b.r1").rename(releases / "trial.c.r1.duckdb")
    target = other("sqlite")
    with pytest.raises(InputError, match=r"trial\.c\.r1\.duckdb: says that it is trial\.b\.r1"):
        put_back(backup, target, releases)
    with target.reading() as connection:
        assert connection is None


def test_what_a_person_knows_to_be_lost_is_charged(
    backup: Backup, releases: Path, other: Callable[[str], Ledger]
) -> None:
    lost = [ReleaseName("trial", period, 1) for period in ("a", "b", "c")]
    line(releases, "trial.c.r1")
    target = other("sqlite")
    found = put_back(backup, target, releases, lost, cost=7.0)
    # a was charged and c is there
    assert found == Found(entered=["trial.c.r1"], lost=["trial.b.r1"], without_file=["trial.a.r1"])
    of_b = next(one for one in entries(target) if one.name.period == "b")
    assert (of_b.state, of_b.cost, of_b.roster) == (LOST, Budget(7.0), None)


def test_what_is_of_no_experiment_cannot_be_lost(
    backup: Backup, releases: Path, other: Callable[[str], Ledger]
) -> None:
    with pytest.raises(ConfigError, match="of no experiment"):
        put_back(backup, other("sqlite"), releases, [ReleaseName("winter", "b", 1)])


def test_a_list_that_names_a_file_that_is_gone_stops_it_until_that_is_charged(
    backup: Backup, releases: Path, other: Callable[[str], Ledger]
) -> None:
    names = ("trial.a.r1.duckdb", "trial.b.r1.duckdb")
    (releases / SUMS).write_text("".join(f"{'0' * 64}  {name}\n" for name in names))
    target = other("sqlite")
    with pytest.raises(InputError, match=r"--lost trial\.b\.r1"):
        put_back(backup, target, releases)
    found = put_back(backup, target, releases, [ReleaseName("trial", "b", 1)])
    assert found.lost == ["trial.b.r1"]


# a ledger that is there


def test_a_ledger_that_knows_less_is_not_overwritten(
    backup: Backup, releases: Path, ledger: Ledger
) -> None:
    publish(ledger, terms(), "b", members([1]))
    before = entries(ledger)
    with loaded(backup) as source:
        with pytest.raises(ConflictError, match=r"lacks 'trial\.a\.r1' 2.*Move it away"):
            is_there_whole(ledger, backup, source)
        with pytest.raises(ConflictError, match="made it meanwhile"):
            refill(ledger, backup, source)
    assert entries(ledger) == before


def test_a_ledger_where_the_same_costs_less_knows_less(backup: Backup, ledger: Ledger) -> None:
    publish(ledger, terms(cost=1.0), "a", members(range(9)))
    with loaded(backup) as source, pytest.raises(ConflictError, match=r"lacks 'trial\.a\.r1'"):
        is_there_whole(ledger, backup, source)


def test_a_ledger_that_knows_as_much_stays_and_gets_back_the_lists_it_has_lost(
    tmp_path: Path, backup: Backup
) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    publish(ledger, terms(), "b", members([1]))
    before, known = entries(ledger), tally(ledger, terms())
    folder = tmp_path / "ledger.sqlite.accounts"
    for path in (*folder.glob("*-1"), *folder.glob("*-*-*")):
        path.unlink()
    assert tally(ledger, terms()).lost == {1}
    with loaded(backup) as source:
        assert is_there_whole(ledger, backup, source)
    assert entries(ledger) == before
    assert tally(ledger, terms()) == known
    assert known.lost == frozenset()


def test_a_charge_that_was_open_is_nothing_that_a_living_ledger_can_lack(tmp_path: Path) -> None:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    charge = reserve(ledger, terms(), "a", members([1])).charge
    assert charge is not None
    backup = backed_up(ledger, tmp_path / "backup")
    ledger.give_back(charge)
    with loaded(backup) as source:
        assert is_there_whole(ledger, backup, source)


def test_a_ledger_in_which_nothing_was_charged_is_filled(
    backup: Backup, releases: Path, ledger: Ledger
) -> None:
    with ledger.alone():
        pass
    put_back(backup, ledger, releases)
    assert [one.name.release_id for one in entries(ledger)] == ["trial.a.r1"]


def test_a_new_charge_on_a_server_has_no_number_of_one_that_was_made_since(
    postgresql: "PostgreSQL", backup: Backup, releases: Path, tmp_path: Path
) -> None:
    """A run of another machine that was charged since the backup moves no charge but its own."""
    target = Ledger(ledger_url(postgresql.emptied(), tmp_path))
    put_back(backup, target, releases)
    charge = reserve(target, terms(), "b", members([1])).charge
    assert charge is not None
    assert charge > 1_000_000
    with pytest.raises(Exception, match="given back"):
        target.begin_publishing(2)


# any run at any moment


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_before_and_after_a_backup_all_that_was_published_is_paid_for(
    tmp_path: Path, releases: Path, other: Callable[[str], Ledger], seed: int
) -> None:
    """Runs that are born, killed and finished in any order; files that are lost are told."""
    draw = random.Random(seed)  # noqa: S311 - which nights fail is no secret
    world = World(Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path)), releases, draw)
    n_acts, backup = draw.randrange(5, 25), None
    when = draw.randrange(1, n_acts)
    for act in range(n_acts):
        if act == when:
            backup = backed_up(world.ledger, tmp_path / "backup")
        world.act()
    assert backup is not None
    seen = dict(world.seen)  # by whom is anybody's guess
    gone = [name for name in seen if draw.random() < 0.3]
    for name in gone:
        shelf(releases).path_of(name).unlink()

    target = other("sqlite")
    put_back(backup, target, releases, gone)
    charged = {one.name: one.cost for one in entries(target) if one.counts}
    for name, (cost, people) in seen.items():
        assert name in charged
        assert cost.fits_into(charged[name]), (name, people)
    for person in range(World.PEOPLE):
        owed = total(cost for cost, people in seen.values() if person in people)
        with target.turn("people"):
            accounts = target.accounts(terms(), members([person]), "later")
        (paid,) = accounts.paid(accounts.codes).values()
        assert owed.fits_into(accounts.everybody + paid), person


class World:
    """Runs on one ledger, each at some step, and what was ever public."""

    PEOPLE = 6

    def __init__(self, ledger: Ledger, releases: Path, draw: random.Random) -> None:
        self.ledger, self.releases, self.draw = ledger, releases, draw
        self.at: dict[int, tuple[ReleaseName, Budget, frozenset[int], str]] = {}
        self.seen: dict[ReleaseName, tuple[Budget, frozenset[int]]] = {}

    def act(self) -> None:
        """Let a run begin, or one of those at work go on."""
        if not self.at or self.draw.random() < 0.4:
            self.begin()
        else:
            self.go_on(self.draw.choice(sorted(self.at)))

    def begin(self) -> None:
        people = frozenset(self.draw.sample(range(self.PEOPLE), self.draw.randrange(1, 5)))
        of = terms(cost=self.draw.choice([0.5, 1.0, 2.0]))
        period = f"p{self.draw.randrange(4)}"
        try:
            grant = reserve(self.ledger, of, period, members(sorted(people)), revise=True)
        except ConflictError:  # the period is being released
            return
        assert grant.charge is not None
        self.at[grant.charge] = (grant.decision.name, of.cost, people, "reserved")

    def go_on(self, charge: int) -> None:
        name, cost, people, step = self.at[charge]
        content = f"{name.release_id} {cost.epsilon}"
        if step == "reserved":
            if self.draw.random() < 0.3:
                self.ledger.give_back(charge)
                del self.at[charge]
                return
            self.ledger.begin_publishing(charge, sha256(content.encode()).hexdigest())
            self.at[charge] = (name, cost, people, "publishing")
        elif step == "publishing":
            if self.draw.random() < 0.2:
                self.ledger.withdraw(charge)
                del self.at[charge]
                return
            shelf(self.releases).path_of(name).write_text(content)
            self.seen[name] = (cost, people)
            self.at[charge] = (name, cost, people, "public")
        else:
            self.ledger.publish(charge)
            del self.at[charge]
