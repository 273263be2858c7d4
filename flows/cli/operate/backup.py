"""``clusterdp backup``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFiles
from flows.runtime.terminal import pairs

if TYPE_CHECKING:
    from flows.operate.backup import BackupResult


def backup(configs: ConfigFiles, output: Path) -> Answer:
    """Copy a ledger, its units and its keys into a new folder.

    Name every CONFIG whose experiment uses the ledger. Runs need not wait, and may be at work. The
    folder is as secret as the keys in it (mode 0700); it appears whole or not at all. Raw logs,
    quarantine and releases are not in it. Changes nothing.

    Options:
        output (--output -o FOLDER): The new folder to put it into.
    """
    from flows.operate.backup import backup as take

    result = take(configs, output)
    return Answer(partial(_text, result), result.as_json(), result.warnings)


def _text(result: BackupResult) -> str:
    found = result.backup
    facts = {
        "backup": str(result.path),
        "of": f"{found.made_at:%Y-%m-%d %H:%M:%S} UTC",
        "experiments": ", ".join(one.experiment for one in found.experiments),
        "lists of units": f"{len(found.registers):,}",
        "keys": ", ".join(sorted({key for one in found.experiments for key in one.keys})) or "none",
    }
    return "\n".join(pairs(facts))
