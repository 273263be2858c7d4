"""What goes to a terminal or a log: every character of a name seen, and columns that line up.

On a terminal lines are broken where it ends; what goes to a file or another program is one line a
row, whole, for machines to read. No colours, no codes: nothing in a name is obeyed, nor are marks
of ours. (A library for terminals, rich, was tried: its tables take 25 times as long, cut names or
break rows in files too, and read marks out of names.)
"""

import logging
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TextIO

from schemas.visible import visible

_LONGEST = 200  # characters of a name on a terminal; nobody reads more
_NARROWEST = 20  # columns; below that terminals break lines as they like
_PROSE = 96  # columns of a line that is easy to read
_WHOLE = 18  # columns of a cell that is not broken while others are wider: an interval's, say
_INDENT, _GAP = "  ", "  "
_BLANK = re.compile(r"(?<=\S) (?=\S)")  # a single one, so that what was lined up stays
_COMMAND = re.compile(r"('[^']*/|\S*/)?clusterdp'? ")


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
    if unicodedata.category(character) in ("Mn", "Me") or "\u1160" <= character <= "\u11ff":
        return 0  # the last are vowels and ends of Korean syllables, drawn onto their beginning
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def line_width(stream: TextIO | None = None) -> int | None:
    """How many columns a line may have on standard output, or on ``stream``.

    None where that is no terminal: a file, a pipe.
    """
    if not (stream or sys.stdout).isatty():
        return None
    return max(shutil.get_terminal_size().columns, _NARROWEST)


def wrapped(text: str, columns: int, *, fold: bool = False) -> list[str]:
    """``text`` in lines of at most ``columns``, broken at single blanks and within longer words.

    A path that is longer stays whole, so that it can be copied; with ``fold`` it does not.
    """
    if width(text) <= columns:
        return [text]
    lines: list[str] = []
    for word in _BLANK.split(text):
        if lines and width(lines[-1]) + 1 + width(word) <= columns:
            lines[-1] += f" {word}"
        else:
            lines += _folded(word, columns) if fold or "/" not in word else [word]
    return lines


def _folded(word: str, columns: int) -> list[str]:
    """A word in pieces of at most ``columns``; a mark stays with its letter."""
    pieces, used = [""], 0
    for character in word:
        more = _columns(character)
        if used + more > columns and pieces[-1]:
            pieces.append("")
            used = 0
        pieces[-1] += character
        used += more
    return pieces


def paragraph(text: str) -> list[str]:
    """Prose in lines that are easy to read on a terminal; in one elsewhere."""
    safe, limit = visible(text), line_width()
    return [safe] if limit is None else wrapped(safe, min(limit, _PROSE))


def to_print(text: str, stream: TextIO | None = None) -> str:
    """A whole text for standard output, or ``stream``: safe, its lines broken on a terminal.

    A line that a person is to copy, ``clusterdp …`` or ``.venv/bin/clusterdp …``, stays whole.
    """
    safe, limit = safe_text(text), line_width(stream)
    if limit is None:
        return safe
    lines: list[str] = []
    for line in safe.split("\n"):
        words = line.lstrip(" ")
        indent = line[: len(line) - len(words)]
        is_whole = len(line) <= limit // 2 or _COMMAND.match(words)
        broken = [words] if is_whole else wrapped(words, limit - len(indent))
        lines += [f"{indent}{part}" for part in broken]
    return "\n".join(lines)


def pairs(facts: dict[str, str] | Iterable[tuple[str, str]], indent: str = _INDENT) -> list[str]:
    """Names and values in two columns; on a terminal a long value goes on below itself.

    A pair is one line otherwise, whatever a value holds.
    """
    items = list(facts.items()) if isinstance(facts, dict) else list(facts)
    widest = max((width(name) for name, _ in items), default=0)
    start = len(indent) + widest + len(_GAP)
    limit = line_width()
    lines: list[str] = []
    for name, value in items:
        seen = visible(value)
        parts = [seen] if limit is None else wrapped(seen, max(limit - start, _WHOLE))
        lines.append(f"{indent}{padded(name, widest)}{_GAP}{parts[0]}")
        lines += [" " * start + part for part in parts[1:]]
    return lines


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in plain text: the first column and words to the left, numbers to the right.

    A row is one line, whatever the names in it hold, but on a terminal that is too narrow: there
    headings and long cells are broken first, then columns go below each other, the first ones
    beside them again.
    """
    limit = line_width()
    spell = visible if limit is None else shown
    lines = [[spell(cell) for cell in line] for line in (head, *rows)]
    columns = list(zip(*lines, strict=True))
    words = [i == 0 or _is_words(column[1:]) for i, column in enumerate(columns)]
    widest = [max(map(width, column)) for column in columns]
    if limit is None or _total(widest) <= limit:
        return _lined_up(lines, [min(most, _LONGEST) for most in widest], words)
    least = [max(map(width, (*column[0].split(" "), *column[1:]))) for column in columns]
    found: list[str] = []
    for block in _blocks(least, words, limit):
        fitted = _fitted([widest[i] for i in block], [least[i] for i in block], limit)
        parts = [part for line in lines for part in _broken([line[i] for i in block], fitted)]
        found += [*([""] if found else []), *_lined_up(parts, fitted, [words[i] for i in block])]
    return found


def _is_words(cells: Sequence[str]) -> bool:
    """Whether most cells of a column begin with a letter."""
    return 2 * sum(cell[:1].isalpha() for cell in cells) > len(cells)


def _total(columns: Sequence[int]) -> int:
    return len(_INDENT) + sum(columns) + len(_GAP) * (len(columns) - 1)


def _blocks(least: Sequence[int], words: Sequence[bool], limit: int) -> list[list[int]]:
    """Columns that go beside each other; the first ones, which name a row, are in each block."""
    floors = [min(one, _WHOLE) for one in least]
    named = next((i for i, are_words in enumerate(words) if not are_words), 1)
    first = list(range(max(min(named, 2, len(least) - 1), 1)))
    blocks = [list(first)]
    for i in range(len(first), len(least)):
        if len(blocks[-1]) > len(first) and _total([floors[j] for j in (*blocks[-1], i)]) > limit:
            blocks.append(list(first))
        blocks[-1].append(i)
    return blocks


def _fitted(widest: list[int], least: list[int], limit: int) -> list[int]:
    """Widths of columns in a line: as they are, or those above a greatest one cut to it."""
    if _total(widest) <= limit:
        return widest
    caps = range(max(least), 2, -1)
    cap = next((cap for cap in caps if _total([min(one, cap) for one in least]) <= limit), 2)
    return [min(one, cap) for one in least]


def _broken(cells: Sequence[str], columns: Sequence[int]) -> Iterable[tuple[str, ...]]:
    """A row as the lines it takes in so many ``columns``."""
    parts = [wrapped(cell, most, fold=True) for cell, most in zip(cells, columns, strict=True)]
    return zip_longest(*parts, fillvalue="")


def _lined_up(
    lines: Iterable[Sequence[str]], columns: Sequence[int], words: Sequence[bool]
) -> list[str]:
    places = [(column, not left) for column, left in zip(columns, words, strict=True)]
    return [
        _INDENT
        + _GAP.join(
            padded(cell, column, right=right)
            for cell, (column, right) in zip(line, places, strict=True)
        ).rstrip()
        for line in lines
    ]
