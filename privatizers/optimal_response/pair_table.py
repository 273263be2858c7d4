"""A randomiser of two outcomes together in whole numbers, as it is drawn from and published.

Both outcomes of a unit are released as one output j, which stands for v_j of the one and w_j of the
other. Probabilities are multiples of 2⁻⁵³ and keep ε exactly; v and w are solved again for them,
so that both are unbiased and their noises uncorrelated, given the outcomes (`pairs.md`).
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from privatizers.noise.randomness import UNIT
from privatizers.optimal_response.linear_programme import UnsolvedError
from privatizers.optimal_response.pairs import (
    PairedGrid,
    PairRandomiser,
    pair_guess,
    pairs_of,
    separate,
    solve_pair,
    total_epsilon,
)
from privatizers.optimal_response.whole_numbers import (
    BIAS,
    DOUBTS,
    LAST_BITS,
    MOST_EPSILON,
    ResponseTable,
    even_singular,
    whole_units,
)
from schemas.arrays import Floats, Ints

_NONE = "no randomiser of both outcomes keeps so small an epsilon, or so great a one"
_STEPS = 6
"""Of Newton's method, which doubles the digits in each."""


@dataclass(frozen=True)
class PairTable:
    """A randomiser of K L pairs to J outputs; the second outcome runs fastest.

    ``units`` has the shape [K L, J]: row x has Q(j|x) 2⁵³ for every output j, whole numbers that
    add up to 2⁵³. ``values`` has v and w, shape [2, J].
    """

    first: PairedGrid
    second: PairedGrid
    units: Ints
    values: Floats

    @property
    def epsilon(self) -> float:
        """What the table keeps."""
        return total_epsilon(self.first.epsilon, self.second.epsilon)

    @property
    def grids(self) -> tuple[PairedGrid, PairedGrid]:
        """Both outcomes."""
        return self.first, self.second

    @cached_property
    def sides(self) -> tuple[ResponseTable, ResponseTable]:
        """The table as one of each outcome, whose inputs are those of all pairs."""
        inputs = pairs_of(np.array(self.first.values), np.array(self.second.values))
        guess = pair_guess(self.first, self.second)
        first, second = (
            ResponseTable(values, self.units, outputs, guess)
            for values, outputs in zip(inputs, self.values, strict=True)
        )
        return first, second

    @property
    def covariance(self) -> Floats:
        """Cov(v, w) given each pair, shape [K L]: 0 but for rounding."""
        apart = [side.values - side.inputs[:, np.newaxis] for side in self.sides]
        found: Floats = np.sum(self.units / UNIT * apart[0] * apart[1], axis=1)
        return found

    @property
    def tells_apart(self) -> bool:
        """Whether the outputs tell of every function of the pairs, and doubles can work it out.

        The least singular value is compared with that of two tables of even response, which is the
        product of theirs. At a small ε that is little: then noise cannot be estimated.
        """
        even = math.prod(even_singular(len(one.values), one.epsilon) for one in self.grids)
        return all(side.can_be_undone(even) for side in self.sides)

    @property
    def is_exact(self) -> bool:
        """Whether it keeps ε, and is unbiased and uncorrelated up to the rounding of doubles."""
        middles = [one.middle for one in self.grids]
        furthest = [np.abs(v - at).max() for v, at in zip(self.values, middles, strict=True)]
        bits = [LAST_BITS * float(np.abs(side.values).max()) for side in self.sides]
        slack = furthest[0] * bits[1] + furthest[1] * bits[0]
        return (
            all(side.is_unbiased for side in self.sides)
            and float(np.abs(self.covariance).max()) <= BIAS * furthest[0] * furthest[1] + slack
            and self.sides[0].keeps(self.epsilon)
        )


@lru_cache(maxsize=16)  # a design, its forecast and its release ask the same
def pair_table(first: PairedGrid, second: PairedGrid) -> PairTable:
    """Return the randomiser of two outcomes at the sum of their ε; the same for the same arguments.

    It is the least noisy one that was found; where none was, or it cannot be had in whole numbers,
    two tables of randomised response as one.

    Raises:
        ValueError: There are too many pairs, or ε is so small or so great that no table keeps it.
    """
    whole = total_epsilon(first.epsilon, second.epsilon)
    for doubt in DOUBTS if whole <= MOST_EPSILON else ():
        try:
            found = solve_pair(first.doubted(doubt), second.doubted(doubt))
            table = _realised(found, first, second)
        except UnsolvedError:
            break
        if table.tells_apart:
            return table
    try:
        table = _realised(separate(first, second, even=True), first, second)
    except UnsolvedError:
        raise ValueError(_NONE) from None
    if not table.tells_apart:
        raise ValueError(_NONE)
    return table


def _realised(found: PairRandomiser, first: PairedGrid, second: PairedGrid) -> PairTable:
    """Return a randomiser in whole numbers; UnsolvedError where there is none without bias."""
    inputs = pairs_of(first.scaled, second.scaled)
    scales = np.array([[first.half], [second.half]])
    middles = np.array([[first.middle], [second.middle]])
    for units in whole_units(found.masses, found.favoured, found.epsilon):
        start = np.column_stack([found.values, np.zeros(2)])
        values = _unbiased(units / UNIT, start, inputs)
        if values is None:
            continue
        table = PairTable(first, second, units, middles + scales * values)
        if table.is_exact:
            return table
    raise UnsolvedError("no table in whole numbers")


def _unbiased(probabilities: Floats, start: Floats, inputs: Floats) -> Floats | None:
    """Move v and w, shape [2, J], to where Σ Q v = y, Σ Q w = z and Σ Q v w = y z for all pairs.

    By Newton's method with the least steps, weighted by the outputs' probabilities, of which
    ``start`` is a solution but for rounding. None where there is no way.
    """
    root = np.sqrt(probabilities.mean(axis=0))
    scaled = probabilities / root
    nothing, wanted = np.zeros_like(scaled), np.concatenate([*inputs, inputs[0] * inputs[1]])
    values, best, least = start, start, np.inf
    for _ in range(_STEPS):
        v, w = values
        missing = wanted - np.concatenate(
            [probabilities @ v, probabilities @ w, probabilities @ (v * w)]
        )
        if not np.isfinite(missing).all():
            return None
        size = float(np.abs(missing).max())
        if size < least:
            best, least = values, size
        slopes = np.block([[scaled, nothing], [nothing, scaled], [scaled * w, scaled * v]])
        try:
            step = np.linalg.lstsq(slopes, missing, rcond=None)[0]
        except np.linalg.LinAlgError:
            return None
        values = values + step.reshape(2, -1) / root
    return best
