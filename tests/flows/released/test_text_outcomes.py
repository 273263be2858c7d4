"""What the numbers of a release stand for, where the log has texts."""

from pathlib import Path

import duckdb
import polars as pl
import pytest

from flows.cli.night.released import columns_text, inspect_text
from flows.released.file.read import read_release
from flows.released.report import report
from tests.conftest import Section, a_log, build_experiment, released
from tests.support.contents import read_contents

COMMENT = """
SELECT comment FROM duckdb_columns()
WHERE table_name = 'units' AND column_name = 'outcome_randomised' AND schema_name = 'main'
"""
PLAIN = "The unit's outcome, randomised; never the true one."


def made(folder: Path, outcome: Section, texts: tuple[str, ...]) -> Path:
    number = pl.col("clicks").cast(pl.Int64) % len(texts)
    log = a_log(240).with_columns(number.replace_strict(range(len(texts)), texts).alias("clicks"))
    return build_experiment(folder / "made", log, outcome=outcome).run().path


def test_the_file_the_page_and_inspect_say_which_number_is_which_text(tmp_path: Path) -> None:
    path = made(tmp_path, {"values": ["no", "yes"]}, ("no", "yes"))
    assert released(path, COMMENT).item() == f"{PLAIN} 0 = no, 1 = yes."
    assert released(path, "SELECT texts FROM metrics").item() == "0 = no, 1 = yes"
    file = read_release(path)
    assert f"{PLAIN} 0 = no, 1 = yes." in columns_text(file)
    assert "0 = no, 1 = yes" in inspect_text(file)
    assert file.as_json()["metrics"][0]["texts"] == "0 = no, 1 = yes"
    assert "<bdi>0 = no, 1 = yes</bdi>" in report(read_contents(path))


def test_numbers_that_are_numbers_stand_for_themselves(tmp_path: Path) -> None:
    path = build_experiment(tmp_path / "plain").run().path
    assert released(path, COMMENT).item() == PLAIN
    assert released(path, "SELECT texts FROM metrics").item() is None
    assert "stand for" not in report(read_contents(path))


HOSTILE = ("'; DROP TABLE units; --", "<script>x</script>\x1b[2J\u202e")


def test_texts_of_any_kind_do_no_harm(tmp_path: Path) -> None:
    path = made(tmp_path, {"values": list(HOSTILE), "scores": [0.5, 2]}, HOSTILE)
    told = "0.5 = '; DROP TABLE units; --, 2 = <script>x</script>\\x1b[2J\\u202e"
    assert released(path, COMMENT).item() == f"{PLAIN} {told}."
    assert "&lt;script&gt;x" in report(read_contents(path))


def test_what_another_maker_of_a_file_wrote_there_does_no_harm(tmp_path: Path) -> None:
    path = made(tmp_path, {"values": ["no", "yes"]}, ("no", "yes"))
    path.chmod(0o644)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE metrics SET texts = '<b>' || chr(27) || '[2J' || chr(8238)")
    said = inspect_text(read_release(path))
    assert "<b>\\x1b[2J\\u202e" in said
    assert "\x1b" not in said
    page = report(read_contents(path))
    assert "&lt;b&gt;" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize(("n_texts", "is_cut"), [(50, False), (400, True)])
def test_of_very_many_texts_the_first_are_named(tmp_path: Path, n_texts: int, is_cut: bool) -> None:
    texts = [f"answer {at:03d}" for at in range(n_texts)]
    built = build_experiment(
        tmp_path / "many", outcome={"values": texts, "scores": list(range(n_texts))}
    )
    words = built.load().outcome.texts_in_words
    assert words is not None
    assert words.startswith("0 = answer 000, 1 = answer 001, ")
    assert words.endswith("…") == is_cut
    assert len(words) <= 1001
