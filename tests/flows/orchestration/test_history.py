"""Prefect's own history: runs that ended long ago go, by Prefect's API; others stay."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.flows.test_serve_real import write_experiment

pytestmark = pytest.mark.process

TABLES = ("flow_run", "flow_run_state", "task_run", "task_run_state")


def clusterdp(folder: Path, *arguments: str) -> str:
    unwanted = ("PREFECT_API_URL", "PREFECT_HOME")
    given = {name: value for name, value in os.environ.items() if name not in unwanted}
    ended = subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        cwd=folder, env=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def pruned(folder: Path, *options: str) -> int:
    document: dict[str, Any] = json.loads(
        clusterdp(folder, "prune", "served.toml", "--json", *options)
    )
    return int(document["prefect"]["n"])


def counts(folder: Path) -> dict[str, int]:
    with closing(sqlite3.connect(folder / ".clusterdp" / "prefect.db")) as database:
        return {
            table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in TABLES
        }


@pytest.mark.slow
def test_runs_that_ended_long_ago_go_with_all_that_is_theirs(tmp_path: Path) -> None:
    config = write_experiment(tmp_path)
    config.write_text(config.read_text() + '[retention]\nprefect = "30d"\n')
    assert pruned(tmp_path) == 0
    assert not (tmp_path / ".clusterdp").exists()  # no server was started for nothing
    for day in sorted(path.stem for path in tmp_path.glob("*.csv")):
        clusterdp(tmp_path, "release", "served.toml", "--prefect", "--period", day)
    before = counts(tmp_path)
    assert before["flow_run"] == 2
    with closing(sqlite3.connect(tmp_path / ".clusterdp" / "prefect.db")) as database, database:
        database.execute(
            "UPDATE flow_run SET end_time = '2026-01-01 00:00:00.000000' "
            "WHERE id = (SELECT id FROM flow_run ORDER BY end_time LIMIT 1)"
        )
    assert pruned(tmp_path, "--dry-run") == 1
    assert counts(tmp_path) == before
    assert pruned(tmp_path) == 1
    assert counts(tmp_path) == {table: number // 2 for table, number in before.items()}
