"""Files that somebody wrote by hand or sent: read whole, but never more than such a file can hold.

What a system or a codec says when that fails comes out as :class:`UnreadableError`, in words to put
behind the file's name; whoever asked knows which error of ours that is.
"""

from pathlib import Path

from flows.runtime.regular_files import other_than_file


class UnreadableError(Exception):
    """Why a file cannot be read, as the rest of a sentence that begins with its name."""


def read_small(path: Path, most: int) -> bytes:
    """Return the content of a plain file of at most ``most`` bytes; raises UnreadableError.

    A pipe or a device, which may never end, is not opened.
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
    """Return the same as text: UTF-8, with or without a mark for the order of bytes."""
    content = read_small(path, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = error.start + 1
    raise UnreadableError(f"is not text in UTF-8 (byte {place:,} is not); save it as UTF-8")
