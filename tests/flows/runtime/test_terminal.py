"""Names of others are shown whole and on one line, and move nothing on a terminal."""

import json
import logging
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.cli.main import run
from flows.runtime import progress, terminal
from flows.runtime.terminal import (
    SafeFormatter,
    padded,
    pairs,
    safe_text,
    shown,
    table,
    to_print,
    width,
)
from schemas.errors import BudgetError, ConfigError, InputError
from schemas.visible import visible
from tests.conftest import Builder, Experiment, a_log

EVIL = "\x1b[2J\u202ename\r\nclusterdp: done\u200b\x9f\u2028"
SPELT = r"\x1b[2J\u202ename\r\nclusterdp: done\u200b\x9f\u2028"
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def is_safe(text: str, keep: str = "") -> bool:
    return all(one in keep or unicodedata.category(one) not in UNSEEN for one in text)


@given(st.text(st.characters(codec=None)))
def test_any_text_becomes_visible(text: str) -> None:
    assert is_safe(visible(text))
    assert is_safe(safe_text(text), keep="\n")
    assert safe_text(text).count("\n") == text.count("\n")
    assert is_safe(str(InputError(text)))
    assert is_safe(str(ConfigError("key", text)))
    visible(text).encode("utf-8")  # no surrogate is left


@pytest.mark.process
def test_every_character_that_cannot_be_seen_is_spelt() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) in UNSEEN:
            assert visible(character).isascii()
        else:
            assert visible(character) == character


def test_names_of_any_language_stay() -> None:
    for name in ("Zürich", "東京 ✓", "Ελλάδα", "हिन्दी", "עברית", "a\u00a0b", "ça va?", "\\x1b", ""):
        assert shown(name) == visible(name) == name


def test_names_are_spelt_as_python_spells_them() -> None:
    assert visible(EVIL) == SPELT
    assert visible("\ud800") == r"\ud800"
    assert visible("\U000e0001") == r"\U000e0001"


def test_endless_names_are_cut() -> None:
    assert shown("x" * 200) == "x" * 200
    assert shown("x" * 1_000_000) == "x" * 200 + "…"


def test_errors_keep_only_the_line_breaks_of_ours() -> None:
    assert str(InputError("a\nb\x1b")) == r"a\nb\x1b"
    assert str(BudgetError("a\nb\x1b")) == "a\nb\\x1b"


def test_lines_of_a_log_are_safe() -> None:
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s\n", (EVIL,), None)
    assert is_safe(SafeFormatter("%(message)s").format(record), keep="\n")


def test_columns_line_up_whatever_is_in_them() -> None:
    lines = table(["arm", "n"], [["東京", "1"], ["abc", "22"], ["e\u0301", "3"], [EVIL, "4"]])
    assert len(lines) == 5
    assert len({width(line) for line in lines}) == 1
    assert all(is_safe(line) for line in lines)
    assert padded("東", 4) == "東  "
    assert padded("e\u0301", 3, right=True) == "  e\u0301"
    told = pairs({"file": EVIL, "arm": "x"})
    assert told == [f"  file  {SPELT}", "  arm   x"]


# on a terminal, and elsewhere


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make standard output a terminal of so many columns."""

    def set_width(columns: int) -> None:
        monkeypatch.setattr(terminal, "line_width", lambda _=None: columns)

    return set_width


NAMES = st.text(st.sampled_from("aé東 👩\u0301-_.…x1"), max_size=60)
TABLES = st.integers(1, 9).flatmap(
    lambda n: st.lists(st.lists(NAMES, min_size=n, max_size=n), min_size=2, max_size=5)
)


@given(cells=TABLES, columns=st.integers(40, 130))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_table_never_overflows_and_loses_nothing(
    on_terminal: Callable[[int], None], cells: list[list[str]], columns: int
) -> None:
    on_terminal(columns)
    lines = table(cells[0], cells[1:])
    assert max(map(width, lines)) <= columns
    told = Counter("".join(lines)) - Counter(" ")
    wanted = Counter("".join(map("".join, cells)))
    del wanted[" "], told[" "]
    assert not wanted - told  # every sign is there; first columns may be there again


def test_columns_go_below_each_other_beside_the_first(on_terminal: Callable[[int], None]) -> None:
    on_terminal(40)
    head = ["segment", "arm", "effect", "95 % interval", "std. error", "units"]
    lines = table(head, [["young", "mail", "0.4003", "0.3346 … 0.4661", "0.03333", "2,830"]])
    assert lines == [
        "  segment  arm   effect    95 % interval",
        "  young    mail  0.4003  0.3346 … 0.4661",
        "",
        "  segment  arm   std. error  units",
        "  young    mail     0.03333  2,830",
    ]


def test_headings_are_broken_before_columns_part(on_terminal: Callable[[int], None]) -> None:
    on_terminal(30)
    assert table(["arm", "std. error", "from privacy"], [["mail", "0.03333", "0.02909"]]) == [
        "  arm      std.     from",
        "          error  privacy",
        "  mail  0.03333  0.02909",
    ]


def test_names_are_broken_and_line_up(on_terminal: Callable[[int], None]) -> None:
    on_terminal(26)
    lines = table(["arm", "units"], [["東京のメール広告配信", "12"], ["a few words, really", "3"]])
    assert lines == [
        "  arm                units",
        "  東京のメール広告      12",
        "  配信",
        "  a few words,           3",
        "  really",
    ]


def test_elsewhere_a_row_is_one_line_and_whole() -> None:
    name = "a long name " * 100
    lines = table(["arm", "of whom", "n"], [[name, "everybody", "1"], ["b", "a segment", "22"]])
    assert len(lines) == 3
    assert name in lines[1]
    assert "everybody" in lines[1]
    assert len(lines[2]) < 250  # one endless name does not make all lines endless
    assert pairs({"arm": name}) == [f"  arm  {name}"]
    assert to_print(name) == name


def test_long_values_go_on_below_themselves_and_paths_stay_whole(
    on_terminal: Callable[[int], None],
) -> None:
    on_terminal(30)
    path = "/a/path/that/is/far/too/long/for/this/terminal.duckdb"
    told = pairs({"file": path, "epsilon": "2: at most 7.39 times", "arms": "x" * 40})
    assert told == [
        f"  file     {path}",
        "  epsilon  2: at most 7.39",
        "           times",
        "  arms     xxxxxxxxxxxxxxxxxxx",
        "           xxxxxxxxxxxxxxxxxxx",
        "           xx",
    ]
    for program in ("clusterdp", ".venv/bin/clusterdp", "'/an environment/bin/clusterdp'"):
        command = f"  {program} inspect {path}"
        assert to_print(f"  some words that are too many here\n{command}") == (
            f"  some words that are too many\n  here\n{command}"
        )


def commands_of(built: Experiment, release: str, segments: Path) -> list[list[str]]:
    """Those that read a configuration, a release and a table of segments."""
    config = str(built.config)
    return [
        ["check", config],
        ["plan", config],
        ["inspect", release],
        ["estimate", release],
        ["estimate", release, "--segments", str(segments)],
        ["ledger", config],
    ]


@pytest.mark.parametrize(
    "environment",
    [{"COLUMNS": "80"}, {"COLUMNS": "120", "NO_COLOR": "1"}, {"COLUMNS": "50", "TERM": "dumb"}],
)
def test_commands_fit_a_terminal_and_write_no_codes(
    experiment: Builder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
) -> None:
    arms = ("none", "[red]東京のメール広告[/red] by post, and by phone", "m" * 70)
    built = experiment(
        a_log(600, arms=arms, clusters=("west" + EVIL, "east")),
        arms={"control": arms[0], "treatments": list(arms[1:])},
        privacy={"mechanism": "auto", "budget_epsilon": 9.0, "segment_shares": [0.1, 0.5]},
    )
    release = str(built.run().path)
    segments = built.folder / "segments.csv"
    rows = "\n".join(f'{one},"young people in 東京"' for one in built.read()["unit"].to_list())
    segments.write_text(f"unit_id,segment\n{rows}\n", encoding="utf-8")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(progress, "_can_show", lambda: False)  # it has codes of its own
    for command in (
        *commands_of(built, release, segments),
        ["check", "no-such-file.toml"],
        ["estimate", release, "--level", "7"],
    ):
        capsys.readouterr()
        with monkeypatch.context() as patched:
            for stream in (sys.stdout, sys.stderr):
                patched.setattr(stream, "isatty", lambda: True)
            code = run(command)
        told = capsys.readouterr()
        assert code in (0, 2), told.err
        assert "\x1b" not in told.out + told.err
        lines = [line for line in (told.out + told.err).splitlines() if "/" not in line]
        assert max(map(width, lines), default=0) <= int(environment["COLUMNS"]), command
        if command[0] == "estimate" and not code:
            assert "[red]" in told.out  # it is a name, and no mark
        assert run(command) == code
        piped = capsys.readouterr()
        if command[0] in ("plan", "estimate") and not code:
            assert any(arms[2] in line for line in piped.out.splitlines())


def test_no_command_prints_a_name_raw(
    experiment: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arms, clusters, populations and segments with everything that a terminal obeys."""
    arms = ("none" + EVIL, "mail" + EVIL)
    built = experiment(
        a_log(400, arms=arms, clusters=("west" + EVIL, "east")),
        arms={"control": arms[0], "treatments": [arms[1]]},
        privacy={"population": "us" + EVIL},
    )
    release = str(built.run().path)
    segments = tmp_path / "segments.csv"
    rows = "\n".join(f'{one},"{EVIL}"' for one in built.read()["unit"].to_list())
    segments.write_text(f"unit_id,segment\n{rows}\n", encoding="utf-8", newline="")
    for command in (
        *commands_of(built, release, segments),
        ["ledger", str(built.config), "--abandon", EVIL],
        ["estimate", str(tmp_path / EVIL)],
        ["check", str(tmp_path / EVIL)],
    ):
        code = run(command)
        told = capsys.readouterr()
        assert code in (0, 2), told.err
        assert is_safe(told.out, keep="\n"), command
        assert is_safe(told.err, keep="\n"), command
        assert not any(line.startswith("clusterdp: done") for line in told.err.splitlines())
        assert not any(line.startswith("clusterdp: done") for line in told.out.splitlines())


def test_json_is_ascii_and_keeps_names_as_they_are(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ("none", "mail" + EVIL)
    built = experiment(a_log(400, arms=arms), arms={"control": arms[0], "treatments": [arms[1]]})
    assert run(["estimate", str(built.run().path), "--json"]) == 0
    told = capsys.readouterr().out
    assert told.isascii()
    assert is_safe(told, keep="\n")
    assert json.loads(told)["estimates"][0]["arm"] == arms[1]
