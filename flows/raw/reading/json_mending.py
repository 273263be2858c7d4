"""Mending a line of JSON that a private value spoils, so that its public fields can be read.

A member of an object is its key, a colon and its value: text in quotes, what stands between a
bracket and the one that closes it, or whatever goes on to the next comma, bracket or quote. As far
as a line can be taken apart like that, its public fields are read, whatever its private values are.
"""

import json
import re
from collections.abc import Iterator

from flows.raw.reading.log_files import Wanted

LONG = 1_000_000
"""The most bytes of a private value that is read; longer ones are missing."""

_BLANKS = r"[ \t\r\n]*+"
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BEGIN = re.compile(_BLANKS + r"\{")
_KEY = re.compile(f"{_BLANKS}({_STRING}){_BLANKS}:{_BLANKS}", re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_BARE = re.compile(r'[^,{}\[\]"]*+')
_BRACKET = re.compile(rf'{_STRING}|[\[\]{{}}"]', re.DOTALL)
_AFTER = re.compile(_BLANKS + r"([,}])")
_END = re.compile(_BLANKS + r"\}" + _BLANKS)
_BROKEN = "{"
_CLOSING = {"[": "]", "{": "}"}
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def mended(line: str, wanted: Wanted) -> str:
    """The wanted fields of a line as a line of their own; nothing of a blank one.

    Public values stay as they are spelt, but that halves of surrogate pairs become U+FFFD. Private
    values become the text that they hold or are, or null where they are empty or over
    :data:`LONG` bytes. What is no JSON comes out where the line cannot be taken apart.
    """
    if not line.strip(" \t\r\n"):
        return ""
    fields: dict[str, str] = {}
    try:
        for key, value in _members(line):
            name = _key(key)
            if name in wanted.names and name not in fields:
                fields[name] = _private(value) if name in wanted.private else _whole(value)
    except _BrokenError:
        return _BROKEN
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in fields.items()) + "}"


class _BrokenError(Exception):
    """A line that cannot be taken apart; says nothing."""


def _members(line: str) -> Iterator[tuple[str, str]]:
    """The keys and values of an object, as they are spelt."""
    begin = _BEGIN.match(line)
    if begin is None:
        raise _BrokenError
    place = begin.end()
    closed = _END.fullmatch(line, place)
    while closed is None:
        key = _KEY.match(line, place)
        if key is None:
            raise _BrokenError
        end = _value_end(line, key.end())
        yield key[1], line[key.end() : end]
        after = _AFTER.match(line, end)
        if after is None:
            raise _BrokenError
        place = after.end() if after[1] == "," else after.start(1)
        closed = _END.fullmatch(line, place)
        if closed is None and after[1] == "}":
            raise _BrokenError


def _value_end(line: str, begin: int) -> int:
    """Where the value that begins here ends."""
    first = line[begin : begin + 1]
    if first in _CLOSING:
        return _nested_end(line, begin)
    found = (_TEXT if first == '"' else _BARE).match(line, begin)
    if found is None:
        raise _BrokenError
    return found.end()


def _nested_end(line: str, begin: int) -> int:
    """Where the bracket that opens here is closed."""
    open_ones: list[str] = []
    for found in _BRACKET.finditer(line, begin):
        sign = found[0]
        if sign in _CLOSING:
            open_ones.append(_CLOSING[sign])
        elif sign in ("]", "}"):
            if open_ones.pop() != sign:
                break
            if not open_ones:
                return found.end()
        elif sign == '"':
            break
    raise _BrokenError


def _whole(text: str) -> str:
    """JSON text with U+FFFD for halves of surrogate pairs."""
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda found: r"\ufffd" if found["half"] else found[0], text)


def _key(text: str) -> str | None:
    """The name that a key spells; None where it spells none."""
    try:
        name: str = json.loads(_whole(text))
    except ValueError:
        return None
    return name


def _private(value: str) -> str:
    """A private value as JSON text, or null."""
    value = value.strip(" \t\r\n")
    if len(value) > LONG // 4 and len(value.encode()) > LONG:
        return "null"
    if value.startswith('"'):
        try:
            text = json.loads(_whole(value), strict=False)
        except ValueError:
            text = value[1:-1]
        return json.dumps(text)
    return "null" if value in ("", "null") else json.dumps(value)
