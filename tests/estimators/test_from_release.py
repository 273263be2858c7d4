"""Curves of the effect from debiased outcomes: who is compared, with what noise, and what comes."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from estimators.effects.models.from_release import Pair, fit_release, pair_of
from estimators.effects.models.table import N_POINTS
from schemas.arrays import Floats
from tests.estimators.released_pairs import DESIGN, SITES, simulated
from tests.estimators.told_release import Told, evidence_of, identity, random_release


def whole_release(stream: int) -> Told:
    """Any release, all of its units in one group."""
    told = random_release(stream)
    units = tuple(replace(unit, groups=frozenset({0})) for unit in told.units)
    return replace(told, units=units)


def pair_of_told(told: Told, arms: tuple[int, int], *, same_shares: bool) -> Pair:
    return pair_of(
        evidence_of(told),
        np.array([unit.cluster for unit in told.units]),
        np.array([unit.arm for unit in told.units]),
        np.array([unit.value - told.center for unit in told.units]),
        arms,
        same_shares=same_shares,
    )


@pytest.mark.parametrize("stream", range(20))
def test_units_are_debiased_and_their_noise_is_that_of_the_release(stream: int) -> None:
    told = whole_release(stream)
    half = (told.grid[-1] - told.grid[0]) / 2
    middle = (told.grid[-1] + told.grid[0]) / 2
    pair = pair_of_told(told, (1, 0), same_shares=True)
    for place, at in enumerate(pair.rows.tolist()):
        unit = told.units[at]
        assert pair.treated[place] == unit.arm
        expected = (told.debiased(unit, identity) + told.center - middle) / half
        assert pair.outcome[place] == pytest.approx(expected, abs=1e-9)
        assert pair.noise[place] == pytest.approx(told.unit_noise(unit, identity) / half**2)


@pytest.mark.parametrize("stream", range(20))
def test_the_propensity_is_the_share_of_the_stratum(stream: int) -> None:
    """Of clusters with two units of both arms; small ones are one stratum where that may be."""
    told = whole_release(stream)
    sizes = {
        cluster: [
            sum((unit.cluster, unit.arm) == (cluster, arm) for unit in told.units) for arm in (0, 1)
        ]
        for cluster in told.pool_of
    }
    everyone = Counter(unit.cluster for unit in told.units)
    least = min(Counter(unit.arm for unit in told.units).values())
    small = {cluster for cluster, n in everyone.items() if n * least < 4 * len(told.units)}
    for same_shares in (False, True):
        pair = pair_of_told(told, (1, 0), same_shares=same_shares)
        merged = small if same_shares else set()
        rest = [sum(sizes[cluster][arm] for cluster in merged) for arm in (0, 1)]
        used = {cluster for cluster, n in sizes.items() if min(n) >= 2} - merged
        used |= merged if min(rest) >= 2 else set()
        rows = [at for at, unit in enumerate(told.units) if unit.cluster in used and unit.arm < 2]
        assert pair.rows.tolist() == rows
        for place, at in enumerate(rows):
            cluster = told.units[at].cluster
            control, treated = rest if cluster in merged else sizes[cluster]
            assert pair.propensity[place] == treated / (treated + control)


def test_without_noise_the_curve_is_the_effect() -> None:
    """A line in age and a step at one site, among 4,000 units whose outcomes are rounded."""
    made = simulated(np.random.default_rng(11), 4_000, rate=1e-9)
    found = fit_release(DESIGN, made.pair, made.features)
    assert np.mean((found.predict(made.features) - made.effects) ** 2) < 0.01 * np.var(made.effects)
    age, site = found.curves
    assert len(age.at) == N_POINTS
    assert (age.at[0], age.at[-1]) == (20.0, 80.0)
    assert site.at == SITES
    assert site.effects[2] - site.effects[0] == pytest.approx(0.4, abs=0.1)
    assert [name for name, _ in found.importance] == ["age", "site"]
    assert found.importance[0][1] == pytest.approx(1.2**2 / 12, rel=0.1)


def test_more_noise_shrinks_the_curve_and_widens_its_band() -> None:
    random = np.random.default_rng(12)
    some, much = (simulated(random, 2_000, rate=rate) for rate in (0.1, 0.9))
    near, far = (fit_release(DESIGN, made.pair, made.features) for made in (some, much))
    assert far.importance[0][1] < near.importance[0][1]
    errors = [fit.curves[0].noise_std_errors for fit in (near, far)]
    assert errors[0] is not None
    assert errors[1] is not None
    assert (errors[1] > 1.5 * errors[0]).all()


def test_what_is_not_known_counts_as_average() -> None:
    made = simulated(np.random.default_rng(13), 2_000, rate=0.1)
    missing = made.features.copy()
    missing[::3, 0] = np.nan
    found = fit_release(DESIGN, made.pair, missing)
    unknown = found.predict(np.array([[np.nan, np.nan]]))
    assert unknown == pytest.approx(found.fitted.mean[0] * DESIGN.half)
    assert np.isfinite(found.predict(missing)).all()


def test_columns_that_say_the_same_do_no_harm() -> None:
    """Twice the same number: neither half has a slope of its own, both together have one."""
    made = simulated(np.random.default_rng(14), 2_000, rate=0.1)
    twice = replace(DESIGN, features=(DESIGN.features[0], replace(DESIGN.features[0], name="b")))
    found = fit_release(twice, made.pair, made.features[:, [0, 0]])
    once = fit_release(
        replace(DESIGN, features=DESIGN.features[:1]), made.pair, made.features[:, :1]
    )
    ages: Floats = np.linspace(0.02, 0.98, 9)[:, np.newaxis]
    assert found.predict(np.hstack([ages, ages])) == pytest.approx(once.predict(ages), abs=0.05)


def test_an_average_that_is_known_better_shifts_the_curve_alone() -> None:
    made = simulated(np.random.default_rng(15), 2_000, rate=0.5)
    found = fit_release(DESIGN, made.pair, made.features)
    anchored = found.anchored(0.3, 0.01)
    average = anchored.average @ anchored.fitted.mean * DESIGN.half
    assert average == pytest.approx(0.3)
    spread = anchored.average @ anchored.fitted.covariance @ anchored.average
    assert math.sqrt(spread) * DESIGN.half == pytest.approx(0.01)
    before, after = (fit.predict(made.features) for fit in (found, anchored))
    assert np.std(after - before) < 0.1 * abs(np.mean(after - before))
    assert anchored.std_errors(anchored.average[np.newaxis]) == pytest.approx([0.01])
    worse = found.anchored(0.3, 10.0)
    assert worse.fitted is found.fitted
    assert worse.unshrunk is found.unshrunk
