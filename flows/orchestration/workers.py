"""Work in parts, shared out to Dask's workers as Prefect tasks, here or on other machines.

What is sent is a part's *description*: paths, numbers of rows, declared grids, names of arms and
clusters, tables that a mechanism drew, a configuration without its ledger; and, by Prefect itself,
the flow's parameters and Prefect's settings, an API key among them. Rows, levels and counts go
through files of the run's private folder, and what comes back are names of such files, numbers of
rows, and errors without rows (:func:`~flows.raw.boundary.guard.values_free`). Nothing of tasks is
kept, as of steps. A task that is begun twice, because its worker was thought lost, leaves a second
file that nobody reads; Prefect is told of states and is not asked for them, so it refuses none.
"""

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from flows.orchestration.quiet_end import end_quietly
from flows.orchestration.states import running_flow
from flows.orchestration.step import as_task
from flows.runtime.progress import Progress
from schemas.errors import ClusterdpError, ConfigError

R = TypeVar("R")

_KEY = "run.workers"
_PATIENCE = 300.0  # seconds without any worker; those that were lost may be replaced meanwhile
_CONNECTING = "60s"
_SILENCE = "600s"  # after which a connection counts as lost
_LOOKING = 1.0  # seconds between two looks whether anybody is there


def run_on_workers(
    runner: Any,
    function: Callable[..., R],
    calls: Sequence[tuple[Any, ...]],
    *,
    what: str,
    rows: Sequence[int],
) -> list[R]:
    """Call ``function`` with each of ``calls`` on Dask, as Prefect tasks; the results, in order.

    Args:
        runner: What :func:`task_runner` gives.
        function: What to call; workers import it by its name.
        calls: Its arguments, to be pickled: no rows, and no outcome.
        what: What is done, for people to read.
        rows: How many each of the calls works on.

    Where a worker is lost, others do again what it was to do. Raises what ``function`` raises, and
    ConfigError where the scheduler or all workers go away, or workers die of a part again and
    again.
    """
    with runner.client.as_current(), Progress(what, sum(rows)) as progress:
        names = inspect.signature(function).parameters
        with _same_server() as server:
            task = as_task(function)
            futures = [
                runner.submit(task, parameters=dict(zip(names, call, strict=True)))
                for call in calls
            ]
        results: dict[int, R] = {}
        on_dask = [future.wrapped_future for future in futures]
        for position in _as_they_end(on_dask, runner.client):
            results[position] = _result(futures[position], server)
            on_dask[position].release()  # or Dask would do it again, should this worker die
            progress.advance(rows[position])
    return [results[position] for position in range(len(calls))]


@contextmanager
def _same_server() -> Iterator[str]:
    """Let tasks tell the flow's own server of themselves, and none start one for itself."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    running = running_flow()
    if running is None:
        yield "their own"
        return
    url = str(running.client.api_url).rstrip("/")
    with temporary_settings({PREFECT_API_URL: url}):
        yield url


def _as_they_end(futures: Sequence[Any], client: Any) -> Iterator[int]:
    """Yield the position of each of Dask's futures when it has ended, well or not.

    Raises ConfigError where nobody is left to work on them.
    """
    from distributed import client as of_dask

    wait: Any = of_dask.wait  # has no types
    waiting = {future: position for position, future in enumerate(futures)}
    alone_since: float | None = None
    while waiting:
        done: set[Any] = set()
        lost = anybody = False
        try:
            with suppress(TimeoutError):
                done = wait(list(waiting), timeout=_LOOKING, return_when="FIRST_COMPLETED").done
            anybody = bool(done or client.scheduler_info(n_workers=1)["workers"])
        except (CancelledError, OSError):
            lost = True
        lost = lost or client.status != "running"
        if lost:
            raise ConfigError(_KEY, "the Dask scheduler went away; run again when it is back")
        for future in done:
            yield waiting.pop(future)
        if anybody:
            alone_since = None
        elif alone_since is None:
            alone_since = time.monotonic()
        elif time.monotonic() - alone_since > _PATIENCE:
            raise ConfigError(_KEY, "the Dask scheduler has no workers left; start some, run again")


def _result(future: Any, server: str) -> Any:
    """What a task came to; what went wrong with Dask or Prefect itself in our words."""
    from distributed.scheduler import KilledWorker

    try:
        return future.result()
    except ClusterdpError:
        raise
    except KilledWorker:
        problem = (
            "workers died of the same part again and again; a lower run.memory_limit makes "
            "parts smaller"
        )
    except Exception as error:
        problem = (
            f"a worker failed with {type(error).__name__}; workers need the clusterdp, Python and "
            "libraries of this machine, each in the same version, and to reach Prefect's server "
            f"({server}; set PREFECT_API_URL to one that they reach)"
        )
    raise ConfigError(_KEY, problem)


@contextmanager
def task_runner(workers: int | str, folder: Path) -> Iterator[Any]:
    """Prefect's task runner for Dask, ready for work.

    ``workers`` are so many processes of this machine, or the address of a scheduler; ``folder`` is
    the run's private one, for what such processes leave about. Raises ConfigError where Dask is
    not installed or no scheduler answers.
    """
    try:
        import dask
        from prefect_dask.task_runners import DaskTaskRunner
    except ImportError:
        installed = False
    else:
        installed = True
    if not installed:
        raise ConfigError(_KEY, 'install clusterdp with its extra "distributed" first')
    if isinstance(workers, str):
        check_address(workers)
        runner = DaskTaskRunner(address=workers, client_kwargs={"timeout": _CONNECTING})
    else:
        from distributed import SpecCluster

        local = _processes(workers, folder)
        runner = DaskTaskRunner(cluster_class=SpecCluster, cluster_kwargs=local)
    settings: dict[str, Any] = {
        f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker")
    }
    # A machine may be busy for long; whoever is gone for good closes the connection.
    settings |= {
        "distributed.comm.timeouts.tcp": _SILENCE,
        "distributed.comm.timeouts.connect": _CONNECTING,
    }
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        try:
            stack.enter_context(runner)
            client = runner.client  # this is what looks for the scheduler
            unreachable = False
        except (OSError, ValueError, TypeError):  # nobody there; no address; no keys for TLS
            unreachable = True
        if unreachable:
            raise ConfigError(
                _KEY,
                f"no Dask scheduler answers at {str(workers)!r}; Dask's settings have to name the "
                "keys (distributed.comm.tls)",
            )
        if isinstance(workers, int):
            client.run(end_quietly)
        yield runner


def check_address(address: str) -> None:
    """Raise ConfigError where the way to a scheduler is not encrypted both ways.

    Without TLS a scheduler takes code from anybody who reaches it, and runs it on all workers.
    """
    if not address.startswith("tls://"):
        raise ConfigError(
            _KEY,
            f"{address!r} has to be tls://host:port; without TLS whoever reaches the scheduler can "
            "run code as you",
        )


def _processes(number: int, folder: Path) -> dict[str, Any]:
    """A scheduler and workers of this machine, that nobody else can speak to.

    Dask does whatever it is told by anyone who reaches it; so these reach each other by keys made
    for the run, on the loopback interface, and have no pages. What they leave about is in
    ``folder``. How much memory a part takes is the run's business, not Dask's.
    """
    from distributed import Nanny, Scheduler
    from distributed.security import Security

    keys = Security.temporary()  # type: ignore[no-untyped-call] # has no types
    common = {
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": keys,
        "dashboard": False,
        "dashboard_address": "127.0.0.1:0",
    }
    own = {"nthreads": 1, "memory_limit": 0, "local_directory": str(folder)}
    return {
        "scheduler": {"cls": Scheduler, "options": {**common, "port": 0}},
        "workers": {place: {"cls": Nanny, "options": common | own} for place in range(number)},
        "security": keys,
    }
