"""Roles of outcomes in a configuration: what goes together, and what is told by its key."""

import pytest

from flows.config.model.experiment import Config
from schemas.errors import ConfigError, SeveralConfigError
from tests.conftest import Builder, Section

VISIT: Section = {"name": "visit", "column": "visited", "values": [0, 1]}
SPEND: Section = {"name": "spend", "column": "spent", "values": [0, 1, 2]}
RATIO: Section = {"name": "per_visit", "numerator": "spend", "denominator": "visit"}
PRIMARY: Section = {"role": "primary"}
GUARDRAIL: Section = {"role": "guardrail", "margin": 0.5, "direction": "decrease"}


def loaded(
    experiment: Builder, visit: Section, spend: Section, ratio: Section, **sections: Section
) -> Config:
    return experiment(
        outcome=None,
        outcomes=({**VISIT, **visit}, {**SPEND, **spend}),
        columns={"outcome": None},
        ratios=({**RATIO, **ratio},),
        **sections,
    ).load()


def test_roles_have_defaults_and_where_none_is_declared_none_is_published(
    experiment: Builder,
) -> None:
    config = loaded(experiment, PRIMARY, GUARDRAIL, {"direction": "decrease"})
    assert [one.goal for one in config.outcomes] == [
        {"role": "primary", "direction": "increase"},
        {"role": "guardrail", "direction": "decrease", "margin": 0.5},
    ]
    assert config.ratios[0].goal == {"role": "secondary", "direction": "decrease"}
    assert config.decision_rule == "all"
    undeclared = loaded(experiment, {}, {}, {})
    assert [one.goal for one in undeclared.outcomes] == [{}, {}]
    assert undeclared.ratios[0].goal == {}
    assert undeclared.decision_rule is None
    assert loaded(experiment, {}, GUARDRAIL, {}).decision_rule is None


def test_the_one_outcome_of_an_experiment_has_a_role_too(experiment: Builder) -> None:
    config = experiment(outcome={"role": "primary", "direction": "decrease"}).load()
    assert config.outcomes[0].goal == {"role": "primary", "direction": "decrease"}
    assert config.decision_rule == "all"
    with pytest.raises(ConfigError) as caught:
        experiment(outcome={"role": "guardrail"}).load()
    assert caught.value.key == "outcome.margin"


def test_several_primary_outcomes_need_a_rule(experiment: Builder) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(experiment, PRIMARY, {}, PRIMARY)
    assert caught.value.key == "decision.primary"
    assert "there are 2 primary outcomes" in caught.value.problem
    for rule in ("all", "any"):
        config = loaded(experiment, PRIMARY, {}, PRIMARY, decision={"primary": rule})
        assert config.decision_rule == rule
    assert loaded(experiment, PRIMARY, {}, {}, decision={"primary": "any"}).decision_rule == "any"


@pytest.mark.parametrize(
    ("spend", "key", "words"),
    [
        ({"role": "guardrail"}, "outcomes[1].margin", "missing: of a guardrail"),
        ({"margin": 0.5}, "outcomes[1].margin", 'belongs to role = "guardrail"'),
        ({**PRIMARY, "margin": 0.5}, "outcomes[1].margin", 'belongs to role = "guardrail"'),
        ({**GUARDRAIL, "margin": 2.0}, "outcomes[1].margin", "no harm could be that great"),
        ({**GUARDRAIL, "margin": 0.0}, "outcomes[1].margin", "greater than 0"),
        ({"role": "main"}, "outcomes[1].role", "'primary', 'guardrail' or 'secondary'"),
        ({"direction": "up"}, "outcomes[1].direction", "'increase' or 'decrease'"),
        ({"rolle": "primary"}, "outcomes[1].rolle", "did you mean `role`?"),
    ],
)
def test_what_cannot_be_is_told_by_its_key(
    experiment: Builder, spend: Section, key: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(experiment, {}, spend, {})
    assert caught.value.key == key
    assert words in caught.value.problem


def test_a_rule_without_a_primary_outcome_and_all_else_is_told_at_once(
    experiment: Builder,
) -> None:
    with pytest.raises(SeveralConfigError) as caught:
        loaded(experiment, {}, {"margin": 1}, {"role": "guardrail"}, decision={"primary": "any"})
    told = str(caught.value)
    for key in ("outcomes[1].margin", "ratios[0].margin", "decision.primary"):
        assert key in told
