"""Moments from counts are those of the values one by one."""

import numpy as np
import pytest

from estimators.strata.moments import moments_of_counts


def test_moments_of_counts_are_those_of_the_values() -> None:
    values = np.array([-1.5, -0.5, 0.5, 2.25])
    counts = np.random.default_rng(5).integers(0, 50, (6, 4))

    found = moments_of_counts(values, counts)

    for code, n in enumerate(counts):
        alone = np.repeat(values, n)
        assert found.n_units[code] == len(alone)
        assert found.mean[code] == pytest.approx(alone.mean(), rel=1e-14)
        assert found.variance[code] == pytest.approx(alone.var(ddof=1), rel=1e-14)
        assert found.fourth[code] == pytest.approx((alone**4).mean(), rel=1e-14)


def test_a_single_unit_has_no_variance_and_equal_ones_have_next_to_none() -> None:
    counts = np.array([[1, 0], [0, 10_000_019]])
    found = moments_of_counts(np.array([0.1, 1e6 + 0.1]), counts)
    assert found.variance.tolist() == [0.0, pytest.approx(0.0, abs=1e-18)]
    assert found.mean.tolist() == [0.1, pytest.approx(1e6 + 0.1, rel=1e-15)]
