"""Arguments and options that several commands share, and the files that a shell offers for them.

A shell offers them once ``--install-completion`` was run. Its own completion of files, which offers
all of them, takes over where none is found here.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer import Context

_PLAIN = re.compile(r"[\w.,+%/-]+")
"""Names that mean the same to every shell, quoted or not; others are left to the shell itself."""
_MOST = 1000  # names; nobody reads more


def files(*endings: str) -> Callable[[Context, str], list[str]]:
    """Return what completes a path to a file with one of these ``endings``, folder by folder."""

    def complete(_: Context, incomplete: str) -> list[str]:
        found = _beginning_with(incomplete, endings)
        while len(found) == 1 and found[0].endswith("/"):  # else a shell puts a blank behind it
            inside = _beginning_with(found[0], endings)
            if not inside:
                break
            found = inside
        return found

    return complete


def _beginning_with(incomplete: str, endings: tuple[str, ...]) -> list[str]:
    """Folders, with a slash, and files that a path may go on to."""
    folder, slash, start = incomplete.rpartition("/")
    try:
        entries = list(os.scandir(Path(f"{folder}{slash}" or ".").expanduser()))
    except (OSError, RuntimeError):  # no such folder, or nobody's
        return []
    found = []
    for entry in entries[:_MOST]:
        if not entry.name.startswith(start or _not_hidden(entry.name)):
            continue
        if entry.is_dir():
            found.append(f"{folder}{slash}{entry.name}/")
        elif entry.name.endswith(endings):
            found.append(f"{folder}{slash}{entry.name}")
    return sorted(name for name in found if _PLAIN.fullmatch(name.removeprefix("~")))


def _not_hidden(name: str) -> str:
    return "\0" if name.startswith(".") else ""


ConfigFile = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG", help="The experiment's TOML file.", autocompletion=files(".toml")
    ),
]
ConfigFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="CONFIG…",
        help="One or more experiments' TOML files.",
        autocompletion=files(".toml"),
    ),
]
ReleaseFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="RELEASE… | FOLDER",
        help="A released DuckDB file; or several of one experiment, or the folder they are in.",
        autocompletion=files(".duckdb"),
    ),
]
ReportedFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="RELEASE… | FOLDER | MODEL.json",
        help="A released DuckDB file; or several of one experiment, or the folder they are in; or "
        "an effect model.",
        autocompletion=files(".duckdb", ".json"),
    ),
]
ReleaseFile = Annotated[
    Path,
    typer.Argument(
        metavar="RELEASE", help="A released DuckDB file.", autocompletion=files(".duckdb")
    ),
]
ReleaseOrFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RELEASE | FOLDER",
        help="A released DuckDB file, or a folder of them.",
        autocompletion=files(".duckdb"),
    ),
]
Period = Annotated[
    str | None,
    typer.Option(
        metavar="PERIOD",
        help="Which period of the log, usually a date such as 2026-11-20. It replaces {period} in "
        "the paths of CONFIG, and is needed only where a path has {period}.",
    ),
]
Prefect = Annotated[
    bool,
    typer.Option(
        "--prefect",
        help="Run as a Prefect flow: on the server that is configured, else on a temporary one.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]

TABLES = files(".csv", ".parquet")
"""Completes the name of a table of the analyst's."""
