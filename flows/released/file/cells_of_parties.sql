-- The units m of each party in a slice, and D, the sum of their v − v̄: 0 where it is rounding alone.
-- _clusterdp_party_wide has the units of each party in a (segment, cluster, arm), and the sums of every
-- metric's d.
_clusterdp_cells AS MATERIALIZED (
    SELECT asked, cluster, arm AS side, party, m,
        CASE WHEN m >= n OR abs(total - m * mean) < 1e-12 * m * abs(mean) THEN 0
            ELSE (total - m * mean) / (1 - rate) END AS deviation
    FROM (
        SELECT q.asked, q.rate, w.cluster, w.arm, w.party, w.m, s.n, s.mean,
            CASE q.place $party_total END AS total
        FROM _clusterdp_party_wide AS w
        JOIN _clusterdp_asked AS q ON q.segment = w.segment
        JOIN _clusterdp_moments AS s
        ON s.asked = q.asked AND s.cluster = w.cluster AND s.arm = w.arm
    )
),
