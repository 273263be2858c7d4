"""The kinds of configurations: what each publishes, and how its file is told from the others."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from flows.config.model.declared import Declared
from flows.config.model.experiment import Config
from flows.config.rules.checks import check_config
from flows.runtime.houses import offered
from privatizers.accounting.budget import Budget

C = TypeVar("C", bound=Declared)


@dataclass(frozen=True)
class Kind(Generic[C]):
    """A kind of configuration. A house offers its own as ``KINDS``."""

    command: str
    """The command that reads it."""
    rules: Callable[[], tuple[type[C], Callable[[C], None]]]
    """Its model, and what raises ConfigError where keys do not go together: loaded when called."""
    keys: tuple[str, str] | None = None
    """Keys that no other kind has: the first tells it, and without both it is another."""
    what: str = "a release"
    suffix: str = ".duckdb"
    """How names of what it publishes end."""
    has_latest: bool = True
    """Whether a link beside that names the newest."""
    read: Callable[[Path], tuple[str, Budget]] | None = None
    """Reads the id and the cost that stand in what it publishes; None for a release."""


RELEASE = Kind("release", lambda: (Config, check_config))


def kinds() -> tuple[Kind[Declared], ...]:
    """All kinds, releases first."""
    return (RELEASE, *(kind for some in offered("KINDS") for kind in some))


def kind_of(config: Declared) -> Kind[Declared]:
    """The kind of a configuration."""
    return next(kind for kind in kinds() if type(config) is kind.rules()[0])
