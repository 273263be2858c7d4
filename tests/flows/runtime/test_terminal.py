"""Names of others are shown whole and on one line, and move nothing on a terminal."""

import json
import logging
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.cli.main import run
from flows.runtime.terminal import SafeFormatter, padded, pairs, safe_text, shown, table, width
from schemas.errors import BudgetError, ConfigError, InputError
from schemas.visible import visible
from tests.conftest import Builder, a_log

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
        ["check", str(built.config)],
        ["plan", str(built.config)],
        ["inspect", release],
        ["estimate", release],
        ["estimate", release, "--segments", str(segments)],
        ["ledger", str(built.config)],
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
