"""Logs in tables of PostgreSQL, by a server of the tests' own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import psycopg
import pytest

from flows.ledger.account import Account
from schemas.errors import ConfigError, ConflictError, NoFileError
from tests.conftest import a_log, told
from tests.support.places import read, refusal, table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Builder
    from tests.postgresql import PostgreSQL

pytest_plugins = ["tests.postgresql"]
pytest.importorskip("adbc_driver_postgresql", reason="an extra: clusterdp[postgresql]")

DAY = "2026-11-20"
TYPES = {"customer": "text", "variant": "varchar(10)", "region": "varchar(20)", "clicks": "numeric"}


def at(postgresql: PostgreSQL) -> str:
    """The address of an empty database, as libpq has it."""
    return postgresql.emptied().replace("+psycopg", "")


def filled(address: str, log: pl.DataFrame, name: str = "clicks", **types: str) -> str:
    kinds = {column: (TYPES | types).get(column, "text") for column in log.columns}
    columns = ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
    marks = ", ".join(["%s"] * log.width)
    with psycopg.connect(address) as connection:
        connection.execute(f'CREATE TABLE "{name}" ({columns})')
        with connection.cursor() as cursor:
            cursor.executemany(f'INSERT INTO "{name}" VALUES ({marks})', log.rows())
    return name


def source(address: str, name: str = "clicks", **more: Any) -> dict[str, Any]:
    return table(name, "postgresql", at=address, **more)


def test_a_table_is_read_as_files_are(
    experiment: Builder, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    address = at(postgresql)
    filled(address, a_log(60))
    rows, known = read(experiment(source=source(address)), tmp_path)
    as_files, known_as_files = read(experiment(a_log(60), "log.csv"), tmp_path)
    assert rows.equals(as_files)
    assert known == known_as_files


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("numeric", "1e400"),
        ("numeric", "NaN"),
        ("double precision", "Infinity"),
        ("text", "oops"),
        ("timestamptz", "infinity"),
        ("timestamp", "294276-12-31"),
        ("date", "-infinity"),
        ("jsonb", '{"a": 1}'),
        ("interval", "1 day"),
        ("bytea", "\\xff"),
        ("money", "3.50"),
        ("integer[]", "{1,2}"),
    ],
)
def test_no_outcome_keeps_a_row_from_being_read(
    experiment: Builder, postgresql: PostgreSQL, kind: str, odd: str, tmp_path: Path
) -> None:
    address = at(postgresql)
    log = a_log(20).with_columns(clicks=pl.Series([odd] + [None] * 19))
    filled(address, log, clicks=kind)
    found, _ = read(experiment(source=source(address)), tmp_path)
    assert found["unit"].to_list() == sorted(log["customer"])


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
    experiment: Builder, postgresql: PostgreSQL, tmp_path: Path, kind: str, here: str, there: str
) -> None:
    address = at(postgresql)
    log = a_log(20)
    others = log.with_columns(customer=pl.lit("x") + pl.col("customer"), at=pl.lit(there))
    filled(address, pl.concat([log.with_columns(at=pl.lit(here)), others]), at=kind)
    schedule = {"since": DAY, "timezone": "Europe/Zurich"}
    built = experiment(source=source(address, period="at"), schedule=schedule)
    found, _ = read(built, tmp_path, DAY)
    assert found["unit"].to_list() == sorted(log["customer"])
    assert isinstance(refusal(built, "2026-12-24"), NoFileError)


def test_names_are_quoted(experiment: Builder, postgresql: PostgreSQL, tmp_path: Path) -> None:
    address = at(postgresql)
    name = 'we"ird; DROP TABLE x'
    with psycopg.connect(address) as connection:
        connection.execute('CREATE TABLE "we""ird; DROP TABLE x" (customer text)')
    told_of = str(refusal(experiment(source=source(address, name))))
    assert "has no column" in told_of


def test_a_view_is_refused(experiment: Builder, postgresql: PostgreSQL, tmp_path: Path) -> None:
    """One person's clicks would decide whether it can be read."""
    address = at(postgresql)
    filled(address, a_log(20), "base", clicks="integer")
    with psycopg.connect(address) as connection:
        query = "SELECT customer, variant, region, 10 / (clicks - 3) AS clicks FROM base"
        connection.execute(f"CREATE VIEW clicks AS {query}")
        connection.execute("CREATE MATERIALIZED VIEW kept AS SELECT * FROM base")
    told_of = str(refusal(experiment(source=source(address))))
    assert told_of.startswith("source.table: clicks is a view or a foreign table")
    assert read(experiment(source=source(address, "public.kept")), tmp_path)[0].height == 20


def test_a_part_that_is_foreign_is_refused(experiment: Builder, postgresql: PostgreSQL) -> None:
    address, parts = at(postgresql), {"whole": "PARTITION OF whole DEFAULT"}
    parts["parent"] = "() INHERITS (parent)"
    with psycopg.connect(address) as connection:
        connection.execute("CREATE FOREIGN DATA WRAPPER far")
        connection.execute("CREATE SERVER there FOREIGN DATA WRAPPER far")
        connection.execute("CREATE TABLE whole (region text) PARTITION BY LIST (region)")
        connection.execute("CREATE TABLE parent (region text)")
        for name, part in parts.items():
            connection.execute(f"CREATE FOREIGN TABLE far_{name} {part} SERVER there")
    for name in parts:
        told_of = str(refusal(experiment(source=source(address, name))))
        assert f"{name} is a view or a foreign table, or has one as a part" in told_of
    with psycopg.connect(address) as connection:
        connection.execute("DROP FOREIGN DATA WRAPPER far CASCADE")


def test_a_database_whose_texts_may_be_none_is_refused(
    experiment: Builder, postgresql: PostgreSQL
) -> None:
    """In SQL_ASCII a text may be any bytes: one person's would decide whether it can be read."""
    address = at(postgresql)
    with psycopg.connect(address, autocommit=True) as connection:
        how = "ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
        connection.execute(f"CREATE DATABASE bytes {how}")
    other = address.replace("/postgres?", "/bytes?")
    assert other != address
    told_of = str(refusal(experiment(source=source(other))))
    assert told_of == "source.at: the database is in SQL_ASCII, which was not tried; UTF8 is read"


def test_policies_that_leave_rows_out_are_refused(
    experiment: Builder, postgresql: PostgreSQL
) -> None:
    address = at(postgresql)
    filled(address, a_log(20), clicks="integer")
    with psycopg.connect(address) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA public TO reader")
        connection.execute("GRANT SELECT ON clicks TO reader")
        connection.execute("ALTER TABLE clicks ENABLE ROW LEVEL SECURITY")
        connection.execute("CREATE POLICY clicked ON clicks USING (clicks > 0)")
    other = address.replace("user=postgres", "user=reader")
    assert other != address
    told_of = str(refusal(experiment(source=source(other))))
    assert told_of == "source.table: clicks cannot be read; may this user read it, all its rows?"


def test_both_tables_are_of_one_moment(
    experiment: Builder, postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.raw.landing import postgresql as driver  # noqa: PLC0415

    address, log = at(postgresql), a_log(20)
    seen = log.drop("clicks").with_columns(ts=pl.lit("2026-11-20 00:00:00+00"))
    events = log.select("customer", "clicks").with_columns(ts=pl.lit("2026-11-20 01:00:00+00"))
    filled(address, seen, "seen", ts="timestamptz")
    filled(address, events, "done", ts="timestamptz", clicks="double precision")
    read_pieces = driver._PostgreSQL.pieces

    def meanwhile(table: Any, *asked: Any) -> Any:
        yield from read_pieces(table, *asked)
        with psycopg.connect(address) as connection:
            connection.execute("DELETE FROM done")

    monkeypatch.setattr(driver._PostgreSQL, "pieces", meanwhile)
    built = experiment(
        source=source(address, "seen", grain="event", outcomes_table="done"),
        columns={"time": "ts"},
        outcome={"aggregate": "sum"},
    )
    found, _ = read(built, tmp_path)
    assert (
        found.select("unit", "outcome").rows()
        == log.select("customer", "clicks").sort("customer").rows()
    )


def test_no_version_is_kept(experiment: Builder, postgresql: PostgreSQL) -> None:
    """A rerun reads the table as it is."""
    address = at(postgresql)
    filled(address, a_log(40))
    built = experiment(source=source(address))
    ends = [built.run().status for _ in range(2)]
    assert ends == ["published", "unchanged"]
    assert [one.versions for one in Account.of(built.load()).entries()] == [None]
    with psycopg.connect(address) as connection:
        connection.execute("INSERT INTO clicks VALUES ('late', 'mail', 'east', 1)")
    with pytest.raises(ConflictError, match="from other rows"):
        built.run()


def test_who_is_not_let_in_is_told(experiment: Builder, postgresql: PostgreSQL) -> None:
    address = postgresql.guarded("secretive").replace("+psycopg", "").replace(":secretive@", "@")
    error = refusal(experiment(source=source(address)))
    assert "cannot be reached or does not let this user in" in str(error)
    assert "secretive" not in told(error)
    assert "authentication" not in told(error)  # the driver's own words
    nobody = "postgresql://127.0.0.1:1/none"
    assert "cannot be reached" in str(refusal(experiment(source=source(nobody))))


@pytest.mark.parametrize(
    "address", [None, "mysql://host/db", "postgresql://user:secret@host/db", "host=x password=y"]
)
def test_what_is_no_address_is_refused(experiment: Builder, address: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(source=table("clicks", "postgresql", at=address)).load()
    assert caught.value.key == "source.at"
    assert "secret" not in str(caught.value)
