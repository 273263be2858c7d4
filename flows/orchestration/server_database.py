"""The SQLite database of a server of our own: closed to others, refused where it is damaged.

Making its tables takes Prefect seconds, more than a hundred migrations one after the other. So they
are made once, and the empty database is kept in this user's cache folder (0700), for servers with
another home to begin with. A kept one that is not this user's alone, or not whole, is not used.
"""

import asyncio
import hashlib
import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from flows.runtime.files import private_directory, replace_file
from schemas.errors import InputError

_DIGEST_BYTES = hashlib.sha256().digest_size
_MOST_BYTES = 100_000_000


def check_database() -> None:
    """Close Prefect's SQLite database to others, and refuse one that is damaged.

    Prefect itself would try for minutes, and say nothing of use. Raises InputError.
    """
    path = _database()
    if path is None or not path.exists():
        return
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        with suppress(OSError):  # not there, or not ours
            file.chmod(0o600)
    problem = _damage(path)
    if problem is not None:
        raise InputError(
            f"{path}: Prefect's database cannot be used ({problem}). It holds the history of runs "
            "and nothing of releases: move it away, with its -wal and -shm, and run again"
        )


def begin_database() -> None:
    """Begin with the kept database where the home has none yet, or make one and keep it.

    Nobody else may start a server with the same home meanwhile. Where it fails, Prefect makes its
    tables itself, or says why it cannot.
    """
    from prefect.settings import get_current_settings

    path = get_current_settings().home / "prefect.db"
    if _database() != path or path.exists():
        return
    kept = kept_path()
    content = read_kept(kept)
    try:
        if content is None:
            asyncio.run(_migrate())
            with closing(sqlite3.connect(path)) as connection:
                keep(kept, connection.serialize())
        else:
            with replace_file(path, 0o600) as file:
                file.write(content)
    except Exception:  # noqa: S110 - see above
        pass


def read_kept(path: Path) -> bytes | None:
    """The database kept at ``path``; None unless file and folder are this user's, and it is whole.

    It begins with the SHA-256 of the rest.
    """
    try:
        if not _is_ours(os.lstat(path.parent)):
            return None
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            found = file.read(_MOST_BYTES)
    except OSError:
        return None
    digest, content = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
    return content if content and hashlib.sha256(content).digest() == digest else None


def keep(path: Path, content: bytes) -> None:
    """Keep a database at ``path``, whole or not at all; not in a folder that others may write."""
    private_directory(path.parent.parent)  # of whoever has no cache yet: theirs alone, by its rules
    private_directory(path.parent)
    if _is_ours(os.lstat(path.parent)):
        with replace_file(path, 0o600) as file:
            file.write(hashlib.sha256(content).digest() + content)
            file.flush()
            os.fsync(file.fileno())


def _is_ours(found: os.stat_result) -> bool:
    """Whether a file or folder is this user's, closed to everybody else, and no link."""
    plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return plain and found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def kept_path() -> Path:
    """Where the empty database of this Prefect is kept, named by its version and its migrations."""
    import prefect
    import prefect.server.database

    place = Path(prefect.server.database.__file__).parent / "_migrations" / "versions" / "sqlite"
    migrations = "\n".join(sorted(file.name for file in place.glob("*.py")))
    digest = hashlib.sha256(migrations.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    with suppress(RuntimeError):  # a user without a home
        cache = cache.expanduser()
    return cache.absolute() / "clusterdp" / f"prefect-{prefect.__version__}-{digest}.sqlite"


async def _migrate() -> None:
    """Let Prefect make its tables, and let go of them."""
    from prefect.server.database import provide_database_interface

    interface = provide_database_interface()
    await interface.create_db()
    await (await interface.engine()).dispose()


def _database() -> Path | None:
    """The file of the database, where it is one."""
    from prefect.settings import PREFECT_SERVER_DATABASE_CONNECTION_URL
    from sqlalchemy.engine import make_url

    url = make_url(str(PREFECT_SERVER_DATABASE_CONNECTION_URL.value()))  # Prefect fills in its own
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


def _damage(path: Path) -> str | None:
    try:
        # Read and write, as reading alone fails where a journal is to be made.
        uri = f"file:{quote(str(path))}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        return None if "locked" in str(error) else str(error)
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if found == "ok" else "parts of it are damaged"
