"""``clusterdp audit``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile
from flows.runtime.terminal import pairs, paragraph

if TYPE_CHECKING:
    from flows.lab.audit import Audit
    from privatizers.lab.audit.effect_models import EffectsAudit

_LIMITS = (
    "People and outcomes were made up, and released by the run of a night. What files lose, what "
    "the ledger is charged and what is public is compared exactly, draws as far as samples can "
    "show. This shows faults, and is no proof: the proof lies beside the mechanism's code."
)
_LIMITS_OF_SUMS = (
    "Sums are computed, and noise is drawn, by the code of a run, for neighbours that are made up "
    "to be as far apart as any. This shows faults, and is no proof: the proof lies beside the code."
)


def audit(config: ConfigFile, period: str | None = None) -> Answer:
    """Test the whole promise of CONFIG on made-up people.

    They are released by the run of a night, in every way that it may go: what their files lose by
    themselves, what the ledger is charged, all that is public and every draw is held against what
    is claimed. This takes a minute or two. It reads no outcome; with mechanism = "auto" it reads
    who is in the log of the period. Leaves nothing behind. The exit code is 1 if a test fails.
    """
    from flows.lab.audit import Audit
    from flows.lab.audit import audit as run_audit

    result = run_audit(config, period)
    if isinstance(result, Audit):
        text = partial(_text, result.release.mechanism, _facts(result), result, _LIMITS)
    else:
        text = partial(_text, "the effect model", _facts_of_sums(result), result, _LIMITS_OF_SUMS)
    return Answer(text, result.as_json(), exit_code=0 if result.holds else 1)


def _facts(found: Audit) -> dict[str, str]:
    exact, bound = found.exact_epsilon, found.bound
    return {
        "claimed": f"epsilon {found.claimed.epsilon!r} at delta {found.claimed.delta:g}",
        "lost by files": "no file was made" if exact is None else f"epsilon {exact:.6g}",
        "sampled": f"at least {bound.epsilon:.4g}, from {bound.n_samples:,} made-up neighbours",
    }


def _facts_of_sums(found: EffectsAudit) -> dict[str, str]:
    return {
        "claimed": f"epsilon {found.claimed_epsilon!r} at delta {found.delta:g}, by "
        f"rho {found.rho:.6g}",
        "attained": f"epsilon {found.attained_epsilon:.4g}, rho {found.attained_rho:.6g}, by the "
        "farthest made-up rows of each sum",
    }


def _text(what: str, facts: dict[str, str], found: Audit | EffectsAudit, limits: str) -> str:
    """A line a check, below one that fails what was seen; and what this does not show."""
    lines: list[tuple[str, str]] = []
    for check in found.checks:
        lines.append(("ok" if check.holds else "FAILS", check.name))
        lines += [] if check.holds else [("", check.evidence)]
    verdict = "holds" if found.holds else "DOES NOT HOLD: release nothing with it"
    head = [f"The claim of {what} {verdict}.", "", *pairs(facts)]
    return "\n".join([*head, "", *pairs(lines), "", *paragraph(limits)])
