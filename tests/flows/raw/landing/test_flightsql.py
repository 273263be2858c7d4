"""Logs in tables of a server that speaks Flight SQL, by one of the tests' own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from pyarrow.flight import FlightEndpoint, FlightInfo

from flows.ledger.account import Account
from flows.raw.landing import flightsql as driver
from schemas.errors import ConfigError, ConflictError, InputError, NoFileError
from tests.conftest import SENTINEL, a_log, told
from tests.support.certificates import own_certificate
from tests.support.cut_lines import a_line
from tests.support.flight_sql import PASSWORD, TOKEN, USER, FlightSQL, Odd
from tests.support.places import read, refusal, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.conftest import Builder

pytest.importorskip("adbc_driver_flightsql", reason="an extra: clusterdp[flightsql]")

DAY = "2026-11-20"
UNREADABLE = "source.table: clicks cannot be read; may this user read it, all its rows?"


@pytest.fixture
def flight_sql() -> Iterator[FlightSQL]:
    """A server of this test."""
    with FlightSQL() as server:
        yield server


@pytest.fixture
def guarded() -> Iterator[FlightSQL]:
    """One that asks who it is."""
    with FlightSQL(is_guarded=True) as server:
        yield server


def filled(server: FlightSQL, log: pl.DataFrame, name: str = "clicks", **types: str) -> None:
    kinds = {"clicks": "double"} | types
    columns = ", ".join(f"CAST({one} AS {kinds.get(one, 'text')}) AS {one}" for one in log.columns)
    server.database.register("given", log.to_arrow())
    server.database.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM given")


def source(server: FlightSQL, name: str = "clicks", **more: Any) -> dict[str, Any]:
    return table(name, "flightsql", **{"at": server.at, **more})


def test_a_table_is_read_as_files_are(
    experiment: Builder, flight_sql: FlightSQL, tmp_path: Path
) -> None:
    log = a_log(60).with_columns(clicks=pl.when(pl.int_range(60) > 5).then("clicks"))
    filled(flight_sql, log)
    rows, known = read(experiment(source=source(flight_sql)), tmp_path)
    for file in ("log.csv", "log.jsonl", "log.parquet"):
        as_files, known_as_files = read(experiment(log, file), tmp_path)
        assert rows.equals(as_files)
        assert known == known_as_files
    assert set(flight_sql.queries) == {
        'SELECT * FROM "clicks" WHERE 1 = 0',
        'SELECT "customer" AS "customer", "variant" AS "variant", "region" AS "region", '
        '"clicks" AS "clicks" FROM "clicks" ',
    }


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("decimal(38, 10)", "3.5"),
        ("hugeint", "170141183460469231731687303715884105727"),
        ("double", "Infinity"),
        ("text", "oops"),
        ("timestamptz", "infinity"),
        ("timestamp", "294246-12-31"),
        ("date", "-infinity"),
        ("time", "12:00:00"),
        ("uuid", "00000000-0000-0000-0000-000000000001"),
        ("enum('3', 'many')", "many"),
    ],
)
def test_no_outcome_keeps_a_row_from_being_read(
    experiment: Builder, flight_sql: FlightSQL, kind: str, odd: str, tmp_path: Path
) -> None:
    log = a_log(20).with_columns(clicks=pl.Series([odd] + [None] * 19))
    filled(flight_sql, log, clicks=kind)
    found, _ = read(experiment(source=source(flight_sql)), tmp_path)
    assert found["unit"].to_list() == sorted(log["customer"])


@pytest.mark.parametrize("outcome", [b"\xff", b"x" * 20_000_000])
def test_nor_does_a_text_that_is_none_or_long(
    experiment: Builder, flight_sql: FlightSQL, outcome: bytes, tmp_path: Path
) -> None:
    log = a_log(20)
    filled(flight_sql, log, clicks="text")
    texts = pa.array([outcome] + [b"1"] * 19).view(pa.string())
    flight_sql.odd.rows = lambda rows: rows.set_column(3, "clicks", texts)
    found, _ = read(experiment(source=source(flight_sql)), tmp_path)
    assert found["unit"].to_list() == sorted(log["customer"])
    assert found["outcome"].to_list() == [0.0] + [1.0] * 19  # of which the first is missing


def test_nor_does_one_in_a_dictionary(
    experiment: Builder, flight_sql: FlightSQL, tmp_path: Path
) -> None:
    log = a_log(20)
    filled(flight_sql, log.with_columns(clicks=pl.lit("1")), clicks="enum('0', '1')")
    texts = pa.array([b"\xff", b"1"]).view(pa.string())
    places = pa.array([0] + [1] * 19, pa.uint8())
    odd = pa.DictionaryArray.from_arrays(places, texts)
    flight_sql.odd.rows = lambda rows: rows.set_column(3, rows.schema.field(3), odd)
    found, _ = read(experiment(source=source(flight_sql)), tmp_path)
    assert found["unit"].to_list() == sorted(log["customer"])
    assert found["outcome"].to_list() == [0.0] + [1.0] * 19


@pytest.mark.parametrize("kind", ["interval", "blob", "integer[]"])
def test_a_type_that_is_no_outcome_is_refused(
    experiment: Builder, flight_sql: FlightSQL, kind: str, tmp_path: Path
) -> None:
    filled(flight_sql, a_log(20).with_columns(clicks=pl.lit(None)), clicks=kind)
    with pytest.raises(
        InputError, match=r"a type that cannot be landed|column .* it has to be number or"
    ):
        read(experiment(source=source(flight_sql)), tmp_path)


@pytest.mark.parametrize(
    ("kind", "here", "there"),
    [
        ("text", DAY, "2026-11-21"),
        ("date", DAY, "2026-11-21"),
        ("timestamptz", "2026-11-19 23:00+00", "2026-11-19 22:59:59.999999+00"),
        ("timestamp", "2026-11-20 22:59:59.999999", "infinity"),
    ],
)
def test_a_period_is_a_column_or_a_time_within(
    experiment: Builder, flight_sql: FlightSQL, tmp_path: Path, kind: str, here: str, there: str
) -> None:
    log = a_log(20)
    others = log.with_columns(customer=pl.lit("x") + pl.col("customer"), day=pl.lit(there))
    filled(flight_sql, pl.concat([log.with_columns(day=pl.lit(here)), others]), day=kind)
    schedule = {"since": DAY, "timezone": "Europe/Zurich"}
    built = experiment(source=source(flight_sql, period="day"), schedule=schedule)
    found, _ = read(built, tmp_path, DAY)
    assert found["unit"].to_list() == sorted(log["customer"])
    assert isinstance(refusal(built, "2026-12-24"), NoFileError)


def test_a_name_is_that_of_one_table(
    experiment: Builder, flight_sql: FlightSQL, tmp_path: Path
) -> None:
    """One person's clicks would decide whether a view can be read."""
    filled(flight_sql, a_log(20), "base")
    filled(flight_sql, a_log(20).drop("clicks"), '"we""ird; DROP TABLE base"')
    query = "SELECT customer, variant, region, 10 / (clicks - 3) AS clicks FROM base"
    flight_sql.database.execute(f"CREATE VIEW clicks AS {query}")
    flight_sql.database.execute("CREATE SCHEMA web; CREATE TABLE web.clicks AS FROM base")
    flight_sql.database.execute(f"CREATE VIEW web.b_se AS {query}; CREATE TABLE b_se AS FROM base")

    def refused(name: str) -> str:
        return str(refusal(experiment(source=source(flight_sql, name))))

    for name in ("clicks", "main.clicks", "web.b_se", "b_se"):
        assert refused(name).startswith(f"source.table: {name} is listed as a view")
    for name in ("no", "main.base.x", "memory.no.base", "bas%", "BASE"):
        assert refused(name) == f"source.table: there is no table {name}; correct the name"
    assert "has no column 'clicks'" in refused('we"ird; DROP TABLE base')
    for name in ("base", "main.base", "memory.web.clicks", "main.b_se"):
        assert read(experiment(source=source(flight_sql, name)), tmp_path)[0].height == 20


def test_no_version_is_kept(experiment: Builder, flight_sql: FlightSQL) -> None:
    """A rerun reads the table as it is."""
    filled(flight_sql, a_log(40))
    built = experiment(source=source(flight_sql))
    ends = [built.run().status for _ in range(2)]
    assert ends == ["published", "unchanged"]
    assert [one.versions for one in Account.of(built.load()).entries()] == [None]
    flight_sql.database.execute("INSERT INTO clicks VALUES ('late', 'mail', 'east', 1)")
    with pytest.raises(ConflictError, match="from other rows"):
        built.run()


# who asks


def as_user(server: FlightSQL) -> str:
    return server.at.replace("//", f"//{USER}@")


def test_who_asks_is_in_the_environment_or_a_file_that_it_names(
    experiment: Builder, guarded: FlightSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(guarded, a_log(20))
    file = tmp_path / "secret"
    for name, secret, at in (
        ("PASSWORD", PASSWORD, as_user(guarded)),
        ("TOKEN", TOKEN, guarded.at),
    ):
        built = experiment(source=source(guarded, at=at))
        with monkeypatch.context() as environment:
            environment.setenv(f"FLIGHTSQL_{name}", secret)
            assert read(built, tmp_path)[0].height == 20
            environment.setenv(f"FLIGHTSQL_{name}_FILE", str(file))
            assert "names no file that can be read" in str(refusal(built))
            environment.delenv(f"FLIGHTSQL_{name}")
            file.write_text(f"{secret}\n")
            assert read(built, tmp_path)[0].height == 20
        file.unlink()


@pytest.mark.parametrize(
    ("is_user", "said", "words"),
    [
        (False, {}, "cannot be reached or does not let this user in"),
        (False, {"TOKEN": "secretive"}, "cannot be reached or does not let this user in"),
        (False, {"TOKEN": "secretive\nx: y"}, "cannot be reached or does not let this user in"),
        (True, {"PASSWORD": "secretive"}, "cannot be reached or does not let this user in"),
        (True, {}, "needs a user in it and FLIGHTSQL_PASSWORD"),
        (True, {"TOKEN": "secretive"}, "needs a user in it and FLIGHTSQL_PASSWORD"),
        (False, {"PASSWORD": "secretive"}, "needs a user in it and FLIGHTSQL_PASSWORD"),
        (True, {"PASSWORD": "secretive", "TOKEN": "x"}, "needs a user in it and FLIGHTSQL_PASS"),
    ],
)
def test_who_is_not_let_in_is_told(
    experiment: Builder,
    guarded: FlightSQL,
    is_user: bool,
    said: Mapping[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in said.items():
        monkeypatch.setenv(f"FLIGHTSQL_{name}", value)
    at = as_user(guarded) if is_user else guarded.at
    error = refusal(experiment(source=source(guarded, at=at)))
    assert str(error).startswith(f"source.at: {'the server ' if 'reached' in words else ''}{words}")
    assert "secretive" not in told(error)
    assert "nobody lets" not in told(error)  # the server's own words


@pytest.mark.parametrize(
    "address",
    [
        *(None, "grpc+tls://host", "grpc://host:1", "grpc://127.0.0.1.host:1", "host:1"),
        *("grpc+tls://user:secret@host:1", "grpc+tls://host:1/?password=secret", "grpc+unix:///x"),
        *("grpc+tls://host:1@other:2", "grpc+tls://host:1#x", "grpc+tls://ho st:1"),
    ],
)
def test_what_is_no_address_is_refused(experiment: Builder, address: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(source=table("clicks", "flightsql", at=address)).load()
    assert caught.value.key == "source.at"
    assert "secret" not in str(caught.value)


def test_two_tables_are_refused(experiment: Builder) -> None:
    """Nothing tells that they are of one moment."""
    events = {"grain": "event", "outcomes_table": "done", "at": "grpc+tls://host:1"}
    with pytest.raises(ConfigError, match=r"two tables of it cannot be read of one moment"):
        experiment(
            source=table("seen", "flightsql", **events),
            columns={"time": "ts"},
            outcome={"aggregate": "sum"},
        ).load()


def test_a_certificate_is_to_be_vouched_for(tmp_path: Path) -> None:
    """By a program of its own, as the driver reads the environment once; it traces nothing."""
    path = own_certificate(tmp_path)
    program = (
        "import sys\nfrom flows.raw.landing.flightsql import open_flightsql\n"
        "for at in sys.argv[1:]:\n"
        "    try:\n"
        "        with open_flightsql(at, 'at') as opener:\n"
        "            print(opener('table', 'clicks', None).schema.names)\n"
        "    except Exception as error:\n"
        "        print(error)\n"
    )
    refused = f"at: the server {driver._UNREACHABLE}"
    with FlightSQL("grpc+tls://127.0.0.1:0", path.read_bytes()) as server:
        filled(server, a_log(20))
        own, other = (f"grpc+tls://{name}:{server.port}" for name in ("localhost", "127.0.0.1"))
        done = subprocess.run(
            [sys.executable, "-c", program, own, other],
            env=os.environ | {"OTEL_TRACES_EXPORTER": "console", "SSL_CERT_FILE": str(path)},
            capture_output=True,
            text=True,
            check=True,
        )
        with pytest.raises(InputError) as caught, driver.open_flightsql(own, "at"):
            """Nobody has vouched for it here."""
    read_it = "['customer', 'variant', 'region', 'clicks']"
    assert done.stdout.splitlines() == [read_it, refused]
    assert not done.stderr
    assert str(caught.value) == refused


# what a server may answer


def torn(rows: pa.Table) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Rows, then an error that quotes one."""
    (batch,) = rows.to_batches()

    def stream() -> Iterator[pa.RecordBatch]:
        yield batch
        raise ValueError(f"outcome {SENTINEL}")

    return rows.schema, stream()


def quoting(_: pa.Table) -> pa.Table:
    raise ValueError(f"outcome {SENTINEL}")


def beyond_memory(rows: pa.Table) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """A text that begins a gigabyte behind where the texts end."""
    ends = b"".join(place.to_bytes(4, "little") for place in (0, 1, 1 << 30, *range(2, 20)))
    texts = pa.Array.from_buffers(pa.string(), 20, [None, *map(pa.py_buffer, (ends, b"x" * 20))])
    columns = [texts, *rows.drop_columns("customer").combine_chunks().columns]
    made = [one.chunk(0) if isinstance(one, pa.ChunkedArray) else one for one in columns]
    batch = pa.RecordBatch.from_arrays(made, names=rows.column_names)
    return batch.schema, iter([batch])


def info(endpoint: Any = lambda one: one, schema: Any = lambda one: one) -> Any:
    """What is said of rows: where they are, of what columns."""
    return lambda said: FlightInfo(
        schema(said.schema), said.descriptor, list(map(endpoint, said.endpoints)), -1, -1
    )


def doubled(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, schema.field(0)])


def with_names(name: str) -> Any:
    return lambda listed: listed.rename_columns([name, *listed.column_names[1:]])


def without_kinds(listed: pa.Table) -> pa.Table:
    place = listed.schema.get_field_index("table_type")
    nothing = pa.nulls(listed.num_rows, pa.string())
    return listed if place < 0 else listed.set_column(place, listed.schema.field(place), nothing)


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"rows": torn}, UNREADABLE),
        ({"rows": quoting}, UNREADABLE),
        ({"rows": beyond_memory}, UNREADABLE),
        ({"rows": lambda rows: rows.drop_columns("clicks")}, "answers with other columns"),
        ({"rows": lambda rows: rows.select([1, 0, 2, 3])}, "answers with other columns"),
        (
            {"rows": lambda rows: rows.set_column(3, "clicks", rows["customer"])},
            "answers with other columns",
        ),
        ({"rows": lambda rows: rows.slice(0, 0)}, "clicks has no row"),
        ({"info": info(schema=lambda _: None)}, UNREADABLE),
        (
            {"info": info(schema=doubled)},
            "has two columns of one name",
        ),
        ({"info": info(lambda _: FlightEndpoint(b"nothing", []))}, UNREADABLE),
        ({"listed": with_names("x")}, "the server cannot be reached"),
        ({"listed": lambda listed: listed.slice(0, 0)}, "there is no table clicks"),
        ({"listed": without_kinds}, "is listed as a view, or as something else"),
    ],
)
def test_an_odd_answer_is_told_in_plain_words(
    experiment: Builder, flight_sql: FlightSQL, odd: dict[str, Any], words: str
) -> None:
    log = a_log(20).with_columns(clicks=pl.lit(SENTINEL))
    filled(flight_sql, log)
    flight_sql.odd = Odd(**odd)
    error = refusal(experiment(source=source(flight_sql)))
    assert words in str(error)
    assert str(SENTINEL) not in told(error)


def test_nobody_is_asked_for_rows_at_another_address(
    experiment: Builder, flight_sql: FlightSQL, tmp_path: Path
) -> None:
    filled(flight_sql, a_log(20))
    built = experiment(source=source(flight_sql))

    def at(place: str) -> Any:
        return info(lambda endpoint: FlightEndpoint(endpoint.ticket, [place]))

    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0)
        flight_sql.odd.info = at(f"grpc://127.0.0.1:{other.getsockname()[1]}")
        assert "keeps rows of clicks at another address" in str(refusal(built))
        with pytest.raises(BlockingIOError):
            other.accept()
    for place in ("arrow-flight-reuse-connection://?", flight_sql.at):
        flight_sql.odd.info = at(place)
        assert read(built, tmp_path)[0].height == 20


def test_a_server_that_is_silent_or_away_is_told(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_LIMITS", dict.fromkeys(driver._LIMITS, 0.3))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        built = experiment(source=table("clicks", "flightsql", at=at))
        assert "the server cannot be reached" in str(refusal(built))
    assert "the server cannot be reached" in str(refusal(built))


def test_a_server_that_dies_while_it_is_read_is_told(tmp_path: Path) -> None:
    def endless(rows: pa.Table) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        return rows.schema, chain.from_iterable(repeat(rows.to_batches()))

    (tmp_path / "line").mkdir()
    server = FlightSQL(f"grpc+unix://{tmp_path}/socket")
    with server, a_line(tmp_path / "socket", tmp_path / "line") as line:
        filled(server, a_log(2_000))
        server.odd.rows = endless
        with driver.open_flightsql(f"grpc+unix://{tmp_path}/line/socket", "at") as opener:
            pieces = opener("source.table", "clicks", None).pieces(["customer"], None)
            assert next(pieces).num_rows == 2_000
            line.cut()
            with pytest.raises(InputError, match="clicks cannot be read"):
                list(pieces)
