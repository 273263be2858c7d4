"""The variance of τ̂_Q by theory, before anything is released: for plans and simulations.

Results of Javanmard, Mirrokni and Pouget-Abadie (2025), corrected where needed. They are about a
*finite population*: every unit has an outcome on the grid for either arm, and only the assignment
and the privacy noise are random. Nobody knows both outcomes of a unit, so these functions are for
made-up populations (a guess in planning, a simulation). Nothing here reads a release or a data set,
and no release depends on it; effects are estimated from a release by :mod:`estimators.arm_effects`.

In every formula the cluster c has n_c units, all arms counted, of which n_0c are in control and
n_1c in the treatment arm (a fixed number, drawn completely at random within the cluster), and
b_c = n_c / Σ n_c.
"""

from dataclasses import dataclass

import numpy as np

from estimators.response.debias import prior_moments
from estimators.response.pool_statistics import counts_noise, unit_noise
from schemas.arrays import Floats, Integers

Numbers = Integers | Floats


@dataclass(frozen=True)
class Population:
    """The outcomes that the units of every cluster would have in control and in the treatment arm.

    Raises:
        ValueError: Shapes do not fit, shares do not add up to one, or a cluster has fewer than two
            units.
    """

    grid: Floats
    """The K outcomes there can be, in their own unit; shape [K]."""
    n_units: Floats
    """n_c, all arms counted; shape [C]."""
    shares: Floats
    """How the n_c units would be spread over the grid, control first; shape [C, 2, K]."""
    effect_variance: Floats
    """S²(τ_c), the variance of the units' effects, with divisor n_c − 1; shape [C].

    0 for an effect that is the same for everybody; as a guess, 0 is on the safe side.
    """

    def __post_init__(self) -> None:
        """Refuse arrays that do not describe a population."""
        clusters, outcomes = len(self.n_units), len(self.grid)
        if self.shares.shape != (clusters, 2, outcomes):
            raise ValueError(
                f"shares have the shape {self.shares.shape}, not [clusters, 2, outcomes] = "
                f"{(clusters, 2, outcomes)}"
            )
        if self.effect_variance.shape != (clusters,):
            raise ValueError(
                f"effect_variance has {self.effect_variance.shape}, not one entry a cluster"
            )
        if not (np.min(self.n_units, initial=2.0) >= 2 and clusters):
            raise ValueError("every cluster needs at least two units")
        if not np.allclose(self.shares.sum(axis=2), 1.0, atol=1e-9) or np.any(self.shares < 0):
            raise ValueError(
                "shares have to be at least 0 and to add up to one, in every cluster and arm"
            )

    @classmethod
    def of_units(cls, grid: Floats, levels: Integers, cluster: Integers) -> "Population":
        """Return the population of these units.

        ``levels`` are positions on ``grid``, control first, shape [2, n]; ``cluster`` counts from
        0, shape [n].
        """
        n_clusters = int(cluster.max()) + 1
        n = np.bincount(cluster, minlength=n_clusters).astype(np.float64)
        key = (cluster * 2 + np.arange(2)[:, np.newaxis]) * len(grid) + levels
        counts = np.bincount(key.ravel(), minlength=n_clusters * 2 * len(grid))
        shares = counts.reshape(n_clusters, 2, len(grid)) / n[:, np.newaxis, np.newaxis]
        effect = grid[levels[1]] - grid[levels[0]]
        mean = np.bincount(cluster, effect, n_clusters) / n
        square = np.bincount(cluster, (effect - mean[cluster]) ** 2, n_clusters)
        return cls(grid, n, shares, square / (n - 1.0))

    @property
    def variances(self) -> Floats:
        """S²(y_c(a)), control first; shape [C, 2]."""
        return sample_variances(self.grid, self.shares, self.n_units[:, np.newaxis])


@dataclass(frozen=True)
class Variance:
    """The variance of an estimate, by what is random; in the outcome's unit, squared."""

    assignment: float
    """Over assignments, without privacy."""
    noise: float
    """The part that privacy adds, on average over assignments."""

    @property
    def total(self) -> float:
        """Over both."""
        return self.assignment + self.noise


@dataclass(frozen=True)
class PriorPenalty:
    """A(n_ac) of Theorem 3.5, in two forms; shape of the sizes, in the outcome's unit, squared."""

    printed: Floats
    tight: Floats


@dataclass(frozen=True)
class GapBound:
    """An upper bound on the variance that privacy adds to τ̂_Q; in the outcome's unit, squared."""

    within: float
    """(1/(1 − λ)² − 1)(φ_0 + φ_1): the part that good clusters make small."""
    prior_printed: float
    """Σ b_c² A(n_ac)/n_ac: for a prior that is not the true distribution."""
    prior_tight: float
    """The same with the tighter A."""

    @property
    def printed(self) -> float:
        """Theorem 3.5 as its appendix proves it."""
        return self.within + self.prior_printed

    @property
    def tight(self) -> float:
        """Never more than ``printed``."""
        return self.within + self.prior_tight


def sample_variances(grid: Floats, shares: Floats, n_units: Numbers) -> Floats:
    """Return S² = n/(n − 1)·Σ_y p_y (y − Σ_y p_y y)², with divisor n − 1.

    p is ``shares`` over ``grid``, shape [..., K], n ``n_units``, shape [...], at least 2 each.
    """
    _, variance = prior_moments(grid, shares)
    return variance * n_units / (n_units - 1.0)


def homogeneity(variances: Floats, sizes: Numbers, n_units: Numbers) -> Floats:
    """Return φ_a = Σ_c b_c² S²(y_c(a)) / n_ac, Definition 3.4; shape [A].

    S² is ``variances`` and n_ac ``sizes``, shape [C, A] each; n_c is ``n_units``, shape [C].

    The *smaller* it is, the more alike outcomes are within clusters; it is 0 where all units of a
    cluster have the same outcome. The formula divides by n_ac, so φ_a is arm a's part of Neyman's
    variance, and falls with the number of units. The paper reads it as E[Var(y(a)|c)], which leaves
    n_ac out; its glossary has Var(E[y(a)|c]), an error: that *grows* as clusters get better.
    """
    result: Floats = np.sum(_square_weights(n_units)[:, np.newaxis] * variances / sizes, axis=0)
    return result


def no_privacy_variance(population: Population, sizes: Numbers) -> float:
    """Return the variance of the stratified difference in means over assignments (Neyman).

    Σ_c b_c² [ S²(y_c(1))/n_1c + S²(y_c(0))/n_0c − S²(τ_c)/n_c ],

    exact, their Appendix A.2; ``sizes`` are n_0c and n_1c, shape [C, 2]. It also holds where other
    arms take some of the n_c units. Raises ValueError for sizes that do not fit.
    """
    _check_sizes(sizes, population.n_units)
    arms = homogeneity(population.variances, sizes, population.n_units).sum()
    square = _square_weights(population.n_units)
    return float(arms - np.sum(square * population.effect_variance / population.n_units))


def uniform_prior_variance(
    population: Population, sizes: Numbers, resampling_probability: float
) -> Variance:
    """Return the exact variance of τ̂_Q under the uniform prior, Theorem A.5.

    assignment:  :func:`no_privacy_variance`
    noise:       Σ_c b_c² Σ_a [ r·E_c,a (y − ȳ)² + r(1 + r)·Var_U(y) ] / n_ac,  r = λ/(1 − λ),

    where

    - the sizes n_ac are ``sizes``, control first, shape [C, 2],
    - λ is ``resampling_probability``,
    - ȳ and Var_U are mean and variance of the grid with equal weights, E_c,a the mean over *all*
      units of the cluster, as they would be in arm a.

    The assignment is random (complete within clusters, the sizes fixed), and so are the draws of
    the randomised response. Outcomes are fixed and lie on the grid, so the variance of random
    rounding to the grid is not included. Counts or means published beside the outcomes do not
    change τ̂_Q.

    The noise is that of the paper's Equation (7), its terms put together as in
    :func:`~estimators.response.pool_statistics.unit_noise`, which shows that shifting all outcomes
    changes nothing. Raises ValueError for sizes that do not fit and for λ outside (0, 1).
    """
    assignment = no_privacy_variance(population, sizes)
    _check_rate(resampling_probability)
    weight = _square_weights(population.n_units)[:, np.newaxis] / sizes
    total = float(weight.sum())
    # The noise of a unit is linear in the distribution of outcomes: one mixture stands for all.
    mixture = np.einsum("ca,cak->k", weight, population.shares) / total
    n_outcomes = len(population.grid)
    uniform = np.full(n_outcomes, 1.0 / n_outcomes)
    noise = total * unit_noise(population.grid, mixture, uniform, resampling_probability)
    return Variance(assignment, noise)


def prior_distance_bound(
    n_units: Numbers, n_outcomes: int, truncation_threshold: float, noise_scale: float
) -> Floats:
    """Return Lemma A.12's bound on E‖q̃ − p̂‖₁, q̃ the noisy prior, p̂ the true shares of a stratum.

    2K [ γ + (σ/n)(e^{−γn/σ} − e^{−n/σ}) ],

    n being ``n_units``, any shape, K ``n_outcomes``, γ ``truncation_threshold``, σ ``noise_scale``,
    in units. Their proof is for Laplace noise. Its argument gives a little more for our whole
    numbers Z (0.769 for 0.739, times 2K, at n = σ = 1 and γ = 1/2), but the bound holds for them
    too. With W = Z/n, the error that clipping leaves, E|q_y − p_y|, is

    - for p_y ≥ γ: ∫ P(W > t) dt over [0, 1 − p_y] and over [0, p_y − γ], each at most Laplace's;
    - for p_y < γ: γ − p_y and ∫ P(W > t) dt over [γ − p_y, 1 − p_y], where P(W > t) ≤ e^{−nt/σ};

    and ‖q̃ − q‖₁ = |Σq − 1| ≤ ‖q − p̂‖₁, also where one count is the other's complement (K = 2).
    """
    ratio = n_units / noise_scale
    fall = np.exp(-truncation_threshold * ratio) * -np.expm1(-(1 - truncation_threshold) * ratio)
    return 2.0 * n_outcomes * (truncation_threshold + fall / ratio)


def prior_penalty(
    n_units: Numbers,
    grid: Floats,
    resampling_probability: float,
    truncation_threshold: float,
    noise_scale: float,
) -> PriorPenalty:
    """Return A(n) of Theorem 3.5: the distance of Lemma A.12 times a factor.

    printed:  D·[ B²(3/(1 − λ)² + 2) + (λ√K + 1)²/(1 − λ)² · ‖y‖₂² (1 − λ(K − 1)γ) ]
    tight:    D·[ B²(3/(1 − λ)² + 2) + B²(1 + λ)²/(1 − λ) ]

    where D is :func:`prior_distance_bound`, B = max |y| and ‖y‖₂ the norm of ``grid``, λ
    ``resampling_probability``, γ ``truncation_threshold``, σ ``noise_scale``, n ``n_units``.

    ``printed`` is what their appendix proves (Equation 33, and their glossary). The main text has a
    *plus* between (λ√K + 1)² and ‖y‖₂², a misprint: A has to be multiplied by c² when all outcomes
    are multiplied by c. The same holds for Proposition A.9, where B² multiplies everything.

    ``tight`` is ours: their Term II is (1 − λ) Σ_j v_j² (p̂ − q̃)_j, because Q takes p̂ − q̃ to
    (1 − λ)(p̂ − q̃), and |v_j| ≤ B(1 + λ)/(1 − λ). It is never more than ``printed``, since
    B ≤ ‖y‖₂, 1 + λ ≤ λ√K + 1 and 1 − λ ≤ 1 − λ(K − 1)γ.

    τ̂_Q does not change when all outcomes are shifted, but the bounds do: they are least on a grid
    whose middle is 0. Raises ValueError for parameters out of range.
    """
    _check_rate(resampling_probability)
    n_outcomes, kept = len(grid), 1.0 - resampling_probability
    if not (0 < truncation_threshold * n_outcomes <= 1 + 1e-12 and noise_scale > 0):
        raise ValueError(
            f"need 0 < γ ≤ 1/{n_outcomes} and σ > 0: {truncation_threshold!r}, {noise_scale!r}"
        )
    largest = float(np.max(np.abs(grid))) ** 2
    first = largest * (3.0 / kept**2 + 2.0)
    singular = (resampling_probability * np.sqrt(n_outcomes) + 1.0) ** 2 / kept**2
    entry = 1.0 - resampling_probability * (n_outcomes - 1) * truncation_threshold
    distance = prior_distance_bound(n_units, n_outcomes, truncation_threshold, noise_scale)
    return PriorPenalty(
        printed=distance * (first + singular * float(grid @ grid) * entry),
        tight=distance * (first + largest * (1.0 + resampling_probability) ** 2 / kept),
    )


def cluster_prior_gap_bound(
    population: Population,
    sizes: Numbers,
    resampling_probability: float,
    truncation_threshold: float,
    noise_scale: float,
) -> GapBound:
    """Return the most that Cluster-DP adds to the variance of τ̂_Q, Theorem 3.5.

    0 ≤ Var(τ̂_Q) − :func:`no_privacy_variance`
      ≤ (1/(1 − λ)² − 1) Σ_a φ_a + Σ_a Σ_c b_c² A(n_ac)/n_ac,

    with φ_a as in :func:`homogeneity` and A as in :func:`prior_penalty`; arguments as there, and
    ``sizes`` as in :func:`uniform_prior_variance`. The assignment, the noise on the counts and the
    draws are random; outcomes are fixed.

    It holds where each cluster and arm has a prior of its own, so not where small clusters share a
    pool; for Cluster-Free-DP take everybody as one cluster, which is the unstratified estimator.
    The first part is attained, except for a factor (n_ac − 1)/n_ac, as γ and σ go to 0; it is no
    lower bound, though their Figure 5 draws it as one. The second part is often ten times too wide
    or more: this is a bound, not a forecast. Raises ValueError as those functions do.
    """
    _check_sizes(sizes, population.n_units)
    penalty = prior_penalty(
        sizes, population.grid, resampling_probability, truncation_threshold, noise_scale
    )
    weight = _square_weights(population.n_units)[:, np.newaxis] / sizes
    phi = homogeneity(population.variances, sizes, population.n_units)
    return GapBound(
        within=float((1.0 / (1.0 - resampling_probability) ** 2 - 1.0) * phi.sum()),
        prior_printed=float(np.sum(weight * penalty.printed)),
        prior_tight=float(np.sum(weight * penalty.tight)),
    )


def noisy_horvitz_thompson_gap(
    grid: Floats, sizes: Numbers, n_units: Numbers, epsilon: float
) -> float:
    """Return the variance that noise on every cluster's difference adds; Proposition A.2.

    2 Σ_c (b_c Δ_c / ε)²,  Δ_c = R / min(n_0c, n_1c),  R = max 𝒴 − min 𝒴,

    for Laplace noise of scale Δ_c/ε; noise on a lattice has a little less. ``sizes`` are n_0c and
    n_1c, shape [C, 2], ``n_units`` n_c, shape [C], ``epsilon`` the ε of all that is released.

    The paper has max |y| for R, which is not the most that one unit can change: it is too little
    where the grid has both signs, and needlessly much where the grid is far from 0. For one
    treatment arm only: where arms share a control, their differences cost more together. Raises
    ValueError for sizes that do not fit, and unless ε is above 0.
    """
    _check_sizes(sizes, n_units)
    _check_epsilon(epsilon)
    scale = np.ptp(grid) / np.min(sizes, axis=1) / epsilon
    return float(2.0 * np.sum(_square_weights(n_units) * scale**2))


def noisy_histogram_gap(grid: Floats, sizes: Numbers, n_units: Numbers, epsilon: float) -> float:
    """Return the variance that noise on every count adds; Proposition A.3.

    Var(Z) Σ_y (y − ȳ)² Σ_c b_c² (1/n_0c² + 1/n_1c²)

    for discrete Laplace noise Z of scale 2/ε on counts, near 8/ε² for small ε; arguments as in
    :func:`noisy_horvitz_thompson_gap`. For K = 2 one count is noised, at 1/ε, and the other is its
    complement: Var(Z) R² in place of the first two factors.

    It differs from the paper in three ways: the scale, which is 1/ε there although one unit moves
    two counts; the noise, whose whole numbers have less variance than 2σ²; and the origin of
    outcomes, which is the grid's mean ȳ here, since noisy counts do not add up to n (they have
    Σ y²). Raises ValueError as :func:`noisy_horvitz_thompson_gap` does.
    """
    _check_sizes(sizes, n_units)
    _check_epsilon(epsilon)
    complement = len(grid) == 2
    noise = counts_noise(
        (1.0 if complement else 2.0) / epsilon, "count-and-complement" if complement else "counts"
    )
    weight = _square_weights(n_units)[:, np.newaxis] / np.square(sizes, dtype=np.float64)
    return float(noise.of_sum(grid).second * np.sum(weight))


def _square_weights(n_units: Numbers) -> Floats:
    """b_c², shape [C]."""
    weights: Floats = np.square(n_units / np.sum(n_units))
    return weights


def _check_sizes(sizes: Numbers, n_units: Numbers) -> None:
    """Refuse sizes that are not those of two arms of these clusters."""
    expected = (len(n_units), 2)
    if sizes.shape != expected:
        raise ValueError(f"sizes have the shape {sizes.shape}, not [clusters, 2] = {expected}")
    if np.min(sizes) < 1 or np.any(sizes.sum(axis=1) > n_units):
        raise ValueError("every cluster needs a unit in both arms, and no more units than it has")


def _check_rate(resampling_probability: float) -> None:
    if not 0 < resampling_probability < 1:
        raise ValueError(f"λ = {resampling_probability!r} is not strictly between 0 and 1")


def _check_epsilon(epsilon: float) -> None:
    if not epsilon > 0:
        raise ValueError(f"ε = {epsilon!r} is not greater than 0")
