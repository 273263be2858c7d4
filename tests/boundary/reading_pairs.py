"""Pairs of logs that differ in one outcome, as odd as files can be; and what is read of them."""

import gzip
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.config.model.experiment import Config
from flows.raw.ingest import ingest
from schemas.errors import InputError
from tests.support.whole_log import whole_log

KINDS = ("csv", "jsonl", "parquet")
GRAINS = ("unit", "event")

_WORDS = ["a", "é", "７", "1e2", "1.10", "007", "a/b", " x", "x ", "none", "mail", "#", "null", "𝄞"]
_JSON_LABELS = [
    *(json.dumps(word) for word in _WORDS),
    *('"\\u0061"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00x"', '"a\\u0000"', '"\\"}"', '""'),
    *('"a,\\"clicks\\":1"', "1e2", "1.0", "1.10", "-0", "1e400", "null", "true", "NaN"),
    *("12345678901234567890", "123456789012345678901234567890"),
    *('{"id": 1e2, "x": [1, 2]}', '["clicks", "\\\\"]'),
]
_BROKEN_LABELS = [".5", "+5", "None", '"a\tb"', '"\\x"', "007", ""]
"""Of these each is fatal, whatever an outcome is."""
_JSON_OUTCOMES = [
    *("0", "1", "2.5", "1e2", "-0", "9" * 400, "1e999", "null", "true", "NaN", "-Infinity"),
    *('"2"', '""', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\""'),
    *('"}"', '"\\\\"', '"a\tb"', '"\\x41"', '"\\u12"', '"\x00\x1f"', "[]", "{}"),
    *('[1, {"customer": "z"}]', '{"customer": "z"}', '{"clicks": {"clicks": 1}}', "[.5, None]"),
    *('{"a": +1}', "[" * 50 + "]" * 50, ".5", "+5", "5.", "None", "True", "", "0x10", "1_0"),
    *("007", "undefined", "12:30:00", "'2'", "nAn", "\u2028", "１"),
]
_BAD_BYTES = [
    *(b"\xff", b"\xe9", b"\x80", b"\xac", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98"),
    b"\xc0\xaf",
]
_TEXTS = [
    *("0", "1", "2.5", " 2", "+1", ".5", "1e999", "nan", "inf", "", "true", "None", "x", "1 5"),
    *("\r", "\0", '5"', "6'2\"", 'a"b"c', "é", "#", "\\", "\\n", "'", ";", "\t", "9" * 400),
    *("\ufeff", "\u2028"),
]


Lines = list[tuple[bytes, bytes]]
Made = tuple[bytes, bytes, int]


@dataclass(frozen=True)
class Pair:
    """Two files that differ in one outcome."""

    name: str
    grain: str
    files: tuple[bytes, bytes]
    unit: str
    """Whose outcome differs, where rows are events."""
    row: int
    """The row whose outcome differs, from 1."""
    chunk: int
    """Bytes that are read at once."""


def a_pair(random_: random.Random, kind: str, grain: str) -> Pair:
    """Make up one; lengths, spellings, encodings and what else is odd vary."""
    n_rows = random_.choice([1, 2, 3, 5, 8, 30])
    changed = random_.randrange(n_rows)
    makers: dict[str, Callable[[random.Random, str, int, int], Made]] = {
        "csv": _csv,
        "jsonl": _json_lines,
        "parquet": _parquet,
    }
    *files, row = makers[kind](random_, grain, n_rows, changed)
    name = f"log.{kind}"
    if kind != "parquet" and random_.random() < 0.1:
        name, files = f"{name}.gz", [gzip.compress(one) for one in files]
    size = len(files[0])
    chunk = random_.choice([max(7, size // 20), max(7, size // 3), 1 << 24])
    return Pair(name, grain, (files[0], files[1]), f"u{changed}", row, chunk)


def _spoilt(random_: random.Random, text: bytes) -> bytes:
    """The same with a byte that is no UTF-8 somewhere, at times."""
    if random_.random() < 0.75:
        return text
    place = random_.randint(0, len(text))
    return text[:place] + random_.choice(_BAD_BYTES) + text[place:]


def _joined(begin: bytes, end: bytes, lines: Lines) -> tuple[bytes, bytes]:
    first, second = (end.join(line[side] for line in lines) for side in (0, 1))
    return begin + first, begin + second


# JSON Lines


def _json_outcome(random_: random.Random) -> bytes:
    spelt = random_.choice(_JSON_OUTCOMES)
    if random_.random() < 0.05:
        spelt = '"' + "x" * random_.choice([500, 5000, 1_100_000]) + '"'
    if spelt.startswith('"') and "\\" not in spelt:
        return b'"' + _spoilt(random_, spelt[1:-1].encode()) + b'"'
    if spelt[:1] in ("[", "{", '"'):
        return spelt.encode()
    return _spoilt(random_, spelt.encode())


def _json_lines(random_: random.Random, grain: str, n: int, changed: int) -> Made:
    odd = random_.random() < 0.1
    ends = random_.choice([b"\n", b"\r\n", b" \n"])
    lines: Lines = []
    number = 0
    for row in range(n):
        outcome = _json_outcome(random_)
        other = _json_outcome(random_) if row == changed else outcome
        members = _json_members(random_, grain, row, odd=odd)
        random_.shuffle(members)
        place = random_.randint(0, len(members))
        blank = random_.choice([b"", b" ", b"\t"])
        close = random_.choice([b"}", b"}", b" }", b",}"])
        first, second = (
            b"{"
            + (b"," + blank).join([*members[:place], b'"clicks":' + blank + one, *members[place:]])
            + close
            for one in (outcome, other)
        )
        lines.append((first, second))
        if row == changed:
            number = sum(1 for line, _ in lines if line.strip())
        if random_.random() < 0.03:
            extra = random_.choice([b"", b"   ", b"{}", b"null", b"[1]", b'{"customer": "x"'])
            lines.append((extra, extra))
    begin = random_.choice([b"", b"", b"\xef\xbb\xbf"])
    lines += random_.choice([[], [(b"", b"")]])
    return *_joined(begin, ends, lines), number


def _json_members(random_: random.Random, grain: str, row: int, *, odd: bool) -> list[bytes]:
    unit = (
        f'"u{row}"'
        if grain == "event"
        else random_.choice([f'"u{row}"', str(row), f"{row}e1", *_JSON_LABELS])
    )
    if grain == "event":
        return [b'"customer":' + unit.encode(), b'"seen":"2026-11-19"']
    labels = _JSON_LABELS + _BROKEN_LABELS * odd
    found = [
        f'"customer": {unit}',
        f'"variant": {random_.choice(labels)}',
        f'"region":{random_.choice(labels)}',
    ]
    if random_.random() < 0.2:
        found.append(
            random_.choice(['"notes": .5', '"customer": "again"', '"n\\u0061me": None', '"": 1'])
        )
    return [_spoilt(random_, one.encode()) if one.endswith('x"') else one.encode() for one in found]


# CSV


def _csv_field(random_: random.Random, text: bytes) -> bytes:
    quoted = random_.random() < 0.3 or b"," in text or b"\n" in text or text.startswith(b'"')
    return b'"' + text.replace(b'"', b'""') + b'"' if quoted else text


def _csv_outcome(random_: random.Random) -> bytes:
    text = random_.choice(_TEXTS)
    if random_.random() < 0.25:
        text = random_.choice(
            ["a\nb", "\n", '\n"\n', "1,5", ",,,", '"', '""', "x,none\n", "y\r\nz", "\n" * 50]
        )
    if random_.random() < 0.03:
        text = random_.choice(["x", 'q"', "l\n"]) * random_.choice([300, 3000])
    return _csv_field(random_, _spoilt(random_, text.encode()))


def _csv(random_: random.Random, grain: str, n: int, changed: int) -> Made:
    ends = random_.choice([b"\n", b"\r\n"])
    names = ["customer", "seen"] if grain == "event" else ["customer", "variant", "region", "notes"]
    random_.shuffle(names)
    place = random_.randint(0, len(names))
    head = [name.encode() for name in (*names[:place], "clicks", *names[place:])]
    lines: Lines = [(b",".join(head), b",".join(head))]
    number = 0
    for row in range(n):
        outcome = _csv_outcome(random_)
        other = _csv_outcome(random_) if row == changed else outcome
        fields = [_csv_public(random_, grain, name, row) for name in names]
        first, second = (
            b",".join([*fields[:place], one, *fields[place:]]) for one in (outcome, other)
        )
        lines.append((first, second))
        if row == changed:
            number = len(lines) - 1
        if random_.random() < 0.01:
            extra = random_.choice([b"", b"x", b",,,,,,,9", b'"x" y', b'a"'])
            lines.append((extra, extra))
    begin = random_.choice([b"", b"\xef\xbb\xbf"])
    return *_joined(begin, ends, [*lines, (b"", b"")]), number


def _csv_public(random_: random.Random, grain: str, name: str, row: int) -> bytes:
    if name == "seen":
        return b"2026-11-19"
    if name == "customer" and (grain == "event" or random_.random() < 0.7):
        return f"u{row}".encode()
    return _csv_field(
        random_, _spoilt(random_, random_.choice([*_WORDS, "", 'a"b', "a\nb"]).encode())
    )


# Parquet


def _parquet(random_: random.Random, grain: str, n: int, changed: int) -> Made:
    kind = random_.choice(["text", "text", "large", "dictionary", "float", "integer"])
    values = [_value(random_, kind) for _ in range(n)]
    others = list(values)
    others[changed] = _value(random_, kind)
    public = {"customer": pa.array([f"u{row}" for row in range(n)])}
    if grain == "event":
        public["seen"] = pa.array(["2026-11-19"] * n)
    else:
        public["variant"] = pa.array([random_.choice([*_WORDS, None]) for _ in range(n)])
        public["region"] = pa.array([random_.choice(_WORDS) for _ in range(n)])
    settings = {
        "use_dictionary": random_.random() < 0.5,
        "row_group_size": random_.choice([1, 2, 100]),
        "store_schema": random_.random() < 0.5,
        "data_page_version": random_.choice(["1.0", "2.0"]),
    }
    if not settings["use_dictionary"] and kind in ("text", "large") and random_.random() < 0.4:
        settings["column_encoding"] = {
            "clicks": random_.choice(["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
        }
    made = []
    for one in (values, others):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({**public, "clicks": _column(kind, one)}), sink, **settings)
        made.append(sink.getvalue().to_pybytes())
    return made[0], made[1], changed + 1


def _value(random_: random.Random, kind: str) -> object:
    if random_.random() < 0.1:
        return None
    if kind == "float":
        return random_.choice([0.0, 2.5, math.nan, math.inf, -math.inf, 5e-324, 1e308])
    if kind == "integer":
        return random_.choice([0, 3, -(2**63), 2**63 - 1])
    text = random_.choice(_TEXTS)
    if random_.random() < 0.05:
        text *= 300
    return random_.choice(_BAD_BYTES) if random_.random() < 0.1 else _spoilt(random_, text.encode())


def _column(kind: str, values: list[object]) -> pa.Array:
    """An Arrow column that may hold text that is no UTF-8, as careless programs write it."""
    if kind in ("float", "integer"):
        return pa.array(values, pa.float64() if kind == "float" else pa.int64())
    if kind == "large":
        return pa.array(values, pa.large_binary()).view(pa.large_string())
    text = pa.array(values, pa.binary()).view(pa.string())
    if kind == "text":
        return text
    codes, known = [], dict.fromkeys(one for one in values if one is not None)
    places = {value: place for place, value in enumerate(known)}
    codes = [None if one is None else places[one] for one in values]
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int32()),
        pa.array(list(known), pa.binary()).view(pa.string()),
        safe=False,
    )


# what is read


def read_apart(config: Config, folder: Path, pair: Pair, side: int) -> tuple[object, ...]:
    """Everything that is read but the changed outcome; or what is said instead."""
    place = folder / "once"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    (place / pair.name).write_bytes(pair.files[side])
    try:
        log = ingest(config.log_source, "once").open()
        frame = pl.concat(log.event_batches()) if pair.grain == "event" else whole_log(log)
    except InputError as error:
        return ("refused", str(error))
    if pair.grain == "event":  # an event is its unit's, whole; how many of others there are is not
        frame = frame.select("unit", "time", "value").filter(pl.col("unit") != pair.unit)
    else:
        own = pl.col("source_row") == pair.row
        frame = frame.with_columns(pl.when(~own).then("outcome").alias("outcome"))
    return ("read", str(frame.schema), tuple(map(str, frame.rows())))
