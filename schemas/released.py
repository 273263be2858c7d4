"""The tables of a release: every column, its type, and what it says.

This is the outside of the privacy boundary: nothing here, and nothing made of it, holds an
unprotected outcome. A :class:`ReleaseTables` is what the private side hands over.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

SCHEMA_VERSION: Final = 2
STORAGE_VERSION: Final = "v1.0.0"
"""DuckDB's storage format of the file, so that DuckDB 1.0 and later can read it."""

NEIGHBOURS: Final = "one unit's outcome (substitution)"
"""What two data sets may differ in for the guarantee to speak of them (label privacy)."""

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


@dataclass(frozen=True)
class ReleaseTables:
    """Everything that is to be published of one release, estimates excepted.

    Frames have the columns of :data:`TABLES`, in that order.
    """

    manifest: Manifest
    outcomes: pl.DataFrame
    pools: pl.DataFrame
    strata: pl.DataFrame
    debias: pl.DataFrame
    units: pl.DataFrame

    def frames(self) -> dict[str, pl.DataFrame]:
        """The frames by the name of their table."""
        return {
            "outcomes": self.outcomes,
            "pools": self.pools,
            "strata": self.strata,
            "debias": self.debias,
            "units": self.units,
        }
