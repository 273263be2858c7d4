"""Who is where, counted: public facts of rows that are not."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.raw.guard import values_free
from flows.raw.sealed import Sealed
from schemas.raw import ARM, CLUSTER

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Places:
    """Clusters and arms of rows, as positions, and how many units are in each."""

    clusters: list[str]
    """Names, sorted."""
    cluster: Ints
    """Of each row, shape [n]."""
    arm: Ints
    sizes: Ints
    """Units, shape [clusters, arms], control first."""


def places_of(frame: pl.DataFrame, arms: tuple[str, ...]) -> Places:
    """Find the places of rows whose arms are among ``arms``."""
    clusters = frame[CLUSTER].unique().sort().to_list()
    cluster, arm = _codes(frame[CLUSTER], clusters), _codes(frame[ARM], list(arms))
    shape = (len(clusters), len(arms))
    sizes = np.bincount(cluster * shape[1] + arm, minlength=shape[0] * shape[1])
    return Places(clusters, cluster, arm, sizes.reshape(shape).astype(np.int64))


@values_free
def stratum_sizes(rows: Sealed[pl.DataFrame], arms: tuple[str, ...]) -> Ints:
    """Units by cluster and arm, shape [clusters, arms]; what the planner may know of the log."""
    return places_of(rows.open().select(CLUSTER, ARM), arms).sizes


def _codes(labels: pl.Series, names: list[str]) -> Ints:
    """Position of each label in ``names``."""
    return labels.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
