"""What one begins with: ``init`` and ``schema`` for a configuration, ``hash-ids`` for tables."""

from __future__ import annotations

import csv
import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile, Table, files
from flows.runtime.pasted import pasted
from flows.runtime.terminal import shown
from schemas.errors import ConfigError, SeveralConfigError
from schemas.errors import shown as written

if TYPE_CHECKING:
    from flows.init import InitResult


def init(  # noqa: PLR0913, PLR0917 - an option each
    log: Annotated[str, files(".parquet", ".csv", ".jsonl", ".ndjson", ".json", ".gz")],
    output: Path | None = None,
    experiment: str | None = None,
    unit: str | None = None,
    arm: str | None = None,
    outcome: str | None = None,
    cluster: list[str] | None = None,
    attributes: list[str] | None = None,
    assigned_by: str | None = None,
    control: str | None = None,
    treatments: list[str] | None = None,
    values: str | None = None,
    scores: str | None = None,
    low: float | None = None,
    high: float | None = None,
    levels: str | None = None,
    epsilon: float | None = None,
    budget_epsilon: float | None = None,
    delimiter: Literal[",", ";", "\t", "|"] | None = None,
) -> Answer:
    """Write a first configuration for a log, every line explained.

    Columns are those that you name, or are recognised by their names. Reads only the names and
    types of LOG's columns, and the labels in the column that --arm names: no outcome, no column
    that was not named. What it cannot know stays a blank, which `clusterdp check` asks for. Writes
    a new file, never over another.

    Options:
        log (LOG): The log's file, or a pattern in quotes, in which {period} may stand; also s3://…,
            gs://… and az://….
        output (--output -o FILE.toml): What to write; else EXPERIMENT.toml here.
        experiment (NAME): Its name; else FILE's or LOG's.
        unit (COLUMN): The column of units' ids.
        arm (COLUMN): The column of arms. Its labels are read, unless both --control and
            --treatments are given; no other column's values are.
        outcome (COLUMN): The outcome's column. It is not read.
        cluster (COLUMN): The column of clusters; several: give it again.
        attributes (COLUMN,…): Columns of public facts, published with every unit as they are.
        assigned_by (COLUMN): The column of what was given its arm as one, where that is not the
            unit.
        control (LABEL): The label of the control arm.
        treatments (LABEL,…): The labels of all other arms; one with a comma in quotes.
        values (VALUE,…): The values that outcomes can have, such as 0,1 or no,yes.
        scores (NUMBER,…): The numbers that texts in --values stand for; else 0,1.
        low (NUMBER): The least outcome, not with --values.
        high (NUMBER): The greatest; goes with --low.
        levels (NUMBER): How many values between --low and --high; else "auto".
        epsilon (NUMBER): What one release may cost.
        budget_epsilon (NUMBER): The most that one person may pay over all releases.
        delimiter (MARK): What stands between the fields of CSV files, where it is no comma.
    """
    from flows.config.draft import Given
    from flows.init import init as write

    given = Given(
        experiment=experiment,
        unit=unit,
        arm=arm,
        outcome=outcome,
        cluster=tuple(cluster or ()),
        attributes=_labels(*(attributes or ())),
        assigned_by=assigned_by,
        control=control,
        treatments=_labels(*(treatments or ())),
        values=_values(_labels(values or "")),
        scores=_scores(scores),
        low=low,
        high=high,
        levels=_levels(levels),
        epsilon=epsilon,
        budget_epsilon=budget_epsilon,
        delimiter=delimiter,
    )
    try:
        result = write(log, output, given)
    except SeveralConfigError:
        raise
    except ConfigError as error:
        section, _, key = error.key.rpartition(".")
        option = f"--{key.replace('_', '-')}" if section and hasattr(given, key) else error.key
        raise ConfigError(option, error.problem) from None
    return Answer(partial(_text, result), result.as_json(), notes=result.notes)


def _labels(*given: str) -> tuple[str, ...]:
    rows = csv.reader(given, skipinitialspace=True)
    return tuple(label.strip() for row in rows for label in row)


def _values(texts: tuple[str, ...]) -> tuple[float, ...] | tuple[str, ...]:
    """Numbers; or texts, where none of them is a number."""
    numbers = tuple(number for text in texts if (number := _number(text)) is not None)
    if len(numbers) == len(texts):
        return numbers
    if not numbers and all(texts) and len(texts) > 1:
        return texts
    given = written(",".join(texts))
    raise ConfigError("--values", f"{given} is neither numbers with commas nor texts with commas")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _scores(given: str | None) -> tuple[float, ...]:
    numbers = [_number(text) for text in given.split(",")] if given is not None else []
    found = tuple(number for number in numbers if number is not None)
    if len(found) < len(numbers):
        raise ConfigError("--scores", f"{written(given)} is not numbers with commas")
    return found


def _levels(given: str | None) -> int | Literal["auto"] | None:
    if given is None:
        return None
    if given == "auto":
        return "auto"
    if not given.isascii() or not given.isdigit():
        raise ConfigError("--levels", f'{written(given)} is neither a whole number nor "auto"')
    return int(given[:9])


def _text(result: InitResult) -> str:
    lines = [f"{result.path}: written"]
    for meaning, name in result.recognised.items():
        unless = ", left out unless you uncomment it" if meaning == "cluster" else ""
        lines.append(f"  recognised by its name: {meaning} = {shown(name)}{unless}")
    lines += [f"  to be given: {key}" for key in result.blanks]
    then = "fill them in, then" if result.blanks else "look through it, then"
    return "\n".join([*lines, f"{then}:", f"  {pasted('check', result.path)}"])


class Kind(StrEnum):
    """The command that reads a configuration."""

    RELEASE = "release"
    SITE = "site"
    CATE = "cate"


def schema(kind: Kind = Kind.RELEASE) -> Answer:
    """Print a JSON Schema of configurations, for editors.

    An editor that knows TOML then offers keys, shows what they mean, and marks what is wrong. Put
    it beside your configurations as clusterdp.schema.json, and begin each of them with the line
    `#:schema ./clusterdp.schema.json`; `clusterdp init` does where the file is there. Reads
    nothing and writes nothing.

    Options:
        kind ([release|site|cate]): The command that reads the file.
    """
    from flows.config.json_schema import json_schema

    document = json_schema(kind.value)
    return Answer(lambda: json.dumps(document, indent=2), document)


def hash_ids(config: ConfigFile, file: Table, output: Path, column: str = "unit_id") -> Answer:
    """Replace ids in a file by the hashed ids of a release.

    So the file can be joined with a release whose ids are hashed (publish.unit_id = "keyed-hash" in
    CONFIG). Reads CONFIG, its key and FILE: run it where the key may be read. Writes a new file:
    the same rows and columns, with the ids hashed.

    Options:
        file (FILE): A CSV or Parquet file with ids.
        output (--output -o FILE): The file to write, CSV or Parquet by its name.
        column (NAME): The column of the ids.
    """
    from flows.hash_ids import hash_ids as replace_ids

    result = replace_ids(config, file, output, column)
    missing = f"; {result.n_missing:,} had no id" if result.n_missing else ""
    text = f"{result.path}: {result.n_rows:,} rows, ids hashed{missing}"
    return Answer(lambda: text, result.as_json(), result.warnings)
