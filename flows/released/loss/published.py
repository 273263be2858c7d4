"""What a release says of how an outcome was protected: whole numbers of its tables.

Probabilities are published as multiples of 2⁻⁵³, so they are read as whole numbers, and rows of a
table are compared exactly.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import duckdb
import numpy as np

from schemas.arrays import Floats
from schemas.released import Metric

UNIT: Final = 2**53
"""What the probabilities of a row add up to, in whole numbers."""

_WHOLE: Final = f"probability * {UNIT}"
_IS_WHOLE: Final = f"probability BETWEEN 0 AND 1 AND {_WHOLE} = floor({_WHOLE})"
_PRIOR: Final = f"""
    SELECT bool_and(whole AND total = {UNIT}), min(least) FROM (
        SELECT bool_and({_IS_WHOLE}) AS whole,
            sum(try_cast({_WHOLE} AS HUGEINT)) AS total, min(probability) AS least
        FROM main.debias WHERE metric = $metric GROUP BY pool, arm)"""  # noqa: S608 - ours
_ROWS_ADD_UP: Final = f"""
    SELECT bool_and(whole AND total = {UNIT}) FROM (
        SELECT bool_and({_IS_WHOLE}) AS whole, sum(try_cast({_WHOLE} AS HUGEINT)) AS total
        FROM main.randomiser WHERE metric = $metric GROUP BY "table", outcome, other_outcome)"""  # noqa: S608 - ours
# Of the outputs that doubles cannot tell from the worst, whole numbers find it.
_WORST: Final = f"""
    WITH outputs AS (
        SELECT max({_WHOLE}) AS most, min({_WHOLE}) AS least FROM main.randomiser
        WHERE metric = $metric GROUP BY "table", output HAVING max(probability) > 0)
    SELECT DISTINCT try_cast(most AS HUGEINT), try_cast(least AS HUGEINT) FROM outputs
    WHERE least = 0 OR most / least >= 0.999999 * (
        SELECT max(most / least) FROM outputs WHERE least > 0)"""  # noqa: S608 - ours
_COUNTS_LEAVE_OUT: Final = """
    SELECT coalesce(bool_or(total IS DISTINCT FROM p.n_units), false) FROM (
        SELECT pool, arm, sum(noisy_count) AS total FROM main.counts
        WHERE metric = $metric GROUP BY pool, arm) AS c
    LEFT JOIN main.pools AS p ON p.metric = $metric AND p.pool = c.pool AND p.arm = c.arm"""
_ARM_COUNTS: Final = """
    SELECT min(noise_scale), coalesce(bool_or(total IS DISTINCT FROM n_units), false) FROM (
        SELECT arm, min(noise_scale) AS noise_scale, sum(noisy_count) AS total
        FROM main.arm_counts WHERE metric = $metric GROUP BY arm) AS c
    LEFT JOIN (
        SELECT arm, sum(n_units) AS n_units FROM main.pools WHERE metric = $metric GROUP BY arm
    ) AS p USING (arm)"""
_SQUARES: Final = "SELECT min(noise_scale) FROM main.squares WHERE metric = $metric"
_GRID: Final = "SELECT outcome FROM main.outcomes WHERE metric = $metric ORDER BY outcome"
_PRIOR_OF_COUNTS: Final = """
    SELECT d.probability, c.noisy_count::DOUBLE AS noisy_count, p.n_units::DOUBLE AS n_units
    FROM (FROM main.debias WHERE metric = $metric) AS d
    JOIN (FROM main.pools WHERE metric = $metric) AS p USING (pool, arm)
    LEFT JOIN (FROM main.counts WHERE metric = $metric) AS c USING (pool, arm, outcome)
    ORDER BY pool, arm, outcome"""


@dataclass(frozen=True)
class Priors:
    """The priors q̃ that outcomes were drawn from anew, and what they were made of."""

    are_whole: bool
    """Whether each is of multiples of 2⁻⁵³ that add up to 1."""
    least: Fraction
    """The least probability of any."""
    probabilities: Floats
    """q̃, shape [pools and arms, K]."""
    shares: Floats
    """Noisy counts over units, in the same shape; NaN where none are published."""


@dataclass(frozen=True)
class Tables:
    """The tables of outputs that units were drawn by."""

    are_whole: bool
    """Whether each row is of multiples of 2⁻⁵³ that add up to 1."""
    ratio: Fraction | None
    """How many times as likely one outcome makes an output as another, at most; None: infinitely.
    """


@dataclass(frozen=True)
class Published:
    """What is said of one outcome, besides its row of ``metrics``."""

    metric: Metric
    grid: tuple[Fraction, ...]
    """The values of its grid, increasing; shape [K]."""
    priors: Priors | None
    tables: Tables | None
    counts_leave_out: bool
    """Whether noisy counts of some pool and arm do not add up to its units."""
    arm_scale: float | None
    """The scale of the noise on counts of arms; None where there are none."""
    arms_leave_out: bool
    """Whether those of some arm do not add up to its units."""
    square_scale: float | None
    """The scale of the noise on sums of squares; None where there are none."""


def read_published(connection: duckdb.DuckDBPyConnection, metric: Metric) -> Published:
    """Read what a release says of an outcome; its rows keep the rules of readers."""

    def asked(query: str) -> list[tuple[Any, ...]]:
        return connection.execute(query, {"metric": metric.metric}).fetchall()

    ((leave_out,),) = asked(_COUNTS_LEAVE_OUT)
    ((arm_scale, arms_leave_out),) = asked(_ARM_COUNTS)
    ((square_scale,),) = asked(_SQUARES)
    return Published(
        metric=metric,
        grid=tuple(Fraction(value) for (value,) in asked(_GRID)),
        priors=None if metric.resampling_probability is None else _priors(connection, metric),
        tables=_tables(asked(_ROWS_ADD_UP), asked(_WORST)) if metric.has_tables else None,
        counts_leave_out=leave_out,
        arm_scale=arm_scale,
        arms_leave_out=arms_leave_out,
        square_scale=square_scale,
    )


def _priors(connection: duckdb.DuckDBPyConnection, metric: Metric) -> Priors:
    named = {"metric": metric.metric}
    are_whole, least = connection.execute(_PRIOR, named).fetchall()[0]
    found = connection.execute(_PRIOR_OF_COUNTS, named).fetchnumpy()
    shape = (-1, metric.n_outcomes)
    counts = np.ma.filled(np.ma.masked_invalid(found["noisy_count"]), np.nan)
    return Priors(
        are_whole=bool(are_whole),
        least=Fraction(least),
        probabilities=found["probability"].reshape(shape),
        shares=(counts / found["n_units"]).reshape(shape),
    )


def _tables(add_up: list[tuple[Any, ...]], worst: list[tuple[Any, ...]]) -> Tables:
    ratios = [None if not least else Fraction(most, least) for most, least in worst]
    known = [ratio for ratio in ratios if ratio is not None]
    return Tables(bool(add_up[0][0]), max(known) if len(known) == len(ratios) else None)
