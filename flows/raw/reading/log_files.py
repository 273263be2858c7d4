"""The files of a log: all that match a pattern, each a regular file, here or in an object store.

Everything that matches is read, or the run ends with an error: no match is left out in silence. A
folder that is a table, as Spark writes them (``clicks.parquet/`` with part files, perhaps in
``day=1/`` below), stands for the files in it.
"""

import csv
import glob
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import polars as pl

from flows.raw.boundary.guard import errors_as
from flows.raw.reading.stored_logs import (
    files_and_tables,
    files_of_table,
    find_stored,
    format_of,
)
from flows.raw.reading.stores import LogFile, StoredFile, open_stored, trouble
from flows.runtime.paths import absolute, is_address
from flows.runtime.reading.regular_files import check_regular
from flows.schedule.paths_of_periods import filled, has_period
from schemas.errors import InputError, NoFileError, did_you_mean, shown

UNREADABLE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    EOFError,
    csv.Error,
    zlib.error,
)
"""The errors of libraries over a file that is not of the format that its name says."""

CHUNK = 1 << 24
"""Bytes of text that are read at once."""

MARK = b"\xef\xbb\xbf"
"""The byte order mark that some systems write at the beginning of a text file."""


@dataclass(frozen=True)
class Wanted:
    """The columns to read of a file."""

    names: tuple[str, ...]
    """The columns, as the file calls them."""
    private: frozenset[str] = frozenset()
    """The columns that may hold outcomes: no value in these can make reading fail."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The key of the configuration that names a column, where an error says it."""
    delimiter: str = ","
    """What stands between the fields of CSV files."""


def find_files(directory: Path, key: str, pattern: str, period: str) -> tuple[LogFile, ...]:
    """List the files of ``period`` in the order of their names.

    ``pattern`` is the value of ``key`` in a configuration that is in ``directory``. A file that
    matches twice, by links, is listed once, under the first of its names. Raises NoFileError where
    no file matches, and InputError for a match that is neither a regular file nor the folder of a
    table, or that cannot be opened.
    """
    return find_files_of_days(directory, key, pattern, (period,), may_be_absent=False)


def find_files_of_days(
    directory: Path, key: str, pattern: str, periods: Sequence[str], *, may_be_absent: bool
) -> tuple[LogFile, ...]:
    """List the files of several periods, as :func:`find_files` lists those of one.

    They are in the order of their names, whatever the order of ``periods``. Unless a period's files
    ``may_be_absent``, NoFileError is raised where one has none; where they may be, InputError is,
    where a disk or store may be what is absent: the folder that holds all periods is not there.
    """
    days = list(dict.fromkeys(periods if has_period(pattern) else periods[:1]))
    found: Sequence[tuple[LogFile, ...]]
    if is_address(pattern):
        found = find_stored(key, pattern, days, may_be_absent=may_be_absent)
    else:
        if may_be_absent:
            _check_there(directory, key, pattern)
        found = [_local(directory, key, filled(pattern, day)) for day in days]
    for day, files in zip(days, found, strict=True):
        if not files and not may_be_absent:
            place = filled(pattern, day)
            if not is_address(pattern):
                place = str(absolute(directory, place, shown(place)))
            raise NoFileError(f"{key}: no file matches {place}", key=key)
    stored = sorted({path for files in found for path in files if isinstance(path, StoredFile)})
    local = (path for files in found for path in files if isinstance(path, Path))
    return (*_without_copies(local), *stored)


def _check_there(directory: Path, key: str, pattern: str) -> None:
    """Refuse a pattern whose folder is not there; that it is empty may hang on people's events."""
    parts = (directory / Path(pattern).expanduser()).parts
    varies = ["{period" in part or glob.has_magic(part) for part in parts[:-1]]
    varies[: len(directory.parts)] = [False] * len(directory.parts)
    folder = Path(*parts[: [*varies, True].index(True)])
    if not folder.is_dir():
        raise InputError(
            f"{key}: {folder} is no folder, so a day without a file cannot be told from a disk "
            "that is not there; mount the disk, or make the folder",
            key=key,
        )


def _local(directory: Path, key: str, pattern: str) -> tuple[Path, ...]:
    anchored = Path(glob.escape(str(directory))) / Path(pattern).expanduser()
    matches = sorted(map(Path, glob.glob(str(anchored), recursive=True)))  # noqa: PTH207 - may be absolute
    _check_listed(anchored)
    return _without_copies(_expand(key, matches))


def file_names(files: tuple[LogFile, ...]) -> str:
    """The files as messages name them: the first, and the number of the others."""
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def suffix(path: LogFile) -> str:
    """The ending that names the format, in small letters; of compressed text without ``.gz``."""
    return format_of(path.name)


def open_bytes(path: LogFile) -> IO[bytes]:
    """Open a text file for bytes, decompressed where its name ends with ``.gz``."""
    content = open_stored(path) if isinstance(path, StoredFile) else path.open("rb")
    if path.suffix.lower() == ".gz":
        return _Unpacked(content)  # type: ignore[return-value] # it reads bytes; declared a stream
    return content


class _Unpacked(gzip.GzipFile):
    """The decompressed bytes of an open file, which is closed with it."""

    def __init__(self, packed: IO[bytes]) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def close(self) -> None:
        super().close()
        self._packed.close()


def unreadable(path: LogFile, form: str, error: BaseException | None = None) -> InputError:
    """The error of a file that is not of its format, or whose store fails; ``error`` is not shown.

    ``form`` is what comes behind "cannot be read as".
    """
    words = None if error is None or isinstance(path, Path) else trouble(error)
    return InputError(f"{path}: {words or f'cannot be read as {form}'}")


def decodable(text: bytes) -> bytes:
    """The text in UTF-8, bytes that are not replaced by U+FFFD; these are no delimiters or quotes.

    Copied only where there are such bytes.
    """
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return text.decode(errors="replace").encode()
    return text


def check_columns(path: LogFile, wanted: Wanted, columns: Iterable[str]) -> None:
    """Raise InputError where a file lacks a wanted column.

    The file's own columns are not shown where its header may be a row of data: that of CSV, unless
    it has another wanted column. Else the one that is spelt most alike is.
    """
    present = frozenset(columns)
    missing = [name for name in wanted.names if name not in present]
    if missing:
        name, key = missing[0], wanted.keys.get(missing[0])
        are_names = suffix(path) == ".parquet" or len(missing) < len(wanted.names)
        meant = did_you_mean(name, sorted(present)) if are_names else ""
        if suffix(path) == ".csv" and len(present) == 1:
            meant = "; its head is one field: is source.delimiter something else than a comma?"
        named = f" ({key})" if key else ""
        raise InputError(
            f"{path}: there is no column {name!r}{named}; correct the name{meant}", key=key
        )


def _check_listed(pattern: Path) -> None:
    """Refuse a folder that may hold matches but cannot be listed: they would be missed."""
    parts = pattern.parts
    for depth in range(1, len(parts)):
        if not glob.has_magic(parts[depth]):
            continue
        above = glob.glob(str(Path(*parts[: depth + ("**" in parts[depth])])), recursive=True)  # noqa: PTH207 - as above
        for folder in map(Path, above):
            if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
                raise InputError(f"{folder}: cannot look into this folder; allow reading it")


def _expand(key: str, matches: list[Path]) -> Iterator[Path]:
    """The regular files among the matches, and the files in the folders of tables."""
    folders = {str(path): path.is_dir() for path in matches}
    for address, is_table in files_and_tables(folders, f"{key}: "):
        table = Path(address)
        content = (
            (entry.relative_to(table).parts, None if entry.is_dir() else entry)
            for entry in _content(table)
        )
        for file in files_of_table(address, content) if is_table else (table,):
            check_regular(file)
            yield file


def _content(folder: Path) -> Iterator[Path]:
    """What is in the folder of a table and, below it, in those of partitions."""
    closed = InputError(f"{folder}: cannot look into this folder; allow reading it")
    with errors_as(lambda _: closed, OSError):
        entries = sorted(folder.iterdir())
    for entry in entries:
        yield entry
        if "=" in entry.name and not entry.name.startswith(("_", ".")) and entry.is_dir():
            yield from _content(entry)


def in_both(files: Iterable[LogFile], others: Iterable[LogFile]) -> list[LogFile]:
    """Those of the ``files`` that are among the ``others``, too, under whatever name."""
    known = {*map(_identity, others)}
    return [path for path in files if _identity(path) in known]


def _without_copies(files: Iterable[Path]) -> tuple[Path, ...]:
    """Each file once, in the order of names."""
    by_identity: dict[object, Path] = {}
    for path in sorted(files):
        by_identity.setdefault(_identity(path), path)
    return tuple(by_identity.values())


def _identity(path: LogFile) -> object:
    """What files that are one have in common, and no others."""
    if not isinstance(path, Path):
        return str(path)
    status = path.stat()
    return status.st_dev, status.st_ino
