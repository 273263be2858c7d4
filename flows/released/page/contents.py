"""What a report needs of a release: read once, and nothing of a single unit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import duckdb
import numpy as np
import polars as pl

from estimators.debias import response_noise_variance
from estimators.pool_statistics import Cumulants
from flows.released.file.evidence import Parameters, read_frame
from flows.released.file.read import open_release, read_manifest
from flows.released.file.sql import quote_name, statement
from flows.released.page import figures
from schemas.arrays import Floats
from schemas.released import Manifest, Metric

_GRID = "SELECT outcome FROM main.outcomes WHERE metric = $metric ORDER BY 1"

MOST_ARMS = 8
"""Arms in a figure; the tables have all of them."""
MOST_WEIGHTS = 24
"""Rows of the table of debias vectors; half of them where there are more vectors than fit."""
MOST_LINES = 40
"""Debias vectors in the figure."""


@dataclass(frozen=True)
class Distribution:
    """How outcomes are distributed in the arms, as far as a release tells."""

    shares: list[figures.Shares]
    totals: list[list[int]] | None
    """Noisy counts by arm and outcome where they are published."""

    @property
    def negative(self) -> bool:
        """Whether noise pushed a share below zero."""
        return any((one.share < 0).any() for one in self.shares)


@dataclass(frozen=True)
class Contents:
    """What the report needs of a release; nothing here is about a single unit."""

    manifest: Manifest
    metric: Metric
    """The outcome that everything but the estimates is about: the first one."""
    arms: tuple[str, ...]
    """Control first."""
    outcomes: Floats
    estimates: list[dict[str, Any]]
    """On every metric; where there are several, its name stands before that of the ``arm``."""
    distribution: Distribution | None
    means: list[dict[str, Any]]
    """Arms' own means, by estimator, the sharpest first."""
    strata: pl.DataFrame
    n_pools: int
    debias: pl.DataFrame
    """Of the largest pools, as many as a page shows."""
    n_vectors: int
    """Arms of pools that have a debias vector."""
    has_units: bool
    macros: frozenset[str]

    @property
    def sizes(self) -> dict[str, int]:
        """Units by arm."""
        found = self.strata.group_by("arm").agg(pl.col("n_units").sum())
        return dict(found.iter_rows())


def read_contents(path: Path) -> Contents:
    """Read what the report needs; raises InputError where ``path`` is no release."""
    with open_release(path) as connection:
        manifest = read_manifest(connection)
        metric = manifest.outcomes[0]
        about: Parameters = {"metric": metric.metric}
        outcomes = connection.execute(_GRID, about).fetchall()
        strata = read_frame(connection, _query("strata"))
        others = sorted(set(strata["arm"].unique().to_list()) - {manifest.control})
        arms = (manifest.control, *others)
        shown: Parameters = about | {
            "listed": MOST_WEIGHTS,
            "drawn": MOST_LINES,
            "arms": list(arms[:MOST_ARMS]),
        }
        debias = read_frame(connection, _query("debias"), shown)
        has_units = bool(connection.execute("SELECT count(*) > 0 FROM main.units").fetchall()[0][0])
        return Contents(
            manifest=manifest,
            metric=metric,
            arms=arms,
            outcomes=np.array([row[0] for row in outcomes], dtype=np.float64),
            estimates=_headed(read_frame(connection, _query("estimates")).to_dicts(), manifest),
            distribution=_distribution(connection, metric, arms, strata, has_units=has_units),
            means=read_frame(connection, _query("means"), about).to_dicts(),
            strata=strata,
            n_pools=strata["pool"].n_unique(),
            debias=debias,
            n_vectors=strata.select("pool", "arm").n_unique() if debias.height else 0,
            has_units=has_units,
            macros=frozenset(row[0] for row in connection.execute(_query("macros")).fetchall()),
        )


def _headed(estimates: list[dict[str, Any]], manifest: Manifest) -> list[dict[str, Any]]:
    """The estimates; where there are several metrics, each arm after the name of its metric."""
    if len(manifest.metrics) == 1:
        return estimates
    names = {one.metric: one.label or one.metric for one in manifest.metrics}
    return [one | {"arm": f"{names[one['metric']]}: {one['arm']}"} for one in estimates]


def _query(name: str) -> str:
    return statement("flows.released.page", f"queries/{name}")


def _distribution(
    connection: duckdb.DuckDBPyConnection,
    metric: Metric,
    arms: Sequence[str],
    strata: pl.DataFrame,
    *,
    has_units: bool,
) -> Distribution | None:
    """By the noisy counts where they are published, else by the debiased histogram of the units."""
    about: Parameters = {"metric": metric.metric}
    counts = read_frame(connection, _query("counts"), about)
    if counts.height:
        return counted_shares(counts, metric.noise_scale, arms, strata)
    rate = metric.resampling_probability
    if not has_units or rate is None:
        return None
    query = Template(_query("found")).substitute(column=quote_name(metric.metric))
    found = read_frame(connection, query, about)
    shares = [debiased_shares(one, found.filter(pl.col("arm") == one), rate) for one in arms]
    return Distribution(shares, None) if found.height else None


def counted_shares(
    counts: pl.DataFrame, scale: float | None, arms: Sequence[str], strata: pl.DataFrame
) -> Distribution:
    """Return Ñ_y/n by arm, Ñ summed over pools, with the error √(pools · Var Z)/n.

    ``counts`` has a row for every (arm, outcome), outcomes in order: ``arm``, ``total`` (Ñ) and
    ``n_pools``; ``scale`` is σ, ``strata`` gives n.
    """
    variance = math.nan if scale is None else Cumulants.of_discrete_laplace(scale).second
    shares, totals = [], []
    for arm in arms:
        rows = counts.filter(pl.col("arm") == arm)
        n = max(int(strata.filter(pl.col("arm") == arm)["n_units"].sum()), 1)
        total = rows["total"].to_numpy().astype(np.float64)
        error = np.sqrt(variance * rows["n_pools"].to_numpy()) / n
        shares.append(figures.Shares(arm, total / n, error))
        totals.append(rows["total"].to_list())
    return Distribution(shares, totals)


def debiased_shares(arm: str, rows: pl.DataFrame, rate: float) -> figures.Shares:
    """Return Σ_p n_p (p̂_y − λ q̃_y)/(1 − λ) / Σ_p n_p, an arm's distribution of outcomes.

    p̂ is the distribution of the randomised outcomes in a pool, λ ``rate``. ``rows`` has a row for
    every (pool, outcome), outcomes in order: ``outcome``, ``probability`` (q̃), ``n`` (units of the
    pool in the arm), ``found`` (those of them with this randomised outcome). The errors are those
    of :func:`estimators.debias.response_noise_variance`, the outcome's indicator being averaged.
    """
    n, q, found = (rows[column].to_numpy() for column in ("n", "probability", "found"))
    share = found / n
    about = share * (1 - q) ** 2 + (1 - share) * q**2
    noise = response_noise_variance(n, about, q * (1 - q), rate)
    weighted = rows.select(
        "outcome",
        n=n,
        total=n * (share - rate * q) / (1 - rate),
        noise=n**2 * noise,
    )
    summed = weighted.group_by("outcome", maintain_order=True).sum()
    total = summed["n"].to_numpy()
    return figures.Shares(
        arm, summed["total"].to_numpy() / total, np.sqrt(summed["noise"].to_numpy()) / total
    )
