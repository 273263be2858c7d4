"""What a command runs: a flow where Prefect is in use, else the plain page."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal


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
        if server is None:
            yield _page(name)
            return
        from flows import deployed  # while the server starts

        flows: dict[str, Callable[..., Any]] = {
            "release": deployed.release,
            "cate": deployed.cate,
            "site": deployed.site,
        }
        server.wait()
        yield flows[name]


def _page(name: str) -> Callable[..., Any]:
    if name == "cate":
        from flows.effects.cate import fit_period

        return fit_period
    if name == "site":
        from flows.effects.multisite import report_period

        return report_period
    from flows.release import release_period

    return release_period
