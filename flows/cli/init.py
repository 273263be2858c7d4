"""The command ``init``: a first configuration for a log that nobody has described."""

import csv
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.answer import Answer
from flows.cli.options import files
from flows.runtime.pasted import pasted
from flows.runtime.terminal import shown
from schemas.errors import ConfigError
from schemas.errors import shown as written

if TYPE_CHECKING:
    from flows.init import InitResult

_LOGS = files(".parquet", ".csv", ".jsonl", ".ndjson", ".json", ".gz")


def init(  # noqa: PLR0913, PLR0917 - an option each
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="The log's file, or a pattern in quotes, in which {period} may stand; also s3://… "
            "and gs://….",
            autocompletion=_LOGS,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE.toml", help="What to write; else EXPERIMENT.toml here."
        ),
    ] = None,
    experiment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its name; else FILE's or LOG's."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of units' ids.")
    ] = None,
    arm: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column of arms. Its labels are read, unless both --control and --treatments "
            "are given; no other column's values are.",
        ),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The outcome's column. It is not read."),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="The column of clusters; several: give it again."),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN,…",
            help="Columns of public facts, published with every unit as they are.",
        ),
    ] = None,
    assigned_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column of what was given its arm as one, where that is not the unit.",
        ),
    ] = None,
    control: Annotated[
        str | None, typer.Option(metavar="LABEL", help="The label of the control arm.")
    ] = None,
    treatments: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL,…", help="The labels of all other arms; one with a comma in quotes."
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE,…", help="The values that outcomes can have, such as 0,1 or no,yes."
        ),
    ] = None,
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER,…", help="The numbers that texts in --values stand for; else 0,1."
        ),
    ] = None,
    low: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="The least outcome, not with --values."),
    ] = None,
    high: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="The greatest; goes with --low.")
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER", help='How many values between --low and --high; else "auto".'
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="What one release may cost.")
    ] = None,
    budget_epsilon: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="The most that one person may pay over all releases."),
    ] = None,
) -> Answer:
    """Write a first configuration for a log, every line explained.

    Columns are those that you name, or are recognised by their names. Reads only the names and
    types of LOG's columns, and the labels in the column that --arm names: no outcome, no column
    that was not named. What it cannot know stays a blank, which `clusterdp check` asks for. Writes
    a new file, never over another.
    """
    from flows.config.draft import Given
    from flows.init import init as write

    given = Given(
        experiment=experiment,
        unit=unit,
        arm=arm,
        outcome=outcome,
        cluster=tuple(cluster or ()),
        attributes=tuple(_labels(attributes or [])),
        assigned_by=assigned_by,
        control=control,
        treatments=tuple(_labels(treatments or [])),
        values=_values(values),
        scores=_numbers("--scores", scores),
        low=low,
        high=high,
        levels=_levels(levels),
        epsilon=epsilon,
        budget_epsilon=budget_epsilon,
    )
    result = write(log, output, given)
    return Answer(partial(_text, result), result.as_json(), notes=result.notes)


def _labels(given: list[str]) -> list[str]:
    return [label.strip() for row in csv.reader(given, skipinitialspace=True) for label in row]


def _values(given: str | None) -> tuple[float, ...] | tuple[str, ...]:
    """Numbers; or texts, where one of them is no number."""
    if given is None:
        return ()
    texts = tuple(_labels([given]))
    are_numbers = [_is_number(text) for text in texts]
    if all(are_numbers):
        return tuple(map(float, texts))
    if not any(are_numbers) and all(texts) and len(texts) > 1:
        return texts
    raise ConfigError(
        "--values", f"{written(given)} is neither numbers with commas nor texts with commas"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(option: str, given: str | None) -> tuple[float, ...]:
    if given is None:
        return ()
    try:
        return tuple(map(float, given.split(",")))
    except ValueError:
        raise ConfigError(option, f"{written(given)} is not numbers with commas") from None


def _levels(given: str | None) -> int | Literal["auto"] | None:
    if given is None:
        return None
    if given == "auto":
        return "auto"
    if not given.isascii() or not given.isdigit():
        raise ConfigError("--levels", f'{written(given)} is neither a whole number nor "auto"')
    return int(given[:9])


def _text(result: "InitResult") -> str:
    lines = [f"{result.path}: written"]
    for meaning, name in result.recognised.items():
        unless = ", left out unless you uncomment it" if meaning == "cluster" else ""
        lines.append(f"  recognised by its name: {meaning} = {shown(name)}{unless}")
    lines += [f"  to be given: {key}" for key in result.blanks]
    then = "fill them in, then" if result.blanks else "look through it, then"
    return "\n".join([*lines, f"{then}:", f"  {pasted('check', result.path)}"])
