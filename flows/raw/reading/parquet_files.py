"""Reading Parquet: columns as they are; private text as far as it can be decoded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.raw.reading.columns import TEXT_LIKE
from flows.raw.reading.log_files import UNREADABLE, Wanted, check_columns
from flows.raw.reading.parallel import in_batches
from schemas.errors import InputError

_AT_ONCE = 1 << 20  # bytes of a column that are read ahead


def scan(path: Path) -> pl.LazyFrame:
    """A file as it stands; the folders it lies in add no columns."""
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def without_rows(path: Path, wanted: Wanted) -> pl.DataFrame:
    """The wanted columns with no row; InputError where the file cannot be read or lacks one."""
    try:
        schema = scan(path).collect_schema()
    except UNREADABLE:
        schema = None
    if schema is None:
        raise _unreadable(path)
    check_columns(path, wanted, schema.names())
    return pl.DataFrame(schema={name: schema[name] for name in wanted.names})


def read_parquet(path: Path, wanted: Wanted, size: int) -> Iterator[pl.DataFrame]:
    """The wanted columns, ``size`` rows at a time; InputError where the file cannot be read.

    In private text U+FFFD stands for bytes that are no UTF-8. The library fails over them; from
    there on the text is read as bytes, while every other column is read as before.
    """
    given = 0
    texts: list[str] = []
    try:
        schema = without_rows(path, wanted).schema
        texts = [one for one in wanted.names if one in wanted.private and _is_text(schema[one])]
        for frame in scan(path).select(wanted.names).collect_batches(chunk_size=size):
            yield frame
            given += frame.height
    except UNREADABLE:
        pass
    else:
        return
    try:
        for frame in _beside(path, wanted, texts, size) if texts else ():
            left = frame[given:]
            given = max(0, given - frame.height)
            if left.height:
                yield left
    except (pa.ArrowException, *UNREADABLE):
        texts = []
    if not texts:
        raise _unreadable(path)


def _unreadable(path: Path) -> InputError:
    return InputError(f"{path}: cannot be read as Parquet; is it whole?")


def _is_text(kind: pl.DataType) -> bool:
    return isinstance(kind, TEXT_LIKE)


def _beside(path: Path, wanted: Wanted, texts: list[str], size: int) -> Iterator[pl.DataFrame]:
    """The wanted columns, those of ``texts`` decoded value by value, the others as ever."""
    others = [name for name in wanted.names if name not in texts]
    plain = in_batches(scan(path).select(others).collect_batches(chunk_size=size), size)
    decoded = in_batches(_decoded_batches(path, texts, size), size)
    if not others:
        yield from (frame.select(wanted.names) for frame in decoded)
        return
    for one, other in zip(plain, decoded, strict=True):
        yield pl.concat([one, other], how="horizontal").select(wanted.names)


def _decoded_batches(path: Path, texts: list[str], size: int) -> Iterator[pl.DataFrame]:
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=_AT_ONCE) as file:
        for batch in file.iter_batches(size, columns=texts):
            yield pl.DataFrame([_decoded(name, batch.column(name)) for name in texts])


def _decoded(name: str, column: Any) -> pl.Series:
    """Text of an Arrow array, with U+FFFD for bytes that are no UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.view(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    texts = (None if one is None else one.decode(errors="replace") for one in column.to_pylist())
    return pl.Series(name, list(texts), dtype=pl.String)
