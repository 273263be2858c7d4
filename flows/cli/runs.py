"""How a command runs a page once: as plain functions, or as a flow of Prefect's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from flows.orchestration.prefect_server import PrefectServer

F = TypeVar("F")


@dataclass(frozen=True)
class Way:
    """The way of a run: on a server of Prefect's, or without any."""

    server: PrefectServer | None

    def __call__(self, plain: F, flow: Callable[[], Any]) -> F:
        """The function to call, or the ``flow`` that is like it, once the server can be asked."""
        if self.server is None:
            return plain  # and Prefect, which a flow needs, is never imported
        self.server.wait()
        found: F = flow()
        return found


@contextmanager
def run_once(config: Path, *, wanted: bool) -> Iterator[Way]:
    """Be ready for a run, by Prefect where a server is ``wanted``, or configured.

    What may import Prefect is imported within, as this sets it up.
    """
    from flows.orchestration.prefect_server import server_for_one_run

    with server_for_one_run(config, wanted=wanted) as server:
        yield Way(server)
