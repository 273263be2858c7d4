"""`clusterdp serve`: one process that runs releases on schedule.

Where ``PREFECT_API_URL`` names a Prefect server, it is used. Otherwise a server of our own is
started on the loopback interface, for as long as this process runs, as only a server schedules.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from prefect.client.schemas.schedules import CronSchedule
from prefect.settings import PREFECT_API_URL, temporary_settings
from pydantic import ValidationError

from flows.config import load
from schemas.errors import ClusterdpError, ConfigError

_START_SECONDS = 120


def serve_releases(configs: Sequence[Path], cron: str, timezone: str) -> None:
    """Serve the release flow for every configuration until interrupted.

    ``cron`` is read in ``timezone``; each run releases the day before its scheduled time.
    """
    _check_schedule(cron, timezone)
    experiments = [load(path).experiment for path in configs]
    if len(set(experiments)) < len(experiments):
        raise ConfigError("CONFIG", "two configurations name the same experiment")
    with _server():
        from prefect import serve  # noqa: PLC0415 - after the server's address is known
        from prefect.schedules import Cron  # noqa: PLC0415
        from prefect.types.entrypoint import EntrypointType  # noqa: PLC0415

        from flows.release import release  # noqa: PLC0415

        flow = cast(Any, release)  # its methods are typed as sync or async; here they are sync
        deployments = [
            flow.to_deployment(
                name=experiment,
                schedule=Cron(cron, timezone=timezone),
                parameters={
                    "config_path": str(path.absolute()),
                    "schedule_timezone": timezone,
                },
                entrypoint_type=EntrypointType.MODULE_PATH,
                concurrency_limit=1,
            )
            for path, experiment in zip(configs, experiments, strict=True)
        ]
        serve(*deployments, print_starting_message=False)


def _check_schedule(cron: str, timezone: str) -> None:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            "--timezone", f"{timezone!r} is not a time zone such as Europe/Zurich"
        ) from None
    try:
        CronSchedule(cron=cron, timezone=timezone)
    except ValidationError:
        raise ConfigError(
            "--cron", f"{cron!r} is not a cron expression such as '15 3 * * *'"
        ) from None


@contextmanager
def _server() -> Iterator[None]:
    """A Prefect server to schedule with: the configured one, or one of our own on loopback."""
    if os.environ.get("PREFECT_API_URL"):
        yield
        return
    port = _free_port()
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1"]
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and constants
        [*command, "--port", str(port), "--no-ui"], stdout=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}/api"
        _wait_until_healthy(process, url)
        with temporary_settings({PREFECT_API_URL: url}):  # runs inherit it, too
            yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):  # noqa: S310 - loopback
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise ClusterdpError(
        "the local Prefect server did not start; set PREFECT_API_URL to use another"
    )
