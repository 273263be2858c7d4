"""The benchmark of effect models: a log of people with six features, and its contenders."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tests.benchmarks.case import Case, Contender, Place
from tests.benchmarks.data import scrambled_ids, write_log
from tests.benchmarks.measure import Job
from tests.benchmarks.watch import Watch

FEATURES = ("age", "income", "visits", "tenure", "region", "device")

CONFIG = """
experiment = "bench"
source = {{ path = "{source}" }}
columns = {{ unit = "customer_id", arm = "variant", outcome = "spend" }}
arms = {{ control = "none", treatments = ["mail"] }}
outcome = {{ low = 0.0, high = 20.0 }}
propensity = {{ value = 0.5 }}
privacy = {{ epsilon = 1.0, delta = 1e-9, budget_epsilon = 1.0, budget_delta = 1e-9 }}
features = [
    {{ name = "age", low = 18, high = 90 }},
    {{ name = "income", low = 1, high = 1000, scale = "log" }},
    {{ name = "visits", low = 0, high = 50 }},
    {{ name = "tenure", low = 0, high = 20 }},
    {{ name = "region", levels = ["r0", "r1", "r2", "r3"] }},
    {{ name = "device", levels = ["phone", "desk", "tablet"] }},
]
subgroups = [{{ name = "age", feature = "age", edges = [35, 60] }}]
"""

ORDERED = """
CREATE TABLE units AS SELECT customer_id, variant, spend, age, income, visits, tenure, region,
    device FROM read_parquet(?) ORDER BY customer_id
"""


@dataclass(frozen=True)
class PeopleLog:
    """A row for every unit, with six features; the same size gives the same log."""

    n_units: int

    def write(self, folder: Path) -> Path:
        """Write Parquet files into ``folder`` unless they are there; returns their glob."""

        def chunk(start: int, size: int) -> pl.DataFrame:
            generator = np.random.default_rng([4, start])
            age, arm = generator.uniform(18, 90, size), generator.integers(0, 2, size)
            spend = generator.gamma(2.0, 2.0, size) + arm * age / 45.0
            return pl.DataFrame(
                {
                    "customer_id": scrambled_ids(np.arange(start, start + size)),
                    "variant": pl.Series(["none", "mail"]).gather(arm),
                    "spend": spend,
                    "age": age,
                    "income": np.exp(generator.normal(3.5, 1.0, size)),
                    "visits": generator.poisson(6.0, size),
                    "tenure": generator.exponential(4.0, size),
                    "region": pl.Series(["r0", "r1", "r2", "r3"]).gather(
                        generator.integers(0, 4, size)
                    ),
                    "device": pl.Series(["phone", "desk", "tablet"]).gather(
                        generator.integers(0, 3, size)
                    ),
                }
            )

        return write_log(folder, self.n_units, chunk)


def effects_case(word: str, place: Place, size: int) -> Case:
    """Whole runs, beside DuckDB's ordered copy of the same columns."""
    log = PeopleLog(size)
    folder = place.data / f"people-{size}"
    source = str(folder / "*.parquet")
    text = CONFIG.format(source=source)
    ordered = {"source": source, "memory_limit": place.memory_limit, "query": ORDERED}
    return Case(
        word,
        f"{size:,} units, 6 features, integer ids; an effect model of every unit's whole row",
        (
            Contender("DuckDB: ordered CTAS", Job("ordered_query", ordered), size),
            Contender("clusterdp: cate", Job("effect_model", {"config": text}), size, is_ours=True),
        ),
        lambda: _write(log, folder),
    )


def _write(log: PeopleLog, folder: Path) -> None:
    log.write(folder)


def effect_model(watch: Watch, work: str, prefect_home: str | None, config: str) -> int:
    """What ``clusterdp cate`` does with a configuration (TOML)."""
    path = Path(work) / "bench.toml"
    path.write_text(config, encoding="utf-8")
    import schemas.raw_frame  # noqa: F401, PLC0415 - else pandera is imported on the way, and timed
    from flows.effects.cate import fit_period  # noqa: PLC0415 - each task imports its own

    with watch:
        result = fit_period(str(path))
    found: Any = result.as_json()
    return int(found["n_rows"])
