"""`clusterdp serve`: one process that runs releases on schedule.

Where Prefect is configured for a server, it is used. Otherwise a server of our own is started, for
as long as this process runs, as only a server schedules. Whoever may speak to the server can ask
for runs; what a run does is decided here: it is the flow of this process, with a configuration that
is served, whatever the server says of code to fetch or to start.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flows.config.load import load
from flows.ledger.account import Account
from flows.orchestration.prefect_server import prefect_server
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from prefect import Flow

    from flows.operate.due import DueResult
    from flows.release import ReleaseResult

_GRACE_SECONDS = 2.0  # for a run whose parent died


def serve_releases(configs: Sequence[Path], cron: str, timezone: str) -> None:
    """Serve the release flow for every configuration until interrupted.

    ``cron`` is read in ``timezone``; each run releases the day before its scheduled time, or, where
    the configuration has a schedule, every period that is due and not published.
    """
    _check_schedule(cron, timezone)
    loaded = [load(path) for path in configs]
    for config in loaded:
        Account(config).check_key_named()
    experiments = [config.experiment for config in loaded]
    if len(set(experiments)) < len(experiments):
        raise ConfigError("CONFIG", "two configurations name the same experiment")
    with prefect_server(schedules=True) as server:
        from prefect.runner import Runner  # noqa: PLC0415 - while the server starts
        from prefect.schedules import Cron  # noqa: PLC0415 - likewise
        from prefect.settings import (  # noqa: PLC0415 - likewise
            PREFECT_CLIENT_METRICS_ENABLED,
            PREFECT_RUNNER_SERVER_ENABLE,
            temporary_settings,
        )

        class Interruptible(Runner):
            def handle_sigterm(self, *_: Any) -> None:
                signal.raise_signal(signal.SIGINT)  # ends runs and schedules in order

        server.wait()
        # Pages of the runner and its metrics would be open to everybody on this machine.
        closed: dict[Any, Any] = {
            PREFECT_RUNNER_SERVER_ENABLE: False,
            PREFECT_CLIENT_METRICS_ENABLED: False,
        }
        quiet_control_port()
        with temporary_settings(closed):
            runner = Interruptible(name="clusterdp", pause_on_shutdown=True)
            paths = [str(path.absolute()) for path in configs]
            flow = served_flow(paths)
            for path, experiment in zip(paths, experiments, strict=True):
                runner.add_flow(
                    flow,
                    name=experiment,
                    schedule=Cron(cron, timezone=timezone),
                    parameters={"config_path": path, "schedule_timezone": timezone},
                    concurrency_limit=1,
                )
            # An event loop ends in order at Ctrl-C where nobody else has a handler for it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            asyncio.run(runner.start())


def quiet_control_port() -> None:
    """Let no log repeat what anyone on this machine says to the port that a runner's children use.

    Prefect opens it always, and hears nobody there without the token of a run.
    """
    logging.getLogger("prefect.runner.control_channel").addFilter(lambda _: False)


def served_flow(configs: Sequence[str]) -> "Flow[..., ReleaseResult | DueResult]":
    """The release flow, for these configurations alone.

    It is handed to the processes that run it as an object: no entry point, storage or step of a
    deployment has a part in it.
    """
    from flows.operate.due import DueResult, nightly  # noqa: PLC0415 - see serve_releases
    from flows.orchestration.flow import as_flow  # noqa: PLC0415 - likewise
    from flows.release import ReleaseResult, release  # noqa: PLC0415 - likewise

    served = frozenset(configs)

    def serve_release(
        config_path: str,
        period: str | None = None,
        revise: bool = False,
        schedule_timezone: str | None = None,
    ) -> ReleaseResult | DueResult:
        """Release one period of an experiment that is served, or every one that is due."""
        follow_parent()
        if config_path not in served:
            raise ConfigError("config_path", "this configuration is not served here")
        if period is None and not revise and load(Path(config_path)).schedule is not None:
            return nightly.fn(config_path)
        return release.fn(config_path, period, revise, schedule_timezone)

    return as_flow(serve_release, "release")


def follow_parent() -> None:
    """Let this process, which runs a release, end soon after its parent was killed.

    It also takes SIGHUP for SIGTERM, which it gets with its parent where a terminal is closed.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
        threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def _outlive(parent: Any) -> None:
    """Wait for the parent's end; then interrupt this process, and kill it if that takes long."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def _check_schedule(cron: str, timezone: str) -> None:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            "--timezone", f"{timezone!r} is not a time zone such as Europe/Zurich"
        ) from None
    from prefect.client.schemas.schedules import CronSchedule  # noqa: PLC0415 - takes seconds
    from pydantic import ValidationError  # noqa: PLC0415 - likewise

    try:
        CronSchedule(cron=cron, timezone=timezone)
    except ValidationError:
        raise ConfigError(
            "--cron", f"{cron!r} is not a cron expression such as '15 3 * * *'"
        ) from None
