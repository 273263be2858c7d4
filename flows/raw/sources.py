"""Finding and reading the log's files, batch by batch: Parquet, CSV and JSON Lines.

Type inference never sees an outcome: text formats are read as text and cast leniently afterwards,
and no file fails because of what an outcome is. Library errors quote rows, so they are replaced by
ours, which name the file and a line number.
"""

import csv
import glob
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import duckdb
import polars as pl

from flows.config import Config
from flows.raw.parallel import in_parallel
from schemas.errors import InputError
from schemas.raw import FILE, ROW
from schemas.released import ALL

Reader = Callable[[Path, list[str]], Iterator[pl.DataFrame]]

BATCH = 1 << 20
"""Rows that are read at once."""

_TEXT_LIKE = (pl.String, pl.Categorical, pl.Enum)
_UNREADABLE = (pl.exceptions.PolarsError, OSError, EOFError, csv.Error, zlib.error)
_REPLACEMENT = "\ufffd"  # what an undecodable byte becomes; an identifier with it is unreadable


@dataclass(frozen=True)
class Source:
    """Files of one kind, and what is read of each."""

    files: tuple[Path, ...]
    columns: tuple[str, ...]
    """What they are called in the files."""
    brought: Callable[[pl.DataFrame, Path], list[pl.Expr]]
    """From rows as they stand in a file to the columns that the steps know."""
    finished: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """What else is done to every batch."""

    def batches(self) -> Iterator[pl.DataFrame]:
        """All rows, in the order of the files and of the rows in them, numbered from 1 in each.

        Raises InputError where a file cannot be read or parsed, or has not all columns.
        """
        return in_parallel(self._bring, self._read())

    def _read(self) -> Iterator[tuple[int, int, pl.DataFrame]]:
        """Batches as they stand in the files, with the file's number and the first row's."""
        for position, path in enumerate(self.files):
            row = 1
            for frame in _reader(path)(path, list(self.columns)):
                yield position, row, frame
                row += frame.height

    def _bring(self, batch: tuple[int, int, pl.DataFrame]) -> pl.DataFrame:
        position, row, frame = batch
        numbered = (
            pl.lit(position, pl.UInt32).alias(FILE),
            pl.int_range(row, row + frame.height, dtype=pl.UInt64).alias(ROW),
        )
        found = frame.select(*self.brought(frame, self.files[position]), *numbered)
        return found if self.finished is None else self.finished(found)

    def known_rows(self) -> int | None:
        """How many rows there are, where the files say so without being read."""
        if any(_suffix(path) != ".parquet" for path in self.files):
            return None
        try:
            counts = [
                int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
                for path in self.files
            ]
        except _UNREADABLE:
            return None
        return sum(counts)


def find_files(config: Config, key: str, pattern: str, period: str) -> tuple[Path, ...]:
    """List the files of ``period`` in the order of their names; at least one, or InputError.

    ``pattern`` is what the configuration says under ``key``.
    """
    pattern = pattern.replace("{period}", period)
    anchored = Path(glob.escape(str(config.directory))) / Path(pattern).expanduser()
    found = glob.glob(str(anchored), recursive=True)  # noqa: PTH207 - the pattern may be absolute
    files = sorted(path for path in map(Path, found) if path.is_file())
    if not files:
        raise InputError(f"{key}: no file matches {config.path(pattern)}")
    return tuple(files)


def file_names(files: tuple[Path, ...]) -> str:
    """The files, as a message names them."""
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def identifier_type(files: tuple[Path, ...], name: str) -> pl.DataType:
    """The type of the identifiers in column ``name`` of all ``files``: text, or 64-bit integers.

    Text where the files do not agree: no integer holds them all. A file whose column holds nothing
    but nulls, as many programs write an empty partition, agrees with any.
    """
    kinds = {kind for path in files if (kind := _stated_type(path, name)) is not None}
    return kinds.pop() if len(kinds) == 1 else pl.String()


def _stated_type(path: Path, name: str) -> pl.DataType | None:
    if _suffix(path) != ".parquet":
        return pl.String()
    try:
        kind = pl.scan_parquet(path, glob=False, hive_partitioning=False).collect_schema().get(name)
    except _UNREADABLE:
        return pl.String()  # reading it will say what is wrong
    if kind == pl.Null:
        return None
    if kind is None or not kind.is_integer():
        return pl.String()
    return pl.UInt64() if kind == pl.UInt64 else pl.Int64()


def _reader(path: Path) -> Reader:
    reader = _READERS.get(_suffix(path))
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise InputError(f"{path}: not a format that can be read ({known}; text also as .gz)")
    return reader


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


def _read_parquet(path: Path, wanted: list[str]) -> Iterator[pl.DataFrame]:
    try:
        scan = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        _missing_column(path, wanted, scan.collect_schema().names())
        yield from scan.select(wanted).collect_batches(chunk_size=BATCH)
    except _UNREADABLE:
        pass
    else:
        return
    raise InputError(f"{path}: cannot be read as Parquet; is it whole?")


def _read_csv(path: Path, wanted: list[str]) -> Iterator[pl.DataFrame]:
    try:
        with _text(path) as lines:
            names = next(csv.reader(lines), [])
        _missing_column(path, wanted, names)
        scan = pl.scan_csv(path, infer_schema=False, encoding="utf8-lossy", glob=False)
        yield from scan.select(wanted).collect_batches(chunk_size=BATCH)
    except _UNREADABLE:
        where = _first_bad_csv_line(path)
    else:
        return
    raise InputError(f"{path}: cannot be read as CSV{where}")


def _read_json_lines(path: Path, wanted: list[str]) -> Iterator[pl.DataFrame]:
    """Read every field as text: fast with DuckDB, or a line at a time where it will not.

    DuckDB takes NaN, which many programs write, but neither bytes that are no UTF-8 nor halves of
    surrogate pairs. An outcome may hold them, and must not be what a run fails for.
    """
    spelt = ", ".join("'" + name.replace("'", "''") + "': 'VARCHAR'" for name in wanted)
    query = (
        "SELECT * FROM read_json(?, format = 'newline_delimited', "  # noqa: S608 - names are quoted
        f"columns = {{{spelt}}}, maximum_object_size = 67108864)"
    )
    row = 0
    try:
        with duckdb.connect(config={"temp_directory": "", "memory_limit": _FOR_JSON}) as connection:
            found = connection.sql(query, params=[glob.escape(str(path))])
            for batch in found.to_arrow_reader(BATCH):
                frame = pl.DataFrame(pl.from_arrow(batch))
                yield frame
                row += frame.height
    except (duckdb.Error, *_UNREADABLE):
        pass
    else:
        return
    yield from _read_json_slowly(path, wanted, row)


def _read_json_slowly(path: Path, wanted: list[str], begun: int) -> Iterator[pl.DataFrame]:
    """As the fast way reads, with undecodable text replaced; a line that is no object is fatal.

    Rows before the one at ``begun`` are passed over.
    """
    waiting: list[list[str | None]] = []
    number = 0
    try:
        with _text(path) as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007 - used in the message
                if not line.strip():
                    continue
                found = _LENIENT.decode(line.strip())
                row = [_json_text(found.get(name)) for name in wanted]
                if begun:
                    begun -= 1
                    continue
                waiting.append(row)
                if len(waiting) == BATCH:
                    yield _text_frame(waiting, wanted)
                    waiting = []
    except (ValueError, AttributeError, RecursionError, *_UNREADABLE):
        where = f": line {number} does not parse" if number else ""
    else:
        yield _text_frame(waiting, wanted)
        return
    raise InputError(f"{path}: cannot be read as JSON Lines{where}")


def _text_frame(rows: list[list[str | None]], names: list[str]) -> pl.DataFrame:
    return pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")


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


_FOR_JSON = "1GB"  # of memory: it is read in passing

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
    """Say at which line a CSV file breaks, if that can be found; never what stands there.

    That is where the row begins: one whose quotes are never closed goes on to the file's end.
    """
    begun = 1
    try:
        with _text(path) as lines:
            reader = csv.reader(lines, strict=True)
            width = len(next(reader, []))
            begun = reader.line_num + 1
            while len(next(reader)) <= width:
                begun = reader.line_num + 1
    except csv.Error:
        pass
    except (StopIteration, *_UNREADABLE):
        return ""
    return f": line {begun} does not parse"


def identifier(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
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


def label(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
    """An arm or cluster as text; empty or undecodable text is null."""
    if frame.schema[name] == pl.Boolean:
        return pl.col(name).cast(pl.String)
    return identifier(frame, path, name, key).cast(pl.String)


def few_labels(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
    """The same as a Categorical: what is unreadable is found among the distinct labels."""
    cleaned = label(frame, path, name, key).cast(pl.Categorical)
    if frame.schema[name] != pl.String:
        return cleaned
    labels = frame[name].cast(pl.Categorical)
    readable = all(_is_readable(one) for one in labels.unique().to_list())
    return pl.lit(labels) if readable else cleaned


def arm_labels(frame: pl.DataFrame, path: Path, name: str, arms: tuple[str, ...]) -> pl.Expr:
    """Arms as an Enum of those declared, where all are; else as text."""
    if frame.schema[name] == pl.String:
        declared = frame[name].cast(pl.Enum(arms), strict=False)
        if declared.null_count() == 0:
            return pl.lit(declared)
    return label(frame, path, name, "arm")


def _is_readable(text: str | None) -> bool:
    return bool(text) and _REPLACEMENT not in (text or "")


def cluster(frame: pl.DataFrame, path: Path, names: tuple[str, ...]) -> pl.Expr:
    """The cluster, a Categorical: several columns joined by `` / ``, a slash in a value doubled.

    The doubling keeps different combinations different.
    """
    if not names:
        return pl.lit(ALL).cast(pl.Categorical)
    if len(names) == 1:
        return few_labels(frame, path, names[0], "cluster")
    labels = [label(frame, path, name, "cluster") for name in names]
    escaped = [one.str.replace_all("/", "//", literal=True) for one in labels]
    return pl.concat_str(escaped, separator=" / ").cast(pl.Categorical)


def private_label(frame: pl.DataFrame, path: Path, name: str) -> pl.Expr:
    """A private cluster as text, null where there is none; no value can fail.

    Whole numbers are the same as integers: a column has them where somebody's label is missing.
    """
    kind = frame.schema[name]
    if kind.is_float() or kind.is_decimal():
        value = pl.col(name).cast(pl.Float64, strict=False)
        whole = (value == value.floor()) & (value.abs() < 2.0**53)
        return pl.when(whole).then(value).cast(pl.Int64, strict=False).cast(pl.String)
    if isinstance(kind, _TEXT_LIKE) or kind.is_integer() or kind in (pl.Boolean, pl.Null):
        return pl.col(name).cast(pl.String)
    raise InputError(f"{path}: column {name!r} (cluster) is {kind}; it has to be text or number")


def outcome(frame: pl.DataFrame, path: Path, name: str) -> pl.Expr:
    """The outcome as a number, NaN where it is missing or cannot be read; no value can fail."""
    return number(frame, path, name, "outcome")


def number(frame: pl.DataFrame, path: Path, name: str, key: str) -> pl.Expr:
    """The same of any private number; ``key`` says in messages what it is."""
    kind = frame.schema[name]
    column = pl.col(name)
    if isinstance(kind, _TEXT_LIKE):
        text = column.cast(pl.String).str.strip_chars()
        truth = text.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None)
        found = pl.coalesce(text.cast(pl.Float64, strict=False), truth.cast(pl.Float64))
    elif kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        found = column.cast(pl.Float64, strict=False)
    else:
        raise InputError(f"{path}: column {name!r} ({key}) is {kind}; it has to be number or text")
    return found.fill_null(float("nan"))
