"""``series.duckdb``: from released files alone, whole or not at all, each night read once."""

import shutil
from datetime import datetime
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pytest

from estimators.operate.series import N_SCALES
from flows.operate.series import renew
from flows.operate.series.estimates import estimate_series
from flows.operate.series.nights import open_night
from flows.operate.series.people import People
from flows.operate.series.renew import renew_series
from flows.released import small_file
from flows.released.file.draft import published
from flows.released.lists import Known, Lists, PrunedRelease
from schemas.errors import InputError
from schemas.released import SCHEMA_VERSION
from schemas.series import SERIES, SERIES_VERSION
from tests.conftest import Experiment, released
from tests.flows.operate.series.nights_made import DAYS, N_UNITS, night_log, nights

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    privacy = {"account": "population"}
    return nights(tmp_path_factory.mktemp("made") / "e", privacy=privacy)


@pytest.fixture
def folder(made: Experiment, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.releases, tmp_path / "trial"))


class _Trusting:
    """Takes the series that is there for its own."""

    def is_as_made(self, path: Path) -> bool:
        return path.exists()

    def note_made(self, path: Path, sha256: str) -> None:
        """Note nothing."""


def renewed(folder: Path, lists: Lists | None = None) -> tuple[str, ...]:
    known = Known(lists or Lists(), published(folder, "trial"), {})
    return renew_series(folder, "trial", lambda: known, _Trusting())


def read_anew(folder: Path) -> list[str]:
    """Renew, and say which releases were read."""
    read: list[str] = []

    def watched(path: Path) -> object:
        read.append(path.name)
        return open_night(path)

    with patch.object(renew, "open_night", watched):
        assert renewed(folder) == ()
    return read


def test_a_run_keeps_the_series(made: Experiment) -> None:
    path = made.releases / SERIES
    assert path.stat().st_mode & 0o777 == 0o444
    assert released(path, "periods")["period"].to_list() == list(DAYS)
    own = released(path, "SELECT * FROM estimates WHERE period = '2026-11-02'")
    theirs = released(made.releases / "trial.2026-11-02.r1.duckdb", "estimates")
    assert own.drop("period", "release_id").equals(theirs)


def test_it_holds_what_estimate_gives_where_people_are_known_to_differ(folder: Path) -> None:
    """The files do not say so, hence the bound; where it is all new the two are one."""
    (folder / SERIES).unlink()
    with patch.object(renew, "people_by_files", lambda seen: _disjoint(len(seen))):
        assert renewed(folder) == ()
    last = released(folder / SERIES, f"SELECT * FROM cumulative WHERE period = '{DAYS[-1]}'")
    for one in estimate_series([folder]).pooled:
        (row,) = last.filter(estimator=one.estimator, arm=one.arm).to_dicts()
        for name in ("estimate", "std_error", "ci_lower", "ci_upper", "ci_lower_always"):
            expected = getattr(one, name)
            assert row[name] == (expected if expected is None else pytest.approx(expected))
        assert (row["people"], row["n_releases"]) == ("disjoint", 3)


def _disjoint(number: int) -> People:
    return People("disjoint", np.ones(number, dtype=bool), np.zeros(0, dtype=np.uint64), "made up")


def test_where_nothing_is_said_of_people_it_holds_the_bound(made: Experiment) -> None:
    rows = released(made.releases / SERIES, "FROM cumulative WHERE estimator = 'combined'")
    assert rows["people"].to_list() == ["disjoint", "unknown", "unknown"]
    errors = [
        released(made.releases / f"trial.{day}.r1.duckdb", "estimates")
        .filter(estimator="combined")["std_error"]
        .item()
        for day in DAYS
    ]
    assert rows["std_error"][2] == pytest.approx(sum(errors) / 3)


def test_only_the_new_night_is_read(folder: Path, tmp_path: Path) -> None:
    assert read_anew(folder) == []
    other = nights(tmp_path / "other", days=["2026-11-05"])
    shutil.copy(other.releases / "trial.2026-11-05.r1.duckdb", folder)
    assert read_anew(folder) == ["trial.2026-11-05.r1.duckdb"]
    assert released(folder / SERIES, "periods").height == 4


def test_a_release_that_is_taken_away_is_taken_out(folder: Path) -> None:
    (folder / "trial.2026-11-02.r1.duckdb").unlink()
    assert read_anew(folder) == []
    assert released(folder / SERIES, "periods")["period"].to_list() == [DAYS[0], DAYS[2]]


@pytest.mark.parametrize("what", ["gone", "garbage", "of an older program", "another experiment"])
def test_a_series_that_is_not_intact_is_made_anew(folder: Path, what: str) -> None:
    path = folder / SERIES
    path.chmod(0o644)
    if what == "gone":
        path.unlink()
    elif what == "garbage":
        path.write_bytes(b"x" * 5000)
    else:
        column = "package_version" if what == "of an older program" else "experiment"
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"UPDATE series SET {column} = 'x'")
    assert sorted(read_anew(folder)) == [f"trial.{day}.r1.duckdb" for day in DAYS]
    assert released(path, "periods").height == 3


def as_before(path: Path) -> None:
    """Make of a series what it was before it said how many scales it has: one."""
    path.chmod(0o644)
    with duckdb.connect(str(path)) as connection:
        connection.execute("ALTER TABLE series DROP COLUMN n_scales")
        connection.execute("UPDATE series SET series_version = 2")


def of_look(path: Path, period: str) -> float:
    query = f"SELECT ci_upper_always - ci_lower_always FROM cumulative WHERE period = '{period}'"
    return float(released(path, f"{query} AND estimator = 'combined'").item())


@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_series_keeps_the_scale_that_it_began_with(
    folder: Path, tmp_path: Path, is_pruned: bool
) -> None:
    """One of before is read, and goes on as it was; if its first file is there no more, too."""
    path, last, lists = folder / SERIES, "2026-11-05", Lists()
    new = nights(tmp_path / "other", days=[last]).releases / f"trial.{last}.r1.duckdb"
    shutil.copy(new, folder)
    assert renewed(folder) == ()
    assert released(path, "series")["n_scales"].item() == N_SCALES
    own = of_look(path, last)
    (folder / new.name).unlink()
    assert renewed(folder) == ()
    as_before(path)
    if is_pruned:
        with duckdb.connect(str(path)) as connection:
            connection.execute("UPDATE series SET package_version = '0.0.1'")
        (folder / f"trial.{DAYS[0]}.r1.duckdb").unlink()
        gone = PrunedRelease(f"trial.{DAYS[0]}.r1", "2026-12-01T00:00:00Z", 1.0, 0.0, None)
        lists = Lists(pruned={gone.release_id: gone})
    shutil.copy(new, folder)
    assert renewed(folder, lists) == ()
    row = released(path, "series").to_dicts()[0]
    assert (row["n_scales"], row["series_version"]) == (1, SERIES_VERSION)
    assert released(path, "periods").height == 4
    assert of_look(path, last) != pytest.approx(own, rel=1e-3)


@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_series_of_before_gets_what_clusters_have_told(
    folder: Path, tmp_path: Path, *, is_pruned: bool
) -> None:
    """From files, as far as they are there; of one that was pruned what is known of arms stays."""
    path, last, lists = folder / SERIES, "2026-11-05", Lists()
    query = f"SELECT * FROM outputs WHERE period < '{last}' ORDER BY ALL"
    new = nights(tmp_path / "other", days=[last]).releases / f"trial.{last}.r1.duckdb"
    now = released(path, query)
    assert now["clusters"].explode().unique().sort().to_list() == ["east", "west"]
    path.chmod(0o644)
    with duckdb.connect(str(path)) as connection:
        connection.execute("ALTER TABLE outputs DROP COLUMN clusters")
        connection.execute("ALTER TABLE outputs DROP COLUMN counts_within")
        connection.execute("UPDATE series SET series_version = 4")
    if is_pruned:
        (folder / f"trial.{DAYS[0]}.r1.duckdb").unlink()
        gone = PrunedRelease(f"trial.{DAYS[0]}.r1", "2026-12-01T00:00:00Z", 1.0, 0.0, None)
        lists = Lists(pruned={gone.release_id: gone})
    shutil.copy(new, folder)
    assert renewed(folder, lists) == ()
    found = released(path, query)
    assert found.drop("clusters", "counts_within").equals(now.drop("clusters", "counts_within"))
    is_there = pl.col("period") > (DAYS[0] if is_pruned else "")
    assert found.filter(is_there).equals(now.filter(is_there))
    assert found.filter(~is_there)["clusters"].list.len().sum() == 0


@pytest.mark.parametrize("change", ["series_version = 1", "n_scales = 10000000000", "looks = 3"])
def test_a_series_of_other_rules_is_not_gone_on_with(folder: Path, change: str) -> None:
    path = folder / SERIES
    path.chmod(0o644)
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"UPDATE series SET {change}")
    assert sorted(read_anew(folder)) == [f"trial.{day}.r1.duckdb" for day in DAYS]


def test_a_failure_is_a_warning_and_leaves_the_old_series(folder: Path) -> None:
    before = (folder / SERIES).read_bytes()
    (folder / "trial.2026-12-01.r1.duckdb").write_text("no release")
    (warning,) = renewed(folder)
    assert "trial.2026-12-01.r1.duckdb" in warning
    assert "the release itself is public" in warning
    assert (folder / SERIES).read_bytes() == before
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_one_that_cannot_be_written_stands_in_no_others_way(folder: Path) -> None:
    """All are written by one engine, which a file that cannot be written may leave unfit."""
    (folder / SERIES).unlink()
    kept = small_file._kept()
    with patch.object(small_file, "STORAGE_VERSION", "no version"):
        (warning,) = renewed(folder)
    assert "no version" in warning
    assert renewed(folder) == ()
    assert (folder / SERIES).exists()
    assert small_file._kept() is not kept


def test_nights_of_two_schemas_are_told_and_fail_no_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade between two nights: files of before are named, with what to do."""
    places = ("flows.raw.drawing.tables", "flows.released.file.opening")
    with monkeypatch.context() as before:
        for place in places:
            before.setattr(f"{place}.SCHEMA_VERSION", SCHEMA_VERSION - 1)
        built = nights(tmp_path / "e", days=DAYS[:1])
    log = night_log(N_UNITS)
    log.write_parquet(built.folder / "logs" / f"{DAYS[1]}.parquet")
    result = built.run(DAYS[1])
    assert result.status == "published"
    (result.path.parent / SERIES).unlink()  # as after an upgrade: what it has is read anew
    (warning,) = renewed(result.path.parent)
    told = f"trial.{DAYS[0]}.r1.duckdb: has schema version {SCHEMA_VERSION - 1}, this program reads"
    assert told in warning
    with pytest.raises(InputError, match="is of another version than 1 beside: move them") as of:
        estimate_series([result.path.parent])
    assert told in str(of.value)


def test_a_night_of_other_arms_is_named(folder: Path) -> None:
    stray = folder / "trial.2026-12-01.r1.duckdb"
    shutil.copy(folder / "trial.2026-11-01.r1.duckdb", stray)
    stray.chmod(0o644)
    with duckdb.connect(str(stray)) as connection:
        for table in ("pools", "strata", "estimates"):
            connection.execute(f"UPDATE {table} SET arm = 'post' WHERE arm = 'mail'")
        connection.execute("UPDATE release SET period = '2026-12-01'")
        connection.execute("UPDATE release SET release_id = 'trial.2026-12-01.r1'")
    (warning,) = renewed(folder)
    assert "its arms are 'none', 'post'" in warning


def test_readers_keep_what_they_opened(folder: Path) -> None:
    with duckdb.connect(str(folder / SERIES), read_only=True) as reader:
        (folder / "trial.2026-11-02.r1.duckdb").unlink()
        assert renewed(folder) == ()
        assert reader.execute("SELECT count(*) FROM periods").fetchall() == [(3,)]


def test_times_are_taken_over(folder: Path) -> None:
    (folder / "trial.2026-11-02.r1.duckdb").unlink()
    assert renewed(folder) == ()
    times = released(folder / SERIES, "periods")["created_at"].to_list()
    assert all(isinstance(time, datetime) for time in times)
