"""Backups, and ledgers that were put back, as they are shown to people."""

from typing import TYPE_CHECKING

from flows.ledger.rules import amount_text
from flows.runtime.terminal import pairs

if TYPE_CHECKING:
    from flows.operate.backup import BackupResult
    from flows.operate.restore import RestoreResult


def backup_text(result: "BackupResult") -> str:
    """What is in a backup."""
    found = result.backup
    facts = {
        "backup": str(result.path),
        "of": f"{found.made_at:%Y-%m-%d %H:%M:%S} UTC",
        "experiments": ", ".join(one.experiment for one in found.experiments),
        "lists of units": f"{len(found.registers):,}",
        "keys": ", ".join(sorted({key for one in found.experiments for key in one.keys})) or "none",
    }
    return "\n".join(pairs(facts))


def restore_text(result: "RestoreResult") -> str:
    """What was put back, and what was spent by it."""
    state = "restored" if result.is_new else "was there already, with all charges of the backup"
    if result.made_at is None:
        state = f"charged for what it did not know, {len(result.found.entered):,} of the files"
    facts = {"ledger": f"{result.ledger}: {state}"}
    if result.made_at is not None:
        facts["as of"] = f"{result.made_at:%Y-%m-%d %H:%M:%S} UTC"
    for path, is_new in result.keys.items():
        facts[str(path)] = "restored" if is_new else "was there already"
    for name, amount in result.spent.items():
        facts[f"spent by {name}"] = f"epsilon {amount_text(amount.epsilon)}"
    return "\n".join(pairs(facts))
