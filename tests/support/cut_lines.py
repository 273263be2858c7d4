"""A line to a PostgreSQL server that can be cut, mended, and made to hold its breath."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Line:
    """A Unix socket in a folder of its own that leads to a server's."""

    def __init__(self, server: Path, folder: Path) -> None:
        """Lead from ``folder`` to the socket ``server``; call :meth:`mend` to begin."""
        self._server, self.folder = server, folder
        self._ends: list[socket.socket] = []
        self._door: socket.socket | None = None
        self._silent = False

    def mend(self) -> None:
        """Let everybody through."""
        self.cut()
        self._silent = False
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.folder / self._server.name))
        self._door.listen()
        threading.Thread(target=self._let_in, args=(self._door,), daemon=True).start()

    def cut(self) -> None:
        """End all connections, and let nobody in."""
        if self._door is not None:
            with suppress(OSError):
                self._door.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits at it
            self._door.close()
        (self.folder / self._server.name).unlink(missing_ok=True)
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._door, self._ends = None, []

    def fall_silent(self) -> None:
        """Let everybody in from now on, and answer nobody."""
        self._silent = True

    def _let_in(self, door: socket.socket) -> None:
        while True:
            try:
                near, _ = door.accept()
            except OSError:  # cut
                return
            self._ends.append(near)
            if self._silent:
                continue
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(str(self._server))
            except OSError:
                near.close()
                continue
            self._ends.append(far)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while content := one.recv(1 << 16):
            other.sendall(content)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def a_line(server: Path, folder: Path) -> Iterator[Line]:
    """A line that is open."""
    line = Line(server, folder)
    line.mend()
    try:
        yield line
    finally:
        line.cut()
