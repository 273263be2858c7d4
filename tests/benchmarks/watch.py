"""The clock of a task that is measured."""

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
    details: dict[str, float] = field(default_factory=dict)

    def __enter__(self) -> "Watch":
        self.details["processor_seconds"] = -_processor_seconds()
        self.begin = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.end = time.monotonic()
        self.details["processor_seconds"] += _processor_seconds()
        self.own_peak = _own_peak()


def _processor_seconds() -> float:
    """Of this process and of its children that have ended, all their threads together."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _own_peak() -> int:
    """The greatest resident memory this process has had, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
