"""What counts as a listing of an object store, before a day without a file has no events."""

import itertools
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from flows.raw.reading.log_files import find_files_of_days
from flows.raw.reading.stores import LogFile
from schemas.errors import InputError, NoFileError
from tests.support.stores import ENDPOINTS, Store

DAY, NEXT = "2026-11-20", "2026-11-21"


def listed(store: Store, pattern: str, *days: str) -> list[str]:
    found: tuple[LogFile, ...] = find_files_of_days(
        Path(), "source.outcomes_path", f"{store.address}/{pattern}", days, may_be_absent=True
    )
    return [str(file).removeprefix(f"{store.address}/") for file in found]


def refusal(store: Store, pattern: str = "done/{period}/*.csv") -> str:
    with pytest.raises(InputError) as caught:
        listed(store, pattern, DAY)
    assert not isinstance(caught.value, NoFileError)
    assert caught.value.key == "source.outcomes_path"
    return str(caught.value)


@pytest.mark.parametrize(
    "pattern", ["done/{period}.csv", "done/{period}/*.csv", "done/{period}/**"]
)
def test_a_day_is_absent_only_among_what_the_store_lists(store: Store, pattern: str) -> None:
    store.put_bytes("elsewhere.csv", b"customer\n")
    assert "nothing is listed here" in refusal(store, pattern)
    store.put_bytes("done/anything", b"here")
    assert listed(store, pattern, DAY, NEXT) == []
    name = pattern.replace("{period}", NEXT).replace("**", "a.csv").replace("*", "a")
    store.put_bytes(name, b"customer\n")
    assert listed(store, pattern, DAY, NEXT) == [name]


def page(scheme: str, number: int, token: str = "", folder: str = "") -> tuple[str, bytes]:
    """A page of a listing: a file, or a folder, and perhaps a token for the next page."""
    if scheme == "gs":
        written = "2026-01-01T00:00:00.000Z"
        item = {"kind": "storage#object", "name": f"done/{number}.csv", "bucket": "bucket"}
        item |= {"size": "1", "updated": written, "timeCreated": written}
        document = {"kind": "storage#objects", "items": [item], "nextPageToken": token}
        return "application/json", json.dumps(document).encode()
    inner = f"<Contents><Key>done/{number}.csv</Key><Size>1</Size></Contents>"
    if folder:
        inner = f"<CommonPrefixes><Prefix>{folder}/</Prefix></CommonPrefixes>"
    if scheme == "az":
        blob = (
            f"<Blob><Name>done/{number}.csv</Name><Properties><Last-Modified>Fri, 27 Nov 2026 "
            "08:36:08 GMT</Last-Modified><Etag>0x1</Etag><Content-Length>1</Content-Length>"
            "<BlobType>BlockBlob</BlobType></Properties></Blob>"
        )
        text = (
            "<EnumerationResults ServiceEndpoint='http://x' ContainerName='bucket'><Prefix>done/"
            f"</Prefix><Blobs>{blob}</Blobs><NextMarker>{token}</NextMarker>"
            "</EnumerationResults>"
        )
        return "application/xml", text.encode()
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    text = (
        f"<ListBucketResult><KeyCount>1</KeyCount><IsTruncated>{str(bool(token)).lower()}"
        f"</IsTruncated>{more}{inner}</ListBucketResult>"
    )
    return "application/xml", text.encode()


class Impostor:
    """Answers every request as it is told, whatever is asked."""

    def __init__(self, scheme: str, kind: str) -> None:
        self.scheme, self.kind = scheme, kind
        self.numbers = itertools.count()
        self.listener = socket.create_server(("127.0.0.1", 0))
        Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                Thread(target=self._serve, args=self.listener.accept()[:1], daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with suppress(OSError), link:
            while self._asked(link):
                self._answer(link)

    def _asked(self, link: socket.socket) -> bool:
        text = b""
        while not text.endswith(b"\r\n\r\n") and (more := link.recv(1 << 16)):
            text += more
        return bool(text)

    def _answer(self, link: socket.socket) -> None:
        kind, body = "text/html", BODIES.get(self.kind, b"")
        number = next(self.numbers)
        if self.kind in ENDLESS:
            time.sleep(0.05)  # or both sides would be busy for as long as this is borne
            kind, body = page(self.scheme, number, ENDLESS[self.kind].format(number))
        if "folder" in self.kind and number == 0:
            kind, body = page(self.scheme, 0, folder=f"done/{DAY}")
        status = "302 Found\r\nLocation: http://127.0.0.1:1/" if self.kind == "moved" else "200 OK"
        length = len(body) + 1000 * (self.kind in ("cut", "trickling"))
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        while self.kind == "silent":
            time.sleep(1)
        link.sendall(head.encode() + body)
        while self.kind == "trickling":
            link.sendall(b" ")
            time.sleep(0.2)
        if self.kind == "cut":
            link.close()


BODIES = {
    "page": b"<html><body>Please log in</body></html>",
    "xml": b'<?xml version="1.0"?><Other><Key>a</Key></Other>',
    "json": b'{"a": 1}',
    "cut": b"<ListBucketResult><Contents>",
    "moved": b"moved",
}
ENDLESS = {"endless": "{0}", "the same": "same"}


@pytest.fixture
def impostor(
    store: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Impostor]:
    found = Impostor(store.scheme, request.param)
    for name in ENDPOINTS:
        monkeypatch.setenv(name, found.endpoint)
    yield found
    found.listener.close()


@pytest.mark.parametrize("impostor", ["empty", *BODIES], indirect=True)
def test_what_is_no_listing_is_no_day_without_a_file(store: Store, impostor: Impostor) -> None:
    told = refusal(store)
    assert store.address in told, impostor.kind
    assert "log in" not in told


@pytest.mark.parametrize("store", ["s3"], indirect=True)
@pytest.mark.parametrize("impostor", ["a folder, then nothing"], indirect=True)
def test_a_folder_that_is_listed_lists_something(store: Store, impostor: Impostor) -> None:
    assert "is not there any more" in refusal(store), impostor.kind


@pytest.mark.parametrize("impostor", ["silent", "trickling", *ENDLESS], indirect=True)
def test_a_listing_without_end_or_answer_is_given_up(
    store: Store, impostor: Impostor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.raw.reading.stored_logs._SECONDS", 4.0)
    assert "the store did not list it within 4 s" in refusal(store), impostor.kind
