"""An analyst's table with the ids that a release has, made by whoever holds the key."""

import hmac
import stat
from pathlib import Path

import polars as pl
import pytest

from flows.hash_ids import HashIdsResult, hash_ids
from flows.raw.ingest import ingest
from flows.raw.units.unit_ids import released_ids
from flows.raw.validate import validate
from schemas.errors import ClusterdpError, ConfigError, InputError
from tests.conftest import Builder, Content, Experiment, plain_rows, rows, told, write_content

KEY = b"thirty-two bytes of some secret!"


def keyed(experiment: Builder, log: Content | None = None) -> Experiment:
    """An experiment with hashed ids, its key in its folder."""
    built = experiment(log, publish={"unit_id": "keyed-hash", "key_file": "key"})
    (built.folder / "key").write_bytes(KEY)
    (built.folder / "key").chmod(0o600)
    return built


def hashed(unit: object) -> str:
    return hmac.new(KEY, str(unit).encode(), "sha256").hexdigest()


def convert(
    built: Experiment, content: Content, name: str = "mine.csv", out: str = "out.csv"
) -> tuple[HashIdsResult, Path]:
    """Hash the ids of a table; what was said, and where the outcome lies."""
    write_content(built.folder / name, content)
    output = built.folder / out
    return hash_ids(built.config, built.folder / name, output, "unit_id"), output


def refusal(built: Experiment, file: Path, output: Path, column: str = "unit_id") -> ClusterdpError:
    """The error, after which nothing has changed."""
    before = {path: path.read_bytes() for path in built.folder.rglob("*") if path.is_file()}
    with pytest.raises(ClusterdpError) as caught:
        hash_ids(built.config, file, output, column)
    after = {path: path.read_bytes() for path in built.folder.rglob("*") if path.is_file()}
    assert before == after
    assert caught.value.exit_code == 2
    return caught.value


# what is written


def test_every_other_field_of_a_csv_file_stays_as_it_is(experiment: Builder) -> None:
    text = 'age,unit_id,note\n007,a," b, ""c"""\n1e5,é,\n,x y,-0.0\nNaN,1,""\n'
    result, output = convert(keyed(experiment), text)
    expected = text
    for unit in ("a", "é", "x y", "1"):
        expected = expected.replace(f",{unit},", f",{hashed(unit)},")
    assert output.read_text(encoding="utf-8") == expected
    assert (result.path, result.n_rows, result.n_missing) == (output, 4, 0)
    assert result.warnings == ()


def test_a_parquet_file_keeps_its_types(experiment: Builder) -> None:
    table = pl.DataFrame({"x": [1.5, None], "unit_id": [-7, 2], "when": [[1], [2, 3]]})
    _, output = convert(keyed(experiment), table, "mine.parquet", "out.parquet")
    found = pl.read_parquet(output)
    assert found.equals(table.with_columns(unit_id=pl.Series([hashed(-7), hashed(2)])))
    assert found.columns == table.columns


@pytest.mark.parametrize(("name", "out"), [("a.csv", "b.parquet"), ("a.parquet", "b.CSV")])
def test_one_format_can_become_the_other(experiment: Builder, name: str, out: str) -> None:
    table = pl.DataFrame({"unit_id": ["p", "q"], "segment": ["young", "old"]})
    _, output = convert(keyed(experiment), table, name, out)
    found = pl.read_parquet(output) if out == "b.parquet" else pl.read_csv(output)
    assert found.rows() == [(hashed("p"), "young"), (hashed("q"), "old")]


@pytest.mark.parametrize(
    ("name", "content", "missing"),
    [
        ("mine.csv", 'unit_id,s\na,1\n,2\n"",3\nb,4\n', 2),
        ("mine.parquet", pl.DataFrame({"unit_id": ["a", None, "", "b\ufffd"], "s": [1] * 4}), 3),
        ("mine.parquet", pl.DataFrame({"unit_id": [1, None], "s": [1, 2]}), 1),
        ("mine.parquet", pl.DataFrame({"unit_id": [None, None]}), 2),
    ],
)
def test_missing_ids_stay_missing_and_are_counted(
    experiment: Builder, name: str, content: Content, missing: int
) -> None:
    result, output = convert(keyed(experiment), content, name, "out.parquet")
    assert result.n_missing == missing
    assert pl.read_parquet(output)["unit_id"].null_count() == missing


def test_a_column_of_another_name_can_be_hashed(experiment: Builder) -> None:
    built = keyed(experiment)
    write_content(built.folder / "mine.csv", "unit_id,customer\na,b\n")
    hash_ids(built.config, built.folder / "mine.csv", built.folder / "out.csv", "customer")
    assert (built.folder / "out.csv").read_text() == f"unit_id,customer\na,{hashed('b')}\n"


def test_the_result_is_for_others_to_read(experiment: Builder) -> None:
    _, output = convert(keyed(experiment), "unit_id\na\n")
    assert stat.S_IMODE(output.stat().st_mode) & 0o444 == 0o444


@pytest.mark.parametrize("log_file", ["log.csv", "log.parquet", "log.jsonl"])
@pytest.mark.parametrize("name", ["mine.csv", "mine.parquet"])
def test_ids_match_those_of_a_release(
    experiment: Builder, tmp_path: Path, log_file: str, name: str
) -> None:
    """Each id that the log's reader takes, as the log's reader takes it."""
    ids = ["a", " a", "007", "1.0", "é", "NULL", "x" * 40, "", None]
    publish = {"unit_id": "keyed-hash", "key_file": "../key"}
    (tmp_path / "key").write_bytes(KEY)
    log = rows(*[(unit, ("none", "mail")[i % 2], "east", 1.0) for i, unit in enumerate(ids)])
    built = experiment(log, log_file, publish=publish)
    config = built.load()
    kept, _, _ = validate(config.log_facts, ingest(config.log_source, "once"))
    assert kept.n_rows == 7
    result, output = convert(built, pl.DataFrame({"unit_id": ids}), name, "out.parquet")
    assert result.n_missing == 2
    found = pl.read_parquet(output)["unit_id"].drop_nulls()
    assert sorted(found) == sorted(
        released_ids(config.id_key_path, plain_rows(kept.open())["unit"])
    )


def test_warnings_of_the_key_are_passed_on(experiment: Builder) -> None:
    built = keyed(experiment)
    (built.folder / "key").write_bytes(b"short")
    result, _ = convert(built, "unit_id\na\n")
    assert len(result.warnings) == 1
    assert result.as_json() == {
        "path": str(built.folder / "out.csv"),
        "n_rows": 1,
        "n_missing": 0,
        "warnings": list(result.warnings),
    }


# what is refused


def test_an_existing_file_is_not_overwritten(experiment: Builder) -> None:
    built = keyed(experiment)
    file, other = built.folder / "mine.csv", built.folder / "other.csv"
    file.write_text("unit_id\na\n")
    other.write_text("precious")
    for output in (file, other):
        error = refusal(built, file, output)
        assert isinstance(error, InputError)
        assert str(error) == (
            f"{output}: exists already, and is not overwritten; name another file"
        )


def test_that_the_name_is_taken_is_found_before_the_table_is_read(experiment: Builder) -> None:
    built = keyed(experiment)
    error = refusal(built, built.folder / "nowhere.csv", built.folder / "key.csv")
    assert "no such file" in str(error)
    (built.folder / "key.csv").write_text("")
    error = refusal(built, built.folder / "nowhere.csv", built.folder / "key.csv")
    assert "exists already" in str(error)


def test_a_file_that_comes_up_meanwhile_is_not_overwritten(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = keyed(experiment)
    output = built.folder / "out.csv"

    def hashing(*given: object) -> pl.Series:
        output.write_text("precious")
        return pl.Series(["x"])

    monkeypatch.setattr("flows.hash_ids.released_ids", hashing)
    with pytest.raises(InputError, match="exists already"):
        convert(built, "unit_id\na\n")
    assert output.read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "out", "problem"),
    [
        ("mine.xlsx", "out.csv", r"mine\.xlsx: not a format .*\(\.csv, \.parquet\)"),
        ("mine.csv", "out", r"out: not a format"),
        ("mine.csv", "out.json", r"out\.json: not a format"),
        ("nowhere.csv", "out.csv", r"nowhere\.csv: there is no such file"),
        ("mine.csv", "nowhere/out.csv", r"nowhere/out\.csv: cannot be written \(.+\)"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    experiment: Builder, name: str, out: str, problem: str
) -> None:
    built = keyed(experiment)
    for file in ("mine.csv", "mine.xlsx"):
        (built.folder / file).write_text("unit_id\na\n")
    error = refusal(built, built.folder / name, built.folder / out)
    with pytest.raises(InputError, match=problem):
        raise error


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("mine.csv", "unit_id,s\nsecret,1,2,3\n", "cannot be read as CSV"),
        ("mine.csv", b"unit_id,s\nsecret,\xe9\n", "cannot be read as CSV in UTF-8"),
        ("mine.csv", "", "cannot be read as CSV"),
        ("mine.parquet", b"PAR1 secret", "cannot be read as Parquet"),
        ("mine.csv", "customer\nsecret\n", "there is no column 'unit_id'; name it with --column"),
        ("mine.parquet", pl.DataFrame({"unit_id": [987654.5]}), "column 'unit_id' is Float64"),
    ],
)
def test_a_table_that_cannot_be_used_is_named_and_not_shown(
    experiment: Builder, name: str, content: Content, problem: str
) -> None:
    built = keyed(experiment)
    file = built.folder / name
    write_content(file, content)
    error = refusal(built, file, built.folder / "out.csv")
    assert isinstance(error, InputError)
    assert str(error).startswith(f"{file}: ")
    assert problem in str(error)
    assert "secret" not in told(error)
    assert "987654.5" not in told(error)


def test_where_ids_are_plain_there_is_nothing_to_hash(experiment: Builder) -> None:
    built = experiment()
    error = refusal(built, built.folder / "log.parquet", built.folder / "out.csv", "customer")
    assert isinstance(error, ConfigError)
    assert error.key == "publish.unit_id"


def test_a_failure_that_nobody_foresaw_shows_no_row(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = keyed(experiment)
    file = built.folder / "mine.csv"
    file.write_text("unit_id\nsecret\n")

    def fails(_: object, ids: pl.Series) -> pl.Series:
        raise ValueError(ids.to_list())

    monkeypatch.setattr("flows.hash_ids.released_ids", fails)
    with pytest.raises(ClusterdpError, match="ValueError") as caught:
        hash_ids(built.config, file, built.folder / "out.csv", "unit_id")
    assert "secret" not in told(caught.value)
