"""A first configuration for a log that nobody has described, by names and flags alone.

No outcome takes part: of a log the names and types of its columns are read, and, where the column
of the arms was named and their labels were not, that column alone.
"""

import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from flows.config.draft import Given, Value, draft_of
from flows.config.guesses import Kind, Meaning, control_of, recognised
from flows.config.rules.checks import check_length, check_log
from flows.raw.boundary.guard import values_free
from flows.raw.reading.columns import TEXT_LIKE
from flows.raw.reading.header import MOST_LABELS, columns_of, labels_of, may_be_outcome
from flows.raw.reading.log_files import Wanted, check_columns, find_files, suffix
from flows.raw.reading.stores import LogFile
from flows.runtime.files import replace_file
from flows.runtime.paths import absolute, check_place, is_address
from flows.schedule.paths_of_periods import of_any_period
from schemas.documents import Document
from schemas.errors import InputError, shown


@dataclass(frozen=True)
class InitResult(Document):
    """The configuration that was written."""

    path: Path
    recognised: Mapping[Meaning, str] = field(default_factory=dict)
    """Columns that were told by their names; a cluster's is only mentioned."""
    blanks: tuple[str, ...] = ()
    """Keys that are still to be given."""
    notes: tuple[str, ...] = ()


@values_free
def init(log: str, output: Path | None, given: Given) -> InitResult:
    """Write a configuration for ``log``, a file or a pattern, from what was ``given``.

    Paths are relative to the current folder. The file is EXPERIMENT.toml where no ``output`` is
    named. Raises InputError where the log's columns cannot be read, or the file exists, and
    ConfigError where a release could not take what was given.
    """
    experiment = given.experiment or _name(output.stem if output else Path(log).name)
    path = (output or Path(f"{experiment}.toml")).absolute()
    _check_new(path)
    check_length("--experiment", experiment)
    pattern = _pattern(log)
    files = find_files(Path.cwd(), "LOG", of_any_period(pattern), "")
    columns = columns_of(files[0], given.delimiter or ",")
    if columns is not None:
        check_columns(files[0], Wanted(tuple(given.columns), keys=given.columns), columns)
    kinds = {name: _kind(kind) for name, kind in (columns or {}).items()}
    found = recognised(kinds, given.columns, given.meanings)
    labels = _labels(files, given)
    known = _known(given, found, labels or frozenset())
    known |= {"experiment": experiment, "path": _source(pattern, path.parent)}
    listed = _listed(columns or {}, files[0], are_named=bool(found or given.columns))
    draft = draft_of(path, known, found, listed, sorted(labels or ()))
    draft.check(path)
    _write(path, draft.text)
    note = (
        f"{given.arm}: not text with at most {MOST_LABELS} labels, so its labels are not written "
        "down; name them with --control and --treatments"
    )
    return InitResult(path, found, tuple(draft.blanks), (note,) if labels is None else ())


def _known(
    given: Given, found: Mapping[Meaning, str], labels: frozenset[str]
) -> dict[str, Value | None]:
    control = given.control
    if control is None:
        control = control_of(labels.difference(given.treatments))
    is_auto = given.low is not None and given.levels is None
    return {
        **vars(given),
        **{str(key): name for key, name in found.items()},
        "cluster": given.cluster[0] if len(given.cluster) == 1 else given.cluster,
        "control": control,
        "treatments": given.treatments or (tuple(sorted(labels - {control})) if control else ()),
        "levels": "auto" if is_auto else given.levels,
    }


def _name(stem: str) -> str:
    """The name of an experiment that a file's name suggests."""
    before = re.split(r"\.", stem.lstrip("."))[0] if not stem.startswith("*") else ""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", before).strip("-")
    return name or "experiment"


def _pattern(log: str) -> str:
    """The log as a pattern: special characters in the name of a file that exists are its own."""
    if is_address(log):
        check_log(Path.cwd(), log, "LOG")
        return log
    path = absolute(Path.cwd(), log, "LOG")
    return glob.escape(log) if os.path.exists(path) else log  # noqa: PTH110 - no name is too long


def _source(pattern: str, folder: Path) -> str:
    """The pattern relative to the configuration's folder, where the log lies in it; else whole."""
    if pattern.startswith("~") or is_address(pattern):
        return pattern
    whole = Path(glob.escape(str(Path.cwd()))) / pattern
    home = Path(glob.escape(str(folder)))
    inside = whole.relative_to(home) if whole.is_relative_to(home) else whole
    return str(inside)


def _kind(kind: pl.DataType) -> Kind:
    if isinstance(kind, TEXT_LIKE):
        return "text"
    if kind.is_integer():
        return "integer"
    if kind == pl.Boolean:
        return "boolean"
    return "number" if kind.is_numeric() else "other"


def _listed(columns: Mapping[str, pl.DataType], path: LogFile, *, are_named: bool) -> str:
    """Which columns the log has, as a comment; not what may be a row of data in place of names.

    A header of CSV is no such row if somebody named a column of it, or knows one by its name, and
    nothing in it is a number, true or false.
    """
    if not columns:
        return "Lines of JSON name no columns before the first row, so none are listed here."
    if suffix(path) == ".csv":
        if not are_named or any(map(may_be_outcome, columns)):
            return "The log's first line may be a row and no names, so it is not shown here."
        what = ", ".join(map(shown, columns))
    else:
        what = ", ".join(f"{shown(name)} ({_type(kind)})" for name, kind in columns.items())
    return f"Columns of the log: {what}."


def _type(kind: pl.DataType) -> str:
    known = _kind(kind)
    return kind.base_type().__name__.lower() if known == "other" else known


def _labels(files: tuple[LogFile, ...], given: Given) -> frozenset[str] | None:
    """The labels of the arms; None where the column that was named as theirs may be no such column.

    It is read only if it was named, and they were not.
    """
    labels: frozenset[str] = frozenset()
    if given.arm is None or (given.control is not None and given.treatments):
        return labels
    for file in files:
        more = labels_of(file, given.arm, given.delimiter or ",")
        if more is None or len(labels | more) > MOST_LABELS:
            return None
        labels |= more
    return labels


def _check_new(path: Path) -> None:
    check_place(path.parent, path.name, "--output")
    if os.path.lexists(path):
        raise InputError(f"{path}: exists already, and is not overwritten; name another with -o")


def _write(path: Path, text: str) -> None:
    """Write the file whole or not at all, and never over another."""
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise InputError("a name that was given is not text in UTF-8") from None
    try:
        with replace_file(path, mode=0o644) as file:
            _check_new(path)  # nobody else's, meanwhile
            file.write(content)
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
