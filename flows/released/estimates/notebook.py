"""How effects and releases look where Python shows them: in a terminal, and in a notebook."""

from __future__ import annotations

from html import escape
from textwrap import fill
from typing import TYPE_CHECKING

import polars as pl

from schemas.tables import UNNAMED
from schemas.visible import visible

if TYPE_CHECKING:
    from flows.released.file.read import ReleaseFile

_WHERE_SAID = ("period", "metric", "segment")
_ALWAYS = ("arm", "estimator", "estimate", "ci_lower", "ci_upper", "p_value")
_COLUMNS = 80  # of a terminal
_ROWS = 40
_DIGITS = 4


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
        return self.select(*said, *(name for name in _ALWAYS if name in self.columns)).with_columns(
            pl.selectors.float().round_sig_figs(_DIGITS),
            pl.selectors.string().map_elements(visible, return_dtype=pl.String),
        )

    def _others(self) -> str:
        """How many effects there are, and the columns that are not shown."""
        others = [name for name in self.columns if name not in self._brief().columns]
        return fill(f"effects: {self.height:,}; not shown: {', '.join(others)}", _COLUMNS)


def _says(column: pl.Series) -> bool:
    """Whether a column says what an effect is of: not if there is one outcome without a name."""
    return not column.is_null().all() and column.unique().to_list() != [UNNAMED]


def _printed() -> pl.Config:
    return pl.Config(
        tbl_cols=-1,
        tbl_rows=_ROWS,
        tbl_width_chars=_COLUMNS,
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
