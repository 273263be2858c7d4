"""A container for raw rows that are passed from one private step to the next.

The code between the steps cannot look inside by accident: a container prints as its size alone,
cannot be pickled, and is no dataclass, so no library walks its fields.
"""

from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class Sealed(Generic[T]):
    """A raw value; only code under ``flows/raw`` may open it."""

    __slots__ = ("__value", "n_rows")

    def __init__(self, value: T, n_rows: int | None = None) -> None:
        """Seal ``value``; only ``n_rows`` shows, a public number, where it is known."""
        self.__value = value
        self.n_rows = n_rows

    def open(self) -> T:
        """Return the value. Only private steps may call this; a test looks for other calls."""
        return self.__value

    def __repr__(self) -> str:
        """Show the number of rows, never the value."""
        return "<sealed>" if self.n_rows is None else f"<sealed, {self.n_rows} rows>"

    def __reduce__(self) -> NoReturn:
        """Refuse to leave the process."""
        raise TypeError("raw rows cannot be pickled")
