"""What the literature prints and does not hold, to be told from what is claimed here."""

import math


def theorem_3_1(
    resampling_probability: float, truncation_threshold: float, noise_scale: float
) -> float:
    """Theorem 3.1's ε of Cluster-DP (Javanmard, Mirrokni and Pouget-Abadie 2025): it does not hold.

        ε = min(1/σ, 2/γ) + ln(1 + (1 − λ)/(λγ))

    where λ is ``resampling_probability``, γ ``truncation_threshold``, and σ ``noise_scale`` of the
    Laplace noise on counts, in units. Two errors: a substitution moves two counts, so they cost
    2/σ; and the branch 2/γ speaks of the randomised outcomes alone, not of a prior that is
    published with them. ``privatizers/mechanisms/cluster_dp.md`` has the proof of what is claimed
    instead, 2/σ + ln(1 + (1 − λ)/(λγ)), and a counterexample.
    """
    odds = (1 - resampling_probability) / (resampling_probability * truncation_threshold)
    return min(1 / noise_scale, 2 / truncation_threshold) + math.log1p(odds)


def classical_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Δ √(2 ln(1.25/δ))/ε of Near and Abuah, proved for ε < 1 alone.

    Past ε of about 8 at δ = 1e-5 it is too little (Balle and Wang 2018); see `toolbox.md`.
    """
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon
