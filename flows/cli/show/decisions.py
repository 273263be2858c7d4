"""What was declared to decide, and what it says, as people are shown it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flows.cli.show.estimates import cell_number, cell_p_value, errors_lines, estimates_lines
from flows.runtime.terminal import pairs, paragraph

if TYPE_CHECKING:
    from estimators.arm_effects import Estimate  # scipy takes half a second
    from estimators.decisions import Decision
    from flows.released.estimates.decisions import Decisions


def decided_text(
    estimates: Sequence[Estimate],
    found: Decisions | None,
    errors: Mapping[str, str] | None = None,
) -> str:
    """Effects as one text, and what they decide where that was declared.

    ``errors`` says what errors follow (:func:`flows.cli.show.estimates.of_errors`).
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
    """The verdict on an arm, with what it is made of."""
    if one.least_benefit is None:
        return f"{one.verdict}: too few units to compare"
    if one.role == "guardrail":
        kind, p_value = "one-sided p", one.p_value
    else:
        kind, p_value = "p (Holm)" if by_holm else "p", one.p_value_adjusted
    word = "" if one.verdict.endswith("margin") else "margin "
    margin = "" if one.margin is None else f" ({word}{cell_number(one.margin)})"
    return f"{one.verdict}{margin}: {_bound(one.least_benefit)}, {kind} {cell_p_value(p_value)}"


def _bound(least_benefit: float) -> str:
    """The end of the interval on the bad side."""
    if least_benefit >= 0:
        return f"better by {cell_number(least_benefit)} at least"
    return f"worse by {cell_number(-least_benefit)} at most"
