"""``clusterdp aggregate``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from flows.cli.answer import Answer
from flows.cli.options import files
from flows.cli.show.words import made_lines
from flows.released.located import located
from flows.runtime.terminal import paragraph, table
from schemas.visible import visible

if TYPE_CHECKING:
    from flows.effects.released.site_aggregates import Combined
    from schemas.effects.site import SiteReport

HEAD = ("site", "effect", "95 % interval", "std. error", "from privacy", "units")
"""What is shown of each site."""
_METHODS = {
    "ivw-pooled": "all sites, by inverse variance as people were dealt",
    "mvagg": "the sites that together vary least, by units",
    "ivw": "all sites, by inverse variance",
    "all": "all sites, by units",
    "largest": "the largest site alone",
    "mean-of-sites": "all sites alike",
}
_ANSWERS = (
    "all is the effect among the people of these sites, mean-of-sites that at a typical site: its "
    "interval, by Student's t, holds whether sites differ or not, those of mvagg and by inverse "
    "variance only where all sites have one effect."
)
_SHOWN = 50  # sites; nobody reads more


def aggregate(
    reports: Annotated[list[Path], files(".json"), located],
    plot: Path | None = None,
    cate: bool = False,
    output: Path | None = None,
    sites: str | None = None,
) -> Answer:
    """Combine effects of several sites, from their reports alone.

    Reads the reports, costs no privacy. Writes nothing but the plot, if you ask for one, or the
    effect model.

    Options:
        reports (REPORT…): Reports, one of each site.
        plot (FILE): Draw sites and aggregates, as .svg.
        cate: Make one effect model of all sites, whose configurations have [moments].
        output (--output -o OUT): The file of the effect model, a new one ending in .json.
        sites (places | dealt): How people came to the sites, known before any report is: places
            have people of their own, such as schools; or people were dealt to sites at random.
    """
    from flows.effects.released.site_aggregates import Combined
    from flows.effects.together import aggregate as together

    found = together(
        list(map(str, reports)),
        None if plot is None else str(plot),
        cate,
        None if output is None else str(output),
        sites,
    )
    if isinstance(found, Combined):
        return Answer(partial(aggregate_text, found), found.as_json(), found.warnings)
    from flows.cli.effects.cate import model_lines

    path = Path(str(output)).absolute()
    made = made_lines(found.head.model_id, "published", "written")
    document = {**found.as_json(), "model_path": str(path), "warnings": list(found.model.warnings)}
    return Answer(
        lambda: "\n".join([*made, "", *model_lines(path, found, {})]),
        document,
        found.model.warnings,
    )


def aggregate_text(combined: Combined) -> str:
    """The sites, the aggregates, and whether the sites look like having one effect."""
    from flows.effects.released.site_aggregates import LEVEL

    first, n_sites = combined.reports[0], len(combined.reports)
    sites = [
        site_cells(report, float(variance))
        for report, variance in zip(combined.reports, combined.variance, strict=True)
    ]
    aggregates = [
        (
            one.method,
            *_cells(one.estimate, one.variance, one.interval(LEVEL)),
            f"{len(one.used):,} of {n_sites:,}",
            _METHODS[one.method],
        )
        for one in combined.aggregates
    ]
    return "\n".join(
        [
            f"{visible(first.experiment)}: effect of {first.treatment!r} against {first.control!r} "
            f"at {n_sites:,} sites",
            "",
            *table(HEAD, sites[:_SHOWN]),
            *([f"  … and {n_sites - _SHOWN:,} more"] if n_sites > _SHOWN else []),
            "",
            *table(("aggregate", *HEAD[1:4], "sites", "which"), aggregates),
            "",
            *_first(combined),
            _homogeneity(combined),
            *([] if combined.plot is None else ["", f"plot: {visible(str(combined.plot))}"]),
        ]
    )


def site_cells(report: SiteReport, variance: float) -> tuple[str, ...]:
    """What is shown of a site, by the variance that it counts with."""
    from estimators.effects.site_aggregates import normal_interval
    from flows.effects.released.site_aggregates import LEVEL

    noise = min(report.noise_variance, variance) ** 0.5 if variance > 0 else 0.0
    spread = max(variance, 0.0)
    effect = _cells(report.estimate, spread, normal_interval(report.estimate, spread, LEVEL))
    return (report.site, *effect, f"{noise:.4g}", f"{report.n_units:,}")


def _cells(estimate: float, variance: float, interval: tuple[float, float]) -> tuple[str, ...]:
    return (f"{estimate:.4g}", _to(interval), f"{variance**0.5:.4g}")


def _to(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.4g} … {interval[1]:.4g}"


def _first(combined: Combined) -> list[str]:
    """The point to read first, and the interval beside it."""
    from estimators.effects.site_aggregates import MeanOfSites
    from flows.effects.released.site_aggregates import LEVEL

    first, beside = combined.first, combined.beside
    by = f"{first.method}, declared: {combined.declared}" if combined.declared else first.method
    told = f"Effect: {first.estimate:.4g} ({by}); 95 % interval, of {beside.method}: "
    if not isinstance(beside, MeanOfSites):
        return [told + _to(beside.interval(LEVEL))]
    differing = f"{beside.tau:.4g} (95 % interval {_to(beside.tau_interval(LEVEL))})"
    return paragraph(
        f"{told}{_to(beside.interval(LEVEL))}. True effects of sites differ by a standard "
        f"deviation of {differing}. {_ANSWERS}"
    )


def _homogeneity(combined: Combined) -> str:
    test = combined.homogeneity
    if test is None:
        return "One site, or one without a variance: whether sites have one effect is not tested."
    return (
        f"Whether the sites have one effect: Cochran's Q {test.q:.4g} on "
        f"{test.degrees_of_freedom:,} degrees of freedom, p = {test.p_value:.2g}, I² "
        f"{100 * test.i_squared:.0f} %."
    )
