"""Releases without units, end to end: their tables, estimates, macros, plans and refusals."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from estimators.arm_effects import Estimate
from flows.cli.main import run
from flows.cli.night.plan import plan_text
from flows.cli.night.release import release_text
from flows.cli.night.released import inspect_text
from flows.plan import plan
from flows.release import ReleaseResult
from flows.released.estimates.release import estimate_file
from flows.released.estimates.segments import estimate_segments
from flows.released.file.read import read_release
from schemas.errors import ConfigError, ConflictError, InputError
from schemas.released import TABLES
from tests.conftest import SENTINEL, Builder, Experiment, Section, a_log, build_experiment, released
from tests.estimators.reference import p_value, quantile
from tests.estimators.told_release import laplace_cumulants
from tests.support.distances import assert_near

HISTOGRAM: Section = {"mechanism": "noisy-histogram", "epsilon": 1.0}
DIFFERENCES: Section = {"mechanism": "noisy-horvitz-thompson", "epsilon": 1.0}
THREE: Section = {"treatments": ["mail", "call"]}
SPREAD: Section = {"values": [-2, 0, 1, 6]}
KINDS: dict[str, Mapping[str, Section]] = {
    "counts": {"privacy": HISTOGRAM, "outcome": SPREAD},
    "count-and-complement": {"privacy": HISTOGRAM, "outcome": {"values": [0, 1]}},
    "counts of three arms": {"privacy": HISTOGRAM, "outcome": SPREAD, "arms": THREE},
    "differences": {"privacy": DIFFERENCES, "outcome": SPREAD},
    "means": {"privacy": DIFFERENCES, "outcome": SPREAD, "arms": THREE},
}

Sizes = dict[tuple[str, str], int]
Row = dict[str, Any]


def log_of(sizes: Sizes) -> pl.DataFrame:
    """So many units in each (cluster, arm), with outcomes from −2 to 6 that look random."""
    random = np.random.default_rng(2)
    people = [key for key, size in sizes.items() for _ in range(size)]
    return pl.DataFrame(
        {
            "customer": [f"c{i:05d}" for i in range(len(people))],
            "variant": [arm for _, arm in people],
            "region": [cluster for cluster, _ in people],
            "clicks": random.choice([-2.0, 0.0, 1.0, 6.0], len(people)),
        }
    )


SIZES: Sizes = {
    ("east", "none"): 60, ("east", "mail"): 45, ("east", "call"): 50,
    ("west", "none"): 33, ("west", "mail"): 44, ("west", "call"): 22,
    ("s 1", "none"): 4, ("s 1", "mail"): 7, ("s 1", "call"): 12,
    ("s 2", "none"): 15, ("s 2", "mail"): 3, ("s 2", "call"): 9,
}  # fmt: skip


def sizes_of(kind: str) -> Sizes:
    three = "arms" in KINDS[kind]
    return {key: size for key, size in SIZES.items() if three or key[1] != "call"}


@pytest.fixture(scope="module", params=KINDS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    kind = str(request.param)
    folder = tmp_path_factory.mktemp(kind.replace(" ", "-"))
    return build_experiment(folder / "trial", log_of(sizes_of(kind)), **KINDS[kind])


@pytest.fixture(scope="module")
def result(built: Experiment) -> ReleaseResult:
    return built.run()


def statistic(result: ReleaseResult) -> str:
    return result.manifest.outcomes[0].strata_statistic


# the tables


def test_a_release_has_no_units_and_says_what_it_has(result: ReleaseResult) -> None:
    manifest, n_arms = result.manifest, len(result.estimates) + 1
    assert (manifest.epsilon, manifest.delta) == (1.0, 0.0)
    assert (
        manifest.outcomes[0].resampling_probability
        is manifest.outcomes[0].truncation_threshold
        is None
    )
    assert not manifest.has_units
    assert manifest.n_units == result.roster.n_units == sum(sizes_of_result(result).values())
    counts = read_release(result.path).row_counts
    has_counts = statistic(result).startswith("count")
    assert counts == {
        "release": 1,
        "metrics": 1,
        "outcomes": manifest.outcomes[0].n_outcomes,
        "pools": 3 * n_arms,
        "strata": 4 * n_arms,
        "debias": 0,
        "counts": 3 * n_arms * manifest.outcomes[0].n_outcomes * has_counts,
        "squares": n_arms * (manifest.outcomes[0].n_outcomes > 2)
        if statistic(result) == "differences"
        else 0,
        "arm_counts": 0,
        "margins": 0,
        "guess": 0,
        "ends": 3 * has_counts,
        "randomiser": 0,
        "units": 0,
        "means": 0 if statistic(result) == "differences" else n_arms,
        "estimates": n_arms - 1,
    }
    assert (manifest.outcomes[0].grid_step is None) == has_counts


def sizes_of_result(result: ReleaseResult) -> Sizes:
    rows = released(result.path, "SELECT cluster, arm, n_units FROM main.strata").rows()
    return {(cluster, arm): n for cluster, arm, n in rows}


def test_its_scale_spends_all_of_epsilon(result: ReleaseResult) -> None:
    expected = {"counts": 2.0, "count-and-complement": 1.0, "differences": 8.0, "means": 8.0}
    if rows_of(result, "squares"):
        expected["differences"] = 8.0 / 0.95  # the rest pays for the sums of squares
    assert result.manifest.outcomes[0].noise_scale == pytest.approx(expected[statistic(result)])
    assert result.statement.spent.epsilon == 1.0


def test_sizes_are_public_and_whole(result: ReleaseResult) -> None:
    arms = {arm for _, arm in sizes_of_result(result)}
    assert sizes_of_result(result) == {key: size for key, size in SIZES.items() if key[1] in arms}
    pools = {(row["pool"], row["arm"]): row["n_units"] for row in rows_of(result, "pools")}
    assert pools["east", "none"] == 60
    assert pools["small clusters", "mail"] == 10


def rows_of(result: ReleaseResult, table: str) -> list[Row]:
    return released(result.path, table).to_dicts()


def test_columns_have_numbers_where_something_is_published_and_only_there(
    result: ReleaseResult,
) -> None:
    kind = statistic(result)
    has_counts = kind.startswith("count")
    for row in rows_of(result, "pools"):
        assert (row["noisy_mean"] is not None) == (kind == "means")
        own_difference = kind == "differences" and row["arm"] == "mail"
        assert (row["noisy_difference"] is not None) == own_difference
        assert row["mean_weight"] == (1.0 if has_counts or kind == "means" else None)
        has_squares = has_counts or kind == "differences"  # of whole arms, in table squares
        assert row["square_weight"] == (1.0 if has_squares else None)
    assert all(row["noisy_count"] is not None for row in rows_of(result, "counts"))
    kinds = dict(
        released(result.path, "DESCRIBE main.units").select("column_name", "column_type").rows()
    )
    labels = {name: kinds.pop(name) for name in ("cluster", "arm")}
    assert all(kind.startswith("ENUM(") for kind in labels.values())
    assert kinds == {name: kind for name, kind in TABLES["units"].items() if name not in labels}


def test_the_only_noise_is_that_of_the_scale(tmp_path: Path) -> None:
    """At ε = 600 noise is next to none (off with probability 1e-30): the sums are the log's."""
    log = log_of(SIZES)
    sums = log.group_by("region", "variant").agg(pl.col("clicks").mean(), pl.len()).rows()
    mean = {(cluster, arm): value for cluster, arm, value, _ in sums}
    for kind, sections in KINDS.items():
        fine = {**sections, "privacy": {**sections["privacy"], "epsilon": 600.0, "min_stratum": 1}}
        kept = log.filter(pl.col("variant").is_in([arm for _, arm in sizes_of(kind)]))
        path = build_experiment(tmp_path / kind, kept, **fine).run().path
        if kind == "count-and-complement":
            continue  # its grid is another
        for row in released(path, "pools").to_dicts():
            truth = mean[row["pool"], row["arm"]]
            if kind == "means":
                assert row["noisy_mean"] == pytest.approx(truth)
            elif kind == "differences" and row["arm"] == "mail":
                effect = truth - mean[row["pool"], "none"]
                assert row["noisy_difference"] == pytest.approx(effect)
        for row in released(path, "counts").to_dicts():
            there = (pl.col("region") == row["pool"]) & (pl.col("variant") == row["arm"])
            cell = kept.filter(there & (pl.col("clicks") == row["outcome"]))
            assert row["noisy_count"] == len(cell)


# estimates: by hand from the tables


@dataclass(frozen=True)
class Stratum:
    """A pool's arm: its part of all units, its units, Ŝ²(n − 1)/n, bounds of that, and noise."""

    share: float
    n: int
    spread: float
    most: float
    widest: float
    uncertain: float = 0.0

    @property
    def factor(self) -> float:
        return self.share**2 / (self.n - 1)


def sampling_by_hand(strata: list[Stratum]) -> tuple[float, float]:
    """Σ b² Ŝ²/n brought between its bounds, and half of its variance."""
    whole = sum(one.factor * one.spread for one in strata)
    bounds = (sum(one.factor * getattr(one, name) for one in strata) for name in ("most", "widest"))
    sampling = min(max(whole, 0.0), *bounds)
    usual = sampling / sum(one.share**2 / one.n for one in strata)
    scatter = sum(one.factor**2 * one.uncertain for one in strata) / 2
    for one in strata:
        more = one.n / (one.n - 1)
        own, noise = one.spread * more, one.uncertain * more**2
        if noise > 0:
            own = usual + (own - usual) * usual**2 / (usual**2 + noise)
        own = min(max(own, 0.0), min(one.most, one.widest) * more)
        scatter += (one.share**2 * own / one.n) ** 2 / (one.n + 1)
    return sampling, scatter


def of_squares(strata: list[Stratum], told: dict[str, Any]) -> tuple[float, float]:
    """The same by an arm's sum of squares: max k B̃, k = b²/(n (n − 1))."""
    k = max(one.factor / one.n for one in strata)
    most = sum(one.factor * one.widest for one in strata)
    sampling = min(max(k * told["noisy_square"], 0.0), most)
    whole = sum(one.factor for one in strata)
    scatter = sum((one.factor * sampling / whole) ** 2 / (one.n + 1) for one in strata)
    return sampling, scatter + (k * told["noise_scale"]) ** 2


def strata_by_hand(
    result: ReleaseResult, side: str, share: dict[str, float]
) -> tuple[float, float, float, list[Stratum]]:
    """An arm's mean, the variance and fourth cumulant of its noise, and its strata."""
    rows = {(row["pool"], row["arm"]): row for row in rows_of(result, "pools")}
    grid = np.array([row["outcome"] for row in rows_of(result, "outcomes")])
    counts = {
        (row["pool"], row["arm"], row["outcome"]): row["noisy_count"]
        for row in rows_of(result, "counts")
    }
    scale, width, center = result.manifest.outcomes[0].noise_scale, grid[-1] - grid[0], grid.mean()
    assert scale is not None
    second, fourth = laplace_cumulants(scale)
    far, steps = (grid - center) ** 2, grid - center
    squares = far - far.mean()
    if len(grid) == 2:
        steps, squares = np.diff(grid), np.diff(far)
    whole, noise, kurtosis = 0.0, 0.0, 0.0
    strata: list[Stratum] = []
    for pool, b in share.items():
        n, widest, uncertain = rows[pool, side]["n_units"], width**2 / 4, 0.0
        mean, v, k, spread = 0.0, 0.0, 0.0, None
        if statistic(result) == "means":
            mean, v, k = rows[pool, side]["noisy_mean"], second / n**2, fourth / n**4
        elif statistic(result) != "differences":
            noisy = np.array([counts[pool, side, y] for y in grid])
            mean = center + float(noisy @ (grid - center)) / n
            v, k = second * (steps**2).sum() / n**2, fourth * (steps**4).sum() / n**4
            uncertain = second * float((squares**2).sum()) / n**2
            found = far.mean() + float(noisy @ (far - far.mean())) / n
            spread = found - (mean - center) ** 2 + v
        inside = min(max(mean, grid[0]), grid[-1])
        most = (grid[-1] - inside) * (inside - grid[0]) + v
        if statistic(result) == "differences":
            most = widest
        spread = min(most, widest) if spread is None else spread
        strata.append(Stratum(b, n, spread, most, widest, uncertain))
        whole, noise, kurtosis = whole + b * mean, noise + b**2 * v, kurtosis + b**4 * k
    return whole, noise, kurtosis, strata


def by_hand(
    result: ReleaseResult, arm: str
) -> tuple[float, float, float, tuple[float, float], int]:
    """Estimate, variance, its noise, its law, and units; for the large clusters."""
    rows = {(row["pool"], row["arm"]): row for row in rows_of(result, "pools")}
    told = {row["arm"]: row for row in rows_of(result, "squares")}
    assert bool(told) == (
        statistic(result) == "differences" and len(rows_of(result, "outcomes")) > 2
    )
    arms = sorted({each for _, each in rows})
    units = {p: sum(rows[p, each]["n_units"] for each in arms) for p in ("east", "west")}
    total = sum(units.values())
    share = {pool: n / total for pool, n in units.items()}
    estimate = variance = noise = scatter = kurtosis = 0.0
    for side, sign in ((arm, 1), ("none", -1)):
        mean, own_noise, fourth, strata = strata_by_hand(result, side, share)
        sampling, doubt = of_squares(strata, told[side]) if told else sampling_by_hand(strata)
        estimate, variance, noise = estimate + sign * mean, variance + sampling, noise + own_noise
        scatter, kurtosis = scatter + doubt, kurtosis + fourth
    if statistic(result) == "differences":
        scale = result.manifest.outcomes[0].noise_scale
        assert scale is not None
        for pool, b in share.items():
            n_0, n_1 = rows[pool, "none"]["n_units"], rows[pool, arm]["n_units"]
            own, more = laplace_cumulants(scale * max(n_0, n_1) / math.gcd(n_0, n_1))
            step = 1.0 / math.lcm(n_0, n_1)
            estimate += b * rows[pool, arm]["noisy_difference"]
            noise += b**2 * own * step**2
            kurtosis += b**4 * more * step**4
    variance += noise
    law = max(1.0, variance**2 / scatter - 2), min(3.0, kurtosis / variance**2)
    return estimate, variance, noise, law, total


def test_an_estimate_is_what_the_published_numbers_come_to(result: ReleaseResult) -> None:
    wanted = "horvitz_thompson" if statistic(result) == "differences" else "histogram"
    assert {one.estimator for one in result.estimates} == {wanted}
    for one in result.estimates:
        estimate, variance, noise, law, n_units = by_hand(result, one.arm)
        error = math.sqrt(variance)
        reach = quantile(0.95, *law) * error
        assert one.estimate == pytest.approx(estimate, rel=1e-9, abs=1e-9)
        assert one.std_error == pytest.approx(error, rel=1e-9)
        assert one.privacy_std_error == pytest.approx(math.sqrt(noise), rel=1e-9)
        assert one.ci_lower == pytest.approx(estimate - reach, rel=1e-6)
        assert one.ci_upper == pytest.approx(estimate + reach, rel=1e-6)
        assert one.p_value == pytest.approx(p_value(abs(estimate) / error, *law), rel=1e-6)
        assert (one.control, one.segment, one.n_units) == ("none", None, n_units)
        assert (one.relative is None) or wanted == "histogram"


def test_the_level_moves_the_interval_alone(result: ReleaseResult) -> None:
    for usual, other in zip(result.estimates, estimate_file(result.path, 0.5), strict=True):
        assert (usual.estimate, usual.std_error) == (other.estimate, other.std_error)
        assert None not in (usual.ci_lower, other.ci_lower)
        assert (other.ci_lower or 0.0) > (usual.ci_lower or 0.0)


def test_shared_pools_count_where_every_cluster_had_the_same_shares(tmp_path: Path) -> None:
    for kind, sections in KINDS.items():
        arms = {**sections.get("arms", {}), "same_shares": True}
        log = log_of(sizes_of(kind))
        found = build_experiment(tmp_path / kind, log, **{**sections, "arms": arms}).run()
        assert {one.n_units for one in found.estimates} == {len(log)}


def test_without_anything_to_compare_no_number_is_made_up(experiment: Builder) -> None:
    log = log_of({("east", "none"): 30, ("east", "mail"): 1, ("west", "none"): 20})
    path = experiment(log, privacy=DIFFERENCES, outcome=SPREAD).run().path
    (found,) = estimate_file(path)
    assert (found.estimate, found.std_error, found.n_units) == (None, None, 0)
    assert released(path, "estimates").height == 0


def test_one_unit_of_an_arm_is_no_pool_to_compare_in(experiment: Builder) -> None:
    """Its difference is published, and left out: nothing could be said of its variance."""
    log = log_of(
        {("east", "none"): 9, ("east", "mail"): 1, ("west", "none"): 8, ("west", "mail"): 8}
    )
    built = experiment(log, privacy={**DIFFERENCES, "min_stratum": 1}, outcome=SPREAD)
    found = built.run()
    published = released(found.path, "FROM main.pools WHERE noisy_difference IS NOT NULL")
    assert published["pool"].to_list() == ["east", "west"]
    assert found.estimates[0].n_units == 16
    (of_west,) = published.filter(pl.col("pool") == "west")["noisy_difference"]
    assert found.estimates[0].estimate == pytest.approx(of_west)


# runs


def test_the_same_again_is_unchanged_and_free(built: Experiment, result: ReleaseResult) -> None:
    before = result.path.read_bytes()
    again = built.run()
    assert again.status == "unchanged"
    assert again.path.read_bytes() == before
    assert again.statement.spent.epsilon == 1.0
    assert again.estimates == result.estimates


def test_other_settings_conflict_and_a_revision_draws_anew(tmp_path: Path) -> None:
    log = log_of(sizes_of("differences"))
    for kind in ("counts", "differences"):
        built = build_experiment(tmp_path / kind, log, **KINDS[kind])
        first = built.run()
        text = built.config.read_text()
        other = {"counts": "noisy-histogram", "differences": "noisy-horvitz-thompson"}
        switched = text.replace(
            other[kind], next(name for name in other.values() if name != other[kind])
        )
        for changed in (switched, text.replace("epsilon = 1.0", "epsilon = 1.5")):
            assert changed != text
            built.config.write_text(changed)
            with pytest.raises(ConflictError):
                built.run()
        built.config.write_text(text)
        second = built.run(revise=True)
        assert second.statement.spent.epsilon == 2.0
        columns = ("noisy_count", "noisy_difference")  # the same noise again once in 10⁷ runs:
        published = [  # 16 counts at σ = 2, or 3 differences at σ max/g of 30 and more
            [row.get(name) for table in ("counts", "pools") for row in rows_of(one, table)
             for name in columns]
            for one in (first, second)
        ]  # fmt: skip
        assert published[0] != published[1]


def test_a_dry_run_knows_it(built: Experiment) -> None:
    checked = built.check()
    assert checked.chosen.designs[0].mechanism.name.startswith("noisy-")
    assert (checked.chosen.designs[0].epsilon, checked.chosen.designs[0].delta) == (1.0, 0.0)


def test_no_outcome_of_anybody_is_in_the_file(tmp_path: Path) -> None:
    log = log_of(sizes_of("differences")).with_columns(
        clicks=pl.when(pl.int_range(pl.len()) == 5).then(SENTINEL).otherwise("clicks"),
        customer=pl.format("canary-{}", pl.col("customer")),
    )
    for kind in ("counts", "differences"):
        path = build_experiment(tmp_path / kind, log, **KINDS[kind]).run().path
        content = path.read_bytes()
        assert b"canary-" not in content
        assert str(SENTINEL).encode() not in content
        assert np.float64(SENTINEL).tobytes() not in content


# what is said of it


def test_it_is_told_in_words_that_fit(result: ReleaseResult) -> None:
    text = release_text(result)
    what = {"means": "noisy means", "differences": "noisy differences between the arms"}
    assert f"{what.get(statistic(result), 'noisy counts')} of each cluster, and no units" in text
    assert "randomised" not in text
    assert f"({result.estimates[0].estimator})" in text
    inspected = inspect_text(read_release(result.path))
    assert "Clusters, arms and numbers of units are not protected" in inspected
    assert "Unit ids" not in inspected


def test_a_plan_predicts_the_effect_on_everybody(built: Experiment, result: ReleaseResult) -> None:
    """V = Σ b² Σ_a (V_s/n + V_stat/n²) over the large clusters, by the uniform guess."""
    found = plan(built.config, None)
    grid = np.array(found.outcomes[0].resolved_design.config.outcome.grid)
    scale = result.manifest.outcomes[0].noise_scale
    assert scale is not None
    second, _ = laplace_cumulants(scale)
    rows = {(row["pool"], row["arm"]): row["n_units"] for row in rows_of(result, "pools")}
    arms = sorted({arm for _, arm in rows})
    total = sum(rows[pool, arm] for pool in ("east", "west") for arm in arms)
    steps = grid - grid.mean() if len(grid) > 2 else np.diff(grid)
    of_counts = second * float((steps**2).sum())
    assert [one.segment_share for one in found.predicted] == [None] * (len(arms) - 1)
    for one in found.predicted:
        variance = 0.0
        for pool in ("east", "west"):
            b = sum(rows[pool, arm] for arm in arms) / total
            n_1, n_0 = rows[pool, found.arms[one.arm]], rows[pool, "none"]
            variance += b**2 * grid.var() * (1 / n_1 + 1 / n_0)
            if statistic(result) == "differences":
                own, _ = laplace_cumulants(scale * max(n_0, n_1) / math.gcd(n_0, n_1))
                variance += b**2 * own / math.lcm(n_0, n_1) ** 2
            else:
                noise = second if statistic(result) == "means" else of_counts
                variance += b**2 * noise * (1 / n_1**2 + 1 / n_0**2)
        assert one.std_error == pytest.approx(math.sqrt(variance), rel=1e-9)
    document = found.as_json()
    assert document["resampling_probability"] is None
    assert "not published, not even randomised" in plan_text(found)


@pytest.mark.parametrize("privacy", [HISTOGRAM, DIFFERENCES])
def test_a_plan_refuses_where_nothing_could_be_compared(
    experiment: Builder, privacy: Section
) -> None:
    log = log_of(
        {("east", "none"): 5, ("east", "mail"): 5, ("west", "none"): 4, ("west", "mail"): 6}
    )
    built = experiment(log, privacy={**privacy, "min_stratum": 7}, outcome=SPREAD)
    with pytest.raises(ConfigError, match=r"pool of its own has 2 units.*same_shares"):
        plan(built.config, None)


def test_a_plan_uses_shared_pools_where_shares_are_the_same(experiment: Builder) -> None:
    log = log_of(sizes_of("differences"))
    built = experiment(log, privacy=DIFFERENCES, outcome=SPREAD, arms={"same_shares": True})
    own = plan(built.config, None).predicted[0].std_error
    without = build_experiment(built.folder / "other", log, privacy=DIFFERENCES, outcome=SPREAD)
    assert own < plan(without.config, None).predicted[0].std_error


# the file by itself


def test_the_macro_gives_the_estimates_also_attached(result: ReleaseResult) -> None:
    first = ["metric", "arm", "estimate", "ci_lower", "ci_upper"]
    others = (name for name in TABLES["estimates"] if name not in {*first, "estimator"})
    columns = [*first, *others, "estimator"]
    with duckdb.connect(str(result.path), read_only=True) as connection:
        own = connection.sql("SELECT * EXCLUDE (effect, note) FROM ate()").fetchall()
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{result.path}' AS rel (READ_ONLY)")
        query = "SELECT * EXCLUDE (effect, note) FROM rel.ate('rel')"
        attached = connection.sql(query).fetchall()
    wanted = [tuple(asdict(one)[name] for name in columns) for one in result.estimates]
    assert own == attached == sorted(wanted, key=lambda row: row[1])


def test_slices_are_refused_with_the_reason(result: ReleaseResult, tmp_path: Path) -> None:
    segments = pl.DataFrame({"unit_id": ["c00001"], "segment": ["young"]})
    segments.write_csv(tmp_path / "segments.csv")
    with pytest.raises(InputError, match="has no units, so nothing can be sliced: noisy-"):
        estimate_segments(result.path, tmp_path / "segments.csv")
    with duckdb.connect(str(result.path), read_only=True) as connection:
        connection.register("mine", segments.to_arrow())
        with pytest.raises(duckdb.Error, match="has no units, so nothing can be sliced"):
            connection.sql("FROM ate_by_segment('mine')").fetchall()


# the configuration


@pytest.mark.parametrize("mechanism", ["noisy-histogram", "noisy-horvitz-thompson"])
@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("privacy.resampling_probability", {"resampling_probability": 0.5}),
        ("privacy.truncation_threshold", {"truncation_threshold": 0.1}),
        ("privacy.strata_statistic", {"strata_statistic": "means"}),
        ("privacy.noise_scale", {"noise_scale": 3.0}),
        ("privacy.epsilon", {"epsilon": None}),
    ],
)
def test_keys_that_do_not_go_with_it_are_named(
    experiment: Builder, mechanism: str, key: str, given: Section
) -> None:
    built = experiment(privacy={"mechanism": mechanism, "epsilon": 1.0, **given})
    with pytest.raises(ConfigError) as caught:
        built.load()
    assert caught.value.key == key


def test_a_grid_on_no_lattice_is_refused_for_differences_alone(experiment: Builder) -> None:
    odd = {"values": [0, 1, 3.14159265]}
    with pytest.raises(ConfigError, match="whole steps apart"):
        experiment(outcome=odd, privacy=DIFFERENCES).load()
    assert experiment(outcome=odd, privacy=HISTOGRAM).load().cost.epsilon == 1.0


def test_a_noise_scale_in_place_of_epsilon_is_priced(experiment: Builder) -> None:
    privacy = {"mechanism": "noisy-horvitz-thompson", "epsilon": None, "noise_scale": 4.0}
    built = experiment(privacy=privacy, outcome=SPREAD)
    result = built.run()
    assert result.manifest.outcomes[0].noise_scale == 4.0
    assert result.manifest.epsilon == pytest.approx(8 / 4.0, rel=1e-12)
    assert result.manifest.epsilon >= 2.0
    assert result.statement.spent.epsilon == result.manifest.epsilon


def test_with_a_coarse_grid_outcomes_are_rounded_once(experiment: Builder) -> None:
    """Every outcome lies half-way: means are right on average, and counts are whole.

    At ε = 600 the noise is none; the mean of 4,000 is off by 6 standard errors once in 10⁹ runs.
    """
    log = a_log(8000, clusters=("east",)).with_columns(clicks=pl.lit(1.0))
    privacy = {"mechanism": "noisy-histogram", "epsilon": 600.0}
    path = experiment(log, outcome={"values": [0, 2]}, privacy=privacy).run().path
    counts = released(path, "FROM main.counts ORDER BY arm, outcome")["noisy_count"].to_list()
    assert [counts[0] + counts[1], counts[2] + counts[3]] == [4000, 4000]
    assert_near(np.array(counts[::2]), 2000.0, math.sqrt(1000), 6.0)


def test_an_estimate_prints_for_people(result: ReleaseResult) -> None:
    found: list[Estimate] = estimate_file(result.path)
    assert run(["estimate", str(result.path)]) == 0
    assert run(["inspect", str(result.path)]) == 0
    assert len(found) == len(result.estimates)
