"""What is said of releases beside them: ``withdrawn.json``, ``pruned.json``, ``closed.json``.

Each is there only where it has something to say. Every run makes them anew from the ledger, with
``SHA256SUMS``, which has their digests. Whoever reads a release looks here, too: a release never
changes, so nothing in its own file can say that it was withdrawn since.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeVar

from flows.runtime.reading.regular_files import is_link
from flows.runtime.reading.small_files import UnreadableError, read_small_text
from flows.runtime.terminal import shown
from schemas.documents import OpenDocument, parsed_as
from schemas.errors import InputError
from schemas.json_text import parsed
from schemas.names import ReleaseName
from schemas.visible import visible

WITHDRAWN = "withdrawn.json"
PRUNED = "pruned.json"
CLOSED = "closed.json"
LISTS = (WITHDRAWN, PRUNED, CLOSED)

LONGEST_REASON = 500
"""Characters of a reason."""
_LARGEST = 100_000_000  # bytes: a thousand years of nights
_SHOWN = 3  # releases that a note names
_MOST_DAYS = 100_000


@dataclass(frozen=True)
class WithdrawnRelease(OpenDocument):
    """A release that is not to be used any more, as its operator says."""

    release_id: str
    withdrawn_at: str
    """UTC, such as ``2026-11-20T03:15:00Z``."""
    reason: str
    """The operator's words."""

    @property
    def warning(self) -> str:
        """What whoever reads the release has to know."""
        reason = visible(self.reason[:LONGEST_REASON])
        return (
            f"{shown(self.release_id)} was withdrawn on {shown(self.withdrawn_at[:10])}: {reason}"
        )


@dataclass(frozen=True)
class PrunedRelease(OpenDocument):
    """A release whose file was removed as too old: it was public, and is paid for."""

    release_id: str
    pruned_at: str
    """UTC, such as ``2026-11-20T03:15:00Z``."""
    epsilon: float
    """What it was charged for: a ledger that is made anew enters it by that."""
    delta: float
    sha256: str | None
    """Of its file; None where nobody knew it."""


@dataclass(frozen=True)
class Closing(OpenDocument):
    """An experiment whose last period is done."""

    experiment: str
    first_period: str
    last_period: str
    n_periods: int
    """How many periods its schedule has."""
    not_published: tuple[str, ...]
    """Those of them that have no release to be read: their files are gone, or altered."""
    withdrawn: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    """Published, and their files removed as too old."""
    elsewhere: tuple[str, ...] = ()
    """Published into another folder than this one."""

    @property
    def n_published(self) -> int:
        """How many of its periods have a release that is to be used."""
        return self.n_periods - len(self.not_published) - len(self.withdrawn)

    @property
    def here(self) -> list[str]:
        """The periods that have a release in this folder."""
        first = date.fromisoformat(self.first_period)
        days = ((first + timedelta(one)).isoformat() for one in range(self.n_periods))
        without = {*self.not_published, *self.withdrawn, *self.pruned, *self.elsewhere}
        return [day for day in days if day not in without]

    @property
    def in_words(self) -> str:
        """How it ended, as people are told it."""
        others = {
            "withdrawn": self.withdrawn,
            "lost": self.not_published,
            "pruned since": self.pruned,
            "in another folder": self.elsewhere,
        }
        told = "".join(f", {what} {named(which)}" for what, which in others.items() if which)
        return (
            f"ended with {shown(self.last_period)}: {self.n_published:,} of {self.n_periods:,} "
            f"periods published{told}"
        )


@dataclass(frozen=True)
class Lists:
    """What is said beside releases of some of them; by release ids."""

    withdrawn: Mapping[str, WithdrawnRelease] = field(default_factory=dict)
    pruned: Mapping[str, PrunedRelease] = field(default_factory=dict)
    closing: Closing | None = None

    @property
    def left_out(self) -> set[str]:
        """Releases that are never the latest."""
        return {*self.withdrawn, *self.pruned}


@dataclass(frozen=True)
class Known:
    """What whoever has drawn releases knows of them, whatever lies in their folder."""

    lists: Lists
    intact: Sequence[ReleaseName]
    """Those whose files are there as they were published, whether or not they are to be used."""
    digests: Mapping[str, str | None]
    """By the names of their files that are there; None of those that are older than digests."""

    @property
    def latest(self) -> str | None:
        """The release of the greatest period, then revision, that is to be used."""
        without = self.lists.left_out
        names = [one.release_id for one in sorted(self.intact) if one.release_id not in without]
        return names[-1] if names else None


def contents_of(lists: Lists) -> dict[str, bytes]:
    """The files, by name, that say so; none where there is nothing to say."""
    documents: dict[str, Any] = {
        name: {"releases": [one.as_json() for _, one in sorted(releases.items())]}
        for name, releases in ((WITHDRAWN, lists.withdrawn), (PRUNED, lists.pruned))
        if releases
    }
    if lists.closing is not None:
        documents[CLOSED] = lists.closing.as_json()
    return {name: f"{json.dumps(one, indent=1)}\n".encode() for name, one in documents.items()}


def read_lists(folder: Path) -> Lists:
    """Read what stands beside the releases in a folder, whoever has put it there.

    Raises InputError, naming the file, where one of them is none of these lists.
    """
    pruned = _releases(folder / PRUNED, PrunedRelease)
    return Lists(_releases(folder / WITHDRAWN, WithdrawnRelease), pruned, read_closing(folder))


def read_withdrawn(folder: Path) -> dict[str, WithdrawnRelease]:
    """The releases that are withdrawn as a folder says; raises InputError as :func:`read_lists`."""
    return _releases(folder / WITHDRAWN, WithdrawnRelease)


def named(release_ids: Iterable[str]) -> str:
    """A few of them, and how many more there are."""
    names = list(release_ids)
    more = len(names) - _SHOWN
    told = ", ".join(shown(name) for name in names[:_SHOWN])
    return told + (f" and {more:,} more" if more > 0 else "")


def reason_problem(reason: str) -> str | None:
    """What keeps a text from being the reason of a withdrawal; None where nothing does."""
    if not reason.strip():
        return "is empty; say why, in words that may be published"
    if not reason.isprintable():
        return "has line breaks or invisible characters; write it in one line"
    if len(reason) > LONGEST_REASON:
        return f"has {len(reason):,} characters; at most {LONGEST_REASON} can be"
    return None


def read_closing(folder: Path) -> Closing | None:
    """What a folder says of the end of its experiment; raises InputError as :func:`read_lists`."""
    path = folder / CLOSED
    document = _document(path)
    if document is None:
        return None
    found = parsed_as(Closing, document, str(path))
    try:
        first, last = (date.fromisoformat(day) for day in (found.first_period, found.last_period))
    except ValueError:
        raise _wrong(path, "how an experiment ended") from None
    if found.n_periods != (last - first).days + 1 or not 0 < found.n_periods < _MOST_DAYS:
        raise _wrong(path, "how an experiment ended")
    return found


R = TypeVar("R", bound=WithdrawnRelease | PrunedRelease)
C = TypeVar("C", bytes, str)


def _releases(path: Path, kind: type[R]) -> dict[str, R]:
    document = _document(path)
    if document is None:
        return {}
    rows = document.get("releases")
    if not isinstance(rows, list):
        raise _wrong(path, "which releases")
    found = [parsed_as(kind, one, f"{path}: releases[{place}]") for place, one in enumerate(rows)]
    for one in found:
        amounts = (one.epsilon, one.delta) if isinstance(one, PrunedRelease) else (0.0,)
        if ReleaseName.parse(one.release_id) is None or min(amounts) < 0.0:
            raise _wrong(path, "which releases")
    return {one.release_id: one for one in found}


def _document(path: Path) -> dict[str, Any] | None:
    content = read_beside(path, read_small_text)
    return None if content is None else parsed(content, str(path), "a list beside releases")


def read_beside(path: Path, read: Callable[[Path, int], C], most: int = _LARGEST) -> C | None:
    """Read a file beside releases, whoever has put it there; None where there is none.

    Raises InputError where ``read`` cannot read it, or where it has more than ``most`` bytes.
    """
    if not path.exists() and not is_link(path):
        return None
    try:
        return read(path, most)
    except UnreadableError as error:
        problem = str(error)
    raise InputError(f"{path}: {problem}")


def _wrong(path: Path, what: str) -> InputError:
    return InputError(
        f"{path}: does not say {what} as a list of clusterdp's does; get it again from where the "
        "releases came from"
    )
