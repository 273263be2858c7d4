"""Macros stored in a released file, so that DuckDB alone estimates from it: no program is needed.

``ate()`` gives the effects of the whole release, ``ate_by_segment('my_table')`` those in an
analyst's own segments, and ``ate_by('country')`` those in the values of a published attribute: what
:func:`estimators.arm_effects.effects` computes, in SQL, for one metric after the other. The last
two fail and say why where a release has no units to slice. All take the name that the file is
attached under as their last argument; without it they mean the database in use.

No table of an analyst's can get in the way. A name alone, even ``main.units``, may mean a temporary
table or a data frame of theirs, so every table is named with its database; and since a database in
use may be the analyst's own, each query also needs a table in a schema that only this very release
has, and fails where that is missing. The default of the last argument stands in for a second
signature because files with overloaded macros cannot be opened by DuckDB 1.0 at all.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import starmap
from string import Template
from typing import Final

import duckdb
import numpy as np
import polars as pl
from numpy.polynomial.chebyshev import chebfit, chebpts1

from estimators.coverage import LEAST_COVERAGE, remedy
from estimators.intervals import LEAST_P_VALUE, PLACES, WEIGHTS, Law
from estimators.means import SHARPEST_FIRST
from estimators.ratios import SURE_ERRORS
from estimators.strata.collapsed_strata import LEAST_SEEN
from estimators.strata.contrast_strata import LEAST_EXPECTED, MIN_UNITS
from estimators.strata.margins import Margins
from flows.released.file.evidence import (
    Drawn,
    Released,
    deviations,
    has_tables,
    moments_of,
    names_by_tables,
)
from flows.released.file.margins import (
    CELLS,
    PAIRS,
    STRATA,
    cell_key,
    cell_rows,
    pair_rows,
    stratum_rows,
)
from flows.released.file.outputs import units_of_outcomes
from flows.released.file.ratios import PlacedRatio, covariances_of, ratios_among
from flows.released.file.sql import quote_name, statement, text, unplanned
from flows.released.file.units import DRAWN, FACTS
from schemas.released import Manifest
from schemas.tables import MACROS, NO_VALUE, margin_code

LEVEL = 0.95
"""The confidence level of the estimates in a file and of ``ate_by_segment``."""

_FOR_MACROS = "For the macros of this release alone: a number that they would else work out anew."

_DEGREES = (28, 24)
"""Of the polynomial in 1/df and ρ that gives quantiles: relative error 1e-10 for all df and ρ."""

_NOTHING = 1e-11  # a coefficient that does not count

OF_LAW = {
    "df_of_scatter": "greatest(1, CASE WHEN scatter > 0 THEN variance ** 2 / scatter - 2 "
    "ELSE 'Infinity'::DOUBLE END)",
    "rho_of_fourth": "CASE WHEN fourth > 0 AND variance > 0 "
    "THEN sqrt(least(fourth / variance ** 2 / 3, 1)) ELSE 0 END",
    "least_p_value": repr(LEAST_P_VALUE),
    "places": ", ".join(
        f"({nth}, {float(place)!r}::DOUBLE, {float(weight)!r}::DOUBLE)"
        for nth, (place, weight) in enumerate(zip(PLACES, WEIGHTS, strict=True))
    ),
}
"""The law of an error: its degrees of freedom and √(κ/3), from a variance, half its own variance
and the fourth cumulant of noise; and the numbers that it is made of."""

_INTEGERS = ", ".join(
    f"'{sign}{size}'"
    for sign in ("", "U")
    for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)


_OF_RATIOS = {
    "ratio_questions": "UNION ALL SELECT asked, above, place, metric, segment "
    "FROM _clusterdp_ratio_asked",
    "ratio_kinds": "UNION ALL SELECT asked, estimator FROM _clusterdp_ratio_kinds",
    "ratio_bounds": "UNION ALL FROM _clusterdp_ratio_bounds",
}
"""Where ratios are added to what there is of outcomes."""

_OF_PRIOR = ("prior_mean", "prior_variance", "prior_square", "prior_square_variance")
_OF_STATISTIC = ("value", "variance", "fourth", "weight")
_OF_PARTIES = (
    *("cells", "parties", "parties_of_segment", "parties_of_attribute"),
    *("party_variance", "party_scatter", "party_join", "ratio_party_join"),
)
"""What units that were assigned together add to queries."""
_OF_MARGINS = ("crossed", "plain", "by_margins", "crossed_of_attribute", "crossed_of_segment")
"""What margins add to them."""


def add_macros(connection: duckdb.DuckDBPyConnection, every: Sequence[Released]) -> None:
    """Put the macros, and the tables that only they read, into an open draft of a release.

    ``every`` has all outcomes of the release, in order.
    """
    macros = Macros(every, str(connection.sql("SELECT unit_id FROM main.units").types[0]))
    for name, frame in own_frames(every).items():
        _write_table(connection, f"{macros.schema}.{name}", frame)
    connection.execute(macros.creation("main"))
    comments = (
        f"COMMENT ON MACRO TABLE {name} IS {text(comment)}" for name, comment in MACROS.items()
    )
    connection.execute("; ".join(comments))


def own_frames(every: Sequence[Released]) -> dict[str, pl.DataFrame]:
    """Return what is in the tables that only macros read, by their names."""
    return {name: _OWN_TABLES[name](every) for name in Macros(every, "").own_tables}


def _write_table(connection: duckdb.DuckDBPyConnection, place: str, frame: pl.DataFrame) -> None:
    columns = (f"COLUMN {place}.{quote_name(one)}" for one in frame.columns)
    kept = pl.CompatLevel.newest()
    rows_to_insert = frame.to_arrow(compat_level=kept)  # noqa: F841 - DuckDB finds it by its name
    statements = [
        f"CREATE TABLE {place} AS FROM rows_to_insert",
        *(f"COMMENT ON {what} IS {text(_FOR_MACROS)}" for what in (f"TABLE {place}", *columns)),
    ]
    connection.execute(unplanned("; ".join(statements)))


@dataclass(frozen=True)
class Macros:
    """What the macros of a release are, which its manifest, grids and type of ids settle."""

    every: Sequence[Drawn]
    id_kind: str
    """The type of the released ids."""

    @property
    def manifest(self) -> Manifest:
        """The facts of the release."""
        return self.every[0].manifest

    @property
    def own_tables(self) -> tuple[str, ...]:
        """The tables of :attr:`schema`, which macros alone read."""
        if not self.manifest.has_units:
            return ("quantiles",)
        of_outputs = ("outputs",) if has_tables(self.every) else ()
        of_ratios = ("ratio_facts",) if self.ratios else ()
        of_margins = (CELLS, PAIRS, STRATA) if self.manifest.margins else ()
        return ("quantiles", "metrics", "pools", *of_outputs, *of_ratios, *of_margins)

    def creation(self, place: str) -> str:
        """Statements that make the macros in a schema, ``place``."""
        parts, by_attribute, by_segment = self.parts, "no_segments", "no_segments"
        if self.manifest.has_units:
            by_attribute = "ate_by" if self.manifest.attributes else "no_attributes"
            by_segment = "ate_by_segment"
        bodies = {
            "ate(release_name := NULL)": "ate",
            "ate_by(attribute, release_name := NULL)": by_attribute,
            "ate_by_segment(segments_table, release_name := NULL)": by_segment,
        }
        return "; ".join(
            f"CREATE MACRO {place}.{signature} AS TABLE {filled(body, parts)}"
            for signature, body in bodies.items()
        )

    @property
    def schema(self) -> str:
        """A name that no other release has."""
        return self.manifest.own_schema

    @property
    def parts(self) -> dict[str, str]:
        """What stands behind the dollar signs."""
        tables = self.tables
        constants = self.constants
        functions = ("quantile_of_law", "p_value_of_law")
        made = tables | constants | OF_LAW
        made |= {name: filled(name, made) for name in functions}
        made["effect"] = filled("effect_in_words", constants)
        made["note"] = filled("few_compared", constants)
        made["source"] = self._source(tables)
        by = "tables" if has_tables(self.every) else "prior"
        debiased = f"debiased_by_{by}"
        made["debiased"] = filled(debiased, made | {"prefix": "_clusterdp_", "cell": ""})
        made |= self._margin_parts(made, debiased)
        made |= self._party_parts(made)
        made |= self._ratio_parts(made)
        made["spreads"] = filled("spreads_of_arms", made | {"prefix": "_clusterdp_"})
        return made | {"effects": filled("ate_of_groups", made)}

    def _source(self, tables: Mapping[str, str]) -> str:
        """The units, with what their outputs add where they were drawn by tables."""
        names = (f"query_table({tables[name]})" for name in (DRAWN, FACTS, "outputs"))
        return units_of_outcomes(names_by_tables(self.every), *names)

    def _margin_parts(self, parts: Mapping[str, str], debiased: str) -> dict[str, str]:
        """What margins add: slices crossed with their cells, and calibration by these."""
        if not self.manifest.margins:
            return dict.fromkeys(_OF_MARGINS, "")
        crossed = "_clusterdp_crossed_"
        long = {"crossed_long": _long(self.every, crossed, ", cell")}
        of_cells = filled(debiased, {**parts, "prefix": crossed, "cell": ", cell"})
        made = {
            "crossed": filled("crossed_moments", long) + of_cells,
            "plain": "plain_",
            "by_margins": filled("ate_of_margins", parts),
        }
        for name in ("crossed_of_attribute", "crossed_of_segment"):
            n_margins = len(self.manifest.margins)
            of_margins = " UNION ALL\n".join(
                filled(name, {**parts, "code": margin_code(at, n_margins), "cell": cell_key(at)})
                for at in range(n_margins)
            )
            made[name] = f"{crossed}wide AS MATERIALIZED (\n{of_margins}),\n"
        return made

    def _ratio_parts(self, parts: dict[str, str]) -> dict[str, str]:
        """What ratios add to the queries: nothing where there are none."""
        if not self.ratios:
            return dict.fromkeys(("ratios", *_OF_RATIOS), "")
        of_ratios = {"prefix": "_clusterdp_ratio_", "sure_errors": _number(SURE_ERRORS)}
        covariances = " UNION ALL ".join(
            f"SELECT segment, cluster, arm, {len(self.every) + at} AS place, "  # noqa: S608 - our own names
            f"covariance{at} AS covariance FROM _clusterdp_wide"
            for at in range(len(self.ratios))
        )
        own = {"covariances": covariances, "ratio_parties": ""}
        own["ratio_spreads"] = filled("spreads_of_arms", parts | of_ratios)
        if self.manifest.assigned:
            chain = filled("ate_of_parties", parts | of_ratios | {"of_arm": " AND c.arm = s.arm"})
            own["ratio_parties"] = f"{filled('cells_of_ratios', parts)}\n{chain}\n"
        return _OF_RATIOS | {"ratios": filled("ate_of_ratios", parts | of_ratios | own)}

    @cached_property
    def ratios(self) -> tuple[PlacedRatio, ...]:
        """The ratios of the release."""
        return ratios_among(self.every, self.manifest.ratios)

    def _party_parts(self, made: Mapping[str, str]) -> dict[str, str]:
        """What units that were assigned together add; nothing where each was by itself."""
        if not self.manifest.assigned:
            sizes = "SELECT asked, cluster, arm, n AS size FROM _clusterdp_slices"
            return dict.fromkeys(_OF_PARTIES, "") | {"sizes": sizes}
        places = range(len(self.every))
        totals = (f"sum(d{at}) AS total{at}" for at in places)
        given = dict(made) | {
            "party_totals": ", ".join(("count(*)::DOUBLE AS m", *totals)),
            "party_total": " ".join(f"WHEN {at} THEN w.total{at}" for at in places),
            "prefix": "_clusterdp_",
            "of_arm": "",
        }
        return {
            "cells": filled("cells_of_parties", given) + "\n",
            "sizes": "SELECT asked, cluster, side AS arm, count(*)::DOUBLE AS size "
            "FROM _clusterdp_cells GROUP BY asked, cluster, side",
            "parties": filled("ate_of_parties", given) + "\n",
            "parties_of_segment": filled("parties_of_segment", given) + "\n",
            "parties_of_attribute": filled("parties_of_attribute", given) + "\n",
            "party_variance": " + p.variance",
            "party_scatter": " * p.stretch + p.scatter",
            "party_join": _join_parties("_clusterdp_"),
            "ratio_party_join": _join_parties("_clusterdp_ratio_"),
        }

    @property
    def tables(self) -> dict[str, str]:
        """The tables of the release, each with the database that it is in, for ``query_table``."""
        database = "replace(coalesce(release_name, current_database()), '\"', '\"\"')"
        places = {name: f"main.{name}" for name in ("estimates", "strata")}
        ours = (
            *(DRAWN, FACTS, CELLS, PAIRS, STRATA),
            *("metrics", "pools", "quantiles", "ratio_facts", "outputs"),
        )
        places |= {name: f"{self.schema}.{name}" for name in ours}
        return {name: f"'\"' || {database} || '\".{place}'" for name, place in places.items()}

    @property
    def constants(self) -> dict[str, str]:
        """What is the same in every row, as SQL spells it."""
        manifest, names = self.manifest, [metric.metric for metric in self.manifest.metrics]
        several = len(names) > 1
        first = "segment, arm, estimate, ci_lower, ci_upper"
        return {
            # What a person looks for first; a metric that is the only one need not be.
            "first": f"metric, {first}" if several else f"{first}, metric",
            "metric_order": f"[{', '.join(map(text, names))}]",
            "estimator_order": f"[{', '.join(map(text, SHARPEST_FIRST))}]",
            "level": _number(LEVEL),
            "control": text(manifest.control),
            "same_shares": str(manifest.same_shares),
            "min_units": str(MIN_UNITS),
            "least_expected": str(LEAST_EXPECTED),
            "least_seen": f"{LEAST_SEEN!r}::DOUBLE",
            "least_coverage": _number(LEAST_COVERAGE),
            "remedy": text(remedy(same_shares=manifest.same_shares)),
            "moments": ", ".join([moments_of(self.every), *covariances_of(self.ratios)]),
            "deviations": ("assigned_to, " if manifest.assigned else "") + deviations(self.every),
            "long": _long(self.every),
            "id_words": text("text" if self.id_kind == "VARCHAR" else "whole numbers"),
            "matched": _as_released(self.id_kind),
            "values": _values(self.manifest.attributes),
            "attributes": ", ".join(text(name.lower()) for name in self.manifest.attributes),
            "attributes_told": text(", ".join(self.manifest.attributes)),
            "nothing": "(SELECT nothing FROM _clusterdp_nothing)",
            "no_value": text(NO_VALUE),
        }


def filled(name: str, parts: Mapping[str, str]) -> str:
    """The SQL of the file ``name.sql`` beside this module, with its dollar signs filled in once.

    A dollar sign within a part stays one. KeyError where a part is missing.
    """
    return Template(statement("flows.released.file", name)).substitute(parts)


def _join_parties(prefix: str) -> str:
    """What parties add to the rows of ``s``, as ``p``."""
    keys = ("estimator", "asked", "arm", "side")
    return f"JOIN {prefix}parties AS p ON " + " AND ".join(f"p.{key} = s.{key}" for key in keys)


def _number(value: float) -> str:
    """A number as SQL reads it back, digit for digit; ValueError where it is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot stand in a macro")
    return f"({float(value)!r}::DOUBLE)"


def _long(every: Sequence[Drawn], prefix: str = "_clusterdp_", more: str = "") -> str:
    """The moments of all metrics, one below the other, each with its place, and ``more`` columns.

    The ``prefix`` is that of the query which has them side by side.
    """
    others = {"fourth": "fourth"}
    if has_tables(every):
        others = {"noise": "response", "square": "square", "square_noise": "square_noise"}
    names = {"mean": "mean", "variance": "variance", **others}
    return " UNION ALL ".join(
        f"SELECT segment, cluster, arm, n, {at} AS place, "  # noqa: S608 - our own names
        f"{', '.join(f'{name}{at} AS {called}' for name, called in names.items())}{more} "
        f"FROM {prefix}wide"
        for at in range(len(every))
    )


def _values(attributes: Sequence[str]) -> str:
    """The attribute that is asked for, as text."""
    cases = (f"WHEN {text(name.lower())} THEN {quote_name(name)}::VARCHAR" for name in attributes)
    return f"CASE lower(attribute) {' '.join(cases)} END" if attributes else "NULL::VARCHAR"


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


def _metric_facts(every: Sequence[Released]) -> pl.DataFrame:
    """What the estimators know of each outcome: a row for each, with its place."""
    rows = []
    for place, released in enumerate(every):
        evidence = released.whole
        odds = evidence.rate / (1.0 - evidence.rate)
        rows.append(
            {
                "place": place,
                "metric": evidence.metric,
                "rate": evidence.rate,
                "noise": odds * (1.0 + odds),
                "lowest": evidence.lowest,
                "highest": evidence.highest,
                "has_combined": evidence.has_combined,
            }
            | ({} if released.margins is None else {"unit_noise": released.margins.unit_noise})
        )
    return pl.DataFrame(rows, schema_overrides={"place": pl.Int32})


def _ratio_facts(every: Sequence[Released]) -> pl.DataFrame:
    """What the estimators know of each ratio: a row for each; places go on from the outcomes'."""
    rows, ratios = [], ratios_among(every, every[0].manifest.ratios)
    for place, one in enumerate(ratios, start=len(every)):
        above, below = every[one.numerator].whole, every[one.denominator].whole
        rows.append(
            {
                "place": place,
                "metric": one.ratio.metric,
                "numerator": one.numerator,
                "denominator": one.denominator,
                "above_center": above.center,
                "below_center": below.center,
                "above_width": above.highest - above.lowest,
                "below_width": below.highest - below.lowest,
                "scale": one.scale(every),
            }
        )
    places = dict.fromkeys(("place", "numerator", "denominator"), pl.Int32)
    return pl.DataFrame(rows, schema_overrides=places)


def _pool_facts(place: int, released: Released) -> pl.DataFrame:
    """What the estimators know of each (pool, arm), ready to be joined; 0 for no statistic.

    ``place`` is that of the metric.
    """
    evidence, pools = released.whole, released.pools
    cell = pools.square_cells(np.arange(len(pools.pool)))
    facts = {
        "n_units": evidence.whole_mean.n_units,
        **{name: getattr(pools, name) for name in _OF_PRIOR},
        "whole_mean": evidence.whole_mean.mean,
        "whole_mean_noise": evidence.whole_mean.noise,
        "whole_square": evidence.whole_square.mean[cell],
        "whole_square_noise": evidence.whole_square.noise[cell],
        **{f"mean_{name}": getattr(pools.of_mean, name) for name in _OF_STATISTIC},
        "square_value": pools.of_square.value[cell],
        "square_variance": pools.of_square.variance[cell],
        "square_weight": pools.of_square.weight[cell],
        "square_cell": cell,
        "square_units": evidence.whole_square.n_units[cell],
    }
    return released.pool_names.select(
        pl.lit(place, pl.Int32).alias("place"),
        pl.all(),
        **{name: pl.Series(np.nan_to_num(values, nan=0.0)) for name, values in facts.items()},
    )


@cache
def _quantiles() -> pl.DataFrame:
    """Chebyshev coefficients of the law's quantile as a function of 2/df − 1 and 2ρ − 1."""
    of_df, of_rho = (chebpts1(degree + 1) for degree in _DEGREES)
    degrees, rho = np.meshgrid(2.0 / (of_df + 1.0), (of_rho + 1.0) / 2.0, indexing="ij")
    values = Law(degrees, 3.0 * rho**2).quantile(LEVEL)
    coefficients = chebfit(of_rho, chebfit(of_df, values, _DEGREES[0]).T, _DEGREES[1]).T
    j, k = np.nonzero(np.abs(coefficients) > _NOTHING)
    return pl.DataFrame({"j": j, "k": k, "coefficient": coefficients[j, k]})


def _of_margins(
    rows: Callable[[int, Sequence[str], Margins], pl.DataFrame], every: Sequence[Released]
) -> pl.DataFrame:
    return pl.concat(
        rows(place, one.arms, one.margins)
        for place, one in enumerate(every)
        if one.margins is not None
    )


_OWN_TABLES: Final[dict[str, Callable[[Sequence[Released]], pl.DataFrame]]] = {
    "quantiles": lambda _: _quantiles(),
    "metrics": _metric_facts,
    "pools": lambda every: pl.concat(starmap(_pool_facts, enumerate(every))),
    "outputs": lambda every: pl.concat(
        one.outputs.frame(one.metric.metric) for one in every if one.outputs is not None
    ),
    "ratio_facts": _ratio_facts,
    CELLS: partial(_of_margins, cell_rows),
    PAIRS: partial(_of_margins, pair_rows),
    STRATA: lambda every: pl.concat(
        stratum_rows(place, one.places, one.crossed, one.margins)
        for place, one in enumerate(every)
        if one.crossed is not None and one.margins is not None
    ),
}
"""What is in the tables that macros alone read, by their names."""
