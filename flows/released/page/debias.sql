-- Priors, debias vectors and noisy counts of the largest pools that a page shows.
WITH vectors AS (
    SELECT metric, pool, arm, sum(n_units) OVER (PARTITION BY pool) AS size FROM main.pools
    WHERE metric = $metric
), shown AS (
    FROM vectors ORDER BY size DESC, pool, arm LIMIT $listed
)
SELECT d.pool, d.arm, d.outcome, d.probability, d.weight, c.noisy_count
FROM shown AS s
JOIN main.debias AS d ON d.metric = s.metric AND d.pool = s.pool AND d.arm = s.arm
LEFT JOIN main.counts AS c
ON c.metric = d.metric AND c.pool = d.pool AND c.arm = d.arm AND c.outcome = d.outcome
    AND NOT $by_tables -- whose rows in debias are about outputs
ORDER BY s.size DESC, d.pool, d.arm, d.outcome
