"""Effects by a published attribute: a segment for each of its values, all seen together."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isnan
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import numpy as np
import polars as pl

from estimators.arm_effects import Estimate
from estimators.coverage import coverage_warnings
from estimators.intervals import Law, holm
from estimators.means import SHARPEST_FIRST
from estimators.ratios import ratio_warnings
from estimators.shrinkage import shrink, steady_variance
from flows.released.estimates.segments import estimates_of_slices
from flows.released.file.evidence import Released, read_frame
from flows.released.file.macros import LEVEL
from flows.released.file.opening import open_safely
from flows.released.file.read import open_release, read_chosen
from flows.released.file.sql import quote_name, text
from flows.released.tables.attribute_table import check_attributes
from flows.runtime.engine import ask
from schemas.arrays import Floats
from schemas.errors import InputError
from schemas.released import Metric, Ratio
from schemas.tables import no_value

MAX_SEGMENTS: Final = 1000
"""The most values of an attribute that effects are estimated by."""


@dataclass(frozen=True)
class _AmongSegments:
    """What an effect is among those of the attribute's other segments; None where it cannot be."""

    p_value_holm_segments: float | None = None
    """Adjusted for the number of segments in which this estimator compares this arm."""
    shrunken: float | None = None
    """Drawn towards the segments' mean as far as chance explains how they spread."""
    shrunken_std_error: float | None = None
    shrunken_ci_lower: float | None = None
    shrunken_ci_upper: float | None = None


@dataclass(frozen=True)
class AttributeEstimate(_AmongSegments, Estimate):
    """An effect in one segment of an attribute."""


Plain = TypeVar("Plain", bound=Estimate)
Among = TypeVar("Among", bound=AttributeEstimate)


@dataclass(frozen=True)
class AttributeEstimates:
    """Effects by the values of an attribute."""

    attribute: str
    estimates: list[AttributeEstimate]
    segments: tuple[str, ...]
    same_shares: bool
    """Whether the release declares that all clusters were randomised with the same arm shares."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about effects that compare few people, and ratios that cannot be told."""
        few = coverage_warnings(self.estimates, same_shares=self.same_shares)
        return (*few, *ratio_warnings(self.estimates))

    def as_json(self) -> dict[str, str | int]:
        """What is said of the attribute by ``clusterdp estimate --by --json``."""
        return {"attribute": self.attribute, "n_segments": len(self.segments)}


def estimate_by(
    path: Path, attribute: str, level: float = LEVEL, metrics: Sequence[str] = ()
) -> AttributeEstimates:
    """Estimate every arm's effect for each value of ``attribute`` in the release at ``path``.

    The estimates are those of :func:`flows.released.estimates.segments.estimate_segments` for a
    table with the attribute's values as text; units without a value are a segment of their own
    (``(none)``, unless a value is called so). Beside each stands what it is among
    the others (:func:`among_segments`). ``metrics`` names those that are asked for, none all.

    Raises:
        ConfigError: The release has no such attribute or metric.
        InputError: It publishes no units, or the attribute has too many values.
    """
    with open_release(path) as connection:
        check_attributes(connection, path, (attribute,), "by")
        chosen, every = read_chosen(connection, metrics)
        return estimate_values(connection, path, attribute, level, every, chosen)


def estimate_values(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    attribute: str,
    level: float,
    every: Sequence[Released],
    chosen: Sequence[Metric | Ratio],
    *,
    sharpest: bool = False,
) -> AttributeEstimates:
    """Estimate as :func:`estimate_by` does, from the file at ``path`` as it is open.

    ``every`` has the outcomes that the ``chosen`` metrics need; ``sharpest`` asks for one estimator
    of each, the sharpest. Raises InputError where the attribute has too many values.
    """
    segments = _segments_of(connection, path, attribute)
    segment = _segment_sql(attribute, segments[-1])
    estimates = estimates_of_slices(connection, every, chosen, level, segments, segment)
    if sharpest:
        there = {(one.metric, one.estimator) for one in estimates}
        best = {(of, next(one for one in SHARPEST_FIRST if (of, one) in there)) for of, _ in there}
        estimates = [one for one in estimates if (one.metric, one.estimator) in best]
    return AttributeEstimates(
        attribute=attribute,
        estimates=among_segments(estimates, AttributeEstimate),
        segments=tuple(segments),
        same_shares=every[0].manifest.same_shares,
    )


def members_by(path: Path, attribute: str) -> pl.DataFrame:
    """Every unit of a release that :func:`estimate_by` took, and its ``segment``; ids as text."""
    with open_safely(path) as connection:
        segment = _segment_sql(attribute, _segments_of(connection, path, attribute)[-1])
        query = f"SELECT unit_id::VARCHAR AS unit_id, {segment} AS segment FROM main.units AS u"  # noqa: S608 - quoted
        return read_frame(connection, query)


def _segments_of(connection: duckdb.DuckDBPyConnection, path: Path, attribute: str) -> list[str]:
    """The values of an attribute as text, in their order; units without one are the last segment.

    That is called ``(none)``, with a pair of brackets more where a value is called so.

    Texts that are numbers are in the order of these, as text formats give all attributes as text.

    Raises InputError where there are more than :data:`MAX_SEGMENTS`.
    """
    name = quote_name(attribute)
    query = f"SELECT count(DISTINCT {name}), count(*) - count({name}) FROM main.units"  # noqa: S608 - a quoted name
    n_values, n_without = ask(connection, query).fetchall()[0]
    if n_values > MAX_SEGMENTS:
        raise InputError(
            f"{path.absolute()}: attribute {attribute!r} has {n_values:,} values, and effects are "
            f"estimated by at most {MAX_SEGMENTS:,}: group them in a table of yours with the "
            "columns unit_id and segment, and give that (--segments)"
        )
    query = f"""
    SELECT {name}::VARCHAR AS segment FROM main.units WHERE {name} IS NOT NULL
    GROUP BY 1 ORDER BY TRY_CAST(segment AS DOUBLE) NULLS LAST, min({name})"""  # noqa: S608 - a quoted name
    values = [str(value) for (value,) in ask(connection, query).fetchall()]
    return [*values, no_value(values)] if n_without else values


def _segment_sql(attribute: str, none: str) -> str:
    """SQL for the segment of a row of units ``u``; ``none`` is that of units without a value."""
    return f"coalesce(u.{quote_name(attribute)}::VARCHAR, {text(none)})"


def among_segments(estimates: Sequence[Plain], kind: type[Among]) -> list[Among]:
    """Put beside each effect what it is among those of the other segments, in the same order.

    The others are of the same metric, arm and estimator. p-values are adjusted after Holm (1979)
    for the number of segments; the shrunken effect is :func:`estimators.shrinkage.shrink`.
    """
    families: dict[tuple[str, str, str], list[int]] = {}
    for at, one in enumerate(estimates):
        families.setdefault((one.metric, one.arm, one.estimator), []).append(at)
    numbers = np.full((len(estimates), 5), np.nan)
    for places in families.values():
        numbers[places] = _family([estimates[at] for at in places])
    names = [one.name for one in fields(_AmongSegments)]
    others: list[dict[str, Any]] = [
        {name: None if isnan(number) else number for name, number in zip(names, row, strict=True)}
        for row in numbers.tolist()
    ]
    return [kind(**vars(one), **other) for one, other in zip(estimates, others, strict=True)]


def _family(rows: Sequence[Estimate]) -> Floats:
    """The numbers of :class:`_AmongSegments` of effects that are judged together, shape [K, 5]."""
    estimate, error, p_value = (
        np.array([getattr(one, name) for one in rows], dtype=np.float64)
        for name in ("estimate", "std_error", "p_value")
    )
    level = rows[0].confidence_level
    found = np.full((len(rows), 5), np.nan)
    found[:, 0] = holm(p_value, np.array([one.n_units > 0 for one in rows]))
    told = np.flatnonzero(error > 0)
    law = Law.of([rows[at].law for at in told.tolist()])
    shrunken = shrink(estimate[told], steady_variance(error[told] ** 2, law), level)
    found[told, 1:] = np.stack(
        [shrunken.estimate, shrunken.std_error, shrunken.lower, shrunken.upper], axis=1
    )
    return found
