"""Made-up rows of effect models, with an effect that is known."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from privatizers.effects.models.lattice_sums import BATCH
from privatizers.effects.models.rows import EffectRows
from schemas.effects.model import EffectDesign, LevelFeature, NumberFeature, Propensity, Subgroups

DESIGN = EffectDesign(
    features=(
        NumberFeature("age", 18.0, 98.0),
        NumberFeature("visits", 1.0, 1000.0, scale="log"),
        LevelFeature("region", ("north", "south", "west")),
    ),
    subgroups=(Subgroups("by age", "age", (40.0, 60.0)), Subgroups("by region", "region")),
    low=0.0,
    high=10.0,
    propensity=Propensity("value", 0.4),
    epsilon=4.0,
    delta=1e-5,
)
"""Effects of :func:`people` rise with age, from 0 to 2."""


@dataclass(frozen=True)
class People:
    """Rows, and their effect in the outcome's unit, shape [n]."""

    rows: EffectRows
    effect: np.ndarray


def people(n: int, random: np.random.Generator, *, propensity: bool = False) -> People:
    """Make up ``n`` people for :data:`DESIGN`; with a declared column of propensities if asked."""
    age, visits = random.beta(2.0, 2.0, n), random.uniform(size=n)
    region = random.integers(3, size=n)
    e = np.clip(0.2 + 0.6 * visits, 0.1, 0.9) if propensity else np.full(n, 0.4)
    treated = random.uniform(size=n) < e
    effect = 2.0 * age
    outcome = 3.0 + visits + 0.5 * (region == 1) + treated * effect + random.normal(0.0, 1.0, n)
    rows = EffectRows(
        features=np.stack([age, visits, region.astype(np.float64)], axis=1),
        treated=treated,
        outcome=np.clip((outcome - 5.0) / 5.0, -1.0, 1.0),
        propensity=e if propensity else None,
        complete=np.ones(n, dtype=np.bool_),
    )
    return People(rows, effect)


def batches(rows: EffectRows, size: int = BATCH) -> Callable[[], Iterable[EffectRows]]:
    """Return a function that yields the rows in batches."""

    def read() -> Iterable[EffectRows]:
        for start in range(0, len(rows.treated), size):
            part = slice(start, start + size)
            yield EffectRows(
                rows.features[part],
                rows.treated[part],
                rows.outcome[part],
                None if rows.propensity is None else rows.propensity[part],
                rows.complete[part],
            )

    return read


def without(rows: EffectRows, faulty: np.ndarray) -> EffectRows:
    """Return the rows with some of them marked as faulty."""
    return replace(rows, complete=rows.complete & ~faulty)
