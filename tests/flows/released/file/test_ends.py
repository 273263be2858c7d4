"""The table ``ends``: what every mechanism's file tells of the ends of a grid, and who checks it.

A share is the true one within 8 of its errors: of noise that is about normal, a false alarm in 10¹⁴
shares; were all of it one Laplace number, in 10⁵.
"""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from flows.cli.main import run
from flows.operate.watch.notices import news_of_release
from flows.released.estimates.stated import read_checked
from schemas.errors import InputError
from schemas.roster import Roster
from tests.conftest import EXACT, Builder, Experiment, a_log, released
from tests.support.distances import assert_near

N = 1200
VALUES = [0.0] * 7 + [1.0, 2.0, 3.0]  # .7 at the lowest value, .1 at the others
TRUE = {"missing": 0.1, "lowest": 0.7, "highest": 0.1}
STRONG = {"epsilon": 4.0}


def log(n: int = N) -> pl.DataFrame:
    return a_log(n).with_columns(pl.Series("clicks", [VALUES[unit * 7 % 10] for unit in range(n)]))


def ends_of(path: Path, metric: str = "outcome") -> dict[str, tuple[float, float]]:
    rows = released(path, "ends").filter(pl.col("metric") == metric).to_dicts()
    return {row["end"]: (row["share"], row["std_error"]) for row in rows}


def assert_ends(found: dict[str, tuple[float, float]], true: dict[str, float]) -> None:
    assert set(found) == set(true)
    for end, (share, error) in found.items():
        assert 0 < error < 0.2
        assert_near(share, true[end], error, 8.0)


@pytest.mark.parametrize(
    "privacy",
    [
        {"mechanism": "cluster-dp"},
        {"mechanism": "cluster-free-dp"},
        {"mechanism": "uniform-prior-dp", "strata_statistic": "counts"},
        {"mechanism": "uniform-prior-dp", "strata_statistic": "means"},
        {"mechanism": "uniform-prior-dp", "strata_statistic": "none"},
        {"mechanism": "cluster-optimal-dp", "strata_statistic": "counts"},
        {"mechanism": "cluster-optimal-dp", "strata_statistic": "none"},
        {"mechanism": "noisy-histogram"},
    ],
    ids=lambda privacy: "-".join(privacy.values()),
)
def test_every_mechanism_tells_of_the_ends(experiment: Builder, privacy: dict[str, Any]) -> None:
    built = experiment(log(), privacy=STRONG | privacy, outcome={"missing": 2})
    result = built.run()
    assert_ends(ends_of(result.path), TRUE)
    read_checked(result.path)
    assert [one for one in result.warnings if "may all be" in one] == []


@pytest.mark.parametrize("mechanism", ["noisy-horvitz-thompson"])
def test_without_units_and_counts_nothing_is_told(experiment: Builder, mechanism: str) -> None:
    result = experiment(log(), privacy=STRONG | {"mechanism": mechanism}).run()
    assert ends_of(result.path) == {}
    read_checked(result.path)


def test_two_outcomes_drawn_together_have_each_their_own(experiment: Builder) -> None:
    several: list[dict[str, Any]] = [
        {"name": "bought", "column": "bought", "values": [0, 1]},
        {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3], "missing": 2},
    ]
    both = log().with_columns((pl.col("clicks") > 0).cast(pl.Float64).alias("bought"))
    built = experiment(
        both,
        columns={"outcome": None},
        outcome=None,
        outcomes=several,
        privacy=STRONG | {"mechanism": "cluster-optimal-dp", "joint": "yes"},
    )
    path = built.run().path
    assert_ends(ends_of(path, "clicks"), TRUE)
    assert_ends(ends_of(path, "bought"), {"missing": 0.7, "lowest": 0.7, "highest": 0.3})


def test_on_a_coarser_grid_a_share_is_of_rounded_outcomes(experiment: Builder) -> None:
    """2 between 0 and 3 is 3 in two of three; of what lies between two points there is no row."""
    coarse = {"values": None, "low": 0.0, "high": 3.0, "levels": 2, "missing": 2.0}
    path = experiment(log(30_000), outcome=coarse, privacy=EXACT).run().path
    found = ends_of(path)
    assert set(found) == {"lowest", "highest"}
    assert found["lowest"][0] == pytest.approx(0.7 + 0.1 * 2 / 3 + 0.1 / 3, abs=0.015)  # 8 sd
    assert found["lowest"][0] + found["highest"][0] == pytest.approx(1)


@pytest.fixture
def of_one_value(experiment: Builder) -> Experiment:
    return experiment(log(240).with_columns(pl.lit("nil").alias("clicks")), privacy=EXACT)


def changed_copy(path: Path, folder: Path, change: str) -> Path:
    """A copy of the file at ``path``, in which a statement has changed something."""
    changed = Path(shutil.copy(path, folder / path.name))
    changed.chmod(0o644)
    with duckdb.connect(str(changed)) as connection:
        connection.execute(change)
    return changed


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ends SET share = .5 WHERE \"end\" = 'lowest'",
        "UPDATE ends SET std_error = 1",
        "DELETE FROM ends",
        "UPDATE metrics SET missing = 3",
    ],
)
def test_who_shows_a_file_refuses_ends_that_it_does_not_give(
    of_one_value: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    changed = changed_copy(of_one_value.run().path, tmp_path, change)
    with pytest.raises(InputError, match="ends: "):
        read_checked(changed)
    assert run(["report", str(changed), "-o", str(tmp_path / "page.html")]) == 2
    capsys.readouterr()
    assert run(["estimate", str(changed)]) == 0  # it makes its own of them, from the units
    assert "may all be" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ends SET \"end\" = 'middle'",
        "UPDATE ends SET share = 'inf'",
        "UPDATE metrics SET missing = NULL",
    ],
)
def test_rows_that_no_release_has_are_refused(
    of_one_value: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    changed = changed_copy(of_one_value.run().path, tmp_path, change)
    assert run(["inspect", str(changed)]) == 2
    assert "not a sound release: " in capsys.readouterr().err


def test_the_page_and_notices_tell_of_one_value(
    of_one_value: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = of_one_value.run()
    (warning,) = [one for one in result.warnings if "may all be" in one]
    page = tmp_path / "page.html"
    assert run(["report", str(result.path), "-o", str(page)]) == 0
    assert "An outcome may be one value alone." in page.read_text(encoding="utf-8")
    (news,) = news_of_release(of_one_value.load(), "once", a_roster(), (warning,))
    assert (news.event, news.reason, news.state) == ("one_value", warning, "published")
    assert news_of_release(of_one_value.load(), "once", a_roster()) == []


def a_roster() -> Roster:
    return Roster(n_units=1, n_clusters=1, units_by_arm={}, quarantined=0, sample_ratio_p=None)
