"""A store of the test's own that speaks as much of S3's protocol as releases take; it asks for no
key. It answers by the rules, or as a test has it answer.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

Answer = Callable[["Request", bytes], None]
"""Answers a request for an object with this content."""


@dataclass
class OddStore:
    """What is in it, by keys, and how it answers."""

    endpoint: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    answer: Answer | None = None
    """For whatever is there; None: by the rules."""
    asked: list[str] = field(default_factory=list)
    """The requests so far."""
    loses: Callable[[str], str] | None = None
    """Whether a put of a key is lost: "before" it is done, or "after", its answer; else ""."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def tag_of(content: bytes) -> str:
    """What names this content of an object."""
    return f'"{hashlib.sha256(content).hexdigest()}"'


class Request(BaseHTTPRequestHandler):
    """A request, and what may be answered."""

    protocol_version = "HTTP/1.1"
    store: OddStore

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.store.asked.append(f"{self.command} {self.path}")
        content = self.store.objects.get(self.key)
        if content is None:
            self.send(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif self.store.answer is not None:
            self.store.answer(self, content)
        else:
            self.send_object(content)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.store.asked.append(f"PUT {self.path}")
        loss = self.store.loses(self.key) if self.store.loses else ""
        with self.store.lock:
            there = self.store.objects.get(self.key)
            wanted = self.headers["If-Match"]
            is_taken = self.headers["If-None-Match"] == "*" and there is not None
            is_gone = wanted is not None and (there is None or tag_of(there) != wanted)
            if not is_taken and not is_gone and loss != "before":
                self.store.objects[self.key] = content
        if loss:
            self.close_connection = True
        elif is_taken or is_gone:
            self.send(404 if there is None else 412, b"<Error/>")
        else:
            self.send(200, ETag=tag_of(content))

    def do_DELETE(self) -> None:
        self.store.asked.append(f"DELETE {self.path}")
        self.store.objects.pop(self.key, None)
        self.send(204)

    @property
    def key(self) -> str:
        """What is asked for, behind the bucket."""
        return unquote(urlsplit(self.path).path).partition("/bucket/")[2]

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and the last byte that are asked for; None for all."""
        asked = self.headers["Range"]
        if asked is None:
            return None
        first, last = asked.removeprefix("bytes=").split("-")
        return int(first), int(last)

    def send_object(self, content: bytes, **headers: str) -> None:
        """Answer by the rules; ``headers`` replace those, an empty one is left out."""
        if self.span is None:
            self.send(200, content, **headers)
            return
        first, last = self.span
        told = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        self.send(206, content[first : last + 1], **{**told, **headers})

    def send(self, status: int, content: bytes = b"", **headers: str) -> None:
        """Answer with this content."""
        told = {
            "Content-Length": str(len(content)),
            "ETag": tag_of(content),
            "Last-Modified": "Fri, 20 Nov 2026 03:15:00 GMT",
            **headers,
        }
        self.send_response(status)
        for name, value in told.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def odd_store() -> Iterator[OddStore]:
    """Run one in threads of this process."""
    store = OddStore()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Request,), {"store": store}))
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # clients leave early
    store.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
