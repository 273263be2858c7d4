"""A folder of releases, ledgers in either database, and a backup, for all tests of copies."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url
from flows.operate.copies.folder import (
    Backup,
)
from tests.flows.ledger.conftest import ledger, url
from tests.flows.ledger.people import members, publish, terms

if TYPE_CHECKING:  # not imported twice, as it is a plug-in
    from tests.postgresql import PostgreSQL

from tests.flows.operate.copies.copied import backed_up

__all__ = ["ledger", "url"]  # fixtures of ledgers in both databases


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    folder = tmp_path / "releases"
    folder.mkdir()
    return folder


@pytest.fixture
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Ledger]:
    """Makes empty ledgers in either database, to put back into."""

    def make(kind: str) -> Ledger:
        if kind == "sqlite":
            return Ledger(ledger_url("sqlite:///new/ledger.sqlite", tmp_path))
        server: PostgreSQL = request.getfixturevalue("postgresql")
        return Ledger(ledger_url(server.database(), tmp_path))

    return make


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    ledger = Ledger(ledger_url("sqlite:///ledger.sqlite", tmp_path))
    publish(ledger, terms(), "a", members(range(9)))
    return backed_up(ledger, tmp_path / "backup")
