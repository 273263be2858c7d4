"""A small log in one frame."""

import polars as pl

from flows.raw.ingest import Log
from schemas.raw import ARM, CLUSTER


def whole_log(log: Log) -> pl.DataFrame:
    """All units or exposures, labels as text."""
    labels = pl.col(ARM, CLUSTER).cast(pl.String)
    return pl.concat([batch.with_columns(labels) for batch in log.batches()])
