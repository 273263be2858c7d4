"""A release appears whole or not at all; latest follows; nobody disturbs anybody."""

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flows.released.draft import LATEST, drafting, point_latest, published, sweep
from schemas.errors import ConflictError, InputError
from schemas.released import ReleaseName


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    return tmp_path / "releases" / "trial"


def publish(releases: Path, period: str = "p", content: str = "", *, revise: bool = False) -> Path:
    """Make a release whose file says its own name, or ``content``."""
    with drafting(releases, "trial", period, revise=revise) as draft:
        draft.working.write_text(content or draft.name.release_id)
    return draft.path


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.exists() else set()


def latest(folder: Path) -> str:
    return (folder / LATEST).read_text()


# one release


def test_a_release_gets_its_name_and_latest_follows(releases: Path) -> None:
    path = publish(releases)
    assert path == releases / "trial.p.r1.duckdb"
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}
    assert path.read_text() == latest(releases) == "trial.p.r1"


def test_a_release_cannot_be_written_and_everybody_can_read_it(releases: Path) -> None:
    publish(releases)
    for name in names(releases):
        assert stat.S_IMODE((releases / name).stat().st_mode) == 0o444
    assert stat.S_IMODE(releases.stat().st_mode) == 0o755


def test_nothing_stands_under_a_public_name_while_it_is_made(releases: Path) -> None:
    with drafting(releases, "trial", "p", revise=False) as draft:
        draft.working.write_text("half")
        assert list(releases.glob("*.duckdb")) == []
        assert stat.S_IMODE(draft.working.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_nothing(releases: Path, failure: type[BaseException]) -> None:
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(failure),
        drafting(releases, "trial", "p", revise=False) as draft,
    ):
        draft.working.write_text("half")
        raise failure
    assert names(releases) == set()


def test_an_error_leaves_what_was_there(releases: Path) -> None:
    publish(releases)
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(RuntimeError),
        drafting(releases, "trial", "p", revise=True) as draft,
    ):
        draft.working.write_text("half")
        raise RuntimeError
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}
    assert latest(releases) == "trial.p.r1"


def test_a_block_that_wrote_nothing_publishes_nothing(releases: Path) -> None:
    with pytest.raises(FileNotFoundError), drafting(releases, "trial", "p", revise=False):
        pass
    assert names(releases) == set()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "releases").write_text("a file")
    with pytest.raises(InputError, match="cannot make this folder"):
        publish(tmp_path / "releases" / "trial")


# several releases


def test_a_published_period_is_a_conflict_and_nothing_is_touched(releases: Path) -> None:
    path = publish(releases)
    before = path.stat()
    with pytest.raises(ConflictError, match=r"published already, as trial\.p\.r1.*--revise"):
        publish(releases, content="another")
    assert path.stat() == before
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}


def test_a_revision_stands_beside_the_first(releases: Path) -> None:
    publish(releases)
    assert publish(releases, revise=True).name == "trial.p.r2.duckdb"
    assert latest(releases) == "trial.p.r2"
    with pytest.raises(ConflictError, match=r"trial\.p\.r2"):
        publish(releases)


def test_a_revision_of_nothing_is_the_first(releases: Path) -> None:
    assert publish(releases, revise=True).name == "trial.p.r1.duckdb"


@pytest.mark.parametrize(
    ("periods", "expected"),
    [
        (["2026-11-19", "2026-11-20"], "trial.2026-11-20.r1"),
        (["2026-11-20", "2026-11-19"], "trial.2026-11-20.r1"),
        (["2026-11-20", "2026-11-20", "2026-11-19"], "trial.2026-11-20.r2"),
        (["a"] * 11, "trial.a.r11"),
        (["a"] * 10 + ["b", "a"], "trial.b.r1"),
    ],
)
def test_latest_is_the_greatest_period_then_revision(
    releases: Path, periods: list[str], expected: str
) -> None:
    for period in periods:
        publish(releases, period, revise=True)
    assert latest(releases) == expected
    assert (releases / LATEST).samefile(releases / f"{expected}.duckdb")


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


def test_latest_is_repaired_where_a_run_was_killed_just_before_it(releases: Path) -> None:
    publish(releases, "a")
    (releases / "trial.b.r1.duckdb").write_text("trial.b.r1")  # named, but latest not moved
    assert latest(releases) == "trial.a.r1"
    with pytest.raises(ConflictError):
        publish(releases, "b")
    assert latest(releases) == "trial.b.r1"


def test_latest_comes_back_where_it_is_gone_or_half_moved(releases: Path) -> None:
    publish(releases, "a")
    (releases / LATEST).unlink()
    (releases / f".{LATEST}.new").write_text("left by a run that was killed")
    point_latest(releases, "trial")
    assert latest(releases) == "trial.a.r1"
    assert names(releases) == {"trial.a.r1.duckdb", LATEST}


def test_a_file_system_without_links_gets_a_copy_of_latest(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(releases, "a")
    (releases / LATEST).unlink()

    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "link", refuse)
    point_latest(releases, "trial")
    assert latest(releases) == "trial.a.r1"
    assert not (releases / LATEST).samefile(releases / "trial.a.r1.duckdb")


def test_who_reads_latest_keeps_what_was_opened(releases: Path) -> None:
    publish(releases)
    with (releases / LATEST).open() as reader:
        publish(releases, revise=True)
        assert reader.read() == "trial.p.r1"
    assert latest(releases) == "trial.p.r2"


# several runs at once


def test_of_two_threads_publishing_a_period_one_wins(releases: Path) -> None:
    inside = threading.Barrier(2)

    def run(content: str) -> str:
        try:
            with drafting(releases, "trial", "p", revise=False) as draft:
                draft.working.write_text(content)
                inside.wait(timeout=30)  # both have drawn before either has a name
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
from flows.released.draft import drafting
from schemas.errors import ConflictError

releases, period, content = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
try:
    with drafting(releases, "trial", period, revise=False) as draft:
        draft.working.write_text(content)
        print("inside", flush=True)
        sys.stdin.readline()
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
    return [process.communicate(timeout=60)[0].strip() for process in processes]


def test_of_two_processes_publishing_a_period_one_wins(releases: Path) -> None:
    ends = runs(releases, ["p", "p"])
    assert sorted(ends) == ["conflict", "published"]
    winner = f"p of {ends.index('published')}"
    assert (releases / "trial.p.r1.duckdb").read_text() == latest(releases) == winner
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}


def test_two_processes_publishing_two_periods_both_win(releases: Path) -> None:
    assert runs(releases, ["b", "a"]) == ["published", "published"]
    assert latest(releases) == "b of 0"
    assert names(releases) == {"trial.a.r1.duckdb", "trial.b.r1.duckdb", LATEST}


# working folders


def test_the_folder_of_a_dead_run_is_removed(releases: Path) -> None:
    for name, held in ((".draft-old", True), (".draft-older", False)):
        (releases / name / "spill").mkdir(parents=True)
        (releases / name / "release.duckdb").write_text("half")
        if held:
            (releases / name / "lock").write_text("")
    publish(releases)
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}


def test_the_folder_of_a_living_run_is_kept(releases: Path) -> None:
    with drafting(releases, "trial", "a", revise=False) as draft:
        draft.working.write_text("whole")
        publish(releases, "b")
        assert draft.working.read_text() == "whole"
    assert (releases / "trial.a.r1.duckdb").read_text() == "whole"
    assert names(releases) == {"trial.a.r1.duckdb", "trial.b.r1.duckdb", LATEST}


def test_a_lock_that_a_living_process_holds_keeps_the_folder(releases: Path) -> None:
    folder = releases / ".draft-other"
    folder.mkdir(parents=True)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        sweep(releases)
        assert folder.exists()
    finally:
        os.close(handle)
    sweep(releases)
    assert not folder.exists()


def test_a_run_that_sweeps_while_another_begins_does_it_no_harm(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making its folder and holding its lock, a run must not look like a dead one."""
    make = tempfile.mkdtemp
    sweeps: list[threading.Thread] = []

    def make_then_be_swept(*, prefix: str, dir: Path) -> str:  # noqa: A002 - mkdtemp's
        folder = make(prefix=prefix, dir=dir)
        sweeps.append(threading.Thread(target=sweep, args=[releases]))
        sweeps[0].start()
        sweeps[0].join(timeout=1)  # it may have to wait for a lock of the run that begins
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", make_then_be_swept)
    publish(releases)
    sweeps[0].join()
    assert names(releases) == {"trial.p.r1.duckdb", LATEST}


def test_runs_that_begin_all_at_once_all_publish(releases: Path) -> None:
    def run(number: int) -> str:
        return publish(releases, f"p{number:03d}").name

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(run, range(64)))
    assert names(releases) == {*made, LATEST}
    assert latest(releases) == "trial.p063.r1"
