"""Reading what the estimators need from a released file: moments of slices, and facts of pools.

The units are read in one pass. Everything else has the size of the strata, or of their segments.
"""

from dataclasses import dataclass

import duckdb
import numpy as np
import polars as pl
import polars.selectors as cs

from estimators.debias import prior_moments
from estimators.evidence import Evidence, Pools, Slices, Statistic
from estimators.horvitz_thompson import difference_statistic
from estimators.pool_statistics import (
    Cumulants,
    MeansStatisticNoise,
    StatisticNoise,
    statistic_noise,
)
from flows.released.file.sql import quote_name
from schemas.arrays import Floats, Ints
from schemas.released import Manifest, Metric

Parameters = dict[str, str | float]

# d is the outcome minus the mean of the grid, so that sums of its powers lose no digits.
MOMENTS = """
    count(*)::DOUBLE AS n,
    avg(d) AS mean,
    coalesce(var_samp(d), 0.0) AS variance,
    avg((d * d) * (d * d)) AS fourth
"""
_WHOLE = """
SELECT cluster, arm, {moments}
FROM (SELECT cluster, arm, {outcome} - $center AS d FROM main.units)
GROUP BY cluster, arm ORDER BY cluster, arm
"""
# For a release without units: the sizes of the strata; moments of outcomes are unknown.
_SIZES = """
SELECT cluster, arm, n_units::DOUBLE AS n, 0.0::DOUBLE AS mean, 0.0::DOUBLE AS variance,
       0.0::DOUBLE AS fourth
FROM main.strata ORDER BY cluster, arm
"""
_POOLS = """
SELECT p.pool, p.arm, p.n_units::DOUBLE AS n, p.noisy_mean, p.noisy_difference, p.mean_weight,
       p.square_weight, c.n_units AS n_control, d.prior, k.noisy, s.n_clusters,
       q.noisy_square, q.noise_scale AS square_scale
FROM main.pools AS p
LEFT JOIN main.pools AS c
ON c.metric = p.metric AND c.pool = p.pool AND c.arm = (SELECT control FROM main.release)
LEFT JOIN (
    SELECT pool, arm, list(probability ORDER BY outcome) AS prior
    FROM main.debias WHERE metric = $metric GROUP BY pool, arm
) AS d ON d.pool = p.pool AND d.arm = p.arm
LEFT JOIN (
    SELECT pool, arm, list(noisy_count ORDER BY outcome) AS noisy
    FROM main.counts WHERE metric = $metric GROUP BY pool, arm
) AS k ON k.pool = p.pool AND k.arm = p.arm
JOIN (
    SELECT pool, count(DISTINCT cluster) AS n_clusters FROM main.strata GROUP BY pool
) AS s ON s.pool = p.pool
LEFT JOIN main.squares AS q ON q.metric = p.metric AND q.arm = p.arm
WHERE p.metric = $metric
ORDER BY p.pool, p.arm
"""
_PLACES = "SELECT cluster, arm, pool FROM main.strata"
_GRID = "SELECT outcome FROM main.outcomes WHERE metric = $metric ORDER BY 1"


@dataclass(frozen=True)
class Released:
    """The facts of a release that estimators need: its strata, its pools and its arms."""

    manifest: Manifest
    grid: Floats
    arms: tuple[str, ...]
    """Control first, then the treatments by name."""
    everyone: Slices
    pools: Pools
    places: pl.DataFrame
    """A row for each (cluster, arm): ``cluster arm cluster_code arm_code pool_code``."""

    @property
    def metric(self) -> Metric:
        """The outcome whose effects are estimated."""
        return self.manifest.metric

    def evidence(self, slices: Slices | None = None) -> Evidence:
        """The evidence on ``slices``, by default on whole strata."""
        rate = self.metric.resampling_probability
        return Evidence.of(
            slices or self.everyone,
            self.everyone,
            self.pools,
            0.0 if rate is None else rate,
            self.grid,
            has_units=self.manifest.has_units,
            metric=self.metric.metric,
        )


def read_released(connection: duckdb.DuckDBPyConnection, manifest: Manifest) -> Released:
    """Read the facts of a release that all estimators need."""
    metric = manifest.metric
    of_metric: Parameters = {"metric": metric.metric}
    grid = read_frame(connection, _GRID, of_metric)["outcome"].to_numpy()
    pools = read_frame(connection, _POOLS, of_metric)
    places = read_frame(connection, _PLACES)
    others = sorted(set(places["arm"].to_list()) - {manifest.control})
    arms = (manifest.control, *others)
    places = places.join(
        pools.select("pool", "arm").with_row_index("pool_code"), on=["pool", "arm"], how="left"
    ).with_columns(
        _codes("cluster", places["cluster"].unique().sort().to_list()).alias("cluster_code"),
        _codes("arm", list(arms)).alias("arm_code"),
    )
    if manifest.has_units:
        query = _WHOLE.format(moments=MOMENTS, outcome=quote_name(metric.metric))
        whole = read_frame(connection, query, {"center": float(grid.mean())})
    else:
        whole = read_frame(connection, _SIZES)
    whole = whole.with_columns(pl.lit(0, pl.Int64).alias("group"))
    return Released(
        manifest=manifest,
        grid=grid,
        arms=arms,
        everyone=slices_of(whole, places),
        pools=_pools(pools, grid, metric),
        places=places,
    )


def slices_of(rows: pl.DataFrame, places: pl.DataFrame) -> Slices:
    """Turn rows of ``group cluster arm n mean variance fourth`` into arrays, with codes."""
    coded = rows.join(places, on=["cluster", "arm"], how="inner", maintain_order="left")
    group, cluster, arm, pool = (
        coded[name].to_numpy().astype(np.int64)
        for name in ("group", "cluster_code", "arm_code", "pool_code")
    )
    n, mean, variance, fourth = (
        coded[name].to_numpy().astype(np.float64) for name in ("n", "mean", "variance", "fourth")
    )
    return Slices(group, cluster, arm, pool, n, mean, variance, fourth)


def _pools(pools: pl.DataFrame, grid: Floats, metric: Metric) -> Pools:
    size = len(grid)
    values = grid - grid.mean()
    prior = np.zeros((len(pools), size))  # no prior without units
    if metric.resampling_probability is not None:
        prior = pools["prior"].explode().to_numpy().astype(np.float64).reshape(-1, size)
    mean, variance = prior_moments(values, prior)
    square, square_variance = prior_moments(values**2, prior)
    of_square, square_cell = _of_square(pools, grid, metric)
    return Pools(
        prior_mean=mean,
        prior_variance=variance,
        prior_square=square,
        prior_square_variance=square_variance,
        of_mean=_of_mean(pools, grid, metric),
        of_square=of_square,
        pool=_codes_of(pools["pool"]),
        n_clusters=pools["n_clusters"].to_numpy().astype(np.int64),
        of_difference=_of_difference(pools, metric),
        square_cell=square_cell,
    )


def _of_mean(pools: pl.DataFrame, grid: Floats, metric: Metric) -> Statistic:
    """The published statistic of the mean of d = y − ȳ in each (pool, arm)."""
    noise = _noise(metric)
    if noise is None:
        return _nothing(len(pools))
    steps = grid - grid.mean()
    if isinstance(noise, MeansStatisticNoise):
        value = pools["noisy_mean"].to_numpy() - grid.mean()
        return _statistic(value, noise.of_outcomes, pools, "mean_weight")
    return _statistic(_by_counts(steps, pools), noise.of_sum(steps), pools, "mean_weight")


def _of_square(pools: pl.DataFrame, grid: Floats, metric: Metric) -> tuple[Statistic, Ints | None]:
    """The published statistic of squares, and which row of it each (pool, arm) has.

    From counts it is the mean of d² in each (pool, arm), and the second value is None: each has its
    own row. From sums of squares it is the mean of (y − centre)² in each arm. Otherwise all its
    values are NaN.
    """
    if pools["noisy_square"].null_count() < len(pools):
        return _of_arms(pools)
    noise = _noise(metric)
    if noise is None or isinstance(noise, MeansStatisticNoise):
        return _nothing(len(pools)), None
    squares = (grid - grid.mean()) ** 2
    value = _by_counts(squares, pools)
    return _statistic(value, noise.of_sum(squares), pools, "square_weight"), None


def _of_arms(pools: pl.DataFrame) -> tuple[Statistic, Ints]:
    """The mean square of every arm, and the position of the arm of each row of ``pools``."""
    arms, cell = np.unique(pools["arm"].cast(pl.String).to_numpy(), return_inverse=True)
    n = np.bincount(cell, pools["n"].to_numpy())
    of_arm = {}
    for name in ("noisy_square", "square_scale", "square_weight"):
        of_arm[name] = np.zeros(len(arms))
        of_arm[name][cell] = pools[name].to_numpy()
    value, variance = of_arm["noisy_square"] / n, 2.0 * of_arm["square_scale"] ** 2 / n**2
    statistic = Statistic(value, variance, np.zeros(len(arms)), of_arm["square_weight"])
    return statistic, cell.astype(np.int64)


def _of_difference(pools: pl.DataFrame, metric: Metric) -> Statistic | None:
    """The published difference between the two arms of each pool; None where there is none."""
    scale, step = metric.noise_scale, metric.grid_step
    if metric.strata_statistic != "differences" or scale is None or step is None:
        return None
    n, n_control = (
        pools[name].fill_null(1).to_numpy().astype(np.int64) for name in ("n", "n_control")
    )
    value = pools["noisy_difference"].to_numpy().astype(np.float64)
    return difference_statistic(value, n, n_control, scale, step)


def _noise(metric: Metric) -> StatisticNoise | None:
    """The noise in the published counts or means; None where neither is published."""
    if metric.strata_statistic == "differences":
        return None
    return statistic_noise(metric.noise_scale, metric.strata_statistic, metric.grid_step)


def _nothing(size: int) -> Statistic:
    none = np.full(size, np.nan)
    return Statistic(none, none, none, np.zeros(size))


def _by_counts(values: Floats, pools: pl.DataFrame) -> Floats:
    """The mean of f by noisy counts, f̄ + Σ_y (f(y) − f̄) Ñ_y / n, for f = ``values``, shape [K]."""
    noisy = pools["noisy"].explode().cast(pl.Float64).to_numpy().reshape(-1, len(values))
    middle = float(values.mean())
    means: Floats = middle + noisy @ (values - middle) / pools["n"].to_numpy()
    return means


def _statistic(value: Floats, of_sum: Cumulants, pools: pl.DataFrame, weight: str) -> Statistic:
    n = pools["n"].to_numpy()
    return Statistic(
        value=value,
        variance=of_sum.second / n**2,
        fourth=of_sum.fourth / n**4,
        weight=pools[weight].to_numpy().astype(np.float64),
    )


def _codes(column: str, names: list[str]) -> pl.Expr:
    return pl.col(column).cast(pl.Enum(names)).to_physical().cast(pl.Int64)


def _codes_of(labels: pl.Series) -> Ints:
    names = labels.unique().sort()
    return labels.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)


def read_frame(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Parameters | None = None
) -> pl.DataFrame:
    """The result of a query; labels that are an ENUM in the file come as text."""
    result = pl.from_arrow(connection.sql(query, params=parameters or {}).to_arrow_table())
    frame = result if isinstance(result, pl.DataFrame) else result.to_frame()
    return frame.with_columns(cs.by_dtype(pl.Categorical, pl.Enum).cast(pl.String))
