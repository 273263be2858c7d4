"""Where a ledger is: what a configuration says of it, and the file that one in SQLite is."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from flows.config.model.declared import Declared
from flows.runtime.files import private_directory
from flows.runtime.paths import absolute, check_place
from flows.runtime.reading.regular_files import other_than_file
from schemas.errors import ConfigError, InputError

KEY_FILE = "account.key"
PATIENCE = {
    "connect_timeout": "60",  # a busy server may take long to answer
    # A line that is dead without a word is noticed in a minute, not in a quarter of an hour.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""What a connection to a server is given, unless the URL says something else."""


@dataclass(frozen=True)
class LedgerPlace:
    """Where a ledger is, and the key of its accounts."""

    url: sa.URL = field(repr=False)
    key: Path | None
    """None where a ledger on a server has none named."""

    @property
    def key_path(self) -> Path:
        """Where the key is; raises ConfigError where none is named that has to be."""
        if self.key is None:
            raise ConfigError(
                "ledger.key_file",
                "missing: with accounts by unit all machines that use a ledger on a server need "
                "the same key; name a file, which is made if there is none, and copy it to the "
                'others. Or let everybody pay for every release (privacy.account = "population")',
            )
        return self.key


def ledger_place(config: Declared) -> LedgerPlace:
    """Where the ledger of a configuration is; raises ConfigError where it can be nowhere."""
    url, key = ledger_url(config.ledger.url, config.directory), config.ledger_key_path
    if key is None and url.get_backend_name() == "sqlite":
        key = Path(url.database or "").with_name(KEY_FILE)
    return LedgerPlace(url, key)


def ledger_url(url: str, directory: Path) -> sa.URL:
    """Read ``ledger.url``, SQLite paths relative to ``directory``; raises ConfigError."""
    try:
        parsed = sa.make_url(url)
        parsed.get_dialect()
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError("ledger.url", "not sqlite:///FILE or postgresql+psycopg://HOST/DATABASE")
    if parsed.get_backend_name() == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.database in (None, "", ":memory:") or parsed.query:
        raise ConfigError("ledger.url", "a SQLite ledger is a plain file: sqlite:///FILE")
    written = parsed.database or ""
    check_place(directory, written, "ledger.url")
    path = absolute(directory, written, "ledger.url")
    return parsed.set(drivername="sqlite+pysqlite", database=str(path))


def only_place(urls: Iterable[sa.URL]) -> sa.URL | None:
    """The one ledger that all of these are; None where they are several.

    A file is the same by whatever way it is reached.
    """
    places: dict[sa.URL, sa.URL] = {}
    for url in urls:
        in_file = url.get_backend_name() == "sqlite" and url.database
        places.setdefault(
            url.set(database=str(Path(url.database or "").resolve())) if in_file else url, url
        )
    return places.popitem()[1] if len(places) == 1 else None


def make_durable(connection: Any, _record: object) -> None:
    """Let a commit outlive a power cut, also where the ledger lies apart from the releases."""
    connection.execute("PRAGMA synchronous = EXTRA")


def is_there(path: Path) -> bool:
    """Whether there is a file of this name; InputError where there is anything else."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(f"ledger {path}: cannot be looked at ({error.strerror})") from None
    problem = other_than_file(path)
    if problem is not None:
        raise InputError(f"ledger {path}: {problem}")
    return True


def make_private(path: Path) -> None:
    """Make an empty file that its owner alone can read, where there is none."""
    if is_there(path):
        return
    if not path.parent.is_dir():
        private_directory(path.parent)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise InputError(f"ledger {path}: cannot be made ({error.strerror})") from None
