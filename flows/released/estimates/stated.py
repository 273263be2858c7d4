"""Whether the estimates that a file states are those that its units and statistics give.

So is all else that it has of these: arms' means, and the tables that calibrate outcomes and that
macros read. They are there so that anybody's DuckDB shows them; whoever changes them changes no
unit, and what they tell beside the units costs nothing only if it follows from these. So who shows
them asks here first, and shows none where they differ.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

from estimators.arm_effects import Estimate
from estimators.ends import End
from flows.released.estimates.release import ReleaseEstimates, estimate_open, means_frame
from flows.released.file.cells import read_columns
from flows.released.file.checks.stated import stated_ends
from flows.released.file.evidence import Released, read_frame, reconciled
from flows.released.file.macros import LEVEL, own_frames
from flows.released.file.margins import shifts_of_cells
from flows.released.file.read import ReleaseFile, open_release, release_file
from flows.released.file.units import CELL_FACTS, OUTPUTS, calibration
from flows.runtime.terminal import shown
from schemas.errors import InputError
from schemas.tables import WEIGHT

_NUMBERS = ("estimate", "std_error", "privacy_std_error", "ci_lower", "ci_upper", "coverage")
_P_VALUES = ("p_value", "p_value_holm")
_COUNTS = ("n_units", "n_segment")
_CLOSE = 1e-6  # of their sizes: sums differ in their last digits by the order of their terms
_CLOSE_P = 1e-4  # a small p-value is far more sensitive to what it is made of
_TINY = 1e-12
_NAMED = 3  # estimates that a failure names
_STATED = """
SELECT metric, arm, estimator, estimate, std_error, privacy_std_error, ci_lower, ci_upper, p_value,
    p_value_holm, n_units, n_segment, coverage, confidence_level
FROM main.estimates ORDER BY rowid
"""
_OF_STRATA = """
SELECT {columns} FROM temp.main.numbered_strata AS s
JOIN temp.main.unit_facts AS f ON f._stratum = s.stratum ORDER BY s.code
"""
_OF_CELLS = "SELECT * REPLACE (arm::VARCHAR AS arm) FROM {schema}.{table} ORDER BY ALL"
_CELLS = "SELECT DISTINCT margin, cell::UTINYINT AS code, arm::VARCHAR AS arm FROM main.margins"
_OF_OUTPUTS = 'SELECT metric, "table", output, weight FROM {schema}.{table} ORDER BY ALL'
_OUTPUTS = """
SELECT DISTINCT metric, "table", outcome AS output, weight FROM main.debias ORDER BY ALL
"""


def read_checked(path: Path) -> ReleaseFile:
    """Read a released file; InputError as of :func:`check_stated`."""
    with open_release(path) as connection:
        check_stated(connection, path)
        return release_file(connection, path)


def check_stated(connection: duckdb.DuckDBPyConnection, path: Path) -> ReleaseEstimates:
    """Return what a file's units and statistics give, at :data:`LEVEL`.

    Raises InputError, which says that, where it is not what the file states.
    """
    rows = read_frame(connection, _STATED).to_dicts()
    ours: dict[tuple[str, str, str], Estimate] = {}
    stated = {row["confidence_level"] for row in rows} or {LEVEL}
    for level in stated:
        made = estimate_open(connection, level)
        for one in made.estimates:
            if one.estimate is not None:
                ours[one.metric, one.arm, one.estimator] = one
    every = reconciled(connection, made.every)
    differing = [
        *_differing(rows, ours),
        *_differing_ends(stated_ends(connection), made.ends),
        *_differing_units(connection, every),
        *_differing_tables(connection, every, means_frame(made.every, made.ratios)),
    ]
    if not differing:
        return made if stated == {LEVEL} else estimate_open(connection)
    more = f"; and {len(differing) - _NAMED:,} more" if len(differing) > _NAMED else ""
    raise InputError(
        f"{path.absolute()}: states estimates that its own units and statistics do not give: "
        f"{'; '.join(differing[:_NAMED])}{more}. Somebody has changed it, or it is not whole: get "
        "it once more, and compare it with what was published (clusterdp verify)"
    )


def _differing(
    rows: list[dict[str, object]], ours: dict[tuple[str, str, str], Estimate]
) -> Iterator[str]:
    several = len({metric for metric, *_ in ours}) > 1

    def named(key: tuple[str, str, str]) -> str:
        return ", ".join(map(shown, key if several else key[1:]))

    stated = {(str(row["metric"]), str(row["arm"]), str(row["estimator"])): row for row in rows}
    for key, row in stated.items():
        own = ours.get(key)
        if own is None:
            yield f"{named(key)}: {row['estimate']!r}, and there is none of this kind"
        elif wrong := _first_difference(row, own):
            yield f"{named(key)}: {wrong} {row[wrong]!r}, and it is {getattr(own, wrong)!r}"
    for key, own in ours.items():
        if key not in stated:
            yield f"{named(key)}: is not stated, and it is {own.estimate!r}"


def _differing_units(
    connection: duckdb.DuckDBPyConnection, every: Sequence[Released]
) -> Iterator[str]:
    """Where ``units`` weighs or calibrates otherwise than sizes and statistics give."""
    evidence, manifest = [one.whole for one in every], every[0].manifest
    ours = calibration(evidence, same_shares=manifest.same_shares)
    numbers = read_columns(connection, _OF_STRATA.format(columns=", ".join(ours.columns)))
    shown = pl.DataFrame(dict(zip(ours.columns, numbers, strict=True)))
    if not _are_alike(shown.select(WEIGHT), ours.select(WEIGHT)):
        yield "units: other weights"
    calibrated = [(shown.drop(WEIGHT), ours.drop(WEIGHT))]
    margins = [one.margins for one in every if one.margins is not None]
    if margins:
        query = _OF_CELLS.format(schema=manifest.own_schema, table=CELL_FACTS)
        there = read_frame(connection, _CELLS)
        of_cells = shifts_of_cells(every[0].arms, margins)
        of_cells = of_cells.join(there, on=there.columns).sort(there.columns)
        calibrated.append((read_frame(connection, query), of_cells))
    if not all(_are_alike(*pair) for pair in calibrated):
        yield "units: other calibrated outcomes"


def _differing_tables(
    connection: duckdb.DuckDBPyConnection, every: Sequence[Released], means: pl.DataFrame
) -> Iterator[str]:
    """Where arms' means, or what macros read, are not what units and statistics give."""
    schema = every[0].manifest.own_schema
    expected = {"main.means": means}
    expected |= {f"{schema}.{name}": frame for name, frame in own_frames(every).items()}
    both = {
        place: (read_frame(connection, f"FROM {place} ORDER BY rowid"), ours)
        for place, ours in expected.items()
    }
    place = f"{schema}.quantiles"  # of a coefficient that is nearly nothing there may be no row
    found = pl.DataFrame.join(*both[place], on=("j", "k"), how="full", coalesce=True)
    found = found.fill_null(0.0).rename({"coefficient_right": "own"})
    both[place] = found.select("j", "k", "coefficient"), found.select("j", "k", coefficient="own")
    if every[0].metric.has_tables:
        stored = read_frame(connection, _OF_OUTPUTS.format(schema=schema, table=OUTPUTS))
        both[f"{schema}.{OUTPUTS}"] = stored, read_frame(connection, _OUTPUTS)
    for place, pair in both.items():
        if not _are_alike(*pair):
            yield f"{place.partition('.')[2]}: other numbers than units and statistics give"


def _are_alike(stored: pl.DataFrame, ours: pl.DataFrame) -> bool:
    """Whether rows are the same, numbers to 1e-6 of the greatest of an outcome in their column."""
    if (stored.columns, stored.height) != (ours.columns, ours.height):
        return False
    named = [
        name
        for name in ours.columns
        if stored[name].dtype.is_float() and ours[name].dtype.is_float()
    ]
    if not stored.drop(named).cast(pl.String).equals(ours.drop(named).cast(pl.String)):
        return False
    one, other = (frame.select(named).to_numpy() for frame in (stored, ours))
    outcome = next((name for name in ("place", "metric") if name in ours.columns), None)
    of = np.zeros(ours.height) if outcome is None else ours[outcome].to_numpy()
    outcomes, place = np.unique(of, return_inverse=True)
    most = np.zeros((len(outcomes), len(named)))
    np.fmax.at(most, place, np.abs(other))
    with np.errstate(invalid="ignore"):
        is_close = np.abs(one - other) <= _CLOSE * most[place]
    return bool(np.all(is_close | (np.isnan(one) & np.isnan(other))))


def _differing_ends(stated: tuple[End, ...], ours: tuple[End, ...]) -> Iterator[str]:
    """Where ``ends`` states other shares than units and counts give."""
    for one, other in zip_longest(stated, ours):
        if one is None or other is None or (one.metric, one.end) != (other.metric, other.end):
            yield "ends: other rows than there are"
            return
        numbers = zip((one.share, one.std_error), (other.share, other.std_error), strict=True)
        if not all(math.isclose(*pair, rel_tol=_CLOSE, abs_tol=_CLOSE) for pair in numbers):
            named = f"ends: of {shown(one.metric)}, {one.end}"
            yield f"{named} {one.share!r}, and it is {other.share!r}"


def _first_difference(row: dict[str, object], ours: Estimate) -> str | None:
    for name in _COUNTS:
        if row[name] != getattr(ours, name):
            return name
    size = abs(ours.estimate or 0.0) + abs(ours.std_error or 0.0)
    for name in (*_NUMBERS, *_P_VALUES):
        near, least = (_CLOSE_P, _TINY) if name in _P_VALUES else (_CLOSE, _CLOSE * size)
        stated, own = row[name], getattr(ours, name)
        if isinstance(stated, float) and isinstance(own, float):
            is_close = math.isclose(stated, own, rel_tol=near, abs_tol=least)
        else:
            is_close = stated is None and own is None
        if not is_close:
            return name
    return None
