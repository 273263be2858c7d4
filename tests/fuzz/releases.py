"""Release files that somebody else made, or that something happened to."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from schemas.released import TABLES
from tests.fuzz.bases import SECTIONS, UNITS
from tests.fuzz.case import ODD, SECRET, Case, Content, Remade
from tests.fuzz.values import RUBBISH, texts

TABLE = (
    "unit_id,segment,age\n" + "".join(f"c{unit:05d},s{unit % 2},{unit}\n" for unit in range(UNITS))
).encode()

VALUES = (
    "NULL",
    "0",
    "1",
    "-1",
    "2",
    "0.5",
    "'NaN'::DOUBLE",
    "'inf'::DOUBLE",
    "'-inf'::DOUBLE",
    "1e308",
    "-1e308",
    "5e-324",
    "1e-300",
    "9223372036854775807",
    "4503599627370497",
    "''",
    "repeat('x', 100000)",
    "chr(27) || '[2J' || chr(7)",
    "chr(8238) || 'abc'",
    "'a' || chr(10) || 'b'",
    "chr(0)",
    "'none'",
    "'mail'",
    "'other'",
    "'all'",
    "'<script>alert(1)</script>'",
    "'$\\frac{1}{0}$'",
    "TIMESTAMP '0001-01-01'",
    "TIMESTAMP 'infinity'",
    "TIMESTAMP '290000-01-01'",
    "true",
    "false",
)
"""What a cell of a release may be made."""

TYPES = (
    "VARCHAR",
    "DOUBLE",
    "FLOAT",
    "BIGINT",
    "UBIGINT",
    "HUGEINT",
    "TINYINT",
    "BOOLEAN",
    "DECIMAL(38, 10)",
    "BLOB",
    "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE",
    "DATE",
    "INTERVAL",
    "DOUBLE[]",
    "STRUCT(a DOUBLE)",
    "MAP(VARCHAR, DOUBLE)",
    "UUID",
    "BIT",
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

_tables = st.sampled_from(sorted(TABLES))
_columns = _tables.flatmap(
    lambda table: st.tuples(st.just(table), st.sampled_from(sorted(TABLES[table])))
)
_rows = st.sampled_from(["", " WHERE rowid = 0", " WHERE rowid % 2 = 0", " WHERE rowid > 0"])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''").replace("\x00", "") + "'"


@st.composite
def _cells(draw: st.DrawFn) -> tuple[str, ...]:
    table, column = draw(_columns)
    plain = texts.filter(lambda text: "\x00" not in text and text.isprintable()).map(_quoted)
    value = draw(st.one_of(st.sampled_from(VALUES), st.sampled_from(VALUES), plain))
    return (f'UPDATE "{table}" SET "{column}" = {value}{draw(_rows)}',)


@st.composite
def _of_a_kind(draw: st.DrawFn) -> tuple[str, ...]:
    """One column that means much, made something it cannot be."""
    return draw(
        st.sampled_from(
            [
                ("UPDATE release SET resampling_probability = 0",),
                ("UPDATE release SET resampling_probability = 1",),
                ("UPDATE release SET resampling_probability = NULL",),
                ("UPDATE release SET noise_scale = 1e308",),
                ("UPDATE release SET control = NULL",),
                ("UPDATE release SET control = 'mail'",),
                ("UPDATE release SET grid_step = 0",),
                ("UPDATE release SET strata_statistic = 'counts'",),
                ("UPDATE release SET strata_statistic = 'means'",),
                ("UPDATE release SET mechanism = 'noisy-histogram'",),
                ("UPDATE release SET mechanism = 'unheard-of'",),
                ("UPDATE release SET same_shares = NOT same_shares",),
                ("UPDATE release SET cluster_epsilon = 0.5",),
                ("UPDATE outcomes SET outcome = outcome * 1e300",),
                ("UPDATE units SET outcome_randomised = outcome_randomised * 1e100",),
                ("UPDATE units SET outcome_randomised = 99",),
                ("UPDATE debias SET probability = 0",),
                ("UPDATE debias SET probability = probability * 2",),
                ("UPDATE debias SET noisy_count = noisy_count * 1000000000000",),
                ("UPDATE pools SET n_units = 0",),
                ("UPDATE strata SET n_units = -n_units",),
                ("DELETE FROM pools",),
                ("DELETE FROM units",),
                ("DELETE FROM outcomes",),
            ]
        )
    )


@st.composite
def _shapes(draw: st.DrawFn) -> tuple[str, ...]:
    """Tables and columns that are others than those of a release."""
    table, column = draw(_columns)
    other, kind = draw(_tables), draw(st.sampled_from(TYPES))
    body = draw(st.sampled_from(HOSTILE))
    fits = ", ".join(f"NULL::{kind} AS {name}" for name, kind in TABLES[table].items())
    as_fits = f"SELECT {fits} FROM ({body})"
    return draw(
        st.sampled_from(
            [
                (f'ALTER TABLE "{table}" ALTER "{column}" TYPE {kind} USING NULL',),
                (f'ALTER TABLE "{table}" ALTER "{column}" TYPE {kind}',),
                (f'ALTER TABLE "{table}" DROP "{column}"',),
                (f'ALTER TABLE "{table}" RENAME "{column}" TO "{column}_"',),
                (f'ALTER TABLE "{table}" ADD COLUMN more {kind}',),
                (f'DROP TABLE "{table}"',),
                (f'ALTER TABLE "{table}" RENAME TO "{table}_"',),
                (f'INSERT INTO "{table}" SELECT * FROM "{table}"',),
                (f'DELETE FROM "{table}" WHERE rowid % 2 = 0',),
                (f'CREATE VIEW more AS SELECT * FROM "{table}"',),
                (f'DROP TABLE "{table}"', f'CREATE VIEW "{table}" AS {body}'),
                (f'DROP TABLE "{table}"', f'CREATE VIEW "{table}" AS {as_fits}'),
                (
                    f'ALTER TABLE "{table}" RENAME TO hidden',
                    f'CREATE VIEW "{table}" AS SELECT * FROM hidden',
                ),
                (f'DROP TABLE "{table}"', f'CREATE TABLE "{table}" AS SELECT * FROM "{other}"'),
                (f'CREATE SCHEMA s; CREATE TABLE s."{table}" AS SELECT * FROM "{table}"',),
                ("CREATE MACRO more(x) AS x + 1", "CREATE SEQUENCE one"),
                ("CREATE MACRO avg(x) AS error('mine')", "CREATE MACRO count(x) AS -1"),
                (f'ALTER TABLE "{table}" ALTER "{column}" SET DEFAULT 1',),
                (f'CREATE INDEX i ON "{table}" ("{column}")',),
            ]
        )
    )


_steps: SearchStrategy[tuple[str, ...]] = st.one_of(_cells(), _cells(), _of_a_kind(), _shapes())


@st.composite
def files(draw: st.DrawFn) -> Content:
    """A file that is said to be a release."""
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return draw(
            st.one_of(
                st.sampled_from([b"", b"SQLite format 3\x00", b"PAR1", TABLE, *RUBBISH]),
                st.binary(max_size=64),
                st.sampled_from(ODD),
            )
        )
    made = draw(st.lists(_steps, min_size=kind > 2, max_size=3))
    if kind <= 2:
        where = st.floats(0, 1)
        return Remade(
            draw(st.sampled_from(sorted(SECTIONS))),
            cut=draw(st.one_of(st.none(), where)),
            flips=tuple(draw(st.lists(where, max_size=3))),
        )
    storage = draw(st.sampled_from([None] * 20 + ["v1.2.0", "latest"]))
    statements = tuple(one for step in made for one in step)
    return Remade(draw(st.sampled_from(sorted(SECTIONS))), statements, storage=storage)


READING: tuple[tuple[str, ...], ...] = (
    ("inspect", "x.duckdb"),
    ("inspect", "x.duckdb", "--json"),
    ("estimate", "x.duckdb"),
    ("estimate", "x.duckdb", "--json"),
    ("estimate", "x.duckdb", "--segments", "table.csv"),
    ("estimate", "x.duckdb", "--covariates", "table.csv"),
    ("report", "x.duckdb", "-o", "page.html"),
)


@st.composite
def releases(draw: st.DrawFn) -> Case:
    """A release file, and one or two of the commands that read it."""
    commands = st.lists(st.sampled_from(READING), min_size=1, max_size=2, unique=True)
    content = {"x.duckdb": draw(files()), "table.csv": TABLE, "ids.key": SECRET}
    return Case(content, tuple(draw(commands)), ("page.html",))
