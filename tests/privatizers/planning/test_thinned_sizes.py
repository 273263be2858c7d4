"""Forecasts for segments that leave few units in an arm of a cluster."""

import numpy as np
import pytest

from privatizers.domain.strata import lay_out, small_clusters_share
from privatizers.planning.predicted_variance import (
    ContrastWeights,
    contrast_weights,
)
from privatizers.planning.thinned_sizes import leaves_few, thinned_sizes
from schemas.arrays import Ints

BLOCKS = [[19, 4], [21, 3], [18, 5], [25, 2]]
SIZES = {
    "blocks": BLOCKS * 60,
    "few": [[6, 4], [4, 6], [8, 2], [40, 40]],
    "one": [[300, 200]],
    "three arms": [[30, 12, 8], [9, 11, 14]] * 10,
}


def weights_of(sizes: Ints, share: float, *, same_shares: bool) -> ContrastWeights | None:
    names = [[str(nth) for nth in range(n)] for n in sizes.shape]
    strata = lay_out(names[0], names[1], sizes, small_clusters_share(sizes, 10))
    return contrast_weights(strata, thinned_sizes(sizes, share), same_shares=same_shares)[0]


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("n_units", [0, 1, 7, 40, 5_000, 10**7])
def test_sizes_have_the_mean_and_the_spread_of_the_binomial(n_units: int, share: float) -> None:
    sizes = thinned_sizes(np.full((2000, 2), n_units), share)
    assert sizes.min() >= 0
    assert sizes.max() <= n_units
    mean, variance = n_units * share, n_units * share * (1 - share)
    assert sizes.mean() == pytest.approx(mean, abs=0.02 * np.sqrt(variance) + 0.5 * (mean > 200))
    assert sizes.var() == pytest.approx(variance, rel=0.06)
    one, other = sizes[0].T
    if variance > 0:
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.06


def test_the_same_sizes_give_the_same_answer() -> None:
    sizes = np.array(BLOCKS)
    assert np.array_equal(thinned_sizes(sizes, 0.1), thinned_sizes(sizes, 0.1))


@pytest.mark.parametrize("same_shares", [False, True])
@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("name", ["blocks", "few", "one", "three arms"])
def test_weights_are_those_of_random_segments_on_average(
    name: str, share: float, same_shares: bool
) -> None:
    sizes = np.array(SIZES[name])
    found = weights_of(sizes, share, same_shares=same_shares)
    names = [[str(nth) for nth in range(n)] for n in sizes.shape]
    strata = lay_out(names[0], names[1], sizes, small_clusters_share(sizes, 10))
    random = np.random.default_rng(7)  # a simulation of segments, not noise
    drawn = random.binomial(sizes, share, (1 + 20_000 // len(sizes), *sizes.shape))
    expected = contrast_weights(strata, drawn, same_shares=same_shares)[0]
    assert found is not None
    assert expected is not None
    assert found.coverage == pytest.approx(expected.coverage, abs=0.03)
    assert np.sqrt(found.sampling) == pytest.approx(np.sqrt(expected.sampling), rel=0.06)
    assert found.noise.sum() == pytest.approx(expected.noise.sum(), rel=0.12)
    assert found.pool_shares.sum() == pytest.approx(expected.pool_shares.sum(), rel=0.12)


def test_blocks_of_two_dozen_leave_most_of_a_tenth_out() -> None:
    """The standard error is then far more than that of a tenth of every stratum."""
    sizes = np.array(BLOCKS * 60)
    names = [[str(nth) for nth in range(n)] for n in sizes.shape]
    strata = lay_out(names[0], names[1], sizes, small_clusters_share(sizes, 10))
    (whole,) = contrast_weights(strata, same_shares=False)
    apart, merged = (weights_of(sizes, 0.1, same_shares=same) for same in (False, True))
    assert whole is not None
    assert apart is not None
    assert merged is not None
    assert whole.coverage == 1.0
    assert apart.coverage < 0.1
    assert merged.coverage > 0.9
    assert apart.sampling > 4 * whole.sampling / 0.1
    assert merged.sampling < 1.5 * whole.sampling / 0.1


def test_a_segment_in_which_nothing_can_be_compared_has_no_weights() -> None:
    assert weights_of(np.array([[3, 3]]), 0.05, same_shares=False) is None


def test_large_clusters_leave_no_few() -> None:
    assert not leaves_few(np.array([[300, 0, 260]]), 0.1)
    assert leaves_few(np.array([[300, 0, 240]]), 0.1)
