"""Sites and effect models whose log is a table: as a release's, landed, pinned and refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from flows.config.load import load_any
from flows.ledger.account import Account
from schemas.errors import ConfigError, InputError, NoFileError
from tests.effect_logs import campaign, people
from tests.flows.effects.test_multisite import hospital, patients
from tests.flows.raw.landing.test_postgresql import at, filled
from tests.support.places import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.effect_logs import AtHome
    from tests.flows.effects.test_multisite import AtSite
    from tests.postgresql import PostgreSQL
    from tests.support.lakes import Lake

__all__ = ["campaign", "hospital"]  # fixtures

pytest_plugins = ["tests.postgresql", "tests.support.lakes"]

DAY, NEXT = "2026-11-20", "2026-11-21"
LOGS = {"trial": patients, "matching": patients, "cate": people}


@pytest.fixture(params=LOGS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def built(kind: str, request: pytest.FixtureRequest) -> AtSite | AtHome:
    """What reads its log from a file."""
    found: AtSite | AtHome
    if kind == "cate":
        found = request.getfixturevalue("campaign")()
    else:
        found = request.getfixturevalue("hospital")(design=kind)
    return found


@pytest.fixture
def log(kind: str) -> pl.DataFrame:
    return LOGS[kind]()


def named(built: AtSite | AtHome, source: Mapping[str, Any]) -> None:
    """Name the log anew."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in source.items() if value is not None]
    built.edit('path = "log.parquet"', "\n".join(lines))


def versions(built: AtSite | AtHome) -> list[Mapping[str, str] | None]:
    return [one.versions for one in Account.of(load_any(built.config)).entries() if one.counts]


def n_units(result: Any) -> int:
    document = result.as_json()
    return int(document.get("n_rows", document.get("n_units")))


def late(log: pl.DataFrame) -> pl.DataFrame:
    return log.head(10).with_columns(id=pl.lit("late") + pl.col("id"))


def test_a_table_is_read_as_the_file_was(
    built: AtSite | AtHome, lake: Lake, log: pl.DataFrame
) -> None:
    assert built.run().status == "published"
    lake.add("log", log.with_columns(more=pl.lit("x")))
    named(built, lake.source("log"))
    assert built.run().status == "unchanged"
    assert not list(built.folder.glob("quarantine/.spill-*"))


def test_so_is_one_of_a_database(
    built: AtSite | AtHome, postgresql: PostgreSQL, log: pl.DataFrame
) -> None:
    pytest.importorskip("adbc_driver_postgresql", reason="an extra: clusterdp[postgresql]")
    assert built.run().status == "published"
    address = at(postgresql)
    numbers = {name: "double precision" for name, kind in log.schema.items() if kind.is_numeric()}
    filled(address, log, "log", **numbers)
    named(built, table("log", "postgresql", at=address))
    assert built.run().status == "unchanged"
    assert versions(built) == [None]


@pytest.mark.parametrize("kind", ["matching", "cate"], indirect=True)
def test_a_rerun_reads_what_was_reported(
    built: AtSite | AtHome, lake: Lake, log: pl.DataFrame
) -> None:
    lake.add("log", log)
    named(built, lake.source("log"))
    assert built.run().status == "published"
    (pinned,) = versions(built)
    assert list(pinned or {}) == ["source.table"]
    lake.add("log", late(log))
    assert (built.run().status, versions(built)) == ("unchanged", [pinned])
    revised = built.run(revise=True)
    assert (revised.status, n_units(revised)) == ("published", log.height + 10)
    lake.add("log", late(late(log)))
    lake.expire("log")
    with pytest.raises(InputError, match="version that this period was released from"):
        built.run()
    assert n_units(built.run(revise=True)) == log.height + 20


@pytest.mark.parametrize("kind", ["matching", "cate"], indirect=True)
def test_a_period_is_a_column(built: AtSite | AtHome, lake: Lake, log: pl.DataFrame) -> None:
    others = log.with_columns(id=pl.col("id").reverse(), day=pl.lit(NEXT)).head(50)
    lake.add("log", pl.concat([log.with_columns(day=pl.lit(DAY)), others]))
    named(built, lake.source("log", period="day"))
    with pytest.raises(ConfigError, match=r"--period: missing: source\.period tells"):
        built.run()
    with pytest.raises(NoFileError, match=r"^source\.table: .* has no row of 2026-11-22$"):
        built.run("2026-11-22")
    assert n_units(built.run(DAY)) == log.height
    assert n_units(built.run(NEXT)) == 50


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ({"path": ""}, "source.path"),
        ({"path": "log.csv", "in": "delta"}, "source.in"),
        ({"path": "log.csv", "period": "day"}, "source.period"),
        ({"table": "x"}, "source.in"),
        ({"table": "x", "in": "delta", "path": "log.csv"}, "source.path"),
        ({"table": "x", "in": "delta", "delimiter": ";"}, "source.delimiter"),
        ({"table": "x", "in": "delta", "at": "x"}, "source.at"),
        ({"table": "s3://bucket/x", "in": "delta"}, "source.table"),
        ({"table": "x", "in": "postgresql", "at": "postgresql://a:b@c/d"}, "source.at"),
        ({"table": "x", "in": "flightsql", "at": "grpc://far:1"}, "source.at"),
        ({"table": "x", "in": "delta", "outcomes_table": "x"}, "source.outcomes_table"),
        ({"table": "x", "in": "delta", "period": "arm"}, "source.period"),
    ],
)
def test_what_does_not_go_together(
    built: AtSite | AtHome, source: dict[str, Any], key: str
) -> None:
    named(built, source)
    with pytest.raises(ConfigError) as caught:
        load_any(built.config)
    assert caught.value.key == key


@pytest.mark.parametrize("kind", ["matching", "cate"], indirect=True)
@pytest.mark.parametrize("column", ["sex", "age"])
def test_a_private_column_tells_no_period(built: AtSite | AtHome, column: str) -> None:
    named(built, table("x", "delta", period=column))
    with pytest.raises(ConfigError, match=r"^source\.period: .* follow from anything that is prot"):
        load_any(built.config)


@pytest.mark.parametrize("file", ["log.parquet", "_delta_log/00000000000000000000.json"])
def test_no_message_of_a_driver_is_shown(
    built: AtSite | AtHome, log: pl.DataFrame, file: str
) -> None:
    deltalake: Any = pytest.importorskip("deltalake", reason="an extra: clusterdp[delta]")
    where = built.folder / "lake"
    deltalake.write_deltalake(str(where), log.to_arrow())
    broken = where / file if "/" in file else next(where.glob("*.parquet"))
    broken.write_bytes(b"PAR1PRIVATEOUTCOMEPAR1")
    named(built, table(where, "delta"))
    with pytest.raises(InputError) as caught:
        built.run()
    assert str(caught.value).startswith("source.table: ")
    assert "PRIVATEOUTCOME" not in str(caught.value)
    assert (caught.value.exit_code, caught.value.__context__) == (2, None)
    assert built.paid == 0
    assert not list(built.folder.glob("quarantine/.spill-*"))
