"""Prefect's surroundings: local, quiet, private. Call before anything imports prefect."""

import os
from pathlib import Path

from flows.files import private_directory

HOME = ".clusterdp"

_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # stay on the loopback interface
    "PREFECT_LOGGING_LEVEL": "CRITICAL",  # the command line reports in its own words
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",  # 20 is short on a busy machine
    "PREFECT_CLI_COLORS": "false",
}


def settle(directory: Path, *, log_level: str = "CRITICAL") -> None:
    """Set Prefect's environment for a configuration in ``directory``.

    Prefect's files go to ``.clusterdp/`` there (mode 0700) unless ``PREFECT_API_URL`` or
    ``PREFECT_HOME`` is set; whatever is set already stays.
    """
    if not os.environ.get("PREFECT_API_URL") and not os.environ.get("PREFECT_HOME"):
        os.environ["PREFECT_HOME"] = str(private_directory(directory.absolute() / HOME))
    for name, value in {**_QUIET, "PREFECT_LOGGING_LEVEL": log_level}.items():
        os.environ.setdefault(name, value)
