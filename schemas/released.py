"""The tables of a release: every column, its type, and what it says.

This is the outside of the privacy boundary: nothing here, and nothing made of it, holds an
unprotected outcome. A :class:`ReleaseTables` is what the private side hands over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow as pa

SCHEMA_VERSION: Final = 3
STORAGE_VERSION: Final = "v1.0.0"
"""DuckDB's storage format of the file, so that DuckDB 1.0 and later can read it."""

NEIGHBOURS: Final = "one unit's outcome (substitution)"
"""What two data sets may differ in for the guarantee to speak of them (label privacy)."""

NEIGHBOURS_WITH_CLUSTERS: Final = "one unit's outcome and cluster (substitution)"
"""The same where clusters are private."""

ALL: Final = "all"
"""The name of the one cluster, or the one pool, where there is only one."""

TABLES: Final[dict[str, dict[str, str]]] = {
    "release": {
        "release_id": "VARCHAR",
        "experiment": "VARCHAR",
        "period": "VARCHAR",
        "revision": "INTEGER",
        "created_at": "TIMESTAMP",
        "mechanism": "VARCHAR",
        "epsilon": "DOUBLE",
        "delta": "DOUBLE",
        "neighbours": "VARCHAR",
        "cluster_epsilon": "DOUBLE",
        "resampling_probability": "DOUBLE",
        "truncation_threshold": "DOUBLE",
        "noise_scale": "DOUBLE",
        "strata_statistic": "VARCHAR",
        "grid_step": "DOUBLE",
        "control": "VARCHAR",
        "same_shares": "BOOLEAN",
        "n_units": "BIGINT",
        "n_clusters": "BIGINT",
        "n_outcomes": "BIGINT",
        "schema_version": "INTEGER",
        "package_version": "VARCHAR",
    },
    "outcomes": {"outcome": "DOUBLE"},
    "pools": {
        "pool": "VARCHAR",
        "arm": "VARCHAR",
        "n_units": "BIGINT",
        "noisy_mean": "DOUBLE",
        "noisy_difference": "DOUBLE",
        "mean_weight": "DOUBLE",
        "square_weight": "DOUBLE",
    },
    "strata": {"cluster": "VARCHAR", "arm": "VARCHAR", "pool": "VARCHAR", "n_units": "BIGINT"},
    "debias": {
        "pool": "VARCHAR",
        "arm": "VARCHAR",
        "outcome": "DOUBLE",
        "probability": "DOUBLE",
        "weight": "DOUBLE",
        "noisy_count": "BIGINT",
    },
    "units": {
        "unit_id": "VARCHAR",  # or BIGINT, UBIGINT: released as it is in the log
        "cluster": "VARCHAR",
        "arm": "VARCHAR",
        "outcome": "DOUBLE",
        "outcome_debiased": "DOUBLE",
    },
    "estimates": {
        "arm": "VARCHAR",
        "control": "VARCHAR",
        "segment": "VARCHAR",
        "estimator": "VARCHAR",
        "estimate": "DOUBLE",
        "std_error": "DOUBLE",
        "privacy_std_error": "DOUBLE",
        "ci_lower": "DOUBLE",
        "ci_upper": "DOUBLE",
        "p_value": "DOUBLE",
        "p_value_holm": "DOUBLE",
        "confidence_level": "DOUBLE",
        "n_units": "BIGINT",
    },
}


@dataclass(frozen=True, order=True)
class ReleaseName:
    """Which release: names of one experiment sort by period, then revision."""

    experiment: str
    period: str
    revision: int

    @property
    def release_id(self) -> str:
        """``EXPERIMENT.PERIOD.rN``."""
        return f"{self.experiment}.{self.period}.r{self.revision}"


@dataclass(frozen=True)
class Manifest:
    """The one row of ``release``: what was done, and what is promised of it."""

    release_id: str
    experiment: str
    period: str
    revision: int
    created_at: datetime
    """UTC, without a time zone attached."""
    mechanism: str
    epsilon: float
    delta: float
    neighbours: str
    cluster_epsilon: float | None
    """The part of ``epsilon`` that clusters were randomised at; None where they are public."""
    resampling_probability: float | None
    """λ, as realised; None where no units are published."""
    truncation_threshold: float | None
    """γ, the least prior probability realised; None where no units are published."""
    noise_scale: float | None
    """σ, in units for counts, in grid steps for means and differences; None where there is none."""
    strata_statistic: str
    grid_step: float | None
    """One step of the grid, where means or differences are published; else None."""
    control: str
    same_shares: bool
    """Whether every cluster was randomised with the same arm shares (declared)."""
    n_units: int
    n_clusters: int
    n_outcomes: int
    schema_version: int
    package_version: str

    @property
    def has_units(self) -> bool:
        """Whether randomised outcomes of units are published, or statistics of strata alone."""
        return self.resampling_probability is not None

    @property
    def has_private_clusters(self) -> bool:
        """Whether clusters, and all that is made of them, are randomised ones."""
        return self.cluster_epsilon is not None


@dataclass(frozen=True)
class UnitTable:
    """The rows of ``units``, made as they are read, which can be done once."""

    n_rows: int
    reader: pa.RecordBatchReader
    failures: Sequence[BaseException]
    """Why reading ended too soon, if it did; without anybody's row."""

    @property
    def unit_type(self) -> pa.DataType:
        """The type of the ids: text, or 64-bit integers."""
        return self.reader.schema.field("unit_id").type


@dataclass(frozen=True)
class UnitFiles:
    """The rows of ``units`` in Parquet files, as several processes made them."""

    n_rows: int
    paths: tuple[Path, ...]
    unit_type: pa.DataType
    failures: tuple[BaseException, ...] = ()


@dataclass(frozen=True)
class ReleaseTables:
    """Everything that is to be published of one release, estimates excepted.

    Frames, and the rows of ``units``, have the columns of :data:`TABLES`, in that order.
    """

    manifest: Manifest
    outcomes: pl.DataFrame
    pools: pl.DataFrame
    strata: pl.DataFrame
    debias: pl.DataFrame
    units: UnitTable | UnitFiles

    def frames(self) -> dict[str, pl.DataFrame]:
        """The frames by the name of their table; all but ``units``."""
        return {
            "outcomes": self.outcomes,
            "pools": self.pools,
            "strata": self.strata,
            "debias": self.debias,
        }
