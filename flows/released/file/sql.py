"""Names and texts as SQL spells them, and our own SQL, which lies in files beside the code."""

from functools import cache
from importlib.resources import files


def quoted(name: str) -> str:
    """A name of a table or column."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text."""
    return "'" + value.replace("'", "''") + "'"


@cache
def statement(package: str, name: str) -> str:
    """The SQL of a file of ours, ``name.sql`` in a package, without the lines that are comments."""
    source = files(package).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("--"))
