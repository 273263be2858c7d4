"""Arms that were given to households: what is set aside, what is published, and what is asked."""

import numpy as np
import polars as pl
import pytest

from flows.ledger.place import ledger_place
from flows.ledger.units.account_key import read_account_key
from flows.raw.units.account_digests import digests_of_ids
from flows.raw.units.assignment import released_groups
from flows.released.file.read import read_release
from schemas.errors import InputError
from schemas.raw import ASSIGNED_ARMS
from tests.conftest import Builder, Experiment, Section, a_log, released

HOMES: Section = {"assigned_by": "home"}


def households(first: int = 0, last: int = 60, *, members: int = 3) -> pl.DataFrame:
    """Households of so many members, each household in one arm."""
    people = [(home, member) for home in range(first, last) for member in range(members)]
    return pl.DataFrame(
        {
            "customer": [f"c{home:03d}-{member}" for home, member in people],
            "home": [f"h{home}" for home, _ in people],
            "variant": [("none", "mail")[home % 2] for home, _ in people],
            "region": [("east", "west")[home // 2 % 2] for home, _ in people],
            "clicks": [float(member % 3) for _, member in people],
        }
    )


def groups(built: Experiment, period: str = "once") -> dict[str, int]:
    """The published group of each unit."""
    units = released(built.releases / f"trial.{period}.r1.duckdb", "units")
    return dict(units.select("unit_id", "assigned_to").iter_rows())


def test_units_of_a_household_have_one_digest_which_is_no_accounts(experiment: Builder) -> None:
    built = experiment(households(), columns=HOMES)
    path = built.run().path
    found = groups(built)
    homes = {unit: unit.split("-")[0] for unit in found}
    assert len({(homes[unit], digest) for unit, digest in found.items()}) == 60
    assert len(set(found.values())) == 60
    manifest = read_release(path).manifest
    assert (manifest.attributes, manifest.assigned) == ((), True)
    assert released(path, "SELECT * FROM units LIMIT 1").columns[-1] == "assigned_to"
    assert built.run().status == "unchanged"


def test_digests_cannot_be_matched_with_the_accounts(experiment: Builder) -> None:
    columns = {**HOMES, "privacy_unit": "home"}
    built = experiment(households(), columns=columns, privacy={"rows_each": 3})
    built.run()
    homes = pl.Series([f"h{home}" for home in range(60)])
    config = built.load()
    accounts = digests_of_ids(
        read_account_key(ledger_place(config), config.terms, begun=True).secret, homes
    )
    assert not set(accounts.tolist()) & set(groups(built).values())


@pytest.mark.parametrize("account", ["unit", "population"])
def test_a_household_has_the_same_digest_every_night(experiment: Builder, account: str) -> None:
    logs = {"n1.parquet": households(0, 40), "n2.parquet": households(20, 60)}
    source = {"path": "{period}.parquet"}
    built = experiment(logs, source=source, columns=HOMES, privacy={"account": account})
    built.run("n1")
    assert (built.folder / "account.key").stat().st_mode & 0o777 == 0o600
    built.run("n2")
    first, second = groups(built, "n1"), groups(built, "n2")
    both = first.keys() & second.keys()
    assert len(both) == 60
    assert all(first[unit] == second[unit] for unit in both)
    (built.folder / "account.key").unlink()
    with pytest.raises(InputError, match=r"account.key"):  # what is published stays as it is
        built.run("n1")


def test_other_keys_give_other_digests() -> None:
    words = pl.Series(np.arange(1000, dtype=np.uint64))
    one, other = (released_groups(bytes([key]) * 32, words) for key in (1, 2))
    assert len({*one.tolist(), *other.tolist()}) == 2000


def test_households_in_several_arms_are_set_aside_whole(experiment: Builder) -> None:
    log = households()
    other = pl.col("variant").replace({"mail": "none", "none": "mail"})
    arm = pl.when(pl.col("customer").is_in(["c003-1", "c010-0"])).then(other)
    mixed = log.with_columns(arm.otherwise(pl.col("variant")).alias("variant"))
    built = experiment(mixed, columns=HOMES)
    result = built.run()
    assert result.roster.quarantined_by_rule == {ASSIGNED_ARMS: 6}
    assert result.roster.n_units == 174
    left = {unit[:4] for unit in released(result.path, "units")["unit_id"].to_list()}
    assert left == {f"c{home:03d}" for home in range(60)} - {"c003", "c010"}
    (file,) = built.quarantine.iterdir()
    aside = pl.read_parquet(file).sort("unit")
    assert aside["rule"].to_list() == [ASSIGNED_ARMS] * 6
    assert aside["unit"].to_list() == [
        f"c{home}-{who}" for home in ("003", "010") for who in (0, 1, 2)
    ]
    rows = mixed.with_row_index("row", 1).sort("customer")
    expected = rows.filter(pl.col("customer").str.slice(0, 4).is_in(["c003", "c010"]))["row"]
    assert aside["source_row"].to_list() == expected.to_list()
    assert (
        aside["arm"].to_list()
        == mixed.sort("customer")
        .filter(pl.col("customer").str.slice(0, 4).is_in(["c003", "c010"]))["variant"]
        .to_list()
    )


@pytest.mark.parametrize("lost", [None, ""])
def test_a_row_without_its_household_is_set_aside(experiment: Builder, lost: str | None) -> None:
    home = pl.when(pl.col("customer") == "c003-1").then(pl.lit(lost)).otherwise(pl.col("home"))
    built = experiment(households().with_columns(home.alias("home")), columns=HOMES)
    assert built.run().roster.quarantined_by_rule == {"assigned_unknown": 1}


def test_numbers_and_their_text_are_one_household(experiment: Builder) -> None:
    log = households().with_columns(pl.col("home").str.slice(1).cast(pl.Int64))
    files = {
        "log/1.parquet": log[:91],
        "log/2.csv": log[91:],  # in the middle of a household
    }
    built = experiment(files, source={"path": "log/*"}, columns=HOMES)
    built.run()
    assert len(set(groups(built).values())) == 60


def test_clusters_of_one_arm_are_asked_about(experiment: Builder) -> None:
    log = households()
    question = "60 of 60 clusters with two units and more have one arm alone"
    warnings = experiment(log, columns={"cluster": "home"}).check().warnings
    assert any(question in one and "columns.assigned_by" in one for one in warnings)
    assert not any("one arm" in one for one in experiment(log, columns=HOMES).check().warnings)


def test_clusters_that_are_small_by_chance_are_not_asked_about(experiment: Builder) -> None:
    pairs = pl.concat_str(pl.lit("p"), pl.int_range(pl.len()) // 2)
    generator = np.random.default_rng(5)
    arm = pl.Series("variant", generator.choice(["none", "mail"], 4000))
    log = a_log(4000).with_columns(pairs.alias("region"), arm)
    warnings = experiment(log).check().warnings
    assert not any("one arm" in one for one in warnings)  # about half of all pairs have
