"""Fields within fields of JSON Lines, other delimiters of CSV, and days as folders are named."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.config.load import period_of
from flows.config.model.sections import LogSection
from flows.raw.reading.by_format.csv_files import BrokenRowError, fields_of, grammar, whole_rows
from flows.raw.reading.by_format.json_lines import read_json_lines
from flows.raw.reading.log_files import Wanted
from flows.schedule import paths_of_periods
from schemas.errors import ConfigError, InputError
from tests.conftest import Builder, Experiment, a_log, told

DAY = "2026-03-07"
MARKS = [",", ";", "\t", "|"]


def nested(log: pl.DataFrame) -> bytes:
    """The rows of a log, ids and outcomes within objects."""
    lines = (
        {
            "customer": {"id": unit, "seen": [1]},
            "variant": arm,
            "at": {"region": cluster},
            "m": {"n": {"clicks": y}},
        }
        for unit, arm, cluster, y in log.rows()
    )
    return "\n".join(map(json.dumps, lines)).encode()


def public(built: Experiment) -> list[tuple[Any, ...]]:
    return built.read().select("unit", "arm", "cluster", "outcome").rows()


WITHIN = {"unit": "customer.id", "cluster": "at.region", "outcome": "m.n.clicks"}


def test_dotted_names_are_fields_within_objects(experiment: Builder) -> None:
    log = a_log(20)
    assert public(experiment(nested(log), "log.jsonl", columns=WITHIN)) == log.rows()


@pytest.mark.parametrize(
    "columns",
    [
        {"attributes": {"seen": "m"}},
        {"attributes": {"seen": "m.n"}},
        {"attributes": {"seen": "m.n.clicks.first"}},
        {"cluster": "m"},
        {"unit": "m.n"},
        {"assigned_by": "m"},
    ],
)
def test_no_public_field_is_an_object_that_holds_an_outcome(
    experiment: Builder, columns: dict[str, Any]
) -> None:
    made = experiment(nested(a_log(20)), "log.jsonl", columns=WITHIN | columns)
    with pytest.raises(ConfigError, match=r"of which 'm.n.clicks' is protected") as caught:
        made.load()
    assert caught.value.key == "columns"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"a":{"b":1e2}}', "100.0"),
        ('{"a":{"b":123456789012345678901234}}', "123456789012345678901234"),
        ('{"a":{"b":[1, 2]}}', "[1,2]"),
        ('{"a":{"B":1,"b":2}}', "2"),
        ('{"a":{"b":1,"b":2},"a":{"b":3}}', "1"),
        ('{"a":5,"a":{"b":3}}', None),
        ('{"a":"{\\"b\\": 1}"}', None),
        ('{"a":[{"b":1}]}', None),
        ('{"a.b":"whole","a":{"b":"within"}}', "whole"),
        ('{"a.b":null,"a":{"b":"within"}}', "within"),
        ('{"b":1}', None),
        # These the parser refuses, and they are mended.
        ('{"a":{"b":.5}}', ".5"),
        ('{"a":{"b":}}', None),
        ('{"a":{oops}}', None),
        ('{"a":{"b":1},"a":{"b":2},"x":+1}', "1"),
        ('{"a.b":null,"a":{"b":+3}}', "+3"),
    ],
)
def test_what_a_field_within_is(tmp_path: Path, line: str, expected: str | None) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"id":1}}\n{line[:-1]},"id":7}}\n')
    (frame,) = read_json_lines(path, Wanted(("id", "a.b"), frozenset({"a.b"})), 100)
    assert frame.rows() == [("1", None), ("7", expected)]


def test_no_outcome_within_keeps_a_row_from_being_read(experiment: Builder) -> None:
    head = '{"customer":{"id":"%s"},"variant":"none","at":{"region":"x"},"m":'
    odd = [
        '{"n":{"clicks":.5}}',
        '{"n":{oops}}',
        '{"n":7}',
        "null",
        '{"n":{"clicks":{"d":+1}}}',
        "+",
    ]
    lines = "\n".join(head % place + one + "}" for place, one in enumerate(odd)).encode()
    read = experiment(lines, "log.jsonl", columns=WITHIN, outcome={"missing": 3}).read()
    assert read["unit"].to_list() == [str(place) for place in range(len(odd))]
    assert read["outcome"].to_list() == [0.5, 3, 3, 3, 3, 3]


def test_a_public_field_within_that_is_no_json_is_told(experiment: Builder) -> None:
    line = b'{"customer":{"id":oops},"variant":"none","at":{"region":"x"},"m":{"n":{"clicks":1}}}'
    with pytest.raises(InputError, match=r"line 1 does not parse"):
        experiment(line, "log.jsonl", columns=WITHIN).read()


# delimiters


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("file", ["log.csv", "log.csv.gz"])
def test_any_delimiter_gives_the_same_rows(experiment: Builder, mark: str, file: str) -> None:
    log = a_log(40).with_columns(customer=pl.format('{},;|\t"{}', "customer", "region"))
    content = log.write_csv(separator=mark).encode()
    assert public(experiment(content, file, source={"delimiter": mark})) == log.rows()


@pytest.mark.parametrize("mark", MARKS)
def test_quotes_follow_the_delimiter(mark: str) -> None:
    form, other = grammar(mark), next(one for one in MARKS if one != mark)
    text = f'a{mark}"x{mark}""y\n"{mark}5"{other}"\nb'.encode()
    rows, rest = whole_rows(text, form, final=False)
    assert rest == b"b"
    fields, end = fields_of(rows, 0, form)
    assert fields == [b"a", f'x{mark}"y\n'.encode(), f'5"{other}"'.encode()]
    assert end == len(rows)
    with pytest.raises(BrokenRowError):
        whole_rows(f'a{mark}"x"{other}1\n'.encode(), form, final=True)


def test_a_head_of_one_field_is_asked_about(experiment: Builder) -> None:
    with pytest.raises(InputError) as caught:
        experiment(a_log(4).write_csv(separator=";").encode(), "log.csv").read()
    assert "is source.delimiter something else than a comma?" in str(caught.value)
    assert "region" not in told(caught.value)


@pytest.mark.parametrize("mark", ["", ";;", '"', "\n", "x", "€"])
def test_what_is_no_delimiter_is_refused(experiment: Builder, mark: str) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(a_log(4), source={"delimiter": mark}).load()
    assert caught.value.key == "source.delimiter"


# periods


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("{period}/{period:%Y%m%d}.csv", "2026-03-07/20260307.csv"),
        (
            "year={period:%Y}/month={period:%m}/day={period:%d}/log.csv",
            "year=2026/month=03/day=07/log.csv",
        ),
        ("{period:%Y/%m/%d}/log.csv", "2026/03/07/log.csv"),
        ("{period:log_%y%j.csv}", "log_26066.csv"),
        ("{period:%G-W%V-%u}.csv", "2026-W10-6.csv"),
    ],
)
def test_a_day_is_written_as_files_are_named(experiment: Builder, pattern: str, name: str) -> None:
    assert paths_of_periods.filled(pattern, DAY) == name
    assert paths_of_periods.tells_days_apart(pattern)
    built = experiment({name: a_log(6)}, source={"path": pattern}, schedule={"since": "2026-01-01"})
    assert built.read(DAY).height == 6
    assert paths_of_periods.of_any_period(pattern).replace("*", "").isascii()
    with pytest.raises(ConfigError, match=r"no day YYYY-MM-DD, as source.path writes one"):
        period_of(LogSection(path=pattern), "march")
    with pytest.raises(ConfigError, match=r"source.path holds \{period\}"):
        period_of(LogSection(path=pattern), None)


def test_months_are_no_days_of_a_schedule(experiment: Builder) -> None:
    path = "{period:%Y-%m}.csv"
    assert experiment({"2026-03.csv": a_log(6)}, source={"path": path}).read(DAY).height == 6
    with pytest.raises(ConfigError, match="writes different days alike"):
        experiment(source={"path": path}, schedule={"since": "2026-01-01"}).load()


@pytest.mark.parametrize("form", ["", "%", "%Q", "day", "%Y%", "%Y-%H", "%Y*", "%-d", "%Y{"])
def test_what_writes_no_day_is_refused(experiment: Builder, form: str) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(source={"path": f"logs/{{period:{form}}}.csv"}).load()
    assert caught.value.key == "source.path"
    assert "how a day is written" in str(caught.value)


def test_days_of_a_window_are_found_by_their_months(experiment: Builder) -> None:
    days = [date(2026, 2, 28), date(2026, 3, 1)]
    files = {day.strftime("m=%m/d=%d.csv"): a_log(4) for day in days}
    built = experiment(files, source={"path": "m={period:%m}/d={period:%d}.csv"})
    assert [built.read(day.isoformat()).height for day in days] == [4, 4]
