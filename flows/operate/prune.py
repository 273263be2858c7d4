"""Removing what is older than ``[retention]`` says: rows set aside, leftovers and releases.

Everything is told by public facts: names, ages, and sizes of files that hold no outcome or are
public. What was charged stays charged, and the lists of who is in a release stay with it. Killed at
any moment, the next prune finishes: the ledger notes that a file goes before it goes.
"""

import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flows.config.load import load
from flows.config.model.experiment import Config
from flows.ledger.account import Account
from flows.ledger.rules import OPEN, State
from flows.raw.boundary.guard import errors_as
from flows.raw.spill.workspace import PREFIX
from flows.released.file.draft import WORKING
from flows.runtime import clock, logs
from flows.runtime.files import folder_lock, half_written, sync_directory
from flows.runtime.working_folders import is_alive, sweep
from schemas.documents import Document
from schemas.errors import ConfigError, InputError
from schemas.names import ReleaseName

KINDS = ("quarantine", "spill", "releases", "prefect")
"""The keys of ``[retention]``: what can be pruned, and ``prefect``, which Prefect does itself."""


@dataclass(frozen=True)
class Pruned(Document):
    """What was removed of one kind, or would be."""

    older_than: str
    """As the configuration says it."""
    n: int
    bytes: int | None = None
    """What the files took; None where it may hang on outcomes (leftovers), or is not known."""
    names: tuple[str, ...] | None = None
    """The files; None where they are none."""


@dataclass(frozen=True)
class PruneResult:
    """What was removed, or would be."""

    experiment: str
    dry_run: bool
    kinds: dict[str, Pruned]
    """By the keys of ``[retention]`` that are given."""
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp prune --json``; null for what is not pruned at all."""
        found = {name: self.kinds.get(name) for name in KINDS}
        return {
            "experiment": self.experiment,
            "dry_run": self.dry_run,
            **{name: None if one is None else one.as_json() for name, one in found.items()},
            "warnings": list(self.warnings),
        }


def prune(config: str | Path, *, dry_run: bool = False) -> PruneResult:
    """Remove what is older than ``[retention]`` of a configuration keeps it; charges stay.

    Stable besides: ``warnings``. ``dry_run`` says what would be removed, and removes nothing.
    """
    experiment = load(Path(config))
    if experiment.retention is None:
        raise ConfigError("retention", f"missing in {config}: it says for how long what is kept")
    lengths = experiment.retention.lengths
    work = _Work(experiment, Account.of(experiment), clock.now(), dry_run=dry_run)
    if not dry_run:
        work.warnings += work.account.settle()  # what dead runs left is finished first
    kinds: dict[str, Pruned] = {}
    for name in KINDS:
        if name in lengths:
            kinds[name] = work.prune(name, lengths[name])
            told = kinds[name]
            words = "would be pruned" if dry_run else "pruned"
            logs.tell(logging.INFO, f"{words} of {name}: {told.n:,}")
    return PruneResult(experiment.experiment, dry_run, kinds, tuple(dict.fromkeys(work.warnings)))


class _Work:
    def __init__(self, config: Config, account: Account, now: datetime, *, dry_run: bool) -> None:
        self.account = account
        self.warnings: list[str] = []
        self._config = config
        self._now = now
        self._dry_run = dry_run

    def prune(self, kind: str, length: timedelta) -> Pruned:
        older_than = str(getattr(self._config.retention, kind))
        before = self._now - length
        if kind == "prefect":
            setting = "PREFECT_SERVER_SERVICES_DB_VACUUM_"
            self.warnings.append(
                "retention.prefect: nothing is removed, as Prefect does that itself. Set "
                f"{setting}ENABLED=true and "
                f"{setting}RETENTION_PERIOD={length.total_seconds():.0f} "
                "(seconds) for `clusterdp serve` or your server, and leave the key out"
            )
            return Pruned(older_than, 0)
        if kind == "spill":
            return Pruned(older_than, self._leftovers(before))
        files = self._quarantine(before) if kind == "quarantine" else self._releases(before)
        return Pruned(older_than, len(files), sum(files.values()), tuple(files))

    def _quarantine(self, before: datetime) -> dict[str, int]:
        """Files of rows set aside, but of releases that are being made; their sizes by name."""
        folder = self._config.quarantined
        if not folder.is_dir():
            return {}
        entries = self.account.entries()
        being_made = {one.name.release_id for one in entries if one.state in OPEN}
        files = []
        for path in sorted(folder.glob("*.parquet")):
            name = ReleaseName.parse(path.stem)
            is_ours = name is not None and name.experiment == self._config.experiment
            if is_ours and path.stem not in being_made:
                files.append(path)
        return self._remove(folder, [*half_written(folder), *files], before)

    def _leftovers(self, before: datetime) -> int:
        places = ((self._config.spill_directory, PREFIX), (self._config.releases, WORKING))
        unfinished = self.account.unfinished()  # asked first: what is charged later is no leftover
        folders = [
            path
            for directory, prefix in places
            for path in sorted(directory.glob(f"{prefix}*"))
            if path.is_dir() and path not in unfinished and _written_at(path) < before
        ]  # the time is asked first: to try a lock is a change
        old = [path for path in folders if is_alive(path, socket.gethostname()) is False]
        if self._dry_run:
            return len(old)
        for path in old:
            sweep(path.parent, path.name)
        return sum(not path.exists() for path in old)

    def _releases(self, before: datetime) -> dict[str, int]:
        folder = self._config.releases
        latest, entries = self.account.latest(), self.account.entries()
        chosen = [
            entry
            for entry in entries
            if entry.state == State.PUBLISHED
            and entry.name.release_id != latest
            and (entry.pruned_at is not None or entry.created_at < before)
            and (folder / f"{entry.name.release_id}.duckdb").is_file()
        ]
        if chosen and not self._dry_run:
            self.account.note_pruned([entry.id for entry in chosen])  # from now on they are gone
            self.warnings += self.account.settle()
            self.warnings += self.account.renew_series()  # its rows of them stay
        files = [folder / f"{entry.name.release_id}.duckdb" for entry in chosen]
        return self._remove(folder, files, None)

    def _remove(
        self, folder: Path, paths: Sequence[Path], before: datetime | None
    ) -> dict[str, int]:
        """Remove files, those alone that were written ``before``; their sizes by name.

        Raises InputError where the folder lets nothing be removed.
        """
        if not paths:
            return {}
        removed: dict[str, int] = {}
        plain = errors_as(
            lambda error: InputError(
                f"{folder}: cannot remove files here ({error.strerror}); what is gone stays gone. "
                "Correct the folder's permissions, or look at the disk, and run prune again"
            ),
            OSError,
        )
        with plain, folder_lock(folder):
            for path in paths:
                try:
                    size = path.lstat().st_size
                    if before is not None and _written_at(path) >= before:
                        continue
                    if not self._dry_run:
                        path.unlink()
                except FileNotFoundError:  # another prune was faster
                    continue
                removed[path.name] = size
            if removed and not self._dry_run:
                sync_directory(folder)
        return removed


def _written_at(path: Path) -> datetime:
    """When a file was last written, or a folder last changed; never, where it is gone."""
    try:
        return datetime.fromtimestamp(os.lstat(path).st_mtime, UTC)
    except FileNotFoundError:
        return datetime.max.replace(tzinfo=UTC)
