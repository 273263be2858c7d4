"""Rows put aside on disk: swept after a kill, plainly told where there is no space, never left.

Disks are small file systems in memory, for which these tests have to be root; runs that are killed
are processes of their own.
"""

import inspect
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.ledger.account import Account
from flows.raw.quarantine import write_quarantine
from flows.raw.reading import sources
from flows.raw.spill import sorted_runs as runs
from flows.raw.spill import workspace
from flows.release import ReleaseResult
from schemas.errors import ClusterdpError
from tests.conftest import (
    PATIENCE,
    SENTINEL,
    Builder,
    Experiment,
    a_log,
    build_experiment,
    released,
    rows,
    told,
)
from tests.support.spilling import read_small_pieces

LITTLE = "45KB"
N = 1200
EPSILON = 2.0


def small_pieces() -> None:
    """Read small batches, and sample a run as often as a long one is."""
    sources.BATCH = 150
    runs._SAMPLED = 16


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    read_small_pieces(monkeypatch)


def a_long_log() -> pl.DataFrame:
    """A log whose rows come in no order, one of them faulty."""
    log = pl.concat([a_log(N), rows(("x", "fax", "east", SENTINEL))])
    return log.sample(fraction=1, shuffle=True, seed=1)


def spent(built: Experiment) -> float:
    return Account.of(built.load()).statement().spent.epsilon


def state(built: Experiment) -> list[str]:
    return [entry.state.value for entry in Account.of(built.load()).statement().entries]


def rooms(folder: Path) -> list[Path]:
    """Folders of runs that hold rows."""
    return sorted(folder.rglob(f"{workspace.PREFIX}*"))


# killed

CHILD = """
import json, os, signal, sys
from contextlib import ExitStack
from pathlib import Path
from flows.raw.spill import workspace
from flows.raw.spill import sorted_runs as runs
from flows.raw.reading import sources
from flows.release import release_period
"""
DEATHS = """
small_pieces()
ends = []
for place in json.loads(sys.argv[2]):
    child = os.fork()
    if child == 0:
        left = [place["after"]]
        write = workspace.write_frame

        def write_and_die(frame, folder, name):
            path = write(frame, folder, name)
            left[0] -= name.startswith(place["name"])
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return path

        workspace.write_frame = write_and_die
        release_period(f"{sys.argv[1]}/{place['folder']}/trial.toml")
        os._exit(0)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(ends))
"""
DYING = [("rows-run", 1), ("kept", 1), ("kept", 4), ("levels", 2)]
HASHING = [("hashed-run", 1), ("hashed-run", 3)]
KILLED = [f"{name} {after}" for name, after in [*DYING, *HASHING]]
ACTS: dict[str, Callable[[Experiment], Any]] = {
    "release": Experiment.run,
    "check": Experiment.check,
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Experiment]:
    """Runs that were killed right after they had put so many files of a name aside."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "key").write_bytes(b"k" * 32)
    hashed = {"unit_id": "keyed-hash", "key_file": str(folder / "key")}
    built, places = {}, []
    for name, after in [*DYING, *HASHING]:
        own = folder / f"{name}-{after}"
        built[f"{name} {after}"] = build_experiment(
            own,
            a_long_log(),
            run={"memory_limit": LITTLE, "spill_directory": "spill"},
            publish=hashed if name == "hashed-run" else {},
            privacy={"epsilon": EPSILON, "budget_epsilon": EPSILON},
        )
        places.append({"folder": own.name, "name": name, "after": after})
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            CHILD + inspect.getsource(small_pieces) + DEATHS,
            folder,
            json.dumps(places),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout.splitlines()[-1])
    assert ends == [-signal.SIGKILL] * len(places), done.stderr
    return built


@pytest.mark.parametrize("place", KILLED)
def test_what_a_killed_run_put_aside_is_removed_by_the_next(
    killed: dict[str, Experiment], place: str
) -> None:
    built = killed[place]
    (left,) = rooms(built.folder)
    assert left.parent == built.folder / "spill"
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in left.iterdir()} == {0o600}
    assert list(left.glob("*.arrow"))
    assert list(built.releases.glob("*.duckdb")) == []
    is_charged = place.startswith(("levels", "hashed"))
    assert state(built) == (["reserved"] if is_charged else [])
    assert spent(built) == (EPSILON if is_charged else 0)

    if place.endswith("1"):  # the next may be a dry run
        built.check()
        assert rooms(built.folder) == []
        assert not left.exists()
    assert built.run().status == "published"  # for which the budget has room once
    assert rooms(built.folder) == []
    assert spent(built) == EPSILON
    assert state(built)[-1] == "published"
    assert released(built.releases / "latest.duckdb", "units").height == N
    assert [path.name for path in built.releases.iterdir() if path.name[0] == "."] == []


# without space


_MOUNTED = """
mount -t tmpfs -o "size=$1,mode=0755" tmpfs "$2" && echo mounted
read -r end
umount -l "$2"
"""
"""It stays until this process's end of the pipe is closed, kill -9 included."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Gives a function that makes a disk of a size."""
    with ExitStack() as mounted:

        def of(size: str) -> Path:
            place = Path(tempfile.mkdtemp(prefix="disk-", dir=tmp_path))
            if os.geteuid() != 0:
                pytest.skip("only root can mount a small disk")
            keeper = mounted.enter_context(
                subprocess.Popen(
                    ["sh", "-c", _MOUNTED, "sh", size, place],  # noqa: S607
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            assert keeper.stdout
            if keeper.stdout.readline() != b"mounted\n":
                pytest.skip("a small disk cannot be mounted here")
            return place

        yield of


Disk = Callable[[str], Path]


def fill(place: Path, free: int) -> Path:
    """Fill a disk up to so many free bytes."""
    found = os.statvfs(place)
    filler = place / "filler"
    filler.write_bytes(b"\0" * max(found.f_bavail * found.f_frsize - free, 0))
    return filler


def failure(built: Experiment) -> ClusterdpError:
    """The plain error that a run ends in; it says nothing of anybody."""
    with pytest.raises(ClusterdpError) as caught:
        built.run()
    assert str(SENTINEL) not in told(caught.value)
    assert "c00" not in told(caught.value)
    return caught.value


def on(build: Callable[..., Experiment], place: Path, **sections: Any) -> Experiment:
    run = {"memory_limit": LITTLE, "spill_directory": str(place)}
    return build(a_long_log(), **{"run": run, "privacy": {"epsilon": EPSILON}, **sections})


@pytest.mark.parametrize(
    ("act", "free"), [("release", 0), ("release", 32768), ("check", 0), ("check", 8192)]
)
def test_without_space_to_put_rows_aside_nothing_is_charged(
    experiment: Builder, disk: Disk, free: int, act: str
) -> None:
    place = disk("1m")
    built = on(experiment, place)
    before = built.entries
    filler = fill(place, free)
    with pytest.raises(ClusterdpError) as caught:
        ACTS[act](built)
    assert str(SENTINEL) not in told(caught.value)
    message = str(caught.value)
    assert message.startswith(f"{place}: cannot ")
    assert "no space left" in message.lower()
    assert "\n" not in message
    if free:
        assert caught.value.exit_code == 1
        assert "run.memory_limit" in message
        assert "run.spill_directory" in message
    assert list(place.iterdir()) == [filler]
    assert built.entries == before
    filler.unlink()
    assert built.run().status == "published"
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("unit_id", ["plain", "keyed-hash"])
def test_where_space_runs_out_after_the_charge_it_is_given_back(
    experiment: Builder,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    unit_id: str,
) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    key_file = str(tmp_path / "key") if unit_id == "keyed-hash" else None
    place = disk("1m")
    built = on(experiment, place, publish={"unit_id": unit_id, "key_file": key_file})

    def fill_then_set_aside(*given: Any) -> None:
        # Levels, an integer each, still have space; texts have not.
        fill(place, 80_000 if unit_id == "keyed-hash" else 0)
        write_quarantine(*given)

    monkeypatch.setattr("flows.release.write_quarantine", fill_then_set_aside)
    assert str(failure(built)).startswith(f"{place}: cannot write rows here")
    assert state(built) == ["void"]
    assert spent(built) == 0
    assert [path.name for path in place.iterdir()] == ["filler"]
    assert not built.releases.exists()
    monkeypatch.undo()
    (place / "filler").unlink()
    assert built.run().status == "published"
    assert spent(built) == EPSILON


def test_without_space_for_the_quarantine_the_charge_is_given_back(
    experiment: Builder, disk: Disk
) -> None:
    place = disk("1m")
    faulty = pl.concat([a_log(60), pl.concat([rows(("x", "fax", "east", SENTINEL))] * 3000)])
    built = experiment(
        faulty, quarantine={"directory": str(place / "aside")}, privacy={"epsilon": EPSILON}
    )
    built.check()
    (place / "aside").mkdir()
    filler = fill(place, 12_288)  # for the key of the digests
    message = str(failure(built))
    assert message.startswith(f"{place}/aside/trial/trial.once.r1.parquet: cannot keep the rows")
    assert "No space left" in message
    assert state(built) == ["void"]
    assert not built.releases.exists()
    assert [path.name for path in (place / "aside").rglob("*")] == ["trial", "digest.key"]
    filler.unlink()
    assert built.run().status == "published"
    assert pl.read_parquet(place / "aside/trial/trial.once.r1.parquet").height == 3000


def tried(built: Experiment) -> ReleaseResult | ClusterdpError:
    """What a run comes to."""
    try:
        return built.run()
    except ClusterdpError as error:
        return error


def test_a_release_that_does_not_fit_on_its_disk_is_not_half_published(
    experiment: Builder, disk: Disk
) -> None:
    """Runs with a little more space each, until there is enough: none leaves anything half."""
    place = disk("16m")
    built = experiment(
        a_log(N), publish={"directory": str(place / "releases")}, privacy={"epsilon": EPSILON}
    )
    failed = 0
    for free in range(0, 16 << 20, 384 << 10):
        filler = fill(place, free)
        result = tried(built)
        if not isinstance(result, ClusterdpError):
            break
        failed += 1
        assert str(place / "releases") in str(result)
        assert "\n" not in str(result)
        assert list(place.iterdir()) == [filler]
        assert set(state(built)) <= {"void"}
        assert spent(built) == 0
        filler.unlink()
    assert failed > 4
    assert not isinstance(result, ClusterdpError)
    filler.unlink()
    assert result.status == "published"
    assert released(result.path, "units").height == N
    assert released(result.path, "estimates").height >= 1
    assert released(result.path, "FROM ate()").height >= 1
    assert spent(built) == EPSILON
    assert built.run().status == "unchanged"
