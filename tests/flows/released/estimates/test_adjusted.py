"""Effects adjusted for published attributes, and who benefits by them."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import clusterdp as front
from estimators.arm_effects import Estimate
from flows.cli.main import run
from flows.effects.released.from_release import effects_from_release
from flows.released.estimates.covariates import estimate_adjusted, estimate_covariates
from flows.released.tables.attribute_table import LEAST_UNITS, OTHER, attribute_table
from schemas.errors import ConfigError, InputError
from tests.conftest import EXACT, a_log, build_experiment
from tests.support.tables import written

LOG = a_log(480)
RANDOM = np.random.default_rng(0)
N = LOG.height
RARE = ["basic"] * 240 + ["gold"] * 200 + [f"own {unit}" for unit in range(40)]
ATTRIBUTES = pl.DataFrame(
    {
        "unit_id": LOG["customer"],
        "age": (LOG["clicks"] * 2 + RANDOM.integers(18, 60, N)).cast(pl.Int64),
        "plan": RANDOM.permutation(RARE),
        "since": pl.Series(RANDOM.integers(18000, 19000, N).astype(np.int32)).cast(pl.Date),
        "member": RANDOM.random(N) < 0.5,
        "spend": [None if unit % 9 == 0 else float(unit % 77) for unit in range(N)],
        "spend_in_text": [None if unit % 9 == 0 else f"{unit % 77}.0" for unit in range(N)],
        "place": [f"{unit % 4:03d}" for unit in range(N)],
        "own": [f"x{unit}" for unit in range(N)],
        "constant": ["one"] * N,
        "nothing": pl.Series([None] * N, dtype=pl.String),
    }
)


def release(folder: Path, **privacy: object) -> Path:
    log = LOG.join(ATTRIBUTES, left_on="customer", right_on="unit_id")
    columns = {"attributes": ATTRIBUTES.columns[1:]}
    return build_experiment(folder / "x", log, columns=columns, privacy=privacy).run().path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release without noise, and with attributes; read by all tests."""
    return release(tmp_path_factory.mktemp("exact"), **EXACT)


def by_name(estimates: list[Estimate]) -> dict[str, dict[str, object]]:
    return {one.estimator: vars(one) for one in estimates}


@pytest.mark.parametrize(
    "names", [("age",), ("age", "member"), ("spend",), ("place", "since"), ("age", "spend")]
)
def test_it_is_what_a_table_of_the_same_gives(
    path: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    days = pl.col("since").to_physical().cast(pl.Float64)
    table = ATTRIBUTES.with_columns(days).select("unit_id", *names)
    expected = by_name(estimate_covariates(path, written(table, tmp_path / "x.parquet")).estimates)
    found = by_name(estimate_adjusted(path, names).estimates)
    assert list(found) == list(expected)
    for name, numbers in expected.items():
        assert found[name] == pytest.approx(numbers, abs=1e-12)


def test_text_that_is_a_number_in_every_row_is_one(path: Path) -> None:
    as_text, as_number = (
        by_name(estimate_adjusted(path, (name,)).estimates) for name in ("spend_in_text", "spend")
    )
    assert as_text == as_number


def test_zeros_before_a_number_make_it_a_code(path: Path) -> None:
    table, rare = attribute_table(path, ("place",), "adjust")
    assert table["place"].dtype == pl.String
    assert rare == {}


def test_rare_texts_count_together(path: Path) -> None:
    table, rare = attribute_table(path, ("plan",), "adjust")
    counts = dict(table["plan"].value_counts().iter_rows())
    assert counts == {"basic": 240, "gold": 200, OTHER: 40}
    assert rare == {"plan": 40}
    found = estimate_adjusted(path, ("plan",))
    assert found.warnings[0] == "40 rare values of attribute 'plan' count together as (other)"
    assert LEAST_UNITS <= 40


def test_ids_are_no_categories(path: Path) -> None:
    with pytest.raises(InputError, match=r"'own' has 480 different texts, and 480 of 480 units"):
        estimate_adjusted(path, ("own",))


@pytest.mark.parametrize("name", ["constant", "nothing"])
def test_what_does_not_vary_cannot_be_adjusted_for(path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"no column varies"):
        estimate_adjusted(path, (name,))


def test_what_does_not_vary_is_told_beside_others(path: Path) -> None:
    found = estimate_adjusted(path, ("age", "constant"))
    assert found.as_json() == {
        "attributes": ["age", "constant"],
        "dropped_attributes": ["constant"],
        "n_rare_values": {},
    }
    assert any("'constant' is not used" in text for text in found.warnings)


def test_what_is_no_attribute_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'clicks' is no attribute of .*; it has age") as caught:
        estimate_adjusted(path, ("age", "clicks"))
    assert caught.value.key == "adjust"


def test_the_command_gives_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", str(path), "--adjust", "age, member", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["adjust"]["attributes"] == ["age", "member"]
    found = estimate_adjusted(path, ("age", "member")).estimates
    assert document["estimates"] == [vars(one) for one in found]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--adjust", "nope"], "clusterdp: --adjust: 'nope' is no attribute of"),
        (["--adjust", ""], "clusterdp: --adjust: '' is no attribute of"),
        (["--adjust", "age", "--covariates", "x.csv"], "clusterdp: --adjust: cannot go with"),
        (["--adjust", "age", "--segments", "x.csv"], "clusterdp: --adjust: cannot go with"),
    ],
)
def test_the_command_refuses(
    path: Path, given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["estimate", str(path), *given]) == 2
    assert capsys.readouterr().err.startswith(said)


def test_python_gives_the_same(path: Path) -> None:
    found = front.open(path).ate(adjust=["age", "member"])
    expected = by_name(estimate_adjusted(path, ("age", "member")).estimates)
    assert found.height == len(expected)
    for one in found.to_dicts():
        assert one == expected[one["estimator"]]
    alone = front.open(path).ate(adjust="age")
    assert "cuped" in alone["estimator"].to_list()


def test_adjusting_sharpens_where_an_attribute_tells_the_outcome(path: Path) -> None:
    found = by_name(estimate_adjusted(path, ("spend", "age")).estimates)
    sharp, plain = (found[name]["std_error"] for name in ("regression", "tau_q"))
    assert isinstance(sharp, float)
    assert isinstance(plain, float)
    assert sharp < plain


# who benefits


def test_effects_are_those_of_a_table_of_the_same(path: Path, tmp_path: Path) -> None:
    table = written(ATTRIBUTES.select("unit_id", "age", "place"), tmp_path / "x.parquet")
    expected = effects_from_release(path, table).as_json()
    found = effects_from_release(path, None, features=["age", "place"]).as_json()
    assert found == expected


def test_without_names_all_attributes_are_features(tmp_path: Path) -> None:
    log = LOG.join(ATTRIBUTES, left_on="customer", right_on="unit_id")
    columns = {"attributes": ["age", "plan", "since"]}
    made = build_experiment(tmp_path / "x", log, columns=columns, privacy={"epsilon": 4.0}).run()
    found = effects_from_release(made.path, None)
    assert found.as_json()["features"] == ["age", "plan", "since"]
    assert "40 rare values of attribute 'plan' count together as (other)" in found.warnings
    assert OTHER in {one.level for one in found.subgroups}


def test_the_command_shows_who_benefits(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["effects", str(path), "--features", "age,plan"]) == 0
    assert "(other)" in capsys.readouterr().out
    assert run(["effects", str(path), "--features", "nope"]) == 2
    assert capsys.readouterr().err.startswith("clusterdp: --features: 'nope' is no attribute")


def test_a_release_without_attributes_needs_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build_experiment(tmp_path / "x", LOG, privacy={"epsilon": 4.0}).run()
    assert run(["effects", str(made.path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("clusterdp: --covariates: missing; give a table of yours")
    assert said.endswith("publishes no attributes\n")


def test_python_shows_who_benefits(path: Path) -> None:
    with pytest.warns(front.ClusterdpWarning, match="rare values"):
        found = front.open(path).effects(features=["age", "plan"])
    assert set(found.subgroups()["name"]) == {"age", "plan"}


def test_ratios_that_are_left_out_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = {"name": "seen", "column": "clicks", "values": [0, 1, 2, 3, 4, 5]}
    log = LOG.join(ATTRIBUTES, left_on="customer", right_on="unit_id")
    rates = ({"name": "rate", "numerator": "again", "denominator": "seen"},)
    path = (
        build_experiment(
            tmp_path / "ratio",
            log,
            outcome=None,
            columns={"outcome": None, "attributes": ["age"]},
            outcomes=(seen, seen | {"name": "again"}),
            ratios=rates,
        )
        .run()
        .path
    )
    assert run(["estimate", str(path), "--adjust", "age"]) == 0
    told = capsys.readouterr()
    assert "ratio 'rate' is not here" in " ".join(told.err.split())
    assert "on 'again'" in told.out
    assert run(["estimate", str(path), "--adjust", "age", "--metric", "again"]) == 0
    told = capsys.readouterr()
    assert "rate" not in told.err
    assert "against 'none' on 'again'" in told.out
    assert "'seen'" not in told.out
