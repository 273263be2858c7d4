"""The text of a new configuration: every line explained, and blanks for what is not known."""

import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.config.findings import plain
from flows.config.json_schema import SCHEMA_FILE
from flows.config.model.experiment import Config
from flows.config.rules.checks import check_config
from schemas.visible import visible

Value = str | float | bool | tuple[str, ...] | tuple[float, ...]

BLANK = "TO BE GIVEN: "
"""What the comment above a blank begins with."""

_WIDTH = 96
_HEAD = (
    "An experiment for clusterdp. Lines that begin with # are comments. Of the log, nothing was "
    "read but the names and types of its columns{labels}. Look through all lines before the first "
    "release: ids, arms and clusters are published as they are. Then try it, which writes nothing:"
)


@dataclass(frozen=True)
class Line:
    """A key of the configuration, with what is said above it."""

    key: str
    comment: str
    value: Value | None = None
    """None for a key that is left out, which ``example`` shows in a comment."""
    example: Value = ""
    is_needed: bool = True
    """Whether it has to be given: a blank then, if there is no value."""

    @property
    def is_blank(self) -> bool:
        """Whether somebody has to fill it in."""
        return self.is_needed and self.value is None


@dataclass(frozen=True)
class Draft:
    """The lines of a configuration by section; "" for those above all sections."""

    sections: Mapping[str, tuple[Line, ...]]
    reads_labels: bool = False
    """Whether the labels of the arms were read from the log."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What to say above a section."""

    @property
    def blanks(self) -> tuple[str, ...]:
        """The keys that are still to be given."""
        return tuple(
            f"{section}.{line.key}" if section else line.key
            for section, lines in self.sections.items()
            for line in lines
            if line.is_blank
        )

    def text(self, file: Path) -> str:
        """The file's text; ``file`` is where it will be.

        It names the schema for editors, where that lies beside it.
        """
        labels = " and the labels of the arms" if self.reads_labels else ""
        schema = file.parent / SCHEMA_FILE
        parts = [
            *([f"#:schema ./{SCHEMA_FILE}"] if schema.is_file() else []),
            *_comment(_HEAD.format(labels=labels)),
            f"#     clusterdp check {visible(file.name)}",
        ]
        for section, lines in self.sections.items():
            parts += ["", *_comment(self.notes.get(section, ""))]
            parts += [f"[{section}]"] if section else []
            for line in lines:
                parts += _shown(line)
        return "\n".join(parts) + "\n"

    def check(self, directory: Path) -> None:
        """Raise ConfigError for a value that the loader would refuse; blanks are filled in."""
        lines = [
            line
            for section, keys in self.sections.items()
            for line in [f"[{section}]" if section else "", *_filled(keys)]
        ]
        try:
            config = Config.model_validate(tomllib.loads("\n".join(lines)))
        except ValidationError as error:
            raise plain(error, Config) from None
        check_config(config.model_copy(update={"directory": directory}))


def _filled(lines: tuple[Line, ...]) -> Iterator[str]:
    """The keys that will stand in the file, with a blank's example as its value."""
    for line in lines:
        if line.value is not None:
            yield f"{line.key} = {spelt(line.value)}"
        elif line.is_needed:
            stands_in = f"\N{HORIZONTAL ELLIPSIS} {line.key}"  # hardly a name in a log
            yield f"{line.key} = {spelt(_example(line, stands_in))}"


def _example(line: Line, stands_in: str) -> Value:
    if isinstance(line.example, str):
        return stands_in
    if isinstance(line.example, tuple) and isinstance(line.example[0], str):
        return (stands_in,)
    return line.example


def _shown(line: Line) -> list[str]:
    known = line.value is not None
    comment = _comment((BLANK if line.is_blank else "") + line.comment)
    value = line.value if line.value is not None else line.example
    return [*comment, f"{'' if known else '# '}{line.key} = {spelt(value)}"]


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False)]


def spelt(value: Value) -> str:
    """A value as TOML spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(map(spelt, value))}]"
    return _number(value)


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
