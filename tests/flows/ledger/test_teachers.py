"""Who teaches a night: public files that are to be used, and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

from estimators import published_guess
from estimators.published_guess import Outputs, evened, learnt, learnt_within
from flows.config.load import load
from flows.ledger import teachers
from flows.ledger.account import Account
from flows.operate.prune import prune
from flows.operate.series import renew
from flows.operate.status import status
from flows.operate.verify import verify_loss
from flows.operate.withdraw import withdraw
from flows.plan import plan
from flows.released.checksums import sha256_of
from flows.released.estimates import taught
from flows.released.estimates.taught import read_outputs
from flows.released.file.read import open_release, read_manifest
from flows.runtime import clock
from schemas.errors import ConflictError, InputError
from tests.conftest import Experiment, a_log, build_experiment, released
from tests.flows.operate.series.nights_made import N_UNITS, night_log
from tests.support.made_once import made_once

pytestmark = pytest.mark.release

DAYS = ("2026-11-01", "2026-11-02", "2026-11-03", "2026-11-04")
GRID = {"values": [0, 1, 2, 3]}


def built(folder: Path, days: Sequence[str] = DAYS, **sections: Any) -> Experiment:
    logs = {f"logs/{day}.parquet": night_log(at * N_UNITS) for at, day in enumerate(days)}
    privacy = {"mechanism": "uniform-prior-dp", "epsilon": 3.0} | sections.pop("privacy", {})
    given = {"source": {"path": "logs/{period}.parquet"}, "outcome": GRID, **sections}
    return build_experiment(folder / "e", logs, privacy=privacy, **given)


def changed(built: Experiment, old: str, new: str) -> None:
    text = built.config.read_text()
    assert text.count(old) == 1
    built.config.write_text(text.replace(old, new))


def path_of(built: Experiment, day: int, revision: int = 1) -> Path:
    return built.releases / f"trial.{DAYS[day]}.r{revision}.duckdb"


def taught_by(path: Path) -> list[str]:
    """The periods and revisions that have taught a release; each with the digest of its file."""
    told = released(path, "SELECT guess_from FROM release").item()
    found = []
    for one in filter(None, told.split(", ")):
        name, digest = one.split(" ")
        teacher = path.parent / f"{name}.duckdb"
        assert not teacher.exists() or digest == sha256_of(teacher)
        found.append(name.removeprefix("trial."))
    assert bool(found) == (released(path, "guess").height > 0)
    return found


def guess_of(path: Path) -> pl.DataFrame:
    return released(path, "FROM guess ORDER BY metric, cluster, arm, outcome")


@pytest.fixture
def nights(tmp_path: Path) -> Experiment:
    """Two nights, and logs of two more."""
    made = made_once(Experiment.run_all, built(tmp_path), *DAYS[:2])
    Account.of(load(made.config)).renew_series()  # a copy's is looked at, once
    return made


def test_a_night_learns_from_all_before_it(nights: Experiment) -> None:
    nights.run(DAYS[2])
    assert [taught_by(path_of(nights, day)) for day in range(3)] == [
        [],
        [f"{DAYS[0]}.r1"],
        [f"{DAYS[0]}.r1", f"{DAYS[1]}.r1"],
    ]
    assert released(path_of(nights, 2), "guess").columns == [
        *("metric", "cluster", "arm", "outcome", "probability")
    ]


def test_without_clusters_arms_are_told_apart_alone(tmp_path: Path) -> None:
    made = built(tmp_path, DAYS[:2], columns={"cluster": None})
    made.run_all(*DAYS[:2])
    assert taught_by(path_of(made, 1)) == [f"{DAYS[0]}.r1"]
    assert guess_of(path_of(made, 1))["cluster"].unique().to_list() == ["all"]


@pytest.mark.parametrize("mechanism", ["uniform-prior-dp", "cluster-dp", "cluster-optimal-dp"])
def test_a_guess_is_a_function_of_released_files_alone(tmp_path: Path, mechanism: str) -> None:
    made = built(tmp_path, DAYS[:2], privacy={"mechanism": mechanism})
    made.run_all(*DAYS[:2])
    with open_release(path_of(made, 0)) as connection:
        rows = read_outputs(connection, read_manifest(connection))
    grid, arms = np.arange(4.0), ["none", "mail"]
    assert sum(sum(row["counts"]) for row in rows) == N_UNITS
    tables = [np.array(row["probabilities"]).reshape(4, -1) for row in rows]
    nights = Outputs(
        grid,
        np.array(tables),
        np.array([arms.index(row["arm"]) for row in rows]),
        np.arange(len(rows)),
        np.array([row["counts"] for row in rows]),
    )
    found = guess_of(path_of(made, 1))
    shares = learnt([nights], grid, 2, nearest=False)
    told = [
        (name, at, counts)
        for at, row in enumerate(rows)
        for name, counts in zip(
            row["clusters"],
            np.reshape(row["counts_within"], (len(row["clusters"]), -1)),
            strict=True,
        )
    ]
    table = np.array([at for _, at, _ in told])
    within = replace(
        nights,
        arm=nights.arm[table],
        table=table,
        counts=np.array([counts for *_, counts in told]),
        cluster=tuple(name for name, *_ in told),
    )
    expected = {"all": shares} | learnt_within([within], grid, shares, nearest=False)
    assert {*found["cluster"]} == {"all", "east", "west"} == {*expected}
    stated = np.array(
        [[found.filter(cluster=name, arm=arm)["probability"] for arm in arms] for name in expected]
    )
    every = np.array([*expected.values()])
    parts = [np.abs(stated - evened(every, part)).max() for part in np.linspace(0, 1, 1001)]
    assert min(parts) < 1e-3  # by some part of an even one, the same for all


def test_a_rerun_returns_the_file_and_reads_no_guess(nights: Experiment) -> None:
    nights.run(DAYS[2])
    before = path_of(nights, 1).read_bytes()
    with patch.object(teachers, "learnt", lambda *_, **__: 1 / 0):
        assert nights.run(DAYS[1]).status == "unchanged"
    assert path_of(nights, 1).read_bytes() == before
    changed(nights, "[outcome]", '[outcome]\nguess = "uniform"')
    assert nights.run(DAYS[1]).status == "unchanged"  # what was learnt since is no conflict
    changed(nights, 'guess = "uniform"', "guess = [3, 1, 1, 1]")
    with pytest.raises(ConflictError):
        nights.run(DAYS[1])


def test_a_revision_has_the_guess_that_is_recorded(nights: Experiment) -> None:
    nights.run(DAYS[2])
    for day in (0, 1):
        nights.run(DAYS[day], revise=True)
        assert taught_by(path_of(nights, day, 2)) == taught_by(path_of(nights, day))
        assert guess_of(path_of(nights, day, 2)).equals(guess_of(path_of(nights, day)))
    nights.run(DAYS[3])
    assert taught_by(path_of(nights, 3)) == [f"{DAYS[0]}.r2", f"{DAYS[1]}.r2", f"{DAYS[2]}.r1"]


def test_a_revision_of_what_is_gone_has_the_declared_guess(nights: Experiment) -> None:
    path_of(nights, 1).unlink()
    nights.run(DAYS[1], revise=True)
    assert taught_by(path_of(nights, 1, 2)) == []


def test_what_is_withdrawn_or_missing_teaches_nobody(nights: Experiment) -> None:
    nights.run(DAYS[2])
    withdraw(nights.config, f"trial.{DAYS[0]}.r1", "wrong column")
    path_of(nights, 1).unlink()
    nights.run(DAYS[3])
    assert taught_by(path_of(nights, 3)) == [f"{DAYS[2]}.r1"]


def test_what_was_pruned_still_teaches(nights: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(nights, "[privacy]", '[retention]\nreleases = "30d"\n\n[privacy]')
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(days=40))
    assert prune(nights.config).kinds["releases"].n == 1
    nights.run(DAYS[2])
    assert not path_of(nights, 0).exists()
    assert taught_by(path_of(nights, 2)) == [f"{DAYS[0]}.r1", f"{DAYS[1]}.r1"]


def test_nights_that_none_will_look_at_are_not_kept(
    nights: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (published_guess, renew):  # of a night 4 values times 4 outputs
        monkeypatch.setattr(module, "MOST_CELLS", 40)
    nights.run(DAYS[2])
    kept = released(nights.releases / "series.duckdb", "SELECT DISTINCT period FROM outputs")
    assert sorted(kept["period"]) == [*DAYS[1:3]]
    nights.run(DAYS[3])
    assert taught_by(path_of(nights, 3)) == [f"{DAYS[1]}.r1", f"{DAYS[2]}.r1"]


def test_a_night_of_too_many_probabilities_teaches_nothing(
    nights: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, n_rows in ((32, 2), (31, 0)):  # of two arms with 16 each
        monkeypatch.setattr(taught, "MOST_CELLS", most)
        with open_release(path_of(nights, 0)) as connection:
            assert len(read_outputs(connection, read_manifest(connection))) == n_rows


def test_a_lost_folder_is_a_first_night(nights: Experiment) -> None:
    for path in nights.releases.iterdir():
        path.unlink()
    nights.run(DAYS[2])
    assert taught_by(path_of(nights, 2)) == []


def test_a_series_that_is_lost_or_altered_is_made_anew(nights: Experiment) -> None:
    series = nights.releases / "series.duckdb"
    series.unlink()
    nights.run(DAYS[2])
    assert len(taught_by(path_of(nights, 2))) == 2
    series.chmod(0o644)
    series.write_bytes(series.read_bytes() + b"more")
    nights.run(DAYS[3])
    assert len(taught_by(path_of(nights, 3))) == 3


def test_a_backfill_has_the_declared_guess(tmp_path: Path) -> None:
    made = built(tmp_path)
    made.run_all(DAYS[0], DAYS[2], DAYS[1])
    assert taught_by(path_of(made, 1)) == []
    made.run(DAYS[3])
    assert len(taught_by(path_of(made, 3))) == 3


@pytest.mark.parametrize(
    ("old", "new", "learns"),
    [
        ("values = [0, 1, 2, 3]", "values = [0, 0.5, 3]", True),
        ("values = [0, 1, 2, 3]", "values = [0, 1, 2, 4]", False),
        ('treatments = ["mail"]', 'treatments = ["mail", "post"]', True),  # thought even
        ("[outcome]", '[outcome]\nguess = "uniform"', False),
        ("[outcome]", "[outcome]\nguess = [4, 3, 2, 1]", False),
        ('mechanism = "uniform-prior-dp"', 'mechanism = "noisy-histogram"', True),
    ],
)
def test_another_grid_of_one_range_learns_and_another_outcome_does_not(
    nights: Experiment, old: str, new: str, *, learns: bool
) -> None:
    changed(nights, old, new)
    if "post" in new:
        log = nights.folder / "logs" / f"{DAYS[2]}.parquet"
        some = pl.int_range(pl.len()) % 4 == 1
        arm = pl.when(some).then(pl.lit("post")).otherwise("variant").alias("variant")
        pl.read_parquet(log).with_columns(arm).write_parquet(log)
    nights.run(DAYS[2])
    assert len(taught_by(path_of(nights, 2))) == (2 if learns else 0)


def test_an_attempt_that_died_teaches_nobody_and_may_learn_anew(nights: Experiment) -> None:
    before = teachers.as_taught(load(nights.config), DAYS[2]).outcome.learnt
    nights.lose(DAYS[2])
    assert before is not None
    assert teachers.as_taught(load(nights.config), DAYS[2]).outcome.learnt == before
    nights.run(DAYS[3])
    assert taught_by(path_of(nights, 3)) == [f"{DAYS[0]}.r1", f"{DAYS[1]}.r1"]


def test_several_outcomes_learn_each_its_own(tmp_path: Path) -> None:
    outcomes = [
        {"name": "clicks", "column": "clicks", **GRID},
        {"name": "any", "column": "clicks", "values": [0, 1]},
    ]
    made = built(tmp_path, DAYS[:2], outcome=None, outcomes=outcomes, columns={"outcome": None})
    made.run_all(*DAYS[:2])
    assert taught_by(path_of(made, 1)) == [f"{DAYS[0]}.r1"]
    rows = guess_of(path_of(made, 1)).group_by("metric", maintain_order=True).len()
    assert sorted(rows.rows()) == [("any", 3 * 4), ("clicks", 3 * 8)]  # all, and two clusters


def apart(made: Experiment) -> None:
    """Many people, whose outcomes are all 1 in one cluster, and all 2 in the other."""
    log = a_log(2_400)
    two = pl.when(pl.col("region") == "east").then(1.0).otherwise(2.0).alias("clicks")
    for path in (made.folder / "logs").glob("*.parquet"):
        log.with_columns(two).write_parquet(path)


def test_strata_that_differ_have_tables_of_their_own(tmp_path: Path) -> None:
    privacy = {"mechanism": "cluster-optimal-dp", "epsilon": 2.0, "strata_statistic": "none"}
    made = built(tmp_path, DAYS[:3], privacy=privacy)
    apart(made)
    made.run_all(*DAYS[:2])
    second = path_of(made, 1)
    assert released(second, "SELECT count(*) FROM arm_counts").item() == 0  # nothing is paid
    of_clusters = released(
        second,
        'SELECT cluster, list(DISTINCT p."table") AS t FROM strata JOIN pools AS p '
        "USING (pool, arm) GROUP BY cluster ORDER BY cluster",
    )["t"].to_list()
    assert not {*of_clusters[0]} & {*of_clusters[1]}
    (told,) = verify_loss([second]).releases
    assert told.holds
    # A cluster that was never seen has its arm's guess, and a revision all that is recorded.
    log = made.folder / "logs" / f"{DAYS[2]}.parquet"
    new = pl.read_parquet(log).with_columns(region=pl.col("region").replace("east", "north"))
    new.write_parquet(log)
    made.run(DAYS[2])
    assert {*guess_of(path_of(made, 2))["cluster"]} == {"all", "east", "west"}
    made.run(DAYS[1], revise=True)
    assert guess_of(path_of(made, 1, 2)).equals(guess_of(second))


def test_people_are_told_who_teaches_and_how_far_a_first_forecast_may_be_off(
    nights: Experiment,
) -> None:
    names, before = [f"trial.{day}.r1" for day in DAYS[:2]], nights.entries
    first, third = (plan(nights.config, DAYS[day]).as_json() for day in (0, 2))
    assert [list(one["guess_from"]) for one in (first, third)] == [[], names]
    for one in first["predicted"]:
        least, most = one["std_error_range"]
        assert least < one["std_error"] < most
    assert {one["std_error_range"] for one in third["predicted"]} == {None}
    (found,) = status(nights.config).as_json()["experiments"]
    assert list(found["guess_from"]) == names
    assert nights.entries == before


def test_a_guess_that_cannot_be_read_is_the_declared_one(nights: Experiment) -> None:
    def broken(*_: object) -> None:
        raise InputError("a word of my own")

    with patch.object(Account, "outputs_of_nights", broken):
        nights.run(DAYS[2])
    assert taught_by(path_of(nights, 2)) == []
