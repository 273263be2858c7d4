"""The explorer's engine: files of two packages of npm, pinned by version and digest."""

import gzip
import io
import subprocess
import tarfile
import tempfile
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256, sha512
from pathlib import Path
from typing import Final

from deploy.supply.locked import SupplyError
from flows.released.page.explorer import DIGEST, ENGINE
from flows.runtime.files import replace_file


@dataclass(frozen=True)
class Npm:
    """A package of npm, and which of its files are taken."""

    name: str
    version: str
    licence: str
    digest: str
    """SHA-512 of its tarball, as npm writes it."""
    files: tuple[str, ...]


PACKAGES: Final = (
    Npm(
        "fzstd",
        "0.1.1",
        "MIT",
        "dkuVSOKKwh3eas5VkJy1AW1vFpet8TA/fGmVA5krThl8YcOVE/8ZIoEA1+U1vEn5ckxxhLirSdY837azmbaNHA==",
        ("umd/index.js",),
    ),
    Npm(
        "@duckdb/duckdb-wasm",
        "1.32.0",
        "MIT",
        "IewXTNYEjsZCPE9weUWgtjGxUlMRo7qhX0GF6tq/KjK8bnY+RAl4cyUdYUfcdzbyb4b9ZxPC+FOsCcxgaKFWMg==",
        ("dist/duckdb-browser-eh.worker.js", "dist/duckdb-eh.wasm"),
    ),
)


def make_engine(into: Path = ENGINE) -> Path:
    """Fetch the packages by npm, and write the engine to ``into``, whole or not at all.

    Raises SupplyError where there is no npm, or what comes is not what is pinned.
    """
    with tempfile.TemporaryDirectory() as folder:
        content = b"\n".join(part for one in PACKAGES for part in fetched(one, Path(folder)))
    if sha256(content).hexdigest() != DIGEST:
        raise SupplyError(f"the engine is not the one of flows/released/page/explorer.py: {DIGEST}")
    into.parent.mkdir(exist_ok=True)
    with replace_file(into, mode=0o644) as file:
        file.write(gzip.compress(content, mtime=0))
    return into


def fetched(one: Npm, folder: Path) -> list[bytes]:
    """Fetch a package into a folder by npm, and return what its files hold.

    Raises SupplyError where there is no npm, or what comes is not what is pinned.
    """
    command = ["npm", "pack", "--silent", "--ignore-scripts", f"{one.name}@{one.version}"]
    try:
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)  # noqa: S603 - pinned above
    except FileNotFoundError as error:
        raise SupplyError("there is no npm on this machine; it fetches the engine") from error
    except subprocess.CalledProcessError as error:
        raise SupplyError(f"npm cannot fetch {one.name} {one.version}: {error.stderr}") from error
    tarball = (folder / done.stdout.split()[-1]).read_bytes()
    if b64encode(sha512(tarball).digest()).decode() != one.digest:
        raise SupplyError(f"{one.name} {one.version}: its tarball is not the one that is pinned")
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        found = [archive.extractfile(f"package/{name}") for name in one.files]
        return [file.read() for file in found if file is not None]
