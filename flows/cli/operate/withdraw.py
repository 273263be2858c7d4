"""``clusterdp withdraw``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile

if TYPE_CHECKING:
    from flows.operate.withdraw import WithdrawResult


def withdraw(
    config: ConfigFile, release_id: str, reason: str | None = None, undo: bool = False
) -> Answer:
    """Tell everybody that a release is not to be used, and why.

    Its file stays as it is, since it may have been copied, and its charge stays, too. Writes the
    reason into the ledger and into withdrawn.json beside the releases; latest.duckdb becomes the
    last release that is not withdrawn, and series.duckdb leaves it out. Another draw of its period
    is `clusterdp release --revise`.

    Options:
        release_id (RELEASE_ID): Such as autumn.2026-11-20.r1.
        reason (TEXT): Why, in one line. It is published beside the releases: name nobody, and no
            number from a log.
        undo: Take a withdrawal back: the release may be used again.
    """
    from flows.operate.withdraw import withdraw as take_back

    result = take_back(config, release_id, reason, undo=undo)
    return Answer(partial(_text, result), result.as_json(), result.warnings)


def _text(result: WithdrawResult) -> str:
    state = "no longer withdrawn" if result.withdrawn is None else f"withdrawn: {result.withdrawn}"
    was = "" if result.changed else "; it was so already"
    latest = f"latest.duckdb is {result.latest}"
    if result.latest is None:
        latest = "no release is left to be used, so there is no latest.duckdb"
    return f"{result.release_id} is {state}{was}\n{latest}"
