"""Claims of the literature as they are printed, for replicating its experiments. UNSOUND.

Nothing that releases may reach this module; an import contract holds that. What a release claims
comes from :mod:`privatizers.accounting.accountant`.
"""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class UnsoundClaim:
    """An ε that was printed and does not hold. It is no number: nobody can spend or publish it."""

    printed_epsilon: float
    why: str
    sound: Literal[False] = False


def theorem_3_1(
    resampling_probability: float, truncation_threshold: float, noise_scale: float
) -> UnsoundClaim:
    """Return Theorem 3.1's ε of Cluster-DP (Javanmard, Mirrokni and Pouget-Abadie 2025).

        ε = min(1/σ, 2/γ) + ln(1 + (1 − λ)/(λγ))        (printed; it does not hold)

    where:
        λ: ``resampling_probability``, the chance to draw from the prior, in (0, 1].
        γ: ``truncation_threshold``, the least probability of the prior, in (0, 1/K].
        σ: ``noise_scale`` of the Laplace noise on counts, in units.

    Two errors. A substitution moves two counts, so they cost 2/σ. And the branch 2/γ speaks of the
    randomised outcomes alone, not of a prior that is published with them. The product claims
    2/σ + ln(1 + (1 − λ)/(λγ)); see ``privatizers/mechanisms/cluster_dp.md`` for the proof and a
    counterexample in which the printed claim is exceeded by one. Raises ValueError.
    """
    in_range = 0 < resampling_probability <= 1 and 0 < truncation_threshold <= 0.5
    if not (in_range and noise_scale > 0):
        msg = (
            f"need 0 < λ ≤ 1, 0 < γ ≤ 1/2 and σ > 0, not λ = {resampling_probability!r}, "
            f"γ = {truncation_threshold!r}, σ = {noise_scale!r}"
        )
        raise ValueError(msg)
    response = math.log1p(
        (1 - resampling_probability) / (resampling_probability * truncation_threshold)
    )
    return UnsoundClaim(
        printed_epsilon=min(1 / noise_scale, 2 / truncation_threshold) + response,
        why="counts cost 2/σ, as a substitution moves two of them, and the branch 2/γ does not "
        "cover a published prior",
    )
