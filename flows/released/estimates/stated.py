"""Whether the estimates that a file states are those that its units and statistics give.

They are stated so that anybody's DuckDB shows them; whoever changes them changes no unit. So who
shows them asks here first, and shows none where they differ.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import duckdb
import numpy as np

from estimators.arm_effects import Estimate
from estimators.ends import End
from flows.released.estimates.release import ReleaseEstimates, estimate_open
from flows.released.file.checks.stated import stated_ends
from flows.released.file.evidence import Released, read_frame
from flows.released.file.macros import LEVEL
from flows.released.file.read import ReleaseFile, open_release, release_file
from flows.released.file.units import calibration
from flows.runtime.terminal import shown
from schemas.errors import InputError
from schemas.tables import WEIGHT

_NUMBERS = ("estimate", "std_error", "privacy_std_error", "ci_lower", "ci_upper", "p_value")
_CLOSE = 1e-6  # of their sizes: sums differ in their last digits by the order of their terms
_CLOSE_P = 1e-4  # a small p-value is far more sensitive to what it is made of
_TINY = 1e-12
_NAMED = 3  # estimates that a failure names
_STATED = """
SELECT metric, arm, estimator, estimate, std_error, privacy_std_error, ci_lower, ci_upper, p_value,
    n_units, confidence_level
FROM main.estimates ORDER BY rowid
"""
_OF_STRATA = """
SELECT {columns} FROM temp.main.numbered_strata AS s
JOIN temp.main.unit_facts AS f ON f._stratum = s.stratum ORDER BY s.code
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
    differing = [
        *_differing(rows, ours),
        *_differing_ends(stated_ends(connection), made.ends),
        *_differing_units(connection, made.every),
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
    evidence = [one.whole for one in every]
    ours = calibration(evidence, same_shares=every[0].manifest.same_shares)
    shown = read_frame(connection, _OF_STRATA.format(columns=", ".join(ours.columns)))
    for name in ours.columns:
        one, other = (frame[name].fill_null(float("nan")).to_numpy() for frame in (shown, ours))
        if not np.allclose(one, other, rtol=_CLOSE, atol=_CLOSE, equal_nan=True):
            yield f"units: other {'weights' if name == WEIGHT else 'calibrated outcomes'}"
            return


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
    if row["n_units"] != ours.n_units:
        return "n_units"
    size = abs(ours.estimate or 0.0) + abs(ours.std_error or 0.0)
    for name in _NUMBERS:
        near, least = (_CLOSE_P, _TINY) if name == "p_value" else (_CLOSE, _CLOSE * size)
        stated, own = row[name], getattr(ours, name)
        if isinstance(stated, float) and isinstance(own, float):
            is_close = math.isclose(stated, own, rel_tol=near, abs_tol=least)
        else:
            is_close = stated is None and own is None
        if not is_close:
            return name
    return None
