"""Small DuckDB files, one after the other, by one engine that stays open.

To start an engine takes longer than to write a few thousand rows, and to make tables with a comment
for each column ten times as long as to copy empty ones. Nights that catch up, services and tests
write many files in one process; a program that writes one gains nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path

import duckdb

from flows.released.file.sql import text, unplanned
from flows.released.file.unit_counts import PLACES_BITS
from flows.runtime.engine import engine
from schemas.released import STORAGE_VERSION

_MOST_MADE = 50  # each takes half a megabyte or less


@dataclass(frozen=True)
class _Kept:
    connection: duckdb.DuckDBPyConnection
    numbers: Iterator[int] = field(default_factory=count)
    _made: dict[str, str] = field(default_factory=dict)

    def empty_tables(self, made: str) -> str:
        """The name of a database in memory with the tables that these statements make."""
        if made not in self._made:
            place = f"empty{next(self.numbers)}"
            with self.connection.cursor() as connection:
                connection.execute(f"ATTACH ':memory:' AS {place}; USE {place}; {unplanned(made)}")
            if len(self._made) == _MOST_MADE:
                _kept.cache_clear()
            self._made[made] = place
        return self._made[made]


@cache
def _kept() -> _Kept:
    return _Kept(engine({"temp_directory": "", "threads": 1, "perfect_ht_threshold": PLACES_BITS}))


@dataclass(frozen=True)
class SmallFile:
    """A file that is written, and the current database of its connection."""

    connection: duckdb.DuckDBPyConnection
    place: str
    """The name that it is attached under: threads may write theirs at one time."""
    _by: _Kept

    def copied(self, made: str) -> str:
        """A statement that gives the file the tables that the statements ``made`` make."""
        return f"COPY FROM DATABASE {self._by.empty_tables(made)} TO {self.place} (SCHEMA)"


@contextmanager
def small_file(path: Path) -> Iterator[SmallFile]:
    """Make a file at ``path``, of the declared storage version; it is closed at the end.

    After any failure the engine is let go of: DuckDB invalidates one that could not write.
    """
    kept = _kept()
    with kept.connection.cursor() as connection:
        place = f"file{next(kept.numbers)}"
        try:
            connection.execute(attaching(path, place))
            yield SmallFile(connection, place, kept)
            connection.execute(f"USE memory; DETACH {place}")
        except BaseException:
            _kept.cache_clear()
            for undone in ("ROLLBACK", f"USE memory; DETACH {place}"):
                with suppress(duckdb.Error):
                    connection.execute(undone)
            raise


def attaching(path: Path, place: str) -> str:
    """Statements that make the file at ``path`` the current database, by the name of ``place``."""
    return f"ATTACH {text(str(path))} AS {place} (STORAGE_VERSION '{STORAGE_VERSION}'); USE {place}"
