"""Writing names and texts in SQL."""


def quoted(name: str) -> str:
    """The name of a table or column in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text in single quotes."""
    return "'" + value.replace("'", "''") + "'"
