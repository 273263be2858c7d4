-- The estimate with its interval, for whoever reads a row.
coalesce(
    format('{:.4g} ({:.4g} to {:.4g})', estimate, ci_lower, ci_upper),
    format('{:.4g}', estimate)
)
