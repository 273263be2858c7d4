"""The first exposure fixes a unit's arm and cluster; units seen with two arms are set aside."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from flows.raw.units.exposures import Exposures, first_exposures
from schemas.raw import event_rules, rules

CLUSTERS = pl.Enum(["west", "east", "north"])  # in an order that is not that of the text
SCHEMA: dict[str, Any] = {
    "unit": pl.Int64,
    "arm": pl.UInt32,
    "cluster": CLUSTERS,
    "time": pl.Int64,
    "source_file": pl.UInt32,
    "source_row": pl.UInt64,
    "fault": pl.UInt8,
}
N_UNITS = 3000

Line = tuple[int, int | None, str | None, int | None, int, int, int]


def frame(*lines: Line) -> pl.DataFrame:
    """Exposures of these (unit, arm, cluster, time, file, row, fault)."""
    return pl.DataFrame(lines, SCHEMA, orient="row")


def a_log(rng: np.random.Generator) -> pl.DataFrame:
    """Thousands of small logs at once, one a unit, with every fault."""
    n = 3 * N_UNITS
    lines = pl.DataFrame(
        {
            "unit": rng.integers(0, N_UNITS, n),
            "arm": rng.choice([0, 1, 2, 3], n, p=[0.8, 0.1, 0.05, 0.05]),
            "cluster": rng.choice(["west", "east", "north"], n),
            "time": rng.integers(0, 3, n),
            "source_file": rng.integers(0, 3, n),
            "source_row": rng.permutation(n),
        }
    ).with_columns(
        pl.when(pl.col("arm") < 3).then("arm"),  # 2 is not declared
        pl.when(pl.Series(rng.random(n) < 0.95)).then("cluster"),
        pl.when(pl.Series(rng.random(n) < 0.95)).then("time"),
    )
    nulls = pl.any_horizontal(pl.col("arm", "cluster", "time").is_null())
    faulty = nulls | (pl.col("arm") == 2).fill_null(value=True)
    return lines.with_columns(fault=faulty.cast(pl.UInt8)).select(
        *(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
    )


def slowly(exposures: pl.DataFrame, broken: str = "") -> tuple[list[Line], set[Line]]:
    """The rules as they are written, a unit at a time; or with one of them ``broken``."""
    by_unit: dict[int, list[Any]] = {}
    for line in exposures.rows():
        by_unit.setdefault(line[0], []).append(line)
    kept: list[Line] = []
    contaminated: set[Line] = set()
    for unit in sorted(by_unit):
        sound = [line for line in by_unit[unit] if line[6] == 0]
        judged = sound if broken == "judges sound rows alone" else by_unit[unit]
        if len({line[1] for line in judged}) > 1:
            contaminated |= set(sound)
        elif sound:
            order = (3, 4, 5, 2) if broken == "asks the file before the cluster" else (3, 2, 4, 5)
            pick = max if broken == "takes the last" else min
            kept.append(pick(sound, key=lambda line: [line[at] for at in order]))
    return kept, contaminated


def agree(found: Exposures, expected: tuple[list[Line], set[Line]]) -> bool:
    kept, contaminated = expected
    return found.kept.rows() == kept and set(found.contaminated.rows()) == contaminated


@pytest.mark.parametrize("seed", range(4))
def test_every_small_log_gives_what_the_rules_say(seed: int) -> None:
    log = a_log(np.random.default_rng(seed))
    found = first_exposures(log)
    assert agree(found, slowly(log))
    assert found.kept.schema == found.contaminated.schema == log.schema
    assert found.contaminated.height > 100
    assert found.kept.height > 100


@pytest.mark.parametrize(
    "broken", ["judges sound rows alone", "takes the last", "asks the file before the cluster"]
)
def test_the_comparison_notices_a_broken_rule(broken: str) -> None:
    """Negative control of the test above."""
    log = a_log(np.random.default_rng(0))
    assert not agree(first_exposures(log), slowly(log, broken))


@pytest.mark.parametrize("unit", [pl.Int64, pl.UInt64, pl.String])
@pytest.mark.parametrize("cluster", [CLUSTERS, pl.Categorical])
def test_order_and_parts_change_nothing(unit: type[pl.DataType], cluster: pl.DataType) -> None:
    rng = np.random.default_rng(7)
    log = a_log(rng).with_columns(pl.col("unit").cast(unit))
    log = log.with_columns(pl.col("cluster").cast(pl.String).cast(cluster))
    whole = first_exposures(log)
    assert whole.kept["unit"].to_list() == sorted(whole.kept["unit"])
    for seed in range(4):
        shuffled = log.sample(fraction=1.0, shuffle=True, seed=seed)
        assert_frame_equal(first_exposures(shuffled).kept, whole.kept)
        part = pl.Series(rng.integers(0, 4, N_UNITS)).gather(shuffled["unit"].cast(pl.Int64))
        parts = [first_exposures(shuffled.filter(part == number)) for number in range(4)]
        assert_frame_equal(pl.concat([one.kept for one in parts]).sort("unit"), whole.kept)
        found = pl.concat([one.contaminated for one in parts])
        assert_frame_equal(found, whole.contaminated, check_row_order=False)


def test_rows_that_were_logged_again_change_no_unit() -> None:
    """A copy has a file and row of its own; the unit, its arm, cluster and time stay."""
    log = a_log(np.random.default_rng(8))
    copies = log.with_columns(pl.col("source_file") + 9)
    once, twice = first_exposures(log), first_exposures(pl.concat([copies, log]))
    assert_frame_equal(twice.kept, once.kept)
    assert twice.contaminated.height == 2 * once.contaminated.height


def test_repeated_exposures_in_one_arm_are_no_fault() -> None:
    found = first_exposures(
        frame((1, 0, "east", 9, 0, 1, 0), (1, 0, "west", 4, 0, 2, 0), (1, 0, "east", 5, 0, 3, 0))
    )
    assert found.kept.rows() == [(1, 0, "west", 4, 0, 2, 0)]
    assert found.contaminated.is_empty()


def test_of_exposures_at_one_time_the_clusters_name_decides() -> None:
    found = first_exposures(frame((1, 0, "west", 4, 0, 1, 0), (1, 0, "east", 4, 1, 2, 0)))
    assert found.kept["cluster"].to_list() == ["east"]


@pytest.mark.parametrize(
    "other",
    [
        (1, 1, "east", 9, 0, 2, 0),
        (1, 2, "east", 9, 0, 2, 3),  # not declared
        (1, None, "east", 9, 0, 2, 1),
        (1, 1, None, 9, 0, 2, 2),
        (1, 1, "east", None, 0, 2, 4),
    ],
)
def test_any_row_with_another_arm_contaminates_its_unit(other: Line) -> None:
    sound: Line = (1, 0, "east", 1, 0, 1, 0)
    found = first_exposures(frame(other, sound))
    assert found.kept.is_empty()
    assert found.contaminated.rows() == sorted({sound, other} if other[6] == 0 else {sound})


@pytest.mark.parametrize("other", [(1, 0, None, 0, 0, 2, 2), (1, 0, "west", None, 0, 2, 4)])
def test_a_faulty_row_in_the_same_arm_does_its_unit_no_harm(other: Line) -> None:
    sound: Line = (1, 0, "east", 1, 0, 1, 0)
    found = first_exposures(frame(other, sound))
    assert found.kept.rows() == [sound]
    assert found.contaminated.is_empty()


def test_a_unit_of_faulty_rows_alone_is_nowhere() -> None:
    found = first_exposures(frame((1, 2, "east", 1, 0, 1, 3), (1, None, "east", 1, 0, 2, 1)))
    assert found.kept.is_empty()
    assert found.contaminated.is_empty()


def test_no_rows_give_no_units() -> None:
    found = first_exposures(frame())
    assert found.kept.schema == frame().schema
    assert found.kept.is_empty()
    assert found.contaminated.is_empty()


def test_a_sound_row_without_a_time_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="time_missing was not applied"):
        first_exposures(frame((1, 0, "east", None, 0, 1, 0)))


def test_the_rules_of_exposures_are_those_of_units_with_a_time() -> None:
    names = [rule.name for rule in event_rules(("none", "mail"))]
    assert names == [
        "unit_missing",
        "arm_missing",
        "cluster_missing",
        "arm_not_declared",
        "time_missing",
        "unit_in_two_arms",
    ]
    assert "time_missing" not in {rule.name for rule in rules(("none", "mail"))}


def test_the_rule_of_two_arms_is_the_same_in_both_grains() -> None:
    """What the schema's expression says of whole units is what the function finds."""
    log = a_log(np.random.default_rng(9))
    two_arms = event_rules(("none", "mail"))[-1]
    broken = log.filter(two_arms.faulty & (pl.col("fault") == 0))
    found = first_exposures(log).contaminated
    assert_frame_equal(found, broken, check_row_order=False)


def test_a_missing_time_breaks_its_rule() -> None:
    (untimed,) = (rule for rule in event_rules(("none",)) if rule.name == "time_missing")
    log = frame((1, 0, "east", None, 0, 1, 0), (2, 0, "east", 0, 0, 2, 0))
    assert log.select(untimed.faulty).to_series().to_list() == [True, False]


# public facts


def with_facts(rng: np.random.Generator, log: pl.DataFrame) -> pl.DataFrame:
    """Facts of every kind, which a unit's exposures state differently now and then."""
    n = log.height
    texts = pl.Series(rng.choice(["a", "b", ""], n))
    return log.with_columns(
        pl.when(pl.Series(rng.random(n) < 0.9)).then(texts).alias("text"),
        pl.when(pl.Series(rng.random(n) < 0.9)).then(pl.Series(rng.integers(0, 2, n))).alias("int"),
        pl.Series("truth", rng.random(n) < 0.5),
        pl.Series("number", rng.choice([0.5, -0.5], n)),
        pl.Series("day", rng.integers(0, 2, n)).cast(pl.Date),
    )


FACTS = ("text", "int", "truth", "number", "day")


def judged_slowly(exposures: pl.DataFrame, broken: str = "") -> tuple[list[Any], int]:
    """The first exposures, and how many units have others that state other facts."""
    by_unit: dict[int, list[Any]] = {}
    for line in exposures.rows():
        by_unit.setdefault(line[0], []).append(line)
    kept, n_changed = [], 0
    for unit in sorted(by_unit):
        sound = [line for line in by_unit[unit] if line[6] == 0]
        if len({line[1] for line in by_unit[unit]}) > 1 or not sound:
            continue

        def rank(line: Any) -> Any:
            facts = [(fact is not None, fact if fact is not None else 0) for fact in line[7:]]
            places = (3, 2, 4, 5) if broken == "asks the file first" else (3, 2)
            return [line[at] for at in places], facts, line[4:6]

        first = min(sound, key=rank)
        kept.append(first)
        facts = slice(7, 8) if broken == "looks at one fact" else slice(7, None)
        n_changed += any(line[facts] != first[facts] for line in sound)
    return kept, n_changed


@pytest.mark.parametrize("seed", range(3))
def test_facts_are_those_of_the_first_exposure(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log = with_facts(rng, a_log(rng))
    found = first_exposures(log, FACTS)
    assert (found.kept.rows(), found.n_changed) == judged_slowly(log)
    assert found.n_changed > 100
    shuffled = first_exposures(log.sample(fraction=1.0, shuffle=True, seed=seed), FACTS)
    assert_frame_equal(shuffled.kept, found.kept)
    assert shuffled.n_changed == found.n_changed


@pytest.mark.parametrize("broken", ["asks the file first", "looks at one fact"])
def test_the_comparison_of_facts_notices_a_broken_rule(broken: str) -> None:
    """Negative control of the test above."""
    rng = np.random.default_rng(0)
    log = with_facts(rng, a_log(rng))
    found = first_exposures(log, FACTS)
    assert (found.kept.rows(), found.n_changed) != judged_slowly(log, broken)


def test_copies_of_an_exposure_change_no_fact() -> None:
    rng = np.random.default_rng(1)
    log = with_facts(rng, a_log(rng)).unique("unit")
    copies = log.with_columns(pl.col("source_file") + 9, pl.col("time") + 1)
    assert first_exposures(pl.concat([copies, log]), FACTS).n_changed == 0


@pytest.mark.parametrize(("cluster", "if_public"), [("east", "near"), ("west", "far")])
def test_a_private_cluster_does_not_decide_who_pays(cluster: str, if_public: str) -> None:
    log = frame((1, 0, cluster, 4, 0, 1, 0), (1, 0, "north", 4, 0, 2, 0))
    log = log.with_columns(payer=pl.Series(["near", "far"]))
    assert first_exposures(log, ["payer"]).kept["payer"].to_list() == [if_public]
    private = first_exposures(log, ["payer"], private_clusters=True)
    assert private.kept["payer"].to_list() == ["far"]
