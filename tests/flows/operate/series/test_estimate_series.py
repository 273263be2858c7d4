"""Several releases together: which count, what they have to share, and what they give."""

import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp
from flows.cli.main import run as run_command
from flows.cli.show.series import series_text
from flows.operate.series.estimates import SeriesEstimates, Table, estimate_series
from flows.operate.series.nights import find_nights, gaps
from flows.operate.series.people import Accounted, People, find_people, people_by_files
from flows.released.estimates.release import estimate_file
from schemas.errors import ConfigError, InputError
from tests.conftest import EXACT, Experiment, build_experiment, released
from tests.flows.operate.series.nights_made import DAYS, N_UNITS, night_log, nights

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """Three nights, each of new people."""
    return nights(tmp_path_factory.mktemp("new") / "e")


@pytest.fixture(scope="module")
def back(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """Three nights, of which half the people come back each time; outcomes almost as they are."""
    return nights(tmp_path_factory.mktemp("back") / "e", step=N_UNITS // 2, privacy=EXACT)


@pytest.fixture
def folder(new: Experiment, tmp_path: Path) -> Path:
    """A copy of the releases of new people, to do mischief in."""
    return Path(shutil.copytree(new.releases, tmp_path / "trial"))


def refusal(*paths: Path) -> str:
    with pytest.raises(InputError) as failure:
        estimate_series(paths)
    return str(failure.value)


def by_hand(series: SeriesEstimates, estimator: str) -> tuple[float, float]:
    """The pooled effect and its standard error, for people who are new each night."""
    rows = [one for period in series.periods for one in period.estimates]
    used = [one for one in rows if one.estimator == estimator]
    n = np.array([one.n_units for one in used], dtype=np.float64)
    effect, error = (
        np.array([getattr(one, name) for one in used]) for name in ("estimate", "std_error")
    )
    weight = n / n.sum()
    return float(weight @ effect), float(np.sqrt(weight**2 @ error**2))


def test_a_folder_gives_each_period_and_all_together(new: Experiment) -> None:
    series = estimate_series([new.releases])
    assert [one.night.manifest.period for one in series.periods] == list(DAYS)
    for one in series.periods:
        assert one.estimates == estimate_file(one.night.path)
    assert series.people.kind == "disjoint"
    for pooled in series.pooled:
        effect, error = by_hand(series, pooled.estimator)
        assert pooled.estimate == pytest.approx(effect, rel=1e-12)
        assert pooled.std_error == pytest.approx(error, rel=1e-12)
        assert (pooled.n_units, pooled.n_segment, pooled.n_releases) == (720, 720, 3)
        assert pooled.coverage == 1.0
    assert any("1 period is missing: 2026-11-03" in note for note in series.notes)


def test_the_interval_for_every_look_holds_the_fixed_one(new: Experiment) -> None:
    series = estimate_series([new.releases])
    combined = next(one for one in series.pooled if one.estimator == "combined")
    assert combined.ci_lower_always is not None
    assert combined.ci_upper_always is not None
    assert combined.ci_lower is not None
    assert combined.ci_upper is not None
    assert combined.ci_lower_always < combined.ci_lower < combined.ci_upper
    assert combined.ci_upper < combined.ci_upper_always
    other = next(one for one in series.pooled if one.planned_std_error is None)
    assert other.ci_lower_always is None
    assert any("no interval for those who look every night" in note for note in series.notes)


def test_looks_move_the_interval_for_every_look_alone(new: Experiment) -> None:
    usual, late = (estimate_series([new.releases], looks=n).pooled for n in (14, 400))
    for one, other in zip(usual, late, strict=True):
        moved = {name for name, value in vars(one).items() if vars(other)[name] != value}
        assert moved <= {"ci_lower_always", "ci_upper_always"}


def test_the_relative_effect_is_pooled_too(new: Experiment) -> None:
    pooled = estimate_series([new.releases]).pooled[0]
    assert pooled.relative is not None
    assert pooled.control_mean is not None
    assert pooled.estimate is not None
    assert pooled.relative == pytest.approx(pooled.estimate / pooled.control_mean)


def test_files_in_any_order_and_latest_and_series_change_nothing(new: Experiment) -> None:
    files = sorted(new.releases.glob("*.duckdb"), reverse=True)
    assert {path.name for path in files} >= {"latest.duckdb", "series.duckdb"}
    assert estimate_series(files).pooled == estimate_series([new.releases]).pooled


# people who come back


def crossed_by_sql(built: Experiment) -> float:
    """2 Σ_{r<s} Σ_u n ψ_ur n ψ_us of the effect, pair of nights by pair, in the words of SQL."""
    parts = []
    for place, day in enumerate(DAYS):
        units = released(built.releases / f"trial.{day}.r1.duckdb", "units")
        n_cluster = pl.len().over("cluster")
        own = pl.len().over("cluster", "arm")
        debiased = pl.col("outcome_debiased")
        deviation = debiased - debiased.mean().over("cluster", "arm")
        sign = pl.when(pl.col("arm") == "none").then(-1.0).otherwise(1.0)
        psi = sign * n_cluster * deviation / (own * (own - 1)).sqrt()
        parts.append(units.select("unit_id", psi.alias(f"psi{place}")))
    total = 0.0
    for one in range(len(parts)):
        for other in range(one):
            both = parts[one].join(parts[other], on="unit_id")
            total += 2 * float((both[f"psi{one}"] * both[f"psi{other}"]).sum())
    return total


def test_cross_terms_of_people_who_come_back(back: Experiment) -> None:
    series = estimate_series([back.releases])
    assert series.people.kind == "returning"
    assert len(series.people.shared) == N_UNITS  # half of each of two nights
    (pooled,) = series.pooled
    _, error = by_hand(series, "tau_q")
    n = 3 * N_UNITS
    expected = error**2 + crossed_by_sql(back) / n**2
    assert pooled.std_error is not None
    assert pooled.std_error**2 == pytest.approx(expected, rel=1e-9)
    assert pooled.relative is None
    assert pooled.people == "returning"


def test_a_segment_of_everybody_is_the_whole_also_where_people_come_back(back: Experiment) -> None:
    ids = pl.concat([night_log(120 * place).select(unit_id="customer") for place in range(3)])
    table = Table("segments", Path("all"), ids.unique().with_columns(segment=pl.lit("everybody")))
    (whole,) = estimate_series([back.releases]).pooled
    (segment,) = estimate_series([back.releases], table=table).pooled
    assert segment.people == whole.people == "returning"
    for name in ("estimate", "std_error", "ci_lower", "n_units"):
        assert getattr(segment, name) == pytest.approx(getattr(whole, name), rel=1e-9)


def test_whoever_is_told_that_people_differ_does_without_cross_terms(back: Experiment) -> None:
    series = estimate_series([back.releases], told="disjoint")
    (pooled,) = series.pooled
    assert pooled.std_error == pytest.approx(by_hand(series, "tau_q")[1])
    assert pooled.people == "disjoint"


def test_ids_under_unknown_keys_give_the_bound_and_a_warning(tmp_path: Path) -> None:
    (tmp_path / "short.key").write_text("short")
    keyed = {"unit_id": "keyed-hash", "key_file": str(tmp_path / "short.key")}
    built = nights(tmp_path / "e", days=DAYS[:2], publish=keyed, privacy={"account": "population"})
    series = estimate_series([built.releases])
    assert series.people.kind == "unknown"
    assert "--people disjoint" in series.warnings[0]
    for one in series.pooled:
        errors = [
            other.std_error or np.nan
            for period in series.periods
            for other in period.estimates
            if other.estimator == one.estimator
        ]
        assert one.std_error == pytest.approx(np.mean(errors))  # nights of one size
    assert estimate_series([built.releases], told="returning").people.kind == "returning"


@pytest.mark.parametrize("unit_id", ["plain", "keyed-hash"])
def test_whoever_is_spelt_otherwise_is_known_again_unless_hashed(
    tmp_path: Path, unit_id: str
) -> None:
    log = night_log(0)
    capital = pl.format(" {}", pl.col("customer").str.to_uppercase()).alias("customer")
    again = pl.concat([log[:8], log[8:].with_columns(capital)])
    source = {"path": "logs/{period}.parquet"}
    publish = {"unit_id": unit_id} | ({} if unit_id == "plain" else {"key_file": "ids.key"})
    (tmp_path / "ids.key").write_bytes(bytes(range(32)))
    logs = {f"logs/{DAYS[0]}.parquet": log, f"logs/{DAYS[1]}.parquet": again}
    built = build_experiment(tmp_path, logs, source=source, publish=publish)
    for day in DAYS[:2]:
        built.run(day)
    series = estimate_series([built.releases])
    assert series.periods[1].night.manifest.n_returning == N_UNITS
    assert series.people.kind == "returning"
    if unit_id == "plain":
        assert len(series.people.shared) == N_UNITS
        assert series.warnings == ()
    else:
        assert len(series.people.shared) == 8
        assert f"{N_UNITS - 8} people of one release" in series.warnings[0]


def test_a_release_of_clusters_alone_has_no_ids_to_match(tmp_path: Path) -> None:
    privacy = {"mechanism": "noisy-histogram", "account": "population"}
    built = nights(tmp_path / "e", days=DAYS[:2], privacy=privacy)
    assert find_people(find_nights([built.releases])).kind == "unknown"
    assert find_people(find_nights([built.releases]), "disjoint").kind == "disjoint"
    assert estimate_series([built.releases]).pooled[0].std_error is not None


def said(*files: tuple[int, int | None, str | None, str | None]) -> People:
    return people_by_files(
        [Accounted(datetime(2026, 11, day), n, returning, key) for day, n, returning, key in files]
    )


def test_files_say_whether_people_come_back() -> None:
    first = (1, 0, "charge", "k")
    assert said(first, (2, 0, "charge", "k")).kind == "disjoint"
    assert said(first, (2, None, "set_aside", "k")).kind == "disjoint"
    assert said(first, (2, 7, "charge", "k")).kind == "returning"
    assert said(first, (2, 0, "charge", "other")).kind == "unknown"
    assert said((1, None, None, None), (2, None, None, None)).kind == "unknown"
    # a backfill: the earlier period was made later, and looked for the other's people
    assert said((3, 0, "charge", "k"), (2, None, "charge", "k")).kind == "disjoint"
    mixed = said(first, (2, 0, "charge", "k"), (3, 5, "charge", "k"))
    assert [mixed.until(place) for place in range(3)] == ["disjoint", "disjoint", "returning"]


# an analyst's table


def test_releases_that_have_none_of_the_ids_are_left_out(new: Experiment) -> None:
    ids = night_log(0).select(unit_id="customer", segment="region")
    series = estimate_series([new.releases], table=Table("segments", Path("some"), ids))
    assert {one.n_releases for one in series.pooled} == {1}
    assert any("2 periods give no effect" in text for text in series.warnings)


def test_a_table_that_fits_no_release_is_an_error(new: Experiment) -> None:
    ids = pl.DataFrame({"unit_id": ["nobody"], "segment": ["a"]})
    with pytest.raises(InputError, match="none of its ids is in any of the 3 releases"):
        estimate_series([new.releases], table=Table("segments", Path("some"), ids))


# what is refused


def test_a_folder_without_releases_is_refused(new: Experiment, tmp_path: Path) -> None:
    assert "holds no release" in refusal(tmp_path)
    assert "its folders do: trial" in refusal(new.releases.parent)


def test_a_release_under_another_name_is_refused(folder: Path) -> None:
    shutil.copy(folder / "trial.2026-11-01.r1.duckdb", folder / "trial.2026-12-01.r1.duckdb")
    told = refusal(folder)
    assert "trial.2026-12-01.r1.duckdb: holds the release trial.2026-11-01.r1" in told


def test_a_release_twice_is_refused(folder: Path) -> None:
    shutil.copy(folder / "trial.2026-11-01.r1.duckdb", folder / "copy.duckdb")
    assert "are both the release trial.2026-11-01.r1" in refusal(folder)


@pytest.mark.parametrize("fact", ["release.created_at", "metrics.n_outcomes", "metrics.epsilon"])
def test_a_release_that_does_not_say_all_that_every_one_says_is_refused(
    folder: Path, fact: str
) -> None:
    table, column = fact.split(".")
    path = folder / "trial.2026-11-01.r1.duckdb"
    path.chmod(0o600)
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"UPDATE {table} SET {column} = NULL")
    with pytest.raises(InputError, match="does not say what it is"):
        find_nights([folder])


def test_a_file_that_is_no_release_is_refused(folder: Path) -> None:
    (folder / "notes.duckdb").write_text("notes")
    assert "notes.duckdb: not a DuckDB file" in refusal(folder)


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "arms": ({"arms": {"treatments": ["mail", "call"]}}, "its arms are 'none', 'call', 'mail'"),
    "range": (
        {"outcome": {"values": [0, 1, 2, 5]}},
        "its outcomes go from 0 to 5, not from 0 to 3",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_other_arms_and_ranges_are_refused(folder: Path, tmp_path: Path, what: str) -> None:
    sections, words = CHANGES[what]
    log = pl.concat([night_log(0), night_log(240).with_columns(variant=pl.lit("call"))])
    other = build_experiment(
        tmp_path / "other",
        {"logs/2026-11-09.parquet": log if what == "arms" else night_log(0)},
        source={"path": "logs/{period}.parquet"},
        **sections,
    )
    shutil.copy(other.run("2026-11-09").path, folder)
    told = refusal(folder)
    assert words in told
    assert "trial.2026-11-09.r1.duckdb" in told


def test_another_experiment_is_refused(folder: Path, tmp_path: Path) -> None:
    other = nights(tmp_path / "other", days=[])
    other.config.write_text(other.config.read_text().replace('"trial"', '"other"'))
    log = other.folder / "logs" / "2026-11-01.parquet"
    log.parent.mkdir()
    night_log(0).write_parquet(log)
    shutil.copy(other.run("2026-11-01").path, folder)
    assert "it is of the experiment 'trial', not of 'other'" in refusal(folder)


def test_a_changed_epsilon_is_pooled_and_said(folder: Path, tmp_path: Path) -> None:
    other = nights(tmp_path / "other", days=["2026-11-05"], privacy={"epsilon": 3.0})
    shutil.copy(other.releases / "trial.2026-11-05.r1.duckdb", folder)
    notes = " ".join(estimate_series([folder]).notes)
    assert "from 2026-11-05 on the design is another: epsilon from 2 to 3" in notes


def test_what_every_release_has_comes_first(folder: Path, tmp_path: Path) -> None:
    """A night may publish nothing of strata; then ``combined`` speaks of the others alone."""
    other = nights(
        tmp_path / "other", days=["2026-11-05"],
        privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "none"},
    )  # fmt: skip
    shutil.copy(other.releases / "trial.2026-11-05.r1.duckdb", folder)
    series = estimate_series([folder])
    notes = " ".join(series.notes)
    assert "what is published of strata from counts to none" in notes
    text = series_text(series)
    alone = "from all that is published (combined), in 3 of 4 releases alone"
    assert text.index("alone (tau_q)") < text.index(alone)
    _, periods = text.split("each release, from the randomised outcomes alone (tau_q)")
    assert periods.count("2026-11-") == 4
    (told,) = [one for one in series.pooled if one.estimator == "tau_q"]
    assert told.n_releases == 4
    assert run_command(["report", str(folder), "-o", str(tmp_path / "pages")]) == 0
    page = (tmp_path / "pages" / "index.html").read_text()
    assert told.estimate is not None
    assert repr(told.estimate) in page.split("Everything else")[0]


def test_the_greatest_revision_counts(folder: Path, tmp_path: Path) -> None:
    other = nights(tmp_path / "other", days=["2026-11-02"])
    shutil.copy(other.run("2026-11-02", revise=True).path, folder)
    found = find_nights([folder])
    assert [night.name.revision for night in found.nights] == [1, 2, 1]
    every = sorted(folder.glob("trial.*.duckdb"))
    assert [night.name.revision for night in find_nights(every).nights] == [1, 2, 1]


@pytest.mark.parametrize("looks", [0, -3, 10**7])
def test_impossible_numbers_of_looks_are_refused(new: Experiment, looks: int) -> None:
    with pytest.raises(ConfigError, match="looks"):
        estimate_series([new.releases], looks=looks)


def test_gaps_are_of_days_alone() -> None:
    assert gaps(["2026-11-01", "2026-11-02", "2026-11-05"]) == [
        "2 periods are missing: 2026-11-03, 2026-11-04"
    ]
    assert gaps(["2026-11-01", "2026-11-08", "2026-11-22"]) == ["1 period is missing: 2026-11-15"]
    assert gaps(["2026-11-01", "2026-11-08"]) == []
    assert gaps(["week-1", "week-3", "week-4"]) == []


# commands, and Python


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = run_command([str(one) for one in arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_the_document_of_several_releases(
    command: Callable[..., tuple[int, str, str]], new: Experiment
) -> None:
    code, out, err = command("estimate", new.releases, "--json")
    document = json.loads(out)
    assert code == 0
    assert "2026-11-03" in err
    assert [one["release_id"] for one in document["periods"]] == [f"trial.{d}.r1" for d in DAYS]
    assert document["people"] == "disjoint"
    assert set(document["pooled"][0]) >= {
        "arm", "estimate", "ci_lower", "ci_lower_always", "ci_upper_always", "n_units",
        "n_releases", "relative", "coverage", "metric",
    }  # fmt: skip
    assert "estimates" not in document


def test_people_read_a_screen(
    command: Callable[..., tuple[int, str, str]], back: Experiment
) -> None:
    code, out, _ = command("estimate", back.releases)
    assert code == 0
    assert "people come back (240 ids are in more than one release)" in out
    assert "for every look" in out


@pytest.mark.parametrize("option", [("--people", "disjoint"), ("--looks", "3")])
def test_options_for_several_releases_are_refused_for_one(
    command: Callable[..., tuple[int, str, str]], new: Experiment, option: tuple[str, str]
) -> None:
    path = new.releases / "trial.2026-11-01.r1.duckdb"
    code, out, err = command("estimate", path, *option)
    assert (code, out) == (2, "")
    assert "is for several releases" in err


def test_the_sql_runs_as_it_is_printed(
    command: Callable[..., tuple[int, str, str]], back: Experiment
) -> None:
    code, out, _ = command("inspect", back.releases, "--sql")
    assert code == 0
    with duckdb.connect() as connection:
        counted = connection.execute(out).fetchall()
        assert counted == [(day, arm, 120) for day in DAYS for arm in ("mail", "none")]
        (n_units,) = connection.execute("SELECT count(DISTINCT unit_id) FROM units").fetchall()[0]
        assert n_units == 2 * N_UNITS
        assert connection.execute("SELECT count(*) FROM estimates").fetchall() == [(3,)]


def test_inspect_lists_a_folder(
    command: Callable[..., tuple[int, str, str]], back: Experiment
) -> None:
    document = json.loads(command("inspect", back.releases, "--json")[1])
    assert [one["period"] for one in document["releases"]] == list(DAYS)
    assert "2026-11-04" in command("inspect", back.releases)[1]


def test_series_in_python(back: Experiment) -> None:
    series = clusterdp.open_series(back.releases)
    assert "3 releases, 2026-11-01 to 2026-11-04" in repr(series)
    assert [one.manifest.period for one in series.releases] == list(DAYS)
    found = series.ate()
    assert found["people"].to_list() == ["returning"]
    assert {"ci_lower_always", "n_releases"} <= set(found.columns)
    assert series.by_period()["period"].to_list() == list(DAYS)
    assert series.cumulative()["n_releases"].to_list() == [1, 2, 3]
    assert "ATTACH" in series.sql
    ids = night_log(0).select(unit_id="customer", segment="region")
    with pytest.warns(clusterdp.ClusterdpWarning, match="periods give no effect"):
        assert set(series.ate(segments=ids)["segment"]) == {"east", "west"}
