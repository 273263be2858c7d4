-- Effects on everybody, the sharpest estimate of each arm first.
SELECT metric, arm, control, segment, estimator, estimate, std_error, privacy_std_error, ci_lower,
    ci_upper, p_value, p_value_holm, confidence_level, n_units, coverage, planned_std_error
FROM main.estimates WHERE metric = $metric AND segment IS NULL
ORDER BY arm, CASE estimator WHEN 'combined' THEN 0 WHEN 'tau_q' THEN 1 ELSE 2 END, estimator
