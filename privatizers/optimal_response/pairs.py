"""The least noisy ε-private unbiased randomiser of two outcomes together, by column generation.

For pairs x of values (y, z), a public guess p at how often each pair occurs, and weights a and b,
minimise

    Σ_x p_x Σ_j Q(j|x) (a v_j² + b w_j²)   subject to   Σ_j Q(j|x) = 1,
    Σ_j Q(j|x) v_j = y_x,   Σ_j Q(j|x) w_j = z_x,   Σ_j Q(j|x) v_j w_j = y_x z_x,
    Q(j|x) ≤ e^ε Q(j|x′) for all x and x′.

One output j tells of both outcomes: it stands for v_j of the one and w_j of the other. By the third
line of sums the two noises are uncorrelated, given the outcomes. `pairs.md` has the proof of what
is promised. How near an answer is to the least noise is looked for, not proven; it is never worse
than two tables that divide ε.

With the duals α, β, γ and δ of the four lines of sums, an output at (v, w) that favours the pairs S
has the reduced cost Σ_x a_x f_x(v, w), a_x being e^ε in S, else 1, and

    f_x(v, w) = p_x (a v² + b w²) − α_x − β_x v − γ_x w − δ_x v w.

So for given v and w the best S holds the pairs with f_x < 0, and for given S the best v and w are
the least value of a quadratic. Sets S are found along rays from the middle, on which every f_x
changes its sign at its roots; a set that no ray meets may be missed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privatizers.optimal_response.linear_programme import LinearProgramme
from privatizers.optimal_response.programme import even_columns, solve
from schemas.arrays import Bools, Floats

_RAYS = 48
_BETTERED = 2  # times that sets and values are chosen by each other
_WATCHED = 400  # sets whose values are
_FLAT = 1e-6  # a quadratic flatter than this is taken to have no least value


@dataclass(frozen=True)
class _Columns:
    """Outputs v and w, shape [M, 2], and their sets S, shape [M, N]."""

    outputs: Floats
    favoured: Bools

    def with_better(
        self, problem: "_Problem", duals: Floats, found: "Sequence[_Columns]", used: Bools
    ) -> "_Columns":
        """Return the columns in use, the best of the others, and the best of what was found.

        That is of the first that has any that are better by the ``duals``.
        """
        size = len(problem.guess)
        for some in found:
            costs = problem.reduced_costs(some.outputs, some.favoured, duals)
            new = np.argsort(costs, kind="stable")[: _NEW * size]
            new = new[costs[new] < 0]
            if len(new):
                break
        own = problem.reduced_costs(self.outputs, self.favoured, duals)
        kept = np.argsort(np.where(used, -np.inf, own), kind="stable")[: _KEPT * size]
        return _Columns(
            np.concatenate([self.outputs[kept], some.outputs[new]]),
            np.concatenate([self.favoured[kept], some.favoured[new]]),
        )


def least_prices(
    duals: Floats, known: Bools, guess: Floats, weights: Floats, factor: float, reach: Floats
) -> tuple[_Columns, float]:
    """Return the outputs of least reduced cost, the best first, and the least of these costs.

    Costs are of columns of mass one by the guess.

    Args:
        duals: α, β, γ and δ of the programme, shape [4, N].
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
        sets = _different(np.concatenate([sets, _signs(duals, outputs[watched], quadratic)]))
    outputs, costs = _best_outputs(sets, duals, guess, weights, factor, reach)
    order = np.argsort(costs, kind="stable")
    return _Columns(outputs[order], sets[order]), float(costs[order[0]])


def _signs(duals: Floats, outputs: Floats, quadratic: Floats) -> Bools:
    """The best S for outputs, [M, 2]: shape [M, N]. ``quadratic`` is p a and p b."""
    v, w = outputs.T
    terms = np.column_stack([-np.ones(len(v)), -v, -w, -v * w])
    value = terms @ duals + np.column_stack([v**2, w**2]) @ quadratic
    negative: Bools = value < 0
    return negative


def _along_rays(duals: Floats, quadratic: Floats, reach: Floats) -> Bools:
    """The sets between the roots of all f_x on each ray, both ways."""
    angle = (np.arange(_RAYS) + 0.5) / _RAYS * np.pi
    c, s = np.cos(angle) * reach[0], np.sin(angle) * reach[1]
    alpha, beta, gamma, delta = duals
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
    sets: Bools, duals: Floats, guess: Floats, weights: Floats, factor: float, reach: Floats
) -> tuple[Floats, Floats]:
    """Return the best v and w of each set within reach, [M, 2], and their reduced costs, [M]."""
    columns = np.where(sets, factor, 1.0)
    mass = columns @ guess
    alpha, beta, gamma, delta = (columns @ duals.T).T
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


MOST_PAIRS = 16
"""Pairs of values that are solved for at most, in some two seconds."""

_GAP = 0.01
_MOST_ROUNDS = 40
_NEW, _KEPT = 8, 32
"""Columns that are added in a round, and kept at most, for each pair."""
_SMOOTHED = 0.5
_REACH = 3.0
"""How far values may go, in those of the tables that it begins with."""
_ARTIFICIAL = 1e4  # the cost of breaking an equation by one, in noises of separate tables
_LEAST_GUESS = 1e-9


@dataclass(frozen=True)
class PairedGrid:
    """One of two outcomes: its values, a guess at them, and what a table of its own would keep."""

    values: tuple[float, ...]
    """Increasing, shape [K]."""
    guess: tuple[float, ...]
    """Not negative, adding up to one; shape [K]."""
    epsilon: float
    """The part of ε that it brings; the two are drawn at the sum of both."""

    @property
    def middle(self) -> float:
        """Where noise is measured from while it is solved."""
        return (self.values[0] + self.values[-1]) / 2.0

    @property
    def half(self) -> float:
        """Half of the range."""
        return (self.values[-1] - self.values[0]) / 2.0

    @property
    def scaled(self) -> Floats:
        """The values within ±1."""
        return (np.array(self.values) - self.middle) / self.half

    def doubted(self, part: float) -> "PairedGrid":
        """Return the same with a ``part`` of the guess made even."""
        even = part / len(self.guess)
        return replace(self, guess=tuple((1.0 - part) * share + even for share in self.guess))


@dataclass(frozen=True)
class PairRandomiser:
    """A solution in doubles: J outputs for K L pairs, the second outcome running fastest."""

    values: Floats
    """v and w, shape [2, J]."""
    masses: Floats
    """The lesser probability of each output, shape [J]."""
    favoured: Bools
    """Whether a pair gives an output with the greater probability, shape [K L, J]."""
    epsilon: float
    cost: float
    """The mean of both noises, each as a part of that of a table of its own; by the guess."""
    bound: float
    """The least cost that prices told of: a lower bound where none were missed."""


def total_epsilon(first: float, second: float) -> float:
    """Return the greatest double that is no more than the sum."""
    return math.nextafter(first + second, 0.0)


def pairs_of(first: Floats, second: Floats) -> Floats:
    """Return both numbers of every pair, shape [2, K L], the second running fastest."""
    return np.stack([np.repeat(first, len(second)), np.tile(second, len(first))])


def pair_guess(first: PairedGrid, second: PairedGrid) -> Floats:
    """Return how often pairs are thought to occur, as if outcomes were independent; [K L]."""
    known = np.maximum(np.outer(first.guess, second.guess).ravel(), _LEAST_GUESS)
    whole: Floats = known / known.sum()
    return whole


def separate(first: PairedGrid, second: PairedGrid, *, even: bool = False) -> PairRandomiser:
    """Return two tables that are drawn by themselves, each at its part of ε, as one.

    Of two extreme columns, 1 + (e^α − 1) 1_A and 1 + (e^β − 1) 1_B, the product is a mixture of
    three with e^(α + β), for A, B, and what is in both. With ``even`` the tables are randomised
    response with a uniform prior, which needs no solving; else the best ones. Values are scaled.

    Raises:
        UnsolvedError: The best ones were not found.
    """
    (v, p, in_a), (w, q, in_b) = (_own(one, even=even) for one in (first, second))
    epsilon = total_epsilon(first.epsilon, second.epsilon)
    rises = np.expm1([first.epsilon, second.epsilon])
    shares = np.array([rises[0], rises[1], rises[0] * rises[1]]) / math.expm1(epsilon)
    a = np.repeat(np.repeat(in_a, len(in_b), axis=0), len(w), axis=1)
    b = np.tile(np.tile(in_b, (len(in_a), 1)), len(v))
    return PairRandomiser(
        values=np.tile(pairs_of(v, w), 3),
        masses=np.outer(shares, np.outer(p, q)).ravel(),
        favoured=np.concatenate([a, b, a & b], axis=1),
        epsilon=epsilon,
        cost=1.0,
        bound=-math.inf,
    )


def _own(one: PairedGrid, *, even: bool) -> tuple[Floats, Floats, Bools]:
    """A table of one outcome alone at its part of ε: scaled v [J], masses [J] and S [K, J]."""
    factor = math.exp(one.epsilon)
    if even:
        values, favoured = even_columns(one.scaled, factor)
        return values, np.full(len(values), 1.0 / (factor + len(values) - 1.0)), favoured.T
    found = solve(one.scaled, np.array(one.guess), one.epsilon)
    return found.values, found.masses, found.favoured


def solve_pair(first: PairedGrid, second: PairedGrid) -> PairRandomiser:
    """Return a randomiser of both outcomes whose mean noise is less than that of own tables.

    Each noise counts as a part of that of a table of its own, at its part of ε. Values are scaled.

    Raises:
        ValueError: There are too many pairs.
        UnsolvedError: The solver gave up. It depends on nothing but the arguments.
    """
    if len(first.values) * len(second.values) > MOST_PAIRS:
        raise ValueError(f"more than {MOST_PAIRS} pairs of values")
    start = separate(first, second)
    guess, pairs = pair_guess(first, second), pairs_of(first.scaled, second.scaled)
    probabilities = start.masses * np.where(start.favoured, math.exp(start.epsilon), 1.0)
    noise = (guess @ probabilities) @ start.values.T**2 - guess @ pairs.T**2
    problem = _Problem(pairs, guess, 0.5 / noise, math.exp(start.epsilon))
    reach = _REACH * np.abs(start.values).max(axis=1)
    columns = _Columns(start.values.T, start.favoured.T)
    least = -math.inf
    steady: Floats | None = None
    for left in range(_MOST_ROUNDS, 0, -1):
        duals, cost, masses = problem.solved(columns)
        tried = [duals] if steady is None else [duals, _SMOOTHED * steady + _SMOOTHED * duals]
        found = []
        for one in tried:
            priced, least_cost = least_prices(
                one, columns.favoured, guess, problem.weights, problem.factor, reach
            )
            found.append(priced)
            bound = float((one * problem.wanted).sum()) + min(least_cost, 0.0)
            if bound > least:
                least, steady = bound, one
        used = masses > 0
        if cost - least <= _GAP * (cost - problem.base) or left == 1:
            break
        columns = columns.with_better(problem, duals, found[::-1], used)
    return PairRandomiser(
        values=columns.outputs[used].T,
        masses=masses[used],
        favoured=columns.favoured[used].T,
        epsilon=start.epsilon,
        cost=cost - problem.base,
        bound=least - problem.base,
    )


@dataclass(frozen=True)
class _Problem:
    """The programme: N pairs [2, N], p [N], a and b [2], and e^ε."""

    pairs: Floats
    guess: Floats
    weights: Floats
    factor: float

    @property
    def base(self) -> float:
        """What outcomes themselves add to the objective."""
        return float(self.weights @ (self.pairs**2 @ self.guess))

    @property
    def wanted(self) -> Floats:
        """The right-hand sides, shape [4, N]."""
        return np.stack([np.ones(len(self.guess)), *self.pairs, self.pairs[0] * self.pairs[1]])

    def solved(self, columns: _Columns) -> tuple[Floats, float, Floats]:
        """Solve it over some columns: duals [4, N], the cost, and masses [M].

        An equation may be broken at a great price, so that rounding leaves no column out.
        """
        matrix, mass = self._matrix(columns.outputs, columns.favoured)
        rows, own = self.wanted.size, len(matrix)
        programme = LinearProgramme(self.wanted.ravel())
        programme.add(columns.outputs**2 @ self.weights, matrix)
        programme.add(np.full(2 * rows, _ARTIFICIAL), np.concatenate([np.eye(rows), -np.eye(rows)]))
        found = programme.solve()
        return found.duals.reshape(self.wanted.shape), found.cost, found.masses[:own] / mass

    def reduced_costs(self, outputs: Floats, favoured: Bools, duals: Floats) -> Floats:
        """Return what a column of mass one would change, shape [M]."""
        matrix, _ = self._matrix(outputs, favoured)
        return outputs**2 @ self.weights - matrix @ duals.ravel()

    def _matrix(self, outputs: Floats, favoured: Bools) -> tuple[Floats, Floats]:
        """The columns of mass one by the guess, shape [M, 4 N], and their masses, [M]."""
        columns = np.where(favoured, self.factor, 1.0)
        mass = columns @ self.guess
        columns = columns / mass[:, np.newaxis]
        v, w = outputs[:, :1], outputs[:, 1:]
        return np.concatenate([columns, columns * v, columns * w, columns * v * w], axis=1), mass
