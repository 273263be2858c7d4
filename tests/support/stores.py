"""Object stores of this machine: servers of the stores' own protocols, each in its own process.

In this process they could not answer: pyarrow holds Python's lock while it waits for some answers.
"""

import base64
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.conftest import PATIENCE, Content, write_content

_S3 = """
import sys, time
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
_GS = """
import sys
from gcp_storage_emulator.server import create_server
server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
server.start()
print(server._api._httpd.server_address[1], flush=True)
sys.stdin.read()
"""
_AZ = "from tests.support.az_server import main; main()"


@dataclass(frozen=True)
class Store:
    """A store with one bucket, ``bucket``."""

    scheme: str
    endpoint: str
    folder: Path

    @property
    def address(self) -> str:
        """The address of the bucket."""
        return f"{self.scheme}://bucket"

    def put(self, key: str, content: Content) -> None:
        """Write a file of the log in the format that its name says."""
        path = self.folder / key.replace("/", "-")
        write_content(path, content)
        self.put_bytes(key, path.read_bytes())
        path.unlink()

    def put_bytes(self, key: str, content: bytes) -> None:
        """Write a file."""
        if self.scheme == "s3":
            with self._s3.open_output_stream(f"bucket/{key}", compression=None) as file:
                file.write(content)
            return
        if self.scheme == "az":
            ask(f"{self.endpoint}/{_ACCOUNT}/bucket/{quote(key)}", "PUT", content)
            return
        query = f"uploadType=media&name={quote(key, safe='')}"
        ask(f"{self.endpoint}/upload/storage/v1/b/bucket/o?{query}", "POST", content)

    def remove(self, key: str) -> None:
        """Take a file away."""
        if self.scheme == "s3":
            self._s3.delete_file(f"bucket/{key}")
            return
        if self.scheme == "az":
            ask(f"{self.endpoint}/{_ACCOUNT}/bucket/{quote(key)}", "DELETE")
            return
        ask(f"{self.endpoint}/storage/v1/b/bucket/o/{quote(key, safe='')}", "DELETE")

    @property
    def _s3(self) -> Any:
        from pyarrow import fs  # noqa: PLC0415 - starts threads, and few tests need it

        return fs.S3FileSystem(region="us-east-1", endpoint_override=self.endpoint)


def ask(address: str, method: str, content: bytes | None = None) -> None:
    """Ask a server of this machine for something."""
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(address, content, headers, method=method)  # noqa: S310 - http
    with urllib.request.urlopen(request, timeout=PATIENCE):  # noqa: S310 - likewise
        pass


def _server(program: str) -> Iterator[str]:
    """Run a server; it ends with its standard input."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    yield from _server(_S3)


@pytest.fixture(scope="session")
def gs_server() -> Iterator[str]:
    yield from _server(_GS)


@pytest.fixture(scope="session")
def az_server() -> Iterator[str]:
    yield from _server(_AZ)


@pytest.fixture(params=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store of each kind, which the environment names."""
    found = request.getfixturevalue(str(request.param))
    assert isinstance(found, Store)
    return found


@pytest.fixture
def s3(s3_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "made-up")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    ask(f"{s3_server}/moto-api/reset", "POST")
    ask(f"{s3_server}/bucket", "PUT")
    return Store("s3", s3_server, tmp_path)


@pytest.fixture
def gs(gs_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gs_server)
    ask(f"{gs_server}/wipe?keep-buckets=true", "GET")
    return Store("gs", gs_server, tmp_path)


@pytest.fixture
def az(az_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", _ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", base64.b64encode(SECRET.encode()).decode())
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", az_server)
    ask(f"{az_server}/{_ACCOUNT}/bucket", "DELETE")
    return Store("az", az_server, tmp_path)


_ACCOUNT = "account"
ENDPOINTS = ("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST", "AZURE_STORAGE_SERVICE_ENDPOINT")
"""What names another server, in the environment."""
SECRET = "an-invented-secret"  # noqa: S105 - of no account
"""What nothing may show."""
