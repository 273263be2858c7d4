"""The report of a site: one JSON document, every field of it, and how it is read back.

It holds a noised effect, a noised estimate of its variance and public facts, and no row: everything
in it may leave the site. A checksum over its content shows when a report was changed by hand or
cut short. It is no signature: whoever wants to can work out a new one, so that a server that does
not trust the way a report came must have it signed by other means.
"""

import functools
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from schemas.errors import InputError, shown
from schemas.json_text import checksum, parsed
from schemas.names import NAME, PERIOD

if TYPE_CHECKING:
    import pandera.polars as pa
    import polars as pl

SCHEMA_VERSION: Final = 1
KIND: Final = "clusterdp-site-report"

Design = Literal["trial", "matching"]
DESIGNS: Final[tuple[Design, ...]] = ("trial", "matching")

NEIGHBOURS: Final[dict[Design, str]] = {
    "trial": "one unit's outcome (substitution)",
    "matching": "one unit's outcome, treatment and covariates (substitution)",
}
"""What two data sets may differ in for a report's guarantee to speak of them."""

_CHECKSUM = "checksum"
_INSTANT = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"
_GREATEST = 1e150  # of a number: its square stays within doubles
_MOST_UNITS = 2**53  # beyond, doubles skip numbers


@dataclass(frozen=True)
class SiteReport:
    """What one site says of one period; the fields of its JSON document, checksum excepted."""

    report_id: str
    """``EXPERIMENT@SITE.PERIOD.rN``."""
    experiment: str
    site: str
    period: str
    revision: int
    created_at: str
    """UTC, as ``2026-11-20T03:15:00Z``."""
    design: str
    """``trial`` (the treatment was randomised) or ``matching`` (it was not)."""
    estimator: str
    control: str
    treatment: str
    estimate: float
    """Noised effect of the treatment against the control, in the unit of the outcomes."""
    variance: float
    """Noised estimate of the variance of ``estimate``: of its sampling and of its noise."""
    noise_variance: float
    """The part of it that is due to the noise of privacy, as far as it is public."""
    n_units: int
    epsilon: float
    """Of the whole report, together with ``delta``."""
    delta: float
    neighbours: str
    outcome_low: float
    """Outcomes below it counted as it."""
    outcome_high: float
    """Outcomes above it counted as it."""
    outcome_bound: float
    """B = ``outcome_high`` − ``outcome_low``, which the noise is made for."""
    privatised: str
    """What was computed of private data and noised."""
    package_version: str
    schema_version: int = SCHEMA_VERSION
    kind: str = KIND


_FIELDS: Final[dict[str, type]] = {
    name: kind for name, kind in SiteReport.__annotations__.items() if isinstance(kind, type)
}


def _types() -> "dict[type, type[pl.DataType]]":
    import polars as pl  # noqa: PLC0415 - see schema

    return {str: pl.String, int: pl.Int64, float: pl.Float64}


@functools.cache
def schema() -> "pa.DataFrameSchema":
    """One row; pandera judges a report by it whenever one is written or read."""
    import pandera.polars as pa  # noqa: PLC0415 - pandas takes a second

    types = _types()

    def column(name: str, *checks: pa.Check) -> pa.Column:
        return pa.Column(types[_FIELDS[name]], list(checks), nullable=False, coerce=False)

    def finite(name: str, *checks: pa.Check) -> pa.Column:
        return column(name, pa.Check.in_range(-_GREATEST, _GREATEST), *checks)

    return pa.DataFrameSchema(
        {
            "kind": column("kind", pa.Check.eq(KIND)),
            "schema_version": column("schema_version", pa.Check.eq(SCHEMA_VERSION)),
            "report_id": column("report_id"),
            "experiment": column("experiment", pa.Check.str_matches(f"^{NAME}$")),
            "site": column("site", pa.Check.str_matches(f"^{NAME}$")),
            "period": column("period", pa.Check.str_matches(f"^{PERIOD}$")),
            "revision": column("revision", pa.Check.ge(1)),
            "created_at": column("created_at", pa.Check.str_matches(_INSTANT)),
            "design": column("design", pa.Check.isin(list(DESIGNS))),
            "estimator": column("estimator", pa.Check.str_length(min_value=1)),
            "control": column("control", pa.Check.str_length(min_value=1)),
            "treatment": column("treatment", pa.Check.str_length(min_value=1)),
            "estimate": finite("estimate"),
            "variance": finite("variance"),
            "noise_variance": finite("noise_variance", pa.Check.ge(0.0)),
            "n_units": column("n_units", pa.Check.in_range(1, _MOST_UNITS)),
            "epsilon": finite("epsilon", pa.Check.gt(0.0)),
            "delta": column("delta", pa.Check.in_range(0.0, 1.0, include_max=False)),
            "neighbours": column("neighbours", pa.Check.str_length(min_value=1)),
            "outcome_low": finite("outcome_low"),
            "outcome_high": finite("outcome_high"),
            "outcome_bound": finite("outcome_bound", pa.Check.gt(0.0)),
            "privatised": column("privatised", pa.Check.str_length(min_value=1)),
            "package_version": column("package_version", pa.Check.str_length(min_value=1)),
        },
        strict=True,
    )


def report_id(experiment: str, site: str, period: str, revision: int) -> str:
    """Return ``EXPERIMENT@SITE.PERIOD.rN``."""
    return f"{experiment}@{site}.{period}.r{revision}"


def to_text(report: SiteReport) -> str:
    """Return the JSON document of a report, its checksum included; InputError if it is unsound."""
    document = asdict(report)
    _check(document, report.report_id)
    document[_CHECKSUM] = checksum(document)
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def from_text(text: str, place: str) -> SiteReport:
    """Read a report back; ``place`` names it in errors.

    Raises InputError where it is no report, of another schema version, changed after it was
    written, or unsound.
    """
    document = _parsed(text, place)
    if document.get("kind") != KIND:
        raise InputError(f"{place}: not a site report (one is made by clusterdp site CONFIG)")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{place}: a site report of schema version {shown(version)}, and this program reads "
            f"version {SCHEMA_VERSION}; versions cannot be mixed, so aggregate with the clusterdp "
            "that made it, or have all sites use one version"
        )
    given = document.pop(_CHECKSUM, None)
    if given != checksum(document):
        raise InputError(
            f"{place}: changed after it was written (its checksum does not fit its content); get "
            "the report from the site again"
        )
    _check(document, place)
    return SiteReport(**document)


def _parsed(text: str, place: str) -> dict[str, Any]:
    document = parsed(text, place, "a site report")
    for name, value in document.items():
        if isinstance(value, dict | list):
            raise InputError(f"{place}: {shown(name)} is neither a text nor a number")
    return document


def _check(document: dict[str, Any], place: str) -> None:
    """Refuse a document that is no sound report, naming its field."""
    for name in _FIELDS:
        if name not in document:
            raise InputError(f"{place}: the field {name!r} is missing")
    for name, value in document.items():
        if name not in _FIELDS:
            raise InputError(f"{place}: there is no field {shown(name)} in a site report")
        if type(value) is not _FIELDS[name]:
            raise InputError(f"{place}: {name} is not {_SPOKEN[_FIELDS[name]]}")
        if type(value) is int and abs(value) > _MOST_UNITS:  # of no type that a column has
            raise InputError(f"{place}: {name} is too large a number")
    failed = _failed(document)
    if failed:
        raise InputError(f"{place}: {'; '.join(failed)}")
    _check_together(document, place)


_SPOKEN: Final[dict[type, str]] = {str: "a text", int: "a whole number", float: "a number"}


def _failed(document: dict[str, Any]) -> list[str]:
    """Say which fields break the schema; a report is public, so its values may be shown."""
    import polars as pl  # noqa: PLC0415 - see schema
    from pandera.errors import SchemaErrors  # noqa: PLC0415 - likewise

    types = _types()
    try:
        frame = pl.DataFrame(
            {name: [value] for name, value in document.items()},
            schema={name: types[_FIELDS[name]] for name in document},
        )
        schema().validate(frame, lazy=True)
    except SchemaErrors as error:
        names = {str(getattr(one.schema, "name", "report")) for one in error.schema_errors}
    else:
        return []
    return [f"{name} cannot be {shown(document.get(name))}" for name in sorted(names)]


def _check_together(document: dict[str, Any], place: str) -> None:
    """Refuse fields that contradict one another."""
    named = report_id(*(document[key] for key in ("experiment", "site", "period", "revision")))
    if document["report_id"] != named:
        raise InputError(f"{place}: report_id is not {shown(named)}, as its other fields say")
    width = document["outcome_high"] - document["outcome_low"]
    if document["outcome_bound"] != width:
        raise InputError(f"{place}: outcome_bound is not outcome_high − outcome_low, {width!r}")
    if document["control"] == document["treatment"]:
        raise InputError(f"{place}: control and treatment are the same arm")
