"""What became of charges and releases since a backup was taken, as far as files can tell.

A ledger that is put back must never say that less was spent than was. It lacks what was charged
after the backup, and does not know how open charges ended. So:

- a published file that it does not know counts for everybody, at what the file says it cost;
- an open charge whose very file (by its digest) is public counts as it was charged;
- an open charge whose very file, or complete draft, is not there counts for everybody, at the
  greater of what is known of its cost: it may have been given back, and its name taken by a release
  of other people. Without any file it is lost: somebody may have seen it;
- a release that was pruned is known to a list beside the others, and counts for everybody; what
  such lists say of releases that are charged, withdrawn or pruned, is noted again;
- a release that was published and whose file is gone is known to a list beside it, or to a person;
  it counts for everybody, as lost. Nobody else can know of it, so a person has to say that there
  is no other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from flows.ledger.members import greatest
from flows.ledger.rules import OPEN, Entry, State, UnknownRelease
from flows.ledger.shelves.shelf import Shelf
from flows.ledger.tables import CHARGES, ENTRY, REGISTERS, insert, row_of, select, update
from flows.released.checksums import SUMS, read_sums, sha256_of
from flows.released.file.draft import draft_in
from privatizers.accounting.budget import Budget
from schemas.errors import ConfigError, InputError, shown
from schemas.names import ReleaseName


@dataclass(frozen=True)
class Payer:
    """An experiment, site or effect models: where its files lie, and who pays what for them."""

    shelf: Shelf
    population: str
    cost: Budget
    """Of a release whose file is gone: what the configuration says one costs."""


@dataclass
class Found:
    """What was found out, by release id."""

    entered: list[str] = field(default_factory=list)
    """Published after the backup: charged to everybody."""
    widened: list[str] = field(default_factory=list)
    """Being made when the backup was taken, and public now: charged to everybody."""
    published: list[str] = field(default_factory=list)
    """About to become public when it was taken, and public now, the very file."""
    lost: list[str] = field(default_factory=list)
    """May have been published; there is no file. Charged all the same."""
    without_file: list[str] = field(default_factory=list)
    """Published before the backup, and charged; their files are gone."""


def reconcile(
    connection: sa.Connection,
    payers: Sequence[Payer],
    lost: Iterable[ReleaseName],
    *,
    is_copy: bool = True,
) -> Found:
    """Charge for all that may have been published since; raises InputError and ConfigError.

    ``lost`` are releases whose files are gone, as a person says. A ledger that is no copy knows
    itself which of its releases were withdrawn or pruned.
    """
    found = Found()
    by_experiment = {payer.shelf.experiment: payer for payer in payers}
    before = [entry for entry in select(connection, sa.true()) if entry.counts]
    known = {entry.name: entry for entry in before}
    files = {name: payer for payer in payers for name in payer.shelf.names()}
    released = {name.release_id for name in known}
    for payer in payers:
        names = [name for name, owner in files.items() if owner is payer]
        for one in payer.shelf.beyond(released, names):
            _check_listed(one)
            _enter(connection, payer.population, one, State.PUBLISHED)
            found.entered.append(one.name.release_id)
            files[one.name] = payer  # or it was pruned, which is known
    copied = payers if is_copy else ()
    marks = {name: each for payer in copied for name, each in payer.shelf.marks().items()}
    for entry in before:
        # Of an experiment that releases into several folders, the one that has the file.
        owner = files.get(entry.name, by_experiment.get(entry.name.experiment))
        path = entry.path if owner is None else owner.shelf.path_of(entry.name)
        mark = marks.get(entry.name.release_id, {})
        is_unknown = entry.state == State.LOST and entry.file_sha256 is None and path.is_file()
        if entry.state in OPEN or is_unknown:
            _settle(connection, entry, owner, path, found)
            continue
        if mark:  # withdrawn, or pruned, since
            same = CHARGES.c.id == entry.id
            connection.execute(sa.update(CHARGES).where(same).values(ENTRY.values(**mark)))
        is_pruned = entry.pruned_at is not None or "pruned_at" in mark
        is_gone = entry.state == State.PUBLISHED and entry.name not in files and not is_pruned
        if is_gone and owner is not None:
            found.without_file.append(entry.name.release_id)
    _enter_lost(connection, by_experiment, lost, {*known, *files}, found)
    _check_lists(payers, {*known, *files}, set(found.lost))
    return found


def _settle(
    connection: sa.Connection, entry: Entry, payer: Payer | None, path: Path, found: Found
) -> None:
    """Say what became of an open charge, by the file that has its name."""
    name = entry.name.release_id
    is_there = path.is_file()
    if is_there and entry.file_sha256 is not None and sha256_of(path) == entry.file_sha256:
        update(connection, entry, State.PUBLISHED)
        found.published.append(name)
        return
    if not is_there and entry.state == State.PUBLISHING and entry.draft is not None:
        draft = draft_in(entry.draft)
        if draft.is_file() and sha256_of(draft) == entry.file_sha256:
            return  # the next run makes it public: it is the very file that was charged
    costs = [entry.cost]
    if payer is not None:
        costs.append(payer.shelf.read_stray(entry.name).cost if is_there else payer.cost)
    update(
        connection,
        entry,
        State.PUBLISHED if is_there else State.LOST,
        cost=greatest(costs),
        file_sha256=sha256_of(path) if is_there else None,
        path=path if is_there else entry.path,
        **dict.fromkeys(("roster", "most", "fingerprint")),  # of rows that may not be the file's
    )
    connection.execute(sa.delete(REGISTERS).where(REGISTERS.c.name == entry.roster))
    (found.widened if is_there else found.lost).append(name)


def _enter_lost(
    connection: sa.Connection,
    by_experiment: dict[str, Payer],
    lost: Iterable[ReleaseName],
    known: set[ReleaseName],
    found: Found,
) -> None:
    for name in lost:
        payer = by_experiment.get(name.experiment)
        if payer is None:
            raise ConfigError(
                "--lost", f"{shown(name.release_id)} is of no experiment whose CONFIG is named"
            )
        if name not in known:
            gone = UnknownRelease(name, payer.cost, payer.shelf.path_of(name))
            _enter(connection, payer.population, gone, State.LOST)
            found.lost.append(name.release_id)


def _check_listed(one: UnknownRelease) -> None:
    """Raise InputError where the list beside a file says that another was published."""
    listed = (read_sums(one.path.parent) or {}).get(one.path.name)
    if listed is not None and "pruned_at" not in one.marks and listed != one.marks["file_sha256"]:
        raise InputError(
            f"{one.path}: is not the file that {SUMS} beside it lists, so nothing was changed. Put "
            "that back from a copy, or move both away if neither is a release"
        )


def _check_lists(payers: Sequence[Payer], known: set[ReleaseName], lost: set[str]) -> None:
    """Raise InputError where a list beside the files names one that is neither there nor known."""
    charged = {name.release_id for name in known} | lost
    for payer in payers:
        directory = payer.shelf.directory
        for file in read_sums(directory) or {}:
            name = ReleaseName.parse(file.removesuffix(payer.shelf.suffix))
            if name is not None and name.release_id not in charged:
                raise InputError(
                    f"{directory / SUMS}: names {shown(file)}, which was published after the "
                    f"backup was taken, and is not there. Put the file back, or charge everybody "
                    f"for it with --lost {name.release_id}"
                )


def _enter(connection: sa.Connection, population: str, one: UnknownRelease, state: State) -> None:
    row = row_of(population, one.name, one.cost, state, one.path)
    insert(connection, row | ENTRY.values(**one.marks))
