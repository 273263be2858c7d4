"""``units``: a view that shows what is stored of each unit with all that follows from it.

Stored of a unit are its id, the number of its stratum, what was drawn for its outcomes, and its
public facts. Cluster and arm, the debiased and the calibrated outcome and the weight follow from
the stratum and the drawn value, so they stand once a stratum, in ``unit_facts``. A file is a
quarter of what it would be with a number of each unit's own, and is made and read as much faster.

Both tables are in a schema whose name no other file has: a view's names may else mean temporary
tables of an analyst's.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import duckdb
import numpy as np
import polars as pl

from estimators.strata.contrast_strata import MIN_UNITS, are_small
from estimators.strata.evidence import Evidence, sum_by
from flows.released.file.sql import quote_name, text
from schemas.arrays import Bools, Floats
from schemas.released import Metric, ReleaseTables
from schemas.tables import (
    CODE,
    COUNT,
    NUMBER,
    STRATUM,
    TEXT,
    WEIGHT,
    debiased,
    margin_code,
    randomised,
)

DRAWN: Final = "drawn"
"""The table of what is stored of units."""
FACTS: Final = "unit_facts"
"""The table of what follows from a unit's stratum."""
CELL_FACTS: Final = "cell_facts"
"""The table of what follows from a unit's cell in a margin, where there are margins."""
OUTPUTS: Final = "weights"
"""The table of what the outputs of response tables count as, where units were drawn by these."""
UNIT_TABLES: Final = (DRAWN, FACTS, OUTPUTS, CELL_FACTS)
"""What the view of units is made of."""
SESSION: Final = {name: f"temp.main.{name}" for name in (DRAWN, FACTS, OUTPUTS)}
"""What the tables are called while a file is open, whatever the name of its schema."""

OUTPUT_KINDS: Final = {"metric": TEXT, "table": COUNT, "output": NUMBER, "weight": NUMBER}


def fact_kinds(n_outcomes: int, cluster: str, arm: str, *, by_tables: bool) -> dict[str, str]:
    """The columns of ``unit_facts``, with their types.

    Of each outcome what a drawn value y counts as, y ``factor`` + ``base`` (or what the ``table``
    says), and the ``shift`` by which that is calibrated.
    """
    of_outcome = {"table": COUNT} if by_tables else {"factor": NUMBER, "base": NUMBER}
    return {STRATUM: "UINTEGER", "cluster": cluster, "arm": arm, WEIGHT: NUMBER} | {
        f"{name}{at}": kind
        for at in range(n_outcomes)
        for name, kind in (of_outcome | {"shift": NUMBER}).items()
    }


def cell_fact_kinds(n_outcomes: int, arm: str) -> dict[str, str]:
    """The columns of ``cell_facts``, with their types.

    Of each arm of a cell, the number ``code`` of a ``margin``, by how much every outcome is
    calibrated for it.
    """
    shifts = {f"shift{at}": NUMBER for at in range(n_outcomes)}
    return {"margin": "INTEGER", "code": CODE, "arm": arm} | shifts


def view_of_units(
    schema: str,
    metrics: Sequence[str],
    others: Sequence[str],
    *,
    by_tables: bool,
    n_margins: int = 0,
) -> str:
    """SQL that makes the view of the outcomes ``metrics`` and of the facts ``others``."""
    columns = ["u.unit_id", 'f."cluster"', "f.arm"]
    for at, metric in enumerate(metrics):
        drawn = f"u.{quote_name(randomised(metric))}"
        value = f"o{at}.weight" if by_tables else f"{drawn} * f.factor{at} + f.base{at}"
        shifts = " + ".join(f"{one}.shift{at}" for one in ("f", *_names_of_margins(n_margins)))
        columns += [
            f"{value} + {shifts} AS {quote_name(metric)}",
            drawn,
            f"{value} AS {quote_name(debiased(metric))}",
        ]
    columns += [f"f.{WEIGHT}", *(f"u.{quote_name(name)}" for name in others)]
    joins = list(_outputs_of(metrics, schema)) if by_tables else []
    joins += [
        f"{schema}.{CELL_FACTS} AS {name} ON {name}.margin = {at} AND {name}.arm = f.arm "
        f"AND {name}.code = {margin_code(at, n_margins, 'u.')}"
        for at, name in enumerate(_names_of_margins(n_margins))
    ]
    joined = "".join(f" JOIN {one}" for one in joins)
    return (
        f"CREATE VIEW main.units AS SELECT {', '.join(columns)} FROM {schema}.{DRAWN} AS u "  # noqa: S608 - names are quoted
        f"JOIN {schema}.{FACTS} AS f ON f.{STRATUM} = u.{STRATUM}{joined}"
    )


def _names_of_margins(n_margins: int) -> list[str]:
    return [f"m{at}" for at in range(n_margins)]


def _outputs_of(metrics: Sequence[str], schema: str) -> Iterator[str]:
    for at, metric in enumerate(metrics):
        yield (
            f'{schema}.{OUTPUTS} AS o{at} ON o{at}.metric = {text(metric)} AND o{at}."table" = '
            f"f.table{at} AND o{at}.output = u.{quote_name(randomised(metric))}"
        )


def creation_of(schema: str, tables: Mapping[str, Mapping[str, str]]) -> str:
    """Statements that make tables in the schema, by the types of their columns."""
    return "; ".join(
        f"CREATE TABLE {schema}.{name} "
        f"({', '.join(f'{quote_name(column)} {kind}' for column, kind in kinds.items())})"
        for name, kinds in tables.items()
    )


def name_in_session(connection: duckdb.DuckDBPyConnection, place: str, *, by_tables: bool) -> None:
    """Give the tables of a file their names of :data:`SESSION`; ``place`` is its own schema."""
    names = (DRAWN, FACTS, OUTPUTS) if by_tables else (DRAWN, FACTS)
    connection.execute(
        "; ".join(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {place}.{name}" for name in names)
    )


def facts_of(tables: ReleaseTables) -> pl.DataFrame:
    """Return ``unit_facts`` without what is known once units are drawn: weights, and shifts.

    A stratum's number is its place in ``strata``.
    """
    facts = tables.strata.with_row_index(STRATUM).select(
        STRATUM, pl.col("cluster", "arm", "pool").cast(pl.String)
    )
    for at, metric in enumerate(tables.manifest.outcomes):
        frame = _of_pools(tables, metric, at).with_columns(
            pl.col("pool", "arm").cast(pl.String), pl.lit(0.0).alias(f"shift{at}")
        )
        facts = with_pools(facts, frame)
    return facts.drop("pool")


def with_pools(strata: pl.DataFrame, pools: pl.DataFrame) -> pl.DataFrame:
    """Return strata, in their order, with what is known of the ``pool`` and ``arm`` of each.

    Where each is a pool of its own, rows stand side by side: joining takes ten times as long.
    """
    keys = ["pool", "arm"]
    if strata.select(keys).equals(pools.select(keys)):
        return strata.hstack(pools.drop(keys))
    return strata.join(pools, on=keys, maintain_order="left")


def cell_facts_of(tables: ReleaseTables) -> pl.DataFrame:
    """Return ``cell_facts`` without shifts, which are known once units are drawn."""
    outcomes = tables.manifest.outcomes
    of_first = tables.margins.filter(pl.col("metric") == outcomes[0].metric)
    return of_first.select(
        "margin",
        pl.col("cell").alias("code"),
        pl.col("arm").cast(pl.String),
        *(pl.lit(0.0).alias(f"shift{at}") for at in range(len(outcomes))),
    )


def _of_pools(tables: ReleaseTables, metric: Metric, at: int) -> pl.DataFrame:
    """What a drawn value of the outcome counts as in each (pool, arm): (y − λ m)/(1 − λ)."""
    pools = tables.pools.filter(pl.col("metric") == metric.metric)
    if metric.has_tables:
        return pools.select("pool", "arm", pl.col("table").alias(f"table{at}"))
    if metric.resampling_probability is None:
        base = pl.lit(0.0)
        return pools.select("pool", "arm", base.alias(f"factor{at}"), base.alias(f"base{at}"))
    factor = 1.0 / (1.0 - metric.resampling_probability)
    of_metric = tables.debias.filter(pl.col("metric") == metric.metric)
    first = of_metric.gather_every(metric.n_outcomes)  # of each cell its least outcome
    return first.select(
        "pool",
        "arm",
        pl.lit(factor).alias(f"factor{at}"),
        (pl.col("weight") - factor * pl.col("outcome")).alias(f"base{at}"),
    )


def outputs_of(tables: ReleaseTables) -> pl.DataFrame:
    """Return what each output of each table counts as, by metric."""
    return tables.debias.select("metric", "table", output="outcome", weight="weight").unique(
        ["metric", "table", "output"], maintain_order=True
    )


def calibration(every: Sequence[Evidence], *, same_shares: bool) -> pl.DataFrame:
    """Return each stratum's ``weight``, and ``shift0``, ``shift1`` … of its debiased outcomes.

    Every outcome gets w (M − μ̂), the weight of its pool's statistic times what that is more than
    the mean of the pool's debiased outcomes. So the mean of calibrated outcomes over any people of
    one arm is the best linear estimate of these people's own, and weighted over everybody the
    difference of two arms is ``combined``. ``every`` is of whole strata; rows are in their order.
    """
    weights = stratum_weights(every[0], same_shares=same_shares)
    return pl.DataFrame(
        [
            pl.Series(WEIGHT, weights).fill_nan(None),
            *(pl.Series(f"shift{at}", _shift(one)) for at, one in enumerate(every)),
        ]
    )


def _shift(evidence: Evidence) -> Floats:
    """The shift w (M − μ̂) of each slice's (pool, arm); 0 where no statistic is published.

    Beside margins it is less (:attr:`estimators.strata.margins.Margins.pool_shifts`).
    """
    statistic, mean = evidence.pools.of_mean, evidence.whole_mean.mean
    if evidence.margins is not None:
        shift = evidence.margins.pool_shifts
    else:
        shift = np.where(statistic.weight > 0, statistic.weight * (statistic.value - mean), 0.0)
    of_slices: Floats = shift[evidence.slices.pool]
    return of_slices


def stratum_weights(evidence: Evidence, *, same_shares: bool) -> Floats:
    """Return n k/n_a of each slice: the units, of all arms, that one of its arm stands for.

    k is what the slice's stratum counts for (:class:`estimators.strata.shares.Shares`). That is its
    cluster, or all small ones together where these are compared as one
    (:func:`estimators.strata.contrast_strata.contrast_strata`); NaN where an arm has less than two
    units in it, unless they count by their arms' own. The slices are whole strata.
    """
    slices = evidence.slices
    n_clusters, n_arms = (int(one.max(initial=-1)) + 1 for one in (slices.cluster, slices.arm))
    merged = are_small(slices) & same_shares
    stratum = np.where(merged, n_clusters, slices.cluster)
    cell = stratum * n_arms + slices.arm
    sizes = sum_by(cell, slices.n_units, (n_clusters + 1) * n_arms).reshape(-1, n_arms)
    everyone = np.where((sizes >= MIN_UNITS).all(axis=1), sizes.sum(axis=1), np.nan)
    own = np.zeros(n_clusters + 1)
    if slices.own_sizes is not None:
        own[stratum] = 1.0
        np.minimum.at(own, stratum, slices.own_sizes)
    everyone = _gathered(everyone, own > 0)
    moved = np.nansum(own * everyone)
    of_arms = sizes[(own > 0) & ~np.isnan(everyone)].sum(axis=0)
    by_own = np.where(own[stratum] > 0, moved / np.maximum(of_arms, 1.0)[slices.arm], 0.0)
    weights: Floats = ((1.0 - own) * everyone)[stratum] / sizes.ravel()[cell] + by_own
    return weights


def _gathered(everyone: Floats, by_own: Bools) -> Floats:
    """Return what strata stand for, 0 for those that have nothing but their arms' own units.

    ``everyone`` is NaN where an arm has too few; the last stratum is that of merged clusters.
    """
    lone = np.arange(len(everyone)) < len(everyone) - 1
    left, others = lone & by_own & np.isnan(everyone), by_own & ~np.isnan(everyone)
    if left.any() and others.sum() > 1:
        least = np.nanargmin(np.where(others & lone, everyone, np.nan))
        everyone = np.where(left | (np.arange(len(everyone)) == least), 0.0, everyone)
    return everyone
