"""Effect models: what is declared of one, and the noisy sums that it is made from.

A model says how large the effect of a treatment is for whom. It is a few sums over all units,
noised, and what follows from them and the declaration here; nothing else of the data is in it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from schemas.arrays import Floats, Ints

Neighbours = Literal["row", "outcome"]
"""What may differ between two data sets: one unit's whole row, or its outcome alone."""

Learner = Literal["moments", "dr", "r", "s"]

NEIGHBOURS: Final[dict[Neighbours, str]] = {
    "row": "one unit's outcome, arm and features (substitution)",
    "outcome": "one unit's outcome (substitution)",
}


@dataclass(frozen=True)
class NumberFeature:
    """A number between declared bounds; what lies outside counts as the nearer bound."""

    name: str
    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    """Whether its position between the bounds is its own, or that of its logarithm."""
    missing: float | None = None
    """What a missing value counts as; None: a missing value is a fault."""

    @property
    def n_cells(self) -> int:
        """How many bins its histogram has."""
        return N_BINS

    def positions(self, values: Floats) -> Floats:
        """Return where values lie between the bounds, in [0, 1]; shape as ``values``, NaN stays."""
        clipped = np.clip(values, self.low, self.high)
        low, high = self.low, self.high
        if self.scale == "log":
            clipped, low, high = np.log(clipped), math.log(low), math.log(high)
        return np.clip((clipped - low) / (high - low), 0.0, 1.0)

    def values_at(self, positions: Floats) -> Floats:
        """Return the values that lie at ``positions``, the inverse of :meth:`positions`."""
        if self.scale == "log":
            low, high = math.log(self.low), math.log(self.high)
            return np.exp(low + positions * (high - low))
        return self.low + positions * (self.high - self.low)


@dataclass(frozen=True)
class LevelFeature:
    """One of the levels that are declared."""

    name: str
    levels: tuple[str, ...]
    other: str | None = None
    """The level that any other value counts as; None: another value is a fault."""
    missing: str | None = None
    """The level that a missing value counts as; None: a missing value is a fault."""

    @property
    def n_cells(self) -> int:
        """How many levels it has."""
        return len(self.levels)


Feature = NumberFeature | LevelFeature

N_BINS: Final = 32
"""Equal bins of a number's histogram."""


@dataclass(frozen=True)
class Subgroups:
    """A partition of all units by one feature: by its levels, or by a number between edges."""

    name: str
    feature: str
    edges: tuple[float, ...] | None = None
    """Rising, e_1 < … < e_m: (−∞, e_1), [e_1, e_2) … [e_m, ∞); None: the levels."""


@dataclass(frozen=True)
class Propensity:
    """How probable the treatment was: a constant, a column of the log, or learnt from the rows."""

    kind: Literal["value", "column", "learn"]
    value: float | None = None
    """The constant; None unless ``kind`` is "value"."""
    bound: float = 0.1
    """c: propensities of a column, and learnt ones, are clipped to [c, 1 − c]."""


@dataclass(frozen=True)
class SiteSums:
    """One of the sites whose sums a model adds up, and what its own report costs."""

    site: str
    revision: int
    n_rows: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Agreed:
    """What sites agree on, in public, before any row is read: so that their sums add up."""

    digest: str
    """SHA-256 of the document that all of them point to, as canonical JSON."""
    degree: Literal[1, 2]
    """Of the polynomials of numbers."""
    usual: tuple[tuple[float, float] | None, ...]
    """By feature: about where the middle two thirds of people are; None: evenly anywhere."""
    sites: tuple[SiteSums, ...] = ()
    """Those whose sums are added, in the order of their names; none of what one site reports."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sites whose sums are added."""
        return tuple(each.site for each in self.sites)


@dataclass(frozen=True)
class EffectDesign:
    """What is declared of an effect model: all of it public, none of it learnt from data."""

    features: tuple[Feature, ...]
    subgroups: tuple[Subgroups, ...]
    low: float
    """Outcomes below it count as it."""
    high: float
    """Outcomes above it count as it."""
    propensity: Propensity
    epsilon: float
    delta: float
    neighbours: Neighbours = "row"
    pairs: tuple[tuple[str, str], ...] = ()
    """Pairs of features whose product takes part in the model."""
    targeting: bool = True
    """Whether the table has a partition by predicted effects, where intervals are given."""
    agreed: Agreed | None = None
    """What several sites agreed on; None of a model that is made at one place."""

    @property
    def half(self) -> float:
        """Half the range of the outcomes, in their unit."""
        return (self.high - self.low) / 2.0

    @property
    def middle(self) -> float:
        """The middle of the range of the outcomes."""
        return (self.low + self.high) / 2.0

    @property
    def has_table(self) -> bool:
        """Whether intervals are given: where the propensity is declared, not learnt."""
        return self.propensity.kind != "learn"

    def feature(self, name: str) -> Feature:
        """Return a feature by its name; KeyError if there is none."""
        return self.features[self.place(name)]

    def place(self, name: str) -> int:
        """Return the position of a feature among :attr:`features`; KeyError if there is none."""
        names = [each.name for each in self.features]
        if name not in names:
            raise KeyError(name)
        return names.index(name)


@dataclass(frozen=True)
class NoisySums:
    """Sums over all units with discrete Gaussian noise, in whole steps; a vector of shape [k]."""

    name: str
    rho: float
    """What they cost under zCDP; 0 where they are exact sums of what is not protected."""
    sensitivity: float
    """Δ: how far neighbours are apart in the Euclidean norm, in the unit of the sums."""
    step: float
    """h, a power of two, in the unit of the sums."""
    scale: float
    """σ of the noise in steps; 0 where there is none."""
    steps: Ints = field(repr=False)

    @property
    def values(self) -> Floats:
        """The sums in their unit, shape [k]."""
        return self.steps.astype(np.float64) * self.step

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of one sum, in its unit."""
        return self.scale * self.step


@dataclass(frozen=True)
class Effect:
    """An effect with its 95 % interval, in the unit of the outcomes."""

    estimate: float
    std_error: float
    privacy_std_error: float
    """The part of ``std_error`` that is due to noise."""
    ci_lower: float
    ci_upper: float


@dataclass(frozen=True)
class SubgroupEffect:
    """The effect in one subgroup, or in words why there is none."""

    name: str
    """Of the partition."""
    level: str
    effect: Effect | None
    refused: str | None


@dataclass(frozen=True)
class Curve:
    """The effect along one feature, the others held at their average."""

    feature: str
    at: tuple[float, ...] | tuple[str, ...]
    """Values of a number, or all levels; shape [m]."""
    effects: Floats
    """Shape [m], in the unit of the outcomes."""
    noise_std_errors: Floats | None
    """Shape [m]; noise and sampling of the fitted curve, not its misfit; None where no error is
    known, as the propensity was learnt."""


def level_names(design: EffectDesign, groups: Subgroups) -> tuple[str, ...]:
    """Return the names of a partition's subgroups, in their order."""
    feature = design.feature(groups.feature)
    if isinstance(feature, LevelFeature):
        return feature.levels
    edges: Sequence[float] = groups.edges or ()
    inner = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    return (f"under {edges[0]:g}", *inner, f"{edges[-1]:g} and more") if edges else ("all",)
