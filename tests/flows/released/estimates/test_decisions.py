"""What a release decides by the roles that were declared for it, from its own estimates."""

import math
from dataclasses import fields
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp
from estimators.decisions import Decision
from flows.cli.show.estimates import decided_text, decision_lines
from flows.released.estimates.decisions import Decisions
from flows.released.estimates.release import estimate_file, estimate_release
from flows.released.file.read import open_release, read_manifest
from flows.released.report import report
from schemas.errors import ConfigError
from tests.conftest import Section, a_log, build_experiment, released
from tests.estimators.reference import p_value
from tests.support.contents import read_contents

ARMS = ("none", "mail", "post")
OUTCOMES: list[Section] = [
    {"name": "visit", "column": "visited", "values": [0, 1], "role": "primary"},
    {"name": "spend", "column": "spent", "values": [0, 1, 2, 3], "role": "primary"},
    {
        "name": "calls",
        "column": "called",
        "values": [0, 1],
        "role": "guardrail",
        "direction": "decrease",
        "margin": 0.1,
        "label": "Calls <b>made</b>",
    },
    {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
]
RATIO: Section = {
    "name": "spend_each",
    "numerator": "spend",
    "denominator": "visit",
    "role": "guardrail",
    "margin": 1.5,
}
DECIDING = ["visit", "spend", "calls", "spend_each"]


def the_log(n_units: int = 3_000) -> pl.DataFrame:
    """Mail raises visits and spending; post raises calls by far more than the margin."""
    random = np.random.default_rng(11)
    log = a_log(n_units, arms=ARMS)
    mail, post = (log["variant"].to_numpy() == arm for arm in ("mail", "post"))
    visited = random.random(n_units) < 0.3 + 0.5 * mail
    return log.with_columns(
        visited=pl.Series(visited.astype(float)),
        spent=pl.Series(
            np.clip(random.integers(0, 2, n_units) + mail + visited, 0, 3).astype(float)
        ),
        called=pl.Series((random.random(n_units) < 0.2 + 0.5 * post).astype(float)),
    )


def made(folder: Path, rule: str) -> Path:
    built = build_experiment(
        folder / rule,
        the_log(),
        outcome=None,
        outcomes=OUTCOMES,
        ratios=[RATIO],
        decision={"primary": rule},
        columns={"outcome": None, "attributes": ["region"]},
        arms={"control": "none", "treatments": list(ARMS[1:])},
        privacy={"epsilon": 12.0},
    )
    return built.run().path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("all"), "all")


@pytest.fixture(scope="module")
def by_any(tmp_path_factory: pytest.TempPathFactory, path: Path) -> Path:
    """The same file under the other rule."""
    copy = tmp_path_factory.mktemp("any") / "trial.once.r1.duckdb"
    copy.write_bytes(path.read_bytes())
    with duckdb.connect(str(copy)) as connection:
        connection.execute("UPDATE release SET decision = 'any'")
    return copy


def decisions(path: Path, level: float = 0.95) -> Decisions:
    found = estimate_release(path, level).decisions
    assert found is not None
    return found


def test_the_file_states_what_was_declared(path: Path) -> None:
    stated = released(path, "SELECT metric, role, direction, margin FROM metrics ORDER BY rowid")
    assert stated.rows() == [
        ("visit", "primary", "increase", None),
        ("spend", "primary", "increase", None),
        ("calls", "guardrail", "decrease", 0.1),
        ("clicks", None, None, None),
        ("spend_each", "guardrail", "increase", 1.5),
    ]
    with open_release(path) as connection:
        assert read_manifest(connection).decision == "all"


def test_guardrails_are_tested_one_sided_against_their_margins(path: Path) -> None:
    stated = released(path, "FROM estimates WHERE estimator = 'combined'")
    wide = {(row["metric"], row["arm"]): row for row in stated.to_dicts()}
    rows = [one for one in decisions(path).rows if one.role == "guardrail"]
    laws = {(one.metric, one.arm, one.estimator): one for one in estimate_file(path)}
    assert {(one.metric, one.arm) for one in rows} == {
        (metric, arm) for metric in DECIDING[2:] for arm in ARMS[1:]
    }
    for one in rows:
        row, sign = wide[one.metric, one.arm], -1.0 if one.metric == "calls" else 1.0
        error, half = row["std_error"], (row["ci_upper"] - row["ci_lower"]) / 2
        least = sign * row["estimate"] - half
        assert one.least_benefit == pytest.approx(least, abs=1e-9 * abs(half))
        own = laws[one.metric, one.arm, "combined"]  # the law is the interval's own
        away = (sign * row["estimate"] + (one.margin or 0)) / error
        beyond = p_value(abs(away), own.degrees_of_freedom or math.inf, own.kurtosis or 0.0) / 2
        assert one.p_value == pytest.approx(beyond if away > 0 else 1 - beyond, rel=1e-6)
        assert (one.verdict == "not worse than the margin") == (least > -(one.margin or 0))


def test_verdicts_are_right_where_effects_are_large(path: Path) -> None:
    found = decisions(path)
    verdicts = {(one.metric, one.arm): one.verdict for one in found.rows}
    assert verdicts["visit", "mail"] == verdicts["spend", "mail"] == "better"
    assert verdicts["calls", "mail"] == "not worse than the margin"
    assert verdicts["calls", "post"] == "worse"
    assert found.keep == {"mail": True, "post": False}


def test_under_any_p_values_are_those_of_holm_over_outcomes_and_arms(
    path: Path, by_any: Path
) -> None:
    plain, adjusted = (
        [one for one in decisions(file).rows if one.role == "primary"] for file in (path, by_any)
    )
    assert len(plain) == 4
    assert [one.p_value for one in plain] == [one.p_value for one in adjusted]
    assert [one.p_value_adjusted for one in plain] == [one.p_value for one in plain]
    order = sorted(range(4), key=lambda at: plain[at].p_value or 0.0)
    so_far = 0.0
    for rank, at in enumerate(order):
        so_far = min(max(so_far, (4 - rank) * (plain[at].p_value or 0.0)), 1.0)
        assert adjusted[at].p_value_adjusted == pytest.approx(so_far)


def test_part_of_the_metrics_decides_nothing(path: Path) -> None:
    assert estimate_release(path, metrics=["visit", "calls"]).decisions is None
    assert estimate_release(path, metrics=DECIDING).decisions == decisions(path)


def test_without_roles_there_is_no_decision(tmp_path: Path) -> None:
    file = build_experiment(tmp_path / "plain", a_log(200)).run().path
    assert estimate_release(file).decisions is None
    assert read_contents(file).decisions is None
    assert 'id="decision"' not in report(read_contents(file))
    empty = clusterdp.open(file).decisions()
    assert empty.columns == [*(one.name for one in fields(Decision)), "keep"]
    assert empty.is_empty()
    stated = released(file, "SELECT role, direction, margin, decision FROM metrics, release")
    assert stated.rows() == [(None, None, None, None)]


def test_it_is_told_in_words(path: Path, by_any: Path) -> None:
    lines = decision_lines(decisions(path))
    assert lines[1] == (
        "Declared beforehand: an arm is to gain in each of visit, spend and harm each of calls, "
        "spend_each by no more than its margin."
    )
    (worse,) = (line for line in lines if line.strip().startswith("calls, post"))
    assert "worse (margin 0.1): worse by" in worse
    assert "one-sided p" in worse
    assert [line.split() for line in lines[-2:]] == [
        ["mail", "passes"],
        ["post", "does", "not", "pass"],
    ]
    assert "gain in one of visit, spend" in decision_lines(decisions(by_any))[1]
    whole = estimate_release(by_any)
    text = decided_text(whole.estimates, whole.decisions)
    assert "p (Holm)" in text.split("decision")[1]
    assert "decision" not in decided_text(whole.estimates, None)


def test_the_page_has_it_in_the_unit_of_each_metric(path: Path) -> None:
    page = report(read_contents(path))
    table = page.split('id="table-decision"')[1].split("</table>")[0]
    assert "Calls &lt;b&gt;made&lt;/b&gt;" in table
    assert "less is better" in table
    assert '<data value="0.1">10</data> <bdi>percentage points</bdi>' in table
    assert table.count('<th scope="row">') == len(decisions(path).rows)
    assert "not worse than the margin" in table
    assert '<details id="decision">' in page


def test_python_gives_a_frame_at_any_level(path: Path) -> None:
    release = clusterdp.open(path)
    found = release.decisions(level=0.8)
    assert found.height == 8
    assert found["keep"].to_list() == [arm == "mail" for arm in found["arm"]]
    mine = {(row["metric"], row["arm"]): row["least_benefit"] for row in found.to_dicts()}
    for one in decisions(path, 0.8).rows:
        assert mine[one.metric, one.arm] == one.least_benefit
    wider = release.decisions(level=0.99)["least_benefit"]
    assert (wider < found["least_benefit"]).all()
    with pytest.raises(ConfigError, match="level"):
        release.decisions(level=1.0)
