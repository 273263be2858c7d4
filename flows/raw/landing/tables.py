"""What a table is asked for, whatever keeps it, and what is said where that goes wrong."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from flows.raw.boundary.guard import errors_as
from flows.raw.landing.spans import Span
from schemas.errors import ClusterdpError, ConfigError, InputError


class Table(Protocol):
    """A table that is open for reading, in one version of it."""

    @property
    def schema(self) -> pa.Schema:
        """All its columns."""

    @property
    def version(self) -> str | None:
        """That version, in which it can be opened again; None where none are kept."""

    def pieces(self, columns: Sequence[str], span: Span | None) -> Iterator[pa.Table]:
        """These columns of the rows of a span; some rows beside them may be there."""


Opener = Callable[[str, str, str | None], Table]
"""Opens the table of a name, which a key of the configuration has; errors say both.

It is opened in the version that is given, where that is one of this very table; else as it is now.
"""
EXPIRED = (
    "cannot be read any more in the version that this period was released from: files of it were "
    "vacuumed, or its snapshot has expired. Put them back from a copy; or draw the period anew "
    "from the table as it is now, which costs privacy again, by --revise"
)
"""What is said where a table cannot be read in a version that is not the last."""


def version_of(table: object, number: int | None) -> str:
    """A version by what identifies its table and by its number; 0 where a table has none yet."""
    return f"{table} {number or 0}"


def number_of(version: str | None, table: object) -> int | None:
    """The number of a version; None where it is one of another table."""
    found = re.fullmatch(rf"{re.escape(str(table))} (\d+)", version or "")
    return None if found is None else int(found[1])


def plain_errors(key: str, name: str, otherwise: str) -> AbstractContextManager[None]:
    """Say ``otherwise`` of a library's error: its message quotes values and statements."""

    def failure(error: Exception) -> ClusterdpError:
        if isinstance(error, ClusterdpError):
            return error
        return InputError(f"{key}: {name} {otherwise}", key=key)

    return errors_as(failure, Exception)


def not_installed(extra: str) -> ConfigError:
    """The error of a driver that is not there."""
    return ConfigError("source.in", f"needs a driver: pip install 'clusterdp[{extra}]'")
