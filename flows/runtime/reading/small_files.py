"""Reading small files whole, up to a limit of bytes: configurations, keys, site reports.

Every failure is an :class:`UnreadableError`, whose text continues a sentence that begins with the
name of the file. The caller raises the error of ours that fits.
"""

from pathlib import Path

from flows.runtime.reading.regular_files import other_than_file


class UnreadableError(Exception):
    """Says why a file cannot be read, as the rest of a sentence that begins with its name."""


def read_small(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes; raises UnreadableError.

    A pipe or a device is not opened, as reading it may never end.
    """
    problem = other_than_file(path)
    if problem is not None:
        raise UnreadableError(problem)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    else:
        if len(content) <= most:
            return content
        problem = f"is far too large: more than {most:,} bytes"
    raise UnreadableError(problem)


def read_small_text(path: Path, most: int) -> str:
    """Return the content of a small file as text: UTF-8, with or without a byte order mark."""
    content = read_small(path, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = error.start + 1
    raise UnreadableError(f"is not text in UTF-8 (byte {place:,} is not); save it as UTF-8")
