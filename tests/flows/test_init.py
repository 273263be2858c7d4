"""A first configuration: from names and flags alone, sound at once, and never over another."""

import itertools
import json
import re
import tomllib
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from flows.check import check
from flows.cli.main import run
from flows.config.draft import Given
from flows.config.load import load
from flows.init import init
from schemas.errors import ConfigError, InputError
from tests.conftest import Content, a_log, write_content
from tests.statistical.simulate import real_data

WHOLE = Given(
    unit="customer",
    arm="variant",
    outcome="clicks",
    cluster=("region",),
    values=(0.0, 1.0, 2.0, 3.0),
    epsilon=2.0,
    budget_epsilon=20.0,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keys(path: Path) -> dict[str, object]:
    return tomllib.loads(path.read_text())


# sound at once


@pytest.mark.release
@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl", "log.csv.gz"])
def test_with_its_flags_it_is_sound_at_the_first_attempt(folder: Path, name: str) -> None:
    write_content(folder / name, a_log())
    result = init(name, None, WHOLE)
    assert result.path == folder / "log.toml"
    assert (result.blanks, result.recognised, result.notes) == ((), {}, ())
    assert load(result.path).arms.names == ("none", "mail")
    found = check(result.path, None)
    assert (found.roster.n_units, found.roster.n_clusters, found.warnings) == (240, 2, ())


@pytest.mark.release
@pytest.mark.parametrize(
    ("name", "given", "n_units"),
    [
        (
            "hillstrom/hillstrom.parquet",
            Given(
                unit="customer_row",
                arm="segment",
                outcome="visit",
                cluster=("channel",),
                values=(0.0, 1.0),
                epsilon=2.0,
                budget_epsilon=10.0,
            ),
            64_000,
        ),
        (
            "international_stroke_trial/ist.parquet",
            Given(
                unit="patient_row",
                arm="RXASP",
                outcome="ONDRUG",
                control="N",
                low=0.0,
                high=40.0,
                levels="auto",
                epsilon=1.0,
                budget_epsilon=1.0,
            ),
            19_435,
        ),
        (
            "lalonde_nsw/nsw_722.parquet",
            Given(
                unit="row",
                arm="treat",
                control="0",
                treatments=("1",),
                outcome="re78",
                low=0.0,
                high=60_000.0,
                levels=9,
                epsilon=4.0,
                budget_epsilon=4.0,
            ),
            722,
        ),
        (
            "tennessee_star/star_aer.parquet",
            Given(
                arm="stark",
                outcome="mathk",
                cluster=("schoolk",),
                low=288.0,
                high=626.0,
                epsilon=2.0,
                budget_epsilon=4.0,
            ),
            6_325,
        ),
    ],
    ids=["hillstrom", "stroke", "lalonde", "star"],
)
def test_so_it_is_for_experiments_of_others(
    folder: Path, name: str, given: Given, n_units: int
) -> None:
    result = init(str(real_data(name)), None, given)
    assert result.blanks == ()
    found = check(result.path, None)
    assert found.roster.n_units == n_units
    told = [one for one in found.warnings if not one.startswith("sample ratio mismatch")]
    assert told == []  # two of these have arms of unequal sizes


@pytest.mark.release
def test_public_facts_are_named_by_flags(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = a_log().with_columns(pl.lit("de").alias("country"), pl.col("customer").alias("home"))
    log.with_columns(pl.lit(1).alias("last, first")).write_parquet("log.parquet")
    flags = ["--unit", "customer", "--arm", "variant", "--outcome", "clicks", "--values", "0,1,2,3"]
    flags += ["--epsilon", "2", "--attributes", "country,region", "--assigned-by", "home"]
    assert run(["init", "log.parquet", *flags]) == 0
    columns = load(folder / "log.toml").columns
    assert columns.attributes == ("country", "region")
    assert columns.assigned_by == "home"
    assert check(folder / "log.toml", None).roster.n_units == 240
    assert run(["init", "log.parquet", "-o", "b.toml", *flags, "--attributes", "nothing"]) == 2
    assert "there is no column 'nothing'" in capsys.readouterr().err
    assert run(["init", "log.parquet", "-o", "b.toml", *flags, "--attributes", "clicks"]) == 2
    assert "--attributes: 'clicks' is columns.outcome already" in capsys.readouterr().err


# what is read


def spoil(path: Path, name: str) -> None:
    """Overwrite a column's values in a Parquet file, so that whoever reads it fails."""
    found = pq.read_metadata(path).row_group(0)
    places = {found.column(n).path_in_schema: found.column(n) for n in range(found.num_columns)}
    column = places[name]
    begin = column.dictionary_page_offset or column.data_page_offset
    content = bytearray(path.read_bytes())
    content[begin : begin + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(content)


@pytest.mark.parametrize(
    "given",
    [
        WHOLE,
        Given(),
        Given(arm="variant", outcome="clicks"),
        Given(arm="variant", attributes=("region",), assigned_by="customer"),
    ],
)
def test_no_other_column_is_read(folder: Path, given: Given) -> None:
    a_log().write_parquet("log.parquet")
    for trap in ("clicks", "customer", "region"):
        spoil(folder / "log.parquet", trap)
        with pytest.raises(pl.exceptions.ComputeError):
            pl.read_parquet("log.parquet", columns=[trap])
    if given.arm is None:  # then not even the arms are
        spoil(folder / "log.parquet", "variant")
    result = init("log.parquet", None, given)
    labels = [] if given.arm is None else ["mail"]
    assert keys(result.path)["arms"] == (
        {"control": "none", "treatments": labels} if labels else {}
    )


def test_named_arms_are_not_read(folder: Path) -> None:
    a_log().write_parquet("log.parquet")
    spoil(folder / "log.parquet", "variant")
    given = Given(arm="variant", control="none", treatments=("mail", "call, twice"))
    path = init("log.parquet", None, given).path
    assert keys(path)["arms"] == {"control": "none", "treatments": ["mail", "call, twice"]}


def test_of_csv_the_header_alone_is_read(folder: Path) -> None:
    (folder / "log.csv").write_text('id,"arm\n1",clicks\n"never closed,1,2\n')
    result = init("log.csv", None, Given())
    assert result.recognised == {"unit": "id", "outcome": "clicks"}
    with pytest.raises(InputError, match="cannot be read as CSV"):
        init("log.csv", Path("b.toml"), Given(arm="arm\n1"))


def test_nothing_is_read_of_json_lines_but_the_arms(folder: Path) -> None:
    (folder / "log.jsonl").write_text('{"id": 1, "arm": "a", "clicks": [}\n')
    assert init("log.jsonl", None, Given()).recognised == {}


@pytest.mark.parametrize(
    "column",
    [
        [str(n) for n in range(51)],
        ["0", "1", "2.5"] * 17,
        ["True", "false", " TRUE "] * 17,
        list(range(51)),
        [n / 7 for n in range(51)],
    ],
)
@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_what_may_be_outcomes_is_not_written_down(
    folder: Path, name: str, column: list[object]
) -> None:
    content: Content = pl.DataFrame({"id": range(51), "score": column})
    write_content(folder / name, content)
    result = init(name, None, Given(arm="score"))
    assert "arms.control" in result.blanks
    assert "name them with --control" in result.notes[0]
    assert "2.5" not in result.path.read_text()


def test_labels_without_a_control_are_shown_for_a_person_to_choose(folder: Path) -> None:
    pl.DataFrame({"id": [1, 2, 3], "arm": ["b", "a", None]}).write_parquet("log.parquet")
    result = init("log.parquet", None, Given(arm="arm"))
    assert "# Labels in the log: 'a', 'b'." in result.path.read_text()
    assert {"arms.control", "arms.treatments"} < set(result.blanks)


def test_the_logs_columns_and_types_stand_above_those_that_are_named(folder: Path) -> None:
    log = a_log().with_columns(pl.lit(0.5).alias("odd\nname"), pl.date(2026, 1, 1).alias("day"))
    log.write_parquet("log.parquet")
    lines = init("log.parquet", None, WHOLE).path.read_text().splitlines()
    told = " ".join(line.removeprefix("# ") for line in lines[: lines.index("[columns]")])
    assert told.endswith(
        "Columns of the log: 'customer' (text), 'variant' (text), 'region' (text), "
        "'clicks' (number), 'odd\\nname' (number), 'day' (date)."
    )


@pytest.mark.parametrize(
    ("header", "given", "is_shown"),
    [
        ("customer_id,variant,seen", Given(), True),
        ("who,what,seen", Given(unit="who"), True),
        ("who,what,seen", Given(), False),
        ("c17,segment,0.25", Given(), False),
        ("c17,arm,false", Given(arm="arm"), False),
    ],
)
def test_a_header_that_may_be_a_row_is_not_shown(
    folder: Path, header: str, given: Given, is_shown: bool
) -> None:
    (folder / "log.csv").write_text(f"{header}\n", encoding="utf-8")
    text = init("log.csv", None, given).path.read_text()
    assert ("Columns of the log: " in text) == is_shown
    assert ("may be a row and no names" in text) != is_shown
    last = header.rsplit(",", maxsplit=1)[1]
    assert (repr(last) in text) == is_shown


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_a_column_that_the_log_lacks_is_told_with_its_option_and_the_nearest(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write_content(folder / name, a_log())
    for option, given, meant in [
        ("--outcome", "Clcks", "; did you mean 'clicks'?"),
        ("--cluster", "area", ""),
        ("--attributes", "regions", "; did you mean 'region'?"),
    ]:
        assert run(["init", name, "--unit", "customer", option, given]) == 2
        told = f"there is no column {given!r} ({option}); correct the name{meant}\n"
        assert capsys.readouterr().err.endswith(told)


def test_of_a_header_without_any_wanted_column_nothing_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be a row: here the last word would be an outcome."""
    (folder / "log.csv").write_text("c1,mail,not clicked\n", encoding="utf-8")
    assert run(["init", "log.csv", "--outcome", "clicked"]) == 2
    assert "not clicked" not in capsys.readouterr().err


# what is written


def test_blanks_are_asked_for_by_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_content(folder / "log.csv", a_log())
    result = init("log.csv", None, Given(unit="customer"))
    assert result.recognised == {"arm": "variant", "outcome": "clicks", "cluster": "region"}
    assert result.blanks == (
        *("arms.control", "arms.treatments", "outcome.values", "privacy.epsilon"),
    )
    assert run(["check", str(result.path)]) == 2
    told = capsys.readouterr().err
    assert "arms.control: missing" in told
    assert "arms.treatments: missing" in told
    text = result.path.read_text()
    assert '# cluster = "region"' in text
    assert text.count("TO BE GIVEN: ") == 4


def test_every_key_has_its_comment(folder: Path) -> None:
    write_content(folder / "log.csv", a_log())
    lines = init("log.csv", None, WHOLE).path.read_text().splitlines()
    for above, line in itertools.pairwise(lines):
        if "=" in line and not line.startswith("#"):
            assert above.startswith("# "), line
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("given", "others"),
    [
        (Given(), "scores|low|high|levels"),
        (Given(values=("no", "yes", "often")), "low|high|levels"),
        (Given(low=0.0, high=9.0), "values|scores"),
    ],
)
def test_examples_are_sound_once_they_are_uncommented(
    folder: Path, given: Given, others: str
) -> None:
    """But for the ``others``, which describe another outcome."""
    write_content(folder / "log.jsonl", a_log())  # without names, so that all columns are blanks
    path = init("log.jsonl", None, given).path
    text, n_keys = re.subn(rf"(?m)^# (?!{others})(?=\w+ = )", "", path.read_text())
    assert n_keys > 10
    path.write_text(text)
    assert load(path).columns.attributes == ("country",)


def test_names_are_spelt_whatever_is_in_them(folder: Path) -> None:
    odd = 'a"b\\c%(file)s\x7f\u202e\U0001f600'
    pl.DataFrame({"id": [1, 2], odd: ["none", "x#y = 1"], "y": [0, 1]}).write_parquet(
        "log [1].parquet"
    )
    config = init("log [1].parquet", None, Given(arm=odd, values=(0, 1), epsilon=1))
    loaded = load(config.path)
    assert (loaded.columns.arm, loaded.arms.treatments) == (odd, ("x#y = 1",))
    assert loaded.experiment == "log-1"
    assert loaded.source.path == "log [[]1].parquet"


def test_a_line_break_in_a_name_ends_no_comment(folder: Path) -> None:
    pl.DataFrame({"id": [1, 2], "arm": ["a\nb = 1", "a"]}).write_parquet("log.parquet")
    result = init("log.parquet", Path("x\ny = 1.toml"), Given(arm="arm"))
    assert keys(result.path)["arms"] == {}


def test_a_pattern_is_kept_and_relative_where_it_can_be(folder: Path) -> None:
    write_content(folder / "logs" / "2026-11-01" / "a.parquet", a_log())
    pattern = "logs/{period}/*.parquet"
    assert load(init(pattern, Path("a.toml"), WHOLE).path).source.path == pattern
    (folder / "b").mkdir()
    elsewhere = load(init(pattern, Path("b/b.toml"), WHOLE).path)
    assert elsewhere.source.path == str(folder / pattern)
    assert elsewhere.experiment == "b"
    assert check(folder / "a.toml", "2026-11-01").roster.n_units == 240


def test_a_schema_beside_it_is_named(folder: Path) -> None:
    write_content(folder / "log.csv", a_log())
    (folder / "clusterdp.schema.json").write_text("{}")
    text = init("log.csv", None, WHOLE).path.read_text()
    assert text.startswith("#:schema ./clusterdp.schema.json\n#")
    assert load(folder / "log.toml").experiment == "log"


def test_nothing_is_overwritten(folder: Path) -> None:
    write_content(folder / "log.csv", a_log())
    path = init("log.csv", None, WHOLE).path
    path.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        init("log.csv", None, WHOLE)
    (folder / "dead.toml").symlink_to("gone")
    with pytest.raises(InputError, match="exists already"):
        init("log.csv", Path("dead.toml"), WHOLE)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Given(unit="nobody"), "there is no column 'nobody'"),
        (Given(unit="customer", arm="customer"), "columns.arm: 'customer' is columns.unit already"),
        (Given(values=(1.0, 0.0)), "outcome.values: the grid must increase"),
        (Given(low=1.0, high=0.0), "outcome.high: 0.0 is not above"),
        (Given(epsilon=-1.0), "epsilon"),
        (Given(control="mail", treatments=("mail",)), "'mail' is named twice"),
        (Given(experiment="a b"), "experiment: "),
        (Given(experiment="x" * 101), "at most 100"),
    ],
)
def test_what_a_release_could_not_take_is_refused(folder: Path, given: Given, says: str) -> None:
    write_content(folder / "log.csv", a_log())
    with pytest.raises((ConfigError, InputError)) as caught:
        init("log.csv", Path("a.toml"), given)
    assert says in str(caught.value)
    assert not (folder / "a.toml").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--values", "0,1", "--low", "0"], "--low: given together with values"),
        (["--low", "0"], "outcome: give either values, or low, high and levels"),
        (["--levels", "3"], "outcome: give either values, or low, high and levels"),
        (["--low", "0", "--high", "nan"], "--high: input should be a finite number"),
        (["--values", "0;1"], "--values: '0;1' is neither numbers"),
        (["--values", "0,yes"], "--values: '0,yes' is neither numbers"),
        (["--values", "no,"], "--values: 'no,' is neither numbers"),
        (["--values", "0,1", "--scores", "0,1"], "--scores: belongs to values that are texts"),
        (["--values", "no,yes", "--scores", "a,b"], "--scores: 'a,b' is not numbers"),
        (["--values", "no,yes", "--scores", "0,1,2"], "--scores: 3 numbers for 2 texts"),
        (["--low", "0", "--high", "1", "--levels", "-3"], "--levels: '-3' is neither"),
        (["--low", "0", "--high", "1", "--levels", "0"], "--levels: 0 is fewer than 2"),
    ],
)
def test_flags_that_do_not_go_together_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    write_content(folder / "log.csv", a_log())
    assert run(["init", "log.csv", *flags]) == 2
    assert says in capsys.readouterr().err
    assert not (folder / "log.toml").exists()


def test_texts_become_lines_of_the_outcome(folder: Path) -> None:
    write_content(folder / "log.csv", a_log())
    assert run(["init", "log.csv", "-o", "a.toml", "--values", "no,yes", "--json"]) == 0
    assert keys(folder / "a.toml")["outcome"] == {"values": ["no", "yes"]}
    flags = ["--values", "never,rarely,often"]
    assert run(["init", "log.csv", "-o", "b.toml", *flags]) == 0
    assert "TO BE GIVEN: The numbers" in (folder / "b.toml").read_text()
    assert run(["init", "log.csv", "-o", "c.toml", *flags, "--scores", "0,1,5"]) == 0
    outcome = {"values": ["never", "rarely", "often"], "scores": [0, 1, 5]}
    assert keys(folder / "c.toml")["outcome"] == outcome


def test_no_log_is_told(folder: Path) -> None:
    for name in ("gone.csv", "x" * 400 + ".csv"):
        with pytest.raises(InputError, match="no file matches"):
            init(name, Path("a.toml"), Given())
    (folder / "semicolons.csv").write_text("id;arm\n1;a\n")
    with pytest.raises(InputError, match="there is no column 'arm'"):
        init("semicolons.csv", None, Given(arm="arm"))
    with pytest.raises(InputError, match="cannot be written"):
        init("semicolons.csv", Path("gone/a.toml"), Given())
    (folder / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        init("bad.parquet", None, Given())
    (folder / "log.txt").write_text("a,b\n")
    with pytest.raises(InputError, match="not a format"):
        init("log.txt", None, Given(arm="a"))


def test_the_command_answers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_content(folder / "log.csv", a_log())
    flags = [
        "--unit",
        "customer",
        "--arm",
        "variant",
        "--values",
        "0,1",
        "--treatments",
        '"a, b",c',
    ]
    assert run(["init", "log.csv", *flags]) == 0
    told = capsys.readouterr().out
    assert f"{folder}/log.toml: written" in told
    assert "recognised by its name: outcome = " in told
    assert "to be given: privacy.epsilon" in told
    assert keys(folder / "log.toml")["arms"] == {"control": "none", "treatments": ["a, b", "c"]}
    assert run(["init", "log.csv", "-o", "b.toml", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["path"] == str(folder / "b.toml")
    assert document["recognised"]["arm"] == "variant"
