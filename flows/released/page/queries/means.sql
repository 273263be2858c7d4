-- Arms' own means, by estimator, the sharpest first.
SELECT arm, estimator, mean, std_error FROM main.means WHERE metric = $metric
ORDER BY CASE estimator WHEN 'combined' THEN 0 WHEN 'tau_q' THEN 1 ELSE 2 END, estimator, arm
