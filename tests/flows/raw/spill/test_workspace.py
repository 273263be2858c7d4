"""The room of a run: private, gone afterwards, and swept where a run was killed."""

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polars as pl
import pytest

from flows.orchestration.workers import Workers
from flows.raw.spill.workspace import PREFIX, Workspace, bytes_of, n_shares, open_workspace
from flows.runtime.working_folders import sweep
from schemas.errors import InputError
from tests.conftest import Builder, Experiment
from tests.support.modes import mode

FRAME = pl.DataFrame({"unit": ["a", "b"]})


@contextmanager
def a_room(directory: Path, limit: int = 1000) -> Iterator[Workspace]:
    with ExitStack() as stack:
        yield Workspace(directory, limit, stack)


def left_by_the_dead(directory: Path) -> Path:
    """The folder of a run that was killed, with rows in it."""
    folder = directory / f"{PREFIX}dead"
    folder.mkdir(parents=True)
    for name in ("lock", "rows-run-0-x.arrow"):
        (folder / name).touch()
    return folder


def test_sweeping_follows_no_link_of_somebody_else(tmp_path: Path) -> None:
    shared, home = tmp_path / "shared", tmp_path / "home"
    home.mkdir()
    left_by_the_dead(shared)
    (shared / f"{PREFIX}folder").symlink_to(home)
    inner = shared / f"{PREFIX}file"
    inner.mkdir()
    (inner / "lock").symlink_to(home / "made")
    sweep(shared, PREFIX)
    assert not list(home.iterdir())
    assert not (shared / f"{PREFIX}dead").exists()


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("8GB", 8_000_000_000),
        ("8 GB", 8_000_000_000),
        ("1.5GiB", 1_610_612_736),
        ("200MB", 200_000_000),
        ("200KB", 200_000),
        ("1KiB", 1024),
        ("2TB", 2_000_000_000_000),
    ],
)
def test_limits_are_read(limit: str, expected: int) -> None:
    assert bytes_of(limit) == expected


def test_what_is_no_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="not an amount of memory: 'much'"):
        bytes_of("much")


def test_memory_is_shared_out_within_the_limit(tmp_path: Path) -> None:
    with a_room(tmp_path, 2_400_000_000) as workspace:
        assert 3 * workspace.run_bytes + workspace.part_bytes < workspace.limit
        assert (workspace.part_bytes, workspace.engine_bytes) == (100_000_000, 600_000_000)
    with a_room(tmp_path, 0) as workspace:
        assert workspace.part_bytes == 1  # it divides
        assert workspace.engine_bytes == 256_000_000  # DuckDB does not write a large file with less


@pytest.mark.parametrize(
    ("workers", "shares", "run_bytes"),
    [(None, 1, 5333), (1, 4, 5333), (3, 12, 1777), ("x", 32, 5333)],
)
def test_every_worker_has_a_share_of_work_and_memory(
    tmp_path: Path, workers: int | str | None, shares: int, run_bytes: int
) -> None:
    """Elsewhere each may take as much as this process."""
    with a_room(tmp_path, 24_000) as workspace:
        workspace.workers = None if workers is None else Workers(workers, Future())
        assert n_shares(workspace) == shares
        assert workspace.run_bytes == run_bytes
        theirs = Workspace.of_worker(workspace.folder, workspace.share)
        assert (theirs.run_bytes, theirs.part_bytes) == (run_bytes, workspace.part_bytes)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_room_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with a_room(tmp_path / "quarantine") as workspace:
            path = workspace.write(FRAME, "rows")
            assert mode(workspace.folder) == 0o700
            assert [mode(one) for one in workspace.folder.iterdir()] == [0o600, 0o600]
            assert mode(tmp_path / "quarantine") == 0o700
            assert pl.read_ipc(path).equals(FRAME)
    finally:
        os.umask(before)


def test_an_existing_folder_keeps_its_mode_and_its_place(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with a_room(tmp_path) as workspace:
        workspace.write(FRAME, "rows")
    assert mode(tmp_path) == 0o755
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_where_nothing_is_put(tmp_path: Path) -> None:
    with a_room(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_folders_that_were_made_for_it_are_taken_back(tmp_path: Path) -> None:
    with a_room(tmp_path / "a" / "b") as workspace:
        workspace.write(FRAME, "rows")
        assert workspace.folder.parent == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []


def test_folders_that_others_use_by_now_stay(tmp_path: Path) -> None:
    with a_room(tmp_path / "a" / "b") as workspace:
        workspace.write(FRAME, "rows")
        (tmp_path / "a" / "key").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["key"]


def test_it_is_gone_after_a_failure_too(tmp_path: Path) -> None:
    def fail() -> None:
        with a_room(tmp_path / "quarantine") as workspace:
            workspace.write(FRAME, "rows")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_frames_of_one_name_do_not_meet(tmp_path: Path) -> None:
    with a_room(tmp_path) as workspace:
        one, other = workspace.write(FRAME, "rows"), workspace.write(FRAME[:1], "rows")
        assert one != other
        assert [pl.read_ipc(path).height for path in (one, other)] == [2, 1]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with a_room(tmp_path / "file") as workspace, pytest.raises(InputError) as caught:
        workspace.write(FRAME, "rows")
    assert str(tmp_path / "file") in str(caught.value)


# what dead runs leave, and what living ones hold


def spilling(experiment: Builder) -> Experiment:
    return experiment(run={"spill_directory": "spill"})


def test_what_a_dead_run_left_is_removed_by_the_next(experiment: Builder) -> None:
    built = spilling(experiment)
    dead = left_by_the_dead(built.folder / "spill")
    with open_workspace(built.load().spill):
        assert not dead.exists()


def test_a_living_runs_room_is_never_touched(experiment: Builder) -> None:
    built = spilling(experiment)
    with open_workspace(built.load().spill) as workspace:
        path = workspace.write(FRAME, "rows")
        with open_workspace(built.load().spill) as other:
            assert path.exists()
            other.write(FRAME, "rows")
            assert other.folder != workspace.folder
        built.check()
        built.run()
        assert pl.read_ipc(path).equals(FRAME)
    assert not (built.folder / "spill").exists()


def test_a_folder_whose_lock_is_held_is_a_living_runs(experiment: Builder) -> None:
    built = spilling(experiment)
    folder = left_by_the_dead(built.folder / "spill")
    with (folder / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open_workspace(built.load().spill):
            assert (folder / "rows-run-0-x.arrow").exists()
    with open_workspace(built.load().spill):
        assert not folder.exists()


def test_whatever_else_is_in_its_place_stays(experiment: Builder) -> None:
    built = spilling(experiment)
    for name in ("rows.arrow", "other/file"):
        (built.folder / "spill" / name).parent.mkdir(parents=True, exist_ok=True)
        (built.folder / "spill" / name).touch()
    before = built.entries
    with open_workspace(built.load().spill) as workspace:
        workspace.write(FRAME, "rows")
    assert built.entries == before
