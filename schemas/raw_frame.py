"""The schema of the rows that a release keeps. Inside the boundary.

Apart from their names and rules (:mod:`schemas.raw`), since pandera imports pandas, which takes a
second: only what judges frames imports it.
"""

from collections.abc import Mapping, Sequence

import pandera.polars as pa
import polars as pl

from schemas.raw import ARM, ASSIGNED, CLUSTER, FILE, OUTCOME, PAYER, ROW, UNIT, several


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
    the one before. Pandera checks the schema and the data of a collected frame. Its errors hold
    rows: catch them inside, and raise another.
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
