"""``clusterdp plan`` and ``check`` of ``mechanism = "cluster-optimal-dp"``."""

import json
from pathlib import Path
from typing import Any

import pytest

import clusterdp
from flows.cli.night.plan import check_text, plan_text
from flows.plan import resolved_release_of
from tests.conftest import Builder, Experiment, a_log
from tests.support.surroundings import Command

OPTIMAL: dict[str, Any] = {"mechanism": "cluster-optimal-dp"}
COUNTS: dict[str, Any] = OPTIMAL | {"strata_statistic": "counts", "learn_from": "strata"}
ARMS: dict[str, Any] = OPTIMAL | {"strata_statistic": "none", "learn_from": "arms"}


def told(command: Command, *arguments: str | Path) -> dict[str, Any]:
    ended = command(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert isinstance(found, dict)
    return found


def test_a_plan_says_what_tables_keep_and_what_learning_costs(
    command: Command, experiment: Builder
) -> None:
    built = experiment(privacy=COUNTS)
    before = built.entries
    found = told(command, "plan", built.config)
    assert found["mechanism"] == "cluster-optimal-dp"
    assert (found["levels"], found["strata_statistic"]) == (4, "counts")
    assert found["resampling_probability"] is found["truncation_threshold"] is None
    assert 0 < found["statistic_epsilon"] < found["response_epsilon"] < 2.0
    assert found["statistic_epsilon"] + found["response_epsilon"] == pytest.approx(2.0, rel=1e-12)
    assert found["noise_scale"] == pytest.approx(2.0 / found["statistic_epsilon"])
    assert found["runners_up"][-1]["mechanism"] == "uniform-prior-dp"
    assert found["one_more_epsilon"]["mechanism"] == "cluster-optimal-dp"
    better = found["one_more_epsilon"]["predicted"][0]["std_error"]
    assert 0 < better < found["predicted"][0]["std_error"]
    checked = told(command, "check", built.config)
    (design,) = checked["designs"]
    assert design == {
        "metric": "outcome",
        **{
            key: found[key]
            for key in (
                "levels",
                "strata_statistic",
                "statistic_epsilon",
                "learnt_from",
                "arm_counts_epsilon",
                "response_epsilon",
            )
        },
    }
    assert (found["learnt_from"], found["arm_counts_epsilon"]) == ("strata", 0.0)
    assert built.entries == before


def test_a_plan_says_what_counts_of_arms_cost(command: Command, experiment: Builder) -> None:
    found = told(command, "plan", experiment(privacy=ARMS).config)
    assert (found["strata_statistic"], found["learnt_from"]) == ("none", "arms")
    assert found["statistic_epsilon"] == 0.0
    assert found["arm_counts_epsilon"] >= 0.005 * 2.0
    paid = found["arm_counts_epsilon"] + found["response_epsilon"]
    assert paid == pytest.approx(2.0, rel=1e-12)


def words(built: Experiment) -> tuple[str, str]:
    """What people are told by a plan and by a check."""
    found = plan_text(clusterdp.plan(built.config)), check_text(clusterdp.check(built.config))
    one, other = (" ".join(text.split()) for text in found)
    return one, other


def test_people_are_told_as_well(experiment: Builder) -> None:
    plan, check = words(experiment(privacy=COUNTS))
    assert "randomised by the least noisy table at epsilon 1." in plan
    assert "learnt in the run from the noisy counts, which cost epsilon 0." in plan
    assert "4 levels at epsilon 1." in check
    assert "of each stratum counts at epsilon 0." in check
    nothing = {"strata_statistic": "none", "learn_from": "nothing"}
    plan, check = words(experiment(privacy=OPTIMAL | nothing))
    assert "for the guess alone; nothing is learnt in the run" in plan
    assert "4 levels at epsilon 2; of each stratum none at epsilon 0" in check
    plan, check = words(experiment(privacy=ARMS))
    assert "learnt in the run from noisy counts of whole arms, which cost epsilon 0.0" in plan
    assert "; of each arm counts at epsilon 0.0" in check


def test_nothing_is_said_of_tables_where_there_are_none(experiment: Builder) -> None:
    plan, check = words(experiment(privacy={"mechanism": "cluster-dp"}))
    assert "table" not in plan
    assert "levels at epsilon" not in check


def test_auto_says_what_it_chose_and_why(command: Command, experiment: Builder) -> None:
    """Tables where they tell more; else, and where they cannot be had, randomised response."""
    auto: dict[str, Any] = {"mechanism": "auto"}
    tables = told(command, "plan", experiment(privacy=auto | {"epsilon": 1.0}).config)
    assert tables["mechanism"] == "cluster-optimal-dp"
    assert "times as wide as with uniform-prior-dp" in tables["mechanism_reason"]
    assert "uniform-prior-dp" in {one["mechanism"] for one in tables["runners_up"]}
    great = told(command, "plan", experiment(privacy=auto | {"epsilon": 11.0}).config)
    assert great["mechanism"] == "uniform-prior-dp"
    assert "is worth less than 2% of the noise" in great["mechanism_reason"]
    assert "cluster-optimal-dp" in {one["mechanism"] for one in great["runners_up"]}
    for epsilon in (12.5, 5e-4):
        refused = told(command, "plan", experiment(privacy=auto | {"epsilon": epsilon}).config)
        assert refused["mechanism"] == "uniform-prior-dp"
        assert "not considered: its tables are solved for" in refused["mechanism_reason"]
    plan, check = words(experiment(privacy=auto | {"epsilon": 1.0}))
    assert "why intervals are predicted to be 0.8" in plan
    assert "levels at epsilon" in check


def test_several_outcomes_have_one_mechanism(command: Command, experiment: Builder) -> None:
    """One of two values goes with tables of others; one of too many values keeps them from all."""
    log = a_log(400)

    def reason(*others: dict[str, Any]) -> tuple[str, str]:
        outcomes = ({"name": "clicked", "column": "clicks", "values": [0, 3]}, *others)
        built = experiment(
            log,
            outcome=None,
            outcomes=outcomes,
            columns={"outcome": None},
            privacy={"mechanism": "auto", "epsilon": 2.0},
        )
        found = told(command, "plan", built.config)
        assert len({one["mechanism_reason"] for one in found["metrics"]}) == 1
        return found["mechanism"], found["metrics"][0]["mechanism_reason"]

    three = {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]}
    many = {"name": "many", "column": "clicks", "values": list(range(26))}
    assert reason(three)[0] == "cluster-optimal-dp"
    assert reason(three, many) == (
        "uniform-prior-dp",
        "cluster-optimal-dp is not considered: its tables have 25 outcomes at most",
    )
    again = {"name": "again", "column": "clicks", "values": [0, 2]}
    assert "of two outcomes, randomised response is the least noisy table" in reason(again)[1]


def test_each_outcome_has_a_design(command: Command, experiment: Builder) -> None:
    outcomes = (
        {"name": "clicked", "column": "clicks", "values": [0, 3]},
        {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
    )
    built = experiment(
        a_log(400), outcome=None, outcomes=outcomes, columns={"outcome": None}, privacy=COUNTS
    )
    found = told(command, "plan", built.config)
    assert found["response_epsilon"] is None
    assert [one["levels"] for one in found["metrics"]] == [2, 4]
    assert all(0.5 < one["response_epsilon"] < 1.0 for one in found["metrics"])
    designs = told(command, "check", built.config)["designs"]
    assert [one["metric"] for one in designs] == ["clicked", "clicks"]
    assert "clicks 4 levels" in " ".join(check_text(clusterdp.check(built.config)).split())


def test_an_audit_finds_the_design_that_a_release_will_have(experiment: Builder) -> None:
    built = experiment(privacy=COUNTS)
    (design,) = resolved_release_of(built.config, None).designs
    (planned,) = clusterdp.plan(built.config).chosen.designs
    assert design == planned
