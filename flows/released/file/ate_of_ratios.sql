-- Ratios of two outcomes: what estimators.ratios computes, after ate_of_groups.sql has the means and
-- variances of outcomes. Where a release has no ratio, none of this is in its macros.
--
-- The ratios of $ratio_facts are asked about in every segment; above and below are the questions
-- about their outcomes. A term is ℓ = f v_N + g v_D with numbers f and g of each arm: of every
-- question and estimator one for the delta method, and (is_sum) one for what the covariance of the
-- two means is found by.

_clusterdp_ratio_asked AS MATERIALIZED (
    SELECT r.*, n.segment, n.asked AS above, d.asked AS below,
        (SELECT max(asked) FROM _clusterdp_asked)
        + row_number() OVER (ORDER BY r.place, n.segment) AS asked
    FROM query_table($ratio_facts) AS r
    JOIN _clusterdp_asked AS n ON n.place = r.numerator
    JOIN _clusterdp_asked AS d ON d.place = r.denominator AND d.segment = n.segment
),
_clusterdp_ratio_kinds AS (
    SELECT r.asked, n.estimator FROM _clusterdp_ratio_asked AS r
    JOIN _clusterdp_estimators AS n ON n.asked = r.above
    JOIN _clusterdp_estimators AS d ON d.asked = r.below AND d.estimator = n.estimator
),
-- Means and variances of outcomes, with the noise of statistics, arm by arm.
_clusterdp_ratio_outcomes AS (
    SELECT m.asked, m.estimator, m.arm, m.side, m.mean, m.noise, m.fourth,
        s.variance$party_variance
        + CASE m.estimator WHEN 'tau_q' THEN 0 ELSE m.noise END AS variance
    FROM _clusterdp_means AS m
    JOIN _clusterdp_of_arms AS s
    ON s.asked = m.asked AND s.estimator = m.estimator AND s.arm = m.arm AND s.side = m.side
    $party_join
),
_clusterdp_ratio_means AS MATERIALIZED (
    SELECT *, CASE WHEN is_zero THEN 1 ELSE below END AS safe
    FROM (
        SELECT k.asked, k.estimator, n.arm, n.side, r.above_width, r.below_width,
            n.mean + r.above_center AS above, d.mean + r.below_center AS below,
            n.variance AS above_variance, d.variance AS below_variance,
            n.noise AS above_noise, d.noise AS below_noise,
            n.fourth AS above_fourth, d.fourth AS below_fourth,
            abs(d.mean + r.below_center)
            <= greatest(sqrt(d.variance), 1e-12 * r.below_width) AS is_zero
        FROM _clusterdp_ratio_kinds AS k
        JOIN _clusterdp_ratio_asked AS r ON r.asked = k.asked
        JOIN _clusterdp_ratio_outcomes AS n ON n.asked = r.above AND n.estimator = k.estimator
        JOIN _clusterdp_ratio_outcomes AS d
        ON (d.asked, d.estimator, d.arm, d.side) = (r.below, n.estimator, n.arm, n.side)
    )
),
_clusterdp_ratio_estimators AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY k.asked, k.estimator, c.is_sum) AS asked,
        k.asked AS question, k.estimator, c.is_sum, r.above, r.below
    FROM _clusterdp_ratio_kinds AS k
    JOIN _clusterdp_ratio_asked AS r ON r.asked = k.asked
    CROSS JOIN (VALUES (FALSE), (TRUE)) AS c(is_sum)
),
_clusterdp_ratio_factors AS MATERIALIZED (
    SELECT t.asked, t.question, t.estimator, t.is_sum, t.above, t.below, m.arm, m.side,
        CASE WHEN t.is_sum THEN 1 / m.above_width ELSE 1 / m.safe END AS f,
        CASE WHEN t.is_sum THEN 1 / m.below_width ELSE -m.above / m.safe / m.safe END AS g
    FROM _clusterdp_ratio_estimators AS t
    JOIN _clusterdp_ratio_means AS m ON m.asked = t.question AND m.estimator = t.estimator
),
-- Slices of both outcomes; the covariance is that of the debiased ones.
_clusterdp_ratio_covariances AS ($covariances),
_clusterdp_ratio_slices AS MATERIALIZED (
    SELECT r.asked AS question, n.arm, n.stratum, n.cluster, n.side, n.n, n.part,
        n.mean AS above_mean, d.mean AS below_mean,
        n.middle AS above_middle, d.middle AS below_middle,
        n.from_middle AS above_from, d.from_middle AS below_from,
        c.covariance * r.scale AS covariance
    FROM _clusterdp_ratio_asked AS r
    JOIN _clusterdp_sides AS n ON n.asked = r.above
    JOIN _clusterdp_sides AS d
    ON (d.asked, d.arm, d.cluster, d.side) = (r.below, n.arm, n.cluster, n.side)
    JOIN _clusterdp_ratio_covariances AS c
    ON (c.place, c.segment, c.cluster, c.arm) = (r.place, r.segment, n.cluster, n.side)
),
-- The sample covariance in every stratum, and what noise adds to its variance.
_clusterdp_ratio_products AS (
    SELECT question, arm, stratum, side, sum(n) AS n,
        sum((n - 1) * covariance + n * above_from * below_from) / (sum(n) - 1) AS product
    FROM _clusterdp_ratio_slices GROUP BY question, arm, stratum, side
),
_clusterdp_ratio_strata AS MATERIALIZED (
    SELECT t.*, p.stratum, p.n, p.product, v.spread AS above_spread, w.spread AS below_spread,
        a.response_noise AS above_noise, b.response_noise AS below_noise,
        t.f * a.mean + t.g * b.mean AS mean,
        t.f ** 2 * a.mean_noise + t.g ** 2 * b.mean_noise AS mean_noise,
        (v.spread * w.spread - greatest(v.spread - p.n * a.response_noise, 0)
            * greatest(w.spread - p.n * b.response_noise, 0)
        ) * (p.n - 1) / p.n ** 2 AS product_noise
    FROM _clusterdp_ratio_factors AS t
    JOIN _clusterdp_ratio_products AS p
    ON p.question = t.question AND p.arm = t.arm AND p.side = t.side
    JOIN _clusterdp_sample_variance AS v
    ON (v.asked, v.arm, v.stratum, v.side) = (t.above, p.arm, p.stratum, p.side)
    JOIN _clusterdp_sample_variance AS w
    ON (w.asked, w.arm, w.stratum, w.side) = (t.below, p.arm, p.stratum, p.side)
    JOIN _clusterdp_strata_means AS a
    ON (a.asked, a.arm, a.stratum, a.side) = (t.above, p.arm, p.stratum, p.side)
    JOIN _clusterdp_strata_means AS b
    ON (b.asked, b.arm, b.stratum, b.side) = (t.below, p.arm, p.stratum, p.side)
),
-- What spreads_of_arms.sql reads, of terms.
_clusterdp_ratio_merged AS (
    SELECT t.asked, m.arm, m.cluster, m.n_treated, m.n_control, m.pair
    FROM _clusterdp_ratio_estimators AS t JOIN _clusterdp_merged AS m ON m.asked = t.above
),
_clusterdp_ratio_shares AS (
    SELECT b.* REPLACE (t.asked AS asked)
    FROM _clusterdp_ratio_estimators AS t
    JOIN _clusterdp_shares AS b ON b.asked = t.above AND b.estimator = t.estimator
),
_clusterdp_ratio_sides AS (
    SELECT *, CASE WHEN abs(mean - middle) < 1e-12 * abs(middle) THEN 0 ELSE mean - middle END
        AS from_middle
    FROM (
        SELECT t.asked, s.arm, s.stratum, s.cluster, s.side, s.part,
            t.f * s.above_mean + t.g * s.below_mean AS mean,
            t.f * s.above_middle + t.g * s.below_middle AS middle
        FROM _clusterdp_ratio_factors AS t JOIN _clusterdp_ratio_slices AS s
        ON s.question = t.question AND s.arm = t.arm AND s.side = t.side
    )
),
_clusterdp_ratio_sample_variance AS (
    SELECT asked, arm, stratum, side, n, greatest(
        f ** 2 * above_spread + g ** 2 * below_spread + 2 * f * g * product, 0
    ) AS spread
    FROM _clusterdp_ratio_strata
),
_clusterdp_ratio_unknown AS (
    SELECT r.asked AS question, n.arm, n.stratum, n.side,
        1 - sum(greatest(n.mean_weight, d.mean_weight) * n.part) AS unknown
    FROM _clusterdp_ratio_asked AS r
    JOIN _clusterdp_pooled AS n ON n.asked = r.above
    JOIN _clusterdp_pooled AS d
    ON (d.asked, d.arm, d.stratum, d.side, d.pool) = (r.below, n.arm, n.stratum, n.side, n.pool)
    GROUP BY r.asked, n.arm, n.stratum, n.side
),
_clusterdp_ratio_strata_means AS (
    SELECT s.asked, s.arm, s.stratum, s.side, u.unknown, s.mean, s.mean_noise,
        s.f ** 2 * s.above_noise + s.g ** 2 * s.below_noise AS response_noise
    FROM _clusterdp_ratio_strata AS s
    JOIN _clusterdp_ratio_unknown AS u
    ON (u.question, u.arm, u.stratum, u.side) = (s.question, s.arm, s.stratum, s.side)
),
_clusterdp_ratio_centers AS (
    SELECT t.asked, t.arm, t.side, t.f ** 2 * n.noise + t.g ** 2 * d.noise AS noise
    FROM _clusterdp_ratio_factors AS t
    JOIN _clusterdp_centers AS n ON (n.asked, n.arm, n.side) = (t.above, t.arm, t.side)
    JOIN _clusterdp_centers AS d ON (d.asked, d.arm, d.side) = (t.below, t.arm, t.side)
),
_clusterdp_ratio_outcome_variance AS (
    SELECT s.asked, s.arm, s.stratum, s.side, s.n, s.n / (s.n - 1) AS more,
        s.f ** 2 * a.spread + s.g ** 2 * b.spread
        + 2 * s.f * s.g * s.product * (s.n - 1) / s.n AS spread,
        s.f ** 4 * a.square_noise + s.g ** 4 * b.square_noise
        + 4 * (s.f * s.g) ** 2 * s.product_noise AS square_noise,
        (abs(s.f) * sqrt(a.most) + abs(s.g) * sqrt(b.most)) ** 2 AS most,
        (abs(s.f) * sqrt(a.widest) + abs(s.g) * sqrt(b.widest)) ** 2 AS widest
    FROM _clusterdp_ratio_strata AS s
    JOIN _clusterdp_outcome_variance AS a
    ON (a.asked, a.arm, a.stratum, a.side) = (s.above, s.arm, s.stratum, s.side)
    JOIN _clusterdp_outcome_variance AS b
    ON (b.asked, b.arm, b.stratum, b.side) = (s.below, s.arm, s.stratum, s.side)
),
$ratio_spreads
$ratio_parties-- V_A: that of both outcomes, and that of the covariance.
_clusterdp_ratio_square_cells AS (
    SELECT t.asked, p.arm, p.side, p.square_cell, t.factor AS of_outcome,
        sum((k.share ** 2 * k.kept / (k.n - 1)) ** 2 * p.square_noise) AS noise,
        sum(k.share ** 2 * k.kept / (k.n - 1) * p.square_common) AS common,
        any_value(p.square_weight) * sum(k.share ** 2 * k.kept / (k.n - 1) * p.part) AS factor,
        any_value(p.square_known) AS known
    FROM (
        SELECT asked, arm, side, above AS outcome, f AS factor FROM _clusterdp_ratio_factors
        WHERE estimator = 'combined'
        UNION ALL
        SELECT asked, arm, side, below, g FROM _clusterdp_ratio_factors
        WHERE estimator = 'combined'
    ) AS t
    JOIN _clusterdp_pooled AS p
    ON p.asked = t.outcome AND p.arm = t.arm AND p.side = t.side
    JOIN _clusterdp_ratio_known_spreads AS k
    ON k.estimator = 'combined' AND k.asked = t.asked AND k.arm = p.arm
        AND k.stratum = p.stratum AND k.side = p.side
    GROUP BY t.asked, t.outcome, t.factor, p.arm, p.side, p.square_cell
),
_clusterdp_ratio_uncertainty AS (
    SELECT asked, arm, side, sum(uncertainty) AS uncertainty
    FROM (
        SELECT asked, arm, side, any_value(of_outcome) ** 4
            * greatest(sum(noise + factor * (factor * known - 2 * common)), 0) AS uncertainty
        FROM _clusterdp_ratio_square_cells GROUP BY asked, arm, side, of_outcome
        UNION ALL
        SELECT s.asked, s.arm, s.side, sum(
            4 * (s.f * s.g) ** 2 * (k.share ** 2 * k.kept / (k.n - 1)) ** 2 * s.product_noise
        )
        FROM _clusterdp_ratio_strata AS s
        JOIN _clusterdp_ratio_known_spreads AS k
        ON k.estimator = 'combined' AND k.asked = s.asked AND k.arm = s.arm
            AND k.stratum = s.stratum AND k.side = s.side
        GROUP BY s.asked, s.arm, s.side
    )
    GROUP BY asked, arm, side
),
_clusterdp_ratio_arms AS (
    SELECT t.*, t.f ** 2 * m.above_noise + t.g ** 2 * m.below_noise AS noise,
        t.f ** 4 * m.above_fourth + t.g ** 4 * m.below_fourth AS fourth,
        s.variance$party_variance + CASE t.estimator WHEN 'tau_q' THEN 0
            ELSE t.f ** 2 * m.above_noise + t.g ** 2 * m.below_noise END AS variance,
        (
            s.scatter + CASE t.estimator WHEN 'tau_q' THEN 0 ELSE u.uncertainty / 2 END
        )$party_scatter AS scatter
    FROM _clusterdp_ratio_factors AS t
    JOIN _clusterdp_ratio_means AS m ON m.asked = t.question AND m.estimator = t.estimator
        AND m.arm = t.arm AND m.side = t.side
    JOIN _clusterdp_ratio_of_arms AS s ON s.asked = t.asked AND s.estimator = t.estimator
        AND s.arm = t.arm AND s.side = t.side
    $ratio_party_join
    LEFT JOIN _clusterdp_ratio_uncertainty AS u
    ON u.asked = t.asked AND u.arm = t.arm AND u.side = t.side
),
_clusterdp_ratio_freedom AS (
    SELECT *, $df_of_scatter AS df, $rho_of_fourth AS rho
    FROM (
        SELECT question, estimator, arm,
            CASE WHEN sum(variance) < sum(noise) THEN sum(noise) ELSE sum(variance) END AS variance,
            sum(scatter) AS scatter, sum(fourth) AS fourth, sum(noise) AS noise,
            sum(variance) > 1e-12 * sum(noise) AS is_known
        FROM _clusterdp_ratio_arms WHERE NOT is_sum GROUP BY question, estimator, arm
    )
),
_clusterdp_ratio_quantiles AS (
    SELECT *, ($quantile_of_law) AS quantile FROM _clusterdp_ratio_freedom
),
-- The same of every arm's ratio, by the noise in its own ℓ.
_clusterdp_ratio_reaches AS (
    SELECT *, ($quantile_of_law) ** 2 AS square
    FROM (
        SELECT a.question, a.estimator, a.arm, a.side, q.df, a.rho
        FROM (
            SELECT *, $rho_of_fourth AS rho FROM _clusterdp_ratio_arms WHERE NOT is_sum
        ) AS a
        JOIN _clusterdp_ratio_freedom AS q
        ON q.question = a.question AND q.estimator = a.estimator AND q.arm = a.arm
    )
),
-- Fieller's interval of every arm; C_ND of the means from the variances of N, D and N/w_N + D/w_D.
_clusterdp_ratio_fieller AS (
    SELECT *, below ** 2 - square * below_variance AS a,
        above * below - square * greatest(least(
            0.5 * above_width * below_width * (of_sum - above_variance / above_width ** 2
                - below_variance / below_width ** 2),
            sqrt(above_variance * below_variance)
        ), -sqrt(above_variance * below_variance)) AS b,
        above ** 2 - square * above_variance AS c
    FROM (
        SELECT m.asked, m.estimator, m.arm, m.side, m.above, m.safe AS below, m.above_width,
            m.below_width, m.above_variance, m.below_variance, s.variance AS of_sum,
            q.square, m.above / m.safe AS ratio,
            NOT m.is_zero
            AND coalesce(m.safe ** 2 > q.square * m.below_variance, FALSE) AS is_told,
            abs(m.below) >= $sure_errors * sqrt(m.below_variance) AS is_sure
        FROM _clusterdp_ratio_means AS m
        JOIN _clusterdp_ratio_reaches AS q ON q.question = m.asked
            AND q.estimator = m.estimator AND q.arm = m.arm AND q.side = m.side
        JOIN _clusterdp_ratio_arms AS s ON s.question = m.asked AND s.estimator = m.estimator
            AND s.arm = m.arm AND s.side = m.side AND s.is_sum
    )
),
_clusterdp_ratio_ends AS (
    SELECT *, (b - sqrt(greatest(b * b - a * c, 0))) / nullif(greatest(a, 0), 0) AS low,
        (b + sqrt(greatest(b * b - a * c, 0))) / nullif(greatest(a, 0), 0) AS high
    FROM _clusterdp_ratio_fieller
),
_clusterdp_ratio_contrasts AS (
    SELECT asked, estimator, arm, bool_and(is_told) AS is_told, bool_and(is_sure) AS is_sure,
        sum(CASE WHEN side = arm THEN ratio ELSE -ratio END) AS estimate,
        sqrt(sum(CASE WHEN side = arm THEN ratio - low ELSE high - ratio END ** 2)) AS below,
        sqrt(sum(CASE WHEN side = arm THEN high - ratio ELSE ratio - low END ** 2)) AS above
    FROM _clusterdp_ratio_ends GROUP BY asked, estimator, arm
),
_clusterdp_ratio_tested AS (
    SELECT *, CASE WHEN is_known THEN nullif(std_error, 0) END AS known,
        CASE WHEN is_known THEN abs(estimate) / nullif(implied, 0) END AS t
    FROM (
        SELECT c.*, q.df, q.rho, q.quantile, sqrt(q.variance) AS std_error,
            sqrt(q.noise) AS privacy_std_error, CASE WHEN c.is_sure THEN sqrt(q.variance)
                ELSE CASE WHEN c.estimate > 0 THEN c.below ELSE c.above END / q.quantile END
            AS implied, q.is_known
        FROM _clusterdp_ratio_contrasts AS c
        JOIN _clusterdp_ratio_quantiles AS q
        ON q.question = c.asked AND q.estimator = c.estimator AND q.arm = c.arm
        WHERE c.is_told
    )
),
_clusterdp_ratio_bounds AS (
    SELECT estimator, asked, arm, estimate, std_error, privacy_std_error,
        estimate - CASE WHEN is_sure THEN quantile * known ELSE below END AS ci_lower,
        estimate + CASE WHEN is_sure THEN quantile * known ELSE above END AS ci_upper,
        ($p_value_of_law) AS p_value
    FROM _clusterdp_ratio_tested
),
