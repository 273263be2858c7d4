"""Backups: a ledger, who is in which release, and keys, as they are at one moment.

Nothing waits for a backup, and it may be taken in the middle of a run. Raw logs and rows that were
set aside are in none, and releases are not: copy these as you copy any file.
"""

from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flows.config.load import load_any
from flows.config.model.declared import Declared
from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url, only_place
from flows.ledger.shelves.shelf import shelf_of
from flows.operate.copies.folder import Backup, KeptExperiment, new_backup, seal, write_private
from flows.operate.copies.keys import read_keys
from flows.operate.copies.snapshot import Snapshot, take_snapshot
from flows.runtime.paths import Paths, each_path
from flows.runtime.reading.small_files import read_small
from schemas.documents import taken
from schemas.errors import ConfigError, InputError

_LARGEST = 4_000_000  # bytes of a configuration


@dataclass(frozen=True)
class BackupResult:
    """A backup that was taken."""

    path: Path
    backup: Backup
    unnamed: tuple[str, ...]
    """Experiments that the ledger has charges of, and whose configurations were not named."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is not in it."""
        lost = (
            f"the ledger's list of the units in {name} is lost or damaged already; it counts for "
            "everybody. An earlier backup may have it"
            for name in self.backup.lost
        )
        unnamed = (
            f"the ledger has charges of {name}, whose CONFIG was not named: its keys are not in "
            "this backup"
            for name in self.unnamed
        )
        return (*lost, *unnamed)

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp backup --json``."""
        found = self.backup.as_json()
        return {
            "path": str(self.path),
            "made_at": found["made_at"],
            "experiments": [one.experiment for one in self.backup.experiments],
            "keys": sorted({key for one in self.backup.experiments for key in one.keys}),
            "n_registers": len(self.backup.registers),
            "lost": list(self.backup.lost),
            "unnamed": list(self.unnamed),
        }


def backup(configs: Paths, *, output: str | Path) -> BackupResult:
    """Copy a ledger, who is in which release, and keys into a new private folder.

    Stable besides: ``warnings``. ``configs`` are all that use the ledger; ``output`` appears whole
    or not at all, and is a :class:`ConfigError` where there is something of its name.
    """
    place = Path(output).absolute()
    declared = {path: load_any(path) for path in each_path(configs)}
    url = only_place(ledger_url(one.ledger.url, one.directory) for one in declared.values())
    if url is None:
        raise ConfigError("CONFIG", "these use several ledgers; take a backup of each by itself")
    with new_backup(place) as folder:
        snapshot = take_snapshot(Ledger(url), folder)
        if snapshot is None:
            address = url.render_as_string(hide_password=True)
            raise InputError(f"ledger {address}: there is none yet; nothing was charged so far")
        kept = tuple(
            _kept(path, config, number, snapshot, folder)
            for number, (path, config) in enumerate(declared.items(), 1)
        )
        own = {"folder": folder, "program": version("clusterdp"), "experiments": kept}
        made = taken(Backup, snapshot, **own)
        seal(made)
    unnamed = snapshot.experiments - {one.experiment for one in kept}
    return BackupResult(place, replace(made, folder=place), tuple(sorted(unnamed)))


def _kept(
    path: Path, config: Declared, number: int, snapshot: Snapshot, folder: Path
) -> KeptExperiment:
    configuration = f"configuration-{number}.toml"
    write_private(folder / configuration, read_small(path, _LARGEST))
    keys = {}
    for place, (name, content) in enumerate(read_keys(config, snapshot.begun).items(), 1):
        keys[name] = f"key-{number}-{place}"
        write_private(folder / keys[name], content)
    return KeptExperiment(shelf_of(config).experiment, configuration, keys)
