"""Who is where, counted: public facts of rows that are not."""

import numpy as np
from numpy.typing import NDArray

from flows.raw.guard import values_free
from flows.raw.rows import Rows
from flows.raw.sealed import Sealed

Ints = NDArray[np.int64]


@values_free
def stratum_sizes(rows: Sealed[Rows]) -> Ints:
    """Units by cluster and arm, shape [clusters, arms]; what the planner may know of the log."""
    return rows.open().sizes
