"""Release files that somebody else made, or that something happened to.

Targets are every column of every table that :mod:`schemas` has, in turn into each class of value
that its type can hold, and every table, in turn into each shape that is none of a release.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from schemas.released import TABLES
from schemas.tables import SCHEMA
from tests.fuzz.bases import NIGHTS, SECTIONS, UNITS, base, columns
from tests.fuzz.case import ODD, SECRET, Case, Content, Remade
from tests.fuzz.values import ODD_TEXTS, RUBBISH, Draw, turn

TABLE = (
    "unit_id,segment,age\n" + "".join(f"c{unit:05d},s{unit % 2},{unit}\n" for unit in range(UNITS))
).encode()

_NUMBERS = {
    **{word: word for word in ("0", "1", "-1", "2", "0.5", "1e308", "-1e308", "5e-324")},
    **{f"{word}inite": f"'{word}'::DOUBLE" for word in ("inf", "-inf")},
    "no number": "'NaN'::DOUBLE",
    "doubled": "{0} * 2",
    "huge": "({0} + 1) * 1e100",
    "negative": "-{0} - 1",
    "a bit more": "{0} * (1 + 1e-9) + 1e-12",
}
_WHOLE = {
    **{word: word for word in ("0", "1", "-1", "2", "2147483647")},
    "one more": "{0} + 1",
    "negative": "-{0} - 1",
}
_TEXTS = {
    "long": "repeat('x', 100000)",
    "escapes": "chr(27) || '[2J' || chr(7)",
    "nothing": "''",
    "zero": "chr(0)",
    "reversed": "chr(8238) || 'abc'",
    "lines": "'a' || chr(10) || 'b'",
    "script": "'<script>alert(1)</script>'",
    "formula": "'$\\frac{1}{2}$'",
    "capitals": "upper({0}) || ' '",
    "each its own": "{0} || rowid",
}
VALUES: dict[str, dict[str, str]] = {
    "DOUBLE": _NUMBERS,
    "INTEGER": _WHOLE,
    "BIGINT": _WHOLE | {"greatest": "9223372036854775807", "no double": "4503599627370497 * 2 + 1"},
    "UBIGINT": {"0": "0", "one of all": "7", "greatest": "18446744073709551615"},
    "VARCHAR": _TEXTS,
    "BOOLEAN": {"true": "true", "false": "false", "other": "NOT {0}"},
    "DATE": {"first": "DATE '0001-01-01'", "never": "DATE 'infinity'"},
    "TIMESTAMP": {
        word: f"TIMESTAMP '{word}'" for word in ("0001-01-01", "infinity", "290000-01-01")
    },
}
"""What a cell may be made, by the type of its column; {0} is what it was."""

TYPES = (
    *("VARCHAR", "DOUBLE", "FLOAT", "BIGINT", "UBIGINT", "HUGEINT", "TINYINT", "BOOLEAN"),
    *("DECIMAL(38, 10)", "BLOB", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DATE", "INTERVAL"),
    *("DOUBLE[]", "STRUCT(a DOUBLE)", "MAP(VARCHAR, DOUBLE)", "UUID", "BIT"),
)

HOSTILE = (
    "SELECT * FROM range(10000000000000)",
    "SELECT * FROM read_text('ids.key')",
    "SELECT * FROM read_csv('ids.key')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM 'table.csv'",
    "SELECT getenv('HOME') AS x",
    "SELECT error('a word of my own')",
    "SELECT 1 / 0 AS x",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r",
    "SELECT repeat('x', 2000000000) AS x",
)
"""What a view of a hostile file does when it is read."""

_ROWS = ("", "", " WHERE rowid = 0", " WHERE rowid % 2 = 0")

Change = tuple[str, tuple[str, ...]]
"""What it is called, and its statements."""
Made = tuple[tuple[str, str], tuple[str, ...]]
"""What is changed and into what, and the statements."""

SHAPES: tuple[Change, ...] = (
    ("dropped", ("DROP TABLE {0}",)),
    ("renamed", ("ALTER TABLE {0} RENAME TO {0}_",)),
    ("emptied", ("DELETE FROM {0}",)),
    ("halved", ("DELETE FROM {0} WHERE rowid % 2 = 0",)),
    ("doubled", ("INSERT INTO {0} SELECT * FROM {0}",)),
    ("with one more column", ("ALTER TABLE {0} ADD COLUMN more {kind}",)),
    ("beside a view", ("CREATE VIEW more AS SELECT * FROM {0}",)),
    ("a view of itself", (
        "ALTER TABLE {0} RENAME TO hidden", "CREATE VIEW {0} AS SELECT * FROM hidden")),
    ("a hostile view", ("DROP TABLE {0}", "CREATE VIEW {0} AS {body}")),
    ("a hostile view that fits", (
        "DROP TABLE {0}", "CREATE VIEW {0} AS SELECT {fits} FROM ({body})")),
    ("another's columns", ("DROP TABLE {0}", "CREATE TABLE {0} AS SELECT * FROM {other}")),
    ("in a schema of its own", ("CREATE SCHEMA s", "CREATE TABLE s.{0} AS SELECT * FROM {0}")),
    ("beside macros", ("CREATE MACRO more(x) AS x + 1", "CREATE SEQUENCE one")),
    ("beside macros of DuckDB's names", (
        "CREATE MACRO avg(x) AS error('mine')", "CREATE MACRO count(x) AS -1")),
    ("beside a type", ("CREATE TYPE mine AS ENUM ('a')",)),
)  # fmt: skip
"""What a table may be made that is none of a release's."""

READING: tuple[tuple[str, ...], ...] = (
    ("inspect", "x.duckdb"),
    ("estimate", "x.duckdb", "--json"),
    ("report", "x.duckdb", "-o", "page.html"),
    ("estimate", "x.duckdb", "--segments", "table.csv"),
    ("inspect", "x.duckdb", "--json"),
    ("estimate", "x.duckdb"),
    ("export", "x.duckdb", "-o", "out.csv", "--table", "estimates"),
    ("estimate", "x.duckdb", "--covariates", "table.csv"),
    ("effects", "x.duckdb", "--covariates", "table.csv", "--metric", "clicks"),
    ("export", "x.duckdb", "-o", "out.parquet"),
    ("estimate", "x.duckdb", "--by", "country"),
)
READING_NIGHTS: tuple[tuple[str, ...], ...] = (
    ("estimate", "nights"),
    ("inspect", "nights", "--sql"),
    ("report", "nights", "-o", "pages"),
    ("verify", "nights"),
    ("inspect", "nights"),
    ("estimate", "nights", "--json", "--looks", "2"),
)
_LEFT = ("page.html", "out.csv", "out.parquet", "pages", "pages/*")
_NIGHT = f"nights/trial.{NIGHTS[1]}.r1.duckdb"
_BYTES = ("cut", "a byte", "three bytes", "stored by v1.2.0", "stored by latest", "odd", "rubbish")


@dataclass(frozen=True)
class Target:
    """A table, or a column of one, in the base that it is changed in; or a file's bytes."""

    base: str
    table: str = ""
    column: str = ""
    place: int = 0
    """Which of all targets it is: not all are made the same at a time."""

    def change(self, turns: int) -> Made:
        """What it is made in its ``turns``-th turn: a name of both, and the statements."""
        turns += self.place
        if not self.column:
            name, statements = turn(SHAPES, turns)
            others = {
                "kind": turn(TYPES, turns),
                "body": turn(HOSTILE, turns),
                "other": turn(sorted(set(TABLES) - {self.table}), turns),
                "fits": ", ".join(f"NULL::{kind} AS {one}" for one, kind in self._columns.items()),
            }
            return (self.table, name), tuple(one.format(self.table, **others) for one in statements)
        name, statements = turn(
            _changes(self.table, self.column, self._columns[self.column]), turns
        )
        rows = turn(_ROWS, turns)
        return (f"{self.table}.{self.column}", name), tuple(
            one + rows if one.startswith("UPDATE") else one for one in statements
        )

    @property
    def _columns(self) -> dict[str, str]:
        return columns(self.base)[self.table]


@functools.cache
def _changes(table: str, column: str, kind: str) -> tuple[Change, ...]:
    """Every class of value of a column of this type, and what else it may be made."""
    usual = "VARCHAR" if kind.startswith("ENUM") else kind
    fact = SCHEMA[table].columns.get(column)
    words = re.findall(r"'([^']+)'", fact.comment) if fact and usual == "VARCHAR" else []
    values = {
        "null": "NULL",
        **VALUES[usual],
        "all alike": f'(SELECT max("{column}") FROM {table})::{usual}',
        **{word: f"'{word}'" for word in words},
    }
    if usual == "VARCHAR":
        values |= {"odd": "'" + turn(ODD_TEXTS, len(column)).replace("'", "''") + "'"}
    place = f'ALTER TABLE {table} ALTER "{column}"'
    others = {
        "dropped": f'ALTER TABLE {table} DROP "{column}"',
        "renamed": f'ALTER TABLE {table} RENAME "{column}" TO "{column}_"',
        "with a default": f"{place} SET DEFAULT NULL",
        "with an index": f'CREATE INDEX "i {column}" ON {table} ("{column}")',
        "of another type": f"{place} TYPE {turn(TYPES, len(table) * len(column))} USING NULL",
    }
    whole = f'"{column}"'
    update = f"UPDATE {table} SET {whole}"
    before = () if usual == kind else (f"{place} TYPE {usual}",)
    return (
        *((name, (*before, f"{update} = {value.replace('{0}', whole)}"))
          for name, value in values.items()),
        *((name, (statement,)) for name, statement in others.items()),
    )  # fmt: skip


def _targets(turns: int) -> list[Target]:
    """Every target once, in a base that has it, another one with every turn; neighbours differ."""
    bases: dict[tuple[str, str], list[str]] = {}
    for name in SECTIONS if turns % 3 < 2 else ("nights",):
        for table, kinds in columns(name).items():
            for column in ("", *kinds):
                bases.setdefault((table, column), []).append(name)
    found = [
        Target(turn(names, turns + turns // 7 + place), table, column, place)
        for place, ((table, column), names) in enumerate(sorted(bases.items()))
    ]
    files = [Target(name) for name in (turn(list(SECTIONS), turns), "nights")]
    return sorted(found, key=lambda one: (one.base, one.table, one.column)) + files


def _planned() -> Iterator[tuple[int, list[Target]]]:
    """The targets of each case: one, then two of one base, and so on; turn by turn."""
    turns = 0
    while True:
        left = _targets(turns)
        size = 1
        while left:
            together = [one for one in left[:size] if one.base == left[0].base and one.table]
            chosen = together or left[:1]
            yield turns, chosen
            left = left[len(chosen) :]
            size = 3 - size
        turns += 1


_cases = _planned()
_known: list[tuple[int, list[Target]]] = []


def releases(number: int, draw: Draw) -> Case:
    """A release file or a folder of them, of which one or two things are changed."""
    while len(_known) <= number:
        _known.append(next(_cases))
    turns, targets = _known[number]
    name = targets[0].base
    if not targets[0].table:
        return _of_bytes(name, turns, draw)
    of_tables = {one.table for one in targets if not one.column}
    made = sorted(((one, one.change(turns)) for one in targets), key=_place)
    changes = [  # of a table that is made something else no column is what others ask for
        change
        for one, change in made
        if change[0][1] not in ("with an index", "of another type") or one.table not in of_tables
    ]
    statements = tuple(statement for _, these in changes for statement in these)
    return _case(name, Remade(name, statements), number + turns, tuple(hit for hit, _ in changes))


def _place(made: tuple[Target, Made]) -> tuple[int, int]:
    """Where a change stands among others: each finds what it names, and may still be made."""
    one, ((_, what), _) = made
    if what == "with an index":
        return 3, 0
    if not one.column:
        return 2, 0
    # What a unit's debiased outcome follows from is found by the name of the randomised one.
    return int(what in {"dropped", "renamed"}), len(one.column)


def _of_bytes(name: str, turns: int, draw: Draw) -> Case:
    kind = turn(_BYTES, turns)
    where = tuple(draw.random() for _ in range(3))
    content: Content = Remade(
        name,
        cut=where[0] if kind == "cut" else None,
        flips=where[: {"a byte": 1, "three bytes": 3}.get(kind, 0)],
        storage=kind.removeprefix("stored by ") if kind.startswith("stored") else None,
    )
    if kind == "odd":
        content = draw.choice(ODD)
    if kind == "rubbish":
        content = draw.choice((b"", b"SQLite format 3\x00", b"PAR1", TABLE, *RUBBISH))
    return _case(name, content, draw.randrange(99), ((f"bytes of {name}", kind),))


def _case(name: str, content: Content, number: int, hits: tuple[tuple[str, str], ...]) -> Case:
    files: dict[str, Content] = {"table.csv": TABLE, "ids.key": SECRET, "x.duckdb": content}
    command = turn(READING, number)
    if name == "nights":
        files.pop("x.duckdb")
        files |= dict(base("nights")) | {_NIGHT: content}
        command = turn(READING_NIGHTS, number)
    return Case(files, (command,), _LEFT, hits=hits)
