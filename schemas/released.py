"""The published parts of a release, in memory; their columns are in :mod:`schemas.tables`.

This is outside the privacy boundary: nothing here, and nothing computed from it, holds an
unprotected outcome. The private side hands over a :class:`ReleaseTables`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from schemas.tables import PREFIX, SCHEMA

if TYPE_CHECKING:  # whoever looks into a file alone needs neither
    import polars as pl
    import pyarrow as pa

SCHEMA_VERSION: Final = 10
STORAGE_VERSION: Final = "v1.0.0"
"""DuckDB's storage format of the file, so that DuckDB 1.0 and later can read it."""

NEIGHBOURS: Final = "one unit's outcome (substitution)"
"""The difference between two data sets that the guarantee is about (label privacy)."""

NEIGHBOURS_WITH_CLUSTERS: Final = "one unit's outcome and cluster (substitution)"
"""The same where clusters are private."""

OUTCOME: Final = "outcome"
"""The kind of a metric that is an outcome of units."""

RATIO: Final = "ratio"
"""The kind of a metric that is the ratio of two outcomes' means."""

ALL: Final = "all"
"""The name of the one cluster, or the one pool, where there is only one."""

TABLES: Final[dict[str, dict[str, str]]] = {
    name: {column: fact.kind for column, fact in table.columns.items()}
    for name, table in SCHEMA.items()
}
"""The type of every column of every table; ids of units may be BIGINT or UBIGINT instead."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """What every row of ``metrics`` has; what else is in a column is null."""

    metric: str
    label: str | None = None
    measured_in: str | None = None
    role: str | None = None
    """What it decides, as declared; None where nothing is."""
    margin: float | None = None
    """Of a guardrail: the greatest harm that is acceptable."""
    direction: str | None = None
    """Which way is good; None where no role is declared either."""

    @property
    def row(self) -> dict[str, Any]:
        """The row of ``metrics``."""
        return {name: getattr(self, name, None) for name in TABLES["metrics"]}


@dataclass(frozen=True, kw_only=True)
class Metric(_Row):
    """A row of ``metrics``: an outcome of units, and how it was randomised."""

    epsilon: float
    delta: float
    resampling_probability: float | None
    """λ, as used; None where no units are published."""
    truncation_threshold: float | None
    """γ, the least prior probability; None where no units are published."""
    noise_scale: float | None
    """σ, in units for counts, in grid steps for means and differences; None without noise."""
    strata_statistic: str
    grid_step: float | None
    """One step of the grid, where means or differences are published; else None."""
    n_outcomes: int
    texts: str | None = None
    """What its numbers stand for, where outcomes are text in the log."""
    response_epsilon: float | None = None
    """ε of the tables that units' outcomes are drawn from; None where there are none."""
    drawn_with: str | None = None
    """The outcome that it was drawn together with, from one table; None of one by itself."""
    computed_epsilon: float
    """The least ε at ``delta`` that its parameters give."""
    computed_delta: float
    """The least δ at ``epsilon``, likewise."""
    missing: float
    """What a missing or unreadable outcome counted as."""
    unit_noise: float | None = None
    """v, the planned noise variance of a debiased unit; None where there are no margins."""

    @property
    def has_units(self) -> bool:
        """Whether randomised outcomes of units are published."""
        return self.resampling_probability is not None or self.has_tables

    @property
    def has_tables(self) -> bool:
        """Whether units are drawn by tables of outputs, rather than from a prior."""
        return self.response_epsilon is not None

    @property
    def kind(self) -> str:
        """What it is, as ``metrics`` has it."""
        return OUTCOME


@dataclass(frozen=True, kw_only=True)
class Ratio(_Row):
    """A row of ``metrics``: the ratio of two outcomes' means.

    It is made of what is published of these, at no further cost.
    """

    numerator: str
    denominator: str

    @property
    def kind(self) -> str:
        """What it is, as ``metrics`` has it."""
        return RATIO


@dataclass(frozen=True)
class Manifest:
    """Facts and guarantee of a release: the row of ``release``, and those of ``metrics``.

    Fields are the columns of :data:`TABLES`, described in :mod:`schemas.tables`.
    """

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
    control: str
    same_shares: bool
    """Whether every cluster was randomised with the same arm shares (declared)."""
    n_units: int
    n_clusters: int
    n_set_aside: int | None
    sample_ratio_p: float | None
    n_returning: int | None
    n_arm_changed: int | None
    account: str | None
    returning: str | None
    rows_each: int | None
    budget_epsilon: float | None
    """The most that one member of the population may spend; None where no limit is declared."""
    unit_id_key_fingerprint: str | None
    account_key_fingerprint: str | None
    schema_version: int
    package_version: str
    metrics: tuple[Metric | Ratio, ...]
    """At least one outcome; in the order in which effects are told."""
    attributes: tuple[str, ...] = ()
    """The published attributes: columns of ``units`` after the outcomes."""
    margins: tuple[str, ...] = ()
    """The attributes whose values' sums are published, as ``margins`` names them, in its order."""
    decision: str | None = None
    """How primary metrics decide, "all" or "any"; None where there are none."""
    assigned: bool = False
    """Whether ``units`` has ``assigned_to``: arms were given to groups of units, not to each."""
    guess_from: str = ""
    """The releases that have taught the guess at outcomes; empty for a declared one."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is null that every release says."""
        rows = (self, *self.metrics)
        said = (
            (isinstance(fact.type, type), row, fact.name) for row in rows for fact in fields(row)
        )
        return not any(always and getattr(row, name) is None for always, row, name in said)

    @property
    def teachers(self) -> tuple[str, ...]:
        """The ids of the releases that have taught its guess."""
        return taught_by(self.guess_from)

    @property
    def own_schema(self) -> str:
        """The schema in the file that is not for analysts: a name that no other release has."""
        own = f"{self.release_id} {self.created_at.isoformat()}"
        return PREFIX + sha256(own.encode()).hexdigest()[:16]

    @property
    def row(self) -> dict[str, Any]:
        """The row of ``release``."""
        return {name: getattr(self, name) for name in TABLES["release"]}

    @property
    def outcomes(self) -> tuple[Metric, ...]:
        """The metrics that are outcomes of units, which is all but ratios."""
        return tuple(one for one in self.metrics if isinstance(one, Metric))

    @property
    def texts(self) -> dict[str, str]:
        """What numbers stand for, by outcome, where the log has texts."""
        return {one.metric: one.texts for one in self.outcomes if one.texts is not None}

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """The metrics that are ratios of two outcomes."""
        return tuple(one for one in self.metrics if isinstance(one, Ratio))

    @property
    def household_epsilon(self) -> float | None:
        """ε of all rows of whoever pays for several, a household say; None where units pay."""
        return None if self.rows_each is None else self.epsilon * self.rows_each

    @property
    def has_units(self) -> bool:
        """Whether randomised outcomes of units are published, or statistics of strata alone."""
        return any(metric.has_units for metric in self.outcomes)

    @property
    def has_private_clusters(self) -> bool:
        """Whether clusters, and everything computed from them, are randomised."""
        return self.cluster_epsilon is not None


@dataclass(frozen=True)
class UnitTable:
    """What is stored of units, computed while it is read, which can be done only once."""

    n_rows: int
    reader: "pa.RecordBatchReader"
    failures: Sequence[BaseException]
    """The reason why reading ended too soon, if it did; without anybody's row."""
    attributes: tuple[str, ...] = ()
    """Columns of public facts, after the outcomes."""
    assigned: bool = False
    """Whether the last column is ``assigned_to``."""

    def kind_of(self, attribute: str) -> "pa.DataType":
        """The type of an attribute."""
        return self.reader.schema.field(attribute).type

    @property
    def unit_type(self) -> "pa.DataType":
        """The type of the ids: text, or 64-bit integers."""
        return self.reader.schema.field("unit_id").type


@dataclass(frozen=True)
class ReleaseTables:
    """Everything to be published of one release, except estimates.

    Frames have the columns of :data:`TABLES`, and ``units`` those of
    :func:`~schemas.tables.drawn_columns`, in that order.
    """

    manifest: Manifest
    outcomes: "pl.DataFrame"
    pools: "pl.DataFrame"
    strata: "pl.DataFrame"
    debias: "pl.DataFrame"
    counts: "pl.DataFrame"
    arm_counts: "pl.DataFrame"
    squares: "pl.DataFrame"
    margins: "pl.DataFrame"
    randomiser: "pl.DataFrame"
    guess: "pl.DataFrame"
    units: UnitTable

    @property
    def n_rows(self) -> int:
        """How many rows all tables have together."""
        return self.units.n_rows + sum(frame.height for frame in self.frames().values())

    def frames(self) -> "dict[str, pl.DataFrame]":
        """Return the frames by table; without ``units`` and tables that are always empty."""
        return {
            "outcomes": self.outcomes,
            "pools": self.pools,
            "strata": self.strata,
            "debias": self.debias,
            "counts": self.counts,
            "arm_counts": self.arm_counts,
            "squares": self.squares,
            "margins": self.margins,
            "randomiser": self.randomiser,
            "guess": self.guess,
        }


def taught_by(guess_from: str) -> tuple[str, ...]:
    """The ids of the releases that a guess was learnt from, of what ``guess_from`` says."""
    return tuple(one.split(" ")[0] for one in guess_from.split(", ") if one)


def no_rows(table: str) -> "pl.DataFrame":
    """Return a frame with the columns of a table, and no rows."""
    import polars as pl  # noqa: PLC0415 - see above

    types = {"VARCHAR": pl.String, "DOUBLE": pl.Float64, "BIGINT": pl.Int64, "INTEGER": pl.Int64}
    types |= {"TIMESTAMP": pl.Datetime, "BOOLEAN": pl.Boolean}
    return pl.DataFrame(schema={name: types[kind] for name, kind in TABLES[table].items()})
