"""A web server and a mail server of this process that keep what they get."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword


@dataclass
class Web:
    """A web server: what was posted to it, and how it answers."""

    port: int = 0
    got: list[dict[str, Any]] = field(default_factory=list)
    code: int = 200
    delay: float = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/very-secret"


@contextmanager
def web_server() -> Iterator[Web]:
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(web.delay)
            web.got.append(json.loads(body))
            self.send_response(web.code, "the answer is very-secret, too")
            if web.code == 302:
                self.send_header("Location", f"{web.url}/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Whoever asked did not wait."""

    server = Server(("127.0.0.1", 0), Handler)
    web.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Post:
    """A mail server: what was mailed."""

    port: int = 0
    got: list[Message] = field(default_factory=list)
    to: list[list[str]] = field(default_factory=list)
    refuses: bool = False
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def handle_DATA(self, *given: Any) -> str:  # noqa: N802 - aiosmtpd's name
        envelope: Envelope = given[-1]
        if self.refuses:
            return "554 very-secret"
        content = envelope.content
        assert isinstance(content, bytes)
        self.got.append(message_from_bytes(content))
        self.to.append([str(one) for one in envelope.rcpt_tos])
        return "250 OK"


@contextmanager
def mail_server(**options: Any) -> Iterator[Post]:
    post = Post()

    def judge(
        server: object, session: object, envelope: object, mechanism: str, given: Any
    ) -> AuthResult:
        assert isinstance(given, LoginPassword)
        post.logins.append((given.login, given.password))
        return AuthResult(success=given.password == b"open sesame", handled=False)

    controller = Controller(
        post, hostname="127.0.0.1", port=_free_port(), authenticator=judge, **options
    )
    post.port = controller.port
    controller.start()
    try:
        yield post
    finally:
        controller.stop()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
