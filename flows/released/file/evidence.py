"""Reading what the estimators need from a released file: moments of slices, and facts of pools.

The units are read in one pass for each metric, which the check of a file has made already.
Everything else has the size of the strata, or of their segments.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import duckdb
import numpy as np
import polars as pl
import polars.selectors as cs

from estimators.strata.evidence import (
    Evidence,
    OutputMeans,
    Pools,
    Slices,
    debias_mean,
    pool_means,
)
from estimators.strata.margins import CrossedMargins, Crossing, Margins, PoolStatistics
from estimators.strata.moments import Moments, moments_of_counts, moments_of_outputs
from estimators.strata.parties import Parties
from flows.released.file.cells import Cells, number, read_columns
from flows.released.file.margins import MarginOutcome, read_margins, reconcile
from flows.released.file.outputs import (
    FUNCTIONS,
    Outputs,
    function_column,
    keep_functions,
    read_outputs,
    units_of_outcomes,
)
from flows.released.file.parties import OF_POOLS, OF_STRATA, Outcome, read_parties, read_products
from flows.released.file.pool_facts import pool_facts, runs
from flows.released.file.sql import quote_name, text
from flows.released.file.unit_counts import counts_by_level, skewness
from flows.released.file.units import with_pools
from flows.runtime.engine import parsed
from schemas.arrays import Floats
from schemas.released import Manifest, Metric
from schemas.tables import debiased, randomised

Parameters = dict[str, str | float | list[str]]

# d is the outcome minus the mean of the grid, so that sums of its powers lose no digits.
_OF_ONE = """
    avg(d{at}) AS mean{at},
    coalesce(var_samp(d{at}), 0.0) AS variance{at},
    avg((d{at} * d{at}) * (d{at} * d{at})) AS fourth{at}
"""
_OF_OUTPUTS = """
    avg(d{at}) AS mean{at},
    coalesce(var_samp(d{at}), 0.0) AS variance{at},
    avg(noise{at}) AS noise{at}, avg(square{at}) AS square{at},
    avg(square_noise{at}) AS square_noise{at}
"""
_COUNT = "count(*)::DOUBLE AS n"
MOMENTS = f"{_COUNT}, {_OF_ONE.format(at='')}"
_WHOLE = """
SELECT s.code, w.n, w.mean, w.variance, w.fourth
FROM (
    SELECT _stratum, {moments}
    FROM (SELECT _stratum, {outcome} - $center AS d FROM temp.main.drawn)
    GROUP BY _stratum
) AS w
JOIN temp.main.numbered_strata AS s ON s.stratum = w._stratum
"""
_OF_POOLS = ("n", "noisy_mean", "noisy_difference", "mean_weight", "square_weight")
_POOLS = """
SELECT n_units::DOUBLE AS n, noisy_mean, noisy_difference, mean_weight, square_weight
FROM main.pools WHERE metric = {metric} ORDER BY rowid
"""
_POOL_NAMES = "SELECT pool, arm FROM temp.main.numbered_pools ORDER BY code"
_PLACES = """
SELECT code, stratum, "cluster", arm, pool, n_units::DOUBLE AS size, own_sizes
FROM temp.main.numbered_strata
"""
_SQUARES = "SELECT arm, noisy_square, noise_scale FROM main.squares WHERE metric = $metric"


@dataclass(frozen=True)
class Drawn:
    """An outcome of a release, as far as queries over its units depend on it."""

    manifest: Manifest
    metric: Metric
    """The outcome whose effects are estimated."""
    grid: Floats

    @property
    def outcome(self) -> Outcome:
        """The column of the outcomes, the middle of their grid, and λ.

        By tables they are debiased, with λ = 0. The middle is the same on every machine, to its
        last digit: it stands in macros.
        """
        rate, name = self.metric.resampling_probability, self.metric.metric
        column = debiased(name) if self.metric.has_tables else randomised(name)
        return column, math.fsum(self.grid) / len(self.grid), rate or 0.0


@dataclass(frozen=True)
class Released(Drawn):
    """The facts of a release that estimators need: its strata, its pools and its arms."""

    everyone: Slices
    pools: Pools
    arms: tuple[str, ...]
    """Control first, then the treatments by name."""
    places: pl.DataFrame
    """A row for each (cluster, arm): ``stratum cluster arm pool size own_sizes cluster_code
    arm_code pool_code``."""
    pool_names: pl.DataFrame
    """The ``pool`` and ``arm`` of each row of :attr:`pools`."""
    cells: Cells
    """Its rows for each outcome, as far as they were read."""
    parties: Parties | None = None
    """The units that were assigned together; None where each was by itself."""
    pool_parties: Parties | None = None
    """The same, with whole pools in place of strata."""
    outputs: Outputs | None = None
    """The tables that units were drawn by; None where they were drawn from a prior."""
    skewness: float = 0.0
    """Of the debiased outcomes of all units; 0 where they are alike, or none is released."""
    margins: Margins | None = None
    """The sums of declared attributes' values; None without any."""
    crossed: Crossing | None = None
    """How the strata and these values cross."""

    @cached_property
    def whole(self) -> Evidence:
        """The evidence on whole strata."""
        evidence = self.evidence(self.everyone, self.parties, self.crossed)
        return replace(evidence, pool_parties=self.pool_parties)

    def evidence(
        self, slices: Slices, parties: Parties | None, crossed: Crossing | None = None
    ) -> Evidence:
        """The evidence on ``slices``, and on the units in them that were assigned together.

        Where there are margins, ``crossed`` says how their units lie in the cells.
        """
        rate = self.metric.resampling_probability
        evidence = Evidence.of(
            slices,
            self.everyone,
            self.pools,
            0.0 if rate is None else rate,
            self.grid,
            has_units=self.manifest.has_units,
            metric=self.metric.metric,
            parties=parties,
        )
        if self.margins is not None and crossed is not None:
            evidence = replace(evidence, margins=CrossedMargins(self.margins, crossed))
        return replace(evidence, skewness=self.skewness)

    @property
    def of_margins(self) -> MarginOutcome:
        """The outcome as its margins need it."""
        arm = self.pool_names["arm"].cast(pl.Enum(self.arms)).to_physical().cast(pl.Int64)
        mean = debias_mean(self.everyone, self.pools, self.metric.resampling_probability or 0.0)
        whole = pool_means(self.everyone, mean, len(arm))
        statistics = PoolStatistics.of(self.pools, whole, arm.to_numpy())
        return MarginOutcome(
            self.metric, self.grid, self.arms, self.places, self.pools, statistics, self.outputs
        )

    def read_parties(
        self, connection: duckdb.DuckDBPyConnection, slices: Slices, units: str
    ) -> Parties | None:
        """Read which units of ``slices`` were assigned together; None where each was by itself.

        ``units`` is a query as :data:`~flows.released.file.parties.OF_STRATA`; slices are of its
        clusters.
        """
        if not (self.manifest.assigned and self.manifest.has_units):
            return None
        names, same_shares = self.names_of(slices), self.manifest.same_shares
        return read_parties(connection, slices, names, same_shares, self.outcome, units)

    def read_products(
        self,
        connection: duckdb.DuckDBPyConnection,
        other: "Released",
        slices: tuple[Slices, Slices],
        units: str = OF_STRATA,
    ) -> Floats | None:
        """Read the products of this outcome and an ``other``, for ratios: as ``read_parties``."""
        if not (self.manifest.assigned and self.manifest.has_units):
            return None
        both = (self.outcome, other.outcome)
        names = self.names_of(slices[0])
        return read_products(connection, slices, names, self.manifest.same_shares, both, units)

    def names_of(self, slices: Slices) -> pl.DataFrame:
        """The ``cluster`` and ``arm`` of each slice."""
        codes = {"cluster_code": slices.cluster, "arm_code": slices.arm}
        return pl.DataFrame(codes).join(
            self.places, on=list(codes), how="left", maintain_order="left"
        )

    def with_parties(self, connection: duckdb.DuckDBPyConnection) -> "Released":
        """Return the same with the units that were assigned together, where any were."""
        parties = self.read_parties(connection, self.everyone, OF_STRATA)
        if parties is None:
            return self
        size = len(self.pools.pool)
        if (self.pools.n_clusters == 1).all():
            of_pools = parties.moved(self.everyone.pool, size)
        else:
            pooled = self.whole.by_pool(same_shares=True).slices
            names = self.pool_names[pooled.pool].rename({"pool": "cluster"})
            of_pools = read_parties(
                connection, pooled, names, self.manifest.same_shares, self.outcome, OF_POOLS
            ).moved(pooled.pool, size)
        return replace(self, parties=parties, pool_parties=of_pools)


def deviations(every: Sequence[Drawn]) -> str:
    """SQL for the outcomes of several metrics, each less its grid's mean: ``d0``, ``d1`` and so on.

    They are made of columns of :func:`units_of`, whose names stand for themselves alone. By tables
    they are debiased, and ``noise0``, ``square0`` and ``square_noise0`` stand beside them.
    """
    columns = [
        f"{quote_name(name)} - {middle!r}::DOUBLE AS d{at}"
        for at, (name, middle, _) in enumerate(one.outcome for one in every)
    ]
    if has_tables(every):
        columns += [
            f"{quote_name(function_column(name, at))} AS {name}{at}"
            for at in range(len(every))
            for name in FUNCTIONS
        ]
    return ", ".join(columns)


def units_of(every: Sequence[Drawn]) -> str:
    """SQL for the units that :func:`deviations` are made of."""
    return units_of_outcomes(names_by_tables(every))


def names_by_tables(every: Sequence[Drawn]) -> list[str]:
    """The outcomes whose units were drawn by response tables: all, or none."""
    return [one.metric.metric for one in every if one.metric.has_tables]


def has_tables(every: Sequence[Drawn]) -> bool:
    """Whether units were drawn by response tables, which all outcomes of a release have or none."""
    return any(one.metric.has_tables for one in every)


def moments_of(every: Sequence[Drawn]) -> str:
    """SQL for moments of :func:`deviations`: ``n``, then ``mean0 variance0 fourth0 mean1 …``.

    By tables ``noise0 square0 square_noise0`` in place of ``fourth0``.
    """
    one = _OF_OUTPUTS if has_tables(every) else _OF_ONE
    return ", ".join([_COUNT, *(one.format(at=at) for at in range(len(every)))])


def read_every(
    connection: duckdb.DuckDBPyConnection,
    manifest: Manifest,
    outcomes: Sequence[Metric] | None = None,
    *,
    is_ours: bool = False,
) -> tuple[Released, ...]:
    """Read the facts of a release for each of its ``outcomes``; None stands for all, in order.

    What is the same for all of them is read once. Strata and pools are in the order of their names,
    whatever the order in the file. ``is_ours`` says that this run has written it: the order is
    known then.
    """
    number(connection, is_ours=is_ours)
    pool_names = read_frame(connection, _POOL_NAMES)
    others = sorted(set(pool_names["arm"].unique().to_list()) - {manifest.control})
    arms = (manifest.control, *others)
    pool_codes = pool_names.with_columns(pool_code=pl.int_range(pl.len()))
    # Sorting by a number takes polars a fifth of what it takes DuckDB.
    places = (
        with_pools(read_frame(connection, _PLACES).sort("code"), pool_codes)
        .drop("code")
        .with_columns(
            runs(pl.col("cluster")).alias("cluster_code"),
            pl.col("arm").cast(pl.Enum(arms)).to_physical().cast(pl.Int64).alias("arm_code"),
        )
    )

    def read(metric: Metric) -> Released:
        cells = Cells(connection, metric.metric, is_ours=is_ours)
        grid = cells.grid
        numbers = read_columns(connection, _POOLS.format(metric=text(metric.metric)))
        of_pools = zip(_OF_POOLS, numbers, strict=True)
        pools = pool_names.hstack([pl.Series(name, of[cells.rank]) for name, of in of_pools])
        squares = None
        if metric.strata_statistic in ("means", "differences"):  # there are none beside others
            squares = read_frame(connection, _SQUARES, {"metric": metric.metric})
        outputs = None
        if metric.has_tables:
            outputs = read_outputs(cells, grid)
            keep_functions(connection, metric.metric, outputs)
        return Released(
            manifest=manifest,
            metric=metric,
            grid=grid,
            everyone=_whole_strata(connection, manifest, metric.metric, grid, places, outputs),
            pools=pool_facts(cells, pools, squares, places, grid, manifest, metric),
            arms=arms,
            places=places,
            pool_names=pool_names,
            outputs=outputs,
            cells=cells,
            skewness=skewness(connection, metric, manifest.outcomes.index(metric)),
        ).with_parties(connection)

    every = tuple(map(read, manifest.outcomes if outcomes is None else outcomes))
    if not manifest.margins:
        return every
    if is_ours:
        return reconciled(connection, every)
    found = [
        read_margins(
            connection,
            manifest.own_schema,
            manifest.outcomes.index(one.metric),
            one.of_margins,
        )
        for one in every
    ]
    return _with_margins(every, found)


def reconciled(
    connection: duckdb.DuckDBPyConnection, every: Sequence[Released]
) -> tuple[Released, ...]:
    """Return the same with margins that follow from the units, whatever the file says of these."""
    if not every[0].manifest.margins:
        return tuple(every)
    return _with_margins(every, reconcile(connection, [one.of_margins for one in every]))


def _with_margins(
    every: Sequence[Released], found: Sequence[tuple[Margins, Crossing]]
) -> tuple[Released, ...]:
    return tuple(
        replace(one, margins=margins, crossed=crossed)
        for one, (margins, crossed) in zip(every, found, strict=True)
    )


def _whole_strata(
    connection: duckdb.DuckDBPyConnection,
    manifest: Manifest,
    metric: str,
    grid: Floats,
    places: pl.DataFrame,
    outputs: Outputs | None,
) -> Slices:
    """The moments of the outcomes in each stratum, in the order of ``places``; 0 without units."""
    cluster, arm, pool = (
        places[name].to_numpy().astype(np.int64)
        for name in ("cluster_code", "arm_code", "pool_code")
    )
    means: OutputMeans | None = None
    center, sizes = float(grid.mean()), places["size"].to_numpy()
    if outputs is not None:
        units = outputs.count(connection, metric)
        table = outputs.table_of[pool[units.stratum]]
        whole = moments_of_outputs(
            outputs.functions, table, units.output, units.stratum, units.n, len(pool)
        )
        moments, means = whole.of_values, whole.outputs
    elif not manifest.has_units:
        unknown = np.zeros_like(sizes)
        moments = Moments(sizes, unknown, unknown, unknown)
    else:
        counts = counts_by_level(connection, metric, grid, len(sizes), manifest.n_units)
        if counts is not None:
            moments = moments_of_counts(grid - center, counts)
        else:
            query = _WHOLE.format(moments=MOMENTS, outcome=quote_name(randomised(metric)))
            rows = read_frame(connection, query, {"center": center}).sort("code")
            columns = ("n", "mean", "variance", "fourth")
            moments = Moments(*(rows[name].to_numpy() for name in columns))
    of_units = (moments.n_units, moments.mean, moments.variance, moments.fourth)
    own = places["own_sizes"].to_numpy()
    return Slices(
        np.zeros_like(cluster), cluster, arm, pool, *of_units, outputs=means, own_sizes=own
    )


def slices_of(coded: pl.DataFrame, at: int | str = "") -> Slices:
    """Turn rows of ``group n mean variance fourth``, with the codes of ``places``, into arrays.

    ``at`` is what follows the names of the moments, see :func:`moments_of`.
    """
    group, cluster, arm, pool = (
        coded[name].to_numpy().astype(np.int64)
        for name in ("group", "cluster_code", "arm_code", "pool_code")
    )
    by_tables = f"square_noise{at}" in coded.columns
    names = ("mean", "variance", *(FUNCTIONS if by_tables else ("fourth",)))
    n, mean, variance, *others = (
        coded[name].to_numpy().astype(np.float64)
        for name in ("n", *(f"{one}{at}" for one in names))
    )
    outputs = OutputMeans(*others) if by_tables else None
    fourth = np.zeros_like(n) if by_tables else others[0]
    own = coded["own_sizes"].to_numpy()
    return Slices(
        group, cluster, arm, pool, n, mean, variance, fourth, outputs=outputs, own_sizes=own
    )


def read_frame(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Parameters | None = None
) -> pl.DataFrame:
    """The result of a query; labels that are an ENUM in the file come as text."""
    # Without pyarrow, which takes long to import.
    (statement,) = parsed(connection, query)
    result = connection.sql(statement, params=parameters or {})
    try:
        frame = pl.DataFrame(result)
    except pl.exceptions.ComputeError:  # once more, so that the failure is DuckDB's
        frame = pl.DataFrame(result.materialize())
    return frame.with_columns(cs.by_dtype(pl.Categorical, pl.Enum).cast(pl.String))
