"""Step 1, private: read the log and bring every outcome into the grid's range."""

import numpy as np
import polars as pl

from flows.config import Config
from flows.raw.guard import values_free
from flows.raw.sealed import Sealed
from flows.raw.sources import RawLog, read_log
from privatizers.outcome_grid import map_outcomes
from schemas.raw import OUTCOME


@values_free
def ingest(config: Config, period: str) -> Sealed[RawLog]:
    """Read the files of ``period`` and map outcomes by the declared public rules.

    Missing and unreadable outcomes count as ``outcome.missing``, others are clipped to the grid's
    range. Nothing is drawn here: rounding onto the grid is the first act of :func:`privatize`, so
    that a dry run spends no randomness and a charge can come before any of it.
    """
    return _ingested(config, read_log(config, period))


@values_free
def ingest_places(config: Config, period: str) -> Sealed[RawLog]:
    """Read who is where in the files of ``period``, and no outcome: each counts as missing.

    For what may not look at outcomes, a plan; the column of outcomes need not even be there.
    """
    return _ingested(config, read_log(config, period, outcomes=False))


def _ingested(config: Config, log: RawLog) -> Sealed[RawLog]:
    ends = np.array(config.outcome.ends)
    values = log.frame[OUTCOME].to_numpy()
    mapped = pl.Series(OUTCOME, map_outcomes(values, ends, config.outcome.missing_value))
    return Sealed(RawLog(log.frame.with_columns(mapped), log.files), log.frame.height)
