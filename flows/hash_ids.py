"""The released ids of somebody's own table, for whoever holds the key that they are hashed under.

Where ids are released hashed, an analyst's segments do not match them. The key's holder runs this
over the analyst's file, once, and hands back the result.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from flows.config.load import load
from flows.config.unit_id_key import read_key
from flows.raw.boundary.guard import values_free
from flows.raw.units.unit_ids import released_ids
from flows.runtime.files import replace_file
from flows.runtime.reading.table_files import check_format, id_column, read_table
from schemas.documents import Document
from schemas.errors import ConfigError, InputError


@dataclass(frozen=True)
class HashIdsResult(Document):
    """What was written."""

    path: Path
    n_rows: int
    n_missing: int
    """Rows without an id."""
    warnings: tuple[str, ...] = ()


@values_free
def hash_ids(config_path: Path, file: Path, output: Path, column: str) -> HashIdsResult:
    """Write ``file`` to ``output`` with the ids in ``column`` hashed as releases hash them.

    Both are CSV or Parquet by their names. An id that a log could not have (null, empty,
    undecodable) becomes null; every other column stays as it is. Raises ConfigError where ids are
    released as they are, InputError where a file cannot be read or written, or ``output`` exists.
    """
    config = load(config_path)
    key = read_key(config.id_key_path)
    if key is None:
        raise ConfigError(
            "publish.unit_id",
            '"plain": ids are released as they are; use the file as it is, or set "keyed-hash"',
        )
    check_format(file)
    check_format(output)
    _check_new(output)
    frame = read_table(file)
    if column not in frame.columns:
        raise InputError(f"{file}: there is no column {column!r}; name it with --column")
    hashed = released_ids(config.id_key_path, id_column(frame, file, column))
    _write(frame.with_columns(hashed.alias(column)), output)
    return HashIdsResult(output.absolute(), frame.height, hashed.null_count(), key.warnings)


def _check_new(output: Path) -> None:
    if output.exists():
        raise InputError(f"{output}: exists already, and is not overwritten; name another file")


def _write(frame: pl.DataFrame, output: Path) -> None:
    """Write the table whole or not at all."""
    try:
        with replace_file(output, mode=0o644) as file:
            _check_new(output)  # nobody else's, meanwhile
            if output.suffix.lower() == ".csv":
                frame.write_csv(file)
            else:
                frame.write_parquet(file)
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror})") from None
