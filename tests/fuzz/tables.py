"""Tables that analysts bring beside a release: segments and covariates."""

import io
from collections.abc import Callable
from typing import Any

import polars as pl
from hypothesis import strategies as st

from tests.fuzz.bases import SECTIONS, UNITS
from tests.fuzz.case import ODD, Case, Content, Remade
from tests.fuzz.values import RUBBISH, damages, some_of, texts

_NAMES = ("segment", "age", "income", "plan", "unit_id", "outcome", "", "__index__")


_COLUMNS: tuple[Callable[[int], Any], ...] = (
    lambda one: f"s{one % 3}",
    lambda one: one * 7919 % 101,
    lambda one: one * 7919 % 101 / 7,
    lambda one: None if one % 5 == 0 else float(one),
    lambda _: float("nan"),
    lambda one: one % 2 == 0,
    lambda one: f"own{one}",
    lambda one: 1e9 if one == 3 else float(one % 4),
    lambda one: 2**63 - 1 - one,
)
"""What stands in a row: numbers, few or many texts, gaps, truths, or worse."""


@st.composite
def _values(draw: st.DrawFn, count: int) -> list[Any]:
    """A column."""
    rows = range(count)
    match draw(st.integers(0, 5)):
        case 0:
            return [draw(st.one_of(texts, st.none()))] * count
        case 1:
            chosen = draw(st.lists(texts, min_size=1, max_size=4))
            return [chosen[one % len(chosen)] for one in rows]
        case 2:
            scale = draw(st.sampled_from([1e308, 1e-308, 1e150, -1e160, float("inf"), 5e-324]))
            return [scale if one % 2 else -one * scale / 100 for one in rows]
    return list(map(draw(st.sampled_from(_COLUMNS)), rows))


_TYPES: tuple[pl.DataType, ...] = (
    *(pl.Categorical(), pl.Float32(), pl.Int8(), pl.UInt64(), pl.Binary(), pl.Date()),
    *(pl.Duration(), pl.Null(), pl.List(pl.Int64()), pl.Decimal(10, 2)),
)
_NOT_IN_CSV = (pl.Binary, pl.Duration, pl.Date)
"""What polars cannot write as text, or not whatever the number: it panics over far dates."""


@st.composite
def _ids(draw: st.DrawFn, count: int) -> list[Any]:
    kind = draw(st.integers(0, 8))
    own: list[Any] = [f"c{one:05d}" for one in range(count)]
    if kind == 0:
        return list(range(count))
    if kind == 1:
        return [None if one % 4 == 0 else own[one] for one in range(count)]
    if kind == 2:
        return [own[one // 2] for one in range(count)]
    if kind == 3:
        return [draw(texts) if one % 9 == 0 else own[one] for one in range(count)]
    if kind == 4:
        return [float(one) for one in range(count)]
    return own


@st.composite
def _frames(draw: st.DrawFn, name: str) -> pl.DataFrame:
    count = draw(st.sampled_from([UNITS, UNITS, UNITS, UNITS // 2, 1, 0, UNITS + 20]))
    columns: dict[str, list[Any]] = {"unit_id": draw(_ids(count)), name: draw(_values(count))}
    for _ in range(draw(st.integers(0, 3))):
        other = draw(st.one_of(st.sampled_from(_NAMES), texts))
        if other not in columns:
            columns[other] = draw(_values(count))
    if draw(st.integers(0, 12)) == 0:
        columns.pop(draw(st.sampled_from(sorted(columns))))
    frame = pl.DataFrame(columns, strict=False)
    if frame.height and draw(st.integers(0, 5)) == 0:
        kind = draw(st.sampled_from(_TYPES))
        chosen = draw(st.sampled_from(frame.columns))
        try:
            frame = frame.with_columns(pl.col(chosen).cast(kind, strict=False))
        except pl.exceptions.PolarsError:
            return frame
    return frame


@st.composite
def _file(draw: st.DrawFn, column: str) -> tuple[str, Content]:
    if draw(st.integers(0, 40)) == 0:
        ending = draw(st.sampled_from(["csv", "parquet", "txt"]))
        return f"table.{ending}", draw(st.one_of(st.sampled_from(ODD), st.sampled_from(RUBBISH)))
    frame = draw(_frames(column))
    stream = io.BytesIO()
    if draw(st.booleans()):
        frame.write_parquet(stream)
        name = "table.parquet"
    else:
        flat = [
            pl.col(one).cast(pl.String, strict=False)
            for one, kind in frame.schema.items()
            if not kind.is_nested() and kind not in _NOT_IN_CSV
        ]
        frame.select(flat).write_csv(stream, separator=draw(st.sampled_from([","] * 9 + [";"])))
        name = "table.csv"
    return name, draw(some_of(damages(), most=2))(stream.getvalue())


@st.composite
def _cases(draw: st.DrawFn, column: str, option: str) -> Case:
    name, content = draw(_file(column))
    level = draw(st.sampled_from([()] * 8 + [("--level", "0.999999999"), ("--level", "1e-300")]))
    more = draw(st.sampled_from([(), ("--json",)]))
    release = Remade(draw(st.sampled_from(sorted(SECTIONS))))
    command = ("estimate", "x.duckdb", option, name, *level, *more)
    return Case({"x.duckdb": release, name: content}, (command,))


def segments() -> st.SearchStrategy[Case]:
    """Estimates by segment of a sound release."""
    return _cases("segment", "--segments")


def covariates() -> st.SearchStrategy[Case]:
    """Estimates of a sound release adjusted for covariates."""
    return _cases("age", "--covariates")
