"""Estimates as frames for the front door in Python, and tables of the analyst's from frames."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import polars as pl

from estimators.arm_effects import Estimate
from estimators.decisions import Decision
from estimators.means import SHARPEST_FIRST
from flows.released.estimates.notebook import EffectsFrame
from flows.runtime.reading.table_files import check_names
from schemas.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flows.released.estimates.decisions import Decisions

_FIRST = ("metric", "segment", "arm", "estimator", "estimate", "ci_lower", "ci_upper", "control")
_ALWAYS = ("ci_lower_always", "ci_upper_always")
_TEXT = ("metric", "segment", "arm", "estimator", "control", "people")
_WHOLE = ("n_units", "n_segment", "n_releases")


def check_asked(level: float, **asked: object) -> None:
    """Raise ConfigError where the arguments of an estimate are impossible.

    Of those that are ``asked`` for one at most may be other than None.
    """
    if not 0 < level < 1:
        raise ConfigError("level", f"{level!r} is not strictly between 0 and 1")
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(given[1], f"cannot go with {given[0]}; ask for one of them")


def as_polars(table: pl.DataFrame | pd.DataFrame, name: str) -> pl.DataFrame:
    """The table as polars has it; InputError where it is no table, or a column has no one type."""
    if isinstance(table, pl.DataFrame):
        return table
    check_names(name, list(getattr(table, "columns", ())))
    try:
        return pl.from_pandas(table)
    except (TypeError, ValueError, ImportError):  # ArrowInvalid is a ValueError; it shows values
        pass
    raise InputError(
        f"{name}: neither a polars nor a pandas frame whose columns have one type each"
    )


def like(table: pl.DataFrame | pd.DataFrame, found: pl.DataFrame) -> pl.DataFrame | pd.DataFrame:
    """The answer as the kind of frame that was handed in."""
    return found if isinstance(table, pl.DataFrame) else found.to_pandas()


def frame(estimates: Sequence[Estimate], kind: type[Estimate] = Estimate) -> pl.DataFrame:
    """A row an estimate, metric by metric: what a person looks for first, the sharpest first."""
    names = [one.name for one in fields(kind)]
    kinds = {name: pl.String if name in _TEXT else pl.Float64 for name in names}
    schema: dict[str, Any] = kinds | {name: pl.Int64 for name in _WHOLE if name in names}
    place = {metric: at for at, metric in enumerate(dict.fromkeys(one.metric for one in estimates))}
    rows = sorted(
        estimates, key=lambda one: (place[one.metric], SHARPEST_FIRST.index(one.estimator))
    )
    found = pl.DataFrame([vars(one) for one in rows], schema=schema)
    first = [*_FIRST[:-1], *(name for name in _ALWAYS if name in names), _FIRST[-1]]
    return EffectsFrame(found.select(*first, pl.exclude(first)))


def decisions_frame(found: Decisions | None) -> pl.DataFrame:
    """A row a metric and arm, metric by metric, and whether the arm is to be kept."""
    numbers = ("margin", "estimate", "least_benefit", "p_value", "p_value_adjusted")
    schema: dict[str, Any] = {
        one.name: pl.Float64 if one.name in numbers else pl.String for one in fields(Decision)
    }
    keep = {} if found is None else found.keep
    rows = [] if found is None else [vars(one) | {"keep": keep[one.arm]} for one in found.rows]
    return pl.DataFrame(rows, schema=schema | {"keep": pl.Boolean})
