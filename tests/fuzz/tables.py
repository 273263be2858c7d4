"""Tables that analysts bring beside a release: segments and covariates.

Targets are kinds of ids, of values and of types of columns, each in turn, and each kind of release.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from tests.fuzz.bases import SECTIONS, UNITS
from tests.fuzz.case import ODD, Case, Content, Remade
from tests.fuzz.values import RUBBISH, Draw, turn, turns_of

_NAMES = ("segment", "age", "income", "plan", "unit_id", "outcome", "", "__index__")
_SCALES = (1e308, 1e-308, 1e150, -1e160, float("inf"), 5e-324)

Column = Callable[[int, Draw], list[Any]]


def _each(value: Callable[[int], Any]) -> Column:
    return lambda count, _: [value(one) for one in range(count)]


def _few_texts(count: int, draw: Draw) -> list[Any]:
    chosen = [draw.text() for _ in range(draw.randint(1, 4))]
    return [turn(chosen, one) for one in range(count)]


def _scaled(count: int, draw: Draw) -> list[Any]:
    scale = draw.choice(_SCALES)
    return [scale if one % 2 else -one * scale / 100 for one in range(count)]


VALUES: dict[str, Column] = {
    "three texts": _each(lambda one: f"s{one % 3}"),
    "whole numbers": _each(lambda one: one * 7919 % 101),
    "numbers": _each(lambda one: one * 7919 % 101 / 7),
    "gaps": _each(lambda one: None if one % 5 == 0 else float(one)),
    "no numbers": _each(lambda _: float("nan")),
    "truths": _each(lambda one: one % 2 == 0),
    "a text each": _each(lambda one: f"own{one}"),
    "an outlier": _each(lambda one: 1e9 if one == 3 else float(one % 4)),
    "greatest integers": _each(lambda one: 2**63 - 1 - one),
    "one odd text": lambda count, draw: [draw.choice((draw.text(), None))] * count,
    "few odd texts": _few_texts,
    "huge or tiny": _scaled,
}
"""What stands in a column."""

IDS: dict[str, Column] = {
    "as they are": _each(lambda one: f"c{one:05d}"),
    "numbers": _each(lambda one: one),
    "gaps": _each(lambda one: None if one % 4 == 0 else f"c{one:05d}"),
    "twice each": _each(lambda one: f"c{one // 2:05d}"),
    "odd": lambda n, draw: [draw.text() if one % 9 == 0 else f"c{one:05d}" for one in range(n)],
    "fractions": _each(float),
}

TYPES: tuple[pl.DataType, ...] = (
    *(pl.Categorical(), pl.Float32(), pl.Int8(), pl.UInt64(), pl.Binary(), pl.Date()),
    *(pl.Duration(), pl.Null(), pl.List(pl.Int64()), pl.Decimal(10, 2)),
)
_NOT_IN_CSV = (pl.Binary, pl.Duration, pl.Date)
"""What polars cannot write as text, or not whatever the number: it panics over far dates."""

TARGETS = (
    *(("values", name) for name in VALUES),
    *(("ids", name) for name in IDS),
    *(("type", str(kind)) for kind in TYPES),
    *(("release", name) for name in SECTIONS),
    *(("file", kind) for kind in ("odd", "rubbish", "damaged", "a column less", "nobody", "one")),
)


def _frame(name: str, target: tuple[str, str], draw: Draw) -> pl.DataFrame:
    subject, how = target
    count = {"nobody": 0, "one": 1}.get(how, draw.choice([UNITS, UNITS, UNITS // 2, UNITS + 20]))
    ids = IDS[how] if subject == "ids" else IDS["as they are"]
    values = VALUES[how] if subject == "values" else draw.choice(list(VALUES.values()))
    columns: dict[str, list[Any]] = {"unit_id": ids(count, draw), name: values(count, draw)}
    for _ in range(draw.randrange(3)):
        other = draw.choice((draw.choice(_NAMES), draw.text()))
        columns.setdefault(other, draw.choice(list(VALUES.values()))(count, draw))
    if how == "a column less":
        columns.pop(draw.choice(sorted(columns)))
    frame = pl.DataFrame(columns, strict=False)
    if subject == "type":
        (kind,) = (one for one in TYPES if str(one) == how)
        try:
            return frame.with_columns(
                pl.col(draw.choice(["unit_id", name])).cast(kind, strict=False)
            )
        except pl.exceptions.PolarsError:
            return frame.with_columns(pl.lit(None).cast(kind).alias(name))
    return frame


def _file(name: str, target: tuple[str, str], draw: Draw) -> tuple[str, Content]:
    _, how = target
    if how in ("odd", "rubbish") and target[0] == "file":
        ending = draw.choice(["csv", "parquet", "txt"])
        contents: Sequence[Content] = ODD if how == "odd" else RUBBISH
        return f"table.{ending}", draw.choice(contents)
    frame = _frame(name, target, draw)
    stream = io.BytesIO()
    if draw.one_in(2):
        frame.write_parquet(stream)
        ending = "parquet"
    else:
        flat = [  # not by expressions, which take a name such as ^.*$ for a pattern of names
            column.cast(pl.String, strict=False)
            for column in frame
            if not column.dtype.is_nested() and column.dtype not in _NOT_IN_CSV
        ]
        pl.DataFrame(flat).write_csv(stream, separator=draw.choice([*"," * 9, ";"]))
        ending = "csv"
    content = stream.getvalue()
    return f"table.{ending}", draw.damaged(content) if how == "damaged" else content


def tables(number: int, draw: Draw) -> Case:
    """Estimates by segment of a sound release, or adjusted for covariates, or who benefits."""
    target = turn(TARGETS, number)
    turns = turns_of(number, len(TARGETS))
    asked = turn(
        (("estimate", "--segments"), ("estimate", "--covariates"), ("effects", "--covariates")),
        turns,
    )
    column = "segment" if asked[1] == "--segments" else "age"
    name, content = _file(column, target, draw)
    level = draw.choice([()] * 8 + [("--level", "0.999999999"), ("--level", "1e-300")])
    more = draw.choice([(), ("--json",)])
    base = target[1] if target[0] == "release" else draw.choice(["means", "counts", "plain"])
    metric = ("--metric", "outcome" if base == "plain" else "clicks") * (asked[0] == "effects")
    command = (asked[0], "x.duckdb", asked[1], name, *metric, *level, *more)
    return Case(
        {"x.duckdb": Remade(base), name: content},
        (command,),
        judged=base,
        hits=((": ".join(target), asked[0] + asked[1]),),
    )
