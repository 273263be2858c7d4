"""The list of outcomes is the whole list, and its losses are the exact ones."""

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from privatizers.accounting.accountant import delta_at, epsilon_at, pure_epsilon
from privatizers.accounting.events import CountsNoise, Response, Together
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.cluster_free_dp import ClusterFreeDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.uniform_prior_dp import UniformPriorDP
from schemas.arrays import Floats
from tests.exact.count_lattice import CountLattice, own_prior
from tests.exact.enumeration import Enumeration, Model, enumerate_outcomes, model_of
from tests.exact.neighbours import Instance, worst_instances
from tests.support.guarantee import guarantee

ROUNDING = 1e-11  # of a loss, as `enumeration` states it


def brute_force(model: Model, instance: Instance, reach: int) -> tuple[Floats, Floats]:
    """P and Q of every full vector of noisy counts with every draw, one by one.

    The definition, with nothing put together: probabilities of integers, the product's prior of
    the vector, and randomised response.
    """
    parameters = model.parameters
    k, n, scale = instance.n_outcomes, instance.n_units, parameters.noise_scale
    assert scale is not None
    values = range(-reach, n + reach + 1)
    noisy = (
        np.array([(n - upper, upper) for upper in values])
        if model.complement
        else np.array(list(product(values, repeat=k)))
    )
    prior = (
        own_prior(noisy, n, parameters.truncation_threshold)
        if model.own_prior
        else np.full(noisy.shape, 1 / k)
    )
    noised = slice(1, 2) if model.complement else slice(None)
    both = []
    for counts, level in (
        (instance.counts, instance.from_cell),
        (instance.neighbour, instance.to_cell),
    ):
        noise = np.abs(noisy - np.array(counts))[:, noised]
        mass = np.prod(math.tanh(1 / (2 * scale)) * np.exp(-noise / scale), axis=1)
        rate = parameters.resampling_probability
        draws = rate * prior + (1 - rate) * (np.arange(k) == level)
        both.append((mass[:, np.newaxis] * draws).ravel())
    return both[0], both[1]


def brute_delta(p: Floats, q: Floats, epsilon: float) -> float:
    return float(
        max((p - math.exp(epsilon) * q).clip(0).sum(), (q - math.exp(epsilon) * p).clip(0).sum())
    )


SMALL = [
    # own prior, complement, counts, from, to, λ, γ, σ, reach
    (True, False, (1, 3, 0), 0, 1, 0.5, 0.25, 1.0, 14),
    (True, False, (2, 1, 3), 2, 0, 0.3, 0.05, 1.5, 14),
    (True, False, (5, 0, 4), 0, 2, 0.8, 1 / 3, 0.5, 12),
    (True, False, (1, 2, 1, 0), 0, 3, 0.6, 0.2, 0.6, 6),
    (True, False, (0, 4, 1, 1), 1, 0, 0.6, 0.01, 0.8, 5),
    (True, False, (1, 5), 0, 1, 0.5, 0.2, 1.0, 20),
    (True, True, (1, 5), 0, 1, 0.5, 0.2, 1.0, 20),
    (True, True, (4, 3), 1, 0, 0.9, 0.02, 3.0, 20),
    (False, False, (1, 2, 1), 0, 2, 0.5, 1 / 3, 1.0, 32),  # the third cell is not listed
    (False, True, (1, 2), 0, 1, 0.5, 0.5, 1.0, 12),
]


@pytest.mark.parametrize("small", SMALL, ids=str)
def test_outcomes_put_together_tell_what_they_tell_one_by_one(
    small: tuple[bool, bool, tuple[int, ...], int, int, float, float, float, int],
) -> None:
    own, complement, counts, given, taken, rate, gamma, scale, reach = small
    model = Model(Parameters.of(len(counts), rate, gamma, scale), own, complement)
    instance = Instance(counts, given, taken)
    found = enumerate_outcomes(model, instance, reach)
    p, q = brute_force(model, instance, reach)
    assert found.mass.sum() == pytest.approx(p.sum(), abs=1e-13)
    assert found.epsilon == pytest.approx(np.abs(np.log(p / q)).max(), abs=ROUNDING)
    for epsilon in np.linspace(0, found.epsilon, 7):
        exact = brute_delta(p, q, float(epsilon))
        assert found.listed_delta_at(float(epsilon)) == pytest.approx(exact, rel=1e-9, abs=1e-13)
        assert found.delta_at(float(epsilon)) >= exact
    missing = 1 - min(p.sum(), q.sum())
    assert missing <= found.tail_mass + 1e-13  # the rounding of a sum to one


@pytest.mark.parametrize(
    ("k", "n", "gamma"), [(3, 7, 0.1), (4, 5, 0.22), (4, 6, 1 / 6), (5, 3, 0.01)]
)
def test_a_prior_depends_on_its_own_count_and_the_total_alone(k: int, n: int, gamma: float) -> None:
    """Every vector of noisy counts gets the prior that the table has for its (cell, total)."""
    lattice = CountLattice(n, k, Parameters.of(k, 0.5, gamma, None).truncation_threshold)
    noisy = np.array(list(product(range(-1, n + 2), repeat=k)))
    prior = own_prior(noisy, n, lattice.gamma)
    levels = lattice.levels(noisy)
    clipped = levels == 0
    steps = np.where(clipped, 0, levels + lattice.lowest - 1)
    m, s = lattice.states
    position = {state: at for at, state in enumerate(zip(m.tolist(), s.tolist(), strict=True))}
    for cell in range(k):
        others = np.arange(k) != cell
        totals = zip(clipped[:, others].sum(axis=1), steps[:, others].sum(axis=1), strict=True)
        at = [position[int(m), int(s)] for m, s in totals]
        expected = lattice.priors[levels[:, cell], at]
        # A few 2⁻⁵³: the last bits depend on the order in which shares are added up.
        assert np.abs(prior[:, cell] - expected).max() <= 4 * k * 2.0**-53


# The examples of the method, to the 1 % that is asked for; they are reached to the last digit.


def worst(model: Model, n: int) -> float:
    k = model.parameters.n_outcomes
    return max(enumerate_outcomes(model, each).epsilon for each in worst_instances(n, k))


def test_two_noises_at_k_2_reach_4_398() -> None:
    two_noises = Model(Parameters.of(2, 0.5, 0.1, 1.0), own_prior=True, complement=False)
    assert worst(two_noises, 100) == pytest.approx(4.398, rel=0.01)
    lone = enumerate_outcomes(two_noises, Instance((1, 99), 0, 1))
    assert round(lone.epsilon, 3) == 4.398


def test_the_products_one_noise_at_k_2_reaches_3_398() -> None:
    mechanism = ClusterDP(Parameters.of(2, 0.5, 0.1, 1.0))
    assert worst(model_of(mechanism), 100) == pytest.approx(3.398, rel=0.01)
    assert worst(model_of(mechanism), 100) <= guarantee(mechanism) + ROUNDING


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("kind", [ClusterDP, ClusterFreeDP, UniformPriorDP])
def test_the_sum_formula_is_reached(
    k: int, kind: type[ClusterDP | ClusterFreeDP | UniformPriorDP]
) -> None:
    gamma = 1 / k if kind is UniformPriorDP else 0.1
    mechanism: Mechanism = kind(Parameters.of(k, 0.5, gamma, 1.0))
    found = worst(model_of(mechanism), 12)
    assert 0.99 * guarantee(mechanism) <= found <= guarantee(mechanism) + ROUNDING


def test_the_event_of_the_counterexample_has_the_stated_probabilities() -> None:
    """METHOD: 0.2939 and 0.00362 for {share 1 in [1/n, γ], 2 in [1 − γ, 1 − 1/n], ỹ = 1}."""
    scale, rate, gamma = 1.0, 0.5, 0.1
    upper, lower = np.arange(1, 11), np.arange(90, 100)
    normaliser = math.tanh(1 / (2 * scale))

    def mass(noisy: NDArray[np.int64], count: int) -> float:
        return float((normaliser * np.exp(-np.abs(noisy - count) / scale)).sum())

    # q̃ of cell 1 is γ or a little more, so the probabilities are those of γ to three digits.
    p = mass(upper, 1) * mass(lower, 99) * (1 - rate + rate * gamma)
    q = mass(upper, 0) * mass(lower, 100) * rate * gamma
    assert round(p, 4) == 0.2939
    assert round(q, 5) == 0.00362


# δ(ε)


@pytest.mark.parametrize("k", [3, 5])
def test_a_uniform_prior_with_counts_has_the_delta_of_the_dominating_pair(k: int) -> None:
    mechanism = UniformPriorDP(Parameters.of(k, 0.7, 1 / k, 2.0))
    parameters = mechanism.parameters
    response = Response(parameters.resampling_probability, parameters.truncation_threshold)
    event = Together((CountsNoise(2.0, 2), response))
    found = enumerate_outcomes(model_of(mechanism), Instance((1,) * k, 0, 1))
    for share in (0.0, 0.2, 0.5, 0.8, 0.99):
        epsilon = share * pure_epsilon(event)
        assert found.delta_at(epsilon) == pytest.approx(delta_at(event, epsilon), rel=1e-6)
    for delta in (1e-6, 1e-3, 0.1):
        assert found.epsilon_at(delta) == pytest.approx(epsilon_at(event, delta), rel=1e-6)


def test_epsilon_at_delta_inverts_delta_at_epsilon() -> None:
    model = model_of(ClusterDP(Parameters.of(3, 0.5, 0.1, 1.0)))
    found = enumerate_outcomes(model, Instance((1, 5, 6), 0, 2))
    assert found.epsilon_at(0.0) == found.epsilon
    for delta in (1e-9, 1e-4, 0.05, 0.3):
        assert found.listed_delta_at(found.epsilon_at(delta)) == pytest.approx(delta, rel=1e-6)
    assert found.epsilon_at(0.999) == 0.0


@pytest.mark.parametrize("reach", [3, 6, 12, 40])
def test_what_is_not_listed_is_bounded(reach: int) -> None:
    model = model_of(ClusterDP(Parameters.of(3, 0.5, 0.1, 2.0)))
    short, whole = (
        enumerate_outcomes(model, Instance((1, 5, 6), 0, 2), how) for how in (reach, None)
    )
    assert whole.tail_mass < 1e-16
    # No greater loss lies further out; what is missing of δ is less than the bound.
    assert short.epsilon == pytest.approx(whole.epsilon, abs=ROUNDING)
    assert 1 - short.mass.sum() <= short.tail_mass + 1e-15
    for epsilon in (0.1, 1.0, 2.0, 3.0):
        assert short.listed_delta_at(epsilon) <= whole.delta_at(epsilon) + 1e-15
        assert whole.listed_delta_at(epsilon) <= short.delta_at(epsilon) + 1e-15


def test_an_enumeration_is_a_distribution_whose_other_one_is_too() -> None:
    model = model_of(ClusterDP(Parameters.of(4, 0.7, 0.01, 3.0)))
    found: Enumeration = enumerate_outcomes(model, Instance((1, 5, 6, 20), 0, 3))
    assert found.mass.sum() == pytest.approx(1, abs=1e-13)
    assert (found.mass * np.exp(-found.loss)).sum() == pytest.approx(1, abs=1e-13)


# Instances


@pytest.mark.parametrize("k", [2, 3, 5, 12])
@pytest.mark.parametrize("n", [1, 2, 3, 60])
def test_instances_have_the_size_asked_for_and_somebody_to_change(n: int, k: int) -> None:
    found = worst_instances(n, k)
    assert found
    for each in found:
        assert (each.n_units, each.n_outcomes) == (n, k)
        assert sum(each.neighbour) == n
        assert np.abs(np.subtract(each.counts, each.neighbour)).sum() == 2


@pytest.mark.parametrize(
    ("counts", "given", "taken"), [((0, 3), 0, 1), ((3, 0), 0, 0), ((-1, 3), 1, 0)]
)
def test_what_is_no_pair_of_neighbours_is_refused(
    counts: tuple[int, ...], given: int, taken: int
) -> None:
    with pytest.raises(ValueError, match="no pair of neighbours"):
        Instance(counts, given, taken)
