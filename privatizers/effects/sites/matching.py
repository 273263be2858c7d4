"""Exact matching with round-robin balance: who stands in for whom. Nothing here is protected.

Algorithm 1 of Koga, Chaudhuri and Page, "Differentially Private Multi-Site Treatment Effect
Estimation", without a loop over units or strata. A stratum here is a value x of a declared discrete
covariate, 0 … |X| − 1. With T treated and C control units in it, counted in the order of the data
from 0, treated unit j is compared with control j mod C and control j with treated j mod T, so that
nobody stands in for more than ⌈C/T⌉ (⌈T/C⌉) others.

Where one of T and C is 0 nobody has a match: such units count 0 towards the effect, as in the
paper, which draws the estimate towards 0. N stays the number of all units.

The order is that of the rows. It must be public, by id say, and a unit keeps its place when its
record is changed; the bounds of `matching_sensitivity` hold for every such order.
"""

import math
from dataclasses import dataclass

import numpy as np

from privatizers.effects.toolbox.bounded_mean import Bounds
from schemas.arrays import Bools, Floats, Ints

_EXACT_BITS = 50  # of a double, for the sum of their squares


@dataclass(frozen=True, eq=False, repr=False)
class SitePeople:
    """The records of a site, unprotected, in a public order; shape [N] each.

    It prints as nothing, so that no record comes into a message.
    """

    stratum: Ints
    """x, whole numbers from 0 to ``n_strata`` − 1."""
    treated: Bools
    """t."""
    outcome: Floats
    """y, shifted so that its declared range is [0, B]; others are clipped, NaN counts as 0."""
    n_strata: int
    """|X|, of the declared domain: public, and the same whatever the data."""

    def __post_init__(self) -> None:
        """Refuse what no binning on a declared domain makes; the message holds no record."""
        lengths = {len(self.stratum), len(self.treated), len(self.outcome)}
        sound = len(lengths) == 1 and self.treated.dtype == np.bool_ and self.n_strata >= 1
        if not sound or len(self.stratum) == 0:
            raise ValueError(
                "people have a stratum, a treatment (bool) and an outcome each, one at least"
            )
        if int(self.stratum.min()) < 0 or int(self.stratum.max()) >= self.n_strata:
            raise ValueError(f"strata are numbered from 0 to {self.n_strata - 1}")

    @property
    def n_units(self) -> int:
        """N, public: a neighbour has another record in the same place."""
        return len(self.stratum)

    def sizes(self) -> tuple[Ints, Ints]:
        """Return T and C of every stratum of the domain, shape [|X|] each."""
        both = np.bincount(2 * self.stratum + self.treated, minlength=2 * self.n_strata)
        cells = both.astype(np.int64).reshape(self.n_strata, 2)
        return cells[:, 1], cells[:, 0]


@dataclass(frozen=True, eq=False, repr=False)
class Match:
    """Who is compared with whom; shape [N] each."""

    partner: Ints
    """m(i), the position of the unit that unit i is compared with; −1 where it has none."""
    reuse: Ints
    """L_i, how many units are compared with unit i; 0 where it has no match."""

    def weights(self, treated: Bools) -> Ints:
        """Return ±(1 + L_i), + where treated, 0 without a match: N τ̂ = Σ w_i y_i, shape [N]."""
        weight = np.where(self.partner >= 0, 1 + self.reuse, 0)
        return np.where(treated, weight, -weight)


def matched(stratum: Ints, treated: Bools) -> Match:
    """Match exactly, round robin in the order of the rows: O(N log N).

    where ``stratum`` is x, whole numbers from 0, and ``treated`` t, shape [N] each. A unit that is
    the j-th of the a in its arm and stratum, b being in the other arm, is compared with number
    j mod b there, and L = ⌊b/a⌋, one more for j < b mod a.
    """
    cell = 2 * stratum + treated
    order = np.argsort(cell, kind="stable")
    size = np.bincount(cell, minlength=2 * (int(stratum.max()) + 1)).astype(np.int64)
    start = np.cumsum(size) - size
    rank = np.empty(len(cell), dtype=np.int64)
    rank[order] = np.arange(len(cell)) - start[cell[order]]
    own, other = size[cell], size[cell ^ 1]
    has_match = other > 0
    place = start[cell ^ 1] + rank % np.maximum(other, 1)
    partner = np.where(has_match, order[np.where(has_match, place, 0)], -1)
    return Match(partner, other // own + (rank < other % own))


@dataclass(frozen=True, repr=False)
class Matched:
    """What is computed of people and then protected."""

    n_units: int
    effect_sum: float
    """f = N τ̂ = Σ ±(1 + L_i) y_i: exact, whole steps of a power of two."""
    variance_sum: float
    """g = N² V̂ = Σ_x v_x of :func:`stratum_variances`."""

    @property
    def effect(self) -> float:
        """τ̂ = f/N."""
        return self.effect_sum / self.n_units


def evaluate(people: SitePeople, high: float) -> Matched:
    """Match ``people`` and return f and g, for outcomes on [0, B], B = ``high``.

    Outcomes are clipped and rounded to a power of two of at most 2⁻²⁰ B, so that f is exact and
    does not depend on the order of summation.
    """
    match = matched(people.stratum, people.treated)
    lattice = Bounds(0.0, high)
    total = int((match.weights(people.treated) * lattice.whole(people.outcome)).sum())
    variance = math.fsum(stratum_variances(people, high))
    return Matched(people.n_units, total * lattice.step, variance)


def stratum_variances(people: SitePeople, high: float) -> Floats:
    """Return v_x = W_t s_t² + W_c s_c² of every stratum, 0 where an arm is empty; shape [|X|].

    W_a = Σ (1 + L_i)² over the units of an arm, s_a² the sample variance of their outcomes, B²/4,
    the most that an outcome can have, where the unit is alone. V̂ = Σ v_x/N² is unbiased for the
    variance of τ̂ given covariates and treatments where nobody is alone, and too large elsewhere.

    The paper squares differences of matched pairs, which a changed record moves further: it pairs
    anew everybody of the stratum. Here outcomes are rounded to about 2⁻¹⁵ B (N = 10⁶), which makes
    sums exact but for a relative 2⁻⁵⁰.
    """
    bits = (_EXACT_BITS - people.n_units.bit_length()) // 2
    lattice = Bounds(0.0, high, 2.0**-bits)
    y = lattice.whole(people.outcome).astype(np.float64)
    cell, cells = 2 * people.stratum + people.treated, 2 * people.n_strata
    n = np.bincount(cell, minlength=cells)
    first, second = (np.bincount(cell, weights=y**power, minlength=cells) for power in (1, 2))
    inside = np.maximum(second - first**2 / np.maximum(n, 1), 0.0) / np.maximum(n - 1, 1)
    spread = np.where(n == 1, high**2 / 4.0, inside * lattice.step**2)
    other = n.reshape(-1, 2)[:, ::-1].ravel()
    both = np.where((n > 0) & (other > 0), reuse_squares(n, other) * spread, 0.0)
    variances: Floats = both.reshape(-1, 2).sum(axis=1)
    return variances


def reuse_squares(n_units: Ints, n_others: Ints) -> Ints:
    """Return W = Σ (1 + L_i)² over ``n_units`` n that stand in for ``n_others`` p; 0 for n = 0.

    W = n + 2p + p q + r(q + 1), p = qn + r. Any shape.
    """
    n = np.maximum(n_units, 1)
    quotient, rest = n_others // n, n_others % n
    squares = n + 2 * n_others + n_others * quotient + rest * (quotient + 1)
    return np.where(n_units > 0, squares, 0)
