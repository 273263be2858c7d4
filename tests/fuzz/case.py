"""One case of fuzzing: files, and what the program is asked about them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

CANARY = "canary"
"""A word that only outcomes hold, in whatever case; a struct outcome has fields of that name."""

DIGITS = "7391846"
"""Digits that only outcomes hold."""

MARKS = (CANARY, DIGITS)

SECRET = f"{CANARY}-{DIGITS}\n".encode()
"""What a file holds that nobody but the operator may read."""


OddKind = Literal["fifo", "zeros", "dangling", "folder", "unreadable", "loop"]


@dataclass(frozen=True)
class Odd:
    """Something that stands where a file should be."""

    kind: OddKind

    def make(self, path: Path) -> None:
        """Put it there."""
        match self.kind:
            case "fifo":
                os.mkfifo(path)
            case "zeros":
                path.symlink_to("/dev/zero")
            case "dangling":
                path.symlink_to(path.with_name("nothing-here"))
            case "folder":
                path.mkdir()
            case "unreadable":
                path.write_bytes(b"")
                path.chmod(0)
            case "loop":
                path.symlink_to(path)


ODD: tuple[Odd, ...] = tuple(Odd(kind) for kind in get_args(OddKind))
"""All of them."""


@dataclass(frozen=True)
class Remade:
    """A file of a sound base, changed: by SQL within it, then by its bytes."""

    base: str
    """Which of :func:`tests.fuzz.bases.base`."""
    statements: tuple[str, ...] = ()
    """Each succeeds; an UPDATE changes a row."""
    cut: float | None = None
    """The share of the file that is left."""
    flips: tuple[float, ...] = ()
    """Where a byte is another, as shares of the file's length."""
    storage: str | None = None
    """Another storage version to write the file anew in."""


Content = bytes | Odd | Remade


@dataclass(frozen=True)
class Case:
    """What lies in a folder, and commands that are run there one after another."""

    files: Mapping[str, Content]
    commands: tuple[tuple[str, ...], ...]
    may_leave: tuple[str, ...] = ()
    """Patterns of what may be there afterwards besides the files."""
    private: tuple[str, ...] = ()
    """Of those, patterns of files that may hold outcomes: releases, rows that were set aside."""
    hits: tuple[tuple[str, str], ...] = ()
    """What it changes, a column or a key say, and into what class of value."""
    judged: str = ""
    """The base whose sound release is the only one that the case reads: whether it is sound is
    found out once a process. Unsound ones are cases of the kind ``releases``."""

    def lay_out(self, folder: Path) -> None:
        """Make the files."""
        from tests.fuzz.bases import remake  # noqa: PLC0415 - it loads what makes releases

        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            match content:
                case Odd():
                    content.make(path)
                case Remade():
                    remake(content, name, path)
                case _:
                    path.write_bytes(content)
