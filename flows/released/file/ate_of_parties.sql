-- What units that were assigned together (assigned_to) add to variances: estimators.strata.assigned.added.
-- Stands within ate_of_groups.sql, in releases that have assigned_to. For outcomes, and for what ratios
-- are made of: the prefix is that of the queries. What is read: cells, with D, the sum of v − v̄ over
-- the m units of a party in a slice; sides, sample_variance, known_spreads, of_arms and estimators, as
-- in ate_of_groups.sql; what is made: parties.

${prefix}party_rows AS MATERIALIZED (
    SELECT s.asked, s.arm, s.stratum, s.side, c.party, c.m, v.n, v.spread, s.middle,
        c.deviation + c.m * s.from_middle AS total,
        sum(c.m) OVER (PARTITION BY s.asked, s.arm, s.stratum, s.side, c.party) / v.n AS part
    FROM ${prefix}sides AS s
    JOIN ${prefix}cells AS c
    ON c.asked = s.asked AND c.cluster = s.cluster AND c.side = s.side$of_arm
    JOIN ${prefix}sample_variance AS v
    ON v.asked = s.asked AND v.arm = s.arm AND v.stratum = s.stratum AND v.side = s.side
),
${prefix}party_strata AS (
    SELECT asked, arm, stratum, side, count(DISTINCT party) AS n_parties,
        any_value(n) AS n, any_value(spread) AS spread, any_value(middle) AS middle,
        sum(m * part) AS squares
    FROM ${prefix}party_rows GROUP BY asked, arm, stratum, side
),
-- Strata in which an arm is one party are collapsed; all, where these have one party of an arm.
${prefix}party_sides AS (
    SELECT p.*, k.estimator, k.share, k.kept, k.share ** 2 * k.paired AS paired,
        k.kept * k.share ** 2 * p.spread / p.n AS of_units,
        min(k.kept) OVER strata = 1 AS may, min(p.n_parties) OVER strata AS fewest
    FROM ${prefix}party_strata AS p
    JOIN ${prefix}known_spreads AS k
    ON k.asked = p.asked AND k.arm = p.arm AND k.stratum = p.stratum AND k.side = p.side
    JOIN ${prefix}estimators AS e ON e.asked = k.asked AND e.estimator = k.estimator
    WINDOW strata AS (PARTITION BY k.estimator, p.asked, p.arm, p.stratum)
),
${prefix}party_numbers AS (
    SELECT s.estimator, s.asked, s.arm, s.side, count(DISTINCT r.party) AS n,
        count(DISTINCT r.party) FILTER (WHERE s.may AND s.fewest < 2) AS n_lone,
        count(DISTINCT r.party) FILTER (WHERE s.may) AS n_may
    FROM ${prefix}party_sides AS s
    JOIN ${prefix}party_rows AS r
    ON r.asked = s.asked AND r.arm = s.arm AND r.stratum = s.stratum AND r.side = s.side
    GROUP BY s.estimator, s.asked, s.arm, s.side
),
${prefix}party_fewest AS (
    SELECT estimator, asked, arm, max(n_lone) > 0 AS has_lone, min(n_lone) < 2 AS all_lone,
        min(n) < 2 OR max(n_lone) > 0 AND min(n_lone) < 2 AND min(n_may) < 2 AS unknown
    FROM ${prefix}party_numbers GROUP BY estimator, asked, arm
),
${prefix}party_lone AS (
    SELECT s.*, f.unknown,
        s.may AND (s.fewest < 2 OR f.has_lone AND f.all_lone) AS lone
    FROM ${prefix}party_sides AS s
    JOIN ${prefix}party_fewest AS f
    ON f.estimator = s.estimator AND f.asked = s.asked AND f.arm = s.arm
),
-- β, and what the collapsed strata say: Z, Σ β²/(1 + β), and the middle of each side.
${prefix}party_beta AS (
    SELECT *, CASE WHEN lone THEN
            share / sum(share) FILTER (WHERE lone) OVER (PARTITION BY estimator, asked, arm, side)
            ELSE 0 END AS beta
    FROM ${prefix}party_lone
),
${prefix}party_pairs AS (
    SELECT estimator, asked, arm, stratum, any_value(beta) AS beta, any_value(share) AS share,
        sum(CASE WHEN side = arm THEN middle ELSE -middle END) AS effect,
        sum(abs(middle)) AS size
    FROM ${prefix}party_beta WHERE lone GROUP BY estimator, asked, arm, stratum
),
${prefix}party_apart AS (
    SELECT *, effect - sum(beta * effect) OVER (PARTITION BY estimator, asked, arm) AS off,
        CASE WHEN beta < 1 - 1e-9 THEN 1 - beta ELSE 1 END AS rest
    FROM ${prefix}party_pairs
),
${prefix}party_collapsed AS (
    SELECT estimator, asked, arm, sum(beta ** 2 / (2 - rest)) AS doubt,
        sum(CASE WHEN abs(off) < 1e-12 * size THEN 0 ELSE (share * off) ** 2 / rest END) AS variance
    FROM ${prefix}party_apart GROUP BY estimator, asked, arm
),
${prefix}party_middles AS (
    SELECT *, sum(beta * middle) OVER (PARTITION BY estimator, asked, arm, side) AS center
    FROM ${prefix}party_beta
),
${prefix}party_cells AS (
    SELECT s.estimator, r.asked, r.arm, r.side, r.party, r.m,
        CASE WHEN s.lone THEN 0 ELSE s.kept END AS kept, s.share / s.n AS factor, s.spread,
        r.total + CASE WHEN s.lone THEN r.m * (s.middle - s.center) ELSE 0 END AS total,
        CASE WHEN s.lone THEN sum(s.beta * r.m / s.n) OVER (
                PARTITION BY s.estimator, r.asked, r.arm, r.side, r.party)
            ELSE r.part END AS part
    FROM ${prefix}party_rows AS r
    JOIN ${prefix}party_middles AS s
    ON s.asked = r.asked AND s.arm = r.arm AND s.stratum = r.stratum AND s.side = r.side
),
${prefix}party_terms AS (
    SELECT *, factor * total / sqrt(rest) AS score, factor * m * sqrt(spread) AS root,
        kept * factor ** 2 * m * spread AS single
    FROM (
        SELECT *, CASE WHEN part < 1 - 1e-9 THEN 1 - part ELSE 1 END AS rest
        FROM ${prefix}party_cells
    )
),
${prefix}party_sums AS (
    SELECT estimator, asked, arm, side,
        sum(score) ** 2 - sum((1 - kept) * score ** 2) AS product,
        sum(root) ** 2 - sum((1 - kept) * root ** 2) - sum(single) AS room,
        sum(single / sqrt(2 - rest)) AS alone,
        sum(root / (2 - rest) ** 0.25) ** 2 - sum((1 - kept) * root ** 2 / sqrt(2 - rest))
        - sum(single / sqrt(2 - rest)) AS common
    FROM ${prefix}party_terms GROUP BY estimator, asked, arm, side, party
),
${prefix}party_arms AS (
    SELECT estimator, asked, arm, side, sum(product) AS products, sum(room) AS room,
        sum(alone ** 2) AS square, sum(alone * common) AS mixed, sum(common ** 2) AS fourth
    FROM ${prefix}party_sums GROUP BY estimator, asked, arm, side
),
${prefix}party_units AS (
    SELECT estimator, asked, arm, side, bool_or(unknown) AS unknown, sum(of_units) AS total,
        sum(paired) AS paired, sum(CASE WHEN lone THEN of_units ELSE 0 END) AS replaced,
        sum(of_units ** 2 / (n + 1)) AS single,
        sum(CASE WHEN lone THEN of_units * (squares - 1) ELSE 0 END) AS room_lone
    FROM ${prefix}party_lone GROUP BY estimator, asked, arm, side
),
${prefix}party_known AS (
    SELECT u.*, a.square, a.mixed, a.fourth, a.room + u.room_lone AS room,
        a.products - u.total + u.replaced AS own, coalesce(c.doubt, 0) AS doubt,
        coalesce(u.replaced / nullif(sum(u.replaced) OVER both_arms, 0), 0.5) AS half,
        coalesce(u.replaced / nullif(sum(u.replaced) OVER both_arms, 0), 0.5)
        * coalesce(c.variance, 0) - u.replaced AS collapsed,
        CASE WHEN u.estimator = 'tau_q' OR u.total <= 0 THEN 1
            ELSE least(greatest(s.variance - u.paired, 0) / u.total, 1) END AS clear
    FROM ${prefix}party_units AS u
    JOIN ${prefix}party_arms AS a
    ON a.estimator = u.estimator AND a.asked = u.asked AND a.arm = u.arm AND a.side = u.side
    JOIN ${prefix}of_arms AS s
    ON s.estimator = u.estimator AND s.asked = u.asked AND s.arm = u.arm AND s.side = u.side
    LEFT JOIN ${prefix}party_collapsed AS c
    ON c.estimator = u.estimator AND c.asked = u.asked AND c.arm = u.arm
    WINDOW both_arms AS (PARTITION BY u.estimator, u.asked, u.arm)
),
-- Drawn to what is known without noise: a correlation of 2/3, give or take 0.29.
${prefix}party_hidden AS (
    SELECT *, clear * room AS most, 2 * greatest(
            greatest(square + coalesce(replaced ** 2 * doubt / nullif(half, 0), 0) - single, 0)
            - greatest(clear ** 2 * (
                square + coalesce(replaced ** 2 * doubt / nullif(half, 0), 0) - single
            ), 0), 0) AS hidden
    FROM ${prefix}party_known
),
${prefix}party_weights AS (
    SELECT *, coalesce(most ** 2 / 12 / nullif(most ** 2 / 12 + hidden, 0), 1) AS weight
    FROM ${prefix}party_hidden
),
${prefix}party_extra AS (
    SELECT *, weight * greatest(collapsed, 0) AS apart,
        greatest(weight * (own + collapsed) + (1 - weight) * 2 / 3 * most, 0) AS extra
    FROM ${prefix}party_weights
),
${prefix}party_doubts AS (
    SELECT *, coalesce(extra / nullif(greatest(room, 0), 0), 0) AS rho,
        1 + (1 - weight) * 2 / 3 * coalesce(room / nullif(greatest(total, 0), 0), 0) AS stretch
    FROM ${prefix}party_extra
),
${prefix}party_scatter AS (
    SELECT *,
        greatest(square + 2 * rho * mixed + rho ** 2 * fourth - single
            + coalesce((replaced + apart) ** 2 * doubt / nullif(half, 0), 0), 0) AS loud,
        greatest(clear ** 2 * square + 2 * clear * rho * mixed + rho ** 2 * fourth
            - clear ** 2 * single
            + coalesce((clear * replaced + apart) ** 2 * doubt / nullif(half, 0), 0), 0) AS quiet
    FROM ${prefix}party_doubts
),
${prefix}parties AS (
    SELECT estimator, asked, arm, side, CASE WHEN NOT unknown THEN extra END AS variance,
        stretch ** 2 AS stretch, quiet + weight * greatest(loud - quiet, 0) AS scatter
    FROM ${prefix}party_scatter
),
