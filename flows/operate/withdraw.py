"""Taking back a release: it stays as it is, and everybody is told not to use it.

Its file may have been copied, so it is neither changed nor removed, and its charge stays. The
ledger notes why; ``withdrawn.json`` beside the releases says it, ``latest.duckdb`` and
``series.duckdb`` do without it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.config.load import load
from flows.ledger.account import Account
from flows.released.lists import reason_problem
from schemas.errors import ConfigError


@dataclass(frozen=True)
class WithdrawResult:
    """What was noted of a release."""

    experiment: str
    release_id: str
    reason: str | None
    """Why it is withdrawn; None where it is no longer."""
    is_new: bool
    """Whether that was not noted already."""
    latest: str | None
    """The release that ``latest.duckdb`` is; None where there is none to be used."""
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp withdraw --json``."""
        return {
            "experiment": self.experiment,
            "release_id": self.release_id,
            "withdrawn": self.reason,
            "changed": self.is_new,
            "latest": self.latest,
            "warnings": list(self.warnings),
        }


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
    is_new = account.note_withdrawal(release_id, reason)
    warnings += account.settle()
    warnings += account.renew_series()
    return WithdrawResult(
        experiment=config.experiment,
        release_id=release_id,
        reason=reason,
        is_new=is_new,
        latest=account.latest(),
        warnings=tuple(dict.fromkeys(warnings)),
    )
