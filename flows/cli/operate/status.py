"""``clusterdp status``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFiles
from flows.cli.show.words import table_of
from flows.runtime.terminal import pairs

if TYPE_CHECKING:
    from flows.operate.status import ExperimentStatus


def status(configs: ConfigFiles, metrics: bool = False) -> Answer:
    """Show every period of experiments, and why one is not there.

    With a [schedule] in CONFIG, these are all days since its beginning: published, due, waiting
    (not complete yet, or without its files), running, refused by the budget, failed, lost (its file
    is gone) or altered (its file is another than was drawn). Shows what is due next, and what is
    left of the budget. Reads CONFIG, its ledger and the folder of releases, but no log. Changes
    nothing but the files of metrics, with --metrics. The exit code is 4 if a period is lost or
    altered.

    Options:
        metrics: Write the files of metrics (run.metrics_directory) anew, too.
    """
    from flows.operate.status import renew_metrics
    from flows.operate.status import status as find_status

    if metrics:
        renew_metrics(configs)
    result = find_status(configs)

    def text() -> str:
        return "\n\n".join(map(_text, result.experiments))

    return Answer(text, result.as_json(), result.warnings, exit_code=result.exit_code)


def _text(one: ExperimentStatus) -> str:
    from flows.ledger.rules import amount_text

    left, moment = one.least_epsilon_left, one.next_due_at
    facts = {
        "left": "no limit is declared (privacy.budget_epsilon)"
        if left is None
        else f"epsilon {amount_text(left)}; a release costs {amount_text(one.epsilon)}",
        "next due": "no schedule is declared ([schedule])"
        if moment is None
        else f"{moment:%Y-%m-%d %H:%M} UTC",
    }
    if one.closed:
        still = f"; {one.n_open:,} not published, which each run still tries" if one.n_open else ""
        facts["next due"] = f"never: closed after {one.last_period}, its last period{still}"
    if one.closing is not None:
        facts["next due"] += (
            "; nothing more comes by itself, so write the final report (clusterdp report)"
        )
    periods = table_of(
        one.periods,
        {
            "period": lambda period: period.period,
            "state": lambda period: str(period.state),
            "due (UTC)": lambda period: (
                "–" if period.due_at is None else f"{period.due_at:%Y-%m-%d %H:%M}"
            ),
            "release": lambda period: period.release_id or "–",
        },
    )
    reasons = {period.period: period.reason for period in one.periods if period.reason}
    lines = [one.experiment, "", *pairs(facts), ""]
    lines += periods if one.periods else ["  No period has begun."]
    return "\n".join([*lines, *(["", *pairs(reasons)] if reasons else [])])
