"""TOML from a file: whatever is wrong with it is a ConfigError that names the file."""

import re
import tomllib
from pathlib import Path
from typing import Any

from flows.runtime.reading.small_files import UnreadableError, read_small_text
from schemas.errors import ConfigError

MOST_BYTES = 4_000_000
"""Of a configuration; one with 10,000 grid values, weights and labels has a tenth of it."""

_DEEP = "nested too deeply for a configuration"
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_MANY_PARTS = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:{_PART}){{32}}", re.MULTILINE)
"""A key of more than 32 parts: reading one takes time that grows as the square of their number."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; raises ConfigError where it is none or far too large."""
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
