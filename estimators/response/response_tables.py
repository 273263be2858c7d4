"""What the outputs of a response table stand for: debiased outcomes, their noise, and squares.

A table says with which probability Q(j|x) an outcome y_x is released as output j. For any function
f of the outcomes there is w with Σ_j Q(j|x) w_j = f(y_x) for every x, so its mean over units is
estimated without bias by that of w over released outputs. The optimal randomiser is such a table
(Badanidiyuru, Ghazi et al. 2023), with an output's value v for w of the outcomes themselves.
"""

from dataclasses import dataclass

import numpy as np

from schemas.arrays import Floats

_UNDONE = 1e-9
"""What may be left of a function when it was solved for, as a part of its greatest number."""


class SingularTableError(ValueError):
    """A table tells its inputs apart too little: no w undoes it."""


@dataclass(frozen=True)
class OutputFunctions:
    """What an output adds to means over units, for T tables of J outputs; shape [T, J] each.

    Outcomes are measured from the grid's mean ȳ, d = y − ȳ; 0 for outputs that a table has not.
    """

    mean: Floats
    """v − ȳ."""
    noise: Floats
    """u with E u = Var(v | y): its mean over n units, divided by n, is the noise of a mean of v."""
    square: Floats
    """w with E w = d²."""
    square_noise: Floats
    """The same as ``noise``, of w."""


def output_functions(
    probabilities: Floats, values: Floats, grid: Floats, likely: Floats
) -> OutputFunctions:
    """Return what the outputs of tables add to means.

    ``probabilities`` Q have the shape [T, K, J], ``values`` v [T, J], ``grid`` y [K]. Of all
    functions that are unbiased, those that vary least where outputs occur like ``likely``, shape
    [T, J], which no unit's draw may have a part in. An output with no probability at all has 0
    everywhere.

    Raises:
        SingularTableError: A table cannot be undone.
    """
    used = probabilities.sum(axis=1) > 0
    steps = grid - grid.mean()
    mean = np.where(used, values - grid.mean(), 0.0)
    square = undo(probabilities, np.broadcast_to(steps**2, probabilities.shape[:2]), likely)
    return OutputFunctions(
        mean=mean,
        noise=undo(probabilities, spread(probabilities, mean), likely),
        square=square,
        square_noise=undo(probabilities, spread(probabilities, square), likely),
    )


def spread(probabilities: Floats, values: Floats) -> Floats:
    """Return Var(v | y_x), shape [T, K], of ``values`` v, shape [T, J]; Q has [T, K, J]."""
    mean = np.einsum("tkj,tj->tk", probabilities, values)
    apart = values[:, np.newaxis, :] - mean[:, :, np.newaxis]
    found: Floats = np.einsum("tkj,tkj->tk", probabilities, apart**2)
    return found


def undo(probabilities: Floats, wanted: Floats, likely: Floats | None = None) -> Floats:
    """Return w, shape [T, J], with Σ_j Q(j|x) w_j = ``wanted``, shape [T, K].

    Of all such w those with the least Σ_j l_j w_j², l being ``likely``, shape [T, J]; None stands
    for Σ_x Q(j|x).

    Raises:
        SingularTableError: A table cannot be undone.
    """
    total = probabilities.sum(axis=1) if likely is None else likely
    weight = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    gram = probabilities * weight[:, np.newaxis] @ probabilities.swapaxes(1, 2)

    def least(rest: Floats) -> Floats:
        factor = np.linalg.solve(gram, rest[..., np.newaxis])[..., 0]
        part: Floats = weight * np.einsum("tk,tkj->tj", factor, probabilities)
        return part

    try:
        found = least(np.asarray(wanted, dtype=np.float64))
        for _ in range(2):  # iterative refinement: to the last bits
            found = found + least(wanted - np.einsum("tkj,tj->tk", probabilities, found))
        left = np.abs(wanted - np.einsum("tkj,tj->tk", probabilities, found)).max(axis=1)
        told = left <= _UNDONE * (np.abs(found).max(axis=1) + np.abs(wanted).max(axis=1))
    except np.linalg.LinAlgError:
        told = np.zeros(1, dtype=np.bool_)
    if not bool(np.all(told)):  # rounding hides that a system has no solution
        raise SingularTableError("the outputs tell too little of the outcomes")
    return found
