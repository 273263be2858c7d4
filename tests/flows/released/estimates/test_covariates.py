"""Effects adjusted for covariates of the analyst's own, from a release and through the program."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from statsmodels.regression.linear_model import OLS

from estimators.arm_effects import Estimate
from flows.cli.main import run
from flows.released.estimates.covariates import (
    MAX_COLUMNS,
    CovariateEstimates,
    estimate_covariates,
)
from flows.released.estimates.release import estimate_file
from flows.released.tables.analyst_table import MAX_LEVELS
from schemas.arrays import Floats
from schemas.errors import InputError
from tests.conftest import EXACT, SENTINEL, Builder, a_log, build_experiment
from tests.support.tables import written

LOG = a_log(240)
N = LOG.height
RANDOM = np.random.default_rng(0)
AGE = LOG["clicks"].to_numpy() * 2 + RANDOM.standard_normal(N)
SPEND = RANDOM.standard_normal(N) * 100 + 500
PLAN = RANDOM.choice(["basic", "gold", "silver"], N)
TABLE = pl.DataFrame({"unit_id": LOG["customer"], "age": AGE, "spend": SPEND, "plan": PLAN})
GOLD, SILVER = (np.equal(PLAN, level).astype(float) for level in ("gold", "silver"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release without noise."""
    folder = tmp_path_factory.mktemp("exact") / "experiment"
    return build_experiment(folder, LOG, privacy=EXACT).run().path


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with noise and counts."""
    folder = tmp_path_factory.mktemp("noisy") / "experiment"
    return build_experiment(folder, LOG, privacy={"epsilon": 1.0}).run().path


def in_full(*columns: Floats) -> tuple[float, float]:
    """The effect and its HC2 standard error: dummies of arm × region, and slopes in both arms."""
    arm, region = (LOG[name].to_numpy() for name in ("variant", "region"))
    x, treated = np.column_stack(columns), (arm == "mail").astype(int)
    places = sorted(set(region.tolist()))
    inside = np.stack([region == place for place in places], axis=1).astype(float)
    middle = inside.T @ x / inside.sum(axis=0)[:, np.newaxis]
    apart = x - inside @ middle
    by_arm = [(treated == one)[:, np.newaxis].astype(float) for one in (0, 1)]
    design = np.hstack([inside * by_arm[0], inside * by_arm[1], *(apart * own for own in by_arm)])
    found = OLS(LOG["clicks"].to_numpy(), design).fit(cov_type="HC2")
    share = inside.mean(axis=0)
    chosen = np.concatenate([-share, share, np.zeros(2 * x.shape[1])])
    return float(chosen @ found.params), float(np.sqrt(chosen @ found.cov_params() @ chosen))


def by_name(found: CovariateEstimates) -> dict[str, Estimate]:
    return {one.estimator: one for one in found.estimates}


def assert_is(found: CovariateEstimates, *columns: Floats) -> None:
    """EXACT leaves 10⁻¹² of outcomes to chance."""
    one = by_name(found)["regression"]
    assert (one.estimate, one.std_error) == pytest.approx(in_full(*columns), abs=1e-8)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_without_noise_it_is_the_regression_in_full(path: Path, tmp_path: Path, name: str) -> None:
    shuffled = TABLE.sample(fraction=1.0, shuffle=True, seed=1)
    found = estimate_covariates(path, written(shuffled, tmp_path / name))
    assert_is(found, AGE, SPEND, GOLD, SILVER)
    assert found.as_json() == {
        "n_columns": 3, "n_rows": 240, "n_matched": 240, "n_unmatched": 0, "n_units_without": 0,
        "n_duplicates": 0, "n_missing": 0, "dropped_columns": [],
    }  # fmt: skip
    assert found.warnings == ()
    assert found.estimates[:1] == estimate_file(path)
    assert (by_name(found)["regression"].std_error or 1) < 0.5 * (
        by_name(found)["tau_q"].std_error or 0
    )


def test_the_check_sees_a_column_that_was_left_out(path: Path, tmp_path: Path) -> None:
    found = estimate_covariates(path, written(TABLE, tmp_path / "x.csv"))
    with pytest.raises(AssertionError):
        assert_is(found, AGE, SPEND, GOLD)


def test_one_column_gives_cuped_as_well(path: Path, tmp_path: Path) -> None:
    found = estimate_covariates(path, written(TABLE.select("unit_id", "age"), tmp_path / "x.csv"))
    assert_is(found, AGE)
    assert list(by_name(found)) == ["tau_q", "regression", "cuped"]


@pytest.mark.parametrize(
    "kind",
    [pl.Categorical(), pl.Enum(["silver", "gold", "basic", "of no use"]), pl.String()],
    ids=str,
)
def test_texts_of_every_kind_are_indicators(path: Path, tmp_path: Path, kind: pl.DataType) -> None:
    rows = TABLE.select("unit_id", pl.col("plan").cast(kind))
    assert_is(estimate_covariates(path, written(rows, tmp_path / "x.parquet")), GOLD, SILVER)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_booleans_are_one_indicator_and_integers_are_numbers(
    path: Path, tmp_path: Path, name: str
) -> None:
    rows = TABLE.select("unit_id", new=pl.Series(SPEND > 500), visits=pl.Series(AGE).round())
    rows = rows.with_columns(pl.col("visits").cast(pl.Int16))
    found = estimate_covariates(path, written(rows, tmp_path / name))
    assert_is(found, (SPEND > 500).astype(float), AGE.round())


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_what_is_missing_has_an_indicator(path: Path, tmp_path: Path, name: str) -> None:
    at = np.arange(N)
    silent, nameless = at % 7 == 0, at % 11 == 3
    age = pl.Series(AGE).set(pl.Series(silent), None)
    if name.endswith("parquet"):
        age = age.set(pl.Series(at == 7), np.nan)  # which is no number, so missing as well
    rows = TABLE.with_columns(age=age, plan=pl.Series(PLAN).set(pl.Series(nameless), None))
    found = estimate_covariates(path, written(rows, tmp_path / name))
    filled = np.where(silent, AGE[~silent].mean(), AGE)
    gold, silver = (np.where(nameless, 0.0, one) for one in (GOLD, SILVER))
    columns = (filled, SPEND, gold, silver, silent.astype(float), nameless.astype(float))
    assert_is(found, *columns)
    assert [warning.split(":")[0] for warning in found.warnings] == [
        f"{silent.sum()} units lack a value in column 'age'",
        f"{nameless.sum()} units lack a value in column 'plan'",
    ]


def test_units_that_are_not_in_the_table_lack_every_value(path: Path, tmp_path: Path) -> None:
    known = np.arange(N) % 5 != 0
    others = pl.DataFrame({"unit_id": ["stranger"], "age": [3.0], "spend": [1.0], "plan": ["new"]})
    rows = pl.concat([TABLE.filter(pl.Series(known)), others])
    found = estimate_covariates(path, written(rows, tmp_path / "x.csv"))
    age, spend = (np.where(known, one, one[known].mean()) for one in (AGE, SPEND))
    assert_is(found, age, spend, GOLD * known, SILVER * known, known.astype(float))
    assert (found.n_matched, found.n_unmatched, found.n_units_without) == (192, 1, 48)
    assert by_name(found)["regression"].n_units == N
    assert [warning.split()[0] for warning in found.warnings] == ["1", "48"]


def test_a_row_may_stand_twice_but_not_contradict_itself(path: Path, tmp_path: Path) -> None:
    nobody = TABLE[:1].with_columns(unit_id=pl.lit(None, pl.String))
    rows = pl.concat([TABLE, TABLE[:3], nobody])
    found = estimate_covariates(path, written(rows, tmp_path / "x.csv"))
    assert_is(found, AGE, SPEND, GOLD, SILVER)
    assert (found.n_rows, found.n_duplicates, found.n_missing) == (244, 3, 1)
    wrong = pl.concat([rows, TABLE[:2].with_columns(pl.col("age") + SENTINEL)])
    with pytest.raises(InputError, match="2 ids stand in rows that contradict each other"):
        estimate_covariates(path, written(wrong, tmp_path / "x.csv"))


def test_a_column_that_says_nothing_is_dropped_and_told(path: Path, tmp_path: Path) -> None:
    rows = TABLE.with_columns(
        region=LOG["region"], twice=pl.col("age") * 2, year=pl.lit(2026), empty=pl.lit(None)
    )
    found = estimate_covariates(path, written(rows, tmp_path / "x.parquet"))
    assert_is(found, AGE, SPEND, GOLD, SILVER)
    assert found.dropped_columns == ("region", "twice", "year", "empty")
    assert sum("is not used" in warning for warning in found.warnings) == 4


def test_a_unit_that_is_a_column_of_its_own_is_told(path: Path, tmp_path: Path) -> None:
    rows = TABLE.with_columns(spend=pl.Series(SPEND).scatter(5, 987654.5))
    found = estimate_covariates(path, written(rows, tmp_path / "x.csv"))
    (warning,) = found.warnings
    assert "one unit alone makes 100 % of the variation of column 'spend'" in warning
    assert "987654" not in warning


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = LOG.with_columns(pl.col("customer").str.slice(1).cast(pl.Int64))
    folder = tmp_path_factory.mktemp("numbered") / "e"
    return build_experiment(folder, log, privacy=EXACT).run().path


@pytest.mark.parametrize("kind", [pl.String, pl.Int64, pl.UInt16])
@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_ids_are_matched_as_text(
    numbered: Path, tmp_path: Path, kind: type[pl.DataType], name: str
) -> None:
    rows = TABLE.with_columns(pl.col("unit_id").str.slice(1).cast(pl.Int64).cast(kind))
    found = estimate_covariates(numbered, written(rows, tmp_path / name))
    assert_is(found, AGE, SPEND, GOLD, SILVER)


# with noise


def test_counts_and_covariates_together_are_the_sharpest(
    experiment: Builder, tmp_path: Path
) -> None:
    """Standard errors are 0.55 and 0.7 of those compared with, and known to some per cent."""
    log = a_log(6000, arms=("none", "mail", "call"))
    path = experiment(log, arms={"treatments": ["mail", "call"]}, privacy={"epsilon": 4.0}).run()
    near = log["clicks"].to_numpy() + 0.5 * np.random.default_rng(1).standard_normal(6000)
    rows = pl.DataFrame({"unit_id": log["customer"], "before": near})
    found = estimate_covariates(path.path, written(rows, tmp_path / "x.parquet")).estimates
    error = {(one.estimator, one.arm): one.std_error or 0.0 for one in found}
    assert list(dict.fromkeys(one.estimator for one in found)) == [
        "combined", "tau_q", "histogram", "regression_combined", "regression", "cuped",
    ]  # fmt: skip
    for arm in ("mail", "call"):
        assert error["regression_combined", arm] < 0.8 * error["combined", arm]
        assert error["regression_combined", arm] < 0.8 * error["regression", arm]
    assert all(one.p_value_holm is not None for one in found)
    assert all((one.p_value_holm or 0) >= (one.p_value or 0) for one in found)
    assert found[: 2 * 3] == estimate_file(path.path)


def test_the_same_question_has_the_same_answer(noisy: Path, tmp_path: Path) -> None:
    file = written(TABLE, tmp_path / "x.parquet")
    shuffled = written(TABLE.reverse(), tmp_path / "y.parquet")
    assert estimate_covariates(noisy, file) == estimate_covariates(noisy, shuffled)


# tables that cannot be used


def with_column(name: str, values: Any, kind: Any = None) -> pl.DataFrame:
    return TABLE.with_columns(pl.Series(name, values, dtype=kind))


MANY = [f"text {nth % (MAX_LEVELS + 1)}" for nth in range(N)]
WIDE = TABLE.select(
    "unit_id", *(pl.Series(f"x{nth}", RANDOM.standard_normal(N)) for nth in range(MAX_COLUMNS + 1))
)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (TABLE.rename({"unit_id": "id"}), "no column 'unit_id'"),
        (TABLE.select("unit_id"), "has no column besides 'unit_id'"),
        (TABLE.clear(), "has no row with an id"),
        (with_column("unit_id", AGE), "column 'unit_id' is Float64; it has to be text or integer"),
        (with_column("unit_id", MANY).unique("unit_id"), "none of its 51 ids is in"),
        (with_column("age", MANY), "column 'age' has 51 different texts, more than 50"),
        (with_column("age", [np.inf, -np.inf, *AGE[2:]]), "column 'age' has 2 infinite values"),
        (with_column("seen", [0] * N, pl.Date), "column 'seen' is Date; it has to be numbers"),
        (with_column("tags", [["a"]] * N), r"column 'tags' is List\(String\)"),
        (WIDE[:, :15], "makes 14 columns of a regression, 1 of them from column 'x0'; .* bears 11"),
        (WIDE, "the columns up to 'x100' make more than 100"),
        (with_column("age", [1] * N).select("unit_id", "age"), "no column varies among the units"),
    ],
)
def test_a_table_that_cannot_be_used_is_a_plain_error(
    path: Path, tmp_path: Path, rows: pl.DataFrame, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        estimate_covariates(path, written(rows, tmp_path / "x.parquet"))


@pytest.mark.parametrize(
    ("value", "says"),
    [("text", "column 'age' has 240 different texts"), ("-inf", "has 1 infinite values")],
)
def test_a_text_among_the_numbers_of_a_csv_file_is_told(
    path: Path, tmp_path: Path, value: str, says: str
) -> None:
    ages = [value, *(str(one) for one in AGE[1:].tolist())]
    with pytest.raises(InputError, match=says):
        estimate_covariates(path, written(with_column("age", ages), tmp_path / "x.csv"))


def test_hashed_ids_are_hinted_at(experiment: Builder, tmp_path: Path) -> None:
    built = experiment(LOG, publish={"unit_id": "keyed-hash", "key_file": "ids.key"})
    (built.folder / "ids.key").write_text("a key that is long enough", encoding="utf-8")
    with pytest.raises(InputError, match="clusterdp hash-ids makes them fit"):
        estimate_covariates(built.run().path, written(TABLE, tmp_path / "x.csv"))


def test_a_release_without_units_cannot_be_adjusted(experiment: Builder, tmp_path: Path) -> None:
    path = experiment(privacy={"mechanism": "noisy-histogram"}).run().path
    with pytest.raises(InputError, match="publishes no units"):
        estimate_covariates(path, written(TABLE, tmp_path / "x.csv"))


# through the program


Printed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call


def test_the_command_prints_one_document(noisy: Path, tmp_path: Path, printed: Printed) -> None:
    file = written(TABLE[:-1], tmp_path / "x.csv")
    code, out, err = printed("estimate", noisy, "--covariates", file, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["covariates"]["n_units_without"] == 1
    assert [one["estimator"] for one in document["estimates"]] == [
        "combined", "tau_q", "histogram", "regression_combined", "regression",
    ]  # fmt: skip
    assert err.startswith("clusterdp: warning: 1 units of the release are not in the table")


def test_the_command_speaks_to_people(noisy: Path, tmp_path: Path, printed: Printed) -> None:
    file = written(TABLE.select("unit_id", "age"), tmp_path / "x.csv")
    code, out, err = printed("estimate", noisy, "--covariates", file)
    assert (code, err) == (0, "")
    places = [out.index(f"({name})") for name in ("regression_combined", "regression", "cuped")]
    assert places == sorted(places)
    assert places[-1] < out.index("(combined)")


def test_segments_and_covariates_do_not_go_together(
    path: Path, tmp_path: Path, printed: Printed
) -> None:
    file = written(TABLE, tmp_path / "x.csv")
    code, out, err = printed("estimate", path, "--covariates", file, "--segments", file)
    assert (code, out) == (2, "")
    assert err == "clusterdp: --covariates: cannot go with --segments; ask for one of them\n"
