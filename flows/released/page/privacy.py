"""What a release's ε means for a person, for ``templates/privacy.html``."""

import math
from typing import Any

import numpy as np

from flows.released.page import figures
from schemas.arrays import Floats
from schemas.released import Manifest

PRIORS: Floats = np.array([0.01, 0.1, 0.5, 0.9])
"""Suspicions that the meaning of ε is shown for."""


def odds_after(prior: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Least and greatest probability that a suspicion of ``prior`` can have after the release.

    Its odds p/(1 − p) are divided, or multiplied, by e^ε at most.
    """
    factor = math.exp(min(epsilon, 700.0))
    return prior / (prior + (1 - prior) * factor), prior / (prior + (1 - prior) / factor)


def privacy_facts(manifest: Manifest) -> dict[str, Any]:
    """How far a suspicion can move, in a figure and in numbers; None for a factor past any size."""
    epsilon = manifest.epsilon
    least, most = odds_after(PRIORS, epsilon)
    drawing = figures.Drawing(
        "figure-epsilon",
        "How far a suspicion can move",
        f"For suspicions of 1, 10, 50 and 90 %: where they can move to at ε = {epsilon:g}. "
        "The table beside has the same numbers.",
    )
    return {
        "factor": math.exp(epsilon) if epsilon < 700 else None,
        "svg": figures.suspicion(drawing, PRIORS, least, most),
        "rows": list(zip(PRIORS.tolist(), least.tolist(), most.tolist(), strict=True)),
    }
