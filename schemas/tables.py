"""The tables of a release as facts: every column, its type and its description.

The descriptions are in the file itself, as comments on its tables and columns. Outside the privacy
boundary: nothing here holds an unprotected outcome.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from schemas.names import DEBIASED, RANDOMISED

TEXT: Final = "VARCHAR"
NUMBER: Final = "DOUBLE"
COUNT: Final = "BIGINT"

UNNAMED: Final = "outcome"
"""The metric of a release whose one outcome has no name of its own."""


NO_VALUE: Final = "(none)"
"""The segment of units that have no value of a published attribute."""

TEXT_IDS: Final = "VARCHAR USING COMPRESSION FSST"
"""Ids that are text. DuckDB would choose this compression, too, after it had tried all others."""

MOST_LABELS: Final = 1 << 16
"""Clusters, or arms, that a table may have as an ENUM: as many as two bytes tell apart."""

ATTRIBUTE_KINDS: Final = (TEXT, "BIGINT", "UBIGINT", NUMBER, "BOOLEAN", "DATE")
"""The types that an attribute may have."""

MOST_ATTRIBUTES: Final = 50

ASSIGNED_TO: Final = "assigned_to"
"""The column of ``units`` that says what was randomised, where that is not the unit."""

DIGEST: Final = "UBIGINT"
"""The type of that column."""

WEIGHT: Final = "weight"
"""The column of ``units`` that makes means of arms comparable."""

STRATUM: Final = "_stratum"
"""The number of a unit's cluster and arm in what is stored of units: no attribute is called so."""

MARGIN_OF: Final = ", "
"""What stands between the attributes of a margin, and between their values."""

CODE: Final = "UTINYINT"
MARGINS: Final = "_margins"
_OF_BYTES: Final = (CODE, "USMALLINT", *["UINTEGER"] * 2, *["UBIGINT"] * 4)
"""The type of the number of a unit's cell in a margin."""

MOST_CELLS: Final = 200
"""Of a margin: as many numbers fit into that type, and as many sums are reconciled in no time."""

LABELS: Final = tuple(
    (table, column) for table in ("debias", "counts") for column in ("metric", "arm")
)
"""The columns, each with its table, that may be an ENUM rather than text."""


@dataclass(frozen=True)
class Column:
    """A column: its type in DuckDB, its description, and whether a value may be missing."""

    kind: str
    comment: str
    null: bool = False


@dataclass(frozen=True)
class Table:
    """A table: a description of its rows, and its columns in order."""

    comment: str
    columns: dict[str, Column]


_METRIC = Column(TEXT, "The outcome or ratio that the row is about, by its name in metrics.")
_POOL = Column(
    TEXT, "Clusters that share one prior and one set of statistics; 'all' where there is one."
)
_CLUSTER = Column(TEXT, "'all' where none is configured; a randomised one where they are private.")
_ARM = Column(TEXT, "An arm of the experiment.")
_OUTCOME = Column(NUMBER, "A value of the metric's grid, see outcomes.")
_TABLE = Column(
    COUNT,
    "The number of the table in randomiser that units were drawn by; null where by none.",
    null=True,
)


_CALIBRATED = (
    "The unit's outcome by all that is published, calibrated: avg() of it over people of one arm "
    "is the best linear unbiased estimate of their own mean, as far as was known beforehand. A "
    "single one says next to nothing. To compare arms, weight it: sum(weight * ...) / sum(weight)."
)
_WEIGHT = (
    "How many units, of all arms, of the clusters that are compared together the unit stands for "
    "in its arm: so weighted, arms have the same share of every cluster. Null where an arm is "
    "missing."
)
_ATTRIBUTE = "A public fact of the unit, as it is in the log."
_ASSIGNED = (
    "What was given its arm as one, the unit's household say: a digest under a secret key, which "
    "tells who belongs together and nothing else. Errors follow it."
)


def no_value(values: Collection[str | None]) -> str:
    """What units without a value are called: a pair of brackets more where one is called so."""
    name = NO_VALUE
    while name in values:
        name = f"({name})"
    return name


def randomised(metric: str) -> str:
    """Return the column of ``units`` that holds the randomised outcomes of a metric."""
    return f"{metric}{RANDOMISED}"


def debiased(metric: str) -> str:
    """Return the column of ``units`` that holds the debiased outcomes of a metric."""
    return f"{metric}{DEBIASED}"


def margin_columns(n_margins: int) -> dict[str, str]:
    """Return the columns of what is stored of units that have their cells' numbers, with types.

    Each has a byte a margin, of eight margins at most, the first lowest: a column of each margin's
    own takes as long to write as one of all. A name ends in how many margins there are up to it.
    """
    ends = [min(first + 8, n_margins) for first in range(0, n_margins, 8)]
    return {f"{MARGINS}{end}": _OF_BYTES[(end - 1) % 8] for end in ends}


def margin_code(margin: int, n_margins: int, of: str = "") -> str:
    """Return SQL for the number of a unit's cell in a margin, from a column ``of`` a table."""
    column = [*margin_columns(n_margins)][margin // 8]
    return f"(({of}{column} >> {8 * (margin % 8)}) & 255)::{CODE}"


def unit_table(
    metrics: tuple[str, ...],
    id_kind: str = TEXT,
    cluster_kind: str = TEXT,
    arm_kind: str = TEXT,
    attributes: Mapping[str, str] = MappingProxyType({}),
    *,
    assigned: bool = False,
    texts: Mapping[str, str] = MappingProxyType({}),
    by_tables: bool = False,
) -> Table:
    """Return ``units`` of these outcomes, and of these types of ids and of labels.

    It is a view: see :func:`drawn_table`. ``attributes`` have a type each; where ``assigned``, arms
    were not given unit by unit. ``texts`` say of outcomes that are text which number stands for
    which, by metric. ``by_tables`` units were drawn by response tables.
    """
    outcomes: dict[str, Column] = {}
    for metric in metrics:
        stands_for = f" {texts[metric]}." if metric in texts else ""
        outcomes[metric] = Column(NUMBER, _CALIBRATED)
        outcomes[randomised(metric)] = Column(
            NUMBER,
            "The number of the output that the unit's outcome was released as, see debias."
            if by_tables
            else f"The unit's outcome, randomised; never the true one.{stands_for}",
        )
        outcomes[debiased(metric)] = Column(
            NUMBER,
            "The weight of the randomised outcome, see debias: its mean over many units is "
            "unbiased, while a single one says next to nothing.",
        )
    return Table(
        "A row a unit, in no order, or one that tells nothing. Empty where no units are published.",
        {
            "unit_id": Column(
                id_kind, "As it is in the log, text or an integer; or its hash under a key."
            ),
            "cluster": replace(_CLUSTER, kind=cluster_kind),
            "arm": replace(_ARM, kind=arm_kind),
            **outcomes,
            WEIGHT: Column(NUMBER, _WEIGHT, null=True),
            **{name: Column(kind, _ATTRIBUTE) for name, kind in attributes.items()},
            **({ASSIGNED_TO: Column(DIGEST, _ASSIGNED)} if assigned else {}),
        },
    )


def drawn_columns(
    metrics: tuple[str, ...],
    id_kind: str,
    attributes: Mapping[str, str],
    *,
    assigned: bool,
    n_margins: int = 0,
) -> dict[str, str]:
    """Return the columns of what is stored of units, which ``units`` shows, with their types.

    A unit's cluster and arm are the number of its stratum there, and its values in a margin the
    number of its cell. All else about it follows from these and from what was drawn for it, so it
    is stored once a stratum or cell: see :mod:`flows.released.file.units`.
    """
    return {
        "unit_id": id_kind,
        STRATUM: "UINTEGER",
        **{randomised(metric): NUMBER for metric in metrics},
        **margin_columns(n_margins),
        **attributes,
        **({ASSIGNED_TO: DIGEST} if assigned else {}),
    }


_RELEASE = Table(
    "The release, one row: what was done, and what is promised of everything in the file together.",
    {
        "release_id": Column(TEXT, "EXPERIMENT.PERIOD.rN."),
        "experiment": Column(TEXT, "The name of the experiment."),
        "period": Column(TEXT, "Which part of the log was released; 'once' where there is one."),
        "revision": Column("INTEGER", "1 for the first release of the period."),
        "created_at": Column("TIMESTAMP", "When the release was made, in UTC."),
        "mechanism": Column(TEXT, "How outcomes were randomised."),
        "epsilon": Column(NUMBER, "The privacy loss of everything in the file together."),
        "delta": Column(NUMBER, "The further probability that goes with epsilon; 0 for none."),
        "neighbours": Column(
            TEXT, "What two logs may differ in for the guarantee to speak of them."
        ),
        "cluster_epsilon": Column(
            NUMBER,
            "The part of epsilon that clusters were randomised at; null where they are public.",
            null=True,
        ),
        "control": Column(TEXT, "The arm that the others are compared with."),
        "same_shares": Column(
            "BOOLEAN", "Whether every cluster was randomised with the same arm shares (declared)."
        ),
        "n_units": Column(COUNT, "Units in the release."),
        "n_clusters": Column(COUNT, "Clusters that they are in."),
        "n_set_aside": Column(
            COUNT, "Rows of the log that were set aside, by public rules alone.", null=True
        ),
        "sample_ratio_p": Column(
            NUMBER,
            "p-value of the arm sizes against the intended shares; null where none are declared.",
            null=True,
        ),
        "n_returning": Column(
            COUNT, "Units that were released before; null where nobody looked for them.", null=True
        ),
        "n_arm_changed": Column(
            COUNT,
            "Of those, the ones in another arm now; null where nobody looked for them.",
            null=True,
        ),
        "account": Column(
            TEXT,
            "Who pays: 'population', everybody for every release of the population; 'unit', a unit "
            "for the releases that it is in.",
        ),
        "returning": Column(
            TEXT,
            "What becomes of units released before: 'charge', they pay again; 'set_aside'; null "
            "where the account does not tell units apart, so that everybody pays again.",
            null=True,
        ),
        "rows_each": Column(
            COUNT,
            "Rows of whoever pays that are released at most; null where a unit pays for itself.",
            null=True,
        ),
        "budget_epsilon": Column(
            NUMBER,
            "What one of the population may pay in all; null where no limit is declared.",
            null=True,
        ),
        "decision": Column(
            TEXT,
            "How primary metrics decide, declared beforehand: 'all', an arm is to gain in each; "
            "'any', in one of them, after Holm; null where none is primary.",
            null=True,
        ),
        "unit_id_key_fingerprint": Column(
            TEXT,
            "Tells keys of hashed ids apart, and nothing else of them: equal where ids were hashed "
            "under one key. Null for ids as they are, and for a key that is too short.",
            null=True,
        ),
        "account_key_fingerprint": Column(
            TEXT, "The same of the account's key; null where no account by unit is kept.", null=True
        ),
        "guess_from": Column(
            TEXT,
            "The earlier releases that the guess at outcomes was learnt from, each with the "
            "SHA-256 of its file, between commas; empty for a declared guess.",
        ),
        "schema_version": Column("INTEGER", "Of these tables."),
        "package_version": Column(TEXT, "Of clusterdp that made the file."),
    },
)

_METRICS = Table(
    "A row an outcome or ratio: what was asked of it, how it was randomised, and at what price.",
    {
        "metric": Column(TEXT, "Its name; 'outcome' where the one outcome has none."),
        "kind": Column(TEXT, "'outcome' or 'ratio'."),
        "label": Column(TEXT, "Its name for people; null where none is declared.", null=True),
        "measured_in": Column(
            TEXT, "Its unit, such as 'EUR'; null where none is declared.", null=True
        ),
        "epsilon": Column(
            NUMBER,
            "The part of the release's epsilon that it was published at; null for a ratio, as all "
            "that follows up to n_outcomes: it is made of its outcomes.",
            null=True,
        ),
        "delta": Column(NUMBER, "The part of the release's delta, likewise.", null=True),
        "resampling_probability": Column(
            NUMBER,
            "λ: the probability that an outcome was drawn anew from the prior; null where no units "
            "are published, and where they are drawn by the tables of randomiser.",
            null=True,
        ),
        "truncation_threshold": Column(
            NUMBER, "γ: the least prior probability of any value; null likewise.", null=True
        ),
        "noise_scale": Column(
            NUMBER,
            "σ of the noise on statistics of pools: in units for counts, in grid steps for means "
            "and differences; null where there are none.",
            null=True,
        ),
        "strata_statistic": Column(
            TEXT,
            "What is published of each pool: 'counts', 'count-and-complement' (two values, one "
            "noisy count), 'means', 'differences' or 'none'.",
            null=True,
        ),
        "grid_step": Column(
            NUMBER,
            "One step of the grid, where means or differences are published; else null.",
            null=True,
        ),
        "n_outcomes": Column(COUNT, "Values of the grid.", null=True),
        "numerator": Column(TEXT, "Of a ratio: the metric above the line; else null.", null=True),
        "denominator": Column(TEXT, "Of a ratio: the metric below the line; else null.", null=True),
        "texts": Column(
            TEXT,
            "What its numbers stand for, such as '0 = no, 1 = yes', where the log has texts; else "
            "null.",
            null=True,
        ),
        "role": Column(
            TEXT,
            "Declared beforehand: 'primary' (an arm is to gain in it), 'guardrail' (no arm may "
            "harm it by more than margin) or 'secondary'; null where nothing is declared.",
            null=True,
        ),
        "margin": Column(
            NUMBER,
            "Of a guardrail: the greatest harm that is acceptable, in its unit; else null.",
            null=True,
        ),
        "direction": Column(
            TEXT,
            "Which way is good: 'increase' or 'decrease'; null where nothing is declared.",
            null=True,
        ),
        "response_epsilon": Column(
            NUMBER,
            "The part of epsilon that the tables of randomiser keep; null where there are none.",
            null=True,
        ),
        "drawn_with": Column(
            TEXT,
            "The outcome that it was drawn together with: one output a unit tells of both, and "
            "response_epsilon is spent once. Null for an outcome that was drawn by itself.",
            null=True,
        ),
        "computed_epsilon": Column(
            NUMBER,
            "The least epsilon at delta that the parameters give: at most epsilon, and less where "
            "these are round; null for a ratio.",
            null=True,
        ),
        "computed_delta": Column(NUMBER, "The least delta at epsilon, likewise.", null=True),
        "missing": Column(
            NUMBER,
            "What a missing or unreadable outcome counted as, before it was rounded.",
            null=True,
        ),
        "unit_noise": Column(
            NUMBER,
            "The noise variance of a unit's debiased outcome by the declared guess, by which sums "
            "of margins are weighed beside units; null where there are no margins.",
            null=True,
        ),
    },
)

_ESTIMATES = Table(
    "The effect of an arm on everybody, a row an estimator. An estimator without its statistic has "
    "none, and neither has an arm that cannot be compared.",
    {
        "metric": _METRIC,
        "arm": Column(TEXT, "The arm that is compared with control."),
        "control": Column(TEXT, "The control arm."),
        "segment": Column(TEXT, "Null: everybody.", null=True),
        "estimator": Column(
            TEXT,
            "'combined' (all that is published), 'tau_q' (randomised outcomes "
            "alone), 'histogram' (noisy counts or means alone), 'horvitz_thompson' (noisy "
            "differences alone).",
        ),
        "estimate": Column(NUMBER, "By how much the mean outcome is higher than under control."),
        "std_error": Column(
            NUMBER,
            "Standard error: sampling and privacy together; null for an arm of one household.",
            null=True,
        ),
        "privacy_std_error": Column(NUMBER, "The part of it that privacy adds.", null=True),
        "ci_lower": Column(
            NUMBER, "Lower end of the confidence interval; null where none is known.", null=True
        ),
        "ci_upper": Column(NUMBER, "Upper end of the confidence interval.", null=True),
        "p_value": Column(
            NUMBER, "Two-sided, for no effect; null where the standard error is 0.", null=True
        ),
        "p_value_holm": Column(
            NUMBER, "The same after Holm, for the number of treatment arms.", null=True
        ),
        "confidence_level": Column(NUMBER, "Of the interval."),
        "n_units": Column(
            COUNT, "Units, of all arms, in the clusters where arm and control can be compared."
        ),
        "n_segment": Column(COUNT, "Units, of all arms, whom the estimate is meant for."),
        "coverage": Column(
            NUMBER, "n_units / n_segment: the share of them that are compared.", null=True
        ),
        "planned_std_error": Column(
            NUMBER,
            "The standard error that was forecast from public facts before any outcome was read; "
            "null where there is no forecast for this estimator.",
            null=True,
        ),
    },
)

SCHEMA: Final[dict[str, Table]] = {
    "release": _RELEASE,
    "metrics": _METRICS,
    "outcomes": Table(
        "The grid of each metric, a row a value.", {"metric": _METRIC, "outcome": _OUTCOME}
    ),
    "pools": Table(
        "A row an arm of a pool, with its noisy statistic.",
        {
            "metric": _METRIC,
            "pool": _POOL,
            "arm": _ARM,
            "n_units": Column(COUNT, "Units of the arm in the pool; exact."),
            "noisy_mean": Column(
                NUMBER, "Mean outcome with noise; null where none is published.", null=True
            ),
            "noisy_difference": Column(
                NUMBER,
                "Mean outcome of the arm less that of control, with noise; null where none is "
                "published.",
                null=True,
            ),
            "mean_weight": Column(
                NUMBER,
                "What the noisy statistic weighs beside the randomised outcomes in 'combined', by "
                "the declared guess; null where there is none.",
                null=True,
            ),
            "square_weight": Column(NUMBER, "The same for squares of outcomes.", null=True),
            "table": _TABLE,
        },
    ),
    "strata": Table(
        "A row an arm of a cluster that has units.",
        {
            "cluster": _CLUSTER,
            "arm": _ARM,
            "pool": _POOL,
            "n_units": Column(COUNT, "Units of the arm in the cluster; exact."),
            "own_sizes": Column(
                NUMBER,
                "How far the cluster counts by the arm's own units in 'combined' rather than by "
                "those of all arms, from 0 to 1; one number for all clusters where it is not 0.",
            ),
        },
    ),
    "debias": Table(
        "How a randomised outcome counts: a row a value of the grid in an arm of a pool, or, where "
        "there are rows in randomiser, an output. Empty where no units are published.",
        {
            "metric": _METRIC,
            "pool": _POOL,
            "arm": _ARM,
            "outcome": Column(
                NUMBER, "As units have it: a value of the metric's grid, or an output's number."
            ),
            "probability": Column(
                NUMBER,
                "The prior q̃: what redrawn outcomes were drawn from; or how likely an output was "
                "thought to be when its table was chosen.",
            ),
            "weight": Column(NUMBER, "yᵀQ⁻¹: what the randomised outcome counts as in a mean."),
            "noise_variance": Column(
                NUMBER,
                "What the response adds to the variance of weight, right on average over people: "
                "the noise of Σ a · weight is Σ a² · noise_variance. A single one may be below 0.",
            ),
            "table": _TABLE,
        },
    ),
    "counts": Table(
        "Noisy counts: a row a value of the grid in an arm of a pool. Empty where none are "
        "published.",
        {
            "metric": _METRIC,
            "pool": _POOL,
            "arm": _ARM,
            "outcome": _OUTCOME,
            "noisy_count": Column(
                COUNT, "How many units have this outcome, with noise; may be below 0."
            ),
        },
    ),
    "arm_counts": Table(
        "Noisy counts of whole arms, with noise of their own: a row a value of the grid in an arm. "
        "The tables of randomiser were learnt from them. Empty where none are published.",
        {
            "metric": _METRIC,
            "arm": _ARM,
            "outcome": _OUTCOME,
            "noisy_count": Column(
                COUNT, "How many units of the arm have this outcome, with noise; may be below 0."
            ),
            "noise_scale": Column(NUMBER, "Scale of that noise, in units."),
        },
    ),
    "squares": Table(
        "Noisy sums of squares, a row an arm. Empty where none are published.",
        {
            "metric": _METRIC,
            "arm": _ARM,
            "noisy_square": Column(
                NUMBER, "Σ (outcome − centre)² over the arm's units, with noise."
            ),
            "noise_scale": Column(NUMBER, "Scale of that noise, in the unit of noisy_square."),
            "centre": Column(NUMBER, "A public number that outcomes are measured from."),
        },
    ),
    "margins": Table(
        "Noisy sums of outcomes over the units of one value of a declared attribute, or of several "
        "together: a row an arm of a cell. Empty where no margins are declared.",
        {
            "metric": _METRIC,
            "margin": Column("INTEGER", "The margin's number, from 0."),
            "attribute": Column(
                TEXT, "The attribute of the margin; of several together, with commas between them."
            ),
            "cell": Column("INTEGER", "The cell's number in the margin, from 0."),
            "value": Column(
                TEXT,
                "Its value of the attribute, or of all of them; '(none)' stands for no value, and "
                "'N other values' for those with few units in some arm, which are one cell.",
            ),
            "arm": _ARM,
            "n_units": Column(COUNT, "Units of the arm in the cell; exact."),
            "noisy_sum": Column(NUMBER, "Sum of their outcomes, with noise."),
            "noise_scale": Column(NUMBER, "Scale of that noise, in the outcome's unit."),
        },
    ),
    "randomiser": Table(
        "The probabilities of an optimal randomiser: a row an output for a value, by tables; pools "
        "say which was used where. Empty with every other mechanism.",
        {
            "metric": _METRIC,
            "table": Column(COUNT, "The table's number, from 0; each stands here once."),
            "outcome": _OUTCOME,
            "output": Column(
                NUMBER, "The number that the outcome may be published as, see debias."
            ),
            "probability": Column(NUMBER, "How likely that is, given the outcome, or both."),
            "other_outcome": Column(
                NUMBER,
                "A value of drawn_with's grid, on which the output depends as well; null where the "
                "outcome was drawn by itself.",
                null=True,
            ),
        },
    ),
    "guess": Table(
        "The guess at how outcomes are spread, as it was learnt from earlier releases: a row a "
        "value that outcomes may have, in an arm, of all clusters and of those of most units. "
        "Grids follow the mean of arms, tables, weights and forecasts each stratum's own. "
        "Empty for a declared guess.",
        {
            "metric": _METRIC,
            "cluster": Column(
                TEXT, "The cluster; 'all': the guess for every cluster that has none of its own."
            ),
            "arm": _ARM,
            "outcome": Column(NUMBER, "A value from the least of the metric's grid to the last."),
            "probability": Column(NUMBER, "How likely it was thought to be."),
        },
    ),
    "units": unit_table((UNNAMED,)),
    "means": Table(
        "The mean of every arm, control's too, a row an estimator: over the clusters in which the "
        "arm has two units, each weighted by its units of all arms. Where all clusters were "
        "randomised with the same arm shares, small ones count as one together. The "
        "difference of two means is the estimate of the effect where both cover the same clusters.",
        {
            "metric": _METRIC,
            "arm": _ARM,
            "estimator": Column(TEXT, "As in estimates."),
            "mean": Column(NUMBER, "The arm's mean outcome."),
            "std_error": Column(
                NUMBER,
                "Standard error: sampling and privacy together; null for an arm of one household.",
                null=True,
            ),
        },
    ),
    "estimates": _ESTIMATES,
    "ends": Table(
        "How many of all units' outcomes, rounded to the grid, are at one of its ends, or at what "
        "missing and unreadable ones count as. Nearly all of them at one: look whether the column "
        "was read rightly. Empty where neither units nor counts are published.",
        {
            "metric": _METRIC,
            "end": Column(
                TEXT,
                "'lowest', 'highest' or 'missing'; the last where metrics.missing is in outcomes.",
            ),
            "share": Column(NUMBER, "By all that is released; with noise, so not from 0 to 1."),
            "std_error": Column(NUMBER, "Of these units' own share: the noise alone.", null=True),
        },
    ),
}
"""Every table of a release, in the order in which they are written."""

PREFIX: Final = "_clusterdp_"
"""What the names in a file that are not for analysts begin with."""

MACROS: Final[dict[str, str]] = {
    "ate": "The effect of every arm on everybody, a metric after the other, 'combined' first. "
    "Attached as rel and not in use: FROM rel.ate('rel').",
    "ate_by": "The effect of every arm in each value of a published attribute, by its name: "
    "FROM ate_by('country'). Units without a value are the segment (none). Attached as rel and not "
    "in use: FROM rel.ate_by('country', 'rel').",
    "ate_by_segment": "The effect of every arm in segments of your own: give the name of a table "
    "with unit_id and segment. Attached as rel and not in use: "
    "FROM rel.ate_by_segment('my_table', 'rel').",
}
"""Descriptions of the macros of a release."""
