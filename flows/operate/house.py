"""What the operator's house offers the night: a run is watched, and the series follows it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.config.model.experiment import Config
    from flows.ledger.account import Account
    from flows.ledger.watch import Watch


@contextmanager
def watched(config: "Config", account: "Account", period: str) -> "Iterator[Watch]":
    """Keep and tell what becomes of the run that the block is."""
    from flows.operate.watch.run import watched as watch  # noqa: PLC0415 - once there is a run

    with watch(config, account, period) as found:
        yield found


def renew_series(*of: Any) -> tuple[str, ...]:
    """Bring ``series.duckdb`` up to date: see :func:`flows.operate.series.renew.renew_series`."""
    from flows.operate.series.renew import renew_series as renew  # noqa: PLC0415 - DuckDB

    return renew(*of)
