"""Documents of models and sites as files: drafts that are written, and what is read."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from flows.runtime.files import cannot_write
from flows.runtime.reading.small_files import UnreadableError, read_small_text
from schemas.errors import InputError

D = TypeVar("D")


def write_draft(text: str, path: Path) -> None:
    """Write a document to a new file at ``path``; InputError where it cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(path.parent.parent, error.strerror) from None


def try_draft(write: Callable[[D, Path], None], stand_in: D, path: Path) -> None:
    """Write a document that holds no draw to ``path``, and remove it again.

    So it is known before any draw that such a document is sound and can be written there. Raises
    the errors of ``write``.
    """
    try:
        write(stand_in, path)
    finally:
        path.unlink(missing_ok=True)


def document_text(path: Path, most: int, what: str) -> str:
    """Return the text of a file of at most ``most`` bytes; InputError says what it has to be."""
    try:
        return read_small_text(path, most)
    except UnreadableError as error:
        raise InputError(f"{path}: {error}; {what}") from None
