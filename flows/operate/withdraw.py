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
    config_path: Path, release_id: str, reason: str | None, *, undo: bool = False
) -> WithdrawResult:
    """Note that a release is withdrawn, and why; or, to ``undo`` it, that it is no longer.

    Killed at any moment, it is finished by the next run of whatever kind, or by itself. Raises
    ConfigError where there is no such release that is public, or no reason that can be published.
    """
    config = load(config_path)
    if undo and reason is not None:
        raise ConfigError("--reason", "cannot go with --undo")
    if not undo:
        problem = "missing: say why; it is published" if reason is None else reason_problem(reason)
        if problem is not None:
            raise ConfigError("--reason", problem)
    account = Account.of(config)
    warnings = account.settle()  # what dead runs left, and releases that a new ledger lacks
    changed = account.note_withdrawal(release_id, reason)
    warnings += account.settle()
    warnings += account.renew_series()
    return WithdrawResult(
        experiment=config.experiment,
        release_id=release_id,
        withdrawn=reason,
        changed=changed,
        latest=account.latest(),
        warnings=tuple(dict.fromkeys(warnings)),
    )
