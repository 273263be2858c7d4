"""Nothing fails after a draw that public numbers could have refused before it.

A failure that comes with some draws alone tells of them, and of the data behind them. So every
extreme of ε, δ and its shares is either refused when a mechanism is made, or never fails, whatever
is drawn: 300 draws each, with sensitivities whose mantissas differ, on which failures would hang.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from privatizers.domain.lattice import Lattice
from privatizers.effects.sites import randomised_trial as site_trial
from privatizers.effects.sites.dp_matching import EpsilonSplit, GlobalMatching, SmoothMatching
from privatizers.effects.sites.matching import SitePeople
from privatizers.effects.sites.randomised_trial import RandomisedTrial
from privatizers.effects.toolbox.local_sensitivity import Tabulated
from privatizers.effects.toolbox.propose_test_release import ProposeTestRelease
from privatizers.effects.toolbox.smooth_sensitivity import BoundThenNoise
from privatizers.mechanisms import noisy_horvitz_thompson
from privatizers.mechanisms.noisy_horvitz_thompson import NoisyHorvitzThompson
from privatizers.mechanisms.parameters import AggregateParameters, Parameters
from privatizers.noise import lattice_laplace as real_noise
from privatizers.noise.lattice_laplace import LEAST_EPSILON, lattice_laplace, power_of_two_step
from schemas.errors import ConfigError, InputError

pytestmark = pytest.mark.statistical

DRAWS = 300
EXTREMES = [  # ε, and the smallest of its parts; about 1e-9 of ε = 1 is where noise stops to fit
    (1.0, 1e-3),
    (1.0, 3e-9),
    (1.0, 1e-9),
    (1.0, 4e-10),
    (1.0, 1e-15),
    (1.0, 1e-300),
    (1e-6, 1.0),
    (1e-6, 8e-4),
    (1000.0, 8e-13),
]


def made(make: Callable[[], Any]) -> Any:
    """What is made, or None where it is refused: before any draw, by numbers that are public."""
    try:
        return make()
    except (ValueError, ConfigError):
        return None


def people(generator: np.random.Generator, high: float) -> SitePeople:
    n = int(generator.integers(2, 40))
    return SitePeople(
        generator.integers(0, 3, n), generator.random(n) < 0.5, high * generator.random(n), 3
    )


@pytest.mark.parametrize("part", ["effect", "variance", "bound"])
@pytest.mark.parametrize(("epsilon", "smallest"), EXTREMES)
def test_smooth_matching_is_refused_or_never_fails(
    part: str, smallest: float, epsilon: float
) -> None:
    generator = np.random.default_rng(5)
    for number in range(DRAWS // 20):
        high = float(10.0 ** generator.uniform(-60, 60)) if number else 1.0
        shares = EpsilonSplit(**{part: smallest})
        mechanism = made(partial(SmoothMatching, epsilon, 1e-9, high, shares))
        if mechanism is None:
            continue
        for _ in range(20):
            found = mechanism.report(people(generator, high))
            assert math.isfinite(found.estimate)
            assert 0.0 <= found.variance < 1e150


@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-12, 0.01])
def test_smooth_matching_takes_every_delta_that_it_does_not_refuse(delta: float) -> None:
    generator = np.random.default_rng(6)
    mechanism = SmoothMatching(1.0, delta, 1.0)
    for _ in range(20):
        mechanism.report(people(generator, 1.0))


def test_shares_whose_sum_is_no_double_are_shares() -> None:
    """As proportions they are thirds; the sum of what they are is infinite."""
    assert EpsilonSplit(1e308, 1e308, 1e308).epsilons(3.0) == pytest.approx((1.0, 1.0, 1.0))


@pytest.mark.parametrize("is_bounds", [True, False])
@pytest.mark.parametrize(("epsilon", "share"), EXTREMES)
def test_a_bound_then_noise_is_refused_or_never_fails(
    epsilon: float, share: float, is_bounds: bool
) -> None:
    generator = np.random.default_rng(7)
    mechanism = made(lambda: BoundThenNoise(epsilon, 1e-6, share if is_bounds else 1.0 - share))
    if mechanism is None:
        return
    for _ in range(DRAWS):
        most = float(10.0 ** generator.uniform(-130, 120))
        value = float(generator.choice([math.nan, math.inf, 1e300, most]))
        found = mechanism.release(Tabulated(value, (most / 2,), most))
        assert math.isfinite(found.value)


@pytest.mark.parametrize(("epsilon", "share"), EXTREMES)
def test_global_matching_and_trials_are_refused_or_never_fail(epsilon: float, share: float) -> None:
    generator = np.random.default_rng(8)
    for number in range(DRAWS // 20):
        high = float(10.0 ** generator.uniform(-60, 60)) if number else 1.0
        for effect_share in (share, 1.0 - share):
            matching = made(partial(GlobalMatching, epsilon, high, effect_share))
            if matching is not None:
                matching.report(people(generator, high))
        for ratio in (share, 1.0 / share):
            trial = made(partial(RandomisedTrial, epsilon, high, ratio))
            if trial is not None:
                trial.report(np.array([True, False] * 4), high * generator.random(8))


def test_noise_at_the_least_epsilon_fits_whatever_the_sensitivity() -> None:
    """And at half of it whether it fits hangs on the mantissa, as it did in the second steps."""
    mantissas = np.concatenate([np.linspace(1.0, 2.0, 99, endpoint=False), [np.nextafter(2, 1)]])
    failures = 0
    for sensitivity in mantissas.tolist():
        step = power_of_two_step(sensitivity)
        lattice_laplace(np.zeros(1), sensitivity=sensitivity, epsilon=LEAST_EPSILON, step=step)
        try:
            lattice_laplace(
                np.zeros(1), sensitivity=sensitivity, epsilon=0.4 * LEAST_EPSILON, step=step
            )
        except ValueError:
            failures += 1
    assert 20 < failures < 100


def test_an_arm_of_one_unit_is_refused_before_the_other_arm_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_draw(*_: object, **__: object) -> None:
        pytest.fail("something was drawn")

    monkeypatch.setattr(real_noise, "discrete_laplace", no_draw)
    monkeypatch.setattr(site_trial, "lattice_laplace", no_draw)
    for treated in ([True] * 5 + [False], [False] * 5 + [True], [True] * 6):
        with pytest.raises(InputError, match="arm of this site has"):
            RandomisedTrial(1.0, 1.0).report(np.array(treated), np.zeros(6))


def test_a_proposal_takes_a_value_that_is_no_number() -> None:
    """The value is looked at after the test was drawn; it is 0 then."""
    mechanism = ProposeTestRelease(1.0, 2.0, 1e-3)
    for _ in range(20):
        found = mechanism.release(Tabulated(math.nan, (0.0,) * 5_000, 1.0))
        assert found is not None
        assert math.isfinite(found)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 1e18])
def test_a_scale_that_no_noise_has_is_refused_with_the_parameters(scale: float) -> None:
    """Not when the counts are noised, which is after outcomes were rounded by chance."""
    with pytest.raises(ValueError, match=r"scale|64 bits"):
        Parameters.of(3, 0.5, 1 / 3, scale)
    with pytest.raises(ValueError, match=r"scale|64 bits"):
        AggregateParameters(3, scale)


def test_arms_too_large_for_64_bits_are_refused_by_their_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what is public, and before anything is drawn."""
    monkeypatch.setattr(noisy_horvitz_thompson, "discrete_laplace", lambda *_: pytest.fail("drawn"))
    lattice = Lattice((0, 1, 100_000))
    mechanism = NoisyHorvitzThompson(AggregateParameters(3, 1.0, lattice, differences=True))
    coprime = np.array([[10**7, 10**7 + 1], [5, 5]])
    with pytest.raises(ConfigError, match="64 bits"):
        mechanism.check_sizes(coprime, 1)
    mechanism.check_sizes(np.array([[10**7, 10**7], [5, 5]]), 1)  # their difference is small
    with pytest.raises(ConfigError, match="64 bits"):  # but labels drawn anew share them out anew
        mechanism.check_sizes(np.array([[10**7, 10**7], [5, 5]]), 1, exact=False)
    mechanism.check_sizes(np.array([[10**3, 10**3]]), 1, exact=False)
