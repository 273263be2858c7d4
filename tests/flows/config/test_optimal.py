"""``mechanism = "cluster-optimal-dp"``: what goes with it, and what it is planned into."""

from typing import Any

import numpy as np
import pytest

from flows.config.model.experiment import Config
from flows.config.resolve import resolve_design, resolve_release
from privatizers.accounting.budget import Budget, total
from privatizers.mechanisms.parameters import OptimalParameters
from privatizers.planning.optimal_design import ARMS_SHARE, COUNTS_SHARE, OptimalDesign
from schemas.errors import ConfigError
from tests.conftest import Builder

OPTIMAL: dict[str, Any] = {"mechanism": "cluster-optimal-dp"}
RANGE: dict[str, Any] = {"values": None, "low": 0, "high": 10}
SIZES = np.array([[300, 400], [500, 200]])
PRIVATE: dict[str, Any] = {
    "arms": {"same_shares": True},
    "private_clusters": {"epsilon": 0.5, "labels": ["east", "west"]},
}


def parameters_of(config: Config) -> OptimalParameters:
    design = resolve_design(config, SIZES).design
    assert isinstance(design, OptimalDesign)
    return design.mechanism.parameters


@pytest.mark.parametrize("epsilon", [0.001, 0.3, 2, 12])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_the_epsilon_asked_for_is_the_one_stated(
    experiment: Builder, epsilon: float, delta: float
) -> None:
    config = experiment(privacy=OPTIMAL | {"epsilon": epsilon, "delta": delta}).load()
    assert config.is_planned
    chosen = resolve_design(config, SIZES)
    assert (chosen.design.epsilon, chosen.design.delta) == (epsilon, delta)
    assert chosen.design.mechanism.name == "cluster-optimal-dp"
    assert config.cost == Budget(epsilon, delta)


@pytest.mark.parametrize(
    ("key", "sections", "words"),
    [
        ("privacy.resampling_probability", {"privacy": {"resampling_probability": 0.5}}, "solved"),
        ("privacy.truncation_threshold", {"privacy": {"truncation_threshold": 0.1}}, "leave the"),
        ("privacy.noise_scale", {"privacy": {"noise_scale": 5.0}}, "leave the key out"),
        ("privacy.noise_scale", {"privacy": {"noise_scale": 5.0, "epsilon": None}}, "leave the"),
        ("privacy.epsilon", {"privacy": {"epsilon": None}}, "missing"),
        ("privacy.epsilon", {"privacy": {"epsilon": 12.5}}, "not from 0.001 to 12"),
        ("privacy.epsilon", {"privacy": {"epsilon": 0.0005}}, "not from 0.001 to 12"),
        ("privacy.epsilon", {"privacy": {"epsilon": -1.0}}, "not greater than 0"),
        ("privacy.delta", {"privacy": {"delta": 1.0}}, "less than 1"),
        ("outcome", {"outcome": RANGE | {"levels": 26}}, "takes 25 at most.*fewer levels"),
        (
            "privacy.strata_statistic",
            {"outcome": {"values": [0, 1, 3.14159265]}, "privacy": {"strata_statistic": "means"}},
            "whole steps apart",
        ),
        (
            "outcome.rounding",
            {"outcome": RANGE | {"levels": "auto", "rounding": "nearest"}},
            "stochastic",
        ),
        (
            "privacy.learn_from",
            {"privacy": {"learn_from": "strata", "strata_statistic": "means"}},
            'make that "counts"',
        ),
        (
            "privacy.learn_from",
            {"privacy": {"mechanism": "auto", "learn_from": "arms"}},
            "whose tables are learnt",
        ),
        ("outcome.levels", PRIVATE | {"outcome": RANGE | {"levels": "auto"}}, "not private"),
    ],
)
def test_what_does_not_go_with_it_is_refused_by_key(
    experiment: Builder, key: str, sections: dict[str, Any], words: str
) -> None:
    privacy = OPTIMAL | sections.get("privacy", {})
    with pytest.raises(ConfigError, match=words) as caught:
        experiment(**sections | {"privacy": privacy}).load()
    assert caught.value.key == key


@pytest.mark.parametrize("levels", [2, 25])
def test_grids_of_two_to_25_points_go(experiment: Builder, levels: int) -> None:
    outcome = RANGE | {"levels": levels, "rounding": "nearest"}
    assert experiment(privacy=OPTIMAL, outcome=outcome).load().outcome.rounding == "nearest"


@pytest.mark.statistical  # seconds: tables are solved for grids of up to 16 points
def test_a_grid_may_be_planned(experiment: Builder) -> None:
    config = experiment(privacy=OPTIMAL, outcome=RANGE | {"levels": "auto"}).load()
    chosen = resolve_design(config, SIZES)
    grid = chosen.config.outcome.grid
    assert (grid[0], grid[-1]) == (0.0, 10.0)
    assert 2 <= len(grid) <= 16
    assert chosen.plan is not None
    parameters = chosen.design.mechanism.parameters
    assert isinstance(parameters, OptimalParameters)
    assert (parameters.grid, parameters.guess) == (grid, chosen.config.outcome.guess)


@pytest.mark.parametrize("statistic", ["counts", "means", "none"])
def test_a_statistic_that_is_named_is_kept(experiment: Builder, statistic: str) -> None:
    privacy = OPTIMAL | {"strata_statistic": statistic}
    assert parameters_of(experiment(privacy=privacy).load()).strata_statistic == statistic


@pytest.mark.parametrize("learn_from", ["strata", "arms", "nothing"])
def test_what_is_to_be_learnt_from_is_kept(experiment: Builder, learn_from: str) -> None:
    config = experiment(privacy=OPTIMAL | {"learn_from": learn_from}).load()
    parameters = parameters_of(config)
    assert parameters.learnt_from == learn_from
    assert (parameters.arm_counts_epsilon > 0) == (learn_from == "arms")


def test_every_outcome_has_a_table_at_its_part(experiment: Builder) -> None:
    outcomes = (
        {"name": "visit", "column": "visited", "values": [0, 1], "share": 0.25},
        RANGE | {"name": "spend", "column": "spent", "levels": 6, "share": 0.75},
    )
    config = experiment(
        outcome=None, outcomes=outcomes, columns={"outcome": None}, privacy=OPTIMAL
    ).load()
    chosen = resolve_release(config, SIZES)
    assert [one.design.epsilon for one in chosen.outcomes] == [0.5, 1.5]
    assert chosen.mechanism == "cluster-optimal-dp"
    assert [one.design.mechanism.parameters.n_outcomes for one in chosen.outcomes] == [2, 6]


def test_too_small_a_part_is_told_of_the_share(experiment: Builder) -> None:
    outcomes = (
        {"name": "visit", "column": "visited", "values": [0, 1], "share": 0.01},
        {"name": "spend", "column": "spent", "values": [0, 1]},
    )
    with pytest.raises(ConfigError, match="is not enough") as caught:
        experiment(
            outcome=None,
            outcomes=outcomes,
            columns={"outcome": None},
            privacy=OPTIMAL | {"epsilon": 0.05},
        ).load()
    assert caught.value.key == "outcomes[0].share"


def test_private_clusters_leave_nothing_to_plan(experiment: Builder) -> None:
    """Their sizes are not known: arms' counts get a stated part, and clusters are paid once."""
    config = experiment(privacy=OPTIMAL, **PRIVATE).load()
    assert not config.is_planned
    parameters = parameters_of(config)
    assert (parameters.strata_statistic, parameters.learnt_from) == ("none", "arms")
    assert parameters.arm_counts_epsilon == pytest.approx(1.5 * ARMS_SHARE)
    strata = parameters_of(experiment(privacy=OPTIMAL | {"learn_from": "strata"}, **PRIVATE).load())
    assert (strata.strata_statistic, strata.learnt_from) == ("counts", "strata")
    assert strata.statistic_epsilon == pytest.approx(1.5 * COUNTS_SHARE)
    assert config.design().epsilon == 2.0


def test_private_clusters_go_with_several_outcomes(experiment: Builder) -> None:
    outcomes = (
        {"name": "visit", "column": "visited", "values": [0, 1]},
        RANGE | {"name": "spend", "column": "spent", "levels": 6},
    )
    config = experiment(
        outcome=None, outcomes=outcomes, columns={"outcome": None}, privacy=OPTIMAL, **PRIVATE
    ).load()
    assert not any(view.is_planned for view in config.views)
    chosen = resolve_release(config, SIZES)
    assert [one.design.epsilon for one in chosen.outcomes] == [0.75, 0.75]
    assert total([config.cluster_cost, *(view.cost for view in config.views)]) == config.cost


def test_public_facts_go_with_it(experiment: Builder) -> None:
    columns = {"attributes": ["country"], "assigned_by": "household"}
    assert experiment(privacy=OPTIMAL, columns=columns).load().is_planned
