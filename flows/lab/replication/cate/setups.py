"""People with known effects: the set-ups of Niu et al. (2022) as their code has them, and another.

Each draws X, T with P(T = 1) = e(X), and Y = b(X) + T τ(X) + ε; ε is standard normal, and σ(z) is
1/(1 + exp(−z)).

- A: X uniform on [0, 1]⁶, b = sin(π x₁x₂) + 2(x₃ − ½)² + x₄ + x₅/2, e = sin(π x₁x₂) clipped to
  [.1, .9], τ = (x₁ + x₂)/2.
- B: X standard normal, as in C and D; b = max(x₁ + x₂, x₃, 0) + max(x₄ + x₅, 0), e = ½,
  τ = x₁ + log(1 + exp x₂).
- C: b = 2 log(1 + exp(x₁ + x₂ + x₃)), e = σ(−x₂ − x₃), τ = 1.
- D: b = max(x₁ + x₂, 0) + max(x₄ + x₅, 0), e = 1/(1 + exp(−x₁) + exp(−x₂)),
  τ = max(x₁ + x₂ + x₃, 0) − max(x₄ + x₅, 0). Their Table 1 has x₃ in b.
- E: x₁, x₂, x₃ and z₄, z₅, z₆ are normal with mean 0 and covariance :data:`COVARIANCE`; x₄, x₅, x₆
  are 1 where z > 1, else 0. b = Σ 0.6(i − 1)xᵢ + x₁x₆ + (.8 if x₃ is in (−½, ½), else .2),
  e = σ(x₁ + x₆) clipped to [.1, .9], τ = x₂ − x₃ + x₄ + x₅ + x₆ + 5σ(x₁), and (x₁ + 1)ε′ is added
  to Y. Their Table 1 has six normal covariates, other coefficients, another e, and ε alone. Their
  figures are from the code.

H stands in for their seventh data set: covariates and visits of a real e-mail experiment (Hillstrom
2008), with an effect that is put in. T is drawn anew with probability 0.4, and with probability
τ = 0.5 mens/(1 + 5/recency) a customer visits if and only if treated; else the visit stays as it
was. So the effect is exactly τ.

**Bounds** are constants, as a design must have them, taken from the distributions above and not
from data that are drawn: uniform covariates lie in [0, 1], normal ones within 3 standard deviations
(rounded), and outcomes between their quantiles 0.5 % and 99.5 %, rounded outward to whole numbers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.random import Generator
from scipy.special import expit

from flows.runtime.reading.table_files import read_table
from privatizers.effects.models.rows import EffectRows
from schemas.arrays import Bools, Floats, Ints
from schemas.documents import taken
from schemas.effects.model import (
    EffectDesign,
    Feature,
    LevelFeature,
    Neighbours,
    NumberFeature,
    Propensity,
)
from schemas.errors import InputError

HILLSTROM = Path("hillstrom", "hillstrom.parquet")
_BIT = ("0", "1")  # which are their places among levels, too
N_TEST = 20_000
"""Fresh people that effects are compared on."""

Predict = Callable[[Floats], Floats]
"""From features, shape [n, d], to effects, shape [n], in the outcome's unit."""

COVARIANCE: Floats = np.array([
    [3.242556517, 2.0518108195, 1.4370889988, -0.1293896637, 1.6739672839, -0.4711132347],
    [2.0518108195, 4.3800196346, 1.8208608287, 0.1912761605, 0.8281920715, -0.0651783583],
    [1.4370889988, 1.8208608287, 5.5328362276, 0.8707813919, -0.244734569, 0.8849288349],
    [-0.1293896637, 0.1912761605, 0.8707813919, 4.9740964659, -0.917473277, -1.6082354435],
    [1.6739672839, 0.8281920715, -0.244734569, -0.917473277, 3.8430566964, 0.3469048291],
    [-0.4711132347, -0.0651783583, 0.8849288349, -1.6082354435, 0.3469048291, 3.7635027154],
])  # fmt: skip
"""Of the normal variables behind E: the first six rows and columns of M Mᵀ, where M is 12 × 12,
uniform on [−1, 1], drawn by NumPy's RandomState(1)."""


@dataclass(frozen=True, eq=False)
class SetUpPeople:
    """n people; effects are known, since they were put in."""

    features: Floats = field(repr=False)
    """Shape [n, d]; a level is its position among the declared levels."""
    treated: Bools = field(repr=False)
    outcome: Floats = field(repr=False)
    effect: Floats = field(repr=False)
    """τ of each, in the outcome's unit."""


@dataclass(frozen=True, eq=False)
class SetUp:
    """One set-up: what is declared of it, and a way to draw people."""

    name: str
    title: str
    features: tuple[Feature, ...]
    low: float
    high: float
    propensity: Propensity
    draw: Callable[[int, Generator], SetUpPeople] = field(repr=False)
    """n people to learn from."""
    fresh: Callable[[Generator], SetUpPeople] = field(repr=False)
    """:data:`N_TEST` other people."""

    def design(self, epsilon: float, delta: float, neighbours: Neighbours = "row") -> EffectDesign:
        """Return what is declared of an effect model, without subgroups."""
        own = {"epsilon": epsilon, "delta": delta, "neighbours": neighbours}
        return taken(EffectDesign, self, subgroups=(), **own)

    def positions(self, features: Floats) -> Floats:
        """Return features as effect models take them, shape [n, d]."""
        columns = [
            column if isinstance(feature, LevelFeature) else feature.positions(column)
            for feature, column in zip(self.features, features.T, strict=True)
        ]
        return np.stack(columns, axis=1)

    def batches(self, people: SetUpPeople, size: int) -> Callable[[], Iterable[EffectRows]]:
        """Return a function that reads the people in batches, always in the same order."""
        half, middle = (self.high - self.low) / 2.0, (self.low + self.high) / 2.0
        outcome = np.clip((people.outcome - middle) / half, -1.0, 1.0)
        features, complete = self.positions(people.features), np.ones(len(outcome), dtype=np.bool_)
        rows = EffectRows(features, people.treated, outcome, None, complete)
        starts = range(0, len(outcome), size)
        return lambda: (rows.at(np.arange(len(outcome))[one : one + size]) for one in starts)


def simulated() -> tuple[SetUp, ...]:
    """Return the set-ups A to E."""
    uniform = _numbers([(0.0, 1.0)] * 6)
    normal = _numbers([(-3.0, 3.0)] * 6)
    numbers = _numbers([(-5.0, 5.0), (-6.0, 6.0), (-7.0, 7.0)])
    mixed = (*numbers, *(LevelFeature(f"x{place}", _BIT) for place in (4, 5, 6)))
    learnt, half = Propensity("learn"), Propensity("value", 0.5)
    declared = (
        ("A", "A: confounded, smooth effect", uniform, -2.0, 5.0, learnt, _a),
        ("B", "B: randomised", normal, -3.0, 9.0, half, _b),
        ("C", "C: the same effect for all", normal, -2.0, 10.0, learnt, _c),
        ("D", "D: effect with kinks", normal, -3.0, 8.0, learnt, _d),
        ("E", "E: correlated, mixed covariates", mixed, -10.0, 25.0, learnt, _e),
    )
    return tuple(SetUp(*each, fresh=partial(each[-1], N_TEST)) for each in declared)


def _numbers(bounds: Iterable[tuple[float, float]]) -> tuple[Feature, ...]:
    return tuple(NumberFeature(f"x{i}", low, high) for i, (low, high) in enumerate(bounds, 1))


def _sample(
    x: Floats, propensity: Floats, mean: Floats, effect: Floats, noise: Floats, random: Generator
) -> SetUpPeople:
    treated = random.uniform(size=len(x)) < propensity
    return SetUpPeople(x, treated, mean + treated * effect + noise, effect)


def _a(n: int, random: Generator) -> SetUpPeople:
    x = random.uniform(size=(n, 6))
    wave = np.sin(np.pi * x[:, 0] * x[:, 1])
    mean = wave + 2.0 * (x[:, 2] - 0.5) ** 2 + x[:, 3] + 0.5 * x[:, 4]
    effect = (x[:, 0] + x[:, 1]) / 2.0
    return _sample(x, np.clip(wave, 0.1, 0.9), mean, effect, random.standard_normal(n), random)


def _b(n: int, random: Generator) -> SetUpPeople:
    x = random.standard_normal((n, 6))
    mean = _positive(np.maximum(x[:, 0] + x[:, 1], x[:, 2])) + _positive(x[:, 3] + x[:, 4])
    effect = x[:, 0] + np.logaddexp(0.0, x[:, 1])
    return _sample(x, np.full(n, 0.5), mean, effect, random.standard_normal(n), random)


def _c(n: int, random: Generator) -> SetUpPeople:
    x = random.standard_normal((n, 6))
    mean = 2.0 * np.logaddexp(0.0, x[:, :3].sum(axis=1))
    propensity = expit(-x[:, 1] - x[:, 2])
    return _sample(x, propensity, mean, np.ones(n), random.standard_normal(n), random)


def _d(n: int, random: Generator) -> SetUpPeople:
    x = random.standard_normal((n, 6))
    last = _positive(x[:, 3] + x[:, 4])
    propensity = 1.0 / (1.0 + np.exp(-x[:, 0]) + np.exp(-x[:, 1]))
    mean = _positive(x[:, 0] + x[:, 1]) + last
    effect = _positive(x[:, :3].sum(axis=1)) - last
    return _sample(x, propensity, mean, effect, random.standard_normal(n), random)


def _e(n: int, random: Generator) -> SetUpPeople:
    z = random.standard_normal((n, 6)) @ np.linalg.cholesky(COVARIANCE).T
    x = np.concatenate([z[:, :3], (z[:, 3:] > 1.0).astype(np.float64)], axis=1)
    first, last = x[:, 0], x[:, 5]
    step = np.where(np.abs(x[:, 2]) < 0.5, 0.8, 0.2)
    mean = x @ (0.6 * np.arange(6)) + first * last + step
    effect = x @ np.array([0.0, 1.0, -1.0, 1.0, 1.0, 1.0]) + 5.0 * expit(first)
    noise = random.standard_normal(n) + (first + 1.0) * random.standard_normal(n)
    return _sample(x, np.clip(expit(first + last), 0.1, 0.9), mean, effect, noise, random)


def _positive(values: Floats) -> Floats:
    return np.maximum(values, 0.0)


# H


@dataclass(frozen=True, eq=False)
class _Customers:
    """Everybody of the experiment, in a fixed random order: the last are the fresh people."""

    features: Floats = field(repr=False)
    visit: Bools = field(repr=False)

    def learn_from(self, n: int, random: Generator) -> SetUpPeople:
        return self._at(random.permutation(len(self.visit) - N_TEST)[:n], random)

    def fresh(self, random: Generator) -> SetUpPeople:
        return self._at(np.arange(len(self.visit) - N_TEST, len(self.visit)), random)

    def _at(self, places: Ints, random: Generator) -> SetUpPeople:
        features = self.features[places]
        effect = 0.5 * features[:, 2] / (1.0 + 5.0 / features[:, 0])
        treated = random.uniform(size=len(places)) < HILLSTROM_TREATED
        flipped = random.uniform(size=len(places)) < effect
        visit = np.where(flipped, treated, self.visit[places]).astype(np.float64)
        return SetUpPeople(features, treated, visit, effect)


HILLSTROM_TREATED = 0.4
_ZIP_CODES = ("Rural", "Surburban", "Urban")  # spelt as in the data
_CHANNELS = ("Multichannel", "Phone", "Web")


def hillstrom(path: Path) -> SetUp:
    """Return H, of the data in ``path``. Raises InputError where they are others."""
    frame = read_table(path)
    columns = ("recency", "history", "mens", "womens", "newbie", "zip_code", "channel", "visit")
    missing = [name for name in columns if name not in frame.columns]
    if missing or len(frame) <= N_TEST:
        raise InputError(
            f"{path}: {len(frame)} rows (more than {N_TEST} are needed) without {missing}"
        )
    numbers = [frame[name].cast(pl.Float64).to_numpy() for name in columns[:5]]
    levels = [
        np.searchsorted(np.array(names), frame[column].to_numpy()).astype(np.float64)
        for column, names in (("zip_code", _ZIP_CODES), ("channel", _CHANNELS))
    ]
    order = np.random.default_rng(2008).permutation(len(frame))
    features = np.stack([*numbers, *levels], axis=1)[order]
    customers = _Customers(features, (frame["visit"] == 1).to_numpy()[order])
    return SetUp(
        name="H",
        title="H: real covariates (Hillstrom)",
        features=(
            NumberFeature("recency", 1.0, 12.0),
            NumberFeature("history", 20.0, 4_000.0, scale="log"),
            *(LevelFeature(name, _BIT) for name in ("mens", "womens", "newbie")),
            LevelFeature("zip_code", _ZIP_CODES),
            LevelFeature("channel", _CHANNELS),
        ),
        low=0.0,
        high=1.0,
        propensity=Propensity("value", HILLSTROM_TREATED),
        draw=customers.learn_from,
        fresh=customers.fresh,
    )
