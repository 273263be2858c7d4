"""Objects in a store that speaks ``s3://``: read in pieces of a known length, put on conditions.

Who asks stands in the environment, under the names that the stores' own programs use, and nowhere
else: no profile, no role and no address of a cloud's own is looked for. What is not there is said
before anything is sent. An answer is read no further than it may go, leads nowhere else (a redirect
is an error), and is never shown.

Requests are signed by AWS Signature Version 4, as its documentation of S3 says ("Authenticating
Requests: Using the Authorization Header"), and go through the proxies that the environment names.
"""

import hashlib
import hmac
import os
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from flows.runtime import clock
from flows.runtime.paths import Address
from flows.runtime.reading.regular_files import digest_of
from schemas.errors import InputError

_PIECE = 4 << 20  # bytes that are asked for at once
_MOMENT, _ANSWER = 10.0, 60.0  # seconds that are waited: for anything at all, for the whole of it
_BYTES_A_SECOND = 100_000  # that are sent at least
_TRIES, _PAUSE = 3, 0.2  # and seconds between the first two
_PLAIN = 64 << 10  # bytes of an error that are looked at
_REPLACED = 100 << 20  # bytes of an object that others have put in place of another
_TAKEN = (409, 412)  # what a put is answered where its condition does not hold
_DONE = {"HEAD": (200,), "GET": (200, 206), "PUT": (200,), "DELETE": (200, 204)}
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_NOT_HIM = re.compile(
    rb"<Code>(InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken)<"
)
_REFUSED = "the store does not accept the environment's credentials; renew or correct them"
_MEANS = {
    401: _REFUSED,
    403: "access is denied; allow the account of the environment's credentials to read it, and to "
    "list the bucket: else a store does not say what is not there",
    404: "there is no such object; correct the address, or ask who published it whether it was "
    "taken away",
}
"""What answers mean."""
_OTHERWISE = (
    "the store cannot be reached, or does not answer as one; check the network, and the endpoint "
    "and region that the environment names"
)


_UNTAGGED = (
    "the store gives no strong e-tag for it, so it cannot be replaced without undoing what others "
    "may have put there: publish to one that does"
)


class NoObjectError(InputError):
    """There is nothing at an address."""


def check_named(address: Address) -> None:
    """Raise InputError where the environment does not say who asks; asks nothing."""
    _who(address.bucket)


def size_of(address: Address) -> int:
    """How many bytes an object has, as its store says.

    Raises NoObjectError where there is none, and InputError where the store does not answer, here
    and in what follows.
    """
    told = _ask("HEAD", address, 0).headers.get("content-length", "")
    if re.fullmatch("[0-9]{1,18}", told) is None:
        raise InputError(f"{address}: {_OTHERWISE}")
    return int(told)


def read_pieces(address: Address, size: int) -> Iterator[bytes]:
    """Read an object of ``size`` bytes, a piece after the other; never more than these."""
    for start in range(0, size, _PIECE):
        end = min(start + _PIECE, size)
        answer = _ask("GET", address, end - start, {"range": f"bytes={start}-{end - 1}"})
        if answer.status != 206 or len(answer.content) < end - start:
            raise InputError(f"{address}: the store does not send the bytes that are asked for")
        yield answer.content


def read_object(address: Address, most: int) -> bytes:
    """Read an object whole; raises InputError where it has more than ``most`` bytes."""
    return _ask("GET", address, most).content


@dataclass(frozen=True)
class Tagged:
    """What an object was when it was read; its tag is None where there was none."""

    content: bytes = b""
    tag: str | None = None


def read_tagged(address: Address, most: int) -> Tagged:
    """Read an object, if there is one, that is to be replaced."""
    try:
        answer = _ask("GET", address, most)
    except NoObjectError:
        return Tagged()
    return Tagged(answer.content, answer.headers.get("etag", ""))


def put_new(address: Address, content: Path | bytes) -> bool:
    """Put an object where nothing is; whether that was so.

    An answer that is lost is asked for again, and then finds what the first try has put: it is for
    the caller to compare what is there before calling it another's.
    """
    return _put(address, content, {"if-none-match": "*"})


def swap(address: Address, content: bytes, before: Tagged) -> bool:
    """Put an object in place of what was read; whether that was still there, or this is by now.

    Raises InputError where the store gave what was read no strong e-tag: nothing would tell it from
    what somebody else has put there since.
    """
    if before.tag is not None and re.fullmatch('"?[!#-~]+"?', before.tag) is None:
        raise InputError(f"{address}: {_UNTAGGED}")
    here = {"if-none-match": "*"} if before.tag is None else {"if-match": before.tag}
    return _put(address, content, here) or read_tagged(address, _REPLACED).content == content


def remove(address: Address) -> None:
    """Take an object away; it is no error where there is none."""
    with suppress(NoObjectError):
        _ask("DELETE", address, _PLAIN)


def _put(address: Address, content: Path | bytes, only: Mapping[str, str]) -> bool:
    taken = _TAKEN if "if-none-match" in only else (*_TAKEN, 404)
    return _ask("PUT", address, _PLAIN, only, content, taken).status not in taken


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    """By names in small letters."""
    content: bytes


def _ask(
    method: str,
    address: Address,
    most: int,
    headers: Mapping[str, str] | None = None,
    content: Path | bytes = b"",
    taken: Collection[int] = (),
) -> _Answer:
    """Ask for an object; InputError where it is not answered, or with more than ``most`` bytes."""
    place, signed = _signed(method, address, headers or {}, content)
    for tried in range(_TRIES):
        time.sleep(tried * _PAUSE)
        try:
            with content.open("rb") if isinstance(content, Path) else nullcontext(content) as body:
                data = body if method == "PUT" else None
                request = urllib.request.Request(place, data, signed, method=method)  # noqa: S310 - judged
                answer = _answered(request, most)
        except (OSError, HTTPException, ValueError):  # the last: of a status or a length
            continue
        # Of a conflict between two puts neither has won yet.
        if answer.status not in (409, 429) and answer.status < 500:
            break
    else:
        raise InputError(f"{address}: {_OTHERWISE}")
    if len(answer.content) > most and answer.status < 300:
        raise InputError(f"{address}: is far too large: more than {most:,} bytes")
    if answer.status in (*_DONE[method], *taken):
        return answer
    if _NOT_HIM.search(answer.content):
        raise InputError(f"{address}: {_REFUSED}")
    of_status = NoObjectError if answer.status == 404 else InputError
    raise of_status(f"{address}: {_MEANS.get(answer.status, _OTHERWISE)}")


class _Nowhere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it is an answer as others are."""

    def redirect_request(self, *_: object) -> None:
        """Ask nothing instead."""


_Connections = list[HTTPConnection]


class _Plain(urllib.request.HTTPHandler):
    """Notes its connections, which may have to be shut."""

    def __init__(self, noted: _Connections) -> None:
        super().__init__()
        self._noted = noted

    def http_open(self, asked: urllib.request.Request) -> HTTPResponse:
        """Connect, and ask."""
        return self.do_open(partial(_noted, HTTPConnection, self._noted), asked)


class _Secure(urllib.request.HTTPSHandler):
    """Likewise."""

    def __init__(self, noted: _Connections) -> None:
        super().__init__()
        self._noted = noted

    def https_open(self, asked: urllib.request.Request) -> HTTPResponse:
        """Connect, and ask; certificates are checked."""
        made = partial(_noted, HTTPSConnection, self._noted)
        return self.do_open(made, asked, context=ssl.create_default_context())


def _noted(kind: type[HTTPConnection], noted: _Connections, *to: Any, **how: Any) -> HTTPConnection:
    noted.append(kind(*to, **how))
    return noted[-1]


def _shut(noted: _Connections) -> None:
    """End answers that take too long, whatever of them is missing."""
    for connection in noted:
        with suppress(OSError):
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)


def _answered(request: urllib.request.Request, most: int) -> _Answer:
    """Send a request; raises OSError or HTTPException where it is not answered whole, in time."""
    ends, noted = time.monotonic() + _ANSWER, _Connections()
    sent = int(request.get_header("Content-length") or 0)
    late = threading.Timer(_ANSWER + sent / _BYTES_A_SECOND, _shut, [noted])
    late.daemon = True
    late.start()
    try:
        opener = urllib.request.build_opener(_Nowhere, _Plain(noted), _Secure(noted))
        response = opener.open(request, timeout=_MOMENT)
    except urllib.error.HTTPError as error:
        response, most = error, _PLAIN
    finally:
        late.cancel()
    content = bytearray()
    with response:
        while len(content) <= most and (piece := response.read1(_PIECE)):
            content += piece
            if time.monotonic() > ends:
                raise TimeoutError
        headers = {name.lower(): value for name, value in response.headers.items()}
        if isinstance(response, HTTPResponse) and response.length and len(content) <= most:
            raise HTTPException  # it has ended before its end
    return _Answer(response.status, headers, bytes(content))


def _signed(
    method: str, address: Address, headers: Mapping[str, str], content: Path | bytes = b""
) -> tuple[str, dict[str, str]]:
    """Address and headers of a request, signed by who asks as the environment says.

    Raises InputError where it does not say that.

    The signature is HMAC(kSigning, "AWS4-HMAC-SHA256" ⏎ time ⏎ scope ⏎ SHA-256 of the canonical
    request), where kSigning = HMAC(HMAC(HMAC(HMAC("AWS4" + secret, day), region), "s3"),
    "aws4_request").
    """
    who, secret, token, endpoint, region = _who(address.bucket)
    place = urlsplit(endpoint)
    path = f"{place.path.rstrip('/')}/{address.bucket}/{quote(address.key, safe='/-_.~')}"
    moment = f"{clock.now():%Y%m%dT%H%M%SZ}"
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    held = digest_of(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
    signed = {"host": place.netloc, "x-amz-content-sha256": held, "x-amz-date": moment}
    if method == "PUT":
        length = content.stat().st_size if isinstance(content, Path) else len(content)
        signed |= {"content-length": str(length), "content-type": "application/octet-stream"}
    signed |= {"x-amz-security-token": token} if token else {}
    signed |= {name: headers[name] for name in sorted(headers)}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    asked = f"{method}\n{path}\n\n{lines}\n{names}\n{held}"
    digest = hashlib.sha256(asked.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"):
        key = hmac.digest(key, part.encode(), "sha256")
    signed["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={who}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    )
    return f"{place.scheme}://{place.netloc}{path}", signed


def _who(bucket: str) -> tuple[str, str, str, str, str]:
    """Key, secret, token, endpoint and region; InputError where the environment lacks some."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    who, secret, token = (os.environ.get(name, "") for name in names)
    endpoint, region = (
        next(filter(None, map(os.environ.get, among)), "") for among in (_ENDPOINTS, _REGIONS)
    )
    needed = {names[0]: who, names[1]: secret, _REGIONS[0]: region or endpoint}
    if missing := [name for name, value in needed.items() if not value]:
        raise InputError(
            f"s3://{bucket}: the environment does not say {', '.join(missing)}, and nothing else "
            "is asked who reads; set what is missing"
        )
    region = region or "us-east-1"
    endpoint = endpoint or f"https://s3.{region}.amazonaws.com"
    if re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w./~-]*)?", endpoint, re.ASCII) is None:
        raise InputError(f"s3://{bucket}: the endpoint that the environment names is no address")
    return who, secret, token, endpoint, region
