"""The door itself: its words are AES-256-CTR's, and its noise is discrete Laplace.

Noise cannot be seeded here, so these are tests of the real one, at a false alarm of 1e-6 or less
each; each is shown to reject noise of a scale 30 % off. Words and small scales are also tested in
tests/statistical/test_frequencies.py, digits in test_geometric_digits.py.
"""

import math
import os

import numpy as np
import opendp.prelude as dp
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import chi2

from privatizers.noise import randomness
from privatizers.noise.randomness import discrete_laplace, random_words
from schemas.arrays import Floats, Ints
from tests.statistical.simulate import pearson
from tests.support.distances import assert_near, assert_p_value, share_error

FALSE_ALARM = 1e-6
N_DRAWS = 400_000


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4_099, 300_001])
def test_words_are_the_key_stream_of_aes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    key = bytes(range(32))
    monkeypatch.setattr(os, "urandom", lambda n: key[:n])
    stream = (
        Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * size))
    )
    expected = np.frombuffer(stream, dtype=np.uint64) >> np.uint64(11)
    assert (random_words(size) == expected).all()
    assert random_words(size).shape == (size,)


def test_every_call_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = os.urandom, []

    def counted(size: int) -> bytes:
        asked.append(size)
        return real(size)

    monkeypatch.setattr(os, "urandom", counted)
    random_words(10)
    random_words(10)
    assert asked == [32, 32]
    discrete_laplace(10, 0.01)  # no digits and a tail
    assert asked == [32, 32, 32]


# The noise


def quantiles(scale: float, n_cells: int) -> Ints:
    """Whole numbers that cut the law into about ``n_cells`` equal parts."""
    shares = np.arange(1, n_cells) / n_cells
    sides = np.sign(shares - 0.5) * -scale * np.log(2 * np.minimum(shares, 1 - shares))
    return np.unique(np.rint(sides).astype(np.int64))


def below(edges: Ints, scale: float) -> Floats:
    """P(Z < k): a^(1 − k)/(1 + a) for k ≤ 0, 1 − a^k/(1 + a) above, a = exp(−1/σ)."""
    whole = 1 + math.exp(-1 / scale)
    lower = np.exp(-(1 - np.minimum(edges, 0)) / scale) / whole
    upper = 1 - np.exp(-np.maximum(edges, 0) / scale) / whole
    return np.where(edges <= 0, lower, upper)


def p_value(draws: Ints, scale: float, n_cells: int = 60) -> float:
    """Pearson's test, in cells of about equal probability."""
    edges = quantiles(scale, n_cells)
    law = np.diff(below(edges, scale), prepend=0, append=1)
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(law))
    return pearson(observed[np.newaxis], law[np.newaxis])


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 10.0, 1e3, 1e6, 1e12, 1e17])
def test_noise_of_every_size_follows_its_law(scale: float) -> None:
    draws = discrete_laplace(N_DRAWS, scale)
    assert draws.dtype == np.int64
    assert_p_value(p_value(draws, scale), FALSE_ALARM)
    for other in (0.7 * scale, 1.3 * scale):
        assert p_value(draws, other) < FALSE_ALARM**2


@pytest.mark.parametrize("scale", [0.5, 10.0, 1e6])
def test_noise_has_the_variance_that_is_stated(scale: float) -> None:
    """A z test, six standard errors; the kurtosis is under 6 + 1/(2a/(1 − a)²).

    Squares are skew, but less than would double the 2e-9 of six errors at so many draws tenfold.
    """
    ratio = math.exp(-1 / scale)
    variance = 2 * ratio / (1 - ratio) ** 2
    squares = discrete_laplace(N_DRAWS, scale).astype(np.float64) ** 2
    error = variance * math.sqrt((5 + 1 / variance) / N_DRAWS)
    assert_near(float(squares.mean()), variance, error, 6.0)
    assert abs(squares.mean() - 1.3 * variance) > 6 * 1.3 * error


def opendp_draws(size: int, scale: float) -> Ints:
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return np.array(measurement([0] * size), dtype=np.int64)


def two_sample_p_value(one: Ints, other: Ints, edges: Ints) -> float:
    """Pearson's test that two samples of the same size are of one law."""
    counts = np.array(
        [
            np.bincount(np.searchsorted(edges, x, "right"), minlength=len(edges) + 1)
            for x in (one, other)
        ]
    )
    counts = counts[:, counts.sum(axis=0) >= 20]
    statistic = ((counts[0] - counts[1]) ** 2 / counts.sum(axis=0)).sum()
    return float(chi2.sf(statistic, counts.shape[1] - 1))


@pytest.mark.parametrize("scale", [0.8, 10.0, 2_000.0])
def test_noise_cannot_be_told_from_opendps(scale: float) -> None:
    size, edges = 30_000, quantiles(scale, 40)
    reference = opendp_draws(size, scale)
    alike = two_sample_p_value(discrete_laplace(size, scale), reference, edges)
    assert_p_value(alike, FALSE_ALARM)
    for other in (0.7 * scale, 1.3 * scale):
        wrong = discrete_laplace(size, other)
        assert two_sample_p_value(wrong, reference, edges) < FALSE_ALARM**2


def test_neighbouring_draws_are_independent() -> None:
    """Correlation of neighbours, and of a batch's halves, within six errors (2e-9 each)."""
    draws = discrete_laplace(N_DRAWS, 10.0).astype(np.float64)
    for lag in (1, randomness._DIGITS_BATCH // 2, randomness._DIGITS_BATCH):
        found = float(np.corrcoef(draws[:-lag], draws[lag:])[0, 1])
        assert_near(found, 0.0, 1 / math.sqrt(N_DRAWS - lag), 6.0)


def test_parities_of_the_noise_are_those_of_the_law() -> None:
    """P(Z even) = (1 + a²)/(1 + a)²; six standard errors. A wrong lowest digit shows here."""
    ratio = math.exp(-1 / 3.0)
    even = (1 + ratio**2) / (1 + ratio) ** 2
    share = float((discrete_laplace(N_DRAWS, 3.0) % 2 == 0).mean())
    assert_near(share, even, share_error(even, N_DRAWS), 6.0)


@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 50])
def test_every_place_of_every_batch_is_filled(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """At σ = 10¹⁵ two draws are alike with probability 2.5e-16, one is beyond 10¹⁷ with e⁻¹⁰⁰."""
    monkeypatch.setattr(randomness, "_DIGITS_BATCH", 7)
    draws = discrete_laplace(size, 1e15)
    assert draws.shape == (size,)
    assert len(np.unique(draws)) == size
    assert (np.abs(draws) < 1e17).all()


def test_hardly_any_noise_is_none() -> None:
    """At σ = 1/200 a draw is not zero with probability 2 e⁻²⁰⁰."""
    assert (discrete_laplace(1_000, 0.005) == 0).all()


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 1e18])
def test_noise_that_cannot_be_drawn_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        discrete_laplace(1, scale)
