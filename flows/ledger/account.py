"""What a run does with the ledger: charge, publish, and finish what dead runs left.

The order, which a kill at any moment survives: reserve (charged, durably) → draw and write the
draft → note that it is about to become public → give it its name → note that it is public.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flows.config.experiment import Config
from flows.ledger.database import Found, Ledger, Receipt, Statement, ledger_url
from flows.ledger.rules import (
    OPEN,
    Application,
    Entry,
    Fingerprint,
    State,
    Terms,
    amount_text,
    refuse_early,
)
from flows.released.file.draft import (
    complete,
    draft_in,
    has_name,
    make_public,
    point_latest,
    published,
    sweep,
)
from flows.runtime.working_folders import lock_of_the_dead
from privatizers.accounting.budget import Budget
from schemas.errors import ClusterdpError, InputError
from schemas.released import ReleaseName


@dataclass(frozen=True)
class Charge:
    """One release's charge, or the release that answers already (``is_new`` is false then)."""

    name: ReleaseName
    path: Path
    is_new: bool
    receipt: Receipt
    folder: Path

    @property
    def draft(self) -> Path:
        """The file that is to become the release."""
        return draft_in(self.folder)

    @property
    def statement(self) -> Statement:
        """What the population has paid, this charge included."""
        return self.receipt.statement

    @property
    def warnings(self) -> tuple[str, ...]:
        """That other populations have paid for the same people."""
        return tuple(
            f"exactly these units were released under population {name!r} too, for epsilon "
            f"{amount_text(paid.epsilon)}; whoever is in both has paid the sum. Name one "
            "population for both (privacy.population), so that one budget covers it"
            for name, paid in self.receipt.same_people.items()
        )


class Account:
    """An experiment's dealings with its ledger."""

    def __init__(self, config: Config) -> None:
        """Take the terms from a configuration; nothing is read or made yet."""
        self._config = config
        self._ledger = Ledger(ledger_url(config.ledger.url, config.directory))
        self._terms = Terms(
            experiment=config.experiment,
            population=config.population,
            cost=config.cost,
            limit=config.budget,
        )

    def statement(self) -> Statement:
        """What the population has paid, with all its entries; changes nothing."""
        return self._ledger.statement(self._terms)

    def abandon(self, release_id: str) -> State:
        """Settle an unfinished charge of the experiment, as an operator says; its new state."""
        return self._ledger.abandon(self._terms.experiment, release_id)

    def refuse_early(self, period: str, *, revise: bool) -> None:
        """Raise BudgetError where no log could make the charge fit; changes nothing."""
        refuse_early(self._ledger.entries(self._terms), self._terms, period, revise=revise)

    def reserve(self, period: str, made_from: Fingerprint, folder: Path, *, revise: bool) -> Charge:
        """Charge for a release of ``period``, to be drafted in the working ``folder``.

        Finishes what dead runs left, first. Raises ConflictError and BudgetError; nothing is
        charged then.
        """
        directory, experiment = self._config.releases, self._config.experiment
        asked = Application(self._terms, period, made_from, directory, folder, revise)
        unknown = _unknown_releases(self._ledger, directory, experiment)
        try:
            receipt = self._ledger.reserve(asked, settle, unknown)
        finally:
            if published(directory, experiment):
                point_latest(directory, experiment)  # a run may have been killed just before it
        sweep(directory, keep=receipt.unfinished)
        is_new = receipt.charge is not None
        return Charge(receipt.decision.name, receipt.path, is_new, receipt, folder)

    @contextmanager
    def publishing(self, charge: Charge) -> Iterator[list[str]]:
        """Make the draft public on leaving the block without an error; else give the charge back.

        Gives a list that warnings are put into.
        """
        with publishing(self._ledger, charge) as warnings:
            yield warnings
        point_latest(self._config.releases, self._config.experiment)


@contextmanager
def publishing(ledger: Ledger, charge: Charge) -> Iterator[list[str]]:
    """Make a draft public, and note it in the ledger, or give its charge back (see there)."""
    number = charge.receipt.charge
    if number is None:
        msg = "what is to be published is public already"
        raise AssertionError(msg)
    warnings: list[str] = []
    try:
        yield warnings
        complete(charge.draft)
        ledger.begin_publishing(number)
        make_public(charge.draft, charge.path)
    except BaseException:
        if not has_name(charge.draft, charge.path):  # else the next run notes that it has
            with suppress(ClusterdpError):  # the next run will
                ledger.give_back(number)
                ledger.withdraw(number)
        raise
    try:
        ledger.publish(number)
    except ClusterdpError as error:
        warnings.append(f"{charge.name.release_id} is public, which the next run notes: {error}")


def settle(entry: Entry) -> State:
    """Find out what became of an unfinished charge, and finish it where its run is dead.

    A dead run's reservation is void, as only a run that began to publish can have shown anything.
    What was about to become public is made so now, if it is not, from its draft. Where the run
    lives, or cannot be seen from here, the state stays what it is.
    """
    folder = entry.draft
    if entry.state not in OPEN or folder is None:
        return entry.state
    with lock_of_the_dead(folder) as dead:
        gone_with_its_run = not folder.exists() and entry.host == socket.gethostname()
        if not (dead or gone_with_its_run):
            return entry.state
        return State.VOID if entry.state == State.RESERVED else _finish(entry, draft_in(folder))


def _finish(entry: Entry, draft: Path) -> State:
    """Make public what a dead run was about to."""
    if entry.path.exists():
        return State.PUBLISHED
    if not draft.exists():
        return State.LOST
    try:
        make_public(draft, entry.path)
    except ClusterdpError:  # whatever the reason, another run will try again
        return entry.state
    return State.PUBLISHED


def _unknown_releases(ledger: Ledger, directory: Path, experiment: str) -> list[Found]:
    """List releases in the folder that the ledger has no charge for (another ledger had it, say).

    The folder is looked at first, so a release that is being published now is not among them.
    """
    names = published(directory, experiment)
    known = ledger.known(experiment) if names else set()
    return [_found(directory, name) for name in names if name.release_id not in known]


def _found(directory: Path, name: ReleaseName) -> Found:
    from flows.released.file.read import read_release  # noqa: PLC0415 - DuckDB, hardly ever

    path = directory / f"{name.release_id}.duckdb"
    with told_as_stray(name):
        manifest = read_release(path).manifest
        if manifest.release_id != name.release_id:
            raise InputError(f"{path}: says that it is {manifest.release_id}")
    return Found(name, Budget(manifest.epsilon, manifest.delta), path)


@contextmanager
def told_as_stray(name: ReleaseName) -> Iterator[None]:
    """Where a file of this name cannot be taken for what its name says, say what to do about it.

    What the ledger does not know has to be charged to it, and for that it has to be read.
    """
    try:
        yield
    except InputError as error:
        problem = str(error)
    else:
        return
    raise InputError(
        f"{problem}. It has the name of a release of {name.experiment!r} that the ledger does "
        "not know, so it would have to be charged; nothing was done. Move it out of the folder if "
        "it is none, or put the whole file back from a copy, and run again"
    )
