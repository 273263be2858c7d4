-- The units of each party in each value of an attribute, and the sums of their d.
_clusterdp_party_wide AS MATERIALIZED (
    SELECT segment, cluster, arm, assigned_to AS party, $party_totals
    FROM (
        SELECT coalesce($values, $nothing) AS segment, cluster, arm, $deviations
        FROM $source
    )
    GROUP BY segment, cluster, arm, assigned_to
),
