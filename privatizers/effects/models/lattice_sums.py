"""Sums over rows with discrete Gaussian noise on a lattice, in a memory that does not grow.

    h (K + Z),   K = Σ x_i in whole steps of h, rounded once,   Z_j ~ discrete Gaussian of scale σ

on each of k entries. Neighbours move Σ x_i by Δ at most in the Euclidean norm; σ is such that the
release is ρ-zCDP. The proof, rounding included, is in `effect_models.md`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from privatizers.noise.lattice_laplace import power_of_two_step
from privatizers.noise.randomness import discrete_gaussian
from schemas.arrays import Floats, Ints
from schemas.effects.model import NoisySums
from schemas.errors import InputError

BATCH = 8192
"""Rows of a batch; the error of a batch's sum in doubles is bounded by their number."""

_PART = 2.0**-8
"""Steps in parts of Δ: rounding to them widens the noise of k entries by √k/256."""
_EXACT_PART = 2.0**-20
"""The same for sums without noise."""
_SLACK = 1.0 + 2.0**-24
"""Of Δ: covers what a batch's sum in doubles is off by, at most 2⁻²⁶ Δ in each of two data sets,
and what rows are longer than their bound by rounding."""
_FINER = 20
"""Batches are added in h 2⁻²⁰ where there is noise."""
_UP = 1.0 + 2.0**-40
PARTS_OF_RHO = 1.0 - 2.0**-40
"""Rounded down, so that shares never add up to more than the whole."""
MOST_ROWS = 2**32
"""So many rows of at most 2²⁹ units each, noised, or 2²¹, exact, stay within 64 bits."""


@dataclass(frozen=True)
class Query:
    """What is summed over all rows, and how far neighbours are apart."""

    name: str
    size: int
    """k, the number of entries."""
    sensitivity: float
    """Δ of the exact sums, in the Euclidean norm."""
    rho: float
    """What it may cost; 0: the sums are of nothing that is protected, and exact."""
    is_count: bool = False
    """Whether every entry of every row is a whole number: the step is 1 then."""

    @property
    def step(self) -> float:
        """h, a power of two."""
        if self.is_count:
            return 1.0
        return power_of_two_step(self.sensitivity, _PART if self.rho else _EXACT_PART)

    @property
    def unit(self) -> float:
        """What batches are added in: finer than steps where only the total is to be rounded."""
        return self.step * 2.0**-_FINER if self.rho and not self.is_count else self.step

    @property
    def moved(self) -> float:
        """Δ′ ≥ the distance of neighbours' whole steps, times h: Δ (1 + 2⁻²⁴) + h √k (1 + 2⁻¹⁹)."""
        if self.is_count:
            return self.sensitivity * _UP
        rounding = self.step * math.sqrt(self.size) * (1.0 + 2.0 ** (1 - _FINER))
        return (self.sensitivity * _SLACK + rounding) * _UP

    @property
    def scale(self) -> float:
        """σ in steps, Δ′/(h √(2ρ)) rounded up; 0 where there is no noise."""
        return self.moved / self.step / math.sqrt(2.0 * self.rho) * _UP if self.rho else 0.0


def summed(
    queries: Mapping[str, Query], batches: Iterable[Iterable[tuple[str, Floats]]]
) -> dict[str, Ints]:
    """Add up the sums of ``batches`` by name, exactly; return K of each query, shape [k].

    A batch has :data:`BATCH` rows at most, and the sums of each query have the shape [k].
    """
    totals = {name: np.zeros(query.size, dtype=np.int64) for name, query in queries.items()}
    for batch in batches:
        for name, sums in batch:
            totals[name] += np.rint(sums / queries[name].unit).astype(np.int64)
    return {
        name: total if query.unit == query.step else (total + (1 << (_FINER - 1))) >> _FINER
        for (name, total), query in zip(totals.items(), queries.values(), strict=True)
    }


def check_rows(n_rows: int) -> None:
    """Raise InputError where there are more rows than sums can hold; known before any is read."""
    if n_rows > MOST_ROWS:
        raise InputError(
            f"{n_rows:,} units: a model takes {MOST_ROWS:,} at most; make models of parts of them"
        )


def drawn_sums(query: Query, steps: Ints) -> NoisySums:
    """Draw the noise, and return the noisy sums of exact ``steps``, shape [k]."""
    if query.rho:
        steps = steps + discrete_gaussian(len(steps), query.scale)
    return noisy_sums(query, steps)


def noisy_sums(query: Query, steps: Ints) -> NoisySums:
    """Return ``steps``, shape [k], as what the query released."""
    return NoisySums(query.name, query.rho, query.moved, query.step, query.scale, steps)
