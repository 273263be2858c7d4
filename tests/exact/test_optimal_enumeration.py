"""The list of a small release of Cluster-Optimal-DP is the whole list, and its losses are exact.

Designs are drawn from seeds that are the same in every run. Nothing here is random.
"""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privatizers.accounting.accountant import delta_at, pure_epsilon
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.parameters import OptimalParameters, event_of
from privatizers.mechanisms.statistics.noisy_squares import NoisySquares
from privatizers.optimal_response.response import OptimalResponse
from schemas.arrays import Floats
from tests.exact.enumeration import Enumeration, with_squares
from tests.exact.neighbours import Instance
from tests.exact.optimal_enumeration import (
    ArmInstance,
    Window,
    enumerate_optimal,
    optimal_enumerations,
)

LOSS = 1e-11  # arithmetic of a loss
ATTAINED = 1e-9  # how far the greatest loss may be under the claim
PROBABILITY = 1e-13
USUAL, MANY = 20, 500


def mechanism_of(
    k: int, response_epsilon: float, scale: float | None, guess: Floats | None = None
) -> ClusterOptimalDP:
    grid = tuple(float(value) for value in np.arange(k) ** 2)
    shares = np.full(k, 1 / k) if guess is None else guess
    return ClusterOptimalDP(
        OptimalParameters(grid, tuple(shares.tolist()), response_epsilon, scale)
    )


def claim(mechanism: ClusterOptimalDP) -> float:
    return pure_epsilon(event_of(mechanism.parameters))


def brute_force(
    mechanism: ClusterOptimalDP, instance: Instance, reach: int
) -> tuple[Floats, Floats]:
    """P and Q of every vector of noisy counts with every output, by the definition."""
    k, n, scale = instance.n_outcomes, instance.n_units, mechanism.parameters.noise_scale
    assert scale is not None
    line = range(-reach, n + reach + 1)
    vectors = (
        [(n - upper, upper) for upper in line]
        if k == 2
        else list(itertools.product(line, repeat=k))
    )
    noised = slice(1, 2) if k == 2 else slice(None)
    here: list[Floats] = []
    there: list[Floats] = []
    for noisy in vectors:
        response = mechanism.response(np.array([noisy]), np.array([n]))
        table = response.probabilities[response.table_of[0]]
        for counts, level, parts in (
            (instance.counts, instance.from_cell, here),
            (instance.neighbour, instance.to_cell, there),
        ):
            noise = np.abs(np.array(noisy) - np.array(counts))[noised]
            mass = np.prod(math.tanh(1 / (2 * scale)) * np.exp(-noise / scale))
            parts.append(mass * table[level])
    return np.concatenate(here), np.concatenate(there)


@pytest.mark.statistical  # long; nothing is drawn
@pytest.mark.parametrize(
    ("counts", "scale", "reach"),
    [
        ((1, 0), 0.7, 30),
        ((2, 1), 1.5, 60),
        pytest.param((0, 1, 0), 0.4, 5, marks=pytest.mark.soak),
        pytest.param((1, 0, 1), 0.7, 2, marks=pytest.mark.soak),
        ((0, 1, 0), 0.4, 2),
    ],
)
def test_a_list_with_intervals_of_one_number_is_the_list_of_everything(
    counts: tuple[int, ...], scale: float, reach: int
) -> None:
    mechanism = mechanism_of(len(counts), 1.3, scale)
    instance = Instance(counts, int(np.argmax(counts)), int(np.argmin(counts)))
    found = enumerate_optimal(mechanism, instance, Window(reach, 1, reach))
    p, q = brute_force(mechanism, instance, reach)
    seen = (p > 0) & (q > 0)
    tail = 2 - p.sum() - q.sum() + 1e-12
    assert tail < 0.1
    assert found.mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert (found.mass * np.exp(-found.loss)).sum() == pytest.approx(1.0, abs=1e-12)
    assert found.epsilon == pytest.approx(np.abs(np.log(p[seen] / q[seen])).max(), abs=LOSS)
    for epsilon in (0.1, 0.6, 1.2, 1.9):
        forward = (p - math.exp(epsilon) * q).clip(0).sum()
        backward = (q - math.exp(epsilon) * p).clip(0).sum()
        assert abs(found.listed_delta_at(epsilon) - max(forward, backward)) <= tail


def made_up(seed: int) -> tuple[ClusterOptimalDP, Instance, Window]:
    """K 2–4, ε₂ 0.2–5, σ 0.4–8 in logarithms, up to 12 units, a third with a further stratum.

    A quarter learns from counts of arms.
    """
    draw = np.random.default_rng([18, seed])
    k = int(draw.integers(2, 5))
    grid = np.cumsum(draw.uniform(0.1, 2.0, k)) - 1.0
    guess = draw.dirichlet(np.full(k, draw.choice([0.1, 1.0, 10.0])))
    scale = math.exp(draw.uniform(math.log(0.4), math.log(8)))
    parameters = OptimalParameters(
        tuple(grid.tolist()), tuple(guess.tolist()), float(draw.uniform(0.2, 5.0)), scale
    )
    counts = draw.multinomial(int(draw.integers(1, 13)), np.full(k, 1 / k))
    given = int(draw.choice(np.flatnonzero(counts)))
    taken = int(draw.choice([cell for cell in range(k) if cell != given]))
    instance = Instance(tuple(counts.tolist()), given, taken)
    if seed % 3 == 0:
        other = draw.multinomial(int(draw.integers(1, 30)), np.full(k, 1 / k))
        instance = ArmInstance(instance.counts, given, taken, (tuple(other.tolist()),))
    step, arm_step = (int(one) for one in draw.integers(1, 4, 2))
    reach = 2 if k == 2 else int(draw.integers(0, 2)) if seed % 3 else 0
    if seed % 4 == 1:  # counts of arms, and mostly none of strata
        of_strata = scale if seed % 8 == 1 and k == 2 else None
        parameters = replace(parameters, noise_scale=of_strata, arm_noise_scale=0.8 * scale)
    return ClusterOptimalDP(parameters), instance, Window(reach, step, arm_step=arm_step)


@pytest.mark.statistical  # long; the seeds are fixed
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(USUAL), id="some"),
        pytest.param(range(USUAL, MANY), id="all", marks=pytest.mark.soak),
    ],
)
def test_the_exact_loss_of_small_designs_is_within_the_claim_and_attains_it(seeds: range) -> None:
    for seed in seeds:
        mechanism, instance, window = made_up(seed)
        found = enumerate_optimal(mechanism, instance, window)
        stated, event = claim(mechanism), event_of(mechanism.parameters)
        assert stated - ATTAINED <= found.epsilon <= stated + LOSS, seed
        assert found.mass.sum() == pytest.approx(1.0, abs=1e-12)
        for share in (0.2, 0.95):
            listed = found.listed_delta_at(share * stated)
            assert listed <= delta_at(event, share * stated) + PROBABILITY, seed


@pytest.mark.statistical  # likewise
def test_noisy_counts_choose_between_tables_and_each_is_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where an arm's counts tell enough; noisier ones are shrunk to the declared guess."""
    mechanism, chosen = mechanism_of(3, 2.0, 0.5), set()
    honest = ClusterOptimalDP.response

    def watching(self: ClusterOptimalDP, *published: Any) -> OptimalResponse:
        found = honest(self, *published)
        chosen.add(found.tables_used[found.table_of[0]].units.tobytes())
        return found

    monkeypatch.setattr(ClusterOptimalDP, "response", watching)
    found = enumerate_optimal(mechanism, Instance((9, 5, 4), 0, 2), Window(1, 2))
    assert len(chosen) > 8
    assert found.epsilon == pytest.approx(claim(mechanism), abs=ATTAINED)


def of_arms(k: int, epsilon: float, scale: float | None, **other: Any) -> ClusterOptimalDP:
    """Counts of arms at 0.04 of ε, beside what there is of strata."""
    parameters = mechanism_of(k, epsilon, scale).parameters
    return ClusterOptimalDP(replace(parameters, arm_noise_scale=50.0, **other))


def squares_beside_means() -> ClusterOptimalDP:
    lattice = Lattice((0, 1, 2))
    squares = NoisySquares.of_price(lattice, 0.4, of_means=True)
    parameters = OptimalParameters((0.0, 1.0, 2.0), (1 / 3,) * 3, 1.0, 4.0, lattice, squares)
    return ClusterOptimalDP(parameters)


@pytest.mark.parametrize(
    "mechanism",
    [
        mechanism_of(2, 0.9, 20.0),
        mechanism_of(3, 1.9, 20.0),
        mechanism_of(4, 3.0, None),
        ClusterOptimalDP(
            OptimalParameters((0.0, 1.0, 2.0), (0.2, 0.5, 0.3), 1.5, 8.0, Lattice((0, 1, 2)))
        ),
        of_arms(3, 1.9, None),
        of_arms(3, 1.9, 20.0),
        of_arms(3, 1.9, 20.0, lattice=Lattice((0, 1, 2))),
    ],
    ids=["complement", "counts", "nothing", "means", "arms", "arms and counts", "arms and means"],
)
def test_the_instances_of_an_audit_attain_the_claim(mechanism: ClusterOptimalDP) -> None:
    listed = optimal_enumerations(mechanism)
    whole = [with_squares(mechanism.parameters, one) for one in listed]
    greatest = max(one.epsilon for one in whole)
    assert claim(mechanism) - ATTAINED <= greatest <= claim(mechanism) + LOSS
    masses = [one.mass.sum() + one.tail_mass for one in whole]
    np.testing.assert_allclose(masses, 1.0, atol=1e-12)


def test_means_and_squares_are_not_both_moved_by_all_that_they_are_priced_at() -> None:
    """From an end to the middle the sum moves by half of what it may: 1 + 1/4 + 0.4 of 1.9."""
    mechanism = squares_beside_means()
    listed = optimal_enumerations(mechanism)
    found = max(with_squares(mechanism.parameters, one).epsilon for one in listed)
    assert claim(mechanism) == pytest.approx(1.9)
    assert found == pytest.approx(1.65, abs=ATTAINED)


def test_a_table_that_keeps_more_than_it_should_is_listed_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that rules an outcome out: its loss has no bound."""
    mechanism = mechanism_of(3, 1.0, 5.0)
    instance = Instance((1, 0, 1), 0, 2)
    honest = mechanism.response(None, np.array([2]))

    def broken(moved: int) -> Enumeration:
        table = honest.tables_used[0]
        units = table.units.copy()
        least = int(np.argmin(units[0] / units[2]))
        part = int(units[0, least]) * moved // 100
        units[0, least] -= part
        units[0, int(np.argmax(units[0]))] += part
        response = OptimalResponse((replace(table, units=units),), np.zeros(1, dtype=np.int64))
        monkeypatch.setattr(ClusterOptimalDP, "response", lambda *_: response)
        return enumerate_optimal(mechanism, instance)

    assert claim(mechanism) + 0.009 < broken(1).epsilon < claim(mechanism) + 0.02
    assert broken(100).epsilon > 100
