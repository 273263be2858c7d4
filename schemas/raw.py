"""The raw log: its columns, and the rules by which a row is set aside. Inside the boundary.

A rule reads public columns alone (unit, arm, cluster, …), never the outcome, so who is in a release
does not depend on anybody's outcome. A rule's name is its message.
"""

from dataclasses import dataclass
from typing import Final

import polars as pl

UNIT: Final = "unit"
ARM: Final = "arm"
CLUSTER: Final = "cluster"
OUTCOME: Final = "outcome"
FILE: Final = "source_file"
ROW: Final = "source_row"

PLACE: Final = pl.col(FILE).cast(pl.UInt64) * 2**40 + pl.col(ROW)
"""Where a row stands in the log: the file's number and, in 40 bits, the row's."""

TIME: Final = "time"
"""Microseconds since 1970 in UTC: of an exposure, or of an outcome event."""

VALUE: Final = "value"
"""What an outcome event adds to its unit's outcome; private."""

Values = pl.DataType | tuple[float, float]
"""What a column holds: anything of a type, or numbers from one to another."""


def numbered(column: str, position: int) -> str:
    """The column of one of several outcomes, by its position: ``outcome``, ``outcome 2``, ….

    ``column`` is that of the first, or of the only one.
    """
    return column if position == 0 else f"{column} {position + 1}"


def several(column: str, number: int) -> tuple[str, ...]:
    """The columns of so many outcomes, in their order; see :func:`numbered`."""
    return tuple(numbered(column, position) for position in range(number))


EVENT: Final = "event"
"""The id of an outcome event; private."""

PAYER: Final = "payer"
"""Who pays for a unit, where that is not the unit itself: its household, say; public."""

ASSIGNED: Final = "assigned"
"""What was randomised, where that is not the unit: a digest of its household, say; public."""

FAULT: Final = "fault"
"""0 for a sound row, else the number of the rule of :func:`event_rules` that it breaks itself."""

RULE: Final = "rule"
"""The column that says why a row was set aside."""

PUBLIC_COLUMNS: Final = (UNIT, ARM, CLUSTER, FILE, ROW)

UNIT_RULES: Final = ("unit_in_two_arms", "unit_twice")
"""The rules that read all rows of a unit; the others read one row alone."""


NOT_DECLARED: Final = "arm_not_declared"
ASSIGNED_ARMS: Final = "assigned_arms"
"""The rule that reads all rows of what was randomised: they are in one arm."""


def attribute_columns(number: int) -> tuple[str, ...]:
    """Return what the columns of so many attributes are called, in their order; all public."""
    return tuple(f"attribute {place}" for place in range(number))


@dataclass(frozen=True)
class Rule:
    """A fault in public fields: ``faulty`` is true for the rows that have it."""

    name: str
    meaning: str
    faulty: pl.Expr


def rules(
    arms: tuple[str, ...], *, payers: bool = False, assigned: bool = False
) -> tuple[Rule, ...]:
    """The rules for a log with these declared ``arms``; a row counts under the first it breaks.

    With ``payers`` it says who pays for each unit, and where ``assigned`` what was randomised. A
    rule on all rows of what was randomised, :data:`ASSIGNED_ARMS`, comes after these.
    """
    of_payers = Rule(
        "privacy_unit_missing", "who pays is null, empty or unreadable", pl.col(PAYER).is_null()
    )
    of_groups = Rule(
        "assigned_unknown",
        "what was randomised is null, empty or unreadable",
        pl.col(ASSIGNED).is_null(),
    )
    one_unit = pl.col(UNIT).is_not_null()
    return (
        Rule("unit_missing", "the unit is null, empty or unreadable", pl.col(UNIT).is_null()),
        Rule("arm_missing", "the arm is null, empty or unreadable", pl.col(ARM).is_null()),
        Rule("cluster_missing", "the cluster is null or empty", pl.col(CLUSTER).is_null()),
        *([of_payers] if payers else []),
        *([of_groups] if assigned else []),
        Rule(
            NOT_DECLARED,
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


def event_rules(
    arms: tuple[str, ...], *, payers: bool = False, assigned: bool = False
) -> tuple[Rule, ...]:
    """The rules for exposures, of grain "event"; a row counts under the first it breaks.

    As :func:`rules`, but an exposure must have a time, by which the first is found, and a unit may
    have any number of them in one arm. All but the last read one row alone.
    """
    of_units = {rule.name: rule for rule in rules(arms, payers=payers, assigned=assigned)}
    two_arms = of_units.pop("unit_in_two_arms")
    del of_units["unit_twice"]
    untimed = Rule("time_missing", "the time is null, empty or unreadable", pl.col(TIME).is_null())
    return (*of_units.values(), untimed, two_arms)
