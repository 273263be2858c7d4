"""Taking back a release: it stays as it is, and everybody is told not to use it.

Its file may have been copied, so it is neither changed nor removed, and its charge stays. The
ledger notes why; ``withdrawn.json`` beside the releases says it, ``latest.duckdb`` and
``series.duckdb`` do without it.
"""

from dataclasses import dataclass
from pathlib import Path

from flows.config.load import load
from flows.ledger.account import Account
from flows.released.lists import reason_problem
from schemas.documents import Document
from schemas.errors import ConfigError


@dataclass(frozen=True)
class WithdrawResult(Document):
    """What was noted of a release."""

    experiment: str
    release_id: str
    withdrawn: str | None
    """Why; None where it is no longer."""
    changed: bool
    """Whether that was not noted already."""
    latest: str | None
    """The release that ``latest.duckdb`` is; None where there is none to be used."""
    warnings: tuple[str, ...] = ()


def withdraw(
    config: str | Path, release_id: str, reason: str | None = None, *, undo: bool = False
) -> WithdrawResult:
    """Tell everybody that a release is not to be used any more; its file and its charge stay.

    Stable besides: ``warnings``. ``reason`` says why, in one line, and is published; ``undo`` takes
    a withdrawal of ``release_id``, such as ``autumn.2026-11-20.r1``, back instead.
    """
    experiment = load(Path(config))
    if undo and reason is not None:
        raise ConfigError("--reason", "cannot go with --undo")
    if not undo:
        problem = "missing: say why; it is published" if reason is None else reason_problem(reason)
        if problem is not None:
            raise ConfigError("--reason", problem)
    account = Account.of(experiment)
    # Killed at any moment, it is finished by the next run of whatever kind, or by itself.
    warnings = account.settle()  # what dead runs left, and releases that a new ledger lacks
    changed = account.note_withdrawal(release_id, reason)
    warnings += account.settle()
    warnings += account.renew_series()
    return WithdrawResult(
        experiment=experiment.experiment,
        release_id=release_id,
        withdrawn=reason,
        changed=changed,
        latest=account.latest(),
        warnings=tuple(dict.fromkeys(warnings)),
    )
