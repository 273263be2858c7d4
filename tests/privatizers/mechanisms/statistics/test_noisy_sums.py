"""Noisy sums: exact but for their noise, of the law that is claimed, at the price that is claimed.

Statistical tests draw from the operating system's entropy. Each states the probability with which
it fails although everything is right; all are 1e-6 or less.
"""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from privatizers.accounting.accountant import calibrate, delta_at, epsilon_at, pure_epsilon
from privatizers.accounting.events import Response, SumNoise, Together
from privatizers.accounting.rounding import realised_threshold
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.parameters import Parameters, event_of
from privatizers.mechanisms.statistics.noisy_counts import NoisySums
from privatizers.mechanisms.uniform_prior_dp import UniformPriorDP
from tests.composition import composed_delta, composed_epsilon
from tests.exact.enumeration import Enumeration, enumerate_outcomes, model_of
from tests.exact.neighbours import Instance, worst_instances
from tests.support.distances import assert_p_value
from tests.support.guarantee import guarantee

Counts = NDArray[np.int64]


# The act


def test_sums_are_exact_but_for_the_noise() -> None:
    """At σ = 1/200 a draw is not zero with probability 2 e⁻²⁰⁰."""
    counts = np.array([[3, 0, 2], [0, 0, 1], [5, 5, 5], [0, 0, 0]])
    noisy = NoisySums(Lattice((0, 2, 7)), 0.005).noised(counts)
    assert noisy.tolist() == [14, 7, 45, 0]
    assert noisy.dtype == np.int64


def test_huge_sums_stay_whole_numbers() -> None:
    """A double has no odd numbers beyond 2⁵³; a sum may not be rounded."""
    counts = np.array([[1, 10**13]], dtype=np.int64)
    noisy = NoisySums(Lattice((0, 99_999)), 0.005).noised(counts)
    assert noisy.tolist() == [99_999 * 10**13]
    assert noisy[0] % 2 == 0
    assert NoisySums(Lattice((0, 99_999)), 0.005).noised(counts + 1)[0] == 99_999 * (10**13 + 1)


def test_every_stratum_has_noise_of_its_own_and_negative_sums_stay() -> None:
    """At σ = 1000 two draws agree with probability under 1/2000; 40 alike by 1e-130."""
    counts = np.zeros((40, 3), dtype=np.int64)
    before = counts.copy()
    noisy = NoisySums(Lattice((0, 1, 2)), 1000.0).noised(counts)
    assert len(np.unique(noisy)) > 1
    assert (noisy < 0).any()  # not by chance 2⁻⁴⁰
    assert noisy.shape == (40,)
    assert (counts == before).all()


def test_no_strata_need_no_noise() -> None:
    empty = np.empty((0, 3), dtype=np.int64)
    assert NoisySums(Lattice((0, 1, 2)), 1.0).noised(empty).shape == (0,)


def law_p_value(draws: Counts, scale: float) -> float:
    """Pearson's test against P(k) = (1 − a)/(1 + a) a^|k|, tails put together."""
    a, edge = math.exp(-1 / scale), int(3.5 * scale) + 1
    inner = np.arange(-edge, edge + 1)
    p = (1 - a) / (1 + a) * a ** np.abs(inner)
    p[[0, -1]] = a**edge / (1 + a)
    seen = np.bincount(np.clip(draws, -edge, edge) + edge, minlength=len(inner))
    expected = p * len(draws)
    assert expected.min() > 10
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), len(inner) - 1))


@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_the_noise_is_discrete_laplace_of_its_scale(scale: float) -> None:
    """False alarm 1e-7 each; a scale 30 % off has a p-value under 1e-20 in 20,000 draws."""
    counts = np.tile(np.array([[4, 1, 2]]), (20_000, 1))
    lattice = Lattice((0, 3, 10))
    draws = NoisySums(lattice, scale).noised(counts) - 23
    assert_p_value(law_p_value(draws, scale), 1e-7)
    for wrong in (0.7, 1.3):
        assert law_p_value(draws, wrong * scale) < 1e-12


def test_the_mechanism_publishes_sums_and_no_counts() -> None:
    lattice = Lattice((0, 1, 5))
    parameters = Parameters.of(3, 0.5, 1 / 3, 0.005, lattice)
    drawn = UniformPriorDP(parameters).strata(np.array([[1, 2, 3], [0, 1, 0]]))
    assert drawn.noisy_counts is None
    assert drawn.noisy_sums is not None
    assert drawn.noisy_sums.tolist() == [17, 1]
    assert parameters.strata_statistic == "means"
    assert parameters.counts is None
    assert event_of(parameters) == Together(
        (SumNoise(0.005, 5), Response(0.5, parameters.truncation_threshold))
    )


def test_a_lattice_of_another_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="3 points for 4 outcomes"):
        Parameters.of(4, 0.5, 0.25, 1.0, Lattice((0, 1, 2)))


@pytest.mark.parametrize(("scale", "most"), [(0.0, 1), (math.inf, 1), (math.nan, 1), (1.0, 0)])
def test_what_cannot_have_been_done_is_no_event(scale: float, most: int) -> None:
    with pytest.raises(ValueError, match="no such event"):
        SumNoise(scale, most)


# The price


def listed(parameters: Parameters, instances: list[Instance]) -> list[Enumeration]:
    model = model_of(UniformPriorDP(parameters))
    return [enumerate_outcomes(model, each) for each in instances]


def neighbours(k: int, n: int) -> list[Instance]:
    """The worst, and others that move the sum by less or the other way."""
    spread = tuple(int(one) for one in np.diff(np.arange(k + 1) * n // k))
    pairs = [(a, b) for a, b in itertools.permutations(range(k), 2) if spread[a] > 0]
    return [*worst_instances(n, k), *(Instance(spread, a, b) for a, b in pairs[:: max(1, k - 2)])]


LATTICES: dict[int, list[tuple[int, ...]]] = {
    2: [(0, 1)],
    3: [(0, 1, 2), (0, 1, 7)],
    4: [(0, 1, 2, 3), (0, 3, 4, 20)],
    5: [(0, 1, 2, 3, 4), (0, 1, 10, 11, 100)],
    6: [(0, 1, 2, 3, 4, 5), (0, 5, 6, 7, 8, 9)],
}
SETS: list[tuple[Parameters, int]] = [
    (Parameters.of(k, rate, 1 / k, most_share * steps[-1], Lattice(steps)), n)
    for nth, (k, rate, most_share) in enumerate(
        itertools.product(LATTICES, (0.2, 0.6, 0.95), (0.4, 2.0))
    )
    for steps in LATTICES[k]
    for n in ((2, 12), (30,), (7,))[nth % 3]
]
"""λ, σ/M, lattice and stratum size of 72 releases."""


def test_there_are_enough_of_them() -> None:
    assert len(SETS) >= 60


def test_no_instance_costs_more_than_is_claimed_and_the_worst_reaches_it() -> None:
    """Without δ the claim is M/σ + ln(1 + (1 − λ)/(λγ)), and exact enumeration finds it."""
    for parameters, n in SETS:
        claim = guarantee(UniformPriorDP(parameters))
        found = max(
            each.epsilon for each in listed(parameters, neighbours(parameters.n_outcomes, n))
        )
        assert found <= claim + 1e-11, parameters
        assert found == pytest.approx(claim, abs=1e-9), parameters


@pytest.mark.parametrize("pair", list(itertools.permutations(range(4), 2)))
def test_an_instance_that_moves_the_sum_by_less_costs_less(pair: tuple[int, int]) -> None:
    """Exactly: the steps between its two outcomes over σ, and the response."""
    lattice = Lattice((0, 3, 4, 20))
    parameters = Parameters.of(4, 0.6, 0.25, 10.0, lattice)
    response = Response(0.6, parameters.truncation_threshold)
    moved = abs(lattice.steps[pair[1]] - lattice.steps[pair[0]])
    expected = Together((SumNoise(10.0, moved), response))
    (found,) = listed(parameters, [Instance((2, 1, 1, 3), *pair)])
    assert found.mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.epsilon == pytest.approx(pure_epsilon(expected), abs=1e-9)
    for epsilon in (0.1, 0.5):
        assert found.delta_at(epsilon) == pytest.approx(delta_at(expected, epsilon), rel=1e-9)


@pytest.mark.statistical
def test_delta_is_never_below_enumeration_and_equal_for_the_worst() -> None:
    """The dominating pair is attained: a unit that goes from one end of the grid to the other."""
    for parameters, n in SETS:
        event = event_of(parameters)
        every = listed(parameters, neighbours(parameters.n_outcomes, n))
        for part in (0.1, 0.7):
            epsilon = part * pure_epsilon(event)
            claim = delta_at(event, epsilon)
            found = max(each.listed_delta_at(epsilon) for each in every)
            assert found <= claim + 1e-13, (parameters, part)
            assert claim <= found + 1e-6 * claim + max(each.tail_mass for each in every) + 1e-13


@pytest.mark.statistical
@pytest.mark.parametrize("delta", [1e-6, 0.03])
def test_a_calibrated_release_stays_within_its_delta(delta: float) -> None:
    for (k, lattices), epsilon in itertools.product(LATTICES.items(), (0.3, 1.5)):
        lattice, gamma = (
            Lattice(lattices[0] if k == 5 else lattices[-1]),
            realised_threshold(1 / k, k),
        )
        noise = SumNoise(lattice.most / (0.4 * epsilon), lattice.most)
        rate = calibrate(epsilon, delta, gamma, noise)
        every = listed(Parameters(k, rate, gamma, noise.noise_scale, lattice), neighbours(k, 5))
        found = max(each.delta_at(epsilon) for each in every)
        assert 0.999 * delta < found <= delta * (1 + 1e-9)
        assert guarantee(UniformPriorDP(Parameters(k, rate, gamma, noise.noise_scale, lattice))) > (
            epsilon
        )


def test_a_sensitivity_of_one_step_is_found_by_enumeration() -> None:
    """A negative control of the two tests above: the price of a sum that moves by one step."""
    parameters = Parameters.of(4, 0.6, 0.25, 6.0, Lattice((0, 1, 2, 3)))
    response = Response(parameters.resampling_probability, parameters.truncation_threshold)
    wrong = Together((SumNoise(6.0, 1), response))
    found = listed(parameters, worst_instances(7, 4))
    assert max(each.epsilon for each in found) > pure_epsilon(wrong) + 0.3
    epsilon = 0.9 * pure_epsilon(wrong)
    assert max(each.listed_delta_at(epsilon) for each in found) > 1.2 * delta_at(wrong, epsilon)


def exact_delta(noise: SumNoise, response: Response, epsilon: float) -> float:
    """δ(ε) of a sum and a response, all values of the sum's loss kept apart, in doubles."""
    most, u = noise.most_steps, 1 / noise.noise_scale
    k = np.arange(most + 1)
    mass = -np.expm1(-u) * np.exp(-k * u)
    mass[0], mass[-1] = 1.0, np.exp(-most * u)
    values = (most - 2 * k) * u
    rate, least = response.resampling_probability, response.least_probability
    top = math.log1p((1 - rate) / (rate * least))
    total = 0.0
    for loss, share in (
        (top, 1 - rate + rate * least),
        (-top, rate * least),
        (0.0, rate * (1 - 2 * least)),
    ):
        over = np.maximum(-np.expm1(epsilon - values - loss), 0.0)
        total += share * float(mass @ over)
    return total / (1 + math.exp(-u))


@pytest.mark.parametrize("most", [1, 2, 11, 255, 256])
@pytest.mark.parametrize("sigma_share", [0.5, 3.0])
def test_up_to_256_steps_delta_is_exact(most: int, sigma_share: float) -> None:
    noise, response = SumNoise(sigma_share * most, most), Response(0.7, 0.25)
    event = Together((noise, response))
    for part in (0.0, 0.2, 0.6, 0.9):
        epsilon = part * pure_epsilon(event)
        found, exact = delta_at(event, epsilon), exact_delta(noise, response, epsilon)
        assert found == pytest.approx(exact, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("most", [257, 511, 512, 513, 3_000, 100_000])
@pytest.mark.parametrize("sigma_share", [0.3, 2.0])
def test_beyond_them_delta_is_raised_by_a_few_per_cent_at_most(
    most: int, sigma_share: float
) -> None:
    """Losses are raised by less than 2 ⌈M/256⌉/σ, a 128th of the sum's own pure ε."""
    noise, response = SumNoise(sigma_share * most, most), Response(0.7, 0.25)
    event = Together((noise, response))
    for part in (0.0, 0.2, 0.6, 0.9):
        epsilon = part * pure_epsilon(event)
        found, exact = delta_at(event, epsilon), exact_delta(noise, response, epsilon)
        assert exact * (1 - 1e-9) <= found <= 1.05 * exact + 1e-12
    assert delta_at(event, pure_epsilon(event)) == 0.0
    assert epsilon_at(event, 0.0) == pure_epsilon(event)


# Many releases


@pytest.mark.parametrize(("most", "sigma_share"), [(1, 0.5), (3, 1.0), (11, 2.5), (100, 2.0)])
def test_composition_agrees_with_the_accountant_on_one_release(
    most: int, sigma_share: float
) -> None:
    """Between δ(ε) and δ(ε − 2 · interval): it rounds losses up, one interval for each step."""
    event = Together((SumNoise(sigma_share * most, most), Response(0.8, 0.2)))
    interval = 1e-3
    for part in (0.1, 0.5, 0.9):
        epsilon = part * pure_epsilon(event)
        found = composed_delta([event], epsilon, interval)
        assert delta_at(event, epsilon) <= found + 1e-12
        assert found <= delta_at(event, max(0.0, epsilon - 2 * interval)) + 2e-12
    found = composed_epsilon([event], 1e-3, interval)
    assert epsilon_at(event, 1e-3) <= found <= epsilon_at(event, 1e-3) + 3 * interval


def test_composition_of_two_means_releases_agrees_with_the_exact_sum() -> None:
    event = Together((SumNoise(4.0, 2), Response(0.8, 1 / 3)))
    twice, interval = Together((event, event)), 1e-3
    for epsilon in (0.2, 1.0, 1.8):
        found = composed_delta([event, event], epsilon, interval)
        assert delta_at(twice, epsilon) <= found + 1e-12
        assert found <= delta_at(twice, max(0.0, epsilon - 4 * interval)) + 2e-12
    assert composed_epsilon([event] * 3, 0.0) == pure_epsilon(Together((event,) * 3))


def test_means_and_counts_take_the_same_price_for_two_outcomes() -> None:
    """One sum in one step, or one count and its complement: the same thing."""
    sums = Parameters.of(2, 0.6, 0.5, 1.5, Lattice((0, 1)))
    counts = Parameters.of(2, 0.6, 0.5, 1.5)
    for epsilon in (0.0, 0.4, 1.0):
        assert delta_at(event_of(sums), epsilon) == delta_at(event_of(counts), epsilon)
    assert guarantee(UniformPriorDP(sums)) == guarantee(UniformPriorDP(counts))
