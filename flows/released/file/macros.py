"""Macros stored in a released file, so that DuckDB alone estimates from it: no program is needed.

``ate()`` gives the effects of the whole release, ``ate_by_segment('my_table')`` those in an
analyst's own segments: what :func:`estimators.effects.effects` computes, in SQL; the second fails
and says why where a release has no units to slice. Both take the name
that the file is attached under as their last argument; without it they mean the database in use.

No table of an analyst's can get in the way. A name alone, even ``main.units``, may mean a temporary
table or a data frame of theirs, so every table is named with its database; and since a database in
use may be the analyst's own, each query also needs a table in a schema that only this very release
has, and fails where that is missing. The default of the last argument stands in for a second
signature because files with overloaded macros cannot be opened by DuckDB 1.0 at all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from string import Template

import duckdb
import numpy as np
import polars as pl
from numpy.polynomial.chebyshev import chebfit, chebpts1

from estimators.collapsed_strata import LEAST_SEEN
from estimators.contrast_strata import MIN_UNITS
from estimators.coverage import LEAST_COVERAGE, remedy
from estimators.intervals import quantile
from flows.released.file.evidence import MOMENTS, Released
from flows.released.file.sql import quote_name, statement, text
from schemas.tables import MACROS, PREFIX

LEVEL = 0.95
"""The confidence level of the estimates in a file and of ``ate_by_segment``."""

_FOR_MACROS = "For the macros of this release alone: a number that they would else work out anew."

_QUANTILE_DEGREE = 20
"""Of the polynomial in 1/df that gives t quantiles: relative error 5e-13 for every df ≥ 1."""

_INTEGERS = ", ".join(
    f"'{sign}{size}'"
    for sign in ("", "U")
    for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)


def add_macros(connection: duckdb.DuckDBPyConnection, released: Released) -> None:
    """Put the macros, and the tables that only they read, into an open draft of ``released``."""
    kind = connection.sql("SELECT unit_id FROM main.units").types[0]
    _Macros(released, str(kind)).write(connection)


@dataclass(frozen=True)
class _Macros:
    released: Released
    id_kind: str
    """The type of the released ids."""

    def write(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"CREATE SCHEMA {self.schema}")
        has_units = self.released.manifest.has_units
        self._write_table(connection, "t_quantile", _t_quantile())
        if has_units:
            self._write_table(connection, "pools", _pool_facts(self.released))
        for signature, body in {
            "ate(release_name := NULL)": "ate",
            "ate_by_segment(segments_table, release_name := NULL)": "ate_by_segment"
            if has_units
            else "no_segments",
        }.items():
            connection.execute(f"CREATE MACRO {signature} AS TABLE {filled(body, self.parts)}")
        comments = (
            f"COMMENT ON MACRO TABLE {name} IS {text(comment)}" for name, comment in MACROS.items()
        )
        connection.execute("; ".join(comments))

    def _write_table(
        self, connection: duckdb.DuckDBPyConnection, name: str, frame: pl.DataFrame
    ) -> None:
        place = f"{self.schema}.{name}"
        connection.register("frame_to_insert", frame.to_arrow())
        statements = [
            f"CREATE TABLE {place} AS FROM frame_to_insert",
            *(
                f"COMMENT ON {what} IS {text(_FOR_MACROS)}"
                for what in (f"TABLE {place}", *(f"COLUMN {place}.{one}" for one in frame.columns))
            ),
        ]
        connection.execute("; ".join(statements))
        connection.unregister("frame_to_insert")

    @property
    def schema(self) -> str:
        """A name that no other release has."""
        own = f"{self.released.manifest.release_id} {self.released.manifest.created_at.isoformat()}"
        return PREFIX + sha256(own.encode()).hexdigest()[:16]

    @property
    def parts(self) -> dict[str, str]:
        """What stands behind the dollar signs."""
        tables = self.tables
        constants = self.constants
        functions = {name: filled(name, tables) for name in ("quantile_of_df", "p_value_of_t")}
        words = {
            name: filled(file, constants)
            for name, file in (("effect", "effect_in_words"), ("note", "few_compared"))
        }
        return tables | functions | constants | words

    @property
    def tables(self) -> dict[str, str]:
        """The tables of the release, each with the database that it is in, for ``query_table``."""
        database = "replace(coalesce(release_name, current_database()), '\"', '\"\"')"
        schemas = dict.fromkeys(("estimates", "units", "strata"), "main")
        schemas |= dict.fromkeys(("pools", "t_quantile"), self.schema)
        return {
            name: f"'\"' || {database} || '\".{schema}.{name}'" for name, schema in schemas.items()
        }

    @property
    def constants(self) -> dict[str, str]:
        """What is the same in every row, as SQL spells it."""
        evidence = self.released.whole
        odds = evidence.rate / (1.0 - evidence.rate)
        names = ["tau_q", "combined"] if evidence.has_statistic else ["tau_q"]
        return {
            "rate": _number(evidence.rate),
            "noise": _number(odds * (1.0 + odds)),
            "center": _number(evidence.center),
            "lowest": _number(evidence.lowest),
            "highest": _number(evidence.highest),
            "level": _number(LEVEL),
            "metric": text(evidence.metric),
            "outcome": quote_name(evidence.metric),
            "control": text(self.released.manifest.control),
            "same_shares": str(self.released.manifest.same_shares),
            "min_units": str(MIN_UNITS),
            "least_seen": f"{LEAST_SEEN!r}::DOUBLE",
            "estimators": ", ".join(f"({text(name)})" for name in names),
            "least_coverage": _number(LEAST_COVERAGE),
            "remedy": text(remedy(same_shares=self.released.manifest.same_shares)),
            "moments": MOMENTS,
            "id_words": text("text" if self.id_kind == "VARCHAR" else "whole numbers"),
            "matched": _as_released(self.id_kind),
        }


def filled(name: str, parts: Mapping[str, str]) -> str:
    """The SQL of the file ``name.sql`` beside this module, with its dollar signs filled in once.

    A dollar sign within a part stays one. KeyError where a part is missing.
    """
    return Template(statement("flows.released.file", name)).substitute(parts)


def _number(value: float) -> str:
    """A number as SQL reads it back, digit for digit; ValueError where it is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot stand in a macro")
    return f"({float(value)!r}::DOUBLE)"


def _as_released(kind: str) -> str:
    """An analyst's id in the type of the released ones; null where no released id has its text.

    Integers are joined two times as fast as their texts. DuckDB settles ``typeof`` once a query.
    """
    text = "unit_id::VARCHAR"
    if kind == "VARCHAR":
        return text
    number = f"TRY_CAST({text} AS {kind})"
    return f"""CASE
        WHEN typeof(unit_id) IN ({_INTEGERS}) THEN TRY_CAST(unit_id AS {kind})
        WHEN {number}::VARCHAR = {text} THEN {number}
    END"""


def _pool_facts(released: Released) -> pl.DataFrame:
    """What the estimators know of each (pool, arm), ready to be joined; 0 for no statistic."""
    evidence, pools = released.whole, released.pools
    cell = pools.square_cells(np.arange(len(pools.pool)))
    facts = {
        "n_units": evidence.whole_mean.n_units,
        "prior_mean": pools.prior_mean,
        "prior_variance": pools.prior_variance,
        "prior_square": pools.prior_square,
        "prior_square_variance": pools.prior_square_variance,
        "whole_mean": evidence.whole_mean.mean,
        "whole_mean_noise": evidence.whole_mean.noise,
        "whole_square": evidence.whole_square.mean[cell],
        "whole_square_noise": evidence.whole_square.noise[cell],
        "mean_value": pools.of_mean.value,
        "mean_variance": pools.of_mean.variance,
        "mean_fourth": pools.of_mean.fourth,
        "mean_weight": pools.of_mean.weight,
        "square_value": pools.of_square.value[cell],
        "square_variance": pools.of_square.variance[cell],
        "square_weight": pools.of_square.weight[cell],
        "square_cell": cell,
        "square_units": evidence.whole_square.n_units[cell],
    }
    return released.pool_names.with_columns(
        **{name: pl.Series(np.nan_to_num(values, nan=0.0)) for name, values in facts.items()}
    )


def _t_quantile() -> pl.DataFrame:
    """Chebyshev coefficients of t_{(1+level)/2} as a function of 2/df − 1."""
    positions = chebpts1(_QUANTILE_DEGREE + 1)
    values = quantile(2.0 / (positions + 1.0), LEVEL)
    coefficients = chebfit(positions, values, _QUANTILE_DEGREE)
    return pl.DataFrame({"k": np.arange(len(coefficients)), "coefficient": coefficients})
