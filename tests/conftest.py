"""What the tests share: a log and its configuration on disk, and ways to run them.

Prefect reads its environment when it is imported, so this file sets that first and imports it late.
"""

import atexit
import gc
import gzip
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from unittest.mock import patch

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, settings

from tests.support.slow import pytest_runtest_protocol
from tests.support.tiers import (
    into_tiers,
    pytest_ignore_collect,
    pytest_pyfunc_call,
    pytest_terminal_summary,
)
from tests.support.zygote import PATIENCE, Ran, run_program

__all__ = [  # hooks among them
    "PATIENCE",
    "Ran",
    "pytest_ignore_collect",
    "pytest_pyfunc_call",
    "pytest_runtest_protocol",
    "pytest_terminal_summary",
]

pytest_plugins = (
    "tests.support.distances",
    "tests.support.stores",
    "tests.support.surroundings",
    "tests.support.ways",
)

# No test fails because its machine is slow: neither an example of it nor the making of one.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

_MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own there, of mode 0700
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 8 << 30:
    # Files of tests lie in memory: a release waits for its disk at a dozen commits.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the program has it: idle ones spin

os.umask(0o022)  # files are written as with most users, whoever runs the tests

_exit_status: list[int] = []


def pytest_collection(session: pytest.Session) -> None:
    """Look for no garbage while tests are collected: next to nothing is, and looking takes long."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave out what was collected, as it stays, whenever garbage is looked for from now on."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)  # what tests leave is little
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test into its tier, and tiers into their order."""
    into_tiers(items)


def pytest_sessionfinish(exitstatus: int) -> None:
    """Remember how the tests ended, for :func:`_end`."""
    _exit_status.append(int(exitstatus))


def _end() -> None:
    """End before the interpreter takes modules apart: DuckDB then prints pages about itself."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if _exit_status:
        os._exit(_exit_status[-1])


atexit.register(_end)  # first of all, hence called last of all
_PREFECT_HOME = Path(tempfile.mkdtemp(prefix="clusterdp-tests-"))
atexit.register(shutil.rmtree, _PREFECT_HOME, ignore_errors=True)
os.environ.update(
    PREFECT_HOME=str(_PREFECT_HOME),
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    DO_NOT_TRACK="1",
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="900",
    PREFECT_LOGGING_LEVEL="DEBUG",  # whatever a run could tell, it tells here
    PREFECT_LOGGING_TO_API_BATCH_INTERVAL="0.1",
)

if TYPE_CHECKING:
    from flows.check import CheckResult
    from flows.config.model.experiment import Config
    from flows.raw.boundary.sealed import Sealed
    from flows.raw.units.rows import Rows
    from flows.release import ReleaseResult
    from schemas.released import ReleaseTables

Content = pl.DataFrame | bytes | str
Section = Mapping[str, Any]
Sections = Sequence[Section]
"""Those of ``[[outcomes]]``, say."""

SENTINEL = 987654.5
"""An outcome that nothing but the log may show."""

_DEFAULTS: dict[str, Section] = {
    "source": {},
    "columns": {"unit": "customer", "arm": "variant", "cluster": "region", "outcome": "clicks"},
    "arms": {"control": "none", "treatments": ["mail"]},
    "outcome": {"values": [0, 1, 2, 3]},
    "privacy": {"mechanism": "cluster-dp", "epsilon": 2.0, "budget_epsilon": 1000.0},
}

EXACT: Section = {
    "epsilon": None,
    "mechanism": "uniform-prior-dp",
    "strata_statistic": "none",
    "resampling_probability": 1e-12,
}
"""Privacy settings that leave outcomes as they are, but for one in 10¹², to check numbers with."""


def a_log(
    n_units: int = 240,
    *,
    arms: tuple[str, ...] = ("none", "mail"),
    clusters: tuple[str, ...] = ("east", "west"),
    n_outcomes: int = 4,
) -> pl.DataFrame:
    """A faultless log; arms and clusters take turns, outcomes look random but are not."""
    units = range(n_units)
    return pl.DataFrame(
        {
            "customer": [f"c{unit:05d}" for unit in units],
            "variant": [arms[unit % len(arms)] for unit in units],
            "region": [clusters[unit // len(arms) % len(clusters)] for unit in units],
            "clicks": [float(unit * 7919 % 101 % n_outcomes) for unit in units],
        }
    )


def rows(*lines: tuple[Any, Any, Any, Any]) -> pl.DataFrame:
    """A log of these (customer, variant, region, clicks)."""
    return pl.DataFrame(lines, ["customer", "variant", "region", "clicks"], orient="row")


def write_content(path: Path, content: Content) -> None:
    """Write a log's file in the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = path.suffix == ".gz"
    plain = path.with_suffix("") if packed else path
    if isinstance(content, str):
        plain.write_text(content, encoding="utf-8", newline="")
    elif isinstance(content, bytes):
        plain.write_bytes(content)
    elif plain.suffix.lower() == ".parquet":
        content.write_parquet(plain)
    elif plain.suffix.lower() == ".csv":
        content.write_csv(plain)
    else:
        content.write_ndjson(plain)
    if packed:
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()


def toml(sections: Mapping[str, Section | Sections], experiment: str = "trial") -> str:
    """A configuration; what JSON spells, TOML spells alike, but for inline tables."""
    lines = [f"experiment = {json.dumps(experiment)}"]
    several = {name: list(keys) for name, keys in sections.items() if isinstance(keys, Sequence)}
    lines += [f"{name} = {_value(tables)}" for name, tables in several.items()]
    for section, keys in sections.items():
        if isinstance(keys, Sequence):
            continue
        lines.append(f"[{section}]")
        lines += [f"{key} = {_value(value)}" for key, value in keys.items() if value is not None]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, dict):
        given = {key: one for key, one in value.items() if one is not None}
        return "{" + ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in given.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # also inf and nan, which TOML has and JSON lacks
    return json.dumps(value)


@dataclass(frozen=True)
class Experiment:
    """A configuration on disk, with its log beside it."""

    config: Path

    @property
    def folder(self) -> Path:
        """The folder everything lies in."""
        return self.config.parent

    @property
    def releases(self) -> Path:
        """Where the releases of the experiment go."""
        return self.folder / "releases" / "trial"

    @property
    def quarantine(self) -> Path:
        """Where the rows that were set aside go."""
        return self.folder / "quarantine" / "trial"

    @property
    def entries(self) -> list[str]:
        """Everything in the folder: files, and folders with a slash at their end."""
        found = self.folder.rglob("*")
        return sorted(
            f"{one.relative_to(self.folder)}{'/' if one.is_dir() else ''}" for one in found
        )

    @property
    def files(self) -> list[str]:
        """The files in the folder."""
        return [entry for entry in self.entries if not entry.endswith("/")]

    def load(self) -> "Config":
        """The configuration as the program reads it."""
        from flows.config.load import load  # noqa: PLC0415 - see the top of this file

        return load(self.config)

    def check(self, period: str | None = None) -> "CheckResult":
        """Run ``clusterdp check`` as a plain function."""
        from flows.check import check  # noqa: PLC0415 - see the top of this file

        return check(self.config, period)

    def run(self, period: str | None = None, *, revise: bool = False) -> "ReleaseResult":
        """Run a release by plain steps, without Prefect; as the fixture ``way`` has it, if used."""
        from flows.release import release_period  # noqa: PLC0415 - see the top of this file

        return release_period(str(self.config), period, revise)

    def run_all(self, *periods: str) -> None:
        """Run a release of each of these periods."""
        for period in periods:
            self.run(period)

    def lose(self, period: str | None = None) -> None:
        """Run a release that fails when its file is being written; its charge is given back."""
        with (
            patch("flows.released.publish._insert", lambda *_: 1 / 0),
            pytest.raises(ZeroDivisionError),
        ):
            self.run(period)

    def read(self, period: str = "once") -> pl.DataFrame:
        """The log as the private steps see it."""
        from flows.raw.ingest import ingest  # noqa: PLC0415 - see the top of this file
        from tests.support.whole_log import whole_log  # noqa: PLC0415 - likewise

        return whole_log(ingest(self.load().log_source, period).open())


def sealed_rows(frame: pl.DataFrame, arms: tuple[str, ...]) -> "Sealed[Rows]":
    """Rows ``unit arm cluster outcome``, text where they are labels, as a validation gives them.

    There may be ``outcome 2`` and so on, and public facts (``assigned``, ``attribute 0``).
    """
    from flows.raw.boundary.sealed import Sealed  # noqa: PLC0415
    from flows.raw.spill.sorted_runs import Stored  # noqa: PLC0415
    from flows.raw.units.rows import (  # noqa: PLC0415 - see the top of this file
        COLUMNS,
        counted,
        rows_of,
    )

    kinds = [pl.col("arm").cast(pl.Enum(arms)), pl.col("cluster").cast(pl.Categorical)]
    others = ("outcome ", "assigned", "attribute ")
    more = [name for name in frame.columns if name.startswith(others)]
    ordered = frame.select(*COLUMNS, *more).with_columns(kinds).sort("unit")
    part = Stored(ordered.height, ordered), counted(ordered, len(arms), None)
    rows = rows_of([part], arms, ordered.schema["unit"])
    return Sealed(rows, rows.n_units)


def made_units(tables: "ReleaseTables") -> pl.DataFrame:
    """The rows of ``units``, which can be made once; labels as text, nothing calibrated."""
    from schemas.tables import STRATUM, debiased, randomised  # noqa: PLC0415 - see the top

    names = pl.col("cluster", "arm", "pool").cast(pl.String)
    strata = tables.strata.with_row_index(STRATUM).select(STRATUM, names)
    found = pl.DataFrame(pl.from_arrow(tables.units.reader.read_all()))
    found = found.join(strata, on=STRATUM, how="left", maintain_order="left")
    columns = ["unit_id", "cluster", "arm"]
    for metric in tables.manifest.outcomes:
        drawn, value = randomised(metric.metric), debiased(metric.metric)
        weights = tables.debias.filter(pl.col("metric") == metric.metric).select(
            pl.col("pool", "arm").cast(pl.String),
            pl.col("outcome").alias(drawn),
            pl.col("weight").alias(value),
        )
        on = ["pool", "arm", drawn]
        found = found.join(weights, on=on, how="left", maintain_order="left")
        columns += [drawn, value]
    return found.select(*columns, pl.exclude(*columns, STRATUM, "pool"))


def plain_rows(rows: "Rows") -> pl.DataFrame:
    """All rows of a validation at once, labels as text."""
    labels = [pl.col(name).cast(pl.String) for name in ("arm", "cluster")]
    return pl.concat([frame.with_columns(labels) for frame in rows.frames()])


def build_experiment(
    folder: Path,
    log: Content | Mapping[str, Content] | None = None,
    file: str = "log.parquet",
    /,
    **sections: Section | Sections | None,
) -> Experiment:
    """Write a log to ``file`` (or several by their names) and a configuration that fits.

    Keyword arguments are sections of the configuration; their keys replace the defaults, None
    takes a key out, or a section.
    """
    folder.mkdir(exist_ok=True)
    contents = log if isinstance(log, Mapping) else {file: a_log() if log is None else log}
    for name, content in contents.items():
        write_content(folder / name, content)
    names = [*_DEFAULTS, *(name for name in sections if name not in _DEFAULTS)]
    merged: dict[str, Section | Sections] = {}
    for name in names:
        given = sections.get(name, {})
        if isinstance(given, Mapping):
            default = {"path": file} if name == "source" else _DEFAULTS.get(name, {})
            merged[name] = {**default, **given}
        elif given is not None:
            merged[name] = given
    config = folder / "trial.toml"
    config.write_text(toml(merged), encoding="utf-8")
    return Experiment(config)


class Builder(Protocol):
    """What the fixture ``experiment`` gives: :func:`build_experiment` in a folder of its own."""

    def __call__(
        self,
        log: Content | Mapping[str, Content] | None = None,
        file: str = "log.parquet",
        /,
        **sections: Section | Sections | None,
    ) -> Experiment:
        """Write a log and a configuration that fits."""


@pytest.fixture
def experiment(tmp_path: Path) -> Builder:
    return partial(build_experiment, tmp_path / "experiment")


def released(path: Path, query: str) -> pl.DataFrame:
    """What a query finds in a released file; a table's name will do."""
    statement = query if " " in query else f"FROM main.{query}"
    with duckdb.connect(str(path), read_only=True) as connection:
        found = pl.from_arrow(connection.sql(statement).to_arrow_table())
    assert isinstance(found, pl.DataFrame)
    return found


def told(error: BaseException) -> str:
    """Everything that can be read off an error: it, its causes and contexts, the traceback."""
    parts = traceback.format_exception(error)
    seen: list[BaseException] = []
    left = [error]
    while left:
        one = left.pop()
        if any(one is other for other in seen):
            continue
        seen.append(one)
        parts += [str(one), repr(one), repr(one.args), repr(vars(one))]
        left += [other for other in (one.__cause__, one.__context__) if other is not None]
    return "\n".join(parts)


class Program(Protocol):
    """What the fixture ``clusterdp`` gives."""

    def __call__(self, *arguments: str | Path) -> Ran:
        """Run the program with these arguments, in an environment without Prefect's settings."""


@pytest.fixture
def clusterdp(tmp_path: Path) -> Program:
    def run(*arguments: str | Path) -> Ran:
        ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
        return run_program(arguments, tmp_path, ours)

    return run


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """Give the environment back as it was: the program sets Prefect's variables."""
    with patch.dict(os.environ):
        yield
