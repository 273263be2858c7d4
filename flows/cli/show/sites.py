"""How a site's report and a server's aggregates are shown to people."""

from typing import TYPE_CHECKING

from estimators.effects.site_aggregates import normal_interval
from flows.cli.show.ledger import paid_text
from flows.cli.show.results import meaning, roster_pairs
from flows.effects.released.site_aggregates import LEVEL, Combined
from flows.runtime.terminal import pairs, table
from schemas.effects.site import SiteReport
from schemas.visible import visible

if TYPE_CHECKING:
    from flows.effects.multisite import SiteResult

_METHODS = {
    "mvagg": "the sites that together vary least, by units",
    "ivw": "all sites, by inverse variance",
    "all": "all sites, by units",
    "largest": "the largest site alone",
}


def site_text(result: "SiteResult") -> str:
    """One screen on a report that was just made, or was there already."""
    report = result.report
    head = {
        "published": f"{report.report_id} is written.",
        "unchanged": f"{report.report_id} is there already, from the same rows and settings: "
        "unchanged,\nnothing was drawn or charged.",
    }
    delta = f", and by a further {report.delta:g}" if report.delta else ""
    facts = {
        "file": str(result.path),
        "protected": f"{report.neighbours.split(' (')[0]}; the file holds no row",
        "epsilon": f"{report.epsilon:g}: {_meaning(report)}{delta}",
        "paid so far": paid_text(result.statement),
        "estimator": f"{report.estimator} ({report.design})",
        "units": f"{report.n_units:,}",
        "rows set aside": roster_pairs(result.roster)["rows set aside"],
    }
    return "\n".join(
        [
            head[result.status],
            "",
            *pairs(facts),
            "",
            f"effect of {report.treatment!r} against {report.control!r}",
            "",
            *table(_HEAD[1:], [_site_cells(report, report.variance)[1:]]),
            "",
            "Send the file to whoever aggregates: clusterdp aggregate REPORT…",
        ]
    )


def _meaning(report: SiteReport) -> str:
    said = meaning(report.epsilon)
    if report.design == "trial":
        return said
    return said.replace("another outcome of one unit", "another record of one unit")


_HEAD = ("site", "effect", f"{100 * LEVEL:g} % interval", "std. error", "from privacy", "units")


def _site_cells(report: SiteReport, variance: float) -> tuple[str, ...]:
    noise = min(report.noise_variance, variance) ** 0.5 if variance > 0 else 0.0
    return (
        report.site,
        f"{report.estimate:.4g}",
        _interval(report.estimate, variance),
        f"{max(variance, 0.0) ** 0.5:.4g}",
        f"{noise:.4g}",
        f"{report.n_units:,}",
    )


def _interval(estimate: float, variance: float) -> str:
    lower, upper = normal_interval(estimate, max(variance, 0.0), LEVEL)
    return f"{lower:.4g} … {upper:.4g}"


def aggregate_text(combined: Combined) -> str:
    """The sites, the aggregates, and whether the sites look like having one effect."""
    first = combined.reports[0]
    n_sites = len(combined.reports)
    sites = [
        _site_cells(report, float(variance))
        for report, variance in zip(combined.reports, combined.variance, strict=True)
    ]
    aggregates = [
        (
            one.method,
            f"{one.estimate:.4g}",
            _interval(one.estimate, one.variance),
            f"{one.variance**0.5:.4g}",
            f"{len(one.used):,} of {n_sites:,}",
            _METHODS[one.method],
        )
        for one in combined.aggregates
    ]
    head = ("aggregate", *_HEAD[1:4], "sites", "which")
    lines = [
        f"{visible(first.experiment)}: effect of {first.treatment!r} against {first.control!r} "
        f"at {n_sites:,} sites",
        "",
        *table(_HEAD, sites[:_SHOWN]),
        *([f"  … and {n_sites - _SHOWN:,} more"] if n_sites > _SHOWN else []),
        "",
        *table(head, aggregates),
        "",
        _homogeneity(combined),
        *([] if combined.plot is None else ["", f"plot: {visible(str(combined.plot))}"]),
    ]
    return "\n".join(lines)


_SHOWN = 50  # sites; nobody reads more


def _homogeneity(combined: Combined) -> str:
    test = combined.homogeneity
    if test is None:
        return "One site, or one without a variance: whether sites have one effect is not tested."
    return (
        f"Whether the sites have one effect: Cochran's Q {test.q:.4g} on "
        f"{test.degrees_of_freedom:,} degrees of freedom, p = {test.p_value:.2g}, I² "
        f"{100 * test.i_squared:.0f} %."
    )
