"""Average effects with valid intervals, from a private table that no curve has a part in.

Each partition of the units (all of them are one) has in each of its cells the noisy sums
(0.3 n, Σ ψ/Ψ, 0.4 Σ (ψ/Ψ)²), ψ = (T − e)(y − η)/(e (1 − e)). Given the features the average of ψ
is the effect, whatever η, since e is how the treatment was really assigned.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from estimators.effects.models.basis import NumberTerms, bin_centres
from estimators.effects.models.bayes import Posterior
from estimators.effects.models.moments import Foundation, Nuisance
from estimators.effects.models.queries import TABLE_WEIGHTS
from schemas.arrays import Floats, Ints
from schemas.effects.model import (
    Curve,
    Effect,
    EffectDesign,
    LevelFeature,
    NoisySums,
    NumberFeature,
    SubgroupEffect,
    level_names,
)

PREDICTED = "predicted effect"
"""The partition by what the model predicts, from the least fifth to the greatest."""
N_POINTS = 33
"""Of a number's curve."""
_FIFTHS = ("lowest fifth", "second fifth", "middle fifth", "fourth fifth", "highest fifth")
_POINTS = 4096
_NORMAL_95 = 1.959963984540054
_LEAST_ROWS = 50.0
_LEAST_SIGMAS = 8.0


@dataclass(frozen=True)
class Partition:
    """A partition of the units into cells."""

    name: str
    levels: tuple[str, ...]
    feature: int | None
    """Its place; None for all units, and for the predicted effect."""
    edges: Floats | None = field(repr=False)
    """Rising, of positions in [0, 1] or of predicted effects; None: levels."""

    def cells(self, features: Floats, predicted: Floats) -> Ints:
        """Return the number of each row's cell, shape [n]."""
        if self.feature is None and self.edges is None:
            return np.zeros(len(features), dtype=np.int64)
        column = predicted if self.feature is None else features[:, self.feature]
        if self.edges is None:
            return column.astype(np.int64)
        return np.searchsorted(self.edges, column, side="right").astype(np.int64)


def partitions(design: EffectDesign, base: Foundation, fit: Posterior) -> tuple[Partition, ...]:
    """Return what the table is for: all units, declared subgroups, the predicted effect."""
    found = [Partition("all", ("all",), None, None)]
    for groups in design.subgroups:
        place = design.place(groups.feature)
        feature, edges = design.features[place], None
        if isinstance(feature, NumberFeature):
            edges = feature.positions(np.array(groups.edges or (), dtype=np.float64))
        found.append(Partition(groups.name, level_names(design, groups), place, edges))
    if design.targeting:
        found.append(Partition(PREDICTED, _FIFTHS, None, _fifths(base, fit)))
    return tuple(found)


def _fifths(base: Foundation, fit: Posterior) -> Floats:
    """Return where predicted effects part into fifths, by the noisy histograms; shape [4].

    As if features were independent: at points that fill the cube of all histograms evenly, the
    fractional parts of i (g⁻¹, g⁻², …), g^(d + 1) = g + 1.
    """
    basis, d = base.basis, len(base.basis.terms)
    root = 1.5
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (d + 1))
    steps = root ** -np.arange(1.0, d + 1.0)
    cube = (0.5 + np.outer(np.arange(1.0, _POINTS + 1.0), steps)) % 1.0
    points = np.empty_like(cube)
    for place, (terms, share) in enumerate(zip(basis.terms, basis.shares, strict=True)):
        cell = np.searchsorted(np.cumsum(share)[:-1], cube[:, place], side="right")
        is_number = isinstance(terms, NumberTerms)
        points[:, place] = bin_centres(len(share))[cell] if is_number else cell
    predicted = np.sort(fit.effects(basis.values(points)))
    return predicted[[_POINTS * part // 5 for part in (1, 2, 3, 4)]]


@dataclass(frozen=True)
class Cells:
    """What the table says of k cells, in the outcomes' unit, and how noisy that is."""

    counts: Floats = field(repr=False)
    totals: Floats = field(repr=False)
    """Σ ψ."""
    squares: Floats = field(repr=False)
    """Σ ψ²."""
    noise: Floats
    """Standard deviations of a count's, a total's, a square's noise; shape [3]."""

    def __add__(self, other: "Cells") -> "Cells":
        """Return what two tables over other people say together."""
        return Cells(
            self.counts + other.counts,
            self.totals + other.totals,
            self.squares + other.squares,
            np.hypot(self.noise, other.noise),
        )


def cells_of(design: EffectDesign, known: Nuisance, sums: NoisySums) -> Cells:
    """Return what the noisy ``sums`` of a table say."""
    scale = known.greatest_psi * design.half
    units = np.array([1.0, scale, scale**2]) / np.array(TABLE_WEIGHTS)
    counts, totals, squares = (sums.values.reshape(-1, 3) * units).T
    return Cells(counts, totals, squares, units * sums.noise_std)


def table_of(
    design: EffectDesign, parts: Sequence[Partition], cells: Cells
) -> list[SubgroupEffect]:
    """Return the effects of all cells with their intervals; the first is that of all units.

    With Ŝ and n̂ the noisy sum and number of a cell, t = Ŝ/n̂ has the variance

        (s² n̂ + ν² + t² ν_n²)/n̂²,

    ν and ν_n the noise of Ŝ and n̂, s² the variance of ψ: that of all units, or the cell's own as
    far as noise leaves it known (weight V/(V + its noise), V = (s²/2)² of all units). A cell with
    n̂ under max(50, 8 ν_n) has no interval.
    """
    count_noise, noise, square_noise = cells.noise.tolist()
    least = max(_LEAST_ROWS, _LEAST_SIGMAS * count_noise)
    overall: float | None = None
    found: list[SubgroupEffect] = []
    names = [(part.name, level) for part in parts for level in part.levels]
    found_of = cells.counts, cells.totals, cells.squares
    for (name, level), n, total, squares in zip(names, *found_of, strict=True):
        if n < least:
            why = f"too few units to say: fewer than about {math.ceil(least):,}, by a noisy count"
            found.append(SubgroupEffect(name, level, None, why))
            continue
        t = float(total) / n
        variance = max(float(squares) / n - t**2, 0.0)
        if overall is None:
            overall = max(variance, 1e-12 * design.half**2)
        else:
            spread = (overall / 2.0) ** 2
            weight = spread / (spread + (square_noise / n) ** 2)
            variance = overall + weight * (variance - overall)
        private = (noise**2 + (t * count_noise) ** 2) / n**2
        error = math.sqrt(variance / n + private)
        reach = _NORMAL_95 * error
        values = (t, error, math.sqrt(private), t - reach, t + reach)
        found.append(SubgroupEffect(name, level, Effect(*map(float, values)), None))
    return found


def curves_of(
    design: EffectDesign,
    base: Foundation,
    fitted: Posterior,
    errors: Callable[[Floats], Floats] | None,
) -> tuple[Curve, ...]:
    """Return the effect along each feature in the outcomes' unit, the others at their average, 0.

    ``errors`` gives the standard errors of φ β for φ of shape [m, p]; None where none are known.
    """
    basis, curves = base.basis, []
    for feature, terms, place in zip(design.features, basis.terms, basis.places, strict=True):
        at: tuple[float, ...] | tuple[str, ...]
        if isinstance(feature, LevelFeature):
            positions, at = np.arange(len(feature.levels), dtype=np.float64), feature.levels
        else:
            positions = np.linspace(0.0, 1.0, N_POINTS)
            at = tuple(feature.values_at(positions).tolist())
        phi = np.zeros((len(positions), basis.size))
        phi[:, 0] = 1.0
        phi[:, place] = terms.values(positions)
        effects = design.half * fitted.effects(phi)
        curves.append(Curve(feature.name, at, effects, None if errors is None else errors(phi)))
    return tuple(curves)
