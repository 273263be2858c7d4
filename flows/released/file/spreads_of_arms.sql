-- How outcomes vary in the arms of each contrast: variances without the noise of statistics, and half
-- of their own variance. For outcomes, and for what ratios are made of: the prefix is that of the queries.
-- What is read: merged, sides, sample_variance, strata_means, estimators, outcome_variance, shares,
-- centers, as in ate_of_groups.sql; what is made: known_spreads and of_arms.

-- collapsed_strata: z, what each merged cluster adds to the contrast; seen is A_p. Values of z that
-- are equal but for rounding are equal, too.
${prefix}added AS (
    SELECT asked, arm, pair, cluster, n_treated, n_control,
        sum(n_treated) OVER whole AS all_treated, sum(n_control) OVER whole AS all_control,
        CASE WHEN abs(z - avg(z) OVER pairs) < 1e-12 * sum(size) OVER pairs THEN 0
            ELSE z - avg(z) OVER pairs END AS from_pair
    FROM (
        SELECT m.*, coalesce(s.z, 0) AS z, coalesce(s.size, 0) AS size
        FROM ${prefix}merged AS m
        LEFT JOIN (
            SELECT asked, arm, cluster, sum(part * (abs(mean) + abs(middle))) AS size,
                sum(CASE WHEN side = arm THEN part ELSE -part END * from_middle) AS z
            FROM ${prefix}sides WHERE stratum = 'merged' GROUP BY asked, arm, cluster
        ) AS s ON s.asked = m.asked AND s.arm = m.arm AND s.cluster = m.cluster
    )
    WINDOW whole AS (PARTITION BY asked, arm), pairs AS (PARTITION BY asked, arm, pair)
),
${prefix}pairs AS (
    SELECT asked, arm, count(*) - 1 AS free,
        count(*) * sum(from_pair * from_pair) / (count(*) - 1) AS variance,
        (sum(n_treated) - count(*) * var_samp(n_treated) / any_value(all_treated))
        / any_value(all_treated) ** 2
        + (sum(n_control) - count(*) * var_samp(n_control) / any_value(all_control))
        / any_value(all_control) ** 2 AS seen,
        1 / any_value(all_treated) + 1 / any_value(all_control) AS worth
    FROM ${prefix}added GROUP BY asked, arm, pair
),
${prefix}collapsed AS (
    SELECT asked, arm, sum(variance) * any_value(worth) / sum(seen) AS variance,
        sum(seen) ** 2 / sum(seen ** 2 / free) AS freedom
    FROM ${prefix}pairs GROUP BY asked, arm
    HAVING sum(seen) >= $least_seen * any_value(worth)
),
-- What the variance of pairs replaces of a merged stratum's Ŝ²/n, and with what.
${prefix}replaced AS (
    SELECT e.estimator, v.asked, v.arm, v.stratum, v.side, c.variance, c.freedom,
        CASE WHEN sum(v.spread / v.n) OVER both_arms > 0
            THEN v.spread / v.n / sum(v.spread / v.n) OVER both_arms
            ELSE 0.5 END AS own,
        CASE e.estimator WHEN 'tau_q' THEN 1
            ELSE min(m.unknown) OVER both_arms * max(m.unknown) OVER both_arms END AS used,
        CASE e.estimator WHEN 'tau_q' THEN 0 ELSE sum(m.response_noise) OVER both_arms END AS noise
    FROM ${prefix}sample_variance AS v
    JOIN ${prefix}strata_means AS m
    ON m.asked = v.asked AND m.arm = v.arm AND m.stratum = v.stratum AND m.side = v.side
    JOIN ${prefix}collapsed AS c ON c.asked = v.asked AND c.arm = v.arm
    JOIN ${prefix}estimators AS e ON e.asked = v.asked
    WHERE v.stratum = 'merged'
    WINDOW both_arms AS (PARTITION BY e.estimator, v.asked, v.arm)
),
${prefix}spreads AS (
    SELECT 'tau_q' AS estimator, asked, arm, stratum, side, n, spread,
        NULL::DOUBLE AS noise, NULL::DOUBLE AS most, NULL::DOUBLE AS widest
    FROM ${prefix}sample_variance
    UNION ALL
    SELECT 'combined', asked, arm, stratum, side, n, spread * more,
        greatest(square_noise - 1e-9 * widest ** 2, 0) * more ** 2, most * more, widest * more
    FROM ${prefix}outcome_variance
),
${prefix}weighted_spreads AS (
    SELECT s.*, b.share, b.own, b.moved, b.held, b.together, coalesce(1 - r.used, 1) AS kept,
        coalesce(r.own * r.used * (r.variance - r.noise), 0) AS paired,
        coalesce(r.own * (r.used * r.variance) ** 2 / (r.freedom + 2), 0) AS doubt
    FROM ${prefix}spreads AS s
    JOIN ${prefix}shares AS b ON b.estimator = s.estimator AND b.asked = s.asked
        AND b.arm = s.arm AND b.stratum = s.stratum AND b.side = s.side
    LEFT JOIN ${prefix}replaced AS r
    ON r.estimator = s.estimator AND r.asked = s.asked AND r.arm = s.arm
        AND r.stratum = s.stratum AND r.side = s.side
),
${prefix}usual_spreads AS (
    SELECT *, coalesce(least(
            greatest(sum(share ** 2 * kept * spread / n) OVER whole, 0),
            sum(share ** 2 * kept * most / n) OVER whole,
            sum(share ** 2 * kept * widest / n) OVER whole
        ) / nullif(sum(share ** 2 * kept / n) OVER whole, 0), 0) AS usual
    FROM ${prefix}weighted_spreads
    WINDOW whole AS (PARTITION BY estimator, asked, arm, side)
),
-- Inside: for degrees of freedom, drawn to the usual Ŝ² as far as it is noise.
${prefix}known_spreads AS (
    SELECT *, CASE estimator WHEN 'tau_q' THEN spread ELSE least(greatest(
            usual
            + (spread - usual) * coalesce(usual ** 2 / nullif(usual ** 2 + noise, 0), 1), 0
        ), most, widest) END AS inside
    FROM ${prefix}usual_spreads
),
-- between: what strata that count by an arm's own units differ by.
${prefix}apart AS (
    SELECT asked, arm, side, any_value(moved ** 2 / together) AS factor,
        sum(own * ((mean - center) ** 2 - spread / n - noise) + own ** 2 * inside / n)
        + any_value(center_noise) AS found,
        sum(own * widest) AS most,
        sum((
            own * (1 - own)
            * (moved ** 2 * inside / n + (held ** 2 - moved ** 2) * noise) / together
        ) ** 2) AS errors,
        2 * sum((own / together) ** 2
            * (moved ** 4 * inside / n + (held ** 2 - moved ** 2) ** 2 * noise)) AS common
    FROM (
        SELECT k.* EXCLUDE (noise), m.mean_noise AS noise, m.mean,
            sum(k.own * m.mean) OVER (PARTITION BY k.asked, k.arm, k.side) AS center,
            c.noise AS center_noise
        FROM ${prefix}known_spreads AS k
        JOIN ${prefix}strata_means AS m
        ON m.asked = k.asked AND m.arm = k.arm AND m.stratum = k.stratum AND m.side = k.side
        JOIN ${prefix}centers AS c ON c.asked = k.asked AND c.arm = k.arm AND c.side = k.side
        WHERE k.estimator = 'combined' AND k.own > 0
    )
    GROUP BY asked, arm, side
),
-- Σ b² S²/n of each arm and what strata differ by, brought between its bounds as a sum, and half of
-- its variance but for V_A.
${prefix}of_arms AS (
    SELECT k.estimator, k.asked, k.arm, k.side,
        greatest(least(
            greatest(k.variance + coalesce(a.factor * a.found, 0), 0),
            least(k.most, k.widest)
            + coalesce(a.factor * least(greatest(a.found, 0), a.most), 0)
        ) + k.paired, 0) AS variance,
        k.scatter + coalesce(a.errors + a.common * least(greatest(a.found, 0), a.most), 0) AS scatter
    FROM (
        SELECT estimator, asked, arm, side, sum(share ** 2 * kept * spread / n) AS variance,
            sum(share ** 2 * kept * most / n) AS most,
            sum(share ** 2 * kept * widest / n) AS widest, sum(share ** 2 * paired) AS paired,
            sum(share ** 4 * ((kept * inside / n) ** 2 / (n + 1) + doubt)) AS scatter
        FROM ${prefix}known_spreads GROUP BY estimator, asked, arm, side
    ) AS k
    LEFT JOIN ${prefix}apart AS a ON k.estimator = 'combined'
        AND a.asked = k.asked AND a.arm = k.arm AND a.side = k.side
),
