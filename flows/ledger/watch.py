"""A run as whoever keeps and tells how it ends sees it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from flows.config.model.experiment import Config
from flows.ledger.account import Account
from flows.runtime.houses import offered
from privatizers.noise.randomness import secret_key
from schemas.roster import Roster

_LETTERS = 12  # of a run's identifier, in hexadecimals


@dataclass
class Watch:
    """A run that is watched."""

    run: str = field(default_factory=lambda: secret_key().hex()[:_LETTERS])
    """Its identifier: drawn when it begins. The ledger's charge has it in its working folder."""
    works_in: Callable[[Path], object] = field(default=lambda _: None)
    """Notes that it is on its way, in a working folder that it holds the lock of."""
    done: tuple[str, Roster, tuple[str, ...]] | None = None
    """The release that it has made, the roster, and metrics of one value."""

    def made(self, release_id: str, roster: Roster, of_one_value: tuple[str, ...] = ()) -> None:
        """Note that a release was published, not one that was there before, and its warnings."""
        self.done = release_id, roster, of_one_value


def watched(config: Config, account: Account, period: str) -> AbstractContextManager[Watch]:
    """A run in the block, watched by the house that offers to."""
    for watch in offered("watched"):
        run: AbstractContextManager[Watch] = watch(config, account, period)
        return run
    return nullcontext(Watch())
