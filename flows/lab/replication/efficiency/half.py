"""The variance of the effect on a random half of everybody, worked out for releases at equal ε.

For Experiment 1, δ = 0 and everything that is published paid for. No outcome is drawn. Where tables
are learnt from noisy counts, a generator with a fixed seed draws these, and the variance is that of
a release with them; so the rows are the same in every run.
"""

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from estimators.response.pool_statistics import (
    MeansStatisticNoise,
    ResponseNoise,
    declared_weights,
    unit_noise,
)
from flows.lab.replication.efficiency.noise import (
    LEARNT,
    PLANNED,
    PUBLIC,
    UNIFORM,
    UNITS,
    discrete_laplace,
    question_of,
)
from flows.lab.replication.experiment_one import GRID, SIZES, K
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.planning.design import Request, design
from privatizers.planning.grids import project_guess, rounding_variance
from privatizers.planning.optimal_design import OptimalRequest, optimal_design
from privatizers.planning.planner import plan
from schemas.arrays import Floats

PLANNED_TABLES = "cluster-optimal-dp, planned for a half alone"


def half_releases(
    epsilon: float,
) -> dict[str, tuple[Mechanism | ClusterOptimalDP, Floats]]:
    """Return releases at an ε with their grids, by name; those that are planned, for a half."""
    asked = OptimalRequest(tuple(GRID.tolist()), (1.0 / K,) * K, epsilon, 0.0, "counts")
    nothing = replace(asked, strata_statistic="none", learn_from="nothing")
    uniform = design(Request("uniform-prior-dp", K, "none", epsilon=epsilon)).mechanism
    priors, tables = plan(question_of(epsilon)), plan(question_of(epsilon, "cluster-optimal-dp"))
    return {
        PLANNED: (priors.design.mechanism, np.array(priors.option.grid)),
        UNIFORM: (uniform, GRID),
        PUBLIC: (optimal_design(nothing).mechanism, GRID),
        LEARNT: (optimal_design(asked).mechanism, GRID),
        PLANNED_TABLES: (tables.design.mechanism, np.array(tables.option.grid)),
    }


def plain_variance(shares: Floats) -> float:
    """Return the variance of the effect on a random half without privacy; else as below."""
    n, mean = UNITS.astype(np.float64), shares @ GRID
    spread = np.sum(shares * (GRID - mean[:, np.newaxis]) ** 2, axis=1) * n / (n - 1.0)
    share = np.repeat(SIZES.sum(axis=1) / SIZES.sum(), 2)
    return float(share**2 @ (spread * 2.0 / n))


def half_variance(
    shares: Floats, mechanism: Mechanism | ClusterOptimalDP, grid: Floats, random: Generator
) -> float:
    """Return the variance of τ̂ in a random half: ``combined``, or τ̂_Q where nothing is published.

    Σ_s b² [S²/m + r/m + 2 v (1 − w)/n + w² (v/n + V_M)] over (cluster, arm)s, half of whose n units
    are in the segment, m = n/2: of S² the outcomes', r that of rounding onto the ``grid``, v the
    noise of a unit, w the weight of the statistic with the variance V_M, and b the cluster's share.

    ``shares`` says how the outcomes of each (cluster, arm) are spread, shape [6, K].
    """
    n = UNITS.astype(np.float64)
    rounded = np.stack([project_guess(GRID, one, grid) for one in shares])
    rounding = np.array([rounding_variance(GRID, one, grid) for one in shares])
    response, units = _noises(mechanism, grid, rounded, random)
    weight, variance = np.zeros_like(n), np.zeros_like(n)
    parameters = mechanism.parameters
    noise = parameters.noise_on(grid)
    if noise is not None:
        weight = declared_weights(grid, response, noise, n).of_mean
        of_sum = noise.of_outcomes if isinstance(noise, MeansStatisticNoise) else noise.of_sum(grid)
        variance = of_sum.second / n**2
    share = np.repeat(SIZES.sum(axis=1) / SIZES.sum(), 2)
    of_units = rounding * 2.0 / n + 2.0 * units * (1.0 - weight) / n
    return plain_variance(shares) + float(
        share**2 @ (of_units + weight**2 * (units / n + variance))
    )


def _noises(
    mechanism: Mechanism | ClusterOptimalDP, grid: Floats, rounded: Floats, random: Generator
) -> tuple[ResponseNoise, Floats]:
    """Return a unit's noise by an even guess, and in each (cluster, arm), shape [6].

    ``rounded`` says how outcomes on the grid are spread in these, a row each.
    """
    even = np.full(len(grid), 1.0 / len(grid))
    if isinstance(mechanism, ClusterOptimalDP):
        noisy = of_arms = None
        counts = np.rint(UNITS[:, np.newaxis] * rounded).astype(np.int64)
        if mechanism.parameters.counts is not None:
            scale = mechanism.parameters.noise_scale
            noisy = counts + discrete_laplace(random, scale, counts.shape)
        if mechanism.parameters.arm_counts is not None:
            whole = counts.reshape(-1, 2, len(grid)).sum(axis=0)
            scale = mechanism.parameters.arm_noise_scale
            of_arms = whole + discrete_laplace(random, scale, whole.shape)
        arm = np.tile(np.arange(2), len(SIZES))
        response = mechanism.response(noisy, UNITS, arm, of_arms)
        noises = np.stack([one.noise for one in response.tables_used])[response.table_of]
        return mechanism.response_noise(even), np.sum(rounded * noises, axis=1)
    rate = mechanism.parameters.resampling_probability
    of_units = [unit_noise(grid, one, even, rate) for one in rounded]
    return ResponseNoise.of_prior(grid, even, even, rate), np.array(of_units)
