"""Ratios in a configuration: of two outcomes that there are, with names of their own."""

import pytest

from flows.config.model.experiment import Config
from schemas.errors import ConfigError, SeveralConfigError
from tests.conftest import Builder, Section

VISIT: Section = {"name": "visit", "column": "visited", "values": [0, 1]}
SPEND: Section = {"name": "spend", "column": "spent", "values": [0, 1, 2]}
RATIO: Section = {"name": "spend_per_visit", "numerator": "spend", "denominator": "visit"}


def loaded(experiment: Builder, *ratios: Section, **sections: Section) -> Config:
    return experiment(
        outcome=None,
        outcomes=(VISIT, SPEND),
        columns={"outcome": None},
        ratios=ratios,
        **sections,
    ).load()


def refused(experiment: Builder, *ratios: Section, **sections: Section) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(experiment, *ratios, **sections)
    return caught.value


def test_a_ratio_names_two_outcomes_and_costs_nothing(experiment: Builder) -> None:
    words: Section = {"label": "Spend per visit", "measured_in": "USD per visit"}
    config = loaded(experiment, {**RATIO, **words})
    (one,) = config.ratios
    assert (one.name, one.numerator, one.denominator) == ("spend_per_visit", "spend", "visit")
    assert (one.label, one.measured_in) == ("Spend per visit", "USD per visit")
    assert config.cost == loaded(experiment).cost
    assert loaded(experiment).ratios == ()
    assert all(view.ratios == () for view in config.views)


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"name": "spend per visit"}, "name", "no name of a column"),
        ({"name": "unit_id"}, "name", "another column of every release"),
        ({"name": "x_debiased"}, "name", "ends as the columns of outcomes"),
        ({"name": "Spend"}, "name", "is outcomes[1].name already"),
        ({"numerator": "spent"}, "numerator", "'spent' is no outcome; did you mean 'spend'?"),
        ({"denominator": "people"}, "denominator", "is no outcome; there are 'visit', 'spend'"),
        ({"denominator": "spend"}, "denominator", "is the numerator, too"),
    ],
)
def test_what_cannot_be_is_told_by_its_key(
    experiment: Builder, change: Section, key: str, words: str
) -> None:
    error = refused(experiment, {**RATIO, **change})
    assert error.key == f"ratios[0].{key}"
    assert words in error.problem


def test_all_of_it_is_told_at_once(experiment: Builder) -> None:
    error = refused(
        experiment,
        {**RATIO, "numerator": "spnd", "denominator": "vist"},
        {"name": "SPEND_per_visit", "numerator": "spend_per_visit", "denominator": "visit"},
    )
    assert isinstance(error, SeveralConfigError)
    for words in (
        "ratios[0].numerator",
        "ratios[0].denominator",
        "ratios[1].name",
        "is ratios[0].name already",
        "'spend_per_visit' is a ratio itself; a ratio is of two outcomes",
    ):
        assert words in str(error)


def test_one_outcome_has_no_ratio(experiment: Builder) -> None:
    with pytest.raises(ConfigError, match=r"ratios.*give them as \[\[outcomes\]\]"):
        experiment(ratios=(RATIO,)).load()


@pytest.mark.parametrize("mechanism", ["noisy-histogram", "noisy-horvitz-thompson"])
def test_without_units_nothing_tells_how_outcomes_go_together(
    experiment: Builder, mechanism: str
) -> None:
    privacy: Section = {"mechanism": mechanism, "strata_statistic": None}
    error = refused(experiment, RATIO, privacy=privacy)
    assert error.key == "ratios"
    assert "publishes no units" in error.problem


def test_unknown_and_missing_keys_are_named(experiment: Builder) -> None:
    error = refused(experiment, {"name": "r", "numerator": "spend", "denominater": "visit"})
    assert "ratios[0].denominator" in str(error)
    assert "did you mean `denominator`?" in str(error)


def test_there_are_not_too_many(experiment: Builder) -> None:
    many = [{**RATIO, "name": f"r{at}"} for at in range(101)]
    assert "at most 100" in refused(experiment, *many).problem
