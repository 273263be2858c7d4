"""Grids whose points are whole steps apart, on which a sum can be noised exactly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_MOST_STEPS = 100_000
"""With more steps, no lattice was intended; with as many, sums of 10¹³ units fit 64 bits."""
_NEAR = 1e-9  # of a step: errors of evenly spaced doubles are far smaller,
_ULPS, _NEARLY = 4, 1e-4  # except for large doubles, few of which lie within a step


@dataclass(frozen=True)
class Lattice:
    """The points of a grid, counted in steps of h from the lowest."""

    steps: tuple[int, ...]
    """Whole steps of each grid point, increasing from 0, without a common divisor; shape [K]."""

    def __post_init__(self) -> None:
        """Refuse steps that do not increase from 0."""
        rising = all(low < high for low, high in zip(self.steps, self.steps[1:], strict=False))
        if len(self.steps) < 2 or self.steps[0] != 0 or not rising:
            raise ValueError(f"{self.steps} does not increase from 0")

    @property
    def most(self) -> int:
        """The most that one substitution changes a sum by: the width of the grid, in steps."""
        return self.steps[-1]

    def step_of(self, grid: Sequence[float]) -> float:
        """Return h, one step in the unit of ``grid``, whose points are on this lattice."""
        return (grid[-1] - grid[0]) / self.most


def lattice_of(grid: Sequence[float]) -> Lattice | None:
    """Find the lattice of an increasing ``grid``; None where its points are on no lattice.

    Evenly spaced grids always have one. Other grids have one where the decimal numbers that the
    points are written as have a common step, which goes at most 100,000 times into the range.
    """
    k, width = len(grid), grid[-1] - grid[0]
    even = [(value - grid[0]) / width * (k - 1) for value in grid]
    rounding = _ULPS * math.ulp(max(abs(grid[0]), abs(grid[-1]))) * (k - 1) / width
    near = max(_NEAR, min(rounding, _NEARLY))
    if all(abs(position - nth) < near for nth, position in enumerate(even)):
        return Lattice(tuple(range(k)))
    exact = [Fraction(repr(float(value))) - Fraction(repr(float(grid[0]))) for value in grid]
    common = math.lcm(*(value.denominator for value in exact))
    whole = [int(value * common) for value in exact]
    divisor = math.gcd(*whole)
    steps = tuple(value // divisor for value in whole)
    return Lattice(steps) if steps[-1] <= _MOST_STEPS else None
