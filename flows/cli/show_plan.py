"""How a plan speaks to people."""

from typing import TYPE_CHECKING

from estimators.coverage import percent, segment_words
from flows.runtime.terminal import pairs, table

if TYPE_CHECKING:
    from flows.plan import Nights, Other, PlanResult
    from privatizers.mechanisms.noisy_squares import NoisySquares
    from privatizers.planning.planner import Prediction

_STATISTICS = {
    "counts": "noisy counts of every outcome",
    "count-and-complement": "a noisy count, the other being its complement",
    "means": "noisy means",
    "differences": "noisy differences between the arms",
    "none": "nothing",
}


def plan_text(found: "PlanResult") -> str:
    """The design, what it is predicted to tell, what else was considered, and what more buys."""
    design, config = found.resolved_design.design, found.resolved_design.config
    parameters = design.mechanism.parameters
    partial = any(_is_partial(one) for one in found.predicted)
    grid = config.outcome.grid
    noise = f", noise scale {parameters.noise_scale:.4g}" if parameters.noise_scale else ""
    lines = [
        "The design that follows from public sizes and the declared guess; no outcome was read."
        if found.resolved_design.plan
        else "The design as declared; no outcome was read.",
        "",
        *pairs(
            {
                "units": f"{found.roster.n_units:,} in {found.roster.n_clusters:,} clusters",
                "mechanism": design.mechanism.name,
                "price": f"epsilon {design.epsilon:g}, delta {design.delta:g}",
                "outcomes": f"{len(grid)} levels from {grid[0]:g} to {grid[-1]:g}",
                **_of_units(parameters.resampling_probability),
                "of each stratum": _STATISTICS[parameters.strata_statistic] + noise,
                **_of_arms(parameters.squares),
            }
        ),
        "",
        "predicted standard error",
        *table(
            [
                "arm",
                "of whom",
                "design",
                "95 % interval",
                *(["one more epsilon"] if found.one_more else []),
                *(["compared"] if partial else []),
            ],
            [_row(found, one, partial) for one in found.predicted],
        ),
    ]
    if found.nights is not None:
        lines += ["", *_nights_lines(found.nights, found.arms)]
    if found.runners_up:
        lines += ["", "the next best designs (standard errors in the order above)"]
        head = ["mechanism", "levels", "of each stratum", "predicted"]
        lines += table(head, [_other_row(one) for one in found.runners_up])
    return "\n".join(lines)


def _of_units(rate: float | None) -> dict[str, str]:
    """What becomes of units' outcomes at λ, which is None where no unit is published."""
    if rate is None:
        return {"units' outcomes": "not published, not even randomised; segments have no estimates"}
    return {"kept": f"{100 * (1 - rate):.3g} % of outcomes; the others are drawn anew"}


def _of_arms(squares: "NoisySquares | None") -> dict[str, str]:
    """What is published of whole arms, if anything is."""
    if squares is None:
        return {}
    scale = f"noise scale {squares.noise_scale:.4g} steps of {squares.steps.most}"
    return {"of each arm": f"a noisy sum of squares about the middle, {scale}"}


def _nights_lines(nights: "Nights", arms: tuple[str, ...]) -> list[str]:
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
                "arm",
                "of whom",
                "new people",
                "sampling",
                "privacy",
                *([] if nights.charges_once else ["people who come back"]),
            ],
            [
                [
                    arms[one.arm],
                    segment_words(one.segment_share),
                    f"{one.std_error:.4g}",
                    f"{one.sampling_std_error:.4g}",
                    f"{one.privacy_std_error:.4g}",
                    *([] if nights.charges_once else [f"at most {one.most_std_error:.4g}"]),
                ]
                for one in nights.pooled
            ],
        ),
    ]


def _is_partial(one: "Prediction") -> bool:
    """Whether some of the people are expected to be left out."""
    return one.coverage is not None and one.coverage < _ALL


_ALL = 0.9995
"""A share that is shown as 100 %."""


def _row(found: "PlanResult", one: "Prediction", partial: bool) -> list[str]:
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
    return [found.arms[one.arm], whom, f"{one.std_error:.4g}", width, *more]


def _other_row(one: "Other") -> list[str]:
    errors = " ".join(f"{each.std_error:.4g}" for each in one.predicted)
    return [one.mechanism, str(one.levels), one.strata_statistic, errors]
