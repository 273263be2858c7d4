"""Tables of which each column says itself what is in it."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from flows.runtime.terminal import table

R = TypeVar("R")


def table_of(rows: Iterable[R], cells: Mapping[str, Callable[[R], str]]) -> list[str]:
    """A table of ``rows``: what makes a cell of one, by the heading of its column."""
    return table(tuple(cells), [[cell(row) for cell in cells.values()] for row in rows])
