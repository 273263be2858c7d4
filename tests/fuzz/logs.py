"""Logs in every format that can be read, with faults in public columns and in outcomes.

Targets are every way that an outcome may stand in each format, every type of a public column, every
head of a CSV file and every fault of a file, each in turn.
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

from tests.fuzz.case import CANARY, DIGITS, ODD, Case, Content
from tests.fuzz.values import Draw, spelt, turn

COLUMNS = ("customer", "variant", "region", "clicks", "spent", "country", "home")
PUBLIC = tuple(name for name in COLUMNS if name not in ("clicks", "spent"))
_NONE_OR_ODD: tuple[Content, ...] = (b"", *ODD)
EVENTS = ("customer", "ts", "clicks", "spent", "event")

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


_PUBLIC: tuple[Callable[[Sequence[str]], pa.Array], ...] = (
    lambda values: pa.array(range(len(values)), pa.int64()),
    lambda values: pa.array(values).dictionary_encode(),
    lambda values: pa.array([one.encode() for one in values], pa.binary()),
    lambda values: pa.array([None for _ in values], pa.null()),
    lambda values: pa.array([b"\xff" for _ in values], pa.binary()).view(pa.string()),
    lambda values: pa.array([{"a": one} for one in values]),
    lambda values: pa.array([0.5 for _ in values]),
)
"""Columns of public facts that are not plain text."""

HEADS = (
    ";".join(COLUMNS),
    ",".join(COLUMNS[:3]),
    ",".join((*COLUMNS, "clicks")),
    ",".join((*COLUMNS, "", "more")),
    ",".join(f'"{name}"' for name in COLUMNS),
    "\ufeff" + ",".join(COLUMNS),
    "",
    f"c000,none,east,{DIGITS},{DIGITS},ch,h0",
)
"""What may stand above a CSV file's rows."""

FILES = (
    *("odd", "damaged", "damaged twice", "packed", "packed and damaged", "latin-1", "utf-16"),
    *("utf-8-sig", "cp1252", "no rows", "one row", "ends of lines", "two files", "little memory"),
    *("events", "odd events", "events without files", "a column less"),
)
"""What may be the matter with a whole file."""

TARGETS = (
    *(("outcome in JSON", one) for one in range(len(JSON_OUTCOMES))),
    *(("outcome in CSV", one) for one in range(len(TEXT_OUTCOMES))),
    *(("outcome in Parquet", one) for one in range(len(ARRAYS))),
    *((f"{name} in Parquet", one) for one in range(len(_PUBLIC)) for name in PUBLIC),
    *(("head", one) for one in range(len(HEADS))),
    *(("file", one) for one in range(len(FILES))),
)


_ARMS = (*["none", "mail"] * 6, "fax", "", "None", " none")
_REGIONS = (*["east", "west"] * 6, "", "a / b", "x" * 300, "\x1b[1m")
_MOMENTS = (
    *["2026-11-20T03:00:00Z"] * 6,
    *("2026-11-20", "", "yesterday", "9999-12-31T23:59:59Z", "0001-01-01", "20261120", "1e9"),
)
_ENDINGS = ("\n", "\r\n", "\n\n", "\r", ",\n", "\nnull\n", " \n")


def _public(number: int, draw: Draw) -> dict[str, str]:
    """The public facts of a row; after the first few some are odd."""
    odd = number > 5 and draw.one_in(4)
    return {
        "customer": draw.text() if odd and draw.one_in(3) else f"c{number * (not odd):03d}",
        "variant": draw.choice(_ARMS) if odd else ("none", "mail")[number % 2],
        "region": draw.choice(_REGIONS) if odd else ("east", "west")[number // 2 % 2],
        "country": draw.text() if odd and draw.one_in(3) else ("ch", "it")[number // 4 % 2],
        "home": f"h{number // 4 * 2 + number % 2}",
    }


def _json_lines(count: int, outcome: str, ending: str, draw: Draw) -> str:
    lines = []
    for number in range(count):
        fields = [f'"{name}": {json.dumps(one)}' for name, one in _public(number, draw).items()]
        if draw.one_in(25):
            odd = ('"customer": 1e2', '"customer": null', '"variant": {}', '"region": 0.10')
            fields[draw.randrange(3)] = draw.choice(odd)
        own = (outcome if number % 2 else DIGITS, outcome if number % 3 == 0 else DIGITS)
        both = [f'"clicks": {own[0]}', f'"spent": {own[1]}']
        fields = [*both, *fields] if draw.one_in(20) else [*fields, *both]
        lines.append("{" + ", ".join(fields) + "}")
    return ending.join(lines) + ending


def _csv(count: int, outcome: str, ending: str, draw: Draw, head: str = ",".join(COLUMNS)) -> str:
    lines = [head]
    for number in range(count):
        public = _public(number, draw)
        own = (outcome if number % 2 else DIGITS, outcome if number % 3 == 0 else DIGITS)
        facts = [public[name] for name in ("customer", "variant", "region")]
        lines.append(",".join([*facts, *own, public["country"], public["home"]]))
    return ending.join(lines) + ending


def _parquet(count: int, array: int, draw: Draw, odd: tuple[str, int] | None) -> bytes:
    rows = range(count)
    public = [_public(one % 6, draw) for one in rows]  # the first few are sound
    facts = {name: [one[name] for one in public] for name in PUBLIC}
    facts["customer"] = [f"c{one:03d}" for one in rows]
    columns = {name: pa.array(values, pa.string()) for name, values in facts.items()}
    if odd is not None:
        columns[odd[0]] = _PUBLIC[odd[1]](facts[odd[0]])
    columns |= {"clicks": turn(ARRAYS, array)(rows), "spent": draw.choice(ARRAYS)(rows)}
    stream = io.BytesIO()
    pq.write_table(
        pa.table(columns),
        stream,
        compression=draw.choice(["snappy", "none", "zstd", "gzip", "brotli", "lz4"]),
        row_group_size=draw.choice([1000, 5]),
        use_dictionary=draw.one_in(2),
    )
    return stream.getvalue()


def _events(draw: Draw, *, odd: bool) -> tuple[str, bytes]:
    """Outcome events, as JSON Lines or CSV."""
    lines = [",".join(EVENTS)]
    as_json = draw.one_in(2)
    for number in range(24):
        unit, moment = f"c{draw.randint(0, 30):03d}", draw.choice(_MOMENTS)
        ways = JSON_OUTCOMES if as_json else TEXT_OUTCOMES
        own = draw.choice(ways) if odd and number % 2 else DIGITS
        lines.append(
            f'{{"customer": "{unit}", "ts": "{moment}", "clicks": {own}, "spent": {own}, '
            f'"event": "{number}"}}'
            if as_json
            else f"{unit},{moment},{own},{own},{number}"
        )
    name, used = ("events.jsonl", lines[1:]) if as_json else ("events.csv", lines)
    return name, ("\n".join(used) + "\n").encode("utf-8", errors="replace")


def _file(target: tuple[str, int], name: str, draw: Draw) -> tuple[str, Content]:
    """One file of a log, with its name."""
    subject, which = target
    fault = FILES[which] if subject == "file" else ""
    if fault == "odd":
        return f"{name}.{draw.choice(['csv', 'parquet', 'jsonl'])}", draw.choice(ODD)
    count = {"no rows": 0, "one row": 1}.get(fault, 24)
    line = draw.choice(_ENDINGS) if fault == "ends of lines" else "\n"
    ending = draw.choice(["csv", "jsonl", "parquet", "json", "ndjson"])
    coding = fault if fault in ("latin-1", "utf-16", "utf-8-sig", "cp1252") else "utf-8"
    if subject in ("outcome in CSV", "head") or (ending == "csv" and subject == "file"):
        own = (
            TEXT_OUTCOMES[which] if subject == "outcome in CSV" else draw.choice(TEXT_OUTCOMES[:9])
        )
        head = (HEADS[which],) if subject == "head" else ()
        head = (",".join(COLUMNS[1:]),) if fault == "a column less" else head
        ending, content = (
            "csv",
            _csv(count, own, line, draw, *head).encode(coding, errors="replace"),
        )
    elif subject == "outcome in JSON" or (ending != "parquet" and subject == "file"):
        own = (
            JSON_OUTCOMES[which] if subject == "outcome in JSON" else draw.choice(JSON_OUTCOMES[:9])
        )
        ending = ending if ending in ("json", "ndjson") else "jsonl"
        content = _json_lines(count, own, line, draw).encode(coding, errors="replace")
    else:
        odd = None if subject in ("outcome in Parquet", "file") else (subject.split()[0], which)
        array = which if subject == "outcome in Parquet" else draw.randrange(6)
        ending, content = "parquet", _parquet(count, array, draw, odd)
    for _ in range({"damaged": 1, "damaged twice": 2}.get(fault, 0)):
        content = draw.damaged(content)
    if fault.startswith("packed"):
        ending, content = f"{ending}.gz", gzip.compress(content, mtime=0)
        content = draw.damaged(content) if "damaged" in fault else content
    return f"{name}.{ending}", content


def logs(number: int, draw: Draw) -> Case:
    """A log of one or two files with a sound configuration, and a dry command."""
    target = turn(TARGETS, number)
    fault = FILES[target[1]] if target[0] == "file" else ""
    config: dict[str, Any] = {
        "experiment": "trial",
        "source": {"path": "log*"},
        "columns": {
            "unit": "customer",
            "arm": "variant",
            "cluster": "region",
            **({"attributes": ["country"], "assigned_by": "home"} if draw.one_in(2) else {}),
        },
        "arms": {"control": "none", "treatments": ["mail"]},
        "outcomes": [
            {"name": "clicks", "column": "clicks", "values": [0, 1, 2]},
            {"name": "spent", "column": "spent", "low": 0.0, "high": 9.0, "levels": 4},
        ],
        "privacy": {"mechanism": "uniform-prior-dp", "epsilon": 4.0},
    }
    files: dict[str, Content] = dict([_file(target, "log0", draw)])
    if fault == "two files":
        files |= dict([_file(draw.choice(TARGETS), "log1", draw)])
    if "events" in fault:
        name, content = _events(draw, odd=fault == "odd events")
        exposures = "customer,variant,region,country,home,seen\n" + "".join(
            f"c{one:03d},{('none', 'mail')[one % 2]},east,ch,h{one % 2},2026-11-18\n"
            for one in range(24)
        )
        files = {"log.csv": exposures.encode()}
        if fault != "events without files":
            files |= {name: content, "events.x.csv": draw.choice(_NONE_OR_ODD)}
        config["source"] |= {"grain": "event", "outcomes_path": "event*", "window": "7d"}
        config["columns"] |= {"time": "seen", "outcome_time": "ts", "event": "event"}
        for one in config["outcomes"]:
            one["aggregate"] = draw.choice(["sum", "max", "any", "count"])
    if fault == "little memory":
        config["run"] = {"memory_limit": "20KB"}
    files["c.toml"] = spelt(config)
    name = draw.choice(["check"] * 5 + ["plan"])
    command = (name, "c.toml", *draw.choice([(), ("--json",)]))
    return Case(files, (command,), hits=((name_of(target), "as it is"),))


def name_of(target: tuple[str, int]) -> str:
    """What a target is called in a run's coverage."""
    return f"{target[0]}: {FILES[target[1]] if target[0] == 'file' else target[1]}"
