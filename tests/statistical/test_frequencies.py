"""Draws fall as often as is published: randomised response, the noise of counts, and raw words.

Pearson's test or a z test, at ``FALSE_ALARM`` = 1e-6 a test; 23 tests, so that one run in 40,000
fails without a cause. Privacy randomness cannot be seeded, so these are tests of the real one.
Each comes with its power: the same test, on the same or as many draws, rejects a rate 5 % off or a
noise scale 30 % off, by margins that make a miss far rarer than a false alarm.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from privatizers.mechanisms.randomised_response import RandomisedResponse
from privatizers.mechanisms.statistics.noisy_counts import NoisyCounts
from privatizers.noise.randomness import RESOLUTION, discrete_laplace, random_words
from privatizers.planning.design import MechanismName, Request, design
from schemas.arrays import Floats, Ints
from tests.statistical.simulate import LEAST_EXPECTED, pearson
from tests.support.distances import assert_near, assert_p_value, distance

FALSE_ALARM = 1e-6

N_UNITS = 360_000  # a mechanism and grid: 3.2 million draws in all, two words each
N_STRATA = 3
RATE = 0.5

NAMES: tuple[MechanismName, ...] = ("cluster-dp", "cluster-free-dp", "uniform-prior-dp")


@dataclass(frozen=True)
class Drawn:
    """How often each outcome became which, and the response that drew it."""

    observed: Ints
    """Shape [strata, K, K]: outcome, then randomised outcome."""
    response: RandomisedResponse

    def p_value(self, rate: float) -> float:
        """Of Pearson's test against Q with λ = ``rate`` and the published priors."""
        k = self.observed.shape[-1]
        q = (1 - rate) * np.eye(k) + rate * self.response.prior[:, np.newaxis, :]
        return pearson(self.observed.reshape(-1, k), q.reshape(-1, k))


@pytest.fixture(
    scope="module",
    params=list(product(NAMES, (2, 3, 12))),
    ids=lambda case: f"{case[0]}-{case[1]}",
)
def drawn(request: pytest.FixtureRequest) -> Drawn:
    """Many units, as many with every outcome, in strata whose noisy counts differ widely."""
    name, k = request.param
    asked = Request(
        name,
        k,
        resampling_probability=RATE,
        truncation_threshold=None if name == "uniform-prior-dp" else 1 / (2 * k),
        noise_scale=20.0,
    )
    counts = np.random.default_rng(k).multinomial(500, [1 / k] * k, size=N_STRATA)
    counts[0, 0] += 400  # so that one prior, at least, is far from uniform
    response = design(asked).mechanism.strata(counts).response
    stratum = np.repeat(np.arange(N_STRATA), N_UNITS // N_STRATA)
    levels = np.arange(N_UNITS) % k
    cells = (stratum * k + levels) * k + response.draw(levels, stratum)
    return Drawn(np.bincount(cells, minlength=N_STRATA * k * k).reshape(-1, k, k), response)


def test_randomised_outcomes_follow_the_published_probabilities(drawn: Drawn) -> None:
    assert drawn.response.resampling_probability == RATE
    assert_p_value(drawn.p_value(RATE), FALSE_ALARM)


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_they_would_not_follow_a_rate_five_per_cent_off(drawn: Drawn, factor: float) -> None:
    assert drawn.p_value(RATE * factor) < FALSE_ALARM**2  # with a million times to spare


N_NOISES = 30_000
SCALES = (0.5, 3.0, 10.0)


def laplace_probabilities(scale: float, values: Ints) -> Floats:
    """P(Z = k) = (1 − a)/(1 + a) · a^|k|, a = exp(−1/σ)."""
    a = np.exp(-1 / scale)
    probabilities: Floats = (1 - a) / (1 + a) * a ** np.abs(values)
    return probabilities


def laplace_p_value(noise: Ints, scale: float) -> float:
    """Pearson's test of discrete Laplace draws; tails that expect too few are joined."""
    far = int(60 * scale) + 1  # beyond it are e⁻⁶⁰
    values = np.arange(-far, far + 1)
    probabilities = laplace_probabilities(scale, values)
    last = int(values[len(noise) * probabilities > 2 * LEAST_EXPECTED].max())
    cells = np.clip(values, -last, last) + last
    joined = np.bincount(cells, probabilities)
    observed = np.bincount(np.clip(noise, -last, last) + last, minlength=2 * last + 1)
    return pearson(observed[np.newaxis], joined[np.newaxis] / joined.sum())


def of_variance(noise: Ints, scale: float) -> tuple[float, float, float]:
    """The mean square, 2a/(1 − a)² and its standard error by the exact fourth moment.

    Squares are skew (6.6), so that at 30,000 draws a false alarm is up to twice as likely as
    ``FALSE_ALARM``.
    """
    a = np.exp(-1 / scale)
    expected = 2 * a / (1 - a) ** 2
    values = np.arange(-int(80 * scale) - 1, int(80 * scale) + 2)
    fourth = float(laplace_probabilities(scale, values) @ values.astype(np.float64) ** 4)
    error = np.sqrt((fourth - expected**2) / len(noise))
    return float((noise.astype(np.float64) ** 2).mean()), float(expected), float(error)


def is_far(noise: Ints, scale: float) -> bool:
    """For checks that are to fail: farther than one run in 10¹² would be."""
    return bool(abs(distance(*of_variance(noise, scale))) > norm.isf(FALSE_ALARM**2 / 2))


@pytest.fixture(scope="module", params=SCALES)
def noise(request: pytest.FixtureRequest) -> tuple[Ints, float]:
    """The noise that counts of three outcomes get, and its scale."""
    scale = float(request.param)
    empty = np.zeros((N_NOISES // 3, 3), dtype=np.int64)
    return NoisyCounts(3, scale).noised(empty).ravel(), scale


def test_the_noise_of_counts_is_discrete_laplace(noise: tuple[Ints, float]) -> None:
    assert_p_value(laplace_p_value(*noise), FALSE_ALARM)


def test_the_noise_of_counts_has_the_variance_that_is_stated(noise: tuple[Ints, float]) -> None:
    assert_near(*of_variance(*noise), float(norm.isf(FALSE_ALARM / 2)))


def test_noise_of_a_scale_thirty_per_cent_off_would_be_caught(noise: tuple[Ints, float]) -> None:
    draws, scale = noise
    for other in (scale / 1.3, scale * 1.3):  # these draws are 30 % too wide, too narrow for it
        assert laplace_p_value(draws, other) < FALSE_ALARM**2
        assert is_far(draws, other)


def test_draws_that_are_thirty_per_cent_too_wide_are_caught() -> None:
    draws = discrete_laplace(N_NOISES, 1.3 * 3.0)
    assert laplace_p_value(draws, 3.0) < FALSE_ALARM**2
    assert is_far(draws, 3.0)


def test_the_noise_of_a_count_with_its_complement_is_discrete_laplace() -> None:
    noisy = NoisyCounts(2, 2.0).noised(np.full((N_NOISES, 2), 7, dtype=np.int64))
    assert_p_value(laplace_p_value(noisy[:, 1] - 7, 2.0), FALSE_ALARM)


N_WORDS = 1_000_000
FIELDS = (0, 20, RESOLUTION - 8)
"""First bit of each eight that are looked at: the lowest, some in the middle, the highest."""


def bits(words: NDArray[np.uint64], first: int, count: int = 8) -> Ints:
    return ((words >> np.uint64(first)) & np.uint64((1 << count) - 1)).astype(np.int64)


def uniform_p_value(values: Ints, n_values: int) -> float:
    observed = np.bincount(values, minlength=n_values)
    return pearson(observed[np.newaxis], np.full((1, n_values), 1 / n_values))


@pytest.fixture(scope="module")
def words() -> NDArray[np.uint64]:
    return random_words(N_WORDS)


def test_words_have_53_bits_all_of_them_in_use(words: NDArray[np.uint64]) -> None:
    assert int(words.max()) < 1 << RESOLUTION
    assert int(np.bitwise_or.reduce(words)) == (1 << RESOLUTION) - 1
    assert RESOLUTION == 53


@pytest.mark.parametrize("first", FIELDS)
def test_words_are_uniform(words: NDArray[np.uint64], first: int) -> None:
    assert_p_value(uniform_p_value(bits(words, first), 256), FALSE_ALARM)


@pytest.mark.parametrize("first", FIELDS)
def test_a_word_says_nothing_of_the_next(words: NDArray[np.uint64], first: int) -> None:
    part = bits(words, first, 4)
    assert_p_value(uniform_p_value(part[:-1:2] * 16 + part[1::2], 256), FALSE_ALARM)


def test_every_bit_is_as_often_one_as_zero(words: NDArray[np.uint64]) -> None:
    ones = np.array([bits(words, bit, 1).sum() for bit in range(RESOLUTION)])
    statistic = float((((ones - N_WORDS / 2) / np.sqrt(N_WORDS / 4)) ** 2).sum())
    assert_p_value(float(chi2.sf(statistic, RESOLUTION)), FALSE_ALARM)


def test_words_that_favour_low_values_by_one_per_cent_would_be_caught(
    words: NDArray[np.uint64],
) -> None:
    high = bits(words, RESOLUTION - 8)
    bent = np.where((high >= 128) & (bits(words, 0) < 5), high - 128, high)  # 5/256 of the half
    assert uniform_p_value(bent, 256) < FALSE_ALARM


def test_two_calls_share_no_words() -> None:
    """Of two times 1,000 words, two are equal by chance with probability 1e-10."""
    first, second = random_words(1_000), random_words(1_000)
    assert not set(first.tolist()) & set(second.tolist())
    assert random_words(0).shape == (0,)
