"""A release appears whole or not at all; latest follows; nobody disturbs anybody."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.released.file.draft import (
    LATEST,
    complete,
    draft_in,
    make_public,
    point_latest,
    published,
    sweep,
    workplace,
)
from flows.runtime.working_folders import lock_if_dead
from schemas.errors import ClusterdpError, ConflictError, InputError
from schemas.names import ReleaseName
from tests.conftest import PATIENCE
from tests.support.modes import mode


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    return tmp_path / "releases" / "trial"


def publish(releases: Path, period: str = "p", revision: int = 1, content: str = "") -> Path:
    """Make a release whose file says its own name, or ``content``."""
    release_id = ReleaseName("trial", period, revision).release_id
    path = releases / f"{release_id}.duckdb"
    with workplace(releases) as folder:
        draft = draft_in(folder)
        draft.write_text(content or release_id)
        complete(draft)
        make_public(draft, path)
        point_latest(releases, lambda: newest(releases))
    return path


def newest(releases: Path) -> str:
    return published(releases, "trial")[-1].release_id


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.exists() else set()


def latest(folder: Path) -> str:
    return (folder / LATEST).read_text()


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Nothing is private by the grace of the umask."""
    before = os.umask(0)
    yield
    os.umask(before)


# one release


def test_a_name_that_cannot_be_synced_is_said_to_be_public(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    publish(releases)
    with workplace(releases) as folder:
        draft_in(folder).write_text("second")
        monkeypatch.setattr("flows.released.file.draft.sync_directory", full)
        path = releases / "trial.q.r1.duckdb"
        with pytest.raises(InputError, match=r"is public, and its name may not outlast .*No space"):
            make_public(draft_in(folder), path)
    assert path.read_text() == "second"


def test_a_folder_whose_removal_is_interrupted_is_not_locked(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run may live on, as a server's does; the next one removes the folder."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    place = workplace(releases)
    folder = place.__enter__()
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            place.__exit__(None, None, None)
    assert folder.exists()
    sweep(releases, keep=())
    assert not folder.exists()


def test_a_release_gets_its_name_and_latest_follows(releases: Path) -> None:
    path = publish(releases)
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}
    assert path.read_text() == latest(releases) == "trial.p.r1"


def test_a_release_cannot_be_written_and_everybody_can_read_it(
    releases: Path, no_umask: None
) -> None:
    publish(releases)
    for name in names(releases):
        assert mode(releases / name) == 0o444
    assert mode(releases) == 0o755


def test_everybody_can_read_a_release_whatever_the_umask(releases: Path) -> None:
    before = os.umask(0o077)
    try:
        path = publish(releases)
    finally:
        os.umask(before)
    assert (mode(path), mode(releases), mode(releases.parent)) == (0o444, 0o755, 0o755)


def test_nobody_else_sees_a_release_in_the_making(releases: Path, no_umask: None) -> None:
    with workplace(releases) as folder:
        draft_in(folder).write_text("half")
        assert folder.parent == releases
        assert mode(folder) == 0o700
        assert list(releases.glob("*.duckdb")) == []


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_nothing(releases: Path, failure: type[BaseException]) -> None:
    releases.parent.mkdir()
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(failure),
        workplace(releases) as folder,
    ):
        draft_in(folder).write_text("half")
        raise failure
    assert not releases.exists()
    assert releases.parent.exists()  # not this run's to remove


def test_an_error_leaves_what_was_there(releases: Path) -> None:
    publish(releases)
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(RuntimeError),
        workplace(releases) as folder,
    ):
        draft_in(folder).write_text("half")
        raise RuntimeError
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}
    assert latest(releases) == "trial.p.r1"


def test_folders_that_were_made_for_nothing_are_gone(tmp_path: Path) -> None:
    with workplace(tmp_path / "a" / "b" / "c"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays_even_if_it_is_empty(releases: Path) -> None:
    releases.mkdir(parents=True)
    with workplace(releases):
        pass
    assert names(releases) == set()
    assert releases.exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "releases").write_text("a file")
    with (
        pytest.raises(InputError, match="cannot make this folder"),
        workplace(tmp_path / "releases" / "trial"),
    ):
        pass


def test_a_draft_that_was_never_written_cannot_be_completed(releases: Path) -> None:
    with workplace(releases) as folder, pytest.raises(InputError, match="cannot write here"):
        complete(draft_in(folder))


# the name


def test_a_name_that_is_taken_is_a_conflict_and_nothing_is_touched(releases: Path) -> None:
    path = publish(releases)
    before = path.stat()
    with pytest.raises(ConflictError, match=r"trial\.p\.r1\.duckdb: there is a file of this name"):
        publish(releases, content="another")
    assert path.stat() == before
    assert path.read_text() == latest(releases) == "trial.p.r1"
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}


def test_even_a_dangling_link_is_not_written_through(releases: Path, tmp_path: Path) -> None:
    releases.mkdir(parents=True)
    (releases / "trial.p.r1.duckdb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConflictError, match="there is a file of this name"):
        publish(releases)
    assert not (tmp_path / "elsewhere").exists()


def test_a_name_that_cannot_be_given_is_a_plain_failure(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ClusterdpError, match=r"cannot write here \(Operation not") as caught:
        publish(releases)
    assert not isinstance(caught.value, ConflictError)
    assert not releases.exists()


# several releases


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["2026-11-19.r1", "2026-11-20.r1"], "2026-11-20.r1"),
        (["2026-11-20.r1", "2026-11-19.r1"], "2026-11-20.r1"),
        (["2026-11-20.r1", "2026-11-20.r2", "2026-11-19.r1"], "2026-11-20.r2"),
        (["2026-11-20.r2", "2026-11-20.r1"], "2026-11-20.r2"),
        ([f"a.r{number}" for number in range(1, 12)], "a.r11"),
        (["a.r9", "b.r1", "a.r10"], "b.r1"),
    ],
)
def test_latest_is_the_greatest_period_then_revision(
    releases: Path, given: list[str], expected: str
) -> None:
    for one in given:
        period, _, revision = one.partition(".r")
        publish(releases, period, int(revision))
    assert latest(releases) == f"trial.{expected}"
    assert (releases / LATEST).samefile(releases / f"trial.{expected}.duckdb")


def test_only_releases_of_the_experiment_count(releases: Path) -> None:
    publish(releases)
    strangers = [
        "other.p.r9",
        "trial.p.r0",
        "trial.p.r01",
        "trial.p.rx",
        "trial.p q.r2",
        "trialxp.r3",
    ]
    for stranger in strangers:
        (releases / f"{stranger}.duckdb").write_text("")
    (releases / "trial.p.r7.duckdb.wal").write_text("")
    assert published(releases, "trial") == [ReleaseName("trial", "p", 1)]


def test_a_folder_that_is_not_there_has_no_releases(releases: Path) -> None:
    assert published(releases, "trial") == []


def test_latest_comes_back_where_it_is_gone_or_half_moved(releases: Path) -> None:
    older = publish(releases, "a")
    publish(releases, "b")
    (releases / LATEST).unlink()
    os.link(older, releases / f".{LATEST}.new")  # left by a run that was killed
    point_latest(releases, lambda: newest(releases))
    assert latest(releases) == "trial.b.r1"
    assert older.read_text() == "trial.a.r1"
    assert names(releases) == {"trial.a.r1.duckdb", "trial.b.r1.duckdb", LATEST}


def test_a_file_system_without_links_gets_a_copy_of_latest(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(releases, "a")
    (releases / LATEST).unlink()

    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "link", refuse)
    point_latest(releases, lambda: newest(releases))
    assert latest(releases) == "trial.a.r1"
    assert not (releases / LATEST).samefile(releases / "trial.a.r1.duckdb")
    assert mode(releases / LATEST) == 0o444


def test_who_reads_latest_keeps_what_was_opened(releases: Path) -> None:
    publish(releases)
    with (releases / LATEST).open() as reader:
        publish(releases, revision=2)
        assert reader.read() == "trial.p.r1"
    assert latest(releases) == "trial.p.r2"


# several runs at once


def test_of_two_threads_publishing_a_name_one_wins(releases: Path) -> None:
    inside = threading.Barrier(2)

    def run(content: str) -> str:
        try:
            with workplace(releases) as folder:
                draft_in(folder).write_text(content)
                inside.wait(timeout=PATIENCE)  # both have drawn before either has a name
                make_public(draft_in(folder), releases / "trial.p.r1.duckdb")
                point_latest(releases, lambda: newest(releases))
        except ConflictError:
            return "conflict"
        return content

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(run, ["one", "other"]))
    assert ends.count("conflict") == 1
    (winner,) = set(ends) - {"conflict"}
    assert (releases / "trial.p.r1.duckdb").read_text() == latest(releases) == winner
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}


RUN = """
import sys
from pathlib import Path
from flows.released.file.draft import draft_in, make_public, point_latest, published, workplace
from schemas.errors import ConflictError

releases, period, content = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
try:
    with workplace(releases) as folder:
        draft_in(folder).write_text(content)
        print("inside", flush=True)
        sys.stdin.readline()
        make_public(draft_in(folder), releases / f"trial.{period}.r1.duckdb")
        point_latest(releases, lambda: published(releases, "trial")[-1].release_id)
except ConflictError:
    print("conflict")
else:
    print("published")
"""


def runs(releases: Path, periods: list[str]) -> list[str]:
    """Let a process a period draft at once, then publish at once; how each ended."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(releases), period, f"{period} of {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, period in enumerate(periods)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate(timeout=PATIENCE)[0].strip() for process in processes]


def test_of_two_processes_publishing_a_name_one_wins(releases: Path) -> None:
    ends = runs(releases, ["p", "p"])
    assert sorted(ends) == ["conflict", "published"]
    winner = f"p of {ends.index('published')}"
    assert (releases / "trial.p.r1.duckdb").read_text() == latest(releases) == winner
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}


def test_two_processes_publishing_two_periods_both_win(releases: Path) -> None:
    assert runs(releases, ["b", "a"]) == ["published", "published"]
    assert latest(releases) == "b of 0"
    assert names(releases) == {"trial.a.r1.duckdb", "trial.b.r1.duckdb", LATEST}


def test_runs_that_begin_all_at_once_all_publish(releases: Path) -> None:
    def run(number: int) -> str:
        return publish(releases, f"p{number:03d}").name

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(run, range(64)))
    assert names(releases) == {*made, LATEST}
    assert latest(releases) == "trial.p063.r1"


# working folders


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a working folder as its run does while it lives."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def a_folder(releases: Path, name: str) -> Path:
    """The working folder of a run that was killed in the middle."""
    folder = releases / name
    (folder / "spill").mkdir(parents=True)
    (folder / "spill" / "file").write_text("spilt")
    draft_in(folder).write_text("half")
    return folder


def test_the_folder_of_a_dead_run_is_removed_even_if_it_never_had_a_lock(releases: Path) -> None:
    publish(releases)
    (a_folder(releases, ".draft-old") / "lock").write_text("")
    a_folder(releases, ".draft-older")
    (releases / ".draft-just-made").mkdir()
    sweep(releases, keep=())
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}


def test_the_folder_of_a_living_run_is_kept(releases: Path) -> None:
    with workplace(releases) as folder:
        draft_in(folder).write_text("whole")
        sweep(releases, keep=())
        assert draft_in(folder).read_text() == "whole"
    assert not folder.exists()


def test_a_lock_that_another_process_holds_keeps_the_folder_while_it_lives(releases: Path) -> None:
    folder = a_folder(releases, ".draft-other")
    with held(folder):
        sweep(releases, keep=())
        assert draft_in(folder).read_text() == "half"
    sweep(releases, keep=())
    assert not folder.exists()


def test_a_folder_that_is_still_needed_is_kept_whole(releases: Path) -> None:
    kept, other = a_folder(releases, ".draft-kept"), a_folder(releases, ".draft-other")
    sweep(releases, keep=[kept])
    assert (draft_in(kept).read_text(), names(kept / "spill")) == ("half", {"file"})
    assert not other.exists()


def test_a_sweep_takes_nothing_but_working_folders(releases: Path) -> None:
    publish(releases)
    others = {"notes", "draft-of-mine", ".hidden"}
    for other in others:
        (releases / other).mkdir()
    sweep(releases, keep=())
    assert names(releases) == {"trial.p.r1.duckdb", LATEST, *others}


def test_a_run_that_sweeps_while_another_begins_does_it_no_harm(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making its folder and holding its lock, a run must not look like a dead one."""
    make = tempfile.mkdtemp
    sweeps: list[threading.Thread] = []

    def make_then_be_swept(*, prefix: str, dir: Path) -> str:  # noqa: A002 - mkdtemp's
        folder = make(prefix=prefix, dir=dir)
        sweeps.append(threading.Thread(target=sweep, args=[releases, ()]))
        sweeps[0].start()
        sweeps[0].join(timeout=1)  # it may have to wait for a lock of the run that begins
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", make_then_be_swept)
    publish(releases)
    sweeps[0].join()
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}


def test_who_looks_at_a_dead_run_has_its_lock_until_done(releases: Path) -> None:
    folder = a_folder(releases, ".draft-dead")
    with lock_if_dead(folder) as mine:
        assert mine
        with lock_if_dead(folder) as another:
            assert not another
    with lock_if_dead(folder) as later:
        assert later


def test_a_living_run_and_one_that_is_gone_have_no_lock_of_the_dead(releases: Path) -> None:
    with workplace(releases) as folder:
        with lock_if_dead(folder) as dead:
            assert not dead
        assert folder.exists()
    with lock_if_dead(folder) as dead:
        assert not dead
    assert not folder.exists()
