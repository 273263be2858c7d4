"""Restoring: a ledger and keys put back from a backup, so that never less is said to be spent.

See :mod:`flows.operate.copies.reconcile` for what is charged of releases that were published after
the backup was taken, and docs/runbooks.md for why that is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flows.config.load import load_any
from flows.config.model.declared import Declared
from flows.ledger.account import resolve_charge
from flows.ledger.database import Ledger
from flows.ledger.place import ledger_url, only_place
from flows.ledger.rules import Entry, spent
from flows.ledger.shelves.shelf import shelf_of
from flows.ledger.tables import POPULATIONS, select, unfinished
from flows.operate.copies.folder import Backup, open_backup
from flows.operate.copies.keys import ACCOUNT, check_account_key, key_paths, read_kept
from flows.operate.copies.reconcile import Found, Payer, reconcile
from flows.operate.copies.refill import is_there_whole, loaded, refill
from flows.released.file.draft import at_work
from flows.runtime import clock
from flows.runtime.paths import Paths, each_path
from flows.runtime.reading.key_files import put_key
from privatizers.accounting.budget import Budget
from schemas.errors import ConfigError, ConflictError, shown
from schemas.names import ReleaseName

_NAMED = 20  # releases that a refusal names


@dataclass(frozen=True)
class RestoreResult:
    """What was put back, and what was charged for what happened since."""

    ledger: str
    is_new: bool
    """Whether the ledger was put back; else one with all its charges was there."""
    made_at: datetime | None
    """When the backup was taken; None without one."""
    found: Found
    keys: dict[Path, bool]
    """Whether each key was put back; else the same one was there."""
    spent: dict[str, Budget]
    """The most that a member of each population has paid now, by the ledger that was put back."""
    notes: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know."""
        found = self.found
        told = {
            "was published, and the ledger did not know it: everybody in its population pays for "
            "it, as nobody knows who is in it": found.entered,
            "may have been published, and its file is there: everybody in its population pays for "
            "it": found.widened,
            "may have been published and seen, and its file is gone; its charge stays (lost)": (
                found.lost
            ),
            "was published and its file is gone; its charge stays": found.without_file,
        }
        return (*self.notes, *(f"{one} {why}" for why, names in told.items() for one in names))

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp restore --json``."""
        found = self.found
        return {
            "ledger": self.ledger,
            "status": "restored" if self.is_new else "there already",
            "made_at": self.made_at and f"{self.made_at:%Y-%m-%dT%H:%M:%SZ}",
            "charged_to_everybody": [*found.entered, *found.widened],
            "published": list(found.published),
            "lost": list(found.lost),
            "without_file": list(found.without_file),
            "keys": [
                {"path": str(path), "status": "restored" if is_new else "there already"}
                for path, is_new in self.keys.items()
            ],
            "populations": [
                {"population": name, "spent_epsilon": each.epsilon, "spent_delta": each.delta}
                for name, each in self.spent.items()
            ],
        }


def restore(
    folder: str | Path | None,
    configs: Paths,
    *,
    lost: Sequence[str] = (),
    complete: bool = False,
) -> RestoreResult:
    """Put a ledger and keys back from a backup, so that never less is said to be spent.

    Stable besides: ``warnings``. ConflictError where another ledger, key or run is in the way; what
    was there stays as it is then.

    Args:
        folder: The backup; without one, what is published and not in the ledger is charged to it.
        configs: Those of all experiments that use the ledger; it goes where they say.
        lost: Ids of releases that may have been published since, and whose files are gone.
        complete: That no other was published since but those, and those whose files are there.
            Without it nothing is put back.
    """
    backup = None if folder is None else open_backup(Path(folder).absolute())
    declared = [load_any(path) for path in each_path(configs)]
    url = only_place(ledger_url(one.ledger.url, one.directory) for one in declared)
    if url is None:
        raise ConfigError("CONFIG", "these use several ledgers; restore each by itself")
    ledger = Ledger(url)
    payers = [Payer(shelf_of(one), one.population, one.charged) for one in declared]
    names = [_lost_name(one) for one in lost]
    if backup is None:
        return _charge_what_is_there(ledger, declared, payers, names, complete=complete)
    with loaded(backup) as source:
        keys = _keys(backup, declared, source)
        if is_there_whole(ledger, backup, source):
            put = _put_keys(keys)
            return RestoreResult(str(ledger), False, backup.made_at, Found(), put, {})
        _check_nobody_works(payers)
        found = reconcile(source, payers, names)
        notes = _notes(backup, source, payers)
        if not complete:
            of = f"The backup is of {backup.made_at:%Y-%m-%d %H:%M} UTC. "
            raise _to_be_said(of, select(source, sa.true()), declared, payers, notes)
        put = _put_keys(keys)
        refill(ledger, backup, source)
        spent_by = _spent(source)
    return RestoreResult(str(ledger), True, backup.made_at, found, put, spent_by, notes)


def _charge_what_is_there(
    ledger: Ledger,
    configs: Sequence[Declared],
    payers: Sequence[Payer],
    lost: Sequence[ReleaseName],
    *,
    complete: bool,
) -> RestoreResult:
    _check_nobody_works(payers)
    if not complete:
        with ledger.reading() as known:
            entries = [] if known is None else select(known, sa.true())
        raise _to_be_said("", entries, configs, payers, ())
    ledger.settle(resolve_charge)
    with ledger.alone() as connection:
        for entry in unfinished(connection):
            raise ConflictError(
                f"{entry.name.release_id} is being released on {entry.host}; nothing was changed. "
                "Wait for it, or, if you know that run to be dead: clusterdp ledger CONFIG "
                f"--abandon {entry.name.release_id}"
            )
        found = reconcile(connection, payers, lost, is_copy=False)
        return RestoreResult(str(ledger), False, None, found, {}, _spent(connection))


def _lost_name(release_id: str) -> ReleaseName:
    name = ReleaseName.parse(release_id)
    if name is None:
        raise ConfigError("--lost", f"{shown(release_id)} is no release id: EXPERIMENT.PERIOD.rN")
    return name


def _keys(
    backup: Backup, configs: Sequence[Declared], source: sa.Connection
) -> dict[Path, tuple[str, bytes]]:
    query = sa.select(POPULATIONS.c.population, POPULATIONS.c.key_fingerprint)
    begun = {str(name): str(key) for name, key in source.execute(query)}
    kept_of = {one.experiment: one for one in backup.experiments}
    found: dict[Path, tuple[str, bytes]] = {}
    for config in configs:
        kept = kept_of.get(shelf_of(config).experiment)
        if kept is None:  # it was begun later
            continue
        contents = {key: read_kept(backup.folder / file) for key, file in kept.keys.items()}
        check_account_key(config, contents.get(ACCOUNT), begun)
        for key, path in key_paths(config).items():
            if key not in contents:
                continue
            place, content = path.resolve(), contents[key]
            is_another = place.exists() and read_kept(place) != content
            if is_another or found.get(place, (key, content))[1] != content:
                raise _another_key(place, key)
            found[place] = key, content
    return found


def _put_keys(keys: dict[Path, tuple[str, bytes]]) -> dict[Path, bool]:
    done = {}
    for path, (key, content) in keys.items():
        done[path] = not path.exists()
        if not put_key(path, content):
            raise _another_key(path, key)
    return done


def _another_key(path: Path, key: str) -> ConflictError:
    return ConflictError(
        f"{key}: {path} is there, or another CONFIG's, and is another key than that of the backup; "
        "no key is ever overwritten. Move it away, or name another place, and run again"
    )


def _check_nobody_works(payers: Sequence[Payer]) -> None:
    for payer in payers:
        if at_work(payer.shelf.directory):
            raise ConflictError(
                f"a run of {payer.shelf.experiment} is at work, which was charged in the ledger "
                "that is to be replaced; nothing was changed. Wait for it, or stop it, and let "
                "none begin"
            )


def _notes(backup: Backup, source: sa.Connection, payers: Sequence[Payer]) -> tuple[str, ...]:
    named = {payer.shelf.experiment for payer in payers}
    there = {entry.name.experiment for entry in select(source, sa.true())}
    kept = {one.experiment for one in backup.experiments}
    unnamed = (
        f"the backup has charges of {shown(name)}, whose CONFIG was not named: if it published "
        "since, its next run is refused until restore is called for it, too (--without-backup)"
        for name in sorted(there - named)
    )
    later = (
        f"{name} is not in the backup: it has no key for it, and all that it published is charged "
        "to everybody"
        for name in sorted(named - kept)
    )
    return (*unnamed, *later)


def _to_be_said(
    of: str,
    entries: Sequence[Entry],
    configs: Sequence[Declared],
    payers: Sequence[Payer],
    notes: tuple[str, ...],
) -> ConfigError:
    charged = {(entry.name.experiment, entry.name.period) for entry in entries if entry.counts}
    now = clock.now()
    missing = []
    for config in configs:
        schedule = config.calendar
        if schedule is not None:
            missing += [
                ReleaseName(config.experiment, day.isoformat(), 1).release_id
                for day in schedule.begun(now)
                if schedule.due_at(day) <= now
                and (config.experiment, day.isoformat()) not in charged
            ]
    folders = ", ".join(str(payer.shelf.directory) for payer in payers)
    more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
    listed = f"{', '.join(missing[:_NAMED])}{more}"
    return ConfigError(
        "--complete",
        f"nothing was changed yet. {of}What was published beyond it is charged by the files in "
        f"{folders}, and nobody but you can know of files that were there and are gone. "
        + (f"Due, and neither charged nor there: {listed}. " if missing else "")
        + "Name each that may have been published with --lost RELEASE_ID (everybody pays for it), "
        "then say with --complete that there are no others"
        + "".join(f". Note: {note}" for note in notes),
    )


def _spent(source: sa.Connection) -> dict[str, Budget]:
    entries = select(source, sa.true())
    return {name: spent(entries, name) for name in sorted({one.population for one in entries})}
