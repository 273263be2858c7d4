"""Reading the log: every format, the same rows; no outcome can fail; no error shows a row."""

import csv
import gzip
import io
import json
import math
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.raw.ingest import ingest
from flows.raw.reading.by_format import csv_files, json_lines
from flows.raw.validate import validate
from schemas.errors import InputError
from tests.conftest import SENTINEL, Builder, Content, Experiment, a_log, rows, told, write_content

PRIVATE = "PRIVATEOUTCOME"

TEXT_FILES = ["log.csv", "log.csv.gz", "log.jsonl", "log.ndjson", "log.json", "log.jsonl.gz"]
ALL_FILES = ["log.parquet", *TEXT_FILES]
JSON_FILES = [name for name in TEXT_FILES if "json" in name]

HEAD = "customer,variant,region,clicks\n"


def refusal(built: Experiment, period: str = "once") -> InputError:
    """The error that reading ends in; it names no value of a row."""
    config = built.load()
    with pytest.raises(InputError) as caught:
        validate(config.log_facts, ingest(config.log_source, period))
    assert caught.value.exit_code == 2
    everything = told(caught.value)
    for value in (PRIVATE, str(SENTINEL), "PRIVATEUNIT"):
        assert value not in everything
    return caught.value


def outcomes(built: Experiment) -> list[float]:
    return built.read()["outcome"].to_list()


def columns(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return frame.select("unit", "arm", "cluster", "outcome").rows()


@pytest.mark.parametrize("file", ALL_FILES)
def test_every_format_gives_the_same_rows(experiment: Builder, file: str) -> None:
    log = a_log(20)
    assert columns(experiment(log, file).read()) == log.rows()


@pytest.mark.parametrize("file", ["LOG.CSV", "log.JSONL", "Log.Parquet"])
def test_the_ending_is_read_whatever_its_case(experiment: Builder, file: str) -> None:
    log = rows(("a", "none", "east", 1.0))
    assert columns(experiment(log, file).read()) == log.rows()


def test_other_columns_do_not_matter(experiment: Builder) -> None:
    log = a_log(8).with_columns(noted=pl.lit(date(2026, 1, 1)), other=pl.lit(1.5)).reverse()
    assert (
        columns(experiment(log.select(reversed(log.columns))).read()) == a_log(8).reverse().rows()
    )


@pytest.mark.parametrize(("mark", "ending"), [("", "\r\n"), ("\ufeff", "\n"), ("\ufeff", "\r\n")])
def test_a_csv_of_other_systems_is_read(experiment: Builder, mark: str, ending: str) -> None:
    text = mark + (HEAD + "a,none,east,1\nb,mail,east,2\n").replace("\n", ending)
    assert columns(experiment(text, "log.csv").read()) == [
        ("a", "none", "east", 1.0),
        ("b", "mail", "east", 2.0),
    ]


def test_json_lines_with_a_byte_order_mark_are_read(experiment: Builder) -> None:
    line = '{"customer": "a", "variant": "none", "region": "east", "clicks": 1}\n'
    assert columns(experiment("\ufeff" + line, "log.jsonl").read()) == [("a", "none", "east", 1.0)]


# finding files


def test_files_are_read_in_the_order_of_their_names(experiment: Builder) -> None:
    parts = {f"logs/{name}.csv": a_log(2 + i) for i, name in enumerate(["b", "a", "c"])}
    frame = experiment(parts, source={"path": "logs/*.csv"}).read()
    assert frame["source_file"].to_list() == [0] * 3 + [1] * 2 + [2] * 4
    assert frame["source_row"].to_list() == [1, 2, 3, 1, 2, 1, 2, 3, 4]


def test_a_pattern_can_go_through_folders(experiment: Builder) -> None:
    parts = {"logs/a/x.parquet": a_log(2), "logs/b/c/y.parquet": a_log(4)}
    assert experiment(parts, source={"path": "logs/**/*.parquet"}).read().height == 6


def test_the_period_is_filled_in_everywhere(experiment: Builder) -> None:
    parts = {"2026/log-2026.csv": a_log(4), "2027/log-2027.csv": a_log(6)}
    built = experiment(parts, source={"path": "{period}/log-{period}.csv"})
    assert (built.read("2026").height, built.read("2027").height) == (4, 6)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".csv.gz", ".ndjson.gz"])
@pytest.mark.parametrize("name", ["a[1]", "a*b", "a?b", "a{b}", "a'b", "a b", "ä"])
def test_a_file_is_found_whatever_its_name(experiment: Builder, name: str, ending: str) -> None:
    built = experiment({f"logs/{name}{ending}": a_log(4)}, source={"path": "logs/*"})
    assert columns(built.read()) == a_log(4).rows()


@pytest.mark.parametrize("file", ALL_FILES)
def test_a_folder_may_be_named_like_a_pattern(
    experiment: Builder, tmp_path: Path, file: str
) -> None:
    built = experiment(a_log(4), file)
    moved = built.folder.rename(tmp_path / "all [of] *?")
    again = Experiment(moved / built.config.name)
    assert columns(again.read()) == a_log(4).rows()
    (again.folder / file).unlink()
    refusal(again)


def test_a_file_that_is_not_there_is_named(experiment: Builder) -> None:
    built = experiment(source={"path": "logs/{period}.csv"})
    named = built.folder / "logs" / "2026.csv"
    assert str(refusal(built, "2026")) == f"source.path: no file matches {named}"


def test_a_folder_is_no_file(experiment: Builder) -> None:
    assert "no file matches" in str(
        refusal(experiment({"logs/x.csv": ""}, source={"path": "logs"}))
    )


@pytest.mark.parametrize("file", ["log.xlsx", "log", "log.parquet.gz", "log.gz", "log.csv.zip"])
def test_an_unknown_format_is_named_with_those_there_are(experiment: Builder, file: str) -> None:
    error = str(refusal(experiment(f"{SENTINEL}", file)))
    assert file in error
    assert ".parquet" in error


# units, arms and clusters


@pytest.mark.parametrize(
    "kind", [pl.Int8, pl.UInt8, pl.Int16, pl.UInt32, pl.Int32, pl.Int64, pl.UInt64]
)
def test_integers_stay_integers(experiment: Builder, kind: type[pl.DataType]) -> None:
    log = a_log(4).with_columns(customer=pl.Series([1, 2, 3, 4], dtype=kind))
    read = experiment(log).read()["unit"]
    assert read.dtype.is_integer()
    assert read.to_list() == [1, 2, 3, 4]


def test_large_unsigned_integers_stay_whole(experiment: Builder) -> None:
    ids = [2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
    log = a_log(4).with_columns(customer=pl.Series(ids, dtype=pl.UInt64))
    assert experiment(log).read()["unit"].to_list() == ids


def test_integers_of_different_widths_go_together(experiment: Builder) -> None:
    parts = {
        f"logs/{kind}.parquet": a_log(2).with_columns(
            customer=pl.Series([first, first + 1], dtype=kind)
        )
        for first, kind in ((10, pl.Int8), (20, pl.UInt16), (2**40, pl.Int64))
    }
    read = experiment(parts, source={"path": "logs/*"}).read()["unit"]
    assert sorted(read.to_list()) == [10, 11, 20, 21, 2**40, 2**40 + 1]
    assert read.dtype == pl.Int64


def test_text_and_integers_go_together_as_text(experiment: Builder) -> None:
    parts = {
        "logs/a.parquet": a_log(2).with_columns(customer=pl.Series([2**63, 7], dtype=pl.UInt64)),
        "logs/b.csv": a_log(2),
        "logs/c.jsonl": a_log(2).with_columns(customer=pl.Series([8, 9])),
    }
    read = experiment(parts, source={"path": "logs/*"}).read()["unit"]
    assert read.to_list() == [str(2**63), "7", "c00000", "c00001", "8", "9"]


def test_a_csv_keeps_ids_as_they_are_spelt(experiment: Builder) -> None:
    text = HEAD + "007,none,01,1\n7,mail,1.0,1\n"
    frame = experiment(text, "log.csv").read()
    assert frame["unit"].to_list() == ["007", "7"]
    assert frame["cluster"].to_list() == ["01", "1.0"]


@pytest.mark.parametrize("file", TEXT_FILES[:3])
def test_empty_text_is_no_identifier(experiment: Builder, file: str) -> None:
    frame = experiment(
        rows(("", "none", "east", 1.0), ("b", "", "", 1.0), ("c", "mail", "west", 1.0)), file
    ).read()
    assert frame["unit"].to_list() == [None, "b", "c"]
    assert frame["arm"].to_list() == ["none", None, "mail"]
    assert frame["cluster"].to_list() == ["east", None, "west"]


def test_undecodable_bytes_are_no_identifier(experiment: Builder) -> None:
    text = HEAD.encode() + b"\xff,none,east,1\nb,\xfe,east,1\nc,mail,\xfd,1\nd,mail,east,1\n"
    frame = experiment(text, "log.csv").read()
    assert frame["unit"].to_list() == [None, "b", "c", "d"]
    assert frame["arm"].to_list() == ["none", None, "mail", "mail"]
    assert frame["cluster"].to_list() == ["east", "east", None, "east"]


def test_arms_and_clusters_may_be_numbers_truths_or_categories(experiment: Builder) -> None:
    log = pl.DataFrame(
        {
            "customer": pl.Series(["a", "b"], dtype=pl.Categorical),
            "variant": pl.Series([0, 1], dtype=pl.Int8),
            "region": [True, False],
            "clicks": [1.0, 2.0],
        }
    )
    assert columns(experiment(log).read()) == [
        ("a", "0", "true", 1.0),
        ("b", "1", "false", 2.0),
    ]


@pytest.mark.parametrize("column", ["customer", "variant", "region"])
@pytest.mark.parametrize(
    "values",
    [[SENTINEL, 1.0], [date(2026, 1, 1)] * 2, [[1], [2]], [b"a", b"b"]],
    ids=["float", "date", "list", "binary"],
)
def test_an_identifier_of_another_type_is_refused(
    experiment: Builder, column: str, values: list[Any]
) -> None:
    built = experiment(a_log(2).with_columns(pl.Series(column, values)))
    error = str(refusal(built))
    assert "log.parquet" in error
    assert repr(column) in error
    assert "it has to be text or integer" in error


# clusters of several columns


def clusters(experiment: Builder, pairs: list[tuple[str | None, str | None]]) -> list[str]:
    log = a_log(len(pairs)).with_columns(
        pl.Series("region", [left for left, _ in pairs], dtype=pl.String),
        pl.Series("channel", [right for _, right in pairs], dtype=pl.String),
    )
    built = experiment(log, columns={"cluster": ["region", "channel"]})
    return built.read()["cluster"].to_list()


def test_without_a_column_there_is_one(experiment: Builder) -> None:
    read = experiment(a_log(4), columns={"cluster": None}).read()
    assert read["cluster"].to_list() == ["all"] * 4


def test_several_columns_are_joined_readably(experiment: Builder) -> None:
    assert clusters(experiment, [("east", "web"), ("west", "shop")]) == [
        "east / web",
        "west / shop",
    ]


def test_where_one_is_missing_the_cluster_is(experiment: Builder) -> None:
    assert clusters(experiment, [("east", None), ("", "web"), ("a", "b")])[:2] == [None, None]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a/b", "c"), ("a", "b/c")),
        (("a / b", "c"), ("a", "b / c")),
        (("a//b", "c"), ("a", "b//c")),
        (("a /", "b"), ("a", "/ b")),
        (("a//", "b"), ("a", "//b")),
        (("a/", "/b"), ("a//", "b")),
    ],
)
def test_different_pairs_stay_different(
    experiment: Builder, one: tuple[str, str], other: tuple[str, str]
) -> None:
    joined = clusters(experiment, [one, other])
    assert joined[0] != joined[1]


@pytest.mark.process
@settings(
    max_examples=40,
    deadline=None,  # a file is written and read
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # overwritten every time
        HealthCheck.too_slow,
    ],
)
@given(st.lists(st.tuples(*[st.text("/ ab", min_size=1, max_size=5)] * 2), min_size=2))
def test_any_different_pairs_stay_different(
    experiment: Builder, pairs: list[tuple[str, str]]
) -> None:
    joined = clusters(experiment, [(left, right) for left, right in pairs])
    assert len(set(joined)) == len(set(pairs))


LENIENT = [
    ("1.5", 1.5),
    (" 2 ", 2.0),
    ("\t1", 1.0),
    ("+1", 1.0),
    (".5", 0.5),
    ("2e0", 2.0),
    ("nan", math.nan),
    ("NaN", math.nan),
    ("inf", math.inf),
    ("-inf", -math.inf),
    ("1e999", math.inf),
    ("9" * 400, math.inf),
    ("", math.nan),
    ("   ", math.nan),
    ("true", 1.0),
    ("TRUE", 1.0),
    ("False", 0.0),
    (PRIVATE, math.nan),
    ("1,5", math.nan),
    ("1 5", math.nan),
    ("0x10", math.nan),
    ("1_0", math.nan),
    ('say "ah"', math.nan),
    ("two\nlines", math.nan),
    ("nul\0", math.nan),
    ("１", math.nan),
]


def on_grid(value: float) -> float:
    """What a value counts as on the grid 0 … 3 whose missing value is 1."""
    return 1.0 if math.isnan(value) else min(max(value, 0.0), 3.0)


# outcomes


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series([0, 2, 9], dtype=pl.Int8), [0.0, 2.0, 3.0]),
        (pl.Series([0, 2, 2**64 - 1], dtype=pl.UInt64), [0.0, 2.0, 3.0]),
        (pl.Series([-0.5, 1.25, None]), [0.0, 1.25, 1.0]),
        (pl.Series([math.nan, math.inf, -math.inf], dtype=pl.Float32), [1.0, 3.0, 0.0]),
        (pl.Series([True, False, None]), [1.0, 0.0, 1.0]),
        (pl.Series(["2.5", "x", None]), [2.5, 1.0, 1.0]),
        (pl.Series(["2", "x", "inf"], dtype=pl.Categorical), [2.0, 1.0, 3.0]),
        (pl.Series(["2", "x", "2"], dtype=pl.Enum(["2", "x"])), [2.0, 1.0, 2.0]),
        (pl.Series([None, None, None], dtype=pl.Null), [1.0, 1.0, 1.0]),
        (pl.Series([date(2026, 1, 1), None, date(2026, 1, 2)]), [1.0, 1.0, 1.0]),
        (pl.Series(["2.5", None, "9"]).cast(pl.Decimal(10, 2)), [2.5, 1.0, 3.0]),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, pl.Series) else "",
)
def test_a_column_of_any_plain_type_is_read(
    experiment: Builder, values: pl.Series, expected: list[float]
) -> None:
    log = a_log(3).with_columns(values.alias("clicks"))
    assert outcomes(experiment(log, outcome={"missing": 1})) == expected


@pytest.mark.parametrize(
    "values",
    [[[1], [2]], [b"\xff", b"1"]],
    ids=["list", "bytes"],
)
def test_a_column_of_no_number_or_text_is_refused_for_its_type(
    experiment: Builder, values: list[Any]
) -> None:
    error = str(refusal(experiment(a_log(2).with_columns(pl.Series("clicks", values)))))
    assert "column 'clicks' (outcome)" in error


@pytest.mark.parametrize("file", ALL_FILES)
def test_text_is_cast_leniently(experiment: Builder, file: str) -> None:
    log = a_log(len(LENIENT)).with_columns(pl.Series("clicks", [text for text, _ in LENIENT]))
    content: Content = log
    if "csv" in file:  # quoted as a program would
        content = as_csv([tuple(map(str, row)) for row in log.rows()])
    read = outcomes(experiment(content, file, outcome={"missing": 1}))
    assert read == [on_grid(value) for _, value in LENIENT]


@pytest.mark.parametrize("file", JSON_FILES)
@pytest.mark.parametrize(
    ("spelt", "expected"),
    [
        ("2", 2.0),
        ("2.5", 2.5),
        ('"2.5"', 2.5),
        ("null", 1.0),
        ("NaN", 1.0),
        ("Infinity", 3.0),
        ("-Infinity", 0.0),
        ("1e999", 3.0),
        ("9" * 400, 3.0),
        ("true", 1.0),
        ("false", 0.0),
        ("[1, 2]", 1.0),
        ('{"deep": {"er": [1]}}', 1.0),
        ("[" * 2000 + "]" * 2000, 1.0),
        ('"\\u0000"', 1.0),
        ('"\\ud83d\\ude00"', 1.0),
    ],
    ids=lambda text: str(text)[:12],
)
def test_any_json_value_is_read(
    experiment: Builder, file: str, spelt: str, expected: float
) -> None:
    assert outcomes(experiment(as_json(spelt), file, outcome={"missing": 1})) == [
        2,
        expected,
        3,
    ]


def test_a_json_row_without_an_outcome_is_read(experiment: Builder) -> None:
    lines = as_json("2").replace(b', "clicks": 2', b"", 1)
    assert b"clicks" not in lines.splitlines()[0]
    assert outcomes(experiment(lines, "log.jsonl", outcome={"missing": 1})) == [1, 2, 3]


@pytest.mark.parametrize(
    "spelt", [b'"\xff\xfe"', b'"\\ud800"'], ids=["undecodable bytes", "half a surrogate pair"]
)
def test_text_that_is_no_unicode_is_read_in_json(experiment: Builder, spelt: bytes) -> None:
    content = as_json("$").replace(b"$", spelt)
    assert outcomes(experiment(content, "log.jsonl", outcome={"missing": 1})) == [2, 1, 3]


@pytest.mark.parametrize(
    ("spelt", "expected"),
    [
        (b".5", 0.5),
        (b"+2", 2.0),
        (b"5.", 3.0),
        (b"2.", 2.0),
        (b"True", 1.0),
        (b"None", 1.0),
        (b"", 1.0),
        (b"12:30:00", 1.0),
        (b'"\t2"', 2.0),
        (b'"\\x"', 1.0),
        (b"[.5, None]", 1.0),
        (b'"' + b"0" * 1_000_000 + b'2"', 1.0),
        (b"\xff", 1.0),
    ],
    ids=lambda value: str(value)[:12],
)
@pytest.mark.parametrize("others", [b"", b', "clicks": 0, "notes": .5, "n\xff": {"a": "}"}'])
def test_an_outcome_that_is_no_json_is_read_leniently(
    experiment: Builder, spelt: bytes, expected: float, others: bytes
) -> None:
    """Where its line can be told apart: brackets and quotes are closed, and commas are there."""
    content = as_json("$").replace(b"$", spelt + others)
    built = experiment(content, "log.jsonl", outcome={"missing": 1})
    assert columns(built.read()) == [
        ("a", "none", "east", 2.0),
        ("b", "none", "east", expected),
        ("c", "none", "east", 3.0),
    ]


@pytest.mark.parametrize(
    ("spelt", "expected"),
    [
        ("1e2", "100.0"),
        ("1.10", "1.1"),
        ("12345678901234567890", "12345678901234567890"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ('"1e2"', "1e2"),
        ('{"id": 1e2, "x": [1, "a"]}', '{"id":100.0,"x":[1,"a"]}'),
        ('"\\u00e9"', "é"),
        ('"\\ud800"', None),
        ("NaN", "NaN"),
        ("null", None),
        ('"b", "customer": "again"', "b"),
    ],
)
@pytest.mark.parametrize("outcome", ["2", ".5", '"\\ud800"', '"' + "x" * 1_000_000 + '"'])
def test_an_id_is_spelt_alike_whatever_its_outcome_is(
    experiment: Builder, spelt: str, expected: str | None, outcome: str
) -> None:
    content = as_json("2") + as_json(outcome).splitlines()[1].replace(b'"b"', spelt.encode())
    assert experiment(content, "log.jsonl").read()["unit"].to_list() == ["a", "b", "c", expected]


@pytest.mark.parametrize("spelt", [".5", "+5", "None", "007", '"a\tb"', '"\\x"', ""])
@pytest.mark.parametrize("outcome", ["2", ".5", '"\\ud800"'])
def test_an_id_that_is_no_json_is_told_by_its_line_whatever_its_outcome_is(
    experiment: Builder, spelt: str, outcome: str
) -> None:
    content = as_json("2") + as_json(outcome).splitlines()[1].replace(b'"b"', spelt.encode())
    assert "line 4 does not parse" in str(refusal(experiment(content, "log.jsonl")))


def test_json_columns_may_differ_in_their_case_alone(experiment: Builder) -> None:
    line = '{"ID": 1, "id": "a", "Id": "east", "clicks": 2}\n{"ID": 2, "id": "b", "clicks": .5}\n'
    names = {"unit": "ID", "arm": "id", "cluster": "Id"}
    found = columns(experiment(line, "log.jsonl", columns=names).read())
    assert found == [("1", "a", "east", 2.0), ("2", "b", None, 0.5)]


def test_blank_lines_are_no_rows(experiment: Builder) -> None:
    content = b"\n".join([b"", *as_json(".5").splitlines(), b"  ", b"\t\r"])
    frame = experiment(content, "log.jsonl").read()
    assert frame["source_row"].to_list() == [1, 2, 3]


@pytest.mark.parametrize("chunk", [7, 100, 1000])
def test_a_line_or_row_beyond_the_limit_is_named(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Wherever what is read at once ends, which lines before it decide."""
    for module in (json_lines, csv_files):
        monkeypatch.setattr(module, "CHUNK", chunk)
    monkeypatch.setattr(json_lines, "LINE_LIMIT", 2000)
    monkeypatch.setattr(csv_files, "ROW_LIMIT", 2000)
    for length, sound in ((2000, True), (2001, False)):
        bare = len(as_json("").splitlines()[1])
        line = as_json('"' + "x" * (length - bare - 2) + '"').splitlines()[1]
        assert len(line) == length
        built = experiment(as_json("1") + line + b"\n" + as_json("1"), "log.jsonl")
        if sound:
            assert built.read().height == 7
        else:
            assert "line 4 is longer than" in str(refusal(built))
        row = f"b,none,east,{'x' * (length - len('b,none,east,') - 1)}\n"
        built = experiment(f"{HEAD}a,none,east,1\n{row}c,none,east,1\n", "log.csv")
        if sound:
            assert built.read().height == 3
        else:
            assert "row 3 is longer than" in str(refusal(built))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), "dictionary"])
@pytest.mark.parametrize("group", [1, 100])
def test_text_that_is_no_unicode_is_read_in_parquet(
    experiment: Builder, kind: pa.DataType | str, group: int
) -> None:
    values = [b"2", b"\xff\xfe", None, b"\xe2\x82", b"\xac", b"3"]
    text = pa.array(values, pa.large_binary() if kind == pa.large_string() else pa.binary())
    text = text.view(pa.string() if kind == "dictionary" else kind)
    log = a_log(len(values)).drop("clicks").to_arrow()
    built = experiment(a_log(1))
    clicks = text.dictionary_encode() if kind == "dictionary" else text
    table = log.append_column("clicks", clicks)
    pq.write_table(table, built.folder / "log.parquet", row_group_size=group)
    frame = built.read()
    assert frame["outcome"].to_list() == [2, 0, 0, 0, 0, 3]
    assert frame.select("unit", "arm", "cluster").rows() == a_log(6).drop("clicks").rows()


@pytest.mark.parametrize("column", ["customer", "variant", "region", "clicks"])
def test_what_a_type_holds_is_not_told(experiment: Builder, column: str) -> None:
    """A struct's fields, as a program may make of a dictionary, are values of people."""
    nested = pl.Series(column, [[{PRIVATE: 1, "PRIVATEUNIT": 2}]] * 2)
    error = str(refusal(experiment(a_log(2).with_columns(nested))))
    assert f"column {column!r}" in error
    assert "is List;" in error
    built = experiment(a_log(2).with_columns(nested.list.get(0)))
    assert "is Struct;" in str(refusal(built))


@pytest.mark.parametrize("value", [b"2", b"\xff"])
def test_a_type_is_told_whatever_values_are(experiment: Builder, value: bytes) -> None:
    built = experiment(a_log(1))
    text = pa.array([value], pa.binary()).view(pa.string())
    nested = pa.StructArray.from_arrays([text], names=[PRIVATE])
    table = a_log(1).drop("clicks").to_arrow().append_column("clicks", nested)
    pq.write_table(table, built.folder / "log.parquet")
    assert "column 'clicks' (outcome) is Struct;" in str(refusal(built))


@pytest.mark.parametrize("spelt", [b"\xff\xfe", b"\x00", b"2\xff", b"\xed\xa0\x80"])
@pytest.mark.parametrize("file", ["log.csv", "log.csv.gz"])
def test_text_that_is_no_unicode_is_read_in_csv(
    experiment: Builder, file: str, spelt: bytes
) -> None:
    content = HEAD.encode() + b"a,none,east,2\nb,mail,east," + spelt + b"\nc,mail,west,3\n"
    assert outcomes(experiment(content, file, outcome={"missing": 1})) == [2, 1, 3]


def test_a_row_that_ends_before_its_outcome_is_read(experiment: Builder) -> None:
    content = HEAD + "a,none,east,2\nb,mail,east\nc,mail,west,3\n"
    assert outcomes(experiment(content, "log.csv", outcome={"missing": 1})) == [2, 1, 3]


def as_csv(lines: list[tuple[str, ...]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([HEAD.strip().split(","), *lines])
    return text.getvalue()


def as_json(outcome: str) -> bytes:
    """Three rows, the second with this outcome."""
    return "".join(
        f'{{"customer": "{name}", "variant": "none", "region": "east", "clicks": {value}}}\n'
        for name, value in (("a", "2"), ("b", outcome), ("c", "3"))
    ).encode()


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


# the roster does not depend on outcomes

quiet = settings(
    max_examples=30,
    deadline=None,  # a file is written and read
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # overwritten every time
        HealthCheck.too_slow,
    ],
)


def assert_same_roster(built: Experiment, file: str, content: Content) -> None:
    write_content(built.folder / file, content)
    roster = built.read().select("unit", "arm", "cluster")
    assert roster.rows() == a_log(6).drop("clicks").rows()


@pytest.mark.process
@quiet
@given(st.lists(st.text(), min_size=6, max_size=6))
def test_outcomes_leave_the_roster_of_a_csv(experiment: Builder, values: list[str]) -> None:
    lines = [
        (*map(str, row[:3]), value) for row, value in zip(a_log(6).rows(), values, strict=True)
    ]
    assert_same_roster(experiment("", "log.csv"), "log.csv", as_csv(lines))


@pytest.mark.process
@quiet
@given(st.lists(st.recursive(anything, st.lists, max_leaves=5), min_size=6, max_size=6))
def test_outcomes_leave_the_roster_of_json_lines(experiment: Builder, values: list[Any]) -> None:
    lines = [
        json.dumps(row | {"clicks": value})
        for row, value in zip(a_log(6).to_dicts(), values, strict=True)
    ]
    assert_same_roster(experiment("", "log.jsonl"), "log.jsonl", "\n".join(lines) + "\n")


@quiet
@given(st.lists(st.none() | st.floats(), min_size=6, max_size=6))
def test_outcomes_leave_the_roster_of_a_parquet(
    experiment: Builder, values: list[float | None]
) -> None:
    log = a_log(6).with_columns(pl.Series("clicks", values, dtype=pl.Float64))
    assert_same_roster(experiment(log), "log.parquet", log)


# faulty files: plain errors that name the file and hold no value of a row


def test_what_is_no_parquet(experiment: Builder) -> None:
    error = refusal(experiment(f"{SENTINEL},{PRIVATE}", "log.parquet"))
    assert "log.parquet: cannot be read as Parquet; is it whole?" in str(error)


@pytest.mark.parametrize("kept", [0, 4, 200, -1, -8])
def test_a_truncated_parquet(experiment: Builder, kept: int) -> None:
    built = experiment(telling(50))
    whole = (built.folder / "log.parquet").read_bytes()
    (built.folder / "log.parquet").write_bytes(whole[:kept])
    assert "is it whole?" in str(refusal(built))


def test_a_parquet_with_a_damaged_page(experiment: Builder) -> None:
    built = experiment(telling(50))
    whole = bytearray((built.folder / "log.parquet").read_bytes())
    whole[4:80] = bytes(76)
    (built.folder / "log.parquet").write_bytes(bytes(whole))
    assert "is it whole?" in str(refusal(built))


def test_one_faulty_file_among_sound_ones_is_named(experiment: Builder) -> None:
    parts: dict[str, Content] = {
        "logs/a.csv": a_log(4),
        "logs/b.parquet": "x",
        "logs/c.csv": a_log(4),
    }
    assert "b.parquet" in str(refusal(experiment(parts, source={"path": "logs/*"})))


@pytest.mark.parametrize("file", ["log.csv", "log.csv.gz"])
def test_a_csv_row_with_too_many_fields_is_told_by_its_number(
    experiment: Builder, file: str
) -> None:
    """Not by its line: an outcome with a line feed in it would change that."""
    content = HEAD + 'a,none,east,"1\n"\nPRIVATEUNIT,none,east,1,5\n'
    error = str(refusal(experiment(content, file)))
    assert error.endswith(
        f"{file}: cannot be read as CSV: row 3 does not parse (the header is row 1)"
    )


def test_a_row_may_lack_fields_but_not_have_more_in_columns_that_are_not_read(
    experiment: Builder,
) -> None:
    head = HEAD.strip() + ",notes,more\n"
    assert experiment(f"{head}a,none,east,1\nb,mail,east,2,x,y\n", "log.csv").read().height == 2
    error = str(refusal(experiment(f"{head}a,none,east,1\nb,mail,east,2,x,y,z\n", "log.csv")))
    assert "row 3 does not parse" in error


@pytest.mark.parametrize("outcome", ['2"', "6' 2\"", '1"2"3', ' "2"', '2""', 'a"b"c"'])
@pytest.mark.parametrize("chunk", [1 << 24, 8])
def test_a_quote_within_a_csv_field_is_a_sign_as_any_other(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, outcome: str, chunk: int
) -> None:
    monkeypatch.setattr(csv_files, "CHUNK", chunk)
    rows_ = [f'a,none,east,{outcome},"x\n"""', 'b,mail,"we""s,t",3,y', f"c,mail,east,{outcome},"]
    ended = "\r\n".join(rows_)
    built = experiment(f"{HEAD.strip()},notes\n{ended}", "log.csv", outcome={"missing": 1})
    assert columns(built.read()) == [
        ("a", "none", "east", 1.0),
        ("b", "mail", 'we"s,t', 3.0),
        ("c", "mail", "east", 1.0),
    ]


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize(
    "row", ['c,mail,east,"1', 'c,mail,east,"1" 2', 'c,mail,east,"1"2"', '"c,mail\n,east,1']
)
@pytest.mark.parametrize("chunk", [1 << 24, 16])
def test_a_quoted_csv_field_has_to_be_closed(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, row: str, ending: str, chunk: int
) -> None:
    monkeypatch.setattr(csv_files, "CHUNK", chunk)
    built = experiment(f'{HEAD}a,none,east,"1\n"\nb,none,east,"3"\n{row}{ending}', "log.csv")
    assert "cannot be read as CSV: row 4 does not parse" in str(refusal(built))


@pytest.mark.parametrize("file", ["log.jsonl", "log.json", "log.ndjson.gz"])
@pytest.mark.parametrize(
    "line", ["[1]", "7", '{"customer": "PRIVATEUNIT"', f"{PRIVATE}", "{'customer': 1}", "{}{}"]
)
def test_a_json_line_that_is_no_object_is_told_by_its_number(
    experiment: Builder, file: str, line: str
) -> None:
    error = str(refusal(experiment(as_json("1") + line.encode(), file)))
    assert error.endswith(f"{file}: cannot be read as JSON Lines: line 4 does not parse")


@pytest.mark.parametrize("file", ["log.csv.gz", "log.jsonl.gz"])
@pytest.mark.parametrize("damage", ["cut", "early", "late", "not packed"])
def test_a_damaged_archive(experiment: Builder, file: str, damage: str) -> None:
    built = experiment(telling(4000), file)
    packed = (built.folder / file).read_bytes()
    middle = len(packed) // 2
    found = {
        "cut": packed[:middle],
        "early": packed[:20] + bytes(9) + packed[29:],
        "late": packed[:middle] + bytes(9) + packed[middle + 9 :],
        "not packed": gzip.decompress(packed),
    }
    (built.folder / file).write_bytes(found[damage])
    assert f"{file}: cannot be read as" in str(refusal(built))


@pytest.mark.parametrize("column", ["customer", "variant", "region", "clicks"])
@pytest.mark.parametrize("file", ["log.csv", "log.parquet"])
def test_a_missing_column_is_named(experiment: Builder, file: str, column: str) -> None:
    error = str(refusal(experiment(telling(4).drop(column), file)))
    assert f"{file}: there is no column {column!r}" in error


@pytest.mark.parametrize(("column", "key"), [("customer", "unit"), ("variant", "arm")])
def test_a_column_that_no_json_row_has_is_named(experiment: Builder, column: str, key: str) -> None:
    error = str(refusal(experiment(telling(4).drop(column), "log.jsonl")))
    assert error.startswith(f"columns.{key}: no row of ")
    assert repr(column) in error


def test_a_csv_without_a_head_does_not_show_its_first_row(experiment: Builder) -> None:
    error = refusal(experiment(f"PRIVATEUNIT,none,east,{SENTINEL}\nb,mail,east,1\n", "log.csv"))
    assert "there is no column 'customer'" in str(error)


@pytest.mark.parametrize("file", ALL_FILES)
def test_a_log_without_rows(experiment: Builder, file: str) -> None:
    assert "the log is empty" in str(refusal(experiment(a_log(4).clear(), file)))


def test_a_file_without_anything(experiment: Builder) -> None:
    assert "no column 'customer'" in str(refusal(experiment("", "log.csv")))
    assert "the log is empty" in str(refusal(experiment("", "log.jsonl")))


def telling(n_units: int) -> pl.DataFrame:
    """A log that holds what no error may show."""
    return a_log(n_units).with_columns(
        customer=pl.col("customer") + "PRIVATEUNIT", clicks=pl.lit(SENTINEL)
    )
