"""How the values of one column cross with those of another, where both were read as the cluster."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.reading.columns import CLUSTER_OF
from flows.raw.units.rows import Rows
from privatizers.planning.margin_split import Crossed


@values_free
def crossed_clusters(
    rows: Sealed[Rows], columns: tuple[str, ...], now: tuple[str, ...], other: tuple[str, ...]
) -> Crossed:
    """Return who is where by two sides of the ``columns`` that clusters were read from.

    A side without a column is one cluster that holds everybody.
    """
    raw = rows.open()
    names, n_columns = pl.Series("", raw.clusters, dtype=pl.String), len(columns)
    parts = [names]
    if n_columns > 1:
        fields = names.str.split_exact(CLUSTER_OF, n_columns - 1).struct.unnest()
        parts = fields.get_columns()
    of_column = dict(zip(columns, parts, strict=True))

    def numbers(side: tuple[str, ...]) -> NDArray[np.int64]:
        if not side:
            return np.zeros(len(names), dtype=np.int64)
        joined = pl.select(pl.concat_str([of_column[one] for one in side], separator=CLUSTER_OF))
        return np.unique(joined.to_series().to_numpy(), return_inverse=True)[1]

    return Crossed(raw.sizes, numbers(now), numbers(other))
