"""The schema of the rows that a release keeps. Inside the boundary.

Apart from their names and rules (:mod:`schemas.raw`), since pandera imports pandas, which takes a
second: only what judges frames imports it.
"""

from collections.abc import Mapping, Sequence

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
    """The kinds of rules that rows break; of pandera's errors, which hold rows, nothing else."""
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


def _rises(data: pa.PolarsData) -> pl.LazyFrame:
    """Whether each value is greater than the one before."""
    column = pl.col(data.key or "*")
    pairs = column.slice(1) > column.slice(0, pl.len().clip(1) - 1)
    return data.lazyframe.select(pairs.all())


def _is_not_empty(data: pa.PolarsData) -> pl.LazyFrame:
    """Whether no id is empty text; integers never are."""
    column = data.key or "*"
    if data.lazyframe.collect_schema()[column] != pl.String:
        return data.lazyframe.select(pl.lit(value=True))
    return data.lazyframe.select((pl.col(column).str.len_bytes() > 0).all())
