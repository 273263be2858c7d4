"""Canaries: what nobody may see is looked for wherever a run leaves a trace.

They stand in the log in a row that is kept and in one that is set aside, and the run is made to
fail in each of its steps by an error that holds all that the step has in hand.
"""

import base64
import copyreg
import gzip
import pickle
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import duckdb
import polars as pl
import pytest
import sqlalchemy as sa
import tblib.pickling_support
from prefect import flow, get_run_logger

from flows.cli.main import run
from flows.ledger import tables
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.released.report import write_report
from schemas.errors import ClusterdpError, InputError, StepError
from tests.boundary.canary import (
    CLIPPED,
    LOW_AND_HIGH,
    Before,
    Canary,
    Explosive,
    Ids,
    Planted,
    Watch,
    changed,
    leaks_into,
    plant,
    spelt,
    wait_for_prefect,
)
from tests.conftest import Builder, released, told
from tests.support.modes import mode

# the search itself, without which nothing below could fail


def as_text(path: Path, value: object) -> None:
    path.write_text(f"bad row: {value!r}\n")


def as_pickle(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(["bad row", value]))


def as_gzip(path: Path, value: object) -> None:
    path.write_bytes(gzip.compress(str(value).encode()))


def as_base64(path: Path, value: object) -> None:
    path.write_bytes(base64.b64encode(b"bad row" + str(value).encode() + b"!"))


def as_parquet(path: Path, value: object) -> None:
    pl.DataFrame({"x": [value] * 99}).write_parquet(path)


def as_sqlite(path: Path, value: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (?)", (value,))
        connection.commit()


def as_duckdb(path: Path, value: object) -> None:
    with duckdb.connect(str(path)) as connection:
        kind = "DOUBLE" if isinstance(value, float) else "VARCHAR"
        connection.execute(f"CREATE TABLE t AS SELECT ?::{kind} AS x FROM range(5000)", [value])


@pytest.mark.parametrize("form", ["number", "word"])
@pytest.mark.parametrize(
    "write", [as_text, as_pickle, as_gzip, as_base64, as_parquet, as_sqlite, as_duckdb]
)
def test_the_search_finds_what_is_planted(
    tmp_path: Path, write: Callable[[Path, object], None], form: str
) -> None:
    canary = Canary.hatch()
    file = tmp_path / "deep" / "down" / "file"
    file.parent.mkdir(parents=True)
    write(file, 1.5 if form == "number" else "innocent")
    assert leaks_into(tmp_path, canary.secret()) == []
    file.unlink()
    write(file, canary.value if form == "number" else canary.word)
    assert leaks_into(tmp_path, canary.secret()) == [f"canary in {file}"]


@pytest.mark.parametrize("way", ["a new row", "another value", "in the journal"])
@pytest.mark.parametrize("form", ["number", "word"])
def test_the_search_finds_what_has_come_since(tmp_path: Path, form: str, way: str) -> None:
    """In a database that there was before, of which only what is new is searched."""
    early, canary = Canary.hatch(), Canary.hatch()
    value: float | str = canary.value if form == "number" else canary.word
    with closing(sqlite3.connect(tmp_path / "file")) as connection:
        connection.execute(f"PRAGMA journal_mode = {'wal' if way == 'in the journal' else 'off'}")
        connection.execute("CREATE TABLE t (x)")
        rows = [(f"innocent {number}",) for number in range(5000)]
        connection.executemany("INSERT INTO t VALUES (?)", [*rows, (early.word,)])
        connection.commit()
        before = Before.of(tmp_path)
        assert leaks_into(tmp_path, canary.secret(), early.secret(), before=before) == []
        if way == "another value":
            connection.execute("UPDATE t SET x = ? WHERE rowid = 2500", (value,))
        else:
            connection.execute("INSERT INTO t VALUES (?)", (value,))
        connection.commit()
        found = leaks_into(tmp_path, canary.secret(), before=before)
    assert found
    assert set(found) <= {f"canary in {tmp_path / name}" for name in ("file", "file-wal")}


def test_the_search_finds_a_mark_across_blocks() -> None:
    """Wherever it begins, and also where it grew out of what was there."""
    before = bytes(20_000)
    for place in (0, 1, 4090, 4095, 4096, 8190, 16_380, 16_384, 19_990):
        for kept in (b"", b"MA", b"MARK"):
            old = before[:place] + kept + before[place + len(kept) :]
            now = before[:place] + b"MARKED" + before[place + 6 :]
            assert b"MARKED" in changed(old, now, 6)
            assert b"MARKED" in changed(old[: place + 3], now, 6)
            assert b"MARKED" in changed(b"", now, 6)
    assert len(changed(before, before, 6)) < 4096 + 6


@pytest.mark.parametrize("order", ["<d", ">d", "<q", ">q"])
def test_the_search_finds_a_bare_number(tmp_path: Path, order: str) -> None:
    canary = Canary.hatch("unit" if order[1] == "q" else "outcome")
    (tmp_path / "file").write_bytes(b"\7" * 13 + struct.pack(order, canary.value) + b"\7" * 5)
    assert leaks_into(tmp_path, canary.secret()) == [f"canary in {tmp_path / 'file'}"]


def test_the_search_lets_a_secret_be_at_home(tmp_path: Path) -> None:
    secret = Canary.hatch().secret(home="home/*.txt")
    for place in ("home/file.txt", "home/file.csv", "file.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(secret.marks[0])
    elsewhere = [f"canary in {tmp_path / place}" for place in ("file.txt", "home/file.csv")]
    assert leaks_into(tmp_path, secret, root=tmp_path) == elsewhere


@pytest.mark.parametrize("way", ["message", "argument", "cause", "context", "attribute"])
def test_the_search_reads_all_of_an_error(way: str) -> None:
    canary = Canary.hatch()
    with pytest.raises(ValueError, match="bad") as caught:
        raise_with(canary.value, way)
    assert canary.secret().is_in(told(caught.value))


def raise_with(value: float, way: str) -> NoReturn:
    if way == "message":
        raise ValueError(f"bad {value}")
    if way == "argument":
        raise ValueError("bad", value)
    if way == "attribute":
        error = ValueError("bad")
        error.row = value  # type: ignore[attr-defined] # as libraries do
        raise error
    try:
        raise KeyError(value)
    except KeyError as inner:
        raise ValueError("bad") from (inner if way == "cause" else None)


def test_the_search_finds_what_prefect_is_told(prefect_harness: Path) -> None:
    """An ordinary flow does tell Prefect, in a log and in a state."""
    logged, raised = Canary.hatch(), Canary.hatch()

    @flow
    def careless() -> None:
        get_run_logger().info("row %s", logged.word)
        raise ValueError(f"bad {raised.value}")

    with pytest.raises(ValueError, match="bad"):
        careless()
    wait_for_prefect(prefect_harness, "careless")
    assert leaks_into(prefect_harness, logged.secret())
    assert leaks_into(prefect_harness, raised.secret())


# the runs


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("file", "outcome", "ids"),
    [
        ("log.parquet", LOW_AND_HIGH, "hashed words"),
        ("log.parquet", CLIPPED, "hashed numbers"),
        ("log.csv.gz", LOW_AND_HIGH, "plain"),
        ("log.csv", CLIPPED, "hashed words"),
        ("log.jsonl", LOW_AND_HIGH, "hashed words"),
    ],
)
def test_a_release_holds_nothing_of_it(
    experiment: Builder, watch: Watch, file: str, outcome: dict[str, Any], ids: Ids
) -> None:
    planted = plant(experiment, file, outcome, ids)
    built = planted.built
    result = built.run()
    again = built.run()
    assert (result.status, again.status) == ("published", "unchanged")
    n_aside = 1 if file == "log.parquet" else 2
    assert result.roster.quarantined == n_aside
    (aside,) = built.quarantine.iterdir()
    assert planted.named("id set aside").is_in(aside.read_bytes())  # the operator's to look into
    assert {mode(aside), mode(built.folder / "ledger.sqlite")} == {0o600}
    assert {mode(result.path), mode(result.path.parent / "latest.duckdb")} == {0o444}

    released_ids = released(result.path, "units")["unit_id"].cast(pl.String)
    assert len(released_ids) == 24 + n_aside
    hashed = released_ids.str.contains("^[0-9a-f]{64}$")
    assert hashed.all() if ids != "plain" else not hashed.any()
    assert watch.leaks(planted, result, again) == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "privacy",
    [
        {"mechanism": "auto"},
        {"mechanism": "uniform-prior-dp", "strata_statistic": "means"},
        {"mechanism": "noisy-histogram"},
        {"mechanism": "noisy-horvitz-thompson"},
    ],
    ids=lambda privacy: "-".join(privacy.values()),
)
def test_no_design_lets_anything_out(
    experiment: Builder, watch: Watch, privacy: dict[str, Any]
) -> None:
    """Planned ones, noisy means, and those that publish no units; and the page about them."""
    planted = plant(experiment, "log.csv", privacy=privacy)
    result = planted.built.run()
    page = write_report(result.path, planted.built.folder / "page.html")
    has_units = privacy["mechanism"] in ("auto", "uniform-prior-dp")
    assert len(released(result.path, "units")) == (26 if has_units else 0)
    assert page.stat().st_size > 10_000
    page.chmod(0o600)  # it may be read by anybody, which is looked for below
    assert watch.leaks(planted, result) == []


Failure = Callable[[str], NoReturn]


def in_a_chain(row: str) -> NoReturn:
    try:
        raise KeyError(row)
    except KeyError as error:
        raise ValueError(row) from error


def as_ours(row: str) -> NoReturn:
    """An error of ours, whose own text is fit to be shown, in the handling of one that is not."""
    try:
        raise ValueError(row)
    except ValueError:
        raise InputError("a plain text") from None


def as_a_panic(row: str) -> NoReturn:
    """What Polars raises where its Rust code fails: no Exception, and its text may hold rows."""
    raise pl.exceptions.PanicException(f"bad {row}")


def run_into(
    planted: Planted, target: str, failure: Failure, monkeypatch: pytest.MonkeyPatch
) -> tuple[BaseException, str]:
    """Run the flow and let it fail; the error, and what the step had in hand."""
    explosive = Explosive(failure)
    with monkeypatch.context() as failing:
        failing.setattr(target, explosive)
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - a panic is no Exception
            planted.built.run()
    assert explosive.said, "the step never came there"
    return caught.value, explosive.said


OUTCOME, IDS = {"outcome"}, {"id", "id set aside"}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("target", "at_stake", "failure", "file"),
    [
        ("flows.raw.ingest.outcome", OUTCOME | IDS, in_a_chain, "log.csv"),
        ("flows.raw.ingest.outcome", OUTCOME | IDS, in_a_chain, "log.jsonl"),
        ("flows.raw.ingest.map_outcomes", OUTCOME, as_a_panic, "log.parquet"),
        ("flows.raw.validate.roster_of", OUTCOME | {"id"}, in_a_chain, "log.parquet"),
        ("flows.raw.validate.parted", OUTCOME | IDS, as_ours, "log.parquet"),
        ("flows.raw.validate._Judge._check", OUTCOME | {"id"}, in_a_chain, "log.parquet"),
        ("flows.raw.fingerprint._content", {"id"}, in_a_chain, "log.parquet"),
        ("hmac.new", {"digest key"}, in_a_chain, "log.parquet"),
        ("pyarrow.parquet.ParquetWriter.write_table", {"id set aside"}, in_a_chain, "log.parquet"),
        ("flows.raw.drawing.strata_counts.stochastic_levels", OUTCOME, in_a_chain, "log.parquet"),
        ("flows.raw.units.unit_ids._hashed", {"id", "key of ids"}, as_a_panic, "log.parquet"),
    ],
)
def test_a_private_step_that_fails_tells_nothing_of_it(
    experiment: Builder,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    at_stake: set[str],
    failure: Failure,
    file: str,
) -> None:
    planted = plant(experiment, file)
    error, said = run_into(planted, target, failure, monkeypatch)
    assert at_stake <= {secret.name for secret in planted.secrets if secret.is_in(said)}
    assert watch.leaks(planted, told(error)) == []
    assert isinstance(error, ClusterdpError)
    assert (str(error) == "a plain text") == (failure is as_ours)
    assert isinstance(error, StepError) == (failure is not as_ours)
    assert not list(planted.built.releases.glob("*"))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "target",
    [
        "flows.released.publish._insert",
        "flows.released.estimate.add_estimates",
        "flows.ledger.account.make_public",
    ],
)
def test_a_public_step_that_fails_has_nothing_of_it_to_tell(
    experiment: Builder, watch: Watch, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    planted = plant(experiment)
    error, said = run_into(planted, target, in_a_chain, monkeypatch)
    assert said in told(error)  # not guarded: what it has may be told
    assert watch.leaks(planted, told(error)) == []
    assert not list(planted.built.releases.glob("*"))


@pytest.mark.usefixtures("way")
def test_a_ledger_that_fails_tells_nothing_of_what_it_was_given(
    experiment: Builder, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database's complaint holds the statement and its parameters, digests among them."""
    planted = plant(experiment)
    built = planted.built
    built.run("earlier")
    with closing(sqlite3.connect(built.folder / "ledger.sqlite")) as connection:
        refuse = "CREATE TRIGGER t BEFORE INSERT ON clusterdp_charges BEGIN {}; END"
        connection.execute(refuse.format("SELECT RAISE(ABORT, 'it is full')"))
    complaints = []
    insert = tables.insert

    def listen(connection: sa.Connection, row: dict[str, Any]) -> int:
        try:
            return insert(connection, row)
        except sa.exc.DBAPIError as error:
            complaints.append(told(error) + spelt(error.params))
            raise

    monkeypatch.setattr("flows.ledger.database.insert", listen)
    with pytest.raises(ClusterdpError, match=r"ledger\.sqlite: it is full; nothing is") as caught:
        built.run("later")
    (complaint,) = complaints
    assert all(planted.named(f"digest of {name}").is_in(complaint) for name in DIGESTS)
    assert watch.leaks(planted, told(caught.value)) == []
    assert not (built.releases / "trial.later.r1.duckdb").exists()


DIGESTS = ("rows", "units", "settings")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("command", ["check", "release"])
def test_the_command_line_tells_nothing_of_it_even_with_debug(
    experiment: Builder, watch: Watch, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    planted = plant(experiment)
    explosive = Explosive(in_a_chain)
    monkeypatch.setattr("flows.raw.validate.roster_of", explosive)
    assert run([command, str(planted.built.config)], debug=True) == 1
    assert planted.named("outcome").is_in(explosive.said)
    assert watch.leaks(planted) == []


# the guard and the container


@pytest.fixture(params=["alone", "with tblib"])
def errors_copied(request: pytest.FixtureRequest) -> Iterator[None]:
    """Without and with the library that has copies of errors carry all that errors do.

    Dask installs it for the whole process, so for a release by workers and whatever follows.
    """
    with patch.dict(copyreg.dispatch_table):
        if request.param == "with tblib":
            tblib.pickling_support.install()
        yield


@pytest.mark.usefixtures("errors_copied")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, InputError])
def test_what_a_guarded_step_lets_through_is_bare(kind: type[BaseException]) -> None:
    """An interruption stays one; neither it nor an error of ours brings what went before along."""
    canary = Canary.hatch()

    @values_free
    def step(row: str) -> NoReturn:
        try:
            raise ValueError(row)
        except ValueError as error:
            plain = kind("plain")
            plain.add_note(row)
            raise plain from error

    with pytest.raises(kind, match="plain") as caught:
        step(canary.word)
    assert type(caught.value) is kind
    assert caught.value.args == ("plain",)
    assert not canary.secret().is_in(told(caught.value))


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError, pl.exceptions.PanicException])
def test_of_any_other_error_a_guarded_step_tells_kind_and_place(kind: type[BaseException]) -> None:
    canary = Canary.hatch()

    @values_free
    def step(row: str) -> NoReturn:
        raise kind(row)

    with pytest.raises(StepError, match=rf"^step failed with {kind.__name__} at ") as caught:
        step(canary.word)
    assert not canary.secret().is_in(told(caught.value))


def test_what_is_sealed_shows_nothing() -> None:
    canary = Canary.hatch()
    sealed = Sealed([canary.value, canary.word], 2)
    shown = f"{sealed} {sealed!r} {sealed:} {[sealed]} {dir(sealed)}"
    assert "<sealed, 2 rows>" in shown
    assert not canary.secret().is_in(shown)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(sealed)
    with pytest.raises(TypeError):
        vars(sealed)
