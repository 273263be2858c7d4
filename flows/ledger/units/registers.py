"""Registers of a ledger: who is in which releases, kept beside SQLite or in pieces in PostgreSQL.

A register is rising 64-bit words (:mod:`privatizers.accounting.histories`). Each release has one of
its own, which never changes. *Sums* of several are made so that few have to be read; they are made
again from releases' own wherever they are lost. What is read is compared with its checksum.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from flows.ledger.tables import PIECES, REGISTERS
from flows.runtime.files import private_directory, sync_directory
from privatizers.accounting.histories import History, Presence, history_of
from privatizers.noise.checksums import Checksum
from schemas.arrays import Words
from schemas.errors import InputError

BLOCK = 1 << 18
"""Words that are read at once, 2 MB: they stay in the processor's cache until all is done."""
_PIECE = 1 << 20
_WORD = np.dtype("<u8")


@dataclass(frozen=True)
class RegisterRow:
    """What the ledger knows of a register."""

    name: str
    mark: str
    """Of what form of ids its digests are, and under what key."""
    n_words: int
    checksum: str
    histories: tuple[History, ...]
    charges: frozenset[int]
    """The charges that it sums up; of a release's own none are said here."""
    met: tuple[int, int] | None = None
    """Of a release's own: how many of how many units were released before; None: not known."""


class DamagedRegisterError(Exception):
    """A register is missing, or is not what was written."""

    def __init__(self, row: RegisterRow) -> None:
        """Keep what the ledger knows of it."""
        self.row = row


@dataclass(frozen=True)
class Written:
    """What was written of a register."""

    n_words: int
    checksum: str


def prefix_of(population: str) -> str:
    """What the names of a population's registers begin with: a digest, whatever its name holds."""
    return hashlib.sha256(population.encode()).hexdigest()[:16]


class Shelves:
    """Where the words of registers are: files in a ``folder``, or else the database."""

    def __init__(self, folder: Path | None) -> None:
        """Keep registers in files in ``folder``; None: in the database."""
        self._folder = folder

    @property
    def in_files(self) -> bool:
        """Whether several threads may read at once; a connection serves one."""
        return self._folder is not None

    def write(self, connection: sa.Connection, name: str, blocks: Iterable[Words]) -> Written:
        """Write the words of a register, for good once the transaction is; InputError if not."""
        checksum, n_words = Checksum(), 0
        if self._folder is None:
            connection.execute(sa.delete(PIECES).where(PIECES.c.name == name))
            left = np.zeros(0, dtype=_WORD)
            piece = 0
            for block in blocks:
                words = np.concatenate([left, block]).astype(_WORD, copy=False)
                while len(words) >= _PIECE:
                    self._put(connection, name, piece, words[:_PIECE], checksum)
                    words, piece, n_words = words[_PIECE:], piece + 1, n_words + _PIECE
                left = words
            self._put(connection, name, piece, left, checksum)
            return Written(n_words + len(left), checksum.result())
        path = self._folder / name
        try:
            private_directory(self._folder)
            path.unlink(missing_ok=True)  # of a transaction that was killed
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                for block in blocks:
                    content = np.ascontiguousarray(block, dtype=_WORD).data.cast("B")
                    checksum.update(content)
                    out.write(content)
                    n_words += len(block)
                out.flush()
                os.fsync(out.fileno())
            sync_directory(self._folder)
        except OSError as error:
            raise InputError(
                f"{path}: cannot write who is in this release here ({error.strerror}); nothing "
                "was charged. Make room, or correct its permissions, and run again"
            ) from None
        return Written(n_words, checksum.result())

    def _put(
        self, connection: sa.Connection, name: str, piece: int, words: Words, checksum: Checksum
    ) -> None:
        content = words.tobytes()
        checksum.update(memoryview(content))
        row = {"name": name, "piece": piece, "words": content}
        connection.execute(sa.insert(PIECES).values(row))

    def blocks(self, connection: sa.Connection, row: RegisterRow) -> Iterator[Words]:
        """The words, block by block; raises DamagedRegisterError, at the end at the latest."""
        try:
            checksum, n_words = Checksum.like(row.checksum), 0
        except ValueError:
            raise DamagedRegisterError(row) from None
        for content in self._contents(connection, row):
            if len(content) % _WORD.itemsize:
                raise DamagedRegisterError(row)
            checksum.update(memoryview(content))
            n_words += len(content) // _WORD.itemsize
            if n_words > row.n_words:
                raise DamagedRegisterError(row)
            yield np.frombuffer(content, _WORD)
        if (n_words, checksum.result()) != (row.n_words, row.checksum):
            raise DamagedRegisterError(row)

    def _contents(self, connection: sa.Connection, row: RegisterRow) -> Iterator[bytes]:
        if self._folder is None:
            piece = 0
            while True:
                one = sa.and_(PIECES.c.name == row.name, PIECES.c.piece == piece)
                words = connection.execute(sa.select(PIECES.c.words).where(one)).scalar()
                if words is None:
                    return
                yield bytes(words)
                piece += 1
        path = self._folder / row.name
        try:
            if not path.is_file():
                raise DamagedRegisterError(row)
            with path.open("rb") as file:
                while content := file.read(BLOCK * _WORD.itemsize):
                    yield content
        except OSError:
            raise DamagedRegisterError(row) from None

    def remove(self, connection: sa.Connection, names: Iterable[str]) -> None:
        """Remove words that no register of the ledger has any more."""
        for name in names:
            if self._folder is None:
                connection.execute(sa.delete(PIECES).where(PIECES.c.name == name))
            else:
                (self._folder / name).unlink(missing_ok=True)

    def strays(self, connection: sa.Connection, population: str) -> list[str]:
        """Names of what killed runs left of this population, whose turn it is."""
        registers = set(connection.execute(sa.select(REGISTERS.c.name)).scalars())
        mine = f"{prefix_of(population)}-"
        if self._folder is None:
            pieces = sa.select(PIECES.c.name).where(PIECES.c.name.startswith(mine)).distinct()
            names = list(connection.execute(pieces).scalars())
        else:
            names = [path.name for path in self._folder.glob(f"{mine}*")]
        return [name for name in names if name not in registers]


def register_rows(connection: sa.Connection, population: str) -> dict[str, RegisterRow]:
    """The registers of a population, by name; those that cannot be understood are left out."""
    query = sa.select(REGISTERS).where(REGISTERS.c.population == population)
    rows = map(_row_of, connection.execute(query).mappings())
    return {row.name: row for row in rows if row is not None}


def _row_of(row: sa.RowMapping) -> RegisterRow | None:
    """What a row of the table says; None where somebody has altered it."""
    try:
        charges, document = row["charges"], json.loads(row["histories"])
        met = document.get("met")
        return RegisterRow(
            name=str(row["name"]),
            mark=str(row["key_fingerprint"]),
            n_words=int(row["n_words"]),
            checksum=str(row["checksum"]),
            histories=_histories_of(document),
            charges=frozenset(int(each) for each in json.loads(charges))
            if charges
            else frozenset(),
            met=None if met is None else (int(met[0]), max(int(met[1]), 1)),
        )
    except (AttributeError, IndexError, ValueError, TypeError, KeyError):
        return None


def new_register(
    population: str,
    name: str,
    mark: str,
    written: Written,
    histories: Iterable[History],
    charges: Iterable[int] | None = None,
    met: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """The row of a register that was written."""
    ways: dict[Presence, int] = {}
    coded = [
        [[ways.setdefault(way, len(ways)), times] for way, times in history]
        for history in histories
    ]
    listed = [[way.experiment, way.arm, repr(way.epsilon), repr(way.delta)] for way in ways]
    return {
        "name": name,
        "population": population,
        "key_fingerprint": mark,
        "n_words": written.n_words,
        "checksum": written.checksum,
        "histories": json.dumps({"ways": listed, "histories": coded, "met": met}),
        "charges": None if charges is None else json.dumps(sorted(charges)),
    }


def _histories_of(document: Any) -> tuple[History, ...]:
    ways = [
        Presence(str(experiment), str(arm), float(epsilon), float(delta))
        for experiment, arm, epsilon, delta in document["ways"]
    ]
    if any(not (way.epsilon >= 0.0 and way.delta >= 0.0) for way in ways):
        raise ValueError
    return tuple(
        history_of({ways[int(number)]: int(times) for number, times in history})
        for history in document["histories"]
    )
