"""Writing names and texts in SQL, and our own SQL, which is in files beside the code."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from schemas.tables import Table


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


def creation(tables: Mapping[str, Table]) -> str:
    """Statements that make the tables, with comments on them and on their columns."""
    statements = []
    for name, table in tables.items():
        columns = {quote_name(column): fact for column, fact in table.columns.items()}
        kinds = ", ".join(f"{column} {fact.kind}" for column, fact in columns.items())
        statements += [f"CREATE TABLE {name} ({kinds})", *comments(name, table)]
    return "; ".join(statements)


def comments(name: str, table: Table, kind: str = "TABLE") -> list[str]:
    """Statements that put the comments on a table, or a view, and on its columns."""
    return [
        f"COMMENT ON {kind} {name} IS {text(table.comment)}",
        *(
            f"COMMENT ON COLUMN {name}.{quote_name(column)} IS {text(fact.comment)}"
            for column, fact in table.columns.items()
        ),
    ]


def unplanned(statements: str) -> str:
    """Statements that have nothing to plan, such as comments: looking for plans takes a fifth."""
    return f"PRAGMA disable_optimizer; {statements}; PRAGMA enable_optimizer"
