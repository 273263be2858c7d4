"""Both ways to run a release, and the server of Prefect's that one of them needs.

Loaded by ``tests/conftest.py``. Prefect is imported late: it reads its environment then, and takes
seconds.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.conftest import PATIENCE, Experiment


@pytest.fixture(scope="session")
def prefect_harness() -> Iterator[Path]:
    """A Prefect server for flow runs of this session; gives the folder of its database."""
    from prefect.logging.configuration import (  # noqa: PLC0415 - as above
        setup_logging,
    )
    from prefect.settings import (  # noqa: PLC0415 - as above
        PREFECT_SERVER_DATABASE_CONNECTION_URL as DATABASE,
    )
    from prefect.testing import utilities  # noqa: PLC0415 - takes seconds, few tests need it

    from flows.orchestration.server_database import kept_path, read_kept  # noqa: PLC0415 - as above

    def with_tables() -> str:
        """Give a new folder with the tables that Prefect would take seconds to make."""
        folder = tempfile.mkdtemp()
        content = read_kept(kept_path())
        if content is not None:
            Path(folder, "prefect-test.db").write_bytes(content)
        return folder

    with (
        patch.object(utilities, "mkdtemp", with_tables),
        utilities.prefect_test_harness(server_startup_timeout=int(PATIENCE)),
    ):
        setup_logging()  # now: at the first run it would hold on to that test's standard error
        yield Path(str(DATABASE.value()).partition(":///")[2]).parent


@pytest.fixture(params=["plain", pytest.param("prefect", marks=pytest.mark.prefect)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to run a release: by plain steps, and as a Prefect flow of a configured server."""
    if request.param == "plain":
        return
    request.getfixturevalue("prefect_harness")
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - as above

    from flows.deployed import release  # noqa: PLC0415 - as above

    def run(built: Experiment, period: str | None = None, *, revise: bool = False) -> object:
        return release(str(built.config), period, revise)

    monkeypatch.setattr(Experiment, "run", run)
    monkeypatch.setenv("PREFECT_API_URL", str(PREFECT_API_URL.value()))
