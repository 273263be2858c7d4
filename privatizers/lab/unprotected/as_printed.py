"""What the literature prints and does not hold, for replicating its experiments. UNSOUND.

Nothing that releases may reach this module; an import contract holds that. What a release claims
comes from :mod:`privatizers.accounting.accountant`, what a site reports from
:mod:`privatizers.effects.sites`. Nothing is drawn here: a replication hands in noise of scale 1.

A site's reports are those of Koga, Chaudhuri and Page (2024), "Differentially Private Multi-Site
Treatment Effect Estimation". What is wrong with them is in ``privatizers/effects/sites/sites.md``.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from privatizers.effects.sites.matching import SitePeople, evaluate, matched
from privatizers.effects.sites.matching_sensitivity import (
    WorstPairs,
    reuse_at,
    smoothed,
    variance_range,
)
from privatizers.effects.toolbox.smooth_sensitivity import beta_of
from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class StandardDraws:
    """Noise of scale 1 that a replication draws itself: two of Laplace, one of Gauss."""

    effect: float
    variance: float
    bound: float


def trial_as_printed(
    noise: Floats, people: SitePeople, epsilon: float, high: float = 1.0
) -> tuple[float, float]:
    """Return the effect in a trial and its variance by Section III-A-1.

    ε/2 for Σy at B, and ε/2 for Σy² at B² = ``high``²; the part of sampling is 0 at least.
    ``noise`` is Laplace's, shape [arms, 2], treated first.
    """
    each = epsilon / 2.0
    means, spread = np.empty(2), 0.0
    for place, arm in enumerate((True, False)):
        y = people.outcome[people.treated == arm]
        means[place] = (y.sum() + high / each * noise[place, 0]) / len(y)
        square = ((y**2).sum() + high**2 / each * noise[place, 1]) / len(y)
        known = 2.0 * (high / each / len(y)) ** 2
        spread += max(square - means[place] ** 2, 0.0) / len(y) + known
    return float(means[0] - means[1]), float(spread)


def smooth_matching_as_printed(
    draws: StandardDraws, people: SitePeople, epsilon: float, *, delta: float, high: float = 1.0
) -> tuple[float, float]:
    """Return τ_DP and its variance by Algorithm 2 and Lemma 1 as printed: no guarantee is claimed.

        τ_DP = τ̂ + (2S/ε₁) η,   V = V̂ + (2S_V/ε₂) η′ + 8 S_DP²/ε₁²,
        S_DP = exp(ln S + σz − σ²/2),   σ = √(2 ln(1.25/δ₃)) β/ε₃,   β = ε₁/(2 ln(2/δ₁)),

    thirds of ε and δ each, S by Equation (1). The paper gives S_V as a search over all sizes k
    records away; ours stands in for it. The part of sampling, V̂ with its noise, is 0 at least.

    where ``draws`` has η, η′ and z. S and the size of the noise depend on the data, Equation (1) is
    no smooth bound and Lemma 1 is proved for ε₃ < 1 alone.
    """
    each, share = epsilon / 3.0, delta / 3.0
    beta = beta_of(each, share)
    treated, control = people.sizes()
    known = evaluate(people, high)
    bound = equation_one(treated, control, high=high, beta=beta)
    of_variance = smooth_paired_variance_bound(treated, control, high=high, beta=beta)
    deviation = math.sqrt(2.0 * math.log(1.25 / share)) * beta / each
    seen = bound * math.exp(deviation * draws.bound - deviation**2 / 2.0)
    estimate = known.effect + 2.0 * bound / each * draws.effect
    sampling = paired_variance(people, high) + 2.0 * of_variance / each * draws.variance
    return estimate, max(sampling, 0.0) + 8.0 * seen**2 / each**2


def global_matching_as_printed(
    noise: Floats, people: SitePeople, epsilon: float, high: float = 1.0
) -> tuple[float, float]:
    """Return the matched effect and its variance with noise for the worst data.

    Noise for 2B at ε/2, and for the range of the sampling variance at ε/2, B = ``high``; both are
    made of ``noise``, Laplace's, shape [2].
    """
    each = epsilon / 2.0
    estimate = evaluate(people, high).effect + 2.0 * high / each * noise[0]
    sampling = (
        paired_variance(people, high) + variance_range(high, people.n_units) / each * noise[1]
    )
    return float(estimate), float(max(sampling, 0.0) + 2.0 * (2.0 * high / each) ** 2)


def paired_variance(people: SitePeople, high: float) -> float:
    """Return Σ (1 + L_i)² (y_i − y_m(i))²/(2N²), the variance as the paper estimates it.

    With variances σ_t², σ_c² and an effect τ_x in a stratum a square has the mean
    σ_t² + σ_c² + τ_x² where 2σ² is meant: too large by τ_x², and right for each arm only where
    σ_t = σ_c.
    """
    match = matched(people.stratum, people.treated)
    y = np.clip(np.where(np.isnan(people.outcome), 0.0, people.outcome), 0.0, high)
    weights = match.weights(people.treated).astype(np.float64)
    apart = y - y[match.partner]
    return float((weights**2 * apart**2).sum()) / (2.0 * float(people.n_units) ** 2)


def equation_one(treated: Ints, control: Ints, *, high: float, beta: float) -> float:
    """Return Equation (1) as printed: it is NOT β-smooth.

        max_{k ≤ N} e^(−kβ) (4B/N)(1 + max_x R^(k)),
        R^(k) = M + k where m ≤ k, else ⌈(M + k + 1)/(m − k)⌉

    Where m ≤ k it misses the stratum that is left with one unit in an arm, R = M + k + 1.
    """
    pairs = WorstPairs.of(treated, control)
    n = pairs.n_units

    def term(distance: Ints) -> Floats:
        k = distance[:, None]
        reuse = np.where(pairs.least <= k, pairs.most + k, reuse_at(pairs, distance, 1))
        bound: Floats = 4.0 * high / n * (1.0 + reuse.max(axis=1))
        return bound

    return smoothed(term, pairs, beta, 4.0 * high / n * (2.0 + 2.0 * n))


def smooth_paired_variance_bound(
    treated: Ints, control: Ints, *, high: float, beta: float
) -> float:
    """Return S_V, β-smooth and at least the local sensitivity of :func:`paired_variance`."""
    pairs = WorstPairs.of(treated, control)
    term = partial(paired_variance_bound_at, pairs, high=high)
    return smoothed(term, pairs, beta, variance_range(high, pairs.n_units))


def paired_variance_bound_at(pairs: WorstPairs, distance: Ints, high: float) -> Floats:
    """Return A_V^(k) = (B²/N²) max_x H^(k+1) for the paper's variance, k = ``distance``, shape [d].

        H^(k) = 3.5 min(N, T + C + k) + Φ(min(N, M + k), max(m − k, 1)),

    where Φ(M, m) = M q + r(q + 1), M = qm + r, is the least sum of squares of m whole numbers that
    add up to M, which balanced reuse attains.
    """
    k = distance[:, None] + 1
    share = np.maximum(pairs.least - k, 1)
    reused = np.minimum(pairs.n_units, pairs.most + k)
    quotient, rest = reused // share, reused % share
    squares = reused * quotient + rest * (quotient + 1)
    units = np.minimum(pairs.n_units, pairs.least + pairs.most + k)
    bound: Floats = high**2 / float(pairs.n_units) ** 2 * (3.5 * units + squares).max(axis=1)
    return bound
