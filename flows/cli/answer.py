"""What a command has to say, before anything of it is printed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
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

    def about(self, release: Path) -> "Answer":
        """The same about one release, with a warning where a list beside it says it was withdrawn.

        The document gains ``withdrawn``: the reason, or null.
        """
        if release.suffix.lower() == ".json":  # an effect model
            return self
        from flows.released.withdrawal import withdrawal_of

        found = withdrawal_of(release)
        document = {**self.document, "withdrawn": None if found is None else found.reason}
        if found is None:
            return replace(self, document=document)
        if "warnings" in document:
            document["warnings"] = [found.warning, *document["warnings"]]
        return replace(self, document=document, warnings=(found.warning, *self.warnings))
