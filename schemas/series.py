"""The tables of ``series.duckdb``, which holds an experiment's nights together, as facts.

Outside the privacy boundary: everything in it is made from released files alone.
"""

from typing import Final

from schemas.tables import COUNT, NUMBER, SCHEMA, TEXT, Column, Table

SERIES: Final = "series.duckdb"
"""The name of the file, beside the releases that it is made from."""

SERIES_VERSION: Final = 5

NUMBERS: Final = "DOUBLE[]"
COUNTS: Final = "BIGINT[]"
TEXTS: Final = "VARCHAR[]"
"""Types of columns with a list in each row."""

_PERIOD = {
    "period": Column(TEXT, "Which part of the log was released."),
    "release_id": Column(TEXT, "The greatest revision of the period."),
}
_RELEASE = SCHEMA["release"].columns
_ESTIMATES = SCHEMA["estimates"].columns

SERIES_TABLES: Final[dict[str, Table]] = {
    "series": Table(
        "What the file is about, one row.",
        {
            "experiment": _RELEASE["experiment"],
            "control": _RELEASE["control"],
            "n_arms": Column(COUNT, "Treatment arms: control is not counted."),
            "looks": Column(
                COUNT, "The look at which ci_lower_always and ci_upper_always are narrowest."
            ),
            "n_scales": Column(
                COUNT,
                "The scales that ci_lower_always and ci_upper_always are a mixture of, as when the "
                "series began: 1 before version 3 of these tables.",
            ),
            "alike": Column(
                TEXT, "Equal for releases with the same arms, metrics and ranges of outcomes."
            ),
            "series_version": Column("INTEGER", "Of these tables."),
            "package_version": Column(TEXT, "Of clusterdp that made the file."),
        },
    ),
    "periods": Table(
        "A row a period, in order.",
        {
            **_PERIOD,
            **{
                name: _RELEASE[name]
                for name in (
                    "revision", "created_at", "epsilon", "delta", "mechanism", "n_units",
                    "n_set_aside", "sample_ratio_p", "n_returning", "n_arm_changed", "returning",
                    "account_key_fingerprint",
                )
            },
            "coverage": Column(
                NUMBER, "The least share of the period's people that an estimate compares."
            ),
            "n_bytes": Column(COUNT, "The size of the released file."),
        },
    ),
    "estimates": Table(
        "The estimates of each period, as its release has them.", {**_PERIOD, **_ESTIMATES}
    ),
    "outputs": Table(
        "How many units of an arm have each output of a table: what later nights' guesses are made "
        "of. None of an outcome that was drawn together with another, or by more than 64 tables.",
        {
            **_PERIOD,
            "metric": _ESTIMATES["metric"],
            "arm": SCHEMA["pools"].columns["arm"],
            "table": Column(COUNT, "The table's number in the release; of priors, one each."),
            "outcomes": Column(NUMBERS, "The grid of the metric."),
            "probabilities": Column(
                NUMBERS, "How likely each output is, one outcome of the grid after the other."
            ),
            "counts": Column(COUNTS, "How many units have each output."),
            "clusters": Column(
                TEXTS, "The clusters of most units, 64 at most, as far as they have this table."
            ),
            "counts_within": Column(
                COUNTS, "How many units of these have each output, one cluster after the other."
            ),
        },
    ),
    "cumulative": Table(
        "The effect over all periods up to this one, weighted by units.",
        {
            **_PERIOD,
            **{name: fact for name, fact in _ESTIMATES.items() if name != "p_value_holm"},
            "n_releases": Column(COUNT, "Periods that it is made of."),
            "ci_lower_always": Column(
                NUMBER,
                "Lower end of the interval for those who look after every period; null where the "
                "first release states no planned standard error.",
            ),
            "ci_upper_always": Column(NUMBER, "Upper end of it."),
            "people": Column(
                TEXT,
                "'disjoint': nobody is in two of the releases. 'returning', 'unknown': the "
                "standard error allows for any correlation between them; clusterdp estimate "
                "FOLDER finds a smaller one where ids can be matched.",
            ),
        },
    ),
    "notes": Table(
        "What was noted of releases after they were published, a row each.",
        {
            "period": _PERIOD["period"],
            "release_id": Column(TEXT, "The release."),
            "state": Column(
                TEXT,
                "'withdrawn': not to be used, and in no other table here. 'pruned': its file was "
                "removed as too old; its rows here stay.",
            ),
            "noted_at": Column(TEXT, "When, UTC."),
            "reason": Column(TEXT, "Why it was withdrawn, in the operator's words."),
        },
    ),
}  # fmt: skip
"""Every table of ``series.duckdb``."""
