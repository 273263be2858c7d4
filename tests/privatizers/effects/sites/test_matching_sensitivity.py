"""Smooth bounds against brute force: every tiny data set, every neighbour, every distance.

Data sets are all of N ≤ 6 records in order, |X| ≤ 2, outcomes 0 or 1: 8⁶ = 262,144 for the largest.
Neighbours differ in one whole record. The same judges that pass our bounds must catch broken ones,
Equation (1) as printed among them.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pytest

from privatizers.effects.sites.matching import SitePeople, matched, stratum_variances
from privatizers.effects.sites.matching_sensitivity import (
    WorstPairs,
    effect_bound_at,
    effect_range,
    reuse_at,
    smooth_effect_bound,
    smoothed,
    variance_range,
)
from privatizers.lab.unprotected.as_printed import (
    equation_one,
    paired_variance_bound_at,
    smooth_paired_variance_bound,
)
from schemas.arrays import Floats, Ints

Bound = Callable[[Ints, Ints, float], float]
"""Of T, C and β, for B = 1."""

SIZES = [(n, x) for x in (1, 2) for n in range(1, 7)]
BETAS = (0.02, 0.041, 0.2, 0.7, 2.0)
NEARLY = 1.0 + 1e-12  # rounding of sums


def ours(treated: Ints, control: Ints, beta: float) -> float:
    return smooth_effect_bound(treated, control, high=1.0, beta=beta)


def squared(treated: Ints, control: Ints, beta: float) -> float:
    """Of the variance, smooth with 2β."""
    return ours(treated, control, beta / 2.0) ** 2


def of_pairs(treated: Ints, control: Ints, beta: float) -> float:
    return smooth_paired_variance_bound(treated, control, high=1.0, beta=beta)


def corrected(treated: Ints, control: Ints, beta: float) -> float:
    """min(2, max_k e^(−kβ) (4/N)(1 + max_x R^(k))), Equation (1) made smooth, B = 1.

        R^(k) = min(N, ⌈(M + k + 1)/max(m − k, 1)⌉)

    It holds, and is about twice what :func:`smooth_effect_bound` needs.
    """
    pairs = WorstPairs.of(treated, control)
    n = pairs.n_units

    def term(distance: Ints) -> Floats:
        reuse = np.minimum(n, reuse_at(pairs, distance, 1))
        bound: Floats = 4.0 / n * (1.0 + reuse.max(axis=1))
        return bound

    return min(2.0, smoothed(term, pairs, beta, 4.0 * (1.0 + 1.0 / n)))


def printed(treated: Ints, control: Ints, beta: float) -> float:
    return equation_one(treated, control, high=1.0, beta=beta)


def half_of_it(treated: Ints, control: Ints, beta: float) -> float:
    return ours(treated, control, beta) / 2.0


def present_alone(treated: Ints, control: Ints, beta: float) -> float:
    """Values of the domain that nobody has are left out."""
    here = treated + control > 0
    return ours(treated[here], control[here], beta)


def without_more_units(treated: Ints, control: Ints, beta: float) -> float:
    """Distance takes from the smaller arm, and gives the larger nothing."""
    return worst_term(treated, control, beta, grows=0)


def stopped_early(treated: Ints, control: Ints, beta: float) -> float:
    """The corrected Equation (1), but k ends at ⌈ln(2B/A⁽⁰⁾)/β⌉ where terms go on beyond 2B."""
    return min(2.0, 2.0 * worst_term(treated, control, beta, grows=1, more=1, stop=True))


def worst_term(
    treated: Ints, control: Ints, beta: float, grows: int, more: int = 0, stop: bool = False
) -> float:
    n, worst, last = int(treated.sum() + control.sum()), 0.0, 10_000
    for k in range(10_000):
        most = np.maximum(treated, control) + grows * k + more
        reuse = np.minimum(n, np.ceil(most / np.maximum(np.minimum(treated, control) - k, 1)))
        term = 2.0 / n * (1.0 + float(reuse.max()))
        if k == 0 and stop:
            last = math.ceil(math.log(max(1.0 / term, 1.0)) / beta)
        if k > last or math.exp(-k * beta) * 4.0 < worst:
            break
        worst = max(worst, math.exp(-k * beta) * term)
    return worst


# every data set


@dataclass(frozen=True)
class Everything:
    """All data sets of N records; arrays of shape [4|X|] * N, or with one more axis."""

    n_units: int
    treated: Ints
    """T of each stratum; shape [..., |X|]."""
    control: Ints
    effect: Floats
    variance: Floats
    paired: Floats
    """The variance as the paper estimates it."""

    def farthest(self, values: Floats) -> list[Floats]:
        """The greatest local sensitivity of data sets within k records, k = 0 … N."""
        local = np.zeros_like(values)
        for axis in range(self.n_units):
            up = values.max(axis=axis, keepdims=True) - values
            down = values - values.min(axis=axis, keepdims=True)
            local = np.maximum(local, np.maximum(up, down))
        found = [local]
        for _ in range(self.n_units):
            reach = [found[-1].max(axis=axis, keepdims=True) for axis in range(self.n_units)]
            found.append(
                np.broadcast_to(np.maximum.reduce(np.broadcast_arrays(*reach)), local.shape)
            )
        return found

    def by_sizes(self, bound: Callable[[Ints, Ints], Floats | float]) -> Floats:
        """A bound of T and C of each data set, worked out once for each T and C that occur."""
        both = np.concatenate([self.treated, self.control], axis=-1)
        distinct, which = np.unique(both.reshape(-1, both.shape[-1]), axis=0, return_inverse=True)
        half = both.shape[-1] // 2
        values = np.array([bound(row[:half], row[half:]) for row in distinct])
        spread: Floats = values[which.reshape(self.effect.shape)]
        return spread


@cache
def everything(n_units: int, n_strata: int) -> Everything:
    """Match all data sets in one call of the product: each is given strata of its own."""
    kinds = 4 * n_strata
    shape = (kinds,) * n_units
    records = np.indices(shape).reshape(n_units, -1).T
    stratum, treated, outcome = records // 4, records // 2 % 2 == 1, records % 2
    own = (stratum + n_strata * np.arange(len(records))[:, None]).ravel()
    match = matched(own, treated.ravel())
    people = SitePeople(
        own, treated.ravel(), outcome.ravel().astype(np.float64), n_strata * len(records)
    )
    variances = stratum_variances(people, 1.0).reshape(-1, n_strata).sum(axis=1)
    weights = match.weights(treated.ravel()).reshape(records.shape)
    apart = outcome.ravel() - outcome.ravel()[match.partner]
    squares = (weights.ravel() ** 2 * apart**2).reshape(records.shape)
    in_stratum = stratum[:, :, None] == np.arange(n_strata)
    return Everything(
        n_units,
        (in_stratum & treated[:, :, None]).sum(axis=1).reshape(*shape, n_strata),
        (in_stratum & ~treated[:, :, None]).sum(axis=1).reshape(*shape, n_strata),
        ((weights * outcome).sum(axis=1) / n_units).reshape(shape),
        (variances / n_units**2).reshape(shape),
        (squares.sum(axis=1) / (2 * n_units**2)).reshape(shape),
    )


# the judges


def not_dominated(bound: Bound, statistic: str, beta: float) -> int:
    """How many data sets, over all sizes and distances, have e^(−kβ) A > S."""
    missed = 0
    for n_units, n_strata in SIZES:
        every = everything(n_units, n_strata)
        smooth = every.by_sizes(lambda t, c: bound(t, c, beta)) * NEARLY
        for k, local in enumerate(every.farthest(getattr(every, statistic))):
            missed += int((local * math.exp(-k * beta) > smooth).sum())
    return missed


def not_smooth(bound: Bound, beta: float) -> int:
    """How many pairs of neighbours, told by their T and C alone, have ln S − ln S′ > β."""
    missed = 0
    for n_units, n_strata in SIZES:
        cells = [
            np.array(one, dtype=np.int64)
            for one in itertools.product(range(n_units + 1), repeat=2 * n_strata)
            if sum(one) == n_units
        ]
        known = {tuple(one): bound(one[:n_strata], one[n_strata:], beta) for one in cells}
        for one, gives, takes in itertools.product(
            cells, range(len(cells[0])), range(len(cells[0]))
        ):
            if gives != takes and one[gives]:
                other = one.copy()
                other[gives] -= 1
                other[takes] += 1
                missed += known[tuple(one)] > known[tuple(other)] * math.exp(beta) * NEARLY
    return missed


# ours


@pytest.mark.statistical
@pytest.mark.parametrize("beta", [0.041, 0.7])
@pytest.mark.parametrize(
    ("bound", "statistic"),
    [(ours, "effect"), (squared, "variance"), (of_pairs, "paired"), (corrected, "effect")],
)
def test_a_bound_dominates_at_every_distance(bound: Bound, statistic: str, beta: float) -> None:
    assert not_dominated(bound, statistic, beta) == 0


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("bound", [ours, squared, of_pairs, corrected])
def test_a_bound_is_smooth(bound: Bound, beta: float) -> None:
    assert not_smooth(bound, beta) == 0


def one_term(
    terms: Callable[[WorstPairs, Ints, float], Floats], at: Ints, treated: Ints, control: Ints
) -> float:
    return float(terms(WorstPairs.of(treated, control), at, 1.0)[0])


@pytest.mark.statistical
def test_what_is_known_at_each_distance_dominates_without_smoothing() -> None:
    """The terms A^(k) themselves, uncapped, and their squares for the variance."""
    for n_units, n_strata in [(4, 1), (6, 1), (4, 2), (5, 2)]:
        every = everything(n_units, n_strata)
        for k in range(n_units + 1):
            at = np.array([k])
            effect = every.by_sizes(partial(one_term, effect_bound_at, at))
            paired = every.by_sizes(partial(one_term, paired_variance_bound_at, at))
            for bound, values in (
                (effect, every.effect),
                (effect**2, every.variance),
                (paired, every.paired),
            ):
                assert (every.farthest(values)[k] <= bound * NEARLY).all()


def test_the_global_sensitivity_is_attained() -> None:
    for n_units in (3, 4, 5, 6):
        every = everything(n_units, 2)
        worst = every.farthest(every.effect)[0].max()
        assert worst == pytest.approx(effect_range(1.0, n_units), rel=1e-12)
        for values in (every.variance, every.paired):
            assert values.min() == 0.0
            assert values.max() <= variance_range(1.0, n_units) * NEARLY
            assert values.max() <= effect_range(1.0, n_units) ** 2
        assert every.paired.max() == pytest.approx(variance_range(1.0, n_units), rel=1e-12)


def test_no_better_bound_of_this_kind_holds_at_distance_0() -> None:
    """At |X| = 2 the local sensitivity attains A⁽⁰⁾: half of the paper's factor is right."""
    every = everything(6, 2)
    bound = every.by_sizes(partial(one_term, effect_bound_at, np.array([0])))
    assert (every.farthest(every.effect)[0] / bound).max() == pytest.approx(1.0, rel=1e-12)


def test_one_record_more_moves_the_variance_of_a_stratum_no_further_than_proved() -> None:
    """|Δv| ≤ 2(1 + ⌈M/max(m, 1)⌉)² in strata of up to 12 + 12 units, outcomes 0, 1/2 or 1."""
    most = 12
    states = [
        (t, c, ones_t, ones_c, halves)
        for t, c in itertools.product(range(most + 1), repeat=2)
        for ones_t, ones_c in itertools.product(range(t + 1), range(c + 1))
        for halves in (0, 1)
        if halves == 0 or ones_t < t
    ]
    value = dict(zip(states, variances_of(states), strict=True))
    worst = 0.0
    for (t, c, ones_t, ones_c, halves), before in value.items():
        share = (1 + math.ceil(max(t, c) / max(min(t, c), 1))) ** 2
        grown = [
            (t + 1, c, ones_t, ones_c, halves), (t + 1, c, ones_t + 1, ones_c, halves),
            (t, c + 1, ones_t, ones_c, halves), (t, c + 1, ones_t, ones_c + 1, halves),
            (t + 1, c, ones_t, ones_c, halves + 1),
        ]  # fmt: skip
        moved = [abs(value[one] - before) for one in grown if one in value]
        worst = max([worst, *(each / share for each in moved)])
    assert 0.5 < worst <= 2.0


def variances_of(states: list[tuple[int, int, int, int, int]]) -> list[float]:
    """v_x of strata with t and c units, of which some have outcome 1, some treated 1/2."""
    sizes = [t + c for t, c, *_ in states]
    stratum = np.repeat(np.arange(len(states)), sizes)
    treated = np.concatenate([np.arange(t + c) < t for t, c, *_ in states])
    outcome = np.concatenate(
        [
            np.repeat([1.0, 0.5, 0.0, 1.0, 0.0], [i, h, t - i - h, j, c - j])
            for t, c, i, j, h in states
        ]
    )
    return [
        float(v) for v in stratum_variances(SitePeople(stratum, treated, outcome, len(states)), 1.0)
    ]


# broken ones


@pytest.mark.parametrize("beta", [0.02, 0.041, 0.2])
def test_equation_one_as_printed_is_caught(beta: float) -> None:
    assert not_smooth(printed, beta) > 0


def test_the_printed_equation_misses_what_the_review_found() -> None:
    """(1, 19) and nobody against (1, 18) and (1, 0), β = 0.041: apart by 0.0488."""
    one = printed(np.array([1, 0]), np.array([19, 0]), 0.041)
    other = printed(np.array([1, 1]), np.array([18, 0]), 0.041)
    assert abs(math.log(one / other)) > 0.041
    fine = (ours, squared, of_pairs, corrected)
    for bound in fine:
        one = bound(np.array([1, 0]), np.array([19, 0]), 0.041)
        assert abs(math.log(one / bound(np.array([1, 1]), np.array([18, 0]), 0.041))) <= 0.041


def test_a_bound_that_is_too_small_is_caught() -> None:
    assert not_dominated(half_of_it, "effect", 0.7) > 0


def test_a_bound_that_is_not_smooth_is_caught() -> None:
    assert sum(not_smooth(without_more_units, beta) for beta in BETAS) > 0


def test_values_of_the_domain_that_nobody_has_count() -> None:
    """Tiny data do not need them: a present stratum is as bad. Large, balanced ones do."""
    one, other = ([50, 0], [50, 0]), ([49, 1], [50, 0])
    for bound, holds in ((ours, True), (of_pairs, True), (corrected, True), (present_alone, False)):
        first, second = (bound(np.array(t), np.array(c), 0.1) for t, c in (one, other))
        assert (abs(math.log(first / second)) <= 0.1) == holds


def test_terms_beyond_the_global_sensitivity_cannot_be_cut_off_early() -> None:
    """Capping each term, as ours does, makes the early stop right; capping the maximum does not."""
    one = (np.array([15, 7]), np.array([35, 2]))
    other = (np.array([16, 7]), np.array([35, 1]))
    assert math.log(stopped_early(*one, 0.1) / stopped_early(*other, 0.1)) > 0.1
    for bound in (ours, corrected):
        assert abs(math.log(bound(*one, 0.1) / bound(*other, 0.1))) <= 0.1


# larger data, and time


def slowly(pairs: WorstPairs, beta: float, squared_terms: bool) -> float:
    """Every k to N."""
    at, n = np.arange(pairs.n_units + 1), pairs.n_units
    kind = paired_variance_bound_at if squared_terms else effect_bound_at
    most = variance_range(1.0, n) if squared_terms else effect_range(1.0, n)
    return float((np.exp(-beta * at) * np.minimum(most, kind(pairs, at, 1.0))).max())


@pytest.mark.parametrize("beta", [0.003, 0.03, 0.3])
def test_stopping_early_and_leaving_out_pairs_changes_nothing(beta: float) -> None:
    generator = np.random.default_rng(5)
    for _ in range(40):
        treated, control = generator.poisson(generator.uniform(0, 60, size=(2, 7)))
        treated[0] += 1
        every = WorstPairs(
            np.minimum(treated, control),
            np.maximum(treated, control),
            int((treated + control).sum()),
        )
        assert ours(treated, control, beta) == pytest.approx(slowly(every, beta, False), rel=1e-12)
        assert of_pairs(treated, control, beta) == pytest.approx(
            slowly(every, beta, True), rel=1e-12
        )


@pytest.mark.parametrize("beta", [0.0005, 0.03])
def test_a_million_units_in_ten_thousand_strata_are_no_matter(beta: float) -> None:
    """Milliseconds; by enumeration it would be hours, and nobody could wait for it."""
    generator = np.random.default_rng(6)
    sizes = generator.multinomial(10**6, generator.dirichlet(np.ones(20_000)))
    assert ours(sizes[:10_000], sizes[10_000:], beta) > 0
    assert of_pairs(sizes[:10_000], sizes[10_000:], beta) > 0


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_no_beta_is_no_bound(beta: float) -> None:
    with pytest.raises(ValueError, match="beta"):
        ours(np.array([1]), np.array([2]), beta)
