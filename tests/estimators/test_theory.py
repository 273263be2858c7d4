"""Theory against everything that can happen in tiny experiments, and against sums done by hand.

Nothing here is random but for made-up parameters from fixed seeds: no test has a false alarm.
"""

import math
from collections.abc import Callable, Iterator
from itertools import permutations, product

import numpy as np
import pytest

from estimators.response.debias import debias_vector
from estimators.response.pool_statistics import unit_noise
from estimators.theory import (
    Population,
    cluster_prior_gap_bound,
    homogeneity,
    no_privacy_variance,
    noisy_histogram_gap,
    noisy_horvitz_thompson_gap,
    prior_distance_bound,
    prior_penalty,
    sample_variances,
    uniform_prior_variance,
)
from privatizers.mechanisms.prior import truncated_prior
from schemas.arrays import Floats, Ints

GRID = np.array([-1.0, 0.5, 4.0])
SEED_GRID = np.arange(-5.0, 7.0)
"""The twelve outcomes of the paper's Experiment 1, with its λ, γ and σ in ``DEFAULTS``."""
DEFAULTS = (0.8, 0.02, 10.0)


def assignments(sizes: tuple[int, ...]) -> Ints:
    """Every way to give that many units each arm, shape [assignments, n]."""
    arms = [arm for arm, size in enumerate(sizes) for _ in range(size)]
    return np.array(sorted(set(permutations(arms))))


def every_estimate(grid: Floats, levels: Ints, sizes: tuple[int, ...], rate: float) -> Floats:
    """Value and probability of one cluster's difference, over assignments and all draws.

    Shape [2, possibilities]; the response matrix is inverted as the paper writes it.
    """
    k = len(grid)
    matrix = (1 - rate) * np.eye(k) + rate / k
    weight = grid @ np.linalg.inv(matrix)
    draws = np.array(list(product(range(k), repeat=sum(sizes))))
    values, chances = [], []
    for arm in assignments(sizes):
        seen = levels[np.minimum(arm, 1), np.arange(len(arm))]
        treated, control = (weight[draws[:, arm == one]].mean(axis=1) for one in (1, 0))
        values.append(treated - control)
        chances.append(matrix[draws, seen].prod(axis=1) / len(assignments(sizes)))
    return np.stack([np.concatenate(values), np.concatenate(chances)])


def spread(listed: Floats) -> tuple[float, float]:
    values, chances = listed
    mean = float(chances @ values)
    return mean, float(chances @ (values - mean) ** 2)


LEVELS = np.array([[0, 0, 1, 2, 1, 2], [1, 0, 2, 2, 2, 0]])
"""Six units whose effects differ from one to the next."""


@pytest.mark.parametrize("sizes", [(3, 3), (4, 2), (1, 5), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("rate", [0.2, 0.8])
def test_the_uniform_priors_variance_is_that_of_every_possible_estimate(
    sizes: tuple[int, ...], rate: float
) -> None:
    """Also where a third arm takes units that both outcomes are counted for."""
    population = Population.of_units(GRID, LEVELS, np.zeros(6, dtype=np.int64))
    found = uniform_prior_variance(population, np.array([sizes[:2]]), rate)
    mean, variance = spread(every_estimate(GRID, LEVELS, sizes, rate))
    assert mean == pytest.approx(np.mean(GRID[LEVELS[1]] - GRID[LEVELS[0]]), rel=1e-9)
    assert found.total == pytest.approx(variance, rel=1e-9)


def test_strata_are_put_together_by_their_share_of_units() -> None:
    """Two clusters, every possible pair of their estimates."""
    cluster = np.array([0, 0, 1, 1, 1, 1])
    own = [(LEVELS[:, :2], (1, 1)), (LEVELS[:, 2:], (1, 3))]
    parts = [spread(every_estimate(GRID, levels, sizes, 0.4))[1] for levels, sizes in own]
    population = Population.of_units(GRID, LEVELS, cluster)
    found = uniform_prior_variance(population, np.array([[1, 1], [1, 3]]), 0.4)
    assert found.total == pytest.approx(parts[0] / 9 + parts[1] * 4 / 9, rel=1e-9)
    assert found.total != pytest.approx(parts[0] / 4 + parts[1] / 4, rel=0.01)


def test_its_parts_by_hand() -> None:
    """S² = 1/3, 1/4 and 1/4 of the effects; then the paper's Equation (9), λ = 1/2: 3/4."""
    levels = np.array([[0, 0, 1, 1], [0, 1, 1, 1]])
    population = Population.of_units(np.array([0.0, 1.0]), levels, np.zeros(4, dtype=np.int64))
    found = uniform_prior_variance(population, np.array([[2, 2]]), 0.5)
    assert found.assignment == pytest.approx(1 / 6 + 1 / 8 - 1 / 16)
    assert found.noise == pytest.approx(0.75)


def printed_noise(population: Population, sizes: Ints, rate: float) -> float:
    """The last three terms of Equation (7), as they stand there."""
    grid = population.grid
    square, mean, kept = float(np.mean(grid**2)), float(grid.mean()), 1 - rate
    weight = (population.n_units / population.n_units.sum()) ** 2
    own, own_square = population.shares @ grid, population.shares @ grid**2
    first = (1 / sizes).sum(axis=1) * (rate * square - rate**2 * mean**2) / kept**2
    second = rate / kept * (own_square / sizes).sum(axis=1)
    third = 2 * rate * mean / kept * (own / sizes).sum(axis=1)
    return float(weight @ (first + second - third))


def made_up(random: np.random.Generator) -> tuple[Population, Ints]:
    k, sizes = int(random.integers(2, 7)), random.integers(2, 9, (int(random.integers(1, 5)), 2))
    cluster = np.repeat(np.arange(len(sizes)), sizes.sum(axis=1))
    grid = np.sort(random.normal(random.normal(), 3, k))
    return Population.of_units(grid, random.integers(0, k, (2, len(cluster))), cluster), sizes


def test_the_noise_is_that_of_the_papers_equation() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        population, sizes = made_up(random)
        rate = float(random.uniform(0.05, 0.95))
        noise = uniform_prior_variance(population, sizes, rate).noise
        assert noise == pytest.approx(printed_noise(population, sizes, rate), rel=1e-9)


def test_a_population_is_summed_up_as_numpy_would() -> None:
    cluster = np.array([0, 1, 1, 0, 1, 1])
    found = Population.of_units(GRID, LEVELS, cluster)
    for nth in range(2):
        own = GRID[LEVELS[:, cluster == nth]]
        assert found.variances[nth] == pytest.approx(own.var(axis=1, ddof=1))
        assert found.effect_variance[nth] == pytest.approx((own[1] - own[0]).var(ddof=1))
    assert found.n_units.tolist() == [2, 4]


# Definition 3.4


def test_homogeneity_by_hand() -> None:
    """Clusters of 4 and 6 units in 10, S² = 2 and 3, two and three units in the arm."""
    variances, sizes = np.array([[2.0], [3.0]]), np.array([[2], [3]])
    found = homogeneity(variances, sizes, np.array([4, 6]))
    assert found == pytest.approx([0.16 * 2 / 2 + 0.36 * 3 / 3])


def test_homogeneity_is_zero_for_clusters_of_one_outcome_each() -> None:
    levels, cluster = np.array([[0, 0, 2, 2], [1, 1, 1, 1]]), np.array([0, 0, 1, 1])
    population = Population.of_units(GRID, levels, cluster)
    assert homogeneity(population.variances, np.ones((2, 2)), population.n_units).tolist() == [0, 0]
    whole = Population.of_units(GRID, levels, np.zeros(4, dtype=np.int64))
    assert homogeneity(whole.variances, np.ones((1, 2)), whole.n_units)[0] > 1


def test_without_effects_that_differ_homogeneity_is_the_whole_variance() -> None:
    random = np.random.default_rng(6)
    for _ in range(50):
        population, sizes = made_up(random)
        phi = homogeneity(population.variances, sizes, population.n_units).sum()
        off = (population.n_units / population.n_units.sum()) ** 2 @ (
            population.effect_variance / population.n_units
        )
        assert no_privacy_variance(population, sizes) == pytest.approx(phi - off, rel=1e-9)


# Theorem 3.5


def with_the_main_texts_plus(n: float, grid: Floats, rate: float, gamma: float, s: float) -> float:
    """A(n) as the main text prints it."""
    k, largest, kept = len(grid), float(np.abs(grid).max()), 1 - rate
    distance = float(prior_distance_bound(np.array(n), k, gamma, s))
    added = 3 * largest**2 + (rate * math.sqrt(k) + 1) ** 2
    added += float(grid @ grid) * (1 - rate * (k - 1) * gamma)
    return distance * (2 * largest**2 + added / kept**2)


def printed(n: float, grid: Floats, rate: float, gamma: float, s: float) -> float:
    return float(prior_penalty(np.array([n]), grid, rate, gamma, s).printed[0])


def tight(n: float, grid: Floats, rate: float, gamma: float, s: float) -> float:
    return float(prior_penalty(np.array([n]), grid, rate, gamma, s).tight[0])


def test_the_penalty_by_hand() -> None:
    """K = 2, outcomes 0 and 2, λ = 1/2, γ = 1/4, n = σ: every factor on its own."""
    distance = 4 * (0.25 + math.exp(-0.25) - math.exp(-1))
    found = prior_penalty(np.array([3]), np.array([0.0, 2.0]), 0.5, 0.25, 3.0)
    singular = (math.sqrt(2) / 2 + 1) ** 2 * 4
    assert found.printed[0] == pytest.approx(distance * (4 * 14 + singular * 4 * 0.875))
    assert found.tight[0] == pytest.approx(distance * (4 * 14 + 4 * 2.25 / 0.5))


def test_the_penalty_at_the_papers_parameters() -> None:
    """A(250): 48384 as the appendix has it, 6517 with the main text's plus, 3564 tighter."""
    assert printed(250, SEED_GRID, *DEFAULTS) == pytest.approx(48384, abs=0.5)
    assert tight(250, SEED_GRID, *DEFAULTS) == pytest.approx(3564, abs=0.5)
    assert with_the_main_texts_plus(250, SEED_GRID, *DEFAULTS) == pytest.approx(6517, abs=0.5)


def grows_with_the_square_of_the_unit(penalty: Callable[..., float]) -> bool:
    """Whether outcomes in cents cost 100² times what they cost in euros."""
    euros, cents = (penalty(250, unit * SEED_GRID, *DEFAULTS) for unit in (1, 100))
    return cents == pytest.approx(1e4 * euros, rel=1e-9)


def test_the_main_texts_plus_is_caught() -> None:
    assert grows_with_the_square_of_the_unit(printed)
    assert grows_with_the_square_of_the_unit(tight)
    assert not grows_with_the_square_of_the_unit(with_the_main_texts_plus)


def test_the_tighter_form_is_never_more() -> None:
    """The main text's is, at times, for outcomes in large units: it cannot be what was proved."""
    random, ratios, wrong = np.random.default_rng(7), [], []
    for _ in range(2_000):
        k = int(random.integers(2, 13))
        grid = np.sort(random.normal(random.normal(0, 3), 10.0 ** random.uniform(-1, 4), k))
        rate, gamma = float(random.uniform(0.001, 0.999)), float(random.uniform(0.001, 1)) / k
        given = (10.0 ** random.uniform(0, 4), grid, rate, gamma, 10.0 ** random.uniform(-1, 3))
        ratios.append(tight(*given) / printed(*given))
        wrong.append(tight(*given) / with_the_main_texts_plus(*given))
    assert 0 < min(ratios) < max(ratios) <= 1
    assert max(ratios) > 0.5  # it is no trifle beside it
    assert max(wrong) > 1


def discrete_laplace(scale: float) -> tuple[Ints, Floats]:
    reach = math.ceil(36 * scale) + 1
    k = np.arange(-reach, reach + 1)
    chance = np.exp(-np.abs(k) / scale)
    return k, chance / chance.sum()


def every_prior(counts: Ints, scale: float, gamma: float) -> tuple[Floats, Floats]:
    """Priors that noise can make of a stratum's counts, shape [draws, K], and their chances.

    By the product's own function; one noise for K = 2, as the product draws it.
    """
    noise, chance = discrete_laplace(scale)
    if len(counts) == 2:
        z, chances = np.stack([-noise, noise], axis=1), chance
    else:
        z = np.stack(np.meshgrid(*[noise] * len(counts), indexing="ij"), -1)
        z = z.reshape(-1, len(counts))
        chances = np.prod(np.stack(np.meshgrid(*[chance] * len(counts), indexing="ij")), 0).ravel()
    return truncated_prior(counts + z, np.full(len(z), counts.sum()), gamma), chances


def small_strata() -> Iterator[tuple[Ints, float, float]]:
    for n, scale, share in product((1, 2, 5, 30), (0.1, 0.7, 3.0, 20.0), (0.02, 0.4, 1.0)):
        for first in range(n // 2 + 1):
            yield np.array([first, n - first]), scale, share / 2
    for counts, scale in product(([1, 0, 0], [2, 1, 3], [0, 9, 1]), (0.2, 0.8)):
        for share in (0.02, 0.4, 1.0):
            yield np.array(counts), scale, share / 3


@pytest.mark.statistical
def test_a_noisy_prior_is_no_farther_from_the_truth_than_the_lemma_says() -> None:
    """Also with whole numbers for noise: in the mean over every draw."""
    ratios = []
    for counts, scale, gamma in small_strata():
        prior, chance = every_prior(counts, scale, gamma)
        own = float(chance @ np.abs(prior - counts / counts.sum()).sum(axis=1))
        most = prior_distance_bound(counts.sum(), len(counts), gamma, scale)
        ratios.append(own / float(most))
    assert max(ratios) <= 1
    assert max(ratios) > 0.45  # half of it, and this would fail


def exact_gap(grid: Floats, levels: Ints, sizes: tuple[int, int], given: Floats) -> float:
    """What Cluster-DP adds to the variance in one cluster, over assignments and every noise.

    Given the prior a debiased outcome is right on average, so the prior's own variance adds none.
    """
    rate, gamma, scale = given
    total = 0.0
    for arm in assignments(sizes):
        for one in range(2):
            counts = np.bincount(levels[one, arm == one], minlength=len(grid))
            prior, chance = every_prior(counts, scale, gamma)
            vector = debias_vector(grid, prior, rate)
            response = (1 - rate) * np.eye(len(grid)) + rate * prior[:, np.newaxis, :]
            noise = np.einsum("zyj,zj->zy", response, vector**2) - grid**2
            total += float(chance @ noise @ counts) / counts.sum() ** 2
    return total / len(assignments(sizes))


BINARY = np.array([[0, 0, 1, 0, 1, 0], [1, 0, 1, 1, 1, 0]])


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("gamma", [0.01, 0.2, 0.5])
@pytest.mark.parametrize("scale", [0.2, 1.0, 8.0])
@pytest.mark.parametrize("sizes", [(3, 3), (5, 1)], ids=str)
def test_the_bounds_hold_for_every_noise(
    rate: float, gamma: float, scale: float, sizes: tuple[int, int]
) -> None:
    grid = np.array([-1.0, 2.0])
    population = Population.of_units(grid, BINARY, np.zeros(6, dtype=np.int64))
    found = cluster_prior_gap_bound(population, np.array([sizes]), rate, gamma, scale)
    gap = exact_gap(grid, BINARY, sizes, np.array([rate, gamma, scale]))
    assert 0 < gap <= found.tight <= found.printed


@pytest.mark.statistical
def test_they_hold_for_three_outcomes() -> None:
    population = Population.of_units(GRID, LEVELS, np.zeros(6, dtype=np.int64))
    given = np.array([0.6, 0.05, 0.8])
    found = cluster_prior_gap_bound(population, np.array([[5, 1]]), *given)
    assert 0 < exact_gap(GRID, LEVELS, (5, 1), given) <= found.tight <= found.printed


def test_next_to_no_noise_leaves_the_first_part_but_for_one_unit_in_an_arm() -> None:
    """q̃ = p̂ then, and the gap is (1/(1 − λ)² − 1) φ_a (n_a − 1)/n_a: the bound is no idle one."""
    grid, sizes, rate = np.array([-1.0, 2.0]), (3, 3), 0.7
    population = Population.of_units(grid, BINARY, np.zeros(6, dtype=np.int64))
    found = cluster_prior_gap_bound(population, np.array([sizes]), rate, 1e-9, 1e-9)
    gap = exact_gap(grid, BINARY, sizes, np.array([rate, 1e-9, 1e-9]))
    assert gap == pytest.approx(found.within * 2 / 3, rel=1e-6)
    assert found.printed == pytest.approx(found.within, rel=1e-5)


def test_the_bound_of_clusters_adds_up() -> None:
    """Σ b_c² of each cluster's own bound."""
    cluster, sizes = np.array([0, 0, 1, 1, 1, 1]), np.array([[1, 1], [1, 3]])
    whole = cluster_prior_gap_bound(
        Population.of_units(GRID, LEVELS, cluster), sizes, 0.4, 0.1, 2.0
    )
    parts = []
    for nth in range(2):
        own = LEVELS[:, cluster == nth]
        alone = Population.of_units(GRID, own, np.zeros(own.shape[1], dtype=np.int64))
        parts.append(cluster_prior_gap_bound(alone, sizes[nth : nth + 1], 0.4, 0.1, 2.0))
    for name in ("within", "prior_printed", "prior_tight", "printed", "tight"):
        expected = getattr(parts[0], name) / 9 + getattr(parts[1], name) * 4 / 9
        assert getattr(whole, name) == pytest.approx(expected, rel=1e-12)


def test_at_one_share_per_outcome_the_prior_is_uniform_and_the_bound_holds() -> None:
    population = Population.of_units(GRID, LEVELS, np.zeros(6, dtype=np.int64))
    for rate in (0.05, 0.5, 0.99):
        exact = uniform_prior_variance(population, np.array([[3, 3]]), rate).noise
        most = cluster_prior_gap_bound(population, np.array([[3, 3]]), rate, 1 / 3, 1e6)
        assert exact <= most.tight


# Propositions A.2 and A.3


def test_a_difference_changes_by_the_range_over_the_smaller_arm() -> None:
    """Every pair of neighbours; the paper's max |y| is too little here, by 6 to 11."""
    sizes, grid = (1, 2), SEED_GRID
    levels = np.array(list(product(range(len(grid)), repeat=3)))
    difference = grid[levels[:, 1:]].mean(axis=1) - grid[levels[:, 0]]
    cube = difference.reshape([len(grid)] * 3)
    most = max(float(np.ptp(cube, axis=axis).max()) for axis in range(3))
    scale_squared = noisy_horvitz_thompson_gap(grid, np.array([sizes]), np.array([3]), 1.0) / 2
    assert scale_squared == pytest.approx(most**2)
    assert scale_squared > 3 * float(np.abs(grid).max()) ** 2


def test_the_gaps_by_hand() -> None:
    """Clusters of 4 and 6 in 10, arms of 1 and 3, 2 and 4; R = 5 and Σ(y − ȳ)² = 241/18."""
    sizes, n = np.array([[1, 3], [2, 4]]), np.array([4, 6])
    found = noisy_horvitz_thompson_gap(GRID, sizes, n, 0.5)
    assert found == pytest.approx(2 * (0.16 * 25 + 0.36 * 25 / 4) / 0.25)
    a = math.exp(-0.5 / 2)
    noise = 2 * a / (1 - a) ** 2
    weight = 0.16 * (1 + 1 / 9) + 0.36 * (1 / 4 + 1 / 16)
    square = float(((GRID - 3.5 / 3) ** 2).sum())
    assert noisy_histogram_gap(GRID, sizes, n, 0.5) == pytest.approx(noise * square * weight)


def test_the_histogram_costs_four_times_the_printed_variance() -> None:
    """At small ε and on a grid about 0, where nothing else differs."""
    grid, sizes, n = np.array([-2.0, -1.0, 3.0]), np.array([[5, 7]]), np.array([12])
    misprint = 2 / 1e-4 * float(grid @ grid) * (1 / 25 + 1 / 49)
    assert noisy_histogram_gap(grid, sizes, n, 1e-2) == pytest.approx(4 * misprint, rel=1e-5)


def test_shifting_all_outcomes_changes_nothing_but_the_bounds() -> None:
    sizes, n = np.array([[3, 3]]), np.array([6])
    for gap in (noisy_histogram_gap, noisy_horvitz_thompson_gap):
        assert gap(GRID + 50, sizes, n, 1.0) == pytest.approx(gap(GRID, sizes, n, 1.0))
    here, there = (
        Population.of_units(grid, LEVELS, np.zeros(6, dtype=np.int64)) for grid in (GRID, GRID + 50)
    )
    assert uniform_prior_variance(there, sizes, 0.5).total == pytest.approx(
        uniform_prior_variance(here, sizes, 0.5).total
    )
    middle = Population(GRID - 1.5, here.n_units, here.shares, here.effect_variance)
    least, own, most = (
        cluster_prior_gap_bound(one, sizes, 0.5, 0.1, 1.0).tight for one in (middle, here, there)
    )
    assert least < own < most


def test_a_histogram_is_never_the_better_one_for_a_lone_effect() -> None:
    """With noise that is not too small for whole numbers: ε up to 4, three outcomes or more."""
    random = np.random.default_rng(8)
    for _ in range(300):
        population, sizes = made_up(random)
        given = (population.grid, sizes, population.n_units, float(random.uniform(0.01, 4)))
        if len(population.grid) > 2:
            assert noisy_histogram_gap(*given) >= noisy_horvitz_thompson_gap(*given)


# faults


def flat(**changes: Floats) -> Population:
    given = {
        "grid": GRID,
        "n_units": np.array([4.0]),
        "shares": np.full((1, 2, 3), 1 / 3),
        "effect_variance": np.zeros(1),
    }
    return Population(**given | changes)


def test_a_guess_will_do_for_a_population() -> None:
    """Uniform shares and no word on effects: 64/12 over three units and one is no less than so."""
    own = float(sample_variances(GRID, np.full(3, 1 / 3), np.array(4.0)))
    assert no_privacy_variance(flat(), np.array([[3, 1]])) == pytest.approx(own * (1 / 3 + 1))
    unit = unit_noise(GRID, np.full(3, 1 / 3), np.full(3, 1 / 3), 0.3)
    found = uniform_prior_variance(flat(), np.array([[3, 1]]), 0.3).noise
    assert found == pytest.approx(unit * (1 / 3 + 1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shares": np.full((1, 3, 3), 1 / 3)}, "shape"),
        ({"shares": np.full((1, 2, 3), 1 / 2)}, "add up to one"),
        ({"shares": np.array([[[-0.5, 0.5, 1.0]] * 2])}, "at least 0"),
        ({"n_units": np.array([1.0])}, "two units"),
        ({"effect_variance": np.zeros(2)}, "one entry a cluster"),
    ],
)
def test_what_is_no_population_is_refused(changes: dict[str, Floats], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        flat(**changes)


@pytest.mark.parametrize("sizes", [[[3, 2]], [[4, 0]], [[2, 2, 1]], [[1, 1], [1, 1]]], ids=str)
def test_sizes_that_do_not_fit_are_refused(sizes: list[list[int]]) -> None:
    asked: list[Callable[[Ints], object]] = [
        lambda given: no_privacy_variance(flat(), given),
        lambda given: cluster_prior_gap_bound(flat(), given, 0.5, 0.1, 1.0),
        lambda given: noisy_histogram_gap(GRID, given, np.array([4]), 1.0),
        lambda given: noisy_horvitz_thompson_gap(GRID, given, np.array([4]), 1.0),
    ]
    for one in asked:
        with pytest.raises(ValueError, match=r"sizes have the shape|every cluster needs"):
            one(np.array(sizes))


@pytest.mark.parametrize(
    "given", [(0.0, 0.1, 1.0), (1.0, 0.1, 1.0), (0.5, 0.0, 1.0), (0.5, 0.4, 1.0), (0.5, 0.1, 0.0)]
)
def test_parameters_out_of_range_are_refused(given: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"λ|γ"):
        cluster_prior_gap_bound(flat(), np.array([[2, 2]]), *given)
    for gap in (noisy_histogram_gap, noisy_horvitz_thompson_gap):
        with pytest.raises(ValueError, match="ε"):
            gap(GRID, np.array([[2, 2]]), np.array([4]), 0.0)
