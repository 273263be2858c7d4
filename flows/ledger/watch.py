"""A run as whoever keeps and tells how it ends sees it."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from flows.config.model.experiment import Config
from flows.ledger.account import Account
from flows.ledger.attempts import OpenAttempt
from flows.runtime import logs
from flows.runtime.houses import offered
from privatizers.noise.randomness import secret_key
from schemas.roster import Roster

_LETTERS = 12  # of a run's identifier, in hexadecimals


@dataclass
class Watch:
    """A run that is watched."""

    run: str = field(default_factory=lambda: secret_key().hex()[:_LETTERS])
    """Its identifier: drawn when it begins. The ledger's charge has it in its working folder."""
    began: OpenAttempt | None = None
    done: tuple[str, Roster, tuple[str, ...]] | None = None
    """The release that it has made, the roster, and metrics of one value."""

    def works_in(self, folder: Path) -> None:
        """Note the working folder of the run."""
        if self.began is not None:
            self.began.works_in(folder)

    def charged(self, release_id: str) -> None:
        """Let the lines that follow name the release; not of one that was there before."""
        logs.learn(release_id=release_id)

    def made(self, release_id: str, roster: Roster, of_one_value: tuple[str, ...] = ()) -> None:
        """Note that a release was published, not one that was there before, and its warnings."""
        self.done = release_id, roster, of_one_value


def watched(config: Config, account: Account, period: str) -> AbstractContextManager[Watch]:
    """A run in the block, watched by the house that offers to."""
    for watch in offered("watched"):
        found: AbstractContextManager[Watch] = watch(config, account, period)
        return found
    return nullcontext(Watch())
