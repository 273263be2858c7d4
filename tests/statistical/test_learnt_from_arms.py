"""What counts of whole arms bring on Tennessee STAR: 79 schools, whose own counts tell little.

Noise is drawn by a generator with a fixed seed, so there are no false alarms. The mean of three
draws is 0.75 of what is planned without tables, and with the noise of 79 counts an arm 0.91.
"""

import numpy as np
import polars as pl
import pytest

from estimators.response.pool_statistics import unit_noise
from privatizers.optimal_response.learnt_guess import GroupCounts, learnt_response
from privatizers.planning.grids import grids_of, project_guess, rounding_variance
from privatizers.planning.planner import rank_options
from privatizers.planning.question import Question
from schemas.arrays import Floats, Ints
from tests.statistical.simulate import real_data

pytestmark = pytest.mark.statistical

EPSILON, SHARE = 4.0, 0.01
FINE = np.linspace(288.0, 626.0, 200)
GRID = np.linspace(288.0, 626.0, 16)
EVEN = np.full(16, 1 / 16)


def pupils() -> tuple[Floats, Ints, Ints]:
    """The marks in mathematics, schools and arms of kindergarten; a missing mark is the median."""
    rows = pl.read_parquet(real_data("tennessee_star/star_aer.parquet"))
    rows = rows.filter(pl.col("stark").is_not_null())
    labels = [rows[name].cast(pl.String).rank("dense") for name in ("schoolidk", "stark")]
    school, arm = (one.to_numpy().astype(np.int64) - 1 for one in labels)
    return rows["mathk"].fill_null(485).to_numpy().astype(np.float64), school, arm


def planned(outcomes: Floats, sizes: Ints) -> float:
    """The noise of a unit of the best design without tables, for a half alone."""
    question = Question(
        epsilon=EPSILON,
        delta=0.0,
        values=FINE,
        guess=np.full(len(FINE), 1 / len(FINE)),
        grids=grids_of(FINE.tolist(), continuous=True),
        statistics=("none",),
        sizes=sizes,
        same_shares=True,
        segment_shares=(0.5,),
        overall=False,
    )
    grid = np.array(rank_options(question)[0].grid)
    values, counts = np.unique(outcomes, return_counts=True)
    shares, k = counts / counts.sum(), len(grid)
    spread = project_guess(values, shares, grid)
    rate = k / (np.exp(EPSILON) + k - 1.0)
    noise = unit_noise(grid, spread, np.full(k, 1 / k), float(rate))
    return float(noise) + rounding_variance(values, shares, grid)


def test_many_schools_are_learnt_from_by_arms() -> None:
    outcomes, school, arm = pupils()
    sizes = np.zeros((school.max() + 1, 3), dtype=np.int64)
    np.add.at(sizes, (school, arm), 1)
    cells = np.unique(school * 3 + arm, return_inverse=True)
    n, arms = np.bincount(cells[1]), cells[0] % 3
    values, found = np.unique(outcomes, return_inverse=True)
    table = np.zeros((len(n), len(values)))
    np.add.at(table, (cells[1], found), 1.0)
    counts = np.stack([project_guess(values, row, GRID) for row in table])
    of_arms = np.stack([counts[arms == one].sum(axis=0) for one in range(3)])
    rounding = rounding_variance(values, table.sum(axis=0) / table.sum(), GRID)
    random, base = np.random.default_rng(18), planned(outcomes, sizes)

    def noisy(exact: Floats) -> Ints:
        up, down = random.geometric(-np.expm1(-SHARE * EPSILON / 2), (2, *exact.shape))
        counts: Ints = np.rint(exact).astype(np.int64) + up - down
        return counts

    def ratio(of_strata: Ints | None, own: GroupCounts | None) -> float:
        left, paid = EPSILON * (1 - SHARE), EPSILON * SHARE
        learnt = learnt_response(GRID, EVEN, left, of_strata, n, paid, arms, own)
        noises = np.stack([one.noise for one in learnt.tables_used])[learnt.table_of]
        return (float(np.sum(counts * noises) / counts.sum()) + rounding) / base

    by_arms = [ratio(None, GroupCounts(noisy(of_arms), SHARE * EPSILON)) for _ in range(3)]
    assert np.mean(by_arms) < 0.77
    assert ratio(noisy(counts), None) > np.mean(by_arms) + 0.05
