"""What goes to a terminal or a log: every character of a name seen, and columns that line up."""

import logging
import unicodedata
from collections.abc import Iterable, Sequence

from schemas.visible import visible

_LONGEST = 200  # characters of a name; nobody reads more


def shown(name: str) -> str:
    """A name as it may stand within a line: on one line, all of it to be seen, and not endless."""
    return visible(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…")


def safe_text(text: str) -> str:
    """A whole text as it may be printed: our own line breaks stay, the rest has to be visible."""
    return visible(text, keep="\n")


def width(text: str) -> int:
    """How many columns of a terminal a text takes: wide letters two, marks on letters none."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """``text`` with spaces after it, or before it, up to so many columns."""
    space = " " * (columns - width(text))
    return space + text if right else text + space


class SafeFormatter(logging.Formatter):
    """Lines of a log as they may go to a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record, and spell out what cannot be seen."""
        return safe_text(super().format(record))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pairs(facts: dict[str, str], indent: str = "  ") -> list[str]:
    """Names and values in two columns, each pair on one line, whatever a value holds."""
    widest = max(map(width, facts), default=0)
    return [f"{indent}{padded(name, widest)}  {visible(value)}" for name, value in facts.items()]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in plain text; the first column to the left, the others to the right.

    A row is one line, whatever the names in it hold.
    """
    lines = [[shown(cell) for cell in line] for line in (head, *rows)]
    widths = [max(width(line[i]) for line in lines) for i in range(len(head))]
    return [
        "  "
        + "  ".join(
            padded(cell, columns, right=i > 0)
            for i, (cell, columns) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
