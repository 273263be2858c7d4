"""Ledgers in both databases, for all tests of them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url

if TYPE_CHECKING:  # not imported twice, as it is a plug-in
    from tests.postgresql import PostgreSQL


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> sa.URL:
    """A ledger that is not there yet."""
    if request.param == "sqlite":
        return ledger_url("sqlite:///kept/ledger.sqlite", tmp_path)
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return ledger_url(server.emptied(), tmp_path)


@pytest.fixture
def ledger(url: sa.URL) -> Ledger:
    return Ledger(url)
