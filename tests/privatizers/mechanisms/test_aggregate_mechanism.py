"""Aggregate mechanisms: what they publish, how it is noised, and what that costs.

Noise comes from the operating system. Each test of a law alarms falsely once in 10⁷ runs
(``ALARM``); the others say how often where it is not never.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from privatizers.accounting.accountant import delta_at, pure_epsilon
from privatizers.accounting.events import CountsNoise, SumNoise
from privatizers.domain.lattice import Lattice, lattice_of
from privatizers.mechanisms.noisy_histogram import NoisyHistogram
from privatizers.mechanisms.noisy_horvitz_thompson import NoisyHorvitzThompson, noised_differences
from privatizers.mechanisms.parameters import AggregateParameters, event_of
from privatizers.planning.aggregate_design import (
    AggregateDesign,
    AggregateName,
    AggregateRequest,
    aggregate_design,
)
from schemas.arrays import Ints
from schemas.errors import ConfigError
from tests.exact.aggregates import PairInstance, enumerate_aggregates
from tests.support.distances import assert_near, share_error

ALARM = 1e-7
NOTHING = 1e-4
"""A scale at which a draw is not zero with probability e⁻¹⁰⁰⁰⁰."""
SIGNS = (-5.0, -1.0, 0.0, 6.0)


def designed(
    name: AggregateName, grid: tuple[float, ...], n_treatments: int = 1, epsilon: float = 1.0
) -> AggregateDesign:
    return aggregate_design(
        AggregateRequest(name, len(grid), n_treatments, epsilon=epsilon, lattice=lattice_of(grid))
    )


def two_arms(control: Ints, treated: Ints) -> tuple[Ints, Ints]:
    """Raw counts and cells of pools with these counts [D, K] in either arm."""
    counts = np.stack([control, treated], axis=1).reshape(-1, control.shape[1])
    return counts, np.arange(len(counts)).reshape(-1, 2)


# what is published


def test_a_histogram_publishes_counts_and_nothing_else() -> None:
    counts = np.arange(12).reshape(3, 4)
    mechanism = NoisyHistogram(AggregateParameters(4, NOTHING))
    found = mechanism.statistics(counts, np.array([[0, 1], [2, -1]]))
    assert found.noisy_counts is not None
    assert (found.noisy_counts == counts).all()
    assert (found.noisy_sums, found.noisy_differences) == (None, None)
    assert mechanism.parameters.strata_statistic == "counts"


def test_two_outcomes_have_one_noise_and_its_complement() -> None:
    design = designed("noisy-histogram", (0, 1), epsilon=0.01)
    counts = np.tile(np.array([[300, 120]]), (40, 1))
    found = design.mechanism.statistics(counts, np.arange(40).reshape(-1, 2)).noisy_counts
    assert found is not None
    assert (found.sum(axis=1) == 420).all()
    assert len(np.unique(found)) > 2  # all alike once in 10⁸⁰ runs
    assert design.mechanism.parameters.strata_statistic == "count-and-complement"


def test_of_several_treatments_the_means_are_published() -> None:
    mechanism = designed("noisy-horvitz-thompson", SIGNS, 2).mechanism
    quiet = replace(mechanism, parameters=replace(mechanism.parameters, noise_scale=NOTHING))
    found = quiet.statistics(np.array([[1, 0, 2, 1], [0, 3, 0, 0]]), np.array([[0, 1, -1]]))
    assert found.noisy_sums is not None
    assert found.noisy_sums.tolist() == [21, 12]  # steps of 1 from −5: 0, 4, 5, 11
    assert (found.noisy_counts, found.noisy_differences) == (None, None)
    assert mechanism.parameters.strata_statistic == "means"


def test_differences_are_exact_fractions_whatever_the_sizes() -> None:
    """Against fractions of plain sums, without noise; sizes with every kind of divisor."""
    random = np.random.default_rng(1)
    lattice = lattice_of(SIGNS)
    control, treated = random.integers(0, 40, (2, 300, 4))
    control[:, 0] += 1
    treated[:, 0] += 1
    found = noised_differences(control, treated, np.arange(300), lattice, NOTHING / 1000)
    for at in range(300):
        means = [
            sum(Fraction(int(n) * int(y)) for n, y in zip(arm[at], SIGNS, strict=True))
            / int(arm[at].sum())
            for arm in (treated, control)
        ]
        assert Fraction(int(found.noisy[at]), int(found.divisor[at])) == means[0] - means[1]
    assert len(np.unique(np.gcd(control.sum(axis=1), treated.sum(axis=1)))) > 5


def test_a_substitution_moves_a_difference_by_what_is_paid_for_and_not_more() -> None:
    """By brute force over every data set of up to 4 and 5 units an arm and every substitution."""
    lattice = lattice_of((0.0, 1.0, 3.0))
    assert lattice is not None
    for n_0, n_1 in product(range(1, 5), range(1, 6)):
        moved = 0
        for arm, size in ((0, n_0), (1, n_1)):
            for levels in combinations_with_replacement(range(3), size):
                sets = [levels, *((other, *levels[1:]) for other in range(3))]
                own = np.array([np.bincount(one, minlength=3) for one in sets])
                other = np.tile([n_1 if arm == 0 else n_0, 0, 0], (len(own), 1))
                pair = (own, other) if arm == 0 else (other, own)
                found = noised_differences(*pair, np.arange(len(own)), lattice, NOTHING / 100)
                moved = max(moved, int(np.ptp(found.noisy)))
        assert moved == 3 * max(n_0, n_1) // math.gcd(n_0, n_1)


def test_a_pool_without_one_of_the_arms_has_no_difference() -> None:
    counts = np.array([[2, 0], [3, 3], [1, 1], [0, 4]])
    parameters = AggregateParameters(2, NOTHING, Lattice((0, 1)), differences=True)
    cell_of = np.array([[0, -1], [1, 2], [-1, 3]])
    found = NoisyHorvitzThompson(parameters).statistics(counts, cell_of).noisy_differences
    assert found is not None
    assert found.pool.tolist() == [1]
    assert (found.noisy / found.divisor).tolist() == [0.0]
    none = NoisyHorvitzThompson(parameters).statistics(counts, cell_of[:1]).noisy_differences
    assert none is not None
    assert len(none.noisy) == 0


def test_every_pool_has_the_noise_of_its_own_sizes() -> None:
    """Pools alike in both arms have next to none, and uneven ones between them a lot.

    At σ = 0.02 a difference of equal arms is off with probability 4e-22, and one of arms of 1 and
    10⁵ is not with probability 2.5e-4, all twelve once in 10⁴³ runs.
    """
    even, uneven = np.array([[3, 3], [3, 3]]), np.array([[1, 0], [50_000, 50_000]])
    pairs = np.stack([uneven if at % 3 == 1 else even for at in range(36)])
    lattice = Lattice((0, 1))
    found = noised_differences(pairs[:, 0], pairs[:, 1], np.arange(36), lattice, 0.02)
    quiet = noised_differences(pairs[:, 0], pairs[:, 1], np.arange(36), lattice, 1e-9)
    off = found.noisy != quiet.noisy
    assert not off[np.arange(36) % 3 != 1].any()
    assert off[np.arange(36) % 3 == 1].any()


def test_what_64_bits_cannot_hold_is_refused_before_anything_is_drawn() -> None:
    big = np.array([[4_000_000_001, 0]])
    with pytest.raises(ConfigError, match="does not fit 64 bits"):
        noised_differences(big, big + 1, np.arange(1), Lattice((0, 1)), 1.0)
    small = np.array([[10, 3]])
    with pytest.raises(ConfigError, match="does not fit 64 bits"):
        noised_differences(small, small + 1, np.arange(1), Lattice((0, 1)), 1e17)
    fits = np.array([[4_000_000, 0]])
    noised_differences(fits, fits + 1, np.arange(1), Lattice((0, 1)), 1.0)


# the law of the noise


@dataclass(frozen=True)
class Law:
    """Draws of one noisy number many times over, its true value, and the scale it should have."""

    draw: Callable[[int], Ints]
    truth: int
    scale: float

    def p_value(self, factor: float = 1.0, size: int = 20_000) -> float:
        """Pearson's test of the draws against the discrete Laplace law of ``factor`` scales."""
        scale = factor * self.scale
        reach = max(1, math.ceil(scale * math.log(size / 50)))
        mass = math.tanh(1 / (2 * scale)) * np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
        tail = (1 - mass.sum()) / 2
        expected = size * np.array([tail, *mass, tail])
        place = np.clip(self.draw(size) - self.truth, -reach - 1, reach + 1) + reach + 1
        observed = np.bincount(place, minlength=len(expected))
        return float(chi2.sf(np.sum((observed - expected) ** 2 / expected), len(expected) - 1))


def law_of_counts(k: int) -> Law:
    design = designed("noisy-histogram", tuple(map(float, range(k))), epsilon=0.8)

    def draw(size: int) -> Ints:
        cells = np.arange(size)[:, np.newaxis]
        found = design.mechanism.statistics(np.full((size, k), 7), cells).noisy_counts
        assert found is not None
        return found[:, 1]

    return Law(draw, 7, (1 if k == 2 else 2) / 0.8)


def law_of_sums() -> Law:
    design = designed("noisy-horvitz-thompson", SIGNS, 2, epsilon=4.0)

    def draw(size: int) -> Ints:
        cells = np.arange(size)[:, np.newaxis]
        found = design.mechanism.statistics(np.full((size, 4), 2), cells).noisy_sums
        assert found is not None
        return found

    return Law(draw, 40, 11 / 4.0)


def law_of_differences(n_0: int, n_1: int) -> Law:
    design = designed("noisy-horvitz-thompson", (0, 1, 2), epsilon=2.0)

    def draw(size: int) -> Ints:
        arms = (np.tile([0, n, 0], (size, 1)) for n in (n_0, n_1))
        found = design.mechanism.statistics(*two_arms(*arms)).noisy_differences
        assert found is not None
        return found.noisy

    return Law(draw, 0, 2 / 2.0 * max(n_0, n_1) / math.gcd(n_0, n_1))


LAWS = {
    "counts": law_of_counts(4),
    "count and complement": law_of_counts(2),
    "sums": law_of_sums(),
    "even differences": law_of_differences(6, 6),
    "differences of 4 and 6": law_of_differences(4, 6),
    "differences of 7 and 3": law_of_differences(7, 3),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_noise_has_the_law_that_is_paid_for(law: Law) -> None:
    assert law.p_value() > ALARM


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_a_scale_off_by_30_percent_would_be_noticed(law: Law) -> None:
    """Found in a million runs but one or so: p-values are around 10⁻⁵⁰."""
    assert law.p_value(1 / 1.3, 10_000) < ALARM
    assert law.p_value(1.3, 10_000) < ALARM


def test_counts_of_a_stratum_have_noises_of_their_own() -> None:
    """At σ = 2000 two draws agree with probability 1/8000: five pairs never, but once in 10¹⁹."""
    design = designed("noisy-histogram", (0, 1, 2), epsilon=0.001)
    found = design.mechanism.statistics(np.zeros((5, 3), np.int64), np.arange(5)[:, None])
    assert found.noisy_counts is not None
    assert (np.diff(found.noisy_counts, axis=1) != 0).any(axis=0).all()
    assert (np.diff(found.noisy_counts, axis=0) != 0).any(axis=0).all()


# the price

GRIDS = ((0.0, 1.0), (0.0, 1.0, 2.0, 3.0), SIGNS, (0.0, 0.5, 2.0))
EPSILONS = (0.1, 0.3, 1.0, math.log(3), 2.7, 6.0)
KINDS: tuple[tuple[AggregateName, int], ...] = (
    ("noisy-histogram", 1),
    ("noisy-horvitz-thompson", 1),
    ("noisy-horvitz-thompson", 3),
)
CASES = [
    pytest.param(name, grid, n_treatments, epsilon, id=f"{name}-{grid}-{n_treatments}-{epsilon:g}")
    for (name, n_treatments), grid, epsilon in product(KINDS, GRIDS, EPSILONS)
]
every_case = pytest.mark.parametrize(("name", "grid", "n_treatments", "epsilon"), CASES)


@every_case
def test_the_scale_is_the_least_that_the_epsilon_pays_for(
    name: AggregateName, grid: tuple[float, ...], n_treatments: int, epsilon: float
) -> None:
    design = designed(name, grid, n_treatments, epsilon)
    event = event_of(design.mechanism.parameters)
    assert (design.epsilon, design.delta) == (epsilon, 0.0)
    assert pure_epsilon(event) <= epsilon
    assert delta_at(event, epsilon) == 0
    assert isinstance(event, CountsNoise | SumNoise)
    most = event.moved_cells if isinstance(event, CountsNoise) else event.most_steps
    scale = event.noise_scale
    assert scale == pytest.approx(most / epsilon, rel=1e-15)
    cheaper = replace(event, noise_scale=math.nextafter(scale, 0.0))
    assert pure_epsilon(cheaper) > epsilon or scale == most / epsilon


@every_case
def test_no_exact_loss_is_above_the_claim_and_the_worst_attains_it(
    name: AggregateName, grid: tuple[float, ...], n_treatments: int, epsilon: float
) -> None:
    """Over 72 designs; instances have arms of one size and of others, and either one changes."""
    mechanism = designed(name, grid, n_treatments, epsilon).mechanism
    listed = enumerate_aggregates(mechanism)
    losses = np.array([each.epsilon for each in listed])
    assert losses.max() <= epsilon * (1 + 1e-12)
    assert losses.max() >= epsilon * (1 - 1e-9)
    for each in listed:
        assert each.mass.sum() == pytest.approx(1.0, abs=each.tail_mass + 1e-9)
        assert (each.mass * np.exp(-each.loss)).sum() == pytest.approx(1.0, abs=1e-9)
    if mechanism.parameters.differences:
        pairs = [each.instance for each in listed]
        assert all(isinstance(one, PairInstance) for one in pairs)
        larger = [
            loss
            for one, loss in zip(pairs, losses, strict=True)
            if isinstance(one, PairInstance) and one.n_units > one.other_units
        ]
        assert max(larger) < 0.9 * epsilon  # a unit of the larger arm is protected better


@every_case
def test_at_a_delta_no_list_is_above_the_price_of_the_event(
    name: AggregateName, grid: tuple[float, ...], n_treatments: int, epsilon: float
) -> None:
    """A difference costs what a sum does or less, whatever the sizes of the arms."""
    mechanism = designed(name, grid, n_treatments, epsilon).mechanism
    event = event_of(mechanism.parameters)
    for spent in (0.0, 0.4 * epsilon, 0.9 * epsilon):
        priced = delta_at(event, spent)
        found = [each.listed_delta_at(spent) for each in enumerate_aggregates(mechanism)]
        assert max(found) <= priced + 1e-12
        assert max(found) >= 0.98 * priced


def test_a_list_is_what_the_sampler_does() -> None:
    """A pair's listed probabilities against 40,000 draws; false alarms once in 10⁷ runs."""
    mechanism = designed("noisy-horvitz-thompson", (0, 1, 2), epsilon=1.5).mechanism
    each = next(
        one
        for one in enumerate_aggregates(mechanism)
        if isinstance(one.instance, PairInstance)
        and (one.instance.n_units, one.instance.other_units) == (5, 3)
        and not one.instance.treated
    )
    size, moved = 40_000, 2 * 3  # two steps, times the other arm's units
    assert len(each.mass) == moved + 1  # up to −6, −5 … −1, and 0 or more, from the exact one
    lowest = np.tile([3, 0, 0], (size, 1))
    own = np.tile(np.array(each.instance.counts), (size, 1))
    found = mechanism.statistics(*two_arms(own, lowest)).noisy_differences
    assert found is not None
    exact = -3 * int(np.dot([0, 1, 2], each.instance.counts))
    for least in range(1 - moved, 1):
        share = float((found.noisy >= exact + least).mean())
        chance = float(each.mass[least + moved :].sum())
        assert_near(share, chance, share_error(chance, size), 5.7)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_a_delta_is_stated_and_buys_nothing(delta: float) -> None:
    lattice = lattice_of(SIGNS)
    names: tuple[AggregateName, ...] = ("noisy-histogram", "noisy-horvitz-thompson")
    for name in names:
        by_epsilon = AggregateRequest(name, 4, epsilon=0.7, delta=delta, lattice=lattice)
        by_scale = AggregateRequest(name, 4, noise_scale=9.0, delta=delta, lattice=lattice)
        chosen, declared = aggregate_design(by_epsilon), aggregate_design(by_scale)
        assert (chosen.delta, declared.delta) == (delta, delta)
        most = 2 if name == "noisy-histogram" else 11
        assert chosen.mechanism.parameters.noise_scale == pytest.approx(most / 0.7)
        assert declared.mechanism.parameters.noise_scale == 9.0
        assert declared.epsilon == pytest.approx(most / 9.0)
        assert declared.epsilon >= Fraction(most, 9)


# refusals

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("privacy.noise_scale", {"noise_scale": 2.0}),
    ("privacy.noise_scale", {"noise_scale": 1e-9, "epsilon": None}),
    ("privacy.epsilon", {"epsilon": None}),
    ("privacy.epsilon", {"epsilon": 0.0}),
    ("privacy.epsilon", {"epsilon": 1e4}),
    ("privacy.delta", {"delta": 1.0}),
    ("outcome", {"n_outcomes": 1}),
]


@pytest.mark.parametrize("name", ["noisy-histogram", "noisy-horvitz-thompson"])
@pytest.mark.parametrize(("key", "given"), WRONG, ids=str)
def test_what_does_not_go_with_it_is_refused_by_name(
    name: AggregateName, key: str, given: dict[str, Any]
) -> None:
    sound = AggregateRequest(name, 4, epsilon=1.0, lattice=lattice_of(SIGNS))
    with pytest.raises(ConfigError) as caught:
        aggregate_design(replace(sound, **given))
    assert caught.value.key == key


def test_differences_need_a_grid_in_whole_steps_and_counts_do_not() -> None:
    request = AggregateRequest("noisy-horvitz-thompson", 3, epsilon=1.0, lattice=None)
    with pytest.raises(ConfigError, match="whole steps apart"):
        aggregate_design(request)
    assert aggregate_design(replace(request, mechanism="noisy-histogram")).epsilon == 1.0


@pytest.mark.parametrize(
    "wrong", [{"differences": True, "lattice": None}, {"lattice": Lattice((0, 1))}]
)
def test_parameters_that_no_mechanism_has_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lattice"):
        replace(AggregateParameters(3, 1.0, Lattice((0, 1, 2))), **wrong)


# what papers print


def test_the_papers_histogram_costs_twice_its_claim() -> None:
    """σ = 1/ε counts one moved cell of two: the loss is 2ε."""
    found = enumerate_aggregates(NoisyHistogram(AggregateParameters(4, 1 / 1.0)))
    assert max(one.epsilon for one in found) == pytest.approx(2.0)


@pytest.mark.parametrize("differences", [True, False])
def test_the_papers_sensitivity_is_short_where_outcomes_have_both_signs(differences: bool) -> None:
    """max|y| = 6 in place of the width 11."""
    parameters = AggregateParameters(4, 6 / 1.0, lattice_of(SIGNS), differences)
    found = enumerate_aggregates(NoisyHorvitzThompson(parameters))
    assert max(one.epsilon for one in found) == pytest.approx(11 / 6)
