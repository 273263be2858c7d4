"""What clusters bring to effects within values of a column, by public sizes and the guess alone."""

from dataclasses import dataclass

import numpy as np

from estimators.strata.evidence import sum_by
from estimators.strata.margins import Crossing
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.planning.forecast import planned_noise, statistic_noise_of
from privatizers.planning.grids import project_guess
from privatizers.planning.margin_split import noise_of_cells
from privatizers.planning.planner import sampling_variance
from privatizers.planning.question import Question
from schemas.arrays import Floats, Ints


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
