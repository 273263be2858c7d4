"""Logs in every format that can be read, with faults in public columns and in outcomes.

Every outcome that is not missing holds a mark of :mod:`tests.fuzz.case`: whatever is said of a log
must not hold one.
"""

import gzip
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.fuzz.case import CANARY, DIGITS, ODD, Case, Content
from tests.fuzz.configurations import sound, spelt
from tests.fuzz.values import damages, some_of, texts

Row = tuple[str, ...]

COLUMNS = ("customer", "variant", "region", "clicks")
EVENTS = ("customer", "ts", "clicks", "event")

JSON_OUTCOMES = (
    f"{DIGITS}",
    f"{DIGITS}.5",
    f"-{DIGITS}e2",
    f"{DIGITS}E-3",
    f"+{DIGITS}",
    f".{DIGITS}",
    f"0{DIGITS}",
    f"{DIGITS}.",
    f'"{DIGITS}"',
    f'"{CANARY}"',
    f'"{CANARY}\\ud800"',
    f'"{CANARY}\\u0000"',
    f'"{CANARY}\\q"',
    f'"{CANARY}',
    f"'{CANARY}'",
    f"[{DIGITS}]",
    f'{{"{CANARY}": {DIGITS}}}',
    f'{{"{CANARY}": {{"{CANARY}": [{DIGITS}, "{CANARY}"]}}}}',
    f"{DIGITS}" * 900,
    f"[[[[{DIGITS}]]]]",
    "[" * 2000 + DIGITS + "]" * 2000,
    f"{CANARY}",
    "null",
    "true",
    "NaN",
    "-Infinity",
    "None",
    "",
    f'"{CANARY}", "clicks": {DIGITS}',
    f"{DIGITS},",
    f'"{CANARY}\xe9"',
)
"""How an outcome may stand in a line of JSON, well-formed or not."""

TEXT_OUTCOMES = (
    DIGITS,
    f"{DIGITS}.5",
    f" {DIGITS} ",
    f"{DIGITS},5",
    f"+{DIGITS}",
    f".{DIGITS}",
    f"0x{DIGITS}",
    f"{DIGITS}e999",
    f"1_{DIGITS}",
    f"{CANARY}",
    f"{CANARY}\x00",
    f'"{CANARY}"',
    f'"{CANARY}',
    f'{CANARY}"x"',
    f'"{CANARY}\n{DIGITS}"',
    f"{CANARY},{DIGITS}",
    f"{CANARY}\xe9",
    f"{DIGITS}" * 900,
    "",
    "NA",
    "nan",
    "inf",
    "true",
)


def _is_json(word: str) -> bool:
    try:
        json.loads(word)
    except (ValueError, RecursionError):  # nested too deeply for Python
        return False
    return True


_WELL_FORMED = st.sampled_from([word for word in JSON_OUTCOMES if _is_json(word)])
_PLAIN = st.sampled_from([word for word in TEXT_OUTCOMES if not set(word) & set(',"')])
_arms = st.sampled_from(["none", "mail"] * 6 + ["fax", "", "None", " none"])
_regions = st.sampled_from(["east", "west"] * 6 + ["", "a / b", "x" * 300, "\x1b[1m"])


def _units(number: int) -> SearchStrategy[str]:
    return st.one_of(
        *[st.just(f"c{number:03d}")] * 12, st.just("c000"), st.just(str(number)), texts
    )


_ENDS = st.sampled_from(["\n"] * 12 + ["", "\nnull\n", "\n[]\n", " "])


@st.composite
def _json_lines(draw: st.DrawFn, count: int) -> bytes:
    """Rows as JSON Lines; public fields as text, numbers or worse."""
    outcomes = _WELL_FORMED if draw(st.integers(0, 3)) else st.sampled_from(JSON_OUTCOMES)
    lines = []
    for number in range(count):
        public = {
            "customer": draw(_units(number)),
            "variant": ("none", "mail")[number % 2] if number < 6 else draw(_arms),
            "region": draw(_regions),
        }
        fields = [f'"{name}": {json.dumps(value)}' for name, value in public.items()]
        odd = draw(st.integers(0, 25))
        if odd == 0:
            fields[draw(st.integers(0, 2))] = draw(
                st.sampled_from(
                    ['"customer": 1e2', '"customer": null', '"variant": {}', '"region": 0.10']
                )
            )
        if odd == 1:
            fields.reverse()
        own = f'"clicks": {draw(outcomes) if draw(st.booleans()) else DIGITS}'
        fields.insert(draw(st.integers(0, 3)) if odd == 2 else 3, own)
        lines.append("{" + ", ".join(fields) + "}")
    ending = draw(st.sampled_from(["\n"] * 20 + ["\r\n", "\n\n", "\r", ",\n"]))
    text = ending.join(lines) + draw(_ENDS)
    encoding = draw(st.sampled_from(["utf-8"] * 20 + ["latin-1", "utf-16", "utf-8-sig"]))
    return text.encode(encoding, errors="replace")


@st.composite
def _csv(draw: st.DrawFn, count: int) -> bytes:
    """Rows as CSV."""
    head = draw(
        st.sampled_from(
            [",".join(COLUMNS)] * 60
            + [
                ";".join(COLUMNS),
                ",".join(COLUMNS[:3]),
                ",".join((*COLUMNS, "clicks")),
                ",".join((*COLUMNS, "", "more")),
                '"customer","variant","region","clicks"',
                "\ufeff" + ",".join(COLUMNS),
                "",
                f"c000,none,east,{DIGITS}",
            ]
        )
    )
    lines = [head]
    outcomes = _PLAIN if draw(st.integers(0, 3)) else st.sampled_from(TEXT_OUTCOMES)
    for number in range(count):
        arm = ("none", "mail")[number % 2] if number < 6 else draw(_arms)
        own = draw(outcomes) if draw(st.booleans()) else DIGITS
        unit = draw(_units(number)) if draw(st.booleans()) else f"c{number:03d}"
        lines.append(f"{unit},{arm},{draw(_regions)},{own}")
    ending = draw(st.sampled_from(["\n"] * 8 + ["\r\n", "\r", "\n\n"]))
    encoding = draw(st.sampled_from(["utf-8"] * 20 + ["latin-1", "utf-16", "cp1252"]))
    return (ending.join(lines) + ending).encode(encoding, errors="replace")


def _undecodable(values: Sequence[Any]) -> pa.Array:
    """Text whose bytes are no UTF-8."""
    content = [f"{CANARY}{value}".encode() + b"\xff" for value in values]
    return pa.array(content, pa.binary()).view(pa.string())


_NUMBER = float(DIGITS)
ARRAYS: tuple[Callable[[Sequence[Any]], pa.Array], ...] = (
    lambda values: pa.array([_NUMBER + one for one in values], pa.float64()),
    lambda values: pa.array([int(DIGITS) + one for one in values], pa.int64()),
    lambda values: pa.array([int(DIGITS) for _ in values], pa.uint64()),
    lambda values: pa.array([_NUMBER for _ in values], pa.float32()),
    lambda values: pa.array([f"{CANARY}{one}" for one in values], pa.string()),
    lambda values: pa.array([f"{DIGITS}.{one}" for one in values], pa.large_string()),
    lambda values: pa.array([CANARY.encode() for _ in values], pa.binary()),
    lambda values: pa.array([{CANARY: int(DIGITS)} for _ in values]),
    lambda values: pa.array([[int(DIGITS)] for _ in values]),
    lambda values: pa.array([None for _ in values], pa.null()),
    lambda values: pa.array([bool(one % 2) for one in values], pa.bool_()),
    lambda values: pa.array([int(DIGITS) for _ in values], pa.timestamp("us")),
    lambda values: pa.array([int(DIGITS) for _ in values], pa.duration("ns")),
    lambda values: pa.array([int(DIGITS) % 80_000 for _ in values], pa.date32()),
    lambda values: pa.array([int(DIGITS) for _ in values], pa.time64("us")),
    lambda values: pa.array([int(DIGITS) for _ in values]).cast(pa.decimal128(30, 3)),
    lambda values: pa.array([CANARY for _ in values]).dictionary_encode(),
    lambda values: pa.array([[(CANARY, 1)] for _ in values], pa.map_(pa.string(), pa.int64())),
    _undecodable,
    lambda values: pa.array([_NUMBER if one % 2 else float("nan") for one in values]),
    lambda values: pa.array([None if one % 3 else _NUMBER for one in values]),
)
"""Columns of outcomes, of every type there is."""


def _column(draw: st.DrawFn, values: Sequence[str]) -> pa.Array:
    """A public column: text, mostly."""
    kind = draw(st.integers(0, 60))
    return (_PUBLIC[kind] if kind < len(_PUBLIC) else pa.array)(values)


_PUBLIC: tuple[Callable[[Sequence[str]], pa.Array], ...] = (
    lambda values: pa.array(range(len(values)), pa.int64()),
    lambda values: pa.array(values).dictionary_encode(),
    lambda values: pa.array([one.encode() for one in values], pa.binary()),
    lambda values: pa.array([None for _ in values], pa.null()),
    lambda values: pa.array([b"\xff" for _ in values], pa.binary()).view(pa.string()),
    lambda values: pa.array([{"a": one} for one in values]),
    lambda values: pa.array([0.5 for _ in values]),
)


@st.composite
def _parquet(draw: st.DrawFn, count: int) -> bytes:
    """Rows as Parquet."""
    own = draw(st.sampled_from(ARRAYS))(range(count))
    arms = [("none", "mail")[one % 2] for one in range(count)]
    public = {
        "customer": [f"c{one:03d}" for one in range(count)],
        "variant": arms,
        "region": [("east", "west")[one // 2 % 2] for one in range(count)],
    }
    columns = {name: _column(draw, values) for name, values in public.items()} | {"clicks": own}
    if draw(st.integers(0, 15)) == 0:
        columns.pop(draw(st.sampled_from(COLUMNS)))
    packing = draw(st.sampled_from(["snappy", "none", "zstd", "gzip", "brotli", "lz4"]))
    stream = io.BytesIO()
    pq.write_table(
        pa.table(columns),
        stream,
        compression=packing,
        row_group_size=draw(st.sampled_from([1000, 5])),
        use_dictionary=draw(st.booleans()),
    )
    return stream.getvalue()


@st.composite
def _events(draw: st.DrawFn, count: int) -> tuple[str, bytes]:
    """Outcome events, as JSON Lines or CSV."""
    moments = st.sampled_from(
        ["2026-11-20T03:00:00Z"] * 6
        + ["2026-11-20", "", "yesterday", "9999-12-31T23:59:59Z", "0001-01-01", "20261120", "1e9"]
    )
    rows = [(f"c{draw(st.integers(0, 30)):03d}", draw(moments), number) for number in range(count)]
    if draw(st.booleans()):
        lines = [
            f'{{"customer": "{unit}", "ts": "{moment}", "clicks": '
            f'{draw(_WELL_FORMED) if number % 2 else DIGITS}, "event": "{number}"}}'
            for unit, moment, number in rows
        ]
        return "events.jsonl", ("\n".join(lines) + "\n").encode("utf-8", errors="replace")
    lines = [
        f"{unit},{moment},{draw(_PLAIN) if number % 2 else DIGITS},{number}"
        for unit, moment, number in rows
    ]
    return "events.csv", ("\n".join([",".join(EVENTS), *lines]) + "\n").encode(errors="replace")


_FORMATS = {"csv": _csv, "jsonl": _json_lines, "json": _json_lines, "ndjson": _json_lines}


@st.composite
def _file(draw: st.DrawFn, name: str) -> tuple[str, Content]:
    """One file of a log, with its name."""
    if draw(st.integers(0, 60)) == 0:
        ending = draw(st.sampled_from(["csv", "parquet", "jsonl"]))
        return f"{name}.{ending}", draw(st.sampled_from(ODD))
    ending = draw(st.sampled_from(["csv", "jsonl", "parquet", "parquet", "json", "ndjson"]))
    count = draw(st.sampled_from([8, 24, 24, 24, 0, 1]))
    content = draw(_FORMATS[ending](count) if ending in _FORMATS else _parquet(count))
    content = draw(some_of(damages(), most=2))(content)
    if draw(st.integers(0, 5)) == 0:
        ending += ".gz"
        content = draw(some_of(damages(), most=1))(gzip.compress(content, mtime=0))
    return f"{name}.{ending}", content


@st.composite
def logs(draw: st.DrawFn) -> Case:
    """A log of one or two files with a sound configuration, and a dry command."""
    config = sound(
        {
            "source": {"path": "log*"},
            "columns": {
                "unit": "customer",
                "arm": "variant",
                "cluster": draw(st.sampled_from(["region", "region", ["region", "variant2"]]))
                if draw(st.integers(0, 9)) == 0
                else "region",
                "outcome": "clicks",
            },
            "outcome": {"values": [0, 1, 2]},
            "privacy": {"epsilon": 2.0},
        }
    )
    files: dict[str, Content] = dict(
        draw(_file(f"log{number}")) for number in range(draw(st.sampled_from([1, 1, 1, 2])))
    )
    if draw(st.integers(0, 3)) == 0:
        name, content = draw(_events(24))
        content = draw(some_of(damages(), most=1))(content)
        exposures = "customer,variant,region,seen\n" + "".join(
            f"c{one:03d},{('none', 'mail')[one % 2]},east,2026-11-18\n" for one in range(24)
        )
        files = {"log.csv": exposures.encode(), name: content}
        if draw(st.booleans()):
            files["event-log.fifo" if draw(st.integers(0, 30)) == 0 else "events.x.csv"] = b""
        config["source"] |= {"grain": "event", "outcomes_path": "event*", "window": "7d"}
        config["columns"] |= {"time": "seen", "outcome_time": "ts", "event": "event"}
        config["outcome"] |= {"aggregate": draw(st.sampled_from(["sum", "max", "any", "count"]))}
    if draw(st.integers(0, 4)) == 0:
        config["run"] = {"memory_limit": "20KB"}
    files["c.toml"] = spelt(config)
    name = draw(st.sampled_from(["check"] * 5 + ["plan"]))
    return Case(files, ((name, "c.toml", *draw(st.sampled_from([(), ("--json",)]))),))
