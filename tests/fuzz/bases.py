"""Sound files to begin from, made once a process and as rich as can be; and their changes."""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from flows.effects.cate import fit_period
from schemas.released import TABLES
from tests.conftest import Section, a_log, build_experiment
from tests.effect_logs import CONFIG, people
from tests.fuzz.case import Remade
from tests.support.own_schema import on_stored

UNITS = 240

_ARMS = {"control": "none", "treatments": ["mail"], "same_shares": True}
_CLICKS: dict[str, Any] = {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]}
_BOUGHT: Section = {"name": "bought", "column": "bought", "values": ["no", "yes"]}
_SPENT: dict[str, Any] = {"name": "spent", "column": "spent", "low": 0.0, "high": 9.0, "levels": 4}
_PRIMARY = {"role": "primary", "label": "Clicks", "measured_in": "clicks"}
_GUARDED = {"role": "guardrail", "margin": 0.1, "direction": "decrease"}
SEVERAL: list[Section] = [_CLICKS | _PRIMARY, _BOUGHT, _SPENT | _GUARDED]
RATIOS: list[Section] = [
    {"name": "each", "numerator": "spent", "denominator": "clicks", "role": "secondary"}
]
PUBLIC = {"attributes": ["country", "age", "since"], "assigned_by": "home", "outcome": None}
_HOMES = {"privacy_unit": "home", "outcome": None}
_TWO = {"outcome": None, "outcomes": [_CLICKS, _BOUGHT]}
_THREE = {"outcome": None, "outcomes": SEVERAL, "ratios": RATIOS, "arms": _ARMS}

SECTIONS: dict[str, dict[str, Any]] = {
    "tables": _THREE
    | {
        "columns": PUBLIC,
        "privacy": {"mechanism": "cluster-optimal-dp", "epsilon": 12.0, "learn_from": "arms"},
    },
    "pairs": _TWO
    | {
        "columns": _HOMES,
        "privacy": {
            "mechanism": "cluster-optimal-dp",
            "epsilon": 6.0,
            "joint": "yes",
            "learn_from": "nothing",
            "rows_each": 3,
        },
    },
    "counts": _THREE
    | {
        "columns": PUBLIC | {"attributes": ["country"]},
        "privacy": {"mechanism": "cluster-dp", "epsilon": 6.0, "margins": ["country"]},
        "decision": {"primary": "all"},
    },
    "means": _THREE
    | {
        "columns": _HOMES,
        "privacy": {
            "mechanism": "uniform-prior-dp",
            "epsilon": 6.0,
            "strata_statistic": "means",
            "rows_each": 3,
        },
    },
    "plain": {
        "privacy": {"mechanism": "uniform-prior-dp", "strata_statistic": "none"},
        "publish": {"unit_id": "keyed-hash", "key_file": "ids.key"},
    },
    "histogram": _THREE
    | {
        "columns": {"outcome": None},
        "ratios": None,
        "privacy": {"mechanism": "noisy-histogram", "epsilon": 6.0},
    },
    "differences": _THREE
    | {
        "columns": {"outcome": None},
        "ratios": None,
        "privacy": {"mechanism": "noisy-horvitz-thompson", "epsilon": 6.0},
    },
    "clusters": _TWO
    | {
        "columns": {"outcome": None},
        "arms": _ARMS,
        "privacy": {"mechanism": "uniform-prior-dp", "epsilon": 4.0},
        "private_clusters": {"epsilon": 1.0, "labels": ["east", "west"]},
    },
}
"""What is configured of each release; together every table of a release has rows in one of them."""

NIGHTS = ("2026-11-01", "2026-11-02", "2026-11-03")


def rich_log(units: int = UNITS) -> pl.DataFrame:
    """A faultless log with three outcomes, attributes of three types, and households of two."""
    pair = pl.int_range(pl.len()) // 4 * 2 + pl.int_range(pl.len()) % 2
    return a_log(units).with_columns(
        bought=pl.when(pl.col("clicks") > 1).then(pl.lit("yes")).otherwise(pl.lit("no")),
        spent=pl.col("clicks") * 2.5,
        country=pl.when(pair % 3 == 0).then(pl.lit("ch")).when(pair % 3 == 1).then(pl.lit("it")),
        age=20 + pair % 50,
        since=pl.date(2026, 1, 1) + pl.duration(days=pair % 20),
        home=pl.concat_str(pl.lit("h"), pair),
    )


@functools.cache
def base(name: str) -> dict[str, bytes]:
    """The files of a sound base by their paths; "nights" is a folder of three releases."""
    with tempfile.TemporaryDirectory() as folder:
        return {"model": _model, "nights": _nights}.get(name, _release)(Path(folder), name)


def _release(folder: Path, name: str) -> dict[str, bytes]:
    sections, nights = SECTIONS[name], list[str | None]([None])
    logs: dict[str, pl.DataFrame] = {"log.parquet": rich_log()}
    if name == "plain":  # the second night has learnt from the first
        sections, nights = sections | {"source": {"path": "{period}.parquet"}}, list(NIGHTS[:2])
        logs = {f"{night}.parquet": rich_log() for night in NIGHTS[:2]}
    built = build_experiment(folder / "made", logs, **sections)
    (built.folder / "ids.key").touch(mode=0o600)
    (built.folder / "ids.key").write_bytes(b"k" * 40)
    return {"x.duckdb": [built.run(night) for night in nights][-1].path.read_bytes()}


def _nights(folder: Path, _: str) -> dict[str, bytes]:
    logs = {f"{night}.parquet": rich_log(80) for night in NIGHTS}
    sections = SECTIONS["means"] | {
        "source": {"path": "{period}.parquet"},
        "schedule": {"since": NIGHTS[0], "until": NIGHTS[-1]},
    }
    built = build_experiment(folder / "made", logs, **sections)
    for night in NIGHTS:
        built.run(night)
    found = (one for one in built.releases.iterdir() if one.is_file() and not one.is_symlink())
    return {f"nights/{one.name}": one.read_bytes() for one in found if "lock" not in one.name}


def _model(folder: Path, _: str) -> dict[str, bytes]:
    people(400).write_parquet(folder / "log.parquet")
    config = folder / "cate.toml"
    more = 'pairs = [["age", "sex"]]\n'
    text = CONFIG.format(
        file="log.parquet", epsilon=4.0, privacy="", propensity="value = 0.5", more=""
    )
    config.write_text(more + text, encoding="utf-8")
    return {"model.json": fit_period(str(config)).path.read_bytes()}


def model() -> dict[str, Any]:
    """The document of a sound effect model."""
    found: dict[str, Any] = json.loads(base("model")["model.json"])
    return found


@functools.cache
def columns(name: str) -> dict[str, dict[str, str]]:
    """The columns of a release's tables that have rows, with their types."""
    files = base(name)
    content = files["x.duckdb" if "x.duckdb" in files else f"nights/trial.{NIGHTS[0]}.r1.duckdb"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.duckdb")
        path.write_bytes(content)
        with duckdb.connect(str(path), read_only=True) as connection:
            return {
                table: {
                    str(one[0]): str(one[1])
                    for one in connection.sql(f'DESCRIBE main."{table}"').fetchall()
                }
                for table in TABLES
                if connection.sql(f'SELECT 1 FROM main."{table}" LIMIT 1').fetchall()
            }


_COMPRESSED = """
    SELECT format('"{}"."{}"."{}"', database_name, schema_name, table_name) FROM duckdb_tables()
    WHERE contains(sql, 'USING COMPRESSION')"""


def _without_compressions(connection: duckdb.DuckDBPyConnection) -> None:
    """Name none any more: newer storage versions, and columns of other types, refuse it."""
    for (place,) in connection.execute(_COMPRESSED).fetchall():
        connection.execute(f"CREATE OR REPLACE TABLE {place} AS FROM {place}")


def remake(how: Remade, name: str, path: Path) -> None:
    """Write the file ``name`` of a base to ``path`` and change it; raises where it cannot be."""
    path.write_bytes(base(how.base)[name])
    if how.statements:
        # Views may be of a file that lies beside, in the folder where commands are run.
        beside = f"SET file_search_path = '{path.parents[name.count('/')]}'"
        with duckdb.connect(str(path), config={"memory_limit": "1GB", "threads": 1}) as connection:
            connection.execute(beside)
            if any(" TYPE " in statement for statement in how.statements):
                _without_compressions(connection)
            for statement in how.statements:
                done = connection.execute(on_stored(connection, statement))
                if statement.startswith("UPDATE") and done.fetchall() == [(0,)]:
                    raise ValueError(f"{statement} changes no row of {how.base}")
    if how.storage is not None:
        other = path.with_name("other.duckdb")
        with duckdb.connect() as connection:
            connection.execute(f"ATTACH '{path}' AS old")
            _without_compressions(connection)
            connection.execute(f"ATTACH '{other}' AS new (STORAGE_VERSION '{how.storage}')")
            connection.execute("COPY FROM DATABASE old TO new")
        other.replace(path)
    if how.cut is None and not how.flips:
        return
    content = bytearray(path.read_bytes())
    for share in how.flips:
        content[int(share * (len(content) - 1))] ^= 0x55
    if how.cut is not None:
        del content[int(how.cut * len(content)) :]
    path.write_bytes(content)
