"""The variance of the effect on a random half of everybody, worked out for releases at equal ε.

For Experiment 1, δ = 0 and everything that is published paid for. No outcome is drawn. Where tables
are learnt from noisy counts, a generator with a fixed seed draws these, and the variance is that of
a release with them; so the rows are the same in every run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator, default_rng

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
    NoiseScale,
    cells,
    discrete_laplace,
    question_of,
)
from flows.lab.replication.experiment_one import GRID, SIZES, K
from flows.runtime.terminal import table
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.planning.design import Request, design
from privatizers.planning.grids import project_guess, rounding_variance
from privatizers.planning.optimal_design import OptimalRequest, optimal_design
from privatizers.planning.planner import plan
from schemas.arrays import Floats

PLANNED_TABLES = "cluster-optimal-dp, planned for a half alone"


@dataclass(frozen=True)
class HalfRow:
    """The variance of the effect on a random half of everybody, worked out and averaged."""

    epsilon: float
    """Of everything that is published together; δ = 0."""
    release: str
    levels: int
    strata_statistic: str
    variance: float
    over_planned: float
    """``variance`` over that of the release that is planned among uniform priors."""
    n_populations: int


def half_rows(scale: NoiseScale) -> tuple[HalfRow, ...]:
    """Return the rows of Experiment 1, by ε."""
    people = scale.people
    return tuple(row for epsilon in scale.epsilons for row in _rows(epsilon, people))


def _rows(epsilon: float, people: Sequence[Floats]) -> Iterator[HalfRow]:
    asked = OptimalRequest(tuple(GRID.tolist()), (1.0 / K,) * K, epsilon, 0.0, "counts")
    nothing = replace(asked, strata_statistic="none", learn_from="nothing")
    learnt, public = optimal_design(asked), optimal_design(nothing)
    uniform = design(Request("uniform-prior-dp", K, "none", epsilon=epsilon)).mechanism
    priors, tables = plan(question_of(epsilon)), plan(question_of(epsilon, "cluster-optimal-dp"))
    releases: list[tuple[str, Mechanism | ClusterOptimalDP, Floats]] = [
        (PLANNED, priors.design.mechanism, np.array(priors.option.grid)),
        (UNIFORM, uniform, GRID),
        (PUBLIC, public.mechanism, GRID),
        (LEARNT, learnt.mechanism, GRID),
        (PLANNED_TABLES, tables.design.mechanism, np.array(tables.option.grid)),
    ]
    base: float | None = None
    for name, mechanism, grid in releases:
        random = default_rng(round(1e3 * epsilon))
        variance = float(np.mean([half_variance(one, mechanism, grid, random) for one in people]))
        base = variance if base is None else base
        statistic = mechanism.parameters.strata_statistic
        yield HalfRow(epsilon, name, len(grid), statistic, variance, variance / base, len(people))


def half_text(rows: Sequence[HalfRow]) -> list[str]:
    """The rows as text for a terminal."""
    return [
        "The variance of the effect on a random half at equal pure epsilon, worked out: of the",
        "combined estimate where a statistic of strata is published, as the planner may choose",
        *table(
            ["epsilon", "release", "levels", "of strata", "variance", "over the planned one"],
            cells(
                rows,
                epsilon="g",
                release="",
                levels="",
                strata_statistic="",
                variance=".4g",
                over_planned=".2f",
            ),
        ),
    ]


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
    mean = shares @ GRID
    spread = np.sum(shares * (GRID - mean[:, np.newaxis]) ** 2, axis=1) * n / (n - 1.0)
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
    of_units = (spread + rounding) * 2.0 / n + 2.0 * units * (1.0 - weight) / n
    return float(share**2 @ (of_units + weight**2 * (units / n + variance)))


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
