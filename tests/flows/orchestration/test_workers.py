"""Releases whose parts are shared out to Dask's workers: real flow runs, real processes.

False alarms of a run of this file: one χ² test at 1e-6. Runs are few, as each has to start
processes that import all of this; every one is looked at from several sides.
"""

import hmac
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from dask import config as dask_settings
from distributed.security import Security
from numpy.typing import NDArray
from prefect import flow
from scipy.stats import chi2

from flows.cli.main import run
from flows.ledger.account import Account
from flows.orchestration import workers as sharing
from flows.raw.drawing import strata_counts, unit_stream
from flows.raw.drawing.strata_counts import StrataCounter, count_part
from flows.raw.spill.sorted_runs import Stored
from flows.raw.spill.workspace import check_folder_usable, open_workspace
from flows.release import release
from flows.runtime.progress import Progress
from schemas.errors import ClusterdpError, ConfigError, StepError
from tests.boundary.canary import Watch, leaks_into, plant
from tests.conftest import EXACT, Builder, Experiment, a_log, released, told
from tests.support.modes import mode

pytestmark = pytest.mark.slow

N_UNITS = 100_000
"""Rows are cut into parts by every 8192nd unit, so that there are several parts of these."""

FALSE_ALARM = 1e-6
TWO = {"workers": 2}
Process = subprocess.Popen[bytes]

PATIENCE = 600.0  # seconds after which a test counts as stuck


# what is seen of the work while it is shared out


class Seen:
    """Listens to work that is shared out: what goes over the wire, and what lies in the folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin to listen."""
        self.sent: list[bytes] = []
        self.back: list[bytes] = []
        self.n_parts: list[int] = []
        self.modes: set[tuple[str, int]] = set()
        self.scratch: list[Path] = []
        self.progress: list[tuple[str, int]] = []
        self.before: Callable[[Any, Path, str], None] = lambda *_: None
        for module in (strata_counts, unit_stream):
            monkeypatch.setattr(module, "run_on_workers", self._listening)
        progress = self.progress

        class Heard(Progress):
            def advance(self, rows: int) -> None:
                progress.append((self._what, rows))
                super().advance(rows)

        monkeypatch.setattr(sharing, "Progress", Heard)

    def _listening(
        self, runner: Any, function: Any, calls: Sequence[tuple[Any, ...]], **told: Any
    ) -> list[Any]:
        folder = Path(calls[0][-1])
        self.sent.append(pickle.dumps(calls))
        self.n_parts.append(len(calls))
        self.before(runner, folder, function.__name__)
        found = sharing.run_on_workers(runner, function, calls, **told)
        self.back.append(pickle.dumps(found))
        self.modes |= {(file.suffix, mode(file)) for file in folder.glob("*.*")}
        self.modes.add(("folder", mode(folder)))
        self.scratch += folder.rglob("worker-*")
        return found


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


def nothing_is_left(built: Experiment) -> bool:
    return not [entry for entry in built.entries if ".spill-" in entry or "dask" in entry]


def charges(built: Experiment) -> list[float]:
    """What is spent, and on how many releases."""
    statement = Account(built.load()).statement()
    return [statement.spent.epsilon, statement.as_json()["n_releases"]]


# the same release


def test_workers_make_the_release_that_one_process_makes(
    prefect_harness: Path, experiment: Builder, tmp_path: Path, seen: Seen
) -> None:
    """Units, order, strata and, as the parameters are exact ones, outcomes."""
    log = a_log(N_UNITS).sample(fraction=1.0, shuffle=True, seed=3)
    built = experiment(log, privacy=EXACT, run=TWO)
    shared = release(str(built.config))
    assert min(seen.n_parts) >= 4, "too few parts to share out"
    assert len(seen.scratch) >= 2, "the workers' folders are elsewhere"
    assert nothing_is_left(built)
    for what, n_parts in zip(("counting", "randomising"), seen.n_parts, strict=True):
        told_of = [rows for which, rows in seen.progress if which == f"{what} by workers"]
        assert (len(told_of), sum(told_of)) == (n_parts, N_UNITS)

    text = built.config.read_text(encoding="utf-8").replace("workers = 2", "")
    built.config.write_text(text, encoding="utf-8")
    assert built.run().status == "unchanged"  # who works on it is no part of a release
    alone = built.run("alone")
    for table in ("units", "strata", "pools", "outcomes", "debias", "counts"):
        one, other = (released(path, f"FROM main.{table}") for path in (alone.path, shared.path))
        assert one.equals(other), table
    ids = released(shared.path, "units")["unit_id"]
    assert ids.to_list() == sorted(log["customer"])


# the same distribution, though workers die


def test_lost_workers_change_nothing_of_a_release(
    prefect_harness: Path, experiment: Builder, seen: Seen
) -> None:
    """One dies at the first levels that are written, another at the first units."""
    key = b"k" * 32
    built = experiment(
        a_log(N_UNITS),
        privacy={"mechanism": "cluster-dp", "epsilon": 2.0, "strata_statistic": "counts"},
        publish={"unit_id": "keyed-hash", "key_file": "ids.key"},
        run=TWO,
    )
    (built.folder / "ids.key").touch(mode=0o600)
    (built.folder / "ids.key").write_bytes(key)
    killers: list[Killer] = []

    def arm(runner: Any, folder: Path, name: str) -> None:
        names = {"count_part": "levels-*.arrow", "draw_part": "units-*.parquet"}
        pids = runner.client.run(os.getpid)
        killers.append(Killer(folder, names[name], sorted(pids.values())[0]))
        killers[-1].start()

    seen.before = arm
    result = release(str(built.config))
    for killer, n_parts in zip(killers, seen.n_parts, strict=True):
        killer.join(PATIENCE)
        assert killer.n_done is not None, "nobody was killed"
        assert killer.n_done < n_parts, "it was killed when all was done"
    assert (result.status, result.roster.n_units) == ("published", N_UNITS)
    assert sorted(path.name for path in built.releases.glob("*.duckdb")) == [
        "latest.duckdb",
        "trial.once.r1.duckdb",
    ]
    assert charges(built) == [2.0, 1]
    assert nothing_is_left(built)

    units = released(result.path, "units")
    log = a_log(N_UNITS)
    hashed = {hmac.digest(key, one.encode(), "sha256").hex(): one for one in log["customer"]}
    assert units["unit_id"].to_list() == sorted(hashed)
    truth = units.with_columns(pl.col("unit_id").replace_strict(hashed).alias("customer")).join(
        log, on="customer", maintain_order="left"
    )
    assert (truth["cluster"] == truth["region"]).all()
    assert (truth["arm"] == truth["variant"]).all()
    assert p_value(result.path, truth, 1.0) > FALSE_ALARM
    assert p_value(result.path, truth, 1.3) < FALSE_ALARM  # the power of it
    assert p_value(result.path, truth, 0.7) < FALSE_ALARM


class Killer(threading.Thread):
    """Kills a process as soon as a file of a pattern is there."""

    def __init__(self, folder: Path, pattern: str, pid: int) -> None:
        """Lie in wait."""
        super().__init__(daemon=True)
        self._given = folder, pattern, pid
        self.n_done: int | None = None

    def run(self) -> None:
        """Look often."""
        folder, pattern, pid = self._given
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if found := len(list(folder.glob(pattern))):
                os.kill(pid, signal.SIGKILL)
                self.n_done = found
                return
            time.sleep(0.002)


def p_value(path: Path, truth: pl.DataFrame, factor: float) -> float:
    """Pearson's χ² of the released outcomes given the true ones, in every (cluster, arm).

    Expected is Q[y′, y] = (1 − λ) 1{y′ = y} + λ q̃_{y′} with the λ of the file, times ``factor``.
    """
    rate = released(path, "metrics")["resampling_probability"][0] * factor
    statistic, freedom = 0.0, 0
    debias = released(path, "debias")
    for (pool, arm), own in debias.group_by("pool", "arm"):
        prior = own.sort("outcome")["probability"].to_numpy()
        grid = own["outcome"].sort().to_list()
        of_cell = truth.filter(pl.col("cluster") == pool, pl.col("arm") == arm)
        observed = table(of_cell, grid)
        transition = (1 - rate) * np.eye(len(grid)) + rate * prior
        expected = observed.sum(axis=1, keepdims=True) * transition
        statistic += float(((observed - expected) ** 2 / expected).sum())
        freedom += len(grid) * (len(grid) - 1)
    assert freedom == 4 * 12  # clusters × arms, and 4 levels
    return float(chi2.sf(statistic, freedom))


def table(rows: pl.DataFrame, grid: list[float]) -> NDArray[np.float64]:
    """How often each true outcome (row) was released as each (column)."""
    return np.array(
        [
            [rows.filter(pl.col("clicks") == true, pl.col("outcome") == out).height for out in grid]
            for true in grid
        ],
        dtype=float,
    )


# nothing of anybody's outcome elsewhere


def test_no_outcome_leaves_the_private_folder(
    experiment: Builder, watch: Watch, seen: Seen
) -> None:
    """Not over the wire, not to Dask's or Prefect's files, logs and states; umask 0."""
    planted = plant(partial(experiment, run=TWO))
    looked: list[str] = []

    def look(runner: Any, folder: Path, name: str) -> None:
        outside = folder / "dask-scratch-space"
        assert outside.is_dir()
        looked.extend(leaks_into(outside, *planted.secrets))
        # The search would find it in what must not be sent: the rows of a part.
        part = pl.concat([pl.read_ipc(file) for file in folder.glob("kept-*")])
        assert planted.named("outcome").is_in(pickle.dumps(part.rows()))
        listens_to_nobody_else(runner)

    seen.before = look
    result = release(str(planted.built.config))
    assert result.roster.n_units == 25
    assert seen.modes == {("folder", 0o700), (".arrow", 0o600), (".parquet", 0o600)}
    assert looked == []
    for secret in planted.secrets:
        assert not any(secret.is_in(wire) for wire in (*seen.sent, *seen.back)), secret.name
    assert watch.leaks(planted, result) == []


def listens_to_nobody_else(runner: Any) -> None:
    """Dask does what anybody tells it to: so it listens on loopback, to who has the keys."""
    client = runner.client
    assert client.scheduler.address.startswith("tls://")
    assert client.security.require_encryption
    pids = {os.getpid(), *client.run(os.getpid).values()}
    psutil: Any = pytest.importorskip("psutil", reason="Dask brings it")
    sockets = [one for pid in pids for one in psutil.Process(pid).net_connections("inet")]
    listening = [one.laddr for one in sockets if one.status == "LISTEN"]
    assert len(listening) >= 2 * len(pids) - 1
    assert {place.ip for place in listening} == {"127.0.0.1"}
    for place in listening:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{place.port}/json/counts.json", timeout=5),
        ):
            pytest.fail("there is a page to look at")


def test_what_fails_on_a_worker_tells_no_row(experiment: Builder, watch: Watch) -> None:
    """By an error of Polars that holds what it could not read, and by a folder not to be seen."""
    planted = plant(partial(experiment, run=TWO))
    canary = planted.named("covariate")
    config = planted.built.load()
    errors: list[BaseException] = []

    @flow(name="clusterdp-release")
    def failing() -> None:
        with open_workspace(config) as workspace:
            rows = pl.DataFrame(
                {"cluster": [canary.marks[0].decode()], "arm": ["mail"], "outcome": [1.0]}
            )
            part = Stored(1, workspace.write(rows, "kept-0"))
            cells = np.zeros((1, 2), np.uint32)
            counting = StrataCounter((0.0, 1.0), True, ("east",), cells, 1)
            for folder in (str(workspace.folder), "/nowhere"):
                with pytest.raises(ClusterdpError) as caught:
                    sharing.run_on_workers(
                        workspace.runner, count_part, [(counting, part, folder)], what="x", rows=[1]
                    )
                errors.append(caught.value)

    failing()
    assert isinstance(errors[0], StepError)
    assert str(errors[0]).startswith("count_part failed with ")
    assert isinstance(errors[1], ConfigError)
    assert str(errors[1]).startswith("run.spill_directory: a worker cannot use /nowhere; name")
    assert watch.leaks(planted, *map(told, errors)) == []


# workers that somebody else started


@contextmanager
def dask(*arguments: str) -> Iterator[Process]:
    """A process of Dask's own program, which knows nothing of our surroundings."""
    ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
    for what in ("TCP", "CONNECT"):  # Dask's own patience is too short for a busy machine
        ours[f"DASK_DISTRIBUTED__COMM__TIMEOUTS__{what}"] = "600s"
    command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard", "--host", "127.0.0.1"]
    command += ["--protocol", "tls"]
    root = Path(sharing.__file__).parents[1]
    with subprocess.Popen(
        command, env=ours, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, Process, list[Process]]]:
    """A scheduler and two workers; its address, and the processes."""
    known = folder / "scheduler.json"
    keys = write_keys(folder)
    options = ["--tls-ca-file", keys["ca-file"], "--tls-cert", keys["cert"], "--tls-key"]
    options.append(keys["key"])
    first = ["scheduler", "--port", "0", "--scheduler-file", str(known), *options]
    worker = ["worker", "--scheduler-file", str(known), "--nthreads", "1", "--no-nanny", *options]
    worker += ["--local-directory", str(folder)]
    with dask(*first) as scheduler, dask(*worker) as one, dask(*worker) as other:
        deadline = time.monotonic() + PATIENCE
        while not known.exists():
            assert time.monotonic() < deadline, "the scheduler never came up"
            time.sleep(0.1)
        address = json.loads(known.read_text())["address"]
        own = {f"distributed.comm.tls.client.{name}": keys[name] for name in ("cert", "key")}
        with dask_settings.set({"distributed.comm.tls.ca-file": keys["ca-file"], **own}):
            yield address, scheduler, [one, other]


def write_keys(folder: Path) -> dict[str, str]:
    """Keys and certificates for everybody of a cluster; where they lie."""
    made: Any = Security.temporary()  # type: ignore[no-untyped-call] # has no types
    contents = {
        "ca-file": made.tls_ca_file,
        "cert": made.tls_client_cert,
        "key": made.tls_client_key,
    }
    for name, content in contents.items():
        (folder / f"{name}.pem").touch(0o600)
        (folder / f"{name}.pem").write_text(content)
    return {name: str(folder / f"{name}.pem") for name in contents}


def test_a_scheduler_at_an_address(
    prefect_harness: Path,
    experiment: Builder,
    tmp_path: Path,
    seen: Seen,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its workers make a release; one of two is lost, then all of them; then there is none.

    What is waited for is shortened only once there is nobody left to wait for.
    """
    (tmp_path / "spill").mkdir()
    with cluster(tmp_path) as (address, scheduler, workers):
        built = experiment(
            a_log(N_UNITS), run={"workers": address, "spill_directory": str(tmp_path / "spill")}
        )

        def kill_one(runner: Any, folder: Path, name: str) -> None:
            runner.client.wait_for_workers(2 if name == "count_part" else 1, PATIENCE)
            if name == "count_part":
                Killer(folder, "levels-*.arrow", workers[0].pid).start()

        seen.before = kill_one
        result = release(str(built.config))
        assert result.status == "published"
        assert workers[0].wait(PATIENCE) == -signal.SIGKILL
        assert len(released(result.path, "units")) == N_UNITS
        assert charges(built) == [2.0, 1]
        assert not list((tmp_path / "spill").iterdir())

        def kill_all(runner: Any, folder: Path, name: str) -> None:
            workers[1].kill()
            workers[1].wait()
            monkeypatch.setattr(sharing, "_PATIENCE", 1.0)

        seen.before = kill_all
        refused(built, "run.workers: the Dask scheduler has no workers left; start some", capsys)

        monkeypatch.setattr(sharing, "_PATIENCE", PATIENCE)
        look = sharing._as_they_end

        def kill_scheduler(*given: Any) -> Iterator[int]:
            """Everything is sent by now, and nobody is there to do it."""
            scheduler.kill()
            scheduler.wait()
            yield from look(*given)

        seen.before = lambda *_: None
        with monkeypatch.context() as patched:
            patched.setattr(sharing, "_as_they_end", kill_scheduler)
            refused(built, "run.workers: the Dask scheduler went away; run again when", capsys)
        monkeypatch.setattr(sharing, "_CONNECTING", "1s")
        refused(built, f"run.workers: no Dask scheduler answers at '{address}'", capsys)
    assert not list((tmp_path / "spill").iterdir())


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:8786", "127.0.0.1:8786", "localhost", "ws://here:1", "TLS://x:1"]
)
def test_a_scheduler_without_tls_is_refused(
    experiment: Builder, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever reaches one can run code as its workers. Nothing is charged, nothing is left."""
    built = experiment(run={"workers": address})
    with pytest.raises(ConfigError, match=r"^run\.workers: '.*' has to be tls://host:port; wit"):
        built.run()
    assert charges(built) == [0.0, 0]
    assert nothing_is_left(built)


def refused(built: Experiment, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A revision ends by exit code 2 and these words; nothing is published, nothing charged."""
    before = built.files
    capsys.readouterr()
    assert run(["release", str(built.config), "--revise"]) == 2
    assert says in capsys.readouterr().err
    assert charges(built) == [2.0, 1]
    assert built.files == before


def test_without_the_extra(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = experiment(run=TWO)
    monkeypatch.setitem(sys.modules, "prefect_dask.task_runners", None)
    with pytest.raises(ConfigError, match=r'run\.workers: install .* extra "distributed" first'):
        built.run()
    assert charges(built) == [0.0, 0]
    assert not list(built.releases.glob("*.duckdb"))
    assert nothing_is_left(built)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    check_folder_usable(str(tmp_path))
    with pytest.raises(ConfigError, match=r"run\.spill_directory: a worker cannot use"):
        check_folder_usable(str(tmp_path / "elsewhere"))


def test_no_process_is_left() -> None:
    """After all of the above."""
    assert multiprocessing.active_children() == []
