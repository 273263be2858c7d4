"""A canary: an outcome nobody else has, looked for wherever a run leaves a trace.

Every run has a canary of its own, as they share Prefect's database. It stands in the log in a row
that is kept and in one that is set aside, and the run is made to fail in each of its steps by an
error that holds all that the step has in hand.
"""

import gzip
import itertools
import os
import pickle
import sqlite3
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import numpy as np
import polars as pl
import pytest
from prefect import flow, get_run_logger

from flows.cli import run
from flows.raw.guard import values_free
from flows.raw.sealed import Sealed
from flows.release import release
from schemas.errors import ClusterdpError, InputError, StepError
from tests.conftest import Builder, Experiment, rows, told

_numbers = itertools.count()


@dataclass(frozen=True)
class Canary:
    """An outcome to look for, as a number and, where a format has text, as a word."""

    value: float
    word: str

    @classmethod
    def hatch(cls) -> "Canary":
        """A canary that no other run has."""
        number = next(_numbers)
        return cls(887654.5 + number, f"CANARY{number}OUTCOME")

    @property
    def marks(self) -> tuple[bytes, ...]:
        """How it would look in a file: as text, as a double of either byte order."""
        texts = (str(self.value), f"{self.value:e}", f"{self.value:,}", self.word)
        return (
            *(text.encode() for text in texts),
            self.word.encode("utf-16-le"),
            struct.pack("<d", self.value),
            struct.pack(">d", self.value),
        )

    def sings_in(self, content: bytes | str) -> bool:
        """Whether it is to be found there."""
        found = content.encode() if isinstance(content, str) else content
        return any(mark in found for mark in self.marks)

    def leaks_into(self, folder: Path) -> list[str]:
        """The files in a folder that it is to be found in, packed or not."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return [str(file) for file in files if any(map(self.sings_in, contents(file)))]


def contents(path: Path) -> Iterator[bytes | str]:
    """The bytes of a file; where they may be packed, also the rows."""
    content = path.read_bytes()
    yield content
    if content.startswith(b"\x1f\x8b"):
        yield gzip.decompress(content)
    elif content.startswith(b"PAR1"):
        yield spelt(pl.read_parquet(path))
    elif content.startswith(b"SQLite format 3"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                yield spelt(connection.execute(f'SELECT * FROM "{table}"').fetchall())
    elif content[8:12] == b"DUCK":
        with duckdb.connect(str(path), read_only=True) as database:
            for (table,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                yield spelt(database.execute(f'FROM "{table}"').fetchall())


def spelt(value: object) -> str:
    """All that a value holds, as an error message without any restraint would show it."""
    if isinstance(value, Sealed):
        value = value.open()
    if isinstance(value, pl.DataFrame):
        value = value.rows()
    if isinstance(value, pl.Series):
        value = value.to_list()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, dict):
        value = [*value.items()]
    if isinstance(value, list | tuple | set):
        return " ".join(map(spelt, value))
    return str(value)


# the search itself, without which nothing below could fail


def as_text(path: Path, value: object) -> None:
    path.write_text(f"bad row: {value!r}\n")


def as_pickle(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(["bad row", value]))


def as_gzip(path: Path, value: object) -> None:
    path.write_bytes(gzip.compress(str(value).encode()))


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
@pytest.mark.parametrize("write", [as_text, as_pickle, as_gzip, as_parquet, as_sqlite, as_duckdb])
def test_the_search_finds_what_is_planted(
    tmp_path: Path, write: Callable[[Path, object], None], form: str
) -> None:
    canary = Canary.hatch()
    file = tmp_path / "deep" / "down" / "file"
    file.parent.mkdir(parents=True)
    write(file, 1.5 if form == "number" else "innocent")
    assert canary.leaks_into(tmp_path) == []
    file.unlink()
    write(file, canary.value if form == "number" else canary.word)
    assert canary.leaks_into(tmp_path) == [str(file)]


@pytest.mark.parametrize("order", ["<d", ">d"])
def test_the_search_finds_a_bare_double(tmp_path: Path, order: str) -> None:
    canary = Canary.hatch()
    (tmp_path / "file").write_bytes(b"\7" * 13 + struct.pack(order, canary.value) + b"\7" * 5)
    assert canary.leaks_into(tmp_path) == [str(tmp_path / "file")]


@pytest.mark.parametrize("way", ["message", "argument", "cause", "context", "attribute"])
def test_the_search_reads_all_of_an_error(way: str) -> None:
    canary = Canary.hatch()
    with pytest.raises(ValueError, match="bad") as caught:
        raise_with(canary.value, way)
    assert canary.sings_in(told(caught.value))


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
    assert logged.leaks_into(prefect_harness)
    assert raised.leaks_into(prefect_harness)


# the runs


@dataclass(frozen=True)
class Watch:
    """A run's surroundings, and what was heard of it."""

    canary: Canary
    folders: tuple[Path, ...]
    heard: Callable[[], str]

    def leaks(self, built: Experiment, *more: object) -> list[str]:
        """Where the canary is to be found, other than in the log."""
        for log in built.folder.glob("log.*"):
            log.unlink()
        texts = {"what was heard": self.heard(), "what came back": spelt(more)}
        folders = (*self.folders, built.folder)
        found = [leak for folder in folders for leak in self.canary.leaks_into(folder)]
        return found + [name for name, text in texts.items() if self.canary.sings_in(text)]


@pytest.fixture
def watch(
    prefect_harness: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Watch:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    caplog.set_level("DEBUG")

    def heard() -> str:
        wait_for_prefect(prefect_harness, "clusterdp-release")
        streams = capfd.readouterr()
        return "\n".join((streams.out, streams.err, caplog.text))

    folders = (temporary, prefect_harness, Path(os.environ["PREFECT_HOME"]))
    return Watch(Canary.hatch(), folders, heard)


def wait_for_prefect(database: Path, name: str) -> None:
    """Wait until the logs and states of the flow's runs have come in."""
    query = (
        "SELECT count(*) FROM flow_run r JOIN flow f ON f.id = r.flow_id WHERE f.name = ? "
        "AND NOT EXISTS (SELECT * FROM log l WHERE l.flow_run_id = r.id "
        "AND l.task_run_id IS NULL AND l.message LIKE 'Finished in state%')"
    )
    deadline = time.monotonic() + 60
    with closing(sqlite3.connect(next(database.glob("*.db")))) as connection:
        while connection.execute(query, (name,)).fetchone() != (0,):
            assert time.monotonic() < deadline, "the logs of a flow run never arrived"
            time.sleep(0.1)


LOW_AND_HIGH = {"values": [0, 1_000_000]}
"""A grid with the canary inside its range, so that nothing is clipped before outcomes are drawn."""


def a_log_with(canary: Canary, file: str) -> pl.DataFrame:
    """A log with the canary in a row that is kept and in one that is set aside."""
    arms = ["none", "mail"] * 12
    log = rows(
        *[(f"c{i:02d}", arm, "east", float(i % 2)) for i, arm in enumerate(arms)],
        ("kept", "mail", "east", canary.value),
        ("aside", "fax", "east", canary.value),
    )
    if file == "log.parquet":
        return log
    in_words = rows(
        ("kept-word", "mail", "east", canary.word), ("aside-word", "fax", "east", canary.word)
    )
    return pl.concat([log.with_columns(pl.col("clicks").cast(pl.String)), in_words])


CLIPPED = {"values": [0, 1, 2]}


@pytest.mark.parametrize(
    ("file", "outcome"),
    [
        ("log.parquet", LOW_AND_HIGH),
        ("log.parquet", CLIPPED),
        ("log.csv.gz", LOW_AND_HIGH),
        ("log.csv", CLIPPED),
        ("log.jsonl", LOW_AND_HIGH),
    ],
)
def test_a_release_holds_nothing_of_it(
    experiment: Builder, watch: Watch, file: str, outcome: dict[str, Any]
) -> None:
    built = experiment(a_log_with(watch.canary, file), file, outcome=outcome)
    result = release(str(built.config))
    assert result.roster.quarantined == (1 if file == "log.parquet" else 2)
    assert len(list(built.quarantine.iterdir())) == 1
    assert watch.leaks(built, result) == []


PRIVATE_STEPS = {
    "ingest, reading": "flows.raw.sources._outcome",
    "ingest, mapping": "flows.raw.ingest.map_outcomes",
    "validate": "flows.raw.validate._roster",
    "validate, its schema": "flows.raw.validate._check_schema",
    "privatize": "flows.raw.privatize.stochastic_levels",
}
PUBLIC_STEPS = {
    "publish": "flows.released.publish._insert",
    "estimate": "flows.released.estimate.tau_q",
}

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


@dataclass
class Explosive:
    """Stands in for a function, and fails with all that it was given."""

    fail: Failure
    said: str = ""

    def __call__(self, *given: object, **named: object) -> NoReturn:
        self.said = spelt([*given, *named.values()])
        self.fail(self.said)


def run_into(
    built: Experiment, target: str, failure: Failure, monkeypatch: pytest.MonkeyPatch
) -> tuple[BaseException, Explosive]:
    """Run the flow and let it fail; the error, and the stand-in that raised it."""
    explosive = Explosive(failure)
    monkeypatch.setattr(target, explosive)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a panic is no Exception
        release(str(built.config))
    assert explosive.said, "the step never came there"
    return caught.value, explosive


@pytest.mark.parametrize(
    ("step", "failure"),
    [
        *[(step, in_a_chain) for step in PRIVATE_STEPS],
        ("ingest, mapping", as_a_panic),
        ("validate", as_ours),
        ("validate", as_a_panic),
        ("privatize", as_a_panic),
    ],
)
def test_a_private_step_that_fails_tells_nothing_of_it(
    experiment: Builder,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    failure: Failure,
) -> None:
    built = experiment(a_log_with(watch.canary, "log.parquet"), outcome=LOW_AND_HIGH)
    error, explosive = run_into(built, PRIVATE_STEPS[step], failure, monkeypatch)
    assert watch.canary.sings_in(explosive.said)  # it was there to be told
    assert watch.leaks(built, told(error)) == []
    assert isinstance(error, ClusterdpError)
    assert (str(error) == "a plain text") == (failure is as_ours)
    assert not list(built.releases.glob("*"))


@pytest.mark.parametrize("step", PUBLIC_STEPS)
def test_a_public_step_that_fails_has_nothing_of_it_to_tell(
    experiment: Builder, watch: Watch, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    built = experiment(a_log_with(watch.canary, "log.parquet"), outcome=LOW_AND_HIGH)
    error, explosive = run_into(built, PUBLIC_STEPS[step], in_a_chain, monkeypatch)
    assert explosive.said in told(error)  # not guarded: what it has may be told
    assert watch.leaks(built, told(error)) == []
    assert not list(built.releases.glob("*"))


@pytest.mark.parametrize("file", ["log.csv", "log.jsonl"])
def test_a_word_in_a_text_format_is_not_told_either(
    experiment: Builder, watch: Watch, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    built = experiment(a_log_with(watch.canary, file), file)
    reading = PRIVATE_STEPS["ingest, reading"]
    error, explosive = run_into(built, reading, in_a_chain, monkeypatch)
    assert watch.canary.word in explosive.said
    assert watch.leaks(built, told(error)) == []
    assert isinstance(error, StepError)


@pytest.mark.parametrize("command", ["check", "release"])
def test_the_command_line_tells_nothing_of_it_even_with_debug(
    experiment: Builder, watch: Watch, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    built = experiment(a_log_with(watch.canary, "log.parquet"), outcome=LOW_AND_HIGH)
    explosive = Explosive(in_a_chain)
    monkeypatch.setattr(PRIVATE_STEPS["validate"], explosive)
    assert run([command, str(built.config)], debug=True) == 1
    assert watch.canary.sings_in(explosive.said)
    assert watch.leaks(built) == []


# the guard and the container


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, InputError])
def test_what_a_guarded_step_lets_through_is_bare(kind: type[BaseException]) -> None:
    """An interruption stays one; neither it nor an error of ours brings what went before along."""
    canary = Canary.hatch()

    @values_free
    def step(row: str) -> NoReturn:
        try:
            raise ValueError(row)
        except ValueError as error:
            raise kind("plain") from error

    with pytest.raises(kind, match="plain") as caught:
        step(canary.word)
    assert type(caught.value) is kind
    assert not canary.sings_in(told(caught.value))


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError, pl.exceptions.PanicException])
def test_of_any_other_error_a_guarded_step_tells_kind_and_place(kind: type[BaseException]) -> None:
    canary = Canary.hatch()

    @values_free
    def step(row: str) -> NoReturn:
        raise kind(row)

    with pytest.raises(StepError, match=rf"^step failed with {kind.__name__} at ") as caught:
        step(canary.word)
    assert not canary.sings_in(told(caught.value))


def test_what_is_sealed_shows_nothing(watch: Watch) -> None:
    sealed = Sealed([watch.canary.value, watch.canary.word], 2)
    shown = f"{sealed} {sealed!r} {sealed:} {[sealed]} {dir(sealed)}"
    assert "<sealed, 2 rows>" in shown
    assert not watch.canary.sings_in(shown)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(sealed)
    with pytest.raises(TypeError):
        vars(sealed)
