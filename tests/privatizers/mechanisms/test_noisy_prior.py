"""Priors computed slab by slab are those computed at once."""

import numpy as np
import pytest

from privatizers.mechanisms import cluster_dp
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.prior import realised_prior, truncated_prior


@pytest.mark.parametrize("slab", [1, 7, 100, 1 << 16])
def test_slabs_do_not_change_a_prior(slab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_dp, "_SLAB", slab)
    parameters = Parameters.of(3, 0.5, 0.1, 2.0)
    counts = np.arange(1, 61).reshape(20, 3)
    release = cluster_dp.noisy_prior(counts, parameters)

    assert release.noisy_counts is not None
    gamma = parameters.truncation_threshold
    expected = realised_prior(
        truncated_prior(release.noisy_counts, counts.sum(axis=1), gamma), gamma
    )
    assert np.array_equal(release.response.prior, expected)
