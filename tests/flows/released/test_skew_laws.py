"""A few rare events in a small arm, from the log to what people read: told, and no finding."""

import html
import json
import re

import numpy as np
import polars as pl

from flows.released.estimates.release import estimate_release
from flows.released.report import report
from tests.conftest import Builder, Experiment, Program, Section, rows
from tests.statistical.simulate import real_data
from tests.support.contents import read_contents

ARMS = {"same_shares": True, "shares": {"none": 0.9, "mail": 0.1}}


def few_events(experiment: Builder, sizes: dict[str, int], events: dict[str, int]) -> Experiment:
    """Ten clusters of these sizes; ``events`` is how many each arm has, in all of them."""
    log = rows(
        *(
            (f"{arm} {unit}", arm, f"region {unit % 10}", float(unit < events[arm]))
            for arm, size in sizes.items()
            for unit in range(10 * size)
        )
    )
    return experiment(
        log,
        arms=ARMS,
        outcome={"values": [0, 1], "role": "primary"},
        privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "none", "epsilon": 8.0},
    )


def test_an_interval_that_may_not_hold_is_told_and_names_no_finding(
    experiment: Builder, clusterdp: Program
) -> None:
    """Four events, none of them in the small arm: its p-value is below .05 in most draws."""
    path = few_events(experiment, {"none": 18, "mail": 2}, {"none": 4, "mail": 0}).run().path
    found = json.loads(clusterdp("estimate", path, "--json").stdout)
    assert any("'mail' may not hold" in warning for warning in found["warnings"])
    assert found["estimates"][0]["skewness"] > 0.5
    assert [one["verdict"] for one in found["decisions"]] == ["undecided"]
    text = html.unescape(re.sub(r"<[^>]*>", "", report(read_contents(path))))
    assert "The interval of mail may not hold." in re.sub(r"\s+", " ", text)
    assert "cannot be told" in text
    assert "no clear difference mail" not in text


def test_twenty_events_in_each_arm_are_not_warned_of(experiment: Builder) -> None:
    """300 units and 30 events in the smaller arm, ten times as many in the other."""
    made = few_events(experiment, {"none": 300, "mail": 30}, {"none": 300, "mail": 30})
    assert estimate_release(made.run().path).warnings == ()


def test_arms_of_one_size_are_not_warned_of(experiment: Builder) -> None:
    made = few_events(experiment, {"none": 30, "mail": 30}, {"none": 15, "mail": 15})
    assert not [one for one in estimate_release(made.run().path).warnings if "hold" in one]


def test_a_real_experiment_is_not_warned_of(experiment: Builder) -> None:
    log = pl.read_parquet(real_data("hillstrom/hillstrom.parquet"))
    arms = np.array(["none", "mail"])[np.arange(log.height) % 2]
    log = log.select("visit", "conversion", "spend", variant=pl.Series(arms)).with_row_index(
        "customer"
    )
    grids: dict[str, Section] = {
        "visit": {"values": [0, 1]},
        "conversion": {"values": [0, 1]},
        "spend": {"low": 0, "high": 500, "levels": 6},
    }
    made = experiment(
        log,
        columns={"cluster": None, "outcome": None},
        outcome=None,
        outcomes=[{"name": name, "column": name, **grid} for name, grid in grids.items()],
        privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "none"},
    )
    found = estimate_release(made.run().path)
    assert len(found.estimates) == 3
    assert not [one for one in found.warnings if "hold" in one]
