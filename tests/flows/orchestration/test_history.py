"""Prefect's own history: runs that ended long ago go, by Prefect's API; others stay."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.flows.operate.test_serve_real import write_experiment
from tests.support.zygote import run_program

pytestmark = pytest.mark.process

TABLES = ("flow_run", "flow_run_state", "task_run", "task_run_state")

ONE_SERVER = """if True:
    import io, json, sys
    from contextlib import redirect_stdout
    from pathlib import Path
    from flows.orchestration.prefect_settings import configure_prefect
    configure_prefect(Path())
    from flows.cli.main import run
    from flows.orchestration.prefect_server import prefect_server
    with prefect_server() as server:
        server.wait()
        for line in sys.stdin:
            told = io.StringIO()
            with redirect_stdout(told):
                code = run(json.loads(line))
            print(json.dumps([code, told.getvalue()]), flush=True)
"""
"""Runs the commands that it is told, beside one server: each start of one takes seconds."""


PRUNE = ("prune", "served.toml", "--json")

Run = Callable[..., str]


def surroundings() -> dict[str, str]:
    unwanted = ("PREFECT_API_URL", "PREFECT_HOME")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def clusterdp(folder: Path, *arguments: str) -> str:
    ended = run_program(arguments, folder, surroundings())
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@contextmanager
def one_server(folder: Path) -> Iterator[Run]:
    """A way to run commands beside one server, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-c", ONE_SERVER],
        cwd=folder, env=surroundings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip

        def run(*arguments: str) -> str:
            assert program.stdin is not None
            assert program.stdout is not None
            print(json.dumps(arguments), file=program.stdin, flush=True)
            code, told = json.loads(program.stdout.readline())
            assert code == 0
            return str(told)

        yield run


def n_pruned(told: str) -> int:
    return int(json.loads(told)["prefect"]["n"])


def counts(folder: Path) -> dict[str, int]:
    with closing(sqlite3.connect(folder / ".clusterdp" / "prefect.db")) as database:
        return {
            table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in TABLES
        }


def test_runs_that_ended_long_ago_go_with_all_that_is_theirs(tmp_path: Path) -> None:
    config = write_experiment(tmp_path)
    config.write_text(config.read_text() + '[retention]\nprefect = "30d"\n')
    assert n_pruned(clusterdp(tmp_path, *PRUNE)) == 0
    assert not (tmp_path / ".clusterdp").exists()  # no server was started for nothing
    with one_server(tmp_path) as run:
        for day in sorted(path.stem for path in tmp_path.glob("*.csv")):
            run("release", "served.toml", "--prefect", "--period", day)
        before = counts(tmp_path)
        assert before["flow_run"] == 2
        with closing(sqlite3.connect(tmp_path / ".clusterdp" / "prefect.db")) as database, database:
            database.execute(
                "UPDATE flow_run SET end_time = '2026-01-01 00:00:00.000000' "
                "WHERE id = (SELECT id FROM flow_run ORDER BY end_time LIMIT 1)"
            )
        assert n_pruned(run(*PRUNE, "--dry-run")) == 1
        assert counts(tmp_path) == before
    assert n_pruned(clusterdp(tmp_path, *PRUNE)) == 1  # by a server of its own
    assert counts(tmp_path) == {table: number // 2 for table, number in before.items()}
