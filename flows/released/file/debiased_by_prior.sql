-- The debiased means of slices where outcomes were drawn anew from a prior. Within ate_of_groups.sql;
-- the prefix is that of the queries.
${prefix}known AS (
    SELECT m.*, s.own_sizes, p.pool, p.prior_mean, p.prior_variance, p.prior_square, p.prior_square_variance,
        m.variance * (m.n - 1) / m.n + m.mean * m.mean AS found
    FROM ${prefix}moments AS m
    JOIN query_table($strata) AS s ON s.cluster = m.cluster AND s.arm = m.arm
    JOIN query_table($pools) AS p ON p.place = m.place AND p.pool = s.pool AND p.arm = s.arm
),
-- debias_mean and debias_square: (f − λ m)/(1 − λ) and its noise
-- V̂_RR = r(1 + r)[mean (f − m)² + (1 − λ) Var_q̃]/n.
${prefix}slices AS (
    SELECT asked, place, cluster, arm, pool, own_sizes, n,
        variance / ((1 - rate) * (1 - rate)) AS within,
        (mean - rate * prior_mean) / (1 - rate) AS mean,
        noise * (
            variance * (n - 1) / n + (mean - prior_mean) * (mean - prior_mean)
            + (1 - rate) * prior_variance
        ) / n AS mean_noise,
        (found - rate * prior_square) / (1 - rate) AS square,
        noise * (
            greatest(fourth - 2 * prior_square * found + prior_square * prior_square, 0)
            + (1 - rate) * prior_square_variance
        ) / n AS square_noise$cell
    FROM ${prefix}known
),
