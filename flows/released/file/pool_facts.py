"""What estimators need of each (pool, arm) of a release: its prior, and its noisy statistics."""

import numpy as np
import polars as pl

from estimators.horvitz_thompson import difference_statistic
from estimators.response.debias import prior_moments
from estimators.response.pool_statistics import (
    Cumulants,
    MeansStatisticNoise,
    PoolCountsNoise,
    statistic_noise,
)
from estimators.strata.evidence import Pools, Statistic
from flows.released.file.cells import Cells
from schemas.arrays import Floats, Ints
from schemas.released import Manifest, Metric


def pool_facts(
    cells: Cells,
    pools: pl.DataFrame,
    of_squares: pl.DataFrame | None,
    places: pl.DataFrame,
    grid: Floats,
    manifest: Manifest,
    metric: Metric,
) -> Pools:
    """Return what estimators need of each numbered (pool, arm).

    ``pools`` has a row for each, in order, ``of_squares`` the noisy sums of squares of arms, and
    ``places`` the strata. From counts, the statistic of squares is the mean of d² in each (pool,
    arm); from sums of squares, the mean of (y − centre)² in each arm.
    """
    values = grid - grid.mean()
    # 0 without units, and where they were drawn by tables.
    prior = (
        np.zeros((len(pools), len(grid)))
        if metric.has_tables
        else cells.matrix("debias", "probability")
    )
    mean, variance = (part[cells.rank] for part in prior_moments(values, prior))
    square, square_variance = (part[cells.rank] for part in prior_moments(values**2, prior))
    pool = pools.select(runs(pl.col("pool"))).to_series().to_numpy()
    nothing = np.full(len(pools), np.nan)
    of_mean = of_square = Statistic(nothing, nothing, nothing, np.zeros(len(pools)))
    square_cell = None
    noise = statistic_noise(metric.noise_scale, metric.strata_statistic, metric.grid_step)
    if isinstance(noise, PoolCountsNoise):
        noisy = cells.matrix("counts", "noisy_count")
        of_mean, of_square = (
            _statistic(_by_counts(noisy, cells, one, pools), noise.of_sum(one), pools, weight)
            for one, weight in ((values, "mean_weight"), (values**2, "square_weight"))
        )
    elif isinstance(noise, MeansStatisticNoise) and metric.strata_statistic == "means":
        noisy_mean = pools["noisy_mean"].to_numpy() - grid.mean()
        of_mean = _statistic(noisy_mean, noise.of_outcomes, pools, "mean_weight")
    if of_squares is not None and len(of_squares):
        of_square, square_cell = _of_arms(pools, of_squares)
    return Pools(
        prior_mean=mean,
        prior_variance=variance,
        prior_square=square,
        prior_square_variance=square_variance,
        of_mean=of_mean,
        of_square=of_square,
        pool=pool,
        n_clusters=_clusters_of(places, pool),
        of_difference=_of_difference(pools, pool, manifest.control, metric),
        square_cell=square_cell,
    )


def _clusters_of(places: pl.DataFrame, pool: Ints) -> Ints:
    """The number of clusters in the pool of each (pool, arm), whose pools are numbered ``pool``.

    A cluster lies in one pool, and its strata stand one after the other in ``places``.
    """
    cluster = places["cluster_code"].to_numpy()
    is_first = np.diff(cluster, prepend=-1) != 0
    of_cluster = pool[places["pool_code"].to_numpy()[is_first]]
    found: Ints = np.bincount(of_cluster, minlength=int(pool[-1]) + 1)[pool]
    return found


def _by_counts(noisy: Floats, cells: Cells, values: Floats, pools: pl.DataFrame) -> Floats:
    """f̄ + Σ_y (f(y) − f̄) Ñ_y / n, shape [P], for f = ``values``, shape [K], and Ñ ``noisy``."""
    middle = float(values.mean())
    means: Floats = middle + (noisy @ (values - middle))[cells.rank] / pools["n"].to_numpy()
    return means


def _of_arms(pools: pl.DataFrame, of_squares: pl.DataFrame) -> tuple[Statistic, Ints]:
    """The mean square of every arm, and the position of the arm of each row of ``pools``."""
    arms = sorted(pools["arm"].unique().to_list())
    cell = pools["arm"].cast(pl.Enum(arms)).to_physical().to_numpy().astype(np.int64)
    n = np.bincount(cell, pools["n"].to_numpy())
    published = {arm: numbers for arm, *numbers in of_squares.iter_rows()}
    noisy, scale = np.array([published[arm] for arm in arms], dtype=np.float64).T
    weight = np.zeros(len(arms))
    weight[cell] = pools["square_weight"].to_numpy()
    return Statistic(noisy / n, 2.0 * scale**2 / n**2, np.zeros(len(arms)), weight), cell


def _of_difference(
    pools: pl.DataFrame, pool: Ints, control: str, metric: Metric
) -> Statistic | None:
    """The published difference between the two arms of each pool; None where there is none."""
    scale, step = metric.noise_scale, metric.grid_step
    if metric.strata_statistic != "differences" or scale is None or step is None:
        return None
    n = pools["n"].to_numpy()
    is_control = (pools["arm"] == control).to_numpy()
    of_control = np.bincount(pool[is_control], n[is_control], minlength=int(pool[-1]) + 1)[pool]
    value = pools["noisy_difference"].to_numpy().astype(np.float64)
    sizes = (n.astype(np.int64), np.maximum(of_control, 1).astype(np.int64))
    return difference_statistic(value, *sizes, scale, step)


def _statistic(value: Floats, of_sum: Cumulants, pools: pl.DataFrame, weight: str) -> Statistic:
    n = pools["n"].to_numpy()
    return Statistic(
        value=value,
        variance=of_sum.second / n**2,
        fourth=of_sum.fourth / n**4,
        weight=pools[weight].to_numpy().astype(np.float64),
    )


def runs(labels: pl.Expr) -> pl.Expr:
    """The number of each label among those that differ, where equal ones stand together."""
    return (labels != labels.shift()).fill_null(value=False).cum_sum().cast(pl.Int64)
