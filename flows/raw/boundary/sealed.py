"""Containers for what must not be seen: raw rows on their way between the private steps.

Orchestration passes them along and cannot look inside by accident: they print as their size alone,
cannot be pickled, and are no dataclasses, so nothing walks their fields.
"""

from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class Sealed(Generic[T]):
    """A raw value; only code under ``flows/raw`` may open it."""

    __slots__ = ("__value", "n_rows")

    def __init__(self, value: T, n_rows: int | None = None) -> None:
        """Seal ``value``; ``n_rows``, a public number where it is known, is all that shows."""
        self.__value = value
        self.n_rows = n_rows

    def open(self) -> T:
        """The value itself. For the private steps only; a test walks the code for other calls."""
        return self.__value

    def __repr__(self) -> str:
        """Never the value."""
        return "<sealed>" if self.n_rows is None else f"<sealed, {self.n_rows} rows>"

    def __reduce__(self) -> NoReturn:
        """Refuse to leave the process."""
        msg = "raw rows cannot be pickled"
        raise TypeError(msg)
