"""Private clusters: randomised before anything else sees them, and part of what a release costs."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from flows.cli.night.plan import check_text
from flows.cli.night.release import release_text
from flows.cli.night.released import inspect_text
from flows.plan import plan, resolved_release_of
from flows.raw.ingest import ingest
from flows.raw.units.private_clusters import nearest
from flows.released.report import write_report
from privatizers.accounting.accountant import pure_epsilon
from privatizers.accounting.budget import Budget
from privatizers.mechanisms.label_response import LabelResponse
from privatizers.mechanisms.parameters import event_of
from schemas.errors import BudgetError, ConfigError, ConflictError, InputError
from schemas.released import NEIGHBOURS_WITH_CLUSTERS
from tests.conftest import Builder, Experiment, a_log, released, rows
from tests.support.places import table

KEPT = 40.0
"""ε₁ at which a label changes with a probability of 4e-18."""
LOST = 1e-6
"""ε₁ at which a label says next to nothing."""

UNKNOWN = "only-the-log-says-this"
"""A label that is not declared."""

CENTRES: dict[str, Any] = {
    "labels": None,
    "centres": {"young": [20.0, 0.0], "old": [60.0, 1.0]},
    "features": ["age", "visits"],
}


def private(
    epsilon: float = 1.0, whole: float | None = 50.0, /, **sections: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Sections of a configuration with private clusters."""
    base: dict[str, dict[str, Any]] = {
        "private_clusters": {"epsilon": epsilon, "labels": ["west", "east"]},
        "arms": {"same_shares": True},
        "privacy": {"mechanism": "uniform-prior-dp", "epsilon": whole},
    }
    names = {*base, *sections}
    return {name: base.get(name, {}) | sections.get(name, {}) for name in names}


def by_centres(epsilon: float = 1.0, **more: Any) -> dict[str, dict[str, Any]]:
    return private(epsilon, private_clusters=CENTRES | more, columns={"cluster": None})


def raw_clusters(built: Experiment) -> list[str]:
    return built.read()["cluster"].to_list()


# configuration


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"private_clusters": {"epsilon": 0.0}}, "private_clusters.epsilon: 0.0 is not from"),
        ({"private_clusters": {"epsilon": -1}}, "private_clusters.epsilon: input should be"),
        ({"private_clusters": {"epsilon": math.inf}}, "private_clusters.epsilon"),
        ({"private_clusters": {"epsilon": 50.0}}, "private_clusters.epsilon: clusters cost 50"),
        ({"private_clusters": {"labels": ["west"]}}, "private_clusters.labels: fewer than 2"),
        ({"private_clusters": {"labels": ["a", "a"]}}, "private_clusters.labels: 'a' is named"),
        ({"private_clusters": {"labels": ["a", ""]}}, "private_clusters.labels: '' is no name"),
        ({"private_clusters": {"labels": None}}, "private_clusters: give either labels"),
        ({"private_clusters": {"missing": "north"}}, "private_clusters.missing: 'north' is none"),
        ({"private_clusters": {"centres": CENTRES["centres"]}}, "private_clusters: give either"),
        ({"private_clusters": {"features": ["x"]}}, "private_clusters.features: belongs to"),
        ({"private_clusters": {"centres_epsilon": 1.0}}, "private_clusters.centres_epsilon: belo"),
        ({"private_clusters": {"centres_epsilon": -1.0}}, "private_clusters.centres_epsilon: "),
        ({"private_clusters": {"radius": 1.0}}, "private_clusters.radius: unknown key"),
        ({"columns": {"cluster": ["region", "state"]}}, "columns.cluster: private_clusters.labels"),
        ({"columns": {"cluster": None}}, "columns.cluster: private_clusters.labels"),
        ({"arms": {"same_shares": False}}, "arms.same_shares: private_clusters needs it: a random"),
        ({"privacy": {"mechanism": "auto"}}, 'privacy.mechanism: "auto" with private_clusters: t'),
        ({"privacy": {"mechanism": None}}, 'privacy.mechanism: "auto" with private_clusters: the'),
        ({"privacy": {"epsilon": -1.0}}, "privacy.epsilon: -1.0 is not greater than 0"),
        ({"private_clusters": CENTRES}, "columns.cluster: given together with private_clusters.c"),
        (
            {"source": table("x", "delta", period="region")},
            "source.period: 'region' is a column of",
        ),
    ],
)
def test_what_would_not_hold_is_refused_with_the_reason(
    experiment: Builder, change: dict[str, Any], told: str
) -> None:
    base = private()
    sections = base | {name: base.get(name, {}) | keys for name, keys in change.items()}
    with pytest.raises(ConfigError) as caught:
        experiment(**sections).load()
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"features": None}, "private_clusters.features: missing"),
        ({"features": ["age"]}, "private_clusters.centres.young: has 2 number(s) for 1 feature"),
        ({"features": ["age", "age"]}, "private_clusters.features: 'age' is named twice"),
        ({"features": ["age", "clicks"]}, "private_clusters.features: 'clicks' is columns.outcome"),
        ({"centres": {"young": [20.0, 0.0]}}, "private_clusters.centres: fewer than 2"),
        ({"centres": {"a": [0.0, 0.0], "b": [1e200, 0.0]}}, "private_clusters.centres.b: numbers"),
        ({"centres_epsilon": 49.5}, "private_clusters.epsilon: clusters cost 50.5 of"),
    ],
)
def test_centres_that_say_nothing_are_refused(
    experiment: Builder, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(**by_centres(**change)).load()
    assert str(caught.value).startswith(told)


# the price


@pytest.mark.parametrize(
    "mechanism",
    ["uniform-prior-dp", "cluster-dp", "cluster-free-dp", "noisy-histogram"],
)
def test_epsilon_is_the_price_of_clusters_and_outcomes_together(
    experiment: Builder, mechanism: str
) -> None:
    config = experiment(**private(0.2, 0.3, privacy={"mechanism": mechanism})).load()
    assert config.cost == Budget(0.3, 0.0)
    assert config.design().epsilon == 0.3
    assert config.outcome_design().epsilon == 0.1
    found = pure_epsilon(event_of(config.design().mechanism.parameters))
    assert 0.0999 < found <= 0.1


def test_what_centres_have_cost_is_paid_in_addition(experiment: Builder) -> None:
    config = experiment(**by_centres(0.5, centres_epsilon=0.25)).load()
    assert config.cost.epsilon == 50.0
    assert config.outcome_design().epsilon == 49.25


def test_parameters_in_place_of_epsilon_are_priced_with_the_clusters(experiment: Builder) -> None:
    own: dict[str, Any] = {"resampling_probability": 0.5, "noise_scale": 4.0}
    config = experiment(**private(0.7, None, privacy=own)).load()
    alone = config.outcome_design().epsilon
    assert alone == pytest.approx(2 / 4 + math.log(1 + 4), rel=1e-12)
    assert config.cost.epsilon == config.design().epsilon == pytest.approx(alone + 0.7, rel=1e-12)
    assert config.design().epsilon >= alone + 0.7


def test_delta_goes_to_outcomes(experiment: Builder) -> None:
    config = experiment(**private(1.0, 2.0, privacy={"delta": 1e-3})).load()
    assert config.cost == Budget(2.0, 1e-3)
    assert (config.outcome_design().epsilon, config.outcome_design().delta) == (1.0, 1e-3)


def test_an_audit_is_of_outcomes_and_a_plan_is_refused(experiment: Builder) -> None:
    built = experiment(**private(1.0, 3.0))
    assert resolved_release_of(built.config, None).designs == (built.load().outcome_design(),)
    with pytest.raises(ConfigError, match="private_clusters: nothing can be predicted"):
        plan(built.config, None)


def test_a_release_states_and_charges_the_whole(experiment: Builder) -> None:
    built = experiment(**private(0.75, 2.0, privacy={"budget_epsilon": 3.0}))
    result = built.run()
    manifest = result.manifest
    assert (manifest.epsilon, manifest.cluster_epsilon) == (2.0, 0.75)
    assert manifest.neighbours == NEIGHBOURS_WITH_CLUSTERS
    assert manifest.has_private_clusters
    assert result.statement.spent == Budget(2.0)


# reading


def labels_log(*labels: object) -> pl.DataFrame:
    lines = [(f"c{i}", ("none", "mail")[i % 2], None, 1.0) for i in range(len(labels))]
    return rows(*lines).with_columns(pl.Series("region", labels, strict=False))


@pytest.mark.parametrize("file", ["log.parquet", "log.csv", "log.jsonl"])
def test_a_label_is_never_a_reason_to_fail_or_to_set_aside(experiment: Builder, file: str) -> None:
    log = labels_log("east", "west", None, "", " east", UNKNOWN, "\ufffd", "East", "east")
    built = experiment(log, file, **private())
    assert raw_clusters(built) == ["east", *["west"] * 7, "east"]
    roster = built.check().roster
    assert (roster.n_units, roster.quarantined, roster.n_clusters) == (9, 0, 2)


@pytest.mark.parametrize(
    ("labels", "names", "expected"),
    [
        ([3, 4, None], ["4", "3"], ["3", "4", "4"]),
        ([3.0, 4.0, None], ["4", "3"], ["3", "4", "4"]),
        ([3.0, math.nan, 3.5, 1e300], ["4", "3"], ["3", "4", "4", "4"]),
        ([True, False], ["false", "true"], ["true", "false"]),
        ([None, None], ["false", "true"], ["false", "false"]),
    ],
)
def test_labels_of_any_type_are_read(
    experiment: Builder, labels: list[object], names: list[str], expected: list[str]
) -> None:
    """Numbers are floats where somebody's label is missing: that must not be told."""
    built = experiment(labels_log(*labels), **private(private_clusters={"labels": names}))
    assert raw_clusters(built) == expected


def test_the_declared_label_stands_for_what_is_missing(experiment: Builder) -> None:
    built = experiment(labels_log(None, "west"), **private(private_clusters={"missing": "east"}))
    assert raw_clusters(built) == ["east", "west"]


def points_log(ages: list[object], visits: list[object]) -> pl.DataFrame:
    log = a_log(len(ages)).drop("region")
    return log.with_columns(
        pl.Series("age", ages, strict=False), pl.Series("visits", visits, strict=False)
    )


@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
def test_a_unit_is_in_the_cluster_of_the_nearest_centre(experiment: Builder, file: str) -> None:
    log = points_log([20, 59, 40, 40, None, 1e150, 70], [0.0, 9.0, 0.5, 0.6, 1.0, 1.0, None])
    built = experiment(log, file, **by_centres())
    young = ["young", "old", "young", "old", "young", "young", "young"]  # a tie is the third
    assert raw_clusters(built) == young
    assert raw_clusters(experiment(log, file, **by_centres(missing="old")))[4:] == ["old"] * 3


def test_the_nearest_centre_is_found_as_by_hand() -> None:
    generator = np.random.default_rng(5)
    points: NDArray[np.float64] = generator.normal(size=(200, 3))
    centres: NDArray[np.float64] = generator.normal(size=(4, 3))
    by_hand = [min(range(4), key=lambda c: math.dist(point, centres[c])) for point in points]
    assert nearest(points, centres, 0).tolist() == by_hand
    points[::2, 1] = np.nan
    assert (nearest(points, centres, 3)[::2] == 3).all()


def test_a_column_that_is_not_there_is_named(experiment: Builder) -> None:
    log = a_log().with_columns(age=pl.lit(30))
    config = experiment(log, **by_centres()).load()
    with pytest.raises(InputError, match="there is no column 'visits'"):
        list(ingest(config.log_source, "once").open().batches())


# what may be known beside a release


def test_nothing_that_is_told_beforehand_depends_on_clusters(experiment: Builder) -> None:
    told = []
    for labels in (["east"] * 12, ["west", "east"] * 6, [UNKNOWN] * 12):
        built = experiment(labels_log(*labels), **private())
        result = built.check()
        told.append((check_text(result).replace(str(built.folder), ""), result.as_json()))
    assert told[0] == told[1] == told[2]
    assert "another outcome and cluster of one unit" in told[0][0]


# randomising


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many labels were randomised at once, each time that some were."""
    found: list[int] = []
    draw = LabelResponse.draw

    def spy(self: LabelResponse, labels: NDArray[np.integer]) -> Any:
        found.append(len(labels))
        return draw(self, labels)

    monkeypatch.setattr(LabelResponse, "draw", spy)
    return found


def published_labels(built: Experiment, period: str = "once") -> dict[str, int]:
    return Counter(released(built.run(period).path, "units")["cluster"].to_list())


def test_clusters_are_randomised_as_is_published(experiment: Builder) -> None:
    """All 4,000 are in the east: at ε₁ → 0 half of them come out in the west, ± 200 (2e-10)."""
    log = a_log(4000, clusters=("east",))
    assert abs(published_labels(experiment(log, **private(LOST)))["west"] - 2000) < 200
    assert published_labels(experiment(log, **private(KEPT)), "two") == {"east": 4000}


def test_the_same_check_finds_a_release_that_does_not_randomise(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LabelResponse, "draw", lambda _, labels: labels)
    log = a_log(4000, clusters=("east",))
    assert published_labels(experiment(log, **private(LOST))) == {"east": 4000}


@pytest.mark.parametrize("mechanism", ["uniform-prior-dp", "cluster-dp", "cluster-free-dp"])
@pytest.mark.parametrize("memory", ["8GB", "500KB"])
def test_everything_in_the_file_is_made_of_randomised_clusters(
    experiment: Builder, drawn: list[int], mechanism: str, memory: str
) -> None:
    """In memory or part by part beside it: sizes and pools count what stands with the units."""
    sections = private(0.5, privacy={"mechanism": mechanism}, run={"memory_limit": memory})
    log = a_log(6000, clusters=("east", "east", "east", "west"))
    path = experiment(log, **sections).run().path
    assert sum(drawn) == 6000
    assert (len(drawn) > 1) == (memory == "500KB")
    units, strata, pools = (released(path, name) for name in ("units", "strata", "pools"))
    found = units.group_by("cluster", "arm").agg(pl.len().cast(pl.Int64).alias("n_units"))
    columns = ["cluster", "arm", "n_units"]
    assert sorted(strata.select(columns).rows()) == sorted(found.select(columns).rows())
    assert pools["n_units"].sum() == 6000
    assert units["unit_id"].to_list() == sorted(log["customer"])
    raw = log.join(units, left_on="customer", right_on="unit_id")
    kept = (raw["region"] == raw["cluster"]).mean()
    assert kept == pytest.approx(math.exp(0.5) / (math.exp(0.5) + 1), abs=0.04)  # 6 errors
    assert (raw["variant"] == raw["arm"]).all()


def test_a_label_moves_without_its_unit_s_outcome(experiment: Builder) -> None:
    """Outcomes stay with their units: at a great ε₂ they are as in the log."""
    log = a_log(2000)
    units = released(experiment(log, **private(LOST, 600.0)).run().path, "units")
    joined = log.join(units, left_on="customer", right_on="unit_id")
    assert (joined["clicks"] == joined["outcome_randomised"]).sum() > 1998
    assert 800 < (joined["region"] == joined["cluster"]).sum() < 1200


@pytest.mark.parametrize("mechanism", ["noisy-histogram", "noisy-horvitz-thompson"])
def test_releases_without_units_have_randomised_clusters_too(
    experiment: Builder, mechanism: str
) -> None:
    log = a_log(4000, clusters=("east",))
    built = experiment(log, **private(LOST, privacy={"mechanism": mechanism}))
    result = built.run()
    sizes = dict(
        released(result.path, "SELECT cluster, sum(n_units) FROM main.strata GROUP BY 1").rows()
    )
    assert abs(int(sizes["west"]) - 2000) < 200
    assert "each randomised cluster" in release_text(result)


def test_a_declared_cluster_without_units_is_no_fault(experiment: Builder) -> None:
    labels = {"private_clusters": {"labels": ["south", "east", "west", "north"]}}
    result = experiment(a_log(400), **private(KEPT, **labels)).run()
    assert result.manifest.n_clusters == result.roster.n_clusters == 4
    assert set(released(result.path, "strata")["cluster"]) == {"east", "west"}
    assert all(one.estimate is not None for one in result.estimates)


def test_exposures_have_private_clusters_too(experiment: Builder) -> None:
    exposures = a_log(300).drop("clicks").with_columns(ts=pl.lit("2026-01-01T00:00:00Z"))
    events = pl.DataFrame({"customer": ["c00001"], "ts": ["2026-01-01T10:00:00Z"]})
    sections = private(
        LOST,
        source={"grain": "event", "outcomes_path": "events.csv"},
        columns={"time": "ts", "outcome": None},
        outcome={"aggregate": "count"},
    )
    built = experiment({"log.csv": exposures, "events.csv": events}, "log.csv", **sections)
    assert built.run().manifest.n_units == 300


# the charge, and the same again


def test_the_charge_comes_before_any_label_is_drawn(experiment: Builder, drawn: list[int]) -> None:
    built = experiment(**private(privacy={"budget_epsilon": 60.0}))
    built.check()
    assert drawn == []
    built.run("one")
    assert drawn == [240]
    assert built.run("one").status == "unchanged"
    with pytest.raises(BudgetError):
        built.run("two")
    assert drawn == [240]


def test_another_label_is_another_log(experiment: Builder) -> None:
    log = a_log()
    experiment(log, **private()).run()
    assert experiment(log[::-1], **private()).run().status == "unchanged"
    first = pl.col("customer") == "c00000"
    other = log.with_columns(
        pl.when(first).then(pl.lit("west")).otherwise("region").alias("region")
    )
    with pytest.raises(ConflictError, match="from other rows"):
        experiment(other, **private()).run()


# nothing of it anywhere


def test_an_undeclared_label_stands_nowhere_but_in_the_log(experiment: Builder) -> None:
    """Nor in what is set aside, for the unit or the arm alone."""
    log = a_log(60).with_columns(region=pl.lit(UNKNOWN))
    faulty = rows(
        (None, "none", UNKNOWN, 1.0), ("x", "fax", UNKNOWN, 1.0), ("c00001", "none", UNKNOWN, 1.0)
    )
    built = experiment(pl.concat([log, faulty]), "log.csv", **private())
    result = built.run()
    assert result.roster.quarantined == 4
    written = [built.folder / name for name in built.files if name != "log.csv"]
    assert len(written) > 4
    assert [path.name for path in written if UNKNOWN.encode() in path.read_bytes()] == []
    (aside,) = [path for path in written if path.suffix == ".parquet"]
    assert pl.read_parquet(aside)["cluster"].null_count() == 4


# what is said


def test_a_release_says_that_clusters_are_private(experiment: Builder, tmp_path: Path) -> None:
    from flows.released.file.read import read_release  # noqa: PLC0415 - beside its one use

    result = experiment(**private(0.75, 2.0)).run()
    assert "every unit's outcome and cluster: each was randomised" in release_text(result)
    told = inspect_text(read_release(result.path))
    assert "(2, 0)-differentially private for one unit's outcome and cluster:" in told
    assert "randomised ones (epsilon 0.75 of the whole)" in told
    assert "Unit ids, arms and numbers of units in each arm are not protected" in told
    write_report(result.path, page := tmp_path / "page.html")
    text = page.read_text()
    assert "every unit’s outcome and cluster" in text
    assert "Unit ids, clusters, arms" not in text
