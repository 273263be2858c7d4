"""Tens of thousands of cases, resumably: ``make soak KIND=… CASES=…``, or one with ``CASE=…``.

How far a kind has come, and what was found, stands in ``.soak/KIND.json``; run again, it goes on
there. Each finding has the number of its case, which is all that is needed to see it again.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.chunk import CHUNK, found_in
from tests.fuzz.kinds import KINDS, case

PATIENCE = 900.0
"""Seconds without a word from a process after which its case counts as one that never ends.

A case that is run as programs starts Prefect's server several times, which takes minutes on a
machine that is busy with other things."""

START = 1800.0
"""The same before its first word: it has much to load."""

PROCESSES = 2

TOGETHER = 10
"""Chunks that one process tries: it has ten seconds of modules to load before the first."""

ROOT = Path(__file__).resolve().parents[2]

Hits = Counter[tuple[str, str]]
"""How often what was changed into which class of value."""

Keep = Callable[[int, Hits, list[dict[str, Any]]], None]
"""Takes a chunk that is done, what its cases changed, and what was found."""


@dataclass
class Progress:
    """How far one kind has come; kept in a file, which is replaced after every chunk."""

    path: Path
    done: list[int] = field(default_factory=list)
    """Chunks that were tried whole."""
    hits: Hits = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path) -> "Progress":
        """What a file says, or nothing yet."""
        if not path.exists():
            return cls(path)
        content = json.loads(path.read_text(encoding="utf-8"))
        hits = Counter({(what, how): times for what, how, times in content["hits"]})
        return cls(path, content["done"], hits, content["findings"])

    def keep(self) -> None:
        """Write the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        hits = [[*hit, times] for hit, times in sorted(self.hits.items())]
        content = {"done": self.done, "hits": hits, "findings": self.findings}
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
        beside.replace(self.path)

    def by_signature(self) -> dict[str, list[dict[str, Any]]]:
        """The findings, those of one fault together."""
        found: dict[str, list[dict[str, Any]]] = {}
        for one in self.findings:
            found.setdefault(one["signature"], []).append(one)
        return found


def soak(kind: str, cases: int, folder: Path, processes: int = PROCESSES) -> Progress:
    """Try cases of one kind until so many were tried in all; goes on where it was left."""
    progress = Progress.of(folder / f"{kind}.json")
    lock = threading.Lock()
    left = [chunk for chunk in range(-(-cases // CHUNK)) if chunk not in progress.done]

    def keep(chunk: int, hits: Hits, found: list[dict[str, Any]]) -> None:
        with lock:
            known = set(progress.by_signature())
            progress.done.append(chunk)
            progress.hits += hits
            progress.findings += found
            progress.keep()
            for one in found:
                if one["signature"] not in known:
                    known.add(one["signature"])
                    _print(f"{kind} {one['number']}: {one['signature']}")

    with ThreadPoolExecutor(processes) as pool:
        blocks = [left[at : at + TOGETHER] for at in range(0, len(left), TOGETHER)]
        for _ in pool.map(lambda block: _try_chunks(kind, block, keep), blocks):
            pass
    return progress


def _try_chunks(kind: str, chunks: list[int], keep: Keep) -> None:
    """Try chunks in a process of their own, begun anew after a case that it does not survive."""
    found: list[dict[str, Any]] = []
    left, hits = list(chunks), Hits()
    first = CHUNK * left[0]
    while left:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.chunk", kind, str(first), *map(str, left)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        at = None
        silent = True
        try:
            for line in _lines(process):
                told = json.loads(line)
                if "begun" in told:
                    at = told["begun"]
                elif "number" in told:
                    hits.update((what, how) for what, how in told["hits"])
                    found += [{"number": told["number"], **one} for one in told["found"]]
                else:
                    keep(left.pop(0), hits, found)
                    found, hits, at = [], Hits(), None
            silent = process.poll() is None
        finally:  # also where somebody interrupts
            with process:
                if silent:
                    os.killpg(process.pid, signal.SIGKILL)
        code = process.returncode
        if not left:
            return
        if at is None:
            msg = f"{kind}: no case of chunk {left[0]} could be begun (exit code {code})"
            raise RuntimeError(msg)
        what = "never ends" if silent else "kills the process"
        detail = "" if silent else f"exit code {code}"
        found.append({"number": at, "what": what, "detail": detail, "signature": what})
        first = at + 1


def _lines(process: "subprocess.Popen[bytes]") -> Any:
    """What a process says, line by line, until it ends or falls silent."""
    assert process.stdout is not None
    waiting, patience = b"", START
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(patience):
            patience = PATIENCE
            read = os.read(process.stdout.fileno(), 1 << 16)
            if not read:
                process.wait()
                return
            *whole, waiting = (waiting + read).split(b"\n")
            yield from whole


def _print(*words: object, **named: Any) -> None:
    print(*words, **named, flush=True)  # noqa: T201 - a program that prints


def coverage(kind: str, hits: Hits) -> list[str]:
    """What was hit of all that there is, in lines; what never was by its name."""
    times: Counter[str] = Counter()
    for (what, _), count in hits.items():
        times[what] += count
    targets = set(KINDS[kind].targets())
    never = sorted(targets - set(times))
    told = f"  hit {len(targets) - len(never)} of {len(targets)}, {len(hits):,} with their classes"
    if times:
        least, count = min(times.items(), key=lambda one: one[1])
        told += f"; least often {least}, {count:,} times"
    return [told, *(f"  never hit: {one}" for one in never)]


def show(kind: str, number: int) -> int:
    """Run one case again and print what is wrong."""
    wanted = case(kind, number)
    _print(wanted)
    found = found_in(0, wanted)
    for one in found:
        _print(f"\n{one.signature}\n{one.detail}")
    return 1 if found else 0


def main() -> int:
    """Read what `make soak` says: KIND, CASES, and CASE for one case alone."""
    kinds = [os.environ["KIND"]] if os.environ.get("KIND") else list(KINDS)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        _print(f"KIND={unknown[0]} is none of {', '.join(KINDS)}", file=sys.stderr)
        return 2
    folder = Path(os.environ.get("SOAK_FOLDER") or ".soak")
    if os.environ.get("CASE"):
        return show(kinds[0], int(os.environ["CASE"]))
    found = 0
    for kind in kinds:
        cases = int(os.environ.get("CASES") or KINDS[kind].in_soak)
        progress = soak(kind, cases, folder)
        counts = Counter(one["signature"] for one in progress.findings)
        _print(f"{kind}: {len(progress.done) * CHUNK:,} cases, {len(counts)} findings")
        for line in coverage(kind, progress.hits):
            _print(line)
        for signature, count in counts.most_common():
            first = progress.by_signature()[signature][0]["number"]
            _print(f"  {count:6,}  {signature}  (CASE={first})")
        found += len(counts)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
