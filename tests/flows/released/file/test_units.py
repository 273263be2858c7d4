"""``units``: what is stored of a unit, and what averages over its columns are estimates of."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from flows.released.estimates.release import estimate_release
from flows.released.estimates.segments import estimate_segments
from flows.released.estimates.stated import read_checked
from flows.released.file.evidence import read_every
from flows.released.file.read import open_release, read_manifest, read_release
from schemas.errors import InputError
from tests.conftest import Builder, Experiment, a_log, build_experiment, released
from tests.support.own_schema import alter

THREE = ("none", "mail", "call")
SHARES = [  # mechanisms, and what they publish of pools
    {"mechanism": "cluster-dp"},
    {"mechanism": "cluster-free-dp"},
    {"mechanism": "uniform-prior-dp", "strata_statistic": "means"},
    {"mechanism": "uniform-prior-dp", "strata_statistic": "none"},
    {"mechanism": "cluster-optimal-dp", "strata_statistic": "counts", "epsilon": 4.0},
]
AVERAGE = "SELECT arm::VARCHAR AS arm, sum(weight * {name}) / sum(weight) AS mean FROM units {more}"


def uneven(n_units: int = 1200) -> pl.DataFrame:
    """Two clusters with shares of arms of 10 : 90 and 90 : 10, and outcomes that differ between."""
    unit = np.arange(n_units)
    west = unit % 2 == 1
    mail = np.where(unit // 2 % 10 == 0, ~west, west)
    return pl.DataFrame(
        {
            "customer": [f"c{one:05d}" for one in unit],
            "variant": np.where(mail, "mail", "none"),
            "region": np.where(west, "west", "east"),
            "clicks": np.clip(unit * 7919 % 101 % 3 + west, 0, 3).astype(float),
            "country": np.where(unit % 3 == 0, "ch", "it"),
        }
    )


def means(path: Path, name: str, more: str = "GROUP BY 1 ORDER BY 1") -> dict[str, float]:
    return dict(released(path, AVERAGE.format(name=name, more=more)).rows())


@pytest.mark.parametrize("privacy", SHARES, ids=lambda one: str(one["mechanism"]))
def test_weighted_averages_are_the_arms_means_and_effects(
    experiment: Builder, privacy: dict[str, Any]
) -> None:
    """To 1e-9, of the sharpest estimator that there is, and of tau_q without its statistic."""
    path = experiment(uneven(), privacy=privacy).run().path
    for name, estimator in (("outcome", "combined"), ("outcome_debiased", "tau_q")):
        stated = dict(
            released(path, f"SELECT arm, mean FROM means WHERE estimator = '{estimator}'").rows()
        )
        if not stated:  # nothing is published of pools, so that both columns are one
            stated = dict(released(path, "SELECT arm, mean FROM means").rows())
        assert means(path, name) == pytest.approx(stated, rel=1e-9)
        effect = f"SELECT estimate FROM ate() WHERE estimator = '{estimator}'"
        for (found,) in released(path, effect).rows():
            averages = means(path, name)
            assert averages["mail"] - averages["none"] == pytest.approx(found, abs=1e-9)


STATISTICS = """
    SELECT p.pool, p.arm, coalesce(p.noisy_mean, c.mean) AS mean, p.mean_weight FROM pools AS p
    LEFT JOIN (
        SELECT pool, arm, middle + sum((outcome - middle) * noisy_count / n_units) AS mean
        FROM counts JOIN pools USING (pool, arm), (SELECT avg(outcome) AS middle FROM outcomes)
        GROUP BY pool, arm, middle
    ) AS c ON c.pool = p.pool AND c.arm = p.arm"""
"""What is published of the mean of each pool's arm: (pool, arm, mean, weight)."""


@pytest.mark.parametrize("privacy", SHARES, ids=lambda one: str(one["mechanism"]))
@pytest.mark.parametrize("min_stratum", [10, 1000])
def test_outcomes_answer_as_generalised_least_squares_does(
    experiment: Builder, privacy: dict[str, Any], min_stratum: int
) -> None:
    """To 1e-9: means of people, conjunctions, and coefficients of regressions, 200 of them.

    Observed are R_i = y_i + e_i of every unit and, of every pool's arm, S = Σ y_i + z, with
    Var z / Var e_i = n (1 - w)/w, as w is the weight; the y_i are what is to be found.
    """
    path = experiment(uneven(240), privacy=privacy | {"min_stratum": min_stratum}).run().path
    units = released(
        path,
        "SELECT u.*, s.pool, arm = 'mail' AND unit_id < 'c00150' AS some FROM units AS u "
        "JOIN strata AS s USING (cluster, arm) ORDER BY unit_id",
    ).with_columns(pl.col("arm").cast(pl.String))
    fitted = units["outcome_debiased"].to_numpy().copy()
    for pool, arm, mean, weight in released(path, STATISTICS).rows():
        at = np.flatnonzero((units["pool"] == pool) & (units["arm"] == arm))
        if not weight:
            continue
        n, spread = len(at), np.sqrt(len(at) * (1.0 - weight) / weight)
        observed = np.append(fitted[at], n * mean / spread)
        of_each = np.vstack([np.eye(n), np.full(n, 1.0 / spread)])
        fitted[at] = np.linalg.lstsq(of_each, observed, rcond=None)[0]
    random = np.random.default_rng(4)
    chosen = random.random((100, len(units))) < random.uniform(0.02, 0.9, (100, 1))
    chosen &= np.where(np.arange(100) % 2, True, units["some"].to_numpy()[:, np.newaxis]).T
    design = np.stack(
        [np.ones(len(units)), units["arm"] == "mail", *random.random((98, len(units)))]
    )
    questions = np.concatenate([chosen, np.linalg.pinv(design).T])
    found, wanted = questions @ units["outcome"].to_numpy(), questions @ fitted
    assert len(questions) == 200
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    moved = np.abs(questions @ units["outcome_debiased"].to_numpy() - wanted).max()
    assert (moved > 1e-3) == (privacy.get("strata_statistic") != "none")


def test_plain_differences_are_confounded_where_shares_differ(experiment: Builder) -> None:
    """The negative control of the test above: clusters differ by 1, arms by nothing."""
    path = experiment(uneven(4000), privacy={"epsilon": 12.0}).run().path
    plain = dict(released(path, "SELECT arm::VARCHAR, avg(outcome) FROM units GROUP BY 1").rows())
    weighted = means(path, "outcome")
    assert plain["mail"] - plain["none"] > 0.5
    assert abs(weighted["mail"] - weighted["none"]) < 0.2


def test_averages_over_people_of_one_cluster_are_the_segments_effect(
    experiment: Builder, tmp_path: Path
) -> None:
    path = experiment(uneven()).run().path
    chosen = pl.DataFrame({"unit_id": [f"c{one:05d}" for one in range(0, 1200, 2)]})
    segments = chosen.filter(pl.int_range(pl.len()) % 7 < 5).with_columns(segment=pl.lit("some"))
    segments.write_csv(tmp_path / "some.csv")
    (wanted,) = (
        one.estimate
        for one in estimate_segments(path, tmp_path / "some.csv").estimates
        if one.estimator == "combined"
    )
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.register("chosen", segments.to_arrow())
        found = dict(
            connection.execute(
                "SELECT arm::VARCHAR, avg(outcome) FROM units SEMI JOIN chosen USING (unit_id) "
                "GROUP BY 1"
            ).fetchall()
        )
    assert found["mail"] - found["none"] == pytest.approx(wanted, abs=1e-9)


def test_weights_are_those_of_clusters_that_are_compared_together(experiment: Builder) -> None:
    """Small clusters as one; and none where an arm has fewer than two units."""
    sizes = {"large": 400, **{f"small {at}": 6 for at in range(5)}}
    cluster = [name for name, n in sizes.items() for _ in range(n)]
    arm = ["mail" if at % 2 else "none" for at in range(len(cluster))]
    lone = [("x1", "mail", "lone", 0.0), *((f"y{at}", "none", "lone", 1.0) for at in range(40))]
    log = pl.DataFrame(
        {
            "customer": [f"c{at:04d}" for at in range(len(cluster))],
            "variant": arm,
            "region": cluster,
            "clicks": [float(at % 4) for at in range(len(cluster))],
        }
    ).vstack(pl.DataFrame(lone, ["customer", "variant", "region", "clicks"], orient="row"))
    path = experiment(log, arms={"same_shares": True}, privacy={"min_stratum": 1}).run().path
    found = dict(
        released(
            path, "SELECT DISTINCT cluster::VARCHAR, weight FROM units WHERE arm = 'mail'"
        ).rows()
    )
    assert found == {"large": 2.0, "lone": None, **{f"small {at}": 2.0 for at in range(5)}}
    effect = released(path, "SELECT estimate FROM ate() WHERE estimator = 'combined'").item()
    averages = means(path, "outcome")
    assert averages["mail"] - averages["none"] == pytest.approx(effect, abs=1e-9)


@pytest.mark.parametrize("statistic", ["counts", "none"])
def test_clusters_with_hardly_anybody_of_an_arm_count_by_own_sizes(
    experiment: Builder, statistic: str
) -> None:
    """The same in SQL, in Python and by weights, which everybody has, of 30 clusters of 12."""
    n = 360
    cluster, place = np.arange(n) // 12, np.arange(n) % 12
    mail = np.select(
        [cluster == 3, cluster == 7, cluster == 9], [True, False, place == 0], place < 6
    )
    log = a_log(n).with_columns(
        variant=pl.Series(np.where(mail, "mail", "none")),
        region=pl.Series([f"r{one:02d}" for one in cluster]),
    )
    privacy = {
        "mechanism": "uniform-prior-dp",
        "strata_statistic": statistic,
        "epsilon": 2.0,
        "min_stratum": 100,
    }
    path = experiment(log, arms={"same_shares": True}, privacy=privacy).run().path
    assert released(path, "SELECT min(own_sizes) FROM strata").item() > 0
    assert released(path, "SELECT count(*) - count(weight) FROM units").item() == 0
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS rel (READ_ONLY)")
        connection.execute("CREATE TABLE all_of AS SELECT unit_id, 'x' AS segment FROM rel.units")
        columns = "estimator, estimate, std_error, ci_lower, ci_upper"
        rows = connection.execute(f"SELECT {columns} FROM rel.ate_by_segment('all_of', 'rel')")
        by_sql = {name: numbers for name, *numbers in rows.fetchall()}
    of_engine = {
        one.estimator: [one.estimate, one.std_error, one.ci_lower, one.ci_upper]
        for one in estimate_release(path).estimates
    }
    assert by_sql.keys() >= {"combined", "tau_q"}
    for name, numbers in by_sql.items():
        assert numbers == pytest.approx(of_engine[name], rel=1e-8)
    averages = means(path, "outcome")
    combined, _ = of_engine["combined"][:2]
    assert averages["mail"] - averages["none"] == pytest.approx(combined, abs=1e-9)


def test_nothing_is_stored_of_a_unit_that_follows_from_its_stratum(experiment: Builder) -> None:
    log = a_log(240, arms=THREE).with_columns(country=pl.lit("ch"))
    built = experiment(
        log, columns={"attributes": ["country"]}, arms={"treatments": ["mail", "call"]}
    )
    path = built.run().path
    columns = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'drawn'"
    names = released(path, columns)["column_name"].to_list()
    assert names == ["unit_id", "_stratum", "outcome_randomised", "country"]
    shown = released(path, "units")
    assert shown.columns == [
        *("unit_id", "cluster", "arm", "outcome", "outcome_randomised", "outcome_debiased"),
        *("weight", "country"),
    ]
    shown = shown.sort("unit_id")
    labels = shown.select("unit_id", pl.col("cluster", "arm").cast(pl.String))
    assert labels.rows() == log.select("customer", "region", "variant").sort("customer").rows()


@pytest.mark.parametrize("privacy", SHARES, ids=lambda one: str(one["mechanism"]))
def test_skewness_by_counts_is_that_of_the_units(
    experiment: Builder, privacy: dict[str, Any]
) -> None:
    path = experiment(uneven(1201), privacy=privacy).run().path
    with open_release(path) as connection:
        (found,) = read_every(connection, read_manifest(connection))
    wanted = released(path, "SELECT skewness(outcome_debiased) FROM units").item()
    assert found.skewness == pytest.approx(wanted, abs=1e-9)  # it has nine decimals
    assert abs(wanted) > 1e-4


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return build_experiment(tmp_path_factory.mktemp("sound") / "e", uneven())


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE $own.unit_facts SET shift0 = shift0 + 0.01", "units: other calibrated outcomes"),
        ("UPDATE $own.unit_facts SET weight = weight * 1.01", "units: other weights"),
        ("UPDATE $own.unit_facts SET weight = NULL", "units: other weights"),
        ("DROP VIEW units; CREATE VIEW units AS SELECT 1 AS x", "columns of table units are not"),
        (
            "DROP VIEW units; CREATE VIEW units AS SELECT u.unit_id, f.cluster, f.arm, "
            "u.outcome_randomised * f.factor0 + f.base0 + f.shift0 AS outcome, "
            "u.outcome_randomised, u.outcome_randomised * f.factor0 + f.base0 + 1 "
            "AS outcome_debiased, f.weight FROM $own.drawn AS u "
            "JOIN $own.unit_facts AS f ON f._stratum = u._stratum",
            "columns of table units are not",
        ),
        ("DROP VIEW units; CREATE TABLE units AS FROM $own.drawn", "columns of table units are"),
        ("CREATE VIEW $own.units AS FROM main.units", "columns of table units are not"),
        ("CREATE TABLE $own.weights (metric VARCHAR)", "columns of table units are not"),
    ],
)
def test_units_that_show_something_else_are_refused(
    sound: Experiment, tmp_path: Path, statement: str, says: str
) -> None:
    path = tmp_path / "theirs.duckdb"
    shutil.copy(sound.run().path, path)
    path.chmod(0o644)
    with duckdb.connect(str(path)) as connection:
        alter(connection, statement)
    with pytest.raises(InputError, match=says):
        read_checked(path)


def test_a_view_that_was_made_again_is_the_same(sound: Experiment, tmp_path: Path) -> None:
    """The negative control of the test above, with the text that the file has of it."""
    path = tmp_path / "theirs.duckdb"
    shutil.copy(sound.run().path, path)
    path.chmod(0o644)
    with duckdb.connect(str(path)) as connection:
        view = "SELECT sql FROM duckdb_views() WHERE view_name = 'units'"
        ((made,),) = connection.execute(view).fetchall()
        connection.execute(f"DROP VIEW units; {made}")
    read_release(path)
