"""A table of a release as CSV or Parquet: the same rows, whole or not at all, and no formulas."""

import json
from pathlib import Path

import polars as pl
import polars.selectors as cs
import pytest

import clusterdp
from flows.released.export import EXPORTED, export
from schemas.errors import ConfigError, InputError
from tests.conftest import Builder, a_log, build_experiment, released, rows
from tests.support.surroundings import Command

pytestmark = pytest.mark.release

ODD = ['say "hi"', "a,b", "two\nlines", "Zoë", "007", "' OR 1=1", "x=1", "a-b"]
"""Ids that a careless CSV would break; none begins as a formula does."""


def odd_log(*more: str) -> pl.DataFrame:
    ids = [*ODD, *more]
    arms = ("none", "mail")
    named = [(one, arms[at % 2], 'east, "old"', 1.0) for at, one in enumerate(ids)]
    return rows(*a_log(40).rows(), *named)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_experiment(tmp_path_factory.mktemp("odd") / "e", odd_log()).run().path


@pytest.mark.parametrize("table", EXPORTED)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "CSV"])
def test_the_rows_are_those_of_the_file(odd: Path, tmp_path: Path, table: str, suffix: str) -> None:
    labels = cs.by_dtype(pl.Categorical, pl.Enum)
    expected = released(odd, table).with_columns(labels.cast(pl.String))
    found = export(odd, tmp_path / f"out.{suffix}", table)
    assert (found.table, found.n_rows) == (table, expected.height)
    if suffix == "parquet":
        assert pl.read_parquet(found.path).equals(expected)
        return
    read = pl.read_csv(found.path, schema=expected.schema)
    assert read.equals(expected)


def test_ids_that_are_numbers_stay_exact(experiment: Builder, tmp_path: Path) -> None:
    big = 9_007_199_254_740_993
    log = a_log(40).with_columns(customer=pl.int_range(big, big + 40))
    found = export(experiment(log).run().path, tmp_path / "units.csv")
    assert sorted(pl.read_csv(found.path)["unit_id"]) == list(range(big, big + 40))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_a_spreadsheet_would_run_is_refused_in_csv(
    experiment: Builder, tmp_path: Path, start: str
) -> None:
    formula = f"{start}HYPERLINK()"
    path = experiment(odd_log(formula)).run().path
    out = tmp_path / "units.csv"
    with pytest.raises(InputError, match=r"^1 value\(s\) of the column unit_id begin") as it:
        export(path, out)
    assert "HYPERLINK" not in str(it.value)
    assert not out.exists()
    assert formula in pl.read_parquet(export(path, tmp_path / "units.parquet").path)["unit_id"]
    kept = export(path, out, keep_formulas=True)
    assert kept.n_rows == 49
    assert formula.strip() in out.read_text("utf-8")


def test_nothing_is_overwritten(odd: Path, tmp_path: Path) -> None:
    out = tmp_path / "units.csv"
    out.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        export(odd, out)
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [("units.xlsx", "not a format"), ("none/units.csv", "cannot be written")],
)
def test_what_cannot_be_written_is_told(odd: Path, tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        export(odd, tmp_path / name)


def test_a_table_that_is_none_or_empty_is_told(experiment: Builder, tmp_path: Path) -> None:
    path = experiment(privacy={"mechanism": "noisy-histogram"}).run().path
    with pytest.raises(ConfigError, match="--table: 'release' is none of units, estimates"):
        export(path, tmp_path / "a.csv", "release")
    with pytest.raises(InputError, match="publishes no units"):
        export(path, tmp_path / "a.csv")
    assert list(tmp_path.glob("*.csv")) == []
    assert export(path, tmp_path / "a.csv", "estimates").n_rows > 0


def test_the_command_and_python_do_the_same(
    command: Command, experiment: Builder, tmp_path: Path
) -> None:
    path = experiment().run().path
    out = tmp_path / "units.parquet"
    ended = command("export", path, "-o", out, "--json")
    found = json.loads(ended.stdout)
    assert found == {"path": str(out), "table": "units", "n_rows": 240, "withdrawn": None}
    again = command("export", path, "-o", out, "--json")
    assert json.loads(again.stdout)["error"]["kind"] == "input"
    ended = command("export", path, "-o", tmp_path / "e.csv", "--table", "estimates")
    assert ended.stdout == f"{tmp_path / 'e.csv'}: 3 rows of estimates\n"
    mine = clusterdp.open(path).export(tmp_path / "mine.parquet")
    assert pl.read_parquet(mine).equals(pl.read_parquet(out))


def test_the_effect_by_hand_is_that_of_the_estimates(experiment: Builder, tmp_path: Path) -> None:
    """In each cluster, and these weighted by their units, as docs/r.md has it."""
    uneven = a_log(300).filter((pl.col("region") == "east") | (pl.col("clicks") > 0))
    path = experiment(uneven).run().path
    units = pl.read_csv(export(path, tmp_path / "units.csv").path)
    stated = pl.read_csv(export(path, tmp_path / "estimates.csv", "estimates").path)
    total, variance = 0.0, 0.0
    for _, part in units.group_by("cluster"):
        arms = [part.filter(arm=arm)["outcome_debiased"].to_numpy() for arm in ("mail", "none")]
        share = part.height / units.height
        total += share * (arms[0].mean() - arms[1].mean())
        variance += share**2 * sum(one.var(ddof=1) / len(one) for one in arms)
    (row,) = stated.filter(estimator="tau_q").to_dicts()
    assert row["estimate"] == pytest.approx(total, abs=1e-9)
    assert row["std_error"] == pytest.approx(variance**0.5, rel=0.05)


def test_a_long_release_is_written_batch_by_batch(
    experiment: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.released.export._BATCH", 2_048)
    path = experiment(a_log(5_000)).run().path
    found = export(path, tmp_path / "units.parquet")
    in_csv = pl.read_csv(export(path, tmp_path / "units.csv").path)
    assert pl.read_parquet(found.path).equals(in_csv)
    assert found.n_rows == 5_000
