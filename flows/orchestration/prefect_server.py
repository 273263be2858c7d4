"""The Prefect server of a run: the one that Prefect is configured for, or one of our own.

A server can make its clients run code, so whoever may speak to one has the rights of the run. One
of our own (:mod:`flows.orchestration.own_server`) is for this process and its children: nobody else
has its authentication string, which is drawn at every start and goes through a pipe, and it ends
with us.
"""

import base64
import json
import logging
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

from flows.orchestration.configured import configured_url
from flows.orchestration.prefect_settings import configure_prefect
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


@dataclass(frozen=True)
class PrefectServer:
    """A server that may still be starting; :func:`prefect_server` gives it."""

    _stack: ExitStack
    _once: bool
    """Whether it is for a single run."""
    _process: "subprocess.Popen[bytes] | None" = None
    """None where Prefect is configured for a server."""
    _secret: str = field(default="", repr=False)

    def wait(self) -> None:
        """Wait until it answers; Prefect then uses it, until the block of it is left.

        Raises ConfigError where the server that Prefect is configured for does not answer,
        InputError where the database of our own cannot be used, and ClusterdpError where our own
        does not start.
        """
        if self._once:
            self._stack.enter_context(_without_heartbeats())
        if self._process is None:
            _check_answers()
            return
        import prefect.flow_engine
        import prefect.task_engine  # noqa: F401 - while the server starts
        from prefect.settings import (
            PREFECT_API_AUTH_STRING,
            PREFECT_API_KEY,
            PREFECT_API_URL,
            PREFECT_CLIENT_CSRF_SUPPORT_ENABLED,
            PREFECT_CLIENT_CUSTOM_HEADERS,
            get_current_settings,
            temporary_settings,
        )

        url = f"http://127.0.0.1:{_port(self._process)}/api"
        self._stack.callback(_end, self._process)
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
    use of it. With ``schedules`` it starts runs that are due; without, it is for a single run.
    """
    with ExitStack() as stack:
        if _url() is not None:
            yield PrefectServer(stack, not schedules)
            return
        from privatizers.noise.randomness import secret_key

        process, secret = _start(schedules=schedules), f"clusterdp:{secret_key().hex()}"
        stack.callback(_stop, process)
        _say(process, secret)
        yield PrefectServer(stack, not schedules, process, secret)


@contextmanager
def server_for_one_run(config: Path, *, wanted: bool) -> Iterator[PrefectServer | None]:
    """The server for a run of the configuration ``config``; None where Prefect has no part in it.

    It has one where a server is ``wanted``, or configured; else steps are plain functions, and
    nothing of Prefect's is imported, started or made.
    """
    if not wanted and configured_url() is None:
        yield None
        return
    configure_prefect(config.absolute().parent)
    with prefect_server() as server:
        yield server


def _url() -> str | None:
    """The configured server; where Prefect is imported, the one that it uses by now."""
    settings = sys.modules.get("prefect.settings")
    return configured_url() if settings is None else settings.get_current_settings().api.url


@contextmanager
def _without_heartbeats() -> Iterator[None]:
    """Send none: they are for runs that nobody sees, and a run's end waits for the next of them.

    As it does not, events may be unsent at its end; Prefect sends them then, and warns of it.
    """
    from prefect.settings import (
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    for name in ("APILogWorker", "EventsWorker"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


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
    if "refused" in told:
        raise InputError(told["refused"])
    problem = told["failed"] if ready else f"it took more than {_START_SECONDS // 60} minutes"
    raise ClusterdpError(
        f"the local Prefect server did not start ({problem}); its files are in "
        f"{os.environ.get('PREFECT_HOME', '~/.prefect')}"
    )


def _send_the_rest() -> None:
    """Let Prefect's threads send what tasks and logs told, while there is somebody to hear it."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

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


# one that Prefect is configured for


def _check_answers() -> None:
    """Ask the configured server something that only a client who may use it is told."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.settings import (
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
        raise ConfigError("PREFECT_API_URL", f"{shown(_url() or '')} {problem}")


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
