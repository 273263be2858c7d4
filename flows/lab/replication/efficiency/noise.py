"""How much noise a unit's randomised outcome has at equal ε, and how little it could have.

For Experiment 1, δ = 0 and everything that is published paid for. Nothing is released: the noise of
a unit is worked out from the tables themselves, for the outcomes of every (cluster, arm), and
averaged over units and populations. Only where a table or a prior is made of noisy counts are these
drawn, by a generator with a fixed seed, so the rows are the same in every run.

The limit is the least noise of any ε-private unbiased randomiser, one for all, that is made by
somebody who knows how all outcomes are spread. Tables that are learnt cluster by cluster can be
below it.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.random import Generator, default_rng

from estimators.response.debias import prior_moments
from estimators.response.pool_statistics import unit_noise
from flows.lab.replication.experiment_one import GRID, SIZES, K, population, shares_of
from privatizers.mechanisms.prior import truncated_prior
from privatizers.mechanisms.statistics.noisy_counts import moved_cells
from privatizers.optimal_response.learnt_guess import learnt_response, public_response, solved
from privatizers.planning.design import Request, design
from privatizers.planning.grids import grids_of, optimal_grids_of, project_guess, rounding_variance
from privatizers.planning.optimal_design import COUNTS_SHARE
from privatizers.planning.planner import rank_options
from privatizers.planning.question import PlannedMechanism, Question
from schemas.arrays import Floats, Ints

LIMIT = "the limit, outcomes known"
PLANNED = "planned for a half alone"
CLUSTER = "cluster-dp"
UNIFORM = "uniform-prior-dp, full grid"
PUBLIC = "cluster-optimal-dp, public guess"
LEARNT = "cluster-optimal-dp, learnt"
_EVEN: Floats = np.full(K, 1.0 / K)
UNITS: Ints = SIZES.ravel()
"""Of each (cluster, arm), shape [6]."""


def spreads(n_populations: int) -> list[Floats]:
    """How outcomes are spread in each population, shape [6, K]: the same in every run."""
    random = default_rng(2026)
    return [shares_of(population(random)) for _ in range(n_populations)]


def everybody(shares: Floats) -> Floats:
    """Return how the outcomes of all units are spread; ``shares`` are those of strata, [6, K]."""
    mixture: Floats = UNITS @ shares / UNITS.sum()
    return mixture


def limit(epsilon: float, shares: Floats) -> float:
    """Return the noise of the randomiser that is best for the outcomes of all units."""
    outcomes = everybody(shares)
    return float(outcomes @ solved(GRID, outcomes, epsilon).noise)


def _uniform(epsilon: float, shares: Floats) -> float:
    rate = design(Request("uniform-prior-dp", K, "none", epsilon=epsilon)).mechanism.parameters
    return float(unit_noise(GRID, everybody(shares), _EVEN, rate.resampling_probability))


def _cluster_dp(epsilon: float, shares: Floats) -> float:
    """Of Cluster-DP with a tenth of ε for its counts and γ = 1/(2K)."""
    parameters = design(Request("cluster-dp", K, "counts", epsilon=epsilon)).mechanism.parameters
    if parameters.noise_scale is None:
        raise AssertionError("counts have noise")
    noise = discrete_laplace(
        default_rng(round(1e3 * epsilon)), parameters.noise_scale, shares.shape
    )
    counts = UNITS[:, np.newaxis] * shares + noise
    prior = truncated_prior(counts, UNITS.astype(np.float64), parameters.truncation_threshold)
    mean, spread = prior_moments(GRID, prior)
    about = np.sum(shares * (GRID - mean[:, np.newaxis]) ** 2, axis=1)
    odds = parameters.resampling_probability / (1.0 - parameters.resampling_probability)
    return float(UNITS @ (odds * about + odds * (1.0 + odds) * spread) / UNITS.sum())


def _planned(epsilon: float, shares: Floats) -> float:
    """Of the grid that the planner chooses for a half alone, with rounding onto it."""
    asked = replace(question_of(epsilon), statistics=("none",))
    grid = np.array(rank_options(asked)[0].grid)
    outcomes, k = everybody(shares), len(grid)
    of_grid = project_guess(GRID, outcomes, grid)
    rate = k / (np.exp(epsilon) + k - 1.0)
    noise = unit_noise(grid, of_grid, np.full(k, 1.0 / k), float(rate))
    return float(noise) + rounding_variance(GRID, outcomes, grid)


def question_of(epsilon: float, mechanism: PlannedMechanism = "uniform-prior-dp") -> Question:
    """Return what the planner is asked for a half alone at δ = 0."""
    grids = optimal_grids_of if mechanism == "cluster-optimal-dp" else grids_of
    return Question(
        epsilon=epsilon,
        delta=0.0,
        values=GRID,
        guess=_EVEN,
        grids=grids(GRID.tolist(), continuous=False),
        statistics=("counts", "means", "none"),
        sizes=SIZES,
        segment_shares=(0.5,),
        overall=False,
        mechanism=mechanism,
    )


def _public(epsilon: float, shares: Floats) -> float:
    (table_used,) = public_response(GRID, _EVEN, epsilon, 1).tables_used
    return float(everybody(shares) @ table_used.noise)


def learnt(epsilon: float, shares: Floats) -> float:
    """Return the noise of tables learnt from counts, which take a stated part of ε."""
    spent = COUNTS_SHARE * epsilon
    counts = np.rint(UNITS[:, np.newaxis] * shares).astype(np.int64)
    scale = moved_cells(K) / spent
    noisy = counts + discrete_laplace(default_rng(round(1e3 * epsilon)), scale, counts.shape)
    arm = np.tile(np.arange(2), len(SIZES))
    response = learnt_response(GRID, _EVEN, epsilon - spent, noisy, UNITS, spent, arm)
    noises = np.stack([one.noise for one in response.tables_used])[response.table_of]
    return float(UNITS @ np.sum(shares * noises, axis=1) / UNITS.sum())


def discrete_laplace(random: Generator, scale: float | None, shape: tuple[int, ...]) -> Ints:
    """Draw noise of this scale; 0 without a scale."""
    if scale is None:
        return np.zeros(shape, dtype=np.int64)
    up, down = random.geometric(-np.expm1(-1.0 / scale), (2, *shape))
    noise: Ints = up - down
    return noise


RELEASES: dict[str, Callable[[float, Floats], float]] = {
    CLUSTER: _cluster_dp,
    UNIFORM: _uniform,
    PLANNED: _planned,
    PUBLIC: _public,
    LEARNT: learnt,
    LIMIT: limit,
}
"""The noise of a unit at an ε, in the squared unit of outcomes, rounding included; by release."""
