"""Releases of two outcomes that are drawn together: their file, what is read from it, refusals."""

import re
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp
from flows.cli.night.plan import plan_text
from flows.plan import resolved_release_of
from flows.raw.ingest import ingest
from flows.raw.validate import validate
from flows.released.estimates.release import estimate_file
from flows.released.file.evidence import read_every
from flows.released.file.read import open_release, read_manifest
from flows.released.report import report
from schemas.errors import ConfigError, InputError
from tests.conftest import Experiment, Section, a_log, build_experiment
from tests.support.contents import read_contents
from tests.support.known_again import fingerprint_of
from tests.support.own_schema import alter

OUTCOMES: list[Section] = [
    {"name": "visit", "column": "visited", "values": [0, 1]},
    {"name": "clicks", "column": "clicks", "values": [0, 1, 3]},
]
PRIVACY: Section = {"mechanism": "cluster-optimal-dp", "epsilon": 3.0, "joint": "yes"}


def the_log(n_units: int = 600) -> pl.DataFrame:
    clicks = np.array([0.0, 1.0, 3.0])[np.random.default_rng(3).integers(0, 3, n_units)]
    return a_log(n_units).with_columns(clicks=clicks, visited=(clicks > 0).astype(float))


def build(folder: Path, outcomes: list[Section] | None = None, **privacy: object) -> Experiment:
    return build_experiment(
        folder / "experiment",
        the_log(),
        outcome=None,
        outcomes=OUTCOMES if outcomes is None else outcomes,
        ratios=[{"name": "each", "numerator": "clicks", "denominator": "visit"}],
        columns={"outcome": None},
        privacy={**PRIVACY, **privacy},
    )


@pytest.fixture(scope="module", params=["none", "counts"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = build(tmp_path_factory.mktemp("joint"), strata_statistic=request.param)
    return built.run().path


def test_one_output_a_unit_tells_of_both(path: Path) -> None:
    with duckdb.connect(str(path), read_only=True) as connection:
        metrics = connection.sql(
            "SELECT metric, drawn_with, epsilon, response_epsilon FROM metrics "
            "WHERE kind = 'outcome'"
        ).fetchall()
        assert [row[:2] for row in metrics] == [("visit", "clicks"), ("clicks", "visit")]
        assert metrics[0][3] == metrics[1][3]
        spent = sum(row[2] for row in metrics) - metrics[0][3]
        assert spent == pytest.approx(3.0, abs=1e-12)
        alike = "SELECT bool_and(visit_randomised = clicks_randomised) FROM units"
        assert connection.sql(alike).fetchall() == [(True,)]
        rows = connection.sql(
            "SELECT count(*), count(DISTINCT (outcome, other_outcome)) FROM randomiser "
            "WHERE metric = 'clicks' AND \"table\" = 0"
        ).fetchall()
        (n_outputs,) = connection.sql("SELECT max(output) + 1 FROM randomiser").fetchall()[0]
        assert rows == [(6 * n_outputs, 6)]


def test_the_file_is_read_as_any_other(path: Path) -> None:
    effects = estimate_file(path)
    assert {one.metric for one in effects} == {"visit", "clicks", "each"}
    of_outcomes = [one for one in effects if one.metric != "each"]
    assert all(one.std_error is not None and one.std_error > 0 for one in of_outcomes)
    page = report(read_contents(path))
    assert "One output tells of both outcomes" in page
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute(
            "CREATE TEMP TABLE members AS SELECT unit_id, 'all' AS segment FROM units"
        )
        columns = "metric, arm, estimator, estimate, std_error"
        told = connection.sql(f"SELECT {columns} FROM ate() ORDER BY ALL").fetchall()
        again = connection.sql(
            f"SELECT {columns} FROM ate_by_segment('members') ORDER BY ALL"
        ).fetchall()
        written = connection.sql(f"SELECT {columns} FROM estimates ORDER BY ALL").fetchall()
    by_name = {row[:3]: row[3:] for row in told}
    # The run reads what it has written as it lies, others sort it.
    assert sorted((row[:3] for row in written), key=str) == sorted(by_name, key=str)
    read = {(one.metric, one.arm, one.estimator): one for one in effects}
    for row in written:
        assert row[3:] == pytest.approx((read[row[:3]].estimate, read[row[:3]].std_error), rel=1e-9)
    assert {row[0] for row in again} == {"visit", "clicks", "each"}
    for row in again:
        if row[2] == "tau_q":
            assert row[3:] == pytest.approx(by_name[row[:3]], rel=1e-6)


def test_what_outputs_add_is_what_the_table_says(path: Path) -> None:
    """Exactly: for every pair of outcomes the mean of u is the variance of v."""
    with open_release(path) as connection:
        every = read_every(connection, read_manifest(connection))
    for one in every:
        outputs = one.outputs
        assert outputs is not None
        chances, functions = outputs.probabilities[0], outputs.functions
        assert chances.shape[0] == 6
        mean = chances @ functions.mean[0]
        inputs = np.repeat(one.grid, 6 // len(one.grid)) - one.grid.mean()
        np.testing.assert_allclose(mean, inputs, atol=1e-10)
        spread = chances @ functions.mean[0] ** 2 - mean**2
        np.testing.assert_allclose(chances @ functions.noise[0], spread, rtol=1e-8)
        told = np.stack([outputs.indicator(k)[0] for k in range(len(one.grid))], axis=1)
        shares = np.repeat(np.eye(len(one.grid)), 6 // len(one.grid), axis=1)
        np.testing.assert_allclose(told[0] @ chances.T, shares, atol=1e-8)


FAULTS = {
    "metrics: drawn_with is another outcome": [
        "UPDATE metrics SET drawn_with = metric WHERE kind = 'outcome'"
    ],
    "metrics: outcomes that were drawn together": [
        "UPDATE metrics SET drawn_with = NULL WHERE metric = 'visit'"
    ],
    "metrics: outcomes that were drawn together have 100 pairs": [
        "UPDATE metrics SET n_outcomes = 51 WHERE metric = 'clicks'; "
        "INSERT INTO outcomes (metric, outcome) SELECT 'clicks', 100 + range FROM range(48)"
    ],
    "metrics: epsilons add up": [
        "UPDATE metrics SET epsilon = 3, response_epsilon = 2.5 WHERE kind = 'outcome'"
    ],
    "metrics: epsilon and delta pay for response_epsilon": [
        "UPDATE metrics SET epsilon = 0.9 * response_epsilon WHERE metric = 'visit'",
    ],
    "metrics: tables of outcomes that are drawn together learn from no counts": [
        "INSERT INTO arm_counts SELECT 'clicks', arm, outcome, 5, 1e12 FROM (SELECT DISTINCT "
        "arm FROM pools), (FROM outcomes WHERE metric = 'clicks')",
    ],
    "debias and randomiser: each pool and arm, or table, has each output once": [
        "UPDATE randomiser SET other_outcome = NULL",
        "UPDATE randomiser SET other_outcome = other_outcome + 0.5",
    ],
    "randomiser: no output tells outcomes apart": [
        "UPDATE metrics SET epsilon = epsilon - 0.03 * response_epsilon, "
        "computed_epsilon = 0.5 * computed_epsilon, "
        "response_epsilon = 0.97 * response_epsilon WHERE kind = 'outcome'"
    ],
    "units: outcomes that were drawn together have one output": [
        "UPDATE $own.drawn SET clicks_randomised = (clicks_randomised + 1) % 2 "
        "WHERE unit_id = (SELECT min(unit_id) FROM units)"
    ],
}


@pytest.mark.parametrize(
    ("rule", "fault"), [(rule, fault) for rule, faults in FAULTS.items() for fault in faults]
)
def test_a_file_that_contradicts_itself_is_refused(
    path: Path, tmp_path: Path, rule: str, fault: str
) -> None:
    file = tmp_path / path.name
    file.write_bytes(path.read_bytes())
    file.chmod(0o644)
    with duckdb.connect(str(file)) as connection:
        alter(connection, fault)
    with pytest.raises(InputError, match=re.escape(rule)):
        estimate_file(file)


@pytest.mark.release
@pytest.mark.parametrize(("levels", "most", "planned_first"), [(5, 3, False), (8, 2, True)])
def test_a_planned_grid_gets_what_a_declared_one_leaves(
    tmp_path: Path, levels: int, most: int, planned_first: bool
) -> None:
    outcomes: list[Section] = [
        {"name": "visit", "column": "visited", "low": 0, "high": 1, "levels": "auto"},
        {"name": "clicks", "column": "clicks", "low": 0, "high": 3, "levels": levels},
    ]
    config = build(
        tmp_path, outcomes if planned_first else outcomes[::-1], strata_statistic="none"
    ).config
    metrics = clusterdp.plan(config).as_json()["metrics"]
    sizes = {one["metric"]: one["levels"] for one in metrics}
    assert sizes["clicks"] == levels
    assert sizes["visit"] <= most
    assert all(one["drawn_together"] for one in metrics)


def test_planned_grids_are_small_enough(tmp_path: Path) -> None:
    planned: list[Section] = [
        {"name": "visit", "column": "visited", "values": [0, 1]},
        {"name": "clicks", "column": "clicks", "low": 0, "high": 3, "levels": "auto"},
    ]
    together = clusterdp.plan(build(tmp_path, planned, strata_statistic="none").config)
    assert all(one["drawn_together"] for one in together.as_json()["metrics"])
    assert together.as_json()["metrics"][1]["levels"] <= 8
    assert "one for both outcomes" in plan_text(together)


def test_together_is_predicted_to_be_sharper_than_apart(tmp_path: Path) -> None:
    errors = []
    for joint in ("yes", "auto", "no"):
        folder = tmp_path / joint
        folder.mkdir()
        found = clusterdp.plan(build(folder, joint=joint, strata_statistic="none").config)
        errors.append([one.std_error for one in found.predicted])
    assert errors[0] == errors[1]
    assert all(one < other for one, other in zip(errors[0], errors[2], strict=True))


def test_nothing_is_paid_to_learn_from_where_nothing_is_learnt(tmp_path: Path) -> None:
    """Apart, counts of arms would be learnt from; together their ε goes into the table."""
    outcomes: list[Section] = [{**OUTCOMES[1], "name": name} for name in ("visit", "clicks")]
    told = {}
    for joint, learn_from in (("yes", "auto"), ("auto", "auto"), ("auto", "arms")):
        folder = tmp_path / f"{joint} {learn_from}"
        folder.mkdir()
        privacy = {"joint": joint, "learn_from": learn_from, "strata_statistic": "none"}
        made = resolved_release_of(build(folder, outcomes, **privacy).config, None)
        assert made.config.privacy.learn_from == learn_from
        (told[joint, learn_from],) = {
            (one.is_drawn_together, one.design.mechanism.parameters.arm_counts_epsilon > 0)
            for one in made.outcomes
        }
    assert told == {
        ("yes", "auto"): (True, False),
        ("auto", "auto"): (True, False),
        ("auto", "arms"): (False, True),
    }


@pytest.mark.parametrize(
    ("privacy", "told"),
    [
        ({"delta": 1e-6}, "delta"),
        ({"mechanism": "auto"}, "cluster-optimal-dp"),
        ({"learn_from": "arms"}, 'learn_from is "arms"'),
    ],
)
def test_what_cannot_be_drawn_together_is_refused(
    tmp_path: Path, privacy: Section, told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        clusterdp.plan(build(tmp_path, **privacy).config)
    assert caught.value.key == "privacy.joint"


def test_together_is_another_release_than_apart(tmp_path: Path) -> None:
    """What is digested of the settings tells them apart; their rows are the same."""
    found = []
    for joint in ("yes", "no"):
        folder = tmp_path / joint
        folder.mkdir()
        built = build(folder, joint=joint, strata_statistic="none")
        designs = resolved_release_of(built.config, None)
        kept, _, _ = validate(built.load().log_facts, ingest(built.load().log_source, "once"))
        found.append(fingerprint_of(designs.config, kept, designs.designs))
    assert found[0].settings != found[1].settings
