"""Effects adjusted for covariates: an analyst's table of units, or attributes of the release."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from estimators.arm_effects import Estimate
from estimators.coverage import coverage_warnings
from estimators.regression import UNITS_PER_COLUMN, Adjusted, Units, bearable_columns, regressions
from flows.released.estimates.release import effects_of, stated_forecast, with_forecast
from flows.released.file.evidence import Released, read_every
from flows.released.file.read import chosen_outcomes, has_text_ids, open_release, read_manifest
from flows.released.tables.analyst_table import (
    AnalystTable,
    TableFit,
    column_codes,
    level_codes,
    read_covariates,
    units_beside,
)
from flows.released.tables.attribute_table import attribute_table, rare_notes
from schemas.arrays import Floats
from schemas.documents import fields_of
from schemas.errors import InputError
from schemas.tables import ASSIGNED_TO

MAX_COLUMNS = 100
"""The most columns of a regression, whatever the sample, so that memory suffices."""
MOST_BY_ONE = 0.4
"""A warning is given where one unit has a greater share of a column's variation than this."""


@dataclass(frozen=True, kw_only=True)
class CovariateEstimates(TableFit):
    """Effects without and with adjustment, and how the table fits the release."""

    estimates: list[Estimate]
    n_columns: int
    """Columns of the table besides the id."""
    n_units_without: int
    """Units of the release that are not in the table."""
    dropped_columns: tuple[str, ...]
    """Columns that are constant within each cluster and arm, or that follow from earlier ones."""
    gaps: dict[str, int]
    """Units of the table that lack a value, by column."""
    lone: dict[str, float]
    """The share of a column's variation that is due to one unit, where it is large."""

    same_shares: bool
    """Whether the release declares that all clusters were randomised with the same arm shares."""
    left_out: tuple[str, ...]
    """Ratios of the release, which have no adjusted effects, where all metrics are meant."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what does not fit, and about effects that compare few people."""
        few = coverage_warnings(self.estimates, same_shares=self.same_shares)
        ratios = [
            f"ratio {name!r} is not here: adjusted are effects on outcomes alone; "
            f"`clusterdp estimate --metric {name}` has the unadjusted ones"
            for name in self.left_out
        ]
        return (*ratios, *self.misfits, *few)

    @property
    def misfits(self) -> tuple[str, ...]:
        """Sentences about what does not fit, and about columns that are left out or doubtful."""
        misfits = {
            "units of the table are not in the release": self.n_unmatched,
            "units of the release are not in the table and count as lacking every value": (
                self.n_units_without
            ),
            "rows of the table repeat another and count once": self.n_duplicates,
            "rows of the table lack an id and are left out": self.n_missing,
        }
        lacking = {
            f"units lack a value in column {name!r}: they get its mean, and an indicator of their "
            "own": count
            for name, count in self.gaps.items()
        }
        counts = [f"{count:,} {what}" for what, count in (misfits | lacking).items() if count]
        dropped = [
            f"column {name!r} is not used: it is constant among the units of a cluster and arm, or "
            "follows from the columns before it"
            for name in self.dropped_columns
        ]
        large = [
            f"one unit alone makes {100 * share:.0f} % of the variation of column {name!r}, which "
            "can put the adjusted effects off: cap the column, or take its logarithm"
            for name, share in self.lone.items()
        ]
        return (*counts, *dropped, *large)

    def as_json(self) -> dict[str, Any]:
        """How the table fits, as ``clusterdp estimate --covariates --json`` gives it."""
        return {
            "n_columns": self.n_columns,
            **fields_of(self, TableFit),
            "n_units_without": self.n_units_without,
            "dropped_columns": list(self.dropped_columns),
        }


@dataclass(frozen=True, kw_only=True)
class AdjustedEstimates(CovariateEstimates):
    """Effects without and with adjustment for attributes."""

    attributes: tuple[str, ...]
    rare: dict[str, int]
    """Texts of an attribute that count as one, where there are any."""

    @property
    def misfits(self) -> tuple[str, ...]:
        """Sentences about attributes that are left out, pooled or doubtful."""
        return (*rare_notes(self.rare), *super().misfits)

    def as_json(self) -> dict[str, Any]:
        """What is said of the attributes by ``clusterdp estimate --adjust --json``."""
        return {
            "attributes": list(self.attributes),
            "dropped_attributes": list(self.dropped_columns),
            "n_rare_values": self.rare,
        }


def estimate_covariates(
    path: Path,
    file: Path,
    level: float = 0.95,
    frame: pl.DataFrame | None = None,
    metrics: Sequence[str] = (),
) -> CovariateEstimates:
    """Estimate effects from the release at ``path``, adjusted for the covariates in ``file``.

    ``file`` is CSV or Parquet: ``unit_id``, matched as text, and columns of numbers, text or
    booleans from before the experiment. Text becomes an indicator for each of its values but the
    first. A missing value has an indicator of its own, and a missing number gets the mean. Units
    that are not in the table lack every value. The unadjusted estimates come first
    (:func:`estimators.arm_effects.effects`), then :func:`estimators.regression.regressions`, for
    one metric after the other; ``metrics`` names those that are asked for, none all of them. Raises
    InputError where the table cannot be used, naming columns and counts. A ``frame`` is used as it
    is; ``file`` is its name then.
    """
    table = read_covariates(file, frame)
    with open_release(path) as connection:
        manifest = read_manifest(connection)
        every = read_every(connection, manifest, chosen_outcomes(manifest, metrics))
        forecast = stated_forecast(connection)
        units = units_beside(connection, table, every)
        are_text = has_text_ids(connection)
    if units.is_empty():
        raise InputError(
            f"{path.absolute()}: publishes no units, so effects from it cannot be adjusted"
        )
    known = units.filter("known")
    fit = table.fit(known.height, path, has_text_ids=are_text)
    columns, origin = _design(table, units)
    _check_width(table, origin, every[0])  # the sizes of arms are the same for all
    estimates: list[Estimate] = []
    used: set[str] = set()
    for at, released in enumerate(every):
        adjusted = _adjust(released, units, at, columns, level)
        used.update(compress(origin, adjusted.used.tolist()))
        if not used.intersection(table.names):
            raise InputError(_nothing_varies(file))
        estimates += with_forecast(effects_of(released, released.whole, level), forecast)
        estimates += adjusted.estimates
    return CovariateEstimates(
        estimates=estimates,
        n_columns=len(table.names),
        n_units_without=units.height - known.height,
        dropped_columns=tuple(name for name in table.names if name not in used),
        gaps={name: known[code].null_count() for name, code in column_codes(table)},
        lone=_lone(table, known),
        same_shares=manifest.same_shares,
        left_out=() if metrics else tuple(one.metric for one in manifest.ratios),
        **fit,
    )


def estimate_adjusted(
    path: Path,
    attributes: tuple[str, ...],
    level: float = 0.95,
    metrics: Sequence[str] = (),
) -> AdjustedEstimates:
    """Estimate effects from the release at ``path``, adjusted for attributes that it publishes.

    As :func:`estimate_covariates` with a table of the attributes
    (:func:`flows.released.tables.attribute_table.attribute_table`).

    Raises:
        ConfigError: The release has no such attribute.
        InputError: It publishes no units, or an attribute cannot be used.
    """
    table, rare = attribute_table(path, attributes, "adjust")
    found = estimate_covariates(path, path.absolute(), level, table, metrics)
    return AdjustedEstimates(**vars(found), attributes=tuple(table.columns[1:]), rare=rare)


def _design(table: AnalystTable, units: pl.DataFrame) -> tuple[Floats, tuple[str, ...]]:
    """The columns of the regression, shape [n, p], and which one of the table each is made from.

    They are numbers, indicators of texts, and indicators of missing values, which have the empty
    text for their origin. Covariates that are missing in the same units share one indicator.
    """
    columns: list[Floats] = []
    origin: list[str] = []
    indicators: dict[bytes, Floats] = {}
    for name, code in column_codes(table):
        values = units[code]
        if values.dtype == pl.String:
            levels, codes = level_codes(values, name, table.file)
            of_values = [(codes == code).astype(np.float64) for code in range(1, len(levels))]
        else:
            mean = values.mean()
            of_values = [values.fill_null(mean if isinstance(mean, float) else 0.0).to_numpy()]
        columns += of_values
        origin += [name] * len(of_values)
        if values.null_count():
            missing = values.is_null().to_numpy()
            indicators[np.packbits(missing).tobytes()] = missing.astype(np.float64)
        if len(columns) + len(indicators) > MAX_COLUMNS:
            raise InputError(
                f"{table.file}: the columns up to {name!r} make more than {MAX_COLUMNS} of a "
                "regression (text makes one for each value but the first); leave some out"
            )
    if not columns and not indicators:
        raise InputError(_nothing_varies(table.file))
    every = np.stack([*columns, *indicators.values()], axis=1)
    return every, (*origin, *[""] * len(indicators))


def _nothing_varies(file: Path) -> str:
    return f"{file}: no column varies among the units of a cluster and arm"


def _check_width(table: AnalystTable, origin: Sequence[str], released: Released) -> None:
    """Raise InputError where there are more columns than the smallest arm can bear."""
    same_shares = released.manifest.same_shares
    most = bearable_columns(released.whole, len(released.arms), 0, same_shares=same_shares)
    if len(origin) > most:
        widest = max(table.names, key=origin.count)
        raise InputError(
            f"{table.file}: makes {len(origin)} columns of a regression, {origin.count(widest)} "
            f"of them from column {widest!r}; the smallest arm of the release bears {most} "
            f"({UNITS_PER_COLUMN} units a column, beyond one a cluster)"
        )


def _adjust(
    released: Released, units: pl.DataFrame, at: int, columns: Floats, level: float
) -> Adjusted:
    """The adjusted effects on an outcome, whose place among those of ``units`` is ``at``."""
    placed = units.select("cluster", "arm").join(
        released.places, on=["cluster", "arm"], how="left", maintain_order="left"
    )
    return regressions(
        released.whole,
        Units(
            cluster=placed["cluster_code"].to_numpy().astype(np.int64),
            arm=placed["arm_code"].to_numpy().astype(np.int64),
            outcome=units[f"d{at}"].to_numpy(),
            covariates=columns,
            assigned=(
                units[ASSIGNED_TO].to_numpy().astype(np.uint64)
                if released.manifest.assigned
                else None
            ),
            noise=units[f"noise{at}"].to_numpy() if released.metric.has_tables else None,
        ),
        released.arms,
        released.manifest.control,
        same_shares=released.manifest.same_shares,
        level=level,
    )


def _lone(table: AnalystTable, known: pl.DataFrame) -> dict[str, float]:
    """The largest share of one unit in the squared deviations of a column, where it is large."""
    shares: dict[str, float] = {}
    for name, code in column_codes(table):
        column = known[code]
        if column.dtype != pl.Float64 or column.null_count() == column.len():
            continue
        values = column.drop_nulls().to_numpy()
        squares = (values - values.mean()) ** 2
        share = float(squares.max() / squares.sum()) if squares.max() > 0 else 0.0
        if share > MOST_BY_ONE:
            shares[name] = share
    return shares
