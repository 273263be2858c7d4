"""Who is in which cell of a margin, which values share one, and what is added up of them."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.raw.drawing.margin_cells import Margins, margins_of
from flows.raw.drawing.margin_cells import codes_of as cells_of
from flows.raw.spill.sorted_runs import Stored
from flows.raw.spill.workspace import open_workspace
from flows.raw.units.rows import Rows, counted, rows_of
from schemas.tables import MOST_CELLS
from tests.conftest import Builder, a_log, released

ARMS = ("none", "mail")
N = 400
COUNTRY = [("US", "DE", None, "FR", "IT", "")[unit % 11 % 6] for unit in range(N)]
AGE = [20 + unit % 3 if unit % 50 else None for unit in range(N)]
LOG = pl.DataFrame(
    {
        "unit": [f"u{unit:04}" for unit in range(N)],
        "arm": pl.Series([ARMS[unit // 3 % 2] for unit in range(N)], dtype=pl.Enum(ARMS)),
        "cluster": pl.Series(["all"] * N).cast(pl.Categorical),
        "outcome": [0.0] * N,
        "attribute 0": pl.Series(COUNTRY, dtype=pl.String),
        "attribute 1": pl.Series(AGE, dtype=pl.Int64),
    }
)
COLUMNS = {"country": "attribute 0", "age": "attribute 1"}


def rows_in(frame: pl.DataFrame, cuts: list[int]) -> Rows:
    """The rows in parts that end at these places."""
    ends = [*cuts, frame.height]
    starts = [0, *cuts]
    pieces = [frame[start:end] for start, end in zip(starts, ends, strict=True)]
    parts = [(Stored(one.height, one), counted(one, len(ARMS), None)) for one in pieces]
    return rows_of(parts, ARMS, pl.String())


def codes_of(margins: Margins, margin: int) -> list[int]:
    return [code for part in margins.codes for code in cells_of(part.load())[margin].tolist()]


@pytest.mark.parametrize("cuts", [[], [150], [1, 2, 399]])
def test_every_value_with_enough_units_in_every_arm_is_a_cell(cuts: list[int]) -> None:
    margins = margins_of(rows_in(LOG, cuts), (("country",), ("age", "country")), COLUMNS, 13, None)
    for at, names in enumerate((("country",), ("age", "country"))):
        of_unit = list(LOG.select(COLUMNS[name] for name in names).rows())
        arms = LOG["arm"].to_list()
        units = Counter(zip(of_unit, arms, strict=True))
        large = {value for value in of_unit if min(units[value, arm] for arm in ARMS) >= 13}
        codes = codes_of(margins, at)
        of_values: dict[Any, set[int]] = {}
        for value, code in zip(of_unit, codes, strict=True):
            of_values.setdefault(value, set()).add(code)
        assert all(len(found) == 1 for found in of_values.values())
        cells = margins.cells[at]
        own = {next(iter(of_values[value])) for value in large}
        assert own == set(range(len(large)))
        others = {next(iter(of_values[value])) for value in of_values if value not in large}
        assert others == ({len(large)} if others else set())
        told = {
            ", ".join("(none)" if one is None else str(one) for one in value): value
            for value in large
        }
        for text, value in told.items():
            assert cells.values[next(iter(of_values[value]))] == text
        if others:
            assert cells.values[-1] == f"{len(of_values) - len(large)} other values"
        assert cells.attribute == ", ".join(names)
        counts = np.zeros_like(cells.sizes)
        np.add.at(counts, (np.array(codes), np.array([ARMS.index(arm) for arm in arms])), 1)
        assert np.array_equal(counts, cells.sizes)


def test_one_small_value_alone_keeps_its_name() -> None:
    few = LOG.with_columns(pl.Series("attribute 0", ["few"] * 3 + ["many"] * (N - 3)))
    (cells,) = margins_of(rows_in(few, []), (("country",),), COLUMNS, 10, None).cells
    assert cells.values == ("few", "many")


def test_no_value_is_called_as_none_is() -> None:
    called = pl.Series("attribute 0", [("(none)", None, "((none))", "US")[u % 4] for u in range(N)])
    rows = rows_in(LOG.with_columns(called), [])
    (cells,) = margins_of(rows, (("country",),), COLUMNS, 10, None).cells
    assert cells.values == ("((none))", "(none)", "US", "(((none)))")


def test_a_margin_has_so_many_cells_at_most() -> None:
    """Of more values those stand alone that have the most units in their smallest arm."""
    frame = pl.concat([LOG] * 5).with_columns(
        pl.Series("attribute 1", [unit // 6 % 300 for unit in range(5 * N)]),
        pl.Series("unit", [f"u{unit:04}" for unit in range(5 * N)]),
        pl.Series("arm", [ARMS[unit % 2] for unit in range(5 * N)], dtype=pl.Enum(ARMS)),
    )
    (cells,) = margins_of(rows_in(frame, []), (("age",),), COLUMNS, 1, None).cells
    assert len(cells.values) == MOST_CELLS
    assert cells.values[-1] == f"{300 - MOST_CELLS + 1} other values"
    assert cells.sizes[:-1].min() >= 3


def test_kinds_of_values_do_not_matter() -> None:
    kinds: dict[str, Any] = {
        "zeros": pl.Series([(0.0, -0.0, 1.5, None)[unit % 4] for unit in range(N)]),
        "dates": pl.Series([(unit % 2) for unit in range(N)]).cast(pl.Date),
        "truth": pl.Series([unit % 2 == 0 for unit in range(N)]),
        "large": pl.Series([2**63 + unit % 2 for unit in range(N)], dtype=pl.UInt64),
        "nothing": pl.Series([None] * N, dtype=pl.String),
    }
    sizes = {"zeros": 3, "dates": 2, "truth": 2, "large": 2, "nothing": 1}
    for name, column in kinds.items():
        frame = LOG.with_columns(column.alias("attribute 0"))
        margins = margins_of(rows_in(frame, [7]), (("country",),), COLUMNS, 1, None)
        assert len(margins.cells[0].values) == sizes[name]
        assert len(set(codes_of(margins, 0))) == sizes[name]


def test_rows_in_files_are_numbered_as_those_in_memory(experiment: Builder) -> None:
    config = experiment(LOG.select(pl.all().exclude("unit"))).load()
    with open_workspace(config.spill) as workspace:
        rows = rows_in(LOG, [100, 250])
        spilled = Rows(
            tuple(Stored(one.n_rows, workspace.write(one.load(), "rows")) for one in rows.parts),
            rows.unit_type,
            rows.arms,
            rows.clusters,
            rows.sizes,
        )
        margins = (("country", "age"), ("age",))
        there = margins_of(spilled, margins, COLUMNS, 5, workspace)
        assert all(isinstance(one.place, Path) for one in there.codes)
        here = margins_of(rows, margins, COLUMNS, 5, None)
        for at in range(2):
            assert codes_of(there, at) == codes_of(here, at)
            assert there.cells[at].values == here.cells[at].values


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_release_has_the_sums_of_its_units_but_for_their_noise(
    experiment: Builder, rounding: str
) -> None:
    """At ε = 600 noise is 0 but for one release in 10⁹, so sums are those of the log."""
    log = a_log(300).with_columns(
        country=pl.Series([("US", "DE", None)[unit % 3] for unit in range(300)]),
        age=pl.Series([20 + unit // 4 % 2 for unit in range(300)]),
    )
    path = (
        experiment(
            log,
            columns={"attributes": ["country", "age"]},
            outcome={"values": [0, 1, 2, 3], "rounding": rounding},
            privacy={
                "mechanism": "uniform-prior-dp",
                "epsilon": 600.0,
                "margins": ["age", ["country", "age"]],
            },
        )
        .run()
        .path
    )
    found = released(path, "SELECT margin, value, arm, n_units, noisy_sum FROM margins")
    for margin, names in enumerate((["age"], ["country", "age"])):
        label = pl.concat_str(
            [pl.col(name).cast(pl.String).fill_null("(none)") for name in names], separator=", "
        )
        expected = log.group_by(label.alias("value"), arm="variant").agg(
            n_units=pl.len().cast(pl.Int64), noisy_sum=pl.col("clicks").cast(pl.Float64).sum()
        )
        ours = found.filter(pl.col("margin") == margin).drop("margin")
        assert (
            ours.sort("value", "arm").rows()
            == expected.select(ours.columns).sort("value", "arm").rows()
        )
