"""The clock of a task that is measured."""

import os
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Watch:
    """The timed part of a task."""

    begin: float = 0.0
    end: float = 0.0
    own_peak: int = 0
    processor: float = 0.0
    """Processor seconds, user and system, of this process and of all that it started."""
    details: dict[str, float] = field(default_factory=dict)
    _spent_before: float = 0.0

    def __enter__(self) -> "Watch":
        self._spent_before = spent()
        self.begin = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.end = time.monotonic()
        self.processor = spent() - self._spent_before
        self.own_peak = _own_peak()


def spent() -> float:
    """Processor seconds of this process, and of those it started, whether they have ended or not.

    One that ends while its children go on takes theirs along: so rarely that it is left at that.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(_spent_by(process) for process in descendants(os.getpid()))
    return time.process_time() + ended.ru_utime + ended.ru_stime + running


def _spent_by(process: int) -> float:
    """Processor seconds of a process and of its ended children; 0 if it is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return 0.0
    ticks = text[text.rindex(b")") + 2 :].split()[11:15]  # utime stime cutime cstime
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def descendants(process: int) -> set[int]:
    """The processes that ``process`` started, and those that they did."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - fifty times a second: no Path per process
        if name.isdigit():
            try:
                text = Path("/proc", name, "stat").read_bytes()
            except OSError:
                continue  # ended meanwhile
            parent = int(text[text.rindex(b")") + 2 :].split()[1])  # a program's name may hold ")"
            children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    left = [process]
    while left:
        new = children.get(left.pop(), [])
        found.update(new)
        left += new
    return found


def _own_peak() -> int:
    """The greatest resident memory this process has had, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
