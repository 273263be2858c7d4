"""A site's first private step: find its log, and say how its rows are read.

The steps after it are those of a release: a row's cluster is its cell, by its covariates.
"""

import numpy as np
import polars as pl

from flows.config.model.declared import LogPlace
from flows.effects.config.site import Covariate, SiteConfig
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.ingest import Log
from flows.raw.land import TABLE, land
from flows.raw.reading.column_types import identifier_type
from flows.raw.reading.columns import arm_labels, identifier, number, private_label
from flows.raw.reading.log_files import find_files
from flows.raw.reading.sources import LogFiles
from flows.raw.reading.stores import LogFile
from flows.raw.spill.workspace import Workspace
from privatizers.domain.outcome_grid import map_outcomes
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT


@values_free
def ingest_site(
    config: SiteConfig, source: LogPlace, period: str, workspace: Workspace | None = None
) -> Sealed[Log]:
    """Find the log of ``period``; raises InputError where there is none.

    What is in a table is landed in the ``workspace`` first (:func:`land`). Rows have as ``cluster``
    the number of their cell, 0 … |X| − 1, as a Categorical. Missing and unreadable outcomes count
    as ``outcome.missing``, others are clipped to [low, high]. Nothing is drawn here. Whether files
    can be read does not depend on outcomes and covariates, nor on arms where these are protected.
    """
    columns, missing = config.columns, config.outcome.missing_value
    private = [columns.outcome, *(one.column for one in config.covariates)]
    if config.protects_arms:
        private.append(columns.arm)
    wanted = (columns.unit, columns.arm, *private)
    landed = land(source, period, workspace, {TABLE: wanted})
    files = find_files(landed.directory, "source.path", landed.source.path, period)

    def to_expressions(frame: pl.DataFrame, path: LogFile) -> list[pl.Expr]:
        return [
            identifier(frame, path, columns.unit, "unit").alias(UNIT),
            arm_labels(frame, path, columns.arm, config.arms.names).alias(ARM),
            _cells(config, frame, path).alias(CLUSTER),
            number(frame, path, columns.outcome, "outcome").alias(OUTCOME),
        ]

    ends = np.array([config.outcome.low, config.outcome.high])
    log = Log(
        roster=LogFiles(
            files,
            wanted,
            frozenset(private),
            to_expressions,
            delimiter=config.source.delimiter,
        ),
        events=None,
        unit_type=identifier_type(files, columns.unit),
        mapped=(lambda values: map_outcomes(values, ends, missing),),
    )
    return Sealed(log)


def _cells(config: SiteConfig, frame: pl.DataFrame, path: LogFile) -> pl.Expr:
    """The number of each row's cell, as a Categorical.

    With covariates of m_1, m_2, … cells (:attr:`Covariate.n_cells`) the cell (c_1, c_2, …) has the
    number (c_1 m_2 + c_2) m_3 + …; without covariates there is one cell.
    """
    cells = pl.repeat(0, frame.height, dtype=pl.Int64, eager=True)
    for one in config.covariates:
        read = number if one.is_number else private_label
        values = frame.select(read(frame, path, one.column, "covariate")).to_series()
        cells = cells * one.n_cells + cell_of(one, values)
    return pl.lit(cells.cast(pl.String).cast(pl.Categorical))


def cell_of(one: Covariate, values: pl.Series) -> pl.Series:
    """Return the cell of each value by one covariate: text with nulls, or numbers with NaN.

    The domain comes from the configuration alone, and any value has a cell: with declared values
    there is one more for every other value, missing ones included; with edges e_0 < e_1 < … the
    bins are [e_0, e_1), [e_1, e_2) …, what lies outside goes to the first or the last of them, and
    what is missing or no number to a cell of its own.
    """
    if one.edges is not None:
        numbers = values.to_numpy()
        bins = np.searchsorted(np.array(one.edges[1:-1]), numbers, side="right")
        return pl.Series(np.where(np.isnan(numbers), len(one.edges) - 1, bins), dtype=pl.Int64)
    declared = one.values or ()
    places = dict(zip(declared, range(len(declared)), strict=True))
    return values.replace_strict(places, default=len(declared), return_dtype=pl.Int64)
