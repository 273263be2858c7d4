"""What a case of the benchmarks is, and where it finds its input."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.measure import BenchError, Job


@dataclass(frozen=True)
class Contender:
    """One of those that are compared."""

    name: str
    job: Job
    rows: int
    """How many rows its result must have; the unit of its time per row."""
    is_ours: bool = False
    needs_prefect: bool = False
    """Whether it runs with a server of Prefect's, started before it is timed."""


@dataclass(frozen=True)
class Case:
    """What is run in turns, the first contender being the baseline."""

    name: str
    title: str
    contenders: tuple[Contender, ...]
    prepare: Callable[[], None] = lambda: None
    """Makes the input, unless it is there."""
    per_row: bool = True
    """Whether ratios compare time per row, or whole runs."""
    growth_of: str = ""
    """What there are more and more of from one pair of contenders to the next; else empty."""

    @property
    def baseline(self) -> Contender:
        return self.contenders[0]


@dataclass(frozen=True)
class Place:
    """Where input lies and how runs go."""

    data: Path
    memory_limit: str = "4GB"


def parse_size(text: str) -> int:
    """``10m`` as 10,000,000, ``50k`` as 50,000; plain numbers too."""
    found = re.fullmatch(r"([0-9]+)([km]?)", text)
    if not found or int(found[1]) == 0:
        raise BenchError(f"{text!r} is no size: say 5000, 500k or 10m")
    return int(found[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2]]
