"""The macros in a released file give the engine's numbers, whatever else is in the database."""

import io
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp
from estimators.arm_effects import effects
from estimators.coverage import LEAST_COVERAGE, percent, remedy
from estimators.intervals import Law
from flows.released.file.evidence import MOMENTS, Released, read_every, read_frame, slices_of
from flows.released.file.macros import OF_LAW, _number, _quantiles, filled
from flows.released.file.outputs import Outputs
from flows.released.file.read import open_release, read_manifest
from flows.released.file.sql import statement
from schemas.arrays import Floats
from schemas.released import TABLES
from schemas.tables import PREFIX
from tests.conftest import EXACT, PATIENCE, Section, a_log, build_experiment, released

WANTED = ["arm", "estimate", "ci_lower", "ci_upper"]
"""What a person looks for first."""
IN_WORDS = ["effect", "note"]


def between(first: list[str]) -> list[str]:
    """The columns of a macro: what is looked for is at both ends, which narrow terminals show."""
    numbers = [name for name in TABLES["estimates"] if name not in {*first, "estimator"}]
    return [*first, *numbers, "estimator", *IN_WORDS]


WHOLE_COLUMNS = between(["metric", *WANTED])
COLUMNS = between(["segment", *WANTED])
EXACT_COLUMNS = ["estimate", "std_error", "privacy_std_error", "coverage"]
NEAR_COLUMNS = ["ci_lower", "ci_upper", "p_value", "p_value_holm"]
OTHER_COLUMNS = [name for name in COLUMNS if name not in {*EXACT_COLUMNS, *NEAR_COLUMNS, *IN_WORDS}]

OF_SEGMENTS = "".join(
    statement("flows.released.file", name) for name in ("ate_by_segment", "ate_of_groups")
)
CTES = sorted(set(re.findall(rf"{PREFIX}(\w+) AS", OF_SEGMENTS)))

MERGED: Section = {"treatments": ["mail"], "same_shares": True}
COUNTS: Section = {"mechanism": "uniform-prior-dp", "strata_statistic": "counts", "epsilon": 2.0}

SQUARES: Section = {
    "mechanism": "auto",
    "strata_statistic": "means",
    "epsilon": 3.0,
    "min_stratum": 35,
    "segment_shares": [],
}


def uneven_log(
    sizes: dict[str, int], arms: tuple[str, ...] = ("none", "mail"), n_outcomes: int = 4
) -> pl.DataFrame:
    """Clusters of these sizes, with outcomes that differ by cluster and by arm."""
    random = np.random.default_rng(5)
    cluster = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    arm = random.integers(len(arms), size=len(cluster))
    chance = 0.15 + 0.5 * cluster / len(sizes) + 0.1 * arm
    return pl.DataFrame(
        {
            "customer": [f"c{unit:05d}" for unit in range(len(cluster))],
            "variant": [arms[one] for one in arm],
            "region": [list(sizes)[one] for one in cluster],
            "clicks": random.binomial(n_outcomes - 1, chance).astype(float),
        }
    )


SIZES = {"east": 120, "west": 90, "o'north": 60, "s 1": 7, "s 2": 5, "s 3": 3, "s 4": 2, "s 5": 1}
TINY = {f"town {size} {turn}": size for size in range(1, 7) for turn in range(4)}
THREE = ("none", "mail", "call")

CASES: dict[str, tuple[pl.DataFrame, dict[str, Section]]] = {
    "two outcomes": (uneven_log(SIZES, n_outcomes=2), {"outcome": {"values": [0, 1]}}),
    "two outcomes, merged": (
        uneven_log(SIZES, n_outcomes=2),
        {"outcome": {"values": [0, 1]}, "arms": MERGED},
    ),
    "pools of small clusters": (uneven_log(SIZES), {"privacy": {"min_stratum": 35}}),
    "pools of small clusters, merged": (
        uneven_log(SIZES),
        {"privacy": {"min_stratum": 35}, "arms": MERGED},
    ),
    "one pool": (uneven_log(SIZES), {"privacy": {"mechanism": "cluster-free-dp"}, "arms": MERGED}),
    "no counts": (
        uneven_log(SIZES),
        {"privacy": {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}, "arms": MERGED},
    ),
    "tables learnt from counts": (
        uneven_log(SIZES),
        {"privacy": {"mechanism": "cluster-optimal-dp", "epsilon": 6.0}, "arms": MERGED},
    ),
    "tables alone": (
        uneven_log(SIZES),
        {"privacy": {"mechanism": "cluster-optimal-dp", "strata_statistic": "none"}},
    ),
    "counts beside a uniform prior": (uneven_log(SIZES), {"privacy": COUNTS, "arms": MERGED}),
    "sums of squares": (
        uneven_log({name: 8 * n for name, n in SIZES.items()}, THREE, n_outcomes=6),
        {
            "outcome": {"values": [0, 1, 2, 3, 4, 5]},
            "privacy": SQUARES,
            "arms": {"treatments": ["mail", "call"], "same_shares": True},
        },
    ),
    "little noise": (uneven_log(SIZES), {"privacy": {"epsilon": 12.0}}),
    "much noise": (uneven_log(SIZES), {"privacy": {"epsilon": 0.1}, "arms": MERGED}),
    "three arms": (
        uneven_log(SIZES, THREE),
        {"arms": {"treatments": ["mail", "call"]}, "privacy": {"min_stratum": 20}},
    ),
    "tiny strata, merged": (
        uneven_log(TINY, THREE),
        {"arms": {"treatments": ["mail", "call"], "same_shares": True}},
    ),
    "tiny strata": (uneven_log(TINY), {}),
    "a guess, and names to quote": (
        uneven_log(SIZES, ("o'none {@}", "mail")),
        {
            "arms": {"control": "o'none {@}", "treatments": ["mail"], "same_shares": True},
            "outcome": {"guess": [0.7, 0.2, 0.05, 0.05]},
            "privacy": {"min_stratum": 35},
        },
    ),
    "a grid far from zero": (
        uneven_log(SIZES).with_columns(pl.col("clicks") * 0.25 + 1000.5),
        {"outcome": {"values": [1000.5, 1000.75, 1001.0, 1001.25]}, "arms": MERGED},
    ),
    "integer ids": (
        uneven_log(SIZES).with_columns(customer=pl.int_range(pl.len()) - 20),
        {"arms": MERGED},
    ),
}


@dataclass(frozen=True)
class Case:
    log: pl.DataFrame
    path: Path

    @property
    def segments(self) -> pl.DataFrame:
        """Segments of every size and kind, overlapping, some of them of nobody in the release."""
        log, order = self.log, np.random.default_rng(9).permutation(self.log.height)
        ids = log["customer"].cast(pl.String)
        taken = {f"size {n}": ids[order[:n].tolist()] for n in (*range(1, 25), 40, 80, 160)}
        taken |= {
            f"outcome {value}": ids.filter(log["clicks"] == value)
            for value in log["clicks"].unique().to_list()
        }
        taken |= {f"only {arm}": ids.filter(log["variant"] == arm) for arm in ("none", "mail")}
        taken |= {f"of {one}": ids.filter(log["region"] == one) for one in log["region"].unique()}
        taken |= {"everyone": ids, "nobody's": pl.Series(["nowhere", "x"]), "": ids[:30]}
        return pl.concat(
            pl.DataFrame({"unit_id": units, "segment": [name] * len(units)})
            for name, units in taken.items()
        )


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    made: dict[str, Case] = {}

    def build(name: str) -> Case:
        if name not in made:
            log, sections = CASES[name]
            folder = tmp_path_factory.mktemp("case")
            path = build_experiment(folder / "experiment", log, **sections).run().path
            made[name] = Case(log, path)
        return made[name]

    return build


@pytest.fixture
def small(case_of: Callable[[str], Case]) -> Case:
    return case_of("pools of small clusters, merged")


@cache
def read_once(path: Path) -> Released:
    """What the engine knows of a file, which nobody can change."""
    with open_release(path) as connection:
        manifest = read_manifest(connection)
        return read_every(connection, manifest, manifest.outcomes[:1])[0]


def engine(path: Path, segments: pl.DataFrame) -> pl.DataFrame:
    """What the estimators say of segments; rows that are to be ignored have been left out."""
    query = f"""
        SELECT m.segment, u.cluster, u.arm, {MOMENTS}
        FROM (SELECT unit_id, cluster, arm, outcome_randomised - $center AS d FROM main.units) AS u
        JOIN members AS m ON m.unit_id = u.unit_id::VARCHAR
        GROUP BY m.segment, u.cluster, u.arm ORDER BY ALL
    """
    release = read_once(path)
    if release.outputs is not None:
        rows = moments_by_tables(path, release, release.outputs, segments.unique())
    else:
        with duckdb.connect(str(path), read_only=True) as connection:
            connection.register("members", segments.unique().to_arrow())
            rows = read_frame(connection, query, {"center": float(release.grid.mean())})
    names = segments["segment"].unique().sort().to_list()
    groups = pl.Series([names.index(one) for one in rows["segment"].to_list()], dtype=pl.Int64)
    coded = rows.with_columns(group=groups).join(
        release.places, on=["cluster", "arm"], maintain_order="left"
    )
    found = effects(
        release.evidence(slices_of(coded), None),
        release.arms,
        release.manifest.control,
        names,
        same_shares=release.manifest.same_shares,
    )
    frame = pl.DataFrame([asdict(one) for one in found], infer_schema_length=None)
    numbers = frame.select(name for name in COLUMNS if name not in IN_WORDS)
    return numbers.sort("estimator", maintain_order=True)


def moments_by_tables(
    path: Path, release: Released, outputs: Outputs, segments: pl.DataFrame
) -> pl.DataFrame:
    """The same of units that response tables drew, by polars."""
    functions = outputs.frame("outcome").drop("metric")
    pools = released(path, "pools").select("pool", "arm", "table")
    units = released(path, "units").cast({"cluster": pl.String, "arm": pl.String})
    strata = released(path, "strata")
    placed = units.join(strata.drop("n_units"), on=["cluster", "arm"]).join(
        pools, on=["pool", "arm"]
    )
    known = placed.join(
        functions.rename({"output": "outcome_randomised"}), on=["table", "outcome_randomised"]
    )
    assert known.height == units.height
    d = pl.col("outcome_debiased") - float(release.grid.mean())
    return (
        segments.join(known.cast({"unit_id": pl.String}), on="unit_id")
        .group_by("segment", "cluster", "arm")
        .agg(
            n=pl.len().cast(pl.Float64),
            mean=d.mean(),
            variance=d.var().fill_null(0.0),
            noise=pl.col("noise").mean(),
            square=pl.col("square").mean(),
            square_noise=pl.col("square_noise").mean(),
        )
        .sort("segment", "cluster", "arm")
    )


def stated(path: Path) -> pl.DataFrame:
    """What the file states, as ``ate()`` shows it: sharpest first."""
    order = pl.Enum(["combined", "tau_q", "histogram", "horvitz_thompson"])
    rows = released(path, "estimates").sort(pl.col("estimator").cast(order), "arm")
    same_shares = bool(released(path, "release")["same_shares"].item())
    effect = "{estimate:.4g} ({ci_lower:.4g} to {ci_upper:.4g})"
    few = "compares {} of its people: {}"
    words = [
        (
            effect.format(**one),
            few.format(percent(one["coverage"]), remedy(same_shares=same_shares))
            if one["coverage"] < LEAST_COVERAGE
            else None,
        )
        for one in rows.iter_rows(named=True)
    ]
    named = pl.DataFrame(words, dict.fromkeys(IN_WORDS, pl.String), orient="row")
    return pl.concat([rows, named], how="horizontal").select(WHOLE_COLUMNS)


def ask(connection: duckdb.DuckDBPyConnection, query: str) -> pl.DataFrame:
    found = pl.from_arrow(connection.sql(query).to_arrow_table())
    assert isinstance(found, pl.DataFrame)
    return found


def ask_file(path: Path, query: str, **tables: pl.DataFrame) -> pl.DataFrame:
    """Open a release directly, with these tables of an analyst's."""
    with duckdb.connect(str(path), read_only=True) as connection:
        for name, table in tables.items():
            connection.register("handed_in", table.to_arrow())
            connection.execute(f'CREATE TEMP TABLE "{name}" AS FROM handed_in')
        return ask(connection, query)


def check_equal(found: pl.DataFrame, wanted: pl.DataFrame) -> None:
    assert found.columns == COLUMNS
    assert found.select(OTHER_COLUMNS).rows() == wanted.select(OTHER_COLUMNS).rows()
    # scipy's p-values and quantiles are good to 1e-8: so are bounds, in parts of their distance.
    width = (wanted["ci_upper"] - wanted["ci_lower"]).fill_nan(None).fill_null(0.0).to_numpy()
    for names, error, least in ((EXACT_COLUMNS, 1e-9, 1e-13), (NEAR_COLUMNS, 1e-8, 1e-10)):
        for name in names:
            one, other = (frame[name].cast(pl.Float64).to_numpy() for frame in (found, wanted))
            allowed = least + (error * width / 2.0 if name.startswith("ci_") else 0.0)
            near = np.isclose(one, other, rtol=error, atol=allowed, equal_nan=True)
            assert near.all(), f"{name}: {one[~near]} for {other[~near]}"


@pytest.mark.parametrize("name", CASES)
def test_segments_have_the_numbers_of_the_engine(case_of: Callable[[str], Case], name: str) -> None:
    case = case_of(name)
    found = ask_file(case.path, "FROM ate_by_segment('mine')", mine=case.segments)
    wanted = engine(case.path, case.segments)
    check_equal(found, wanted)
    assert wanted["estimate"].null_count() > 0
    assert wanted["estimate"].drop_nulls().len() > 10


def test_the_cases_are_as_different_as_they_should_be(case_of: Callable[[str], Case]) -> None:
    def statistic(name: str) -> object:
        return released(case_of(name).path, "metrics")["strata_statistic"].item()

    assert statistic("two outcomes") == "count-and-complement"
    assert statistic("no counts") == "none"
    assert statistic("counts beside a uniform prior") == "counts"
    assert released(case_of("sums of squares").path, "squares").height == 3
    for name, n_pools in (("pools of small clusters", 3), ("one pool", 1), ("tiny strata", 1)):
        pools = released(case_of(name).path, "SELECT DISTINCT pool FROM strata")
        assert (name, pools.height) == (name, n_pools)
    kinds = {"integer ids": "BIGINT", "two outcomes": "VARCHAR"}
    for name, kind in kinds.items():
        found = released(case_of(name).path, "SELECT DISTINCT typeof(unit_id) FROM units")
        assert found.item() == kind


@pytest.mark.parametrize(
    ("name", "estimators"), [("tables alone", {"tau_q"}), ("no counts", {"tau_q", "combined"})]
)
def test_a_release_without_counts_has_combined_rows_where_clusters_count_by_own_sizes(
    case_of: Callable[[str], Case], name: str, estimators: set[str]
) -> None:
    """That takes the same shares everywhere."""
    case = case_of(name)
    assert (released(case.path, "strata")["own_sizes"] > 0).any() == (len(estimators) > 1)
    found = ask_file(case.path, "FROM ate_by_segment('mine')", mine=case.segments)
    assert set(found["estimator"]) == estimators


@pytest.mark.parametrize("name", ["three arms", "no counts"])
def test_the_whole_has_the_numbers_that_the_file_states(
    case_of: Callable[[str], Case], name: str
) -> None:
    path = case_of(name).path
    found = ask_file(path, "FROM ate()")
    assert found.rows() == stated(path).rows()
    assert found.columns == WHOLE_COLUMNS
    assert found.height > 0


def test_everyone_as_a_segment_has_the_numbers_of_the_whole(small: Case) -> None:
    everyone = small.log.select(unit_id="customer", segment=pl.lit("everyone"))
    found = ask_file(small.path, "FROM ate_by_segment('mine')", mine=everyone)
    whole = ask_file(small.path, "FROM ate() WHERE estimator <> 'histogram'")
    planned = pl.lit(None, pl.Float64).alias("planned_std_error")  # of everybody alone
    check_equal(found, whole.with_columns(planned, segment=pl.lit("everyone")).select(COLUMNS))


@pytest.mark.parametrize("query", ["FROM ate()", "FROM ate_by_segment('mine')"])
def test_a_narrow_terminal_shows_the_effect_with_its_interval_first(
    case_of: Callable[[str], Case], query: str
) -> None:
    """DuckDB leaves out columns in the middle where a line is too short for all of them."""
    case = case_of("two outcomes, merged")
    with duckdb.connect(str(case.path), read_only=True) as connection:
        connection.register("handed_in", case.segments.to_arrow())
        connection.execute("CREATE TEMP TABLE mine AS FROM handed_in")
        drawn = io.StringIO()
        with redirect_stdout(drawn):
            connection.sql(f"{query} WHERE note IS NULL LIMIT 3").show(max_width=80)
            connection.sql(f"{query} WHERE note IS NOT NULL LIMIT 3").show(max_width=80)
        first = connection.sql(f"{query} WHERE note IS NULL").pl().row(0, named=True)
    lines = drawn.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    if "by_segment" in query:
        (head, *_) = [one for one in lines[2:] if "effect" in one and "note" in one]
        assert "segment" in head
        assert "│ compares " in drawn.getvalue()
    assert [one.strip() for one in lines[1].strip("│").split("│")][-3:-1] == ["estimator", "effect"]
    assert f"│ combined  │ {first['effect']}" in lines[4]
    numbers = [float(one) for one in re.findall(r"-?[\d.]+(?:e-?\d+)?", first["effect"])]
    wanted = [first["estimate"], first["ci_lower"], first["ci_upper"]]
    assert numbers == pytest.approx(wanted, rel=1e-3)


def told(path: Path, frame: pl.DataFrame, mine: pl.DataFrame | None) -> None:
    """That the macro's note, the command's warning and Python's are about the same share."""
    table = None if mine is None else mine.select("unit_id", "segment")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opened = clusterdp.open(path)
        in_python = opened.ate() if table is None else opened.ate(segments=table)
    shares = in_python["coverage"].to_list()
    notes = frame["note"].to_list()
    assert [one is not None for one in notes] == [share is None or share < 0.9 for share in shares]
    for note, share in zip(notes, shares, strict=True):
        if share is not None and share < 0.9:
            assert note.startswith(f"compares {100 * share:.3g} % of its people: ")
    few = {share for share in shares if share is not None and share < 0.9}
    said = [str(one.message) for one in caught if "compare" in str(one.message)]
    assert len(said) == bool(few)
    assert all(percent(min(few)) in one for one in said)


@pytest.mark.parametrize("name", ["tiny strata", "tiny strata, merged", "two outcomes"])
def test_where_few_are_compared_a_note_says_so(case_of: Callable[[str], Case], name: str) -> None:
    case = case_of(name)
    told(case.path, ask_file(case.path, "FROM ate()"), None)
    order = ["combined", "tau_q"]
    found = ask_file(case.path, "FROM ate_by_segment('mine')", mine=case.segments)
    ranked = sorted(found.iter_rows(named=True), key=lambda one: order.index(one["estimator"]))
    told(case.path, pl.DataFrame(ranked, found.schema), case.segments)


def test_a_note_says_where_many_ids_are_of_nobody(case_of: Callable[[str], Case]) -> None:
    """A tenth may be, as with the command's own warnings of few; half are told."""
    ids = released(case_of("one pool").path, "SELECT unit_id::VARCHAR AS id FROM units")["id"]
    unknown = [*(f"x{at}" for at in range(len(ids))), *(f"y{at}" for at in range(5))]
    mine = pl.DataFrame(
        {
            "unit_id": [*ids, *ids, *unknown],
            "segment": ["half"] * len(ids) + ["few"] * len(ids) + ["half"] * len(ids) + ["few"] * 5,
        }
    )
    with duckdb.connect(str(case_of("one pool").path), read_only=True) as connection:
        connection.register("mine", mine.to_arrow())
        query = "SELECT DISTINCT segment, note FROM ate_by_segment('mine') ORDER BY ALL"
        (few, half) = connection.execute(query).fetchall()
    assert few == ("few", None)
    assert half[1].endswith(f"{len(ids)} of its {2 * len(ids)} ids are not in this release")


def test_the_note_says_what_to_do(case_of: Callable[[str], Case]) -> None:
    (note,) = set(ask_file(case_of("tiny strata").path, "SELECT note FROM ate()")["note"])
    assert "arms.same_shares = true lets small clusters merge" in note
    assert "coarser segments" in note
    (none,) = set(ask_file(case_of("tiny strata, merged").path, "SELECT note FROM ate()")["note"])
    assert none is None


@pytest.mark.parametrize("n_clusters", [2, 13])
def test_outcomes_all_alike_have_the_noises_error_and_no_bounds(
    tmp_path: Path, n_clusters: int
) -> None:
    clusters = tuple(f"town {at}" for at in range(n_clusters))  # 13: one unit an arm, all merged
    log = a_log(26, clusters=clusters).with_columns(clicks=pl.lit(0.1))
    sections: dict[str, Section] = {"outcome": {"values": [0, 0.1, 0.7]}, "arms": MERGED}
    path = build_experiment(tmp_path / "experiment", log, privacy=EXACT, **sections).run().path
    mine = log.select(unit_id="customer", segment=pl.lit("a"))
    found = ask_file(path, "FROM ate_by_segment('mine')", mine=mine)
    assert found["std_error"].to_list() == found["privacy_std_error"].to_list()
    alone = found.filter(pl.col("estimator") == "tau_q")  # the other's noise is known
    assert alone.select(NEAR_COLUMNS).rows() == [(None,) * 4]
    check_equal(found, engine(path, mine))


def test_pairs_of_clusters_that_differ_by_rounding_alone_have_a_variance_of_zero(
    tmp_path: Path,
) -> None:
    """Within each pair the effects are equal, though no outcome is: z differs by 1e-17, or not.

    Which of the two depends on the order of summation. A standard error of 1e-16 would have an
    interval and a p-value, one of 0 has neither, so macro and engine must both call it 0.
    """
    outcomes = {
        "town 1": (0.1, 0.0), "town 2": (0.8, 0.7),  # mail, none: 0.1 more in both towns
        "town 3": (0.0, 0.0), "town 4": (0.7, 0.7),
        "town 5": (0.7, 0.0), "town 6": (0.8, 0.1),
    }  # fmt: skip
    clicks = [value for pair in outcomes.values() for value in pair]
    log = a_log(12, arms=("mail", "none"), clusters=tuple(outcomes)).with_columns(
        clicks=pl.Series(clicks)
    )
    grid: Section = {"values": [0, 0.1, 0.7, 0.8]}
    path = (
        build_experiment(tmp_path / "experiment", log, privacy=EXACT, outcome=grid, arms=MERGED)
        .run()
        .path
    )
    mine = pl.concat(
        log.select(unit_id="customer", segment=pl.lit(name)).head(2 * n_towns)
        for name, n_towns in (("two towns", 2), ("four towns", 4), ("all towns", 6))
    )
    found = ask_file(path, "FROM ate_by_segment('mine')", mine=mine)
    assert found["std_error"].to_list() == found["privacy_std_error"].to_list()
    assert found["ci_lower"].null_count() == 3
    check_equal(found, engine(path, mine))


# --- the analyst's table ---


def test_repeated_rows_count_once_and_incomplete_ones_not_at_all(small: Case) -> None:
    incomplete = pl.DataFrame(
        {"unit_id": [None, "c00000", None], "segment": ["only here", None, None]},
        schema={"unit_id": pl.String, "segment": pl.String},
    )
    dirty = pl.concat([small.segments, small.segments[::3], incomplete])
    found = ask_file(small.path, "FROM ate_by_segment('mine')", mine=dirty)
    check_equal(found, engine(small.path, small.segments))


def test_segments_of_nobody_have_null_numbers_and_no_units(small: Case) -> None:
    mine = pl.DataFrame({"unit_id": ["nowhere", "c00000"], "segment": ["absent", "alone"]})
    found = ask_file(small.path, "FROM ate_by_segment('mine')", mine=mine)
    assert found["segment"].to_list() == ["absent", "alone"] * 2
    assert found["n_units"].to_list() == [0] * 4
    numbers = found.select(*EXACT_COLUMNS, *NEAR_COLUMNS).drop("coverage")
    assert numbers.null_count().row(0) == (4,) * 7
    assert found["n_segment"].to_list() == [0, 1] * 2
    assert found["coverage"].to_list() == [None, 0.0] * 2


def test_an_empty_table_has_no_segments(small: Case) -> None:
    found = ask_file(small.path, "FROM ate_by_segment('mine')", mine=small.segments.clear())
    assert found.columns == COLUMNS
    assert found.is_empty()


@pytest.mark.parametrize("missing", ["unit_id", "segment"])
def test_a_table_without_a_column_is_refused_without_showing_rows(
    small: Case, missing: str
) -> None:
    mine = small.segments.rename({missing: "other"})
    with pytest.raises(duckdb.BinderException) as caught:
        ask_file(small.path, "FROM ate_by_segment('mine')", mine=mine)
    assert missing in str(caught.value)
    assert "c000" not in str(caught.value)


INTEGERS = ["BIGINT", "INTEGER", "UBIGINT", "HUGEINT", "VARCHAR"]


@pytest.mark.parametrize("kind", INTEGERS)
def test_integer_ids_match_by_their_text_whatever_type_they_have(
    case_of: Callable[[str], Case], kind: str
) -> None:
    case = case_of("integer ids")
    segments = case.segments.filter(~pl.col("unit_id").str.contains("[-a-z]"))
    cast = f"(SELECT unit_id::{kind} AS unit_id, segment FROM mine)"
    with duckdb.connect(str(case.path), read_only=True) as connection:
        connection.register("mine", segments.to_arrow())
        connection.execute(f"CREATE TEMP TABLE theirs AS FROM {cast}")
        found = ask(connection, "FROM ate_by_segment('theirs')")
    check_equal(found, engine(case.path, segments))


def test_text_ids_match_integers_by_their_text(
    case_of: Callable[[str], Case], tmp_path: Path
) -> None:
    log = uneven_log(SIZES).with_columns(customer=pl.int_range(pl.len()).cast(pl.String))
    path = build_experiment(tmp_path / "experiment", log).run().path
    assert released(path, "SELECT DISTINCT typeof(unit_id) FROM units").item() == "VARCHAR"
    mine = pl.DataFrame(
        {"unit_id": range(log.height), "segment": [i % 3 for i in range(log.height)]}
    )
    found = ask_file(path, "FROM ate_by_segment('mine')", mine=mine)
    check_equal(found, engine(path, mine.cast(pl.String)))


@pytest.mark.parametrize("spelling", ["'0' || unit_id", "' ' || unit_id", "unit_id || '.0'"])
def test_ids_of_another_spelling_do_not_match(
    case_of: Callable[[str], Case], spelling: str
) -> None:
    case = case_of("integer ids")
    mine = case.segments.filter(pl.col("segment") == "everyone")
    with duckdb.connect(str(case.path), read_only=True) as connection:
        connection.register("mine", mine.to_arrow())
        connection.execute(
            f"CREATE TEMP TABLE theirs AS SELECT {spelling} AS unit_id, segment FROM mine"
        )
        with pytest.raises(duckdb.InvalidInputException, match=r"none of the .* ids of your table"):
            connection.execute("FROM ate_by_segment('theirs')")


@pytest.mark.parametrize(
    "ids", ["[1]", "{'a': 1}", "DATE '2020-01-01'", "true", "1.0::DOUBLE", "uuid()", "'x'::BLOB"]
)
@pytest.mark.parametrize("name", ["integer ids", "two outcomes"])
def test_ids_of_strange_types_are_compared_as_text_too(
    case_of: Callable[[str], Case], name: str, ids: str
) -> None:
    with duckdb.connect(str(case_of(name).path), read_only=True) as connection:
        connection.execute(f"CREATE TEMP TABLE mine AS SELECT {ids} AS unit_id, 7 AS segment")
        with pytest.raises(duckdb.InvalidInputException, match="none of the 1 ids of your table"):
            connection.execute("FROM ate_by_segment('mine')")


@pytest.mark.parametrize(
    ("create", "name"),
    [
        ('TEMP TABLE "my ""own"" table" AS', '"my ""own"" table"'),
        ('TEMP TABLE "o\'clock" AS', "\"o''clock\""),
        ("TABLE other.main.mine AS", "other.mine"),
        ('TABLE other."a schema"."a.b" AS', 'other."a schema"."a.b"'),
        ("TEMP VIEW mine AS", "mine"),
        ("VIEW other.main.mine AS", "other.main.mine"),
    ],
)
def test_tables_and_views_of_all_names_can_be_handed_in(
    small: Case, tmp_path: Path, create: str, name: str
) -> None:
    small.segments.write_parquet(tmp_path / "mine.parquet")
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS other")
        connection.execute('CREATE SCHEMA other."a schema"')
        connection.execute(f"CREATE {create} FROM '{tmp_path / 'mine.parquet'}'")
        connection.execute(f"ATTACH '{small.path}' AS rel (READ_ONLY)")
        connection.execute("USE rel")
        found = ask(connection, f"FROM ate_by_segment('{name}')")
    check_equal(found, engine(small.path, small.segments))


def test_data_frames_can_be_handed_in(small: Case) -> None:
    as_polars = small.segments
    as_arrow = small.segments.to_arrow()
    assert len(as_polars) == len(as_arrow)
    wanted = engine(small.path, small.segments)
    with duckdb.connect(str(small.path), read_only=True) as connection:
        for name in ("as_polars", "as_arrow"):
            found = connection.sql(f"FROM ate_by_segment('{name}')").pl()
            check_equal(found, wanted)


# --- ways of opening, and names that get in the way ---


@dataclass(frozen=True)
class Opened:
    connection: duckdb.DuckDBPyConnection
    schema: str
    """What stands before a macro's name."""
    last: str
    """The last argument."""

    def ate(self) -> str:
        return f"FROM {self.schema}ate({self.last.removeprefix(', ')})"

    def by_segment(self, table: str) -> str:
        return f"FROM {self.schema}ate_by_segment('{table}'{self.last})"


@contextmanager
def opening(path: Path, way: str) -> Iterator[Opened]:
    if way == "directly":
        with duckdb.connect(str(path), read_only=True) as connection:
            yield Opened(connection, "", "")
        return
    alias = {"attached under a plain name": "main2"}.get(way, 'my "re.l" o\'f')
    quoted = '"' + alias.replace('"', '""') + '"'
    text = alias.replace("'", "''")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS {quoted} (READ_ONLY)")
        if way == "in use":
            connection.execute(f"USE {quoted}")
            yield Opened(connection, "", "")
        elif way == "in use and named":
            connection.execute(f"USE {quoted}")
            yield Opened(connection, "", f", '{text}'")
        elif way == "attached, last argument by name":
            yield Opened(connection, f"{quoted}.", f", release_name := '{text}'")
        else:
            yield Opened(connection, f"{quoted}.", f", '{text}'")


WAYS = [
    "directly",
    "in use",
    "in use and named",
    "attached",
    "attached under a plain name",
    "attached, last argument by name",
]
NAMES = sorted(
    {*TABLES, *CTES, *(PREFIX + name for name in CTES), "quantiles", "nodes", "mixed", "m", "u"}
)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_opening_gives_the_same(small: Case, way: str) -> None:
    with opening(small.path, way) as release:
        release.connection.execute("CREATE TEMP TABLE mine (unit_id VARCHAR, segment VARCHAR)")
        release.connection.register("handed_in", small.segments.to_arrow())
        release.connection.execute("INSERT INTO temp.main.mine FROM handed_in")
        found = ask(release.connection, release.by_segment("mine"))
        whole = ask(release.connection, release.ate())
    check_equal(found, engine(small.path, small.segments))
    assert whole.rows() == stated(small.path).rows()


@pytest.fixture(scope="module")
def poisons(
    case_of: Callable[[str], Case], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Files with a table for each of our names, that look like ours and say something else."""
    folder = tmp_path_factory.mktemp("poisons")
    path = case_of("pools of small clusters, merged").path
    for name in NAMES:
        frame = pl.DataFrame({"unit_id": ["c00000"], "segment": ["poison"], "k": [1], "x": [1.0]})
        if name in TABLES:
            frame = released(path, f"FROM main.{name} LIMIT 1")
        frame.write_parquet(folder / f"{name}.parquet")
    return {name: folder / f"{name}.parquet" for name in NAMES}


@pytest.mark.parametrize("way", ["directly", "in use", "attached"])
@pytest.mark.parametrize("kind", ["TEMP TABLE", "TEMP VIEW", "TABLE", "VIEW", "data frame", "CTE"])
def test_tables_of_the_analyst_with_our_names_are_never_read(
    small: Case, poisons: dict[str, Path], monkeypatch: pytest.MonkeyPatch, way: str, kind: str
) -> None:
    segments = small.segments.filter(pl.col("segment").str.starts_with("size"))
    before = ""
    with opening(small.path, way) as release:
        connection = release.connection
        connection.execute("CREATE TEMP TABLE mine (unit_id VARCHAR, segment VARCHAR)")
        connection.register("handed_in", segments.to_arrow())
        connection.execute("INSERT INTO temp.main.mine FROM handed_in")
        for name, file in poisons.items():
            if kind == "data frame":
                frame = pl.read_parquet(file)
                monkeypatch.setattr(sys.modules[__name__], name, frame, raising=False)
            elif kind == "CTE":
                before += (
                    f", {name} AS (FROM '{file}')" if before else f"WITH {name} AS (FROM '{file}')"
                )
            elif kind.startswith("TEMP"):
                connection.execute(f"CREATE {kind} {name} AS FROM '{file}'")
            elif way != "directly":  # or there is no place for them
                connection.execute(f"CREATE {kind} memory.main.{name} AS FROM '{file}'")
        if kind not in {"TABLE", "VIEW"} or way.startswith("attached"):  # the poison is in reach
            assert ask(connection, f"{before} FROM quantiles")["segment"].to_list() == ["poison"]
        found = ask(connection, f"{before} {release.by_segment('mine')}")
        whole = ask(connection, f"{before} {release.ate()}")
    check_equal(found, engine(small.path, segments))
    assert whole.rows() == stated(small.path).rows()


def test_the_analysts_own_table_may_have_any_of_our_names(small: Case) -> None:
    segments = small.segments.filter(pl.col("segment").str.starts_with("size"))
    wanted = engine(small.path, segments)
    names = sorted({*TABLES, *CTES, PREFIX + "handed", PREFIX + "members", PREFIX + "moments"})
    with duckdb.connect(str(small.path), read_only=True) as connection:
        connection.register("handed_in", segments.to_arrow())
        for name in names:
            connection.execute(f"CREATE TEMP TABLE {name} AS FROM handed_in")
        for name in names:
            check_equal(ask(connection, f"FROM ate_by_segment('{name}')"), wanted)


def test_without_use_and_without_a_name_nothing_of_the_analyst_is_read(small: Case) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{small.path}' AS rel (READ_ONLY)")
        for name in TABLES:
            connection.execute(f"CREATE TABLE {name} AS FROM rel.main.{name}")
        connection.execute("CREATE TABLE mine AS SELECT 'c00000' AS unit_id, 'a' AS segment")
        for call in ("ate()", "ate_by_segment('mine')", "ate('memory')"):
            with pytest.raises(duckdb.CatalogException, match=PREFIX):
                connection.execute(f"FROM rel.{call}")


def test_a_release_never_reads_another_ones_tables(case_of: Callable[[str], Case]) -> None:
    one, other = case_of("two outcomes"), case_of("no counts")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{one.path}' AS one (READ_ONLY)")
        connection.execute(f"ATTACH '{other.path}' AS other (READ_ONLY)")
        connection.execute("USE one")
        assert ask(connection, "FROM ate()").rows() == stated(one.path).rows()
        found = ask(connection, "FROM other.ate('other')")
        assert found.rows() == stated(other.path).rows()


def test_a_fresh_process_needs_nothing_but_duckdb(small: Case, tmp_path: Path) -> None:
    small.segments.write_parquet(tmp_path / "mine.parquet")
    program = """
import json, sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=True)
connection.execute(f"CREATE TEMP VIEW mine AS FROM '{sys.argv[2]}'")
rows = connection.execute("FROM ate_by_segment('mine')").fetchall()
assert not {"flows", "estimators", "polars"} & set(sys.modules)
print(json.dumps(rows))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, str(small.path), str(tmp_path / "mine.parquet")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    found = pl.DataFrame(json.loads(done.stdout), COLUMNS, orient="row", infer_schema_length=None)
    check_equal(found, engine(small.path, small.segments))


# --- the file ---


def test_what_only_the_macros_read_is_out_of_sight(small: Case) -> None:
    shown = released(small.path, "SELECT table_schema, table_name FROM information_schema.tables")
    assert set(shown.filter(pl.col("table_schema") == "main")["table_name"]) == set(TABLES)
    others = shown.filter(pl.col("table_schema") != "main")
    own = {"metrics", "pools", "quantiles", "drawn", "unit_facts"}
    assert set(others["table_name"]) == own
    assert all(schema.startswith(PREFIX) for schema in others["table_schema"])


def test_the_macros_have_one_signature_each_so_that_old_readers_can_open_the_file(
    small: Case,
) -> None:
    query = "SELECT function_name FROM duckdb_functions() WHERE NOT internal"
    names = sorted(released(small.path, query)["function_name"])
    assert names == ["ate", "ate_by", "ate_by_segment"]
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{small.path}' AS rel (READ_ONLY)")
        tags = connection.execute(
            "SELECT tags FROM duckdb_databases() WHERE database_name = 'rel'"
        ).fetchone()
    assert tags is not None
    assert "v1.0.0" in str(tags[0])


def test_parts_of_the_sql_are_filled_in_once_and_all_of_them() -> None:
    words = {"effect": "1", "note": "2", "metric_order": "['outcome']", "estimator_order": "[]"}
    parts = {"quantiles": "'$x'", "estimates": "'$quantiles -- '", **words}
    query = filled("ate", parts)
    assert query.count("'$x'") == query.count("'$quantiles -- '") == 1
    assert not [line for line in query.splitlines() if line.startswith("--")]
    with pytest.raises(KeyError, match="estimates"):
        filled("ate", {"quantiles": "'x'", **words})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_never_gets_into_a_macro(value: float) -> None:
    with pytest.raises(ValueError, match="cannot stand in a macro"):
        _number(value)


def test_numbers_are_read_back_digit_for_digit() -> None:
    values = (0.1, -1 / 3, 1e-300, 5e22, 12345678901234567.0)
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT {', '.join(map(_number, values))}").fetchone()
    assert found == values


# --- quantiles and p-values in SQL ---

DEGREES = [1.0, 1.0001, 1.3, 2.0, 2.5, 3.0, 4.7, 10.0, 31.4, 100.0, 1e3, 12345.6, 1e6, 1e9, np.inf]
EVENLY = np.linspace(0, 1, 41)
SHARES = [0.0, 1e-12, 0.003, 0.1, 0.37, 0.71, 0.999, 1.0]


def in_sql(name: str, degrees: Floats, rho: Floats, t: Floats | pl.Series) -> Floats:
    """What a macro's function says of laws; arrays of one shape."""
    with duckdb.connect() as connection:
        connection.register("coefficients", _quantiles().to_arrow())
        asked = pl.DataFrame({"df": degrees, "rho": rho, "t": t}).with_row_index("place")
        connection.register("asked", asked.to_arrow())
        query = filled(name, OF_LAW | {"quantiles": "'coefficients'"})
        found = ask(connection, f"SELECT place, ({query}) AS found FROM asked ORDER BY place")
    return found["found"].to_numpy()


def every(*values: Sequence[float] | Floats) -> list[Floats]:
    return [one.ravel() for one in np.meshgrid(*values)]


def test_quantiles_are_exact_to_nine_digits_for_all_laws() -> None:
    degrees, rho = every([*DEGREES, *(1.0 / np.linspace(1e-9, 1.0, 101))], [*SHARES, *EVENLY])
    found = in_sql("quantile_of_law", degrees, rho, np.zeros_like(rho))
    np.testing.assert_allclose(found, Law(degrees, 3 * rho**2).quantile(0.95), rtol=5e-10)


def test_p_values_are_those_of_the_law_for_all_statistics() -> None:
    steps = np.concatenate([[0.0], np.logspace(-9, 9, 46), np.linspace(0.05, 40, 80), [1e200]])
    degrees, rho, t = every([*DEGREES, *np.logspace(0, 6, 7)], SHARES, steps)
    found, wanted = in_sql("p_value_of_law", degrees, rho, t), Law(degrees, 3 * rho**2).p_value(t)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8)  # scipy's are no better at 0
    ordinary = (wanted > 1e-6) & (wanted < 0.999)
    np.testing.assert_allclose(found[ordinary], wanted[ordinary], rtol=2e-9)
    assert found.min() > 0


def test_where_there_is_no_statistic_there_is_no_p_value() -> None:
    nothing = pl.Series([None], dtype=pl.Float64)
    assert np.isnan(in_sql("p_value_of_law", np.ones(1), np.ones(1), nothing)).all()
