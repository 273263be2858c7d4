"""How alike outcomes are within clusters: a diagnostic for the operator, made of raw outcomes.

NOT PRIVATE. Cluster homogeneity (Definition 3.4 of Javanmard, Mirrokni and Pouget-Abadie 2025) is
computed from true counts without noise, so no guarantee covers it. It is for the operator's eyes:
it may not be published, logged or put into a release, and neither may it choose anything that is
(a clustering, a mechanism, parameters), for then the choice would tell of it. Clusterings to choose
from are compared by a guess (:func:`~estimators.theory.homogeneity`) or by what was released.
"""

from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from estimators.theory import homogeneity, sample_variances
from schemas.arrays import Floats

Counts = NDArray[np.integer]


@dataclass(frozen=True)
class Phi:
    """The numbers themselves, control first, shape [A] each; they do not print."""

    phi: Floats = field(repr=False)
    """φ_a, in the outcome's unit, squared. 0 where every cluster has but one outcome in arm a."""
    relative: Floats = field(repr=False)
    """φ_a over what it would be were all units one cluster: 0 where clusters tell everything of
    an outcome, about 1 (or more, with unequal arm shares) where they tell nothing; NaN where an
    arm has but one outcome."""


class ClusterHomogeneity:
    """φ_a, sealed: prints as its size alone, cannot be pickled or copied, has no fields to walk."""

    __slots__ = ("__phi", "coverage", "n_clusters")

    def __init__(self, phi: Phi, n_clusters: int, coverage: float) -> None:
        """Seal ``phi``; what else is here are public sizes."""
        self.__phi = phi
        self.n_clusters = n_clusters
        """Clusters it speaks of."""
        self.coverage = coverage
        """Their share of all units."""

    def open(self) -> Phi:
        """The numbers. For the private steps only; a test walks the code for other calls."""
        return self.__phi

    def __repr__(self) -> str:
        """Never the numbers."""
        return f"<cluster homogeneity, private, {self.n_clusters} clusters>"

    def __reduce__(self) -> NoReturn:
        """Refuse to leave the process."""
        raise TypeError("cluster homogeneity is private and cannot be pickled")


def cluster_homogeneity(counts: Counts, grid: Floats) -> ClusterHomogeneity:
    """Estimate φ_a of every arm from the raw outcomes that were observed in it.

    φ̂_a = Σ_c (n_c/n)² s²_ac / n_ac,

    where

    - ``counts`` are the units of each cluster and arm at each outcome, shape [C, A, K], n_ac their
      sum and n_c that over arms (:func:`~privatizers.domain.outcome_grid.stratum_counts`,
      reshaped),
    - ``grid`` are the outcomes, shape [K],
    - s²_ac is the sample variance of the n_ac outcomes.

    Definition 3.4 has S² of *all* units of a cluster, as if they were all in arm a; over complete
    randomisation s² is that on average, so φ̂_a is unbiased. Less is better: it is a measure of
    how *unlike* outcomes are, whatever its name (:func:`~estimators.theory.homogeneity`).

    Clusters with an arm of fewer than two units are left out, by public sizes alone, and
    ``coverage`` says how many units are left. Raises ValueError where none are, or where shapes do
    not fit; the message holds no outcome.
    """
    if counts.ndim != 3 or counts.shape[2] != len(grid):
        raise ValueError(
            f"counts have the shape {counts.shape}, not [clusters, arms, {len(grid)} outcomes]"
        )
    sizes = counts.sum(axis=2)
    kept = (sizes >= 2).all(axis=1)
    if not kept.any():
        raise ValueError("no cluster has two units in every arm: homogeneity cannot be told")
    phi = _phi(counts[kept], grid)
    one = _phi(counts[kept].sum(axis=0, keepdims=True), grid)
    relative = np.divide(phi, one, out=np.full_like(phi, np.nan), where=one > 0)
    coverage = float(sizes[kept].sum() / sizes.sum())
    return ClusterHomogeneity(Phi(phi, relative), int(kept.sum()), coverage)


def _phi(counts: Counts, grid: Floats) -> Floats:
    """φ̂_a of counts with at least two units each, shape [A]."""
    sizes = counts.sum(axis=2)
    variances = sample_variances(grid, counts / sizes[:, :, np.newaxis], sizes)
    return homogeneity(variances, sizes, sizes.sum(axis=1))
