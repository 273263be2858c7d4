"""Effects as they are shown to people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.runtime.terminal import table

if TYPE_CHECKING:
    from estimators.effects import Estimate  # scipy takes half a second

_ESTIMATORS = {
    "tau_q": "from the randomised outcomes alone (tau_q)",
    "histogram": "from the noisy counts or means alone (histogram)",
    "combined": "from both, which is the sharpest (combined)",
    "regression_combined": "from both, adjusted for the covariates (regression_combined)",
    "regression": "from the randomised outcomes, adjusted for the covariates (regression)",
    "cuped": "likewise, with one slope for both arms (cuped)",
    "horvitz_thompson": "from the noisy differences of clusters alone (horvitz_thompson)",
}


_ADJUSTED = ("regression_combined", "regression", "cuped")


def estimates_text(estimates: Sequence["Estimate"]) -> str:
    """Effects as one text."""
    return "\n".join(estimates_lines(estimates))


def estimates_lines(estimates: Sequence["Estimate"]) -> list[str]:
    """Effects as tables, one for each estimator: adjusted ones, then the sharpest first."""
    if not estimates:
        return ["nothing can be compared: there is no treatment arm, or too few units are in one"]
    lines = [f"effect of each arm against {estimates[0].control!r}"]
    for name in (*_ADJUSTED, "combined", "tau_q", "histogram", "horvitz_thompson"):
        rows = [one for one in estimates if one.estimator == name]
        if rows:
            lines += ["", f"{_ESTIMATORS[name]}", *_estimates_table(rows)]
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
        return [*first, "too few units to compare", *[""] * (5 + several), f"{one.n_units:,}"]
    relative = "–" if one.relative is None else f"{100 * one.relative:+.3g} %"
    return [
        *first,
        _number(one.estimate),
        _range(one.ci_lower, one.ci_upper),
        _number(one.std_error),
        _number(one.privacy_std_error),
        relative,
        _p_value(one.p_value),
        *([_p_value(one.p_value_holm)] if several else []),
        f"{one.n_units:,}",
    ]


def _p_value(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _range(lower: float | None, upper: float | None) -> str:
    return "–" if lower is None else f"{_number(lower)} … {_number(upper)}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
