"""Where published files lie that a ledger has charges for, and what each of them says it cost.

Of an experiment these are its releases, DuckDB files with a ``latest.duckdb`` beside them; of a
site its reports, and of effect models these themselves, JSON documents both.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from flows.config.kinds import kind_of
from flows.config.model.declared import Declared
from flows.ledger.database import Ledger
from flows.ledger.rules import Marks, UnknownRelease, Withdrawal
from flows.released.checksums import SUMS, renew_sums
from flows.released.file.draft import LATEST, point_latest, published
from flows.released.lists import PRUNED, Known, Lists, PrunedRelease, named, read_lists
from flows.runtime import clock
from flows.runtime.reading.regular_files import digest_of
from flows.schedule.periods import Schedule
from privatizers.accounting.budget import Budget, of_group
from schemas.errors import ClusterdpError, ConflictError, InputError, shown
from schemas.names import ReleaseName

if TYPE_CHECKING:
    from flows.released.shelved import StoreShelf
    from flows.runtime.paths import Address
    from flows.runtime.signatures import Sign


@dataclass(frozen=True)
class Shelf:
    """The published releases, or effect models, of one experiment, or the reports of a site."""

    directory: Path
    experiment: str
    """The first part of their names; of a site ``EXPERIMENT@SITE``, of effect models
    ``EXPERIMENT+cate``."""
    suffix: str
    has_latest: bool
    """Whether a link beside them names the newest."""
    read: Callable[[Path], tuple[str, Budget]]
    """Reads the id and the cost that stand in a file; raises InputError."""
    signing_key: Path | None = None
    """Where the key is that signs lists beside them; None where they are not signed."""
    calendar: Schedule | None = None
    """When they are due; None where no schedule is declared."""
    store: "StoreShelf | None" = None
    """Where they are put up; None where they stay in the folder."""

    def names(self) -> list[ReleaseName]:
        """What is published, by period, then revision."""
        return published(self.directory, self.experiment, self.suffix)

    def check_known(self, ledger: Ledger) -> None:
        """Raise ConflictError where a file has the name of a release that was never charged.

        Nobody of this ledger has drawn it, or the ledger was lost: either way a person has to look.
        The folder is looked at first, so that what is being published now is not among them.
        """
        names = self.names()
        charged = ledger.known(self.experiment) if names else ()
        strays = [str(self.path_of(name)) for name in names if name.release_id not in charged]
        if strays:
            raise ConflictError(not_drawn(strays))

    def renew_beside(self, known: Callable[[], Known], sign: "Sign | None" = None) -> list[str]:
        """Bring what lies beside published files up to date; gives warnings.

        All of it is made of what the ledger has ``known``, and of no file that is there. Each run
        does, as the one before may have been killed just before it. No failure of it stops a
        release, which is public by then.
        """
        directory = self.directory
        if not self.has_latest or not (self.names() or (directory / SUMS).exists()):
            return []  # reports of sites are sent away; a list beside them would be taken for one
        warnings: list[str] = []
        steps: dict[str, Callable[[], list[str] | None]] = {
            LATEST: lambda: point_latest(directory, lambda: known().latest),
            SUMS: lambda: renew_sums(directory, known, sign),
        }
        for name, renew in steps.items():
            try:
                warnings += renew() or []
            except OSError as error:
                problem = error.strerror or type(error).__name__
            except ClusterdpError as error:
                problem = str(error)
            else:
                continue
            warnings.append(
                f"{directory / name}: was not renewed, which the next run does ({problem})"
            )
        return warnings

    def beyond(self, known: Collection[str], names: Sequence[ReleaseName]) -> list[UnknownRelease]:
        """What was published that is not ``known``: of these files, and those that were pruned."""
        unknown = [name for name in names if name.release_id not in known]
        if not self.has_latest:
            return [self.read_stray(name) for name in unknown]
        lists = read_lists(self.directory)
        there = [name for name in unknown if name.release_id not in lists.pruned]
        pruned = [one for one in lists.pruned.values() if one.release_id not in known]
        return [
            *(self.read_stray(name, lists) for name in there),
            *(self._pruned(one, lists) for one in pruned),
        ]

    def marks(self) -> dict[str, Marks]:
        """What a ledger notes of releases that lists beside them name, by release id."""
        if not self.has_latest:
            return {}
        lists = read_lists(self.directory)
        listed = {*lists.withdrawn, *lists.pruned}
        return {release_id: _marks(release_id, lists) for release_id in listed}

    def path_of(self, name: ReleaseName) -> Path:
        """Where a file of that name lies."""
        return self.directory / f"{name.release_id}{self.suffix}"

    def _pruned(self, one: PrunedRelease, lists: Lists) -> UnknownRelease:
        """A release that was paid for, and whose file is gone on purpose."""
        name = ReleaseName.parse(one.release_id)
        if name is None or name.experiment != self.experiment:
            raise InputError(
                f"{self.directory / PRUNED}: names {shown(one.release_id)}, which is no release of "
                f"{self.experiment!r}; nothing was done. Put the list back from a copy, and run "
                "again"
            )
        path = self.path_of(name)
        digest = {} if one.sha256 is None else {"file_sha256": one.sha256}
        marks = {**_marks(one.release_id, lists), **digest}
        return UnknownRelease(name, Budget(one.epsilon, one.delta), path, marks)

    def read_stray(self, name: ReleaseName, lists: Lists | None = None) -> UnknownRelease:
        """Read what a file says it cost that no charge is known of; InputError if it is none.

        ``lists`` say which releases were withdrawn.
        """
        path = self.path_of(name)
        try:
            stated, cost = self.read(path)
        except InputError as error:
            problem = str(error)
        else:
            if stated == name.release_id:
                marks = {} if lists is None else _marks(stated, lists)
                return UnknownRelease(name, cost, path, {**marks, "file_sha256": digest_of(path)})
            problem = f"{path}: says that it is {stated}"
        raise InputError(
            f"{problem}. It has the name of a release of {name.experiment!r} that the ledger does "
            "not know, so it would have to be charged; nothing was done. Move it out of the folder "
            "if it is none, or put the whole file back from a copy, and run again"
        )


def not_drawn(paths: Sequence[str]) -> str:
    """That files have names of releases that the ledger knows nothing of, and what to do."""
    which, they = ("this file", "it is") if len(paths) == 1 else ("these files", "they are")
    return (
        f"{named(paths)}: the ledger knows nothing of {which}, so {they} neither believed nor "
        "charged, and nothing was done. If somebody has put it there, move it out of the folder. "
        "If the ledger was lost, or an older one put back, see that no file is missing and charge "
        "for what is there: clusterdp restore (see docs/runbooks.md)"
    )


def _marks(release_id: str, lists: Lists) -> Marks:
    """What a ledger notes of a release that was withdrawn or pruned, as lists beside it say."""
    marks: dict[str, datetime | Withdrawal] = {}
    if (withdrawn := lists.withdrawn.get(release_id)) is not None:
        marks["withdrawal"] = Withdrawal(withdrawn.reason, _moment(withdrawn.withdrawn_at))
    if (pruned := lists.pruned.get(release_id)) is not None:
        marks["pruned_at"] = _moment(pruned.pruned_at)
    return marks


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return clock.now()


def shelf_of(config: Declared) -> Shelf:
    """Return where the releases, the reports or the models of a configuration lie."""
    kind, store = kind_of(config), config.store
    return Shelf(
        config.releases,
        config.series,
        kind.suffix,
        kind.has_latest,
        kind.read or _release,
        config.signing_key_path,
        config.calendar,
        None if store is None else _in_store(store, kind.suffix, has_lists=kind.has_latest),
    )


def _in_store(address: "Address", suffix: str, *, has_lists: bool) -> "StoreShelf":
    from flows.released.shelved import StoreShelf  # noqa: PLC0415 - most stay in their folder

    return StoreShelf(address, suffix, has_lists)


def _release(path: Path) -> tuple[str, Budget]:
    from flows.released.file.read import read_release  # noqa: PLC0415 - DuckDB, hardly ever

    manifest = read_release(path).manifest
    cost = Budget(manifest.epsilon, manifest.delta)
    return manifest.release_id, of_group(cost, manifest.rows_each or 1)
