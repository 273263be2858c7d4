"""A site's first private steps: read its log, judge its rows, set aside what is faulty.

Where treatment was not randomised more is protected than in a release: with design ``matching``
neighbours differ in a unit's arm and covariates, too. So nothing that anybody else could notice, a
failure of the run included, follows there from the arms of the units that are kept, or from their
covariates. Which rows name no declared arm, or stand for a unit twice, and are set aside for it, is
taken to be public.
"""

import os
from pathlib import Path

import numpy as np
import pandera.errors
import pandera.polars as pa
import polars as pl

from flows.config.site import Covariate, SiteConfig
from flows.raw.boundary.guard import values_free
from flows.raw.boundary.sealed import Sealed
from flows.raw.reading.columns import identifier, label, outcome
from flows.raw.reading.log_files import find_files
from flows.raw.reading.sources import Source, identifier_type
from flows.runtime.files import private_directory, replace_file
from privatizers.domain.outcome_grid import map_outcomes
from schemas.errors import InputError
from schemas.raw import ARM, CLUSTER, FILE, OUTCOME, ROW, RULE, UNIT, rules
from schemas.roster import Roster

_COVARIATE = "covariate_"
_ASIDE = (RULE, UNIT, ARM, FILE, ROW)


@values_free
def ingest_site(config: SiteConfig, period: str) -> Sealed[pl.DataFrame]:
    """Read the files of ``period``: columns ``unit arm cluster outcome source_file source_row``.

    ``cluster`` is the number of the row's cell, 0 … |X| − 1. Missing and unreadable outcomes count
    as ``outcome.missing``, others are clipped to [low, high]. Nothing is drawn here. Raises
    InputError where a file or a column is not there or cannot be read, whatever outcomes and
    covariates are.
    """
    files = find_files(config.reading, "source.path", config.source.path, period)
    columns = config.columns
    kind = identifier_type(files, columns.unit)

    def brought(frame: pl.DataFrame, path: Path) -> list[pl.Expr]:
        return [
            identifier(frame, path, columns.unit, "unit").cast(kind).alias(UNIT),
            label(frame, path, columns.arm, "arm").alias(ARM),
            outcome(frame, path, columns.outcome).alias(OUTCOME),
            *(
                _covariate(frame, path, one).alias(f"{_COVARIATE}{number}")
                for number, one in enumerate(config.covariates)
            ),
        ]

    private = (columns.outcome, *(one.column for one in config.covariates))
    public: tuple[str, ...] = (columns.unit, columns.arm)
    if config.design == "matching":  # arms are private there, too
        public, private = (columns.unit,), (columns.arm, *private)
    hidden = frozenset(private) - frozenset(public)
    batches = list(Source(files, (*public, *private), hidden, brought).batches())
    log = pl.concat(batches, how="vertical_relaxed") if batches else pl.DataFrame()
    if log.is_empty():
        raise InputError(f"the log is empty: no row in {', '.join(map(str, files[:3]))}")
    ends = np.array([config.outcome.low, config.outcome.high])
    mapped = map_outcomes(log[OUTCOME].to_numpy(), ends, config.outcome.missing_value)
    rows = log.select(UNIT, ARM, _cells(config, log), pl.Series(OUTCOME, mapped), FILE, ROW)
    return Sealed(rows, rows.height)


def _covariate(frame: pl.DataFrame, path: Path, one: Covariate) -> pl.Expr:
    """A number, NaN where unreadable, or text, null where unreadable."""
    try:
        if one.is_number:
            return outcome(frame, path, one.column)
        return label(frame, path, one.column, "covariate")
    except InputError as error:
        said = str(error).replace("(outcome)", "(covariate)")
    raise InputError(said)


def _cells(config: SiteConfig, log: pl.DataFrame) -> pl.Series:
    """The number of each row's cell.

    With covariates of m_1, m_2, … cells (:attr:`Covariate.n_cells`) the cell (c_1, c_2, …) has the
    number (c_1 m_2 + c_2) m_3 + …; without covariates there is one cell.
    """
    cells = pl.repeat(0, log.height, dtype=pl.Int64, eager=True)
    for number, one in enumerate(config.covariates):
        cells = cells * one.n_cells + cell_of(one, log[f"{_COVARIATE}{number}"])
    return cells.alias(CLUSTER)


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


@values_free
def validate_site(
    config: SiteConfig, log: Sealed[pl.DataFrame]
) -> tuple[Sealed[pl.DataFrame], Sealed[pl.DataFrame], Roster]:
    """Return the rows that are kept, by unit, those that are set aside, and public facts.

    Rows are set aside for faults in unit or arm (:func:`schemas.raw.rules`). A trial's arms are
    public: fewer than two units in one are an InputError. Otherwise nothing is told of the arms,
    and one arm alone is no reason to fail: the report is mostly noise then, and its variance says
    so.
    """
    applied = rules(config.arms.names)
    broken = pl.coalesce([pl.when(rule.faulty).then(pl.lit(rule.name)) for rule in applied])
    judged = log.open().with_columns(broken.alias(RULE))
    kept = judged.filter(pl.col(RULE).is_null()).drop(RULE).sort(UNIT)
    aside = judged.filter(pl.col(RULE).is_not_null()).select(_ASIDE)
    roster = _roster(config, kept, aside)
    if kept.is_empty():
        counted = ", ".join(f"{name} {n:,}" for name, n in roster.quarantined_by_rule.items())
        raise InputError(
            f"no row is left: all {judged.height:,} were set aside ({counted}); check columns and "
            "arms in the configuration"
        )
    for arm, count in roster.units_by_arm.items():
        if count < 2:
            raise InputError(
                f"arms: {arm!r} has {count} unit(s) in this log; a trial takes 2 in each arm at "
                "least, for an effect with a variance"
            )
    _check_schema(config, kept)
    return Sealed(kept, kept.height), Sealed(aside, aside.height), roster


def _roster(config: SiteConfig, kept: pl.DataFrame, aside: pl.DataFrame) -> Roster:
    """Public facts; the arms are among them in a trial alone."""
    sizes = dict(kept.group_by(ARM).len().iter_rows())
    by_arm = {arm: int(sizes.get(arm, 0)) for arm in config.arms.names}
    return Roster(
        n_units=kept.height,
        n_clusters=1,
        units_by_arm=by_arm if config.design == "trial" else {},
        quarantined=aside.height,
        quarantined_by_rule=dict(aside.group_by(RULE).len().sort(RULE).iter_rows()),
    )


def _check_schema(config: SiteConfig, kept: pl.DataFrame) -> None:
    """Let pandera judge the rows that are kept; they always pass, unless a rule is wrong."""
    outcomes = pa.Check.in_range(config.outcome.low, config.outcome.high)
    schema = pa.DataFrameSchema(
        {
            UNIT: pa.Column(nullable=False, unique=True),
            ARM: pa.Column(pl.String, pa.Check.isin(list(config.arms.names)), nullable=False),
            CLUSTER: pa.Column(pl.Int64, pa.Check.in_range(0, config.n_cells - 1), nullable=False),
            OUTCOME: pa.Column(pl.Float64, outcomes, nullable=False),
            FILE: pa.Column(pl.UInt32, nullable=False),
            ROW: pa.Column(pl.UInt64, nullable=False),
        },
        strict=True,
    )
    try:
        schema.validate(kept, lazy=True)
    except pandera.errors.SchemaErrors as error:
        checks = sorted({str(one.reason_code) for one in error.schema_errors})
    else:
        return
    raise InputError(f"rows that passed every rule break the schema ({', '.join(checks)})")


@values_free
def set_site_aside(
    config: SiteConfig, period: str, aside: Sealed[pl.DataFrame], report_id: str
) -> None:
    """Keep what was set aside of a report where the operator alone can read it (mode 0600).

    ``REPORT_ID.parquet`` in the quarantine folder has the file, row number, rule, unit and arm of
    each row. Where nothing was set aside, that of an earlier attempt at this report is removed.
    """
    rows = aside.open()
    path = config.quarantined / f"{report_id}.parquet"
    if rows.is_empty():
        path.unlink(missing_ok=True)
        return
    files = find_files(config.reading, "source.path", config.source.path, period)
    private_directory(path.parent)
    named = rows.with_columns(pl.Series(list(map(str, files))).gather(rows[FILE]).alias(FILE))
    with replace_file(path, mode=0o600) as file:
        named.write_parquet(file)
        os.fsync(file.fileno())
