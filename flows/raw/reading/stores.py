"""Object stores that logs may be in, ``s3://``, ``gs://`` and ``az://``, by pyarrow's file systems.

Who asks is found in the environment, as the stores' own programs find it: ``AWS_ACCESS_KEY_ID`` and
the like, a profile, or the machine's role; ``GOOGLE_APPLICATION_CREDENTIALS`` or the machine's
account; of Azure ``AZURE_STORAGE_ACCOUNT`` with ``AZURE_STORAGE_KEY`` or ``…_SAS_TOKEN``.
``AWS_ENDPOINT_URL``, ``STORAGE_EMULATOR_HOST`` and ``AZURE_STORAGE_SERVICE_ENDPOINT`` name another
server of the protocol.
Messages of the libraries are never shown: they quote what was sent.
"""

import io
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import pyarrow as pa

from flows.raw.boundary.guard import errors_as
from schemas.errors import InputError

_ADDRESS = re.compile(r"(s3|gs|az)://([^/]+)/(.+)", re.DOTALL)
_BUFFER = 1 << 20  # bytes of text that are asked for at once, at least
_CONNECT, _ANSWER = 5.0, 30.0  # seconds that are waited
_ATTEMPTS, _RETRIED = 3, 10.0  # tries of S3's; seconds that Google's tries again
_FAILURES = (OSError, pa.ArrowException)  # Google's answers are not always errors of the system's
_CHANGED = "changed since the run began to read; run it again"


@dataclass(frozen=True, order=True)
class StoredFile:
    """A file in an object store, as it was when the log was listed."""

    address: str
    """Such as ``s3://bucket/logs/2026-11-20/part-0.parquet``."""
    n_bytes: int
    changed_at: int
    """When it was written, in seconds since 1970; 0 where the store does not say."""

    def __str__(self) -> str:
        """Return the address, as messages name it."""
        return self.address

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.name).suffix


LogFile = Path | StoredFile
"""A file of a log, wherever it is."""


def split(address: str) -> tuple[str, str, str] | None:
    """The scheme, bucket and key of an address; None where it is not one."""
    match = _ADDRESS.fullmatch(address)
    return None if match is None else (match[1], match[2], match[3])


SHALLOW = frozenset({"s3", "az"})
"""Schemes of stores that list folders without what is below them."""


@cache
def entries(
    scheme: str, bucket: str, folder: str, *, deep: bool, known: bool = False
) -> Mapping[str, StoredFile | None]:
    """What is in a folder's key ("" for the bucket), by keys; if ``deep``, everything below it.

    Folders are among them as None, if the store lists any: it has them only as the beginning of
    files' keys. Raises InputError where it cannot be asked, or
    lists nothing in a folder that is ``known`` from its own listing.
    """
    from pyarrow import fs  # noqa: PLC0415 - takes a while, and most logs are on this machine

    def failed(error: BaseException) -> InputError:
        no_bucket = _of_store(error) == "NOT_FOUND"
        words = _NO_BUCKET if no_bucket else trouble(error) or "cannot be listed"
        return InputError(f"{scheme}://{bucket}: {words}")

    place = f"{bucket}/{folder}".rstrip("/")
    with errors_as(failed, *_FAILURES):
        selector = fs.FileSelector(place, allow_not_found=False, recursive=deep)
        try:
            found = _file_system(scheme, bucket).get_file_info(selector)
        except _FAILURES as error:
            if known or _of_store(error) or _NOTHING not in str(error):
                raise
            if scheme == "az" and not _file_system(scheme, bucket).get_file_info(bucket).type:
                raise InputError(f"{scheme}://{bucket}: {_NO_BUCKET}") from None
            return {}  # below this key
    listed: dict[str, StoredFile | None] = {}
    for info in found:
        key = info.path.removeprefix(f"{bucket}/")
        if info.is_file:
            seconds = (info.mtime_ns or 0) // 10**9
            listed[key] = StoredFile(f"{scheme}://{bucket}/{key}", info.size, seconds)
        else:
            listed[key.rstrip("/")] = None
    return listed


class OpenFile:
    """A file that is open for reading; it has to be closed.

    Raises InputError where the file is not there any more, or is another than was listed, and for
    every failure of the store's: never an error of the library's.
    """

    def __init__(self, file: StoredFile) -> None:
        """Open the file."""
        self.file = file
        scheme, bucket, key = split(file.address) or ("", "", "")
        self._place = f"{bucket}/{key}"
        with _in_plain_words(file, "cannot be opened"):
            self._system = _file_system(scheme, bucket)
            self.content: Any = self._system.open_input_file(self._place)
            if self.content.size() != file.n_bytes:
                raise InputError(f"{file}: {_CHANGED}")

    def __enter__(self) -> "OpenFile":
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the file; where it was read or could not be, look whether it is the same still."""
        self.close()
        if kind is None or issubclass(kind, (OSError, pa.ArrowException)):
            self.check_unchanged()

    def close(self) -> None:
        """Close the file."""
        self.content.close()

    def check_unchanged(self) -> None:
        """Raise InputError where another file has the address by now."""
        with _in_plain_words(self.file, "cannot be looked at"):
            (info,) = self._system.get_file_info([self._place])
            seconds = (info.mtime_ns or 0) // 10**9
            if info.size is None:
                raise FileNotFoundError
            if (info.size, seconds) != (self.file.n_bytes, self.file.changed_at):
                raise InputError(f"{self.file}: {_CHANGED}")


class _Bytes(io.RawIOBase):
    """The bytes of a file in a store, whose failures are in plain words."""

    def __init__(self, opened: OpenFile) -> None:  # not made, so not closed, where none is open
        super().__init__()
        self._open = opened

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        def failed(error: BaseException) -> InputError:
            self._open.check_unchanged()
            return InputError(f"{self._open.file}: {trouble(error) or 'cannot be read'}")

        with errors_as(failed, OSError):
            n_bytes = int(self._open.content.readinto(buffer))
        if n_bytes == 0:  # all of it was read
            self._open.check_unchanged()
        return n_bytes

    def close(self) -> None:
        if not self.closed:
            self._open.close()
        super().close()


def open_stored(file: StoredFile) -> IO[bytes]:
    """Open a file for its bytes, as they are; see :class:`OpenFile`."""
    return cast("IO[bytes]", io.BufferedReader(_Bytes(OpenFile(file)), _BUFFER))


_NOTHING = "No such file or directory"  # what pyarrow says of a key with nothing below it
_NO_BUCKET = "there is no such bucket; correct its name"
_TROUBLES = (
    (r"NO_SUCH_BUCKET|RESOURCE_NOT_FOUND", _NO_BUCKET),
    (
        r"ACCESS_DENIED|AccessDenied|AuthorizationPermissionMismatch|Azure Error: \[\] 403|"
        r"PERMISSION_DENIED|HTTP response code 403|status code: 403",
        "access is denied; allow the account of the environment's credentials to list and read it",
    ),
    (
        r"INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN|UNRECOGNIZED_CLIENT|"
        r"INVALID_SIGNATURE|EXPIRED_TOKEN|ExpiredToken|InvalidToken|UNAUTHENTICATED|"
        r"MISSING_AUTHENTICATION|AuthenticationFailed|AuthorizationFailure|status code: 401|"
        r"HTTP response code 401",
        "the store does not accept the environment's credentials; renew or correct them",
    ),
    (
        r"NETWORK_CONNECTION|REQUEST_TIMEOUT|SERVICE_UNAVAILABLE|UNAVAILABLE|DEADLINE_EXCEEDED|"
        r"[Cc]ould not (?:resolve|connect)|curlCode",
        "the store cannot be reached; check the network, and the endpoint if the environment "
        "names one",
    ),
    (r"(?i)could not find default credentials|credentials", "there are no credentials for it"),
)
_OF_STORES = re.compile(
    r"AWS Error ([A-Z_]+)|google::cloud::Status\(([A-Z_]+)|Azure Error: \[(\w*)\]"
)


def _in_plain_words(place: object, otherwise: str) -> AbstractContextManager[None]:
    """Say of a store's error what it means, or ``otherwise``, behind the ``place``."""
    return errors_as(
        lambda error: InputError(f"{place}: {trouble(error) or otherwise}"), *_FAILURES
    )


def trouble(error: BaseException) -> str | None:
    """What a store's error means, in plain words; None where it is not known to be a store's."""
    if isinstance(error, FileNotFoundError):
        return "is not there any more; run it again"
    named, text = _of_store(error), str(error)
    if named is None:
        return None
    for pattern, words in _TROUBLES:
        if re.search(pattern, text):
            return words
    return f"the store answered with an error ({named})"


def _of_store(error: BaseException) -> str | None:
    """The code of an error that a store answered with; None for any other error."""
    code = _OF_STORES.search(str(error))
    return None if code is None else code[1] or code[2] or code[3] or "without a code"


def _file_system(scheme: str, bucket: str) -> Any:
    if scheme == "gs":
        return _gs(os.environ.get("STORAGE_EMULATOR_HOST") or None)
    if scheme == "az":
        names = ("ACCOUNT", "KEY", "SAS_TOKEN", "SERVICE_ENDPOINT")
        return _az(*(os.environ.get(f"AZURE_STORAGE_{name}") or None for name in names))
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return _s3(bucket, endpoint or None)


@cache
def _s3(bucket: str, endpoint: str | None) -> Any:
    """The store of a bucket, found at its region; raises OSError where that cannot be asked."""
    from pyarrow import fs  # noqa: PLC0415 - as above

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and endpoint is None:
        region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        region=region,
        endpoint_override=endpoint,
        connect_timeout=_CONNECT,
        request_timeout=_ANSWER,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


@cache
def _gs(endpoint: str | None) -> Any:
    from pyarrow import fs  # noqa: PLC0415 - as above

    limit = timedelta(seconds=_RETRIED)
    if endpoint is None:
        return fs.GcsFileSystem(retry_time_limit=limit)
    scheme, _, host = endpoint.rpartition("://")
    return fs.GcsFileSystem(
        anonymous=True,
        scheme=scheme or "http",
        endpoint_override=host.rstrip("/"),
        retry_time_limit=limit,
    )


@cache
def _az(account: str | None, key: str | None, token: str | None, endpoint: str | None) -> Any:
    """The store of an account; without a key or token the library asks whoever may have one."""
    from pyarrow import fs  # noqa: PLC0415 - as above

    if account is None or (key is None) == (token is None):
        raise InputError(
            "az:// needs AZURE_STORAGE_ACCOUNT, and either AZURE_STORAGE_KEY or "
            "AZURE_STORAGE_SAS_TOKEN, in the environment"
        )
    places = {}
    if endpoint is not None:
        scheme, _, host = endpoint.rpartition("://")
        for service in ("blob", "dfs"):
            places[f"{service}_storage_authority"] = host.rstrip("/")
            places[f"{service}_storage_scheme"] = scheme or "https"
    return fs.AzureFileSystem(account, account_key=key, sas_token=token, **places)
