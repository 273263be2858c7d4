"""Reading and writing the file of a site's report."""

from collections.abc import Sequence
from pathlib import Path

from flows.effects.released.drafts import document_text, write_draft
from schemas.effects.site import SiteReport, from_text, to_text
from schemas.errors import ConfigError, InputError

_LARGEST = 1_000_000  # bytes of a report: they have about 1,000
_CHANCES = 24.0
"""Standard deviations of Laplace noise beyond which none is: one in 10¹⁴ is."""


def read_reports(paths: Sequence[Path]) -> tuple[SiteReport, ...]:
    """Read reports to be aggregated, in the order given.

    Raises InputError unless there is one report of each site, and all have one schema version, one
    experiment, the same arms and one range of outcomes, in which effects and variances can be.
    """
    if not paths:
        raise ConfigError("REPORT", "none is given; name one file of each site")
    reports = tuple(read_report(path) for path in paths)
    files: dict[str, Path] = {}
    for path, report in zip(paths, reports, strict=True):
        _check_possible(report, path)
        _check_beside(reports[0], report, path)
        if report.site in files:
            raise InputError(
                f"site {report.site!r} stands in two reports, {files[report.site]} and {path}; its "
                "units would count twice, so give one report of each site"
            )
        files[report.site] = path
    return reports


def read_report(path: Path) -> SiteReport:
    """Read one report; raises InputError naming the file."""
    text = document_text(path, _LARGEST, "a site report is a small JSON document")
    return from_text(text, str(path))


def _check_possible(report: SiteReport, path: Path) -> None:
    """Refuse an effect beyond B and noise, or one whose outcomes vary by more than 2B²."""
    bound, noise = report.outcome_bound, report.noise_variance
    for what, value, most in (
        ("effect", abs(report.estimate), bound + _CHANCES * noise**0.5),
        ("variance", report.variance, noise + 2.0 * bound**2),
    ):
        if value > most:
            raise InputError(
                f"{path}: its {what} is {value:.4g}, and outcomes within [{report.outcome_low:g}, "
                f"{report.outcome_high:g}] with its noise give at most {most:.4g}; do not use it, "
                "and ask the site for another, with outcomes in the unit of their range"
            )


def _check_beside(first: SiteReport, report: SiteReport, path: Path) -> None:
    if report.experiment != first.experiment:
        raise InputError(
            f"{path}: on experiment {report.experiment!r}, and {first.report_id} on "
            f"{first.experiment!r}; aggregate one experiment at a time"
        )
    ranges = [(each.outcome_low, each.outcome_high) for each in (first, report)]
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


def write_report(report: SiteReport, path: Path) -> None:
    """Write a report to a new file at ``path``, a draft.

    Raises InputError where the report is unsound, or cannot be written.
    """
    from schemas.effects.report_frame import judge_report  # noqa: PLC0415 - pandera

    text = to_text(report)
    judge_report(report)
    write_draft(text, path)
