"""The program of a Prefect server of our own, which obeys and outlives nobody but its parent.

It listens on the loopback interface, on a port that the system chooses, and answers whoever sends
the authentication string, on every path and socket; anybody else on the machine is refused. Its
parent (:mod:`flows.orchestration.prefect_server`) writes that string as the first line of standard
input, and reads on standard output one line of JSON: ``{"port": …}``, or why it did not start:
``{"refused": …}`` where its database cannot be used, else ``{"failed": …}``. A second line ends the
server after it has done what it has begun; the end of the input, which comes when the parent dies
in whatever way, ends it at once.
"""

import base64
import fcntl
import hmac
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.orchestration.server_database import begin_database, check_database
from schemas.errors import InputError

_END_SECONDS = 10  # for requests that are under way

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Guard:
    """An ASGI application around another, which lets in who has the authentication string.

    Prefect's own check leaves out its health paths, its pages and the beginnings of sockets.
    """

    def __init__(self, inside: Application, authentication: str) -> None:
        """Guard ``inside``."""
        self._inside = inside
        self._expected = b"Basic " + base64.b64encode(authentication.encode())
        self.failure: str | None = None
        """Why the application inside did not start."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass on what may come in."""
        if scope["type"] == "lifespan":
            await self._inside(scope, receive, self._listening(send))
        elif self._may_enter(scope):
            await self._inside(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Basic")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"detail":"Unauthorized"}'})

    def _may_enter(self, scope: Message) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)

    def _listening(self, send: Send) -> Send:
        async def heard(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":
                lines = str(message.get("message", "")).strip().splitlines()
                self.failure = lines[-1] if lines else ""
            await send(message)

        return heard


def main() -> None:
    """Serve until the parent has enough, or is gone."""
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent is told, and decides
    told = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    authentication, enough = sys.stdin.readline().strip(), threading.Event()
    threading.Thread(target=_obey, args=(enough,), daemon=True).start()
    try:
        problem = _serve(authentication, enough, told)
        kind = "failed"
    except InputError as error:
        problem, kind = str(error), "refused"
    if problem is not None:
        told.write(json.dumps({kind: problem}) + "\n")
        told.flush()
    os._exit(problem is not None)  # whatever threads are left have nothing to do


def _obey(enough: threading.Event) -> None:
    """Hand on that the parent has enough; end with it."""
    for _ in sys.stdin:
        enough.set()
    os._exit(1)


def _serve(authentication: str, enough: threading.Event, told: Any) -> str | None:
    """Run Prefect's server; returns why it did not start, if so.

    Raises InputError where its database cannot be used.
    """
    check_database()
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import (
        PREFECT_SERVER_API_AUTH_STRING,
        get_current_settings,
        temporary_settings,
    )

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # they are for the parent

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            os.close(lock)
            if self.started and sockets:
                told.write(json.dumps({"port": sockets[0].getsockname()[1]}) + "\n")
                told.flush()

        async def on_tick(self, counter: int) -> bool:
            return await super().on_tick(counter) or enough.is_set()

    lock = _take_turns(get_current_settings().home / "server.lock")
    begin_database()
    with temporary_settings({PREFECT_SERVER_API_AUTH_STRING: authentication}):
        inside: Any = create_app(ephemeral="--schedules" not in sys.argv, final=True)
        guard = Guard(inside, authentication)
        server = Server(
            uvicorn.Config(
                guard,
                lifespan="on",
                log_level="critical",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_END_SECONDS,
            )
        )
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            server.run(sockets=[listening])
    return None if server.started else guard.failure or "it did not say why"


def _take_turns(path: Path) -> int:
    """Wait for other servers with the same files to have started: they make the same database.

    Returns the open lock; it is given back by closing it, or with the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


if __name__ == "__main__":
    main()
