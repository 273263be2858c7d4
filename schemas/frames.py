"""Pandera's models of what is published: each made from the facts of its table, and held to them.

Columns in their order and of their types, none missing where none may be, numbers that are numbers
and within the range that their name says, labels that are not empty, rows that have to add up. What
passes the boundary is judged before its draft becomes public; rows of the log inside it are judged
by :mod:`schemas.raw_frame`.

Apart from the facts, since pandera brings pandas, which takes a second: who only reads files does
without. Errors name table, column, rule and how many rows break it, never a value.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import pandera.polars as pa
import polars as pl
from pandera.errors import SchemaErrors

from schemas.errors import InputError
from schemas.released import no_rows
from schemas.tables import NUMBER, SCHEMA, STRATUM, Column, randomised

if TYPE_CHECKING:
    import pyarrow

Range = tuple[float, float]
Rules = Mapping[str, pl.Expr]
"""What holds of every row, by its name: expressions of truth values."""

RANGES: Mapping[str, Range] = {
    "probability": (0.0, 1.0), "p_value": (0.0, 1.0), "p_value_holm": (0.0, 1.0),
    "sample_ratio_p": (0.0, 1.0), "coverage": (0.0, 1.0), "confidence_level": (0.0, 1.0),
    "delta": (0.0, 1.0), "computed_delta": (0.0, 1.0), "resampling_probability": (0.0, 1.0),
    "truncation_threshold": (0.0, 1.0),
    "revision": (1.0, float("inf")), "table": (0.0, float("inf")),
}  # fmt: skip
"""Between which numbers values of a column lie, by its name, in every table that has it."""

_FROM_0 = ("n_", "epsilon", "std_error", "noise_scale", "margin", "rows_each")
"""What else begins, or ends, so is 0 or more."""

_LABELS = ("cluster", "arm", "pool", "metric")
"""Text, or an ENUM of it; never empty."""

_WITHIN_ROUNDING = 1e-9


@dataclass(frozen=True)
class Model:
    """A table's model: as it is held to, at once, and as pandera has it, to say what breaks."""

    columns: Mapping[str, Any]
    """The type of each; None: of any."""
    every: pl.Expr
    """Whether every rule holds of all rows."""
    schema: pa.DataFrameSchema

    @classmethod
    def of(cls, columns: dict[str, Any], rules: Rules) -> "Model":
        """The model of a frame with ``columns`` of these types (None: of any), and its rules."""
        of_type = {name: pa.Column(kind, nullable=True) for name, kind in columns.items()}
        checks = [_check(rule, name) for name, rule in rules.items()]
        schema = pa.DataFrameSchema(of_type, checks=checks, strict=True, ordered=True)
        return cls(columns, pl.all_horizontal([rule.all() for rule in rules.values()]), schema)

    def broken(self, frame: pl.DataFrame) -> str:
        """What the rows of a frame break, without a value: rules, and in how many rows; else ''.

        Pandera, which takes four times as long, is asked where not all is as it should be.
        """
        kinds, wanted = frame.schema, self.columns
        fits = [*kinds] == [*wanted]
        fits = fits and all(of in (None, kinds[name]) for name, of in wanted.items())
        if fits and frame.select(self.every).item() is True:
            return ""
        try:
            self.schema.validate(frame, lazy=True)
        except SchemaErrors as error:
            return "; ".join(sorted({_named(one) for one in error.schema_errors}))
        return ""


def judge(name: str, frame: pl.DataFrame) -> None:
    """Hold the rows of a table that is to be published to its model.

    Raises InputError that names columns and rules that they break, and how many rows do.
    """
    coded = {one: kind for one, kind in frame.schema.items() if isinstance(kind, pl.Enum)}
    numbers = [_numbers(frame[one], kind) for one, kind in coded.items()]
    hold(name, model(name, frozenset(coded)), frame.with_columns(numbers))


def _numbers(labels: pl.Series, kind: pl.Enum) -> pl.Series:
    """The numbers of labels, null where one is empty: polars would look up the text of each row."""
    numbers, empty = labels.to_physical(), kind.categories.index_of("")
    return numbers if empty is None else numbers.set(numbers == empty, None)


@cache
def model(name: str, coded: frozenset[str] = frozenset()) -> Model:
    """The model of a table of a release but ``units``; ``coded`` labels are :func:`_numbers`."""
    types = no_rows(name).schema
    columns = {one: None if one in _LABELS else types[one] for one in SCHEMA[name].columns}
    rules: dict[str, pl.Expr] = {}
    for column, fact in SCHEMA[name].columns.items():
        is_there = {f"{column}: is not empty": pl.col(column).is_not_null()}
        rules |= is_there if column in coded else _rules(column, fact)
    given = {
        "randomiser": ("metric", "table", "outcome", "other_outcome"),
        "guess": ("metric", "cluster", "arm"),
    }.get(name)
    if given is not None:
        total = pl.col("probability").sum().over(*given)
        rules["probability: adds up to one"] = (total - 1.0).abs() <= _WITHIN_ROUNDING
    return Model.of(columns, rules)


def judge_of_units(
    ids: "pyarrow.DataType", ranges: Mapping[str, Range], failures: list[BaseException]
) -> "Callable[[pyarrow.RecordBatch], pyarrow.RecordBatch]":
    """What returns a batch of what is stored of units as it is, once it was judged; in any thread.

    Ids, of the type ``ids``, and strata are there, ids not empty; the outcomes of each metric of
    ``ranges`` are released within it. Whoever reads may hide why it ends too soon, so that is put
    into ``failures``.
    """
    is_text = "string" in str(ids)
    there = (STRATUM,) if is_text else ("unit_id", STRATUM)
    rules = {f"{name}: is there": pl.col(name).is_not_null() for name in there}
    rules |= not_empty("unit_id") if is_text else {}
    columns: dict[str, Any] = {"unit_id": None, STRATUM: pl.UInt32}
    for metric, bounds in ranges.items():
        columns[randomised(metric)] = pl.Float64
        rules |= _within(randomised(metric), bounds, null=False)
    units = Model.of(columns, rules)
    one_at_a_time = Lock()  # pandera keeps for all threads how deep it looks

    def judged(batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
        rows = pl.DataFrame(pl.from_arrow(batch.select(list(columns))))
        try:
            with one_at_a_time:
                hold("units", units, rows)
        except InputError as error:
            failures.append(error)
            raise
        return batch

    return judged


def _rules(column: str, fact: Column) -> dict[str, pl.Expr]:
    if column in _LABELS:
        return not_empty(column)
    bounds = RANGES.get(column)
    if bounds is None and (column.startswith(_FROM_0) or column.endswith(_FROM_0)):
        bounds = 0.0, float("inf")
    if bounds is not None or fact.kind == NUMBER:
        return _within(column, bounds, null=fact.null)
    return {} if fact.null else {f"{column}: is there": pl.col(column).is_not_null()}


def _within(column: str, bounds: Range | None, *, null: bool) -> dict[str, pl.Expr]:
    value = pl.col(column)
    if bounds is None:
        return {f"{column}: is a number": value.is_not_nan().fill_null(value=null)}
    low, high = bounds
    return {
        f"{column}: from {low:g} to {high:g}": value.is_between(low, high).fill_null(value=null)
    }


def not_empty(column: str) -> dict[str, pl.Expr]:
    """The rule that a column is there and is not the empty text."""
    empty = pl.col(column).cast(pl.String) == ""
    return {f"{column}: is not empty": ~empty.fill_null(value=True)}


def _check(rule: pl.Expr, name: str) -> pa.Check:
    return pa.Check(lambda data: data.lazyframe.select(rule), name=name)


def hold(name: str, model: Model, frame: pl.DataFrame) -> None:
    """Raise InputError where the rows of a table break their model; see :func:`judge`."""
    if broken := model.broken(frame):
        raise InputError(f"{name}: what is to be published breaks its schema: {broken}")


def _named(error: Any) -> str:
    """A rule that pandera found broken, and in how many rows; no value."""
    rule = getattr(error.check, "name", None)
    if rule is None:  # a column that is missing, in another place or of another type
        return f"{getattr(error.schema, 'name', None)}: {str(error.reason_code.name).lower()}"
    passed = error.check_output
    n = passed.select(~pl.all()).sum().item() if isinstance(passed, pl.DataFrame) else None
    return rule if n is None else f"{rule} ({n:,} rows do not)"
