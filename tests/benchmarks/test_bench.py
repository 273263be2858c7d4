"""The harness of `make bench` works, on sizes that say nothing of speed; no test judges a time."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

from tests.benchmarks import bench, data
from tests.benchmarks.case import Case, Contender, Place, parse_size
from tests.benchmarks.cases import QUICK, cases_of
from tests.benchmarks.child import AGGREGATED
from tests.benchmarks.measure import (
    ROOT,
    BenchError,
    Job,
    Run,
    resident_bytes,
)
from tests.benchmarks.results import result_of
from tests.benchmarks.show import text_of
from tests.benchmarks.watch import descendants
from tests.conftest import PATIENCE

A_RUN = Run(
    seconds=2.0,
    processor=3.0,
    process_seconds=9.0,
    peak_bytes=10**9,
    bytes_before=10**8,
    rows=100,
    details={},
)


def test_bench_measures_a_release_beside_its_baselines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, folder = tmp_path / "results", tmp_path / "folder"
    arguments = ["--rounds", "1", "--folder", str(folder)]

    code = bench.main([*arguments, "--results", str(results), "units-2k"])

    shown = capsys.readouterr().out
    assert code == 0, shown
    found = json.loads((results / "results.json").read_text())
    (case,) = found["cases"]
    table, copy, ours = case["contenders"]
    assert case["baseline"] == table["name"] == "DuckDB: ordered CTAS"
    assert (table["ratio"]["median"], found["rounds"]) == (1.0, 1)
    assert ours["ratio"]["median"] == pytest.approx(
        ours["seconds"]["median"] / table["seconds"]["median"]
    )
    for one in (table, copy, ours):
        assert one["rows"] == one["runs"][0]["rows"] == 2_000
        assert one["runs"][0]["seconds"] < one["runs"][0]["process_seconds"]
        assert 0 < one["runs"][0]["processor"] < 100
        assert 10e6 < one["bytes_before"] <= one["peak_bytes"] < 10e9
    assert {"step ingest", "step privatize", "noise"} <= set(ours["runs"][0]["details"])
    assert 0 < ours["noise_share"] < 1
    assert "clusterdp: release" in shown
    assert "| DuckDB: ordered CTAS | 2,000 |" in (results / "results.md").read_text()
    assert (results / "ratios.png").read_bytes().startswith(b"\x89PNG")
    assert list(folder.iterdir()) == []  # input and outputs are gone


def test_a_run_that_fails_or_does_other_work_is_told_and_not_counted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (laplace,) = [case for case in cases_of("draws-1k", Place(tmp_path)) if "laplace" in case.name]
    *_, ours = laplace.contenders

    def failure(contender: Contender) -> str | None:
        case = replace(laplace, contenders=(contender,))
        return bench.measured(case, tmp_path, 1).failure

    assert failure(ours) is None
    assert failure(replace(ours, rows=999)) == (
        "clusterdp: discrete Laplace: 1,000 rows in its result instead of 999"
    )
    assert failure(replace(ours, job=Job("nothing"))) == "nothing: KeyError: 'nothing'"
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]


def test_ratios_compare_within_rounds_and_by_the_row() -> None:
    def run(seconds: float, rows: int = 100) -> Run:
        return replace(A_RUN, seconds=seconds, processor=seconds / 2, rows=rows)

    pair = (Contender("slow", Job(""), 100), Contender("fast", Job(""), 200))
    case = Case("a", "b", pair)
    # The machine gets twice as slow at every round, which ratios do not show.
    rounds = [(run(1.0), run(1.0, 200)), (run(2.0), run(2.0, 200)), (run(4.0), run(6.0, 200))]

    slow, fast = result_of(case, rounds).measured
    whole = result_of(replace(case, per_row=False), rounds).measured[1]

    assert (slow.ratio.median, slow.ratio.least, slow.ratio.greatest) == (1.0, 1.0, 1.0)
    assert (fast.ratio.median, fast.ratio.least, fast.ratio.greatest) == (0.5, 0.5, 0.75)
    assert whole.ratio.median == 1.0
    assert (fast.seconds.median, fast.seconds.greatest) == (2.0, 6.0)
    assert fast.per_row == pytest.approx(1e7)
    assert fast.processor_ratio == fast.ratio
    assert result_of(case, [(run(1.0), run(1.0)), (run(1.05), run(2.0))]).is_quiet
    assert not result_of(case, rounds).is_quiet


def test_memory_is_that_of_all_processes() -> None:
    size = 50_000_000
    holding = f"held = b'x' * {size}; print('ready', flush=True); input()"
    program = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {holding!r}], check=False)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        (grandchild,) = descendants(parent.pid)
        assert resident_bytes(grandchild) > size > resident_bytes(parent.pid) > 0
        assert {parent.pid, grandchild} <= descendants(os.getpid())
        parent.communicate(b"\n")
    assert resident_bytes(grandchild) == resident_bytes(parent.pid) == 0


@pytest.mark.parametrize("kind", ["", "text", "hex"])
def test_unit_ids_are_distinct_and_in_no_order(kind: str) -> None:
    ids = data.scrambled_ids(np.arange(200_000), kind)
    later = data.scrambled_ids(np.arange(100_000_000, 100_200_000), kind)

    assert pl.concat([ids, later]).n_unique() == 400_000
    assert not ids.is_sorted()
    if kind == "hex":
        assert ids.str.contains(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$").all()
    if not kind:
        assert 0 <= min(ids) < 2**55 < 2**61 < max(ids) < 2**62
        up = ids.diff().drop_nulls() > 0
        assert 0.45 < up.cast(pl.Float64).to_numpy().mean() < 0.55


def test_a_log_is_written_in_chunks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "CHUNK", 300)
    log = data.UnitLog(1_000, n_clusters=20, units_per_stratum=25)

    pattern = log.write(tmp_path / "log")
    first = (tmp_path / "log" / "part-0000.parquet").stat().st_mtime_ns
    log.write(tmp_path / "log")

    frame = pl.read_parquet(pattern)
    assert len(list((tmp_path / "log").iterdir())) == 4
    assert (tmp_path / "log" / "part-0000.parquet").stat().st_mtime_ns == first
    assert frame["customer_id"].n_unique() == frame.height == 1_000
    assert frame.group_by("region", "variant").len()["len"].to_list() == [25] * 40


def test_the_aggregation_of_events_counts_from_the_first_exposure(tmp_path: Path) -> None:
    log = data.EventLog(n_units=200, n_events=1_000, n_clusters=5)
    exposures, outcomes = log.write(tmp_path)
    with duckdb.connect() as connection:
        connection.execute(AGGREGATED, [str(exposures), str(outcomes)])
        found = pl.DataFrame(connection.sql("FROM units").to_arrow_table())

    since = pl.read_parquet(exposures).group_by("customer_id").agg(pl.col("ts").min())
    events = pl.read_parquet(outcomes).join(since, on="customer_id", suffix="_first")
    within = events.filter(
        (pl.col("ts") - pl.col("ts_first")).is_between(
            pl.duration(days=0), pl.duration(days=7), closed="left"
        )
    )
    assert (log.n_exposures, pl.read_parquet(exposures).height, events.height) == (300, 300, 700)
    assert found.height == 200
    assert 0 < found["outcome"].sum() == within.height < 700
    expected = dict(within.group_by("customer_id").len().iter_rows())
    assert all(
        expected.get(unit, 0) == count
        for unit, count in found.select("unit_id", "outcome").iter_rows()
    )


def test_every_case_there_is_can_be_asked_for(tmp_path: Path) -> None:
    words = [*QUICK, "units-10m", "units-100m-text", "strata", "events", "estimates", "draws"]
    words += ["workers", "workers-20m-text", "growth", "growth-100m", "growth-strata-10k"]
    for word in words:
        for case in cases_of(word, Place(tmp_path)):
            assert case.contenders[-1].is_ours
            assert not case.baseline.is_ours
            assert bool(case.growth_of) == word.startswith("growth")
    assert parse_size("100m") == 100_000_000
    for word in ("unit", "units-", "units-0", "units-1g", "units-1m-2m", "small-2", "strata-6"):
        with pytest.raises(BenchError, match=r"no case|no size|multiple of 4"):
            list(cases_of(word, Place(tmp_path)))


def test_a_bench_that_is_told_to_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    folder, words = tmp_path / "folder", ["--results", str(tmp_path), "draws-100m"]
    command = [sys.executable, "-m", "tests.benchmarks.bench", "--folder", str(folder), *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as told:
        assert told.stdout is not None
        told.stdout.readline()  # it is about to measure
        deadline = time.monotonic() + PATIENCE
        children: set[int] = set()
        while not any(resident_bytes(child) > 40e6 for child in children):  # well on its way
            assert time.monotonic() < deadline
            time.sleep(0.02)
            children = descendants(told.pid)
        told.terminate()
        assert told.wait(timeout=PATIENCE) == 143
    assert [resident_bytes(child) for child in children] == [0] * len(children)
    assert list(folder.iterdir()) == []


def test_a_flow_is_measured_beside_a_plain_run(tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert bench.main(["--rounds", "1", "--results", str(results), "flow-2k"]) == 0
    (flow,) = json.loads((results / "results.json").read_text())["cases"]
    assert [one["rows"] for one in flow["contenders"]] == [2_000, 2_000]


def test_steps_that_do_nothing_are_measured(tmp_path: Path) -> None:
    """Beside a whole flow, which is run above: this one differs in when its time begins."""
    (small,) = cases_of("small", Place(tmp_path / "data", "1GB"))
    steps, ours = small.contenders
    assert (ours.needs_prefect, ours.job.arguments["from_first_step"]) == (True, False)
    found = bench.measured(replace(small, contenders=(steps,)), tmp_path, 1)
    assert found.failure is None
    assert [[run.rows for run in one.runs] for one in found.measured] == [[7]]


def test_growth_is_plotted(tmp_path: Path) -> None:
    """Of units and of strata, ours beside DuckDB's; nothing of it is among the ratios."""
    results = tmp_path / "results"
    told = ["--rounds", "1", "--results", str(results), "growth-20k", "growth-strata-1k"]
    assert bench.main(told) == 0
    found = json.loads((results / "results.json").read_text())
    assert [[one["name"] for one in case["contenders"]] for case in found["cases"]] == [
        ["DuckDB: 10,000", "clusterdp: 10,000"],
        ["DuckDB: 100", "clusterdp: 100", "DuckDB: 1,000", "clusterdp: 1,000"],
    ]
    assert (results / "growth.png").read_bytes().startswith(b"\x89PNG")
    assert not (results / "ratios.png").exists()


def test_a_case_that_failed_says_why() -> None:
    case = replace(result_of(Case("a", "title", ()), []), failure="no memory")
    assert text_of(case) == "a: title\n  could not be measured: no memory"
