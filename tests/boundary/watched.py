"""A run's surroundings, watched: whatever it leaves or says is searched for what was planted."""

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.boundary.canary import Before, exposed, leaks_into, spelt
from tests.boundary.planted import Planted
from tests.conftest import PATIENCE


@dataclass(frozen=True)
class Watch:
    """A run's surroundings, and what was heard of it."""

    folders: tuple[Path, ...]
    heard: Callable[[], str]
    before: Mapping[Path, Before]
    """What stood in the folders before the run, and before there was anything to look for."""

    def leaks(self, planted: Planted, *more: object) -> list[str]:
        """Where secrets are to be found that should not be there, and what is open to others."""
        built = planted.built
        for log in built.folder.glob("log.*"):
            log.unlink()
        heard = self.heard()  # first: until then logs and states come in
        found = [
            leak
            for folder in (*self.folders, built.folder)
            for leak in leaks_into(folder, *planted.secrets, root=built.folder, before=self.before)
        ]
        texts = {"what was heard": heard, "what came back": spelt(more)}
        for place, text in texts.items():
            found += [
                f"{secret.name} in {place}" for secret in planted.secrets if secret.is_in(text)
            ]
        return found + exposed(built.folder)


def watching(
    prefect: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Watch]:
    """Watch a run, in surroundings where nothing is private by itself."""
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    caplog.set_level("DEBUG")

    def heard() -> str:
        wait_for_prefect(prefect, "clusterdp-release")
        streams = capfd.readouterr()
        return "\n".join((streams.out, streams.err, caplog.text))

    umask = os.umask(0)
    try:
        home = Path(os.environ["PREFECT_HOME"])
        yield Watch((temporary, prefect, home), heard, Before.of(prefect) | Before.of(home))
    finally:
        os.umask(umask)


def wait_for_prefect(database: Path, name: str) -> None:
    """Wait until the logs and states of the flow's runs, and of their tasks, have come in."""
    query = (
        "SELECT count(*) FROM flow_run r JOIN flow f ON f.id = r.flow_id WHERE f.name = ? "
        "AND (NOT EXISTS (SELECT * FROM log l WHERE l.flow_run_id = r.id "
        "AND l.task_run_id IS NULL AND l.message LIKE 'Finished in state%') "
        "OR EXISTS (SELECT * FROM log l WHERE l.flow_run_id = r.id AND l.task_run_id IS NOT NULL "
        "AND NOT EXISTS (SELECT * FROM task_run t WHERE t.id = l.task_run_id "
        "AND t.state_type IN ('COMPLETED', 'FAILED', 'CRASHED', 'CANCELLED'))))"
    )
    deadline = time.monotonic() + PATIENCE
    with closing(sqlite3.connect(next(database.glob("*.db")))) as connection:
        while connection.execute(query, (name,)).fetchone() != (0,):
            assert time.monotonic() < deadline, "the logs of a flow run never arrived"
            time.sleep(0.1)
