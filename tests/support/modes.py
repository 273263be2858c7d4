"""Modes of files and folders."""

import stat
from pathlib import Path


def mode(path: Path) -> int:
    """Who may do what with a file, as ``chmod`` takes it."""
    return stat.S_IMODE(path.stat().st_mode)
