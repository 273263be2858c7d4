"""Finding and reading the log's files: Parquet, CSV and JSON Lines.

Type inference never sees an outcome: text formats are read as text and cast leniently afterwards,
and no file fails because of what an outcome is. Library errors quote rows, so they are replaced by
ours, which name the file and a line number.
"""

import csv
import glob
import gzip
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import duckdb
import polars as pl

from flows.config import Config
from flows.config_sections import Columns
from schemas.errors import InputError
from schemas.raw import ARM, CLUSTER, FILE, OUTCOME, ROW, UNIT
from schemas.released import ALL

Reader = Callable[[Path, list[str]], pl.DataFrame]

_TEXT_LIKE = (pl.String, pl.Categorical, pl.Enum)
_UNREADABLE = (pl.exceptions.PolarsError, OSError, EOFError, csv.Error, zlib.error)
_REPLACEMENT = "\ufffd"  # what an undecodable byte becomes; an identifier with it is unreadable


@dataclass(frozen=True)
class RawLog:
    """The log as read: one frame, and the files its rows came from."""

    frame: pl.DataFrame
    """Columns ``unit arm cluster outcome source_file source_row``; outcome NaN where unreadable."""
    files: tuple[Path, ...]


def read_log(config: Config, period: str, *, outcomes: bool = True) -> RawLog:
    """Read every file that the configured path names for ``period``.

    Without ``outcomes`` their column is not read, nor need it be there; every outcome is NaN then.
    """
    files = find_files(config, period)
    frames = [
        _read(path, position, config.columns, outcomes=outcomes)
        for position, path in enumerate(files)
    ]
    if len({frame.schema[UNIT] for frame in frames}) > 1:  # text wins: no integer holds them all
        frames = [frame.with_columns(pl.col(UNIT).cast(pl.String)) for frame in frames]
    log = pl.concat(frames, how="vertical_relaxed")
    if log.is_empty():
        raise InputError(f"the log is empty: no row in {_files(files)}")
    for key, column in ((UNIT, config.columns.unit), (ARM, config.columns.arm)):
        if log[key].null_count() == log.height:
            raise InputError(
                f"columns.{key}: no row of {_files(files)} has a readable value in {column!r}; "
                "correct the name"
            )
    return RawLog(log, tuple(files))


def find_files(config: Config, period: str) -> list[Path]:
    """List the files of ``period`` in the order of their names; at least one, or InputError."""
    pattern = config.source.path.replace("{period}", period)
    anchored = Path(glob.escape(str(config.directory))) / Path(pattern).expanduser()
    found = glob.glob(str(anchored), recursive=True)  # noqa: PTH207 - the pattern may be absolute
    files = sorted(path for path in map(Path, found) if path.is_file())
    if not files:
        raise InputError(f"source.path: no file matches {config.path(pattern)}")
    return files


def _files(files: list[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _read(path: Path, position: int, columns: Columns, *, outcomes: bool) -> pl.DataFrame:
    """One file as the frame of :class:`RawLog`."""
    reader = _READERS.get(_suffix(path))
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise InputError(f"{path}: not a format that can be read ({known}; text also as .gz)")
    wanted = [columns.unit, columns.arm, *columns.clusters]
    wanted += [columns.outcome] if outcomes else []
    frame = reader(path, wanted)
    return frame.select(
        _identifier(frame, path, columns.unit, "unit").alias(UNIT),
        _label(frame, path, columns.arm, "arm").alias(ARM),
        _cluster(frame, path, columns.clusters).alias(CLUSTER),
        (
            _outcome(frame, path, columns.outcome) if outcomes else pl.lit(math.nan, pl.Float64)
        ).alias(OUTCOME),
        pl.lit(position, pl.UInt32).alias(FILE),
        (pl.int_range(pl.len(), dtype=pl.UInt64) + 1).alias(ROW),
    )


def _suffix(path: Path) -> str:
    name = path.name.lower()
    if name.endswith(".gz"):
        inner = Path(name[: -len(".gz")]).suffix
        return inner if inner in _TEXT_FORMATS else ".gz"
    return Path(name).suffix


def _missing_column(path: Path, wanted: list[str], found: list[str]) -> None:
    """Refuse a file without a wanted column; a head that is a row of data is not shown."""
    for name in wanted:
        if name not in found:
            raise InputError(f"{path}: there is no column {name!r}; correct the name")


def _read_parquet(path: Path, wanted: list[str]) -> pl.DataFrame:
    try:
        scan = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        _missing_column(path, wanted, scan.collect_schema().names())
        return scan.select(wanted).collect()
    except _UNREADABLE:
        pass
    raise InputError(f"{path}: cannot be read as Parquet; is it whole?")


def _read_csv(path: Path, wanted: list[str]) -> pl.DataFrame:
    try:
        with _text(path) as lines:
            names = next(csv.reader(lines), [])
        _missing_column(path, wanted, names)
        return pl.read_csv(
            path, columns=wanted, infer_schema=False, encoding="utf8-lossy", glob=False
        )
    except _UNREADABLE:
        where = _first_bad_csv_line(path)
    raise InputError(f"{path}: cannot be read as CSV{where}")


def _read_json_lines(path: Path, wanted: list[str]) -> pl.DataFrame:
    """Read every field as text: fast with DuckDB, or a line at a time where it will not.

    DuckDB takes NaN, which many programs write, but neither bytes that are no UTF-8 nor halves of
    surrogate pairs. An outcome may hold them, and must not be what a run fails for.
    """
    spelt = ", ".join("'" + name.replace("'", "''") + "': 'VARCHAR'" for name in wanted)
    query = (
        "SELECT * FROM read_json(?, format = 'newline_delimited', "  # noqa: S608 - names are quoted
        f"columns = {{{spelt}}}, maximum_object_size = 67108864)"
    )
    try:
        with duckdb.connect(config={"temp_directory": ""}) as connection:
            table = connection.sql(query, params=[glob.escape(str(path))]).to_arrow_table()
        frame = pl.from_arrow(table)
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()
    except (duckdb.Error, *_UNREADABLE):
        pass
    return _read_json_slowly(path, wanted)


def _read_json_slowly(path: Path, wanted: list[str]) -> pl.DataFrame:
    """As the fast way reads, with undecodable text replaced; a line that is no object is fatal."""
    columns: dict[str, list[str | None]] = {name: [] for name in wanted}
    number = 0
    try:
        with _text(path) as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007 - used in the message
                if not line.strip():
                    continue
                found = _LENIENT.decode(line.strip())
                for name in wanted:
                    columns[name].append(_json_text(found.get(name)))
    except (ValueError, AttributeError, RecursionError, *_UNREADABLE):
        where = f": line {number} does not parse" if number else ""
    else:
        return pl.DataFrame(columns, schema=dict.fromkeys(wanted, pl.String))
    raise InputError(f"{path}: cannot be read as JSON Lines{where}")


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


# Numbers stay as they are spelt; of a repeated key the first counts.
_LENIENT = json.JSONDecoder(
    object_pairs_hook=_first_of_each, parse_float=str, parse_int=str, parse_constant=str
)


def _json_text(value: object) -> str | None:
    """A field as text, as the fast way gives it."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return text.encode("utf-8", errors="replace").decode()


_READERS: dict[str, Reader] = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json_lines,
}
_TEXT_FORMATS = frozenset(_READERS) - {".parquet"}


def _text(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return path.open(encoding="utf-8-sig", errors="replace", newline="")


def _first_bad_csv_line(path: Path) -> str:
    """Say at which line a CSV file breaks, if that can be found; never what stands there."""
    try:
        with _text(path) as lines:
            reader = csv.reader(lines)
            width = len(next(reader, []))
            for row in reader:
                if len(row) > width:
                    return f": line {reader.line_num} does not parse"
    except _UNREADABLE:
        pass
    return ""


def _identifier(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
    """Text or integer as it is; empty or undecodable text is null."""
    kind = frame.schema[name]
    if kind.is_integer():
        return pl.col(name).cast(pl.UInt64 if kind == pl.UInt64 else pl.Int64, strict=False)
    if kind == pl.Null:
        return pl.col(name).cast(pl.String)
    if isinstance(kind, _TEXT_LIKE):
        text = pl.col(name).cast(pl.String)
        readable = (text != "") & ~text.str.contains(_REPLACEMENT, literal=True)
        return pl.when(readable).then(text)
    raise InputError(f"{path}: column {name!r} ({key}) is {kind}; it has to be text or integer")


def _label(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
    """An arm or cluster as text."""
    if frame.schema[name] == pl.Boolean:
        return pl.col(name).cast(pl.String)
    return _identifier(frame, path, name, key).cast(pl.String)


def _cluster(frame: pl.DataFrame, path: Path, names: tuple[str, ...]) -> pl.Expr:
    """The cluster as one text: several columns joined by `` / ``, a slash within a value doubled.

    The doubling keeps different combinations different.
    """
    if not names:
        return pl.lit(ALL)
    labels = [_label(frame, path, name, "cluster") for name in names]
    if len(labels) == 1:
        return labels[0]
    escaped = [label.str.replace_all("/", "//", literal=True) for label in labels]
    return pl.concat_str(escaped, separator=" / ")


def _outcome(frame: pl.DataFrame, path: Path, name: str) -> pl.Expr:
    """The outcome as a number, NaN where it is missing or cannot be read; no value can fail."""
    kind = frame.schema[name]
    column = pl.col(name)
    if isinstance(kind, _TEXT_LIKE):
        text = column.cast(pl.String).str.strip_chars()
        truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None)
        number = pl.coalesce(text.cast(pl.Float64, strict=False), truth.cast(pl.Float64))
    elif kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        number = column.cast(pl.Float64, strict=False)
    else:
        raise InputError(
            f"{path}: column {name!r} (outcome) is {kind}; it has to be number or text"
        )
    return number.fill_null(float("nan"))
