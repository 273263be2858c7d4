"""The server's side: reports of sites in, aggregates of their effects out. No raw data comes near.

Everything here works on reports that sites have published, so it costs nobody any privacy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.site_aggregates import (
    Aggregate,
    Homogeneity,
    Sites,
    aggregates,
    clamped,
    homogeneity,
    normal_interval,
)
from flows.runtime.small_files import UnreadableError, read_small_text
from schemas.errors import ClusterdpError, ConfigError, InputError
from schemas.site import SiteReport, from_text, to_text

LEVEL = 0.95
"""Confidence level of the intervals that are shown."""

_LARGEST = 1_000_000  # bytes of a report: they have about 1,000


@dataclass(frozen=True, eq=False)
class Combined:
    """What a server makes of several reports."""

    reports: tuple[SiteReport, ...]
    variance: NDArray[np.float64]
    """Of each report, as used: clamped where it was below what its noise alone gives."""
    aggregates: tuple[Aggregate, ...]
    homogeneity: Homogeneity | None
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp aggregate --json``."""
        test = self.homogeneity
        return {
            "aggregates": [
                {
                    "method": one.method,
                    "estimate": one.estimate,
                    "variance": one.variance,
                    "sites_used": [self.reports[place].site for place in one.used],
                    **_spread(one.estimate, one.variance),
                }
                for one in self.aggregates
            ],
            "sites": [
                {
                    "site": report.site,
                    "report_id": report.report_id,
                    "estimate": report.estimate,
                    "variance": float(variance),
                    "variance_reported": report.variance,
                    **_spread(report.estimate, float(variance)),
                    "n_units": report.n_units,
                    "epsilon": report.epsilon,
                    "delta": report.delta,
                    "estimator": report.estimator,
                }
                for report, variance in zip(self.reports, self.variance, strict=True)
            ],
            "homogeneity": None
            if test is None
            else {
                "q": test.q,
                "degrees_of_freedom": test.degrees_of_freedom,
                "p_value": test.p_value,
                "i_squared": test.i_squared,
            },
            "confidence_level": LEVEL,
            "warnings": list(self.warnings),
        }


def _spread(estimate: float, variance: float) -> dict[str, float]:
    lower, upper = normal_interval(estimate, variance, LEVEL)
    return {"std_error": variance**0.5, "ci_lower": lower, "ci_upper": upper}


def read_reports(paths: Sequence[Path]) -> tuple[SiteReport, ...]:
    """Read reports that can be aggregated together, in the order given; raises InputError if not.

    That is one of each site, all of one schema version, experiment and range of outcomes.
    """
    if not paths:
        raise ConfigError("REPORT", "none is given; name one file of each site")
    reports = tuple(read_report(path) for path in paths)
    seen: dict[str, Path] = {}
    for path, report in zip(paths, reports, strict=True):
        _check_beside(reports[0], report, path)
        if report.site in seen:
            raise InputError(
                f"site {report.site!r} stands in two reports, {seen[report.site]} and {path}; its "
                "units would count twice, so give one report of each site"
            )
        seen[report.site] = path
    return reports


def read_report(path: Path) -> SiteReport:
    """Read one report; raises InputError naming the file."""
    try:
        text = read_small_text(path, _LARGEST)
    except UnreadableError as error:
        raise InputError(f"{path}: {error}; a site report is a small JSON document") from None
    return from_text(text, str(path))


def _check_beside(first: SiteReport, report: SiteReport, path: Path) -> None:
    """Refuse a report on something else than the first."""
    if report.experiment != first.experiment:
        raise InputError(
            f"{path}: on experiment {report.experiment!r}, and {first.report_id} on "
            f"{first.experiment!r}; aggregate one experiment at a time"
        )
    ranges = [(one.outcome_low, one.outcome_high) for one in (first, report)]
    if ranges[0] != ranges[1]:
        raise InputError(
            f"{path}: its outcomes are clipped to [{ranges[1][0]:g}, {ranges[1][1]:g}], those of "
            f"{first.report_id} to [{ranges[0][0]:g}, {ranges[0][1]:g}]; that is not one outcome, "
            "so agree on one range and have the sites report again"
        )
    if (report.control, report.treatment) == (first.treatment, first.control):
        raise InputError(
            f"{path}: its control is the treatment of {first.report_id}, and the other way round; "
            "agree on the arms and have one site report again"
        )


def combine(reports: tuple[SiteReport, ...]) -> Combined:
    """Aggregate reports by every method, and test whether they can have one effect."""
    reported = np.array([one.variance for one in reports])
    noise = np.array([one.noise_variance for one in reports])
    variance, raised = clamped(reported, noise)
    sites = Sites(
        estimate=np.array([one.estimate for one in reports]),
        variance=variance,
        n_units=np.array([one.n_units for one in reports], dtype=np.float64),
    )
    test = homogeneity(sites)
    return Combined(
        reports=reports,
        variance=variance,
        aggregates=aggregates(sites),
        homogeneity=test,
        warnings=(*_differences(reports), *_raised(reports, raised), *_doubts(test)),
    )


def try_report(stand_in: SiteReport, path: Path) -> None:
    """Write a report without any draw in it to ``path``, and remove it again.

    Whether a report is sound and can be written there shows before anything is drawn for it.
    Raises what :func:`write_report` does.
    """
    try:
        write_report(stand_in, path)
    finally:
        path.unlink(missing_ok=True)


def write_report(report: SiteReport, path: Path) -> None:
    """Write a report to a new file at ``path``, a draft; InputError if it is unsound."""
    text = to_text(report)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        failure = ClusterdpError(f"cannot write the report in {path.parent}: {error.strerror}")
    else:
        return
    raise failure


def _differences(reports: Sequence[SiteReport]) -> list[str]:
    """Say what is not alike among the reports, though they can be aggregated."""
    found = []
    for what, values in {
        "periods": {one.period for one in reports},
        "arms": {f"{one.treatment} against {one.control}" for one in reports},
    }.items():
        if len(values) > 1:
            named = ", ".join(sorted(values)[:5])
            found.append(
                f"the reports are on different {what} ({named}); make sure they mean the same"
            )
    return found


def _raised(reports: Sequence[SiteReport], raised: NDArray[np.int64]) -> list[str]:
    """Say whose variance was not possible."""
    return [
        f"site {reports[place].site!r} reports a variance of {reports[place].variance:.4g}, less "
        f"than the noise of its own report has ({reports[place].noise_variance:.4g}): the latter "
        "is used"
        for place in raised
    ]


def _doubts(test: Homogeneity | None) -> list[str]:
    if test is None or not test.doubtful:
        return []
    return [
        f"the sites do not look like having one effect (Cochran's Q {test.q:.4g} on "
        f"{test.degrees_of_freedom} degrees of freedom, p = {test.p_value:.2g}); every aggregate "
        "takes it that they have, so look at the sites one by one"
    ]
