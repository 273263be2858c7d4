"""What a further output of a randomiser of two outcomes would be worth, by a programme's duals.

With the duals α, β, γ and δ of Σ Q = 1, Σ Q v = y, Σ Q w = z and Σ Q v w = y z, an output at (v, w)
that favours the pairs S has the reduced cost Σ_x a_x f_x(v, w), a_x being e^ε in S, else 1, and

    f_x(v, w) = p_x (a v² + b w²) − α_x − β_x v − γ_x w − δ_x v w.

So for given v and w the best S holds the pairs with f_x < 0, and for given S the best v and w are
the least value of a quadratic. Sets S are found along rays from the middle, on which every f_x
changes its sign at its roots; a set that no ray meets may be missed.
"""

from dataclasses import dataclass

import numpy as np

from schemas.arrays import Bools, Floats

_RAYS = 48
_BETTERED = 2  # times that sets and values are chosen by each other
_WATCHED = 400  # sets whose values are
_FLAT = 1e-6  # a quadratic flatter than this is taken to have no least value


@dataclass(frozen=True)
class Duals:
    """α, β, γ and δ of N pairs, shape [4, N]."""

    of: Floats

    def signs(self, outputs: Floats, quadratic: Floats) -> Bools:
        """Return the best S for outputs, [M, 2]: shape [M, N]. ``quadratic`` is p a and p b."""
        v, w = outputs.T
        terms = np.column_stack([-np.ones(len(v)), -v, -w, -v * w])
        value = terms @ self.of + np.column_stack([v**2, w**2]) @ quadratic
        return value < 0


@dataclass(frozen=True)
class PricedOutputs:
    """Outputs with their sets, the best first: v and w [M, 2], S [M, N], reduced costs [M]."""

    outputs: Floats
    favoured: Bools
    costs: Floats


def least_prices(
    duals: Duals, known: Bools, guess: Floats, weights: Floats, factor: float, reach: Floats
) -> PricedOutputs:
    """Return the outputs of least reduced cost, for columns of mass one by the guess.

    Args:
        duals: Of the programme.
        known: Sets to be tried besides those on rays, shape [M, N].
        guess: p, shape [N].
        weights: a and b, shape [2].
        factor: e^ε.
        reach: How far v and w may go, shape [2].
    """
    quadratic = weights[:, np.newaxis] * guess
    sets = _different(np.concatenate([_along_rays(duals, quadratic, reach), known]))
    for _ in range(_BETTERED):
        outputs, costs = _best_outputs(sets, duals, guess, weights, factor, reach)
        watched = np.argsort(costs, kind="stable")[:_WATCHED]
        sets = _different(np.concatenate([sets, duals.signs(outputs[watched], quadratic)]))
    outputs, costs = _best_outputs(sets, duals, guess, weights, factor, reach)
    order = np.argsort(costs, kind="stable")
    return PricedOutputs(outputs[order], sets[order], costs[order])


def _along_rays(duals: Duals, quadratic: Floats, reach: Floats) -> Bools:
    """The sets between the roots of all f_x on each ray, both ways."""
    angle = (np.arange(_RAYS) + 0.5) / _RAYS * np.pi
    c, s = np.cos(angle) * reach[0], np.sin(angle) * reach[1]
    alpha, beta, gamma, delta = duals.of
    square = np.column_stack([c**2, s**2]) @ quadratic - np.outer(c * s, delta)
    slope = np.outer(c, beta) + np.outer(s, gamma)
    inside = slope**2 + 4.0 * square * alpha
    has = (inside > 0) & (np.abs(square) > 1e-14)
    root, divisor = np.sqrt(np.maximum(inside, 0.0)), np.where(has, 2.0 * square, 1.0)
    roots = [np.where(has, (slope + sign * root) / divisor, 0.0) for sign in (-1.0, 1.0)]
    ends = np.ones((_RAYS, 1))
    edges = np.sort(np.clip(np.concatenate([*roots, -ends, ends], axis=1), -1.0, 1.0), axis=1)
    between = ((edges[:, 1:] + edges[:, :-1]) / 2.0)[:, :, np.newaxis]
    values = between**2 * square[:, np.newaxis] - between * slope[:, np.newaxis] - alpha
    negative: Bools = (values < 0).reshape(-1, len(alpha))
    return negative


def _different(sets: Bools) -> Bools:
    """Each of the sets once; in an order that is the same for the same sets."""
    _, first = np.unique(np.packbits(sets, axis=1), axis=0, return_index=True)
    return sets[first]


def _best_outputs(
    sets: Bools, duals: Duals, guess: Floats, weights: Floats, factor: float, reach: Floats
) -> tuple[Floats, Floats]:
    """Return the best v and w of each set within reach, [M, 2], and their reduced costs, [M]."""
    columns = np.where(sets, factor, 1.0)
    mass = columns @ guess
    alpha, beta, gamma, delta = (columns @ duals.of.T).T
    p, q = weights[0] * mass, weights[1] * mass
    far, wide = reach

    def cost(v: Floats, w: Floats) -> Floats:
        found: Floats = p * v**2 + q * w**2 - alpha - beta * v - gamma * w - delta * v * w
        return found

    bend = 4.0 * p * q - delta**2
    bent = bend > _FLAT * p * q
    divisor = np.where(bent, bend, 1.0)
    v, w = (2.0 * q * beta + delta * gamma) / divisor, (2.0 * p * gamma + delta * beta) / divisor
    best = np.where(bent & (np.abs(v) <= far) & (np.abs(w) <= wide), cost(v, w), np.inf)
    within = np.isfinite(best)
    for sign in (-1.0, 1.0):  # else it is on an edge
        edge = np.full(len(sets), sign)
        for at, to in (
            (edge * far, np.clip((gamma + delta * edge * far) / (2.0 * q), -wide, wide)),
            (np.clip((beta + delta * edge * wide) / (2.0 * p), -far, far), edge * wide),
        ):
            price = cost(at, to)
            better = ~within & (price < best)
            v, w, best = (np.where(better, *two) for two in ((at, v), (to, w), (price, best)))
    return np.column_stack([v, w]), best / mass
