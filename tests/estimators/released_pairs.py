"""Units of two arms as a release tells them, simulated: randomised response, debiased."""

from dataclasses import dataclass

import numpy as np

from estimators.effects.models.from_release import Pair
from estimators.response.debias import response_noise_variance
from schemas.arrays import Floats
from schemas.effects.model import EffectDesign, LevelFeature, NumberFeature, Propensity, Subgroups

SITES = ("east", "north", "west")
DESIGN = EffectDesign(
    features=(NumberFeature("age", 20.0, 80.0), LevelFeature("site", SITES)),
    subgroups=(Subgroups("age", "age", (35.0, 50.0, 65.0)),),
    low=0.0,
    high=4.0,
    propensity=Propensity("value", 0.5),
    epsilon=2.0,
    delta=0.0,
    neighbours="outcome",
)
GRID = np.arange(5.0)


@dataclass(frozen=True)
class Simulated:
    """A release's pair of arms beside features, and the truth."""

    pair: Pair
    features: Floats
    effects: Floats
    """τ(x), shape [n], in the outcomes' unit."""


def simulated(
    random: np.random.Generator, n: int, *, rate: float = 0.4, strength: float = 1.0
) -> Simulated:
    """n units, half treated: τ rises with age and is greater in one site.

    Outcomes are 0 … 4, replaced by a uniform one with probability ``rate`` (λ), and debiased.
    """
    features = np.column_stack([random.random(n), random.integers(0, 3, n).astype(float)])
    effects = strength * (1.2 * features[:, 0] - 0.4 + 0.4 * (features[:, 1] == 2))
    treated = (random.permutation(n) < n // 2).astype(float)
    mean = 1.6 + 0.5 * features[:, 0] + treated * effects
    true = np.floor(mean + random.random(n))  # 0 … 4 for all that is used here
    found = np.where(random.random(n) < rate, random.integers(0, 5, n), true)
    noise = response_noise_variance(np.ones(n), (found - 2.0) ** 2, np.full(n, 2.0), rate)
    debiased = (found - rate * 2.0) / (1.0 - rate)
    pair = Pair(
        rows=np.arange(n),
        treated=treated,
        propensity=np.full(n, (n // 2) / n),
        outcome=(debiased - 2.0) / 2.0,
        noise=noise / 4.0,
    )
    return Simulated(pair, features, effects)
