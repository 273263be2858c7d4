"""Rows that do not fit into memory: each unit's come together, none lost, none twice."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flows.raw.spill import sorted_runs as runs
from flows.raw.spill.sorted_runs import SortedRuns, Stored, parts
from flows.raw.spill.workspace import Workspace

LIMIT = 240_000  # bytes: runs of 30,000, parts of 10,000
N = 6000

Part = list[pl.DataFrame | None]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with ExitStack() as stack:
        yield Workspace(tmp_path / "room", LIMIT, stack)


@pytest.fixture(autouse=True)
def _many_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many samples of a run as a long one has."""
    monkeypatch.setattr(runs, "_SAMPLED", 16)


def frame(units: Any, kind: pl.DataType | None = None) -> pl.DataFrame:
    """Rows of these units, each with a number of its own and a label as logs have them."""
    column = pl.Series("unit", units, dtype=kind)
    number = pl.int_range(len(column), eager=True).alias("number")
    label = ("l" + (number % 3).cast(pl.String)).cast(pl.Categorical).alias("label")
    return pl.DataFrame([column, number, label])


def filled(
    workspace: Workspace | None, rows: pl.DataFrame, name: str = "rows", step: int = 500
) -> SortedRuns:
    """Runs of these rows, as they come so many at a time."""
    found = SortedRuns(workspace, name)
    for start in range(0, rows.height, step):
        found.add(rows[start : start + step])
    return found


def assert_whole(found: list[Part], *logs: pl.DataFrame) -> None:
    """Every row of every log is in one part, all of a unit's in the same, parts in order."""
    for position, log in enumerate(logs):
        pieces = [part[position] for part in found]
        rows = [row for piece in pieces if piece is not None for row in piece.rows()]
        assert Counter(rows) == Counter(log.rows())
    least: Any = None
    for part in found:
        units = [unit for piece in part if piece is not None for unit in piece["unit"]]
        if units:
            keys = [unit.encode() if isinstance(unit, str) else unit for unit in units]
            assert least is None or min(keys) > least
            least = max(keys)


def sizes(found: list[Part], position: int = 0) -> list[int]:
    return [0 if part[position] is None else part[position].height for part in found]  # type: ignore[union-attr]


def shuffled(count: int, distinct: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, distinct, count)


LOGS = {
    "shuffled": shuffled(N, N),
    "sorted": np.sort(shuffled(N, N)),
    "reversed": np.sort(shuffled(N, N))[::-1],
    "few units": shuffled(N, 7),
    "one unit": np.full(N, 5),
    "skewed": np.where(np.arange(N) % 10 == 0, shuffled(N, N), 77),
    "halves of which one is sorted": np.concatenate([np.arange(N // 2), shuffled(N // 2, N)]),
    "far apart": shuffled(N, 2**62) - 2**61,
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("ids", ["text", "integer"])
def test_all_rows_of_a_unit_come_together(workspace: Workspace, name: str, ids: str) -> None:
    units = LOGS[name] if ids == "integer" else [f"customer-{unit}" for unit in LOGS[name]]
    log = frame(units)
    came = filled(workspace, log)
    assert (came.n_rows, came.in_memory) == (N, False)
    found = list(parts([came], workspace))
    assert_whole(found, log)
    if name in ("shuffled", "sorted", "reversed", "far apart"):
        assert len(found) > 10
        fair = N / len(found)
        assert max(sizes(found)) < 3 * fair  # no part is much larger than the others


def test_a_unit_that_is_cut_in_two_is_found(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = frame(LOGS["few units"])
    monkeypatch.setattr(runs, "_place", lambda units, _: len(units) // 2)
    with pytest.raises(AssertionError):
        assert_whole(list(parts([filled(workspace, log)], workspace)), log)


def test_a_unit_that_equals_a_cut_stays_whole(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = frame(np.repeat(np.arange(300), 20))
    monkeypatch.setattr(runs, "_cuts", lambda *_: pl.Series([0, 17, 18, 250, 299]))
    found = list(
        parts([filled(workspace, log[np.random.default_rng(2).permutation(N)])], workspace)
    )
    assert sizes(found) == [0, 17 * 20, 20, 232 * 20, 49 * 20, 20]
    assert_whole(found, log)


def place_right(units: pl.Series, unit: int) -> int:
    return int(units.search_sorted(unit, side="right"))


def test_cuts_on_the_wrong_side_of_a_unit_are_found(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = frame(np.repeat(np.arange(300), 20))
    monkeypatch.setattr(runs, "_cuts", lambda *_: pl.Series([17]))
    monkeypatch.setattr(runs, "_place", place_right)
    assert sizes(list(parts([filled(workspace, log)], workspace))) != [17 * 20, 283 * 20]


@pytest.mark.parametrize("kind", [pl.Int64(), pl.UInt64()])
def test_integers_of_any_size_are_cut(workspace: Workspace, kind: pl.DataType) -> None:
    least = 0 if kind == pl.UInt64 else -(2**63)
    log = frame([least + (2**64 - 1) // N * int(unit) for unit in shuffled(N, N)], kind)
    found = list(parts([filled(workspace, log)], workspace))
    assert len(found) > 10
    assert_whole(found, log)


def test_several_logs_are_cut_alike(workspace: Workspace) -> None:
    exposures, events = frame(shuffled(1500, 900)), frame(shuffled(N, 1200, seed=2))
    nobody = frame([], pl.Int64())
    given_runs = [
        filled(workspace, exposures, "rows"),
        filled(workspace, events, "events"),
        filled(workspace, nobody, "none"),
    ]
    found = list(parts(given_runs, workspace))
    assert len(found) > 10
    assert {len(part) for part in found} == {3}
    assert_whole(found, exposures, events, nobody)
    assert sizes(found, 2) == [0] * len(found)
    assert all(part[2] is None for part in found)


def test_of_several_logs_one_may_lie_in_memory(workspace: Workspace) -> None:
    few, many = frame([3, 1, 2, 1]), frame(shuffled(N, 40))
    together = [filled(workspace, few, "rows"), filled(workspace, many, "events")]
    assert [one.in_memory for one in together] == [True, False]
    assert_whole(list(parts(together, workspace)), few, many)


def test_what_fits_stays_in_memory(workspace: Workspace, tmp_path: Path) -> None:
    log = frame(shuffled(300, 300))
    came = filled(workspace, log, step=50)
    assert came.in_memory
    (part,) = parts([came], workspace)
    assert_whole([part], log)
    assert not (tmp_path / "room").exists()
    assert came.take() is None  # it is held no longer


def test_without_a_room_everything_stays_in_memory() -> None:
    log = frame(shuffled(N, N))
    found = list(parts([filled(None, log)], None))
    assert len(found) == 1
    assert_whole(found, log)


@pytest.mark.parametrize(
    ("units", "least", "expected"),
    [
        ([], 8, [[0]]),
        ([5], 8, [[0, 1]]),  # fewer rows than parts
        ([5, 5, 5], 8, [[0, 3]]),
        (list(range(160)), 1, [[160]]),
        (list(range(160)), 5, [[32] * 5]),
    ],
)
def test_as_many_parts_as_workers_want_where_there_are_so_many(
    workspace: Workspace, units: list[int], least: int, expected: list[list[int]]
) -> None:
    log = frame(units, pl.Int64())
    found = in_ranges(workspace, [log], least)
    assert [sizes(found)] == expected
    assert_whole(found, log)


def in_ranges(workspace: Workspace, logs: list[pl.DataFrame], number: int) -> list[Part]:
    """The rows of each range, as workers get them who were told of runs by others."""
    theirs = Workspace.of_worker(workspace.folder, LIMIT)
    indexes = [
        [filled(theirs, log[::2]).handed_over(), filled(theirs, log[1::2]).handed_over()]
        for log in logs
    ]
    whole = [SortedRuns.of(theirs, some, "rows") for some in indexes]
    assert [one.n_rows for one in whole] == [log.height for log in logs]
    cuts = whole[0].cuts(number)
    ranges = [[one.between(cuts, at) for one in whole] for at in range(len(cuts) + 1)]
    return [part for tables in ranges for part in parts(tables, theirs)]


@pytest.mark.parametrize("number", [1, 2, 7, 40])
@pytest.mark.parametrize("name", LOGS)
def test_ranges_that_workers_are_told_of_hold_every_row_once(
    workspace: Workspace, name: str, number: int
) -> None:
    """Cut by the first of two tables, each handed over by two workers."""
    logs = [frame(LOGS[name]), frame(shuffled(500, N, seed=8))]
    assert_whole(in_ranges(workspace, logs, number), *logs)


def test_rows_of_this_process_are_handed_over_as_they_are(workspace: Workspace) -> None:
    log = frame(shuffled(200, 50))
    came, both = filled(workspace, log), SortedRuns(workspace, "rows")
    for some in (came.handed_over(), filled(workspace, log).handed_over()):
        assert isinstance(some, SortedRuns)
        both.take_over(some)
    assert both.n_rows == 400
    assert_whole(list(parts([both], workspace)), pl.concat([log, log]))


def test_nothing_at_all_is_one_part_of_nothing(workspace: Workspace) -> None:
    assert list(parts([SortedRuns(workspace, "rows")], workspace)) == [[None]]
    empty = SortedRuns(workspace, "rows")
    empty.add(frame([], pl.Int64()))
    assert empty.n_rows == 0
    assert list(parts([empty, SortedRuns(workspace, "events")], workspace)) == [[None, None]]


@pytest.mark.process
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.lists(st.text(st.sampled_from("ab\0é"), max_size=9), max_size=40), max_size=8),
    st.integers(1, 9),
    st.sampled_from([1, 2, 16, 1024]),
)
@example([["a"], ["a"], ["a"]], 3, 1)
@example([["", "a"], ["a\0", ""]], 9, 1)
def test_any_texts_in_any_batches_come_together(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]], least: int, sampled: int
) -> None:
    log = frame([unit for batch in batches for unit in batch], pl.String())
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "_SAMPLED", sampled)
        workspace = Workspace(
            tmp_path_factory.mktemp("room"), 8, stack
        )  # every batch is a run of its own
        came = SortedRuns(workspace, "rows")
        begun = 0
        for batch in batches:
            came.add(log[begun : begun + len(batch)])
            begun += len(batch)
        assert_whole(list(parts([came], workspace)), log)
        assert_whole(in_ranges(workspace, [log], least), log)


def test_rows_are_found_again_wherever_they_lie(workspace: Workspace) -> None:
    log = frame(shuffled(200, 50))
    for stored in (Stored(200, log), Stored(200, workspace.write(log, "some"))):
        assert stored.load().equals(log)
        assert stored.load(30, 40).equals(log[30:70])
        assert stored.load(190, 40).equals(log[190:])
        assert stored.column("label").equals(log["label"])
        assert stored.column("unit", 30, 40).equals(log["unit"][30:70])
