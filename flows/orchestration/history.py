"""The history of the Prefect server of our own beside a configuration: flow runs that have ended.

Prefect's database is Prefect's: runs are removed by its own API, from a server that is started for
it, with the locks that servers of other runs take. Their tasks, states and logs go with them.
"""

import os
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.orchestration.configured import configured_url
from flows.orchestration.prefect_server import prefect_server, shown
from flows.orchestration.prefect_settings import HOME, configure_prefect
from flows.runtime.progress import Progress
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_AT_ONCE = 200  # runs that one question is about; Prefect answers for no more
_LOGS_SECONDS = 30.0  # logs go a moment after their run


def check_own_history() -> None:
    """Raise ConfigError where the history is not that of a server of our own."""
    url = configured_url()
    if url is not None:
        raise ConfigError(
            "retention.prefect",
            "is about the server that runs start themselves, and Prefect is configured for "
            f"{shown(url)}, whose operator prunes it "
            "(PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED). Leave the key out, or unset "
            "PREFECT_API_URL",
        )


def prune_history(config: Path, before: datetime, *, dry_run: bool) -> int:
    """Remove flow runs that ended before a moment; returns how many there were, or were.

    A ``dry_run`` counts alone. No server is started where there is no history. Raises ConfigError
    as :func:`check_own_history`, InputError and ClusterdpError where the server does not start.
    """
    check_own_history()
    home = Path(os.environ.get("PREFECT_HOME") or config.absolute().parent / HOME).expanduser()
    elsewhere = "PREFECT_SERVER_DATABASE_CONNECTION_URL" in os.environ
    if not elsewhere and not (home / "prefect.db").is_file():
        return 0
    configure_prefect(config.absolute().parent)
    with prefect_server() as server:
        server.wait()
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            found = _ended(client, before)
            if not dry_run:
                with Progress("pruning Prefect's history", len(found)) as progress:
                    for place in range(0, len(found), _AT_ONCE):
                        _remove(client, found[place : place + _AT_ONCE], progress)
            return len(found)


def _ended(client: "SyncPrefectClient", before: datetime) -> list[Any]:
    """The ids of runs that ended before a moment; those that have not ended have no end."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterEndTime
    from prefect.client.schemas.sorting import FlowRunSort

    ended = FlowRunFilter(end_time=FlowRunFilterEndTime.model_validate({"before_": before}))
    found: list[Any] = []
    while True:
        runs = client.read_flow_runs(
            flow_run_filter=ended,
            sort=FlowRunSort.END_TIME_DESC,
            limit=_AT_ONCE,
            offset=len(found),
        )
        found += [run.id for run in runs]
        if len(runs) < _AT_ONCE:
            return found


def _remove(client: "SyncPrefectClient", runs: list[Any], progress: Progress) -> None:
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.exceptions import ObjectNotFound

    for run in runs:
        with suppress(ObjectNotFound):  # another prune was faster
            client.delete_flow_run(run)
        progress.advance(1)
    theirs = LogFilter(flow_run_id=LogFilterFlowRunId(any_=runs))
    patience = time.monotonic() + _LOGS_SECONDS
    while client.read_logs(log_filter=theirs, limit=1) and time.monotonic() < patience:
        time.sleep(0.1)
