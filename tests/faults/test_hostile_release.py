"""A file that somebody else made can show and run nothing but the tables of a release."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from flows.cli.main import run
from flows.released.estimates.release import estimate_file
from flows.released.file import opening
from flows.released.file.checks import rules
from flows.released.file.opening import open_safely, patience
from flows.released.file.read import read_release
from schemas.errors import InputError
from tests.conftest import a_log, build_experiment
from tests.faults.hostile import Change, changed, commands, refusals, said

KEY = "k3y-that-nobody-may-read"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_experiment(tmp_path_factory.mktemp("sound") / "e", a_log(400)).run().path


def test_a_sound_release_is_read_by_every_command(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The negative control of the tests below: a copy, changed in nothing."""
    copy = changed(sound, tmp_path, said())
    for command in commands(copy, tmp_path):
        code = run(command)
        told = capsys.readouterr()
        no_match = "none of its" in told.err  # the ids of the tables are made up
        assert code == (2 if no_match else 0), told.err


def test_a_view_that_reads_a_file_of_the_readers(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "ids.key"
    key.write_text(KEY)
    change = said(
        "CREATE TABLE was AS FROM release",
        "DROP TABLE release",
        "CREATE VIEW release AS SELECT was.* REPLACE (k.content AS control) "
        f"FROM was, read_text('{key}') AS k",
    )
    path = changed(sound, tmp_path, change)
    with duckdb.connect(str(path)) as connection:  # the attack works on who does not look
        assert connection.execute("SELECT control FROM release").fetchall() == [(KEY,)]
    for told in refusals(path, tmp_path, capsys):
        assert "it holds the view 'release'" in told
        assert KEY not in told


@pytest.mark.parametrize("table", ["release", "units", "pools", "estimates"])
def test_a_view_that_never_ends(
    sound: Path, tmp_path: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = "VIEW" if table == "units" else "TABLE"
    change = said(
        f"CREATE TABLE was AS FROM {table}",
        f"DROP {kind} {table}",
        f"CREATE VIEW {table} AS SELECT was.* FROM was, range(10000000000000)",
    )
    for told in refusals(changed(sound, tmp_path, change), tmp_path, capsys, only=["inspect"]):
        of_units = "the columns of table units are not a release's"
        assert (of_units if table == "units" else f"it holds the view '{table}'") in told


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("CREATE MACRO sum(x) AS 42", "it holds the macro 'sum'"),
        ("CREATE MACRO bool_and(x) AS true", "it holds the macro 'bool_and'"),
        ("CREATE MACRO duckdb_views() AS TABLE SELECT 1", "it holds the macro 'duckdb_views'"),
        ("CREATE OR REPLACE MACRO ate(x) AS x", "it holds the macro 'ate'"),
        ("CREATE VIEW extra AS SELECT 1", "it holds the view 'extra'"),
        ('CREATE VIEW "a\x1b[2J\u202e\n" AS SELECT 1', r"it holds the view 'a\x1b[2J\u202e\n'"),
        ("CREATE TABLE extra (a INTEGER)", "it holds the table 'extra'"),
        ("CREATE SCHEMA other", "it holds the schema 'other'"),
        ("CREATE SCHEMA _clusterdp_0123456789abcdef", "the columns of table units are not"),
        ("CREATE SCHEMA other; CREATE VIEW other.x AS SELECT 1", "it holds the view 'x'"),
        ("CREATE SEQUENCE numbers", "it holds the sequence 'numbers'"),
        ("CREATE TYPE kind AS ENUM ('a')", "it holds the type 'kind'"),
        ("CREATE INDEX fast ON strata (cluster)", "it holds the index 'fast'"),
        ("ALTER TABLE $own.drawn ADD more INTEGER", "the columns of table units are not"),
        ("ALTER TABLE $own.drawn ADD more BLOB", "the columns of table units are not"),
        ("ALTER TABLE $own.drawn ADD more DOUBLE[]", "the columns of table units are not"),
        ("ALTER TABLE $own.drawn ADD more ENUM('a')", "the columns of table units are not"),
        ("ALTER TABLE $own.drawn ADD more TIMESTAMP", "the columns of table units are not"),
        (
            "ALTER TABLE $own.drawn ADD more VARCHAR DEFAULT 'x'",
            "the columns of table units",
        ),
        (
            'ALTER TABLE $own.drawn ADD "more\'" VARCHAR',
            "the columns of table units are not",
        ),
        (
            'ALTER TABLE $own.drawn ADD "a\x1b[2J" VARCHAR',
            "the columns of table units are not",
        ),
        ("ALTER TABLE $own.drawn ADD period VARCHAR", "the columns of table units are not"),
        (
            "ALTER TABLE $own.drawn ADD x_debiased DOUBLE",
            "the columns of table units are not",
        ),
        (
            "ALTER TABLE $own.drawn ADD assigned_to BIGINT",
            "the columns of table units are not",
        ),
        (
            "ALTER TABLE $own.drawn ADD assigned_to UBIGINT",
            "the columns of table units are not",
        ),
        (
            "ALTER TABLE $own.drawn ADD assigned_to UBIGINT; ALTER TABLE $own.drawn ADD b DATE",
            "the columns of table units are not",
        ),
        ("ALTER TABLE pools ALTER n_units SET DEFAULT 7", "the columns of table pools are not"),
        ("ALTER TABLE pools ALTER n_units SET NOT NULL", "the columns of table pools are not"),
        ("ALTER TABLE pools ALTER n_units TYPE DOUBLE", "the columns of table pools are not"),
        ("ALTER TABLE debias DROP COLUMN weight", "the columns of table debias are not"),
        ("ALTER TABLE release ALTER control TYPE BLOB", "the columns of table release are not"),
        ("DROP TABLE estimates", "no table estimates"),
    ],
)
def test_a_file_with_more_than_tables_of_a_release(
    sound: Path,
    tmp_path: Path,
    statement: str,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = changed(sound, tmp_path, said(*statement.split("; ")))
    for refusal in refusals(path, tmp_path, capsys, only=["inspect"]):
        assert told in refusal


ATE, OWN = "$ate", "$own"
"""In what follows: the body of the file's own ``ate``, and the schema that its macros read."""
FOREIGN_CODE = [
    "CREATE OR REPLACE MACRO ate(release_name := NULL) AS TABLE SELECT 1 AS estimate",
    f"CREATE OR REPLACE MACRO ate(release_name := 'other') AS TABLE {ATE}",
    f"CREATE OR REPLACE MACRO ate(release_name := NULL, more := 1) AS TABLE {ATE}",
    f"CREATE OR REPLACE MACRO ate(release_name := NULL) AS TABLE ({ATE}), (a, b) AS TABLE SELECT 2",
    f"CREATE OR REPLACE MACRO ate(release_name := NULL) AS TABLE FROM ({ATE}) LIMIT 1",
    "CREATE OR REPLACE MACRO ate_by(attribute, release_name := NULL) AS TABLE "
    "FROM read_text('/etc/hostname')",
    "CREATE OR REPLACE MACRO ate_by_segment(segments_table, release_name := NULL) AS TABLE "
    "SELECT 1",
    "DROP MACRO TABLE ate",
    "UPDATE release SET same_shares = NOT same_shares",
    f"CREATE TABLE {OWN}.x (k BIGINT)",
    f"DROP TABLE {OWN}.pools",
    f"ALTER TABLE {OWN}.quantiles ALTER k SET DEFAULT 7",
    f"ALTER TABLE {OWN}.quantiles ADD COLUMN x DOUBLE[]",
    f"DROP TABLE {OWN}.quantiles; CREATE TABLE {OWN}.quantiles "
    "(k BIGINT, coefficient DOUBLE GENERATED ALWAYS AS (random()))",
    f"DROP TABLE {OWN}.quantiles; CREATE TABLE {OWN}.quantiles "
    "(k BIGINT CHECK (k > 0), coefficient DOUBLE)",
]


def own_code(statement: str) -> Change:
    """A change in which the signs above stand for what the file has."""

    def change(connection: duckdb.DuckDBPyConnection) -> None:
        query = "SELECT macro_definition FROM duckdb_functions() WHERE function_name = 'ate'"
        ((body,),) = connection.execute(query).fetchall()
        query = "SELECT schema_name FROM duckdb_schemas() WHERE schema_name LIKE '@_clusterdp%' "
        ((own,),) = connection.execute(query + "ESCAPE '@'").fetchall()
        for part in statement.split("; "):
            connection.execute(part.replace(ATE, body).replace(OWN, own))

    return change


@pytest.mark.parametrize("statement", FOREIGN_CODE)
def test_what_runs_in_a_file_is_what_its_facts_make(
    sound: Path, tmp_path: Path, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Macros are trusted by their bodies, not by their names; and nothing of them is run."""
    path = changed(sound, tmp_path, own_code(statement))
    for told in refusals(path, tmp_path, capsys, only=["inspect"]):
        assert "is not the one that clusterdp makes" in told or "are not those that its" in told
        assert "get the file from who published it" in told


def test_macros_that_were_written_again_are_what_they_were(sound: Path, tmp_path: Path) -> None:
    """The negative control of the test above."""
    again = f"CREATE OR REPLACE MACRO ate(release_name := NULL) AS TABLE {ATE}"
    read_release(changed(sound, tmp_path, own_code(again)))


def made_again(table: str, columns: str) -> list[str]:
    """A table made again with other definitions of the same columns, and the same rows."""
    return [
        f"CREATE TABLE was AS FROM {table}",
        f"DROP TABLE {table}",
        f"CREATE TABLE {table} ({columns})",
        f"INSERT INTO {table} FROM was",
        "DROP TABLE was",
    ]


@pytest.mark.parametrize(
    "columns",
    [
        "cluster VARCHAR COLLATE NOCASE, arm VARCHAR, pool VARCHAR, n_units BIGINT, "
        "own_sizes DOUBLE",
        "cluster VARCHAR, arm VARCHAR, pool VARCHAR, n_units BIGINT CHECK (n_units > 0), "
        "own_sizes DOUBLE",
        "cluster VARCHAR, arm VARCHAR, pool VARCHAR, n_units BIGINT, own_sizes DOUBLE, "
        "UNIQUE (cluster, arm)",
        "cluster VARCHAR, arm VARCHAR, pool VARCHAR, n_units BIGINT DEFAULT 3, own_sizes DOUBLE",
    ],
)
def test_a_table_of_our_columns_with_something_attached(
    sound: Path, tmp_path: Path, columns: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(sound, tmp_path, said(*made_again("strata", columns)))
    for told in refusals(path, tmp_path, capsys, only=["inspect"]):
        assert "strata" in told


@pytest.mark.parametrize(
    "kinds",
    [
        "cluster ENUM('east', 'west')[], arm VARCHAR",
        "cluster ENUM('east', 'west')[1], arm VARCHAR",
        "cluster ENUM('east', 'west') DEFAULT 'east', arm VARCHAR",
        "cluster ENUM('east', 'west') UNIQUE, arm VARCHAR",
        "cluster VARCHAR USING COMPRESSION dictionary, arm VARCHAR",
        "cluster STRUCT(a ENUM('east', 'west')), arm VARCHAR",
        "cluster MAP(ENUM('east', 'west'), INTEGER), arm VARCHAR",
    ],
)
def test_labels_that_are_neither_text_nor_an_enum(
    sound: Path, tmp_path: Path, kinds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = (
        f"_stratum UINTEGER, {kinds}, weight DOUBLE, factor0 DOUBLE, base0 DOUBLE, shift0 DOUBLE"
    )
    change = said("DROP TABLE $own.unit_facts", f"CREATE TABLE $own.unit_facts ({facts})")
    for told in refusals(changed(sound, tmp_path, change), tmp_path, capsys, only=["inspect"]):
        assert "the columns of table units are not" in told


@pytest.mark.parametrize(
    ("ids", "kinds"),
    [
        ("unit_id VARCHAR", "cluster VARCHAR, arm VARCHAR"),
        (
            "unit_id VARCHAR USING COMPRESSION fsst",
            "cluster VARCHAR, arm ENUM('none', 'mail', 'b')",
        ),
        (
            "unit_id VARCHAR",
            """cluster ENUM('east', 'west', 'x'') USING COMPRESSION FSST, "arm"', ''),
               arm ENUM('mail', 'none', 'unit_id VARCHAR', 'ENUM(''arm'')')""",
        ),
    ],
)
def test_labels_may_be_text_or_enums(
    sound: Path, tmp_path: Path, ids: str, kinds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = (
        f"_stratum UINTEGER, {kinds}, weight DOUBLE, factor0 DOUBLE, base0 DOUBLE, shift0 DOUBLE"
    )
    change = said(
        *made_again("$own.unit_facts", facts),
        *made_again("$own.drawn", f"{ids}, _stratum UINTEGER, outcome_randomised DOUBLE"),
    )
    assert run(["inspect", str(changed(sound, tmp_path, change))]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("table", ["debias", "counts"])
@pytest.mark.parametrize(
    "kind",
    [
        "ENUM('mail', 'none')[]",
        "ENUM('mail', 'none') DEFAULT 'mail'",
        "ENUM('mail', 'none') CHECK (arm <> 'other')",
        "STRUCT(a ENUM('mail', 'none'))",
        "VARCHAR USING COMPRESSION dictionary",
        "INTEGER",
    ],
)
def test_arms_of_cells_that_are_neither_text_nor_an_enum(
    sound: Path, tmp_path: Path, table: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for told in refusals(
        changed(sound, tmp_path, with_arms(table, kind, "")), tmp_path, capsys, only=["inspect"]
    ):
        assert f"the columns of table {table} are not" in told


def with_arms(table: str, kind: str, rows: str) -> Change:
    """A table with a row for each outcome made again with another type of arms; ``rows`` of it."""
    others = {
        "debias": 'probability DOUBLE, weight DOUBLE, noise_variance DOUBLE, "table" BIGINT',
        "counts": "noisy_count BIGINT",
    }
    columns = f"metric VARCHAR, pool VARCHAR, arm {kind}, outcome DOUBLE, {others[table]}"
    return said(
        f"CREATE TABLE was AS FROM {table}",
        f"DROP TABLE {table}",
        f"CREATE TABLE {table} ({columns})",
        f"INSERT INTO {table} {rows}" if rows else "SELECT 1",
        "DROP TABLE was",
    )


@pytest.mark.parametrize("table", ["debias", "counts"])
@pytest.mark.parametrize(
    "kind", ["VARCHAR", "ENUM('none', '', 'mail')", "ENUM('mail', 'none', 'it''s', 'x')"]
)
def test_arms_of_cells_may_be_text_or_an_enum(
    sound: Path, tmp_path: Path, table: str, kind: str
) -> None:
    """As a file of the version before has them, and with labels of somebody else's."""
    path = changed(sound, tmp_path, with_arms(table, kind, "FROM was"))
    assert estimate_file(path) == estimate_file(sound)


@pytest.mark.parametrize("table", ["debias", "counts"])
@pytest.mark.parametrize(
    ("kind", "other", "told"),
    [
        ("ENUM('mail', 'none', '')", "''", "every row has a pool, an arm and an outcome"),
        ("ENUM('mail', 'none')", "NULL", "every row has a pool, an arm and an outcome"),
        ("ENUM('mail', 'none', 'x')", "'x'", "each pool and arm has each outcome once"),
    ],
)
def test_arms_of_an_enum_are_judged_as_text_is(
    sound: Path, tmp_path: Path, table: str, kind: str, other: str, told: str
) -> None:
    arm = f"CASE arm WHEN 'mail' THEN {other} ELSE arm::VARCHAR END"
    rows = f"SELECT * REPLACE ({arm} AS arm) FROM was"
    with pytest.raises(InputError, match=f"{table}: {told}"):
        estimate_file(changed(sound, tmp_path, with_arms(table, kind, rows)))


def test_a_column_that_is_worked_out(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = said(
        "DROP TABLE pools",
        "CREATE TABLE pools (metric VARCHAR, pool VARCHAR, arm VARCHAR, n_units BIGINT, "
        "noisy_mean DOUBLE, noisy_difference DOUBLE, mean_weight DOUBLE, "
        "square_weight DOUBLE GENERATED ALWAYS AS (mean_weight / 2))",
    )
    for told in refusals(changed(sound, tmp_path, change), tmp_path, capsys, only=["inspect"]):
        assert "the columns of table pools are not" in told


def test_changes_that_lie_beside_the_file(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DuckDB would add them to the tables, though it opens the file read-only."""
    path = tmp_path / "theirs.duckdb"
    shutil.copy(sound, path)
    path.chmod(0o600)
    connection = duckdb.connect(str(path))
    connection.execute("SET wal_autocheckpoint = '1TB'")
    connection.execute("UPDATE release SET epsilon = 0.001")
    kept = (tmp_path / "theirs.duckdb.wal").read_bytes()
    whole = path.read_bytes()
    connection.close()
    path.write_bytes(whole)
    (tmp_path / "theirs.duckdb.wal").write_bytes(kept)
    for told in refusals(path, tmp_path, capsys):
        assert "beside it lies theirs.duckdb.wal" in told
    link = tmp_path / "link.duckdb"
    link.symlink_to(path)
    with pytest.raises(InputError, match=r"beside it lies theirs\.duckdb\.wal"):
        read_release(link)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "is a pipe, not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
        (lambda path: path.symlink_to(path.parent / "gone"), "a link of this name to nothing"),
    ],
)
def test_what_is_no_file(
    tmp_path: Path,
    make: Callable[[Path], None],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "theirs.duckdb"
    make(path)
    for refusal in refusals(path, tmp_path, capsys):
        assert told in refusal


def test_a_folder_without_releases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "none"
    folder.mkdir()
    for command in (["inspect"], ["estimate"], ["report", "-o", str(tmp_path / "pages")]):
        assert run([command[0], str(folder), *command[1:]]) == 2, command
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(f"clusterdp: {folder}: "), printed.err
        assert printed.err.count("\n") == 1
    assert not (tmp_path / "pages").exists()


def test_a_link_to_a_release_is_read(sound: Path, tmp_path: Path) -> None:
    link = tmp_path / "it's.duckdb"  # a quote has to be spelt in SQL
    link.symlink_to(sound)
    assert read_release(link).manifest == read_release(sound).manifest
    copy = tmp_path / "o'ne.duckdb"
    shutil.copy(sound, copy)
    assert read_release(copy).manifest == read_release(sound).manifest


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.5])
def test_a_file_that_was_cut(
    sound: Path, tmp_path: Path, kept: float, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "theirs.duckdb"
    path.write_bytes(sound.read_bytes()[: int(kept * sound.stat().st_size)])
    refusals(path, tmp_path, capsys, only=["inspect"])


def test_a_database_of_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "theirs.duckdb"
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    for told in refusals(path, tmp_path, capsys, only=["inspect"]):
        assert "not a DuckDB file that can be opened" in told


def test_what_is_opened_reaches_nothing_else(sound: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    frame = 1  # noqa: F841 - DuckDB would find a variable of this name
    with open_safely(sound) as connection:
        for query in (
            f"FROM read_csv('{other}')",
            f"FROM '{other}'",
            f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
            f"ATTACH '{tmp_path / 'new.duckdb'}'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "FROM frame",
            "SET enable_external_access = true",
            "SET memory_limit = '1TB'",
            "DELETE FROM main.units",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(query)
        settings = "SELECT current_setting('temp_directory')"
        assert connection.execute(settings).fetchall() == [("",)]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other.csv"]


def test_what_never_ends_is_interrupted(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the patience is: here it has run out at once."""
    monkeypatch.setattr(opening, "_SECONDS", 0.0)
    monkeypatch.setattr(opening, "_BYTES_A_SECOND", 1e12)
    with pytest.raises(InputError, match="takes far longer to read") as caught:  # noqa: SIM117 - raised on leaving
        with open_safely(sound) as connection:
            connection.execute("SELECT count(*) FROM range(10000000000000)").fetchall()
    assert str(sound) in str(caught.value)
    assert not [one for one in threading.enumerate() if one.name.startswith("Thread-watch")]


def test_a_large_release_has_time(sound: Path) -> None:
    """Ten million units make a file of some 100 MB, and take seconds; there is time for hours."""
    assert patience(sound.stat().st_size) >= 600
    assert patience(100_000_000) >= 1_500


def test_very_many_equal_rows_are_never_brought_into_memory(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal rows take next to no room in a file; that each stands once is found in the file."""
    path = changed(
        sound,
        tmp_path,
        said(
            "INSERT INTO strata SELECT cluster, arm, pool, n_units, own_sizes "
            "FROM (FROM strata LIMIT 1), range(2000000)"
        ),
    )
    for told in refusals(path, tmp_path, capsys, only=["inspect"]):
        assert "strata: each cluster and arm stands once" in told


def test_tables_far_larger_than_their_file_are_refused(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text of gigabytes in every row would be small in a file; here the bound is lowered."""
    path = changed(sound, tmp_path, said())  # which nobody has read yet: what was is known
    monkeypatch.setattr(rules, "_FREE_BYTES", 100)
    monkeypatch.setattr(rules, "_BYTES_FOR_A_BYTE", 0)
    with pytest.raises(InputError, match="tables are of a size that fits the file's"):
        read_release(path)


def test_reading_leaves_the_file_and_its_folder_alone(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(sound, tmp_path, said())
    path.chmod(0o444)
    before, at = path.read_bytes(), path.stat().st_mtime_ns
    time.sleep(0.01)
    assert run(["inspect", str(path)]) == 0
    capsys.readouterr()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, at)
    assert [one.name for one in tmp_path.iterdir()] == ["theirs.duckdb"]


def test_the_macros_work_in_an_analysts_own_duckdb_with_everything_shut(sound: Path) -> None:
    """As docs/analyst.md says: attach first, then shut; data frames have to be registered."""
    with duckdb.connect() as connection:
        for statement in (
            "SET autoinstall_known_extensions = false",
            "SET autoload_known_extensions = false",
            "CREATE TABLE mine AS SELECT printf('c%05d', range) AS unit_id, 'a' AS segment "
            "FROM range(400)",
            "CREATE VIEW seen AS FROM mine",
            f"ATTACH '{sound}' AS rel (READ_ONLY)",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            connection.execute(statement)
        connection.register("frame", connection.sql("FROM mine").to_arrow_table())
        assert connection.execute("FROM rel.ate('rel')").fetchall()
        found = [
            connection.execute(f"FROM rel.ate_by_segment('{name}', 'rel')").fetchall()
            for name in ("mine", "seen", "frame")
        ]
        assert found[0]
        # Sums of doubles in another order differ in their last digits.
        alike = [
            [[round(one, 9) if isinstance(one, float) else one for one in row] for row in rows]
            for rows in found
        ]
        assert alike[0] == alike[1] == alike[2]
        views = "SELECT view_name FROM duckdb_views() WHERE database_name = 'rel' AND NOT internal"
        assert connection.execute(views).fetchall() == [("units",)]
        macros = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE database_name = 'rel'"
        names = {row[0] for row in connection.execute(macros).fetchall()}
        assert names == {"ate", "ate_by", "ate_by_segment"}
