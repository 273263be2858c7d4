"""Sizes of clusters and arms within a segment that is not known yet: some of the possible ones.

Which units are in a segment is the analyst's affair. Here everybody is in it with the same
probability, so each size is binomial. Nothing is drawn at random: the same sizes give the same
answer, as a plan must. The binomial laws are asked at points that fill the unit cube evenly: the
nth point of a cluster has the parts n·φ_a mod 1, where φ_a is a root of a prime of the arm's own.
"""

from itertools import count, islice

import numpy as np

from estimators.special import bdtr, ndtri
from schemas.arrays import Floats, Ints

FEW = 25.0
"""Where every arm of a cluster keeps at least so many units, a segment is taken to hold its share.

An arm that the cluster does not have does not matter.
"""

_CLUSTERS = 2000
"""Clusters that are to be seen in all: where there are fewer, several segments are looked at."""
_MOST = 64
"""The most segments that are looked at."""


def leaves_few(sizes: Ints, share: float) -> bool:
    """Whether a segment of this ``share`` leaves an arm of a cluster with few of its units.

    ``sizes`` has the shape [clusters, arms].
    """
    return bool(np.any((sizes > 0) & (share * sizes < FEW)))


def thinned_sizes(sizes: Ints, share: float) -> Ints:
    """Return possible sizes within a segment of this ``share``, shape [D, clusters, arms]."""
    n_clusters, n_arms = sizes.shape
    n_segments = int(np.clip(-(-_CLUSTERS // n_clusters), 1, _MOST))
    points = even_points(n_segments * n_clusters, n_arms)
    each = np.broadcast_to(sizes, (n_segments, n_clusters, n_arms)).reshape(-1, n_arms)
    return _quantiles(points, each, share).reshape(n_segments, n_clusters, n_arms)


def even_points(number: int, d: int, shift: float = 0.0) -> Floats:
    """Return points that lie evenly in (0, 1)^d: the parts of ``shift`` + t √p_j beyond whole ones.

    p_j is the j-th prime, t from 1 on; shape [number, d] (a sequence of Kronecker's; Richtmyer
    1951). Their averages lie a quarter as far off as those of as many independent draws.
    """
    primes = (k for k in count(2) if all(k % one for one in range(2, int(k**0.5) + 1)))
    roots = np.sqrt(np.array(list(islice(primes, d)), dtype=np.float64))
    return (shift + np.outer(np.arange(1, number + 1), roots)) % 1.0


_NORMAL = 200.0
"""Above this mean, and as far below the size, the normal law stands in for the binomial one."""


def _quantiles(points: Floats, sizes: Ints, share: float) -> Ints:
    """Return the least k with P(binomial ≤ k) ≥ ``points``, elementwise."""
    mean = share * sizes
    spread = np.sqrt(mean * (1.0 - share))
    found: Ints = np.rint(mean + spread * ndtri(points)).astype(np.int64)
    exact = np.minimum(mean, sizes - mean) < _NORMAL
    known, which = np.unique(sizes[exact], return_inverse=True)
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(known)))
    asked = points[exact]
    least = np.zeros(len(order), dtype=np.int64)
    for size, rows in zip(known.tolist(), np.split(order, ends)[:-1], strict=True):
        below = bdtr(np.arange(size, dtype=np.float64), size, share)  # that of k = size is 1
        least[rows] = np.searchsorted(below, asked[rows])
    found[exact] = least
    return np.clip(found, 0, sizes)
