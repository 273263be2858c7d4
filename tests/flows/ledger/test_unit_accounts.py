"""Accounts by unit: each pays for the releases it is in, whatever happens to the ledger's files."""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from flows.cli.night.ledger import ledger_text
from flows.config.model.declared import Terms
from flows.ledger.database import Ledger
from flows.ledger.members import Members
from flows.ledger.migrations import VERSION
from flows.ledger.place import ledger_url
from flows.ledger.rules import ChargeRequest, Fingerprint
from flows.ledger.tables import CHARGES, METADATA, REGISTERS, SINCE, VERSION_TABLE
from flows.ledger.units import accounts as unit_accounts
from flows.ledger.units.registers import prefix_of
from flows.ledger.units.turn import turn_by_file
from privatizers.accounting.budget import Budget, of_group
from privatizers.accounting.histories import cost_of
from schemas.errors import BudgetError, ConfigError, ConflictError, InputError
from tests.conftest import Builder
from tests.flows.ledger.people import HERE, ByHand, asked, members, publish, reserve, terms
from tests.support.modes import mode

pytest_plugins = ["tests.postgresql"]


@pytest.fixture
def filed(tmp_path: Path) -> Ledger:
    """A ledger in SQLite, whose registers are files."""
    return Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))


def amounts_of(ledger: Ledger) -> Counter[Budget]:
    """How many have paid how much, by the ledger."""
    counted = ledger.statement(terms(), exact=True).tally
    assert counted is not None
    found: Counter[Budget] = Counter()
    for history, n in counted.histories.items():
        found[cost_of(history)] += n
    return found


# who pays


@pytest.mark.release
def test_forty_nights_of_new_people_cost_each_of_them_one(ledger: Ledger) -> None:
    of = terms(limit=2.0)
    for night in range(40):
        grant = publish(ledger, of, f"n{night:02d}", members(range(night * 75, night * 75 + 75)))
        assert grant.statement.spent == Budget(2.0)
    statement = ledger.statement(of, exact=True)
    assert statement.tally is not None
    assert (statement.tally.n_units, statement.spent) == (3000, Budget(2.0))
    with pytest.raises(BudgetError, match="which 1 of its 3 units cannot pay"):
        reserve(ledger, of, "more", members([5000, 17, 5001]))


@pytest.mark.release
def test_people_who_come_back_have_paid_what_is_recounted_by_hand(ledger: Ledger) -> None:
    random = np.random.default_rng(4)
    by_hand, costs = ByHand(), (Budget(0.1), Budget(0.3, 1e-6))
    for night in range(25):
        people = random.choice(400, int(random.integers(1, 300)), replace=False).tolist()
        cost, name = costs[night % 2], ("trial", "another")[night % 2]
        publish(ledger, terms(name, cost), f"n{night}", members(people, name))
        by_hand.charge(people, cost)
    assert amounts_of(ledger) == by_hand.amounts()
    assert ledger.statement(terms(), exact=True).spent == by_hand.most()
    assert ledger.statement(terms()).spent == by_hand.most()


def test_a_release_costs_the_unit_that_has_paid_most_what_it_has_left(ledger: Ledger) -> None:
    publish(ledger, terms(cost=1.5), "a", members(range(10)))
    publish(ledger, terms(cost=0.5), "b", members(range(8, 30)))
    publish(ledger, terms(cost=1.0, limit=3.0), "c", members([8, 9]))
    publish(ledger, terms(cost=2.5, limit=3.0), "d", members(range(10, 30)))
    with pytest.raises(BudgetError) as refused:
        reserve(ledger, terms(cost=0.5, limit=3.0), "e", members(range(5, 40)))
    told = str(refused.value)
    assert "costs epsilon 0.5, which 22 of its 35 units cannot pay" in told
    assert "of the 3 that each of population 'people' may pay, 0 is left to one of them" in told
    assert "trial.a.r1 1.5 (2 of them), trial.b.r1 0.5 (22 of them)" in told
    assert "trial.c.r1 1 (2 of them), trial.d.r1 2.5 (20 of them)" in told
    assert reserve(ledger, terms(cost=0.5, limit=3.0), "e", members(range(8))).charge


def test_delta_has_accounts_of_its_own(ledger: Ledger) -> None:
    limit = Budget(10.0, 1.5e-6)
    publish(ledger, terms(cost=Budget(1.0, 1e-6), limit=limit), "a", members(range(3)))
    publish(ledger, terms(cost=Budget(1.0, 1e-6), limit=limit), "b", members(range(3, 6)))
    with pytest.raises(BudgetError, match=r"costs delta 1e-06, which 1 of its 2 units.*5e-07 is l"):
        reserve(ledger, terms(cost=Budget(1.0, 1e-6), limit=limit), "c", members([2, 7]))


def test_a_charge_that_is_given_back_was_never_paid(ledger: Ledger) -> None:
    of = terms(limit=2.0)
    grant = reserve(ledger, of, "a", members(range(9)))
    with pytest.raises(BudgetError):
        reserve(ledger, of, "b", members(range(9)))
    assert grant.charge is not None
    ledger.give_back(grant.charge)
    publish(ledger, of, "b", members(range(9)))
    assert amounts_of(ledger) == {Budget(2.0): 9}


def test_releases_without_a_register_count_for_everybody(ledger: Ledger) -> None:
    of = terms(limit=5.0)
    publish(ledger, of, "a", members(range(9)))
    by_everybody = Terms("trial", "people", Budget(2.0), Budget(5.0, float("inf")))
    ledger.reserve(ChargeRequest(by_everybody, "x", Fingerprint("k:r", "k:u", "k:s"), HERE, None))
    assert ledger.statement(of).spent == ledger.statement(of, exact=True).spent == Budget(4.0)
    with pytest.raises(BudgetError, match=r"which 9 of its 20 units.*, 1 is left to one of them"):
        reserve(ledger, of, "b", members(range(20)))
    publish(ledger, of, "b", members(range(9, 20)))
    counted = ledger.statement(of, exact=True).tally
    assert counted is not None
    assert (counted.n_units, counted.most, counted.median_epsilon) == (20, Budget(4.0), 4.0)


def test_a_population_that_pays_together_counts_every_release(ledger: Ledger) -> None:
    for night in range(3):
        publish(ledger, terms(), f"n{night}", members(range(night * 9, night * 9 + 9)))
    together = Terms("trial", "people", Budget(2.0), Budget(7.0, float("inf")))
    made_from = Fingerprint("k:r", "k:u", "k:s")
    with pytest.raises(BudgetError, match=r"costs epsilon 2, and of the 7 .* 1 is left"):
        ledger.reserve(ChargeRequest(together, "x", made_from, HERE, None))


def test_a_revision_charges_its_people_again(ledger: Ledger) -> None:
    of = terms(limit=4.0)
    publish(ledger, of, "a", members(range(5)))
    publish(ledger, of, "a", members(range(6)), revise=True)
    assert amounts_of(ledger) == {Budget(4.0): 5, Budget(2.0): 1}
    with pytest.raises(BudgetError, match="5 of its 6"):
        reserve(ledger, of, "a", members(range(6)), revise=True)


# units that were released before


def test_who_was_released_before_is_known_by_experiment_and_not_of_the_own_period(
    ledger: Ledger,
) -> None:
    publish(ledger, terms("trial"), "a", members([1, 2, 3], arms=[0, 0, 1]))
    publish(ledger, terms("another"), "b", members([3, 4, 5], "another"))
    publish(ledger, terms("trial"), "c", members([2, 6], arms=[0, 0]))
    people = members([1, 2, 3, 4, 6, 7], arms=[0, 1, 0, 1, 0, 1])
    with ledger.turn("people"):
        of_new = ledger.accounts(terms("trial"), people, "d")
        of_a = ledger.accounts(terms("trial"), people, "a")
    assert of_new.of_rows(of_new.released_before).tolist() == [True, True, True, False, True, False]
    assert of_new.n_arm_changed == 2
    assert of_a.of_rows(of_a.released_before).tolist() == [False, True, False, False, True, False]
    assert of_a.n_arm_changed == 1


def test_nobody_is_set_aside_for_a_release_that_may_never_be(ledger: Ledger) -> None:
    of = terms(once=True)
    grant = reserve(ledger, of, "a", members(range(3)))
    with pytest.raises(ConflictError, match=r"trial\.a\.r1 is being released by another run"):
        reserve(ledger, of, "b", members(range(3, 6)))
    assert grant.charge is not None
    ledger.give_back(grant.charge)
    reserve(ledger, of, "b", members(range(3, 6)))


def test_accounts_that_changed_since_they_were_read_are_not_charged(ledger: Ledger) -> None:
    of = terms(once=True)
    other = reserve(ledger, terms("another"), "x", members([1], "another"))
    with ledger.turn("people"):
        accounts = ledger.accounts(of, members(range(3)), "a")
    assert other.charge is not None
    ledger.give_back(other.charge)
    with pytest.raises(ConflictError, match="changed while its accounts were read"):
        ledger.reserve(asked(of, "a", accounts))
    with ledger.turn("people"):
        accounts = ledger.accounts(terms(), members(range(3)), "a")
    reserve(ledger, terms("another"), "y", members([1], "another"))
    with pytest.raises(ConflictError, match="changed while its accounts were read"):
        ledger.reserve(asked(terms(), "a", accounts))


# keys


def test_another_key_is_refused(ledger: Ledger) -> None:
    publish(ledger, terms(), "a", members(range(3)))
    with pytest.raises(ConfigError, match=r"ledger\.key_file: is not the key"):
        reserve(ledger, terms(), "b", members(range(3), secret=b"t" * 32))
    assert [entry.name.period for entry in ledger.statement(terms()).entries] == ["a"]


def test_a_register_under_another_key_counts_for_everybody(filed: Ledger, tmp_path: Path) -> None:
    publish(filed, terms(), "a", members(range(3)))
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as other:
        other.execute("UPDATE clusterdp_registers SET key_fingerprint = 'x'")
        other.commit()
    with filed.turn("people"):
        accounts = filed.accounts(terms(), members([77]), "b")
    assert accounts.everybody == Budget(2.0)
    assert "another key (trial.a.r1)" in accounts.warnings[0]


def test_registers_tell_nothing_without_the_key(filed: Ledger, tmp_path: Path) -> None:
    """Somebody who has the files and knows every id finds as many of them as by chance: none."""
    publish(filed, terms(), "a", members(range(2000)))
    folder = tmp_path / "ledger.sqlite.accounts"
    (register,) = folder.glob("*-1")
    words = np.fromfile(register, np.uint64) >> np.uint64(12)
    for secret in (b"", b"\0" * 32, b"t" * 32):
        guessed = members(range(2000), secret=secret.ljust(32, b"\0")).words >> np.uint64(12)
        assert not np.isin(guessed, words).any()
    plain = [hashlib.sha256(str(i).encode()).digest()[:8] for i in range(2000)]
    assert not np.isin(np.frombuffer(b"".join(plain), np.uint64) >> np.uint64(12), words).any()
    known = members(range(2000)).words >> np.uint64(12)
    assert np.isin(known, words).all()  # with it they do: the test can fail
    assert mode(register) == 0o600
    assert mode(folder) == 0o700


# what is lost


def registers(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{prefix_of('people')}-*"))


def _made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-8]),
    "cut within a word": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0" * 8),
    "a bit flipped": lambda path: path.write_bytes(
        bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]
    ),
    "a folder": _made_a_folder,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_register_that_is_damaged_counts_for_everybody(
    filed: Ledger, tmp_path: Path, damage: str
) -> None:
    reserve(filed, terms(), "a", members(range(3)))
    publish(filed, terms(), "b", members(range(3, 6)))
    DAMAGES[damage](registers(tmp_path / "ledger.sqlite.accounts")[0])
    with filed.turn("people"):
        accounts = filed.accounts(terms(), members([77]), "c")
    assert accounts.everybody == Budget(2.0)
    assert accounts.lost == {1}
    assert "trial.a.r1" in accounts.warnings[0]
    with pytest.raises(BudgetError, match=r"which 1 of its 1 units.*1 is left"):
        reserve(filed, terms(limit=3.0), "c", members([77]))
    publish(filed, terms(), "c", members([77]))
    statement = filed.statement(terms(), exact=True)
    assert statement.spent == Budget(4.0)
    assert statement.tally is not None
    assert statement.tally.lost == {1}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_sum_that_is_damaged_is_done_without(filed: Ledger, tmp_path: Path, damage: str) -> None:
    by_hand = ByHand()
    for night in range(4):
        publish(filed, terms(), f"n{night}", members(range(night, night + 30)))
        by_hand.charge(range(night, night + 30), Budget(2.0))
    (added,) = [
        path for path in registers(tmp_path / "ledger.sqlite.accounts") if path.name.count("-") == 2
    ]
    DAMAGES[damage](added)
    with filed.turn("people"):
        accounts = filed.accounts(terms(), members(range(40)), "x")
    assert accounts.lost == frozenset()
    paid = [cost_of(accounts.histories[code]) for code in accounts.codes.tolist()]
    there = [cost for cost in paid if cost != Budget()]
    assert Counter(there) == by_hand.amounts()
    assert amounts_of(filed) == by_hand.amounts()


def test_a_row_of_a_register_that_was_altered_counts_for_everybody(
    filed: Ledger, tmp_path: Path
) -> None:
    for column, value in (("histories", "'[]'"), ("checksum", "'x'"), ("n_words", "2")):
        publish(filed, terms(), f"p-{column}".replace("_", "-"), members(range(3)))
        with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as other:
            other.execute(
                f"UPDATE clusterdp_registers SET {column} = {value} WHERE charges IS NULL"
            )
            other.execute("DELETE FROM clusterdp_registers WHERE charges IS NOT NULL")
            other.commit()
        with filed.turn("people"):
            accounts = filed.accounts(terms(), members([77]), "new")
        assert accounts.everybody.epsilon == 2.0 * len(accounts.lost) > 0.0


# sums


@pytest.mark.release
def test_a_night_reads_few_registers_however_many_there_were(filed: Ledger, tmp_path: Path) -> None:
    for night in range(40):
        publish(filed, terms(), f"n{night}", members(range(night * 20, night * 20 + 20)))
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as other:
        sums = other.execute(
            "SELECT charges, n_words FROM clusterdp_registers WHERE charges IS NOT NULL"
        ).fetchall()
    covered = [charge for charges, _ in sums for charge in json.loads(charges)]
    assert len(covered) == len(set(covered)) >= 38
    assert len(sums) <= 6  # log₂ 40
    assert sum(n for _, n in sums) == 20 * len(covered)


def test_what_a_killed_run_left_of_a_register_is_removed(filed: Ledger, tmp_path: Path) -> None:
    publish(filed, terms(), "a", members(range(3)))
    folder = tmp_path / "ledger.sqlite.accounts"
    stray, other = folder / f"{prefix_of('people')}-99", folder / f"{prefix_of('others')}-3"
    for path in (stray, other):
        path.write_bytes(b"half of a word")
    publish(filed, terms(), "b", members(range(3)))
    assert not stray.exists()
    assert other.exists()  # of another population, whose turn it may be


def test_more_histories_than_a_sum_holds_stay_apart(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privatizers.accounting.histories.MOST_HISTORIES", 2)
    by_hand = ByHand()
    for night in range(5):
        publish(ledger, terms(), f"n{night}", members(range(night, night + 30)))
        by_hand.charge(range(night, night + 30), Budget(2.0))
    assert amounts_of(ledger) == by_hand.amounts()


def test_a_sum_that_fails_changes_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("it fails")

    publish(ledger, terms(), "a", members(range(30)))
    with monkeypatch.context() as broken:
        broken.setattr(unit_accounts, "new_register", fails)
        with pytest.raises(OSError, match="it fails"):
            publish(ledger, terms(), "b", members(range(30)))
    assert amounts_of(ledger) == {Budget(4.0): 30}
    publish(ledger, terms(), "c", members(range(30)))
    assert amounts_of(ledger) == {Budget(6.0): 30}


def test_a_run_that_is_public_stays_so_where_the_ledger_goes_away_before_its_sum(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are made once all is done, in a turn of their own: they save time and nothing else."""
    built = experiment(privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "none"})
    turn, turns = turn_by_file, list[str]()

    def at_first(folder: Path, population: str) -> AbstractContextManager[None]:
        turns.append(population)
        if len(turns) % 2 == 0:
            raise sa.exc.OperationalError("", {}, sqlite3.OperationalError("the line was cut"))
        return turn(folder, population)

    with monkeypatch.context() as cut:
        cut.setattr("flows.ledger.database.turn_by_file", at_first)
        assert [built.run(period).status for period in ("a", "b")] == ["published"] * 2
    assert len(turns) == 4
    assert built.run("a").status == "unchanged"


# ledgers of version 1


def as_version_1(url: sa.URL) -> None:
    """Take a ledger back to what version 1 made."""
    engine = sa.create_engine(url)
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("DROP INDEX ix_clusterdp_charges_roster")
        for name in SINCE:
            connection.exec_driver_sql(f"ALTER TABLE {CHARGES.name} DROP COLUMN {name}")
        for table in set(METADATA.tables) - {CHARGES.name, VERSION_TABLE.name}:
            connection.exec_driver_sql(f"DROP TABLE {table}")
        connection.execute(sa.update(VERSION_TABLE).values(version=1))
    engine.dispose()


def test_a_ledger_of_version_1_is_read_as_it_is_and_brought_up_to_date(
    ledger: Ledger, url: sa.URL
) -> None:
    together = Terms("trial", "people", Budget(2.0), Budget(5.0, float("inf")))
    made_from = Fingerprint("k:r", "k:u", "k:s")
    ledger.reserve(ChargeRequest(together, "old", made_from, HERE, None))
    as_version_1(url)
    before = ledger.statement(together)
    assert before.spent == Budget(2.0)
    assert ledger.statement(terms(), exact=True).tally is None
    assert version_of(url) == 1  # reading changes nothing
    of = terms(limit=5.0)
    publish(ledger, of, "new", members(range(4)))
    assert version_of(url) == VERSION
    assert ledger.statement(of).spent == Budget(4.0)
    assert ledger.statement(of).entries[0] == before.entries[0]
    with pytest.raises(BudgetError, match="4 of its 5"):
        reserve(ledger, of, "more", members(range(5)))
    engine = sa.create_engine(url)
    found = {column["name"] for column in sa.inspect(engine).get_columns(CHARGES.name)}
    indexes = {index["name"] for index in sa.inspect(engine).get_indexes(CHARGES.name)}
    engine.dispose()
    assert found == set(CHARGES.c.keys())
    assert {index.name for index in CHARGES.indexes} <= indexes


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(
    ledger: Ledger, url: sa.URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Terms("trial", "people", Budget(2.0), Budget(5.0, float("inf")))
    made_from = Fingerprint("k:r", "k:u", "k:s")
    ledger.reserve(ChargeRequest(together, "old", made_from, HERE, None))
    as_version_1(url)

    def half(_: sa.Connection) -> None:
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr("flows.ledger.migrations.older_attempts", half)  # columns are there by then
        with pytest.raises(RuntimeError):
            reserve(ledger, terms(), "new", members(range(3)))
    assert version_of(url) == 1
    publish(ledger, terms(), "new", members(range(3)))
    assert version_of(url) == VERSION


def version_of(url: sa.URL) -> int:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.execute(sa.select(VERSION_TABLE.c.version)).scalar_one()
    engine.dispose()
    return int(found)


# digests that two share


def test_units_with_one_digest_pay_together(filed: Ledger) -> None:
    one, two = members([1]), members([2])
    twin = Members(two.digests.copy(), two.arms, two.experiment, two.arm_names, two.key_fingerprint)
    twin.digests[:] = (one.digests & ~np.uint64(0xFFF)) | np.uint64(5)
    publish(filed, terms(), "a", one)
    with pytest.raises(BudgetError):
        reserve(filed, terms(limit=3.0), "b", twin)
    both = Members(
        np.concatenate([one.digests, twin.digests]),
        np.array([0, 1], dtype=np.uint16),
        one.experiment,
        one.arm_names,
        one.key_fingerprint,
    )
    assert len(both.words) == 1
    assert both.place.tolist() == [0, 0]


# rows that are one unit's, and registers of several forms


def test_rows_of_one_unit_are_each_charged(filed: Ledger) -> None:
    of = terms(cost=Budget(1.0, 1e-6), limit=Budget(3.0, 1.0))
    night = members([1, 1, 2, 3, 3, 3, 4])
    assert (night.n_rows.tolist().count(1), night.most_paid) == (2, 3)
    publish(filed, of, "a", night)
    prices = [of_group(of.cost, n) for n in (1, 2, 3)]
    assert prices[2].delta > 3e-6  # of a group, it is more than the sum
    assert amounts_of(filed) == Counter({prices[0]: 2, prices[1]: 1, prices[2]: 1})
    statement = filed.statement(of)
    assert statement.spent == prices[2]
    with pytest.raises(BudgetError, match="which 1 of its 2 units cannot pay"):
        reserve(filed, of, "b", members([2, 3]))
    with pytest.raises(BudgetError, match=r"costs epsilon 1 \(4 for 4 rows whose ids are one\)"):
        reserve(filed, of, "c", members([9, 9, 9, 9]))
    with filed.turn("people"):
        accounts = filed.accounts(of, members([1, 4, 4, 4, 2]), "d")
    short = accounts.cannot_pay(accounts.everybody, of.cost, of.limit, accounts.codes)
    assert accounts.of_rows(short).tolist() == [False, True, True, True, False]
    left = accounts.kept(~accounts.of_rows(short))
    assert (left.members.most_paid, left.most(of.cost)) == (1, prices[1] + of.cost)


def test_a_household_pays_once_for_its_rows(filed: Ledger) -> None:
    home = replace(members([1, 1, 1, 2]), by_household=True)
    assert (home.most_paid, home.n_rows.max()) == (1, 3)
    publish(filed, terms(cost=2.0, limit=2.0), "a", home)
    assert amounts_of(filed) == Counter({Budget(2.0): 2})


def test_too_many_ways_to_have_rows_are_refused() -> None:
    n_rows = np.arange(2, 4100)
    with pytest.raises(InputError, match=r"source.ids: the ids of 4,098 unit\(s\)"):
        _ = Members(
            np.repeat(n_rows.astype(np.uint64) << np.uint64(12), n_rows),
            np.zeros(n_rows.sum(), dtype=np.uint16),
            "trial",
            ("none",),
            "f",
        ).words


def test_registers_of_another_form_are_read_by_what_rows_were_then(filed: Ledger) -> None:
    """Person 2 had two spellings, on the nights a and b; tonight both are one digest."""
    old, now = b"o" * 32, b"n" * 32
    earlier = replace(members([1, 2, 3], secret=old), ids="exact")
    publish(filed, terms(), "a", replace(earlier, key_fingerprint="f"))
    earlier = replace(members([20, 4], secret=old), ids="exact")
    publish(filed, terms(), "b", replace(earlier, key_fingerprint="f"))
    tonight = [1, 2, 2, 4, 5]
    spelt = tuple(members(then, secret=old).digests for then in ([1, 2, 20, 4, 5], [1, 2, 2, 4, 5]))
    people = replace(members(tonight, secret=now), key_fingerprint="f", others={})
    known = replace(people, others={earlier.mark.replace(earlier.key_fingerprint, "f"): spelt})
    with filed.turn("people"):
        accounts = filed.accounts(terms(), known, "c")
        paid = accounts.paid(accounts.codes)
        by_row = [paid[code].epsilon for code in accounts.codes[known.place].tolist()]
        assert by_row == [2.0, 4.0, 4.0, 2.0, 0.0]
        assert accounts.met == (3, 4)
        nobody = filed.accounts(terms(), people, "c")
        assert nobody.lost == {1, 2}
        assert nobody.everybody == Budget(4.0)  # never less than was spent
    publish(filed, terms(), "c", known)
    statement = filed.statement(terms(), exact=True)
    assert statement.spent == Budget(8.0)  # 2 and 20: 4, and two rows tonight
    assert statement.tally_json() == {"median_epsilon": None, "n_units": None}


def test_a_night_in_which_nobody_comes_back_unlike_before_is_told(filed: Ledger) -> None:
    told = []
    for night, people in enumerate([range(60), range(40, 100), range(80, 140), range(200, 260)]):
        with filed.turn("people"):
            told.append(filed.accounts(terms(), members(people), f"n{night}").warnings)
        publish(filed, terms(), f"n{night}", members(people))
    assert told[:3] == [(), (), ()]
    (warning,) = told[3]
    assert "none of the 60 units was released before" in warning
    assert "last 2 release(s) at least 33 % were" in warning
    with filed.turn("people"):  # as few as may have nobody by chance
        assert filed.accounts(terms(), members(range(300, 320)), "n4").warnings == ()


def test_where_all_lists_are_lost_everybody_pays(filed: Ledger) -> None:
    for night in "ab":
        publish(filed, terms(), night, members([1, 2, 3]))
    assert filed._folder is not None
    for path in filed._folder.glob("*-*"):
        path.unlink()
    statement = filed.statement(terms(), exact=True)
    assert statement.spent == Budget(4.0)
    assert statement.tally_json() == {"median_epsilon": None, "n_units": None}
    assert "the lists of 2 release(s) are lost: everybody pays" in ledger_text(statement, ())


def test_everything_a_ledger_has_is_in_its_tables() -> None:
    assert {CHARGES.name, REGISTERS.name} <= set(METADATA.tables)
