"""The noise of a unit against ε: the limit is one, and tables are as near to it as is said."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_array

from flows.lab.replication.efficiency.noise import (
    LIMIT,
    PLANNED,
    NoiseRow,
    NoiseScale,
    everybody,
    limit,
    noise_rows,
    noise_text,
)
from flows.lab.replication.experiment_one import GRID, K, population, shares_of
from schemas.arrays import Floats

PUBLIC, LEARNT = "cluster-optimal-dp, public guess", "cluster-optimal-dp, learnt"

pytestmark = pytest.mark.statistical  # tables are solved: half a minute


def least_noise(guess: Floats, epsilon: float, outputs: Floats) -> float:
    """The least noise of an ε-private unbiased randomiser onto ``outputs``, as one programme.

    Its variables are all Q(j|x), and m_j with m_j ≤ Q(j|x) ≤ e^ε m_j. It knows nothing of extreme
    columns, of prices, or of whole numbers.
    """
    n, cells = len(outputs), K * len(outputs)
    cell = np.arange(cells)
    x, j = cell // n, cell % n
    cost = np.append((guess[x] * outputs[j] ** 2), np.zeros(n))
    equal = coo_array(
        (
            np.append(np.ones(cells), outputs[j]),
            (np.append(x, K + x), np.append(cell, cell)),
        ),
        shape=(2 * K, cells + n),
    )
    ones = np.ones(cells)
    bounds = coo_array(
        (
            np.concatenate([ones, -np.exp(epsilon) * ones, -ones, ones]),
            (
                np.concatenate([cell, cell, cells + cell, cells + cell]),
                np.concatenate([cell, cells + j, cell, cells + j]),
            ),
        ),
        shape=(2 * cells, cells + n),
    )
    solved = linprog(
        cost,
        A_ub=bounds.toarray(),
        b_ub=np.zeros(2 * cells),
        A_eq=equal.toarray(),
        b_eq=np.append(np.ones(K), GRID),
        method="highs",
    )
    assert solved.fun is not None
    return float(solved.fun - guess @ GRID**2)


@pytest.mark.parametrize(("epsilon", "reach"), [(2.0, 20.0), (4.0, 10.0), (6.0, 8.0)])
def test_the_limit_is_that_of_an_independent_programme(epsilon: float, reach: float) -> None:
    """On a fine grid of outputs it is an upper bound, and near."""
    shares = shares_of(population(np.random.default_rng(8)))
    outputs = 0.5 + np.linspace(-reach, reach, 161)
    found, fine = limit(epsilon, shares), least_noise(everybody(shares), epsilon, outputs)
    assert fine >= found * (1.0 - 2e-3)  # the limit is solved to a gap of 1e-3
    assert fine <= found * 1.01


@pytest.fixture(scope="module")
def rows() -> dict[tuple[float, str], NoiseRow]:
    every = noise_rows(NoiseScale((2.0, 4.0, 6.0), 4))
    return {(one.epsilon, one.release): one for one in every}


@pytest.mark.parametrize(("epsilon", "most"), [(2.0, 1.12), (4.0, 1.38), (6.0, 1.75)])
def test_the_table_for_a_uniform_guess_is_near_the_limit(
    rows: dict[tuple[float, str], NoiseRow], epsilon: float, most: float
) -> None:
    assert 0.998 < rows[epsilon, PUBLIC].over_limit < most
    assert rows[epsilon, LIMIT].over_limit == 1.0


@pytest.mark.parametrize(("epsilon", "most"), [(2.0, 0.95), (4.0, 0.67), (6.0, 0.67)])
def test_learning_pays_for_itself(
    rows: dict[tuple[float, str], NoiseRow], epsilon: float, most: float
) -> None:
    learnt = rows[epsilon, LEARNT]
    assert learnt.over_planned < most
    assert learnt.noise < 1.02 * rows[epsilon, PUBLIC].noise
    assert rows[epsilon, PLANNED].over_planned == 1.0
    assert rows[epsilon, "cluster-dp"].noise > rows[epsilon, "uniform-prior-dp, full grid"].noise


def test_the_rows_are_the_same_in_every_run_and_told(
    rows: dict[tuple[float, str], NoiseRow],
) -> None:
    again = noise_rows(NoiseScale((2.0,), 1))
    assert again == noise_rows(NoiseScale((2.0,), 1))
    text = "\n".join(noise_text(tuple(rows.values())))
    for one in rows.values():
        assert one.release in text
        assert f"{one.over_limit:.2f}" in text
    assert max(map(len, text.splitlines())) < 100
