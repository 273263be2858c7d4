-- Effects in the segments of an analyst's table: unit_id, segment. See ate_of_groups.sql.

WITH
-- The analyst's table, read here alone: behind this name, one of ours could stand for it.
_clusterdp_handed AS (SELECT unit_id, segment FROM query_table(segments_table)),
-- Every pair once.
_clusterdp_members AS (
    SELECT DISTINCT $matched AS unit_id, segment::VARCHAR AS segment
    FROM _clusterdp_handed
    WHERE unit_id IS NOT NULL AND segment IS NOT NULL
),
-- Cluster and arm are null for units that are not in the release.
_clusterdp_wide AS MATERIALIZED (
    SELECT m.segment, u.cluster, u.arm, $moments
    FROM _clusterdp_members AS m
    LEFT JOIN (
        SELECT unit_id, cluster, arm, $deviations FROM $source
    ) AS u ON u.unit_id = m.unit_id
    GROUP BY m.segment, u.cluster, u.arm
),
-- A table that fits nowhere is a mistake, and is told as one rather than by rows of nulls.
_clusterdp_fit AS (
    SELECT CASE WHEN n_rows > 0 AND n_ids = 0
        THEN error('none of the ' || n_rows || ' rows of your table has a unit_id and a segment')
        WHEN n_ids > 0 AND n_found = 0
        THEN error('none of the ' || n_ids || ' ids of your table is in this release, whose ids are '
            || $id_words || '; yours are of the type ' || kind || '. Are they of another release? '
            || 'Did they become numbers when they were read? Then read them as text')
        ELSE TRUE END AS is_sound
    FROM (
        SELECT count(*) AS n_rows, coalesce(any_value(typeof(unit_id)), '') AS kind,
            count(*) FILTER (WHERE unit_id IS NOT NULL AND segment IS NOT NULL) AS n_ids
        FROM _clusterdp_handed
    ) CROSS JOIN (SELECT count(cluster) AS n_found FROM _clusterdp_wide)
),
$crossed_of_segment$parties_of_segment$effects
