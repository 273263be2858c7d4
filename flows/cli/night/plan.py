"""Before a release: ``clusterdp plan`` how it would be made, ``clusterdp check`` whether it can."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from estimators.coverage import percent, segment_words
from flows.cli.answer import Answer
from flows.cli.options import ConfigFile
from flows.cli.show.words import meaning, paid_text, roster_pairs, table_of
from flows.released.lists import named
from flows.runtime.terminal import pairs, paragraph, table
from schemas.released import taught_by

if TYPE_CHECKING:
    from flows.check import CheckResult
    from flows.config.clusterings import Clustering
    from flows.config.resolve import ResolvedRelease
    from flows.plan import MarginEffect, Nights, Other, OutcomePlan, PlanResult
    from privatizers.mechanisms.parameters import AggregateParameters, UnitParameters
    from privatizers.planning.nights import PooledPrediction
    from privatizers.planning.predictions import Prediction

_STATISTICS = {
    "counts": "noisy counts of every outcome",
    "count-and-complement": "a noisy count, the other being its complement",
    "means": "noisy means",
    "differences": "noisy differences between the arms",
    "none": "nothing",
}
_VALUES = 60
"""Declared values that are shown."""
_MUCH = 0.98
"""What errors of other clusters are of those of now, at most, for these to be better."""
_ALL = 0.9995
"""A share that is shown as 100 %."""
_OTHERS: dict[str, Callable[[Other], str]] = {
    "mechanism": lambda other: other.mechanism,
    "levels": lambda other: str(other.levels),
    "of each stratum": lambda other: other.strata_statistic,
    "predicted": lambda other: " ".join(f"{each.std_error:.4g}" for each in other.predicted),
}
_UNPROTECTED = (
    "This is of the outcomes themselves, and nothing protects it: pass it on to nobody. "
    "Mend how the log is written or read by it; what the experiment measures, its grid "
    "and its guess, must not follow it, for these are published."
)


def check(config: ConfigFile, period: str | None = None, outcomes: bool = False) -> Answer:
    """Try a release: read and validate, draw and write nothing.

    Reads CONFIG, its log and its ledger. Draws no noise, charges nothing and writes nothing. Shows
    how many units a release would have, which rows it would leave out, and what was paid so far.

    Options:
        outcomes: Say too, coarsely, how many outcomes are missing, unreadable or beyond the grid.
            Nothing protects this: it is for whoever holds the log, at a terminal, and the grid and
            the guess must not follow it.
    """
    from flows.check import check as dry_run

    result = dry_run(config, period, outcomes=outcomes)
    return Answer(partial(check_text, result), result.as_json(), result.warnings)


def check_text(result: CheckResult) -> str:
    """What a dry run found."""
    price, roster = result.chosen.price, result.roster
    means = meaning(price.epsilon, price.delta, private_clusters=result.private_clusters)
    p_value = roster.sample_ratio_p
    facts = {
        "mechanism": result.chosen.mechanism,
        "epsilon": f"{price.epsilon:g}: {means}",
        **_tables(result.chosen),
        **roster_pairs(roster),
        "arms": ", ".join(f"{arm} {count:,}" for arm, count in roster.units_by_arm.items()),
        "sample ratio": (
            "not tested (shares undeclared)" if p_value is None else f"p = {p_value:.2g}"
        ),
        "paid so far": paid_text(result.statement),
    }
    head = "Configuration and log are sound; nothing was drawn, charged or written."
    lines = [head, "", *pairs(facts)]
    if result.outcomes:
        rows = [tuple(one.as_json().values()) for one in result.outcomes]
        columns = ("outcome", "missing", "unreadable", "below the grid", "above it")
        lines += ["", *table(columns, rows), "", *paragraph(_UNPROTECTED)]
    return "\n".join(lines)


def _tables(chosen: ResolvedRelease) -> dict[str, str]:
    """What tables of the optimal randomiser keep, and what beside them; else nothing."""
    found: dict[str, str] = {}
    for one in chosen.outcomes:
        (outcome,), parameters = one.config.outcomes, one.design.mechanism.parameters
        if parameters.response_epsilon is None:
            continue
        name = "outcomes" if len(chosen.outcomes) == 1 else outcome.name
        found[name] = (
            f"{parameters.n_outcomes} levels at epsilon {parameters.response_epsilon:.4g}; of each "
            f"stratum {parameters.strata_statistic} at epsilon {parameters.statistic_epsilon:.3g}"
        )
        if parameters.learnt_from == "arms":
            found[name] += f"; of each arm counts at epsilon {parameters.arm_counts_epsilon:.3g}"
        if one.is_drawn_together:
            found[name] += "; both outcomes by one draw"
    return found


def plan(
    config: ConfigFile,
    period: str | None = None,
    nights: int | None = None,
    clusters: str | None = None,
) -> Answer:
    """Show how a release would be made, and how exact it would be.

    Reads CONFIG and, of its log, only who is in which arm and cluster (and the times of exposures,
    where outcomes are events). It reads no outcome: a log without outcomes will do. Writes nothing.

    Options:
        nights (NUMBER): Show too what so many nights like this one cost a unit, and how exact the
            effect over all of them would be.
        clusters (COLUMN,COLUMN,…): Compare these columns of the log as the cluster, COLUMN+COLUMN
            being two as one, with the cluster of now. Name public facts, never an outcome.
    """
    from flows.plan import plan as plan_release

    columns = [] if clusters is None else clusters.split(",")
    asked = [[name.strip() for name in one.split("+")] for one in columns]
    result = plan_release(config, period, nights=nights, clusters=asked)
    return Answer(partial(plan_text, result), result.as_json(), result.warnings)


def plan_text(found: PlanResult) -> str:
    """The designs, what they are predicted to tell, what else was considered, what more buys."""
    first, several = found.outcomes[0], len(found.outcomes) > 1
    chosen, price = first.resolved_design.plan, found.chosen.price
    taught = taught_by(found.chosen.config.guess_from)
    guess = f"what {named(taught)} published" if taught else "the declared guess"
    follows = f"that follows from public sizes and {guess}" if chosen else "as declared"
    facts = {
        "units": f"{found.roster.n_units:,} in {found.roster.n_clusters:,} clusters",
        "mechanism": found.chosen.mechanism,
        **({"why": chosen.reason} if chosen and chosen.reason else {}),
        "price": f"epsilon {price.epsilon:g}, delta {price.delta:g}",
        **({} if several else _design(first)),
    }
    lines = [f"The design {follows}; no outcome was read.", "", *pairs(facts)]
    for one in found.outcomes:
        heading = _heading(one) if several else []
        lines += ["", *heading, "predicted standard error", *_predictions(one, found)]
        if one.margins:
            lines += ["", *_margins_lines(one, found.arms)]
    if found.nights is not None:
        lines += ["", *_nights_lines(found.nights, found.arms, several=several)]
    if found.clusterings:
        lines += ["", *_clusterings_lines(found.clusterings)]
    for one in found.outcomes:
        if one.runners_up:
            whose = f" for {one.outcome.name}" if several else ""
            whose += ", without margins" if one.margins else ""
            lines += ["", f"the next best designs{whose} (standard errors in the order above)"]
            lines += table_of(one.runners_up, _OTHERS)
    return "\n".join(lines)


def _design(one: OutcomePlan) -> dict[str, str]:
    parameters = one.resolved_design.design.mechanism.parameters
    grid, squares = one.resolved_design.config.outcome.grid, parameters.squares
    noise = f", noise scale {parameters.noise_scale:.4g}" if parameters.noise_scale else ""
    facts = {
        "outcomes": f"{len(grid)} levels from {grid[0]:g} to {grid[-1]:g}",
        **_of_units(parameters),
        "of each stratum": _STATISTICS[parameters.strata_statistic] + noise,
    }
    if one.resolved_design.is_drawn_together:
        facts["tables"] = "one for both outcomes, by the declared guesses; one draw a unit for both"
    elif parameters.response_epsilon is not None:
        facts["tables"] = _learning(parameters)
    if squares is not None:
        scale = f"noise scale {squares.noise_scale:.4g} steps of {squares.steps.most}"
        facts["of each arm"] = f"a noisy sum of squares about the middle, {scale}"
    return facts


def _of_units(parameters: UnitParameters | AggregateParameters) -> dict[str, str]:
    rate, left = parameters.resampling_probability, parameters.response_epsilon
    if left is not None:
        return {"units' outcomes": f"randomised by the least noisy table at epsilon {left:.4g}"}
    if rate is None:
        return {"units' outcomes": "not published, not even randomised; segments have no estimates"}
    return {"kept": f"{100 * (1 - rate):.3g} % of outcomes; the others are drawn anew"}


def _learning(parameters: UnitParameters | AggregateParameters) -> str:
    """What learning tables costs, and when they are not learnt."""
    if parameters.learnt_from == "nothing":
        return "for the guess alone; nothing is learnt in the run"
    of_arms = parameters.learnt_from == "arms"
    epsilon = parameters.arm_counts_epsilon if of_arms else parameters.statistic_epsilon
    counts = "noisy counts of whole arms" if of_arms else "the noisy counts"
    return f"learnt in the run from {counts}, which cost epsilon {epsilon:.3g}"


def _heading(one: OutcomePlan) -> list[str]:
    outcome, design = one.outcome, one.resolved_design.design
    name = outcome.name if outcome.label is None else f"{outcome.name}: {outcome.label}"
    share = f"epsilon {design.epsilon:.4g}, delta {design.delta:.3g}"
    part = "alone it has" if one.resolved_design.is_drawn_together else "its part"
    return [name, "", *pairs({part: share, **_design(one)}), ""]


def _predictions(one: OutcomePlan, found: PlanResult) -> list[str]:
    more = one.one_more
    errors = {
        (each.arm, each.segment_share): each.std_error for each in (more.predicted if more else ())
    }
    cells: dict[str, Callable[[Prediction], str]] = {
        "arm": lambda each: found.arms[each.arm],
        "of whom": lambda each: segment_words(each.segment_share),
        "design": lambda each: f"{each.std_error:.4g}",
        "95 % interval": lambda each: "" if each.half_width is None else f"± {each.half_width:.4g}",
    }
    between = dict(zip(map(id, one.predicted), one.ranges, strict=False))
    if between:  # nothing is known of outcomes
        cells["it may be"] = lambda each: "{:.3g}–{:.3g}".format(*between[id(each)])
    if more:
        cells["one more epsilon"] = lambda each: f"{errors[each.arm, each.segment_share]:.4g}"
    if any(each.coverage is not None and each.coverage < _ALL for each in found.predicted):
        cells["compared"] = lambda each: "–" if each.coverage is None else percent(each.coverage)
    return table_of(one.predicted, cells)


def _margins_lines(one: OutcomePlan, arms: tuple[str, ...]) -> list[str]:
    """What declared values have, with sums of margins and in other ways."""
    epsilon = one.resolved_design.design.mechanism.parameters.margins_epsilon
    head = f"declared values (their sums cost epsilon {epsilon:.4g})"
    if not epsilon:
        head = "declared values (their sums do not pay here, so none are published)"
    cells: dict[str, Callable[[MarginEffect], str]] = {
        "attribute": lambda each: each.attribute,
        "value": lambda each: each.value,
        "arm": lambda each: arms[each.arm],
        "design": lambda each: _told(each.std_error),
        "without margins": lambda each: _told(each.without_margins),
        "as the cluster": lambda each: _told(each.as_cluster),
    }
    lines = table_of(one.margins[:_VALUES], cells)
    left = len(one.margins) - _VALUES
    more = [f"and {left:,} more, which --json has"] if left > 0 else []
    return [head, *lines, *more]


def _told(error: float | None) -> str:
    return "–" if error is None else f"{error:.4g}"


def _nights_lines(nights: Nights, arms: tuple[str, ...], *, several: bool) -> list[str]:
    least, most, can_pay = nights.least_cost, nights.cost, nights.n_affordable
    limit = "no budget limits it" if can_pay is None else f"the budget pays for {can_pay:,}"
    costs = {"who is in one night pays": f"epsilon {least.epsilon:g}, delta {least.delta:g}"}
    if nights.charges_once:
        costs["who comes back"] = "is set aside: everyone is released, and pays, once"
    else:
        costs["who is in every night pays"] = f"epsilon {most.epsilon:g}, delta {most.delta:g}"
    cells: dict[str, Callable[[tuple[str, PooledPrediction]], str]] = {
        **({"outcome": lambda one: one[0]} if several else {}),
        "arm": lambda one: arms[one[1].arm],
        "of whom": lambda one: segment_words(one[1].segment_share),
        "new people": lambda one: f"{one[1].std_error:.4g}",
        "sampling": lambda one: f"{one[1].sampling_std_error:.4g}",
        "privacy": lambda one: f"{one[1].privacy_std_error:.4g}",
    }
    if not nights.charges_once:
        cells["people who come back"] = lambda one: f"at most {one[1].most_std_error:.4g}"
    head = f"{nights.n_nights:,} nights like this one ({limit})"
    what = "predicted standard error over all of them"
    return [head, *pairs(costs), "", what, *table_of(nights.pooled, cells)]


def _clusterings_lines(found: tuple[Clustering, ...]) -> list[str]:
    """What each column would bring as the cluster, and which is better."""
    best, now = found[0], next(one for one in found if one.is_configured)
    kinds = dict.fromkeys(each.of for one in found for each in one.predicted)
    called = {kind: kind.replace("now", now.name) for kind in kinds}
    cells: dict[str, Callable[[Clustering], str]] = {
        "cluster": lambda one: f"{one.name} (now)" if one.is_configured else one.name,
        "clusters": lambda one: f"{one.n_clusters:,}",
        "strata": lambda one: _count(one.n_strata),
        "smallest": lambda one: _count(one.smallest_stratum),
        **{name: partial(_of_now, kind=kind) for kind, name in called.items()},
    }
    problems = [f"{one.name}: {one.problem}" for one in found if one.problem is not None]
    problems += [
        f"{one.name}: {now.n_units - one.n_units:,} of {now.n_units:,} units have no value there "
        "and would be set aside, so effects would be of the others; see that arms lack it alike"
        for one in found
        if one.n_units < now.n_units
    ]
    told = ", ".join(f"{name} {_of_now(best, kind)}" for kind, name in called.items())
    times = best.of_now() or 1.0
    verdict = f"{best.name} is better: errors are {times:.2f} of those of now, all in all ({told})."
    if times > _MUCH:
        verdict = f"Keep {now.name}: nothing here makes errors smaller by 2 %, all in all."
    head = "other clusters: standard errors over those of now, by public sizes and the guess alone"
    below = [line for each in (*problems, verdict) for line in paragraph(each)]
    return [head, *table_of(found, cells), "", *below]


def _of_now(one: Clustering, kind: str) -> str:
    times = 1.0 if one.is_configured else one.of_now(kind)
    return "–" if times is None else f"{times:.2f}"


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"
