-- Effects of every arm: what estimators.arm_effects.effects computes, in the groups that are asked for.
--
-- flows/released/file/macros.py puts this behind ate_by_segment.sql and ate_by.sql, which say what is
-- asked for: _clusterdp_wide has the moments of every metric's d = ỹ − ȳ (mean0, variance0, fourth0,
-- mean1, …) over each (segment, cluster, arm), and n. A name behind a dollar sign is filled in once,
-- when the file is made: a table of the release ($units, $strata, $pools, each as a text for
-- query_table), or what is the same in every row. Query names begin with _clusterdp_, so that no
-- table of an analyst's has the same name. Names and formulas are those of estimators/: evidence,
-- debias, contrast_strata, collapsed_strata, pool_statistics, effects and intervals.
--
-- A question, asked, is a metric in a segment; place is that of the metric in the release.
-- One name at most in EXCLUDE and REPLACE: DuckDB keeps several in any order, and definitions of files are
-- compared word by word.
-- What errors by group of assignment add is in ate_of_parties.sql; ratios of two metrics belong to
-- _clusterdp_differences and _clusterdp_variances: said there.

_clusterdp_asked AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY k.place, s.segment) AS asked, k.*, s.segment
    FROM (SELECT DISTINCT segment FROM _clusterdp_wide) AS s CROSS JOIN query_table($metrics) AS k
),
-- A row a metric.
_clusterdp_long AS ($long),
_clusterdp_moments AS MATERIALIZED (
    SELECT q.asked, q.rate, q.noise, m.* EXCLUDE (segment)
    FROM _clusterdp_long AS m
    JOIN _clusterdp_asked AS q ON q.place = m.place AND q.segment = m.segment
),
$debiased$crossed$cells-- contrast_strata: clusters stand for themselves, but for small ones, which are merged where all
-- clusters were randomised with the same arm shares. What is small is told by sizes alone: in units,
-- or in parties where units were assigned together.
_clusterdp_sizes AS ($sizes),
_clusterdp_arm_sizes AS (
    SELECT asked, min(size) AS least, sum(size) AS whole
    FROM (SELECT asked, sum(size) AS size FROM _clusterdp_sizes GROUP BY asked, arm)
    GROUP BY asked
),
_clusterdp_small AS (
    SELECT s.asked, s.cluster, $same_shares
        AND sum(s.size) * any_value(a.least) < $least_expected * any_value(a.whole) AS small
    FROM _clusterdp_sizes AS s JOIN _clusterdp_arm_sizes AS a ON a.asked = s.asked
    GROUP BY s.asked, s.cluster
),
_clusterdp_treatments AS (SELECT DISTINCT arm FROM query_table($strata) WHERE arm <> $control),
_clusterdp_clusters AS (
    SELECT s.asked, t.arm, s.cluster, sum(s.n) AS everyone, min(s.own_sizes) AS own_sizes,
        coalesce(sum(s.n) FILTER (WHERE s.arm = t.arm), 0) AS n_treated,
        coalesce(sum(s.n) FILTER (WHERE s.arm = $control), 0) AS n_control
    FROM _clusterdp_slices AS s CROSS JOIN _clusterdp_treatments AS t
    GROUP BY s.asked, t.arm, s.cluster
),
_clusterdp_placed AS MATERIALIZED (
    SELECT c.*, m.small,
        CASE WHEN m.small THEN 'merged' ELSE 'cluster ' || c.cluster END AS stratum,
        least(sum(n_treated) OVER of_stratum, sum(n_control) OVER of_stratum) >= $min_units AS enough
    FROM _clusterdp_clusters AS c
    JOIN _clusterdp_small AS m ON m.asked = c.asked AND m.cluster = c.cluster
    WINDOW of_stratum AS (PARTITION BY c.asked, c.arm, stratum)
),
-- Of those that count by their arms' own units, what has too few of one goes with the least of the
-- others, unless there is no other: a stratum that has no weight otherwise.
_clusterdp_gathered AS (
    SELECT asked, arm, cluster FROM (
        SELECT asked, arm, cluster, small, NOT enough AND NOT small AS is_left,
            count(*) FILTER (enough AND NOT small) OVER of_arm AS n_alone,
            bool_or(enough AND small) OVER of_arm AS is_merged,
            row_number() OVER (
                PARTITION BY asked, arm, enough AND NOT small
                ORDER BY everyone, encode(cluster::VARCHAR)
            ) AS place
        FROM _clusterdp_placed WHERE own_sizes > 0
        WINDOW of_arm AS (PARTITION BY asked, arm)
    )
    QUALIFY NOT small AND n_alone >= CASE WHEN is_merged THEN 1 ELSE 2 END
        AND (is_left OR place = 1 AND bool_or(is_left) OVER (PARTITION BY asked, arm))
),
_clusterdp_comparable AS (
    SELECT p.asked, p.arm, p.cluster, p.own_sizes, p.n_treated, p.n_control, p.small,
        CASE WHEN g.cluster IS NULL THEN p.everyone ELSE 0 END AS everyone,
        CASE WHEN g.cluster IS NULL THEN p.stratum ELSE 'left' END AS stratum
    FROM _clusterdp_placed AS p
    LEFT JOIN _clusterdp_gathered AS g
    ON g.asked = p.asked AND g.arm = p.arm AND g.cluster = p.cluster
    WHERE p.enough OR g.cluster IS NOT NULL
),
-- Merged clusters by twos in the order of size, an odd one with the last two; names in the order of
-- their bytes.
_clusterdp_merged AS (
    SELECT asked, arm, cluster, n_treated, n_control,
        least((place - 1) // 2, size // 2 - 1) AS pair
    FROM (
        SELECT *, row_number() OVER (
            PARTITION BY asked, arm
            ORDER BY everyone, encode(cluster::VARCHAR)
        ) AS place, count(*) OVER (PARTITION BY asked, arm) AS size
        FROM _clusterdp_comparable WHERE small
    )
    WHERE size > 1
),
-- b_s, the stratum's share of the asked's units, all arms counted.
_clusterdp_weights AS (
    SELECT asked, arm, stratum, sum(everyone) AS weight, min(own_sizes) AS own_sizes
    FROM _clusterdp_comparable GROUP BY asked, arm, stratum
),
_clusterdp_everyones_shares AS (
    SELECT asked, arm, stratum, own_sizes,
        weight / sum(weight) OVER (PARTITION BY asked, arm) AS share
    FROM _clusterdp_weights
),
_clusterdp_totals AS (
    SELECT asked, arm, sum(weight) AS n_units FROM _clusterdp_weights GROUP BY asked, arm
),
-- Whom an estimate is meant for, all arms counted, compared or not.
_clusterdp_meant AS (SELECT asked, sum(n) AS n_segment FROM _clusterdp_slices GROUP BY asked),
-- The slices of both sides of a contrast; part is a slice's share of its stratum's units, middle
-- the mean of the stratum.
_clusterdp_rows AS (
    SELECT c.asked, s.place, c.arm, c.stratum, c.cluster, s.arm AS side, s.pool, s.n, s.within,
        s.mean, s.mean_noise, s.square, s.square_noise,
        s.n / sum(s.n) OVER (PARTITION BY c.asked, c.arm, c.stratum, s.arm) AS part
    FROM _clusterdp_comparable AS c
    JOIN _clusterdp_slices AS s
    ON s.asked = c.asked AND s.cluster = c.cluster AND (s.arm = c.arm OR s.arm = $control)
),
_clusterdp_middles AS (
    SELECT *, sum(part * mean) OVER (PARTITION BY asked, arm, stratum, side) AS middle
    FROM _clusterdp_rows
),
-- Means that are equal but for rounding are equal.
_clusterdp_sides AS (
    SELECT *, CASE WHEN abs(mean - middle) < 1e-12 * abs(middle) THEN 0 ELSE mean - middle END
        AS from_middle
    FROM _clusterdp_middles
),
-- s² of the debiased outcomes.
_clusterdp_sample_variance AS (
    SELECT asked, arm, stratum, side, sum(n) AS n,
        sum((n - 1) * within + n * from_middle * from_middle) / (sum(n) - 1) AS spread
    FROM _clusterdp_sides GROUP BY asked, arm, stratum, side
),
-- shares: k, and what between takes: own is g, moved Σ s b, held Σ b, together the arm's units.
_clusterdp_combined_shares AS (
    SELECT 'combined' AS estimator, asked, arm, stratum, side,
        (1 - own_sizes) * share + CASE WHEN own_sizes > 0 THEN n / together * moved ELSE 0 END
        AS share,
        CASE WHEN own_sizes > 0 THEN n / together ELSE 0 END AS own, moved, held, together
    FROM (
        SELECT b.*, v.side, v.n,
            sum(b.own_sizes * b.share) OVER of_arm AS moved,
            coalesce(sum(b.share) FILTER (WHERE b.own_sizes > 0) OVER of_arm, 0) AS held,
            coalesce(sum(v.n) FILTER (WHERE b.own_sizes > 0) OVER of_arm, 1) AS together
        FROM _clusterdp_everyones_shares AS b
        JOIN _clusterdp_sample_variance AS v
        ON v.asked = b.asked AND v.arm = b.arm AND v.stratum = b.stratum
        WINDOW of_arm AS (PARTITION BY b.asked, b.arm, v.side)
    )
),
_clusterdp_shares AS (
    SELECT 'tau_q' AS estimator, b.asked, b.arm, b.stratum, v.side, b.share,
        0 AS own, 0 AS moved, 0 AS held, 1 AS together
    FROM _clusterdp_everyones_shares AS b
    JOIN _clusterdp_sample_variance AS v
    ON v.asked = b.asked AND v.arm = b.arm AND v.stratum = b.stratum
    UNION ALL
    FROM _clusterdp_combined_shares
    UNION ALL
    SELECT 'own', asked, arm, stratum, side, own, 0, 0, 0, 1
    FROM _clusterdp_combined_shares WHERE own > 0
),
-- Sums over a stratum's slices in a pool, and what calibrated takes of the pool: common is the
-- covariance with the mean of the whole pool, apart the statistic less that mean, and known the
-- variance of both.
_clusterdp_parts AS (
    SELECT asked, place, arm, stratum, side, pool, sum(n) AS n, sum(part) AS part,
        sum(part * mean) AS mean, sum(part * part * mean_noise) AS mean_noise,
        sum(part * n * mean_noise) AS mean_common,
        sum(part * square) AS square, sum(part * part * square_noise) AS square_noise,
        sum(part * n * square_noise) AS square_common
    FROM _clusterdp_sides GROUP BY asked, place, arm, stratum, side, pool
),
_clusterdp_pooled AS (
    SELECT s.asked, s.arm, s.stratum, s.side, s.pool, s.n, s.part,
        s.mean, s.mean_noise, s.mean_common / p.n_units AS mean_common,
        p.mean_weight, p.mean_fourth, p.mean_value - p.whole_mean AS mean_apart,
        p.whole_mean_noise + p.mean_variance AS mean_known,
        s.square, s.square_noise, s.square_common / p.square_units AS square_common,
        p.square_cell, p.square_weight, p.square_value - p.whole_square AS square_apart,
        p.whole_square_noise + p.square_variance AS square_known
    FROM _clusterdp_parts AS s JOIN query_table($pools) AS p
    ON p.place = s.place AND p.pool = s.pool AND p.arm = s.side
),
-- calibrated, by stratum: θ̂ = Σ v̂ + Σ_p w T_p (M_p − μ̂_p), and likewise for squares.
_clusterdp_strata_means AS (
    SELECT asked, arm, stratum, side, sum(n) AS n,
        sum(mean + mean_weight * part * mean_apart) AS mean,
        greatest(sum(
            mean_noise + mean_weight * part * (mean_weight * part * mean_known - 2 * mean_common)
        ), 0) AS mean_noise,
        sum(square + square_weight * part * square_apart) AS square,
        sum(mean_noise) AS response_noise, 1 - sum(mean_weight * part) AS unknown
    FROM _clusterdp_pooled GROUP BY asked, arm, stratum, side
),
-- Estimators that there are of the metric.
_clusterdp_estimators AS (
    SELECT asked, unnest(CASE WHEN has_combined THEN ['tau_q', 'combined'] ELSE ['tau_q'] END)
        AS estimator
    FROM _clusterdp_asked
),
-- calibrated, by asked, with weight 0 (tau_q) or the pools' own (combined, own).
_clusterdp_pool_sums AS (
    SELECT b.estimator, s.asked, s.arm, s.side, s.pool,
        sum(b.share * s.mean) AS mean, sum(b.share ** 2 * s.mean_noise) AS noise,
        sum(b.share * s.mean_common) AS common,
        sum(b.share * s.part)
        * CASE b.estimator WHEN 'tau_q' THEN 0 ELSE any_value(s.mean_weight) END AS factor,
        any_value(s.mean_apart) AS apart, any_value(s.mean_known) AS known,
        any_value(s.mean_fourth) AS fourth
    FROM _clusterdp_pooled AS s
    JOIN _clusterdp_shares AS b ON b.asked = s.asked
        AND b.arm = s.arm AND b.stratum = s.stratum AND b.side = s.side
    JOIN _clusterdp_estimators AS e ON e.asked = s.asked
        AND e.estimator = CASE b.estimator WHEN 'own' THEN 'combined' ELSE b.estimator END
    GROUP BY b.estimator, s.asked, s.arm, s.side, s.pool
),
_clusterdp_${plain}means AS (
    SELECT estimator, asked, arm, side, sum(mean + factor * apart) AS mean,
        greatest(sum(noise + factor * (factor * known - 2 * common)), 0) AS noise,
        sum(factor ** 4 * fourth) AS fourth
    FROM _clusterdp_pool_sums GROUP BY estimator, asked, arm, side
),
${by_margins}_clusterdp_centers AS (
    SELECT asked, arm, side, noise FROM _clusterdp_means WHERE estimator = 'own'
),
-- V_A of the squares of each stratum.
_clusterdp_stratum_noise AS (
    SELECT asked, arm, stratum, side,
        greatest(sum(noise + factor * (factor * known - 2 * common)), 0) AS square_noise
    FROM (
        SELECT asked, arm, stratum, side, square_cell, sum(square_noise) AS noise,
            sum(square_common) AS common, any_value(square_weight) * sum(part) AS factor,
            any_value(square_known) AS known
        FROM _clusterdp_pooled GROUP BY asked, arm, stratum, side, square_cell
    )
    GROUP BY asked, arm, stratum, side
),
-- Ŝ² = n/(n − 1)·[Â − (μ̂ − ȳ)² + V̂(μ̂)] as it is, and the two bounds that the grid sets to it.
_clusterdp_outcome_variance AS (
    SELECT m.*, n / (n - 1) AS more, square - mean * mean + mean_noise AS spread, v.square_noise,
        (highest - least(greatest(lowest, mean), highest))
        * (least(greatest(lowest, mean), highest) - lowest) + mean_noise AS most,
        ((highest - lowest) / 2) ** 2 AS widest
    FROM _clusterdp_strata_means AS m
    JOIN _clusterdp_asked AS q ON q.asked = m.asked
    JOIN _clusterdp_stratum_noise AS v
    ON v.asked = m.asked AND v.arm = m.arm AND v.stratum = m.stratum AND v.side = m.side
),
$spreads
-- V_A, the noise of Σ b² Â/(n − 1).
_clusterdp_square_cells AS (
    SELECT p.asked, p.arm, p.side, p.square_cell,
        sum((k.share ** 2 * k.kept / (k.n - 1)) ** 2 * p.square_noise) AS noise,
        sum(k.share ** 2 * k.kept / (k.n - 1) * p.square_common) AS common,
        any_value(p.square_weight) * sum(k.share ** 2 * k.kept / (k.n - 1) * p.part) AS factor,
        any_value(p.square_known) AS known
    FROM _clusterdp_pooled AS p
    JOIN _clusterdp_known_spreads AS k
    ON k.estimator = 'combined' AND k.asked = p.asked AND k.arm = p.arm
        AND k.stratum = p.stratum AND k.side = p.side
    GROUP BY p.asked, p.arm, p.side, p.square_cell
),
_clusterdp_uncertainty AS (
    SELECT asked, arm, side,
        greatest(sum(noise + factor * (factor * known - 2 * common)), 0) AS uncertainty
    FROM _clusterdp_square_cells GROUP BY asked, arm, side
),
-- What units that were assigned together add, where any were: for every estimator that of tau_q.
$parties
_clusterdp_sampling AS (
    SELECT s.estimator, s.asked, s.arm, sum(s.variance$party_variance) AS variance,
        sum((
            s.scatter + CASE s.estimator WHEN 'tau_q' THEN 0 ELSE u.uncertainty / 2 END
        )$party_scatter) AS scatter
    FROM _clusterdp_of_arms AS s
    JOIN _clusterdp_uncertainty AS u ON u.asked = s.asked AND u.arm = s.arm AND u.side = s.side
    $party_join
    GROUP BY s.estimator, s.asked, s.arm
),
_clusterdp_differences AS (
    SELECT estimator, asked, arm,
        sum(CASE WHEN side = arm THEN mean ELSE -mean END) AS estimate,
        sum(noise) AS noise, sum(fourth) AS fourth
    FROM _clusterdp_means GROUP BY estimator, asked, arm
),
-- Ratios: rows of their own, by
-- the means of _clusterdp_means and the variances of _clusterdp_of_arms of both metrics in a segment.
_clusterdp_variances AS (
    SELECT d.*, s.scatter, d.estimator <> 'tau_q' OR s.variance > 1e-12 * d.noise AS is_known,
        CASE WHEN d.estimator <> 'tau_q' THEN s.variance + d.noise
            WHEN s.variance < d.noise THEN d.noise ELSE s.variance END AS variance
    FROM _clusterdp_differences AS d
    JOIN _clusterdp_sampling AS s
    ON s.estimator = d.estimator AND s.asked = d.asked AND s.arm = d.arm
),
-- Degrees of freedom V̂²/scatter − 2, at least 1; infinite where nothing scatters. rho is √(κ/3).
_clusterdp_contrasts AS (
    SELECT *, sqrt(variance) AS std_error, sqrt(noise) AS privacy_std_error,
        $df_of_scatter AS df, $rho_of_fourth AS rho
    FROM _clusterdp_variances
),
-- interval_of; no bounds and no p-value where the variance is 0, but for the noise.
_clusterdp_tested AS (
    SELECT *, CASE WHEN is_known THEN nullif(std_error, 0) END AS known, abs(estimate) / known AS t
    FROM _clusterdp_contrasts
),
_clusterdp_intervals AS (
    SELECT *, known * ($quantile_of_law) AS reach, ($p_value_of_law) AS p_value
    FROM _clusterdp_tested
),
$ratios
_clusterdp_questions AS (
    SELECT asked, asked AS origin, place, metric, segment FROM _clusterdp_asked
    $ratio_questions
),
_clusterdp_kinds AS (FROM _clusterdp_estimators $ratio_kinds),
_clusterdp_bounds AS (
    SELECT estimator, asked, arm, estimate, std_error, privacy_std_error,
        estimate - reach AS ci_lower, estimate + reach AS ci_upper, p_value
    FROM _clusterdp_intervals
    $ratio_bounds
),
-- Holm over the treatment arms; segments without a comparable stratum have null numbers.
_clusterdp_everything AS (
    SELECT t.arm, m.asked, m.place, m.metric, m.segment, e.estimator, i.estimate, i.std_error,
        i.privacy_std_error, i.ci_lower, i.ci_upper, i.p_value,
        coalesce(n.n_units, 0)::BIGINT AS n_units,
        coalesce(w.n_segment, 0)::BIGINT AS n_segment,
        coalesce(n.n_units, 0) / w.n_segment AS coverage,
        row_number() OVER (
            PARTITION BY m.asked, e.estimator ORDER BY i.p_value NULLS LAST, t.arm
        ) AS rank
    FROM _clusterdp_questions AS m
    JOIN _clusterdp_kinds AS e ON e.asked = m.asked
    CROSS JOIN _clusterdp_treatments AS t
    LEFT JOIN _clusterdp_totals AS n ON n.asked = m.origin AND n.arm = t.arm
    LEFT JOIN _clusterdp_meant AS w ON w.asked = m.origin
    LEFT JOIN _clusterdp_bounds AS i
    ON i.estimator = e.estimator AND i.asked = m.asked AND i.arm = t.arm
),
-- Ids of an analyst's table that are not in the release, where they are many.
_clusterdp_strangers AS (
    SELECT segment, CASE WHEN unknown > (1 - $least_coverage) * n_ids THEN
        format('{:,} of its {:,} ids are not in this release', unknown::BIGINT, n_ids::BIGINT)
        END AS strangers
    FROM (
        SELECT segment, sum(n) FILTER (cluster IS NULL) AS unknown, sum(n) AS n_ids
        FROM _clusterdp_wide GROUP BY segment
    )
),
_clusterdp_raised AS (
    SELECT *, p_value * (
        count(*) FILTER (n_units > 0) OVER (PARTITION BY asked, estimator) - rank + 1
    ) AS raised
    FROM _clusterdp_everything
),
_clusterdp_adjusted AS (
    SELECT *, $control AS control, $level AS confidence_level,
        NULL::DOUBLE AS planned_std_error,
        CASE WHEN p_value IS NOT NULL THEN
            least(1, max(raised) OVER (PARTITION BY asked, estimator ORDER BY rank))
        END AS p_value_holm
    FROM _clusterdp_raised JOIN _clusterdp_strangers USING (segment)
)
SELECT $first, control, std_error,
    privacy_std_error, p_value, p_value_holm, confidence_level, n_units, n_segment, coverage,
    planned_std_error, estimator, $effect AS effect, nullif(concat_ws('; ', $note, strangers), '') AS note
FROM _clusterdp_adjusted
WHERE (SELECT is_sound FROM _clusterdp_fit)
ORDER BY
    place, array_position($estimator_order, estimator),
    segment, arm
