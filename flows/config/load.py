"""Reads configurations: one TOML file an experiment, a site of one, or an effect model.

Unknown keys, wrong types and impossible values are errors that name the key; those that can be told
without looking at several keys together are told at once. Nothing here reads data.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.config.findings import plain
from flows.config.kinds import RELEASE, C, Kind, kinds
from flows.config.model.declared import Declared
from flows.config.model.experiment import Config
from flows.config.model.sections import LogSection
from flows.config.rules.checks import check_length
from flows.config.rules.outcomes import MISSING
from flows.runtime.reading.small_files import UnreadableError, read_small_text
from flows.schedule.paths_of_periods import has_period, needs_day
from flows.schedule.periods import day_of
from schemas.errors import ConfigError, shown
from schemas.names import AGREED, PERIOD

NO_PERIOD = "once"
MOST_BYTES = 4_000_000
"""Of a configuration; one with 10,000 grid values, weights and labels has a tenth of it."""
_DEEP = "nested too deeply for a configuration"
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_MANY_PARTS = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:{_PART}){{32}}", re.MULTILINE)
"""A key of more than 32 parts: reading one takes time that grows as the square of their number."""


def load(path: Path) -> Config:
    """Read and check a release's configuration; raises ConfigError naming the key at fault."""
    return load_as(RELEASE, path)


def load_as(kind: Kind[C], path: Path) -> C:
    """Read and check a configuration of this kind; likewise."""
    return checked(kind, path, _content(path))


def load_any(path: Path) -> Declared:
    """Read and check a configuration of any kind; likewise."""
    content = _content(path)
    return checked(_kind(content), path, content)


def kind_at(path: Path) -> Kind[Declared]:
    """The kind of the configuration at ``path``, by the keys that it has."""
    return _kind(_content(path))


def period_of(source: LogSection, period: str | None) -> str:
    """Return the period of a run; ``once`` where none is named and its log needs none."""
    if period is None:
        if source.period is not None:
            raise ConfigError("--period", "missing: source.period tells periods apart, so name it")
        for key, pattern in source.patterns.items():
            if has_period(pattern):
                raise ConfigError(
                    "--period", f"missing: {key} holds {{period}}, so name the period"
                )
        return NO_PERIOD
    if not re.fullmatch(PERIOD, period):
        raise ConfigError(
            "--period",
            f"{shown(period)} must begin with a letter or digit and hold those, - and _ only",
        )
    check_length("--period", period)
    for key, pattern in source.patterns.items():
        if needs_day(pattern) and day_of(period) is None:
            raise ConfigError(
                "--period", f"{shown(period)} is no day YYYY-MM-DD, as {key} writes one"
            )
    return period


def _kind(content: Mapping[str, object]) -> Kind[Declared]:
    first, *others = kinds()
    return next((kind for kind in others if kind.keys and kind.keys[0] in content), first)


def checked(kind: Kind[C], path: Path, content: dict[str, Any]) -> C:
    """The configuration of this kind that the content of the file at ``path`` is; likewise."""
    if "directory" in content:
        raise ConfigError("directory", "unknown key; remove it or correct its spelling")
    _check_kind(kind, path, content)
    model, check = kind.rules()
    try:
        config = model.model_validate(content)
    except ValidationError as error:
        left_out = kind is RELEASE and "outcome" not in content and "outcomes" not in content
        raise plain(error, model, [("outcome", MISSING)] if left_out else []) from None
    config = config.model_copy(update={"directory": path.absolute().parent})
    check(config)
    return config


def _check_kind(kind: Kind[C], path: Path, content: dict[str, Any]) -> None:
    for other in kinds():
        if other.keys is None:
            continue
        (key, second), is_other = other.keys, other is not kind
        reads = f"`clusterdp {other.command}` reads it"
        if key in content and is_other:
            raise ConfigError(str(path), f"the configuration of {other.what}; {reads}")
        if not is_other and key not in content and second not in content:
            raise ConfigError(
                str(path),
                f"not the configuration of {other.what}, as it has neither {key} nor {second}; if "
                "it is of a release, `clusterdp release` reads it",
            )


def _content(path: Path) -> dict[str, Any]:
    """The content of a configuration, with that of the document that several sites share."""
    content = _read_toml(path)
    if "moments" not in content:
        return content
    section = content["moments"]
    name = section.get("agreed") if isinstance(section, dict) else None
    if not isinstance(name, str):
        raise ConfigError("moments.agreed", "missing: name the public file that all sites have")
    place = path.absolute().parent / name
    agreed = _read_toml(place)
    for key in sorted(agreed.keys() - AGREED):
        what = f"no key of what sites agree on: {', '.join(sorted(AGREED))}; remove it"
        raise ConfigError(f"{place}: {shown(key)}", what)
    for key in sorted(AGREED & content.keys()):
        raise ConfigError(key, f"belongs to what all sites share, {place}; remove it here")
    return content | agreed


def _read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; whatever is wrong with it is a ConfigError that names it."""
    place = str(path.absolute())
    try:
        text = read_small_text(path, MOST_BYTES).replace("\r\n", "\n").replace("\r", "\n")
    except UnreadableError as error:
        raise ConfigError(place, str(error)) from None
    try:
        if not _MANY_PARTS.search(text):
            return tomllib.loads(text)
        problem = _DEEP
    except tomllib.TOMLDecodeError as error:
        problem = f"not valid TOML: {error}"
    except RecursionError:
        problem = _DEEP
    except ValueError:  # what Python will not convert
        problem = "not valid TOML: a number has thousands of digits, or a date or time is none"
    raise ConfigError(place, problem)
