"""Rules that the values of every sound release keep; the names of the rules are the messages.

Estimates are computed from what a file states. Where its statements contradict each other (no
pools, λ = 1, infinite noise, units that its strata do not count) the estimates would be nonsense,
or fail with an error elsewhere. So all rules are checked once, when a file is opened, in few passes
over each table.
"""

from typing import Final

import duckdb

from flows.released.file.cells import Cells
from flows.released.file.unit_rules import broken_debias_rule, broken_unit_rule
from schemas.names import NAME, PERIOD
from schemas.released import NEIGHBOURS, NEIGHBOURS_WITH_CLUSTERS, TABLES
from schemas.tables import TEXT, UNNAMED

_FREE_BYTES = 1 << 30  # in memory, whatever the size of the file
_BYTES_FOR_A_BYTE = 64  # bytes in memory that one byte of the file may stand for
_ONE_METRIC = {f"every row is about {UNNAMED}": f"t.metric = '{UNNAMED}'"}

_ROWS: Final[dict[str, dict[str, str]]] = {
    "release": {
        "release_id is EXPERIMENT.PERIOD.rN, in letters, digits, - and _": f"""
            regexp_full_match(t.experiment, '{NAME}')
            AND regexp_full_match(t.period, '{PERIOD}') AND t.revision >= 1
            AND t.release_id = t.experiment || '.' || t.period || '.r' || t.revision
            AND strlen(t.release_id) <= 1000""",
        "created_at is a time": """
            isfinite(t.created_at) AND year(t.created_at) BETWEEN 1970 AND 9999""",
        "mechanism is a name": "regexp_full_match(t.mechanism, '[a-z][a-z-]{0,63}')",
        "package_version is a version": """
            regexp_full_match(t.package_version, '[0-9A-Za-z.+!-]{1,64}')""",
        "epsilon is finite and above 0": "isfinite(t.epsilon) AND t.epsilon > 0",
        "delta is at least 0 and below 1": "t.delta >= 0 AND t.delta < 1",
        "neighbours and cluster_epsilon say what is protected": f"""CASE
            WHEN t.cluster_epsilon IS NULL
            THEN t.neighbours = '{NEIGHBOURS.replace("'", "''")}'
            ELSE t.neighbours = '{NEIGHBOURS_WITH_CLUSTERS.replace("'", "''")}'
                AND t.cluster_epsilon > 0 AND t.cluster_epsilon <= t.epsilon END""",
        "control and same_shares are given": "t.control <> '' AND t.same_shares IS NOT NULL",
        "there are units, and at most as many clusters": """
            t.n_units >= 1 AND t.n_clusters BETWEEN 1 AND t.n_units""",
        "numbers of rows and units are none below 0": """
            coalesce(t.n_set_aside, 0) >= 0 AND coalesce(t.n_returning, 0) >= 0
            AND coalesce(t.n_arm_changed, 0) >= 0 AND coalesce(t.rows_each, 1) >= 1""",
        "sample_ratio_p is from 0 to 1": "coalesce(t.sample_ratio_p, 0) BETWEEN 0 AND 1",
        "account and returning are among those there are": """
            coalesce(t.account, 'unit') IN ('unit', 'population')
            AND coalesce(t.returning, 'charge') IN ('charge', 'set_aside')""",
        "budget_epsilon is finite and not below 0": """
            isfinite(coalesce(t.budget_epsilon, 0)) AND coalesce(t.budget_epsilon, 0) >= 0""",
        "fingerprints of keys are small letters and digits": """
            regexp_full_match(coalesce(t.unit_id_key_fingerprint, 'a'), '[0-9a-z]{1,128}')
            AND regexp_full_match(coalesce(t.account_key_fingerprint, 'a'), '[0-9a-z]{1,128}')""",
    },
    "metrics": {
        "epsilon and delta are a part of the release's": """
            t.epsilon > 0 AND t.epsilon <= r.epsilon AND t.delta >= 0 AND t.delta <= r.delta""",
        "labels are short, and ratios elsewhere": """
            strlen(coalesce(t.label, '')) <= 1000 AND strlen(coalesce(t.measured_in, '')) <= 1000
            AND t.numerator IS NULL AND t.denominator IS NULL""",
        "n_outcomes is at least 2": "t.n_outcomes >= 2",
        "resampling_probability is between 0 and 1": """
            t.resampling_probability IS NULL
            OR (t.resampling_probability > 0 AND t.resampling_probability < 1)""",
        "truncation_threshold is at least 0 and at most 1/n_outcomes": """CASE
            WHEN t.resampling_probability IS NULL THEN t.truncation_threshold IS NULL
            ELSE t.truncation_threshold >= 0
                AND t.truncation_threshold * t.n_outcomes <= 1 + 1e-9 END""",
        "strata_statistic is one of those there are": """t.strata_statistic IN
            ('counts', 'count-and-complement', 'means', 'differences', 'none')""",
        "something is published: units, or a statistic of strata": """
            t.resampling_probability IS NOT NULL OR t.strata_statistic <> 'none'""",
        "noise_scale fits strata_statistic": """CASE t.strata_statistic
            WHEN 'none' THEN t.noise_scale IS NULL
            ELSE t.noise_scale >= 1e-6 AND t.noise_scale <= 1e18 END""",
        "grid_step fits strata_statistic": """CASE
            WHEN t.strata_statistic IN ('means', 'differences')
            THEN t.grid_step > 0 AND t.grid_step <= 2e70
            ELSE t.grid_step IS NULL END""",
    },
    "outcomes": _ONE_METRIC | {"every outcome is a number within ±1e70": "abs(t.outcome) <= 1e70"},
    "pools": _ONE_METRIC
    | {
        "every row has a pool, an arm and units": """
            t.pool <> '' AND t.arm <> '' AND t.n_units >= 1""",
        "noisy means stand where means are published": """CASE m.strata_statistic
            WHEN 'means' THEN abs(t.noisy_mean) <= 1e90 ELSE t.noisy_mean IS NULL END""",
        "noisy differences stand where differences are published": """
            t.noisy_difference IS NULL
            OR (m.strata_statistic = 'differences' AND abs(t.noisy_difference) <= 1e90)""",
        "weights are from 0 to 1 where a statistic is published": """
            CASE WHEN m.strata_statistic IN ('none', 'differences') THEN t.mean_weight IS NULL
            ELSE t.mean_weight BETWEEN 0 AND 1 END
            AND CASE WHEN m.strata_statistic = 'none' THEN t.square_weight IS NULL
            ELSE coalesce(t.square_weight, 0) BETWEEN 0 AND 1 END""",
    },
    "strata": {
        "every row has a cluster, an arm, a pool and units": """
            t.cluster <> '' AND t.arm <> '' AND t.pool <> '' AND t.n_units >= 1""",
    },
    "debias": _ONE_METRIC
    | {
        "every row has a pool, an arm and an outcome": """
            t.pool <> '' AND t.arm <> '' AND t.outcome IS NOT NULL""",
        "probabilities are from truncation_threshold to 1": """
            t.probability BETWEEN m.truncation_threshold * (1 - 1e-9) AND 1 + 1e-9""",
        "weights are numbers": "isfinite(t.weight)",
    },
    "counts": _ONE_METRIC
    | {
        "every row has a pool, an arm and an outcome": """
            t.pool <> '' AND t.arm <> '' AND t.outcome IS NOT NULL""",
        "noisy counts are numbers within ±1e18": "abs(t.noisy_count::DOUBLE) <= 1e18",
    },
    "squares": _ONE_METRIC
    | {
        "every row has an arm, and numbers that can be computed with": """
            t.arm <> '' AND abs(t.noisy_square) <= 1e180 AND abs(t.centre) <= 1e70
            AND t.noise_scale > 0 AND t.noise_scale <= 1e180""",
    },
    "randomiser": {"is empty: no mechanism of this version has one": "false"},
    "means": _ONE_METRIC
    | {
        "every row has an arm, an estimator and numbers": """
            t.arm <> '' AND regexp_full_match(t.estimator, '[a-z][a-z_]{0,63}')
            AND isfinite(t.mean) AND isfinite(t.std_error) AND t.std_error >= 0""",
    },
    "estimates": _ONE_METRIC
    | {
        "every row has an arm, control and an estimator, and no segment": """
            t.arm <> '' AND t.arm <> t.control AND t.control = r.control
            AND regexp_full_match(t.estimator, '[a-z][a-z_]{0,63}') AND t.segment IS NULL""",
        "estimates and errors are numbers": """
            isfinite(t.estimate) AND isfinite(t.std_error) AND t.std_error >= 0
            AND isfinite(t.privacy_std_error) AND t.privacy_std_error >= 0
            AND isfinite(coalesce(t.planned_std_error, 0))
            AND coalesce(t.planned_std_error, 0) >= 0""",
        "intervals and p-values are in order": """
            (t.ci_lower IS NULL) = (t.ci_upper IS NULL)
            AND isfinite(coalesce(t.ci_lower, 0)) AND isfinite(coalesce(t.ci_upper, 0))
            AND coalesce(t.ci_lower <= t.ci_upper, true)
            AND coalesce(t.p_value, 0) BETWEEN 0 AND 1
            AND coalesce(t.p_value_holm, 0) BETWEEN 0 AND 1
            AND t.confidence_level > 0 AND t.confidence_level < 1""",
        "they are of units that there are": """
            t.n_units BETWEEN 0 AND t.n_segment AND t.n_segment <= r.n_units
            AND coalesce(t.coverage, 0) BETWEEN 0 AND 1 + 1e-9""",
    },
}
"""Conditions on each row ``t``, by table; ``r`` is the row of ``release``, ``m`` that of
``metrics``. A condition that is null counts as false."""

_ONCE_A_CELL = """
    SELECT count(*) = count(DISTINCT (t.pool, t.arm, t.outcome))
        AND count(*) = count(p.pool) AND count(*) = count(o.outcome)
        AND count(*) = CASE WHEN (SELECT {published} FROM main.metrics)
            THEN (SELECT count(*) FROM main.pools) * (SELECT count(*) FROM main.outcomes)
            ELSE 0 END
    FROM main.{table} AS t
    LEFT JOIN main.pools AS p ON p.pool = t.pool AND p.arm = t.arm
    LEFT JOIN main.outcomes AS o ON o.outcome = t.outcome"""
_CELLS: Final = {
    "debias: each pool and arm has each outcome once, where units are published": (
        "debias",
        "resampling_probability IS NOT NULL",
    ),
    "counts: each pool and arm has each outcome once, where counts are published": (
        "counts",
        "strata_statistic IN ('counts', 'count-and-complement')",
    ),
}
"""Rules on a table, with the condition on ``metrics`` where it has rows."""
_OF_AN_ARM = """
    count(*) = count(DISTINCT (arm, estimator))
    AND coalesce(bool_and(arm IN (SELECT arm FROM main.pools)), true)"""

_OF_STRATA: Final[dict[str, dict[str, str]]] = {
    "outcomes": {
        "each stands once, and there are n_outcomes": """
            count(*) = (SELECT n_outcomes FROM main.metrics)
            AND count(DISTINCT outcome) = count(*)""",
    },
    "pools": {
        "each pool and arm stands once": "count(*) = count(DISTINCT (pool, arm))",
        "there is control, and another arm (one other, of differences)": """
            bool_or(arm = (SELECT control FROM main.release)) AND count(DISTINCT arm) >= 2
            AND (count(DISTINCT arm) = 2
                OR (SELECT strata_statistic FROM main.metrics) <> 'differences')""",
    },
    "strata": {
        "each cluster and arm stands once, each cluster in one pool": """
            count(*) = count(DISTINCT (cluster, arm))
            AND count(DISTINCT cluster) = count(DISTINCT (cluster, pool))""",
        "their units add up to those of their pools": """(
            SELECT bool_and(p.n_units IS NOT DISTINCT FROM s.n_units)
            FROM main.pools AS p FULL JOIN (
                SELECT pool, arm, sum(n_units) AS n_units FROM main.strata GROUP BY pool, arm
            ) AS s ON s.pool = p.pool AND s.arm = p.arm)""",
        "their units add up to n_units, their clusters to n_clusters at most": """
            sum(n_units) = (SELECT n_units FROM main.release)
            AND count(DISTINCT cluster) <= (SELECT n_clusters FROM main.release)""",
    },
}
"""Conditions on whole tables, which come after those on rows. One that is null counts as false."""

_OF_ARMS: Final[dict[str, dict[str, str]]] = {
    "squares": {
        "each arm of the release once, or none at all, beside means or differences": """
            count(*) = 0 OR (
                (SELECT strata_statistic FROM main.metrics) IN ('means', 'differences')
                AND count(*) = count(DISTINCT arm)
                AND count(*) = (SELECT count(DISTINCT arm) FROM main.pools)
                AND bool_and(arm IN (SELECT arm FROM main.pools)))""",
        "one noise_scale, and the centre is the middle of the outcomes": """
            count(DISTINCT noise_scale) <= 1 AND coalesce(bool_and(
                abs(centre - (SELECT min(outcome) + max(outcome) FROM main.outcomes) / 2)
                <= 1e-9 * (SELECT max(abs(outcome)) FROM main.outcomes)
            ), true)""",
    },
    "means": {
        "each arm of the release has each estimator once at most": _OF_AN_ARM,
    },
    "estimates": {
        "each arm of the release has each estimator once at most": _OF_AN_ARM,
    },
    "units": {
        "there are n_units where units are published, else none": """
            count(*) = CASE
                WHEN (SELECT resampling_probability FROM main.metrics) IS NULL THEN 0
                ELSE (SELECT n_units FROM main.release) END""",
    },
}
"""The same, for rules that come after those on ``debias`` and ``counts``."""


def broken_rule(connection: duckdb.DuckDBPyConnection, size: int) -> str | None:
    """Name the first rule that a release breaks; None where it keeps all.

    The current schema of ``connection`` has the tables of a release, with one row in ``release``
    and one in ``metrics``; ``size`` is the size of the file in bytes.
    """
    held, n_bytes = _judge_rows(connection)
    name = _first_broken(_ROWS, held)
    if name is not None:
        return name
    if n_bytes > _FREE_BYTES + _BYTES_FOR_A_BYTE * size:
        return "tables are of a size that fits the file's"
    name = _broken_table(connection, _OF_STRATA)
    if name is not None:
        return name
    cells = Cells(connection)
    return (
        _broken_cells(connection, cells)
        or broken_debias_rule(connection, cells)
        or _broken_table(connection, _OF_ARMS)
        or broken_unit_rule(connection, cells)
    )


def _judge_rows(connection: duckdb.DuckDBPyConnection) -> tuple[dict[str, list[bool | None]], int]:
    """Which rules on rows hold, by one pass over each table but the units.

    The second value is the memory in bytes that these tables take, which are read whole later. A
    small file can hold large tables, as repeated values and texts are compressed.
    """
    rows = connection.execute(_JUDGE_ROWS).fetchall()
    return {table: held for table, held, _ in rows}, sum(int(n_bytes) for *_, n_bytes in rows)


def _broken_table(
    connection: duckdb.DuckDBPyConnection, rules: dict[str, dict[str, str]]
) -> str | None:
    """The first rule on whole tables that does not hold."""
    queries = (
        f"SELECT '{table}', [{', '.join(f'coalesce({rule}, false)' for rule in of_table.values())}]"  # noqa: S608 - constants of ours
        f" FROM main.{table}"
        for table, of_table in rules.items()
    )
    return _first_broken(rules, dict(connection.execute(" UNION ALL ".join(queries)).fetchall()))


def _first_broken(
    rules: dict[str, dict[str, str]], held: dict[str, list[bool | None]]
) -> str | None:
    """The first rule that is found not to hold; without a row, a rule on rows is neither."""
    for table, of_table in rules.items():
        for name, holds in zip(of_table, held[table], strict=True):
            if holds is False:
                return f"{table}: {name}"
    return None


def _broken_cells(connection: duckdb.DuckDBPyConnection, cells: Cells) -> str | None:
    """The first table that lacks an outcome of a pool and arm, or has one twice, if it has rows."""
    conditions = ", ".join(published for _, published in _CELLS.values())
    found = connection.execute(f"SELECT {conditions} FROM main.metrics").fetchall()[0]  # noqa: S608 - constants of ours
    for (name, (table, published)), is_published in zip(_CELLS.items(), found, strict=True):
        if is_published and cells.is_in_order(table):
            continue
        query = _ONCE_A_CELL.format(table=table, published=published)
        if connection.execute(query).fetchall() != [(True,)]:
            return name
    return None


def _judging(table: str, rules: dict[str, str]) -> str:
    """The query that tells which rules all rows of a table keep, and how large the table is."""
    tests = ", ".join(f"bool_and(coalesce({rule}, false))" for rule in rules.values())
    texts = [name for name, kind in TABLES[table].items() if kind == TEXT]
    lengths = "".join(f' + coalesce(sum(strlen(t."{name}")), 0)' for name in texts)
    return (
        f"SELECT '{table}', [{tests}], {len(TABLES[table]) * 8} * count(*){lengths} "  # noqa: S608 - constants of ours
        f"FROM main.{table} AS t, main.release AS r, main.metrics AS m"
    )


_JUDGE_ROWS: Final = " UNION ALL ".join(_judging(table, rules) for table, rules in _ROWS.items())
