"""A lower bound on what small runs lose, whatever their code does: from samples of neighbours.

Every (cluster, arm) of a large made-up log is a replicate: in the one log a unit of each has the
lowest of every outcome and all others have the highest; in the other this unit has the highest,
too. The bound is above the true ε with a probability of at most ``error``. Where nothing is
published of clusters, where they share a pool or are private, draws of units alone are looked at,
each unit a replicate; where these depend on statistics that are shared there is no bound: 0.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from flows.config.model.experiment import Config
from flows.lab.raw.made_up_log import MadeUpPeople, laid_out, unit_ids
from flows.lab.raw.published import DRAWN, FileTables
from flows.lab.raw.small_runs import small_run
from privatizers.lab.audit.lower_bounds import DRAW, SIGNATURE, Sample, lower_bound
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from schemas.arrays import Bools, Floats, Ints
from schemas.released import ALL

_UNITS = 200_000
_MOST_CELLS = 1 << 22
_IN_SIGNATURE = 4  # outcomes whose statistics are looked at together


@dataclass(frozen=True)
class SampledBound:
    """The bound, and the replicates behind it, of the two logs together."""

    epsilon: float
    n_samples: int
    evidence: str


def sampled_bound(config: Config, error: float) -> SampledBound:
    """Return the bound of a made-up configuration."""
    privacy, n_arms = config.privacy, len(config.arms.names)
    own_pools = config.private_clusters is None and bool(config.columns.clusters)
    own_pools &= privacy.mechanism != "cluster-free-dp" and privacy.strata_statistic != "none"
    learns = privacy.mechanism == "cluster-optimal-dp" and privacy.learn_from != "nothing"
    of_units = privacy.mechanism in ("uniform-prior-dp", "cluster-optimal-dp")
    if (learns and privacy.joint != "yes") or not (own_pools or of_units):
        return SampledBound(0.0, 0, "draws depend on what is shared: there is no bound")
    each = max(privacy.min_stratum, 2)
    most = max(len(one.grid) for one in config.outcomes)
    number = max(2, min(_UNITS // (each * n_arms), _MOST_CELLS // (most * n_arms)))
    who = _even(config, each, number)
    cell = who.cluster * n_arms + who.arm
    changed = np.zeros(who.n_units, dtype=np.bool_)
    changed[np.unique(cell, return_index=True)[1]] = True
    if not own_pools:
        changed[:] = True  # each is drawn by itself, whatever the others are
    here, there = (
        _sample(config, who, changed, moved=moved, own_pools=own_pools) for moved in (False, True)
    )
    both = (
        lower_bound(one, other, privacy.delta, error / 2)
        for one, other in pairwise((here, there, here))
    )
    best = max(both, key=lambda bound: bound.epsilon)
    return SampledBound(best.epsilon, 2 * here.size, str(best.telltale))


def _even(config: Config, each: int, number: int) -> MadeUpPeople:
    """So many clusters of ``each`` units an arm; one where there are none, declared ones alone."""
    names: tuple[str, ...] = (ALL,)
    if config.private_clusters is not None:
        names = tuple(sorted(config.private_clusters.names))
    elif config.columns.clusters:
        names = tuple(f"cluster {place:06d}" for place in range(number))
    sizes = np.full((len(names), len(config.arms.names)), each * number // len(names))
    return laid_out(config, names, sizes)


def _sample(
    config: Config, who: MadeUpPeople, changed: Bools, *, moved: bool, own_pools: bool
) -> Sample:
    """What is published around the unit that changes, in each cell of a release."""
    levels = [np.full(who.n_units, len(one.grid) - 1) for one in config.outcomes]
    if not moved:
        for level in levels:
            level[changed] = 0
    with small_run(config, who, levels, f"neighbours-{moved}") as run:
        release, truth = run.release(), run.truth
    chosen = pl.DataFrame({"unit_id": unit_ids(np.flatnonzero(changed))})
    cluster = pl.Series(who.clusters, dtype=pl.String).gather(who.cluster[changed])
    arm = pl.Series(config.arms.names).gather(who.arm[changed])
    category, draws = np.zeros(chosen.height), []
    for one, design in list(zip(config.outcomes, truth.designs, strict=True))[:_IN_SIGNATURE]:
        own = release.of_outcome(one.name)
        cells = own.cells_of(cluster, arm)
        drawn = _kinds(own, chosen, cells)
        sides = _sides(own)[:, cells] if own_pools else np.zeros((2, chosen.height))
        draws.append(drawn)
        category = category * 12.0 + drawn + 3.0 * sides[0] + 6.0 * sides[1]
        if isinstance(design.mechanism, PairedOptimalDP):
            break  # one output tells of both
    alike = np.stack(draws)
    both = np.where((alike == 0).all(axis=0), 0.0, np.where((alike == 1).all(axis=0), 1.0, 2.0))
    return Sample({DRAW: both, SIGNATURE: category})


def _kinds(own: FileTables, chosen: pl.DataFrame, cells: Ints) -> Floats:
    """Whether a unit's output tells of the lowest outcome (0), the highest (1) or neither (2)."""
    if not own.units.height:
        return np.full(chosen.height, 2.0)
    rows = chosen.join(own.units, on="unit_id", how="left", maintain_order="left")
    value = rows[DRAWN[0]].to_numpy()
    low, high = value == own.grid[0], value == own.grid[-1]
    if own.metric.response_epsilon is not None:
        tables, output = own.response_tables(), value.astype(np.int64)
        of_low, of_high = tables[cells, 0, output], tables[cells, -1, output]
        low, high = of_low > of_high, of_low < of_high
    return np.where(low, 0.0, np.where(high, 1.0, 2.0))


def _sides(own: FileTables) -> Floats:
    """Whether the statistics of a cell look like those of the unit at the lowest value, [2, S]."""
    n, grid = own.frames["pools"]["n_units"].to_numpy(), own.grid
    noisy = own.by_level("counts", "noisy_count", grid)
    if noisy is not None:
        return np.stack([noisy[:, 0] >= 1, noisy[:, -1] <= n - 1]).astype(np.float64)
    means = own.frames["pools"]["noisy_mean"]
    if means.null_count() == len(means):
        return np.zeros((2, len(n)))
    true = grid[0] + grid[-1] * (n - 1)
    slack = 1e-9 * np.abs(grid).max() * n
    return np.stack([means.to_numpy() * n <= true + slack, np.zeros(len(n))]).astype(np.float64)
