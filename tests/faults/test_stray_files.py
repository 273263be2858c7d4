"""Files among the releases, or handed in beside one, that are something else than they look."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import clusterdp
from flows.effects.released.site_report import read_report
from flows.released.estimates.covariates import estimate_covariates
from flows.runtime.reading.table_files import read_table
from schemas.errors import ConflictError, InputError
from tests.conftest import Builder, a_log, released
from tests.faults.hostile import changed, said


def _garbage(path: Path) -> None:
    path.write_bytes(b"garbage")


def _to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


NO_FILES = [os.mkfifo, Path.mkdir, _to_zero]


@pytest.mark.parametrize("make", [_garbage, *NO_FILES])
def test_a_stray_file_among_the_releases_names_itself_and_what_to_do(
    experiment: Builder, make: Callable[[Path], None]
) -> None:
    built = experiment()
    built.releases.mkdir(parents=True)
    stray = built.releases / "trial.z.r9.duckdb"
    make(stray)
    with pytest.raises(ConflictError) as caught:
        built.run()
    told = str(caught.value)
    assert told.startswith(f"{stray}: ")
    assert "move it out of the folder" in told
    with pytest.raises(InputError, match="Move it out of the folder if it is none"):
        clusterdp.restore(None, built.config, complete=True)
    assert [one.name for one in built.releases.iterdir()] == [stray.name]  # nor did latest move
    stray.rename(built.folder / "elsewhere")
    assert built.run().status == "published"  # what it says to do helps


def test_a_release_under_the_name_of_another_is_not_charged(experiment: Builder) -> None:
    built = experiment()
    first = built.run()
    stray = built.releases / "trial.z.r9.duckdb"
    shutil.copy(first.path, stray)
    with pytest.raises(InputError, match=r"r9\.duckdb: says that it is trial\.once\.r1") as caught:
        clusterdp.restore(None, built.config, complete=True)
    assert "Move it out of the folder" in str(caught.value)


def test_an_inconsistent_release_is_not_charged(experiment: Builder, tmp_path: Path) -> None:
    built = experiment()
    change = said(
        "UPDATE release SET epsilon = -5, period = 'z', revision = 9, release_id = 'trial.z.r9'"
    )
    theirs = changed(built.run().path, tmp_path, change)
    stray = built.releases / "trial.z.r9.duckdb"
    theirs.rename(stray)
    with pytest.raises(InputError, match="epsilon is finite and above 0") as caught:
        clusterdp.restore(None, built.config, complete=True)
    assert str(caught.value).startswith(f"{stray}: not a sound release")


@pytest.mark.parametrize("make", NO_FILES)
@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_an_analysts_table_that_is_no_file(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    make(tmp_path / name)
    with pytest.raises(InputError, match=r"is a (pipe|folder|device), not a file"):
        read_table(tmp_path / name)


@pytest.mark.parametrize("make", NO_FILES)
def test_a_sites_report_that_is_no_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x.json")
    with pytest.raises(InputError, match=r"is a (pipe|folder|device), not a file"):
        read_report(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("1e300", "has 399 values beyond ±1e\\+70"),
        ("-1e80", "has 399 values beyond ±1e\\+70"),
        ("inf", "has 399 infinite values"),
        ("always the same", "no column varies"),
    ],
)
def test_covariates_that_cannot_be_computed_with(
    experiment: Builder, tmp_path: Path, value: str, told: str
) -> None:
    path = experiment(a_log(400)).run().path
    ids = released(path, "SELECT unit_id FROM main.units")["unit_id"].to_list()
    first = value if value.startswith("always") else "1"
    lines = [f"{one},{value if place else first}" for place, one in enumerate(ids)]
    (tmp_path / "x.csv").write_text("\n".join(["unit_id,x", *lines, ""]))
    with pytest.raises(InputError, match=told):
        estimate_covariates(path, tmp_path / "x.csv")
