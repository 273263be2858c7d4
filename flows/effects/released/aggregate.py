"""What a server makes of the reports of several sites: read → combine → plot."""

from dataclasses import replace
from pathlib import Path

from flows.effects.released.loss import report_loss
from flows.effects.released.site_aggregates import Combined, combine
from flows.effects.released.site_report import read_reports
from schemas.errors import InputError


def aggregate_reports(
    report_paths: list[str], plot: str | None = None, sites: str | None = None
) -> Combined:
    """Aggregate the reports of several sites; reads nothing else.

    Raises InputError where a report cannot be read, or costs more than it says.

    Args:
        report_paths: The sites' reports, one of each site.
        plot: Where to draw them, a name that ends in .svg; None for no plot.
        sites: How people came to them: "places", "dealt", or None where it is not declared.
    """
    if plot is None:
        paths = [Path(path) for path in report_paths]
        reports = read_reports(paths)
        for path, report in zip(paths, reports, strict=True):
            for rule in report_loss(report, path).broken:
                raise InputError(
                    f"{path}: costs more than it says: {rule}; ask the site for another"
                )
        return combine(reports, sites)
    from flows.effects.released import forest  # noqa: PLC0415 - Jinja2 takes its time

    forest.check_format(Path(plot))
    combined = aggregate_reports(report_paths, sites=sites)
    return replace(combined, plot=forest.write_forest(combined, Path(plot)))
