"""What lies beside published files and follows them: ``latest.duckdb``, and the list of digests."""

from typing import TYPE_CHECKING

from flows.ledger.database import Ledger
from flows.ledger.digests import digests
from flows.ledger.shelf import Shelf
from flows.released.checksums import SUMS, renew_sums
from flows.released.file.draft import point_latest
from schemas.errors import ClusterdpError

if TYPE_CHECKING:
    from flows.runtime.signatures import Sign


def renew_beside(shelf: Shelf, ledger: Ledger, sign: "Sign | None" = None) -> list[str]:
    """Bring what lies beside published files up to date; gives warnings.

    Each run does, as the one before may have been killed just before it. No failure of the list
    stops a release, which is public by then.
    """
    if not (shelf.has_latest and shelf.names()):
        return []  # reports of sites are sent away; a list beside them would be taken for one
    point_latest(shelf.directory, shelf.experiment)

    def names() -> list[str]:
        return [f"{name.release_id}{shelf.suffix}" for name in shelf.names()]

    def known() -> dict[str, str]:
        found = digests(ledger, shelf.experiment)
        return {f"{name}{shelf.suffix}": digest for name, digest in found.items()}

    try:
        return renew_sums(shelf.directory, names, known, sign)
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except ClusterdpError as error:
        problem = str(error)
    return [f"{shelf.directory / SUMS}: was not renewed, which the next run does ({problem})"]
