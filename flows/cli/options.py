"""Options: how a command describes its own, those that several share, and files a shell offers.

A shell offers them once ``--install-completion`` was run. Its own completion of files, which offers
all of them, takes over where none is found here.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer import Context

from flows.released.located import located

_SHARED = """
    config (CONFIG): The experiment's TOML file.
    configs (CONFIG…): One or more experiments' TOML files.
    release (RELEASE): A released DuckDB file, here or in a store (s3://…).
    releases (RELEASE… | FOLDER): A released DuckDB file, here or in a store (s3://…); or several
        of one experiment, or the folder they are in.
    period (PERIOD): Which period of the log, usually a date such as 2026-11-20. It replaces
        {period} in the paths of CONFIG, and is needed only where a path has {period}.
    people (disjoint | returning): Of several releases: whether anybody is in two of them, where
        you know better than their ids show.
    looks (NUMBER): Of several releases: the look at which the interval for those who look every
        night is to be at its narrowest (14, unless you say otherwise).
    level (NUMBER): Confidence level of the intervals, between 0 and 1.
    prefect: Run as a Prefect flow: on the server that is configured, else on a temporary one.
"""
"""What several commands have alike."""
_HEADING = "\n\nOptions:\n"
_DESCRIBED = re.compile(r"^    (\w+)(?: \((.+?)\))?: (.+(?:\n     .+)*)", re.MULTILINE)
_PLAIN = re.compile(r"[\w.,+%/-]+")
"""Names that mean the same to every shell, quoted or not; others are left to the shell itself."""
_MOST = 1000  # names; nobody reads more


def help_of(command: Callable[..., Any]) -> str:
    """What a command does: its docstring, without what is below "Options:"."""
    return (inspect.getdoc(command) or "").partition(_HEADING)[0]


def parameters_of(command: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """A command's parameters as typer takes them, as its docstring describes them.

    There ``name (METAVAR): help`` stands below "Options:"; an option that needs another name, a
    short one, or to be given, is spelt so: ``name (--name -n METAVAR): help``, and an argument that
    may be left out so: ``name ([METAVAR]): help``. A function that a parameter is annotated with
    completes it, and a second one reads it. Raises KeyError for one that nothing describes.
    """
    below = (inspect.getdoc(command) or "").partition(_HEADING)[2]
    described = _DESCRIBED.findall(f"{_SHARED}{below}")
    told = {name: (spelt, " ".join(text.split())) for name, spelt, text in described}
    hints = get_type_hints(command, include_extras=True)
    for one in inspect.signature(command).parameters.values():
        hint = hints[one.name]
        kind, *ways = get_args(hint) if get_origin(hint) is Annotated else [hint]
        info = _info(one, *told[one.name], *ways)
        yield one.replace(annotation=Annotated[kind, info])


def _info(
    one: inspect.Parameter, spelt: str, text: str, complete: Any = None, read: Any = None
) -> Any:
    names = re.findall(r"(?<!\S)-\S+", spelt)
    metavar = " ".join(word for word in spelt.split() if word not in names) or None
    if spelt.startswith("[") or (not names and one.default is one.empty):
        return typer.Argument(metavar=metavar, help=text, autocompletion=complete, parser=read)
    names = names or [f"--{one.name.replace('_', '-')}"]
    return typer.Option(*names, metavar=metavar, help=text, autocompletion=complete, parser=read)


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
        is_meant = entry.name.startswith(start) if start else not entry.name.startswith(".")
        if is_meant and entry.is_dir():
            found.append(f"{folder}{slash}{entry.name}/")
        elif is_meant and entry.name.endswith(endings):
            found.append(f"{folder}{slash}{entry.name}")
    return sorted(name for name in found if _PLAIN.fullmatch(name.removeprefix("~")))


ConfigFile = Annotated[Path, files(".toml")]
ConfigOrNone = Annotated[Path | None, files(".toml")]
ConfigFiles = Annotated[list[Path], files(".toml")]
ReleaseFile = Annotated[Path, files(".duckdb"), located]
ReleaseFiles = Annotated[list[Path], files(".duckdb"), located]
Table = Annotated[Path, files(".csv", ".parquet")]
TableOrNone = Annotated[Path | None, files(".csv", ".parquet")]
"""Paths of files, for which a shell offers those that fit."""
JSON = inspect.Parameter(
    "as_json",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ],
)
"""What every command takes that answers."""
