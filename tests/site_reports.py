"""Reports of sites for tests."""

from schemas.effects.site import NEIGHBOURS, SiteReport, report_id


def a_report(site: str = "north", **fields: object) -> SiteReport:
    """A sound report with these fields, others as they come."""
    given: dict[str, object] = {
        "experiment": "stroke",
        "site": site,
        "period": "once",
        "revision": 1,
        "created_at": "2026-11-20T03:15:00Z",
        "design": "trial",
        "estimator": "difference-in-means",
        "control": "placebo",
        "treatment": "aspirin",
        "estimate": 0.25,
        "variance": 0.01,
        "noise_variance": 0.004,
        "n_units": 100,
        "epsilon": 1.0,
        "delta": 0.0,
        "neighbours": NEIGHBOURS["trial"],
        "outcome_low": 0.0,
        "outcome_high": 1.0,
        "outcome_bound": 1.0,
        "privatised": "sums",
        "package_version": "0.1.0",
        **fields,
    }
    named = report_id(*(given[key] for key in ("experiment", "site", "period", "revision")))  # type: ignore[arg-type]
    return SiteReport(report_id=named, **given)  # type: ignore[arg-type]
