-- Noisy counts of each arm's outcomes, summed over pools.
SELECT arm, outcome, sum(noisy_count)::BIGINT AS total, count(*) AS n_pools
FROM main.counts WHERE metric = $metric GROUP BY arm, outcome ORDER BY arm, outcome
