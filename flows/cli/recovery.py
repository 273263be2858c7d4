"""The commands ``backup`` and ``restore``.

They print nothing: :mod:`flows.cli.main` shows their :class:`~flows.cli.answer.Answer`.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.answer import Answer
from flows.cli.options import ConfigFiles, files
from flows.runtime.terminal import pairs
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from flows.operate.backup import BackupResult
    from flows.operate.restore import RestoreResult


def backup(
    configs: ConfigFiles,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="The new folder to put it into."),
    ],
) -> Answer:
    """Copy a ledger, its units and its keys into a new folder.

    Name every CONFIG whose experiment uses the ledger. Runs need not wait, and may be at work. The
    folder is as secret as the keys in it (mode 0700); it appears whole or not at all. Raw logs,
    quarantine and releases are not in it. Changes nothing.
    """
    from flows.operate.backup import backup as take

    result = take(configs, output)
    return Answer(partial(_backup_text, result), result.as_json(), result.warnings)


def _backup_text(result: "BackupResult") -> str:
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


def restore(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER CONFIG…",
            help="A backup, and the TOML files of all experiments on the ledger, also of those "
            "begun since.",
            autocompletion=files(".toml"),
        ),
    ],
    without_backup: Annotated[
        bool,
        typer.Option(
            "--without-backup",
            help="There is none: name the TOML files alone. Charges for the released files that "
            "the ledger, or a new one, does not know.",
        ),
    ] = False,
    lost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RELEASE_ID",
            help="A release that may have been published after the backup was taken, and whose "
            "file is gone: everybody pays for it. May be given several times.",
        ),
    ] = None,
    complete: Annotated[
        bool,
        typer.Option(
            "--complete",
            help="Say that no other release was published since than those whose files are there "
            "and those that --lost names. Without it nothing is put back.",
        ),
    ] = False,
) -> Answer:
    """Put a ledger and keys back from a backup.

    They go where CONFIG says that they are. What was published after the backup was taken is
    charged to everybody, by the files in the folder of releases: see that nobody else has put one
    there. A ledger or a key that is there is
    never overwritten: of a ledger that has all charges of the backup, only lists of units that it
    has lost are put back. A backup that is damaged is refused. Let no run begin meanwhile.
    """
    from flows.operate.restore import restore as put_back

    folder, configs = (None, paths) if without_backup else (paths[0], paths[1:])
    if not configs:
        raise ConfigError("CONFIG", "missing; name the TOML files of all experiments on the ledger")
    result = put_back(folder, configs, lost=lost or (), complete=complete)
    return Answer(partial(_restore_text, result), result.as_json(), result.warnings)


def _restore_text(result: "RestoreResult") -> str:
    """What was put back, and what was spent by it."""
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
