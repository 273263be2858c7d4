"""Work in parts on Dask's workers, here or on other machines.

What is sent is a part's *description*: names of files, positions, declared grids, names of arms and
clusters, tables that a mechanism drew, how the columns of a log are read. Rows, levels, counts and
ids go through files of the run's private folder; what comes back are names of such files, public
numbers of rows, and errors without rows (:func:`~flows.raw.boundary.guard.values_free`). Dask knows
a part by a random name. One that is worked on twice, because its worker was thought lost, leaves a
second file that nobody reads.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from flows.orchestration.quiet_end import end_quietly
from schemas.errors import ClusterdpError, ConfigError, bare

R = TypeVar("R")

_KEY = "run.workers"
_PATIENCE = 300.0  # seconds without any worker; those that were lost may be replaced meanwhile
_CONNECTING = "60s"
_SILENCE = "600s"  # after which a connection counts as lost
_LOOKING = 1.0  # seconds between two looks whether anybody is there
_ASSUMED_WORKERS = 8  # of a scheduler, as those that it has may come and go
_THREADS = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Workers:
    """Workers that are starting or at work."""

    def __init__(self, given: int | str, starting: "Future[Any]") -> None:
        """Note which ones; ``starting`` comes to a client of theirs."""
        self._given = given
        self._starting = starting

    @property
    def number(self) -> int:
        """How many there are, or a guess where somebody else started them."""
        return self._given if isinstance(self._given, int) else _ASSUMED_WORKERS

    def share(self, memory: int) -> int:
        """What each of them may take of the memory of a run: all of it on other machines."""
        return memory // self._given if isinstance(self._given, int) else memory

    def each(self, tasks: Sequence[Callable[[], R]]) -> Iterator[R]:
        """Begin all ``tasks``, callables to be pickled; returns their results, in order.

        Where a worker is lost, others do again what it was to do. Getting a result raises what its
        task raises, if all before it were well, and ConfigError where the scheduler or all workers
        go away, or workers die of a part again and again.
        """
        client = self._starting.result()
        return _results([client.submit(_attempt, task, pure=False) for task in tasks], client)


@dataclass(frozen=True)
class _Attempt(Generic[R]):
    """What a task came to. Dask would log an error that is raised, with all that it was given."""

    result: R | None = None
    failure: ClusterdpError | None = None

    def get(self) -> R:
        """The result; raises the failure where there is one."""
        if self.failure is not None:
            raise self.failure
        return self.result  # type: ignore[return-value] # what the task returned, None included


def _attempt(task: Callable[[], R]) -> _Attempt[R]:
    """Do a task, in a worker."""
    try:
        return _Attempt(task())
    except ClusterdpError as error:
        return _Attempt(failure=bare(error))


def _results(futures: list[Any], client: Any) -> Iterator[Any]:
    """The results in order; those that came early are held, and nothing is done twice for them."""
    ended: dict[int, Callable[[], Any]] = {}
    left = set(range(len(futures)))
    coming = _as_they_end(futures, client)
    try:
        for position in range(len(futures)):
            while position not in ended:
                at = next(coming)
                ended[at] = _kept(futures[at])
                left.remove(at)
                futures[at].release()  # or Dask would do it again, should its worker die
            yield ended.pop(position)()
    finally:
        if left:
            with suppress(Exception):  # the client may be gone
                client.cancel([futures[at] for at in left])


def _kept(future: Any) -> Callable[[], Any]:
    """What gives the result of a future that has ended, or raises its failure."""
    try:
        attempt: _Attempt[Any] = _result(future)
    except ConfigError as error:
        return _Attempt[Any](failure=error).get
    return attempt.get


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
            with suppress(TimeoutError), client.as_current():
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


def _result(future: Any) -> Any:
    """What a task came to; what went wrong with Dask itself in our words."""
    from distributed.scheduler import KilledWorker

    try:
        return future.result()
    except KilledWorker:
        problem = (
            "workers died of the same part again and again; a lower run.memory_limit makes "
            "parts smaller"
        )
    except Exception as error:
        problem = (
            f"a worker failed with {type(error).__name__}; workers need the clusterdp, Python and "
            "libraries of this machine, each in the same version"
        )
    raise ConfigError(_KEY, problem)


@contextmanager
def started_workers(given: int | str, folder: Path) -> Iterator[Workers]:
    """Workers, which start while others work, and are gone when the block ends.

    ``given`` are so many processes of this machine, or the address of a scheduler; ``folder`` is
    the run's private one, for what such processes leave about. Raises ConfigError where Dask is not
    installed or the way to a scheduler is not safe; their first task, where no scheduler answers.
    """
    if isinstance(given, str):
        check_address(given)
    with ExitStack() as stack:
        stack.enter_context(_dask(folder))
        thread = stack.enter_context(ThreadPoolExecutor(1))
        starting = thread.submit(_connected, given, folder, stack)
        try:
            yield Workers(given, starting)
        finally:
            starting.exception()  # what it starts is taken away below, once it is there


@contextmanager
def _dask(folder: Path) -> Iterator[None]:
    """Dask, imported and set up, with ``folder`` for what it leaves about.

    Raises ConfigError where it is not installed.

    It is imported by this thread: two that import at the same time may wait for each other.
    """
    settings: dict[str, Any] = {
        "temporary-directory": str(folder),
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        # A machine may be busy for long; whoever is gone for good closes the connection.
        "distributed.comm.timeouts.tcp": _SILENCE,
        "distributed.comm.timeouts.connect": _CONNECTING,
        "logging.distributed": "error",
        # Nobody looks at what Dask watches its own processes for, some fifty times a second.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "2s",
        "distributed.admin.system-monitor.interval": "10s",
    }
    # Read by libraries when they are imported: a worker is one core's.
    of_workers = {**dict.fromkeys(_THREADS, "1"), "DASK_LOGGING__DISTRIBUTED": "error"}
    settings |= {
        f"distributed.nanny.pre-spawn-environ.{name}": of_workers[name] for name in of_workers
    }
    with ExitStack() as stack:
        try:
            import dask

            with dask.config.set({"logging.distributed": settings["logging.distributed"]}):
                import distributed  # noqa: F401 - by this thread, see above
            # After the import: the defaults that it brings would be gone with what is set before.
            stack.enter_context(dask.config.set(settings))
        except ImportError:
            installed = False
        else:
            installed = True
        if not installed:
            raise ConfigError(_KEY, 'install clusterdp with its extra "distributed" first')
        yield


def _connected(given: int | str, folder: Path, stack: ExitStack) -> Any:
    """A client of the workers; ``stack`` takes them away again.

    Raises ConfigError where no scheduler answers.
    """
    from distributed import Client, Security, SpecCluster

    where: Any = given
    try:
        if isinstance(given, str):  # a client would leave its loop behind
            keys = Security().get_connection_args("client")  # type: ignore[no-untyped-call] # likewise
            if keys["ssl_context"] is None:
                raise ValueError("no keys for TLS")
        if isinstance(given, int):
            where = stack.enter_context(SpecCluster(**_processes(given, folder)))  # type: ignore[no-untyped-call] # has no types
        client: Any = Client(where, timeout=_CONNECTING, set_as_default=False)  # type: ignore[no-untyped-call] # has no types
        stack.enter_context(client)
    except (OSError, ValueError, TypeError):  # nobody there; no address; no keys for TLS
        pass
    else:
        if isinstance(given, int):
            client.run(end_quietly)
        return client
    raise ConfigError(
        _KEY,
        f"no Dask scheduler answers at {str(given)!r}; Dask's settings have to name the keys "
        "(distributed.comm.tls)",
    )


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
