"""Thousands of nights, resumably: ``make nights NIGHTS=20000``, or one life with ``LIFE=17``.

How many lives were lived, and what was found, stands in ``build/nights.json``; run again, it goes
on there. The number of a life is all that is needed to live it again, with its diary.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.nights.life import Life, living, steps, without_looking_for_garbage
from tests.nights.plates import Plates
from tests.nights.seen import ViolationError
from tests.nights.truth import Truth

STATE = Path(__file__).resolve().parents[2] / "build" / "nights.json"
NIGHTS = 20_000
_SHOWN = 2000  # characters of a finding


@dataclass
class Progress:
    """How far a soak has come; kept in a file after every life."""

    lives: int = 0
    nights: int = 0
    findings: list[dict[str, object]] = field(default_factory=list)
    """The life's number, and what did not hold."""

    @classmethod
    def of(cls, path: Path) -> "Progress":
        """What a file says, or nothing yet."""
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def keep(self, path: Path) -> None:
        """Replace the file."""
        path.parent.mkdir(exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self), indent=1))
        beside.replace(path)


def live(life: Life) -> str | None:
    """Live a life to its end, or to what does not hold; that, or what nobody foresaw."""
    truth = Truth(life)
    try:
        for step in steps(life):
            truth.look(*step)
    except ViolationError as violation:
        return str(violation)[:_SHOWN]
    except Exception as error:  # of the program, or of what looks at it: a finding both
        return f"{type(error).__name__}: {error}"[:_SHOWN]
    return None


@contextmanager
def plates() -> Iterator[Plates]:
    """Plates in a folder that goes with the block; in memory, where there is one."""
    memory = Path("/dev/shm")  # noqa: S108 - a private folder is made there
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Plates(Path(folder))


def soak(nights: int, path: Path, *, seconds: float = float("inf")) -> Progress:
    """Live until so many nights were lived in all, going on where the last soak stopped.

    Or until so many ``seconds`` of processor time were spent.
    """
    progress, begin = Progress.of(path), time.process_time()
    without_looking_for_garbage()
    with plates() as made:
        while progress.nights < nights and time.process_time() - begin < seconds:
            with living(progress.lives, made) as life:
                found = live(life)
            if found is not None:
                progress.findings.append({"life": progress.lives, "what": found})
                _print(f"LIFE={progress.lives}: {found}")
            progress.lives += 1
            progress.nights += life.n_nights
            progress.keep(path)
    return progress


def replay(number: int) -> int:
    """Live one life again, and print its diary and what does not hold."""
    with plates() as made, living(number, made) as life:
        found = live(life)
    _print("\n".join(life.diary))
    _print(found or "all of it held")
    return int(found is not None)


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a program that prints


def main() -> int:
    """Read what make says: NIGHTS, or LIFE."""
    if os.environ.get("LIFE"):
        return replay(int(os.environ["LIFE"]))
    progress = soak(int(os.environ.get("NIGHTS") or NIGHTS), STATE)
    found = len(progress.findings)
    _print(f"{progress.nights:,} nights in {progress.lives:,} lives, {found} findings")
    for one in progress.findings:
        _print(f"  LIFE={one['life']}  {str(one['what']).splitlines()[0][:150]}")
    return int(bool(progress.findings))


if __name__ == "__main__":
    sys.exit(main())
