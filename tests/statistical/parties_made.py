"""Many releases of an experiment that was randomised by party, made at once as arrays.

Each release is a group of one :class:`Evidence`, with pools of its own, so all of them are
estimated by one call. Outcomes, assignment and noise are drawn anew for every release; both arms
have the same distribution, so the effect is 0.
"""

from dataclasses import dataclass

import numpy as np

from estimators.arm_effects import Contrasts, contrasts
from estimators.means import EstimatorName
from estimators.strata.assigned import parties_of
from estimators.strata.evidence import Evidence, Pools, Slices, Statistic
from schemas.arrays import Ints
from tests.statistical.found import Found


@dataclass(frozen=True)
class Design:
    """An experiment: parties an arm, how many units they have, how alike these are."""

    n_parties: int
    """Of each arm, all clusters together; every cluster has as many, but for rounding."""
    sizes: tuple[int, ...] = (1, 2, 3, 4, 5)
    """A party's units are drawn from these."""
    correlation: float = 0.5
    """Of the latent outcomes of a party's units."""
    n_clusters: int = 1
    nested: bool = True
    """Whether a party lies in one cluster; otherwise each of its units lies in any."""
    n_outcomes: int = 5
    rate: float = 0.3
    """λ."""
    noise_scale: float | None = None
    """σ of the counts; None where none are published."""
    cluster_spread: float = 0.5
    size_power: float = 0.0
    """How strongly a party's mean follows its size."""


def made(design: Design, n_releases: int, random: np.random.Generator) -> Evidence:
    """Draw so many releases."""
    n_arm = design.n_parties
    party_release = np.repeat(np.arange(n_releases), 2 * n_arm)
    within = np.tile(np.arange(2 * n_arm), n_releases)
    party_arm = within // n_arm
    size = random.choice(np.array(design.sizes), len(within))
    party_cluster = within % n_arm % design.n_clusters
    release, arm = np.repeat(party_release, size), np.repeat(party_arm, size)
    party, n = np.repeat(np.arange(len(within)), size), int(size.sum())
    cluster = np.repeat(party_cluster, size)
    if not design.nested:
        cluster = random.integers(0, design.n_clusters, n)
    levels = random.normal(size=(n_releases, design.n_clusters)) * design.cluster_spread
    shared = random.normal(size=len(within)) * np.sqrt(design.correlation)
    shared += design.size_power * (size - np.mean(design.sizes))
    own = random.normal(size=n) * np.sqrt(1.0 - design.correlation)
    k = design.n_outcomes
    outcome = np.clip(
        np.rint((k - 1) / 2 + levels[release, cluster] + shared[party] + own), 0, k - 1
    )
    noisy = np.where(random.random(n) < design.rate, random.integers(0, k, n), outcome)
    grid = np.arange(float(k))
    place = (release * design.n_clusters + cluster) * 2 + arm
    total = n_releases * design.n_clusters * 2
    present = np.bincount(place, minlength=total) > 0
    code = np.cumsum(present) - 1
    where = np.flatnonzero(present)
    of_slice: Ints = code[place]
    d = noisy - grid.mean()
    counts = np.bincount(of_slice).astype(np.float64)
    mean = np.bincount(of_slice, d) / counts
    squares = np.bincount(of_slice, (d - mean[of_slice]) ** 2)
    pool = where // (2 * design.n_clusters) * 2 + where % 2
    slices = Slices(
        group=where // (2 * design.n_clusters),
        cluster=where // 2,
        arm=where % 2,
        pool=pool,
        n_units=counts,
        mean=mean,
        variance=squares / np.maximum(counts - 1.0, 1.0),
        fourth=np.bincount(of_slice, d**4) / counts,
    )
    pools = _pools(design, release * 2 + arm, outcome.astype(np.int64), 2 * n_releases, random)
    debiased = d / (1.0 - design.rate)  # but for a constant
    return Evidence.of(
        slices, slices, pools, design.rate, grid,
        parties=parties_of(of_slice, party.astype(np.uint64), arm, debiased, len(where)),
    )  # fmt: skip


def _pools(
    design: Design, pool: Ints, outcome: Ints, size: int, random: np.random.Generator
) -> Pools:
    k = design.n_outcomes
    steps = np.arange(float(k)) - (k - 1) / 2.0
    n = np.bincount(pool, minlength=size).astype(np.float64)
    counts = np.bincount(pool * k + outcome, minlength=size * k).reshape(size, k)
    nothing = np.full(size, np.nan)
    of_mean = of_square = Statistic(nothing, nothing, nothing, np.zeros(size))
    if design.noise_scale is not None:
        scale = design.noise_scale
        stay = 1.0 - np.exp(-1.0 / scale)
        noise = random.geometric(stay, (size, k)) - random.geometric(stay, (size, k))
        a = 1.0 - stay
        second = 2 * a / stay**2
        fourth = 2 * a * (1 + 4 * a + a * a) / stay**4
        noisy = counts + noise
        found = []
        for f in (steps, steps**2):
            apart = f - f.mean()
            odds = design.rate / (1.0 - design.rate)
            response = odds * (1 + odds) * 2.0 * np.var(f) / n
            variance = second * (apart**2).sum() / n**2
            found.append(
                Statistic(
                    f.mean() + noisy @ apart / n,
                    variance,
                    fourth * (apart**4).sum() / n**4,
                    response / (response + variance),
                )
            )
        of_mean, of_square = found
    constant = np.full(size, 1.0)
    return Pools(
        prior_mean=constant * 0.0,
        prior_variance=constant * (steps**2).mean(),
        prior_square=constant * (steps**2).mean(),
        prior_square_variance=constant * np.var(steps**2),
        of_mean=of_mean,
        of_square=of_square,
        pool=np.arange(size) // 2,
        n_clusters=np.full(size, design.n_clusters),
    )


def estimated(evidence: Evidence, estimator: EstimatorName, n_releases: int) -> Contrasts:
    """The contrasts of all releases."""
    return contrasts(evidence, estimator, 1, 0, n_releases, same_shares=True)


def found_of(evidence: Evidence, estimator: EstimatorName, n_releases: int) -> Found:
    """What every release says, and that the effect is 0."""
    return Found.joined([estimated(evidence, estimator, n_releases)], 0.0)
