"""Reading Parquet files: columns with their types; undecodable bytes in private text replaced.

On this machine polars reads them, until it meets such bytes. From there on, and in object stores,
which polars does not read by pyarrow's file systems, pyarrow does: the rows and types are the same.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.raw.boundary.guard import errors_as
from flows.raw.reading.columns import TEXT_LIKE
from flows.raw.reading.log_files import UNREADABLE, Wanted, check_columns, unreadable
from flows.raw.reading.stores import LogFile, OpenFile
from schemas.errors import InputError

_READ_AHEAD = 1 << 20  # bytes of a column


def schema_of(path: LogFile) -> pl.Schema:
    """The names and types of a file's columns; raises what libraries do where it is unreadable."""
    if isinstance(path, Path):
        return _scan(path).collect_schema()
    with _opened(path) as parquet:
        return pl.DataFrame(parquet.schema_arrow.empty_table()).schema


def stated_types(path: LogFile) -> pl.Schema:
    """The same, but empty where the file is unreadable, which is told when its rows are read."""
    with suppress(InputError, pa.ArrowException, *UNREADABLE):
        return schema_of(path)
    return pl.Schema()


def group_sizes(path: LogFile) -> list[int]:
    """The rows of each row group of a file; raises what libraries do where it is unreadable."""
    with _opened(path) as parquet:
        return _sizes(parquet)


def without_rows(path: LogFile, wanted: Wanted) -> pl.DataFrame:
    """A frame with the wanted columns and no rows; reads the file's schema alone.

    Raises InputError where the file cannot be read or lacks a wanted column.
    """
    with _readable(path):
        schema = schema_of(path)
    check_columns(path, wanted, schema.names())
    return pl.DataFrame(schema={name: schema[name] for name in wanted.names})


def stretch(path: LogFile, share: int, of: int) -> tuple[int, int]:
    """Where one of so many equal shares of a file's row groups begins and ends, in rows from 0.

    Raises InputError where the file cannot be read.
    """
    with _readable(path):
        sizes = group_sizes(path)
    begin, end = (len(sizes) * place // of for place in (share, share + 1))
    return sum(sizes[:begin]), sum(sizes[:end])


def read_parquet(
    path: LogFile, wanted: Wanted, size: int, begin: int = 0, end: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the wanted columns, ``size`` rows at a time; InputError where the file is unreadable.

    Rows are those from ``begin`` to ``end``, from 0, where row groups do (:func:`stretch`); all
    where there is no ``end``. In private text, bytes that are not UTF-8 become U+FFFD.
    """
    schema = without_rows(path, wanted).schema
    n_read = 0
    if isinstance(path, Path):
        rows = _scan(path).select(wanted.names)
        if end is not None:
            rows = rows.slice(begin, end - begin)
        with suppress(*UNREADABLE):
            for frame in rows.collect_batches(chunk_size=size):
                yield frame
                n_read += frame.height
            return
        if not any(isinstance(schema[name], TEXT_LIKE) for name in {*schema} & wanted.private):
            raise _unreadable(path)
    with _readable(path):
        for frame in _by_groups(path, wanted, size, begin, end):
            rest = frame[n_read:]
            n_read -= frame.height - rest.height
            if rest.height:
                yield rest


def _by_groups(
    path: LogFile, wanted: Wanted, size: int, begin: int, end: int | None
) -> Iterator[pl.DataFrame]:
    """The wanted columns of the row groups that begin at ``begin`` or behind it, before ``end``."""
    with _opened(path) as parquet:
        groups = [
            group
            for group, start in enumerate([0, *accumulate(_sizes(parquet))][:-1])
            if start >= begin and (end is None or start < end)
        ]
        for batch in parquet.iter_batches(size, row_groups=groups, columns=list(wanted.names)):
            yield pl.DataFrame([_column(batch, name, wanted) for name in wanted.names])


def _sizes(parquet: pq.ParquetFile) -> list[int]:
    found = parquet.metadata
    return [found.row_group(group).num_rows for group in range(found.num_row_groups)]


def _column(batch: pa.RecordBatch, name: str, wanted: Wanted) -> pl.Series:
    """A column; in private text, bytes that are not UTF-8 replaced, else they are an ArrowInvalid.

    Text may be codes of a dictionary of texts.
    """
    column: Any = batch.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    of_kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if any(is_kind(kind) for is_kind in of_kinds):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            if name not in wanted.private:
                raise
            return _decoded(name, column)
    return pl.Series(name, pl.from_arrow(column))


def _decoded(name: str, column: Any) -> pl.Series:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.view(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    texts = (
        None if value is None else value.decode(errors="replace") for value in column.to_pylist()
    )
    return pl.Series(name, list(texts), dtype=pl.String)


def _scan(path: Path) -> pl.LazyFrame:
    """The columns of one file; folders named ``key=value`` above it add none."""
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


@contextmanager
def _opened(path: LogFile) -> Iterator[pq.ParquetFile]:
    """A file as pyarrow reads it, wherever it is."""
    if isinstance(path, Path):
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_AHEAD) as parquet:
            yield parquet
        return
    with OpenFile(path) as opened, pq.ParquetFile(opened.content, pre_buffer=True) as parquet:
        yield parquet


def _readable(path: LogFile) -> AbstractContextManager[None]:
    """Say of errors of libraries that the file is unreadable."""
    return errors_as(lambda error: _unreadable(path, error), pa.ArrowException, *UNREADABLE)


def _unreadable(path: LogFile, error: BaseException | None = None) -> InputError:
    return unreadable(path, "Parquet; is it whole?", error)
