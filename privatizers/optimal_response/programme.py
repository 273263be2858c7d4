"""The least noisy ε-private unbiased randomiser of a number, by column generation.

For values y of K inputs and a public guess p at how often they occur, minimise

    Σ_x p_x Σ_j Q(j|x) v_j²   subject to   Σ_j Q(j|x) = 1,  Σ_j Q(j|x) v_j = y_x,
                                           Q(j|x) ≤ e^ε Q(j|x′) for all x and x′.

The objective less Σ p y² is the noise that the randomiser adds to a value, p being the truth. (The
optimal unbiased randomiser of Badanidiyuru, Ghazi et al. 2023, there for labels of regression.)

Every extreme column of the constraints has the form Q(j|·) = q (1 + (e^ε − 1) 1{· ∈ S}), so an
output is a value v and a set S of inputs. Both are priced exactly, over all real v and all S:
`optimal_response.md` has the proof, and that of the bound which says how far from the optimum an
answer is.
"""

import math
from dataclasses import dataclass

import numpy as np

from privatizers.optimal_response.linear_programme import LinearProgramme, UnsolvedError
from schemas.arrays import Bools, Floats

MOST_INPUTS = 25
"""Inputs that are solved for at most: with 50 it takes half a minute."""

GAP = 1e-3
"""What an answer may be above the dual bound, as a part of the noise."""

_MOST_ROUNDS = 300
_ADDED, _KEPT = 2, 10
"""Columns that a round adds, and that the next one still has of those before, at most; times K.

With few columns a round is quick, and what was left out is priced again if it is worth it."""
_LEAST_GUESS = 1e-9
"""Every input has at least this part of the guess, so that prices are quadratic in v."""


@dataclass(frozen=True)
class Randomiser:
    """A solution in doubles: J outputs for K inputs."""

    values: Floats
    """v, shape [J]; increasing."""
    masses: Floats
    """q, the lesser probability of each output, shape [J]."""
    favoured: Bools
    """S: whether an input gives an output with the greater probability, shape [K, J]."""
    epsilon: float
    noise: float
    """Σ p (E v² − y²), of the guess that it was solved for."""
    bound: float
    """No ε-private unbiased randomiser has less noise under that guess."""

    @property
    def probabilities(self) -> Floats:
        """Q(j|x), shape [K, J]; rows add up to one, up to rounding."""
        return self.masses * np.where(self.favoured, math.exp(self.epsilon), 1.0)


def solve(
    values: Floats,
    guess: Floats,
    epsilon: float,
    gap: float = GAP,
    start: Randomiser | None = None,
) -> Randomiser:
    """Return a randomiser whose noise is at most 1 + ``gap`` times the least possible.

    Args:
        values: y, increasing, shape [K], from 2 to :data:`MOST_INPUTS` of them.
        guess: p, not negative, adding up to one; shape [K].
        epsilon: ε > 0.
        gap: The relative gap to the dual bound.
        start: That of the same values for a guess or an ε nearby: its outputs are tried first,
            which halves the time.

    Raises:
        ValueError: The arguments are not as described.
        UnsolvedError: The solver gave up. It does not depend on anything but the arguments.
    """
    if not 2 <= len(values) <= MOST_INPUTS or len(guess) != len(values):
        raise ValueError(f"from 2 to {MOST_INPUTS} values, and a guess of as many, are needed")
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon is {epsilon!r}")
    middle, half = (values[0] + values[-1]) / 2.0, (values[-1] - values[0]) / 2.0
    scaled = (values - middle) / half
    known = np.maximum(guess, _LEAST_GUESS)
    outputs, favoured = even_columns(scaled, math.exp(epsilon))
    if start is not None:
        outputs = np.concatenate([outputs, (start.values - middle) / half])
        favoured = np.concatenate([favoured, start.favoured.T])
    found = _generate(scaled, known / known.sum(), epsilon, gap, (outputs, favoured))
    order = np.argsort(found.values, kind="stable")
    return Randomiser(
        values=middle + half * found.values[order],
        masses=found.masses[order],
        favoured=found.favoured[:, order],
        epsilon=epsilon,
        noise=found.noise * half**2,
        bound=found.bound * half**2,
    )


def _generate(
    values: Floats, guess: Floats, epsilon: float, gap: float, columns: tuple[Floats, Bools]
) -> Randomiser:
    """Add the columns of the best prices until the dual bound is near; values are within ±1.

    A solution can be made of the first ``columns``: v and S, shapes [J] and [J, K].
    """
    size, factor = len(values), math.exp(epsilon)
    least, base = -math.inf, float(guess @ values**2)
    programme = LinearProgramme(np.concatenate([np.ones(size), values]))
    outputs, favoured, masses = np.zeros(0), np.zeros((0, size), np.bool_), np.zeros((0, size))
    added, sets = columns
    for _ in range(_MOST_ROUNDS):
        # Of mass one by the guess: those of any solution add up to one.
        parts = np.where(sets, factor, 1.0)
        parts /= (parts @ guess)[:, np.newaxis]
        programme.add(added**2, np.concatenate([parts, parts * added[:, np.newaxis]], axis=1))
        outputs, favoured = np.concatenate([outputs, added]), np.concatenate([favoured, sets])
        masses = np.concatenate([masses, parts])
        found = programme.solve()
        normal, slope = found.duals[:size], found.duals[size:]
        price, added, sets = _prices(normal, slope, guess, factor)
        least = max(least, float(normal.sum() + slope @ values) + min(float(price.min()), 0.0))
        used = found.masses > 0
        if found.cost - least <= gap * (found.cost - base):
            q = found.masses[used] / (np.where(favoured[used], factor, 1.0) @ guess)
            noise, bound = found.cost - base, least - base
            return Randomiser(outputs[used], q, favoured[used].T, epsilon, noise, bound)
        new = np.argsort(price, kind="stable")[: _ADDED * size]
        new = new[price[new] < 0]
        if not len(new):
            break
        added, sets = added[new], sets[new]
        reduced = outputs * (outputs - masses @ slope) - masses @ normal
        reduced[used] = -np.inf  # so that the cost never rises
        reduced[:size] = -np.inf  # so that there is a solution, which rounding cannot hide
        order = np.argsort(reduced, kind="stable")
        kept = np.sort(order[: _KEPT * size])
        programme.remove(order[_KEPT * size :])
        outputs, favoured, masses = outputs[kept], favoured[kept], masses[kept]
    raise UnsolvedError("the linear programme of the randomiser was not solved")


def even_columns(values: Floats, factor: float) -> tuple[Floats, Bools]:
    """Return the columns of randomised response with a uniform prior: v [K], and S [K, K].

    ``factor`` is e^ε. They are unbiased: a first solution.
    """
    size = len(values)
    rate = size / (factor + size - 1.0)
    return (values - rate * values.mean()) / (1.0 - rate), np.eye(size, dtype=np.bool_)


def _prices(
    normal: Floats, slope: Floats, guess: Floats, factor: float
) -> tuple[Floats, Floats, Bools]:
    """Return the least price on every piece of the real line, its v and its S; shapes [M], [M, K].

    With f_x(v) = p_x v² − β_x v − α_x a column (v, S) has the reduced cost Σ_x a_x f_x(v), a_x
    being e^ε in S, else 1. So the best S for v holds the x with f_x(v) < 0. Between the roots of
    all f_x it is the same, and Σ a f a convex quadratic. Costs are of columns of mass one by the
    guess.
    """
    root = np.sqrt(np.maximum(slope**2 + 4.0 * guess * normal, 0.0))
    has = slope**2 + 4.0 * guess * normal > 0
    roots = np.concatenate([(slope - root)[has], (slope + root)[has]]) / np.tile(
        2.0 * guess[has], 2
    )
    edges = np.concatenate([[-np.inf], np.sort(roots), [np.inf]])
    inside = np.concatenate(
        [edges[1:2] - 1.0, (edges[1:-2] + edges[2:-1]) / 2.0, edges[-2:-1] + 1.0]
    )
    if not len(roots):
        edges, inside = np.array([-np.inf, np.inf]), np.zeros(1)
    at_inside = inside[:, np.newaxis]
    favoured = (guess * at_inside - slope) * at_inside < normal
    weights = np.where(favoured, factor, 1.0)
    square, linear, constant = weights @ guess, weights @ slope, weights @ normal
    best = np.clip(linear / (2.0 * square), edges[:-1], edges[1:])
    return ((square * best - linear) * best - constant) / square, best, favoured
