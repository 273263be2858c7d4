"""What this process has found out of files, by all that tells that one is still the same.

Whoever writes into a file, or puts another in its place, changes one of its numbers: the system
sets the time of the last change itself. So what was read safely once is not judged again.
"""

from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST = 1_000


class Known(Generic[T]):
    """What is known of files; ``file`` is the :func:`identity` of one before it was opened."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._found: dict[tuple[object, ...], T] = {}

    def of(self, path: Path, file: tuple[object, ...]) -> T | None:
        """What is known of the file at ``path``; None for nothing, or where it has changed."""
        return self._found.get(file) if identity(path) == file else None

    def keep(self, path: Path, file: tuple[object, ...], found: T) -> None:
        """Keep what was ``found``, unless the file has changed meanwhile."""
        if len(self._found) >= _MOST:
            self._found.clear()
        if identity(path) == file:
            self._found[file] = found


def identity(path: Path) -> tuple[object, ...]:
    """All by which the file at ``path`` differs from others and from what it was before."""
    facts = path.stat()
    times = (facts.st_mtime_ns, facts.st_ctime_ns)
    return (path.resolve(), facts.st_dev, facts.st_ino, facts.st_size, *times)
