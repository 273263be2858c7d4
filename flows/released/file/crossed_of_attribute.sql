-- How the values of an attribute and the cells of a margin cross, and the moments of every metric's d there.
    SELECT segment, cluster, arm, $cell AS cell, $moments
    FROM (
        SELECT coalesce($values, $nothing) AS segment, cluster, arm, $code AS code, $deviations
        FROM $source
    )
    GROUP BY segment, cluster, arm, code
