"""A store that speaks as much of Azure's protocol of blobs as reading takes; it asks for no key."""

import sys
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BLOBS: dict[str, tuple[bytes, str]] = {}
"""Content and time by key, of the one container ``bucket``."""


_OF_CONTAINERS = {
    "x-ms-has-immutability-policy": "false",
    "x-ms-has-legal-hold": "false",
    "x-ms-default-encryption-scope": "$account-encryption-key",
    "x-ms-deny-encryption-scope-override": "false",
    "x-ms-lease-state": "available",
    "x-ms-lease-status": "unlocked",
    "ETag": '"0x1"',
}


class Blobs(BaseHTTPRequestHandler):
    """Answers of the store."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        BLOBS[self._key] = (content, formatdate(usegmt=True))
        self._answer(201)

    def do_DELETE(self) -> None:
        key = self._key
        for one in list(BLOBS):
            if not key or one == key:
                del BLOBS[one]
        self._answer(202)

    def do_HEAD(self) -> None:
        self._blob(200)

    def do_GET(self) -> None:
        _, container, *_ = self._parts
        if container != "bucket":
            problem = b"<?xml version='1.0'?><Error><Code>ContainerNotFound</Code></Error>"
            self._answer(404, problem, {"x-ms-error-code": "ContainerNotFound"})
        elif self._key:
            self._blob(206)
        elif "comp=list" not in self.path:
            self._answer(200, b"", _OF_CONTAINERS | {"Last-Modified": formatdate(usegmt=True)})
        else:
            self._answer(200, self._listing().encode(), {"Content-Type": "application/xml"})

    def _blob(self, status: int) -> None:
        if self._key not in BLOBS:
            self._answer(404, b"", {"x-ms-error-code": "BlobNotFound"})
            return
        whole, changed = BLOBS[self._key]
        asked = self.headers["x-ms-range"] or f"bytes=0-{len(whole) - 1}"
        begin, end = (int(place) for place in asked.removeprefix("bytes=").split("-"))
        self._answer(
            status,
            whole[begin : end + 1],
            {
                "Last-Modified": changed,
                "x-ms-creation-time": changed,
                "x-ms-server-encrypted": "true",
                "x-ms-lease-state": "available",
                "x-ms-lease-status": "unlocked",
                "Content-Type": "application/octet-stream",
                "ETag": '"0x1"',
                "x-ms-blob-type": "BlockBlob",
                "Content-Range": f"bytes {begin}-{end}/{len(whole)}",
            },
        )

    def _listing(self) -> str:
        query = parse_qs(urlsplit(self.path).query)
        prefix = query.get("prefix", [""])[0]
        found: dict[str, str] = {}
        for key, (content, changed) in sorted(BLOBS.items()):
            if not key.startswith(prefix):
                continue
            name, slash, _ = key.removeprefix(prefix).partition("/")
            if slash:
                found[name] = f"<BlobPrefix><Name>{escape(prefix + name)}/</Name></BlobPrefix>"
                continue
            found[f"{name}/"] = (
                f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{changed}"
                f"</Last-Modified><Etag>0x1</Etag><Content-Length>{len(content)}</Content-Length>"
                "<BlobType>BlockBlob</BlobType></Properties></Blob>"
            )
        return (
            "<?xml version='1.0' encoding='UTF-8'?><EnumerationResults ServiceEndpoint='http://x' "
            f"ContainerName='bucket'><Prefix>{escape(prefix)}</Prefix><Delimiter>/</Delimiter>"
            f"<Blobs>{''.join(found.values())}</Blobs><NextMarker/></EnumerationResults>"
        )

    @property
    def _parts(self) -> list[str]:
        """The account, the container and what is behind them."""
        return [unquote(part) for part in urlsplit(self.path).path.split("/", 3)[1:]]

    @property
    def _key(self) -> str:
        return "".join(self._parts[2:])

    def _answer(
        self, status: int, content: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    """Say the port, and serve until standard input ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Blobs)
    Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
