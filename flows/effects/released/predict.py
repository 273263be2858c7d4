"""Effects predicted by a model for a table of features, the analyst's own, in batches."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from estimators.effects.models.model import EffectModel
from flows.effects.released.model_file import read_model
from flows.runtime.files import replace_file
from flows.runtime.reading.regular_files import check_regular
from flows.runtime.reading.table_files import check_format, check_metadata
from schemas.arrays import Floats
from schemas.documents import Document
from schemas.effects.model import Feature, NumberFeature
from schemas.errors import InputError

EFFECT = "effect"
ERROR = "noise_std_error"

_BATCH = 1 << 16
_TEXT = (pl.String, pl.Categorical, pl.Enum)
_SHOWN = 12  # levels that a message names
_UNREADABLE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    pa.ArrowException,
    OSError,
    UnicodeDecodeError,
)


@dataclass(frozen=True)
class Predicted(Document):
    """A table that was written."""

    path: Path
    n_rows: int


@dataclass
class Predictor:
    """Predicts batch by batch, and counts the rows whose features cannot be used."""

    model: EffectModel
    place: str
    """What the table is called in errors."""
    faults: dict[tuple[str, str], int] = field(default_factory=dict)

    def predict(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the columns ``effect`` and ``noise_std_error`` of the rows of ``frame``.

        InputError where a column is missing, of a type that cannot be meant, or would be
        overwritten; what else is wrong, :meth:`check` says once all rows were seen.
        """
        for name in (EFFECT, ERROR):
            if name in frame.columns:
                raise InputError(
                    f"{self.place}: has a column {name!r} already, which is to be added; rename it"
                )
        features = np.zeros((frame.height, len(self.model.design.features)))
        for number, each in enumerate(self.model.design.features):
            if each.name not in frame.columns:
                raise InputError(
                    f"{self.place}: there is no column {each.name!r}, a feature of the model"
                )
            features[:, number] = self._column(frame, each)
        effects, errors = self.model.predict(features)
        missing = pl.Series(ERROR, [None], dtype=pl.Float64).new_from_index(0, frame.height)
        return pl.DataFrame(
            [pl.Series(EFFECT, effects), missing if errors is None else pl.Series(ERROR, errors)]
        )

    def check(self) -> None:
        """Raise InputError, with the number of rows, where features cannot be used."""
        for (name, fault), n_rows in self.faults.items():
            raise InputError(
                f"{self.place}: column {name!r} {fault} in {n_rows:,} row(s); nothing was written"
            )

    def _column(self, frame: pl.DataFrame, feature: Feature) -> Floats:
        if isinstance(feature, NumberFeature):
            values = frame.select(_number(frame, self.place, feature.name)).to_series()
            numbers = values.fill_null(float("nan")).to_numpy()
            if feature.missing is not None:
                numbers = np.where(np.isnan(numbers), feature.missing, numbers)
            absent = np.isnan(numbers)
            fault = "has no readable number, and the model declares none for that (missing),"
            self._note(feature.name, fault, int(absent.sum()))
            return feature.positions(np.where(absent, feature.low, numbers))
        labels = frame.select(_label(frame, self.place, feature.name)).to_series()
        if feature.missing is not None:
            labels = labels.fill_null(feature.missing)
        fault = "is empty, and the model declares no level for that (missing),"
        self._note(feature.name, fault, labels.null_count())
        codes = labels.cast(pl.Enum(feature.levels), strict=False).to_physical()
        n_unseen = codes.null_count() - labels.null_count()
        if feature.other is None:
            more = len(feature.levels) - _SHOWN
            levels = ", ".join(map(repr, feature.levels[:_SHOWN]))
            levels += f" and {more} more" if more > 0 else ""
            self._note(feature.name, f"has a value that is none of {levels}", n_unseen)
        other = feature.levels.index(feature.other) if feature.other is not None else 0
        found: Floats = codes.fill_null(other).to_numpy().astype(np.float64)
        return found

    def _note(self, name: str, fault: str, n_rows: int) -> None:
        if n_rows:
            self.faults[name, fault] = self.faults.get((name, fault), 0) + n_rows


def _number(frame: pl.DataFrame, place: str, name: str) -> pl.Expr:
    """A column as numbers, null where one is missing or unreadable."""
    kind, column = frame.schema[name], pl.col(name)
    if isinstance(kind, _TEXT):
        text = column.cast(pl.String).str.strip_chars()
        truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None)
        return pl.coalesce(text.cast(pl.Float64, strict=False), truth.cast(pl.Float64))
    if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        return column.cast(pl.Float64, strict=False)
    raise _unfit(kind, place, name)


def _label(frame: pl.DataFrame, place: str, name: str) -> pl.Expr:
    """A column as levels, null where one is empty; whole numbers are spelt without a point."""
    kind, column = frame.schema[name], pl.col(name)
    if kind.is_float() or kind.is_decimal():
        value = column.cast(pl.Float64, strict=False)
        whole = (value == value.floor()) & (value.abs() < 2.0**53)
        integer = pl.when(whole).then(value).cast(pl.Int64, strict=False).cast(pl.String)
        return pl.when(value.is_not_nan()).then(pl.coalesce(integer, value.cast(pl.String)))
    if isinstance(kind, _TEXT) or kind.is_integer() or kind in (pl.Boolean, pl.Null):
        text = column.cast(pl.String)
        return pl.when(text != "").then(text)
    raise _unfit(kind, place, name)


def _unfit(kind: pl.DataType, place: str, name: str) -> InputError:
    return InputError(
        f"{place}: column {name!r} is {kind.base_type()}; it has to be number or text"
    )


def predict_frame(model: EffectModel, frame: pl.DataFrame, place: str) -> pl.DataFrame:
    """Return ``frame`` with ``effect`` and ``noise_std_error`` added; see :class:`Predictor`."""
    predictor = Predictor(model, place)
    added = predictor.predict(frame)
    predictor.check()
    return frame.hstack(added)


def predict_file(model_path: Path, table: Path, output: Path) -> Predicted:
    """Write ``table`` to ``output`` with the effects predicted for its rows added.

    Both are CSV or Parquet by their names. ``output`` appears whole or not at all. Raises
    InputError where a file cannot be read or written, where ``output`` exists, and where rows have
    no usable features.
    """
    model = read_model(model_path).model
    check_format(table)
    check_format(output)
    check_regular(table)
    _check_new(output)
    predictor = Predictor(model, str(table))
    try:
        with replace_file(output, mode=0o644) as file:
            n_rows = _write(predictor, table, file, output.suffix.lower())
            predictor.check()
            _check_new(output)  # nobody else's, meanwhile
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror})") from None
    return Predicted(output.absolute(), n_rows)


def _check_new(output: Path) -> None:
    if output.exists():
        raise InputError(f"{output}: exists already, and is not overwritten; name another file")


def _write(predictor: Predictor, table: Path, file: IO[bytes], suffix: str) -> int:
    n_rows = 0
    with ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for number, rows in enumerate(_batches(table)):
            found = pl.DataFrame(rows)
            added = predictor.predict(found)
            n_rows += found.height
            if suffix == ".csv":
                for name, kind in found.schema.items():
                    if kind.is_nested():
                        raise InputError(
                            f"{table}: column {name!r} is {kind.base_type()}, which CSV has no "
                            "spelling for; write Parquet"
                        )
                found.hstack(added).write_csv(file, include_header=number == 0)
                continue
            whole = rows
            for column in added:
                whole = whole.append_column(column.name, column.to_arrow())
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(file, whole.schema))
            writer.write_table(whole)
    return n_rows


def _batches(table: Path) -> Iterator[pa.Table]:
    """All rows, some at a time, those of CSV as text; at least one batch, which may be empty."""
    is_csv = table.suffix.lower() == ".csv"
    try:
        if is_csv:
            rows = pl.scan_csv(table, infer_schema=False, glob=False)
            yield pl.DataFrame(schema=rows.collect_schema()).to_arrow()
            for frame in rows.collect_batches(chunk_size=_BATCH, maintain_order=True):
                yield frame.to_arrow()
            return
        with pq.ParquetFile(table) as file:
            check_metadata(file.schema_arrow)
            yield pa.Table.from_batches([], schema=file.schema_arrow)  # else Arrow imports pandas
            for batch in file.iter_batches(_BATCH):
                batch.validate(full=True)  # what it reads of a damaged file may contradict itself
                yield pa.Table.from_batches([batch])
    except _UNREADABLE:
        what = "CSV in UTF-8" if is_csv else "Parquet"
        unfit = f"{table}: cannot be read as {what}; is it whole, and is there a header?"
        raise InputError(unfit) from None
