"""The schema of the rows that a release keeps. Inside the boundary.

Apart from their names and rules (:mod:`schemas.raw`), since pandera imports pandas, which takes a
second: only what judges frames imports it.
"""

from collections.abc import Callable, Mapping, Sequence

import pandera.polars as pa
import polars as pl
from pandera.errors import SchemaErrors

from schemas.raw import ARM, ASSIGNED, CLUSTER, FILE, OUTCOME, PAYER, ROW, UNIT, Values, several


def fits(
    arms: tuple[str, ...],
    *,
    payers: bool = False,
    ranges: Sequence[tuple[float, float]],
    assigned: bool = False,
    attributes: Mapping[str, pl.DataType] | None = None,
) -> pa.DataFrameSchema:
    """The schema of the rows that are kept: types, no nulls, every rule of :mod:`schemas.raw`.

    With ``payers`` each says who pays for it; where ``assigned`` what was randomised, and where it
    stood, as it may still be set aside. Outcomes lie between the ends of their grids, ``ranges``.
    ``attributes`` are of these types, and may be null. Ids and clusters are not empty.

    Rows come in the order of their units, so that none stands twice where each is greater than
    the one before. Pandera checks the schema and the data of a collected frame.
    """
    of_groups = {
        ASSIGNED: pa.Column(pl.UInt64, nullable=False),
        FILE: pa.Column(pl.UInt32, nullable=False),
        ROW: pa.Column(pl.UInt64, nullable=False),
    }
    return pa.DataFrameSchema(
        {
            UNIT: pa.Column(
                checks=[pa.Check(_rises, name="rises"), pa.Check(_is_not_empty, name="not empty")],
                nullable=False,
            ),
            ARM: pa.Column(pl.Enum(arms), nullable=False),
            CLUSTER: pa.Column(pl.Categorical, nullable=False),
            **{
                name: pa.Column(pl.Float64, pa.Check.in_range(low, high), nullable=False)
                for name, (low, high) in zip(several(OUTCOME, len(ranges)), ranges, strict=True)
            },
            **({PAYER: pa.Column(pl.String, nullable=False)} if payers else {}),
            **(of_groups if assigned else {}),
            **{name: pa.Column(kind, nullable=True) for name, kind in (attributes or {}).items()},
        },
        strict=True,
    )


def broken(schema: pa.DataFrameSchema, rows: pl.DataFrame) -> list[str]:
    """The kinds of rules that rows break; of pandera's errors, which hold rows, nothing else.

    Pandera, which takes ten times as long, is asked where not all is as it should be.
    """
    if _is_sound(schema, rows):
        return []
    try:
        schema.validate(rows, lazy=True)
    except SchemaErrors as error:
        return sorted({one.reason_code.name for one in error.schema_errors})
    return []


def fits_model(columns: Mapping[str, Values], *, named: bool) -> pa.DataFrameSchema:
    """The schema of rows of an effect model: numbers where they were mapped to, and no nulls.

    Units that are ``named`` come in the order of their ids, each once.
    """
    unit = {UNIT: pa.Column(checks=pa.Check(_rises, name="rises"), nullable=False)}
    return pa.DataFrameSchema(
        {
            **(unit if named else {}),
            **{
                name: pa.Column(pl.Float64, pa.Check.in_range(*values), nullable=False)
                if isinstance(values, tuple)
                else pa.Column(values, nullable=False)
                for name, values in columns.items()
            },
        },
        strict=True,
    )


def _is_sound(schema: pa.DataFrameSchema, rows: pl.DataFrame) -> bool:
    """Whether rows have these columns alone, of these types, and keep every rule, by one query."""
    if {*rows.columns} != {*schema.columns}:
        return False
    rules = [pl.lit(value=True)]
    for name, column in schema.columns.items():
        kind, values = rows.schema[name], pl.col(name)
        if column.dtype is not None and column.dtype.type != kind:
            return False
        if not column.nullable:
            rules.append(values.is_not_null().all())
        if not column.nullable and kind.is_float():
            rules.append(values.is_not_nan().all())
        for check in column.checks:
            own, ends = _OWN_RULES.get(str(check.name)), check.statistics or {}
            if own is not None:
                rules.append(own(values, kind))
            else:
                rules.append(values.is_between(ends["min_value"], ends["max_value"]).all())
    return rows.select(pl.all_horizontal(rules)).item() is True


def _rises(data: pa.PolarsData) -> pl.LazyFrame:
    """Whether each value is greater than the one before."""
    return data.lazyframe.select(_values_rise(pl.col(data.key or "*")))


def _values_rise(values: pl.Expr, _: pl.DataType | None = None) -> pl.Expr:
    return (values.slice(1) > values.slice(0, pl.len().clip(1) - 1)).all()


def _is_not_empty(data: pa.PolarsData) -> pl.LazyFrame:
    """Whether no id is empty text; integers never are."""
    column = data.key or "*"
    kind = data.lazyframe.collect_schema()[column]
    return data.lazyframe.select(_values_are_not_empty(pl.col(column), kind))


def _values_are_not_empty(values: pl.Expr, kind: pl.DataType) -> pl.Expr:
    return (values.str.len_bytes() > 0).all() if kind == pl.String else pl.lit(value=True)


_OWN_RULES: Mapping[str, Callable[[pl.Expr, pl.DataType], pl.Expr]] = {
    "rises": _values_rise,
    "not empty": _values_are_not_empty,
}
