"""What a report needs of a release: read once, and nothing of a single unit."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

from estimators.arm_effects import Estimate
from estimators.between_arms import effects_between, ratios_between
from estimators.ends import End, over_pools
from estimators.ratios import RatioEvidence
from estimators.response.pool_statistics import PoolCountsNoise, statistic_noise
from estimators.strata.evidence import sum_by
from flows.released.estimates.by_attribute import AttributeEstimate, estimate_values
from flows.released.estimates.decisions import Decisions
from flows.released.estimates.release import ReleaseEstimates
from flows.released.file.checks.stated import count_assigned
from flows.released.file.ends import shares_of_units
from flows.released.file.evidence import Parameters, Released, read_frame
from flows.released.file.macros import LEVEL
from flows.released.file.sql import statement
from flows.released.page.scale import Scale, scale_of
from flows.runtime.engine import ask
from schemas.arrays import Floats
from schemas.errors import InputError
from schemas.released import Manifest, Metric, Ratio

MOST_ARMS = 8
"""Treatment arms that are set against each other."""
MOST_WEIGHTS = 6
"""Rows of the table of debias vectors."""
MOST_CLUSTERS = 20
"""Clusters that are named; where there are more, half as many, the largest."""


@dataclass(frozen=True)
class Distribution:
    """How outcomes are distributed in the arms, as far as a release tells; shape [A, K] each."""

    share: Floats
    error: Floats
    """Standard error that the noise of privacy gives each share; NaN where not known."""
    totals: Floats | None
    """Noisy counts where they are published."""


@dataclass(frozen=True)
class MetricContents:
    """What the report needs of an outcome or ratio."""

    metric: Metric | Ratio
    outcomes: Floats
    """Its grid; empty for a ratio."""
    limits: tuple[float, float]
    """Between which a mean can lie at all."""
    estimates: list[dict[str, Any]]
    """By arm, the sharpest first."""
    between: list[Estimate]
    """Treatment arms against each other, the first :data:`MOST_ARMS`."""
    distribution: Distribution | None
    means: list[dict[str, Any]]
    """Arms' own means, by estimator, the sharpest first."""
    debias: list[list[dict[str, Any]]]
    """Vectors of the largest pools, as many as a page shows."""

    @property
    def statistic(self) -> str:
        """What is published of each pool; of a ratio, nothing of its own."""
        return self.metric.strata_statistic if isinstance(self.metric, Metric) else "none"

    @cached_property
    def scale(self) -> Scale:
        """In which unit it is shown."""
        return scale_of(self.metric, self.outcomes)


@dataclass(frozen=True)
class Contents:
    """What the report needs of a release; nothing here is about a single unit."""

    manifest: Manifest
    arms: tuple[str, ...]
    """Control first."""
    metrics: tuple[MetricContents, ...]
    strata: pl.DataFrame
    is_clustered: bool
    """Whether errors follow groups of units that were assigned together."""
    assigned: dict[str, int] | None
    """How many groups there are in each arm; None where each unit was assigned by itself."""
    by_attribute: Mapping[str, Sequence[AttributeEstimate]]
    """The sharpest effects by the values of attributes, on all metrics; none of too many values."""
    decisions: Decisions | None
    """What the declared rule says of the arms; None where none is declared."""
    ends: tuple[End, ...]
    """How many outcomes are at the ends of their grids."""
    by_arms: bool
    """Whether response tables were learnt from noisy counts of whole arms."""

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Units by arm."""
        found = dict(self.strata.group_by("arm").agg(pl.col("n_units").sum()).iter_rows())
        return {arm: found.get(arm, 0) for arm in self.arms}

    @property
    def clusters(self) -> dict[str, Any]:
        """Units by cluster and arm, of the largest clusters where there are many; and in brief."""
        sums = self.strata.group_by("cluster").agg(pl.col("n_units").sum().alias("total"))
        whole = sums.sort(["total", "cluster"], descending=[True, False])
        chosen = whole.head(whole.height if whole.height <= MOST_CLUSTERS else MOST_CLUSTERS // 2)
        inside = self.strata.filter(pl.col("cluster").is_in(chosen["cluster"].implode()))
        known = {(cluster, arm): n for cluster, arm, _, n in inside.iter_rows()}
        of_arms = [(arm, self.strata.filter(arm=arm)["n_units"]) for arm in self.arms]
        parts = [(None, whole["total"]), *of_arms]
        return {
            "n_clusters": whole.height,
            "listed": [
                (one, [*(known.get((one, arm), 0) for arm in self.arms), total])
                for one, total in chosen.iter_rows()
            ],
            "all": [*self.sizes.values(), sum(self.sizes.values())],
            "brief": [(of, len(n), n.min(), n.median(), n.max()) for of, n in parts],
        }


def contents_of(
    connection: duckdb.DuckDBPyConnection, path: Path, made: ReleaseEstimates
) -> Contents:
    """Read what the report needs of the release at ``path``, which is open.

    ``made`` is what it gives at :data:`LEVEL`.
    """
    every, manifest = made.every, made.every[0].manifest
    n_units = pl.col("size").cast(pl.Int64).alias("n_units")
    means = read_frame(connection, "SELECT metric, arm, estimator, mean, std_error FROM main.means")
    between = _between(every, made.ratios)
    released = {one.metric.metric: one for one in every}
    grids = {metric: one.grid for metric, one in released.items()}

    known = [vars(one) for one in made.estimates if one.estimate is not None]
    known.sort(key=lambda one: str(one["arm"]))

    def of_metric(metric: Metric | Ratio) -> MetricContents:
        of_outcome = released.get(metric.metric)
        return MetricContents(
            metric=metric,
            outcomes=grids.get(metric.metric, np.empty(0)),
            limits=limits_of(metric, grids),
            estimates=[one for one in known if one["metric"] == metric.metric],
            between=between.get(metric.metric, []),
            distribution=None if of_outcome is None else _distribution(connection, of_outcome),
            means=means.filter(metric=metric.metric).to_dicts(),
            debias=_debias(connection, metric),
        )

    return Contents(
        manifest=manifest,
        arms=every[0].arms,
        metrics=tuple(map(of_metric, manifest.metrics)),
        strata=every[0].places.select("cluster", "arm", "pool", n_units),
        is_clustered=any(one.whole.parties is not None for one in every),
        assigned=count_assigned(connection, manifest),
        by_attribute=_by_attribute(connection, path, every),
        decisions=made.decisions,
        ends=made.ends,
        by_arms=bool(ask(connection, "FROM main.arm_counts LIMIT 1").fetchall()),
    )


def limits_of(metric: Metric | Ratio, grids: Mapping[str, Floats]) -> tuple[float, float]:
    """Return between which a mean can lie: the ends of its grid, or no ratio below zero."""
    if isinstance(metric, Metric):
        return float(grids[metric.metric].min()), float(grids[metric.metric].max())
    parts = [grids[one].min() for one in (metric.numerator, metric.denominator) if one in grids]
    return (0.0 if parts and min(parts) >= 0 else -np.inf), np.inf


def _by_attribute(
    connection: duckdb.DuckDBPyConnection, path: Path, every: Sequence[Released]
) -> dict[str, Sequence[AttributeEstimate]]:
    """Estimate the effects by each attribute of the release at ``path``, which is open."""
    manifest = every[0].manifest
    effects: dict[str, Sequence[AttributeEstimate]] = dict.fromkeys(manifest.attributes, ())
    for attribute in manifest.attributes:
        with suppress(InputError):  # it has too many values
            effects[attribute] = estimate_values(
                connection, path, attribute, LEVEL, every, manifest.metrics, sharpest=True
            ).estimates
    return effects


def _debias(
    connection: duckdb.DuckDBPyConnection, metric: Metric | Ratio
) -> list[list[dict[str, Any]]]:
    if isinstance(metric, Ratio):
        return []
    asked: Parameters = {"metric": metric.metric, "by_tables": metric.has_tables}
    found = read_frame(
        connection, statement("flows.released.page", "debias"), {**asked, "listed": MOST_WEIGHTS}
    )
    vectors = [one.to_dicts() for one in found.partition_by("pool", "arm", maintain_order=True)]
    return vectors[: max(1, MOST_WEIGHTS // max(map(len, vectors), default=1))]


def _between(
    every: Sequence[Released], ratios: Sequence[RatioEvidence]
) -> dict[str, list[Estimate]]:
    """The treatment arms of the figures against each other, by metric."""
    arms, manifest = every[0].arms[: MOST_ARMS + 1], every[0].manifest
    told: list[tuple[str, Callable[..., list[Estimate]], object]] = [
        (one.metric.metric, effects_between, one.whole)
        for one in every
        if one.pools.of_difference is None
    ]
    told += [(one.metric, ratios_between, one) for one in ratios]
    return {
        metric: of(one, arms, manifest.control, same_shares=manifest.same_shares, level=LEVEL)
        for metric, of, one in told
    }


def _distribution(connection: duckdb.DuckDBPyConnection, released: Released) -> Distribution | None:
    """By the noisy counts where they are published, else by the debiased histogram of the units."""
    metric, everyone = released.metric, released.everyone
    n_units = sum_by(everyone.pool, everyone.n_units, len(released.pools.pool))
    cells = released.cells
    noise = statistic_noise(metric.noise_scale, metric.strata_statistic, metric.grid_step)
    noisy = None
    if isinstance(noise, PoolCountsNoise):
        noisy = cells.matrix("counts", "noisy_count")[cells.rank]
        share, variance = noisy / n_units[:, None], noise.noise.second / n_units[:, None] ** 2
    else:
        share_of = shares_of_units(connection, released)
        if share_of is None:
            return None
        of_pools = [share_of(at) for at in range(len(released.grid))]
        share = np.stack([one.share for one in of_pools], axis=1)
        variance = np.stack([one.variance for one in of_pools], axis=1)
    arms = released.pool_names["arm"].to_numpy()
    of_arms = [arms == arm for arm in released.arms]
    found = [over_pools(n_units[its], share[its], variance[its]) for its in of_arms]
    totals = None if noisy is None else np.stack([noisy[its].sum(axis=0) for its in of_arms])
    shares = np.stack([one for one, _ in found])
    errors = np.broadcast_to(np.stack([one for _, one in found]), shares.shape)
    return Distribution(shares, errors, totals)
