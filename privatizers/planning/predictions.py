"""What a plan predicts of effects: of one design for people, of many designs for the planner."""

from dataclasses import dataclass

import numpy as np

from privatizers.planning.predicted_variance import ContrastWeights, HalfWidths, UnitVariance
from schemas.arrays import Floats


@dataclass(frozen=True)
class Prediction:
    """The standard error that a design is predicted to have for one effect."""

    arm: int
    """Position of the treatment arm, control being 0."""
    segment_share: float | None
    """None for the effect on everybody."""
    std_error: float
    half_width: float | None = None
    """Half of the 95 % interval that is expected; None where it is not predicted."""
    sampling_std_error: float = 0.0
    """The part of ``std_error`` that sampling, and rounding onto the grid, would leave."""
    coverage: float | None = None
    """The share of the people meant that are expected to be compared; None likewise."""


@dataclass(frozen=True)
class PredictedEffect:
    """The precision that designs are predicted to have for an effect, shape [J] each."""

    variance: Floats
    half_widths: HalfWidths
    sampling: Floats
    """The part of the variance that is not privacy's."""
    coverage: float


def effects_of(
    shares: tuple[float, ...],
    by_arm: list[ContrastWeights | None],
    unit: UnitVariance,
    within: dict[float, list[ContrastWeights | None]],
) -> list[tuple[int, float, PredictedEffect]]:
    """Return every effect's arm, its share, and the precision of every design.

    ``shares`` are those of the units, 1 for everybody. ``within`` has the weights within segments
    of some of them. Where an arm can hardly be compared in these, those of everybody stand in, and
    nobody counts as compared.
    """
    found = []
    for arm, whole in enumerate(by_arm, start=1):
        if whole is None:
            continue
        for share in shares:
            inside = within[share][arm - 1] if share in within else None
            weights, held = (whole, share) if inside is None else (inside, 1.0)
            weights = weights.at(unit)
            precision = (
                weights.variance(unit, held),
                weights.half_widths(unit, held),
                np.broadcast_to(weights.sampling * unit.sampling / held, unit.declared.shape),
            )
            hardly = share in within and inside is None
            coverage = 0.0 if hardly else weights.coverage
            found.append((arm, share, PredictedEffect(*precision, coverage)))
    return found


def predictions(
    effects: list[tuple[int, float, PredictedEffect]], at: int
) -> tuple[Prediction, ...]:
    """Return the standard errors and intervals of one design."""
    return tuple(
        Prediction(
            arm,
            None if share == 1.0 else share,
            float(np.sqrt(effect.variance[at])),
            float(effect.half_widths.at(np.array([at]))[0]),
            sampling_std_error=float(np.sqrt(effect.sampling[at])),
            coverage=effect.coverage,
        )
        for arm, share, effect in effects
    )
