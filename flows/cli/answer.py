"""What a command has to say, before anything of it is printed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a command has to say; :mod:`flows.cli.main` prints it, the one place that does."""

    text: Callable[[], str]
    """Makes what people read; not called with ``--json``."""
    document: dict[str, Any]
    """What ``--json`` prints."""
    warnings: tuple[str, ...] = ()
    """What the operator should look into, on standard error."""
    notes: tuple[str, ...] = ()
    """What was done besides, on standard error."""
    exit_code: int = 0
