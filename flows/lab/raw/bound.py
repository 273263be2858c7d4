"""A lower bound on what small runs lose, whatever their code does: from samples of neighbours.

Every (cluster, arm) of a large made-up log is a replicate: in the one log a unit of each has the
lowest of every outcome and all others have the highest; in the other this unit has the highest,
too. The bound is above the true ε with a probability of at most ``error``. Where nothing is
published of clusters, where they share a pool or are private, draws of units alone are looked at,
each unit a replicate; where these depend on statistics that are shared there is no bound: 0.
"""

from dataclasses import replace

import numpy as np

from flows.config.model.experiment import Config
from flows.lab.raw.draw_checks import small_run
from flows.lab.raw.draws import Drawn, Truth, draws_of
from flows.lab.raw.made_up_log import MadeUpPeople, laid_out, on_grids
from privatizers.lab.audit.lower_bounds import Bound, Sample, lower_bound
from schemas.arrays import Bools, Floats
from schemas.released import ALL

_UNITS = 200_000
_MOST_CELLS = 1 << 22
_IN_SIGNATURE = 4  # outcomes whose statistics are looked at together


def sampled_bound(config: Config, error: float) -> Bound:
    """Return the bound of a made-up configuration, of the two logs together."""
    privacy, n_arms = config.privacy, len(config.arms.names)
    own_pools = config.private_clusters is None and bool(config.columns.clusters)
    own_pools &= privacy.mechanism != "cluster-free-dp" and privacy.strata_statistic != "none"
    learns = privacy.mechanism == "cluster-optimal-dp" and privacy.learn_from != "nothing"
    of_units = privacy.mechanism in ("uniform-prior-dp", "cluster-optimal-dp")
    if (learns and privacy.joint != "yes") or not (own_pools or of_units):
        return Bound(0.0, "draws depend on what is shared: there is no bound")
    who = _people(config)
    changed = np.ones(who.n_units, dtype=np.bool_)  # each drawn by itself, whatever the others are
    if own_pools:
        cell = who.cluster * n_arms + who.arm
        changed[:] = False
        changed[np.unique(cell, return_index=True)[1]] = True
    here, there = (
        _sample(config, who, changed, moved=moved, own_pools=own_pools) for moved in (False, True)
    )
    both = [
        lower_bound(one, other, privacy.delta, error / 2)
        for one, other in ((here, there), (there, here))
    ]
    best = max(both, key=lambda bound: bound.epsilon)
    return replace(best, n_samples=2 * int(changed.sum()))


def _people(config: Config) -> MadeUpPeople:
    """Many clusters of a few units an arm; one where there are none, declared ones alone."""
    n_arms, each = len(config.arms.names), max(config.privacy.min_stratum, 2)
    most = max(len(one.grid) for one in config.outcomes)
    number = max(2, min(_UNITS // (each * n_arms), _MOST_CELLS // (most * n_arms)))
    names: tuple[str, ...] = (ALL,)
    if config.private_clusters is not None:
        names = tuple(sorted(config.private_clusters.names))
    elif config.columns.clusters:
        names = tuple(f"cluster {place:06d}" for place in range(number))
    return laid_out(config, names, np.full((len(names), n_arms), each * number // len(names)))


def _sample(
    config: Config, who: MadeUpPeople, changed: Bools, *, moved: bool, own_pools: bool
) -> Sample:
    """What is published around the unit that changes, in each replicate of one release.

    Its output, and each number of its cell, tells of the lowest outcome (1), the highest (−1) or
    neither (0): added up over all outcomes, and as they are of each.
    """
    high = [np.full(who.n_units, len(one.grid) - 1) for one in config.outcomes]
    low = [np.where(changed, 0, level) for level in high]
    values = on_grids(config, high if moved else low)
    with small_run(config, who, values, f"moved-{moved}") as (designed, draw):
        release, numbers = draw(), who.numbers(0)
        if_low, if_high = (
            draws_of(Truth(designed.chosen, who, levels, numbers), release)
            for levels in (low, high)
        )
    looked_at = min(_IN_SIGNATURE, len(config.outcomes))
    told = {
        one.name: _told(one, other, changed, own_pools=own_pools)
        for one, other in zip(if_low[:looked_at], if_high, strict=False)
    }
    patterns = {
        f"what {name} shows": (3.0 ** np.arange(len(signs))) @ signs for name, signs in told.items()
    }
    draws, every = (np.concatenate([of[:most] for of in told.values()]) for most in (1, None))
    return {"draws": draws.sum(axis=0), "all that is drawn": every.sum(axis=0), **patterns}


def _told(one: Drawn, other: Drawn, changed: Bools, *, own_pools: bool) -> Floats:
    """The output's sign, and those of numbers that differ; shape [signs, replicates].

    ``one`` is what was drawn if the unit has the lowest outcome, the ``other`` if the highest.
    """
    n = len(one.cells) if own_pools else int(changed.sum())
    signs = [np.zeros(n)]
    if one.responses is not None and other.responses is not None:
        rows = np.flatnonzero(changed[one.place])
        order = one.responses.cells[rows] if own_pools else np.arange(n)
        signs[0][order] = np.sign(one.responses.chance - other.responses.chance)[rows]
    for here, there in zip(one.noise, other.noise, strict=True):
        if own_pools and len(here.values) == n:
            moved = (here.values != there.values).any(axis=0)
            signs += list(np.sign(np.abs(there.values) - np.abs(here.values)).T[moved])
    return np.stack(signs).astype(np.float64)
