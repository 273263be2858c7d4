"""Who is where, counted: public facts of rows that are not."""

import numpy as np
from numpy.typing import NDArray

from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.units.rows import Rows

Ints = NDArray[np.int64]


@values_free
def stratum_sizes(rows: Sealed[Rows]) -> Ints:
    """Units by cluster and arm, shape [clusters, arms]; what the planner may know of the log."""
    return rows.open().sizes
