"""Effects adjusted for covariates of the analyst's own: a table of units beside a release."""

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

from estimators.effects import Estimate, effects
from estimators.evidence import Evidence
from estimators.regression import UNITS_PER_COLUMN, Adjusted, Units, bearable_columns, regressions
from flows.released.estimate import stated_forecast, with_forecast
from flows.released.file.evidence import Released, read_frame, read_released
from flows.released.file.read import opened, read_manifest
from flows.released.file.sql import quoted
from flows.runtime.table_files import id_column, read_table
from schemas.arrays import Bools, Floats
from schemas.errors import InputError

UNIT_ID = "unit_id"
MAX_LEVELS = 50
"""Values of a column of text; one with more is no category, but an id or a number gone wrong."""
MAX_COLUMNS = 100
"""Columns of a regression, whatever the sample: beyond, memory rather than units is short."""
GREATEST = 1e70
"""Of a number, so that its fourth power stays within doubles."""
MOST_BY_ONE = 0.4
"""A warning is due where one unit alone holds more of a column's variation than this."""

_TEXT = (pl.String, pl.Categorical, pl.Enum)


@dataclass(frozen=True)
class CovariateEstimates:
    """Effects without and with adjustment, and how the table fits the release."""

    estimates: list[Estimate]
    n_columns: int
    """Columns of the table besides the id."""
    n_rows: int
    n_matched: int
    """Units of the table that are in the release."""
    n_unmatched: int
    n_units_without: int
    """Units of the release that are not in the table."""
    n_duplicates: int
    """Rows that repeat another; they count once."""
    n_missing: int
    """Rows without an id; they are left out."""
    dropped_columns: tuple[str, ...]
    """Columns that are constant within strata and arms, or made up by earlier ones."""
    gaps: dict[str, int]
    """Units of the table that lack a value, by column."""
    lone: dict[str, float]
    """The share of a column's variation that one unit holds, where it is large."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What does not fit."""
        told = {
            "units of the table are not in the release": self.n_unmatched,
            "units of the release are not in the table and count as lacking every value": (
                self.n_units_without
            ),
            "rows of the table repeat another and count once": self.n_duplicates,
            "rows of the table lack an id and are left out": self.n_missing,
        }
        lacking = {
            f"units lack a value in column {name!r}: those are told apart by a column of their own"
            " and otherwise stand at its mean": count
            for name, count in self.gaps.items()
        }
        counted = [f"{count:,} {what}" for what, count in (told | lacking).items() if count]
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
        return (*counted, *dropped, *large)

    def as_json(self) -> dict[str, int | list[str]]:
        """How the table fits, as ``clusterdp estimate --covariates --json`` gives it."""
        return {
            "n_columns": self.n_columns,
            "n_rows": self.n_rows,
            "n_matched": self.n_matched,
            "n_unmatched": self.n_unmatched,
            "n_units_without": self.n_units_without,
            "n_duplicates": self.n_duplicates,
            "n_missing": self.n_missing,
            "dropped_columns": list(self.dropped_columns),
        }


@dataclass(frozen=True)
class _Table:
    """The analyst's rows, one a unit: ``unit_id``, then a Float64 or String column each."""

    file: Path
    rows: pl.DataFrame
    n_rows: int
    n_missing: int
    n_duplicates: int

    @property
    def names(self) -> list[str]:
        return self.rows.columns[1:]


@dataclass(frozen=True)
class _Design:
    """Columns of numbers, and the column of the table that each was made of."""

    columns: Floats
    origin: tuple[str, ...]
    """Shape [p]; empty for a column that tells missing values."""

    def made_of(self, used: Bools) -> set[str]:
        return {name for name, one in zip(self.origin, used.tolist(), strict=True) if one}


def estimate_covariates(
    path: Path, file: Path, level: float = 0.95, frame: pl.DataFrame | None = None
) -> CovariateEstimates:
    """Estimate effects from the release at ``path``, adjusted for the covariates in ``file``.

    ``file`` is CSV or Parquet: ``unit_id``, matched as text, and columns of numbers, text or
    booleans from before the experiment; text becomes an indicator a level, but for the first. A
    missing number stands at the mean and has an indicator; a missing text is a level. Units that
    are not in the table lack every value. The unadjusted estimates come first
    (:func:`estimators.effects.effects`), then :func:`estimators.regression.regressions`. Raises
    InputError where the table cannot be used, naming columns and counts. A ``frame`` is used as it
    is; ``file`` is its name then.
    """
    table = _read(file, frame)
    with opened(path) as connection:
        released = read_released(connection, read_manifest(connection))
        forecast = stated_forecast(connection, released)
        units = _joined(connection, table, released)
    if units.is_empty():
        raise InputError(
            f"{path.absolute()}: publishes no units, so effects from it cannot be adjusted"
        )
    n_known = int(units["known"].sum())
    if n_known == 0:
        raise InputError(
            f"{file}: none of its {table.rows.height:,} ids is in {path.absolute()}. Is it the "
            "table of another release? Where ids are released hashed, clusterdp hash-ids makes "
            "them fit"
        )
    evidence = released.evidence()
    design = _design(table, units)
    _check_width(table, design, evidence, released)
    found = _adjusted(released, evidence, units, design, level)
    used = design.made_of(found.used)
    if not used.intersection(table.names):
        raise InputError(_nothing_varies(file))
    plain = effects(
        evidence,
        released.arms,
        released.manifest.control,
        [None],
        same_shares=released.manifest.same_shares,
        level=level,
    )
    known = units.filter("known")
    return CovariateEstimates(
        estimates=with_forecast(plain, forecast) + found.estimates,
        n_columns=len(table.names),
        n_rows=table.n_rows,
        n_matched=n_known,
        n_unmatched=table.rows.height - n_known,
        n_units_without=units.height - n_known,
        n_duplicates=table.n_duplicates,
        n_missing=table.n_missing,
        dropped_columns=tuple(name for name in table.names if name not in used),
        gaps={name: known[code].null_count() for name, code in _coded(table)},
        lone=_lone(table, known),
    )


def _read(file: Path, frame: pl.DataFrame | None) -> _Table:
    """Read the table, one row a unit."""
    table = read_table(file) if frame is None else frame
    ids = id_column(table, file, UNIT_ID).cast(pl.String)
    names = [name for name in table.columns if name != UNIT_ID]
    if not names:
        raise InputError(f"{file}: has no column besides {UNIT_ID!r}")
    is_text = file.suffix.lower() == ".csv"
    columns = [_values(table[name], file, is_text=is_text) for name in names]
    every = pl.DataFrame([ids.alias(UNIT_ID), *columns])
    rows = every.filter(pl.col(UNIT_ID).is_not_null())
    whole = rows if rows[UNIT_ID].n_unique() == rows.height else rows.unique(maintain_order=True)
    if whole.is_empty():
        raise InputError(f"{file}: has no row with an id")
    n_units = whole[UNIT_ID].n_unique()
    if n_units < whole.height:
        counts = whole.group_by(UNIT_ID).len().filter(pl.col("len") > 1)
        raise InputError(
            f"{file}: {counts.height:,} ids stand in rows that contradict each other; a unit has "
            "one row"
        )
    n_rows = table.height
    return _Table(file, whole, n_rows, n_rows - rows.height, rows.height - whole.height)


def _values(column: pl.Series, file: Path, *, is_text: bool) -> pl.Series:
    """Float64 or String, null where missing; a CSV file's texts are numbers if all of them are."""
    kind = column.dtype
    if isinstance(kind, _TEXT) or kind == pl.Boolean:
        text = column.cast(pl.String).str.strip_chars()
        text = text.set(text == "", None)
        numbers = text.cast(pl.Float64, strict=False) if is_text else None
        if numbers is None or numbers.null_count() > text.null_count():
            return text
    elif kind.is_numeric() or kind == pl.Null:
        numbers = column.cast(pl.Float64)
    else:
        raise InputError(
            f"{file}: column {column.name!r} is {kind}; it has to be numbers, text or booleans"
        )
    if n_infinite := int(numbers.is_infinite().sum()):
        raise InputError(f"{file}: column {column.name!r} has {n_infinite:,} infinite values")
    numbers = numbers.fill_nan(None)
    if n_large := int((numbers.abs() > GREATEST).sum()):
        raise InputError(
            f"{file}: column {column.name!r} has {n_large:,} values beyond ±{GREATEST:g}, which "
            "cannot be computed with; measure it in another unit"
        )
    return numbers


def _coded(table: _Table) -> list[tuple[str, str]]:
    """Every column with the name that it has in SQL."""
    return [(name, f"x{place}") for place, name in enumerate(table.names)]


def _joined(
    connection: duckdb.DuckDBPyConnection, table: _Table, released: Released
) -> pl.DataFrame:
    """Every unit of the release: ``cluster arm d known x0 x1 …``, null where the table is silent.

    In the order of their ids, so that sums come out the same every time.
    """
    codes = ", ".join(f"t.{code}" for _, code in _coded(table))
    renamed = table.rows.rename(dict(_coded(table)))
    connection.register("covariates", renamed.to_arrow())
    outcome = quoted(released.metric.metric)
    query = f"""
    SELECT u.cluster, u.arm, u.{outcome} - $center AS d, t.unit_id IS NOT NULL AS known, {codes}
    FROM main.units AS u LEFT JOIN covariates AS t ON t.unit_id = u.unit_id::VARCHAR
    ORDER BY u.unit_id
    """  # noqa: S608 - constants of ours
    return read_frame(connection, query, {"center": float(released.grid.mean())})


def _design(table: _Table, units: pl.DataFrame) -> _Design:
    """Numbers as they are, texts as indicators, missing values as indicators of their own."""
    columns: list[Floats] = []
    origin: list[str] = []
    silent: dict[bytes, Floats] = {}
    for name, code in _coded(table):
        own = units[code]
        if own.dtype == pl.String:
            made = _indicators(own, name, table.file)
        else:
            mean = own.mean()
            made = [own.fill_null(mean if isinstance(mean, float) else 0.0).to_numpy()]
        columns += made
        origin += [name] * len(made)
        if own.null_count():
            missing = own.is_null().to_numpy()
            silent[np.packbits(missing).tobytes()] = missing.astype(np.float64)
        if len(columns) + len(silent) > MAX_COLUMNS:
            raise InputError(
                f"{table.file}: the columns up to {name!r} make more than {MAX_COLUMNS} of a "
                "regression (text makes one for each value but the first); leave some out"
            )
    if not columns and not silent:
        raise InputError(_nothing_varies(table.file))
    every = np.stack([*columns, *silent.values()], axis=1)
    return _Design(every, (*origin, *[""] * len(silent)))


def _nothing_varies(file: Path) -> str:
    return f"{file}: no column varies among the units of a cluster and arm"


def _indicators(texts: pl.Series, name: str, file: Path) -> list[Floats]:
    levels = texts.drop_nulls().unique().sort()
    if len(levels) > MAX_LEVELS:
        raise InputError(
            f"{file}: column {name!r} has {len(levels):,} different texts, more than {MAX_LEVELS}: "
            "group them, or leave the column out; numbers have to be numbers in every row"
        )
    codes = texts.cast(pl.Enum(levels)).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    return [(codes == code).astype(np.float64) for code in range(1, len(levels))]


def _check_width(table: _Table, design: _Design, evidence: Evidence, released: Released) -> None:
    """Refuse more columns than the smallest arm can bear."""
    width, same_shares = design.columns.shape[1], released.manifest.same_shares
    most = bearable_columns(evidence, len(released.arms), 0, same_shares=same_shares)
    if width > most:
        widest = max(table.names, key=design.origin.count)
        raise InputError(
            f"{table.file}: makes {width} columns of a regression, {design.origin.count(widest)} "
            f"of them from column {widest!r}; the smallest arm of the release bears {most} "
            f"({UNITS_PER_COLUMN} units a column, beyond one a cluster)"
        )


def _adjusted(
    released: Released, evidence: Evidence, units: pl.DataFrame, design: _Design, level: float
) -> Adjusted:
    placed = units.select("cluster", "arm").join(
        released.places, on=["cluster", "arm"], how="left", maintain_order="left"
    )
    return regressions(
        evidence,
        Units(
            cluster=placed["cluster_code"].to_numpy().astype(np.int64),
            arm=placed["arm_code"].to_numpy().astype(np.int64),
            outcome=units["d"].to_numpy(),
            covariates=design.columns,
        ),
        released.arms,
        released.manifest.control,
        same_shares=released.manifest.same_shares,
        level=level,
    )


def _lone(table: _Table, known: pl.DataFrame) -> dict[str, float]:
    """The largest share that one unit has in the squares of a column of numbers."""
    found: dict[str, float] = {}
    for name, code in _coded(table):
        own = known[code]
        if own.dtype != pl.Float64 or own.null_count() == own.len():
            continue
        apart = own.drop_nulls().to_numpy()
        squares = (apart - apart.mean()) ** 2
        share = float(squares.max() / squares.sum()) if squares.max() > 0 else 0.0
        if share > MOST_BY_ONE:
            found[name] = share
    return found
