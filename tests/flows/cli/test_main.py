"""The program as a stranger meets it: help, exit codes, one JSON document, plain errors."""

import dataclasses
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import pytest

from schemas.errors import BudgetError, InputError, StepError
from schemas.released import TABLES
from tests.conftest import SENTINEL, Builder, Program, Ran, a_log, build_experiment, released, rows
from tests.support.surroundings import Command

COMMANDS = [
    "demo",
    "init",
    "schema",
    "check",
    "release",
    "ledger",
    "plan",
    "audit",
    "estimate",
    "report",
    "replicate",
    "inspect",
    "export",
    "hash-ids",
    "site",
    "aggregate",
    "serve",
]


def document(ended: Ran) -> dict[str, Any]:
    """The one JSON document that a command printed, and nothing besides."""
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert isinstance(found, dict)
    return found


def assert_plain_error(ended: Ran, code: int, *words: str) -> None:
    """One or a few lines on standard error that begin with the program's name."""
    assert ended.returncode == code
    assert ended.stdout == ""
    assert ended.stderr.startswith("clusterdp: ")
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) <= 3
    for word in words:
        assert word in ended.stderr


# help


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command(command: Command, flag: str) -> None:
    ended = command(flag)
    assert ended.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name}  +[A-Z]", ended.stdout, re.MULTILINE)
    assert "--debug" in ended.stdout


FIRST = [
    "demo",
    "init",
    "check",
    "plan",
    "release",
    "status",
    "report",
    "estimate",
    "verify",
    "withdraw",
]
"""What a first hour and a first night need."""


def test_help_shows_first_what_is_needed_first(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (first, *others) = re.findall(
        r"^(\w[^:\n]*):\n((?:  [a-z].+\n)+)", command("--help").stdout, re.M
    )
    lists = [re.findall(r"^  (\S+)", lines, re.M) for _, lines in (first, *others)]
    assert lists[0] == FIRST
    assert len(others) >= 3
    assert {name for each in lists for name in each} >= set(COMMANDS)
    assert not any("..." in lines for _, lines in (first, *others))  # each fits a line


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command: Command, name: str) -> None:
    ended = command(name, "--help")
    assert ended.returncode == 0
    assert ended.stdout.startswith("Usage: ")
    assert ended.stderr == ""
    if name != "serve":
        assert "--json" in ended.stdout


def test_the_version_is_told(command: Command) -> None:
    assert command("--version") == (0, f"clusterdp {version('clusterdp')}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["check"],
        ["release"],
        ["estimate"],
        ["check", "a.toml", "b.toml"],
        ["check", "a.toml", "--perod", "x"],
        ["serve", "a.toml"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_bad_input(
    command: Command, arguments: list[str]
) -> None:
    ended = command(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Usage: " in ended.stderr


def test_without_a_command_there_is_help(command: Command) -> None:
    ended = command()
    assert ended.returncode == 2
    assert "Usage: " in ended.stdout + ended.stderr


# check


def test_check_says_what_a_release_would_hold(command: Command, experiment: Builder) -> None:
    built = experiment(rows(*a_log(60).rows(), ("x", "fax", "east", SENTINEL)))
    before = built.entries
    found = document(command("check", built.config, "--json"))
    expected = {
        "n_units": 60,
        "n_clusters": 2,
        "quarantined": 1,
        "quarantined_by_rule": {"arm_not_declared": 1},
        "sample_ratio_p": 1.0,
    }
    assert {name: found[name] for name in expected} == expected
    assert built.entries == before


def test_check_speaks_to_people(command: Command, experiment: Builder) -> None:
    built = experiment(rows(*a_log(60).rows(), ("x", "fax", "east", SENTINEL)))
    ended = command("check", built.config)
    assert ended.returncode == 0
    assert ended.stderr == ""
    for words in ("60 in 2 clusters", "arm_not_declared 1", "none 30, mail 30", "p = 1"):
        assert words in ended.stdout
    assert str(SENTINEL) not in ended.stdout


def test_a_warning_goes_to_standard_error(command: Command, experiment: Builder) -> None:
    built = experiment(arms={"shares": {"none": 1, "mail": 9}})
    ended = command("check", built.config, "--json")
    assert document(ended)["warnings"]
    assert ended.stderr.startswith("clusterdp: warning: sample ratio mismatch")


def test_check_takes_a_period(command: Command, experiment: Builder) -> None:
    built = experiment({"2026/log.csv": a_log(40)}, source={"path": "{period}/log.csv"})
    assert document(command("check", built.config, "--period", "2026", "--json"))["n_units"] == 40
    assert_plain_error(command("check", built.config), 2, "--period: missing")
    assert_plain_error(command("check", built.config, "--period", "2027"), 2, "no file matches")


def test_undeclared_shares_are_told_as_not_tested(command: Command, experiment: Builder) -> None:
    built = experiment(arms={"shares": "undeclared"})
    assert document(command("check", built.config, "--json"))["sample_ratio_p"] is None
    assert "not tested (shares undeclared)" in command("check", built.config).stdout


# release


@pytest.mark.usefixtures("way")
def test_release_prints_one_document(command: Command, experiment: Builder) -> None:
    built = experiment(rows(*a_log(60).rows(), ("x", "fax", "east", SENTINEL)))
    found = document(command("release", built.config, "--period", "2026-11-20", "--json"))
    estimates = found.pop("estimates")
    assert found == {
        "release_id": "trial.2026-11-20.r1",
        "path": str(built.releases / "trial.2026-11-20.r1.duckdb"),
        "status": "published",
        "mechanism": "cluster-dp",
        "epsilon": 2.0,
        "delta": 0.0,
        "n_units": 60,
        "quarantined": 1,
        "quarantined_by_rule": {"arm_not_declared": 1},
        "repeated": {"n_lost": 0, "n_alike": 0, "n_unused": 0},
        "sample_ratio_p": 1.0,
        "attribute_changed": None,
        "n_together": 0,
        "warnings": [],
        "ledger": {
            "population": "trial",
            "spent_epsilon": 2.0,
            "spent_delta": 0.0,
            "budget_epsilon": 1000.0,
            "budget_delta": None,
            "n_releases": 1,
        },
    }
    assert [one["arm"] for one in estimates] == ["mail"] * 3


@pytest.mark.release
@pytest.mark.usefixtures("way")
def test_release_speaks_to_people_and_refuses_other_rows(
    command: Command, experiment: Builder
) -> None:
    built = experiment(arms={"shares": {"none": 1, "mail": 9}}, privacy={"budget_epsilon": 4.0})
    ended = command("release", built.config)
    assert ended.returncode == 0
    assert "trial.once.r1 is published." in ended.stdout
    assert str(built.releases / "trial.once.r1.duckdb") in ended.stdout
    assert ended.stderr.startswith("clusterdp: warning: trial once: sample ratio mismatch")
    assert "paid so far     epsilon 2 of 4, by a unit in its one release" in ended.stdout
    again = command("release", built.config)
    assert again.returncode == 0
    assert "unchanged" in again.stdout
    a_log(242).write_parquet(built.folder / "log.parquet")
    assert_plain_error(command("release", built.config), 4, "trial.once.r1", "--revise")
    revised = document(command("release", built.config, "--revise", "--json"))
    assert revised["release_id"] == "trial.once.r2"
    assert revised["ledger"]["spent_epsilon"] == revised["ledger"]["budget_epsilon"] == 4.0
    refused = command("release", built.config, "--revise")
    assert_plain_error(refused, 3, "of the 4", "0 is left", "trial.once.r1 2 (240 of")


# ledger


def test_a_ledger_that_is_not_there_is_empty_and_is_not_made(
    command: Command, experiment: Builder
) -> None:
    built = experiment(privacy={"budget_epsilon": 5.0, "population": "people"})
    before = built.entries
    assert document(command("ledger", built.config, "--json")) == {
        "experiment": "trial",
        "population": "people",
        "spent_epsilon": 0.0,
        "spent_delta": 0.0,
        "budget_epsilon": 5.0,
        "budget_delta": None,
        "n_releases": 0,
        "composed_epsilon": None,
        "composed_delta": None,
        "median_epsilon": None,
        "n_units": None,
        "entries": [],
    }
    told = command("ledger", built.config).stdout
    assert "Nothing was charged yet." in told
    assert "left          epsilon 5" in told
    assert built.entries == before


def test_the_ledger_shows_what_was_spent_entry_by_entry(
    command: Command, experiment: Builder
) -> None:
    built = experiment(privacy={"budget_epsilon": 5.0, "delta": 1e-6})
    built.run("a")
    built.lose("b")
    built.run("c")
    found = document(command("ledger", built.config, "--json"))
    assert (found["spent_epsilon"], found["spent_delta"]) == (4.0, 2e-6)
    names = ("release_id", "period", "epsilon", "delta", "state")
    assert [tuple(entry[name] for name in names) for entry in found["entries"]] == [
        ("trial.a.r1", "a", 2.0, 1e-6, "published"),
        ("trial.c.r1", "c", 2.0, 1e-6, "published"),
    ]
    assert found["composed_epsilon"] is None  # at the sum of δ hardly anything is gained
    everything = document(command("ledger", built.config, "--all", "--json"))["entries"]
    assert [entry["state"] for entry in everything] == ["published", "void", "published"]
    told = command("ledger", built.config).stdout
    for words in (
        "epsilon 4 of 5, delta 2e-06, by a unit in all 2 releases",
        "left          epsilon 1",
        "trial.a.r1",
        "published",
    ):
        assert words in told
    assert "trial.b.r1" not in told


def test_the_ledger_shows_what_charges_come_to_together_at_the_declared_delta(
    command: Command, experiment: Builder
) -> None:
    """Two of ε = 1 at δ = 0.1: 1 − e^(ε − 2) = 0.1 (1 + 1/e)², so ε = 1.792841."""
    built = experiment(privacy={"epsilon": 1.0, "budget_epsilon": 2.5, "budget_delta": 0.1})
    built.run("a")
    assert document(command("ledger", built.config, "--json"))["composed_epsilon"] is None
    assert "composed" not in command("ledger", built.config).stdout
    built.lose("lost")
    built.run("b")
    found = document(command("ledger", built.config, "--json"))
    assert (found["spent_epsilon"], found["composed_delta"]) == (2.0, 0.1)
    assert 1.792841 <= found["composed_epsilon"] <= 1.7929
    told = " ".join(command("ledger", built.config).stdout.split())
    assert "paid epsilon 2 of 2.5" in told
    assert "composed epsilon 1.793 at delta 0.1, by optimal composition, if these" in told
    with pytest.raises(BudgetError, match=r"0\.5 is left"):  # budgets are held by the sum
        built.run("c")


def test_only_an_unfinished_charge_can_be_abandoned(command: Command, experiment: Builder) -> None:
    built = experiment()
    built.run("a")
    done = command("ledger", built.config, "--abandon", "trial.a.r1")
    assert_plain_error(done, 2, "--abandon", "published already")
    none = command("ledger", built.config, "--abandon", "trial.b.r1")
    assert_plain_error(none, 2, "--abandon", "not in the ledger")


# hash-ids


def test_ids_are_hashed_as_releases_hash_them(command: Command, experiment: Builder) -> None:
    built = experiment(publish={"unit_id": "keyed-hash", "key_file": "ids.key"})
    key = built.folder / "ids.key"
    key.touch(0o600)
    key.write_text("a key that is long enough\n")
    segments, hashed = built.folder / "segments.csv", built.folder / "hashed.csv"
    segments.write_text("unit_id,segment\nc00007,a\nc00008,b\n,c\n", encoding="utf-8")
    found = document(command("hash-ids", built.config, segments, "-o", hashed, "--json"))
    assert found == {"path": str(hashed), "n_rows": 3, "n_missing": 1, "warnings": []}
    query = (
        f"SELECT segment, cluster, arm FROM main.units JOIN '{hashed}' USING (unit_id) ORDER BY 1"
    )
    assert released(built.run().path, query).rows() == [
        ("a", "west", "mail"),
        ("b", "east", "none"),
    ]
    again = command("hash-ids", built.config, segments, "-o", hashed)
    assert_plain_error(again, 2, "exists already")


# paths


@pytest.mark.usefixtures("way")
def test_a_relative_configuration_gives_absolute_paths(
    command: Command,
    experiment: Builder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = experiment()
    monkeypatch.chdir(built.folder)
    path = Path(document(command("release", "trial.toml", "--json"))["path"])
    assert path.is_absolute()
    monkeypatch.chdir(path.parent)
    found = document(command("inspect", path.name, "--json"))
    assert found["path"] == str(path)


# estimate and inspect


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that is only read."""
    return build_experiment(tmp_path_factory.mktemp("read") / "e").run().path


def test_estimate_prints_one_document(command: Command, experiment: Builder) -> None:
    result = experiment().run()
    (combined, one, histogram) = document(command("estimate", result.path, "--json"))["estimates"]
    assert [row["estimator"] for row in (combined, one, histogram)] == [
        "combined",
        "tau_q",
        "histogram",
    ]
    assert set(one) >= {
        "metric", "arm", "control", "segment", "estimator", "estimate", "std_error",
        "privacy_std_error", "n_segment", "coverage", "planned_std_error",
        "ci_lower", "ci_upper", "p_value", "relative", "relative_ci_lower", "relative_ci_upper",
        "n_units", "p_value_holm", "minimum_detectable_effect",
    }  # fmt: skip
    assert combined["estimate"] == result.estimates[0].estimate
    assert one["segment"] is None


@pytest.mark.parametrize("n_units", [80, 4])
def test_numbers_that_are_not_there_are_null(
    command: Command, experiment: Builder, n_units: int
) -> None:
    """Also where a variance is zero, or no stratum has both arms."""
    log = a_log(n_units, clusters=("a", "b", "c", "d")[: 5 - n_units // 20])
    path = experiment(log).run().path
    found = document(command("estimate", path, "--json"))["estimates"]
    assert {one["estimate"] is None for one in found} == {n_units == 4}
    assert command("estimate", path).returncode == 0


def test_the_level_is_heard(command: Command, path: Path) -> None:
    wide, *_ = document(command("estimate", path, "--level", "0.99", "--json"))["estimates"]
    usual, *_ = document(command("estimate", path, "--json"))["estimates"]
    assert wide["ci_upper"] > usual["ci_upper"]
    assert "99 % interval" in command("estimate", path, "--level", "0.99").stdout


@pytest.mark.parametrize("level", ["0", "1", "-0.5", "95", "nan", "inf"])
def test_an_impossible_level_is_refused(command: Command, path: Path, level: str) -> None:
    assert_plain_error(command("estimate", path, "--level", level), 2, "--level", "between 0 and 1")


def test_a_level_that_is_no_number_is_refused(command: Command, tmp_path: Path) -> None:
    ended = command("estimate", tmp_path, "--level", "high")
    assert ended.returncode == 2
    assert "--level" in ended.stderr


def test_inspect_prints_the_release_row_and_counts(command: Command, experiment: Builder) -> None:
    result = experiment().run("2026-11-20")
    found = document(command("inspect", result.path, "--json"))
    expected = {
        "release_id": "trial.2026-11-20.r1",
        "epsilon": 2.0,
        "delta": 0.0,
        "neighbours": "one unit's outcome (substitution)",
        "n_units": 240,
        "n_set_aside": 0,
        "account": "unit",
        "path": str(result.path),
    }
    assert {name: found[name] for name in expected} == expected
    assert found["created_at"].endswith("Z")
    (metric,) = found["metrics"]
    assert (metric["metric"], metric["strata_statistic"]) == ("outcome", "counts")
    beside = {"metrics", "path", "row_counts", "tables", "attributes", "assigned", "n_assigned"}
    beside |= {"withdrawn", "ends"}
    assert set(found) - beside == set(TABLES["release"])
    assert (found["attributes"], found["assigned"]) == ([], False)
    assert set(found["row_counts"]) == set(TABLES)
    assert found["row_counts"]["units"] == 240
    assert found["row_counts"]["estimates"] == 3


def test_inspect_says_what_is_promised(command: Command, path: Path) -> None:
    told = command("inspect", path).stdout
    assert "(2, 0)-differentially private for one unit's outcome" in told
    assert "240 in 2 clusters; 0 rows were set aside" in told
    assert "units 240" in told
    assert "by 7.39 times at most" in told
    assert "not protected" in told


@pytest.mark.parametrize("columns", ["80", None])
def test_inspect_fits_a_screen_and_says_what_columns_are_if_asked(
    command: Command, experiment: Builder, monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    path = experiment().run().path
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    short, long = command("inspect", path).stdout, command("inspect", path, "--columns").stdout
    assert len(short.splitlines()) <= 25
    (told,) = [line for line in short.splitlines() if line.endswith(" --columns")]
    assert str(path) in told
    assert long.startswith(short.split("What each table")[0])
    for name, table in TABLES.items():
        for words in (name, *table):
            assert re.search(rf"^ *{words}[: ]", long, re.MULTILINE), words
    document(command("inspect", path, "--columns", "--json"))
    assert command("inspect", path.parent, "--columns").returncode == 2


@pytest.mark.parametrize("name", ["estimate", "inspect"])
def test_what_is_no_release_is_a_plain_error(
    command: Command, experiment: Builder, tmp_path: Path, name: str
) -> None:
    built = experiment()
    assert_plain_error(command(name, tmp_path / "none.duckdb"), 2, "there is no such file")
    assert_plain_error(command(name, tmp_path), 2, "holds no release")
    assert_plain_error(command(name, built.config), 2, "not a DuckDB file")


# how failures end


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Let ``check`` fail with an error."""

    def fail_with(error: BaseException) -> None:
        def fail(*_: object, **__: object) -> NoReturn:
            raise error

        monkeypatch.setattr("flows.check.check", fail)

    return fail_with


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (InputError("what, where, what to do"), 2, "clusterdp: what, where, what to do\n"),
        (StepError("a step failed"), 1, "clusterdp: a step failed\n"),
        (KeyboardInterrupt(), 1, "clusterdp: interrupted\n"),
        (PermissionError(13, "Permission denied", "f"), 2, "clusterdp: f: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "clusterdp: No space left on device\n"),
        (
            ValueError(SENTINEL),
            1,
            "clusterdp: unforeseen failure (ValueError); run again with --debug to see where\n",
        ),
    ],
)
def test_a_failure_is_told_plainly(
    command: Command,
    failing: Callable[[BaseException], None],
    error: BaseException,
    code: int,
    told: str,
) -> None:
    failing(error)
    assert command("check", "x.toml") == (code, "", told)
    for_programs = command("check", "x.toml", "--json")  # its document: test_failure.py
    assert (for_programs.returncode, for_programs.stderr) == (code, told)


def test_debug_shows_where(command: Command, failing: Callable[[BaseException], None]) -> None:
    failing(InputError("what"))
    ended = command("check", "x.toml", debug=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("Traceback (most recent call last):")
    assert ended.stderr.endswith("clusterdp: what\n")


# the program itself


def test_the_program_tells_its_version_and_help(clusterdp: Program) -> None:
    assert clusterdp("--version") == (0, f"clusterdp {version('clusterdp')}\n", "")
    assert clusterdp("check", "--help").stdout.startswith("Usage: ")


def test_the_program_checks_a_log(clusterdp: Program, experiment: Builder) -> None:
    built = experiment()
    before = built.entries
    assert document(clusterdp("check", built.config, "--json"))["n_units"] == 240
    assert built.entries == before  # Prefect was not even started


def test_the_program_fails_plainly_and_shows_more_with_debug(clusterdp: Program) -> None:
    assert_plain_error(clusterdp("check", "none.toml"), 2, "none.toml: there is no such file")
    ended = clusterdp("--debug", "check", "none.toml")
    assert ended.returncode == 2
    assert "Traceback (most recent call last):" in ended.stderr
    assert ended.stderr.endswith("none.toml: there is no such file\n")


def test_the_program_releases_alike_with_prefect_which_it_keeps_beside_the_configuration(
    clusterdp: Program, experiment: Builder
) -> None:
    built = experiment()
    home = built.folder / ".clusterdp"
    ended = clusterdp("release", built.config, "--period", "2026-11-20", "--json")
    assert document(ended)["release_id"] == "trial.2026-11-20.r1"
    assert ended.stderr == ""
    assert not home.exists()  # without a server there is nothing of Prefect's
    again = clusterdp("release", built.config, "--period", "2026-11-20", "--prefect", "--json")
    assert document(again)["status"] == "unchanged"
    assert again.stderr == ""
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert flow_runs(home) == [("clusterdp-release", "Completed")]
    made = [name for name in built.files if not name.startswith((".clusterdp", "ledger.sqlite."))]
    assert made == [
        "account.key",
        "ledger.sqlite",
        "log.parquet",
        "quarantine/digest.key",
        "releases/trial/SHA256SUMS",
        "releases/trial/latest.duckdb",
        "releases/trial/series.duckdb",
        "releases/trial/trial.2026-11-20.r1.duckdb",
        "trial.toml",
    ]


def flow_runs(home: Path) -> list[tuple[str, str]]:
    """The flow and the last state of every flow run that a server kept in its home."""
    query = "SELECT f.name, r.state_name FROM flow_run r JOIN flow f ON f.id = r.flow_id"
    with closing(sqlite3.connect(home / "prefect.db")) as connection:
        return connection.execute(query).fetchall()


def test_the_demo_releases_a_real_experiment(clusterdp: Program, tmp_path: Path) -> None:
    pytest.importorskip("causaldata", reason="the demo's data are an extra: clusterdp[demo]")
    found = document(clusterdp("demo", "--json"))
    assert Path(found["path"]).is_relative_to(tmp_path / "clusterdp-demo")
    assert found["epsilon"] == 2.0
    combined, one, _ = found["estimates"]
    assert combined["std_error"] < one["std_error"]
    assert (one["arm"], one["control"]) == ("cash", "none")
    # 0.45 in the paper; noise and all, the standard error is about 0.06
    assert 0.1 < one["estimate"] < 0.8
    raw = tmp_path / "clusterdp-demo" / "raw"
    assert stat.S_IMODE(raw.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in raw.iterdir()} == {0o600}
    assert not (tmp_path / "clusterdp-demo" / ".clusterdp").exists()


def test_what_the_demo_ends_in_can_be_pasted(tmp_path: Path) -> None:
    """As it is, into a shell that does not find the program by its name."""
    pytest.importorskip("causaldata", reason="the demo's data are an extra: clusterdp[demo]")
    program = Path(sys.executable).parent / "clusterdp"
    plain = {"PATH": os.defpath, "PWD": str(tmp_path), "HOME": str(tmp_path)}
    ran = partial(
        subprocess.run, cwd=tmp_path, env=plain, capture_output=True, text=True, check=True
    )
    *_, inspects, estimates, asks = ran([program, "demo"]).stdout.splitlines()
    for line, answer in {
        inspects: "thornton-hiv.2004.r1",
        estimates: "effect of each arm against 'none'",
        asks: "epsilon 2 of 6",
    }.items():
        assert line.startswith(f"  {program} ")
        assert answer in ran(["/bin/sh", "-c", line]).stdout


def _of_one_night(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let audits run one night, and sample a bound: no draws again and again, no other ways.

    All of it is asked in `tests/statistical/lab/test_planted_bugs.py`.
    """
    # The command finds what is put here.
    from flows.lab.audit import ask_for_bound, ask_of_nights, look  # noqa: PLC0415 - of two tests
    from flows.lab.raw.made_up import MIXED  # noqa: PLC0415 - likewise
    from flows.lab.raw.nights import NightPlan  # noqa: PLC0415 - likewise

    asked = (ask_of_nights, ask_for_bound)
    quick = partial(look, questions=asked, plans=(NightPlan(MIXED),))
    monkeypatch.setattr("flows.lab.audit.look", quick)


LOCAL = {"mechanism": "uniform-prior-dp", "strata_statistic": "none", "epsilon": 1.0}


@pytest.mark.statistical
def test_an_audit_checks_the_claim_and_reads_no_log(
    experiment: Builder, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    _of_one_night(monkeypatch)
    built = experiment(privacy=LOCAL, source={"path": "there-is-no-log.csv"})
    found = document(command("audit", built.config, "--json"))
    assert found["holds"] is True
    assert (found["claimed_epsilon"], found["delta"]) == (1.0, 0.0)
    assert 0.9 < found["sampled_lower_bound"] < 1.0 + 1e-9
    assert found["exact_epsilon"] == pytest.approx(1.0, abs=1e-9)  # attained, but for rounding λ


@pytest.mark.statistical
def test_an_audit_that_fails_ends_with_exit_code_1(
    experiment: Builder, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the program claimed less than the mechanism costs: the file alone shows it."""
    _of_one_night(monkeypatch)
    built = experiment(privacy=LOCAL)
    honest = built.load().design()
    monkeypatch.setattr(
        "flows.config.model.experiment.Config.outcome_design",
        lambda _: dataclasses.replace(honest, epsilon=0.8),
    )
    ended = command("audit", built.config)
    assert ended.returncode == 1
    assert "DOES NOT HOLD" in ended.stdout


def test_a_release_states_the_delta_it_was_asked_for(experiment: Builder) -> None:
    made = experiment(privacy={"epsilon": 2.0, "delta": 1e-5}).run()
    assert (made.manifest.epsilon, made.manifest.delta) == (2.0, 1e-5)


# logs as JSON


def test_with_log_json_standard_error_is_json_and_nothing_else(
    experiment: Builder, clusterdp: Program
) -> None:
    privacy = {"mechanism": "uniform-prior-dp", "strata_statistic": "none", "budget_epsilon": None}
    built = experiment(a_log(160), privacy=privacy)
    made = clusterdp("release", built.config, "--log-json", "--json")
    lines = [json.loads(line) for line in made.stderr.splitlines()]
    assert {"time", "level", "message"} <= set.intersection(*map(set, lines))
    document(made)
    assert any(line["message"].startswith("ingest: ") for line in lines)
    assert [line["level"] for line in lines if "budget_epsilon" in line["message"]] == ["warning"]
    refused = clusterdp("--log-json", "release", built.folder / "none.toml")
    (line,) = map(json.loads, refused.stderr.splitlines())
    assert (line["level"], line["code"], line["kind"]) == ("error", 2, "config")
    assert line["message"].startswith(str(built.folder / "none.toml"))
    assert refused.stdout == ""
    shown = clusterdp("release", built.folder / "none.toml", "--debug", "--log-json")
    assert "Traceback" in json.loads(shown.stderr)["traceback"]


def test_without_it_lines_are_for_people(experiment: Builder, clusterdp: Program) -> None:
    privacy = {"mechanism": "uniform-prior-dp", "strata_statistic": "none", "budget_epsilon": None}
    made = clusterdp("release", experiment(a_log(160), privacy=privacy).config)
    (line,) = made.stderr.splitlines()
    assert line.startswith("clusterdp: warning: trial once: privacy.budget_epsilon is not set")
