"""Writing names and texts in SQL, and our own SQL, which is in files beside the code."""

from functools import cache
from importlib.resources import files


def quote_name(name: str) -> str:
    """The name of a table or column in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text in single quotes."""
    return "'" + value.replace("'", "''") + "'"


@cache
def statement(package: str, name: str) -> str:
    """The SQL of a file of ours, ``name.sql`` in a package, without the lines that are comments."""
    source = files(package).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("--"))
