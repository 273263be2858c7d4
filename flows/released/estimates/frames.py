"""Effects and releases for the front door in Python: as frames, and as these look where shown."""

from __future__ import annotations

from dataclasses import fields
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, Any

import polars as pl

from estimators.arm_effects import Estimate
from estimators.decisions import Decision
from estimators.means import SHARPEST_FIRST
from flows.runtime.reading.table_files import check_names
from schemas.errors import ConfigError, InputError
from schemas.tables import UNNAMED
from schemas.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flows.released.estimates.decisions import Decisions
    from flows.released.file.read import ReleaseFile

_FIRST = ("metric", "segment", "arm", "estimator", "estimate", "ci_lower", "ci_upper", "control")
_ALWAYS = ("ci_lower_always", "ci_upper_always")
_TEXT = ("metric", "segment", "arm", "estimator", "control", "people")
_WHOLE = ("n_units", "n_segment", "n_releases")

_WHERE_SAID = ("period", "metric", "segment")
_SOUGHT = ("arm", "estimator", "estimate", "ci_lower", "ci_upper", "p_value")
_WIDTH = 80  # of a terminal
_ROWS = 40
_DIGITS = 4


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


class EffectsFrame(pl.DataFrame):
    """Effects: a polars frame that prints what a person looks for, and names what else it has.

    Whatever is made of it, by ``filter`` or ``select`` say, is a plain frame and prints as one.
    """

    def __repr__(self) -> str:
        """Effects with their intervals and p-values, in 80 columns."""
        with _printed():
            return f"{self._brief()}\n{self._others()}"

    __str__ = __repr__

    def _repr_html_(self) -> str:  # type: ignore[override] # polars' own takes a private argument
        """The same as a table for a notebook."""
        with _printed():
            return f"{self._brief()._repr_html_()}<p>{escape(self._others())}</p>"

    def _brief(self) -> pl.DataFrame:
        """The columns that are looked for, where they tell rows apart; numbers rounded."""
        said = [name for name in _WHERE_SAID if name in self.columns and _says(self[name])]
        return self.select(*said, *(name for name in _SOUGHT if name in self.columns)).with_columns(
            pl.selectors.float().round_sig_figs(_DIGITS),
            pl.selectors.string().map_elements(visible, return_dtype=pl.String),
        )

    def _others(self) -> str:
        """How many effects there are, and the columns that are not shown."""
        others = [name for name in self.columns if name not in self._brief().columns]
        return fill(f"effects: {self.height:,}; not shown: {', '.join(others)}", _WIDTH)


def _says(column: pl.Series) -> bool:
    """Whether a column says what an effect is of: not if there is one outcome without a name."""
    return not column.is_null().all() and column.unique().to_list() != [UNNAMED]


def _printed() -> pl.Config:
    return pl.Config(
        tbl_cols=-1,
        tbl_rows=_ROWS,
        tbl_width_chars=_WIDTH,
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
    )


def release_html(file: ReleaseFile) -> str:
    """What a release says of itself, as a table for a notebook."""
    manifest = file.manifest
    facts = {
        "units": f"{manifest.n_units:,} in {manifest.n_clusters:,} clusters",
        "mechanism": manifest.mechanism,
        "privacy": f"epsilon {manifest.epsilon:g}, delta {manifest.delta:g}, of all that is in it",
        "metrics": ", ".join(one.metric for one in manifest.metrics),
        "attributes": ", ".join(manifest.attributes),
        "made": f"{manifest.created_at:%Y-%m-%d %H:%M} UTC",
        "file": str(file.path),
    }
    rows = "".join(
        f"<tr><th style='text-align:left'>{name}</th>"
        f"<td style='text-align:left'>{escape(visible(value))}</td></tr>"
        for name, value in facts.items()
        if value
    )
    head = f"<b>clusterdp release {escape(visible(manifest.release_id))}</b>"
    return f"{head}<table>{rows}</table>"
