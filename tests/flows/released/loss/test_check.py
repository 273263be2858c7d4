"""The loss of a release, worked out from its file alone, against what the run computed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from flows.released.loss.check import Loss, check_loss
from tests.conftest import Section, a_log, build_experiment, released

LARGE = a_log(600).with_columns(
    pl.Series("visited", [float(unit % 7 == 0) for unit in range(600)]),
    pl.Series("household", [f"h{unit // 2}" for unit in range(600)]),
)
THREE = a_log(600, arms=("none", "mail", "call"))
EVEN = {"values": [float(one) for one in range(13)]}
SEVERAL: list[Section] = [
    {"name": "visit", "column": "visited", "values": [0, 1]},
    {"name": "clicks", "column": "clicks", "values": [0, 1, 3]},
]
TWO = {"outcome": None, "columns": {"outcome": None}, "outcomes": SEVERAL}
PARAMETERS = {
    "epsilon": None,
    "resampling_probability": 0.8,
    "truncation_threshold": 0.02,
    "noise_scale": 10.0,
}


def of(**privacy: Any) -> dict[str, Any]:
    return {"privacy": privacy}


DESIGNS: dict[str, dict[str, Any]] = {
    "cluster-dp": {},
    "cluster-dp at parameters": of(**PARAMETERS),
    "cluster-dp with delta": of(delta=1e-4),
    "cluster-dp of two values": {"outcome": {"values": [0, 1]}},
    "cluster-free-dp": of(mechanism="cluster-free-dp"),
    "uniform-prior-dp": of(mechanism="uniform-prior-dp", strata_statistic="none"),
    "uniform-prior-dp with counts": of(mechanism="uniform-prior-dp", strata_statistic="counts"),
    "uniform-prior-dp with means": of(mechanism="uniform-prior-dp", strata_statistic="means"),
    "means with delta": of(mechanism="uniform-prior-dp", strata_statistic="means", delta=1e-5),
    "wide means with delta": {
        "outcome": {"values": [0, 1, 2, 1000]},
        **of(mechanism="uniform-prior-dp", strata_statistic="means", delta=1e-5),
    },
    "planned": of(mechanism="auto", epsilon=1.0),
    "planned means and squares": {
        "outcome": EVEN,
        **of(mechanism="auto", strata_statistic="means", epsilon=4.0),
    },
    "squares with delta": {
        "outcome": EVEN,
        **of(mechanism="auto", strata_statistic="means", epsilon=4.0, delta=1e-5),
    },
    "cluster-optimal-dp": of(mechanism="cluster-optimal-dp", epsilon=3.0),
    "tables of arms": of(mechanism="cluster-optimal-dp", epsilon=4.0, learn_from="arms"),
    "tables of strata": of(mechanism="cluster-optimal-dp", epsilon=4.0, learn_from="strata"),
    "tables with delta": of(mechanism="cluster-optimal-dp", epsilon=3.0, delta=1e-5),
    "tables of two values": {
        "outcome": {"values": [0, 1]},
        **of(mechanism="cluster-optimal-dp", epsilon=3.0, learn_from="arms"),
    },
    "several outcomes": {**TWO, **of(epsilon=3.0)},
    "several with delta": {**TWO, **of(epsilon=3.0, delta=1e-4)},
    "several by tables": {**TWO, **of(mechanism="cluster-optimal-dp", epsilon=3.0, joint="no")},
    "a third each": {
        **TWO,
        "outcomes": [*SEVERAL, {"name": "again", "column": "clicks", "values": [0, 1, 2, 3]}],
        **of(epsilon=1.0, mechanism="uniform-prior-dp"),
    },
    "drawn together": {
        **TWO,
        "ratios": [{"name": "each", "numerator": "clicks", "denominator": "visit"}],
        **of(mechanism="cluster-optimal-dp", epsilon=3.0, joint="yes", strata_statistic="counts"),
    },
    "noisy-histogram": of(mechanism="noisy-histogram"),
    "noisy-histogram of two values": {
        "outcome": {"values": [0, 1]},
        **of(mechanism="noisy-histogram"),
    },
    "differences": of(mechanism="noisy-horvitz-thompson"),
    "means of three arms": {
        "arms": {"treatments": ["mail", "call"]},
        **of(mechanism="noisy-horvitz-thompson"),
    },
    "households": {
        "columns": {"privacy_unit": "household"},
        **of(mechanism="uniform-prior-dp", rows_each=2),
    },
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Releases by their designs, each made once."""
    made: dict[str, Path] = {}

    def release(name: str) -> Path:
        if name not in made:
            log = THREE if name == "means of three arms" else LARGE
            folder = tmp_path_factory.mktemp("made") / "e"
            made[name] = build_experiment(folder, log, **DESIGNS[name]).run().path
        return made[name]

    return release


@pytest.mark.parametrize("name", DESIGNS)
def test_the_loss_is_what_the_run_computed_and_no_more_than_it_stated(
    name: str, files: Callable[[str], Path]
) -> None:
    path = files(name)
    found = check_loss(path)
    assert found.broken == ()
    assert found.epsilon <= found.stated_epsilon
    assert found.delta <= found.stated_delta
    ran = released(path, "FROM main.metrics WHERE kind = 'outcome'")
    assert [one.metric for one in found.metrics] == ran["metric"].to_list()
    computed = [one.epsilon for one in found.metrics]
    assert computed == pytest.approx(ran["computed_epsilon"].to_list(), rel=1e-9)
    assert [one.delta for one in found.metrics] == pytest.approx(
        ran["computed_delta"].to_list(), rel=1e-9, abs=1e-300
    )
