"""What a command runs: a flow where Prefect is in use, else the plain page."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from flows.runtime.garbage import collect_from_here


@contextmanager
def way(
    name: Literal["release", "cate", "site"], config: Path, *, wanted: bool
) -> Iterator[Callable[..., Any]]:
    """The flow ``name`` of :mod:`flows.deployed`, or the page that does the same without Prefect.

    It is a flow where a server is ``wanted``, or configured; the server lives as long as the block.
    Both take the configuration's path, a period and whether to revise.
    """
    from flows.orchestration.prefect_server import server_for_one_run

    with server_for_one_run(config, wanted=wanted) as server:
        if server is not None:
            from flows import deployed  # while the server starts

            server.wait()
            run = getattr(deployed, name)
        elif name == "cate":
            from flows.effects.cate import fit_period as run
        elif name == "site":
            from flows.effects.multisite import report_period as run
        else:
            from flows.release import release_period as run
        collect_from_here()
        yield run
