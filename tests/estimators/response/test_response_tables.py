"""What outputs of response tables stand for: unbiased functions of outcomes, and their noise."""

import numpy as np
import pytest

from estimators.response.response_tables import SingularTableError, output_functions, spread, undo
from privatizers.optimal_response.whole_numbers import even_table, table_of
from schemas.arrays import Floats

GRID = np.array([0.0, 1.0, 2.5, 7.0])
GUESS = np.array([0.7, 0.2, 0.06, 0.04])


def tables() -> tuple[Floats, Floats, Floats]:
    """Two tables, the second with outputs that never occur; Q, v and how likely outputs are."""
    made = (table_of(GRID, GUESS, 2.0), even_table(GRID, 2.0))
    n_outputs = max(len(one.values) for one in made)
    probabilities = np.zeros((2, len(GRID), n_outputs))
    values = np.full((2, n_outputs), 3.0)
    for at, one in enumerate(made):
        probabilities[at, :, : len(one.values)] = one.probabilities
        values[at, : len(one.values)] = one.values
    assert (probabilities[1].sum(axis=0) == 0).any()
    return probabilities, values, GUESS @ probabilities


def test_functions_of_outputs_are_unbiased_whatever_the_outcome() -> None:
    probabilities, values, likely = tables()
    found = output_functions(probabilities, values, GRID, likely)
    steps = GRID - GRID.mean()

    def expected(function: Floats) -> Floats:
        return np.asarray(np.einsum("tkj,tj->tk", probabilities, function))

    np.testing.assert_allclose(expected(found.mean), np.tile(steps, (2, 1)), atol=1e-11)
    np.testing.assert_allclose(expected(found.square), np.tile(steps**2, (2, 1)), atol=1e-10)
    for noise, function in ((found.noise, found.mean), (found.square_noise, found.square)):
        variance = expected(function**2) - expected(function) ** 2
        np.testing.assert_allclose(expected(noise), variance, atol=1e-8)
        np.testing.assert_allclose(spread(probabilities, function), variance, atol=1e-8)
    never = probabilities.sum(axis=1) == 0
    for function in (found.mean, found.noise, found.square, found.square_noise):
        assert (function[never] == 0).all()


def test_of_all_unbiased_functions_it_is_the_one_that_varies_least() -> None:
    probabilities, _, likely = tables()
    first, weight = probabilities[:1], likely[:1]
    wanted = GRID[np.newaxis] ** 2
    found = undo(first, wanted, weight)
    _, _, rows = np.linalg.svd(first[0])
    for direction in rows[len(GRID) :]:  # what adds nothing to any mean
        other = found + 0.1 * direction
        np.testing.assert_allclose(np.einsum("tkj,tj->tk", first, other), wanted, atol=1e-9)
        assert (weight * other**2).sum() > (weight * found**2).sum()


def test_a_table_that_tells_outcomes_apart_too_little_is_refused() -> None:
    with pytest.raises(SingularTableError, match="too little"):
        undo(np.full((1, 3, 2), 0.5), np.arange(3.0)[np.newaxis])


def test_a_table_of_fewer_outputs_than_outcomes_is_refused_though_rounding_hides_it() -> None:
    """Its rows are dependent up to the last bits alone, which no solver notices."""
    one = np.array([0.1, 0.25, 0.7, 0.9, 0.37])
    table = np.stack([one, 1.0 - one], axis=1)[np.newaxis]
    with pytest.raises(SingularTableError, match="too little"):
        undo(table, np.arange(5.0)[np.newaxis] ** 2)
