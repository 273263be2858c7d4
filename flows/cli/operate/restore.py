"""``clusterdp restore``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFiles
from flows.runtime.terminal import pairs
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from flows.operate.restore import RestoreResult


def restore(
    paths: ConfigFiles,
    without_backup: bool = False,
    lost: list[str] | None = None,
    complete: bool = False,
) -> Answer:
    """Put a ledger and keys back from a backup.

    They go where CONFIG says that they are. What was published after the backup was taken is
    charged to everybody, by the files in the folder of releases: see that nobody else has put one
    there. A ledger or a key that is there is
    never overwritten: of a ledger that has all charges of the backup, only lists of units that it
    has lost are put back. A backup that is damaged is refused. Let no run begin meanwhile.

    Options:
        paths (FOLDER CONFIG…): A backup, and the TOML files of all experiments on the ledger, also
            of those begun since.
        without_backup: There is none: name the TOML files alone. Charges for the released files
            that the ledger, or a new one, does not know.
        lost (RELEASE_ID): A release that may have been published after the backup was taken, and
            whose file is gone: everybody pays for it. May be given several times.
        complete: Say that no other release was published since than those whose files are there
            and those that --lost names. Without it nothing is put back.
    """
    from flows.operate.restore import restore as put_back

    folder, configs = (None, paths) if without_backup else (paths[0], paths[1:])
    if not configs:
        raise ConfigError("CONFIG", "missing; name the TOML files of all experiments on the ledger")
    result = put_back(folder, configs, lost=lost or (), complete=complete)
    return Answer(partial(_text, result), result.as_json(), result.warnings)


def _text(result: RestoreResult) -> str:
    from flows.ledger.rules import amount_text

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
