-- The grid of a metric.
SELECT outcome FROM main.outcomes WHERE metric = $metric ORDER BY outcome
