"""Sobol's points are those of SciPy, to the last bit."""

import numpy as np
import pytest
from scipy.stats import qmc

from privatizers.planning.sobol import sobol_points


@pytest.mark.parametrize("log2_points", [0, 1, 4, 9, 14])
@pytest.mark.parametrize("n_dimensions", [1, 2, 7, 24, 25, 60])
def test_the_points_are_those_of_scipy(n_dimensions: int, log2_points: int) -> None:
    points = sobol_points(n_dimensions, log2_points)
    known = qmc.Sobol(n_dimensions, scramble=False).random_base2(log2_points)
    np.testing.assert_array_equal(points, known)
