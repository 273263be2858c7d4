"""Pools of clusters and strata of units, from public facts alone: names, arms and sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from schemas.arrays import Bools, Integers, Ints
from schemas.released import ALL

SHARED_POOL = "small clusters"

PoolOf = Callable[[Ints, int], Ints]
"""The pool of each cluster from sizes and ``min_stratum``, as mechanisms say it."""


def small_clusters_share(sizes: Ints, min_stratum: int) -> Ints:
    """Give each cluster a pool of its own; clusters with a small arm share one pool.

    ``sizes`` has the shape [clusters, arms]; a cluster is small where any arm has fewer than
    ``min_stratum`` units. Returns the pool of each cluster, shape [clusters]: large ones in order
    first, the shared pool last.
    """
    small = (sizes < min_stratum).any(axis=1)
    pool = np.cumsum(~small) - 1
    pool[small] = np.count_nonzero(~small)
    return pool


def everyone_shares(sizes: Ints) -> Ints:
    """Give all clusters one pool; ``sizes`` has the shape [clusters, arms]."""
    return np.zeros(len(sizes), dtype=np.int64)


_SURELY = 4
"""A cluster that is expected to have so many times ``min_stratum`` of each arm shares no pool."""


def clusters_together(sizes: Ints, min_stratum: int, pool_of: PoolOf) -> Bools:
    """Return the clusters that may count by an arm's own units, shape [clusters].

    Those that share a pool, and those that might: by sizes of clusters and of arms alone, never by
    what each cluster happened to get. (A large one in the shared pool is there for getting little
    of an arm: weights by what it got would be biased.) None where no pool is expected to be shared.
    ``sizes`` has the shape [clusters, arms].
    """
    of_arms = sizes.sum(axis=0) / max(int(sizes.sum()), 1)
    expected = np.outer(sizes.sum(axis=1), of_arms)
    shared, might = (
        _are_shared(pool_of(np.floor(expected / times).astype(np.int64), min_stratum))
        for times in (1, _SURELY)
    )
    return might & shared.any()


def _are_shared(pool_of: Ints) -> Bools:
    shared: Bools = np.bincount(pool_of)[pool_of] > 1
    return shared


def pool_names(clusters: list[str], pool_of: Ints) -> list[str]:
    """Name the pools: ``all`` for the only one, a single cluster's own name, else a shared name.

    The shared name is put in brackets until no cluster has it.
    """
    n_pools = int(pool_of.max()) + 1
    if n_pools == 1:
        return [ALL]
    shared = SHARED_POOL
    while shared in clusters:
        shared = f"({shared})"
    return [shared if name is None else name for name in own_clusters(clusters, pool_of)]


def own_clusters(clusters: Sequence[str], pool_of: Ints) -> list[str | None]:
    """The cluster that each pool is of, in the order of pools; None for a pool of several."""
    members = np.bincount(pool_of)
    member = np.zeros_like(members)
    member[pool_of] = np.arange(len(pool_of))
    of_one = zip(member.tolist(), (members == 1).tolist(), strict=True)
    return [clusters[at] if is_one else None for at, is_one in of_one]


@dataclass(frozen=True)
class Strata:
    """Clusters, arms, pools and cells, with their sizes.

    A cell is a (pool, arm) that has units; cells count from 0, pool by pool.
    """

    clusters: list[str]
    arms: list[str]
    sizes: Ints
    """Units, shape [clusters, arms]."""
    pool_of: Ints
    """Pool of each cluster, shape [clusters]."""
    cell_of: Ints
    """Cell of each (pool, arm), shape [pools, arms]; −1 where it has no units."""
    cell_sizes: Ints
    """Units, shape [cells]."""

    @cached_property
    def pools(self) -> list[str]:
        """The names of pools."""
        return pool_names(self.clusters, self.pool_of)

    def cells(self, cluster: Integers, arm: Integers) -> Ints:
        """Return the cell of each unit from its ``cluster`` and ``arm``, positions of shape [n]."""
        return self.cell_of[self.pool_of[cluster], arm]


def lay_out(clusters: list[str], arms: list[str], sizes: Ints, pool_of: Ints) -> Strata:
    """Make the strata of clusters, arms, their ``sizes`` and the pools a mechanism chose.

    ``clusters`` and ``arms`` are empty where nothing is called by its name.
    """
    pool_sizes = np.zeros((int(pool_of.max()) + 1, sizes.shape[1]), dtype=np.int64)
    np.add.at(pool_sizes, pool_of, sizes)
    occupied = pool_sizes > 0
    cell_of = np.where(occupied, np.cumsum(occupied).reshape(occupied.shape) - 1, -1)
    return Strata(clusters, arms, sizes, pool_of, cell_of, pool_sizes[occupied])
