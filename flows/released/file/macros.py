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

from dataclasses import dataclass
from hashlib import sha256

import duckdb
import numpy as np
import polars as pl
from numpy.polynomial.chebyshev import chebfit, chebpts1

from estimators.collapsed_strata import LEAST_SEEN
from estimators.contrast_strata import MIN_UNITS
from estimators.intervals import quantile
from flows.released.file.evidence import MOMENTS, Released
from flows.released.file.sql import quoted, text
from schemas.released import TABLES
from schemas.tables import MACROS, PREFIX

LEVEL = 0.95
"""The confidence level of the estimates in a file and of ``ate_by_segment``."""

WANTED_FIRST = ("arm", "estimator", "estimate", "ci_lower", "ci_upper")
"""The columns that a person looks for first."""

SHARPEST_FIRST = ("combined", "tau_q", "histogram", "horvitz_thompson")

_FOR_MACROS = "For the macros of this release alone: a number that they would else work out anew."

_QUANTILE_DEGREE = 20
"""Of the polynomial in 1/df that gives t quantiles: relative error 5e-13 for every df ≥ 1."""

_INTEGERS = ", ".join(
    f"'{sign}{size}'"
    for sign in ("", "U")
    for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)

_ATE = """
SELECT {columns}
FROM {estimates}
WHERE EXISTS (FROM {t_quantile})
ORDER BY metric, array_position({sharpest_first}, estimator), arm
"""

_NOTHING_TO_SLICE = "SELECT error('this release has no units, so nothing can be sliced')"

QUANTILE_OF_DF = """(
    SELECT sum(coefficient * cos(k * acos(2 / df - 1))) FROM {t_quantile}
)"""
"""t_{(1+level)/2} by its Chebyshev coefficients as a polynomial in 1/df."""

P_VALUE_OF_T = """(
    SELECT sum(w * exp(-(nu + 1) / 2 * ln(1 + (t + x) ** 2 / nu)))
        / sum(w * exp(-(nu + 1) / 2 * ln(1 + x ** 2 / nu)))
    FROM (SELECT least(df, 1e8) AS nu), (
        SELECT exp(pi() / 4 * (exp(i / 16.0) - exp(-i / 16.0))) AS x,
            x * (exp(i / 16.0) + exp(-i / 16.0)) AS w
        FROM range(-60, 61) AS nodes(i)
    )
)"""
"""P(|T| ≥ t) = ∫_t^∞ k / ∫_0^∞ k, k(x) = (1 + x²/df)^(−(df + 1)/2), by exp-sinh quadrature.

Absolute error 1e-7 at most; above 1e8 degrees of freedom, where it stops, the law is normal.
"""

# An @ stands for PREFIX, braces for a table of the release or a constant of it. Names are those of
# estimators/: slices.py, comparable.py, collapsed.py, effects.py, intervals.py.
_ATE_BY_SEGMENT = """
WITH
-- The analyst's table, every pair once.
@members AS (
    SELECT DISTINCT {matched} AS unit_id, segment::VARCHAR AS segment
    FROM query_table(segments_table)
    WHERE unit_id IS NOT NULL AND segment IS NOT NULL
),
-- Moments of d = ỹ − ȳ over each slice; cluster and arm are null for units not in the release.
@moments AS MATERIALIZED (
    SELECT m.segment, u.cluster, u.arm, {moments}
    FROM @members AS m
    LEFT JOIN (
        SELECT unit_id, cluster, arm, {outcome} - {center} AS d FROM {units}
    ) AS u ON u.unit_id = m.unit_id
    GROUP BY m.segment, u.cluster, u.arm
),
@known AS (
    SELECT m.*, p.pool, p.prior_mean, p.prior_variance, p.prior_square, p.prior_square_variance,
        m.variance * (m.n - 1) / m.n + m.mean * m.mean AS found
    FROM @moments AS m
    JOIN {strata} AS s ON s.cluster = m.cluster AND s.arm = m.arm
    JOIN {pools} AS p ON p.pool = s.pool AND p.arm = s.arm
),
-- debias_mean and debias_square: (f − λ m)/(1 − λ) and its noise
-- V̂_RR = r(1 + r)[mean (f − m)² + (1 − λ) Var_q̃]/n.
@slices AS (
    SELECT segment, cluster, arm, pool, n,
        variance / ((1 - {rate}) * (1 - {rate})) AS within,
        (mean - {rate} * prior_mean) / (1 - {rate}) AS mean,
        {noise} * (
            variance * (n - 1) / n + (mean - prior_mean) * (mean - prior_mean)
            + (1 - {rate}) * prior_variance
        ) / n AS mean_noise,
        (found - {rate} * prior_square) / (1 - {rate}) AS square,
        {noise} * (
            greatest(fourth - 2 * prior_square * found + prior_square * prior_square, 0)
            + (1 - {rate}) * prior_square_variance
        ) / n AS square_noise
    FROM @known
),
-- comparable: clusters with two units in both arms stand for themselves, the others are merged
-- where all clusters were randomised with the same arm shares.
@treatments AS (SELECT DISTINCT arm FROM {strata} WHERE arm <> {control}),
@clusters AS (
    SELECT s.segment, t.arm, s.cluster, sum(s.n) AS everyone,
        coalesce(sum(s.n) FILTER (WHERE s.arm = t.arm), 0) AS n_treated,
        coalesce(sum(s.n) FILTER (WHERE s.arm = {control}), 0) AS n_control
    FROM @slices AS s CROSS JOIN @treatments AS t
    GROUP BY s.segment, t.arm, s.cluster
),
@candidates AS (
    SELECT *, least(n_treated, n_control) >= {min_units} AS alone,
        CASE WHEN least(n_treated, n_control) >= {min_units} THEN 'cluster ' || cluster
        ELSE 'merged' END AS stratum
    FROM @clusters WHERE n_treated + n_control > 0
),
@comparable AS (
    SELECT segment, arm, cluster, stratum, everyone, alone, n_treated, n_control FROM @candidates
    WHERE alone OR {same_shares}
    QUALIFY least(
        sum(n_treated) OVER (PARTITION BY segment, arm, stratum),
        sum(n_control) OVER (PARTITION BY segment, arm, stratum)
    ) >= {min_units}
),
-- Merged clusters by twos, an odd one with the last two; names in the order of their bytes.
@merged AS (
    SELECT segment, arm, cluster, n_treated, n_control,
        least((place - 1) // 2, size // 2 - 1) AS pair
    FROM (
        SELECT *, row_number() OVER (
            PARTITION BY segment, arm
            ORDER BY n_treated, n_control, encode(cluster::VARCHAR)
        ) AS place, count(*) OVER (PARTITION BY segment, arm) AS size
        FROM @comparable WHERE NOT alone
    )
),
-- b_s, the stratum's share of the segment's units, all arms counted.
@weights AS (
    SELECT segment, arm, stratum, sum(everyone) AS weight FROM @comparable
    GROUP BY segment, arm, stratum
),
@shares AS (
    SELECT segment, arm, stratum, weight / sum(weight) OVER (PARTITION BY segment, arm) AS share
    FROM @weights
),
@totals AS (
    SELECT segment, arm, sum(weight) AS n_units FROM @weights GROUP BY segment, arm
),
-- Whom an estimate is meant for, all arms counted, compared or not.
@meant AS (SELECT segment, sum(n) AS n_segment FROM @slices GROUP BY segment),
-- The slices of both sides of a contrast; part is a slice's share of its stratum's units, middle
-- the mean of the stratum.
@rows AS (
    SELECT c.segment, c.arm, c.stratum, c.cluster, s.arm AS side, s.pool, s.n, s.within,
        s.mean, s.mean_noise, s.square, s.square_noise,
        s.n / sum(s.n) OVER (PARTITION BY c.segment, c.arm, c.stratum, s.arm) AS part
    FROM @comparable AS c
    JOIN @slices AS s
    ON s.segment = c.segment AND s.cluster = c.cluster AND (s.arm = c.arm OR s.arm = {control})
),
@middles AS (
    SELECT *, sum(part * mean) OVER (PARTITION BY segment, arm, stratum, side) AS middle FROM @rows
),
-- Means that are equal but for rounding are equal.
@sides AS (
    SELECT *, CASE WHEN abs(mean - middle) < 1e-12 * abs(middle) THEN 0 ELSE mean - middle END
        AS from_middle
    FROM @middles
),
-- s² of the debiased outcomes.
@sample_variance AS (
    SELECT segment, arm, stratum, side, sum(n) AS n,
        sum((n - 1) * within + n * from_middle * from_middle) / (sum(n) - 1) AS spread
    FROM @sides GROUP BY segment, arm, stratum, side
),
-- collapsed: z, what each merged cluster adds to the contrast; seen is A_p.
@added AS (
    SELECT m.segment, m.arm, m.pair, m.cluster, m.n_treated, m.n_control,
        sum(m.n_treated) OVER whole AS all_treated, sum(m.n_control) OVER whole AS all_control, z
    FROM @merged AS m
    JOIN (
        SELECT segment, arm, cluster,
            sum(CASE WHEN side = arm THEN part ELSE -part END * from_middle) AS z
        FROM @sides WHERE stratum = 'merged' GROUP BY segment, arm, cluster
    ) AS s ON s.segment = m.segment AND s.arm = m.arm AND s.cluster = m.cluster
    WINDOW whole AS (PARTITION BY m.segment, m.arm)
),
@pairs AS (
    SELECT segment, arm, count(*) - 1 AS free, count(*) * var_samp(z) AS variance,
        (sum(n_treated) - count(*) * var_samp(n_treated) / any_value(all_treated))
        / any_value(all_treated) ** 2
        + (sum(n_control) - count(*) * var_samp(n_control) / any_value(all_control))
        / any_value(all_control) ** 2 AS seen,
        1 / any_value(all_treated) + 1 / any_value(all_control) AS worth
    FROM @added GROUP BY segment, arm, pair
),
@collapsed AS (
    SELECT segment, arm, sum(variance) * any_value(worth) / sum(seen) AS variance,
        sum(seen) ** 2 / sum(seen ** 2 / free) AS freedom
    FROM @pairs GROUP BY segment, arm
    HAVING sum(seen) >= {least_seen} * any_value(worth)
),
-- Sums over a stratum's slices in a pool, and what calibrated takes of the pool: common is the
-- covariance with the mean of the whole pool, apart the statistic less that mean, and known the
-- variance of both.
@parts AS (
    SELECT segment, arm, stratum, side, pool, sum(n) AS n, sum(part) AS part,
        sum(part * mean) AS mean, sum(part * part * mean_noise) AS mean_noise,
        sum(part * n * mean_noise) AS mean_common,
        sum(part * square) AS square, sum(part * part * square_noise) AS square_noise,
        sum(part * n * square_noise) AS square_common
    FROM @sides GROUP BY segment, arm, stratum, side, pool
),
@pooled AS (
    SELECT s.segment, s.arm, s.stratum, s.side, s.pool, s.n, s.part,
        s.mean, s.mean_noise, s.mean_common / p.n_units AS mean_common,
        p.mean_weight, p.mean_fourth, p.mean_value - p.whole_mean AS mean_apart,
        p.whole_mean_noise + p.mean_variance AS mean_known,
        s.square, s.square_noise, s.square_common / p.square_units AS square_common,
        p.square_cell, p.square_weight, p.square_value - p.whole_square AS square_apart,
        p.whole_square_noise + p.square_variance AS square_known
    FROM @parts AS s JOIN {pools} AS p ON p.pool = s.pool AND p.arm = s.side
),
-- calibrated, by stratum: θ̂ = Σ v̂ + Σ_p w T_p (M_p − μ̂_p), and likewise for squares.
@strata_means AS (
    SELECT segment, arm, stratum, side, sum(n) AS n,
        sum(mean + mean_weight * part * mean_apart) AS mean,
        greatest(sum(
            mean_noise + mean_weight * part * (mean_weight * part * mean_known - 2 * mean_common)
        ), 0) AS mean_noise,
        sum(square + square_weight * part * square_apart) AS square,
        sum(mean_noise) AS response_noise, 1 - sum(mean_weight * part) AS unknown
    FROM @pooled GROUP BY segment, arm, stratum, side
),
@estimators AS (SELECT estimator FROM (VALUES {estimators}) AS names(estimator)),
-- What the variance of pairs replaces of a merged stratum's Ŝ²/n, and with what.
@replaced AS (
    SELECT e.estimator, v.segment, v.arm, v.stratum, v.side, c.variance, c.freedom,
        CASE WHEN sum(v.spread / v.n) OVER both_arms > 0
            THEN v.spread / v.n / sum(v.spread / v.n) OVER both_arms
            ELSE 0.5 END AS own,
        CASE e.estimator WHEN 'tau_q' THEN 1
            ELSE min(m.unknown) OVER both_arms * max(m.unknown) OVER both_arms END AS used,
        CASE e.estimator WHEN 'tau_q' THEN 0 ELSE sum(m.response_noise) OVER both_arms END AS noise
    FROM @sample_variance AS v
    JOIN @strata_means AS m
    ON m.segment = v.segment AND m.arm = v.arm AND m.stratum = v.stratum AND m.side = v.side
    JOIN @collapsed AS c ON c.segment = v.segment AND c.arm = v.arm
    CROSS JOIN @estimators AS e
    WHERE v.stratum = 'merged'
    WINDOW both_arms AS (PARTITION BY e.estimator, v.segment, v.arm)
),
-- V_A of the squares of each stratum.
@stratum_noise AS (
    SELECT segment, arm, stratum, side,
        greatest(sum(noise + factor * (factor * known - 2 * common)), 0) AS square_noise
    FROM (
        SELECT segment, arm, stratum, side, square_cell, sum(square_noise) AS noise,
            sum(square_common) AS common, any_value(square_weight) * sum(part) AS factor,
            any_value(square_known) AS known
        FROM @pooled GROUP BY segment, arm, stratum, side, square_cell
    )
    GROUP BY segment, arm, stratum, side
),
-- Ŝ² = n/(n − 1)·[Â − (μ̂ − ȳ)² + V̂(μ̂)] as it is, and the two bounds that the grid sets to it.
@outcome_variance AS (
    SELECT m.*, n / (n - 1) AS more, square - mean * mean + mean_noise AS spread, v.square_noise,
        ({highest} - least(greatest({lowest}, mean), {highest}))
        * (least(greatest({lowest}, mean), {highest}) - {lowest}) + mean_noise AS most,
        (({highest} - {lowest}) / 2) ** 2 AS widest
    FROM @strata_means AS m
    JOIN @stratum_noise AS v
    ON v.segment = m.segment AND v.arm = m.arm AND v.stratum = m.stratum AND v.side = m.side
),
@spreads AS (
    SELECT 'tau_q' AS estimator, segment, arm, stratum, side, n, spread,
        NULL::DOUBLE AS noise, NULL::DOUBLE AS most, NULL::DOUBLE AS widest
    FROM @sample_variance
    UNION ALL
    SELECT 'combined', segment, arm, stratum, side, n, spread * more,
        greatest(square_noise - 1e-9 * widest ** 2, 0) * more ** 2, most * more, widest * more
    FROM @outcome_variance
),
@weighted_spreads AS (
    SELECT s.*, b.share, coalesce(1 - r.used, 1) AS kept,
        coalesce(r.own * r.used * (r.variance - r.noise), 0) AS paired,
        coalesce(r.own * (r.used * r.variance) ** 2 / r.freedom, 0) AS doubt
    FROM @spreads AS s
    JOIN @shares AS b ON b.segment = s.segment AND b.arm = s.arm AND b.stratum = s.stratum
    LEFT JOIN @replaced AS r
    ON r.estimator = s.estimator AND r.segment = s.segment AND r.arm = s.arm
        AND r.stratum = s.stratum AND r.side = s.side
),
@usual_spreads AS (
    SELECT *, coalesce(least(
            greatest(sum(share ** 2 * kept * spread / n) OVER whole, 0),
            sum(share ** 2 * most / n) OVER whole, sum(share ** 2 * widest / n) OVER whole
        ) / nullif(sum(share ** 2 * kept / n) OVER whole, 0), 0) AS usual
    FROM @weighted_spreads
    WINDOW whole AS (PARTITION BY estimator, segment, arm, side)
),
-- Inside: for degrees of freedom, drawn to the usual Ŝ² as far as it is noise.
@known_spreads AS (
    SELECT *, CASE estimator WHEN 'tau_q' THEN spread ELSE least(greatest(
            usual
            + (spread - usual) * coalesce(usual ** 2 / nullif(usual ** 2 + noise, 0), 1), 0
        ), most, widest) END AS inside
    FROM @usual_spreads
),
-- Σ b² S²/n of each arm, brought between its bounds as a sum, and half of its variance but for V_A.
@of_arms AS (
    SELECT estimator, segment, arm, side,
        least(
            greatest(sum(share ** 2 * (kept * spread / n + paired)), 0),
            sum(share ** 2 * most / n),
            sum(share ** 2 * widest / n)
        ) AS variance,
        sum(share ** 4 * ((kept * inside / n) ** 2 / (n - 1) + doubt)) AS scatter
    FROM @known_spreads GROUP BY estimator, segment, arm, side
),
-- V_A, the noise of Σ b² Â/(n − 1).
@square_cells AS (
    SELECT p.segment, p.arm, p.side, p.square_cell,
        sum((k.share ** 2 * k.kept / (k.n - 1)) ** 2 * p.square_noise) AS noise,
        sum(k.share ** 2 * k.kept / (k.n - 1) * p.square_common) AS common,
        any_value(p.square_weight) * sum(k.share ** 2 * k.kept / (k.n - 1) * p.part) AS factor,
        any_value(p.square_known) AS known
    FROM @pooled AS p
    JOIN @known_spreads AS k
    ON k.estimator = 'combined' AND k.segment = p.segment AND k.arm = p.arm
        AND k.stratum = p.stratum AND k.side = p.side
    GROUP BY p.segment, p.arm, p.side, p.square_cell
),
@uncertainty AS (
    SELECT segment, arm, side,
        greatest(sum(noise + factor * (factor * known - 2 * common)), 0) AS uncertainty
    FROM @square_cells GROUP BY segment, arm, side
),
@sampling AS (
    SELECT s.estimator, s.segment, s.arm, sum(s.variance) AS variance,
        sum(s.scatter + CASE s.estimator WHEN 'tau_q' THEN 0 ELSE u.uncertainty / 2 END) AS scatter
    FROM @of_arms AS s
    JOIN @uncertainty AS u ON u.segment = s.segment AND u.arm = s.arm AND u.side = s.side
    GROUP BY s.estimator, s.segment, s.arm
),
-- calibrated, by segment, with weight 0 (tau_q) or the pools' own (combined).
@pool_sums AS (
    SELECT e.estimator, s.segment, s.arm, s.side, s.pool,
        sum(b.share * s.mean) AS mean, sum(b.share ** 2 * s.mean_noise) AS noise,
        sum(b.share * s.mean_common) AS common,
        sum(b.share * s.part)
        * CASE e.estimator WHEN 'tau_q' THEN 0 ELSE any_value(s.mean_weight) END AS factor,
        any_value(s.mean_apart) AS apart, any_value(s.mean_known) AS known,
        any_value(s.mean_fourth) AS fourth
    FROM @pooled AS s
    JOIN @shares AS b ON b.segment = s.segment AND b.arm = s.arm AND b.stratum = s.stratum
    CROSS JOIN @estimators AS e
    GROUP BY e.estimator, s.segment, s.arm, s.side, s.pool
),
@means AS (
    SELECT estimator, segment, arm, side, sum(mean + factor * apart) AS mean,
        greatest(sum(noise + factor * (factor * known - 2 * common)), 0) AS noise,
        sum(factor ** 4 * fourth) AS fourth
    FROM @pool_sums GROUP BY estimator, segment, arm, side
),
@differences AS (
    SELECT estimator, segment, arm,
        sum(CASE WHEN side = arm THEN mean ELSE -mean END) AS estimate,
        sum(noise) AS noise, sum(fourth) AS fourth
    FROM @means GROUP BY estimator, segment, arm
),
@variances AS (
    SELECT d.*, s.scatter,
        s.variance + CASE d.estimator WHEN 'tau_q' THEN 0 ELSE d.noise END AS variance
    FROM @differences AS d
    JOIN @sampling AS s
    ON s.estimator = d.estimator AND s.segment = d.segment AND s.arm = d.arm
),
-- Degrees of freedom V̂²/scatter, at most 4 + 6/κ, at least 1; infinite where nothing scatters.
@contrasts AS (
    SELECT *, sqrt(variance) AS std_error, sqrt(noise) AS privacy_std_error,
        greatest(1, least(
            CASE WHEN scatter > 0 THEN variance ** 2 / scatter ELSE 'Infinity'::DOUBLE END,
            CASE WHEN fourth > 0 THEN 4 + 6 * variance ** 2 / fourth ELSE 'Infinity'::DOUBLE END
        )) AS df
    FROM @variances
),
-- t_interval; no bounds and no p-value where the variance is 0.
@tested AS (
    SELECT *, nullif(std_error, 0) AS known, abs(estimate) / nullif(std_error, 0) AS t
    FROM @contrasts
),
@intervals AS (SELECT *, known * {quantile_of_df} AS reach, {p_value_of_t} AS p_value FROM @tested),
-- Holm over the treatment arms; segments without a comparable stratum have null numbers.
@everything AS (
    SELECT t.arm, m.segment, e.estimator, i.estimate, i.std_error, i.privacy_std_error,
        i.estimate - i.reach AS ci_lower, i.estimate + i.reach AS ci_upper, i.p_value,
        coalesce(n.n_units, 0)::BIGINT AS n_units,
        coalesce(w.n_segment, 0)::BIGINT AS n_segment,
        coalesce(n.n_units, 0) / w.n_segment AS coverage,
        row_number() OVER (
            PARTITION BY m.segment, e.estimator ORDER BY i.p_value NULLS LAST, t.arm
        ) AS rank
    FROM (SELECT DISTINCT segment FROM @moments) AS m
    CROSS JOIN @treatments AS t
    CROSS JOIN @estimators AS e
    LEFT JOIN @totals AS n ON n.segment = m.segment AND n.arm = t.arm
    LEFT JOIN @meant AS w ON w.segment = m.segment
    LEFT JOIN @intervals AS i
    ON i.estimator = e.estimator AND i.segment = m.segment AND i.arm = t.arm
),
@raised AS (
    SELECT *, p_value * (
        count(p_value) OVER (PARTITION BY segment, estimator) - rank + 1
    ) AS raised
    FROM @everything
),
@adjusted AS (
    SELECT *, {metric} AS metric, {control} AS control, {level} AS confidence_level,
        NULL::DOUBLE AS planned_std_error,
        CASE WHEN p_value IS NOT NULL THEN
            least(1, max(raised) OVER (PARTITION BY segment, estimator ORDER BY rank))
        END AS p_value_holm
    FROM @raised
)
SELECT {segment_columns} FROM @adjusted
ORDER BY array_position({sharpest_first}, estimator), segment, arm
"""


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
        tables = {"t_quantile": _t_quantile()}
        by_segment = _NOTHING_TO_SLICE
        if self.released.manifest.has_units:
            tables["pools"] = _pool_facts(self.released)
            by_segment = _ATE_BY_SEGMENT
        for name, frame in tables.items():
            connection.register("frame_to_insert", frame.to_arrow())
            connection.execute(f"CREATE TABLE {self.schema}.{name} AS FROM frame_to_insert")
            place = f"{self.schema}.{name}"
            connection.execute(f"COMMENT ON TABLE {place} IS {text(_FOR_MACROS)}")
            for column in frame.columns:
                connection.execute(f"COMMENT ON COLUMN {place}.{column} IS {text(_FOR_MACROS)}")
            connection.unregister("frame_to_insert")
        for signature, body in {
            "ate(release_name := NULL)": _ATE,
            "ate_by_segment(segments_table, release_name := NULL)": by_segment,
        }.items():
            query = body.replace("@", PREFIX).format(**self.parts)
            connection.execute(f"CREATE MACRO {signature} AS TABLE {query}")
        for name, comment in MACROS.items():
            connection.execute(f"COMMENT ON MACRO TABLE {name} IS {text(comment)}")

    @property
    def schema(self) -> str:
        """A name that no other release has."""
        own = f"{self.released.manifest.release_id} {self.released.manifest.created_at.isoformat()}"
        return PREFIX + sha256(own.encode()).hexdigest()[:16]

    @property
    def names(self) -> dict[str, str]:
        """The tables of the release, each with the database that it is in."""
        database = "replace(coalesce(release_name, current_database()), '\"', '\"\"')"
        places = {
            "estimates": "main.estimates",
            "units": "main.units",
            "strata": "main.strata",
            "pools": f"{self.schema}.pools",
            "t_quantile": f"{self.schema}.t_quantile",
        }
        return {
            name: f"query_table('\"' || {database} || '\".{place}')"
            for name, place in places.items()
        }

    @property
    def parts(self) -> dict[str, str]:
        """What stands in the braces."""
        names = self.names
        functions = {
            "quantile_of_df": QUANTILE_OF_DF.format(**names),
            "p_value_of_t": P_VALUE_OF_T,
        }
        return names | functions | self.constants

    @property
    def constants(self) -> dict[str, str]:
        """What is the same in every row, spelt in SQL."""
        evidence = self.released.evidence()
        odds = evidence.rate / (1.0 - evidence.rate)
        names = ["tau_q", "combined"] if evidence.has_statistic else ["tau_q"]
        numbers = {
            "rate": evidence.rate,
            "noise": odds * (1.0 + odds),
            "center": evidence.center,
            "lowest": evidence.lowest,
            "highest": evidence.highest,
            "level": LEVEL,
        }
        return {name: f"({float(number)!r}::DOUBLE)" for name, number in numbers.items()} | {
            "metric": text(evidence.metric),
            "outcome": quoted(evidence.metric),
            "control": text(self.released.manifest.control),
            "same_shares": str(self.released.manifest.same_shares),
            "min_units": str(MIN_UNITS),
            "least_seen": f"{LEAST_SEEN!r}::DOUBLE",
            "estimators": ", ".join(f"({text(name)})" for name in names),
            "moments": MOMENTS,
            "matched": _as_released(self.id_kind),
            "sharpest_first": f"[{', '.join(map(text, SHARPEST_FIRST))}]",
            "columns": ", ".join(_in_order(("metric", *WANTED_FIRST))),
            "segment_columns": ", ".join(_in_order(("metric", "segment", *WANTED_FIRST))),
        }


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
    evidence, pools = released.evidence(), released.pools
    cell = pools.square_cells(np.arange(len(pools.pool)))
    labels = released.places.select("pool_code", "pool", "arm").unique().sort("pool_code")
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
    return labels.select("pool", "arm").with_columns(
        **{name: pl.Series(np.nan_to_num(values, nan=0.0)) for name, values in facts.items()}
    )


def _t_quantile() -> pl.DataFrame:
    """Chebyshev coefficients of t_{(1+level)/2} as a function of 2/df − 1."""
    positions = chebpts1(_QUANTILE_DEGREE + 1)
    values = quantile(2.0 / (positions + 1.0), LEVEL)
    coefficients = chebfit(positions, values, _QUANTILE_DEGREE)
    return pl.DataFrame({"k": np.arange(len(coefficients)), "coefficient": coefficients})


def _in_order(first: tuple[str, ...]) -> list[str]:
    """The columns of ``estimates``, some of them first."""
    return [*first, *(name for name in TABLES["estimates"] if name not in first)]
