-- What to know where few of the people meant are compared; null elsewhere.
CASE
    WHEN coverage IS NULL THEN 'nobody of it is in the release'
    WHEN coverage < $least_coverage
        THEN format('compares {:.3g} % of its people: ', 100 * coverage) || $remedy
END
