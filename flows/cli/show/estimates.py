"""Effects as they are shown to people."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flows.runtime.terminal import paragraph, table
from schemas.released import Manifest
from schemas.tables import UNNAMED

if TYPE_CHECKING:
    from estimators.arm_effects import Estimate  # scipy takes half a second
    from flows.released.estimates.by_attribute import AttributeEstimate

ESTIMATORS = {
    "regression_combined": "from both, adjusted for the covariates (regression_combined)",
    "regression": "from the randomised outcomes, adjusted for the covariates (regression)",
    "cuped": "likewise, with one slope for both arms (cuped)",
    "combined": "from both, which is the sharpest (combined)",
    "tau_q": "from the randomised outcomes alone (tau_q)",
    "histogram": "from the noisy counts or means alone (histogram)",
    "horvitz_thompson": "from the noisy differences of clusters alone (horvitz_thompson)",
}
"""What estimators are called: adjusted ones, then the sharpest first."""


def estimates_text(estimates: Sequence["Estimate"], errors: Mapping[str, str] | None = None) -> str:
    """Effects as one text; ``errors`` says what these follow (:func:`of_errors`)."""
    return "\n".join([*estimates_lines(estimates), *errors_lines(errors or {})])


def of_errors(manifest: Manifest, assigned: Mapping[str, int] | None) -> dict[str, str]:
    """What errors follow, where units were assigned together; ``assigned`` counts by arm."""
    if not manifest.assigned:
        return {}
    if assigned is None:
        return {"errors": "by units: without units nothing tells who was assigned together"}
    arms = ", ".join(f"{arm} {count:,}" for arm, count in assigned.items())
    what = f"{sum(assigned.values()):,} groups of units that were assigned together ({arms})"
    return {"errors": f"by assigned_to: {what} count as one each"}


def errors_lines(errors: Mapping[str, str]) -> list[str]:
    """The same below effects; nothing where each unit was assigned by itself."""
    return [line for told in errors.values() for line in ["", *paragraph(f"errors {told}")]]


def estimates_lines(estimates: Sequence["Estimate"]) -> list[str]:
    """Effects as tables, metric by metric, one for each estimator: the sharpest first."""
    if not estimates:
        return ["nothing can be compared: there is no treatment arm, or too few units are in one"]
    metrics = list(dict.fromkeys(one.metric for one in estimates))
    lines: list[str] = []
    for metric in metrics:
        about = "" if metric == UNNAMED else f" on {metric!r}"
        lines += [""] if lines else []
        lines.append(f"effect of each arm against {estimates[0].control!r}{about}")
        for name, words in ESTIMATORS.items():
            rows = [one for one in estimates if one.estimator == name and one.metric == metric]
            if rows:
                lines += ["", words, *_estimates_table(rows)]
    return lines


def _estimates_table(rows: Sequence["Estimate"]) -> list[str]:
    level = f"{100 * rows[0].confidence_level:g} % interval"
    several = len({one.arm for one in rows}) > 1
    segments = any(one.segment is not None for one in rows)
    partial = any(one.n_units < one.n_segment for one in rows)
    head = ["arm", "effect", level, "std. error", "from privacy", "relative", "p"]
    head = [*(["segment"] if segments else []), *head, *(["p (Holm)"] if several else []), "units"]
    cells = [_estimate_cells(one, segments, several) for one in rows]
    if partial:  # else everybody is compared, which goes without saying
        head.append("compared")
        for line, one in zip(cells, rows, strict=True):
            line.append("–" if one.coverage is None else f"{100 * one.coverage:.3g} %")
    return table(head, cells)


def _estimate_cells(one: "Estimate", segments: bool, several: bool) -> list[str]:
    first = [*([one.segment or ""] if segments else []), one.arm]
    if one.estimate is None:
        return [*first, why_none(one.n_units), *[""] * (5 + several), f"{one.n_units:,}"]
    relative = "–" if one.relative is None else f"{100 * one.relative:+.3g} %"
    return [
        *first,
        cell_number(one.estimate),
        cell_range(one.ci_lower, one.ci_upper),
        cell_number(one.std_error),
        cell_number(one.privacy_std_error),
        relative,
        cell_p_value(one.p_value),
        *([cell_p_value(one.p_value_holm)] if several else []),
        f"{one.n_units:,}",
    ]


def why_none(n_units: int) -> str:
    """Why an estimate has no numbers: with units to compare it is that of a ratio."""
    return "denominator near zero" if n_units else "too few units to compare"


def by_text(
    attribute: str,
    estimates: Sequence["AttributeEstimate"],
    more: str = "",
    errors: Mapping[str, str] | None = None,
    estimators: Mapping[str, str] = ESTIMATORS,
) -> str:
    """Effects by the values of an attribute, as they are and shrunken, by each estimator.

    ``more`` ends the headline, and ``errors`` says what errors follow (:func:`of_errors`).
    ``estimators`` has what these are called, in order.
    """
    if not estimates:
        return estimates_text(estimates)
    control = estimates[0].control
    head = [f"effect of each arm against {control!r}, by {attribute}", *([more] if more else [])]
    lines = [", ".join(head)]
    metrics = list(dict.fromkeys(one.metric for one in estimates))
    for metric in metrics:
        lines += ["", f"on {metric}"] if len(metrics) > 1 else []
        for name, words in estimators.items():
            rows = [one for one in estimates if (one.metric, one.estimator) == (metric, name)]
            if rows:
                lines += ["", words, *_by_table(attribute, rows)]
    return "\n".join([*lines, "", *paragraph(_BY_MEANING), *errors_lines(errors or {})])


def _by_table(attribute: str, rows: Sequence["AttributeEstimate"]) -> list[str]:
    level = f"{100 * rows[0].confidence_level:g} % interval"
    arms = len({one.arm for one in rows}) > 1
    head = [attribute, *(["arm"] if arms else []), "effect", level, "shrunken", level, "p (Holm)"]
    cells = []
    for one in rows:
        first = [one.segment or "", *([one.arm] if arms else [])]
        if one.estimate is None:
            cells.append([*first, "too few units to compare", *[""] * 4, f"{one.n_units:,}"])
            continue
        numbers = [
            cell_number(one.estimate),
            cell_range(one.ci_lower, one.ci_upper),
            cell_number(one.shrunken),
            cell_range(one.shrunken_ci_lower, one.shrunken_ci_upper),
            cell_p_value(one.p_value_holm_segments),
        ]
        cells.append([*first, *numbers, f"{one.n_units:,}"])
    return table([*head, "units"], cells)


_BY_MEANING = (
    "The most extreme of many effects is extreme by chance as well. Shrunken effects allow for it: "
    "they are drawn towards the mean of all segments, as far as chance explains how these spread. "
    "p (Holm) is adjusted for the number of segments."
)


def cell_p_value(value: float | None) -> str:
    """A p-value, or a dash."""
    return "–" if value is None else f"{value:.2g}"


def cell_range(lower: float | None, upper: float | None) -> str:
    """An interval, or a dash."""
    return "–" if lower is None else f"{cell_number(lower)} … {cell_number(upper)}"


def cell_number(value: float | None) -> str:
    """A number, or a dash."""
    return "–" if value is None else f"{value:.4g}"
