"""Several outcomes in a configuration: their rules, names, shares, and views of one alone."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.config.model.experiment import Config
from privatizers.accounting.budget import Budget, parts_of, total, written
from schemas.errors import ConfigError, SeveralConfigError
from tests.conftest import Builder, Section

VISIT: Section = {"name": "visit", "column": "visited", "values": [0, 1]}
SPEND: Section = {
    "name": "spend",
    "column": "spent",
    "low": 0,
    "high": 500,
    "levels": 6,
    "label": "Spent in two weeks",
    "measured_in": "USD",
}
PLANNED: Section = {"mechanism": "auto"}


def several(experiment: Builder, *outcomes: Section, **sections: Section) -> Config:
    columns = {"outcome": None, **sections.pop("columns", {})}
    return experiment(outcome=None, outcomes=outcomes, columns=columns, **sections).load()


def refused(experiment: Builder, *outcomes: Section, **sections: Section) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        several(experiment, *outcomes, **sections)
    return caught.value


def test_each_is_seen_as_if_it_were_the_only_one(experiment: Builder) -> None:
    config = several(experiment, VISIT, SPEND, privacy={"delta": 1e-6})
    assert [one.name for one in config.outcomes] == ["visit", "spend"]
    visit, spend = config.views
    assert (visit.outcome.grid, visit.columns.outcome) == ((0.0, 1.0), "visited")
    assert spend.outcome.grid == (0.0, 100.0, 200.0, 300.0, 400.0, 500.0)
    assert (spend.outcome.label, spend.outcome.measured_in) == ("Spent in two weeks", "USD")
    assert [one.name for one in spend.outcomes] == ["spend"]
    assert (visit.privacy.epsilon, visit.privacy.delta) == (1.0, 5e-7)
    assert config.of_outcome("spend") == spend
    assert (config.cost.epsilon, config.cost.delta) == (2.0, 1e-6)
    alone = experiment(
        outcome={"values": [0, 1]},
        columns={"outcome": "visited"},
        privacy={"epsilon": 1.0, "delta": 5e-7},
    ).load()
    assert visit.design() == alone.design()


def test_one_without_a_name_is_called_outcome(experiment: Builder) -> None:
    config = experiment(outcome={"label": "Clicks"}).load()
    (outcome,) = config.outcomes
    assert (outcome.name, outcome.column, outcome.label) == ("outcome", "clicks", "Clicks")
    assert outcome.grid == config.outcome.grid
    assert config.views == (config,)
    assert config.of_outcome("outcome") is config
    with pytest.raises(KeyError):
        config.of_outcome("visit")


def test_one_of_a_name_is_released_at_all_of_epsilon(experiment: Builder) -> None:
    config = several(experiment, VISIT)
    (view,) = config.views
    assert view.privacy.epsilon == 2.0
    assert view.outcomes[0].name == "visit"


@pytest.mark.parametrize(
    ("shares", "parts"),
    [
        ([None, None, None], ["0.6666666666666666"] * 3),
        ([0.1, 0.2, 0.7], ["0.2", "0.4", "1.4"]),
        ([0.5, None, None], ["1.0", "0.5", "0.5"]),
        ([0.1, 0.1, 0.1], ["0.2", "0.2", "0.2"]),
        ([0.3, 0.3, None], ["0.6", "0.6", "0.8"]),
    ],
)
def test_epsilon_is_divided_by_shares(
    experiment: Builder, shares: list[float | None], parts: list[str]
) -> None:
    outcomes = [
        {**VISIT, "name": f"y{number}", "share": share} for number, share in enumerate(shares)
    ]
    config = several(experiment, *outcomes)
    found = [view.privacy.epsilon for view in config.views]
    assert [repr(one) for one in found] == parts
    assert total([view.cost for view in config.views]) <= config.cost
    assert config.cost.epsilon == 2.0


@given(epsilon=st.floats(1e-3, 50.0), parts=st.lists(st.integers(1, 1000), min_size=1, max_size=9))
def test_parts_never_add_up_to_more(epsilon: float, parts: list[int]) -> None:
    shares = [Fraction(part, sum(parts)) for part in parts]
    found = parts_of(Budget(epsilon, epsilon / 1e7), shares)
    assert sum(written(one.epsilon) for one in found) <= written(epsilon)
    assert sum(written(one.delta) for one in found) <= written(epsilon / 1e7)
    for one, share in zip(found, shares, strict=True):
        assert one.epsilon == pytest.approx(epsilon * float(share), rel=1e-15)


def test_parameters_are_those_of_every_outcome(experiment: Builder) -> None:
    given = {"epsilon": None, "resampling_probability": 0.5, "noise_scale": 4.0}
    privacy = {"mechanism": "uniform-prior-dp", **given}
    config = several(experiment, VISIT, SPEND, privacy=privacy)
    prices = [view.cost for view in config.views]
    assert prices[0] != prices[1]  # of two values and of six
    assert config.cost == total(prices)


def test_private_clusters_are_paid_once(experiment: Builder) -> None:
    config = several(
        experiment,
        VISIT,
        SPEND,
        arms={"same_shares": True},
        private_clusters={"epsilon": 0.5, "labels": ["east", "west"]},
    )
    assert [view.privacy.epsilon for view in config.views] == [0.75, 0.75]
    assert [view.private_clusters for view in config.views] == [None, None]
    assert config.cost.epsilon == 2.0
    assert total([config.cluster_cost, *(view.cost for view in config.views)]) == config.cost


def test_two_outcomes_may_be_made_of_one_column(experiment: Builder) -> None:
    any_spent = {"name": "buyer", "column": "spent", "values": [0, 1]}
    assert len(several(experiment, SPEND, any_spent).views) == 2


# what cannot be


NAMES = {
    "Unit_ID": "is the name of another column",
    "cluster": "is the name of another column",
    "segment": "is the name of another column",
    "assigned_to": "is the name of another column",
    "visit_debiased": "ends as the columns of outcomes do",
    "visit_Randomised": "ends as the columns of outcomes do",
    "Weight": "is the name of another column",
    "2nd": "is no name of a column",
    "_own": "is no name of a column",
    "visit rate": "is no name of a column",
    "Besuch-ü": "is no name of a column",
    "y" * 61: "has 61 characters",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_to_be_that_of_a_column(experiment: Builder, name: str) -> None:
    error = refused(experiment, VISIT, {**SPEND, "name": name})
    assert error.key == "outcomes[1].name"
    assert NAMES[name] in str(error)


def test_names_differ_in_more_than_capitals(experiment: Builder) -> None:
    error = refused(experiment, VISIT, {**VISIT, "name": "Visit"})
    assert str(error) == (
        "outcomes[1].name: 'Visit' is outcomes[0].name already (capitals do not count)"
    )


SHARES: list[tuple[list[Any], str, str]] = [
    ([0.6, 0.5], "outcomes[1].share", "add up to 1.1; they may add up to 1 at most"),
    ([0.1, 0.9000000000000001], "outcomes[1].share", "add up to 1.0000000000000001; they may"),
    ([1.0, None], "outcomes[0].share", "which leaves nothing for the 1 outcome(s) without"),
    (["auto", 0.5], "outcomes[0].share", '"auto" is for all outcomes or for none'),
    (["auto", None], "outcomes[0].share", '"auto" is for all outcomes or for none'),
    (["auto", "auto"], "outcomes[0].share", '"auto" needs privacy.mechanism = "auto"'),
    ([1e-10, None], "outcomes[0].share", "a part of"),
    ([0.0, None], "outcomes[0].share", "greater than 0"),
]


@pytest.mark.parametrize(("shares", "key", "words"), SHARES)
def test_shares_have_to_add_up(
    experiment: Builder, shares: list[Any], key: str, words: str
) -> None:
    outcomes = [{**one, "share": share} for one, share in zip((VISIT, SPEND), shares, strict=True)]
    error = refused(experiment, *outcomes)
    assert error.key == key
    assert words in str(error)


def test_parameters_leave_no_epsilon_to_divide(experiment: Builder) -> None:
    given = {"epsilon": None, "resampling_probability": 0.5, "noise_scale": 4.0}
    privacy = {"mechanism": "uniform-prior-dp", **given}
    error = refused(experiment, VISIT, {**SPEND, "share": 0.5}, privacy=privacy)
    assert error.key == "outcomes[1].share"


WRONG: list[tuple[Section, str, str]] = [
    ({"values": [0]}, "outcomes[1].values", "the grid has 1 point(s)"),
    ({"values": [1, 0]}, "outcomes[1].values", "must increase"),
    ({"values": [0, 1], "low": 0}, "outcomes[1].low", "given together with values"),
    ({"values": None}, "outcomes[1]", "give either values, or low, high and levels"),
    ({"values": None, "low": 1, "high": 0, "levels": 3}, "outcomes[1].high", "outcomes[1].low"),
    ({"missing": 7}, "outcomes[1].missing", "outside the grid"),
    ({"guess": [1]}, "outcomes[1].guess", "not 2 weights"),
    ({"levels": "auto"}, "outcomes[1].levels", 'needs mechanism = "auto"'),
    ({"aggregate": "sum"}, "outcomes[1].aggregate", 'belongs to grain = "event"'),
    ({"cap": 3}, "outcomes[1].cap", 'belongs to grain = "event"'),
    ({"column": None}, "outcomes[1].column", "missing; it has to be given"),
    ({"column": "customer"}, "outcomes[1].column", "'customer' is columns.unit already"),
    ({"column": "variant"}, "outcomes[1].column", "'variant' is columns.arm already"),
    ({"column": "region"}, "columns.cluster", "'region' is outcomes[1].column already"),
]


@pytest.mark.parametrize(("change", "key", "words"), WRONG)
def test_the_rules_of_one_hold_for_each(
    experiment: Builder, change: Section, key: str, words: str
) -> None:
    error = refused(experiment, SPEND, {**VISIT, **change})
    assert error.key == key
    assert words in str(error)


def test_all_that_is_wrong_is_told_at_once(experiment: Builder) -> None:
    error = refused(
        experiment,
        {**SPEND, "missing": -1, "column": "customer"},
        {**VISIT, "values": [0]},
    )
    assert isinstance(error, SeveralConfigError)
    keys = [line.split(":")[0] for line in str(error).splitlines()]
    assert keys == ["outcomes[0].column", "outcomes[0].missing", "outcomes[1].values"]


def test_unknown_keys_and_types_are_named(experiment: Builder) -> None:
    error = refused(experiment, {**VISIT, "labell": "Visits"}, {**SPEND, "name": None, "cap": "x"})
    lines = str(error).splitlines()
    assert lines[0].startswith("outcomes[1].name: missing")
    assert lines[1].endswith("did you mean `label`?")
    assert lines[2].startswith("outcomes[1].cap: ")


def test_there_is_one_way_to_declare_them(experiment: Builder) -> None:
    both = pytest.raises(ConfigError, match="outcome: given together with")
    with both:
        experiment(outcomes=[VISIT], columns={"outcome": None}).load()
    with pytest.raises(ConfigError, match="outcome: missing; it has to be given"):
        experiment(outcome=None).load()
    with pytest.raises(ConfigError, match=r"columns.outcome: belongs to \[outcome\]"):
        experiment(outcome=None, outcomes=[VISIT]).load()
    with pytest.raises(ConfigError, match="outcomes: empty"):
        experiment(outcome=None, outcomes=[]).load()
    with pytest.raises(ConfigError, match="did you mean `outcomes`"):
        experiment(outcome=None, outcome_s=[VISIT], columns={"outcome": None}).load()


@pytest.mark.parametrize(
    ("privacy", "key"),
    [
        ({"epsilon": -1.0}, "privacy.epsilon"),
        ({"epsilon": 1e9}, "privacy.epsilon"),
        ({"delta": 1.0}, "privacy.delta"),
        ({"epsilon": None}, "privacy.epsilon"),
    ],
)
def test_a_price_that_cannot_be_divided_is_named(
    experiment: Builder, privacy: Section, key: str
) -> None:
    assert refused(experiment, VISIT, SPEND, privacy=privacy).key == key


def test_an_outcome_is_no_feature_of_private_clusters(experiment: Builder) -> None:
    centres = {"a": [0.0], "b": [1.0]}
    error = refused(
        experiment,
        VISIT,
        SPEND,
        columns={"cluster": None},
        arms={"same_shares": True},
        private_clusters={"epsilon": 0.5, "centres": centres, "features": ["spent"]},
    )
    assert str(error) == ("private_clusters.features: 'spent' is the column of an outcome already")


def test_faults_of_sections_of_their_own_are_told_together(experiment: Builder) -> None:
    error = refused(
        experiment,
        {**VISIT, "missing": 7},
        {**SPEND, "guess": [1.0]},
        columns={"attributes": ["visited"]},
        arms={"treatments": []},
        privacy={"overall_effect": False, "segment_shares": []},
        publish={"unit_id": "keyed-hash"},
    )
    assert isinstance(error, SeveralConfigError)
    told = [error.key, *(key for key, _ in error.others)]
    assert {"arms.treatments", "privacy.overall_effect", "publish.key_file"} <= set(told)
    assert {"columns.attributes", "outcomes[0].missing", "outcomes[1].guess"} <= set(told)
    assert len(told) == len(set(told)) == 6
