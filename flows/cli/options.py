"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.completion import files

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
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]

TABLES = files(".csv", ".parquet")
"""Completes the name of a table of the analyst's."""
