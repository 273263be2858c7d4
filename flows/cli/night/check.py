"""``clusterdp check``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile
from flows.cli.show.words import meaning, paid_text, roster_pairs
from flows.runtime.terminal import pairs, paragraph, table

if TYPE_CHECKING:
    from flows.check import CheckResult
    from flows.config.resolve import ResolvedRelease

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
