"""What a table is asked for, whatever keeps it, and what is said where that goes wrong."""

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

    def pieces(self, columns: Sequence[str], span: Span | None) -> Iterator[pa.Table]:
        """These columns of the rows of a span; some rows beside them may be there."""


Opener = Callable[[str, str], Table]
"""Opens the table of a name, which a key of the configuration has; errors say both."""


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
