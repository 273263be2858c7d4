"""Prefect's surroundings: local, quiet, private. Call before anything imports prefect."""

import os
from contextlib import suppress
from pathlib import Path

from flows.orchestration.configured import configured_url
from flows.runtime.files import private_directory
from schemas.errors import InputError

HOME = ".clusterdp"

_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # stay on the loopback interface
    "PREFECT_LOGGING_LEVEL": "CRITICAL",  # the command line reports in its own words
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",  # a server of our own is another: prefect_server
    "PREFECT_CLI_COLORS": "false",
}


def configure_prefect(directory: Path, *, log_level: str = "CRITICAL") -> None:
    """Set Prefect's environment for a configuration in ``directory``.

    Prefect's files go to ``.clusterdp/`` there (mode 0700) unless a server is configured, whose
    settings may lie in Prefect's own home, or ``PREFECT_HOME`` is set; whatever is set already
    stays. Raises InputError where that folder
    cannot be used.
    """
    given = os.environ.get("PREFECT_HOME")
    if given:
        _check_home(Path(given).expanduser())
    elif configured_url() is None:
        home = private_directory(directory.absolute() / HOME)
        with suppress(OSError):  # not ours: then it is as its owner wants it
            home.chmod(0o700)
        _check_usable(home)
        os.environ["PREFECT_HOME"] = str(home)
    for name, value in {**_QUIET, "PREFECT_LOGGING_LEVEL": log_level}.items():
        os.environ.setdefault(name, value)


def _check_home(home: Path) -> None:
    """Make the folder that ``PREFECT_HOME`` names; Prefect itself would fail without a word."""
    try:
        private_directory(home)
        problem = None
    except InputError as error:
        problem = str(error)
    if problem is not None:
        raise InputError(f"PREFECT_HOME: {problem}")
    _check_usable(home)


def _check_usable(home: Path) -> None:
    if not os.access(home, os.W_OK | os.X_OK):
        raise InputError(f"{home}: Prefect keeps its files there, and may not write them")
