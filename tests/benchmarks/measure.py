"""Runs a job in a process of its own and measures it: seconds, and memory of the process tree.

A job is a task of :mod:`tests.benchmarks.child` with its arguments. Every run is a new process, so
that none finds the memory, imports or threads of another. The child says when its timed part began
and ended, on the machine's monotonic clock; what it does before (imports, Prefect's start) and
after (counting what it wrote) is not timed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.benchmarks.watch import descendants

ROOT = Path(__file__).resolve().parents[2]

INTERVAL = 0.02
"""Seconds between two samples of memory."""

_RELIST = 5  # samples between two searches for new processes: reading all of /proc takes 1 ms
_PAGE = os.sysconf("SC_PAGE_SIZE")


class BenchError(Exception):
    """A run that failed, or did other work than its case says; one line for people."""


@dataclass(frozen=True)
class Job:
    """A task of :mod:`tests.benchmarks.child` and what it is given, all of it JSON."""

    task: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """What one run took."""

    seconds: float
    """Of the timed part."""
    processor: float
    """Processor seconds of the timed part, of all processes together."""
    process_seconds: float
    """From the start of the process to its end, with everything that is not timed."""
    peak_bytes: int
    """Greatest resident memory of all processes of the run together, until the timed part ended."""
    bytes_before: int
    """The same just before the timed part: interpreter, imports and, if used, Prefect's server."""
    rows: int
    """How many rows the run worked on, as found in its result."""
    details: Mapping[str, float]
    """Anything else a task says of itself: seconds of steps (``step …``), bytes of its file."""


def run_job(job: Job) -> Run:
    """Run ``job`` in a new process and measure it; raises BenchError where it fails."""
    command = [sys.executable, "-m", "tests.benchmarks.child", job.task, json.dumps(job.arguments)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.monotonic()
        # What Prefect is told here must not depend on the shell of whoever measures.
        ours = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
        child = subprocess.Popen(command, cwd=ROOT, env=ours, stdout=out, stderr=err)
        try:
            samples = list(_sampled(child))
        finally:
            code = _ended(child)
        took = time.monotonic() - begin
        if code != 0:
            raise BenchError(f"{job.task}: {_reason(code, err)}")
        out.seek(0)
        said = json.loads(out.read().splitlines()[-1])
    start, end = float(said["begin"]), float(said["end"])
    before = [size for at, size in samples if at <= start]
    until = [size for at, size in samples if at <= end]
    return Run(
        seconds=end - start,
        processor=float(said["processor"]),
        process_seconds=took,
        peak_bytes=max([*until, int(said["own_peak"])]),  # its own peak is exact, between samples
        bytes_before=before[-1] if before else 0,
        rows=int(said["rows"]),
        details=said["details"],
    )


def _ended(child: "subprocess.Popen[bytes]") -> int:
    """The exit code; a child that still runs, as this process was told to stop, ends with all its
    own.
    """
    if child.poll() is None:
        for process in (child.pid, *descendants(child.pid)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    return child.wait()


def _reason(code: int, err: IO[bytes]) -> str:
    """The last line of standard error, or the signal."""
    err.seek(0)
    lines = [line for line in err.read().decode(errors="replace").splitlines() if line.strip()]
    if code < 0:
        return f"ended by signal {-code}" + (" (out of memory?)" if code == -9 else "")
    return lines[-1] if lines else f"ended with exit code {code}"


def _sampled(child: "subprocess.Popen[bytes]") -> Iterator[tuple[float, int]]:
    """Resident bytes of the process tree, with the time of each sample, while the child runs."""
    known = {child.pid}
    count = 0
    while child.poll() is None:
        if count % _RELIST == 0:
            known |= descendants(child.pid)
        count += 1
        found = {process: resident_bytes(process) for process in known}
        known = {process for process, size in found.items() if size} | {child.pid}
        yield time.monotonic(), sum(found.values())
        time.sleep(INTERVAL)


def resident_bytes(process: int) -> int:
    """Resident memory of one process (pages that it shares with others included); 0 if it ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0
