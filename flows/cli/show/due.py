"""Periods of a schedule, and files that were verified, as they are shown to people."""

from typing import TYPE_CHECKING

from flows.ledger.rules import amount_text
from flows.runtime.terminal import pairs, paragraph, table

if TYPE_CHECKING:
    from flows.operate.due import DueResult
    from flows.operate.status import ExperimentStatus, StatusResult
    from flows.operate.verify import Verdict, VerifyResult


def due_text(*results: "DueResult") -> str:
    """What became of each period that was due, experiment by experiment."""
    return "\n\n".join(_due_text(result) for result in results)


def _due_text(result: "DueResult") -> str:
    if result.error is not None:
        return "\n".join([result.config, "", *pairs({"failed": str(result.error)})])
    if not result.releases:
        return f"{result.experiment}: nothing is due that is not published."
    rows = [(one.period, one.status, one.release_id or "–") for one in result.releases]
    reasons = {one.period: one.reason for one in result.releases if one.reason}
    listed = table(("period", "status", "release"), rows)
    return "\n".join([f"{result.experiment}", "", *listed, *_reasons(reasons)])


def status_text(result: "StatusResult") -> str:
    """Where every period of every experiment stands."""
    return "\n\n".join(_experiment_text(one) for one in result.experiments)


def _experiment_text(one: "ExperimentStatus") -> str:
    left = one.least_epsilon_left
    budget = "no limit is declared (privacy.budget_epsilon)"
    if left is not None:
        budget = f"epsilon {amount_text(left)}; a release costs {amount_text(one.epsilon)}"
    moment = one.next_due_at
    following = "no schedule is declared ([schedule])"
    if moment is not None:
        following = f"{moment:%Y-%m-%d %H:%M} UTC"
    if one.closed:
        still = f"; {one.n_open:,} not published, which each run still tries" if one.n_open else ""
        following = f"never: closed after {one.last_period}, its last period{still}"
    if one.closing is not None:
        following += "; nothing more comes by itself, so write the final report (clusterdp report)"
    rows = [
        (
            period.period,
            str(period.state),
            "–" if period.due_at is None else f"{period.due_at:%Y-%m-%d %H:%M}",
            period.release_id or "–",
        )
        for period in one.periods
    ]
    reasons = {period.period: period.reason for period in one.periods if period.reason}
    head = ("period", "state", "due (UTC)", "release")
    return "\n".join(
        [
            one.experiment,
            "",
            *pairs({"left": budget, "next due": following}),
            "",
            *(table(head, rows) if rows else ["  No period has begun."]),
            *_reasons(reasons),
        ]
    )


def _reasons(reasons: dict[str, str]) -> list[str]:
    """Why periods are not published, or what is to be looked into, below the table of all."""
    return ["", *pairs(reasons)] if reasons else []


def verify_text(result: "VerifyResult") -> str:
    """What was found of each file; where a list alone spoke for it, what that is worth."""
    lines = [line for one in result.releases for line in pairs({_verdict(one): _about(one)})]
    if any(one.against == "SHA256SUMS" for one in result.releases):
        lines += [
            "",
            *paragraph(
                "SHA256SUMS lies beside the files: whoever can change them can change it, too. "
                "Compare with the ledger (--ledger CONFIG), or check its signature (--key PUBLIC)."
            ),
        ]
    return "\n".join(lines)


def _verdict(one: "Verdict") -> str:
    if one.intact is None:
        return "UNKNOWN"
    return "intact" if one.intact else "ALTERED"


def _about(one: "Verdict") -> str:
    named = "" if one.release_id is None else f" ({one.release_id})"
    against = "" if one.against is None else f", against the {_SOURCES[one.against]}"
    reason = "" if one.reason is None else f": {one.reason}"
    pruned = "" if one.pruned_at is None else f"; pruned by its publisher on {one.pruned_at[:10]}"
    withdrawn = "" if one.withdrawn is None else f"; WITHDRAWN: {one.withdrawn}"
    return f"{one.path}{named}{against}{reason}{pruned}{withdrawn}"


_SOURCES = {
    "ledger": "ledger",
    "signature": "signed list SHA256SUMS",
    "SHA256SUMS": "list SHA256SUMS",
}
