"""Exact sums over a batch of rows, and how far those of neighbours are apart.

Proofs are in `effect_models.md` and `meta.md`. B² = p, v = w φ, |v| ≤ B, w ≤ 1, |y| ≤ 1,
t = max |T − e|, s = 2T − 1:

| sums | Δ, whole row | Δ, outcome |
|---|---|---|
| histograms | √(2d) | exact |
| Σ v vᵀ | √2 B² | exact |
| Σ v vᵀ and Σ s v vᵀ | 2B² | exact |
| Σ w v (T − 1/2) | B | exact |
| Σ w v y | 2B | 2B |
| Σ w v y and Σ w v s y | 2√2 B | 2√2 B |
| Σ w² y² | 1 | 1 |
| Σ (T − e)² v vᵀ | √2 t² B² | exact |
| Σ w v (T − e) clip(y − η, −C, C) | 2 t C B | t B min(2C, 2) |
"""

import math

import numpy as np

from estimators.effects.models import queries
from estimators.effects.models.bayes import entries_of
from privatizers.effects.models.rows import EffectRows
from schemas.arrays import Floats
from schemas.effects.model import EffectDesign


def size_and_sensitivity(
    name: str, design: EffectDesign, p: int, weight: float = math.nan, clip: float = math.nan
) -> tuple[int, float]:
    """Return how many entries sums have, and Δ, how far neighbours' sums are apart.

    ``p`` functions; ``weight`` t and ``clip`` C are known when sums need them. Sums that
    neighbours in an outcome share are exact: their weight, and so their ρ, is 0.
    """
    if name == queries.HISTOGRAMS:
        return sum(each.n_cells for each in design.features), math.sqrt(2.0 * len(design.features))
    pairs, bound = p * (p + 1) // 2, math.sqrt(p)
    moved = 2.0 * clip if design.neighbours == "row" else min(2.0 * clip, 2.0)
    return {
        queries.GRAM: (pairs, math.sqrt(2.0) * p),
        queries.SIGNED_GRAM: (2 * pairs, 2.0 * p),
        queries.TREATMENT: (p, bound),
        queries.OUTCOMES: (p, 2.0 * bound),
        queries.SIGNED_OUTCOMES: (2 * p, 2.0 * math.sqrt(2.0) * bound),
        queries.SQUARES: (1, 1.0),
        queries.SQUARED_SCORES: (1, 1.0),
        queries.TREATED_GRAM: (pairs, math.sqrt(2.0) * weight**2 * p),
        queries.EFFECTS: (p, weight * bound * moved),
        queries.RESIDUALS: (p, weight * bound * moved),
    }[name]


def plain_sum(name: str, rows: EffectRows, v: Floats, w: Floats) -> Floats:
    """Return one of the sums that know the basis alone, shape [k]; ``v`` and ``w`` of all rows."""
    treated = rows.treated.astype(np.float64)
    sign, weighted = 2.0 * treated - 1.0, w * rows.outcome
    match name:
        case queries.GRAM:
            found = entries_of(v.T @ v)
        case queries.SIGNED_GRAM:
            found = np.concatenate([entries_of(v.T @ v), entries_of((v * sign[:, None]).T @ v)])
        case queries.TREATMENT:
            found = v.T @ (w * (treated - 0.5))
        case queries.OUTCOMES:
            found = v.T @ weighted
        case queries.SIGNED_OUTCOMES:
            found = np.concatenate([v.T @ weighted, v.T @ (sign * weighted)])
        case queries.SQUARES:
            found = np.array([weighted @ weighted])
        case _:
            raise ValueError(f"no stage sums {name!r}")
    return found


def treated_gram(v: Floats, apart: Floats) -> Floats:
    """Return Σ (T − e)² v vᵀ, each entry once; ``apart`` is T − e."""
    weighted = v * apart[:, None]
    return entries_of(weighted.T @ weighted)
