"""Reading Parquet files: columns with their types; undecodable bytes in private text replaced."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.raw.reading.by_format.decoding import decode
from flows.raw.reading.by_format.stored_parquet import group_sizes, read_groups
from flows.raw.reading.by_format.stored_parquet import schema_of as stored_schema
from flows.raw.reading.columns import TEXT_LIKE
from flows.raw.reading.log_files import UNREADABLE, Wanted, check_columns, unreadable
from flows.raw.reading.parallel import in_batches
from flows.raw.reading.stores import LogFile, StoredFile
from schemas.errors import InputError

_READ_AHEAD = 1 << 20  # bytes of a column


def schema_of(path: LogFile) -> pl.Schema:
    """The names and types of a file's columns; raises what libraries do where it is unreadable."""
    return _scan(path).collect_schema() if isinstance(path, Path) else stored_schema(path)


def n_rows(path: LogFile) -> int:
    """How many rows a file says it has; raises what libraries do where it is unreadable."""
    if not isinstance(path, Path):
        return sum(group_sizes(path))
    return int(_scan(path).select(pl.len()).collect().item())


def _scan(path: Path) -> pl.LazyFrame:
    """The columns of one file; folders named ``key=value`` above it add none."""
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def without_rows(path: LogFile, wanted: Wanted) -> pl.DataFrame:
    """A frame with the wanted columns and no rows; reads the file's schema alone.

    Raises InputError where the file cannot be read or lacks a wanted column.
    """
    failure: InputError | None = None
    schema = pl.Schema()
    try:
        schema = schema_of(path)
    except (pa.ArrowException, *UNREADABLE) as error:
        failure = _unreadable(path, error)
    if failure is not None:
        raise failure
    check_columns(path, wanted, schema.names())
    return pl.DataFrame(schema={name: schema[name] for name in wanted.names})


def stretch(path: LogFile, share: int, of: int) -> tuple[int, int]:
    """Where one of so many equal shares of a file's row groups begins and ends, in rows from 0.

    Raises InputError where the file cannot be read.
    """
    failure: InputError | None = None
    sizes: list[int] = []
    try:
        if isinstance(path, Path):
            found = pq.read_metadata(path)
            sizes = [found.row_group(group).num_rows for group in range(found.num_row_groups)]
        else:
            sizes = group_sizes(path)
    except (pa.ArrowException, OSError) as error:
        failure = _unreadable(path, error)
    if failure is not None:
        raise failure
    begin, end = (len(sizes) * place // of for place in (share, share + 1))
    return sum(sizes[:begin]), sum(sizes[:end])


def read_parquet(
    path: LogFile, wanted: Wanted, size: int, begin: int = 0, end: int | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the wanted columns, ``size`` rows at a time; InputError where the file is unreadable.

    Rows are those from ``begin`` to ``end``, from 0, where row groups do (:func:`stretch`); all
    where there is no ``end``.

    In private text, bytes that are not UTF-8 become U+FFFD. The library fails at such bytes. From
    the rows that it could not give on, private text is read as bytes and decoded here, and every
    other column is read as before.
    """
    if not isinstance(path, Path):
        yield from _read_stored(path, wanted, size, begin, end)
        return
    n_read = 0
    texts: list[str] = []
    try:
        schema = without_rows(path, wanted).schema
        texts = [name for name in wanted.names if name in wanted.private and _is_text(schema[name])]
        rows = _scan(path).select(wanted.names)
        if end is not None:
            rows = rows.slice(begin, end - begin)
        for frame in rows.collect_batches(chunk_size=size):
            yield frame
            n_read += frame.height
    except UNREADABLE:
        pass
    else:
        return
    try:
        first, last = begin + n_read, end
        for frame in _read_decoded(path, wanted, texts, size) if texts else ():
            rest = frame[first:last]
            first = max(0, first - frame.height)
            last = None if last is None else max(0, last - frame.height)
            if rest.height:
                yield rest
    except (pa.ArrowException, *UNREADABLE):
        texts = []
    if not texts:
        raise _unreadable(path)


def _read_stored(
    path: StoredFile, wanted: Wanted, size: int, begin: int, end: int | None
) -> Iterator[pl.DataFrame]:
    without_rows(path, wanted)
    failure: InputError | None = None
    try:
        yield from read_groups(path, wanted, size, begin, end)
    except (pa.ArrowException, *UNREADABLE) as error:
        failure = _unreadable(path, error)
    if failure is not None:
        raise failure


def _unreadable(path: LogFile, error: BaseException | None = None) -> InputError:
    return unreadable(path, "Parquet; is it whole?", error)


def _is_text(kind: pl.DataType) -> bool:
    return isinstance(kind, TEXT_LIKE)


def _read_decoded(
    path: Path, wanted: Wanted, texts: list[str], size: int
) -> Iterator[pl.DataFrame]:
    """The wanted columns, those of ``texts`` decoded value by value, the others by the library."""
    others = [name for name in wanted.names if name not in texts]
    plain = in_batches(_scan(path).select(others).collect_batches(chunk_size=size), size)
    decoded = in_batches(_decoded_batches(path, texts, size), size)
    if not others:
        yield from (frame.select(wanted.names) for frame in decoded)
        return
    for pair in zip(plain, decoded, strict=True):
        yield pl.concat(pair, how="horizontal").select(wanted.names)


def _decoded_batches(path: Path, texts: list[str], size: int) -> Iterator[pl.DataFrame]:
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_AHEAD) as file:
        for batch in file.iter_batches(size, columns=texts):
            yield pl.DataFrame([decode(name, batch.column(name)) for name in texts])
