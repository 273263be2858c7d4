-- The means of slices whose units were drawn by response tables: debiased already, with what outputs add
-- to noise and to squares beside them. Within ate_of_groups.sql; the prefix
-- is that of the queries.
${prefix}slices AS (
    SELECT m.asked, m.place, m.cluster, m.arm, s.pool, s.own_sizes, m.n, m.variance AS within,
        m.mean, m.response / m.n AS mean_noise, m.square, m.square_noise / m.n AS square_noise$cell
    FROM ${prefix}moments AS m
    JOIN query_table($strata) AS s ON s.cluster = m.cluster AND s.arm = m.arm
),
