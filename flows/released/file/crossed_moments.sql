-- The moments of every metric in each cell of a slice. Within ate_of_groups.sql.
_clusterdp_crossed_long AS ($crossed_long),
_clusterdp_crossed_moments AS MATERIALIZED (
    SELECT q.asked, q.rate, q.noise, m.* EXCLUDE (segment)
    FROM _clusterdp_crossed_long AS m
    JOIN _clusterdp_asked AS q ON q.place = m.place AND q.segment = m.segment
),
