"""Rules that the tables of every sound release keep as wholes, as do the rows of each outcome.

They come after those on single rows (:mod:`flows.released.file.checks.rules`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import duckdb
import numpy as np

from estimators.response.debias import noise_of_outcomes
from estimators.response.response_tables import SingularTableError
from flows.released.file.cells import Cells, read_columns
from flows.released.file.checks.rules import first_broken
from flows.released.file.outputs import read_outputs
from flows.released.file.sql import quote_name, text
from flows.released.file.unit_counts import count_units
from flows.released.file.units import DRAWN, SESSION
from flows.runtime.engine import ask
from schemas.arrays import Floats, Ints
from schemas.released import Manifest, Metric
from schemas.tables import MARGIN_OF, MARGINS, margin_code, margin_columns, randomised

_ONCE_A_CELL = """
    SELECT count(*) = count(DISTINCT (t.pool, t.arm, t.outcome))
        AND count(*) = count(p.pool) AND count(*) = count(o.outcome)
        AND count(*) = CASE WHEN {is_published} THEN
            (SELECT count(*) FROM main.pools WHERE metric = {metric})
            * (SELECT count(*) FROM main.outcomes WHERE metric = {metric})
            ELSE 0 END
    FROM (FROM main.{table} WHERE metric = {metric}) AS t
    LEFT JOIN main.pools AS p ON p.metric = t.metric AND p.pool = t.pool AND p.arm = t.arm
    LEFT JOIN main.outcomes AS o ON o.metric = t.metric AND o.outcome = t.outcome"""
# Outputs are numbered from 0 without a gap, at most two for each outcome and one more; at most four
# for each pair of outcomes that were drawn together, and one more. So are tables.
_ONCE_AN_OUTPUT: Final = """
    WITH found AS (SELECT * FROM main.debias WHERE metric = {metric}),
    drawn AS (SELECT * FROM main.randomiser WHERE metric = {metric}),
    known AS (SELECT * FROM main.pools WHERE metric = {metric}),
    grid AS (SELECT outcome FROM main.outcomes WHERE metric = {metric}),
    others AS (SELECT outcome AS other_outcome FROM main.outcomes WHERE metric = {partner}),
    pairs AS (
        SELECT outcome, other_outcome FROM grid, others
        UNION ALL SELECT outcome, NULL FROM grid WHERE {partner} IS NULL
    ),
    sizes AS (
        SELECT (SELECT count(*) FROM known) AS n_pools, (SELECT count(*) FROM pairs) AS k,
            (SELECT max(outcome) + 1 FROM found) AS j, (SELECT max("table") + 1 FROM known) AS t
    )
    SELECT j BETWEEN 2 AND CASE WHEN {partner} IS NULL THEN 2 ELSE 4 END * k + 1
        AND (SELECT count(*) = n_pools * j AND count(DISTINCT (pool, arm, outcome)) = n_pools * j
            AND bool_and(outcome = floor(outcome) AND outcome >= 0) FROM found)
        AND (SELECT count(*) FROM found SEMI JOIN known USING (pool, arm, "table")) = n_pools * j
        AND (SELECT count(DISTINCT "table") = t FROM known)
        AND (SELECT count(*) = t * k * j
            AND count(DISTINCT ("table", outcome, other_outcome, output)) = t * k * j
            AND bool_and(output = floor(output) AND output < j) FROM drawn)
        AND (SELECT count(*) FROM drawn AS d SEMI JOIN known USING ("table") SEMI JOIN pairs AS p
            ON p.outcome = d.outcome AND p.other_outcome IS NOT DISTINCT FROM d.other_outcome
        ) = t * k * j
    FROM sizes"""
_ONCE_AN_ARM = {
    "each arm of the release has each estimator once at most": """
        count(*) = count(DISTINCT (metric, arm, estimator))
        AND coalesce(bool_and(arm IN (SELECT arm FROM main.pools)), true)"""
}

_OF_GRID: Final[dict[str, dict[str, str]]] = {
    "outcomes": {
        "each stands once, and there are n_outcomes": """
            count(*) = {n_outcomes} AND count(DISTINCT outcome) = count(*)""",
    },
    "pools": {
        "each pool and arm stands once": "count(*) = count(DISTINCT (pool, arm))",
        "there is control, and another arm (one other, of differences)": """
            bool_or(arm = (SELECT control FROM main.release)) AND count(DISTINCT arm) >= 2
            AND (count(DISTINCT arm) = 2 OR NOT {has_differences})""",
    },
}
"""Conditions on the rows of an outcome in a table, which come after those on single rows. One that
is null counts as false."""

_OF_STRATA: Final[dict[str, dict[str, str]]] = {
    "strata": {
        "each cluster and arm stands once, each cluster in one pool": """
            count(*) = count(DISTINCT (cluster, arm))
            AND count(DISTINCT cluster) = count(DISTINCT (cluster, pool))""",
        "their units add up to those of their pools": """(
            SELECT bool_and(p.n_units IS NOT DISTINCT FROM s.n_units)
            FROM (FROM main.pools WHERE metric = {metric}) AS p FULL JOIN (
                SELECT pool, arm, sum(n_units) AS n_units FROM main.strata GROUP BY pool, arm
            ) AS s ON s.pool = p.pool AND s.arm = p.arm)""",
        "their units add up to n_units, their clusters to n_clusters at most": """
            sum(n_units) = (SELECT n_units FROM main.release)
            AND count(DISTINCT cluster) <= (SELECT n_clusters FROM main.release)""",
    },
}
"""Conditions on whole tables; ``metric`` is the first outcome, as pools are the same for all."""

_OF_SEVERAL: Final[dict[str, dict[str, str]]] = {
    "metrics": {
        "outcomes that were drawn together name each other, and are two of one epsilon": """
            count(drawn_with) = 0 OR (
                count(drawn_with) = 2 AND count(*) FILTER (kind = 'outcome') = 2
                AND count(DISTINCT response_epsilon) = 1)""",
        # To undo their table takes the third power of the pairs.
        "outcomes that were drawn together have 100 pairs of values at most": """
            count(drawn_with) = 0 OR min(n_outcomes) * max(n_outcomes) <= 100""",
        "epsilons add up to the release's at most": """
            sum(epsilon) - coalesce(sum(response_epsilon) FILTER (drawn_with IS NOT NULL) / 2, 0)
            <= (SELECT epsilon FROM main.release) * (1 + 1e-9)""",
        "units are published of all outcomes or of none": """
            count(resampling_probability) IN (0, count(*) FILTER (kind = 'outcome'))
            AND count(response_epsilon) IN (0, count(*) FILTER (kind = 'outcome'))""",
    },
    "pools": {
        "they are the same for every outcome": """(
            SELECT bool_and(n = {n_metrics} AND least = most) FROM (
                SELECT count(*) AS n, min(n_units) AS least, max(n_units) AS most
                FROM main.pools GROUP BY pool, arm
            ))""",
    },
}
"""Conditions on whole tables where there are several outcomes."""

_OF_ARMS: Final[dict[str, dict[str, str]]] = {
    "arm_counts": {
        "each arm of the release has each outcome once, or none at all; one noise_scale": """
            count(*) = 0 OR (
                count(*) = count(DISTINCT (arm, outcome))
                AND count(*) = (SELECT count(DISTINCT arm) FROM main.pools) * {n_outcomes}
                AND bool_and(arm IN (SELECT arm FROM main.pools))
                AND bool_and(outcome IN (
                    SELECT outcome FROM main.outcomes WHERE metric = {metric}))
                AND count(DISTINCT noise_scale) = 1)""",
    },
    "guess": {
        "each cluster and arm has each outcome once, and probabilities that add up to 1": """(
            SELECT coalesce(bool_and(n = n_distinct AND abs(total - 1) <= 1e-6), true) FROM (
                SELECT count(*) AS n, count(DISTINCT outcome) AS n_distinct,
                    sum(probability) AS total
                FROM main.guess WHERE metric = {metric} GROUP BY "cluster", arm))""",
        "it is of the metric's range and the release's arms, and guess_from says who taught it": """
            count(*) = 0 OR (
                bool_and(arm IN (SELECT arm FROM main.pools))
                AND min(outcome) = (SELECT min(outcome) FROM main.outcomes WHERE metric = {metric})
                AND max(outcome) = (SELECT max(outcome) FROM main.outcomes WHERE metric = {metric})
                AND (SELECT guess_from <> '' FROM main.release))""",
    },
    "squares": {
        "each arm of the release once, or none at all, beside means or differences": """
            count(*) = 0 OR (
                {has_steps}
                AND count(*) = count(DISTINCT arm)
                AND count(*) = (SELECT count(DISTINCT arm) FROM main.pools)
                AND bool_and(arm IN (SELECT arm FROM main.pools)))""",
        "one noise_scale, and the centre is the middle of the outcomes": """
            count(DISTINCT noise_scale) <= 1 AND coalesce(bool_and(
                abs(centre - (
                    SELECT min(outcome) + max(outcome) FROM main.outcomes WHERE metric = {metric}
                ) / 2) <= 1e-9 * (
                    SELECT max(abs(outcome)) FROM main.outcomes WHERE metric = {metric}
                )
            ), true)""",
    },
}
"""The same as ``_OF_GRID``, for rules that come after those on ``debias`` and ``counts``. Without
a row in a table its own hold."""
_HAVE_ROWS: Final = " UNION ALL ".join(
    f"SELECT '{table}' WHERE EXISTS (FROM main.{table})" for table in _OF_ARMS
)

_OF_CELLS: Final[dict[str, dict[str, str]]] = {
    "margins": {
        "each cell and arm stands once, for every outcome as for the others": """
            count(*) = {n_outcomes_of_release}
                * (SELECT count(DISTINCT (margin, cell, arm)) FROM main.margins)
            AND count(DISTINCT (metric, margin, cell, arm)) = count(*)
            AND count(DISTINCT (margin, cell, arm, attribute, "value", n_units))
                = count(DISTINCT (margin, cell, arm))""",
        "a margin has a number of its own, its attributes, values, and noise_scales": """
            count(DISTINCT margin) = {n_margins} AND max(margin) = {n_margins} - 1
            AND count(DISTINCT (margin, attribute)) = {n_margins}
            AND count(DISTINCT (margin, cell, "value")) = count(DISTINCT (margin, cell))
            AND count(DISTINCT (margin, metric, noise_scale))
                = {n_margins} * {n_outcomes_of_release}""",
    },
}
"""Conditions on the sums of margins, where there are any; then come those on units."""

_OF_CODES: Final = """
    WITH found AS (
        SELECT {attributes}, f.arm::VARCHAR AS arm, {code} AS cell, count(*) AS n
        FROM temp.main.drawn AS u JOIN temp.main.unit_facts AS f ON f._stratum = u._stratum
        GROUP BY ALL
    )
    SELECT (SELECT bool_and(least = most)
            FROM (SELECT min(cell) AS least, max(cell) AS most FROM found GROUP BY {values}))
        AND (SELECT bool_and(m.n_units IS NOT DISTINCT FROM s.n)
            FROM (FROM main.margins WHERE metric = {metric} AND margin = {margin}) AS m
            FULL JOIN (SELECT cell, arm, sum(n) AS n FROM found GROUP BY ALL) AS s
            ON s.cell = m.cell AND s.arm = m.arm)"""

_OF_THE_WHOLE: Final[dict[str, dict[str, str]]] = {
    "means": _ONCE_AN_ARM,
    "estimates": _ONCE_AN_ARM,
    "units": {
        "there are n_units where units are published, else none": """
            count(*) = CASE WHEN {has_units}
                THEN (SELECT n_units FROM main.release) ELSE 0 END""",
    },
}
"""Conditions on whole tables that come last but for those on each unit."""


_OF_GROUPS: Final[dict[str, dict[str, str]]] = {
    "units": {"each has assigned_to, where there is one": "count(*) = count(assigned_to)"},
}
"""The same, where arms were not given unit by unit."""


_OF_PAIRS: Final = {
    "randomiser: outcomes that were drawn together have one table": """
        SELECT count(*) = 0 FROM (FROM main.randomiser WHERE metric = {first}) AS a
        JOIN (FROM main.randomiser WHERE metric = {second}) AS b
        ON a."table" = b."table" AND a.output = b.output
        AND a.outcome = b.other_outcome AND a.other_outcome = b.outcome
        WHERE a.probability <> b.probability""",
    "pools: outcomes that were drawn together name one table": """
        SELECT count(*) = 0 FROM (FROM main.pools WHERE metric = {first}) AS a
        JOIN (FROM main.pools WHERE metric = {second}) AS b ON a.pool = b.pool AND a.arm = b.arm
        WHERE b."table" <> a."table" """,
    "units: outcomes that were drawn together have one output": """
        SELECT coalesce(bool_and({one} = {other}), true) FROM temp.main.drawn""",
}
"""Queries on two outcomes that were drawn together, which come last of all."""


_ADDS_UP: Final = 1e-9
_NOISE: Final = "debias: noise_variance is what the randomisation adds"
_N_UNITS: Final = "SELECT count(*), count(unit_id) FROM temp.main.drawn"
_FACTS: Final = """
    SELECT coalesce(count(*) = (SELECT count(*) FROM main.strata)
        AND count(*) = (SELECT count(*) FROM temp.main.unit_facts)
        AND count(DISTINCT _stratum) = count(*)
        AND count(DISTINCT (s.cluster, s.arm)) = count(*)
        AND bool_and(coalesce(weight, 1) > 0 AND isfinite(coalesce(weight, 1)) {shifts}), false)
    FROM temp.main.unit_facts AS f
    JOIN main.strata AS s ON s.cluster = f.cluster::VARCHAR AND s.arm = f.arm::VARCHAR"""
_OF_STRATUM: Final = """
    SELECT {columns} FROM temp.main.numbered_strata AS s
    JOIN temp.main.unit_facts AS f ON f._stratum = s.stratum ORDER BY s.code"""
_OF_OUTPUT: Final = """
    SELECT weight FROM temp.main.weights WHERE metric = {metric} ORDER BY "table", output"""
_SIZES: Final = """
    SELECT s.n_units, p.code AS pool FROM temp.main.numbered_strata AS s
    JOIN temp.main.numbered_pools AS p ON p.pool = s.pool AND p.arm = s.arm
    ORDER BY s.code"""


def broken_table_rule(
    connection: duckdb.DuckDBPyConnection, manifest: Manifest, but: frozenset[str] = frozenset()
) -> str | None:
    """Name the first rule ``but`` some that tables of a release break; None where they keep all.

    The current schema of ``connection`` has the tables of a release, whose rows keep their rules;
    ``manifest`` is what it says of itself.
    """
    outcomes = manifest.outcomes
    first = _parts(outcomes[0], len(outcomes))
    of_arms = {table: _OF_ARMS[table] for (table,) in ask(connection, _HAVE_ROWS).fetchall()}

    def of_table(rules: dict[str, dict[str, str]], metric: Metric | None = None) -> str | None:
        parts = first if metric is None else _parts(metric)
        return _broken_table(connection, rules, parts, metric, but)

    def of_statistics(metric: Metric) -> str | None:
        cells = Cells(connection, metric.metric)
        return (
            _broken_cells(connection, cells, metric)
            or _broken_debias(cells, metric, but)
            or of_table(of_arms, metric)
        )

    def of_units(metric: Metric) -> str | None:
        cells = Cells(connection, metric.metric)
        return _broken_units(connection, cells, metric, outcomes.index(metric))

    return (
        _broken_of(outcomes, partial(of_table, _OF_GRID))
        or of_table(_OF_SEVERAL if len(outcomes) > 1 else {})
        or of_table(_OF_STRATA)
        or _broken_of(outcomes, of_statistics)
        or of_table(_OF_THE_WHOLE)
        or of_table(_OF_GROUPS if manifest.assigned else {})
        or _broken_facts(connection, len(outcomes))
        or _broken_margins(connection, manifest)
        or _broken_of(outcomes, of_units)
        or _broken_pair(connection, outcomes)
    )


def _broken_pair(connection: duckdb.DuckDBPyConnection, outcomes: Sequence[Metric]) -> str | None:
    """The first rule that two outcomes break which were drawn together."""
    if outcomes[0].drawn_with is None:
        return None
    first, second = outcomes
    for name, query in _OF_PAIRS.items():
        filled = query.format(
            first=text(first.metric),
            second=text(second.metric),
            one=quote_name(randomised(first.metric)),
            other=quote_name(randomised(second.metric)),
        )
        if ask(connection, filled).fetchall() != [(True,)]:
            return name
    return None


def _broken_of(outcomes: Sequence[Metric], find: Callable[[Metric], str | None]) -> str | None:
    """The first rule that an outcome breaks; of several it is said which one."""
    for metric in outcomes:
        name = find(metric)
        if name is not None:
            return name if len(outcomes) == 1 else f"of {metric.metric}, {name}"
    return None


def _parts(metric: Metric, n_metrics: int = 1) -> dict[str, str]:
    """What rules say of an outcome, as SQL."""
    return {
        "metric": text(metric.metric),
        "n_metrics": str(n_metrics),
        "n_outcomes": str(metric.n_outcomes),
        "has_units": str(metric.has_units),
        "has_differences": str(metric.strata_statistic == "differences"),
        "has_steps": str(metric.strata_statistic in ("means", "differences")),
    }


def _broken_table(
    connection: duckdb.DuckDBPyConnection,
    rules: dict[str, dict[str, str]],
    parts: dict[str, str],
    metric: Metric | None,
    but: frozenset[str],
) -> str | None:
    """The first rule that does not hold: on whole tables, or on a metric's rows in them."""
    if not rules:
        return None
    where = "" if metric is None else " WHERE metric = {metric}"
    queries = (
        f"SELECT '{table}', [{', '.join(f'coalesce({rule}, false)' for rule in of_table.values())}]"  # noqa: S608 - constants of ours
        f" FROM {SESSION[DRAWN] if table == 'units' else f'main.{table}'}{where}"
        for table, of_table in rules.items()
    )
    query = " UNION ALL ".join(queries).format(**parts)
    return first_broken(rules, dict(ask(connection, query).fetchall()), but)


def _broken_cells(
    connection: duckdb.DuckDBPyConnection, cells: Cells, metric: Metric
) -> str | None:
    """The first table that lacks an outcome of a pool and arm, or has one twice, if it has rows."""
    name = text(metric.metric)
    if metric.has_tables:
        partner = "NULL" if metric.drawn_with is None else text(metric.drawn_with)
        query = _ONCE_AN_OUTPUT.format(metric=name, partner=partner)
        if ask(connection, query).fetchall() != [(True,)]:
            return "debias and randomiser: each pool and arm, or table, has each output once"
    has_counts = metric.strata_statistic in ("counts", "count-and-complement")
    tables = {"counts": ("counts", has_counts)}
    if not metric.has_tables:
        tables = {"debias": ("units", metric.resampling_probability is not None)} | tables
    for table, (what, is_published) in tables.items():
        if is_published and cells.is_in_order(table):
            continue
        query = _ONCE_A_CELL.format(table=table, metric=name, is_published=is_published)
        if ask(connection, query).fetchall() != [(True,)]:
            return f"{table}: each pool and arm has each outcome once, where {what} are published"
    return None


def _broken_debias(cells: Cells, metric: Metric, but: frozenset[str]) -> str | None:
    """Name the first rule ``but`` some that a metric's ``debias`` breaks; None where it keeps all.

    ``debias`` has each outcome once in every pool and arm, or no row where no units are published.
    """
    rate = metric.resampling_probability
    if metric.response_epsilon is not None:
        found = _broken_table_rules(cells, metric.response_epsilon)
        return next((name for name in found if name not in but), None)
    if rate is None:
        return None
    grid = cells.grid
    prior, weights = (cells.matrix("debias", name) for name in ("probability", "weight"))
    if not bool(np.all(np.abs(prior.sum(axis=1) - 1.0) <= 1e-9)):
        return "debias: probabilities add up to 1"
    if not undo_response(grid, prior, weights, rate):
        return "debias: weights are those that undo the randomisation"
    noise = cells.matrix("debias", "noise_variance")
    return None if _are_equal(noise, noise_of_outcomes(grid, prior, rate)) else _NOISE


def _are_equal(one: Floats, other: Floats) -> bool:
    """Whether numbers are the same to 1e-9 of the greatest."""
    return bool(np.all(np.abs(one - other) <= _ADDS_UP * np.max(np.abs(other), initial=0.0)))


def undo_response(grid: Floats, prior: Floats, weights: Floats, rate: float) -> bool:
    """Whether ``weights`` are (y − λ m)/(1 − λ), m = Σ y q̃_y, to 1e-9 of the greatest |y|.

    y is ``grid``, shape [K], q̃ ``prior``, shape [P, K] as ``weights``, λ ``rate``.
    """
    apart = weights * (1.0 - rate)
    apart -= grid
    apart += rate * (prior @ grid)[:, np.newaxis]
    return bool(np.all(np.abs(apart, out=apart) <= 1e-9 * np.max(np.abs(grid))))


def _broken_table_rules(cells: Cells, epsilon: float) -> Iterator[str]:
    """Name the rules that the numbers of response tables break.

    ``debias`` has each output once in every pool and arm, ``randomiser`` in every table.
    """
    grid = cells.grid
    drawn, inputs = cells.chances, np.repeat(grid, cells.n_others)
    likely, weights, noise, is_one = cells.outputs
    most, least = drawn.max(axis=1), drawn.min(axis=1)
    rules = {
        "randomiser: probabilities add up to 1": np.abs(drawn.sum(axis=2) - 1.0) <= _ADDS_UP,
        "randomiser: no output tells outcomes apart by more than response_epsilon": (
            most <= least * np.exp(epsilon) * (1.0 + 1e-9)
        ),
        "debias: probabilities add up to 1": np.abs(likely.sum(axis=1) - 1.0) <= _ADDS_UP,
        "debias: what randomiser has not is never likely, and all else is": (
            (most > 0) == (likely > 0)
        ),
        "debias: pools of one table have its numbers": is_one,
        "debias: weights are those that undo the randomisation": (
            np.abs(np.einsum("pkj,pj->pk", drawn, weights) - inputs)
            <= _ADDS_UP * np.max(np.abs(grid))
        ),
    }
    for name, held in rules.items():
        if not bool(np.all(held)):
            yield name
    try:
        outputs = read_outputs(cells, grid)
    except SingularTableError:
        yield "randomiser: outcomes can be told apart"
    else:
        if not _are_equal(noise, outputs.functions.noise):
            yield _NOISE


def _broken_facts(connection: duckdb.DuckDBPyConnection, n_outcomes: int) -> str | None:
    """Name the rule that what ``units`` shows of strata breaks as a whole."""
    shifts = " ".join(f"AND isfinite(f.shift{at})" for at in range(n_outcomes))
    if ask(connection, _FACTS.format(shifts=shifts)).fetchall() == [(True,)]:
        return None
    return "units: they show each stratum once, as it is in strata, with numbers"


def _broken_margins(connection: duckdb.DuckDBPyConnection, manifest: Manifest) -> str | None:
    """Name the first rule that sums of margins, or the numbers of units' cells, break."""
    n_outcomes, n_margins = len(manifest.outcomes), len(manifest.margins)
    parts = {"n_outcomes_of_release": str(n_outcomes), "n_margins": str(n_margins)}
    columns = [one[0] for one in ask(connection, "DESCRIBE temp.main.drawn").fetchall()]
    if [one for one in columns if one.startswith(MARGINS)] != [*margin_columns(n_margins)]:
        return "margins: units have numbers of cells of these alone"
    if not n_margins:
        return None
    found = _broken_table(connection, _OF_CELLS, parts, None, frozenset())
    if found is not None:
        return found
    for margin, attribute in enumerate(manifest.margins):
        names = attribute.split(MARGIN_OF)
        if not {*names} <= {*manifest.attributes}:
            return "margins: each is of attributes of units, and these have its cells' numbers"
        query = _OF_CODES.format(
            attributes=", ".join(f"u.{quote_name(name)} AS v{at}" for at, name in enumerate(names)),
            values=", ".join(f"v{at}" for at in range(len(names))),
            code=margin_code(margin, n_margins, "u."),
            metric=text(manifest.outcomes[0].metric),
            margin=margin,
        )
        if ask(connection, query).fetchall() != [(True,)]:
            return "units: those of one value are in one cell of a margin, which counts them"
    return None


def _broken_units(
    connection: duckdb.DuckDBPyConnection, cells: Cells, metric: Metric, at: int
) -> str | None:
    """Name the rule that a metric's columns of ``units`` break; None where they keep it.

    ``debias`` keeps its own. Units of one outcome in a stratum are counted together, so this takes
    memory for strata alone. ``at`` is the outcome's place.
    """
    if not metric.has_units or _units_fit(connection, cells, metric, at):
        return None
    return "units: each has an id, and an outcome and its weight as in debias; strata count them"


def _units_fit(
    connection: duckdb.DuckDBPyConnection, cells: Cells, metric: Metric, at: int
) -> bool:
    name = metric.metric
    ((n_units, n_ids),) = ask(connection, _N_UNITS).fetchall()
    if n_units != n_ids:
        return False
    by_tables = metric.has_tables
    grid = np.arange(cells.n_outputs, dtype=np.float64) if by_tables else cells.grid
    sizes, pool = read_columns(connection, _SIZES)
    units = count_units(connection, name, grid)
    if int(units.n.sum()) != n_units:  # some have a stratum that nobody counts
        return False
    if not np.array_equal(np.bincount(units.stratum, units.n, minlength=len(sizes)), sizes):
        return False
    level = np.minimum(np.searchsorted(grid, units.low), len(grid) - 1)
    ends = ((units.low, grid[level]), (units.high, grid[level]))
    return all(np.array_equal(*pair) for pair in ends) and _weights_fit(
        connection, cells, metric, at, grid, cells.rank[pool]
    )


def _weights_fit(
    connection: duckdb.DuckDBPyConnection,
    cells: Cells,
    metric: Metric,
    at: int,
    grid: Floats,
    cell: Ints,
) -> bool:
    """Whether ``units`` shows the weights of ``debias``; ``cell`` is the row there of each stratum.

    By y ``factor`` + ``base`` to 1e-9 of the greatest |y|, of outputs by their own numbers.
    """
    if metric.has_tables:
        (table,) = read_columns(connection, _OF_STRATUM.format(columns=f'f.table{at} AS "table"'))
        (shown,) = read_columns(connection, _OF_OUTPUT.format(metric=text(metric.metric)))
        own = np.array_equal(table, cells.table_of[cell])
        return own and np.array_equal(shown, cells.outputs[1].ravel())
    columns = f"f.factor{at} AS factor, f.base{at} AS base"
    factor, base = read_columns(connection, _OF_STRATUM.format(columns=columns))
    apart = (
        factor[:, np.newaxis] * grid + base[:, np.newaxis] - cells.matrix("debias", "weight")[cell]
    )
    return bool(np.all(np.abs(apart) <= 1e-9 * np.max(np.abs(grid))))
