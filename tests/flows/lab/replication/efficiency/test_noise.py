"""The noise of a unit against ε: the limit is one, and tables are as near to it as is said."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_array

from flows.lab.replication.efficiency.noise import (
    CLUSTER,
    LEARNT,
    LIMIT,
    PUBLIC,
    RELEASES,
    UNIFORM,
    everybody,
    limit,
    spreads,
)
from flows.lab.replication.experiment_one import GRID, K, population, shares_of
from schemas.arrays import Floats

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


@pytest.mark.parametrize(("epsilon", "most"), [(2.0, 1.12), (6.0, 1.75)])
def test_the_table_for_a_uniform_guess_is_near_the_limit(epsilon: float, most: float) -> None:
    for shares in spreads(2):
        found = {name: noise(epsilon, shares) for name, noise in RELEASES.items()}
        assert 0.998 < found[PUBLIC] / found[LIMIT] < most
        assert found[LEARNT] < 1.02 * found[PUBLIC]
        assert found[CLUSTER] > found[UNIFORM]
        assert found == {name: noise(epsilon, shares) for name, noise in RELEASES.items()}
