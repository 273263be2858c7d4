-- The same of the segments of an analyst's table.
    SELECT m.segment, u.cluster, u.arm, $cell AS cell, $moments
    FROM _clusterdp_members AS m
    JOIN (
        SELECT unit_id, cluster, arm, $code AS code, $deviations FROM $source
    ) AS u ON u.unit_id = m.unit_id
    GROUP BY m.segment, u.cluster, u.arm, code
