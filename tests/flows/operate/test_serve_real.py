"""`clusterdp serve` for real: its own Prefect server, its schedule, one release."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

SECONDS = 1800  # after which it counts as stuck; on a slow machine each start takes minutes

CONFIG = """\
experiment = "served"
[source]
path = "{period}.csv"
[columns]
unit = "unit"
arm = "arm"
outcome = "outcome"
[arms]
control = "a"
treatments = ["b"]
[outcome]
values = [0, 1]
[privacy]
epsilon = 2.0
"""


def write_experiment(folder: Path) -> Path:
    """An experiment with a log for yesterday, in UTC, and for today if midnight comes meanwhile."""
    rows = "".join(f"{i},{'ab'[i % 2]},{i % 3 == 0:d}\n" for i in range(200))
    today = datetime.now(UTC).date()
    for day in (today - timedelta(days=1), today):
        (folder / f"{day.isoformat()}.csv").write_text("unit,arm,outcome\n" + rows)
    config = folder / "served.toml"
    config.write_text(CONFIG)
    return config


def wait_for(pattern: str, folder: Path, process: subprocess.Popen[bytes]) -> Path | None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for path in folder.glob(pattern):
            return path
        time.sleep(1)
    return None


def test_schedules_release_yesterday_and_estimate_from_it(tmp_path: Path) -> None:
    config = write_experiment(tmp_path)
    days = {
        (datetime.now(UTC).date() - timedelta(days=1)).isoformat(),
        datetime.now(UTC).date().isoformat(),
    }
    settings = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    command = [sys.executable, "-m", "flows.cli", "serve", str(config), "--cron", "* * * * *"]
    command += ["--estimates", "* * * * *", "--into", str(tmp_path)]
    log = tmp_path / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=settings, stdout=output, stderr=output, start_new_session=True
        )
        try:
            path = wait_for("served.*.r1.duckdb", tmp_path / "releases" / "served", process)
            document = wait_for("served.json", tmp_path, process)
        finally:
            process.send_signal(signal.SIGINT)
            stopped = process.wait(timeout=SECONDS)
            if left_over(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
    assert path is not None, log.read_text()[-4000:]
    assert document is not None, log.read_text()[-4000:]
    effects = json.loads(document.read_text())
    assert path.stem in {one["release_id"] for one in effects["periods"]}
    assert document.stat().st_mode & 0o777 == 0o644
    said = log.read_text()
    assert "Finished in state Completed()" in said
    for noise in ("Traceback", "leaked", "nanobind"):
        assert noise not in said
    assert said.endswith("clusterdp: interrupted\n")
    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute("SELECT period, n_units FROM release").fetchall()
    assert found[0][0] in days
    assert found[0][1] == 200
    assert stopped in (0, 1)  # interrupted, in its own words; not killed


def left_over(group: int) -> bool:
    """Whether a process of the group is still there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_configurations_of_one_experiment_are_refused(tmp_path: Path) -> None:
    config = write_experiment(tmp_path)
    settings = {**os.environ, "PREFECT_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "flows.cli", "serve", str(config), str(config)]
    ended = subprocess.run(
        [*command, "--cron", "15 3 * * *"], env=settings, capture_output=True, check=False
    )
    assert ended.returncode == 2
    assert b"same experiment" in ended.stderr
