"""Every release of a tiny experiment, with its probability: estimates are right on average.

Randomised outcomes are listed in full; noise of scale 0.3 but for what has 1e-11 of probability
in all. So expectations are sums, without chance, and exact to ``ERROR``.
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.arm_effects import contrasts
from estimators.means import EstimatorName
from estimators.response.debias import prior_moments
from estimators.response.pool_statistics import PoolCountsNoise, counts_noise, unit_noise
from estimators.strata.evidence import (
    Debiased,
    Evidence,
    PoolMeans,
    Pools,
    Slices,
    Statistic,
    Sums,
    calibrate,
)
from privatizers.mechanisms.prior import truncated_prior
from schemas.arrays import Floats, Ints

GRID = np.array([0.0, 1.0, 4.0])
STEPS = GRID - GRID.mean()
RATE, SCALE, REACH = 0.4, 0.3, 9
ERROR = 1e-9


@dataclass(frozen=True)
class Setting:
    """The units of one (pool, arm): the level of each, its cluster, and whether it is in the slice.

    ``own_prior`` makes the prior of the noisy counts, as cluster-dp does.
    """

    levels: tuple[int, ...]
    cluster: tuple[int, ...]
    inside: tuple[bool, ...]
    own_prior: bool = False

    @property
    def truth(self) -> float:
        """Mean over the slice's clusters, weighted by their units in it."""
        return float(STEPS[np.array(self.levels)][np.array(self.inside)].mean())


WHOLE = Setting((0, 2, 1), (0, 0, 0), (True,) * 3)
SETTINGS = {
    "whole": WHOLE,
    "own prior": replace(WHOLE, own_prior=True),
    "segment": replace(WHOLE, inside=(True, True, False)),
    "segment of the largest": replace(WHOLE, levels=(2, 2, 0), inside=(True, True, False)),
    "shared pool": Setting((0, 2, 1, 2), (0, 0, 1, 1), (True,) * 4),
    "segment, own prior": replace(WHOLE, inside=(True, True, False), own_prior=True),
}


@dataclass(frozen=True)
class Everything:
    """Every release: arrays over releases, shape [releases]."""

    setting: Setting
    chance: Floats
    noisy: Ints
    prior: Floats
    values: Floats
    """Randomised outcomes, shape [releases, units]."""

    def evidence(self, weight: Floats, square_weight: Floats) -> Evidence:
        """Every release a group with a pool of its own; control is a constant arm beside it."""
        size, n = len(self.chance), len(self.setting.levels)
        mean, variance = prior_moments(STEPS, self.prior)
        square, square_variance = prior_moments(STEPS**2, self.prior)
        noise = counts_noise(SCALE, "counts")
        pools = Pools(
            mean,
            variance,
            square,
            square_variance,
            _statistic(STEPS, self.noisy, n, noise, weight),
            _statistic(STEPS**2, self.noisy, n, noise, square_weight),
            np.arange(size),
            np.full(size, len(set(self.setting.cluster))),
        )
        everyone = self._slices(np.ones(n, dtype=bool))
        inside = self._slices(np.array(self.setting.inside))
        return Evidence.of(inside, everyone, pools, RATE, GRID)

    def _slices(self, inside: NDArray[np.bool_]) -> Slices:
        parts = []
        for cluster in sorted(set(self.setting.cluster)):
            own = self.values[:, inside & (np.array(self.setting.cluster) == cluster)]
            n = own.shape[1]
            parts.append(
                (
                    np.full(len(own), cluster),
                    np.full(len(own), float(n)),
                    own.mean(axis=1),
                    own.var(axis=1, ddof=1) if n > 1 else np.zeros(len(own)),
                    (own**4).mean(axis=1),
                )
            )
        clusters, n_units, mean, variance, fourth = (
            np.stack(part, axis=1).ravel() for part in zip(*parts, strict=True)
        )
        release = np.repeat(np.arange(len(self.chance)), len(parts))
        arm = np.ones(len(release), dtype=np.int64)
        return Slices(release, clusters, arm, release, n_units, mean, variance, fourth)

    def mean(self, values: Floats) -> float:
        return float(self.chance @ values)


def _statistic(
    of: Floats, noisy: Ints, n: int, noise: PoolCountsNoise, weight: Floats
) -> Statistic:
    cumulants, middle = noise.of_sum(of), of.mean()
    ones = np.ones(len(noisy))
    return Statistic(
        middle + noisy @ (of - middle) / n,
        ones * cumulants.second / n**2,
        ones * cumulants.fourth / n**4,
        weight,
    )


def everything(setting: Setting) -> Everything:
    levels, n = np.array(setting.levels), len(setting.levels)
    reach = np.arange(-REACH, REACH + 1)
    shares = np.exp(-np.abs(reach) / SCALE)
    shares /= (1 + np.exp(-1 / SCALE)) / (1 - np.exp(-1 / SCALE))
    noise = np.array(list(product(reach, repeat=3)))
    chance = np.prod(shares[noise + REACH], axis=1)
    kept = chance > 1e-15
    noise, chance = noise[kept], chance[kept]
    noisy = np.bincount(levels, minlength=3) + noise
    prior = np.full((len(noisy), 3), 1 / 3)
    if setting.own_prior:
        prior = truncated_prior(noisy, np.full(len(noisy), n), 0.1)
    drawn = np.array(list(product(range(3), repeat=n)))
    response = (1 - RATE) * np.eye(3)[np.newaxis] + RATE * prior[:, :, np.newaxis]
    likely = np.prod(
        [response[:, drawn[:, unit], levels[unit]] for unit in range(n)], axis=0
    )  # [noise, drawn]
    at, of = np.indices(likely.shape).reshape(2, -1)
    return Everything(
        setting, (chance[:, np.newaxis] * likely).ravel(), noisy[at], prior[at], STEPS[drawn[of]]
    )


@pytest.fixture(scope="module", params=SETTINGS)
def every(request: pytest.FixtureRequest) -> Everything:
    return everything(SETTINGS[request.param])


def mean_of(
    releases: Everything, weight: Floats, square_weight: Floats, *, squares: bool = False
) -> Sums:
    """The slice's calibrated mean in every release."""
    evidence = releases.evidence(weight, square_weight)
    slices, size = evidence.slices, len(releases.chance)
    n = np.bincount(slices.group, slices.n_units, size)
    share = slices.n_units / n[slices.group]
    own: tuple[Debiased, PoolMeans, Statistic, Floats] = (
        (evidence.square, evidence.whole_square, evidence.pools.of_square, square_weight)
        if squares
        else (evidence.mean, evidence.whole_mean, evidence.pools.of_mean, weight)
    )
    return calibrate(slices.group, size, share, slices, *own)


WEIGHTS = [0.0, 0.37, 1.0]


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("squares", [False, True], ids=["mean", "squares"])
def test_calibrated_means_and_their_noise_are_right_on_average(
    every: Everything, weight: float, squares: bool
) -> None:
    weights = np.full(len(every.chance), weight)
    found = mean_of(every, weights, weights, squares=squares)
    of = STEPS**2 if squares else STEPS
    truth = of[np.array(every.setting.levels)][np.array(every.setting.inside)].mean()
    assert every.chance.sum() == pytest.approx(1, abs=1e-10)
    assert every.mean(found.value) == pytest.approx(truth, abs=ERROR)
    variance = every.mean((found.value - truth) ** 2)
    # Values up to 30 times as large, squared.
    assert every.mean(found.noise) == pytest.approx(variance, rel=1e-6)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_variance_of_the_slices_outcomes_is_right_on_average(
    every: Everything, weight: float
) -> None:
    """Before it is clipped: Â − μ̂² + V̂."""
    weights, others = np.full(len(every.chance), weight), np.full(len(every.chance), 0.6)
    mean, square = mean_of(every, weights, others), mean_of(every, weights, others, squares=True)
    own = STEPS[np.array(every.setting.levels)][np.array(every.setting.inside)]
    found = every.mean(square.value - mean.value**2 + mean.noise)
    assert found == pytest.approx(own.var(), abs=1e-6)
    assert every.mean(square.value - mean.value**2) < own.var() - 0.03  # without the noise


def test_the_fourth_cumulant_is_that_of_the_statistics_part() -> None:
    releases = everything(WHOLE)
    ones = np.ones(len(releases.chance))
    found = mean_of(releases, ones, ones)
    central = [releases.mean((found.value - WHOLE.truth) ** power) for power in (2, 4)]
    assert releases.mean(found.fourth) == pytest.approx(central[1] - 3 * central[0] ** 2, rel=1e-5)


def treated_means(
    releases: Everything, name: EstimatorName, weight: Floats, square_weight: Floats
) -> Floats:
    """Of ``contrasts``, against a control arm that is the same in every release."""
    evidence = releases.evidence(weight, square_weight)
    control = replace(evidence.slices, arm=np.zeros_like(evidence.slices.arm))
    both = Slices(
        *(
            np.concatenate([getattr(part, field) for part in (evidence.slices, control)])
            for field in evidence.slices.__dataclass_fields__
            if field not in ("outputs", "n_parties", "own_sizes")
        )
    )
    size = len(releases.chance)
    together = Evidence.of(
        both, releases.evidence(weight, weight).slices, evidence.pools, RATE, GRID
    )
    together = replace(together, whole_mean=evidence.whole_mean, whole_square=evidence.whole_square)
    found = contrasts(together, name, 1, 0, size, same_shares=True)
    means: Floats = found.treated_mean - GRID.mean()
    return means


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["tau_q", "histogram", "combined"])
def test_every_estimator_of_an_arm_is_right_on_average(
    every: Everything, name: EstimatorName
) -> None:
    weights = np.full(len(every.chance), 0.37)
    found = treated_means(every, name, weights, weights)
    assert every.mean(found) == pytest.approx(every.setting.truth, abs=ERROR)


def test_weights_taken_from_the_noisy_counts_would_bias_the_estimate() -> None:
    releases = everything(WHOLE)
    shares = np.maximum(releases.noisy, 0) / np.maximum(releases.noisy, 0).sum(
        axis=1, keepdims=True
    ).clip(1)
    own = np.array(
        [unit_noise(STEPS, p, q, RATE) for p, q in zip(shares, releases.prior, strict=True)]
    )
    noise = counts_noise(SCALE, "counts").of_sum(STEPS).second
    weights = 3 * own / (3 * own + noise)
    found = treated_means(releases, "combined", weights, weights)
    assert abs(releases.mean(found) - WHOLE.truth) > 1e4 * ERROR


def test_weights_taken_from_the_randomised_outcomes_would_bias_it_too() -> None:
    releases = everything(WHOLE)
    weights = np.where(releases.values.mean(axis=1) > 0, 0.8, 0.2)
    found = treated_means(releases, "combined", weights, weights)
    assert abs(releases.mean(found) - WHOLE.truth) > 1e6 * ERROR
