-- Sums of margins: what estimators.strata.margins.Margins.calibrate computes, for combined alone.
-- Within ate_of_groups.sql; _clusterdp_crossed_slices has what is in each cell of a slice.
--
-- change is c and common b of every cell: from the slices, and from the pools whose statistic has a weight.
_clusterdp_pool_cells AS MATERIALIZED (
    SELECT t.place, s.pool, s.arm, t.cell, sum(t.n_units) AS n, sum(t.noise) AS noise,
        any_value(p.mean_weight) AS weight, any_value(p.n_units) AS whole
    FROM query_table($margin_strata) AS t
    JOIN query_table($unit_facts) AS f ON f._stratum = t.stratum
    JOIN query_table($strata) AS s ON s.cluster = f.cluster AND s.arm = f.arm
    JOIN query_table($pools) AS p ON p.place = t.place AND p.pool = s.pool AND p.arm = s.arm
    WHERE p.mean_weight > 0
    GROUP BY t.place, s.pool, s.arm, t.cell
),
-- What each unit of a slice counts for. Made first: DuckDB would join cells with strata of all slices.
_clusterdp_unit_shares AS MATERIALIZED (
    SELECT s.asked, s.arm, s.side, s.cluster, b.share * s.part / s.n AS share
    FROM _clusterdp_sides AS s
    JOIN _clusterdp_combined_shares AS b ON b.asked = s.asked
        AND b.arm = s.arm AND b.stratum = s.stratum AND b.side = s.side
),
_clusterdp_cell_sums AS MATERIALIZED (
    SELECT q.place, q.asked, t.arm, t.side, t.cell,
        any_value(q.unit_noise) * sum(t.units) AS change, sum(t.common) AS common
    FROM (
        SELECT s.asked, s.arm, s.side, c.cell, s.share * c.n AS units,
            s.share * c.n * c.n * c.mean_noise AS common
        FROM _clusterdp_unit_shares AS s
        JOIN _clusterdp_crossed_slices AS c
        ON c.asked = s.asked AND c.cluster = s.cluster AND c.arm = s.side
        UNION ALL
        SELECT f.asked, f.arm, f.side, p.cell, -f.factor / p.whole * p.n,
            p.weight * (f.factor * f.known - f.common) * p.n - f.factor / p.whole * p.noise
        FROM _clusterdp_pool_sums AS f
        JOIN _clusterdp_asked AS q ON q.asked = f.asked
        JOIN _clusterdp_pool_cells AS p
        ON p.place = q.place AND p.pool = f.pool AND p.arm = f.side
        WHERE f.estimator = 'combined'
    ) AS t
    JOIN _clusterdp_asked AS q ON q.asked = t.asked
    GROUP BY q.place, q.asked, t.arm, t.side, t.cell
),
-- λ of cells, and of pools: what every statistic counts for.
_clusterdp_cell_factors AS MATERIALIZED (
    SELECT c.place, c.asked, c.arm, c.side, i.cell, sum(i.inverse * c.change) AS factor
    FROM _clusterdp_cell_sums AS c
    JOIN query_table($margin_pairs) AS i
    ON i.place = c.place AND i.arm = c.side AND i.other = c.cell
    GROUP BY c.place, c.asked, c.arm, c.side, i.cell
),
_clusterdp_pool_factors AS (
    SELECT asked, arm, side, pool, sum(factor) AS factor
    FROM (
        SELECT asked, arm, side, pool, factor FROM _clusterdp_pool_sums WHERE estimator = 'combined'
        UNION ALL
        SELECT l.asked, l.arm, l.side, p.pool, -p.weight * p.n * l.factor
        FROM _clusterdp_cell_factors AS l
        JOIN _clusterdp_pool_cells AS p
        ON p.place = l.place AND p.arm = l.side AND p.cell = l.cell
    )
    GROUP BY asked, arm, side, pool
),
_clusterdp_by_margins AS (
    SELECT asked, arm, side, sum(mean) AS mean, sum(noise) AS noise, sum(fourth) AS fourth
    FROM (
        SELECT l.asked, l.arm, l.side, l.factor * c.gap AS mean, 0 AS noise,
            l.factor ** 4 * c.fourth AS fourth
        FROM _clusterdp_cell_factors AS l
        JOIN query_table($margin_cells) AS c
        ON c.place = l.place AND c.arm = l.side AND c.cell = l.cell
        UNION ALL
        SELECT l.asked, l.arm, l.side, 0, -2 * l.factor * c.common, 0
        FROM _clusterdp_cell_factors AS l
        JOIN _clusterdp_cell_sums AS c
        ON c.asked = l.asked AND c.arm = l.arm AND c.side = l.side AND c.cell = l.cell
        UNION ALL
        SELECT l.asked, l.arm, l.side, 0, l.factor * i.spread * k.factor, 0
        FROM _clusterdp_cell_factors AS l
        JOIN query_table($margin_pairs) AS i
        ON i.place = l.place AND i.arm = l.side AND i.cell = l.cell
        JOIN _clusterdp_cell_factors AS k
        ON k.asked = l.asked AND k.arm = l.arm AND k.side = l.side AND k.cell = i.other
        UNION ALL
        SELECT f.asked, f.arm, f.side, 0, 0, f.factor ** 4 * p.mean_fourth
        FROM _clusterdp_pool_factors AS f
        JOIN _clusterdp_asked AS q ON q.asked = f.asked
        JOIN query_table($pools) AS p
        ON p.place = q.place AND p.pool = f.pool AND p.arm = f.side
    )
    GROUP BY asked, arm, side
),
_clusterdp_means AS (
    SELECT p.estimator, p.asked, p.arm, p.side, p.mean + coalesce(m.mean, 0) AS mean,
        greatest(p.noise + coalesce(m.noise, 0), 0) AS noise, coalesce(m.fourth, p.fourth) AS fourth
    FROM _clusterdp_plain_means AS p
    LEFT JOIN _clusterdp_by_margins AS m ON p.estimator = 'combined'
        AND m.asked = p.asked AND m.arm = p.arm AND m.side = p.side
),
