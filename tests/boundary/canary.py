"""What nobody may see, planted in a log, and the search for it wherever a run leaves a trace.

A canary is an outcome, a unit id or a covariate that nobody else has. Every run has its own, as
runs share Prefect's database. Searched for beside them: the keys of the experiment, and the digests
by which its ledger knows the same rows again, as they depend on outcomes.
"""

import base64
import gzip
import itertools
import re
import sqlite3
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn

import duckdb
import numpy as np
import polars as pl

from flows.raw.boundary.sealed import Sealed

_numbers = itertools.count()


@dataclass(frozen=True)
class Secret:
    """Something to look for, by how it would look in a file."""

    name: str
    marks: tuple[bytes, ...]
    home: str = ""
    """The files of the experiment's folder that it belongs in."""

    def is_in(self, content: bytes | str) -> bool:
        """Whether it is to be found there."""
        found = content.encode() if isinstance(content, str) else content
        return any(mark in found for mark in self.marks)


@dataclass(frozen=True)
class Number(Secret):
    """How many there are of something, which is looked for as a number of its own in all text.

    Not among the bytes of other files: they hold any few digits by chance. Their rows are text.
    """

    number: int = 0

    def is_in(self, content: bytes | str) -> bool:
        """Whether it stands there, and not in a moment, an id or the digits of another number."""
        if isinstance(content, bytes):
            try:
                content = content.decode()
            except UnicodeDecodeError:
                return False
        spelling = rf"(?<![\w.:+-])(?:{self.number}|{self.number:,})(?:\.0+)?(?![\w:-]|\.\d)"
        return re.search(spelling, content) is not None


def marked(name: str, *marks: bytes, home: str = "") -> Secret:
    """A secret that would look like one of these, plain or in Base64 (as in a pickle in JSON)."""
    return Secret(name, (*marks, *(packed for mark in marks for packed in in_base64(mark))), home)


def in_base64(mark: bytes) -> Iterator[bytes]:
    """What Base64 shows of it, wherever it begins."""
    for before, start in enumerate((0, 2, 3)):
        whole = (before + len(mark)) * 8 // 6
        yield base64.b64encode(bytes(before) + mark)[start:whole]


@dataclass(frozen=True)
class Canary:
    """A value to look for, as a number and, where a format or a column has text, as a word."""

    value: float
    word: str

    @classmethod
    def hatch(cls, kind: Literal["outcome", "unit", "covariate"] = "outcome") -> "Canary":
        """A canary that no other run has; units have whole numbers."""
        number = next(_numbers)
        value = 887654.5 + number if kind != "unit" else 8_876_543_000_001 + number
        return cls(value, f"CANARY{number}{kind.upper()}")

    def secret(self, name: str = "canary", home: str = "") -> Secret:
        """How it would look: as text, as a number in either byte order."""
        texts = [str(self.value), f"{self.value:,}", self.word]
        packed = [struct.pack(f"{order}d", self.value) for order in "<>"]
        if isinstance(self.value, int):
            packed += [struct.pack(f"{order}q", self.value) for order in "<>"]
        else:
            texts.append(f"{self.value:e}")
        utf16 = self.word.encode("utf-16-le")
        return marked(name, *(text.encode() for text in texts), utf16, *packed, home=home)


# the search


def contents(path: Path) -> Iterator[bytes | str]:
    """The bytes of a file; where they may be packed, also the rows."""
    content = path.read_bytes()
    yield content
    if content.startswith(b"\x1f\x8b"):
        yield gzip.decompress(content)
    elif content.startswith(b"PAR1"):
        yield spelt(pl.read_parquet(path))
    elif content.startswith(SQLITE):
        yield from map(spelt, rows_of_sqlite(path))
    elif content[8:12] == b"DUCK":
        with duckdb.connect(str(path), read_only=True) as database:
            found = database.execute("SELECT schema_name, table_name FROM duckdb_tables()")
            for schema, table in found.fetchall():
                yield spelt(database.execute(f'FROM "{schema}"."{table}"').fetchall())


_PLAIN = (str, int, float, bool, datetime, type(None))


def spelt(value: object) -> str:
    """All that a value holds, as an error message without any restraint would show it.

    Of a table column by column, as nothing that is looked for is longer than a value.
    """
    if type(value) in _PLAIN:
        return str(value)
    if isinstance(value, Sealed):
        value = value.open()
    if isinstance(value, pl.DataFrame):
        value = value.get_columns()
    if isinstance(value, pl.Series):
        return _spelt_column(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, bytes | memoryview):
        value = [bytes(value).decode("latin-1"), bytes(value).hex()]
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, dict):
        value = [*value.items()]
    if isinstance(value, list | tuple | set):
        return " ".join(map(spelt, value))
    return str(value)


@dataclass
class Before:
    """What stood in a growing file before there was a secret, which need not be searched for it."""

    content: bytes = b""
    rows: frozenset[int] = frozenset()
    """The hashes of its rows, where it is a database of SQLite's."""

    @classmethod
    def of(cls, folder: Path) -> "dict[Path, Before]":
        """What the files of a folder hold now."""
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path: cls(content := path.read_bytes(), _hashes(path, content)) for path in files}


def _spelt_column(column: pl.Series) -> str:
    kind = column.dtype
    is_plain = kind.is_numeric() or kind.is_temporal() or kind == pl.String
    return " ".join(map(str if is_plain else spelt, column.to_list()))


def _hashes(path: Path, content: bytes) -> frozenset[int]:
    rows = rows_of_sqlite(path) if content.startswith(SQLITE) else []
    return frozenset(hash(row) for of_table in rows for row in of_table)


SQLITE = b"SQLite format 3"
_BLOCK = 4096


def rows_of_sqlite(path: Path) -> Iterator[list[tuple[Any, ...]]]:
    """All rows, table by table."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            yield connection.execute(f'SELECT * FROM "{table}"').fetchall()


def changed(before: bytes, now: bytes, margin: int) -> bytes:
    """The blocks of ``now`` that are others than at the same place ``before``.

    With ``margin`` bytes on either side: whatever is that long and was not there is in it whole.
    """
    whole = min(len(before), len(now)) // _BLOCK
    old, new = (np.frombuffer(text[: whole * _BLOCK], np.uint8) for text in (before, now))
    differs = (old != new).reshape(whole, _BLOCK).any(axis=1)
    places = [*(np.flatnonzero(differs) * _BLOCK).tolist()]
    parts = [now[max(place - margin, 0) : place + _BLOCK + margin] for place in places]
    return b"\n".join([*parts, now[max(whole * _BLOCK - margin, 0) :]])


def new_contents(path: Path, before: Before | None, margin: int) -> Iterator[bytes | str]:
    """:func:`contents`, but of a file that stood there before only what is new in it."""
    if before is None:
        yield from contents(path)
        return
    content = path.read_bytes()
    if content.startswith(SQLITE):
        yield changed(before.content, content, margin)
        for rows in rows_of_sqlite(path):
            yield spelt([row for row in rows if hash(row) not in before.rows])
    elif content != before.content:
        # Only a database, and the journal beside it, is written in blocks.
        if path.name.endswith(("-wal", "-journal", "-shm")):
            yield changed(before.content, content, margin)
        else:
            yield from contents(path)


def leaks_into(
    folder: Path,
    *secrets: Secret,
    root: Path | None = None,
    before: Mapping[Path, Before] = MappingProxyType({}),
) -> list[str]:
    """Which of the secrets are in which files of a folder, packed or not, other than at home.

    Homes are relative to ``root``; ``before`` is what stood there before there were the secrets.
    """
    found = []
    margin = max((len(mark) for secret in secrets for mark in secret.marks), default=0)
    in_file: dict[tuple[int, int], list[bool]] = {}  # which secrets; a file may have two names
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = (file.stat().st_dev, file.stat().st_ino)
        if place not in in_file:
            pieces = [without_gaps(one) for one in new_contents(file, before.get(file), margin)]
            in_file[place] = [any(map(secret.is_in, pieces)) for secret in secrets]
        for secret, is_in in zip(secrets, in_file[place], strict=True):
            at_home = root is not None and secret.home and file in root.glob(secret.home)
            if is_in and not at_home:
                found.append(f"{secret.name} in {file}")
    return found


def without_gaps(content: bytes | str) -> bytes | str:
    """Shorten the long runs of zero bytes, of which databases have many, and secrets none."""
    return re.sub(rb"\0{64,}", bytes(64), content) if isinstance(content, bytes) else content


def exposed(folder: Path) -> list[str]:
    """What of an experiment's folder others than its owner could read or change, but should not.

    Releases are for all to read, and for nobody to write. Logs and configurations are the
    operator's own.
    """
    releases = folder / "releases"
    found: list[str] = []
    left = [path for path in folder.iterdir() if path.suffix != ".toml" and path.stem != "log"]
    while left:
        path = left.pop()
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            public = 0o755 if path in (releases, releases / "trial") else 0
            if path.parent == releases / "trial" and (
                ".duckdb" in path.name or "SHA256SUMS" in path.name
            ):
                public = 0o444
            if mode & 0o077 & ~public:
                found.append(f"{path} {mode:04o}")
            if path.is_dir() and mode & 0o011:  # others can enter
                left += path.iterdir()
        except FileNotFoundError:
            continue  # gone meanwhile
    return found


# failures


@dataclass
class Explosive:
    """Stands in for a function or a method, and fails with all that it was given."""

    fail: Callable[[str], NoReturn]
    said: str = ""

    def __call__(self, *given: object, **named: object) -> NoReturn:
        """Fail."""
        here = spelt([*given, *named.values()])
        self.said += here  # parts are worked on at once, and any of them may have the secrets
        self.fail(here)

    def __get__(self, instance: object, kind: type) -> Any:
        """Be a method where a class has it."""
        return self if instance is None else partial(self, instance)
