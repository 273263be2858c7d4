"""What lies beside published files and follows them: ``latest.duckdb``, lists, their digests."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from flows.ledger.shelves.shelf import Shelf
from flows.released.checksums import SUMS, renew_sums
from flows.released.file.draft import LATEST, point_latest
from flows.released.lists import Known
from schemas.errors import ClusterdpError

if TYPE_CHECKING:
    from flows.runtime.signatures import Sign


def renew_beside(shelf: Shelf, known: Callable[[], Known], sign: "Sign | None" = None) -> list[str]:
    """Bring what lies beside published files up to date; gives warnings.

    All of it is made of what the ledger has ``known``, and of no file that is there. Each run does,
    as the one before may have been killed just before it. No failure of it stops a release, which
    is public by then.
    """
    directory = shelf.directory
    if not shelf.has_latest or not (shelf.names() or (directory / SUMS).exists()):
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
        warnings.append(f"{directory / name}: was not renewed, which the next run does ({problem})")
    return warnings
