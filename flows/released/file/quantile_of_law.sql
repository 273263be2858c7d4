-- The quantile of the law at the level, for df and rho: Chebyshev's polynomials in 1/df and in rho.
SELECT sum(coefficient * cos(j * acos(2 / df - 1)) * cos(k * acos(2 * rho - 1)))
FROM query_table($quantiles)
