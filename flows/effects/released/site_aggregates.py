"""The server's side: reports of sites in, aggregates of their effects out. No raw data comes near.

Everything here works on reports that sites have published, so it costs nobody any privacy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimators.effects.site_aggregates import (
    IVW_POOLED,
    Aggregate,
    Homogeneity,
    MeanOfSites,
    Sites,
    aggregates,
    clamp_variances,
    homogeneity,
    ivw_pooled,
    mean_of_sites,
    normal_interval,
)
from schemas.documents import plain
from schemas.effects.site import SiteReport
from schemas.errors import ConfigError, shown

LEVEL = 0.95
_FIRST: Final = {"places": "all", "dealt": IVW_POOLED}
"""What is put first where it was declared how people came to the sites."""


@dataclass(frozen=True, eq=False)
class Combined:
    """What a server makes of several reports."""

    reports: tuple[SiteReport, ...]
    variance: NDArray[np.float64]
    """Of each report, as used: clamped where it was below what its noise alone gives."""
    aggregates: tuple[Aggregate, ...]
    """Weighted effects, then the mean of sites where there are two."""
    declared: str | None
    """How people came to the sites: ``places``, each with its own, or ``dealt`` at random."""
    homogeneity: Homogeneity | None
    warnings: tuple[str, ...]
    plot: Path | None = None
    """Where they were drawn."""

    @property
    def first(self) -> Aggregate:
        """The point to read first, by what is declared; else by whether sites look like one.

        Then ``mvagg``, or ``all`` where they do not, unless it has more than twice the variance:
        leaving sites out is the lesser error, as a test of whether they differ is wrong at times.
        """
        by_method = {one.method: one for one in self.aggregates}
        if self.declared is not None:
            return by_method[_FIRST[self.declared]]
        doubtful = self.homogeneity is not None and self.homogeneity.doubtful
        mvagg, every = by_method["mvagg"], by_method["all"]
        return every if doubtful and every.variance <= 2.0 * mvagg.variance else mvagg

    @property
    def beside(self) -> Aggregate:
        """Whose interval stands beside it: the mean of sites', whichever comes first."""
        return self.aggregates[-1]

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp aggregate --json``."""
        of_report = ("n_units", "epsilon", "delta", "estimator")
        return {
            "aggregates": [
                {
                    "method": one.method,
                    "estimate": one.estimate,
                    "variance": one.variance,
                    "sites_used": [self.reports[place].site for place in one.used],
                    "std_error": one.variance**0.5,
                    **_interval(one.interval(LEVEL)),
                    **_differing(one),
                }
                for one in self.aggregates
            ],
            "first": {
                "method": self.first.method,
                "estimate": self.first.estimate,
                "declared": self.declared,
                "interval_of": self.beside.method,
                **_interval(self.beside.interval(LEVEL)),
            },
            "sites": [
                {
                    **{name: getattr(report, name) for name in ("site", "report_id", "estimate")},
                    "variance": float(variance),
                    "variance_reported": report.variance,
                    "std_error": float(variance) ** 0.5,
                    **_interval(normal_interval(report.estimate, float(variance), LEVEL)),
                    **{name: getattr(report, name) for name in of_report},
                }
                for report, variance in zip(self.reports, self.variance, strict=True)
            ],
            "homogeneity": plain(self.homogeneity),
            "confidence_level": LEVEL,
            "warnings": list(self.warnings),
            **({} if self.plot is None else {"plot": str(self.plot)}),
        }


def _interval(bounds: tuple[float, float], of: str = "") -> dict[str, float]:
    return {f"{of}ci_lower": bounds[0], f"{of}ci_upper": bounds[1]}


def _differing(one: Aggregate) -> dict[str, float]:
    if not isinstance(one, MeanOfSites):
        return {}
    return {"tau": one.tau, **_interval(one.tau_interval(LEVEL), "tau_")}


def combine(reports: tuple[SiteReport, ...], declared: str | None = None) -> Combined:
    """Aggregate reports by every method, and test whether they can have one effect.

    Raises ConfigError for a declaration that there is not.
    """
    if declared not in (None, *_FIRST):
        raise ConfigError("--sites", f"{shown(declared)} is neither 'places' nor 'dealt'")
    reported = np.array([one.variance for one in reports])
    noise = np.array([one.noise_variance for one in reports])
    variance, raised = clamp_variances(reported, noise)
    sites = Sites(
        estimate=np.array([one.estimate for one in reports]),
        variance=variance,
        n_units=np.array([one.n_units for one in reports], dtype=np.float64),
    )
    test = homogeneity(sites)
    found = _differences(reports)
    found += [
        f"site {reports[place].site!r} reports a variance of {reports[place].variance:.4g}, less "
        f"than the noise of its own report has ({reports[place].noise_variance:.4g}): the latter "
        "is used"
        for place in raised
    ]
    if test is not None and test.doubtful:
        found.append(
            f"the sites do not look like having one effect (Cochran's Q {test.q:.4g} on "
            f"{test.degrees_of_freedom} degrees of freedom, p = {test.p_value:.2g}); the "
            "intervals of all aggregates but mean-of-sites take it that they have"
            + ("; that people were dealt to sites is in doubt" if declared == "dealt" else "")
        )
    epsilon = np.array([one.epsilon for one in reports])
    pooled = [ivw_pooled(sites, noise, epsilon)] if declared == "dealt" else []
    mean = mean_of_sites(sites)
    return Combined(
        reports=reports,
        variance=variance,
        aggregates=(*pooled, *aggregates(sites), *([] if mean is None else [mean])),
        declared=declared,
        homogeneity=test,
        warnings=tuple(found),
    )


def _differences(reports: Sequence[SiteReport]) -> list[str]:
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
