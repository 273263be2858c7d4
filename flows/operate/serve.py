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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flows.config.load import load
from flows.ledger.account import Account
from flows.orchestration.prefect_server import prefect_server
from schemas.errors import ConfigError

_GRACE_SECONDS = 2.0  # for a run whose parent died


class Flows(Protocol):
    """The flows that are served; :mod:`flows.deployed`, which imports Prefect."""

    def served_release(self, configs: Sequence[str], /) -> Any:
        """The release flow, for these configurations alone."""

    def served_estimate(self, outputs: Mapping[str, str], /) -> Any:
        """The flow of estimates, from these folders alone, each with its document's file."""


@dataclass(frozen=True)
class Estimates:
    """Estimates on a schedule of their own, as ``EXPERIMENT.json`` in a folder."""

    cron: str
    into: Path


def serve_releases(
    configs: Sequence[Path],
    cron: str,
    timezone: str,
    flows: Callable[[], Flows],
    estimates: Estimates | None = None,
) -> None:
    """Serve the flows of every configuration until interrupted.

    ``cron`` is read in ``timezone``; each run releases the day before its scheduled time, or, where
    the configuration has a schedule, every period that is due and not published. ``flows`` gives
    what is run, while the server starts.
    """
    _check_cron("--cron", cron)
    _check_timezone(timezone)
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
            for path, experiment in zip(paths, experiments, strict=True):
                runner.add_flow(
                    release,
                    name=experiment,
                    schedule=Cron(cron, timezone=timezone),
                    parameters={"config_path": path, "schedule_timezone": timezone},
                    concurrency_limit=1,
                )
            if estimates is not None:
                outputs = {
                    str(one.releases): str(estimates.into.absolute() / f"{one.experiment}.json")
                    for one in loaded
                }
                estimate = offered.served_estimate(outputs)
                for folder, experiment in zip(outputs, experiments, strict=True):
                    runner.add_flow(
                        estimate,
                        name=experiment,
                        schedule=Cron(estimates.cron, timezone=timezone),
                        parameters={"path": folder},
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
        threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def _outlive(parent: Any) -> None:
    """Wait for the parent's end; then interrupt this process, and kill it if that takes long."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def _check_timezone(timezone: str) -> None:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            "--timezone", f"{timezone!r} is not a time zone such as Europe/Zurich"
        ) from None


def _check_cron(option: str, cron: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule  # noqa: PLC0415 - takes seconds
    from pydantic import ValidationError  # noqa: PLC0415 - likewise

    try:
        CronSchedule(cron=cron)
    except ValidationError:
        raise ConfigError(
            option, f"{cron!r} is not a cron expression such as '15 3 * * *'"
        ) from None
