"""What an error says to those who are not the operator: nothing of where in a file it is."""

import re

_PLACE = re.compile(r"\b(line|row) \d+(?:,\d+)*(?!\d|,\d|, column)")  # which a TOML file has
_HEADER = " (the header is row 1)"


def without_places(text: str) -> str:
    """``text`` with "a line" for "line 7", and "a row" for "row 7".

    A number of a line of outcome events is a lower bound on how many events there are.
    """
    return _PLACE.sub(r"a \1", text.replace(_HEADER, ""))
