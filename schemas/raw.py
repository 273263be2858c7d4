"""The raw log: its columns, and the rules by which a row is set aside. Inside the boundary.

A rule reads public columns alone (unit, arm, cluster), never the outcome, so who is in a release
does not depend on anybody's outcome. A rule's name is its message.
"""

from dataclasses import dataclass
from typing import Final

import pandera.polars as pa
import polars as pl

UNIT: Final = "unit"
ARM: Final = "arm"
CLUSTER: Final = "cluster"
OUTCOME: Final = "outcome"
FILE: Final = "source_file"
ROW: Final = "source_row"

RULE: Final = "rule"
"""The column that says why a row was set aside."""

PUBLIC_COLUMNS: Final = (UNIT, ARM, CLUSTER, FILE, ROW)


@dataclass(frozen=True)
class Rule:
    """A fault in public fields: ``faulty`` is true for the rows that have it."""

    name: str
    meaning: str
    faulty: pl.Expr


def rules(arms: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules for a log with these declared ``arms``; a row counts under the first it breaks."""
    one_unit = pl.col(UNIT).is_not_null()
    return (
        Rule("unit_missing", "the unit is null, empty or unreadable", pl.col(UNIT).is_null()),
        Rule("arm_missing", "the arm is null, empty or unreadable", pl.col(ARM).is_null()),
        Rule("cluster_missing", "the cluster is null or empty", pl.col(CLUSTER).is_null()),
        Rule(
            "arm_not_declared",
            "the arm is not one of the configuration's",
            pl.col(ARM).is_in(list(arms)).not_().fill_null(value=False),
        ),
        Rule(
            "unit_in_two_arms",
            "the unit stands in more than one arm; all its rows",
            one_unit & (pl.col(ARM).n_unique().over(UNIT) > 1),
        ),
        Rule(
            "unit_twice",
            "the unit stands in more than one row; all its rows",
            one_unit & (pl.len().over(UNIT) > 1),
        ),
    )


def fits(arms: tuple[str, ...]) -> pa.DataFrameSchema:
    """The schema of the rows that are kept: types, no nulls, and every rule of :func:`rules`.

    Pandera checks the schema and the data of a collected frame. Its errors hold rows: catch them
    inside, and raise another.
    """
    return pa.DataFrameSchema(
        {
            UNIT: pa.Column(nullable=False, unique=True),
            ARM: pa.Column(pl.String, pa.Check.isin(list(arms)), nullable=False),
            CLUSTER: pa.Column(pl.String, nullable=False),
            OUTCOME: pa.Column(pl.Float64, nullable=False),
            FILE: pa.Column(pl.UInt32, nullable=False),
            ROW: pa.Column(pl.UInt64, nullable=False),
        },
        strict=True,
    )
