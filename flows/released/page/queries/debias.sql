-- Priors, debias vectors and noisy counts, largest pools first.
SELECT d.pool, d.arm, d.outcome, d.probability, d.weight, c.noisy_count
FROM main.debias AS d
LEFT JOIN main.counts AS c
ON c.metric = d.metric AND c.pool = d.pool AND c.arm = d.arm AND c.outcome = d.outcome
JOIN (SELECT pool, sum(n_units) AS size FROM main.pools GROUP BY pool) AS p ON p.pool = d.pool
ORDER BY p.size DESC, d.pool, d.arm, d.outcome
