"""What lies beside published files and follows them: ``latest.duckdb``, lists, their digests."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from flows.ledger.database import Ledger
from flows.ledger.digests import digests
from flows.ledger.shelf import Shelf
from flows.released.checksums import SUMS, renew_sums
from flows.released.file.draft import LATEST, point_latest
from flows.released.lists import Lists, contents_of, read_lists
from schemas.errors import ClusterdpError

if TYPE_CHECKING:
    from flows.runtime.signatures import Sign


def renew_beside(
    shelf: Shelf, ledger: Ledger, said: Callable[[], Lists], sign: "Sign | None" = None
) -> list[str]:
    """Bring what lies beside published files up to date; gives warnings.

    ``said`` is what the ledger has to say of releases. Each run does, as the one before may have
    been killed just before it. No failure of a list stops a release, which is public by then.
    """
    directory = shelf.directory
    if not shelf.has_latest or not (shelf.names() or (directory / SUMS).exists()):
        return []  # reports of sites are sent away; a list beside them would be taken for one

    def left_out() -> set[str]:
        with suppress(ClusterdpError):
            return said().left_out
        return read_lists(directory).left_out  # as far as it goes without the ledger

    def names() -> list[str]:
        pruned = said().pruned
        found = (name.release_id for name in shelf.names())
        return [f"{one}{shelf.suffix}" for one in found if one not in pruned]

    def known() -> dict[str, str]:
        found = digests(ledger, shelf.experiment)
        return {f"{name}{shelf.suffix}": digest for name, digest in found.items()}

    warnings = []
    try:
        point_latest(directory, shelf.experiment, left_out)
    except ClusterdpError as error:
        warnings.append(f"{directory / LATEST}: was not renewed, which the next run does ({error})")
    try:
        return warnings + renew_sums(directory, names, known, sign, lambda: contents_of(said()))
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except ClusterdpError as error:
        problem = str(error)
    return [*warnings, f"{directory / SUMS}: was not renewed, which the next run does ({problem})"]
