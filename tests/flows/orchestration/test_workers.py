"""Releases whose parts are shared out to Dask's workers: real processes.

False alarms of a run of this file: one χ² test at 1e-6. As starting processes takes seconds, most
tests share two workers; one starts its own as a release does, and one has somebody else's.
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
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
from dask import config as dask_settings
from distributed.scheduler import KilledWorker
from distributed.security import Security
from numpy.typing import NDArray
from scipy.stats import chi2

from flows.cli.main import run
from flows.config.resolve import resolve_release
from flows.deployed import release
from flows.ledger.account import Account
from flows.orchestration import workers as sharing
from flows.orchestration.workers import Workers, started_workers
from flows.raw.drawing.strata_counts import StrataCounter, count_part
from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.spill import workspace as sharing_module
from flows.raw.spill.sorted_runs import Stored
from flows.raw.spill.workspace import check_folder_usable, each, open_workspace
from flows.raw.units.private_clusters import known_sizes
from flows.raw.validate import validate
from flows.released.file.read import read_release
from schemas.errors import ClusterdpError, ConfigError, InputError, StepError
from schemas.names import ReleaseName
from tests.boundary.canary import leaks_into
from tests.boundary.planted import Planted, plant, plant_events
from tests.boundary.watched import Watch
from tests.conftest import (
    EXACT,
    Builder,
    Experiment,
    a_log,
    build_experiment,
    made_units,
    released,
    told,
)
from tests.flows.raw.spill.test_out_of_core import (
    EVENTS,
    FIRST,
    FORMATS,
    PUBLIC,
    Log,
    Made,
    as_integers,
    as_text,
    assert_alike,
    assert_first_ones,
    exposed,
    faulty,
    first_ones,
    in_files,
    made,
    with_facts,
)
from tests.flows.raw.units.test_private_clusters import KEPT, private
from tests.support.distances import assert_p_value
from tests.support.modes import mode

pytestmark = pytest.mark.process

N_UNITS = 100_000
"""Rows are cut into parts by every 1024th unit, so that there are several parts of these."""

FALSE_ALARM = 1e-6
TWO = {"workers": 2}
Process = subprocess.Popen[bytes]

PATIENCE = 600.0  # seconds after which a test counts as stuck


# workers, and what is seen of their work


class Seen:
    """Listens to work that is shared out: what goes over the wire, and what lies in the folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin to listen."""
        self.sent: list[bytes] = []
        self.back: list[bytes] = []
        self.n_tasks: dict[str, int] = {}
        self.modes: set[tuple[str, int]] = set()
        self.before: Callable[[Workers, Path, str], None] = lambda *_: None
        each_of = Workers.each

        def listening(workers: Workers, tasks: Sequence[Any]) -> Iterator[Any]:
            name, folder = repr(tasks[0]), Path(tasks[0].folder)
            self.sent.append(pickle.dumps(tasks))
            self.n_tasks[name] = len(tasks)
            self.before(workers, folder, name)
            return self._heard(each_of(workers, tasks), folder)

        monkeypatch.setattr(Workers, "each", listening)

    def _heard(self, results: Iterator[Any], folder: Path) -> Iterator[Any]:
        for result in results:
            self.back.append(pickle.dumps(result))
            self.modes |= {(file.suffix, mode(file)) for file in folder.glob("*.*")}
            self.modes.add(("folder", mode(folder)))
            yield result

    def leaks(self, planted: Planted) -> list[str]:
        """The secrets that went over the wire."""
        wire = (*self.sent, *self.back)
        return [one.name for one in planted.secrets if any(map(one.is_in, map(spelt, wire)))]


def spelt(wire: bytes) -> bytes:
    """What was sent, with the numbers in it as text."""
    return wire + repr(pickle.loads(wire)).encode()  # noqa: S301 - made above


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with started_workers(2, tmp_path_factory.mktemp("scratch")) as workers:
        yield workers


@pytest.fixture
def shared(two_workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Workers:
    """Runs with ``workers = 2`` have these instead of two of their own."""

    @contextmanager
    def these(number: int, folder: Path) -> Iterator[Workers]:
        assert number == two_workers.number
        assert mode(folder) == 0o700
        yield two_workers

    monkeypatch.setattr("flows.raw.spill.workspace.started_workers", these)
    return two_workers


def client_of(workers: Workers) -> Any:
    return workers._starting.result()


def nothing_is_left(built: Experiment) -> bool:
    return not [entry for entry in built.entries if ".spill-" in entry or "dask" in entry]


def charges(built: Experiment) -> list[float]:
    """What is spent, and on how many releases."""
    statement = Account.of(built.load()).statement()
    return [statement.spent.epsilon, statement.as_json()["n_releases"]]


# the same release


@pytest.fixture
def both(tmp_path: Path, shared: Workers) -> Callable[..., tuple[Made, Made]]:
    """Gives a function that releases one log by one process, and again by workers."""

    def release_both(log: Log, file: str, **sections: Any) -> tuple[Made, Made]:
        folder = tmp_path / "experiment"
        sections = {"privacy": EXACT, **sections}
        alone = made(build_experiment(folder, log, file, **sections))
        by_workers = build_experiment(folder, log, file, **sections, run=TWO)
        assert by_workers.run().status == "unchanged"  # who works on it is no part of a release
        return alone, made(by_workers, revise=True)

    return release_both


def mixed(log: pl.DataFrame) -> Log:
    """The rows in files of all formats, some of several row groups."""
    size = log.height // 5
    endings = ("parquet", "csv", "jsonl", "csv.gz", "parquet")
    return {f"logs/{i}.{end}": log[i * size : (i + 1) * size] for i, end in enumerate(endings)}


@pytest.mark.parametrize("name", [*FORMATS, "formats mixed", "one file"])
def test_workers_make_the_release_that_one_process_makes(
    both: Callable[..., tuple[Made, Made]], tmp_path: Path, seen: Seen, name: str
) -> None:
    """Units, order, outcomes (as parameters are exact ones), roster, digests and quarantine."""
    kind, ending, unit_id = FORMATS.get(name, (as_text, "*", "plain"))
    publish: dict[str, Any] = {"unit_id": unit_id}
    if unit_id == "keyed-hash":
        (tmp_path / "key").write_bytes(b"k" * 32)
        publish["key_file"] = str(tmp_path / "key")
    log = faulty(kind(a_log(3000)))
    files = mixed(log) if ending == "*" else in_files(log, ending)
    if name == "one file":
        files = {"logs/one.parquet": log}
    alone, by_workers = both(files, f"logs/*.{ending}", publish=publish)
    assert_alike(alone, by_workers)
    assert alone.roster.quarantined > 300
    drawing = {"hash_part", "draw_range"} if unit_id == "keyed-hash" else {"draw_part"}
    assert set(seen.n_tasks) == {"read_share", "judge_range", "count_part", *drawing}


@pytest.mark.parametrize("ids", ["plain", "keyed-hash"])
def test_workers_take_the_first_row_of_a_unit_as_one_process_does(
    both: Callable[..., tuple[Made, Made]], tmp_path: Path, ids: str
) -> None:
    """Whatever the formats, and whoever has read which file."""
    (tmp_path / "key").write_bytes(b"k" * 32)
    publish = {"unit_id": ids, "key_file": str(tmp_path / "key") if ids != "plain" else None}
    files = mixed(faulty(a_log(3000)))
    alone, by_workers = both(files, "logs/*", publish=publish, **FIRST)
    assert_alike(alone, by_workers)
    if ids == "plain":
        assert_first_ones(alone, files)
    else:
        outcomes = alone.tables["units"]["outcome_randomised"].sort()
        assert outcomes.equals(first_ones(files)["clicks"].sort(), check_names=False)


@pytest.mark.parametrize(("kind", "aggregate"), [(as_text, "count"), (as_integers, "sum")])
def test_workers_attribute_events_as_one_process_does(
    both: Callable[..., tuple[Made, Made]],
    seen: Seen,
    kind: Callable[[pl.DataFrame], pl.DataFrame],
    aggregate: str,
) -> None:
    outcome = {"aggregate": aggregate, "cap": 3.0 if aggregate == "sum" else None}
    assert_alike(*both(exposed(kind), "logs/*.parquet", **EVENTS, outcome=outcome))
    assert seen.n_tasks["read_share_of_events"] == 8


@pytest.mark.parametrize("ids", ["plain", "keyed-hash"])
def test_workers_pass_public_facts_on(
    both: Callable[..., tuple[Made, Made]], tmp_path: Path, seen: Seen, ids: str
) -> None:
    publish: dict[str, Any] = {"unit_id": ids}
    if ids == "keyed-hash":
        (tmp_path / "key").write_bytes(b"k" * 32)
        publish["key_file"] = str(tmp_path / "key")
    log = in_files(with_facts(faulty(a_log(3000))), "parquet")
    alone, by_workers = both(log, "logs/*.parquet", columns=PUBLIC, publish=publish)
    assert_alike(alone, by_workers)
    assert alone.roster.quarantined_by_rule["assigned_arms"] > 0
    assert alone.tables["units"].columns[7:] == [*PUBLIC["attributes"], "assigned_to"]
    # The keys of what was randomised stay with who publishes.
    secret = (tmp_path / "experiment" / "account.key").read_bytes()
    made_of_it = hmac.digest(secret, b"assigned\0trial", "sha256")
    wire = b"".join((*seen.sent, *seen.back))
    assert secret not in wire
    assert made_of_it not in wire


def test_workers_count_changed_facts_of_events(both: Callable[..., tuple[Made, Made]]) -> None:
    log = {
        name: with_facts(frame) if name.startswith("logs/") else frame
        for name, frame in exposed(as_text).items()
    }
    columns = {**EVENTS["columns"], "attributes": PUBLIC["attributes"]}
    sections = {**EVENTS, "columns": columns, "outcome": {"aggregate": "count"}}
    alone, by_workers = both(log, "logs/*.parquet", **sections)
    assert_alike(alone, by_workers)
    assert (by_workers.roster.attribute_changed or 0) > 100


def test_the_layout_of_a_file_says_nothing_of_parts(
    both: Callable[..., tuple[Made, Made]], tmp_path: Path, seen: Seen
) -> None:
    """More rows than DuckDB is given at once (491,520), cut elsewhere by workers."""
    n_rows = 620_000
    row = np.arange(n_rows)
    log = pl.DataFrame(
        {
            "customer": row * 7919 % 1_100_009,
            "variant": pl.Series(["none", "mail"]).gather(row % 2),
            "region": pl.Series(["east", "west"]).gather(row // 2 % 2),
            "clicks": (row * 7919 % 101 % 4).astype(float),
        }
    )
    alone, by_workers = both({"log.parquet": log}, "log.parquet")
    assert alone.public == by_workers.public
    one, other = (made.tables["units"].sort("unit_id") for made in (alone, by_workers))
    assert one.equals(other)
    assert seen.n_tasks["draw_part"] == 8
    layouts = [
        released(
            path,
            "SELECT column_name, row_group_id, segment_id, start, count "
            f"FROM pragma_storage_info('{read_release(path).manifest.own_schema}.drawn') "
            "ORDER BY ALL",
        )
        for path in sorted((tmp_path / "experiment/releases/trial").glob("trial.*.duckdb"))
    ]
    assert len(layouts) == 2
    assert layouts[0]["row_group_id"].n_unique() == 6
    places = ["column_name", "row_group_id", "start", "count"]
    one, other = (
        layout.filter(pl.col("column_name") == "unit_id").select(places) for layout in layouts
    )
    assert one.equals(other)


@pytest.mark.parametrize("unit_id", ["plain", "keyed-hash"])
def test_workers_draw_every_one_of_several_outcomes(
    experiment: Builder, shared: Workers, seen: Seen, unit_id: str
) -> None:
    log = a_log(3000).with_columns(more=3.0 - pl.col("clicks"))
    publish: dict[str, Any] = {"unit_id": unit_id}
    if unit_id == "keyed-hash":
        publish["key_file"] = "key"
    names = ("clicks", "more")
    built = experiment(
        in_files(log, "parquet"),
        "logs/*.parquet",
        outcome=None,
        outcomes=[{"name": name, "column": name, "values": [0, 1, 2, 3]} for name in names],
        columns={"outcome": None},
        privacy=EXACT,
        publish=publish,
        run=TWO,
    )
    (built.folder / "key").write_bytes(b"k" * 32)
    config = built.load()
    with open_workspace(config.spill) as workspace:
        rows, _, _ = validate(config.log_facts, ingest(config.log_source, "once"), workspace)
        chosen = resolve_release(config, known_sizes(config.log_facts, rows))
        name = ReleaseName("trial", "once", 1)
        units = made_units(privatize(chosen.config, rows, chosen.designs, name, workspace))
    units = units.rename({f"{name}_randomised": name for name in names})
    assert seen.n_tasks["count_part"] > 2
    if unit_id == "plain":
        assert units.select(names).equals(log.select(names))
    assert (units["clicks"] + units["more"]).to_list() == [3.0] * 3000
    assert sorted(units["clicks"]) == sorted(log["clicks"])


def test_private_clusters_are_randomised_by_workers(
    experiment: Builder, shared: Workers, seen: Seen
) -> None:
    """At a price at which labels stay as they are; what is counted raw is told to nobody."""
    log = a_log(3000)
    sections = private(KEPT, None, privacy=dict(EXACT))
    built = experiment(in_files(log, "parquet"), "logs/*.parquet", **sections, run=TWO)
    units = released(built.run().path, "units")
    assert seen.n_tasks["randomise_part"] > 1
    assert units["unit_id"].to_list() == log["customer"].to_list()
    assert units["cluster"].to_list() == log["region"].to_list()
    assert units["outcome_randomised"].to_list() == log["clicks"].to_list()


def test_what_publishes_no_units_counts_by_workers(
    experiment: Builder, shared: Workers, seen: Seen
) -> None:
    log = a_log(3000)
    privacy = {"mechanism": "noisy-histogram", "epsilon": 600.0}
    built = experiment(in_files(log, "parquet"), "logs/*.parquet", privacy=privacy, run=TWO)
    found = released(built.run().path, "counts").sort("pool", "arm", "outcome")
    true = log.group_by("region", "variant", "clicks").len().sort("region", "variant", "clicks")
    assert found["noisy_count"].to_list() == true["len"].to_list()
    assert set(seen.n_tasks) == {"read_share", "judge_range", "count_part"}


BROKEN: dict[str, tuple[Log | dict[str, Any], str]] = {
    "two files are": (
        {"logs/0.parquet": a_log(500), "logs/1.csv": "customer,variant\n", "logs/2.jsonl": "{"},
        "1.csv: there is no column",
    ),
    "the last one is": (
        {"logs/0.parquet": a_log(500), "logs/1.parquet": b"PAR1 and no more"},
        "1.parquet: cannot be read as Parquet",
    ),
    "a row is": (
        {"logs/0.csv": a_log(500), "logs/1.jsonl": '{"customer": "a"}\nno\n'},
        "1.jsonl: cannot be read as JSON Lines: line 2 does not parse",
    ),
    "none has a row": ({"logs/0.parquet": a_log(0)}, "the log is empty: no row in"),
    "no arm can be read": (
        {"logs/0.parquet": a_log(500).with_columns(variant=pl.lit(None, pl.String))},
        "columns.arm: no row of",
    ),
    "nothing is left": (
        {"logs/0.parquet": a_log(500).with_columns(variant=pl.lit("fax"))},
        "no row is left: all 500 were set aside",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_log_that_cannot_be_used_is_refused_in_the_same_words(
    experiment: Builder, shared: Workers, name: str
) -> None:
    log, words = BROKEN[name]
    found = []
    for settings in ({}, TWO):
        built = experiment(log, "logs/*", run=settings)
        before = built.entries
        with pytest.raises(InputError) as caught:
            built.run()
        found.append(str(caught.value))
        assert built.entries == before
    assert found[0] == found[1]
    assert words in found[0]


# the same distribution, though workers die


PHASES = {"read_share", "judge_range", "count_part", "hash_part", "draw_range"}
"""What is done by workers."""


def test_lost_workers_change_nothing_of_a_release(
    experiment: Builder, shared: Workers, seen: Seen
) -> None:
    """In each phase one dies when it has done a task, and has not told so."""
    key = b"k" * 32
    log = a_log(N_UNITS)
    built = experiment(
        in_files(log.sample(fraction=1.0, shuffle=True, seed=3), "parquet", 8),
        "logs/*.parquet",
        privacy={"mechanism": "cluster-dp", "epsilon": 2.0, "strata_statistic": "counts"},
        publish={"unit_id": "keyed-hash", "key_file": "ids.key"},
        run=TWO,
    )
    (built.folder / "ids.key").touch(mode=0o600)
    (built.folder / "ids.key").write_bytes(key)
    doomed: dict[str, int] = {}

    def arm(workers: Workers, _: Path, name: str) -> None:
        client = client_of(workers)
        client.wait_for_workers(2)
        victim = sorted(client.scheduler_info(n_workers=2)["workers"])[0]

        def die_when_done() -> int:
            of_task: Any = sharing_module._Task
            call = of_task.__call__

            def dying(task: Any) -> Any:
                found = call(task)
                if repr(task) == name:
                    os.kill(os.getpid(), signal.SIGKILL)
                return found

            of_task.__call__ = dying
            return os.getpid()

        doomed[name] = client.run(die_when_done, workers=[victim])[victim]

    seen.before = arm
    result = built.run()
    assert set(doomed) == set(seen.n_tasks) == PHASES
    assert not [pid for pid in doomed.values() if Path(f"/proc/{pid}").exists()]
    assert (result.status, result.roster.n_units) == ("published", N_UNITS)
    assert sorted(path.name for path in built.releases.glob("*.duckdb")) == [
        "latest.duckdb",
        "series.duckdb",
        "trial.once.r1.duckdb",
    ]
    assert charges(built) == [2.0, 1]
    assert nothing_is_left(built)

    units = released(result.path, "units")
    hashed = {hmac.digest(key, one.encode(), "sha256").hex(): one for one in log["customer"]}
    assert units["unit_id"].to_list() == sorted(hashed)
    truth = units.with_columns(pl.col("unit_id").replace_strict(hashed).alias("customer")).join(
        log, on="customer", maintain_order="left"
    )
    assert (truth["cluster"] == truth["region"]).all()
    assert (truth["arm"] == truth["variant"]).all()
    assert_p_value(p_value(result.path, truth, 1.0), FALSE_ALARM)
    assert p_value(result.path, truth, 1.3) < FALSE_ALARM  # the power of it
    assert p_value(result.path, truth, 0.7) < FALSE_ALARM


def test_a_part_that_kills_every_worker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask gives it up; so do we, in words that say what to do."""
    killed: Any = KilledWorker  # wants the scheduler's own notes
    future = Mock(**{"result.side_effect": killed("draw_part-1", None, 3)})
    monkeypatch.setattr(sharing, "_as_they_end", lambda *_: iter([0]))
    with pytest.raises(ConfigError, match=r"^run\.workers: workers died of the same part again"):
        next(sharing._results([future], Mock()))


def test_a_failure_waits_for_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends first, results and failures come in the order of the tasks."""
    ends = [sharing._Attempt(0), sharing._Attempt(failure=InputError("x")), sharing._Attempt(2)]
    futures = [Mock(**{"result.return_value": end}) for end in ends]
    client = Mock()
    monkeypatch.setattr(sharing, "_as_they_end", lambda *_: iter([1, 0]))
    results = sharing._results(futures, client)
    assert next(results) == 0
    with pytest.raises(InputError, match="x"):
        next(results)
    client.cancel.assert_called_once_with([futures[2]])


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
            [
                rows.filter(pl.col("clicks") == true, pl.col("outcome_randomised") == out).height
                for out in grid
            ]
            for true in grid
        ],
        dtype=float,
    )


# nothing of anybody's outcome elsewhere


def test_no_outcome_leaves_the_private_folder(
    experiment: Builder, watch: Watch, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not over the wire, not to Dask's or Prefect's files, logs and states; umask 0.

    The workers are those that a flow of Prefect's starts, and do without Prefect.
    """
    planted = plant(partial(experiment, run=TWO))
    looked: list[str] = []
    looked_at: list[str] = []

    def look(workers: Workers, folder: Path, name: str) -> None:
        looked_at.append(name)
        if name != "count_part":
            return
        assert len(list(folder.glob("dask-scratch-space/worker-*"))) >= 2
        looked.extend(leaks_into(folder / "dask-scratch-space", *planted.secrets))
        # The search would find it in what must not be sent: the rows of a part.
        part = pl.concat([pl.read_ipc(file) for file in folder.glob("kept-*")])
        assert planted.named("outcome").is_in(pickle.dumps(part.rows()))
        client = client_of(workers)
        listens_to_nobody_else(client)
        # By functions that a worker has: one of ours would bring this file's imports along.
        with_prefect = client.run(eval, "'prefect' in __import__('sys').modules")
        assert set(with_prefect.values()) == {False}
        assert set(client.run(os.getenv, "POLARS_MAX_THREADS").values()) == {"1"}

    seen.before = look
    result = release(str(planted.built.config))
    assert result.roster.n_units == 25
    assert looked_at == ["read_share", "judge_range", "count_part", "hash_part", "draw_range"]
    assert seen.modes == {("folder", 0o700), (".arrow", 0o600)}
    assert looked == []
    assert seen.leaks(planted) == []
    assert watch.leaks(planted, result) == []
    assert nothing_is_left(planted.built)


def test_no_event_goes_over_the_wire(experiment: Builder, shared: Workers, seen: Seen) -> None:
    """Nor how many there are."""
    planted = plant_events(partial(experiment, run=TWO))
    planted.built.run()
    assert "read_share_of_events" in seen.n_tasks
    assert seen.modes == {("folder", 0o700), (".arrow", 0o600)}
    assert seen.leaks(planted) == []


def listens_to_nobody_else(client: Any) -> None:
    """Dask does what anybody tells it to: so it listens on loopback, to who has the keys."""
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


@pytest.mark.usefixtures("shared")
def test_what_fails_on_a_worker_tells_no_row(experiment: Builder, watch: Watch) -> None:
    """By an error of Polars that holds what it could not read, and by a folder not to be seen."""
    planted = plant(partial(experiment, run=TWO))
    canary = planted.named("covariate")
    errors: list[BaseException] = []
    with open_workspace(planted.built.load().spill) as workspace:
        rows = pl.DataFrame(
            {"cluster": [canary.marks[0].decode()], "arm": ["mail"], "outcome": [1.0]}
        )
        part = Stored(1, workspace.write(rows, "kept-0"))
        cells = np.zeros((1, 2), np.uint32)
        counting = StrataCounter((0.0, 1.0), True, ("east",), cells, 1)
        for folder in (workspace.folder, Path("/nowhere")):
            workspace._folder = folder
            with pytest.raises(ClusterdpError) as caught:
                list(each(workspace, count_part, [(counting, part, True)]))
            errors.append(caught.value)
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
            in_files(a_log(N_UNITS), "parquet", 8),
            "logs/*.parquet",
            run={"workers": address, "spill_directory": str(tmp_path / "spill")},
        )

        def kill_one(given: Workers, folder: Path, name: str) -> None:
            client_of(given).wait_for_workers(2 if name in ("read_share", "judge_range") else 1)
            if name == "judge_range":
                Killer(folder, "kept-*.arrow", workers[0].pid).start()

        seen.before = kill_one
        result = built.run()
        assert result.status == "published"
        assert workers[0].wait(PATIENCE) == -signal.SIGKILL
        assert len(released(result.path, "units")) == N_UNITS
        assert charges(built) == [2.0, 1]
        assert not list((tmp_path / "spill").iterdir())

        def kill_all(given: Workers, folder: Path, name: str) -> None:
            if name == "draw_part":
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
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r'run\.workers: install .* extra "distributed" first'):
        built.run()
    assert charges(built) == [0.0, 0]
    assert not list(built.releases.glob("*.duckdb"))
    assert nothing_is_left(built)


def test_a_program_may_start_workers_more_than_once() -> None:
    """Dask's own settings, which its import brings, outlive those of the first time."""
    twice = (
        "from pathlib import Path\n"
        "from flows.orchestration.workers import _dask\n"
        "for _ in range(2):\n"
        "    with _dask(Path('not used')):\n"
        "        from distributed.security import Security\n"
        "        Security()\n"
    )
    subprocess.run([sys.executable, "-c", twice], check=True)


def test_nothing_is_left_in_the_folder_for_temporary_files(
    experiment: Builder, tmp_path: Path
) -> None:
    built = experiment(run=TWO)
    place = tmp_path / "temporary"
    place.mkdir()
    found = subprocess.run(
        [sys.executable, "-m", "flows.cli", "check", str(built.config)],
        env={**os.environ, "TMPDIR": str(place)},
        capture_output=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert not list(place.iterdir())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    check_folder_usable(str(tmp_path))
    with pytest.raises(ConfigError, match=r"run\.spill_directory: a worker cannot use"):
        check_folder_usable(str(tmp_path / "elsewhere"))


def test_no_process_is_left(two_workers: Workers) -> None:
    """After all of the above, but for those that tests share."""
    pids = set(client_of(two_workers).run(os.getpid).values())
    assert {child.pid for child in multiprocessing.active_children()} <= pids
