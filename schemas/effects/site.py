"""The report of a site: one JSON document, every field of it, and how it is read back.

It holds a noised effect, a noised estimate of its variance and public facts, and no row: everything
in it may leave the site. A checksum over its content shows when a report was changed by hand or
cut short. It is no signature: whoever wants to can work out a new one, so that a server that does
not trust the way a report came must have it signed by other means.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from schemas.documents import Document, Sort, opened, parsed_as, sealed
from schemas.errors import InputError, shown
from schemas.names import NAME, PERIOD

SCHEMA_VERSION: Final = 1
KIND: Final = "clusterdp-site-report"
SORT: Final = Sort(KIND, SCHEMA_VERSION, "a site report", "site CONFIG")

Design = Literal["trial", "matching"]
DESIGNS: Final[tuple[Design, ...]] = ("trial", "matching")

NEIGHBOURS: Final[dict[Design, str]] = {
    "trial": "one unit's outcome (substitution)",
    "matching": "one unit's outcome, treatment and covariates (substitution)",
}
"""What two data sets may differ in for a report's guarantee to speak of them."""

_INSTANT = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"
_GREATEST = 1e150  # of a number: its square stays within doubles
_MOST_UNITS = 2**53  # beyond, doubles skip numbers

Number = Annotated[float, Field(ge=-_GREATEST, le=_GREATEST)]
Name = Annotated[str, Field(pattern=f"^{NAME}$")]


@dataclass(frozen=True)
class SiteReport(Document):
    """What one site says of one period; the fields of its JSON document, checksum excepted."""

    report_id: str
    """``EXPERIMENT@SITE.PERIOD.rN``."""
    experiment: Name
    site: Name
    period: Annotated[str, Field(pattern=f"^{PERIOD}$")]
    revision: Annotated[int, Field(ge=1, le=_MOST_UNITS)]
    created_at: Annotated[str, Field(pattern=_INSTANT)]
    """UTC, as ``2026-11-20T03:15:00Z``."""
    design: Design
    """``trial`` (the treatment was randomised) or ``matching`` (it was not)."""
    estimator: str
    control: str
    treatment: str
    estimate: Number
    """Noised effect of the treatment against the control, in the unit of the outcomes."""
    variance: Number
    """Noised estimate of the variance of ``estimate``: of its sampling and of its noise."""
    noise_variance: Annotated[Number, Field(ge=0)]
    """The part of it that is due to the noise of privacy, as far as it is public."""
    n_units: Annotated[int, Field(ge=1, le=_MOST_UNITS)]
    epsilon: Annotated[Number, Field(gt=0)]
    """Of the whole report, together with ``delta``."""
    delta: Annotated[float, Field(ge=0, lt=1)]
    neighbours: str
    outcome_low: Number
    """Outcomes below it counted as it."""
    outcome_high: Number
    """Outcomes above it counted as it."""
    outcome_bound: Annotated[Number, Field(gt=0)]
    """B = ``outcome_high`` − ``outcome_low``, which the noise is made for."""
    privatised: str
    """What was computed of private data and noised."""
    package_version: str
    schema_version: int = SCHEMA_VERSION
    kind: str = KIND


def report_id(experiment: str, site: str, period: str, revision: int) -> str:
    """Return ``EXPERIMENT@SITE.PERIOD.rN``."""
    return f"{experiment}@{site}.{period}.r{revision}"


def to_text(report: SiteReport) -> str:
    """Return the JSON document of a report, its checksum included; InputError if it is unsound."""
    content = report.as_json()
    _read(content, report.report_id)
    return sealed(content, indent=2)


def from_text(text: str, place: str) -> SiteReport:
    """Read a report back; ``place`` names it in errors.

    Raises InputError where it is no report, of another schema version, changed after it was
    written, or unsound.
    """
    return _read(opened(text, place, SORT), place)


def _read(content: dict[str, Any], place: str) -> SiteReport:
    """Read the content of a document; InputError, naming the field, where it is unsound."""
    found = parsed_as(SiteReport, content, place)
    for name, value in content.items():
        if type(value) is not type(getattr(found, name)):
            raise InputError(f"{place}: {name}: input should be a number with a point")
    named = report_id(found.experiment, found.site, found.period, found.revision)
    if found.report_id != named:
        raise InputError(f"{place}: report_id is not {shown(named)}, as its other fields say")
    width = found.outcome_high - found.outcome_low
    if found.outcome_bound != width:
        raise InputError(f"{place}: outcome_bound is not outcome_high − outcome_low, {width!r}")
    if found.control == found.treatment:
        raise InputError(f"{place}: control and treatment are the same arm")
    return found
