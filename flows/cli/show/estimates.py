"""Effects as they are shown to people, and what they decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from flows.runtime.terminal import pairs, paragraph, table
from schemas.released import Manifest
from schemas.tables import UNNAMED

if TYPE_CHECKING:
    from estimators.arm_effects import Estimate  # numpy takes long
    from estimators.decisions import Decision
    from flows.released.estimates.by_attribute import AttributeEstimate
    from flows.released.estimates.decisions import Decisions

E = TypeVar("E", bound="Estimate")

ESTIMATORS = {
    "regression_combined": "from both, adjusted for the covariates (regression_combined)",
    "regression": "from the randomised outcomes, adjusted for the covariates (regression)",
    "cuped": "likewise, with one slope for both arms (cuped)",
    "combined": "from all that is published (combined)",
    "tau_q": "from the randomised outcomes alone (tau_q)",
    "histogram": "from the noisy counts or means alone (histogram)",
    "horvitz_thompson": "from the noisy differences of clusters alone (horvitz_thompson)",
}
"""What estimators are called: adjusted ones first, then by what they use."""
_BY_MEANING = (
    "The most extreme of many effects is extreme by chance as well. Shrunken effects allow for it: "
    "they are drawn towards the mean of all segments, as far as chance explains how these spread. "
    "p (Holm) is adjusted for the number of segments."
)


def metrics_of(estimates: Sequence[Estimate]) -> list[str]:
    """The names of the metrics in their order, each once."""
    return list(dict.fromkeys(one.metric for one in estimates))


def tables_of(
    estimates: Sequence[E],
    metric: str,
    table: Callable[[Sequence[E]], list[str]],
    estimators: Mapping[str, str] = ESTIMATORS,
) -> Iterator[str]:
    """A ``table`` for each estimator of a metric, under what it is called."""
    for name, words in estimators.items():
        rows = [one for one in estimates if (one.metric, one.estimator) == (metric, name)]
        if rows:
            yield from ("", words, *table(rows))


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


def estimates_lines(estimates: Sequence[Estimate]) -> list[str]:
    """Effects as tables, metric by metric, one for each estimator: the sharpest first."""
    if not estimates:
        return ["nothing can be compared: there is no treatment arm, or too few units are in one"]
    lines: list[str] = []
    for metric in metrics_of(estimates):
        about = "" if metric == UNNAMED else f" on {metric!r}"
        lines += [""] if lines else []
        lines.append(f"effect of each arm against {estimates[0].control!r}{about}")
        lines += tables_of(estimates, metric, _estimates_table)
    return lines


def _estimates_table(rows: Sequence[Estimate]) -> list[str]:
    is_partial = any(one.n_units < one.n_segment for one in rows)  # else everybody is compared
    return effects_table(rows, last={"compared": _compared} if is_partial else {})


def _compared(one: Estimate) -> str:
    return "–" if one.coverage is None else f"{100 * one.coverage:.3g} %"


def effects_table(
    rows: Sequence[E],
    intervals: Mapping[str, Callable[[E], str]] | None = None,
    last: Mapping[str, Callable[[E], str]] | None = None,
) -> list[str]:
    """A row an effect; what a cell is of columns of further ``intervals``, and of the ``last``."""
    several = len({one.arm for one in rows}) > 1
    numbers: dict[str, Callable[[E], str]] = {
        "effect": lambda one: cell_number(one.estimate),
        level_of(rows): lambda one: cell_range(one.ci_lower, one.ci_upper),
        **(intervals or {}),
        "std. error": lambda one: cell_number(one.std_error),
        "from privacy": lambda one: cell_number(one.privacy_std_error),
        "relative": lambda one: "–" if one.relative is None else f"{100 * one.relative:+.3g} %",
        "p": lambda one: cell_number(one.p_value, 2),
    }
    if several:
        numbers["p (Holm)"] = lambda one: cell_number(one.p_value_holm, 2)
    segments = any(one.segment is not None for one in rows)
    ending: dict[str, Callable[[E], str]] = {
        "units": lambda one: f"{one.n_units:,}",
        **(last or {}),
    }
    cells = []
    for one in rows:
        made = [cell(one) for cell in numbers.values()]
        if one.estimate is None:
            made = [why_none(one.n_units), *[""] * (len(numbers) - 1)]
        named = [*[one.segment or ""] * segments, one.arm]
        cells.append([*named, *made, *(cell(one) for cell in ending.values())])
    return table([*["segment"] * segments, "arm", *numbers, *ending], cells)


def why_none(n_units: int) -> str:
    """Why an estimate has no numbers: with units to compare it is that of a ratio."""
    return "denominator near zero" if n_units else "too few units to compare"


# by an attribute


def by_text(
    attribute: str,
    estimates: Sequence[AttributeEstimate],
    more: str = "",
    errors: Mapping[str, str] | None = None,
    estimators: Mapping[str, str] = ESTIMATORS,
) -> str:
    """Effects by the values of an attribute, as they are and shrunken, by each estimator.

    ``more`` ends the headline, and ``errors`` says what errors follow (:func:`of_errors`).
    ``estimators`` has what these are called, in order.
    """
    if not estimates:
        return "\n".join(estimates_lines(estimates))
    lines = [f"effect of each arm against {estimates[0].control!r}, by {attribute}{more}"]
    metrics = metrics_of(estimates)
    for metric in metrics:
        lines += ["", f"on {metric}"] if len(metrics) > 1 else []
        lines += tables_of(estimates, metric, partial(_by_table, attribute), estimators)
    return "\n".join([*lines, "", *paragraph(_BY_MEANING), *errors_lines(errors or {})])


def _by_table(attribute: str, rows: Sequence[AttributeEstimate]) -> list[str]:
    level, arms = level_of(rows), len({one.arm for one in rows}) > 1
    head = [attribute, *(["arm"] if arms else []), "effect", level, "shrunken", level, "p (Holm)"]
    cells = []
    for one in rows:
        numbers = ["too few units to compare", *[""] * 4]
        if one.estimate is not None:
            numbers = [
                cell_number(one.estimate),
                cell_range(one.ci_lower, one.ci_upper),
                cell_number(one.shrunken),
                cell_range(one.shrunken_ci_lower, one.shrunken_ci_upper),
                cell_number(one.p_value_holm_segments, 2),
            ]
        first = [one.segment or "", *([one.arm] if arms else [])]
        cells.append([*first, *numbers, f"{one.n_units:,}"])
    return table([*head, "units"], cells)


# what was declared to decide


def decided_text(
    estimates: Sequence[Estimate],
    found: Decisions | None = None,
    errors: Mapping[str, str] | None = None,
) -> str:
    """Effects as one text, and what they decide where that was declared.

    ``errors`` says what errors follow (:func:`of_errors`).
    """
    lines = [*estimates_lines(estimates), *errors_lines(errors or {})]
    return "\n".join(lines if found is None else [*lines, "", *decision_lines(found)])


def decision_lines(found: Decisions) -> list[str]:
    """The rule, a line for each metric and arm, and what becomes of every arm."""
    by_holm = found.rule == "any"
    verdicts = [(f"{one.metric}, {one.arm}", _verdict(one, by_holm=by_holm)) for one in found.rows]
    kept = [(arm, "passes" if is_kept else "does not pass") for arm, is_kept in found.keep.items()]
    return ["decision", *paragraph(found.in_words), "", *pairs(verdicts), "", *pairs(kept)]


def _verdict(one: Decision, *, by_holm: bool) -> str:
    """The verdict on an arm, with what it is made of: the interval's end on the bad side, say."""
    least = one.least_benefit
    if least is None:
        return f"{one.verdict}: too few units to compare"
    kind, p_value = "p (Holm)" if by_holm else "p", one.p_value_adjusted
    if one.role == "guardrail":
        kind, p_value = "one-sided p", one.p_value
    word = "" if one.verdict.endswith("margin") else "margin "
    margin = "" if one.margin is None else f" ({word}{cell_number(one.margin)})"
    bound = f"better by {cell_number(least)} at least"
    if least < 0:
        bound = f"worse by {cell_number(-least)} at most"
    return f"{one.verdict}{margin}: {bound}, {kind} {cell_number(p_value, 2)}"


# cells


def level_of(rows: Sequence[Estimate]) -> str:
    """The heading of intervals."""
    return f"{100 * rows[0].confidence_level:g} % interval"


def cell_number(value: float | None, digits: int = 4) -> str:
    """A number, or a dash."""
    return "–" if value is None else f"{value:.{digits}g}"


def cell_range(lower: float | None, upper: float | None) -> str:
    """An interval, or a dash."""
    return "–" if lower is None else f"{cell_number(lower)} … {cell_number(upper)}"
