-- The units of each party in the segments of an analyst's table, and the sums of their d.
_clusterdp_party_wide AS MATERIALIZED (
    SELECT m.segment, u.cluster, u.arm, u.assigned_to AS party, $party_totals
    FROM _clusterdp_members AS m
    JOIN (
        SELECT unit_id, cluster, arm, $deviations FROM $source
    ) AS u ON u.unit_id = m.unit_id
    GROUP BY m.segment, u.cluster, u.arm, u.assigned_to
),
