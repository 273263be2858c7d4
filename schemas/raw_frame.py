"""The schema of the rows that a release keeps. Inside the boundary.

Apart from their names and rules (:mod:`schemas.raw`), since pandera imports pandas, which takes a
second: only what judges frames imports it.
"""

import pandera.polars as pa
import polars as pl

from schemas.raw import ARM, CLUSTER, OUTCOME, PAYER, UNIT, several


def fits(arms: tuple[str, ...], *, payers: bool = False, n_outcomes: int = 1) -> pa.DataFrameSchema:
    """The schema of the rows that are kept: types, no nulls, every rule of :mod:`schemas.raw`.

    With ``payers`` each says who pays for it. Each has so many outcomes.

    Rows come in the order of their units, so that none stands twice where each is greater than
    the one before. Pandera checks the schema and the data of a collected frame. Its errors hold
    rows: catch them inside, and raise another.
    """
    return pa.DataFrameSchema(
        {
            UNIT: pa.Column(checks=pa.Check(_rises, name="rises"), nullable=False),
            ARM: pa.Column(pl.Enum(arms), nullable=False),
            CLUSTER: pa.Column(pl.Categorical, nullable=False),
            **{
                name: pa.Column(pl.Float64, nullable=False) for name in several(OUTCOME, n_outcomes)
            },
            **({PAYER: pa.Column(pl.String, nullable=False)} if payers else {}),
        },
        strict=True,
    )


def _rises(data: pa.PolarsData) -> pl.LazyFrame:
    """Whether each value is greater than the one before."""
    column = pl.col(data.key or "*")
    pairs = column.slice(1) > column.slice(0, pl.len().clip(1) - 1)
    return data.lazyframe.select(pairs.all())
