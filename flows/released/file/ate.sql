-- The effect of every arm on everybody, as the release states it, a metric after the other, sharpest
-- first.
-- A terminal that is too narrow leaves out columns in the middle, so what a person looks for first
-- stands at both ends.
-- The WHERE makes sure that the database in use is this very release: no other has that table.
SELECT metric, arm, estimate, ci_lower, ci_upper, control, segment, std_error,
    privacy_std_error, p_value, p_value_holm, confidence_level, n_units, n_segment, coverage,
    planned_std_error, estimator, $effect AS effect, $note AS note
FROM query_table($estimates)
WHERE EXISTS (FROM query_table($quantiles))
ORDER BY
    array_position($metric_order, metric),
    array_position($estimator_order, estimator),
    arm
