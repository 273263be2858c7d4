"""Mending a line of JSON that a private value spoils, so that its public fields can be read.

A member of an object is its key, a colon and its value. The value is text in quotes, everything
from a bracket to the one that closes it, or everything up to the next comma, bracket or quote. If a
line can be split into such members, its public fields are read, whatever its private values are.
"""

import json
import re
from collections.abc import Iterator

from flows.raw.reading.log_files import Wanted

LONG = 1_000_000
"""The most bytes of a private value; a longer one counts as missing."""

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


def mend(line: str, wanted: Wanted) -> str:
    """Return a line of JSON with the wanted fields of ``line``; the empty text for a blank one.

    Public values stay as written, except that a half of a surrogate pair becomes U+FFFD. A private
    value becomes text (what stands in its quotes, or the value as written), or null where it is
    empty or over :data:`LONG` bytes. The result is not JSON where the line cannot be split.
    """
    if not line.strip(" \t\r\n"):
        return ""
    fields: dict[str, str] = {}
    try:
        for key, value in _members(line):
            name = _key(key)
            if name in wanted.names and name not in fields:
                fields[name] = _private_text(value) if name in wanted.private else _whole(value)
    except _BrokenError:
        return _BROKEN
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in fields.items()) + "}"


class _BrokenError(Exception):
    """A line that cannot be split into members; has no message."""


def _members(line: str) -> Iterator[tuple[str, str]]:
    """The keys and values of an object, as written."""
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
    """The position where the value that begins at ``begin`` ends."""
    first = line[begin : begin + 1]
    if first in _CLOSING:
        return _nested_end(line, begin)
    match = (_TEXT if first == '"' else _BARE).match(line, begin)
    if match is None:
        raise _BrokenError
    return match.end()


def _nested_end(line: str, begin: int) -> int:
    """The position behind the bracket that closes the one at ``begin``."""
    awaited: list[str] = []
    for match in _BRACKET.finditer(line, begin):
        sign = match[0]
        if sign in _CLOSING:
            awaited.append(_CLOSING[sign])
        elif sign in ("]", "}"):
            if awaited.pop() != sign:
                break
            if not awaited:
                return match.end()
        elif sign == '"':
            break
    raise _BrokenError


def _whole(text: str) -> str:
    """JSON text in which halves of surrogate pairs are replaced by U+FFFD."""
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda match: r"\ufffd" if match["half"] else match[0], text)


def _key(text: str) -> str | None:
    """The name that a key stands for; None where it is not JSON."""
    try:
        name: str = json.loads(_whole(text))
    except ValueError:
        return None
    return name


def _private_text(value: str) -> str:
    """A private value as JSON text, or ``null``."""
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
