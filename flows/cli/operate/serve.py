"""``clusterdp serve``."""

from flows.cli.options import ConfigFiles


def serve(configs: ConfigFiles, cron: str, timezone: str = "UTC") -> None:
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
    """
    from flows.orchestration.prefect_settings import configure_prefect

    configure_prefect(configs[0].absolute().parent, log_level="INFO")
    from flows.operate.serve import serve_releases

    serve_releases(configs, cron, timezone)
