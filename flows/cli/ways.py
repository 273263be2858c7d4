"""What a command runs: a flow where Prefect is in use, else the plain page."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

_PAGES = {
    "release": ("flows.release", "release_period"),
    "cate": ("flows.effects.cate", "fit_period"),
    "site": ("flows.effects.multisite", "report_period"),
}


@contextmanager
def way(name: str, config: Path, *, wanted: bool) -> Iterator[Callable[..., Any]]:
    """The flow ``name`` of :mod:`flows.deployed`, or the page that does the same without Prefect.

    It is a flow where a server is ``wanted``, or configured; the server lives as long as the block.
    Both take the configuration's path, a period and whether to revise.
    """
    from flows.orchestration.prefect_server import server_for_one_run

    with server_for_one_run(config, wanted=wanted) as server:
        module, page = _PAGES[name] if server is None else ("flows.deployed", name)
        run: Callable[..., Any] = getattr(import_module(module), page)  # while the server starts
        if server is not None:
            server.wait()
        yield run
