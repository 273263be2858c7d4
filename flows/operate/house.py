"""What the operator's house offers the night: a run is watched, and the series follows it."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.config.model.experiment import Config
    from flows.ledger.account import Account
    from flows.ledger.watch import Watch


def watched(config: "Config", account: "Account", period: str) -> "AbstractContextManager[Watch]":
    """Keep and tell what becomes of the run that the block is."""
    from flows.operate.watch.run import watched as watch

    return watch(config, account, period)


def renew_series(*of: Any) -> tuple[str, ...]:
    """Bring ``series.duckdb`` up to date: see :func:`flows.operate.series.renew.renew_series`."""
    from flows.operate.series.renew import renew_series as renew

    return renew(*of)


def outputs_of_nights(*of: Any) -> list[dict[str, Any]]:
    """What a series says that units' outputs were, for guesses of later nights."""
    from flows.operate.series.renew import read_outputs_of_nights

    return read_outputs_of_nights(*of)
