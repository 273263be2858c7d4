"""Rules that the values of every sound release keep; the names of the rules are the messages.

Estimates are computed from what a file states. Where its statements contradict each other (no
pools, λ = 1, infinite noise, units that its strata do not count) the estimates would be nonsense,
or fail with an error elsewhere. So all rules are checked once, when a file is opened, in few passes
over each table: those on single rows here, then those of
:mod:`flows.released.file.checks.table_rules`.
"""

from typing import Final

import duckdb

from flows.runtime.engine import ask
from schemas.names import NAME, PERIOD
from schemas.released import NEIGHBOURS, NEIGHBOURS_WITH_CLUSTERS, TABLES
from schemas.tables import TEXT

_FREE_BYTES = 1 << 30  # in memory, whatever the size of the file
_BYTES_FOR_A_BYTE = 64  # bytes in memory that one byte of the file may stand for
_OF_OUTCOME = {"every row is about an outcome of metrics": "m.kind = 'outcome'"}
_OF_METRIC = {"every row is about a row of metrics": "m.metric IS NOT NULL"}
_OF_CELL = {
    "every row has a pool, an arm and an outcome": """
        t.pool <> '' AND t.arm <> '' AND t.outcome IS NOT NULL"""
}
_BY_TABLES = {
    "every row is about an outcome whose units are drawn by tables": (
        "m.response_epsilon IS NOT NULL"
    )
}
_OF_DRAWN = {
    "table is a number where units are drawn by tables, else missing": """
        CASE WHEN m.response_epsilon IS NULL THEN t."table" IS NULL ELSE t."table" >= 0 END"""
}

_OF_OUTCOMES: Final = {
    "epsilon and delta are a part of the release's": """
        t.epsilon > 0 AND t.epsilon <= r.epsilon AND t.delta >= 0 AND t.delta <= r.delta""",
    "n_outcomes is at least 2": "t.n_outcomes >= 2",
    "missing is a number within ±1e70": "abs(t.missing) <= 1e70",
    "resampling_probability is between 0 and 1": """(
        t.resampling_probability IS NULL
        OR (t.resampling_probability > 0 AND t.resampling_probability < 1))""",
    "response_epsilon is above 0, and without a resampling_probability": """(
        t.response_epsilon IS NULL OR (
            t.resampling_probability IS NULL
            AND t.response_epsilon > 0 AND t.response_epsilon <= 100))""",
    "units are drawn by tables where the mechanism is cluster-optimal-dp, and only there": """
        (t.response_epsilon IS NOT NULL) = (r.mechanism = 'cluster-optimal-dp')""",
    "epsilon and delta pay for response_epsilon, and epsilon for noisy counts beside it": """CASE
        WHEN t.response_epsilon IS NULL THEN true
        WHEN t.delta > 0 THEN t.response_epsilon <= t.epsilon
            OR 1 - exp(t.epsilon - t.response_epsilon)
                <= t.delta * (1 + exp(-t.response_epsilon)) * (1 + 1e-9) + 1e-15
        ELSE t.response_epsilon
            + CASE t.strata_statistic WHEN 'counts' THEN 2 / t.noise_scale
                WHEN 'count-and-complement' THEN 1 / t.noise_scale ELSE 0 END
            + coalesce((
                SELECT max(least(t.n_outcomes - 1, 2) / noise_scale) FROM main.arm_counts
                WHERE metric = t.metric AND noise_scale > 0
            ), 0) <= t.epsilon * (1 + 1e-9) END""",
    "tables of outcomes that are drawn together learn from no counts of arms": """(
        t.drawn_with IS NULL
        OR NOT EXISTS (FROM main.arm_counts WHERE metric = t.metric))""",
    "drawn_with is another outcome, which is drawn by tables, too": """(
        t.drawn_with IS NULL OR (
            t.response_epsilon IS NOT NULL AND t.drawn_with <> t.metric
            AND t.drawn_with IN (
                SELECT metric FROM main.metrics WHERE response_epsilon IS NOT NULL
            )))""",
    "unit_noise is a number, where units and sums of margins are published": """(
        t.unit_noise IS NULL OR (
            t.unit_noise > 0 AND t.unit_noise <= 1e180
            AND coalesce(t.resampling_probability, t.response_epsilon) IS NOT NULL
            AND t.metric IN (SELECT metric FROM main.margins)))""",
    # To undo a table takes the third power of n_outcomes.
    "n_outcomes is at most 100 where units are drawn by tables": """
        t.response_epsilon IS NULL OR t.n_outcomes <= 100""",
    "truncation_threshold is at least 0 and at most 1/n_outcomes": """CASE
        WHEN t.resampling_probability IS NULL THEN t.truncation_threshold IS NULL
        ELSE t.truncation_threshold >= 0
            AND t.truncation_threshold * t.n_outcomes <= 1 + 1e-9 END""",
    "strata_statistic is one of those there are": """t.strata_statistic IN
        ('counts', 'count-and-complement', 'means', 'differences', 'none')""",
    "something is published: units, or a statistic of strata": """(
        t.resampling_probability IS NOT NULL OR t.response_epsilon IS NOT NULL
        OR t.strata_statistic <> 'none')""",
    "noise_scale fits strata_statistic": """CASE t.strata_statistic
        WHEN 'none' THEN t.noise_scale IS NULL
        ELSE t.noise_scale >= 1e-6 AND t.noise_scale <= 1e18 END""",
    "grid_step fits strata_statistic": """CASE
        WHEN t.strata_statistic IN ('means', 'differences')
        THEN t.grid_step > 0 AND t.grid_step <= 2e70
        ELSE t.grid_step IS NULL END""",
    "what was computed is at most what is stated": """
        t.computed_epsilon > 0 AND t.computed_epsilon <= t.epsilon
        AND t.computed_delta >= 0 AND t.computed_delta <= t.delta""",
    "epsilon and delta, stated and computed, are numbers": """
        t.epsilon > 0 AND isfinite(t.epsilon) AND t.delta >= 0 AND t.delta < 1
        AND t.computed_epsilon > 0 AND isfinite(t.computed_epsilon)
        AND t.computed_delta >= 0 AND t.computed_delta < 1""",
}
"""Conditions on the rows of ``metrics`` that are outcomes."""

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
        "decision is all or any where a metric is primary, else missing": """CASE
            WHEN (SELECT count(*) FROM main.metrics WHERE role = 'primary') > 0
            THEN t.decision IN ('all', 'any') ELSE t.decision IS NULL END""",
        "fingerprints of keys are small letters and digits": """
            regexp_full_match(coalesce(t.unit_id_key_fingerprint, 'a'), '[0-9a-z]{1,128}')
            AND regexp_full_match(coalesce(t.account_key_fingerprint, 'a'), '[0-9a-z]{1,128}')""",
        "guess_from has names of releases and digests": """
            regexp_full_match(t.guess_from, '([0-9A-Za-z@+_.-]+( [0-9a-f]{64})?(, )?)*')""",
    },
    "metrics": {
        "labels are short": """
            strlen(coalesce(t.label, '')) <= 1000
            AND strlen(coalesce(t.measured_in, '')) <= 1000""",
        "texts are short, and of an outcome": """
            t.texts IS NULL OR (t.kind = 'outcome' AND strlen(t.texts) <= 5000)""",
        "roles, directions and margins go together": """
            coalesce(t.role, 'secondary') IN ('primary', 'guardrail', 'secondary')
            AND coalesce(t.direction, 'increase') IN ('increase', 'decrease')
            AND (t.role IS NULL) = (t.direction IS NULL)
            AND CASE WHEN t.role = 'guardrail' THEN t.margin > 0 AND t.margin <= 1e150
                ELSE t.margin IS NULL END""",
        "a ratio is of two outcomes, and costs nothing; an outcome is of none": """CASE t.kind
            WHEN 'ratio' THEN t.numerator <> t.denominator
                AND t.numerator IN (SELECT metric FROM main.metrics WHERE kind = 'outcome')
                AND t.denominator IN (SELECT metric FROM main.metrics WHERE kind = 'outcome')
                AND coalesce(
                    t.epsilon, t.delta, t.resampling_probability, t.truncation_threshold,
                    t.noise_scale, t.grid_step, t.n_outcomes, t.response_epsilon,
                    t.computed_epsilon, t.computed_delta, t.missing
                ) IS NULL
                AND t.strata_statistic IS NULL AND t.drawn_with IS NULL
            ELSE t.numerator IS NULL AND t.denominator IS NULL END""",
        **{
            name: f"t.kind = 'ratio' OR coalesce({rule}, false)"
            for name, rule in _OF_OUTCOMES.items()
        },
    },
    "outcomes": _OF_OUTCOME | {"every outcome is a number within ±1e70": "abs(t.outcome) <= 1e70"},
    "pools": _OF_OUTCOME
    | _OF_DRAWN
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
        "own_sizes is one number from 0 to 1, and 0 unless shares are the same": """
            t.own_sizes = 0 OR r.same_shares AND t.own_sizes BETWEEN 0 AND 1
            AND t.own_sizes = (SELECT max(own_sizes) FROM main.strata)""",
    },
    "debias": _OF_OUTCOME
    | _OF_DRAWN
    | _OF_CELL
    | {
        "probabilities are from truncation_threshold to 1": """
            t.probability BETWEEN coalesce(m.truncation_threshold, 0) * (1 - 1e-9) AND 1 + 1e-9""",
        "weights and noise_variance are numbers": """
            isfinite(t.weight) AND isfinite(t.noise_variance)""",
    },
    "counts": _OF_OUTCOME
    | _OF_CELL
    | {
        "noisy counts are numbers within ±1e18": "abs(t.noisy_count::DOUBLE) <= 1e18",
    },
    "squares": _OF_OUTCOME
    | {
        "every row has an arm, and numbers that can be computed with": """
            t.arm <> '' AND abs(t.noisy_square) <= 1e180 AND abs(t.centre) <= 1e70
            AND t.noise_scale > 0 AND t.noise_scale <= 1e180""",
    },
    "margins": _OF_OUTCOME
    | {
        "every row is about a cell of a margin, an arm, and units of both": """
            t.margin >= 0 AND t.cell >= 0 AND t.attribute <> '' AND t."value" IS NOT NULL
            AND t.arm <> '' AND t.n_units >= 1""",
        "sums are numbers that can be computed with, and noised": """
            abs(t.noisy_sum) <= 1e180 AND t.noise_scale >= 1e-180 AND t.noise_scale <= 1e75""",
        "they are of outcomes with unit_noise": "m.unit_noise > 0",
    },
    "randomiser": _OF_OUTCOME
    | _BY_TABLES
    | {
        "every row has a table, an outcome and an output": """
            t."table" >= 0 AND t.outcome IS NOT NULL AND t.output >= 0""",
        "probabilities are from 0 to 1": "t.probability BETWEEN 0 AND 1",
    },
    "guess": _OF_OUTCOME
    | {
        "every row has a cluster, an arm, an outcome and its probability": """
            t."cluster" <> '' AND t.arm <> '' AND abs(t.outcome) <= 1e70
            AND t.probability BETWEEN 0 AND 1 + 1e-9""",
    },
    "arm_counts": _OF_OUTCOME
    | _BY_TABLES
    | {
        "every row has an arm, an outcome, and numbers that can be computed with": """
            t.arm <> '' AND t.outcome IS NOT NULL AND abs(t.noisy_count::DOUBLE) <= 1e18
            AND t.noise_scale >= 1e-6 AND t.noise_scale <= 1e18""",
    },
    "means": _OF_METRIC
    | {
        "every row has an arm, an estimator and numbers": """
            t.arm <> '' AND regexp_full_match(t.estimator, '[a-z][a-z_]{0,63}')
            AND isfinite(t.mean) AND isfinite(coalesce(t.std_error, 0))
            AND coalesce(t.std_error, 0) >= 0""",
    },
    "estimates": _OF_METRIC
    | {
        "every row has an arm, control and an estimator, and no segment": """
            t.arm <> '' AND t.arm <> t.control AND t.control = r.control
            AND regexp_full_match(t.estimator, '[a-z][a-z_]{0,63}') AND t.segment IS NULL""",
        "estimates and errors are numbers": """
            isfinite(t.estimate) AND isfinite(coalesce(t.std_error, 0))
            AND coalesce(t.std_error, 0) >= 0
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
    "ends": _OF_OUTCOME
    | {
        "every row has an end of those there are, and numbers": """
            t."end" IN ('missing', 'lowest', 'highest') AND isfinite(t.share)
            AND isfinite(t.std_error) AND t.std_error >= 0""",
    },
}
"""Conditions on each row ``t``, by table; ``r`` is the row of ``release``, ``m`` the row of
``metrics`` that it is about. A condition that is null counts as false."""


LOSS_RULES: Final = frozenset(
    {
        "metrics: epsilon and delta are a part of the release's",
        "metrics: epsilon and delta pay for response_epsilon, and epsilon for noisy counts beside "
        "it",
        "metrics: what was computed is at most what is stated",
        "metrics: epsilons add up to the release's at most",
        "debias: probabilities are from truncation_threshold to 1",
        "randomiser: no output tells outcomes apart by more than response_epsilon",
    }
)
"""Rules on what a release costs, which :mod:`flows.released.loss` answers for in whole numbers."""


def broken_row_rule(
    connection: duckdb.DuckDBPyConnection, size: int, but: frozenset[str] = frozenset()
) -> str | None:
    """Name the first rule ``but`` some that a row of a release breaks; None where all keep all.

    The current schema of ``connection`` has the tables of a release, with one row in ``release``;
    ``size`` is the size of the file in bytes. A small file can hold large tables, as repeated
    values and texts are compressed, and these are read whole later. Units come later
    (:mod:`flows.released.file.checks.table_rules`).
    """
    rows = ask(connection, _JUDGE_ROWS).fetchall()
    name = first_broken(_ROWS, {table: held for table, held, _ in rows}, but)
    n_bytes = sum(int(of_table) for *_, of_table in rows)
    if name is None and n_bytes > _FREE_BYTES + _BYTES_FOR_A_BYTE * size:
        return "tables are of a size that fits the file's"
    return name


def first_broken(
    rules: dict[str, dict[str, str]],
    held: dict[str, list[bool | None]],
    but: frozenset[str] = frozenset(),
) -> str | None:
    """The first rule that does not hold; without a row, a rule on rows does neither."""
    for table, of_table in rules.items():
        for name, holds in zip(of_table, held[table], strict=True):
            if holds is False and f"{table}: {name}" not in but:
                return f"{table}: {name}"
    return None


def _judging(table: str, rules: dict[str, str]) -> str:
    """The query that tells which rules all rows of a table keep, and its bytes in memory."""
    tests = ", ".join(f"bool_and(coalesce({rule}, false))" for rule in rules.values())
    texts = [name for name, kind in TABLES[table].items() if kind == TEXT]
    lengths = "".join(f' + coalesce(sum(strlen(t."{name}")), 0)' for name in texts)
    about = "" if table == "metrics" else " LEFT JOIN main.metrics AS m ON m.metric = t.metric"
    return (
        f"SELECT '{table}', [{tests}], {len(TABLES[table]) * 8} * count(*){lengths} "  # noqa: S608 - constants of ours
        f"FROM main.{table} AS t{about if 'metric' in TABLES[table] else ''} "
        "CROSS JOIN main.release AS r"
    )


_JUDGE_ROWS: Final = " UNION ALL ".join(_judging(table, rules) for table, rules in _ROWS.items())
