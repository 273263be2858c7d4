"""How much of ε goes to the sums of margins: by what declared values, everybody and others have.

Each part of ε on a short list is tried for the design that would be chosen without margins, and
each with less for the statistic of strata, since margins tell of everybody, too. Of every one it is
forecast, from public sizes and the declared guess, which variance effects have: V_s of sampling and
the noise of calibrated units (`estimators.strata.margins`), of both arms. What is least is the mean
of ln V over all declared cells and arms, with a quarter of that over the segments that nobody has
declared; margins have nothing where no part of ε makes it less. Everybody may lose 3 % of its
standard error at most. Beside it: what clusters bring to effects within values of a column.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from estimators.response.pool_statistics import discrete_laplace_cumulants
from estimators.strata.evidence import sum_by
from estimators.strata.margins import CellSizes, Crossing
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.planning.forecast import planned_noise, statistic_noise_of
from privatizers.planning.grids import project_guess
from privatizers.planning.planner import sampling_variance
from privatizers.planning.predictions import Prediction
from privatizers.planning.question import Question
from schemas.arrays import Floats, Ints
from schemas.tables import MARGIN_OF

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7)
"""Parts of ε that are tried for margins, all of them together."""

KEPT = (1.0, 0.2, 0.0)
"""Parts that the statistic of strata keeps of its own, as margins tell of everybody, too."""

MOST_LOSS = 1.03
"""The standard error of everybody is at most this times that without margins."""

_UNDECLARED = 0.25
"""What segments that nobody declared count for, beside the declared ones."""


@dataclass(frozen=True)
class MarginFacts:
    """Public sizes of the cells of margins, M in all, for a plan."""

    arms: tuple[CellSizes, ...]
    """Of every arm, control first; rows are clusters."""
    attributes: tuple[str, ...]
    """Of each margin, as released."""
    values: tuple[str, ...]
    """Of each cell, shape [M]."""


@dataclass(frozen=True)
class MarginForecast:
    """Variances of effects, sampling and noise, by treatment arm."""

    cells: Floats
    """Of every declared cell, shape [T, M]; infinite where an arm has no unit in it."""
    everybody: Floats
    """Shape [T]."""
    parts: Floats
    """Of segments that nobody declared, of the planned shares; shape [T, shares]."""
    conjunctions: Floats
    """Of the largest cells of two margins together, shape [T, pairs]; see :func:`largest`."""

    @property
    def score(self) -> float:
        """Mean of ln V over cells, and what counts of that over undeclared segments."""
        return float(
            np.log(self.cells[np.isfinite(self.cells)]).mean()
            + _UNDECLARED * (np.log(self.parts).mean() if self.parts.size else 0.0)
        )


def forecast_margins(
    facts: MarginFacts,
    question: Question,
    grid: tuple[float, ...],
    mechanism: Mechanism | ClusterOptimalDP,
    *,
    used: bool = True,
) -> MarginForecast:
    """Forecast what a design brings with its sums of margins, or, not ``used``, without them."""
    points, parameters = np.array(grid), mechanism.parameters
    guess = project_guess(question.values, question.guess, points)
    unit = planned_noise(mechanism, points, guess).of_mean
    of_pools = statistic_noise_of(points, parameters).second
    sampling, margins = sampling_variance(question, points), parameters.margins if used else None
    place = mechanism.pool_of(question.sizes, question.min_stratum)
    found = []
    for arm in facts.arms:
        by_pool = arm.by_pool.gathered(place, int(place.max()) + 1)
        sizes, pool_noise = replace(arm, by_pool=by_pool), np.full(by_pool.n_rows, of_pools)
        n = np.diag(sizes.pairs)
        pairs = largest(facts)
        both = np.array([sizes.pairs[pair] for pair in pairs])
        if margins is None:
            cells, everybody = _without(sizes, unit, pool_noise)
            conjunctions = np.array([unit / n_both if n_both else np.inf for n_both in both])
        else:
            step = margins.lattice.step_of(points.tolist())
            scales = np.array(margins.noise_scales)[sizes.margin]
            noise = discrete_laplace_cumulants(scales)[0] * step**2
            forecast = sizes.forecast(unit, pool_noise, noise)
            with np.errstate(divide="ignore", invalid="ignore"):
                cells, everybody = forecast.cells, forecast.everybody
            conjunctions = np.array([forecast.conjunction(*pair) for pair in pairs])
        total = n[sizes.margin == 0].sum()
        with np.errstate(divide="ignore"):
            cells = np.where(n > 0, cells + sampling / n, np.inf)
            conjunctions = conjunctions + sampling / both
        shares = np.array(question.segment_shares)
        parts = everybody + unit * (1.0 / shares - 1.0) / total + sampling / (shares * total)
        found.append((cells, everybody + sampling / total, parts, conjunctions))
    control, *treated = found
    of_all = [np.stack([np.asarray(one[at]) + control[at] for one in treated]) for at in range(4)]
    return MarginForecast(*of_all)


def largest(facts: MarginFacts) -> list[tuple[int, int]]:
    """Return the cells with the most units of every margin and the next, if of other attributes."""
    n = np.sum([np.diag(arm.pairs) for arm in facts.arms], axis=0)
    margin = facts.arms[0].margin
    most = [int(np.argmax(np.where(margin == at, n, -1.0))) for at in range(len(facts.attributes))]
    own = [set(one.split(MARGIN_OF)) for one in facts.attributes]
    return [
        (most[one], most[two]) for one, two in pairwise(range(len(most))) if not own[one] & own[two]
    ]


def as_clusters(facts: MarginFacts, margin: int) -> tuple[MarginFacts, Ints]:
    """Return the facts of one margin as they are where its values are the clusters.

    And numbers of units, shape [clusters, arms].
    """
    own = np.flatnonzero(facts.arms[0].margin == margin)
    arms = []
    for arm in facts.arms:
        pairs = np.rint(arm.pairs[np.ix_(own, own)])
        every = np.arange(len(own))
        n = np.diag(pairs).copy()
        by_pool = Crossing(every, every, n, np.zeros_like(n), len(own), len(own))
        arms.append(CellSizes(by_pool, pairs, np.zeros(len(own), dtype=np.int64)))
    values = tuple(facts.values[cell] for cell in own)
    sizes = np.stack([np.diag(arm.pairs) for arm in arms], axis=1).astype(np.int64)
    return MarginFacts(tuple(arms), (facts.attributes[margin],), values), sizes


def with_sums(
    predicted: Sequence[Prediction],
    facts: MarginFacts,
    question: Question,
    grid: tuple[float, ...],
    mechanism: Mechanism | ClusterOptimalDP,
) -> tuple[Prediction, ...]:
    """Return predictions that were made without margins as they are with them.

    A variance is as many times what it was as is forecast of margins and of none.
    """
    if mechanism.parameters.margins is None:
        return tuple(predicted)
    with_them, without = (
        forecast_margins(facts, question, grid, mechanism, used=used) for used in (True, False)
    )
    found = []
    for one in predicted:
        arm, share = one.arm - 1, one.segment_share
        times = with_them.everybody[arm] / without.everybody[arm]
        if share is not None:
            at = question.segment_shares.index(share)
            times = with_them.parts[arm, at] / without.parts[arm, at]
        root = float(np.sqrt(times))
        half = None if one.half_width is None else root * one.half_width
        found.append(replace(one, std_error=root * one.std_error, half_width=half))
    return tuple(found)


def _without(sizes: CellSizes, unit: float, pool_noise: Floats) -> tuple[Floats, float]:
    """Return the noise of cells and of everybody where pools alone have statistics."""
    by_pool = sizes.by_pool
    n_pools = sum_by(by_pool.row, by_pool.n_units, by_pool.n_rows)
    n_pools /= int(sizes.margin.max()) + 1
    ratio = unit / (unit * n_pools + pool_noise)
    everybody = unit * (n_pools - ratio * n_pools**2).sum() / n_pools.sum() ** 2
    return noise_of_cells(by_pool, np.diag(sizes.pairs), unit, ratio), float(everybody)


def noise_of_cells(by_pool: Crossing, n: Floats, unit: float, ratio: Floats) -> Floats:
    """Return the noise of cells' means where pools alone have statistics.

    Of a cell v/n − Σ_p r_p v n_p²/n², with ``ratio`` r = v/(v N_p + D_p); not a number where there
    is nobody.
    """
    known = sum_by(by_pool.cell, ratio[by_pool.row] * by_pool.n_units**2, len(n))
    with np.errstate(divide="ignore", invalid="ignore"):
        cells: Floats = unit * (n - known) / n**2
    return cells


def best_share(tried: Sequence[Sequence[MarginForecast]]) -> int:
    """Return which of the designs ``tried`` is best, the first being that without margins.

    Each has a forecast for every outcome, and scores add up.
    """
    without = tried[0]

    def score(forecasts: Sequence[MarginForecast]) -> float:
        loses = any(
            (one.everybody > MOST_LOSS**2 * plain.everybody).any()
            for one, plain in zip(forecasts, without, strict=True)
        )
        return np.inf if loses else round(sum(one.score for one in forecasts), 9)

    return int(np.argmin([score(forecasts) for forecasts in tried]))


# values without sums of their own


@dataclass(frozen=True)
class Crossed:
    """Units by clusters of now and by other ones; there are N pairs of these."""

    sizes: Ints
    """Shape [N, arms], control first."""
    now: Ints
    """The cluster of now of each pair, shape [N]."""
    other: Ints
    """The other one, likewise."""

    @property
    def turned(self) -> "Crossed":
        """The same with the other clusters as those of now."""
        return Crossed(self.sizes, self.other, self.now)

    @property
    def sizes_now(self) -> Ints:
        """Units by clusters of now, shape [clusters, arms]."""
        sizes = np.zeros((int(self.now.max(initial=-1)) + 1, self.sizes.shape[1]), dtype=np.int64)
        np.add.at(sizes, self.now, self.sizes)
        return sizes


def effects_of_values(
    crossed: Crossed,
    question: Question,
    grid: tuple[float, ...],
    mechanism: Mechanism | ClusterOptimalDP,
) -> Floats:
    """Return the variance of the effect within each of the other clusters, with those of now.

    Of a value's units in an arm, n, of which n_p are in the pool p: v (n − Σ_p r_p n_p²)/n² + V_s/n
    with r_p = v/(v N_p + D_p), v a unit's planned noise and D_p that of a pool's sum. Shape
    [treatments, values]; infinite where an arm has no unit of it.
    """
    sizes, points = crossed.sizes_now, np.array(grid)
    guess = project_guess(question.values, question.guess, points)
    unit = planned_noise(mechanism, points, guess).of_mean
    of_pools = statistic_noise_of(points, mechanism.parameters).second
    sampling = sampling_variance(question, points)
    place = mechanism.pool_of(sizes, question.min_stratum)
    n_pools, n_values = int(place.max()) + 1, int(crossed.other.max()) + 1
    found = []
    for of_pairs in crossed.sizes.T.astype(np.float64):
        nothing = np.zeros_like(of_pairs)
        rows = Crossing(crossed.now, crossed.other, of_pairs, nothing, len(sizes), n_values)
        by_pool = rows.gathered(place, n_pools)
        n = sum_by(crossed.other, of_pairs, n_values)
        n_of_pools = sum_by(by_pool.row, by_pool.n_units, n_pools)
        noise = noise_of_cells(by_pool, n, unit, unit / (unit * n_of_pools + of_pools))
        with np.errstate(divide="ignore"):
            found.append(np.where(n > 0, noise + sampling / n, np.inf))
    control, *treated = found
    return np.stack([control + one for one in treated])
