"""The program with its imports done: a process that forks for each command it is asked to run.

A fork has the arguments, folder, environment and streams that it is given, and ends as the program
does, by its own exit code. Where the server has a thread that may hold a lock, or where what is
read of the environment at a start is not as it was, the caller runs the real program. So do tests
of kills, signals, start-up, terminals and servers.
"""

import atexit
import gc
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

PATIENCE = 900.0
"""Seconds after which a test counts as stuck; far more than any takes on the slowest machine."""

ROOT = Path(__file__).resolve().parents[2]

_NEEDED = (
    "flows.cli.main", "flows.release", "flows.check", "flows.operate.due", "flows.released.report",
    "scipy.special", "pandera.polars", "opendp.measurements", "sqlalchemy.dialects.sqlite",
)  # fmt: skip
_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "MALLOC", "LD_", "OPENBLAS", "OMP", "POLARS", "NPY")
"""What a process reads of its environment as it starts, or as these modules are imported."""

_IDLE = ("jemalloc_bg_thd", "polars-ooc-clea")
"""Threads of importing polars: the allocator's, which forks in order, and one that only waits."""


class Ran(NamedTuple):
    """How a run of the program ended."""

    returncode: int
    stdout: str
    stderr: str


def run_program(
    arguments: Sequence[str | Path], folder: Path, environment: Mapping[str, str]
) -> Ran:
    """Run the program by a fork where that is the same, else as a process from its start."""
    words = list(map(str, arguments))
    with (
        Path(os.devnull).open("rb") as nothing,
        TemporaryFile("w+", encoding="utf-8") as out,
        TemporaryFile("w+", encoding="utf-8") as err,
    ):
        code = _fork(words, folder, environment, [one.fileno() for one in (nothing, out, err)])
        if code is None:
            code = subprocess.run(
                [sys.executable, "-m", "flows.cli", *words], cwd=folder, env=environment,
                stdin=nothing, stdout=out, stderr=err, timeout=PATIENCE, check=False,
            ).returncode  # fmt: skip
        for stream in (out, err):
            stream.seek(0)
        return Ran(code, out.read(), err.read())


def spent() -> float:
    """Processor seconds of all forks so far."""
    return sum(_spent)


_spent: list[float] = []
_one = threading.Lock()


def _fork(
    words: list[str], folder: Path, environment: Mapping[str, str], streams: Sequence[int]
) -> int | None:
    """The exit code of a command in a fork; None where it has to be the program.

    Commands of several threads run side by side, and the server runs one at a time.
    """
    if _of_start(environment) != _of_start(os.environ) or not _one.acquire(blocking=False):
        return None
    try:
        return _asked(words, folder, environment, streams)
    finally:
        _one.release()


def _asked(
    words: list[str], folder: Path, environment: Mapping[str, str], streams: Sequence[int]
) -> int | None:
    asked = json.dumps([words, str(folder), dict(environment)]).encode()
    with (line := _server()).makefile("rw", encoding="utf-8") as answers:
        socket.send_fds(line, [len(asked).to_bytes(4)], list(streams))
        line.sendall(asked)
        code, seconds = json.loads(answers.readline())
    _spent.append(seconds)
    return None if code is None else int(code)


def _of_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


@cache
def _server() -> socket.socket:
    ours, server = start_server()
    atexit.register(server.wait)
    atexit.register(ours.close)  # first: it ends with its line
    return ours


def start_server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A server, and the line to it, with which it ends."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.zygote", str(theirs.fileno())],
            cwd=ROOT, pass_fds=[theirs.fileno()], env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    return ours, server


def _serve(line: socket.socket) -> None:
    """Fork for each command; only a fork returns."""
    while True:
        size, streams, *_ = socket.recv_fds(line, 4, 3)
        asked = b""
        while len(asked) < int.from_bytes(size):
            asked += line.recv(int.from_bytes(size) - len(asked)) or os._exit(0)
        if not asked:  # who asks has ended; above, while asking
            os._exit(0)
        child = os.fork() if _is_alone() else None
        if child == 0:
            line.close()
            _become(streams, *json.loads(asked))
            return
        for stream in streams:
            os.close(stream)
        line.sendall(json.dumps((None, 0.0) if child is None else _ended(child)).encode() + b"\n")


def _ended(child: int) -> tuple[int, float]:
    """The exit code of a fork, and the processor seconds that it took."""
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def _is_alone() -> bool:
    threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return len([name for name in threads if name not in _IDLE]) == 1


def _become(
    streams: list[int], arguments: list[str], folder: str, environment: dict[str, str]
) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[1:] = arguments


if __name__ == "__main__":
    for name in _NEEDED:
        import_module(name)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    import_module("flows.cli.main").main()
