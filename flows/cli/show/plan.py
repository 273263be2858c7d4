"""How a plan speaks to people."""

from typing import TYPE_CHECKING

from estimators.coverage import percent, segment_words
from flows.runtime.terminal import pairs, table

if TYPE_CHECKING:
    from flows.plan import Nights, Other, OutcomePlan, PlanResult
    from privatizers.mechanisms.parameters import AggregateParameters, UnitParameters
    from privatizers.mechanisms.statistics.noisy_squares import NoisySquares
    from privatizers.planning.predictions import Prediction

_STATISTICS = {
    "counts": "noisy counts of every outcome",
    "count-and-complement": "a noisy count, the other being its complement",
    "means": "noisy means",
    "differences": "noisy differences between the arms",
    "none": "nothing",
}


def plan_text(found: "PlanResult") -> str:
    """The designs, what they are predicted to tell, what else was considered, what more buys."""
    planned = found.outcomes[0].resolved_design.plan is not None
    price = found.chosen.price
    lines = [
        "The design that follows from public sizes and the declared guess; no outcome was read."
        if planned
        else "The design as declared; no outcome was read.",
        "",
        *pairs(
            {
                "units": f"{found.roster.n_units:,} in {found.roster.n_clusters:,} clusters",
                "mechanism": found.chosen.mechanism,
                **_why(found.outcomes[0]),
                "price": f"epsilon {price.epsilon:g}, delta {price.delta:g}",
                **(_design(found.outcomes[0]) if len(found.outcomes) == 1 else {}),
            }
        ),
    ]
    for one in found.outcomes:
        lines += ["", *_outcome_lines(one, found)]
    if found.nights is not None:
        several = len(found.outcomes) > 1
        lines += ["", *_nights_lines(found.nights, found.arms, several=several)]
    for one in found.outcomes:
        if one.runners_up:
            whose = f" for {one.outcome.name}" if len(found.outcomes) > 1 else ""
            lines += ["", f"the next best designs{whose} (standard errors in the order above)"]
            head = ["mechanism", "levels", "of each stratum", "predicted"]
            lines += table(head, [_other_row(other) for other in one.runners_up])
    return "\n".join(lines)


_TOGETHER = {"tables": "one for both outcomes, by the declared guesses; one draw a unit for both"}


def _why(one: "OutcomePlan") -> dict[str, str]:
    """Why this mechanism was chosen; nothing where it was named."""
    plan = one.resolved_design.plan
    return {} if plan is None or plan.reason is None else {"why": plan.reason}


def _design(one: "OutcomePlan") -> dict[str, str]:
    """What becomes of one outcome."""
    parameters = one.resolved_design.design.mechanism.parameters
    grid, together = one.resolved_design.config.outcome.grid, one.resolved_design.is_drawn_together
    noise = f", noise scale {parameters.noise_scale:.4g}" if parameters.noise_scale else ""
    return {
        "outcomes": f"{len(grid)} levels from {grid[0]:g} to {grid[-1]:g}",
        **_of_units(parameters),
        "of each stratum": _STATISTICS[parameters.strata_statistic] + noise,
        **(_TOGETHER if together else _learning(parameters)),
        **_of_arms(parameters.squares),
    }


def _outcome_lines(one: "OutcomePlan", found: "PlanResult") -> list[str]:
    """The predictions of one outcome; of several its design, too, under its name."""
    partial = any(_is_partial(each) for each in found.predicted)
    heading: list[str] = []
    if len(found.outcomes) > 1:
        outcome, design = one.outcome, one.resolved_design.design
        name = outcome.name if outcome.label is None else f"{outcome.name}: {outcome.label}"
        share = f"epsilon {design.epsilon:.4g}, delta {design.delta:.3g}"
        part = "alone it has" if one.resolved_design.is_drawn_together else "its part"
        heading = [name, "", *pairs({part: share, **_design(one)}), ""]
    return [
        *heading,
        "predicted standard error",
        *table(
            [
                "arm",
                "of whom",
                "design",
                "95 % interval",
                *(["one more epsilon"] if one.one_more else []),
                *(["compared"] if partial else []),
            ],
            [_row(one, each, found.arms, partial) for each in one.predicted],
        ),
    ]


def _of_units(parameters: "UnitParameters | AggregateParameters") -> dict[str, str]:
    """What becomes of units' outcomes."""
    rate, left = parameters.resampling_probability, parameters.response_epsilon
    if left is not None:
        return {"units' outcomes": f"randomised by the least noisy table at epsilon {left:.4g}"}
    if rate is None:
        return {"units' outcomes": "not published, not even randomised; segments have no estimates"}
    return {"kept": f"{100 * (1 - rate):.3g} % of outcomes; the others are drawn anew"}


def _learning(parameters: "UnitParameters | AggregateParameters") -> dict[str, str]:
    """What learning tables costs, and when they are not learnt; nothing of other mechanisms."""
    if parameters.response_epsilon is None:
        return {}
    if parameters.learnt_from == "nothing":
        return {"tables": "for the declared guess; nothing is learnt"}
    of_arms = parameters.learnt_from == "arms"
    epsilon = parameters.arm_counts_epsilon if of_arms else parameters.statistic_epsilon
    counts = "noisy counts of whole arms" if of_arms else "the noisy counts"
    return {"tables": f"learnt in the run from {counts}, which cost epsilon {epsilon:.3g}"}


def _of_arms(squares: "NoisySquares | None") -> dict[str, str]:
    """What is published of whole arms, if anything is."""
    if squares is None:
        return {}
    scale = f"noise scale {squares.noise_scale:.4g} steps of {squares.steps.most}"
    return {"of each arm": f"a noisy sum of squares about the middle, {scale}"}


def _nights_lines(nights: "Nights", arms: tuple[str, ...], *, several: bool) -> list[str]:
    """What nights like this one cost and tell together."""
    least, most, can_pay = nights.least_cost, nights.cost, nights.n_affordable
    limit = "no budget limits it" if can_pay is None else f"the budget pays for {can_pay:,}"
    costs = {"who is in one night pays": f"epsilon {least.epsilon:g}, delta {least.delta:g}"}
    if nights.charges_once:
        costs["who comes back"] = "is set aside: everyone is released, and pays, once"
    else:
        costs["who is in every night pays"] = f"epsilon {most.epsilon:g}, delta {most.delta:g}"
    return [
        f"{nights.n_nights:,} nights like this one ({limit})",
        *pairs(costs),
        "",
        "predicted standard error over all of them",
        *table(
            [
                *(["outcome"] if several else []),
                "arm",
                "of whom",
                "new people",
                "sampling",
                "privacy",
                *([] if nights.charges_once else ["people who come back"]),
            ],
            [
                [
                    *([metric] if several else []),
                    arms[one.arm],
                    segment_words(one.segment_share),
                    f"{one.std_error:.4g}",
                    f"{one.sampling_std_error:.4g}",
                    f"{one.privacy_std_error:.4g}",
                    *([] if nights.charges_once else [f"at most {one.most_std_error:.4g}"]),
                ]
                for metric, one in nights.pooled
            ],
        ),
    ]


def _is_partial(one: "Prediction") -> bool:
    """Whether some of the people are expected to be left out."""
    return one.coverage is not None and one.coverage < _ALL


_ALL = 0.9995
"""A share that is shown as 100 %."""


def _row(
    found: "OutcomePlan", one: "Prediction", arms: tuple[str, ...], partial: bool
) -> list[str]:
    more = []
    if found.one_more is not None:
        same = next(
            other
            for other in found.one_more.predicted
            if (other.arm, other.segment_share) == (one.arm, one.segment_share)
        )
        more = [f"{same.std_error:.4g}"]
    width = "" if one.half_width is None else f"± {one.half_width:.4g}"
    if partial:
        more.append("–" if one.coverage is None else percent(one.coverage))
    whom = segment_words(one.segment_share)
    return [arms[one.arm], whom, f"{one.std_error:.4g}", width, *more]


def _other_row(one: "Other") -> list[str]:
    errors = " ".join(f"{each.std_error:.4g}" for each in one.predicted)
    return [one.mechanism, str(one.levels), one.strata_statistic, errors]
