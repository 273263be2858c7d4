"""What statistical tests share: Pearson's test, where real data lie, the product's simulator."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from privatizers.lab.simulation.pools import (
    PoolArms,
    UnitPositions,
    pools_of,
    slices_of,
    without_privacy,
)
from privatizers.lab.simulation.trial import Releases, Trial
from schemas.arrays import Floats

__all__ = [  # whatever is from elsewhere is found here as well
    "LEAST_EXPECTED",
    "PoolArms",
    "Releases",
    "Trial",
    "UnitPositions",
    "pearson",
    "pools_of",
    "real_data",
    "slices_of",
    "without_privacy",
]


LEAST_EXPECTED = 10.0
"""Draws a cell of Pearson's test has to expect for χ² to be its distribution far out."""


def pearson(observed: NDArray[np.integer], probabilities: Floats) -> float:
    """p-value of Pearson's test that every row of ``observed`` was drawn from its probabilities.

    Both have the shape [rows, cells]; rows are independent, and their statistics add up.
    """
    expected = observed.sum(axis=1, keepdims=True) * probabilities
    if expected.min() < LEAST_EXPECTED:
        msg = f"a cell expects {expected.min():.1f} draws: too few for this test"
        raise ValueError(msg)
    statistic = ((observed - expected) ** 2 / expected).sum()
    degrees = observed.shape[0] * (observed.shape[1] - 1)
    return float(chi2.sf(statistic, degrees))


def real_data(name: str) -> Path:
    """A file of the real experiments; the test that asks for one that is not there is skipped."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("CLUSTERDP_TEST_DATA", root.parent / "shared" / "data"))
    path = folder / name
    if not path.is_file():
        pytest.skip(f"no {name} in {folder}: set CLUSTERDP_TEST_DATA to the folder of the data")
    return path
