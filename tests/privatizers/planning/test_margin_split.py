"""What margins have of ε, and what they are forecast to bring, held against all units' system."""

from dataclasses import replace

import numpy as np
import pytest

from estimators.response.pool_statistics import discrete_laplace_cumulants
from estimators.strata.margins import CellSizes
from privatizers.planning.forecast import planned_noise, statistic_noise_of
from privatizers.planning.grids import project_guess
from privatizers.planning.margin_split import (
    MarginFacts,
    as_clusters,
    best_share,
    forecast_margins,
    largest,
    with_sums,
)
from privatizers.planning.planner import Plan, plan, sampling_variance, with_margins
from privatizers.planning.question import Question
from schemas.arrays import Floats, Ints

N_CLUSTERS, ARMS, CELLS = 3, 2, (4, 3)
RNG = np.random.default_rng(7)
UNITS = 900
CLUSTER, ARM = RNG.integers(0, N_CLUSTERS, UNITS), RNG.integers(0, ARMS, UNITS)
CODES: list[Ints] = [RNG.integers(0, cells, UNITS) for cells in CELLS]
SIZES = np.zeros((N_CLUSTERS, ARMS), dtype=np.int64)
np.add.at(SIZES, (CLUSTER, ARM), 1)
GRID = (0.0, 1.0, 2.0)
QUESTION = Question(
    epsilon=1.0,
    delta=0.0,
    values=np.array(GRID),
    guess=np.array([0.6, 0.3, 0.1]),
    grids=(GRID,),
    statistics=("counts", "means", "none"),
    sizes=SIZES,
    segment_shares=(0.1, 0.5),
)
FACTS = MarginFacts(
    tuple(
        CellSizes.of_units(
            CLUSTER[arm == ARM], [code[arm == ARM] for code in CODES], CELLS, N_CLUSTERS
        )
        for arm in range(ARMS)
    ),
    ("country", "age"),
    ("a", "b", "c", "d", "x", "y", "z"),
)
ASKED = replace(QUESTION, margin_shares=(0.3, 0.2))


def planned(kept: float) -> Plan:
    return with_margins(ASKED, plan(QUESTION), kept)


def whole(made: Plan, arm: int, weights: Floats) -> float:
    """The noise of Σ a R by every unit's own row: v aᵀa − v² aᵀA W⁻¹ Aᵀa, of one arm."""
    mechanism, points = made.design.mechanism, np.array(made.option.grid)
    guess = project_guess(QUESTION.values, QUESTION.guess, points)
    v = planned_noise(mechanism, points, guess).of_mean
    own = arm == ARM
    columns, noise = [], []
    of_pool = statistic_noise_of(points, mechanism.parameters).second
    margins = mechanism.parameters.margins
    if np.isfinite(of_pool):
        columns += [CLUSTER[own] == cluster for cluster in range(N_CLUSTERS)]
        noise += [of_pool] * N_CLUSTERS
    if margins is not None:
        step = margins.lattice.step_of(points.tolist())
        for code, cells, scale in zip(CODES, CELLS, margins.noise_scales, strict=True):
            columns += [code[own] == cell for cell in range(cells)]
            noise += [float(discrete_laplace_cumulants(scale)[0]) * step**2] * cells
    a = weights[own]
    if not columns:
        return float(v * a @ a)
    incidence = np.stack(columns, axis=1).astype(np.float64)
    system = v * incidence.T @ incidence + np.diag(noise)
    common = v * incidence.T @ a
    return float(v * a @ a - common @ np.linalg.solve(system, common))


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("kept", [1.0, 0.1, 0.0])
def test_a_forecast_is_the_variance_of_the_whole_system(kept: float, used: bool) -> None:
    made = planned(kept)
    found = forecast_margins(FACTS, ASKED, made.option.grid, made.design.mechanism, used=used)
    if not used:
        bare = replace(made.design.mechanism.parameters, margins=None)
        mechanism = replace(made.design.mechanism, parameters=bare)  # type: ignore[type-var]
        made = replace(made, design=replace(made.design, mechanism=mechanism))  # type: ignore[arg-type]
    sampling = sampling_variance(QUESTION, np.array(made.option.grid))
    cells = [(margin, cell) for margin, size in enumerate(CELLS) for cell in range(size)]
    for at, (margin, cell) in enumerate(cells):
        expected = 0.0
        for arm in range(ARMS):
            there = (CODES[margin] == cell) & (arm == ARM)
            expected += whole(made, arm, there / there.sum()) + sampling / there.sum()
        assert found.cells[0, at] == pytest.approx(expected, rel=1e-9)
    everybody = 0.0
    for arm in range(ARMS):
        in_arm = np.equal(ARM, arm)
        everybody += whole(made, arm, in_arm / in_arm.sum()) + sampling / in_arm.sum()
    assert found.everybody[0] == pytest.approx(everybody, rel=1e-9)
    assert (found.parts[0] > everybody).all()


def test_margins_cost_no_more_than_the_epsilon_that_is_asked_for() -> None:
    for kept in (1.0, 0.3, 0.0):
        made = planned(kept)
        parameters = made.design.mechanism.parameters
        assert made.design.epsilon == QUESTION.epsilon
        assert parameters.margins_epsilon == pytest.approx(0.5)
        assert (parameters.noise_scale is None) == (kept == 0.0)


def test_what_is_declared_gains_and_what_is_not_loses() -> None:
    without, made = plan(QUESTION), planned(0.1)
    plain, sums = (
        forecast_margins(FACTS, ASKED, one.option.grid, one.design.mechanism)
        for one in (without, made)
    )
    assert (sums.cells < plain.cells).all()
    assert (sums.parts > plain.parts).all()
    assert sums.score < plain.score
    assert best_share([[plain], [sums]]) == 1
    assert best_share([[plain], [plain]]) == 0


def test_everybody_may_lose_three_per_cent() -> None:
    made = planned(0.1)
    sums = forecast_margins(FACTS, ASKED, made.option.grid, made.design.mechanism)
    worse = replace(sums, cells=1.5 * sums.cells, everybody=sums.everybody / 1.03**2 * 1.0001)
    little = replace(worse, everybody=sums.everybody / 1.03**2 * 0.9999)
    assert best_share([[worse], [sums]]) == 1
    assert best_share([[little], [sums]]) == 0


def test_predictions_are_scaled_by_what_margins_bring() -> None:
    made = planned(1.0)
    mechanism, grid = made.design.mechanism, made.option.grid
    found = with_sums(made.option.predicted, FACTS, ASKED, grid, mechanism)
    for one, other in zip(found, made.option.predicted, strict=True):
        assert one.std_error < other.std_error
        assert one.half_width is not None
        assert other.half_width is not None
        assert one.half_width / other.half_width == pytest.approx(one.std_error / other.std_error)
    alone = plan(QUESTION)
    same = with_sums(alone.option.predicted, FACTS, QUESTION, grid, alone.design.mechanism)
    assert same == alone.option.predicted


def test_values_as_clusters_have_their_units() -> None:
    facts, sizes = as_clusters(FACTS, 1)
    expected = np.zeros((CELLS[1], ARMS), dtype=np.int64)
    np.add.at(expected, (CODES[1], ARM), 1)
    assert np.array_equal(sizes, expected)
    assert facts.values == ("x", "y", "z")
    asked = replace(QUESTION, sizes=sizes)
    chosen = plan(asked)
    found = forecast_margins(facts, asked, chosen.option.grid, chosen.design.mechanism)
    assert found.cells.shape == (1, CELLS[1])
    assert np.isfinite(found.cells).all()


def test_the_largest_cells_of_margins_of_other_attributes_go_together() -> None:
    ((one, other),) = largest(FACTS)
    n = np.sum([np.diag(arm.pairs) for arm in FACTS.arms], axis=0)
    assert n[one] == n[:4].max()
    assert n[other] == n[4:].max()
    assert largest(replace(FACTS, attributes=("country", "country, age"))) == []
