"""``clusterdp serve``."""

from importlib import import_module
from pathlib import Path

from flows.cli.options import ConfigFiles
from schemas.errors import ConfigError


def serve(
    configs: ConfigFiles,
    cron: str,
    timezone: str = "UTC",
    estimates: str | None = None,
    into: Path | None = None,
) -> None:
    """Make releases on schedule, until you stop it with Ctrl-C.

    Each release is of the day before; where CONFIG has a [schedule], of every day that is due and
    not published, so that a night missed is made up. Reads and writes what `clusterdp release`
    does. Uses the Prefect server that PREFECT_API_URL names, or starts one of its own on this
    machine.

    Options:
        cron (--cron SCHEDULE): When to run, as a cron expression: '15 3 * * *' is every day at
            3:15.
        timezone (ZONE): Time zone of the schedule, and of what counts as yesterday, such as
            Europe/Zurich.
        estimates (SCHEDULE): When to estimate effects from all that is published, by released
            files alone.
        into (FOLDER): With --estimates: where each experiment's effects go, as EXPERIMENT.json.
    """
    if (estimates is None) != (into is None):
        raise ConfigError("--estimates", "goes with --into: when to estimate, and where to write")
    from flows.orchestration.prefect_settings import configure_prefect

    configure_prefect(configs[0].absolute().parent, log_level="INFO")
    from flows.operate.serve import Estimates, serve_releases

    asked = None if estimates is None or into is None else Estimates(estimates, into)
    serve_releases(configs, cron, timezone, lambda: import_module("flows.deployed"), asked)
