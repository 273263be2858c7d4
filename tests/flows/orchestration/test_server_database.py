"""The database that a server of our own begins with: kept once, and never taken from others."""

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from flows.orchestration.server_database import keep, read_kept

CONTENT = b"a database, say"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "cache" / "clusterdp" / "kept.sqlite"
    keep(path, CONTENT)
    return path


def test_what_is_kept_is_this_user_s_alone(kept: Path) -> None:
    assert read_kept(kept) == CONTENT
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"say", b"sya"))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def gone(path: Path) -> None:
    path.unlink()


def writable(path: Path) -> None:
    path.chmod(0o620)


def readable(path: Path) -> None:
    path.chmod(0o604)


def open_folder(path: Path) -> None:
    path.parent.chmod(0o777)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def linked_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.symlink_to(path.parent.with_name("elsewhere"))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(0o700)


def a_pipe(path: Path) -> None:
    """Which would never end."""
    path.unlink()
    os.mkfifo(path, 0o600)


def of_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, 65534)


def folder_of_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(path.parent, 65534, 65534)


@pytest.mark.parametrize(
    "spoil",
    [
        cut, changed, emptied, gone, writable, readable, open_folder, linked, linked_folder,
        a_folder, a_pipe, of_another, folder_of_another,
    ],
)  # fmt: skip
def test_what_may_be_another_s_or_is_not_whole_is_not_used(
    kept: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(kept)
    assert read_kept(kept) is None


def test_nothing_is_kept_in_a_folder_that_others_may_write(tmp_path: Path) -> None:
    (tmp_path / "clusterdp").mkdir()
    (tmp_path / "clusterdp").chmod(0o777)
    keep(tmp_path / "clusterdp" / "kept.sqlite", CONTENT)
    assert list((tmp_path / "clusterdp").iterdir()) == []


BEGIN = """if True:
    import os, sys
    from flows.orchestration.server_database import begin_database
    import prefect.server.database
    from prefect.settings import PREFECT_HOME, temporary_settings
    for home in map(str.strip, sys.stdin):
        child = os.fork()
        if child == 0:
            with temporary_settings({PREFECT_HOME: home}):
                begin_database()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextmanager
def beginner(folder: Path, cache: Path) -> Iterator[Callable[[Path], None]]:
    """Gives a function that makes the database of a server with a home, in a process of its own.

    Each is a fork of one that has imported Prefect, which takes as long as all else.
    """
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    ours |= {"PREFECT_HOME": str(folder), "XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN],
        env=ours,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def begin(home: Path) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            home.mkdir()
            process.stdin.write(f"{home}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "0\n"

        yield begin


def tables(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name for (name,) in found}


def test_the_second_home_begins_with_what_the_first_one_made(tmp_path: Path) -> None:
    """Seen by a table that only the kept database has."""
    cache, marked = tmp_path / "cache", tmp_path / "marked"
    with beginner(tmp_path / "none", cache) as begin:
        begin(tmp_path / "first")
        (kept,) = (cache / "clusterdp").iterdir()
        content = read_kept(kept)
        assert content is not None
        marked.write_bytes(content)
        made = tables(tmp_path / "first" / "prefect.db")
        assert tables(marked) == made >= {"flow_run", "alembic_version"}
        with closing(sqlite3.connect(marked)) as connection:
            connection.executescript("PRAGMA journal_mode = DELETE; CREATE TABLE mark (a)")
        keep(kept, marked.read_bytes())
        begin(tmp_path / "second")
        database = tmp_path / "second" / "prefect.db"
        assert tables(database) == made | {"mark"}
        assert stat.S_IMODE(database.stat().st_mode) == 0o600
        kept.chmod(0o644)
        begin(tmp_path / "third")
        assert tables(tmp_path / "third" / "prefect.db") == made
        assert read_kept(kept) not in (None, marked.read_bytes())  # made anew
