"""The set-ups of `cate`: their moments are those that the authors' figures rest on.

People are drawn from a fixed number, so every check is the same in every run.
"""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.lab.replication.cate.setups import (
    COVARIANCE,
    HILLSTROM,
    HILLSTROM_TREATED,
    N_TEST,
    SetUp,
    hillstrom,
    simulated,
)
from schemas.effects.model import LevelFeature, NumberFeature
from schemas.errors import InputError
from tests.statistical.simulate import real_data

VARIANCES = {"A": 0.042, "B": 1.27, "C": 0.0, "D": 1.70, "E": 10.1}
"""Of τ: the error of somebody who knows the average effect and nothing else."""
BY_NAME = {one.name: one for one in simulated()}


@pytest.fixture(scope="module", params=sorted(BY_NAME))
def set_up(request: pytest.FixtureRequest) -> SetUp:
    return BY_NAME[request.param]


def test_effects_vary_as_the_authors_say(set_up: SetUp) -> None:
    people = set_up.draw(100_000, np.random.default_rng(1))
    assert people.effect.var() == pytest.approx(VARIANCES[set_up.name], rel=0.03)


def test_as_many_are_treated_as_should_be_and_effects_are_in_the_outcomes(set_up: SetUp) -> None:
    """Where arms are randomised, the treated gain 1 for every 1 of τ over the others."""
    people = set_up.draw(100_000, np.random.default_rng(2))
    share = people.treated.mean()
    expected = {"A": 0.519, "B": 0.5, "C": 0.5, "D": 0.309, "E": 0.545}[set_up.name]
    assert share == pytest.approx(expected, abs=0.008)
    if set_up.name == "B":
        treated = people.treated
        slope = np.polyfit(people.effect[treated], people.outcome[treated], 1)[0]
        other = np.polyfit(people.effect[~treated], people.outcome[~treated], 1)[0]
        assert slope - other == pytest.approx(1.0, abs=0.05)


def test_bounds_are_near_the_quantiles_that_they_come_from(set_up: SetUp) -> None:
    people = set_up.draw(100_000, np.random.default_rng(3))
    low, high = np.quantile(people.outcome, [0.005, 0.995])
    assert set_up.low == pytest.approx(low, abs=1.3)
    assert set_up.high == pytest.approx(high, abs=1.3)
    assert set_up.low == round(set_up.low)
    outside = np.mean((people.outcome < set_up.low) | (people.outcome > set_up.high))
    assert outside < 0.012
    for feature, column in zip(set_up.features, people.features.T, strict=True):
        if isinstance(feature, NumberFeature):
            assert np.mean((column < feature.low) | (column > feature.high)) < 0.008
        else:
            assert set(np.unique(column)) == {0.0, 1.0}


def test_the_covariance_is_the_authors() -> None:
    factor = np.random.RandomState(1).uniform(-1.0, 1.0, (12, 12))
    assert np.allclose((factor @ factor.T)[:6, :6], COVARIANCE, rtol=0.0, atol=1e-9)


def test_e_has_three_numbers_and_three_bits() -> None:
    people = BY_NAME["E"].draw(50_000, np.random.default_rng(4))
    assert set(np.unique(people.features[:, 3:])) == {0.0, 1.0}
    spread = np.cov(people.features[:, :3], rowvar=False)
    assert np.allclose(spread, COVARIANCE[:3, :3], atol=0.15)
    about = people.outcome - people.outcome.mean()
    far = np.abs(people.features[:, 0]) > 2.0
    assert about[far].var() > about[~far].var()  # its noise grows with x1


def test_batches_are_in_bounds_and_the_same_in_every_pass(set_up: SetUp) -> None:
    people = set_up.draw(1_000, np.random.default_rng(5))
    read = set_up.batches(people, 300)
    first, again = list(read()), list(read())
    assert [len(one.outcome) for one in first] == [300, 300, 300, 100]
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.features, other.features)
        assert one.features.min() >= 0.0
        assert one.features.max() <= 1.0
        assert np.abs(one.outcome).max() <= 1.0
        assert one.complete.all()
        assert one.propensity is None


# H


def _customers(n: int) -> pl.DataFrame:
    random = np.random.default_rng(6)
    return pl.DataFrame(
        {
            "recency": random.integers(1, 13, n),
            "history": random.uniform(30, 3_300, n),
            "mens": random.integers(0, 2, n),
            "womens": random.integers(0, 2, n),
            "newbie": random.integers(0, 2, n),
            "zip_code": random.choice(["Urban", "Rural", "Surburban"], n),
            "channel": random.choice(["Web", "Phone", "Multichannel"], n),
            "visit": random.integers(0, 2, n),
        }
    )


def test_customers_visit_more_by_exactly_the_effect(tmp_path: Path) -> None:
    (tmp_path / HILLSTROM.parent).mkdir()
    frame = _customers(60_000)
    frame.write_parquet(tmp_path / HILLSTROM)
    set_up = hillstrom(tmp_path / HILLSTROM)
    people = set_up.draw(40_000, np.random.default_rng(7))
    assert people.treated.mean() == pytest.approx(HILLSTROM_TREATED, abs=0.01)
    within = people.effect > 0.2
    gain = [
        people.outcome[cell & people.treated].mean() - people.outcome[cell & ~people.treated].mean()
        for cell in (within, ~within)
    ]
    expected = [people.effect[cell].mean() for cell in (within, ~within)]
    assert gain == pytest.approx(expected, abs=0.025)
    zip_code = set_up.features[5]
    assert isinstance(zip_code, LevelFeature)
    positions = set_up.positions(people.features)
    assert positions[:, :5].min() >= 0.0
    assert positions[:, :5].max() <= 1.0
    assert set(np.unique(positions[:, 5])) == {0.0, 1.0, 2.0}
    shares = [float(np.mean(positions[:, 5] == place)) for place in range(3)]
    counted = [int((frame["zip_code"] == level).sum()) / len(frame) for level in zip_code.levels]
    assert shares == pytest.approx(counted, abs=0.02)


def test_fresh_people_are_nobody_that_was_learnt_from(tmp_path: Path) -> None:
    (tmp_path / HILLSTROM.parent).mkdir()
    n = N_TEST + 50
    _customers(n).with_columns(history=pl.lit(30.0) + pl.int_range(n) / 100).write_parquet(
        tmp_path / HILLSTROM
    )
    set_up = hillstrom(tmp_path / HILLSTROM)
    learnt = set_up.draw(50, np.random.default_rng(8)).features[:, 1]
    fresh = set_up.fresh(np.random.default_rng(9)).features[:, 1]
    assert len(fresh) == N_TEST
    assert not set(learnt) & set(fresh)


def test_with_other_data_it_says_so(tmp_path: Path) -> None:
    (tmp_path / HILLSTROM.parent).mkdir()
    _customers(30).write_parquet(tmp_path / HILLSTROM)
    with pytest.raises(InputError, match="more than 20000"):
        hillstrom(tmp_path / HILLSTROM)


def test_real_customers() -> None:
    fresh = hillstrom(real_data(str(HILLSTROM))).fresh(np.random.default_rng(10))
    assert fresh.effect.var() == pytest.approx(0.0183, abs=0.0004)
