"""Reading Parquet files in object stores, row group by row group, by pyarrow.

The rows and types are those that polars gives of the same file on this machine
(:mod:`flows.raw.reading.by_format.parquet_files`), which reads no store of pyarrow's.
"""

from collections.abc import Iterator
from itertools import accumulate

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.raw.reading.by_format.decoding import decode, is_arrow_text
from flows.raw.reading.log_files import Wanted
from flows.raw.reading.stores import OpenFile, StoredFile


def schema_of(file: StoredFile) -> pl.Schema:
    """The names and types of a file's columns."""
    with OpenFile(file) as opened, pq.ParquetFile(opened.content) as parquet:
        frame = pl.from_arrow(parquet.schema_arrow.empty_table())
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(frame)
    return frame.schema


def group_sizes(file: StoredFile) -> list[int]:
    """The number of rows in each row group of a file."""
    with OpenFile(file) as opened:
        found = pq.read_metadata(opened.content)
    return [found.row_group(group).num_rows for group in range(found.num_row_groups)]


def read_groups(
    file: StoredFile, wanted: Wanted, size: int, begin: int = 0, end: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the wanted columns, at most ``size`` rows at a time.

    Rows are those of the row groups that begin at ``begin`` or behind it, and before ``end``. In
    private text, bytes that are not UTF-8 become U+FFFD; in other text they are an ArrowInvalid.
    """
    with OpenFile(file) as opened, pq.ParquetFile(opened.content, pre_buffer=True) as parquet:
        found = parquet.metadata
        sizes = [found.row_group(group).num_rows for group in range(found.num_row_groups)]
        starts = [0, *accumulate(sizes)][:-1]
        groups = [
            group
            for group, start in enumerate(starts)
            if start >= begin and (end is None or start < end)
        ]
        names = list(wanted.names)
        for batch in parquet.iter_batches(size, row_groups=groups, columns=names):
            yield pl.DataFrame([_column(batch, name, wanted) for name in names])


def _column(batch: pa.RecordBatch, name: str, wanted: Wanted) -> pl.Series:
    column = batch.column(name)
    if is_arrow_text(column.type):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            if name in wanted.private:
                return decode(name, column)
            raise
    return pl.Series(name, pl.from_arrow(column))
