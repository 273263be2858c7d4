"""The files of a log: those that a pattern names, all of them, and each a regular file.

What matches is read or the run ends: nothing is passed over in silence. A folder that is a table in
itself, as Spark writes them (``clicks.parquet/`` with part files, perhaps in ``day=1/`` below),
stands for the files in it.
"""

import csv
import glob
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from flows.runtime.paths import absolute
from flows.runtime.regular_files import check_regular
from schemas.errors import InputError, shown

TEXT_FORMATS = frozenset({".csv", ".jsonl", ".ndjson", ".json"})
FORMATS = TEXT_FORMATS | {".parquet"}
UNREADABLE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    EOFError,
    csv.Error,
    zlib.error,
)
"""What libraries raise over a file that is not what its name says."""

CHUNK = 1 << 24
"""Bytes of text that are read at once."""

MARK = b"\xef\xbb\xbf"
"""The mark of byte order that some systems begin a file of text with."""

_UNFINISHED = {
    "_delta_log": "a Delta table, whose files hold rows that were deleted, too; write its rows out",
    "_temporary": "still being written, or was left so; write it again",
}


@dataclass(frozen=True)
class Wanted:
    """What is read of a file."""

    names: tuple[str, ...]
    """The columns, as the file calls them."""
    private: frozenset[str] = frozenset()
    """Those that may hold an outcome: no value of theirs can make reading fail."""


def find_files(directory: Path, key: str, pattern: str, period: str) -> tuple[Path, ...]:
    """List the files of ``period`` in the order of their names; at least one, or InputError.

    ``pattern`` is what a configuration in ``directory`` says under ``key``. A file that matches
    twice, by links, is listed once, under the first of its names. Raises InputError, too, over a
    match that is neither a regular file nor a table's folder, or that cannot be opened.
    """
    pattern = pattern.replace("{period}", period)
    anchored = Path(glob.escape(str(directory))) / Path(pattern).expanduser()
    found = sorted(map(Path, glob.glob(str(anchored), recursive=True)))  # noqa: PTH207 - may be absolute
    _check_listed(anchored)
    files = _without_copies(_expanded(key, found))
    if not files:
        raise InputError(f"{key}: no file matches {absolute(directory, pattern, shown(pattern))}")
    return files


def file_names(files: tuple[Path, ...]) -> str:
    """The files, as a message names them."""
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def suffix(path: Path) -> str:
    """The ending that tells the format, in small letters; without ``.gz`` where that may be."""
    name = path.name.lower()
    if name.endswith(".gz"):
        inner = Path(name[: -len(".gz")]).suffix
        return inner if inner in TEXT_FORMATS else ".gz"
    return Path(name).suffix


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file of text, through gzip where its name says so."""
    if path.suffix.lower() == ".gz":
        # gzip's file is as good as one of bytes; its type says no more than "a stream".
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def decodable(text: bytes) -> bytes:
    """The text with U+FFFD for bytes that are no UTF-8; no comma, quote or line feed is one."""
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return text.decode(errors="replace").encode()
    return text


def check_columns(path: Path, wanted: Wanted, found: Iterable[str]) -> None:
    """Refuse a file without a wanted column; a head that is a row of data is not shown."""
    there = frozenset(found)
    for name in wanted.names:
        if name not in there:
            raise InputError(f"{path}: there is no column {name!r}; correct the name")


def _check_listed(pattern: Path) -> None:
    """Refuse a folder that may hold matches and cannot be looked into: they would be missed."""
    parts = pattern.parts
    for depth in range(1, len(parts)):
        if not glob.has_magic(parts[depth]):
            continue
        above = glob.glob(str(Path(*parts[: depth + ("**" in parts[depth])])), recursive=True)  # noqa: PTH207 - as above
        for folder in map(Path, above):
            if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
                raise InputError(f"{folder}: cannot look into this folder; allow reading it")


def _expanded(key: str, found: list[Path]) -> Iterator[Path]:
    """The regular files among the matches, and those in tables' folders."""
    tables = {path for path in found if path.is_dir() and suffix(path) in FORMATS}
    holding = {above for path in found for above in path.parents}
    for path in found:
        if tables.intersection(path.parents):
            continue  # one of the table's own files, which come with it
        if path in tables:
            yield from _table_files(path)
        elif not path.is_dir():
            check_regular(path)
            yield path
        elif path not in holding:  # else the pattern names what is in it
            raise InputError(
                f"{key}: {path} is a folder, and no file matches in it; name its files (as in "
                f"{path.name}/*), or give a table's folder the ending of its format"
            )


def _table_files(table: Path, folder: Path | None = None) -> list[Path]:
    """The part files of a table: not those whose names begin with ``_`` or ``.``, as in Spark."""
    folder = folder or table
    files: list[Path] = []
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        entries = None
    if entries is None:
        raise InputError(f"{folder}: cannot look into this folder; allow reading it")
    for entry in entries:
        if entry.name in _UNFINISHED:
            raise InputError(f"{table}: this folder is {_UNFINISHED[entry.name]}")
        if entry.name.startswith(("_", ".")):
            continue
        if not entry.is_dir():
            check_regular(entry)
            files.append(entry)
        elif "=" in entry.name:
            files += _table_files(table, entry)
        else:
            raise InputError(
                f"{entry}: a folder in a table's folder that is no partition (KEY=VALUE); take it "
                "out, or name the files themselves"
            )
    if folder == table and not files:
        raise InputError(f"{table}: this folder holds no file of a table; is it whole?")
    return files


def _without_copies(files: Iterable[Path]) -> tuple[Path, ...]:
    """Each file once, in the order of names."""
    known: dict[tuple[int, int], Path] = {}
    for path in sorted(files):
        status = path.stat()
        known.setdefault((status.st_dev, status.st_ino), path)
    return tuple(known.values())
