-- Exact sizes of strata.
SELECT cluster, arm, pool, n_units FROM main.strata ORDER BY cluster, arm
