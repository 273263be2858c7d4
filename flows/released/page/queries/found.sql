-- How many units of each (pool, arm) were released with each outcome, beside the prior of it.
WITH found AS (
    SELECT s.pool, u.arm, u.{outcome} AS outcome, count(*) AS found
    FROM main.units AS u JOIN main.strata AS s ON s.cluster = u.cluster AND s.arm = u.arm
    GROUP BY ALL
)
SELECT d.arm, d.outcome, d.probability, p.n_units::DOUBLE AS n,
    coalesce(f.found, 0)::DOUBLE AS found
FROM main.debias AS d
JOIN main.pools AS p ON p.metric = d.metric AND p.pool = d.pool AND p.arm = d.arm
LEFT JOIN found AS f ON f.pool = d.pool AND f.arm = d.arm AND f.outcome = d.outcome
WHERE d.metric = $metric AND p.n_units > 0
ORDER BY d.arm, d.outcome, d.pool
