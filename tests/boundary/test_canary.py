"""Canaries: what nobody may see is looked for wherever a run leaves a trace.

They stand in the log in a row that is kept and in one that is set aside, and the run is made to
fail in each of its steps by an error that holds all that the step has in hand.
"""

import copyreg
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NoReturn
from unittest.mock import patch

import polars as pl
import pytest
import sqlalchemy as sa
import tblib.pickling_support

from flows.cli.main import run
from flows.ledger import tables
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.released.report import write_report
from schemas.errors import ClusterdpError, InputError, StepError
from tests.boundary.canary import (
    Canary,
    Explosive,
    spelt,
)
from tests.boundary.planted import CLIPPED, LOW_AND_HIGH, Ids, Planted, plant
from tests.boundary.watched import Watch
from tests.conftest import Builder, released, told
from tests.support.modes import mode

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
    request: pytest.FixtureRequest, experiment: Builder, watch: Watch, privacy: dict[str, Any]
) -> None:
    """Planned ones, noisy means, and those that publish no units; and the page about them.

    The page is made of the file alone, so one of the two ways has it.
    """
    planted = plant(experiment, "log.csv", privacy=privacy)
    result = planted.built.run()
    has_units = privacy["mechanism"] in ("auto", "uniform-prior-dp")
    assert len(released(result.path, "units")) == (26 if has_units else 0)
    if request.node.callspec.params["way"] == "plain":
        page = write_report(result.path, planted.built.folder / "page.html")
        assert page.stat().st_size > 10_000
        page.chmod(0o600)  # it may be read by anybody, which is looked for below
    assert watch.leaks(planted, result) == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("file", "ids"), [("log.parquet", "plain"), ("log.csv", "hashed words")]
)  # each format with either ids is above
def test_public_facts_let_nothing_out(
    experiment: Builder, watch: Watch, file: str, ids: Ids
) -> None:
    """Neither outcomes, nor other columns, nor the names of households; attributes are there."""
    planted = plant(experiment, file, LOW_AND_HIGH, ids, facts=True)
    result = planted.built.run()
    units = released(result.path, "units")
    assert units.columns[-2:] == ["country", "assigned_to"]
    assert set(units["country"]) == {"land 0", "land 1", "land 2"}
    assert watch.leaks(planted, result) == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
def test_rows_of_a_unit_that_are_not_used_let_nothing_out(
    experiment: Builder, watch: Watch, file: str
) -> None:
    planted = plant(experiment, file, LOW_AND_HIGH, "hashed words", repeated=True)
    result = planted.built.run()
    assert result.roster.repeats.n_unused == 1
    assert watch.leaks(planted, result) == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "place",
    [
        "flows.raw.ingest.attribute",
        "flows.raw.units.assignment.digests_of_ids",
        "flows.raw.validate.in_several_arms",
        "flows.raw.drawing.unit_stream.released_groups",
    ],
)
def test_a_failure_among_public_facts_says_nothing(
    experiment: Builder, watch: Watch, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    planted = plant(experiment, "log.parquet", facts=True)

    def failing(*given: Any) -> NoReturn:
        raise ValueError(*(str(one) for one in given), "CANARY")

    monkeypatch.setattr(place, failing)
    with pytest.raises(StepError) as caught:
        planted.built.run()
    assert "CANARY" not in told(caught.value)
    assert watch.leaks(planted, caught.value) == []


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
        "flows.released.publish.add_estimates",
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
@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("check", "flows.raw.validate.roster_of"),
        ("check --outcomes", "flows.raw.outcome_shares.read_outcome"),
        ("release", "flows.raw.validate.roster_of"),
    ],
)
def test_the_command_line_tells_nothing_of_it_even_with_debug(
    experiment: Builder, watch: Watch, monkeypatch: pytest.MonkeyPatch, command: str, place: str
) -> None:
    planted = plant(experiment, "log.csv")
    explosive = Explosive(in_a_chain)
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    monkeypatch.setattr(place, explosive)
    assert run([*command.split(), str(planted.built.config)], debug=True) == 1
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
