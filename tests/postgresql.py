"""A PostgreSQL server of the tests' own, made from the machine's binaries.

Modules that need it say ``pytest_plugins = ["tests.postgresql"]``, and share one. It listens on a
Unix socket in a private temporary folder, nowhere else, and is gone with the session.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

_ADMIN = "postgres"
_PORT = "5432"  # only part of the socket's name, but libpq may be told another by PGPORT
GUARDED = "guarded"
"""The one user who must give a password; all others are trusted."""
PASSWORD = "open-sesame"  # noqa: S105 - of a server that lives for a minute


@dataclass(frozen=True)
class PostgreSQL:
    """A running server, with databases for tests."""

    socket: Path
    numbers: Iterator[int]
    restart: Callable[[], None]
    """Ends the server at once, as a crash would, and starts it again; for a server of one's own."""

    def database(self, settings: Mapping[str, str] | None = None) -> str:
        """Make a database; gives its URL. ``settings`` become defaults of its sessions."""
        name = f"fresh{next(self.numbers)}"
        with _connect(self.socket) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            for setting, value in (settings or {}).items():
                command = sql.SQL("ALTER DATABASE {} SET {} TO {}").format(
                    sql.Identifier(name), sql.Identifier(setting), sql.Literal(value)
                )
                connection.execute(command)
        return self._url(name)

    def emptied(self) -> str:
        """Empty the one database that tests use one after the other, which is faster; its URL."""
        with _connect(self.socket) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return self._url("postgres")

    def guarded(self, password: str) -> str:
        """URL for the user who must give a password; :data:`PASSWORD` is the right one."""
        return f"postgresql+psycopg://{GUARDED}:{quote(password, safe='')}@/postgres?{self._query}"

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg:///{database}?{self._query}&user={_ADMIN}"

    @property
    def _query(self) -> str:
        return f"host={self.socket}&port={_PORT}"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A server of this session."""
    programs = _programs()
    if programs is None:
        pytest.skip("there are no programs of a PostgreSQL server on this machine")
    with a_server(programs) as server:
        yield server


@pytest.fixture(scope="module")
def own_postgresql() -> Iterator[PostgreSQL]:
    """A server that tests of one module may restart: each waits until it answers again."""
    programs = _programs()
    if programs is None:
        pytest.skip("there are no programs of a PostgreSQL server on this machine")
    with a_server(programs) as server:
        yield server


def _programs() -> Path | None:
    """The folder with the server's programs, of the newest version that lies where Debian's do."""
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(versions, key=lambda path: path.parent.name.zfill(8), reverse=True)
    found = [*_told_by_path(), *newest_first]
    needed = ("initdb", "pg_ctl", "postgres")
    return next((one for one in found if all((one / name).exists() for name in needed)), None)


def _told_by_path() -> Iterator[Path]:
    for name in ("pg_ctl", "initdb", "postgres"):
        if program := shutil.which(name):
            yield Path(program).resolve().parent
    if config := shutil.which("pg_config"):
        done = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(done.stdout.strip())


@contextmanager
def a_server(programs: Path) -> Iterator[PostgreSQL]:
    """Run a server."""
    short = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108 - a socket's path has 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="clusterdp-pg-", dir=short))  # 0700
    identity = _identity()
    if identity:
        shutil.chown(folder, identity["user"], identity["group"])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}

    def run(name: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [programs / name, "-D", folder / "data", *arguments],
            cwd=folder,
            env=environment | {"LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
            **identity,
        )
        log = folder / "log"
        told = log.read_text() if log.exists() else ""
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}{told}"

    try:
        run("initdb", "--auth=trust", f"--username={_ADMIN}", "--encoding=UTF8", "--no-sync")
        access = folder / "data" / "pg_hba.conf"
        access.write_text(f"local all {GUARDED} scram-sha-256\n{access.read_text()}")
        options = f"-F -k {folder} -p {_PORT} -c listen_addresses="
        start = ("pg_ctl", "-w", "-l", folder / "log", "-o", options)
        run(*start, "start")
        try:
            _make_guarded(folder)
            yield PostgreSQL(folder, count(1), lambda: run(*start, "-m", "immediate", "restart"))
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")  # nobody will miss the data
    finally:
        shutil.rmtree(folder)


def _make_guarded(socket: Path) -> None:
    with _connect(socket) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(
                sql.Identifier(GUARDED), sql.Literal(PASSWORD)
            )
        )


def _connect(socket: Path) -> psycopg.Connection:
    where = f"host={socket} port={_PORT} user={_ADMIN} dbname=postgres"
    return psycopg.connect(where, autocommit=True)


def _identity() -> dict[str, Any]:
    """Who runs the server: somebody else where we are root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    users = {user.pw_name: user for user in pwd.getpwall()}
    user = users.get("postgres") or users["nobody"]
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
