"""The Prefect server of a run: the one that Prefect is configured for, or one of our own.

A server can make its clients run code, so whoever may speak to one has the rights of the run. One
of our own (:mod:`flows.orchestration.own_server`) is for this process and its children: nobody else
has its authentication string, which is drawn at every start and goes through a pipe, and it ends
with us.
"""

import base64
import json
import os
import select
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import quote, urlsplit

from schemas.errors import ClusterdpError, ConfigError, InputError

_START_SECONDS = 900  # as long as it lives it is starting, however slow the machine
_END_SECONDS = 60
_CONNECT_SECONDS = 20
_ANSWER_SECONDS = 120

_SETTINGS = {
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "https://nobody.invalid",  # an empty list is none at all
    "PREFECT_SERVER_API_BASE_PATH": "/api",
    "PREFECT_UI_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
}


class PrefectServer:
    """A server that may still be starting; :func:`prefect_server` gives it."""

    def __init__(self, stack: ExitStack, process: "subprocess.Popen[bytes] | None") -> None:
        """Take ``process``, or none where Prefect is configured for a server."""
        self._stack = stack
        self._process = process
        self._secret = ""
        if process is not None:
            from privatizers.noise.randomness import secret_key  # noqa: PLC0415 - while it starts

            self._secret = f"clusterdp:{secret_key().hex()}"
            _say(process, self._secret)

    def wait(self) -> None:
        """Wait until it answers; Prefect then uses it, until the block of it is left.

        Raises ConfigError where the server that Prefect is configured for does not answer, and
        ClusterdpError where our own does not start.
        """
        if self._process is None:
            _check_answers()
            return
        url = f"http://127.0.0.1:{_port(self._process)}/api"
        self._stack.callback(_end, self._process)
        from prefect.settings import (  # noqa: PLC0415 - Prefect's surroundings are settled by now
            PREFECT_API_AUTH_STRING,
            PREFECT_API_KEY,
            PREFECT_API_URL,
            PREFECT_CLIENT_CSRF_SUPPORT_ENABLED,
            PREFECT_CLIENT_CUSTOM_HEADERS,
            get_current_settings,
            temporary_settings,
        )

        _go_straight_to_loopback()
        # Prefect sends its authentication string as a header to some sockets only, so the header
        # is given once more, for all of them.
        basic = "Basic " + base64.b64encode(self._secret.encode()).decode()
        headers = {**get_current_settings().client.custom_headers, "Authorization": basic}
        ours: dict[Any, Any] = {
            PREFECT_API_URL: url,
            PREFECT_API_AUTH_STRING: self._secret,
            PREFECT_CLIENT_CUSTOM_HEADERS: headers,
            PREFECT_CLIENT_CSRF_SUPPORT_ENABLED: True,
        }
        self._stack.enter_context(temporary_settings(ours, restore_defaults=[PREFECT_API_KEY]))
        self._stack.callback(_send_the_rest)


@contextmanager
def prefect_server(*, schedules: bool = False) -> Iterator[PrefectServer]:
    """Start a server of our own, unless Prefect is configured for one; it ends with the block.

    It starts while the caller imports what takes long; :meth:`PrefectServer.wait` comes before any
    use of it. With ``schedules`` it starts runs that are due. Raises InputError where its database
    cannot be used.
    """
    with ExitStack() as stack:
        if configured_url() is not None:
            yield PrefectServer(stack, None)
            return
        _check_database()
        process = _start(schedules=schedules)
        stack.callback(_stop, process)
        yield PrefectServer(stack, process)


def configured_url() -> str | None:
    """The server that Prefect is configured for, by its environment, a profile or a file."""
    from prefect.settings import get_current_settings  # noqa: PLC0415 - takes seconds

    return get_current_settings().api.url


# one of our own


def _start(*, schedules: bool) -> "subprocess.Popen[bytes]":
    unwanted = ("PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING")
    surroundings = {name: value for name, value in os.environ.items() if name not in unwanted}
    command = [sys.executable, "-P", "-m", "flows.orchestration.own_server"]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and constants
        [*command, "--schedules"] if schedules else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=surroundings | _SETTINGS,
        start_new_session=True,  # a terminal's signals are for this process, which ends it
    )


def _say(process: "subprocess.Popen[bytes]", line: str) -> None:
    mouth = cast(IO[bytes], process.stdin)
    with suppress(BrokenPipeError):  # it is gone, which its output tells
        mouth.write(line.encode() + b"\n")
        mouth.flush()


def _port(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the server's word; for as long as it lives, within reason."""
    ear = cast(IO[bytes], process.stdout)
    ready, _, _ = select.select([ear], [], [], _START_SECONDS)
    line = ear.readline() if ready else b""
    told = json.loads(line) if line else {"failed": "it ended without a word"}
    if "port" in told:
        return int(told["port"])
    problem = told["failed"] if ready else f"it took more than {_START_SECONDS // 60} minutes"
    raise ClusterdpError(
        f"the local Prefect server did not start ({problem}); its files are in "
        f"{os.environ.get('PREFECT_HOME', '~/.prefect')}"
    )


def _send_the_rest() -> None:
    """Let Prefect's threads send what tasks and logs told, while there is somebody to hear it."""
    from prefect.events.worker import EventsWorker  # noqa: PLC0415
    from prefect.logging.handlers import APILogWorker  # noqa: PLC0415

    for told in (APILogWorker, EventsWorker):
        told.drain_all(timeout=_END_SECONDS, at_exit=False)  # else it prints


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Let a server that has started finish what was reported to it."""
    _say(process, "end")
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """See to it that the server is gone."""
    process.kill()  # unless it has ended
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):
            cast(IO[bytes], pipe).close()


def _go_straight_to_loopback() -> None:
    """Keep what is said to our own server from a proxy that the environment names."""
    for name in ("no_proxy", "NO_PROXY"):
        others = [one for one in os.environ.get(name, "").split(",") if one]
        if "127.0.0.1" not in others:
            os.environ[name] = ",".join([*others, "127.0.0.1"])


# its database


def _check_database() -> None:
    """Close Prefect's SQLite database to others, and refuse one that is damaged.

    Prefect itself would try for minutes, and say nothing of use.
    """
    path = _database()
    if path is None or not path.exists():
        return
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        with suppress(OSError):  # not there, or not ours
            file.chmod(0o600)
    problem = _damage(path)
    if problem is not None:
        raise InputError(
            f"{path}: Prefect's database cannot be used ({problem}). It holds the history of runs "
            "and nothing of releases: move it away, with its -wal and -shm, and run again"
        )


def _database() -> Path | None:
    """The file of the database, where it is one."""
    from prefect.settings import get_current_settings  # noqa: PLC0415 - takes seconds
    from sqlalchemy.engine import make_url  # noqa: PLC0415

    settings = get_current_settings()
    url = settings.server.database.connection_url
    if url is None:
        return settings.home / "prefect.db"
    parsed = make_url(url.get_secret_value())
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database))


def _damage(path: Path) -> str | None:
    try:
        # Read and write, as reading alone fails where a journal is to be made.
        with sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        connection.close()
    except sqlite3.OperationalError as error:
        return None if "locked" in str(error) else str(error)
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if found == "ok" else "parts of it are damaged"


# one that Prefect is configured for


def _check_answers() -> None:
    """Ask the configured server something that only a client who may use it is told."""
    import httpx  # noqa: PLC0415 - is Prefect's
    from prefect.client.orchestration import get_client  # noqa: PLC0415
    from prefect.settings import (  # noqa: PLC0415
        PREFECT_CLIENT_MAX_RETRIES,
        temporary_settings,
    )

    patience = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
    problem: str | None = None
    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(httpx_settings={"timeout": patience}, sync_client=True) as client,
        ):
            client.read_flows(limit=1)
    except httpx.HTTPStatusError as error:
        problem = _refusal(error.response.status_code)
    except Exception as error:  # of the network, of TLS, of an address that is none
        problem = f"cannot be reached ({type(error).__name__})"
    if problem is not None:
        raise ConfigError("PREFECT_API_URL", f"{shown(configured_url() or '')} {problem}")


def _refusal(status: int) -> str:
    if status in (401, 403):
        return f"refuses us ({status}); set PREFECT_API_AUTH_STRING or PREFECT_API_KEY"
    if status < 500:
        return f"is not the address of Prefect's API ({status}); such an address ends in /api"
    return f"is out of order ({status})"


def shown(url: str) -> str:
    """An address without the user, password and query that may stand in it."""
    try:
        parts = urlsplit(url)
        place = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the address given"
    return f"{parts.scheme}://{place}{port}{parts.path}" if place else "the address given"
