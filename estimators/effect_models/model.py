"""The moment effect model: what its noisy sums say of who benefits."""

from dataclasses import dataclass, field

from schemas.arrays import Floats
from schemas.effects import Curve, Effect, EffectDesign, NoisySums, SubgroupEffect


@dataclass(frozen=True)
class EffectModel:
    """An effect model: the noisy sums, and everything that follows from them alone."""

    design: EffectDesign
    n_rows: int
    """n, all units, also those whose rows take no part."""
    sums: tuple[NoisySums, ...]
    degree: int
    """1 or 2: of the polynomials of numbers."""
    coefficients: Floats = field(repr=False)
    """β, shape [p], in units of half the outcomes' range."""
    covariance: Floats = field(repr=False)
    """Of β, posterior, shape [p, p]."""
    ate: Effect | None
    """The average effect; None where the propensity was learnt."""
    subgroups: tuple[SubgroupEffect, ...]
    no_intervals: str | None
    """Why there are no intervals, in words; None where there are."""
    importance: tuple[tuple[str, float], ...]
    """Variance of each feature's part of the effect over its noisy histogram, in the outcomes'
    unit squared; the greatest first."""
    curves: tuple[Curve, ...]
    warnings: tuple[str, ...]
