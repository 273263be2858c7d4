"""What a command has to say, before anything of it is printed."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a command has to say: to people (nothing with --json), as a document, as warnings."""

    text: str
    document: dict[str, Any]
    warnings: tuple[str, ...] = ()
