"""What may stand where a file should be."""

import os
from collections.abc import Callable
from pathlib import Path

NO_FILES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.mkdir(), "is a folder, not a file"),
    (os.mkfifo, "is a pipe, not a file"),
    (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
    (lambda path: path.symlink_to(path), "cannot be looked at (Too many levels"),
]
"""Ways to make something that is no file, and what is said of it."""
