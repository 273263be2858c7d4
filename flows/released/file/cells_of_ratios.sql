-- Of units that were assigned together, what each party adds to the terms of ratios: f D_N + g D_D.
_clusterdp_ratio_cells AS (
    SELECT t.asked, t.arm, t.side, n.cluster, n.party, n.m,
        t.f * n.deviation + t.g * d.deviation AS deviation
    FROM _clusterdp_ratio_factors AS t
    JOIN _clusterdp_cells AS n ON n.asked = t.above AND n.side = t.side
    JOIN _clusterdp_cells AS d
    ON (d.asked, d.side, d.cluster, d.party) = (t.below, n.side, n.cluster, n.party)
),
