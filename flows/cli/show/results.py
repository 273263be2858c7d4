"""How commands speak to people: plain text, one screen, numbers with their meaning beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.show.estimates import estimates_lines, of_errors
from flows.cli.show.ledger import paid_text
from flows.released.file.checks.assigned import read_assigned
from flows.runtime.pasted import pasted
from flows.runtime.terminal import pairs, paragraph, table
from schemas.released import Manifest
from schemas.roster import Roster

if TYPE_CHECKING:
    from flows.check import CheckResult
    from flows.config.resolve import ResolvedRelease
    from flows.lab.audit import Audit
    from flows.raw.outcome_shares import OutcomeShares
    from flows.release import ReleaseResult
    from privatizers.lab.audit.checks import Check


def release_text(result: ReleaseResult) -> str:
    """One screen on a release that was just made, or was there already."""
    manifest = result.manifest
    head = {
        "published": f"{result.release_id} is published.",
        "unchanged": f"{result.release_id} is published already, from the same rows and settings: "
        "unchanged, nothing was drawn or charged.",
    }
    return "\n".join(
        [
            *paragraph(head[result.status]),
            "",
            *pairs(
                {
                    "file": str(result.path),
                    "protected": protected_text(manifest),
                    "epsilon": _budget_text(
                        manifest.epsilon,
                        manifest.delta,
                        private_clusters=manifest.has_private_clusters,
                    ),
                    **_of_households(manifest),
                    "paid so far": paid_text(result.statement),
                    "mechanism": manifest.mechanism,
                    **roster_pairs(result.roster),
                    **of_errors(manifest, read_assigned(result.path, manifest)),
                }
            ),
            "",
            *estimates_lines(result.estimates),
        ]
    )


def _of_households(manifest: Manifest) -> dict[str, str]:
    """What one who pays for several rows pays for all of them."""
    if manifest.household_epsilon is None:
        return {}
    each = f"{manifest.household_epsilon:g}: whoever pays has up to {manifest.rows_each} rows here"
    return {"of a household": each}


def protected_text(manifest: Manifest) -> str:
    """What stands between outcomes and a reader of the file."""
    clusters = " and cluster" if manifest.has_private_clusters else ""
    if manifest.has_units:
        return f"every unit's outcome{clusters}: each was randomised, none is in the file"
    statistics = (_STATISTICS.get(one.strata_statistic, _COUNTS) for one in manifest.outcomes)
    what = " and ".join(dict.fromkeys(statistics))
    kind = "randomised cluster" if clusters else "cluster"
    return f"every unit's outcome{clusters}: the file holds {what} of each {kind}, and no units"


_COUNTS = "noisy counts"
_STATISTICS = {"means": "noisy means", "differences": "noisy differences between the arms"}


def demo_text(result: ReleaseResult, config: Path, notes: str) -> str:
    """What the demo did: as a release, with what is special about its data, and what to try."""
    return "\n".join(
        [
            "Thornton (2008): does a cash incentive make people pick up their HIV test result?",
            "",
            release_text(result),
            "",
            *paragraph(notes),
            "",
            *paragraph(
                "Look inside, and at what these people have paid. Run the demo again: it is "
                "unchanged."
            ),
            f"  {pasted('inspect', result.path)}",
            f"  {pasted('estimate', result.path)}",
            f"  {pasted('ledger', config)}",
        ]
    )


def check_text(result: CheckResult) -> str:
    """What a dry run found."""
    return "\n".join(
        [
            "Configuration and log are sound; nothing was drawn, charged or written.",
            "",
            *pairs(
                {
                    "mechanism": result.chosen.mechanism,
                    "epsilon": _budget_text(
                        result.chosen.price.epsilon,
                        result.chosen.price.delta,
                        private_clusters=result.private_clusters,
                    ),
                    **_tables(result.chosen),
                    **roster_pairs(result.roster),
                    "arms": ", ".join(
                        f"{arm} {count:,}" for arm, count in result.roster.units_by_arm.items()
                    ),
                    "sample ratio": _p_text(result.roster.sample_ratio_p),
                    "paid so far": paid_text(result.statement),
                }
            ),
            *_faulty_lines(result.outcomes),
        ]
    )


def _faulty_lines(outcomes: Sequence[OutcomeShares]) -> list[str]:
    """How many outcomes cannot be used as they are, and what must not follow from it."""
    if not outcomes:
        return []
    rows = [tuple(one.as_json().values()) for one in outcomes]
    return [
        "",
        *table(("outcome", "missing", "unreadable", "below the grid", "above it"), rows),
        "",
        *paragraph(
            "This is of the outcomes themselves, and nothing protects it: pass it on to nobody. "
            "Mend how the log is written or read by it; what the experiment measures, its grid "
            "and its guess, must not follow it, for these are published."
        ),
    ]


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


def audit_text(found: Audit) -> str:
    """What an audit found, and what that does and does not show."""
    exact, bound = found.exact_epsilon, found.bound
    losses = {
        "claimed": f"epsilon {found.claimed.epsilon!r} at delta {found.claimed.delta:g}",
        "lost by files": "no file was made" if exact is None else f"epsilon {exact:.6g}",
        "sampled": f"at least {bound.epsilon:.4g}, from {bound.n_samples:,} made-up neighbours",
    }
    shows = (
        "People and outcomes were made up, and released by the run of a night. What files "
        "lose, what the ledger is charged and what is public is compared exactly, draws as "
        "far as samples can show. This shows faults, and is no proof: the proof lies "
        "beside the mechanism's code."
    )
    return checked_text(found.mechanism, losses, found.checks, shows)


def checked_text(whose: str, facts: dict[str, str], checks: Sequence[Check], shows: str) -> str:
    """Whether a claim holds by all checks, a line each; of one that fails, what was seen."""
    holds = all(check.holds for check in checks)
    verdict = "holds" if holds else "DOES NOT HOLD: release nothing with it"
    return "\n".join(
        [
            f"The claim of {whose} {verdict}.",
            "",
            *pairs(facts),
            "",
            *check_lines(checks),
            "",
            *paragraph(shows),
        ]
    )


def check_lines(checks: Sequence[Check]) -> list[str]:
    """A line a check; of one that fails, what was seen under it."""
    lines: list[tuple[str, str]] = []
    for check in checks:
        lines.append(("ok" if check.holds else "FAILS", check.name))
        if not check.holds:
            lines.append(("", check.evidence))
    return pairs(lines)


def _budget_text(epsilon: float, delta: float, *, private_clusters: bool) -> str:
    extra = f", and by a further {delta:g}" if delta else ""
    return f"{epsilon:g}: {meaning(epsilon, private_clusters=private_clusters)}{extra}"


def meaning(epsilon: float, *, private_clusters: bool = False) -> str:
    """ε as a sentence."""
    other = "another outcome and cluster" if private_clusters else "another outcome"
    factor = math.exp(epsilon) if epsilon < 700 else math.inf
    if factor >= 1e6:
        return f"{other} of one unit could change the odds of this file beyond all bounds"
    return (
        f"{other} of one unit would change the probability of this file by {factor:.3g} "
        "times at most"
    )


def roster_pairs(roster: Roster) -> dict[str, str]:
    """Who is in, who was set aside and why."""
    aside = f"{roster.quarantined:,}"
    if roster.quarantined:
        reasons = ", ".join(f"{name} {n:,}" for name, n in roster.quarantined_by_rule.items())
        aside += f" ({reasons})"
    unused = f"{roster.repeats.n_unused:,}: after the first of a unit with several"
    return {
        "units": f"{roster.n_units:,} in {roster.n_clusters:,} clusters",
        "rows set aside": aside,
        **({"rows not used": unused} if roster.repeats.n_unused else {}),
    }


def _p_text(p_value: float | None) -> str:
    return "not tested (shares undeclared)" if p_value is None else f"p = {p_value:.2g}"
