"""The loss of a release, worked out from its file alone, against what the run computed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import clusterdp
from estimators.response.response_tables import output_functions
from flows.cli.main import run
from flows.released.loss.check import check_loss
from tests.conftest import Section, a_log, build_experiment, released
from tests.faults.hostile import changed, said

LARGE = a_log(600).with_columns(
    pl.Series("visited", [float(unit % 7 == 0) for unit in range(600)]),
    pl.Series("household", [f"h{unit // 2}" for unit in range(600)]),
    pl.Series("country", [("US", "DE", None)[unit % 3] for unit in range(600)]),
    pl.Series("age", [20 + unit // 5 % 4 for unit in range(600)]),
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


MARGINS = ["country", ["country", "age"]]
WITH_MARGINS = {"columns": {"attributes": ["country", "age"]}}
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
    "margins": {
        **WITH_MARGINS,
        **of(margins=MARGINS, epsilon=3.0, mechanism="uniform-prior-dp"),
    },
    "planned margins": {**WITH_MARGINS, **of(margins=MARGINS, epsilon=0.5, mechanism="auto")},
    "margins with delta": {
        **WITH_MARGINS,
        **of(margins={"country": 3.0, "age": 1.0}, delta=1e-5, mechanism="uniform-prior-dp"),
    },
    "margins of several": {
        **TWO,
        "columns": {"outcome": None, "attributes": ["country", "age"]},
        **of(margins=MARGINS, epsilon=3.0, mechanism="uniform-prior-dp"),
    },
    "noisy-histogram": of(mechanism="noisy-histogram"),
    "noisy-histogram of two values": {
        "outcome": {"values": [0, 1]},
        **of(mechanism="noisy-histogram"),
    },
    "at exactly its price": of(mechanism="noisy-histogram", epsilon=0.05),
    "differences": of(mechanism="noisy-horvitz-thompson"),
    "differences and squares": {"outcome": EVEN, **of(mechanism="noisy-horvitz-thompson")},
    "means of three arms": {
        "arms": {"treatments": ["mail", "call"]},
        **of(mechanism="noisy-horvitz-thompson"),
    },
    "private clusters": {
        "arms": {"same_shares": True},
        "private_clusters": {"epsilon": 0.5, "labels": ["east", "west"]},
        **of(mechanism="uniform-prior-dp"),
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


_WEIGHTS = """
    UPDATE debias SET weight = (debias.outcome - rate * mean) / (1 - rate),
        noise_variance = rate / (1 - rate) ** 2
            * ((debias.outcome - mean) ** 2 + (1 - rate) * (square - mean ** 2))
    FROM (
        SELECT pool, arm, sum(probability * outcome) AS mean,
            sum(probability * outcome ** 2) AS square,
            (SELECT resampling_probability FROM metrics) AS rate
        FROM debias GROUP BY pool, arm) AS means
    WHERE means.pool = debias.pool AND means.arm = debias.arm;
    UPDATE $own.unit_facts AS f SET factor0 = 1 / (1 - rate), base0 = -rate * mean / (1 - rate)
    FROM (
        SELECT s.cluster, s.arm, any_value(resampling_probability) AS rate,
            sum(probability * outcome) AS mean
        FROM debias JOIN strata AS s USING (pool, arm), metrics GROUP BY s.cluster, s.arm
    ) AS m WHERE m.cluster = f.cluster AND m.arm = f.arm"""
"""So that weights undo the randomisation that a file states: else it contradicts itself."""
_STATED = "UPDATE metrics SET epsilon = 0.99 * epsilon, computed_epsilon = 0.99 * computed_epsilon"

FOLLOWS = "estimates and ends, and what macros read: they follow"

ALTERED: dict[str, list[tuple[str, str]]] = {
    "cluster-dp": [
        ("release: epsilon is less", "UPDATE release SET epsilon = 1.999"),
        ("metrics: epsilon is less", _STATED),
        ("metrics: epsilon is less", f"{_STATED}; UPDATE release SET epsilon = 1.98"),
        ("metrics: computed_epsilon", "UPDATE metrics SET computed_epsilon = 1.9"),
        ("counts (", "UPDATE metrics SET noise_scale = 0.9 * noise_scale"),
        (
            "metrics: epsilon is less",
            "UPDATE metrics SET resampling_probability = 0.5 * resampling_probability;" + _WEIGHTS,
        ),
        (
            "debias: no probability is below",
            "UPDATE metrics SET truncation_threshold = 0.25; "
            "UPDATE counts SET noisy_count = noisy_count + 1",
        ),
        (
            "debias: no probability is below",
            "UPDATE debias SET probability = probability + CASE outcome WHEN 0 THEN -1 ELSE 1 END "
            f"* 0.1875 WHERE outcome IN (0, 1); {_WEIGHTS}",
        ),
        (
            "debias: probabilities are those that cluster-dp makes of",
            "UPDATE counts SET noisy_count = noisy_count + 5 WHERE outcome = 2",
        ),
        (
            "debias: probabilities are those that uniform-prior-dp makes of",
            "UPDATE release SET mechanism = 'uniform-prior-dp'",
        ),
        ("release: mechanism is one", "UPDATE release SET mechanism = 'another'"),
        (FOLLOWS, "UPDATE estimates SET estimate = estimate + 0.01"),
        (FOLLOWS, "UPDATE estimates SET coverage = 0.5"),
        (FOLLOWS, "UPDATE means SET mean = mean + 0.01"),
        (FOLLOWS, "UPDATE $own.pools SET mean_value = mean_value + 0.01"),
        (FOLLOWS, "UPDATE $own.quantiles SET coefficient = coefficient + 0.01"),
        (
            "units: each unit stands once",
            "UPDATE $own.drawn SET unit_id = 'c00001' WHERE unit_id = 'c00005'",
        ),
    ],
    "cluster-dp of two values": [
        ("add up to the pool's units", "UPDATE counts SET noisy_count = noisy_count + 1"),
        ("metrics: epsilon is less", "UPDATE counts SET noisy_count = noisy_count + 1"),
        ("metrics: epsilon is less", "UPDATE metrics SET strata_statistic = 'counts'"),
    ],
    "cluster-dp with delta": [
        ("metrics: epsilon is less", "UPDATE metrics SET delta = 9e-5, computed_delta = 9e-5"),
        ("metrics: computed_delta", "UPDATE metrics SET computed_delta = 9e-5"),
        ("release: delta is less", "UPDATE release SET delta = 9e-5"),
        ("metrics: epsilon is less", "UPDATE metrics SET noise_scale = 0.9 * noise_scale"),
    ],
    "uniform-prior-dp with means": [
        ("noisy means in pools (", "UPDATE metrics SET noise_scale = 0.99 * noise_scale"),
        ("noisy means in pools (", "UPDATE metrics SET grid_step = 0.5 * grid_step"),
        ("outcomes: every value is whole steps", "UPDATE metrics SET grid_step = 3"),
        ("outcomes: every value is whole steps", "UPDATE metrics SET grid_step = 1e9"),
        ("metrics: epsilon is less", "UPDATE metrics SET grid_step = 1e-60"),
    ],
    "means with delta": [
        ("outcomes: every value is whole steps", "UPDATE metrics SET grid_step = 1e9"),
        ("metrics: epsilon is less", "UPDATE metrics SET grid_step = 1e-60"),
        ("metrics: epsilon is less", "UPDATE metrics SET noise_scale = 1e-6"),
    ],
    "differences and squares": [
        ("squares (", "UPDATE squares SET noise_scale = 0.99 * noise_scale"),
        ("squares: the centre is", "UPDATE squares SET centre = centre + 1e-9"),
    ],
    "tables of arms": [
        ("arm_counts (", "UPDATE arm_counts SET noise_scale = 0.99 * noise_scale"),
        (
            "randomiser: no output tells outcomes apart",
            "UPDATE metrics SET response_epsilon = 0.99 * response_epsilon",
        ),
        (
            "metrics: epsilon is less",
            "UPDATE metrics SET response_epsilon = 1.01 * response_epsilon",
        ),
        (FOLLOWS, "UPDATE $own.outputs SET noise = 1.01 * noise"),
        (FOLLOWS, "UPDATE $own.weights SET output = 1.01 * output"),
    ],
    "several outcomes": [
        (
            "of visit, metrics: epsilon is less",
            "UPDATE metrics SET epsilon = 1.4, computed_epsilon = 1.4 WHERE metric = 'visit'",
        ),
        ("release: epsilon is less", "UPDATE release SET epsilon = 2.9"),
    ],
    "several with delta": [
        ("release: delta is less", "UPDATE release SET delta = 9e-5"),
        ("release: epsilon is less", "UPDATE release SET epsilon = 2.9"),
    ],
    "margins": [
        ("margins (", "UPDATE margins SET noise_scale = 0.99 * noise_scale WHERE margin = 0"),
        ("margins (", "UPDATE margins SET noise_scale = 0.99 * noise_scale WHERE margin = 1"),
        ("release: epsilon is less", "UPDATE release SET epsilon = 2.9"),
        # Each has sums of its own to show, by which the others were calibrated once more.
        (FOLLOWS, "UPDATE margins SET noisy_sum = noisy_sum + 1"),
        (FOLLOWS, "UPDATE $own.cell_facts SET shift0 = shift0 + 0.01"),
        (FOLLOWS, "UPDATE $own.margin_strata SET noise = 1.01 * noise"),
    ],
    "margins with delta": [
        ("metrics: epsilon is less", "UPDATE margins SET noise_scale = 0.9 * noise_scale"),
    ],
    "margins of several": [
        (
            "of visit, metrics: epsilon is less",
            "UPDATE margins SET noise_scale = 0.9 * noise_scale WHERE metric = 'visit'",
        ),
    ],
    "drawn together": [("release: epsilon is less", "UPDATE release SET epsilon = 2.9")],
    "differences": [("noisy differences (", "UPDATE metrics SET noise_scale = 0.99 * noise_scale")],
    "noisy-histogram": [("counts (", "UPDATE metrics SET noise_scale = 0.99 * noise_scale")],
}
"""What makes a file cost more than it says, with the beginning of the rule that it breaks."""


@pytest.mark.parametrize(
    ("name", "rule", "statement"),
    [(name, *case) for name, cases in ALTERED.items() for case in cases],
)
def test_a_file_that_costs_more_than_it_says_is_refused(
    name: str,
    rule: str,
    statement: str,
    files: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = changed(files(name), tmp_path, said(statement))
    assert run(["verify", "--loss", str(path), "--json"]) == 4
    (said_of,) = json.loads(capsys.readouterr().out)["releases"]
    assert said_of["holds"] is False
    assert any(rule in one for one in said_of["broken"]), said_of["broken"]


def test_what_a_file_breaks_is_the_same_from_python_and_as_text(
    files: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(files("cluster-dp"), tmp_path, said("UPDATE metrics SET noise_scale = 1e-6"))
    assert run(["verify", "--loss", str(path), "--json"]) == 4
    (said_of,) = json.loads(capsys.readouterr().out)["releases"]
    broken = check_loss(path).broken
    assert list(broken) == said_of["broken"]
    assert run(["verify", "--loss", str(path)]) == 4
    text = capsys.readouterr().out
    assert "COSTS MORE THAN IT SAYS" in text
    assert all(one in text for one in broken)


def test_a_table_that_tells_more_is_found_by_its_rows(
    files: Callable[[str], Path], tmp_path: Path
) -> None:
    """Probabilities of one input move between three outputs, so that rows stay unbiased."""
    path = files("tables of arms")
    found = check_loss(path)
    values = released(path, 'FROM debias WHERE "table" = 0 ORDER BY outcome')
    values = values.unique("outcome", maintain_order=True)
    weights, likely = (values[name].to_numpy() for name in ("weight", "probability"))
    one, two, three = weights[:3].tolist()
    part = 2**43 / (abs(one) + abs(two) + abs(three))
    moved = [round((two - three) * part), round((three - one) * part)]
    moved.append(-sum(moved))
    change = " ".join(f"WHEN {output} THEN {by} * 2.0 ** -53" for output, by in enumerate(moved))
    drawn = released(path, 'FROM randomiser WHERE "table" = 0 ORDER BY outcome, output')
    grid = drawn["outcome"].unique().sort().to_numpy()
    table = drawn["probability"].to_numpy().reshape(len(grid), -1).copy()
    table[0, :3] += np.array(moved) * 2.0**-53
    added = output_functions(table[np.newaxis], weights[np.newaxis], grid, likely[np.newaxis])
    (noise,) = added.noise.tolist()
    of_outputs = " ".join(f"WHEN {output} THEN {one!r}" for output, one in enumerate(noise))
    altered = changed(
        path,
        tmp_path,
        said(
            f"""UPDATE randomiser SET probability = probability + CASE output {change} END
            WHERE "table" = 0 AND outcome = 0 AND output IN (0, 1, 2)""",
            f"""UPDATE debias SET noise_variance = CASE outcome {of_outputs} END
            WHERE "table" = 0""",
        ),
    )
    assert check_loss(altered).broken[0].startswith("randomiser: no output tells outcomes apart")
    assert found.broken == ()


def test_what_a_household_pays_is_said(
    files: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = files("households")
    found = check_loss(path)
    assert found.rows_each == 2
    assert found.household == (2 * found.epsilon, 0.0)
    assert clusterdp.verify_loss(path).exit_code == 0
    assert run(["verify", "--loss", str(path)]) == 0
    assert "2 units" in capsys.readouterr().out


def test_the_file_alone_is_asked(files: Callable[[str], Path], tmp_path: Path) -> None:
    path = files("differences")
    assert run(["verify", "--loss", str(path), "--ledger", str(tmp_path / "x.toml")]) == 2
    assert run(["verify", "--loss", str(tmp_path / "none.duckdb")]) == 2
