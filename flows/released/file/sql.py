"""Names and texts as SQL spells them."""


def quoted(name: str) -> str:
    """A name of a table or column."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text."""
    return "'" + value.replace("'", "''") + "'"
