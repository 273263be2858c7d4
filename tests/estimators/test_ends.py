"""Shares at the ends of the grid: unbiased, with the noise's variance, and what they warn of."""

import numpy as np
import pytest

from estimators.ends import (
    End,
    PoolShares,
    combined_shares,
    counted_shares,
    ends_warnings,
    response_rate,
    response_shares,
    whole_share,
)
from estimators.response.pool_statistics import counts_noise, unit_noise
from schemas.arrays import Floats
from tests.support.distances import assert_between

SHARES = np.array([0.7, 0.2, 0.1])
PRIOR = np.array([0.5, 0.3, 0.2])
RATE = 0.6


@pytest.mark.parametrize("place", [0, 1, 2])
def test_randomised_outcomes_give_share_and_noise_on_average(place: int) -> None:
    """Both are linear in what was found, so its mean gives theirs: the truth, to rounding."""
    n = np.array([40.0, 7.0])
    indicator = np.eye(3)[place]
    found = n * ((1 - RATE) * SHARES[place] + RATE * PRIOR[place])
    got = response_shares(n, found, np.full(2, PRIOR[place]), RATE)
    assert got.share == pytest.approx([SHARES[place]] * 2)
    assert got.variance == pytest.approx(unit_noise(indicator, SHARES, PRIOR, RATE) / n)


@pytest.mark.parametrize("k", [2, 3])
def test_noisy_counts_give_the_share_and_their_noise(k: int) -> None:
    """One unit more in a cell moves the share by (f − f̄)/n; with a complement both move."""
    n, counts = np.array([50.0]), np.array([30.0, 20.0] if k == 2 else [30.0, 12.0, 8.0])
    noise = counts_noise(2.0, "count-and-complement" if k == 2 else "counts")
    indicator = np.eye(k)[0]
    got = counted_shares(n, counts[np.newaxis], indicator, noise)
    moves = [1.0] if k == 2 else [2 / 3, -1 / 3, -1 / 3]
    assert got.share == pytest.approx([0.6])
    assert got.variance * n**2 == pytest.approx([noise.noise.second * np.square(moves).sum()])


def test_both_together_are_sharper_than_each_by_weights_of_public_facts() -> None:
    n, noise = np.array([1000.0]), counts_noise(5.0, "counts")
    indicator = np.eye(3)[0]
    uniform = np.full(3, 1 / 3)
    spread = unit_noise(indicator, uniform, uniform, RATE) / n
    counted = PoolShares(np.array([0.5]), noise.of_sum(indicator).second / n**2)

    def together(share: float) -> PoolShares:
        response = PoolShares(np.array([share]), spread)
        return combined_shares(n, response, counted, noise, indicator, RATE)

    one, other = together(0.7), together(0.9)
    assert one.variance < min(spread, counted.variance)
    assert one.variance == pytest.approx(1 / (1 / spread + 1 / counted.variance))
    weight = (other.share - one.share) / 0.2  # the same whatever was drawn
    assert one.share == pytest.approx(0.5 + weight * 0.2)


def test_pools_weigh_as_many_units_as_they_have() -> None:
    parts = PoolShares(np.array([1.0, 0.5]), np.array([0.01, 0.04]))
    got = whole_share("m", "lowest", np.array([30.0, 10.0]), parts)
    assert got.share == pytest.approx(0.875)
    assert got.std_error == pytest.approx(np.sqrt(0.75**2 * 0.01 + 0.25**2 * 0.04))


def test_a_rate_stands_for_its_epsilon() -> None:
    rate = response_rate(1.5, 4)
    assert np.log1p((1 - rate) / (rate / 4)) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("share", "error", "warned"),
    [(1.0, 0.0, True), (0.98, 0.01, True), (1.02, 0.001, True), (0.96, 0.01, False)],
)
def test_only_one_value_is_warned_of(share: float, error: float, warned: bool) -> None:
    ends = [
        End("visit", "lowest", 0.5, 0.01),
        End("spend", "missing", share, error),
        End("spend", "lowest", share, error),
    ]
    found = ends_warnings(ends)
    assert len(found) == warned
    assert all("spend: " in one and "unreadable ones count as, or all" in one for one in found)


# sound releases, and unreadable ones, by simulation

HILLSTROM = {  # of 64,000 people; how many have another value than the lowest
    "visit": 9394,
    "conversion": 578,
    "spend": 578,
    "rare": 64,
}
N_PEOPLE = 64_000


def _simulated(others: int, k: int, epsilon: float, *, counts: bool, times: int) -> list[End]:
    """The share of the lowest value in so many releases of three arms; all are drawn here."""
    generator = np.random.default_rng()  # no privacy noise: a simulation of it
    n = np.array([21_334.0, 21_333.0, 21_333.0])
    rate = response_rate(epsilon / (2 if counts else 1), k)
    noise = counts_noise(4 / epsilon, "counts") if counts else None
    indicator, prior = np.eye(k)[0], np.full(3, 1 / k)
    ends = []
    for _ in range(times):
        at = n - generator.multinomial(others, n / n.sum())
        kept = generator.binomial(at.astype(int), 1 - rate)
        redrawn = generator.binomial((n - at).astype(int), rate) + (at - kept)
        found = kept + generator.binomial(redrawn.astype(int), 1 / k)
        shares = response_shares(n, found.astype(float), prior, rate)
        if noise is not None:
            true = np.column_stack([at, n - at, *[np.zeros(3)] * (k - 2)])
            steps = generator.geometric(-np.expm1(-epsilon / 4), (2, *true.shape))
            noisy: Floats = true + steps[0] - steps[1]
            counted = counted_shares(n, noisy, indicator, noise)
            shares = combined_shares(n, shares, counted, noise, indicator, rate)
        ends.append(whole_share("m", "lowest", n, shares))
    return ends


@pytest.mark.parametrize("counts", [False, True], ids=["units alone", "with counts"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize(
    ("name", "k"), [("visit", 2), ("conversion", 3), ("spend", 6), ("rare", 3)]
)
def test_hillstroms_sizes_are_warned_of_only_where_nothing_can_be_told(
    name: str, k: int, epsilon: float, *, counts: bool
) -> None:
    """200 releases each; what lies 8 errors apart falls 5 short with a chance of 3·10⁻⁷ each.

    The deviation of their shares is 30 % off, 5 of its standard errors or more, with 6·10⁻⁷.
    """
    ends = _simulated(HILLSTROM[name], k, epsilon, counts=counts, times=200)
    error = float(np.mean([one.std_error for one in ends]))
    apart = HILLSTROM[name] / N_PEOPLE / error
    warned = sum(bool(ends_warnings([one])) for one in ends)
    # Of 200 shares the deviation has an error of √((κ + 2)/800), where κ is up to .9 with counts.
    found = float(np.std([one.share for one in ends]))
    assert_between(found / error, (0.7, 1.3), 1.0, 0.06 if counts else 0.05)
    if apart >= 8:
        assert warned == 0
    if apart <= 1:
        assert warned >= 150  # of 200 with a chance of .977 or more each


@pytest.mark.parametrize("counts", [False, True], ids=["units alone", "with counts"])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_a_column_of_one_value_is_warned_of(epsilon: float, *, counts: bool) -> None:
    """A chance of .9987 each; fewer than 190 of 200 has a chance below 10⁻¹²."""
    ends = _simulated(0, 3, epsilon, counts=counts, times=200)
    assert sum(bool(ends_warnings([one])) for one in ends) >= 190
