"""Effects by a published attribute, from a released file and through the program."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import clusterdp as front
from estimators.intervals import holm
from flows.cli.main import run
from flows.operate.series.estimates import ByAttribute, Table, estimate_series
from flows.operate.series.pooling import key_of
from flows.released.estimates.by_attribute import MAX_SEGMENTS, AttributeEstimate, estimate_by
from flows.released.estimates.segments import estimate_segments
from schemas.errors import ConfigError, InputError
from tests.conftest import EXACT, a_log, build_experiment, released
from tests.support.tables import written

LOG = a_log(1200, arms=("none", "mail", "post"))
NUMBER = pl.col("customer").str.slice(1).cast(pl.Int64)
PLACE = NUMBER // 6


def in_turn(*texts: str) -> pl.Expr:
    """Six units, of every arm and cluster, have the first text, the next six the second."""
    return (PLACE % len(texts)).replace_strict(range(len(texts)), texts, return_dtype=pl.String)


ATTRIBUTES = LOG.select(
    pl.col("customer").alias("unit_id"),
    pl.when(NUMBER % 7 > 1).then(in_turn("it", "(none)", "de")).alias("country"),
    (PLACE % 12).alias("age"),
    (PLACE % 12).cast(pl.String).alias("age_in_text"),
    NUMBER.alias("own"),
    (NUMBER // 3).alias("three"),
    (PLACE % 2 == 0).alias("member"),
    pl.date(2026, 1, 1).dt.offset_by(pl.format("{}d", PLACE % 4)).alias("since"),
    pl.lit(None, pl.String).alias("nothing"),
    pl.lit("one").alias("constant"),
)
ARMS = {"control": "none", "treatments": ["mail", "post"]}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with noise, counts and attributes; read by all tests."""
    folder = tmp_path_factory.mktemp("attributes")
    log = LOG.join(ATTRIBUTES, left_on="customer", right_on="unit_id")
    columns = {"attributes": ATTRIBUTES.columns[1:]}
    made = build_experiment(
        folder / "experiment", log, arms=ARMS, columns=columns, privacy={"epsilon": 4.0}
    )
    return made.run().path


SEGMENTS = {
    "country": ("(none)", "de", "it", "((none))"),
    "age": tuple(str(age) for age in range(12)),
    "age_in_text": tuple(str(age) for age in range(12)),
    "member": ("false", "true"),
    "since": tuple(f"2026-01-0{day}" for day in range(1, 5)),
    "nothing": ("(none)",),
    "constant": ("one",),
}


@pytest.mark.parametrize("name", SEGMENTS)
def test_effects_are_those_of_a_table_with_the_same_segments(
    path: Path, tmp_path: Path, name: str
) -> None:
    found = estimate_by(path, name)
    assert found.segments == SEGMENTS[name]
    segment = pl.col(name).cast(pl.String).fill_null(found.segments[-1]).alias("segment")
    table = written(ATTRIBUTES.select("unit_id", segment), tmp_path / "x.parquet")
    expected = {
        (one.segment, one.arm, one.estimator): vars(one)
        for one in estimate_segments(path, table).estimates
    }
    own = [vars(one) for one in found.estimates]
    assert len(own) == len(expected) == 2 * 2 * len(found.segments)
    for one in own:
        other = expected[one["segment"], one["arm"], one["estimator"]]
        assert {name: one[name] for name in other} == pytest.approx(other, abs=1e-12)


@pytest.mark.parametrize("name", SEGMENTS)
def test_the_macro_gives_the_same(path: Path, name: str) -> None:
    expected = {
        (one.segment, one.arm, one.estimator): (one.estimate, one.std_error, one.n_units)
        for one in estimate_by(path, name).estimates
    }
    found = released(
        path, f"SELECT segment, arm, estimator, estimate, std_error, n_units FROM ate_by('{name}')"
    )
    assert found.height == len(expected)
    for *key, estimate, error, n_units in found.iter_rows():
        segment, arm, estimator = key
        assert (estimate, error, n_units) == pytest.approx(
            expected[segment, arm, estimator], abs=1e-9
        )


def test_p_values_are_adjusted_for_the_segments_of_an_arm_and_estimator(path: Path) -> None:
    found = estimate_by(path, "age").estimates
    for arm in ("mail", "post"):
        for estimator in ("combined", "tau_q"):
            rows = [one for one in found if (one.arm, one.estimator) == (arm, estimator)]
            p_values = np.array([one.p_value for one in rows], dtype=float)
            adjusted = holm(p_values, p_values >= 0)
            assert len(rows) == 12
            assert [one.p_value_holm_segments for one in rows] == pytest.approx(adjusted)


def test_shrunken_effects_spread_less_and_keep_their_order(path: Path) -> None:
    rows = [one for one in estimate_by(path, "age").estimates if one.estimator == "combined"]
    mail = [one for one in rows if one.arm == "mail"]
    raw = np.array([one.estimate for one in mail], dtype=float)
    drawn = np.array([one.shrunken for one in mail], dtype=float)
    assert np.ptp(drawn) < 0.8 * np.ptp(raw)
    assert raw.min() < drawn.min() < drawn.max() < raw.max()
    for one in mail:
        assert one.shrunken_ci_lower is not None
        assert one.shrunken_ci_upper is not None
        assert one.shrunken is not None
        assert one.shrunken_ci_lower < one.shrunken < one.shrunken_ci_upper


def test_shrunken_effects_do_not_depend_on_the_level(path: Path) -> None:
    at = [
        [one.shrunken for one in estimate_by(path, "country", level).estimates]
        for level in (0.8, 0.95)
    ]
    assert at[0] == pytest.approx(at[1], rel=1e-6)


def test_one_segment_is_drawn_nowhere(path: Path) -> None:
    for one in estimate_by(path, "constant").estimates:
        assert one.estimate is not None
        assert one.shrunken is None
        assert one.p_value_holm_segments == one.p_value


def test_segments_of_too_few_units_have_no_effect_and_no_shrunken_one(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = estimate_by(path, "three")
    assert len(found.segments) == 400
    for one in found.estimates:
        assert one.estimate is None
        assert one.shrunken is None
        assert one.p_value_holm_segments is None
    assert run(["estimate", str(path), "--by", "three"]) == 0
    assert capsys.readouterr().out.count("too few units to compare") == 2 * 2 * 400


def test_too_many_values_are_refused_with_their_number(path: Path) -> None:
    with pytest.raises(InputError, match=rf"'own' has 1,200 values, .* at most {MAX_SEGMENTS:,}"):
        estimate_by(path, "own")


@pytest.mark.parametrize("name", ["nope", "outcome", "arm", "unit_id", "Country", ""])
def test_what_is_no_attribute_is_refused_with_those_that_are(path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"is no attribute of .*; it has country, age") as caught:
        estimate_by(path, name)
    assert caught.value.key == "by"


def test_a_release_without_units_has_no_attributes(tmp_path: Path) -> None:
    privacy = {"mechanism": "noisy-histogram", "epsilon": 4.0}
    made = build_experiment(tmp_path / "experiment", LOG, arms=ARMS, privacy=privacy).run()
    with pytest.raises(InputError, match="no units, so it has no attributes"):
        estimate_by(made.path, "country")


def test_the_command_gives_them_as_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", str(path), "--by", "country", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["by"] == {"attribute": "country", "n_segments": 4}
    assert document["estimates"] == [vars(one) for one in estimate_by(path, "country").estimates]


def test_the_command_shows_them_to_people(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", str(path), "--by", "country"]) == 0
    shown = capsys.readouterr().out
    assert "effect of each arm against 'none', by country" in shown
    assert "shrunken" in shown
    assert "((none))" in shown


OTHERS = [("--segments", "x.csv"), ("--covariates", "x.csv"), ("--adjust", "age")]


@pytest.mark.parametrize("other", OTHERS)
def test_one_thing_is_asked_for_at_a_time(
    path: Path, other: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["estimate", str(path), "--by", "country", *other]) == 2
    assert "cannot go with" in capsys.readouterr().err


def test_the_command_names_its_option(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", str(path), "--by", "nope"]) == 2
    assert capsys.readouterr().err.startswith("clusterdp: --by: 'nope' is no attribute")


def test_python_gives_the_same(path: Path) -> None:
    found = front.open(path).ate(by="country")
    rows = {
        (one.segment, one.arm, one.estimator): one for one in estimate_by(path, "country").estimates
    }
    assert found.height == len(rows)
    for one in found.to_dicts():
        assert AttributeEstimate(**one) == rows[one["segment"], one["arm"], one["estimator"]]
    with pytest.raises(ConfigError, match="adjust: cannot go with by"):
        front.open(path).ate(by="country", adjust="age")


# several releases


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases, of which a hundred people are in both; their attributes stay as they are."""
    folder = tmp_path_factory.mktemp("nights")
    first = LOG.with_columns(*BY_ID[1:])
    later = first.with_columns(
        customer=pl.format("c{}", (NUMBER + 1104).cast(pl.String).str.zfill(5))
    )
    logs = {"2026-01-01": first, "2026-01-02": later.with_columns(*BY_ID[1:])}
    experiment = build_experiment(
        folder / "experiment",
        {f"log-{period}.parquet": log for period, log in logs.items()},
        source={"path": "log-{period}.parquet"},
        arms=ARMS,
        columns={"attributes": ["country", "age"]},
        privacy={"epsilon": 4.0},
    )
    for period in logs:
        experiment.run(period)
    return experiment.releases


BY_ID = (
    pl.col("customer").alias("unit_id"),
    in_turn("it", "fr", "de").alias("country"),
    (PLACE % 12).alias("age"),
)


def test_over_several_releases_they_are_those_of_a_table(nights: Path) -> None:
    everybody = pl.DataFrame({"customer": [f"c{unit:05d}" for unit in range(2304)]})
    table = everybody.select(*BY_ID).select("unit_id", pl.col("country").alias("segment"))
    expected = estimate_series([nights], table=Table("segments", Path("segments"), table))
    found = estimate_series([nights], table=ByAttribute("country"))
    assert found.people.kind == "returning"
    by_key = {key_of(one): vars(one) for one in expected.pooled}
    assert len(found.pooled) == len(by_key) == 2 * 2 * 3
    for one in found.pooled:
        other = by_key[key_of(one)]
        assert {name: vars(one)[name] for name in other} == pytest.approx(other, abs=1e-12)


def test_pooled_effects_are_seen_among_their_segments(nights: Path) -> None:
    found = estimate_series([nights], table=ByAttribute("age")).pooled
    mail = [one for one in found if (one.arm, one.estimator) == ("mail", "combined")]
    assert len(mail) == 12
    raw, drawn = (
        np.array([getattr(one, name) for one in mail], dtype=float)
        for name in ("estimate", "shrunken")
    )
    assert np.ptp(drawn) < 0.8 * np.ptp(raw)


def test_the_command_pools_them(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", str(nights), "--by", "country", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["periods"][0]["by"] == {"attribute": "country", "n_segments": 3}
    assert {"shrunken", "ci_lower_always", "p_value_holm_segments"} <= set(document["pooled"][0])
    assert run(["estimate", str(nights), "--by", "country"]) == 0
    shown = capsys.readouterr().out
    assert "by country, all releases together" in shown
    assert "shrunken" in shown


def test_the_command_refuses_what_one_release_lacks(
    nights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["estimate", str(nights), "--by", "own"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("clusterdp: --by: 'own' is no attribute of")
    assert "2026-01-01" in said


def test_python_pools_them(nights: Path) -> None:
    series = front.open_series(nights)
    pooled = series.ate(by="country")
    assert pooled.height == 12
    assert {"shrunken", "n_releases", "people"} <= set(pooled.columns)
    by_period = series.by_period(by="country")
    assert by_period.height == 24
    assert by_period["shrunken"].null_count() == 0


def test_ratios_without_numbers_are_told(tmp_path: Path) -> None:
    built = build_experiment(
        tmp_path / "made",
        LOG.with_columns(zero=pl.lit(0.0), country=in_turn("it", "de")),
        columns={"outcome": None, "attributes": ["country"]},
        arms=ARMS,
        outcome=None,
        outcomes=[
            {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
            {"name": "zero", "column": "zero", "values": [0, 1]},
        ],
        ratios=[{"name": "per_zero", "numerator": "clicks", "denominator": "zero"}],
        privacy=EXACT,
    )
    (warning,) = estimate_by(built.run().path, "country").warnings
    assert warning.startswith("per_zero: no numbers for mail (tau_q) in de and 3 more")
