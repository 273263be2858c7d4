-- t_{(1 + level)/2} for df degrees of freedom, by its Chebyshev coefficients as a polynomial in
-- 1/df.
SELECT sum(coefficient * cos(k * acos(2 / df - 1))) FROM query_table($t_quantile)
