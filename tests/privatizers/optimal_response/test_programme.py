"""The optimum beside a programme of another form, and what is known in closed form."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from privatizers.optimal_response import programme
from privatizers.optimal_response.linear_programme import LinearProgramme, UnsolvedError
from privatizers.optimal_response.programme import even_columns, solve
from schemas.arrays import Floats

GUESSES = {
    "even": [0.25, 0.25, 0.25, 0.25],
    "skewed": [0.85, 0.1, 0.04, 0.01],
    "absent": [0.5, 0.0, 0.0, 0.5],
}


def on_a_grid(values: Floats, guess: Floats, epsilon: float, outputs: Floats) -> float:
    """The least noise with these outputs alone, every Q(j|x) a variable of its own.

    Nothing of extreme columns or of duals is used: the constraints are written as they are meant,
    with a least probability of each output besides.
    """
    k, j = len(values), len(outputs)
    each, all_alike = np.eye(k * j), np.tile(np.eye(j), (k, 1))
    rows = np.kron(np.eye(k), np.stack([np.ones(j), outputs]))  # two equations an input
    below = np.hstack([-each, all_alike])
    above = np.hstack([each, -math.exp(epsilon) * all_alike])
    cost = np.concatenate([(guess[:, np.newaxis] * outputs**2).ravel(), np.zeros(j)])
    solved = linprog(
        cost,
        A_ub=np.vstack([below, above]),
        b_ub=np.zeros(2 * k * j),
        A_eq=np.hstack([rows, np.zeros((2 * k, j))]),
        b_eq=np.column_stack([np.ones(k), values]).ravel(),
        method="highs",
    )
    assert solved.status == 0
    assert solved.fun is not None
    return float(solved.fun - guess @ values**2)


@pytest.mark.statistical  # long, not random
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("name", GUESSES)
def test_it_is_the_optimum_of_an_independent_programme_on_a_fine_grid(
    name: str, epsilon: float
) -> None:
    values, guess = np.array([0.0, 1.0, 2.0, 5.0]), np.array(GUESSES[name])
    found = solve(values, guess, epsilon, gap=1e-6)
    reach = np.abs(found.values).max() * 1.3
    outputs = np.unique(np.concatenate([np.linspace(-reach, reach, 150), found.values]))
    other = on_a_grid(values, guess, epsilon, outputs)
    assert found.bound <= other * (1 + 1e-6)
    assert other == pytest.approx(found.noise, rel=2e-5)  # its outputs are among the grid's


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 9.0])
@pytest.mark.parametrize("name", GUESSES)
def test_an_answer_is_unbiased_private_and_within_the_gap_of_its_bound(
    name: str, epsilon: float
) -> None:
    values, guess = np.array([-3.0, 0.0, 0.5, 2.0]), np.array(GUESSES[name])
    found = solve(values, guess, epsilon)
    table = found.probabilities
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(table @ found.values, values, atol=1e-8)
    ratio = table.max(axis=0) / table.min(axis=0)
    assert ratio.max() <= math.exp(epsilon) * (1 + 1e-12)
    noise = guess @ (table @ found.values**2 - values**2)
    assert noise == pytest.approx(found.noise, rel=1e-4)
    assert found.bound <= found.noise <= found.bound * (1 + 2 * programme.GAP)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_two_even_values_need_no_more_than_randomised_response(epsilon: float) -> None:
    """With K = 2 and both alike, the noise is e^ε/(e^ε − 1)² of the squared distance."""
    values = np.array([0.0, 7.0])
    found = solve(values, np.array([0.5, 0.5]), epsilon, gap=1e-5)
    factor = math.exp(epsilon)
    least = 49.0 * factor / (factor - 1.0) ** 2
    assert found.bound <= least * (1 + 1e-9)
    assert found.noise == pytest.approx(least, rel=2e-5)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_it_is_never_worse_than_randomised_response_and_better_on_many_values(
    epsilon: float,
) -> None:
    values = np.arange(12.0)
    guess = np.full(12, 1 / 12)
    outputs, favoured = even_columns(values, math.exp(epsilon))
    table = np.where(favoured, math.exp(epsilon), 1.0) / (math.exp(epsilon) + 11.0)
    even = float(guess @ (table @ outputs**2 - values**2))
    assert solve(values, guess, epsilon).noise < 0.7 * even


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_what_it_starts_from_changes_nothing_but_the_time(epsilon: float) -> None:
    values, other = np.array([0.0, 1.0, 2.0, 5.0]), np.array(GUESSES["absent"])
    start = solve(values, np.array(GUESSES["even"]), epsilon)
    alone, helped = solve(values, other, epsilon), solve(values, other, epsilon, start=start)
    assert helped.noise == pytest.approx(alone.noise, rel=1e-3)
    assert helped.bound <= alone.noise
    assert helped.probabilities @ helped.values == pytest.approx(values, abs=1e-9)


def test_the_scale_and_origin_of_values_do_not_matter() -> None:
    values, guess = np.array([0.0, 1.0, 3.0]), np.array([0.2, 0.5, 0.3])
    plain, other = solve(values, guess, 1.5), solve(1e6 * values - 40.0, guess, 1.5)
    assert other.noise == pytest.approx(1e12 * plain.noise, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "guess", "epsilon"),
    [
        ([0.0], [1.0], 1.0),
        (list(range(26)), [1 / 26] * 26, 1.0),
        ([0.0, 1.0], [1.0], 1.0),
        ([0.0, 1.0], [0.5, 0.5], 0.0),
        ([0.0, 1.0], [0.5, 0.5], math.inf),
    ],
)
def test_arguments_that_are_not_as_described_are_refused(
    values: list[float], guess: list[float], epsilon: float
) -> None:
    with pytest.raises(ValueError, match=r"."):
        solve(np.array(values, dtype=np.float64), np.array(guess), epsilon)


def test_giving_up_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programme, "_MOST_ROUNDS", 1)
    with pytest.raises(UnsolvedError):
        solve(np.arange(12.0), np.full(12, 1 / 12), 1.0)


def test_numbers_that_are_none_mean_giving_up(capfd: pytest.CaptureFixture[str]) -> None:
    """It would be in the middle of a run, after noisy counts were drawn. And nothing is printed."""
    for worse in (np.nan, np.inf, 1e20):
        programme = LinearProgramme(np.ones(2))
        with pytest.raises(UnsolvedError):
            programme.add(np.ones(2), np.array([[1.0, 0.0], [0.0, worse]]))
    programme = LinearProgramme(np.ones(2))
    programme.add(np.ones(1), np.array([[1.0, 0.0]]))
    with pytest.raises(UnsolvedError):
        programme.solve()
    assert capfd.readouterr() == ("", "")


def test_columns_come_and_go() -> None:
    """The least cost is that of the columns there are, and duals price those that are not."""
    programme = LinearProgramme(np.array([2.0, 3.0]))
    programme.add(np.array([4.0, 5.0]), np.eye(2))
    assert programme.solve().cost == pytest.approx(23.0)
    programme.add(np.array([1.0]), np.array([[1.0, 1.0]]))
    found = programme.solve()
    assert (found.cost, *found.masses) == pytest.approx((7.0, 0.0, 1.0, 2.0))
    assert found.duals @ [2.0, 3.0] == pytest.approx(7.0)
    programme.remove(np.array([2]))
    assert programme.solve().masses == pytest.approx([2.0, 3.0])
