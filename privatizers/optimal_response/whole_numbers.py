"""A randomiser in whole numbers: what is drawn has exactly the published probabilities.

Every probability is a multiple of 2⁻⁵³, and every output's greatest probability is at most e^ε
times its least: compared in whole numbers, with e^ε rounded down. The outputs' values are solved
again for the realised probabilities, so that the randomiser is unbiased.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import numpy as np

from estimators.response.response_tables import SingularTableError, output_functions, undo
from privatizers.noise.randomness import UNIT
from privatizers.optimal_response.linear_programme import UnsolvedError
from privatizers.optimal_response.programme import (
    MOST_INPUTS,
    Randomiser,
    even_columns,
    solve,
)
from schemas.arrays import Bools, Floats, Ints

_SHRINKS = (20, 16, 12, 8)
"""What is left for the further output: 2⁻²⁰ of every input, more where that is not enough."""
MOST_EPSILON = 12.0
"""Above this the programme is badly scaled, and randomised response hardly adds noise at all."""
_DIGITS = 60
BIAS = 1e-12
"""The greatest bias that is allowed, as a part of how far outputs are from the grid's middle; it
comes from rounding. At a small ε they are much further away than the grid is wide."""
LAST_BITS = 2.0**-50
"""The same as a part of the greatest output itself: on a grid far from 0 a double holds no more."""
_TELLS = 0.01
"""How well a table has to tell its inputs apart, as a part of how well even response does."""
DOUBTS = (0.0, 0.001, 0.01, 0.1)
"""What is made even of a guess, the next where the table does not tell its inputs apart."""


@dataclass(frozen=True)
class ResponseTable:
    """A randomiser of K inputs to J outputs, as it is drawn from and as it is published.

    ``units`` has the shape [K, J]: row x has Q(j|x) 2⁵³ for every output j, whole numbers that add
    up to 2⁵³. ``values`` has the outputs' v, shape [J], with Σ_j Q(j|x) v_j = y_x.
    """

    inputs: Floats
    """y, increasing, shape [K]."""
    units: Ints
    values: Floats
    guess: Floats
    """How often the inputs were thought to occur; shape [K]."""

    @property
    def probabilities(self) -> Floats:
        """Q, exactly, shape [K, J]."""
        return self.units / UNIT

    @property
    def noise(self) -> Floats:
        """What the draw adds to the variance of each input's value, Σ_j Q(j|x) v_j² − y_x²; [K]."""
        spread: Floats = np.sum(
            self.probabilities * (self.values - self.inputs[:, np.newaxis]) ** 2, axis=1
        )
        return spread

    @property
    def bias(self) -> float:
        """The greatest |Σ_j Q(j|x) v_j − y_x|, which only rounding makes."""
        means = self.probabilities @ self._from_middle(self.values)
        return float(np.abs(means - self._from_middle(self.inputs)).max())

    @property
    def is_unbiased(self) -> bool:
        """Whether that is all there is: as much as doubles cannot avoid."""
        furthest = float(np.abs(self._from_middle(self.values)).max())
        return self.bias <= BIAS * furthest + LAST_BITS * float(np.abs(self.values).max())

    def _from_middle(self, numbers: Floats) -> Floats:
        """From the grid's middle, so that little of a step is lost where the grid is far from 0."""
        apart: Floats = numbers - (self.inputs[0] + self.inputs[-1]) / 2.0
        return apart

    def keeps(self, epsilon: float) -> bool:
        """Whether no output is more than e^ε times as likely for one input as for another."""
        most, least = self.units.max(axis=0).tolist(), self.units.min(axis=0).tolist()
        factor = _factor(epsilon)
        return all(
            low > 0 and high <= _times(low, factor) for high, low in zip(most, least, strict=True)
        )

    def tells_apart(self, epsilon: float) -> bool:
        """Whether the outputs tell of every function of the inputs, squares and shares as well.

        A programme for means alone may have a solution whose rows are linearly dependent. The
        least singular value is compared with that of even response at ``epsilon``.
        """
        return self.can_be_undone(even_singular(len(self.inputs), epsilon))

    def can_be_undone(self, even: float) -> bool:
        """Whether estimates can be made of the outputs: before any is drawn, and not after.

        The least singular value must be a hundredth of ``even`` at least, that of even response,
        and doubles must be able to work out what outputs add to estimates.
        """
        chances = self.probabilities
        if float(np.linalg.svd(chances, compute_uv=False)[-1]) < _TELLS * even:
            return False
        used, likely = chances[np.newaxis], (self.guess @ chances)[np.newaxis]
        try:
            output_functions(used, self.values[np.newaxis], self.inputs, likely)
        except SingularTableError:
            return False
        return True


def even_singular(size: int, epsilon: float) -> float:
    """Return the least singular value of randomised response with a uniform prior of K outcomes."""
    return math.expm1(epsilon) / (math.expm1(epsilon) + size)


def table_of(
    values: Floats, guess: Floats, epsilon: float, solved: Randomiser | None = None
) -> ResponseTable:
    """Return the randomiser for ``guess``, or that of randomised response where it cannot be had.

    Arguments are those of :func:`~privatizers.optimal_response.programme.solve`, whose answer may
    be given as ``solved``. Which of the two it is follows from the arguments alone. The table keeps
    ``epsilon`` exactly, or none is returned.

    Raises:
        ValueError: The arguments are not as described, or ``epsilon`` is so small or so great that
            no table keeps it.
    """
    if epsilon > MOST_EPSILON:
        return even_table(values, epsilon)
    for doubt in DOUBTS:
        known = (1.0 - doubt) * guess + doubt / len(guess)
        try:
            found = solved if solved and not doubt else solve(values, known, epsilon)
            table = realised(found, values, guess)
        except UnsolvedError:
            break
        if table.tells_apart(epsilon) and table.keeps(epsilon):
            return table
    return even_table(values, epsilon)


def even_table(values: Floats, epsilon: float) -> ResponseTable:
    """Return randomised response with a uniform prior in the same form; ValueError as above."""
    size, factor = len(values), math.exp(epsilon)
    if not 2 <= size <= MOST_INPUTS:
        raise ValueError(f"from 2 to {MOST_INPUTS} values are needed")
    outputs, favoured = even_columns(values, factor)
    mass = np.full(size, 1.0 / (factor + size - 1.0))
    even = Randomiser(outputs, mass, favoured, epsilon, math.nan, math.nan)
    try:
        return realised(even, values, np.full(size, 1.0 / size))
    except UnsolvedError:
        raise ValueError(f"no randomiser of {size} values keeps epsilon = {epsilon!r}") from None


def realised(randomiser: Randomiser, values: Floats, guess: Floats) -> ResponseTable:
    """Return a randomiser of ``values``, shape [K], in whole numbers; ``guess`` is noted in it.

    All probabilities are shrunk by 1 − 2⁻²⁰. The lesser one of an output is rounded up to l, and
    the greater one is ⌊l e^ε⌋. What an input then lacks is the probability of one further output,
    about 2⁻²⁰ for all of them.

    Raises:
        UnsolvedError: That output would not keep ε, however much is shrunk, or values without
            bias do not exist.
    """
    for units in whole_units(randomiser.masses, randomiser.favoured, randomiser.epsilon):
        middle = (values[0] + values[-1]) / 2.0
        steps, start = values - middle, np.append(randomiser.values - middle, 0.0)
        probabilities = units / UNIT
        left = steps - probabilities @ start
        try:
            outputs = start + undo(probabilities[np.newaxis], left[np.newaxis])[0]
        except SingularTableError as error:
            raise UnsolvedError(str(error)) from None
        table = ResponseTable(values, units, middle + outputs, guess)
        if table.is_unbiased and table.keeps(randomiser.epsilon):
            return table
    raise UnsolvedError("no table in whole numbers")


def whole_units(masses: Floats, favoured: Bools, epsilon: float) -> Iterator[Ints]:
    """Give tables in units of 2⁻⁵³ that keep ``epsilon``, shape [K, J + 1], the nearest first.

    ``masses`` are the lesser probabilities, shape [J], and ``favoured`` says which inputs have the
    greater one, [K, J]. The last output is what :func:`realised` says. There may be none.
    """
    factor = _factor(epsilon)
    for shrink in _SHRINKS:
        shrunk = UNIT * (1 - Fraction(1, 1 << shrink))
        lesser = [math.ceil(Fraction(mass) * shrunk) for mass in masses.tolist()]
        greater = [_times(low, factor) for low in lesser]
        if max(greater) >= UNIT:
            continue
        units = np.where(favoured, np.array(greater), np.array(lesser))
        left = UNIT - units.sum(axis=1)
        if left.min() <= 0 or int(left.max()) > _times(int(left.min()), factor):
            continue
        yield np.column_stack([units, left]).astype(np.int64)


def _factor(epsilon: float) -> Decimal:
    """e^ε, rounded down."""
    with localcontext(prec=_DIGITS):
        return Decimal(epsilon).exp() * (1 - Decimal(10) ** -50)


def _times(low: int, factor: Decimal) -> int:
    """⌊``low`` · ``factor``⌋."""
    with localcontext(prec=_DIGITS):
        return int((low * factor).to_integral_value(rounding=ROUND_FLOOR))
