"""Reading JSON Lines files: each line by itself, all by the same parser, every field as text.

What is read of a line depends on that line alone, and each public field on its own text in it:

1. A line ends at a line feed. Bytes that are not UTF-8 become U+FFFD, within their line.
2. DuckDB's parser reads the line. NaN, Infinity and a comma before the closing brace are allowed.
   Of a repeated key the first counts. A number becomes the text of the whole number or double that
   it stands for (``1e2`` is ``100.0``); whole numbers of any length stay as they are. Nested values
   lose their blanks.
3. A line that the parser refuses, or of over a million bytes, is mended (:func:`mend`) and given to
   the same parser: odd private values become text or null, everything else stays as it is.
4. A dotted name, such as ``customer.id``, is that of a key, or, where a line has none or null,
   that of a field within: the key ``id`` of the object that the key ``customer`` has.
5. Blank lines are not rows. A line that is still not an object is an error, which gives its number.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from flows.raw.boundary.guard import errors_as
from flows.raw.reading.log_files import (
    CHUNK,
    MARK,
    UNREADABLE,
    Wanted,
    decodable,
    open_bytes,
    unreadable,
)
from flows.raw.reading.stores import LogFile
from flows.runtime.engine import Settings, engine
from flows.runtime.threads import in_parallel
from schemas.arrays import Ints
from schemas.errors import InputError

LINE_LIMIT = 1 << 28
"""The most bytes of a line."""

_MEMORY = "1GB"  # for DuckDB: it holds a few chunks at a time
_LINE_FEED = 10

LONG = 1_000_000
"""The most bytes of a private value; a longer one counts as missing."""

_BLANK = " \t\r\n"
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


def read_json_lines(path: LogFile, wanted: Wanted, size: int) -> Iterator[pl.DataFrame]:
    """Yield the wanted fields of all lines as text, up to ``size`` rows at a time.

    InputError gives the number of a broken line.
    """
    settings: Settings = {
        "temp_directory": "",
        "memory_limit": _MEMORY,
        "threads": 1,
    }
    broken = errors_as(
        lambda _: unreadable(path, "JSON Lines"), duckdb.Error, pa.ArrowException, *UNREADABLE
    )
    with broken, engine(settings) as connection, open_bytes(path) as file:
        parser = _Parser(path, wanted, connection)
        for frame in in_parallel(parser.parse, _chunks(path, file)):
            yield from frame.iter_slices(size)


def _chunks(path: LogFile, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Whole lines, some megabytes at a time, with the number of the first of them.

    Each ends with a line feed, also the last of the file.
    """
    pieces: list[bytes] = []
    number, held = 1, 0
    beginning = True
    while piece := file.read(CHUNK):
        if beginning:
            piece = piece.removeprefix(MARK)
        beginning = False
        cut = piece.rfind(b"\n") + 1
        if held + (piece.find(b"\n") if cut else len(piece)) > LINE_LIMIT:
            raise InputError(f"{path}: line {number} is longer than {LINE_LIMIT >> 20} MB")
        if cut:
            chunk = b"".join((*pieces, memoryview(piece)[:cut]))
            yield number, chunk
            number += chunk.count(b"\n")
            pieces, held = [], 0
        pieces.append(piece[cut:])
        held += len(piece) - cut
    if held:
        yield number, b"".join((*pieces, b"\n"))


@dataclass(frozen=True)
class _Parser:
    """Parses chunks of lines by DuckDB."""

    path: LogFile
    wanted: Wanted
    connection: duckdb.DuckDBPyConnection

    def parse(self, chunk: tuple[int, bytes]) -> pl.DataFrame:
        """The wanted fields of a chunk, a row for each line that is not blank."""
        number, text = chunk
        lines, lengths = _lines(text)
        long = np.flatnonzero(lengths > LONG)
        if len(long):
            lines = _replace(lines, long, self._mended(lines, long))
        frame = self._fields(lines, self.wanted.names)
        if frame.to_series(0).null_count() == 0:
            return frame
        unread = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().arg_true()
        return frame if unread.is_empty() else self._reread(frame, lines, unread, number)

    def _reread(
        self, frame: pl.DataFrame, lines: pa.Array, unread: pl.Series, number: int
    ) -> pl.DataFrame:
        """Mend the lines of which no field was read, and parse them once more; drop blank ones."""
        texts = self._mended(lines, unread.to_numpy())
        again = pa.array(texts, pa.large_string())
        are_objects = self._ask("coalesce(TRY(json_type(line)) = 'OBJECT', false)", again)
        for place, text, is_object in zip(unread, texts, are_objects, strict=True):
            if text and not is_object:
                raise InputError(
                    f"{self.path}: cannot be read as JSON Lines: line {number + place} does not "
                    "parse"
                )
        fields = self._fields(again, self.wanted.names)
        columns = [column.scatter(unread, fields[column.name]) for column in frame.iter_columns()]
        blank = unread.filter(pl.Series([not text for text in texts], dtype=pl.Boolean))
        is_row = pl.repeat(value=True, n=frame.height, dtype=pl.Boolean, eager=True)
        return pl.DataFrame(columns).filter(is_row.scatter(blank, values=False))

    def _mended(self, lines: pa.Array, places: Ints) -> list[str]:
        """The lines at ``places``, mended; a blank one is the empty text."""
        return [mend(line.as_py(), self.wanted) for line in lines.take(pa.array(places))]

    def _fields(self, lines: pa.Array, names: Sequence[str]) -> pl.DataFrame:
        """The fields of these names of each line, null where the line is not an object."""
        within = _within(names)
        texts: dict[str, pl.Series] = {}
        objects: dict[str, pl.Series] = {}
        for group in _groups((*names, *within), ["VARCHAR"] * len(names) + ["JSON"] * len(within)):
            structure = json.dumps(group).replace("'", "''")
            fields = self._ask(f"TRY(json_transform(line, '{structure}'))", lines)
            for column in fields.struct.unnest().iter_columns():
                of_kind = texts if group[column.name] == "VARCHAR" else objects
                of_kind[column.name] = column.cast(pl.String)
        for name, inner in within.items():
            for field in self._fields(objects[name].to_arrow(), inner).iter_columns():
                dotted = f"{name}.{field.name}"
                texts[dotted] = texts[dotted].fill_null(field)
        return pl.DataFrame({name: texts[name] for name in names})

    def _ask(self, expression: str, lines: pa.Array) -> pl.Series:
        """The value of an SQL expression of ours for each ``line``, in their order."""
        with self.connection.cursor() as cursor:
            cursor.register("lines", pa.table({"line": lines}))
            query = cursor.sql(f"SELECT {expression} AS value FROM lines")  # noqa: S608 - quoted
            return pl.DataFrame(pl.from_arrow(query.to_arrow_table()))["value"]


def _lines(text: bytes) -> tuple[pa.Array, Ints]:
    """The lines of a text and their lengths in bytes, shape [n] each.

    Bytes that are not UTF-8 are replaced; only then is the text copied.
    """
    text = decodable(text)
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _LINE_FEED) + 1
    offsets = np.concatenate(([0], ends)).astype(np.int64)
    buffers = (pa.py_buffer(offsets), pa.py_buffer(text))
    return pa.LargeStringArray.from_buffers(len(ends), *buffers), np.diff(offsets)


def _replace(lines: pa.Array, places: Ints, texts: list[str]) -> pa.Array:
    """The lines, those at ``places`` replaced by ``texts``."""
    pieces, begin = [], 0
    for place, text in zip(places.tolist(), texts, strict=True):
        pieces += [lines[begin:place], pa.array([text], pa.large_string())]
        begin = place + 1
    return pa.concat_arrays([*pieces, lines[begin:]])


def _within(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of fields within objects, by the keys that the objects have."""
    found: dict[str, list[str]] = {}
    for name in names:
        key, dot, inner = name.partition(".")
        if dot:
            found.setdefault(key, []).append(inner)
    return found


def _groups(names: Iterable[str], kinds: Iterable[str]) -> list[dict[str, str]]:
    """Kinds by names, in groups without two that differ in case alone: DuckDB takes such for one.

    Nor are there two of one name in a group.
    """
    groups: list[tuple[set[str], dict[str, str]]] = []
    for name, kind in zip(names, kinds, strict=True):
        key = name.casefold()
        seen, group = next((one for one in groups if key not in one[0]), (set(), {}))
        if not group:
            groups.append((seen, group))
        seen.add(key)
        group[name] = kind
    return [group for _, group in groups]


# mending

# A member of an object is its key, a colon and its value. The value is text in quotes, everything
# from a bracket to the one that closes it, or everything up to the next comma, bracket or quote. If
# a line can be split into such members, its public fields are read, whatever its private values are


def mend(line: str, wanted: Wanted) -> str:
    """Return a line of JSON with the wanted fields of ``line``; the empty text for a blank one.

    Public values stay as written, except that a half of a surrogate pair becomes U+FFFD. A private
    value becomes text (what stands in its quotes, or the value as written), or null where it is
    empty or over :data:`LONG` bytes. The result is not JSON where the line cannot be split.
    """
    if not line.strip(_BLANK):
        return ""
    try:
        fields = _picked(line, {name: name in wanted.private for name in wanted.names})
    except _BrokenError:
        return _BROKEN
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in fields.items()) + "}"


def _picked(line: str, are_private: Mapping[str, bool]) -> dict[str, str]:
    """The fields of an object, as :func:`mend` writes them, by name: whether each is private.

    What stands within another value is read alike; one that cannot be split has no fields, unless a
    public one is wanted of it.
    """
    members: dict[str | None, str] = {}
    for key, value in _members(line):
        members.setdefault(_key(key), value)
    fields = {
        name: _private_text(members[name]) if is_private else _whole(members[name])
        for name, is_private in are_private.items()
        if name in members
    }
    for name, inner in _within(are_private).items():
        value = members.get(name, "")
        if not value.startswith("{"):
            continue
        of_inner = {one: are_private[f"{name}.{one}"] for one in inner}
        with suppress(*[_BrokenError] if all(of_inner.values()) else []):
            for one, field in _picked(value, of_inner).items():
                if fields.get(f"{name}.{one}", "null").strip(_BLANK) == "null":
                    fields[f"{name}.{one}"] = field
    return fields


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
    value = value.strip(_BLANK)
    if len(value) > LONG // 4 and len(value.encode()) > LONG:
        return "null"
    if value.startswith('"'):
        try:
            text = json.loads(_whole(value), strict=False)
        except ValueError:
            text = value[1:-1]
        return json.dumps(text)
    return "null" if value in ("", "null") else json.dumps(value)
