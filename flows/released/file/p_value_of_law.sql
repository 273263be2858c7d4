-- estimators.intervals.Law: P(|T| ≥ t) = Σ_E w ∫_{t/s}^∞ k / ∫_0^∞ k, s² = 1 + ρ(E − 1) and
-- k(x) = (1 + x²/df)^(−(df + 1)/2), by exp-sinh quadrature; relative error 2e-9 where P > 1e-6.
SELECT CASE WHEN t IS NOT NULL THEN greatest($least_p_value, sum(
        part * exp(-(nu + 1) / 2 * CASE WHEN a < 1e-5 THEN a * (1 - a * (0.5 - a / 3)) ELSE ln(1 + a) END)
    ) / sum(
        part * exp(-(nu + 1) / 2 * CASE WHEN b < 1e-5 THEN b * (1 - b * (0.5 - b / 3)) ELSE ln(1 + b) END)
    )) END
FROM (
    SELECT nu, weight * part AS part, x ** 2 / nu AS b,
        (t / sqrt(1 + rho * (place - 1)) + x) ** 2 / nu AS a
    FROM (SELECT least(df, 1e15) AS nu), (VALUES $places) AS mixed(nth, place, weight), (
        SELECT exp(pi() / 4 * (exp(i / 16.0) - exp(-i / 16.0))) AS x,
            x * (exp(i / 16.0) + exp(-i / 16.0)) AS part
        FROM range(-60, 61) AS nodes(i)
    )
    WHERE nth = 0 OR rho > 0
)
