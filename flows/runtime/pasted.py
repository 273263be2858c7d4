"""Commands for people to run next: each can be pasted into the shell that called the program."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from schemas.visible import visible

_NAME = "clusterdp"


def pasted(command: str, *files: Path) -> str:
    """A line that runs ``command`` of this program, such as ``inspect``, on ``files``.

    It calls the program by its name where a shell finds it so, else by its path.
    """
    return visible(shlex.join([_program(), command, *map(_from_shell, files)]))


def _program() -> str:
    called = Path(sys.argv[0])
    if called.name != _NAME or _are_same(called, shutil.which(_NAME)):
        return _NAME
    path = _from_shell(called.absolute())
    return path if "/" in path else f"./{path}"


def _from_shell(path: Path) -> str:
    """``path`` as seen from the shell's folder, where it lies below that; else whole.

    Under ``make -C`` the current folder is not the shell's, which PWD names.
    """
    here = Path.cwd()
    is_below = path.is_relative_to(here) and _are_same(here, os.environ.get("PWD"))
    inside = str(path.relative_to(here)) if is_below else str(path)
    return str(path) if inside.startswith("-") else inside


def _are_same(one: Path, other: str | None) -> bool:
    try:
        return other is not None and one.samefile(other)
    except OSError:
        return False
