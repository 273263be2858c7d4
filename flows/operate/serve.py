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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flows.config.load import load
from flows.ledger.account import Account
from flows.orchestration.prefect_server import prefect_server
from schemas.errors import ConfigError

_GRACE_SECONDS = 2.0  # for a run whose parent died


@dataclass(frozen=True)
class Estimates:
    """Estimates on a schedule of their own, as ``EXPERIMENT.json`` in a folder."""

    cron: str
    into: Path


def serve_releases(
    configs: Sequence[Path],
    cron: str,
    timezone: str,
    flows: Callable[[], Any],
    estimates: Estimates | None = None,
) -> None:
    """Serve the flows of every configuration until interrupted.

    ``cron`` is read in ``timezone``; each run releases the day before its scheduled time, or, where
    the configuration has a schedule, every period that is due and not published. ``flows`` gives
    what is run, while the server starts: :mod:`flows.deployed`, which imports Prefect.
    """
    _check_cron("--cron", cron)
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        problem = f"{timezone!r} is not a time zone such as Europe/Zurich"
        raise ConfigError("--timezone", problem) from None
    if estimates is not None:
        _check_cron("--estimates", estimates.cron)
        if not estimates.into.is_dir():
            raise ConfigError("--into", f"{estimates.into.absolute()}: there is no such folder")
    loaded = [load(path) for path in configs]
    for config in loaded:
        Account.of(config).check_key_named()
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

        offered = flows()
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
            release = offered.served_release(paths)
            served = [
                (release, name, cron, {"config_path": path, "schedule_timezone": timezone})
                for path, name in zip(paths, experiments, strict=True)
            ]
            if estimates is not None:
                outputs = {
                    str(one.releases): str(estimates.into.absolute() / f"{one.experiment}.json")
                    for one in loaded
                }
                estimate = offered.served_estimate(outputs)
                served += [
                    (estimate, name, estimates.cron, {"path": folder})
                    for folder, name in zip(outputs, experiments, strict=True)
                ]
            for flow, name, when, parameters in served:
                runner.add_flow(
                    flow,
                    name=name,
                    schedule=Cron(when, timezone=timezone),
                    parameters=parameters,
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


def follow_parent() -> None:
    """Let this process, which runs a release, end soon after its parent was killed.

    It also takes SIGHUP for SIGTERM, which it gets with its parent where a terminal is closed.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))

        def outlive() -> None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_GRACE_SECONDS)
            os._exit(1)

        threading.Thread(target=outlive, daemon=True).start()


def _check_cron(option: str, cron: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule  # noqa: PLC0415 - takes seconds
    from pydantic import ValidationError  # noqa: PLC0415 - likewise

    try:
        CronSchedule(cron=cron)
    except ValidationError:
        problem = f"{cron!r} is not a cron expression such as '15 3 * * *'"
        raise ConfigError(option, problem) from None
