"""A plan from who is in the log alone, and releases that keep to it."""

import dataclasses
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from flows.cli.night.plan import plan_text
from flows.config.resolve import ResolvedRelease, resolve_design
from flows.lab.audit import ask_of_nights, look
from flows.lab.raw.made_up import MIXED
from flows.lab.raw.nights import NightPlan
from flows.plan import plan, resolved_release_of
from flows.release import ReleaseResult
from flows.released.estimates.release import estimate_file
from privatizers.accounting.budget import Budget
from schemas.errors import ConfigError
from tests.conftest import Builder, Experiment, Ran, a_log, released, sealed_rows
from tests.support.distances import assert_near
from tests.support.surroundings import Command

AUTO = {"mechanism": "auto"}
MEANS = AUTO | {"strata_statistic": "means"}
FINE = {"values": None, "low": 0, "high": 10, "levels": "auto"}

CONTRACT = {
    "mechanism",
    "levels",
    "strata_statistic",
    "resampling_probability",
    "truncation_threshold",
    "noise_scale",
    "epsilon",
    "delta",
    "predicted",
}


def planned(command: Command, built: Experiment, *arguments: str) -> dict[str, Any]:
    ended = command("plan", built.config, "--json", *arguments)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert isinstance(found, dict)
    return found


def assert_refused(ended: Ran, *words: str) -> None:
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("clusterdp: ")
    assert "Traceback" not in ended.stderr
    for word in words:
        assert word in ended.stderr


def moved(n_units: int = 2_000, low: float = 0.0, high: float = 3.0) -> pl.DataFrame:
    """A log in which treatment moves most of the way from the lowest outcome to the highest."""
    log = a_log(n_units, clusters=("east", "west", "north"))
    part = np.arange(n_units) * 7919 % 101 / 500
    treated = log["variant"].to_numpy() == "mail"
    value = np.where(treated, high - part * (high - low), low + part * (high - low))
    return log.with_columns(clicks=value.round() if high == 3.0 else value)


def truth(log: pl.DataFrame) -> float:
    """The difference in means, stratified by region."""
    means = log.group_by("region", "variant").agg(pl.col("clicks").mean(), pl.len().alias("n"))
    return weighted(means, "region", "variant", "clicks", "n")


def weighted(means: pl.DataFrame, place: str, arm: str, mean: str, size: str) -> float:
    """Σ b (mean of mail − mean of none), b each place's share of the units of both."""
    treated, control = (means.filter(pl.col(arm) == name).sort(place) for name in ("mail", "none"))
    n = treated[size].to_numpy() + control[size].to_numpy()
    return float(np.average(treated[mean].to_numpy() - control[mean].to_numpy(), weights=n))


# The plan


def test_a_plan_says_what_the_contract_lists_and_leaves_nothing_behind(
    command: Command, experiment: Builder
) -> None:
    built = experiment(privacy=AUTO | {"epsilon": 11.0, "delta": 1e-6})
    before = built.entries
    found = planned(command, built)
    assert set(found) >= CONTRACT
    assert found["mechanism"] == "uniform-prior-dp"
    assert found["levels"] == len(found["outcomes"]) == 4
    assert found["truncation_threshold"] == pytest.approx(0.25)
    assert (found["epsilon"], found["delta"]) == (11.0, 1e-6)
    assert 0 < found["resampling_probability"] < 1
    assert (found["n_units"], found["n_clusters"]) == (240, 2)
    keys = ("estimand", "arm", "segment_share")
    assert [tuple(one[key] for key in keys) for one in found["predicted"]] == [
        ("ate", "mail", None),
        ("segment ate", "mail", 0.1),
        ("segment ate", "mail", 0.5),
    ]
    errors = [one["std_error"] for one in found["predicted"]]
    assert 0 < errors[0] < errors[2] < errors[1]
    names = [one["mechanism"] for one in found["runners_up"]]
    assert names[-2:] == ["cluster-dp", "cluster-free-dp"]
    assert found["one_more_epsilon"]["predicted"][0]["std_error"] < errors[0]
    assert built.entries == before


def test_a_plan_speaks_to_people(command: Command, experiment: Builder) -> None:
    built = experiment(
        a_log(244, arms=("none", "mail", "fax")),
        privacy=MEANS,
        arms={"treatments": ["mail", "fax"]},
    )
    ended = command("plan", built.config)
    assert ended.returncode == 0
    assert "a segment of 10 % is expected to compare only" in " ".join(ended.stderr.split())
    assert "arms.same_shares = true" in " ".join(ended.stderr.split())
    for words in (
        "compared",
        "no outcome was read",
        "noisy means",
        "fax",
        "everybody",
        "cluster-free-dp",
    ):
        assert words in ended.stdout
    lines = ended.stdout.splitlines()
    at = next(nth for nth, line in enumerate(lines) if "one more epsilon" in line)
    assert [line.split()[0] for line in lines[at + 1 : at + 7]] == ["mail"] * 3 + ["fax"] * 3


# many nights


@pytest.mark.parametrize(
    ("privacy", "in_one", "in_every", "affordable"),
    [
        ({}, 2.0, 80.0, 500),
        ({"returning": "set_aside", "budget_epsilon": 5.0}, 2.0, 2.0, 2),
        ({"account": "population", "budget_epsilon": None}, 80.0, 80.0, None),
    ],
)
def test_nights_say_what_they_cost_and_tell(
    command: Command,
    experiment: Builder,
    privacy: dict[str, Any],
    in_one: float,
    in_every: float,
    affordable: int | None,
) -> None:
    built = experiment(privacy=AUTO | privacy)
    before = built.entries
    found = planned(command, built, "--nights", "40")
    nights = found["nights"]
    assert nights["n_nights"] == 40
    assert (nights["epsilon_in_one_night"], nights["epsilon_in_every_night"]) == (in_one, in_every)
    assert nights["n_affordable"] == affordable
    for one, together in zip(found["predicted"], nights["pooled"], strict=True):
        names = ("estimand", "arm", "segment_share")
        assert [one[name] for name in names] == [together[name] for name in names]
        assert together["std_error"] == pytest.approx(one["std_error"] / math.sqrt(40))
        parts = together["sampling_std_error"], together["privacy_std_error"]
        assert math.hypot(*parts) == pytest.approx(together["std_error"])
        assert min(parts) > 0
        most = together["std_error_returning"]
        if privacy.get("returning") == "set_aside":
            assert most is None
        else:
            assert together["std_error"] < most < one["std_error"]
    assert built.entries == before
    assert planned(command, built)["nights"] is None


@pytest.mark.parametrize("mechanism", ["cluster-dp", "noisy-histogram", "noisy-horvitz-thompson"])
def test_every_design_says_what_privacy_adds_to_a_night(
    experiment: Builder, mechanism: str
) -> None:
    """At a price at which noise is next to nothing, sampling alone is left."""
    dear = experiment(privacy={"mechanism": mechanism, "epsilon": 60.0})
    one, *_ = plan(dear.config, nights=1).predicted
    assert one.sampling_std_error == pytest.approx(one.std_error, rel=1e-3)
    cheap = experiment(privacy={"mechanism": mechanism, "epsilon": 0.5})
    other, *_ = plan(cheap.config, nights=1).predicted
    assert other.sampling_std_error == pytest.approx(one.sampling_std_error, rel=1e-9)
    assert other.std_error > 1.05 * other.sampling_std_error


def test_households_pay_for_all_their_rows_every_night(experiment: Builder) -> None:
    log = a_log().with_columns(home=pl.col("customer"))
    built = experiment(log, columns={"privacy_unit": "home"}, privacy={"rows_each": 3})
    nights = plan(built.config, nights=4).nights
    assert nights is not None
    assert (nights.least_cost.epsilon, nights.cost.epsilon) == (6.0, 24.0)


def test_nights_speak_to_people(command: Command, experiment: Builder) -> None:
    built = experiment(privacy={"budget_epsilon": 20.0})
    told = command("plan", built.config, "--nights", "40").stdout
    for words in ("40 nights like this one (the budget pays for 10)", "epsilon 80", "at most 0."):
        assert words in told
    once = experiment(privacy={"returning": "set_aside", "budget_epsilon": None})
    told = command("plan", once.config, "--nights", "40").stdout
    for words in ("no budget limits it", "everyone is released, and pays, once"):
        assert words in told


@pytest.mark.parametrize("nights", ["0", "-1", "100001"])
def test_nights_that_cannot_be_are_refused(
    command: Command, experiment: Builder, nights: str
) -> None:
    ended = command("plan", experiment().config, "--nights", nights)
    assert_refused(ended, "--nights", "is not from 1 to 100,000")


def test_a_plan_foresees_how_many_are_compared(command: Command, experiment: Builder) -> None:
    """Towns of a dozen hold too few of a tenth of the people, unless they may merge."""
    towns = tuple(f"town {nth}" for nth in range(20))
    found = {}
    for same_shares in (False, True):
        arms = {"treatments": ["mail"], "same_shares": same_shares}
        built = experiment(a_log(240, clusters=towns), privacy=AUTO, arms=arms)
        document = planned(command, built)
        told = [one for one in document["warnings"] if "is expected to compare only" in one]
        found[same_shares] = {one["segment_share"]: one for one in document["predicted"]}
        assert len(told) == sum(one["coverage"] < 0.9 for one in found[same_shares].values())
    apart, merged = found[False][0.1], found[True][0.1]
    assert found[False][None]["coverage"] == found[True][None]["coverage"] == 1.0
    assert apart["coverage"] < 0.3
    assert merged["coverage"] > apart["coverage"] + 0.3


def test_shares_that_are_named_twice_do_no_harm(command: Command, experiment: Builder) -> None:
    built = experiment(privacy=AUTO | {"segment_shares": [0.1, 0.1]})
    assert command("plan", built.config).returncode == 0


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl"])
def test_a_log_without_outcomes_has_the_same_plan(
    command: Command, experiment: Builder, name: str
) -> None:
    log = a_log()
    garbage = pl.Series("clicks", ["n/a", "0x1F", "", "1e999", "NaN", None] * 40)
    logs = {
        "with": log,
        "without": log.drop("clicks"),
        "other": log.with_columns(clicks=3.0 - pl.col("clicks")),
        "garbage": log.with_columns(garbage),
        "nothing": log.with_columns(clicks=pl.lit(None, pl.Float64)),
    }
    found = {
        key: planned(command, experiment(one, name, privacy=AUTO, outcome={"levels": "auto"}))
        for key, one in logs.items()
    }
    warned = {key for key, one in found.items() if one.pop("warnings")}
    assert warned == ({"garbage"} if name == "log.parquet" else set())  # by its type, text
    assert all(one == found["with"] for one in found.values())


def test_a_release_still_needs_its_outcomes(command: Command, experiment: Builder) -> None:
    built = experiment(a_log().drop("clicks"), privacy=AUTO)
    assert_refused(command("check", built.config), "clicks")


def test_declared_parameters_have_a_plan_too(command: Command, experiment: Builder) -> None:
    own = {"epsilon": None, "resampling_probability": 0.6, "noise_scale": 4.0}
    for mechanism, gamma in (("cluster-dp", 0.1), ("auto", None), ("cluster-free-dp", 0.02)):
        privacy = own | {"mechanism": mechanism, "truncation_threshold": gamma}
        built = experiment(privacy=privacy)
        found = planned(command, built)
        assert found["noise_scale"] == 4.0
        assert found["epsilon"] == built.load().design().epsilon
        assert found["runners_up"] == []
        assert found["one_more_epsilon"] is None
        assert len(found["predicted"]) == 3
        assert command("plan", built.config).returncode == 0


def test_a_period_is_filled_in(command: Command, experiment: Builder) -> None:
    logs = {"1/log.csv": a_log(80), "2/log.csv": a_log(240).drop("clicks")}
    built = experiment(logs, source={"path": "{period}/log.csv"}, privacy=AUTO)
    found = [planned(command, built, "--period", period) for period in "12"]
    assert [one["n_units"] for one in found] == [80, 240]
    assert found[1]["predicted"][0]["std_error"] < found[0]["predicted"][0]["std_error"]
    assert_refused(command("plan", built.config), "--period: missing")
    assert_refused(command("audit", built.config), "--period: missing")
    assert_refused(command("plan", built.config, "--period", "3"), "no file matches")


def test_a_guess_sharpens_the_plan(command: Command, experiment: Builder) -> None:
    flat, steep = (
        planned(command, experiment(privacy=AUTO, outcome={"guess": guess}))
        for guess in ("uniform", [97, 1, 1, 1])
    )
    assert steep["predicted"][0]["std_error"] < flat["predicted"][0]["std_error"]


def test_small_clusters_share_as_they_do_in_a_release(
    command: Command, experiment: Builder
) -> None:
    """Which changes what is predicted, and asks the planner the same that a release asks."""
    few = {"epsilon": 0.5, "segment_shares": []}
    log = a_log(60, clusters=("a", "b", "c"))
    errors = []
    for least in (1, 50):
        built = experiment(log, privacy=MEANS | few | {"min_stratum": least})
        found = planned(command, built)
        errors.append(found["predicted"][0]["std_error"])
        expected = 1 if least == 50 else 3
        assert released(built.run(str(least)).path, "pools")["pool"].n_unique() == expected
    assert errors[1] < 0.95 * errors[0]


# Refusals


def one_arm_a_cluster() -> pl.DataFrame:
    return a_log().with_columns(region=pl.col("variant") + "-land")


@pytest.mark.parametrize(
    ("privacy", "words"),
    [(AUTO, "nothing to plan for"), ({}, "no effect can be estimated")],
)
def test_without_a_comparable_cluster_there_is_nothing_to_plan(
    command: Command, experiment: Builder, privacy: dict[str, Any], words: str
) -> None:
    built = experiment(one_arm_a_cluster(), privacy=privacy)
    assert_refused(command("plan", built.config), words)
    small = one_arm_a_cluster().with_columns(pl.format("{}-{}", "region", pl.row_index() // 12))
    same = experiment(small, privacy=privacy, arms={"same_shares": True})
    assert planned(command, same)["predicted"]


def test_a_plan_for_segments_alone_is_sharper_for_them(
    command: Command, experiment: Builder
) -> None:
    """The effect on everybody is predicted, too, and has to give way."""
    privacy = AUTO | {"segment_shares": [0.5]}
    both = planned(command, experiment(privacy=privacy))["predicted"]
    alone = planned(command, experiment(privacy=privacy | {"overall_effect": False}))["predicted"]
    assert [one["segment_share"] for one in alone] == [one["segment_share"] for one in both]
    for one, other in zip(alone, both, strict=True):
        if one["segment_share"] is None:
            assert one["std_error"] > other["std_error"]
        else:
            assert one["std_error"] < other["std_error"]


def test_an_arm_without_units_is_missed(command: Command, experiment: Builder) -> None:
    built = experiment(privacy=AUTO, arms={"treatments": ["mail", "fax"]})
    assert_refused(command("plan", built.config), "fax")


def test_a_plan_tells_what_declared_values_have_and_that_none_get_anything(
    command: Command, experiment: Builder
) -> None:
    country = np.repeat(["de", "fr", "it"], 1_000)
    log = a_log(3_000).with_columns(country=country, device=np.tile(np.repeat(["a", "b"], 500), 3))
    columns = {"attributes": ["country", "device"]}
    privacy = {"mechanism": "auto", "epsilon": 0.5, "margins": ["country", "device"]}
    found = planned(command, experiment(log, columns=columns, privacy=privacy))
    assert 0 < found["margins_epsilon"] < 0.5
    for one in found["predicted"]:
        least, most = one["std_error_range"]
        assert least < one["std_error"] < most
    values = [row for row in found["margins"] if row["as_cluster"] is not None]
    assert [row["value"] for row in values] == ["de", "fr", "it", "a", "b"]
    assert all(row["std_error"] < row["without_margins"] for row in values)
    plenty = experiment(log, columns=columns, privacy=privacy | {"epsilon": 12.0})
    text = command("plan", plenty.config)
    assert "declared values" in text.stdout
    found = planned(command, plenty)
    assert found["margins_epsilon"] == 0
    made = plenty.run()
    assert made.manifest.margins == ()
    for warnings in (found["warnings"], made.warnings):
        assert any("no part of epsilon makes declared values sharper" in one for one in warnings)


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("outcome.levels", {"outcome": FINE}),
        ("outcome.rounding", {"outcome": FINE | {"rounding": "nearest"}, "privacy": AUTO}),
        ("privacy.segment_shares", {"privacy": AUTO | {"segment_shares": [1.5]}}),
        (
            "privacy.overall_effect",
            {"privacy": AUTO | {"segment_shares": [], "overall_effect": False}},
        ),
        (
            "privacy.strata_statistic",
            {"outcome": {"values": [0, 1, 3.14159265]}, "privacy": MEANS},
        ),
    ],
)
def test_a_configuration_that_cannot_be_planned_is_refused(
    command: Command, experiment: Builder, key: str, sections: dict[str, Any]
) -> None:
    built = experiment(**sections)
    for name in ("plan", "check", "audit"):
        assert_refused(command(name, built.config), f"{key}: ")


# Releases keep to the plan


@pytest.mark.parametrize(
    "privacy",
    [AUTO, MEANS, AUTO | {"strata_statistic": "counts", "delta": 1e-5}, AUTO | {"epsilon": 8.0}],
)
def test_a_release_has_exactly_the_design_that_was_planned(
    command: Command, experiment: Builder, privacy: dict[str, Any]
) -> None:
    built = experiment(privacy=privacy, outcome={"levels": "auto"})
    found = planned(command, built)
    assert built.check().chosen.designs == resolved_release_of(built.config, None).designs
    result = built.run()
    stated = {
        "mechanism": result.manifest.mechanism,
        **dataclasses.asdict(result.manifest.outcomes[0]),
    }
    assert stated["n_outcomes"] == found["levels"]
    for name in CONTRACT - {"levels", "predicted"}:
        assert stated[name] == found[name], name
    assert released(result.path, "outcomes")["outcome"].to_list() == found["outcomes"]
    assert result.status == "published"
    again = built.run()
    assert (again.status, again.release_id) == ("unchanged", result.release_id)
    assert again.path.read_bytes() == result.path.read_bytes()


@pytest.mark.parametrize(
    ("privacy", "estimator"),
    [
        (AUTO, "combined"),
        ({"mechanism": "cluster-dp"}, "combined"),
        ({"mechanism": "uniform-prior-dp", "strata_statistic": "none"}, "tau_q"),
        ({"mechanism": "noisy-histogram"}, "histogram"),
        ({"mechanism": "noisy-horvitz-thompson"}, "horvitz_thompson"),
    ],
)
def test_a_release_states_what_its_plan_predicted(
    command: Command, experiment: Builder, privacy: dict[str, Any], estimator: str
) -> None:
    built = experiment(moved(), privacy=privacy)
    whole = next(x for x in planned(command, built)["predicted"] if x["segment_share"] is None)
    result = built.run()
    stated: dict[str, float | None] = {
        one.estimator: one.planned_std_error for one in result.estimates
    }
    assert stated.pop(estimator) == whole["std_error"]
    assert set(stated.values()) <= {None}
    assert estimate_file(result.path) == result.estimates
    rows = released(result.path, "SELECT estimator, planned_std_error FROM ate()").rows()
    assert dict(rows)[estimator] == whole["std_error"]


def test_private_clusters_have_no_forecast(experiment: Builder) -> None:
    built = experiment(
        arms={"same_shares": True},
        privacy={"mechanism": "uniform-prior-dp"},
        private_clusters={"epsilon": 0.5, "labels": ["east", "west"]},
    )
    result = built.run()
    assert {one.planned_std_error for one in result.estimates} == {None}
    assert result.manifest.epsilon == 2.0
    assert result.manifest.outcomes[0].epsilon == 1.5


@pytest.mark.release
def test_what_is_settled_is_settled_by_public_sizes_alone(experiment: Builder) -> None:
    built = experiment(privacy=AUTO, outcome=FINE | {"missing": 3})
    frame = built.read().with_columns(outcome=pl.lit(math.nan))
    sizes = sealed_rows(frame, ("none", "mail")).open().sizes
    assert sizes.tolist() == [[60, 60], [60, 60]]
    chosen = resolve_design(built.load(), sizes)
    (resolved,) = resolved_release_of(built.config, None).designs
    assert chosen.design == resolved == plan(built.config, None).chosen.designs[0]
    assert chosen.plan is not None
    assert chosen.config.outcome.grid == chosen.plan.option.grid
    assert chosen.config.outcome.weights == pytest.approx(chosen.plan.guess)
    assert chosen.config.outcome.missing_value == 3.0
    assert sum(chosen.plan.guess) == pytest.approx(1.0)


def test_arms_keep_their_places_in_sizes(experiment: Builder) -> None:
    log = a_log().filter((pl.col("variant") != "mail") | (pl.col("customer") < "c00100"))
    frame = experiment(log).read()
    for arms, expected in ((("none", "mail"), [120, 50]), (("mail", "none"), [50, 120])):
        assert sealed_rows(frame, arms).open().sizes.sum(axis=0).tolist() == expected


@pytest.mark.parametrize(
    ("outcome", "high"),
    [({"levels": "auto"}, 3.0), (FINE, 10.0), (FINE | {"guess": [1] * 21}, 10.0)],
)
@pytest.mark.parametrize("statistic", ["auto", "means", "counts"])
def test_a_planned_grid_leaves_effects_as_they_are(
    experiment: Builder, outcome: dict[str, Any], high: float, statistic: str
) -> None:
    """Coarse or not, every estimate is within 8 of its standard errors: wrong once in 1e6.

    Of normal noise 5 would do; sums of six Laplace draws, of the same weight, need 8.
    """
    log = moved(6_000, high=high)
    privacy = AUTO | {"strata_statistic": statistic, "epsilon": 3.0}
    result = experiment(log, outcome=outcome, privacy=privacy).run()
    assert_right(result, truth(log))
    if statistic != "auto":
        assert result.manifest.outcomes[0].strata_statistic.startswith(statistic[:-1])


def assert_right(result: ReleaseResult, expected: float) -> None:
    """Every estimate is near enough, and the errors it states are small."""
    names = [one.estimator for one in result.estimates]
    nothing = result.manifest.outcomes[0].strata_statistic == "none"
    assert names == (["tau_q"] if nothing else ["combined", "tau_q", "histogram"])
    for one in result.estimates:
        assert one.estimate is not None
        assert one.std_error is not None
        assert_near(one.estimate, expected, one.std_error, 8.0)
        # Tables are learnt from counts at a hundredth of ε, which alone tell little.
        if result.manifest.mechanism == "uniform-prior-dp" or one.estimator != "histogram":
            assert one.std_error < 0.02 * expected


def test_outcomes_that_are_missing_count_as_declared_on_a_planned_grid(
    experiment: Builder,
) -> None:
    """All are missing: every estimate is of no effect, at the declared value and not another."""
    log = a_log(1_200).with_columns(clicks=pl.lit(None, pl.Float64))
    outcome = FINE | {"missing": 7.0}
    built = experiment(log, outcome=outcome, privacy=MEANS | {"epsilon": 8.0})
    path = built.run().path
    units = released(
        path, "SELECT avg(outcome_debiased) AS m, stddev(outcome_debiased) AS s FROM main.units"
    )
    mean, spread = units.row(0)
    assert abs(mean - 7.0) < 6 * spread / math.sqrt(1_200)


# Means, from end to end


@pytest.fixture
def means(experiment: Builder) -> tuple[Path, pl.DataFrame]:
    log = moved(low=1.0)
    shared = pl.DataFrame(  # two small clusters that share a pool
        {
            "customer": [f"s{nth}" for nth in range(16)],
            "variant": ["none", "mail"] * 8,
            "region": ["one"] * 8 + ["two"] * 8,
            "clicks": [0.0, 3.0] * 8,
        }
    )
    log = pl.concat([log, shared])
    outcome = {"values": [-1, 0, 1, 2, 2.5, 3], "guess": [2, 1, 1, 1, 1, 2]}
    sharp = {"epsilon": 6.0, "segment_shares": []}
    built = experiment(log, outcome=outcome, privacy=MEANS | sharp)
    return built.run().path, log


def test_a_release_of_means_holds_means_and_no_counts(means: tuple[Path, pl.DataFrame]) -> None:
    path, log = means
    (row,) = released(path, "metrics").rows(named=True)
    assert (row["strata_statistic"], row["grid_step"]) == ("means", 0.5)
    assert released(path, "debias").height == 48
    assert released(path, "counts").is_empty()
    pools = released(path, "pools")
    assert pools["noisy_mean"].null_count() == pools["mean_weight"].null_count() == 0
    assert (pools["square_weight"] == 0).all()
    assert ((pools["mean_weight"] > 0) & (pools["mean_weight"] < 1)).all()
    steps = (pools["noisy_mean"] + 1) * pools["n_units"] / 0.5
    assert steps.to_numpy() == pytest.approx(steps.round().to_numpy(), abs=1e-6)  # whole ones
    own = log.with_columns(
        pool=pl.when(pl.col("region").is_in(["one", "two"]))
        .then(pl.lit("small clusters"))
        .otherwise(pl.col("region"))
    )
    true = own.group_by("pool", pl.col("variant").alias("arm")).agg(pl.col("clicks").mean())
    both = pools.join(true, on=["pool", "arm"])
    assert both.height == pools.height == 8
    # No outcome is rounded. Noise of σ steps has P(|Z| > t) < 2 e^(−t/σ): wrong once in 1e11.
    noise = np.abs(((both["noisy_mean"] - both["clicks"]) * both["n_units"] / 0.5).to_numpy())
    assert row["noise_scale"] < 3
    assert noise.max() < 30 * row["noise_scale"]


def test_the_histogram_of_means_is_their_weighted_difference(
    means: tuple[Path, pl.DataFrame], command: Command
) -> None:
    """Over pools of one cluster; what a shared pool holds could differ by cluster."""
    path, _ = means
    pools = released(path, "pools").filter(pl.col("pool") != "small clusters")
    expected = weighted(pools, "pool", "arm", "noisy_mean", "n_units")
    document = json.loads(command("estimate", path, "--json").stdout)
    (found,) = (one for one in document["estimates"] if one["estimator"] == "histogram")
    assert found["estimate"] == pytest.approx(expected, abs=1e-9)
    assert found["n_units"] == pools["n_units"].sum()
    if found["relative"] is not None:  # it is refused where noise left the control mean near zero
        n = pools.with_columns(n=pl.col("n_units").sum().over("pool"))
        n = n.filter(pl.col("arm") == "none")
        control = float(np.average(n["noisy_mean"].to_numpy(), weights=n["n"].to_numpy()))
        assert found["relative"] == pytest.approx(expected / control, abs=1e-9)


def test_macros_estimate_from_means_as_the_program_does(
    means: tuple[Path, pl.DataFrame], command: Command, tmp_path: Path
) -> None:
    path, log = means
    document = json.loads(command("estimate", path, "--json").stdout)
    found = released(path, "SELECT * FROM ate()").rows(named=True)
    assert {one["estimator"] for one in found} == {"tau_q", "histogram", "combined"}
    assert_alike(found, document["estimates"])

    table = tmp_path / "segments.csv"
    third = pl.int_range(pl.len()) % 3
    segment = pl.when(third == 0).then(pl.lit("a")).otherwise(pl.lit("b"))
    log.select(unit_id="customer", segment=segment).write_csv(table)
    ended = command("estimate", path, "--segments", table, "--json")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS rel (READ_ONLY)")
        connection.execute(f"CREATE TABLE mine AS FROM '{table}'")
        rows = connection.sql("FROM rel.ate_by_segment('mine', 'rel')").pl().rows(named=True)
    assert {(one["segment"], one["estimator"]) for one in rows} == {
        (segment, name) for segment in "ab" for name in ("tau_q", "combined")
    }
    assert_alike(rows, json.loads(ended.stdout)["estimates"])


def assert_alike(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    keys = ("arm", "segment", "estimator")
    told = {tuple(one.get(key) for key in keys): one for one in expected}
    assert len(found) == len(told) == len(expected)
    for one in found:
        other = told[tuple(one.get(key) for key in keys)]
        for name in ("estimate", "std_error", "n_units"):
            assert one[name] == pytest.approx(other[name], abs=1e-9), name
        for name in ("ci_lower", "ci_upper", "p_value"):
            assert one[name] == pytest.approx(other[name], abs=1e-6), name


# Audits


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits of one night alone, which is where a plan has a part.

    What is drawn by each design is looked at in `tests/statistical/lab/test_planted_bugs.py`.
    """
    quick = partial(look, questions=(ask_of_nights,), plans=(NightPlan(MIXED),))
    monkeypatch.setattr("flows.lab.audit.look", quick)


@pytest.mark.statistical
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("statistic", ["means", "none", "counts"])
def test_an_audit_checks_what_is_planned_for_a_period(
    command: Command, experiment: Builder, statistic: str
) -> None:
    built = experiment(
        {"1/log.csv": a_log().drop("clicks")},
        source={"path": "{period}/log.csv"},
        privacy=AUTO | {"strata_statistic": statistic},
    )
    ended = command("audit", built.config, "--period", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["holds"] is True
    assert found["claimed_epsilon"] == 2.0
    assert found["exact_epsilon"] == pytest.approx(2.0, abs=1e-9)


@pytest.mark.statistical
@pytest.mark.usefixtures("quick")
def test_an_audit_finds_a_plan_that_claims_too_little(
    command: Command, experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = experiment(privacy=MEANS)
    monkeypatch.setattr(ResolvedRelease, "price", Budget(1.9))
    ended = command("audit", built.config)
    assert ended.returncode == 1
    assert "DOES NOT HOLD" in ended.stdout


def test_a_design_that_is_not_planned_needs_no_log(experiment: Builder) -> None:
    built = experiment(source={"path": "there-is-no-log.csv"})
    assert resolved_release_of(built.config, None).designs == (built.load().design(),)
    auto = experiment(source={"path": "there-is-no-log.csv"}, privacy=AUTO)
    with pytest.raises(Exception, match="no file matches"):
        resolved_release_of(auto.config, None)


def test_a_settled_grid_is_not_to_be_had_before(experiment: Builder) -> None:
    config = experiment(outcome=FINE, privacy=AUTO).load()
    with pytest.raises(ConfigError, match="no grid before it is planned"):
        _ = config.outcome.grid
    with pytest.raises(AssertionError, match="planned"):
        config.design()


# several outcomes


def of_two(experiment: Builder, share: object = None, **privacy: object) -> Experiment:
    outcomes = [
        {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3], "share": share},
        {"name": "any", "column": "clicks", "values": [0, 1], "share": share, "label": "Any click"},
    ]
    return experiment(
        a_log(4_000), outcome=None, outcomes=outcomes, columns={"outcome": None}, privacy=privacy
    )


def test_each_outcome_is_planned_at_its_part(command: Command, experiment: Builder) -> None:
    built = of_two(experiment, mechanism="auto")
    found = planned(command, built)
    assert (found["epsilon"], found["levels"]) == (2.0, None)
    assert [(one["metric"], one["epsilon"]) for one in found["metrics"]] == [
        *(("clicks", 1.0), ("any", 1.0)),
    ]
    assert [one["levels"] for one in found["metrics"]] == [4, 2]
    alone = experiment(a_log(4_000), privacy={"mechanism": "auto", "epsilon": 1.0})
    of_one = planned(command, alone)
    assert {one["metric"] for one in of_one["predicted"]} == {"outcome"}
    assert [one["std_error"] for one in found["predicted"] if one["metric"] == "clicks"] == [
        one["std_error"] for one in of_one["predicted"]
    ]
    text = plan_text(plan(of_two(experiment, mechanism="auto").config, nights=3))
    assert "any: Any click" in text
    assert text.count("the next best designs for") == 2


def test_shares_are_planned_from_public_facts(command: Command, experiment: Builder) -> None:
    found = planned(command, of_two(experiment, "auto", mechanism="auto"))
    parts = [one["epsilon"] for one in found["metrics"]]
    assert sum(parts) <= 2.0
    assert parts[0] > parts[1]  # four values take more than two
    again = planned(command, of_two(experiment, "auto", mechanism="auto"))
    assert again == found
