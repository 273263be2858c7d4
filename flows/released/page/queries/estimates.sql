-- Effects on everybody, the sharpest estimate of each arm first.
SELECT metric, arm AS treatment, arm, control, estimator, estimate, std_error, privacy_std_error, ci_lower, ci_upper,
    p_value, p_value_holm, confidence_level, n_units, coverage
FROM main.estimates WHERE segment IS NULL
ORDER BY array_position((SELECT list(metric ORDER BY rowid) FROM main.metrics), metric), arm,
    CASE estimator WHEN 'combined' THEN 0 WHEN 'tau_q' THEN 1 ELSE 2 END, estimator
