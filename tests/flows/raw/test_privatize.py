"""From kept rows to the tables of a release: what they hold, in which order, drawn with what."""

import hmac
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.validate import validate
from privatizers.mechanisms.randomised_response import RandomisedResponse, ResponseTables
from privatizers.noise.randomness import UNIT
from schemas.names import ReleaseName
from schemas.released import TABLES, Manifest, ReleaseTables
from tests.conftest import EXACT, Builder, Experiment, a_log, made_units, rows


@dataclass(frozen=True)
class Tables:
    """What is released, all of it in memory."""

    manifest: Manifest
    outcomes: pl.DataFrame
    pools: pl.DataFrame
    strata: pl.DataFrame
    debias: pl.DataFrame
    counts: pl.DataFrame
    arm_counts: pl.DataFrame
    squares: pl.DataFrame
    margins: pl.DataFrame
    randomiser: pl.DataFrame
    guess: pl.DataFrame
    units: pl.DataFrame

    @classmethod
    def of(cls, tables: ReleaseTables) -> "Tables":
        return cls(tables.manifest, **tables.frames(), units=made_units(tables))

    def frames(self) -> dict[str, pl.DataFrame]:
        return {name: frame for name, frame in vars(self).items() if name != "manifest"}


def tables_of(built: Experiment) -> Tables:
    config = built.load()
    kept, _, _ = validate(config.log_facts, ingest(config.log_source, "once"))
    return Tables.of(privatize(config, kept, config.design(), ReleaseName("trial", "once", 1)))


def strata_of(tables: Tables) -> list[tuple[Any, ...]]:
    return tables.strata.drop("own_sizes").rows()


# the tables


@pytest.mark.parametrize("mechanism", ["cluster-dp", "cluster-free-dp", "uniform-prior-dp"])
def test_every_frame_has_the_columns_of_its_table(experiment: Builder, mechanism: str) -> None:
    tables = tables_of(experiment(privacy={"mechanism": mechanism}))
    for name, frame in tables.frames().items():
        known_later = ("outcome", "weight") if name == "units" else ()  # once units are drawn
        assert frame.columns == [one for one in TABLES[name] if one not in known_later]


def test_strata_pools_and_units_count_the_same_people(experiment: Builder) -> None:
    sizes = {("east", "none"): 30, ("east", "mail"): 25, ("west", "none"): 4, ("west", "mail"): 11}
    tables = tables_of(experiment(log_of(sizes)))
    strata = {(cluster, arm): n for cluster, arm, _, n, _ in tables.strata.rows()}
    assert strata == sizes
    units = tables.units.group_by("cluster", "arm").len()
    assert {(cluster, arm): n for cluster, arm, n in units.rows()} == sizes
    pooled = tables.strata.group_by("pool", "arm").agg(pl.col("n_units").sum())
    assert sorted(pooled.rows()) == sorted(tables.pools.select("pool", "arm", "n_units").rows())
    assert tables.manifest.n_units == 70
    assert tables.manifest.n_clusters == 2


def log_of(sizes: dict[tuple[str, str], int]) -> pl.DataFrame:
    """A log with so many units in each (cluster, arm)."""
    people = [key for key, size in sizes.items() for _ in range(size)]
    return rows(
        *[(f"c{i:04d}", arm, cluster, float(i % 4)) for i, (cluster, arm) in enumerate(people)]
    )


def test_text_is_never_missing_and_numbers_only_where_there_is_no_statistic(
    experiment: Builder,
) -> None:
    for name, frame in tables_of(experiment()).frames().items():
        missing = {column for column in frame.columns if frame[column].null_count()}
        expected = {"pools": {"noisy_mean", "noisy_difference", "table"}, "debias": {"table"}}
        assert missing == expected.get(name, set())


# pools


def test_large_clusters_have_pools_of_their_own(experiment: Builder) -> None:
    built = experiment(log_of({(c, a): 10 for c in ("east", "west") for a in ("none", "mail")}))
    assert [(cluster, pool) for cluster, _, pool, _ in strata_of(tables_of(built))] == [
        ("east", "east"),
        ("east", "east"),
        ("west", "west"),
        ("west", "west"),
    ]


def test_small_clusters_share_a_pool(experiment: Builder) -> None:
    sizes = {(c, a): 10 for c in ("east", "north", "south", "west") for a in ("none", "mail")}
    sizes |= {("north", "mail"): 9, ("south", "none"): 1}
    pools = {
        cluster: pool for cluster, _, pool, _ in strata_of(tables_of(experiment(log_of(sizes))))
    }
    assert pools == {
        "east": "east",
        "north": "small clusters",
        "south": "small clusters",
        "west": "west",
    }


def test_a_lone_small_cluster_keeps_its_name(experiment: Builder) -> None:
    sizes = {("east", "none"): 10, ("east", "mail"): 10, ("west", "none"): 2, ("west", "mail"): 2}
    pools = {
        cluster: pool for cluster, _, pool, _ in strata_of(tables_of(experiment(log_of(sizes))))
    }
    assert pools == {"east": "east", "west": "west"}


@pytest.mark.parametrize("name", ["small clusters", "all"])
def test_a_cluster_named_like_a_pool_is_not_mistaken_for_it(experiment: Builder, name: str) -> None:
    sizes = {(name, "none"): 12, (name, "mail"): 12}
    sizes |= {(c, a): 3 for c in ("east", "west") for a in ("none", "mail")}
    tables = tables_of(experiment(log_of(sizes)))
    pools = {cluster: pool for cluster, _, pool, _ in strata_of(tables)}
    assert pools[name] == name
    assert pools["east"] == pools["west"] != name
    by_pool = dict(tables.pools.filter(pl.col("arm") == "none").select("pool", "n_units").rows())
    assert by_pool == {name: 12, pools["east"]: 6}


def test_where_all_clusters_are_small_there_is_one_pool(experiment: Builder) -> None:
    sizes = {(c, a): 3 for c in ("east", "west") for a in ("none", "mail")}
    tables = tables_of(experiment(log_of(sizes)))
    assert tables.strata["pool"].unique().to_list() == ["all"]
    assert tables.strata["cluster"].unique().sort().to_list() == ["east", "west"]


def test_cluster_free_has_one_pool_and_strata_by_cluster(experiment: Builder) -> None:
    tables = tables_of(experiment(privacy={"mechanism": "cluster-free-dp"}))
    assert tables.pools.select("pool", "arm", "n_units").rows() == [
        ("all", "none", 120),
        ("all", "mail", 120),
    ]
    assert strata_of(tables) == [
        (cluster, arm, "all", 60) for cluster in ("east", "west") for arm in ("none", "mail")
    ]


def test_without_clusters_there_is_one_named_all(experiment: Builder) -> None:
    tables = tables_of(experiment(columns={"cluster": None}))
    assert strata_of(tables) == [("all", "none", "all", 120), ("all", "mail", "all", 120)]
    assert tables.units["cluster"].unique().to_list() == ["all"]


def test_a_single_cluster_keeps_its_name_in_a_pool_named_all(experiment: Builder) -> None:
    tables = tables_of(experiment(a_log(clusters=("east",))))
    assert strata_of(tables) == [("east", "none", "all", 120), ("east", "mail", "all", 120)]


# what is published of the strata


def noisy_sums(tables: Tables) -> dict[tuple[str, str], int]:
    sums = tables.counts.group_by("pool", "arm").agg(pl.col("noisy_count").sum())
    return {(pool, arm): total for pool, arm, total in sums.rows()}


def sizes_of(tables: Tables) -> dict[tuple[str, str], int]:
    sizes = tables.pools.select("pool", "arm", "n_units").rows()
    return {(pool, arm): n for pool, arm, n in sizes}


def many_clusters(n_outcomes: int) -> pl.DataFrame:
    return a_log(1000, clusters=tuple(f"c{i:02d}" for i in range(25)), n_outcomes=n_outcomes)


@pytest.mark.parametrize("mechanism", ["cluster-dp", "cluster-free-dp", "uniform-prior-dp"])
def test_two_outcomes_share_one_noise(experiment: Builder, mechanism: str) -> None:
    built = experiment(
        many_clusters(2), outcome={"values": [0, 1]}, privacy={"mechanism": mechanism}
    )
    tables = tables_of(built)
    assert tables.manifest.outcomes[0].strata_statistic == "count-and-complement"
    assert noisy_sums(tables) == sizes_of(tables)


def test_three_outcomes_have_a_noise_each(experiment: Builder) -> None:
    """At σ = 100 all 50 sums come out unchanged with probability under 10⁻¹⁰⁰."""
    privacy = {"mechanism": "auto", "epsilon": None, "resampling_probability": 0.5}
    built = experiment(
        many_clusters(3), outcome={"values": [0, 1, 2]}, privacy={**privacy, "noise_scale": 100.0}
    )
    tables = tables_of(built)
    assert tables.manifest.outcomes[0].strata_statistic == "counts"
    assert tables.manifest.outcomes[0].noise_scale == 100.0
    assert noisy_sums(tables) != sizes_of(tables)


@pytest.mark.parametrize("values", [[0, 1], [0, 1, 2]])
def test_without_a_statistic_there_is_no_count_and_no_noise(
    experiment: Builder, values: list[int]
) -> None:
    tables = tables_of(experiment(outcome={"values": values}, privacy=EXACT))
    assert tables.manifest.outcomes[0].strata_statistic == "none"
    assert tables.manifest.outcomes[0].noise_scale is None
    assert tables.counts.is_empty()


def test_the_counts_are_of_the_raw_outcomes(experiment: Builder) -> None:
    """With hardly any noise they are the counts themselves; wrong with probability e⁻¹⁰⁰⁰."""
    privacy = {"mechanism": "auto", "epsilon": None, "resampling_probability": 0.9}
    log = a_log(200)
    tables = tables_of(experiment(log, privacy={**privacy, "noise_scale": 1e-3}))
    counted = log.group_by("region", "variant", "clicks").len().rows()
    published = tables.counts.drop("metric").rows()
    assert sorted(row for row in published if row[3]) == sorted(counted)


# what is drawn, and with what


@pytest.fixture
def drawn_with(monkeypatch: pytest.MonkeyPatch) -> list[RandomisedResponse]:
    """The randomised responses that outcomes are drawn with."""
    seen: list[RandomisedResponse] = []
    tables = RandomisedResponse.tables

    def spy(self: RandomisedResponse) -> ResponseTables:
        seen.append(self)
        return tables(self)

    monkeypatch.setattr(RandomisedResponse, "tables", spy)
    return seen


@pytest.mark.parametrize("mechanism", ["cluster-dp", "cluster-free-dp", "uniform-prior-dp"])
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_the_published_probabilities_are_exactly_those_used(
    experiment: Builder,
    drawn_with: list[RandomisedResponse],
    mechanism: str,
    epsilon: float,
) -> None:
    built = experiment(
        many_clusters(3),
        outcome={"values": [0, 1, 2]},
        privacy={"mechanism": mechanism, "epsilon": epsilon},
    )
    tables = tables_of(built)
    (response,) = drawn_with
    assert tables.manifest.outcomes[0].resampling_probability == response.resampling_probability
    assert tables.debias["probability"].to_list() == response.prior.ravel().tolist()


@pytest.mark.parametrize("mechanism", ["cluster-dp", "cluster-free-dp", "uniform-prior-dp"])
def test_published_probabilities_add_up_and_respect_their_floor(
    experiment: Builder, mechanism: str
) -> None:
    built = experiment(
        many_clusters(3), outcome={"values": [0, 1, 2]}, privacy={"mechanism": mechanism}
    )
    tables = tables_of(built)
    rate, floor = (
        tables.manifest.outcomes[0].resampling_probability,
        tables.manifest.outcomes[0].truncation_threshold,
    )
    assert rate is not None
    assert floor is not None
    assert (rate * UNIT).is_integer()
    for (_, _), cell in tables.debias.group_by("pool", "arm"):
        exact = [Fraction(probability) for probability in cell["probability"]]
        assert sum(exact) == 1
        assert all((p * UNIT).denominator == 1 for p in exact)
        assert min(exact) >= Fraction(floor)


@pytest.mark.parametrize("mechanism", ["cluster-dp", "cluster-free-dp", "uniform-prior-dp"])
def test_weights_undo_the_published_response(experiment: Builder, mechanism: str) -> None:
    """yᵀQ⁻¹ solved with the whole matrix Q, for every pool and arm."""
    tables = tables_of(experiment(privacy={"mechanism": mechanism}))
    rate = tables.manifest.outcomes[0].resampling_probability
    assert rate is not None
    for (_, _), cell in tables.debias.group_by("pool", "arm", maintain_order=True):
        outcomes, prior, weights = (
            cell[name].to_numpy() for name in ("outcome", "probability", "weight")
        )
        matrix = (1 - rate) * np.eye(len(outcomes)) + rate * np.tile(prior[:, None], len(outcomes))
        assert np.linalg.solve(matrix.T, outcomes) == pytest.approx(weights, rel=1e-9, abs=1e-9)


def test_every_unit_carries_the_weight_of_its_pool_arm_and_outcome(experiment: Builder) -> None:
    sizes = {(c, a): n for n, c in ((12, "east"), (3, "west"), (4, "n")) for a in ("none", "mail")}
    tables = tables_of(experiment(log_of(sizes)))
    debias = tables.debias.with_columns(pl.col("pool", "arm").cast(pl.String))
    joined = tables.units.join(tables.strata.drop("n_units"), on=["cluster", "arm"]).join(
        debias.rename({"outcome": "outcome_randomised"}),
        on=["pool", "arm", "outcome_randomised"],
        validate="m:1",
    )
    assert len(joined) == tables.manifest.n_units
    assert (joined["outcome_debiased"] == joined["weight"]).all()


def test_released_outcomes_lie_on_the_grid(experiment: Builder) -> None:
    log = a_log(400).with_columns(clicks=pl.col("clicks") * 77.7 - 50)
    tables = tables_of(experiment(log, outcome={"values": [-1.5, 0, 2.25]}))
    assert set(tables.units["outcome_randomised"]) == {-1.5, 0.0, 2.25}
    assert tables.outcomes["outcome"].to_list() == [-1.5, 0.0, 2.25]


@pytest.mark.parametrize(("rounding", "expected"), [("nearest", {1.0}), ("stochastic", {1.0, 2.0})])
def test_outcomes_between_grid_points_are_rounded_as_declared(
    experiment: Builder, rounding: str, expected: set[float]
) -> None:
    """1.4 goes up with probability 0.4: among 400 units all or none do with probability 10⁻⁸⁸."""
    log = a_log(400).with_columns(clicks=pl.lit(1.4))
    tables = tables_of(experiment(log, outcome={"rounding": rounding}, privacy=EXACT))
    assert set(tables.units["outcome_randomised"]) == expected


def test_two_runs_do_not_draw_the_same(experiment: Builder) -> None:
    """400 outcomes resampled from 4: alike with probability under 10⁻¹⁰⁰."""
    built = experiment(a_log(400), privacy={"epsilon": 0.1})
    first, second = (tables_of(built).units["outcome_randomised"].to_list() for _ in range(2))
    assert first != second


# the order of rows


def order_of(tables: Tables) -> dict[str, list[tuple[Any, ...]]]:
    """What stands in each row besides what is drawn."""
    return {
        "outcomes": tables.outcomes.rows(),
        "pools": tables.pools.rows(),
        "strata": tables.strata.rows(),
        "debias": tables.debias.select("pool", "arm", "outcome").rows(),
        "counts": tables.counts.select("pool", "arm", "outcome").rows(),
        "units": tables.units.select("unit_id", "cluster", "arm").rows(),
    }


def in_three_clusters(ids: str) -> pl.DataFrame:
    """A log whose ids are texts, or integers that do not rise with the rows."""
    log = a_log(300, clusters=("west", "east", "north"))
    mixed = (pl.int_range(300) * 7919) % 1009
    return log.with_columns(customer=mixed) if ids == "integer" else log


@pytest.mark.parametrize("mechanism", ["cluster-dp", "cluster-free-dp", "uniform-prior-dp"])
@pytest.mark.parametrize("ids", ["text", "integer"])
def test_a_log_sorted_by_outcome_leaves_no_trace_in_any_order(
    experiment: Builder, mechanism: str, ids: str
) -> None:
    log = in_three_clusters(ids)
    orders = [
        order_of(tables_of(experiment(shuffled, privacy={"mechanism": mechanism})))
        for shuffled in (
            log.sort("clicks"),
            log.sort("clicks", descending=True),
            log[::7].vstack(pl.concat([log[offset::7] for offset in range(1, 7)])),
        )
    ]
    assert orders[0] == orders[1] == orders[2]
    released = [unit for unit, _, _ in orders[0]["units"]]
    assert released == sorted(released) == sorted(log["customer"])


# identifiers


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (pl.Series(["b", "a", "é", "A"]), pl.String),
        (pl.Series([3, -1, 10, 2], dtype=pl.Int32), pl.Int64),
        (pl.Series([2**64 - 1, 0, 2**63, 7], dtype=pl.UInt64), pl.UInt64),
    ],
)
def test_unit_ids_keep_their_type_and_value(
    experiment: Builder, ids: pl.Series, kind: type[pl.DataType]
) -> None:
    units = tables_of(experiment(a_log(4).with_columns(ids.alias("customer")))).units["unit_id"]
    assert units.dtype == kind
    assert units.to_list() == sorted(ids.to_list())


HASHED = {"unit_id": "keyed-hash", "key_file": "../key"}


@pytest.fixture
def key(tmp_path: Path) -> bytes:
    """A key beside the experiment's folder, where ``HASHED`` looks for it."""
    (tmp_path / "key").write_bytes(b"a key of some length")
    return b"a key of some length"


def hashed(key: bytes, unit: object) -> str:
    return hmac.new(key, str(unit).encode(), "sha256").hexdigest()


@pytest.mark.parametrize("ids", ["text", "integer"])
def test_hashed_ids_stand_with_their_own_rows_and_in_their_own_order(
    experiment: Builder, key: bytes, ids: str
) -> None:
    log = in_three_clusters(ids)
    tables = tables_of(experiment(log, publish=HASHED, privacy=EXACT))
    expected = sorted(
        (hashed(key, unit), *facts) for unit, *facts in zip(*by_column(log), strict=True)
    )
    assert tables.units["unit_id"].dtype == pl.String
    assert tables.units.select("unit_id", "arm", "cluster", "outcome_randomised").rows() == expected
    debiased = tables.units["outcome_debiased"].to_list()
    assert debiased == pytest.approx([row[3] for row in expected], abs=1e-9)


def by_column(log: pl.DataFrame) -> list[list[Any]]:
    return [log[name].to_list() for name in ("customer", "variant", "region", "clicks")]


def test_no_raw_id_is_in_a_release_of_hashed_ones(experiment: Builder, key: bytes) -> None:
    log = a_log(100)
    tables = tables_of(experiment(log, publish=HASHED))
    released = "\n".join(frame.write_csv() for frame in tables.frames().values())
    released += repr(tables.manifest)
    assert hashed(key, "c00007") in released
    assert [unit for unit in log["customer"] if unit in released] == []


def test_the_order_of_hashed_ids_is_another_than_that_of_raw_ones(
    experiment: Builder, key: bytes
) -> None:
    log = a_log(300)
    raw = {hashed(key, unit): position for position, unit in enumerate(log["customer"])}
    units = tables_of(experiment(log, publish=HASHED)).units["unit_id"].to_list()
    assert units == sorted(raw)
    assert [raw[unit] for unit in units] != list(range(300))


# the manifest


def test_the_manifest_says_what_was_done(experiment: Builder) -> None:
    manifest = tables_of(experiment(arms={"same_shares": True})).manifest
    assert (manifest.release_id, manifest.experiment) == ("trial.once.r1", "trial")
    assert (manifest.period, manifest.revision) == ("once", 1)
    assert manifest.created_at.tzinfo is None
    assert (manifest.mechanism, manifest.epsilon, manifest.delta) == ("cluster-dp", 2.0, 0.0)
    assert manifest.neighbours == "one unit's outcome (substitution)"
    assert (manifest.control, manifest.same_shares, manifest.outcomes[0].n_outcomes) == (
        "none",
        True,
        4,
    )
    assert manifest.outcomes[0].truncation_threshold == 1 / 8
    assert manifest.outcomes[0].noise_scale == pytest.approx(2 / 0.2)


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 3])
def test_the_epsilon_asked_for_is_published(experiment: Builder, epsilon: float) -> None:
    manifest = tables_of(experiment(privacy={"epsilon": epsilon})).manifest
    assert manifest.epsilon == epsilon


def test_given_parameters_are_published_with_the_loss_they_have(experiment: Builder) -> None:
    privacy = {"resampling_probability": 0.8, "truncation_threshold": 0.02, "noise_scale": 10.0}
    manifest = tables_of(experiment(privacy={"epsilon": None, **privacy})).manifest
    rate, floor = (
        manifest.outcomes[0].resampling_probability,
        manifest.outcomes[0].truncation_threshold,
    )
    assert rate is not None
    assert floor is not None
    assert (rate, floor, manifest.outcomes[0].noise_scale) == pytest.approx(
        (0.8, 0.02, 10.0), rel=1e-12
    )
    loss = 2 / 10 + math.log(1 + (1 - rate) / (rate * floor))
    assert manifest.epsilon == pytest.approx(loss, rel=1e-12)
