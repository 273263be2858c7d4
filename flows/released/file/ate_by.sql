-- Effects in each value of a published attribute, by its name. See ate_of_groups.sql.
--
-- $values has the attribute as text, whichever of them it is; the name is settled once a query, so no
-- other attribute is read.

WITH
-- What units without a value are called: as no value is.
_clusterdp_nothing AS MATERIALIZED (
    SELECT repeat('(', min(more)) || $no_value || repeat(')', min(more)) AS nothing
    FROM range(100) AS tries(more)
    WHERE repeat('(', more) || $no_value || repeat(')', more) NOT IN (
        SELECT $values FROM $source WHERE $values LIKE '(%)'
    )
),
_clusterdp_wide AS MATERIALIZED (
    SELECT segment, cluster, arm, $moments
    FROM (
        SELECT coalesce($values, $nothing) AS segment, cluster, arm, $deviations
        FROM $source
    )
    GROUP BY segment, cluster, arm
),
-- An attribute that is not there is a mistake, and is told as one.
_clusterdp_fit AS (
    SELECT CASE WHEN coalesce(lower(attribute), '') IN ($attributes) THEN TRUE
        ELSE error(coalesce('''' || attribute || '''', 'null') || ' is no attribute of this release, which has '
            || $attributes_told) END AS is_sound
),
$crossed_of_attribute$parties_of_attribute$effects
