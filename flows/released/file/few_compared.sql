-- What to know where few of the people meant are compared, or a ratio has no numbers; null elsewhere.
CASE
    WHEN estimate IS NULL AND n_units > 0
        THEN 'the mean below the line is not told from zero, so the ratio could be anything'
    WHEN coverage IS NULL THEN 'nobody of it is in the release'
    WHEN coverage < $least_coverage
        THEN format('compares {:.3g} % of its people: ', 100 * coverage) || $remedy
END
