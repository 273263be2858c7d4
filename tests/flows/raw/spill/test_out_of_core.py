"""What does not fit into memory is released as if it did: the same rows, digests and numbers.

The same log is released twice: with room for all of it, and with so little that it comes in small
batches, every few of them a run on disk, and is judged and counted in many parts.
"""

import math
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from flows.check import check
from flows.ledger.rules import Fingerprint
from flows.plan import plan
from flows.raw.fingerprint import fingerprint
from flows.raw.spill import sorted_runs as runs
from flows.raw.spill import workspace
from flows.raw.spill.unit_order import sort_rows
from flows.raw.validate import _Judge
from schemas import raw
from schemas.errors import InputError, StepError
from schemas.roster import Roster
from tests.conftest import (
    EXACT,
    SENTINEL,
    Builder,
    Experiment,
    a_log,
    build_experiment,
    released,
    rows,
    told,
)
from tests.support.spilling import Spilled, note_spilled, read_small_pieces

LITTLE = "45KB"  # of memory: runs of 10 KB, parts of 1.9 KB
N = 900

Log = dict[str, pl.DataFrame]


class Made(NamedTuple):
    """What a run made of a log."""

    roster: Roster
    quarantine: bytes | None
    fingerprint: Fingerprint
    tables: dict[str, pl.DataFrame]
    written: list[Spilled]
    """The files of rows that were written, in their order."""

    @property
    def public(self) -> tuple[Any, ...]:
        """What must not depend on memory."""
        return self.roster, self.quarantine, self.fingerprint


@contextmanager
def in_small_pieces() -> Iterator[list[Spilled]]:
    """Read small batches, sampled as often as long ones; gives the files written."""
    with pytest.MonkeyPatch.context() as patched:
        read_small_pieces(patched)
        yield note_spilled(patched)


def made(built: Experiment, *, revise: bool = False) -> Made:
    """Release what a configuration says, and look at all of it."""
    prints: list[Fingerprint] = []

    def noted(*given: Any) -> Fingerprint:
        prints.append(fingerprint(*given))
        return prints[-1]

    with in_small_pieces() as written, pytest.MonkeyPatch.context() as patched:
        patched.setattr("flows.raw.charge.fingerprint", noted)
        result = built.run(revise=revise)
    aside = built.quarantine / f"{result.release_id}.parquet"
    tables = ("units", "strata", "pools", "debias", "counts", "means", "estimates")
    assert not [entry for entry in built.entries if workspace.PREFIX in entry]
    return Made(
        roster=result.roster,
        quarantine=aside.read_bytes() if aside.exists() else None,
        fingerprint=prints[0],
        tables={name: released(result.path, name) for name in tables},
        written=written,
    )


@pytest.fixture
def both(tmp_path: Path) -> Callable[..., tuple[Made, Made]]:
    """Gives a function that releases one log with much memory, and again with little."""

    def release_both(log: Log, file: str, **sections: Any) -> tuple[Made, Made]:
        folder = tmp_path / "experiment"
        sections = {"privacy": EXACT, **sections}
        first = made(build_experiment(folder, log, file, **sections))
        little = build_experiment(folder, log, file, **sections, run={"memory_limit": LITTLE})
        return first, made(little, revise=True)  # both have the key of the digests

    return release_both


def as_text(log: pl.DataFrame) -> pl.DataFrame:
    return log


def as_integers(log: pl.DataFrame) -> pl.DataFrame:
    """Units as integers of both signs, in an order that is not that of their text."""
    number = pl.col("customer").str.slice(1).cast(pl.Int64)
    return log.with_columns(number * 7919 % 100_003 - 50_000)


def as_unsigned(log: pl.DataFrame) -> pl.DataFrame:
    number = pl.col("customer").str.slice(1).cast(pl.UInt64)
    return log.with_columns(number * 10**14 + 2**63)


def faulty(log: pl.DataFrame) -> pl.DataFrame:
    """The log in no order, with units that stand twice, far apart and near, or in two arms."""
    again = log[::37].with_columns(clicks=pl.lit(1.0))
    crossed = log[5::53].with_columns(
        variant=pl.when(pl.col("variant") == "none").then(pl.lit("mail")).otherwise(pl.lit("none"))
    )
    many = pl.concat([log[77:78]] * 300)
    other = log[9::101].with_columns(variant=pl.lit("fax"))
    nowhere = log[11::211].with_columns(region=pl.lit(None, pl.String))
    nobody = log[13::307].with_columns(customer=pl.lit(None, log.schema["customer"]))
    whole = pl.concat([log, again, crossed, many, other, nowhere, nobody])
    return whole.sample(fraction=1, shuffle=True, seed=3)


def in_files(log: pl.DataFrame, ending: str, count: int = 4) -> Log:
    """The rows in several files."""
    size = math.ceil(log.height / count)
    return {f"logs/{i}.{ending}": log[i * size : (i + 1) * size] for i in range(count)}


FORMATS = {
    "text in Parquet": (as_text, "parquet", "plain"),
    "integers in Parquet": (as_integers, "parquet", "plain"),
    "large integers in Parquet": (as_unsigned, "parquet", "plain"),
    "text in CSV": (as_text, "csv", "plain"),
    "integers in JSON Lines": (as_integers, "jsonl", "plain"),
    "integers in Parquet, hashed": (as_integers, "parquet", "keyed-hash"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_that_does_not_fit_is_released_as_if_it_did(
    both: Callable[..., tuple[Made, Made]], tmp_path: Path, name: str
) -> None:
    kind, ending, unit_id = FORMATS[name]
    log = faulty(kind(a_log(N)))
    publish: dict[str, Any] = {"unit_id": unit_id}
    if unit_id == "keyed-hash":
        (tmp_path / "key").write_bytes(b"k" * 32)
        publish["key_file"] = str(tmp_path / "key")
    much, little = both(in_files(log, ending), f"logs/*.{ending}", publish=publish)
    assert much.written == []
    assert_in_parts(little.written, "rows-run", "kept", "levels", "aside-run")
    if unit_id == "keyed-hash":
        assert_in_parts(little.written, "hashed-run")
    assert_alike(much, little)
    assert set(much.roster.quarantined_by_rule) == {rule.name for rule in raw.rules(("a",))} - {
        "arm_missing"
    }


FIRST: dict[str, Any] = {"source": {"repeated": "first"}}


def first_ones(files: Log) -> pl.DataFrame:
    """The first row of each unit whose rows are sound and agree, as a release is to have them."""
    whole = pl.concat(files[name] for name in sorted(files)).drop_nulls("customer")
    stated = pl.struct("variant", "region")
    alike = (stated.n_unique().over("customer") == 1) & pl.col("region").is_not_null()
    kept = whole.filter(alike & pl.col("variant").is_in(["none", "mail"]))
    return kept.unique("customer", keep="first", maintain_order=True).sort("customer")


def assert_first_ones(found: Made, files: Log) -> None:
    """Units and, as parameters are exact ones, outcomes are those of first rows."""
    kept = first_ones(files)
    ids = pl.col("customer").cast(found.tables["units"].schema["unit_id"])  # text formats give text
    expected = kept.select(unit_id=ids, outcome_randomised="clicks").sort("unit_id")
    assert found.tables["units"].select(expected.columns).equals(expected)
    n_rows = sum(frame.height for frame in files.values())
    assert found.roster.repeats.n_unused == n_rows - kept.height - found.roster.quarantined > 250


@pytest.mark.parametrize("name", ["text in CSV", "integers in Parquet", "integers in JSON Lines"])
def test_first_rows_of_units_count_as_if_all_did_fit(
    both: Callable[..., tuple[Made, Made]], name: str
) -> None:
    kind, ending, _ = FORMATS[name]
    log = in_files(faulty(kind(a_log(N))), ending)
    much, little = both(log, f"logs/*.{ending}", **FIRST)
    assert_in_parts(little.written, "rows-run", "kept")
    assert_alike(much, little)
    assert_first_ones(much, log)


def assert_in_parts(written: list[Spilled], *names: str) -> None:
    """several files of each kind were written."""
    kinds = [re.sub(r"-\d+$", "", name) for _, name in written]
    for name in names:
        assert kinds.count(name) > 1, name


def assert_alike(one: Made, other: Made) -> None:
    assert one.public == other.public
    for name, table in one.tables.items():
        assert table.equals(other.tables[name]), name
    units = one.tables["units"]["unit_id"]
    assert units.to_list() == sorted(units)


def test_another_row_is_noticed(tmp_path: Path) -> None:
    log = a_log(N)
    changed = log.with_columns(clicks=pl.when(pl.int_range(N) == 500).then(3).otherwise("clicks"))
    build = partial(build_experiment, tmp_path / "experiment", privacy=EXACT)
    one, other = (
        made(build(in_files(each, "parquet"), "logs/*.parquet"), revise=True)
        for each in (log, changed)
    )
    assert one.fingerprint.rows != other.fingerprint.rows
    assert one.fingerprint.units == other.fingerprint.units
    with pytest.raises(AssertionError):
        assert_alike(one, other)


def test_a_log_is_known_again_with_less_memory(tmp_path: Path) -> None:
    log = in_files(faulty(a_log(N)), "parquet")
    build = partial(build_experiment, tmp_path / "experiment", log, "logs/*.parquet")
    build().run()
    with in_small_pieces() as written:
        assert build(run={"memory_limit": LITTLE}).run().status == "unchanged"
    assert_in_parts(written, "rows-run", "kept")


def test_logs_that_are_in_order_already_are_judged_alike(
    both: Callable[..., tuple[Made, Made]],
) -> None:
    log = faulty(a_log(N)).sort("customer", nulls_last=True)
    assert_alike(*both(in_files(log, "parquet"), "logs/*.parquet"))


def test_what_is_drawn_differs_and_nothing_else(both: Callable[..., tuple[Made, Made]]) -> None:
    log = in_files(faulty(a_log(N)), "parquet")
    much, little = both(log, "logs/*.parquet", privacy={"mechanism": "cluster-dp", "epsilon": 2.0})
    assert much.public == little.public
    public = ["unit_id", "cluster", "arm"]
    assert much.tables["units"].select(public).equals(little.tables["units"].select(public))
    assert not much.tables["units"].equals(little.tables["units"])
    assert much.tables["strata"].equals(little.tables["strata"])
    sizes = ["pool", "arm", "n_units"]
    assert much.tables["pools"].select(sizes).equals(little.tables["pools"].select(sizes))


# exposures and events


def exposed(kind: Callable[[pl.DataFrame], pl.DataFrame]) -> Log:
    """Exposures and outcome events, each of a unit's spread over the files."""
    minute = pl.lit(60_000_000, pl.Int64)
    units = kind(a_log(500)).drop("clicks")
    shown = pl.concat(
        [
            units.with_columns(ts=pl.row_index().cast(pl.Int64) * minute + i * 10_000_000)
            for i in range(3)
        ]
    )
    crossed = units[7::91].with_columns(variant=pl.lit("mail"), ts=pl.lit(5_000_000, pl.Int64))
    untimed = units[3::83].with_columns(ts=pl.lit(None, pl.Int64))
    shown = pl.concat([shown, crossed, untimed]).sample(fraction=1, shuffle=True, seed=4)
    happened = pl.concat(
        [
            units[::step].select(
                "customer", ts=pl.row_index().cast(pl.Int64) * step * minute + late
            )
            for step, late in ((2, 30_000_000), (3, 45_000_000), (3, 45_000_000), (5, 10**15))
        ]
    ).with_columns(clicks=pl.lit(1.0))
    happened = pl.concat([happened, happened[:50]]).sample(fraction=1, shuffle=True, seed=5)
    to_time = pl.col("ts").cast(pl.Datetime("us", "UTC"))
    return {
        **in_files(shown.with_columns(to_time), "parquet"),
        **{
            f"events/{name[5:]}": frame
            for name, frame in in_files(happened.with_columns(to_time), "parquet").items()
        },
    }


EVENTS = {
    "source": {"grain": "event", "outcomes_path": "events/*.parquet", "window": "1d"},
    "columns": {"time": "ts"},
}


@pytest.mark.parametrize(("kind", "aggregate"), [(as_text, "count"), (as_integers, "sum")])
def test_events_that_do_not_fit_are_attributed_as_if_they_did(
    both: Callable[..., tuple[Made, Made]],
    kind: Callable[[pl.DataFrame], pl.DataFrame],
    aggregate: str,
) -> None:
    outcome = {"aggregate": aggregate, "cap": 3.0 if aggregate == "sum" else None}
    much, little = both(exposed(kind), "logs/*.parquet", **EVENTS, outcome=outcome)
    assert much.written == []
    assert_in_parts(little.written, "rows-run", "events-run", "kept", "levels")
    assert_alike(much, little)
    assert set(much.roster.quarantined_by_rule) == {"time_missing", "unit_in_two_arms"}
    outcomes = much.tables["units"]["outcome_randomised"].value_counts().rows()
    assert {value for value, _ in outcomes} == {0.0, 1.0, 2.0}


# where the rows lie meanwhile


class Looked(NamedTuple):
    """How something in a run's room looked."""

    parent: Path
    modes: set[tuple[bool, int]]


def looked_at(act: Callable[[], Any]) -> list[Looked]:
    """What lay in the room whenever a file had been put there."""
    found = []
    write = workspace.Workspace.write

    def noted(self: workspace.Workspace, frame: pl.DataFrame, name: str) -> Path:
        path = write(self, frame, name)
        every = [path.parent, *path.parent.iterdir()]
        modes = {(one.is_dir(), stat.S_IMODE(one.stat().st_mode)) for one in every}
        found.append(Looked(path.parent.parent, modes))
        return path

    with pytest.MonkeyPatch.context() as patched, in_small_pieces():
        patched.setattr(workspace.Workspace, "write", noted)
        act()
    return found


def spilling(experiment: Builder, log: pl.DataFrame, place: str | None = None) -> Experiment:
    """An experiment whose log does not fit into memory."""
    run = {"memory_limit": LITTLE, "spill_directory": place}
    return experiment(in_files(log, "parquet", 2), "logs/*.parquet", run=run)


ACTS: dict[str, Callable[[Experiment], Any]] = {
    "release": lambda built: built.run(),
    "check": lambda built: check(built.config, None),
    "plan": lambda built: plan(built.config, None),
}


@pytest.mark.parametrize(
    ("act", "place"),
    [
        ("release", None),
        ("release", "elsewhere/spill"),
        ("check", None),
        ("plan", "elsewhere/spill"),
    ],
)
def test_rows_lie_where_their_owner_alone_can_look_and_are_gone_afterwards(
    experiment: Builder, act: str, place: str | None
) -> None:
    built = spilling(experiment, a_log(N), place)
    before = built.entries
    found = looked_at(lambda: ACTS[act](built))
    assert len(found) > 3
    assert {one.parent for one in found} == {built.folder / (place or "quarantine")}
    assert all(one.modes == {(True, 0o700), (False, 0o600)} for one in found)
    left = [entry for entry in built.entries if entry not in before]
    if act == "release":
        assert not any("spill" in entry or "elsewhere" in entry for entry in left)
    else:
        assert left == []


@pytest.mark.parametrize(
    "place",
    [
        "flows.raw.validate.rows_of",
        "flows.raw.drawing.strata_counts.stratum_counts",
        "flows.release.estimate",
    ],
)
def test_nothing_is_left_of_a_run_that_fails(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    def fails() -> None:
        with pytest.raises((StepError, RuntimeError)):
            built.run()

    built = spilling(experiment, a_log(N))
    monkeypatch.setattr(place, fail)
    found = looked_at(fails)
    assert len(found) > 3
    assert [entry for entry in built.entries if "spill" in entry or "duckdb" in entry] == []
    monkeypatch.undo()
    with in_small_pieces():
        assert built.run().status == "published"


def test_a_log_of_which_nothing_is_left_says_so(experiment: Builder) -> None:
    built = spilling(experiment, a_log(N).with_columns(variant=pl.lit("fax")))
    before = built.entries
    with in_small_pieces() as written, pytest.raises(InputError, match="all 900 were set aside"):
        built.run()
    assert len(written) > 2
    assert built.entries == before


# pandera judges all rows


def without_rules(judge: _Judge, part: pl.DataFrame, _: pl.DataFrame | None) -> pl.DataFrame:
    """Keep all rows, whatever rules they break."""
    return judge._finished(sort_rows(part))


PLANTED = {
    "a unit twice": (("none", "east"), "DATAFRAME_CHECK"),
    "no cluster": (("none", None), "SERIES_CONTAINS_NULLS"),
}
WHERE = ["c00000", "c00450", "c00899"]


@pytest.mark.parametrize("unit", WHERE)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_broken_row_in_any_part_is_caught(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, unit: str, fault: str
) -> None:
    (arm, cluster), reason = PLANTED[fault]
    log = a_log(N).filter((pl.col("customer") != unit) | (fault == "a unit twice"))
    log = pl.concat([log, rows((unit, arm, cluster, SENTINEL))])
    built = spilling(experiment, log.sample(fraction=1, shuffle=True, seed=6))
    monkeypatch.setattr(_Judge, "_judged", without_rules)
    assert_caught(built, unit, reason)


def test_without_a_broken_row_pandera_is_content(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Judge, "_judged", without_rules)
    built = spilling(experiment, a_log(N))
    with in_small_pieces():
        assert built.check().roster.n_units == N


@pytest.mark.parametrize("apart", [1, 3])
def test_parts_that_are_not_in_their_order_are_caught(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, apart: int
) -> None:
    def exchanged(*given: Any) -> Iterator[list[pl.DataFrame | None]]:
        found = list(runs.parts(*given))
        found[-1 - apart], found[-1] = found[-1], found[-1 - apart]
        yield from found

    built = spilling(experiment, a_log(N))
    monkeypatch.setattr("flows.raw.validate.parts", exchanged)
    assert_caught(built, "c01", "parts overlap")


def assert_caught(built: Experiment, unit: str, reason: str) -> None:
    before = built.entries
    with in_small_pieces() as written, pytest.raises(InputError) as caught:
        built.run()
    assert len(written) > 1
    assert str(caught.value) == f"rows that passed every rule break the schema ({reason})"
    assert str(SENTINEL) not in told(caught.value)
    assert unit not in told(caught.value)
    assert built.entries == before


# public facts


def with_facts(log: pl.DataFrame) -> pl.DataFrame:
    """Attributes of several types, and households that are in one arm but for a few."""
    arm = pl.col("variant").fill_null("?")
    place = pl.int_range(pl.len())
    return log.with_columns(
        pl.when(place % 5 > 0).then(pl.concat_str(pl.lit("land "), place % 7)).alias("country"),
        pl.when(place % 6 > 0).then(place / 8).alias("score"),
        (place % 2 == 0).alias("app"),
        pl.when(place % 97 > 0)
        .then(pl.concat_str(arm, place % 40))
        .otherwise(pl.concat_str(pl.lit("mixed "), place % 3))
        .alias("home"),
    )


PUBLIC: dict[str, Any] = {"attributes": ["country", "score", "app"], "assigned_by": "home"}


@pytest.mark.parametrize("ids", ["plain", "keyed-hash"])
def test_public_facts_are_the_same(
    both: Callable[..., tuple[Made, Made]], tmp_path: Path, ids: str
) -> None:
    publish: dict[str, Any] = {"unit_id": ids}
    if ids == "keyed-hash":
        (tmp_path / "key").write_bytes(b"k" * 32)
        publish["key_file"] = str(tmp_path / "key")
    log = in_files(with_facts(faulty(a_log(N))), "parquet")
    once, little = both(log, "logs/*.parquet", columns=PUBLIC, publish=publish)
    assert once.roster.quarantined_by_rule["assigned_arms"] > 0
    assert little.written
    assert_alike(once, little)
    assert once.tables["units"].columns[7:] == [*PUBLIC["attributes"], "assigned_to"]


def test_public_facts_of_events_are_the_same(both: Callable[..., tuple[Made, Made]]) -> None:
    log = exposed(as_text)
    files = {
        name: with_facts(frame) if name.startswith("logs/") else frame
        for name, frame in log.items()
    }
    columns = {**EVENTS["columns"], "attributes": PUBLIC["attributes"]}
    once, little = both(
        files, "logs/*.parquet", **{**EVENTS, "columns": columns}, outcome={"aggregate": "count"}
    )
    assert_alike(once, little)
    assert (once.roster.attribute_changed or 0) > 100
