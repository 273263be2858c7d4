"""The toolbox for local sensitivity keeps its claims; the same checks catch what is broken.

Exact checks list or sum the laws of what is published for two neighbouring data sets and compare
δ(ε) = Σ max(0, P − e^ε Q) with the claim, both ways round. Windows leave out less than 1e-30, which
is added. Sampled checks draw from the released code; a sound mechanism is accused with a
probability of at most ``ERROR`` a check, and broken ones have parameters with which a miss is less
likely still. Nothing is seeded.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privatizers.effects.toolbox.bounded_mean import (
    AddRemoveMean,
    Bounds,
    mean_by_sum_and_count,
    mean_of_fixed_size,
)
from privatizers.effects.toolbox.lattice_gaussian import (
    LatticeGaussian,
    discrete_scale,
)
from privatizers.effects.toolbox.local_sensitivity import Tabulated, distance_to, smooth_bound
from privatizers.effects.toolbox.propose_test_release import ProposeTestRelease
from privatizers.effects.toolbox.sample_aggregate import (
    SampleAggregate,
    chunks_by_id,
    chunks_by_position,
)
from privatizers.effects.toolbox.smooth_sensitivity import (
    BoundThenNoise,
    LogNoise,
    SmoothLaplace,
    beta_of,
    direct_delta,
    largest_direct_epsilon,
)
from privatizers.lab.audit.lower_bounds import lower_bound
from privatizers.noise.lattice_laplace import lattice_laplace, lattice_scale, power_of_two_step
from privatizers.noise.randomness import discrete_laplace
from schemas.arrays import Floats
from tests.support.as_printed import classical_sigma
from tests.support.distances import assert_p_value

ERROR = 1e-6
LEFT_OUT = 1e-30
WINDOW = 80.0  # scales of Laplace noise: e⁻⁸⁰ is under 1e-34


# laws


@dataclass(frozen=True)
class Law:
    """Probabilities of what is published: atoms in any order, alike for two data sets."""

    log: Floats

    def delta(self, other: "Law", epsilon: float) -> float:
        """Σ max(0, P − e^ε Q), P this law."""
        with np.errstate(invalid="ignore"):
            loss = self.log - other.log
        telling = loss > epsilon
        here = np.exp(self.log[telling]) * -np.expm1(epsilon - loss[telling])
        return float(here.sum()) + LEFT_OUT


def delta_of(pair: tuple[Law, Law], epsilon: float) -> float:
    """The worse of both ways round."""
    one, other = pair
    return max(one.delta(other, epsilon), other.delta(one, epsilon))


def laplace(k: Floats, scale: float) -> Floats:
    """ln P(Z = k)."""
    return math.log(math.tanh(0.5 / scale)) - np.abs(k) / scale


def shifted(scales: tuple[float, float], apart: int) -> tuple[Law, Law]:
    """Values ``apart`` steps from each other, with discrete Laplace noise of a scale each."""
    reach = math.ceil(WINDOW * max(scales)) + apart
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    return Law(laplace(k, scales[0])), Law(laplace(k - apart, scales[1]))


def gaussian(sigma: float, apart: int) -> tuple[Law, Law]:
    reach = math.ceil(40 * sigma) + apart
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    logs = [-((k - shift) ** 2) / (2 * sigma**2) for shift in (0, apart)]
    return Law(logs[0] - np.log(np.exp(logs[0]).sum())), Law(
        logs[1] - np.log(np.exp(logs[1]).sum())
    )


# noise on a lattice


@pytest.mark.parametrize("n_values", [1, 2])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 13.0])
def test_lattice_laplace_costs_what_it_says(epsilon: float, n_values: int) -> None:
    """Values that round apart: 2.5 steps become 3 in each coordinate."""
    step, each = 0.25, 0.625
    scale = lattice_scale(
        sensitivity=each * n_values, epsilon=epsilon, step=step, n_values=n_values
    )
    one, other = (np.rint(x / step) for x in (0.12, 0.12 + each))
    assert other - one == 3
    first, second = shifted((scale, scale), 3)
    loss = n_values * float(np.max(np.abs(first.log - second.log)))
    assert 0.85 * epsilon < loss <= epsilon
    # Broken: the scale that forgets rounding.
    forgetful = each / step / epsilon
    assert 3 * n_values / (forgetful * n_values) > epsilon


def test_samples_of_lattice_laplace_tell_no_more_than_it_costs_and_nearly_as_much() -> None:
    """A sound one is accused with a probability of 1e-6 at most."""
    size, epsilon = 40_000, 1.0
    values = [np.full(size, x) for x in (0.1, 1.1)]

    def told(sensitivity: float) -> float:
        # Noised as `size` releases of one value each, not as one of `size` values.
        step, noisy = 2.0**-10, []
        for x in values:
            one = lattice_scale(sensitivity=sensitivity, epsilon=epsilon, step=step)
            k: Floats = np.rint(x / step) + discrete_laplace(size, one)
            noisy.append(k * step)
        return bound_on(noisy[0], noisy[1], 0.0)

    assert 0.75 < told(1.0) <= epsilon
    assert told(0.7) > epsilon
    assert lattice_laplace(np.array([3.0]), sensitivity=1e-9, epsilon=1e3, step=2.0**-10) == 3.0


def bound_on(here: Floats, there: Floats, delta: float) -> float:
    """A lower bound on ε, wrong with ``ERROR`` at most: the greater of both ways round.

    Of many values those are told apart that lie between 64 quantiles, and 64 evenly spread ones, of
    the halves that choose events.
    """
    values = np.concatenate([here[: (len(here) + 1) // 2], there[: (len(there) + 1) // 2]])
    known, share = np.unique(values), np.linspace(0.0, 1.0, 64)
    spread = known[(share * (len(known) - 1)).astype(np.int64)]
    edges = np.union1d(spread, np.quantile(values, share, method="nearest"))[1:]
    bins = (np.searchsorted(edges, x, side="right") for x in (here, there))
    samples = [each.astype(np.float64) for each in bins]
    ways = (samples, samples[::-1])
    return max(lower_bound(p, q, delta, ERROR / 2) for p, q in ways)


def drawn(release: Callable[[], float], size: int) -> Floats:
    return np.array([release() for _ in range(size)])


# local sensitivity used directly


def test_local_sensitivity_used_directly_is_caught_exactly() -> None:
    """A mean of two values within [0, 1] against one of a third more, as AddRemoveMean has them."""
    bounds, epsilon, step = Bounds(0.0, 1.0), 1.0, 2.0**-6
    few, more = (AddRemoveMean.of(x, bounds) for x in (np.zeros(2), np.zeros(3)))
    scales = tuple(q.upto(0)[0] / step / epsilon for q in (few, more))
    assert delta_of(shifted((scales[0], scales[1]), 0), epsilon) > LEFT_OUT
    assert delta_of(shifted((scales[0], scales[1]), 0), epsilon) > 1e-3
    sound = tuple(q.global_bound / step / epsilon for q in (few, more))
    assert delta_of(shifted((sound[0], sound[1]), 0), epsilon) <= LEFT_OUT


def test_local_sensitivity_of_an_unlucky_data_set_gives_everything_away() -> None:
    """A(0) = 0 beside a neighbour where it is not, as a median has it: δ = 1 to ten digits."""
    scales = (1e-3, 1.0 / 2.0**-6)
    assert delta_of(shifted(scales, 0), 5.0) > 0.1


# smooth sensitivity: noise at once


def worst_pair(beta: float) -> tuple[Tabulated, Tabulated]:
    """A wide and a narrow data set: A(0) of x is e^β times that of x′, which x is that far from."""
    wide = math.exp(beta)
    return Tabulated(0.0, (wide,), wide), Tabulated(1.0, (1.0,), wide)


def direct(epsilon: float, delta: float, step: float = 2.0**-10) -> tuple[Law, Law]:
    """Laws of scale 2S/ε for the worst pair; by the class' own scale where it agrees to exist."""
    beta = beta_of(epsilon, delta)
    bounds = [smooth_bound(query, beta) for query in worst_pair(beta)]
    scales = [max(2 * (one / step + 1) / epsilon, 1024.0) for one in bounds]
    if epsilon <= largest_direct_epsilon(delta):
        made = SmoothLaplace(epsilon, delta, step)
        ours = [made.scale(one) for one in bounds]
        assert ours == pytest.approx(scales, rel=1e-6)
        scales = ours
    return shifted((scales[0], scales[1]), round(1.0 / step))


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("part", [0.1, 0.5, 1.0])
def test_noise_of_2s_over_epsilon_holds_as_far_as_is_said(delta: float, part: float) -> None:
    epsilon = part * largest_direct_epsilon(delta)
    found = delta_of(direct(epsilon, delta, 2.0**-14), epsilon)
    assert found <= direct_delta(epsilon, beta_of(epsilon, delta)) <= delta
    if part == 1.0:
        assert found > 0.95 * delta  # so it is attained


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_noise_of_2s_over_epsilon_breaks_just_beyond_and_is_refused(delta: float) -> None:
    beyond = 1.01 * largest_direct_epsilon(delta)
    assert delta_of(direct(beyond, delta, 2.0**-14), beyond) > delta
    with pytest.raises(ValueError, match="use BoundThenNoise"):
        SmoothLaplace(beyond, delta, 2.0**-14)


@pytest.mark.parametrize(
    ("s_wide", "s_narrow", "apart"),
    [(1.0, 0.6, 0.6), (1.0, 0.8, 0.3), (1.0, 1.0, 1.0), (1.0, 0.7, 0.0)],
)
def test_lesser_pairs_stay_below_the_proof(s_wide: float, s_narrow: float, apart: float) -> None:
    """Any ratio up to e^β, any distance up to the lesser bound, either way round."""
    epsilon, step = 13.0, 2.0**-12
    made = SmoothLaplace(epsilon, 1e-5, step)
    assert s_wide / s_narrow <= math.exp(made.beta)
    pair = shifted((made.scale(s_wide), made.scale(s_narrow)), round(apart / step))
    assert delta_of(pair, epsilon) <= 1e-5


def test_the_chapters_bound_from_k_1_at_epsilon_13_is_caught() -> None:
    """Near and Abuah take the maximum from k = 1: it can be e^(−β) A(0), and neighbours A(0) apart.

    x′ has A = (1, 1, e^β …), x has A = (1, e^β, …): S from 1 is e^(−β) and 1, values are 1 apart.
    """
    epsilon, delta, step = 13.0, 1e-5, 2.0**-10
    beta = beta_of(epsilon, delta)
    wide = math.exp(beta)
    tables = [Tabulated(0.0, (1.0, wide), wide), Tabulated(1.0, (1.0, 1.0), wide)]
    printed = [
        float(np.max(np.exp(-beta * np.arange(1, 50)) * query.upto(49)[1:])) for query in tables
    ]
    assert printed == pytest.approx([1.0, math.exp(-beta)])
    scales = [2 * one / step / epsilon for one in printed]
    found = delta_of(shifted((scales[0], scales[1]), round(1 / step)), epsilon)
    assert found > 100 * delta
    made = SmoothLaplace(epsilon, delta, step)
    ours = [made.scale(smooth_bound(query, beta)) for query in tables]
    assert delta_of(shifted((ours[0], ours[1]), round(1 / step)), epsilon) <= delta


def test_samples_of_noise_at_once_tell_no_more_than_is_claimed() -> None:
    """A sound one is accused with 1e-6 at most; a scale of 0.6 S/ε in place of 2 S/ε is caught."""
    made, size = SmoothLaplace(2.0, 1e-3, 2.0**-12), 2_000
    one, other = (Tabulated(x, (1.0,), 1.0) for x in (0.0, 1.0))
    here, there = (drawn(partial(made.release, query), size) for query in (one, other))
    assert 0.1 < bound_on(here, there, 1e-3) <= 2.0  # equal bounds cost ε/2
    assert bound_on(0.2 * here, 1.0 + 0.2 * (there - 1.0), 1e-3) > 2.0


# smooth sensitivity: a private bound, then noise


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize(("beta", "epsilon"), [(0.02, 0.25), (0.3, 3.0), (2.0, 1.0)])
def test_a_private_upper_bound_is_private_and_is_one(
    delta: float, beta: float, epsilon: float
) -> None:
    noise = LogNoise.of(beta=beta, epsilon=epsilon, delta=delta)
    for bound in (1e-9, 0.017, 1.0, 3e8):
        here, there = noise.position(bound), noise.position(bound * math.exp(beta))
        assert abs(there - here) / noise.scale <= epsilon
        # S ≤ the published bound exactly where Z ≥ some z: its tail is summed exactly.
        least = next(z for z in range(-noise.margin - 3, 0) if noise.bound_at(here + z) >= bound)
        a = math.exp(-1 / noise.scale)
        below = a ** (1 - least) / (1 + a)
        assert 0.5 * delta < below <= delta
    # Broken: without the margin half the bounds are too small.
    assert noise.bound_at(noise.position(1.0) - noise.margin - 2) < 1.0


def two_stages(epsilon: float, delta: float, margin: bool = True) -> float:
    """δ(ε) of BoundThenNoise for the worst pair: Σ_j of what is told at each published bound."""
    made = BoundThenNoise(epsilon, delta)
    for_value, for_bound = made.epsilons
    noise = LogNoise.of(beta=made.beta, epsilon=for_bound, delta=delta)
    pair = worst_pair(made.beta)
    wide, narrow = (noise.position(smooth_bound(query, made.beta)) for query in pair)
    reach = math.ceil(WINDOW * noise.scale)
    found = 0.0
    for here, there in ((wide, narrow), (narrow, wide)):
        j = np.arange(here - reach, here + reach + 1, dtype=np.float64)
        log_p, log_q = laplace(j - here, noise.scale), laplace(j - there, noise.scale)
        shown = np.exp(noise.step * (j + (noise.margin if margin else 0)))
        steps = 2.0 ** np.floor(np.log2(shown * 2.0**-20))
        scale = (shown / steps + 1) / for_value
        apart = np.floor(1.0 / steps) + 1
        left = epsilon - (log_p - log_q)
        found = max(found, float((np.exp(log_p) * same_scale(scale, apart, left)).sum()))
    return found + LEFT_OUT


def same_scale(scale: Floats, apart: Floats, epsilon: Floats) -> Floats:
    """δ(ε) of discrete Laplace noise of one scale, values ``apart``: F(t) − e^ε F(t − m).

    For ε ≥ 0: the loss of k is (|k − m| − |k|)/s, above ε for k ≤ t = ⌈(m − εs)/2⌉ − 1.
    """
    assert np.all(epsilon >= 0)
    t = np.ceil((apart - epsilon * scale) / 2) - 1
    told: Floats = distribution(t, scale) - np.exp(epsilon) * distribution(t - apart, scale)
    return np.where(epsilon >= apart / scale, 0.0, np.maximum(told, 0.0))


def distribution(k: Floats, scale: Floats) -> Floats:
    a = np.exp(-1 / scale)
    above = 1 + a - np.exp(-(np.abs(k) + 1) / scale)
    found: Floats = np.where(k < 0, np.exp(-np.abs(k) / scale), above) / (1 + a)
    return found


@pytest.mark.parametrize("delta", [1e-3, 1e-5])
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 13.0, 30.0])
def test_bound_then_noise_holds_at_any_epsilon(epsilon: float, delta: float) -> None:
    assert two_stages(epsilon, delta) <= delta
    # Broken: a bound without its margin.
    assert two_stages(epsilon, delta, margin=False) > 5 * delta


def test_the_sum_for_one_scale_is_that_of_the_listed_law() -> None:
    for scale, apart, epsilon in ((7.3, 20, 1.0), (3.0, 2, 0.1), (5.0, 4, 0.79), (2.0, 9, 4.0)):
        listed = shifted((scale, scale), apart)[0].delta(shifted((scale, scale), apart)[1], epsilon)
        summed = same_scale(np.array(scale), np.array(apart), np.array(epsilon))
        assert float(summed) == pytest.approx(listed, rel=1e-9)


def test_samples_of_bound_then_noise_tell_no_more_than_is_claimed() -> None:
    """Accused with 1e-6 at most. A value with a twentieth of the noise is caught."""
    made, size = BoundThenNoise(2.0, 1e-3), 800
    pair = worst_pair(made.beta)
    found = [[made.release(query) for _ in range(size)] for query in pair]
    bounds = [np.array([one.bound for one in of]) for of in found]
    values = [np.array([one.value for one in of]) for of in found]
    assert bound_on(bounds[0], bounds[1], 0.0) <= made.epsilons[1]
    assert bound_on(values[0], values[1], 1e-3) <= 2.0
    closer = [x + 0.05 * (v - x) for x, v in zip((0.0, 1.0), values, strict=True)]
    assert bound_on(closer[0], closer[1], 1e-3) > 2.0


# propose-test-release


def law_of_test(
    distance: int, at: int, scales: tuple[float, float], threshold: float, reach: int
) -> Law:
    """⊥, then every released step: D + Z ≥ T, and k + Z₂."""
    a, short = math.exp(-1 / scales[0]), math.ceil(threshold - distance)
    passed = a**short / (1 + a) if short >= 1 else 1 - a ** (1 - short) / (1 + a)
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    released = math.log(passed) + laplace(k - at, scales[1])
    return Law(np.concatenate([[math.log1p(-passed)], released]))


def pairs_of(
    made: ProposeTestRelease, threshold: float, scales: tuple[float, float]
) -> list[tuple[Law, Law]]:
    """Neighbours at every distance: b apart, but anything apart where D = 0."""
    apart = math.floor(made.bound / made.lattice_step) + 1
    far = math.ceil(60 * scales[1])
    reach = math.ceil(WINDOW * scales[1]) + far
    pairs = [(0, 0, far), (0, 1, apart), (1, 1, apart), (1, 2, apart)]
    pairs += [(d, d + 1, apart) for d in range(2, 2 * made.threshold)]
    return [
        (law_of_test(d, 0, scales, threshold, reach), law_of_test(e, at, scales, threshold, reach))
        for d, e, at in pairs
    ]


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize("epsilon", [0.7, 2.0, 6.0])
def test_propose_test_release_holds_and_needs_its_threshold(epsilon: float, delta: float) -> None:
    made = ProposeTestRelease(1.0, epsilon, delta, step=1 / 16)
    scales = (made.test_scale, made.noise_scale)
    held = [delta_of(pair, epsilon) for pair in pairs_of(made, made.threshold, scales)]
    assert max(held) <= delta
    fewer = [delta_of(pair, epsilon) for pair in pairs_of(made, made.threshold - 1, scales)]
    assert max(fewer) > delta


@pytest.mark.parametrize(("delta", "times"), [(1e-4, 20), (1e-6, 200)])
def test_the_chapters_threshold_is_caught(delta: float, times: float) -> None:
    """T = ln(2/δ)/(2ε) at test noise 1/ε, release noise b/ε: about √(δ/8), even at 2ε."""
    epsilon = 0.5
    made = ProposeTestRelease(1.0, 2 * epsilon, delta, step=1 / 16)
    scales = (1 / epsilon, made.noise_scale)
    chapters = math.log(2 / delta) / (2 * epsilon)
    caught = [delta_of(pair, 2 * epsilon) for pair in pairs_of(made, chapters, scales)]
    assert max(caught) > times * delta
    assert max(caught) == pytest.approx(math.sqrt(delta / 8), rel=0.35)


def test_what_propose_test_release_draws_has_the_law_that_was_checked() -> None:
    """χ² over ⊥ and 12 bins at D = 8: fails by chance with a probability of 1e-6.

    A threshold one less has a p-value under 1e-6 all but surely.
    """
    made = ProposeTestRelease(1.0, 1.0, 1e-2, step=1 / 16)
    query, size = Tabulated(5.0, (0.5,) * 8, 2.0), 3_000
    assert distance_to(query, 1.0, 100) == 8
    found = [made.release(query) for _ in range(size)]
    refused = sum(one is None for one in found)
    k = np.array([one * 16 - 80 for one in found if one is not None])
    assert np.array_equal(k, np.rint(k))
    inner = np.array([0.5, 4.5, 10.5, 20.5, 40.5, 80.5])
    edges = np.concatenate([[-np.inf], -inner[::-1], inner, [np.inf]])

    def p_value(threshold: int) -> float:
        law = law_of_test(8, 0, (made.test_scale, made.noise_scale), threshold, 4000)
        p = np.exp(law.log)
        bins = np.histogram(np.arange(-4000, 4001), edges, weights=p[1:])[0]
        observed = np.concatenate([[refused], np.histogram(k, edges)[0]])
        expected = np.concatenate([[p[0]], bins])
        return float(stats.chisquare(observed, expected / expected.sum() * size).pvalue)

    assert_p_value(p_value(made.threshold), 1e-6)
    assert p_value(made.threshold - 1) < 1e-6


# means, and sample and aggregate


def test_a_mean_of_fixed_size_tells_no_more_than_is_claimed() -> None:
    """Accused with 1e-6 at most; a third of the noise is caught."""
    bounds, size, epsilon = Bounds(0.0, 1.0), 2_000, 2.0
    one, other = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])
    here, there = (
        drawn(partial(mean_of_fixed_size, x, bounds, epsilon), size) for x in (one, other)
    )
    assert 0.3 * epsilon < bound_on(here, there, 0.0) <= epsilon
    assert bound_on((here + 2 / 3) / 3, (there + 4 / 3) / 3, 0.0) > epsilon


def test_the_chapters_sensitivity_of_the_mean_is_caught() -> None:
    """Removing the 1 from (1, 0, 0, 0) moves the mean by 1/4, which u/(n + 1) has at 1/5."""
    epsilon, steps = 6.0, 2**10
    scale = steps / 5 / epsilon
    pair = shifted((scale, scale), steps // 4)
    assert delta_of(pair, epsilon) > 1e-3
    (sensitivity,) = AddRemoveMean.of(np.array([1.0, 0, 0, 0]), Bounds(0.0, 1.0)).upto(0)
    sound = steps * sensitivity / epsilon
    assert delta_of(shifted((sound, sound), steps // 4), epsilon) <= LEFT_OUT


@pytest.mark.parametrize("about", [None, 0.0])
def test_a_sum_over_a_count_tells_no_more_than_is_claimed(about: float | None) -> None:
    """Accused with 1e-6 at most."""
    bounds, size, epsilon = Bounds(0.0, 1.0), 1_200, 4.0
    one, other = np.array([0.0, 0.0]), np.array([0.0, 0.0, 1.0])
    here, there = (
        drawn(partial(mean_by_sum_and_count, x, bounds, epsilon, about), size) for x in (one, other)
    )
    assert 0.1 * epsilon < bound_on(here, there, 0.0) <= epsilon


@pytest.mark.parametrize("by_id", [False, True])
def test_sample_and_aggregate_tells_no_more_than_is_claimed(by_id: bool) -> None:
    """Accused with 1e-6 at most; for a function without any bound on what a row can do to it."""
    made, size = SampleAggregate(Bounds(0.0, 1.0), 4, 2.0), 1_000
    one = np.zeros(12)
    other = np.append(one, 1e9) if by_id else np.append(one[:-1], 1e9)
    here, there = (
        drawn(partial(made.release, np.max, x, chunk_of(x, by_id)), size) for x in (one, other)
    )
    assert 0.6 < bound_on(here, there, 0.0) <= 2.0


def chunk_of(x: Floats, by_id: bool) -> NDArray[np.int64]:
    return chunks_by_id(np.arange(len(x)), 4) if by_id else chunks_by_position(len(x), 4)


def test_noise_for_more_chunks_than_there_are_is_caught() -> None:
    """The chapter cuts 32,561 rows by 6 for 6,000 chunks, has 5,427, and noises for 6,000."""
    rows, asked = 32_561, 6_000
    each = math.ceil(rows / asked)
    made = math.ceil(rows / each)
    assert made == 5_427
    claimed, width = 8.0, 2**10
    scale = width * made / asked / claimed  # of the sum over the chunks there are
    assert width / scale == pytest.approx(8.845, abs=1e-3)
    assert delta_of(shifted((scale, scale), width), claimed) > 0.1
    sound = width / claimed
    assert delta_of(shifted((sound, sound), width), claimed) <= LEFT_OUT


# Gaussian noise


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 13.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_lattice_gaussian_holds_at_every_distance(epsilon: float, delta: float) -> None:
    made = LatticeGaussian(0.7, epsilon, delta, step=1 / 16)
    assert made.steps == 12
    sigma = made.scale
    deltas = [delta_of(gaussian(sigma, apart), epsilon) for apart in range(1, made.steps + 1)]
    assert np.all(np.diff(deltas) >= 0)
    assert 0.95 * delta < deltas[-1] <= delta
    assert delta_of(gaussian(0.98 * sigma, made.steps), epsilon) > delta


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
@pytest.mark.parametrize("epsilon", [0.5, 8.0, 13.0, 30.0])
def test_noise_of_less_than_a_step_or_so_holds_too(epsilon: float, steps: int) -> None:
    """There the discrete curve leaves the continuous one."""
    sigma = discrete_scale(epsilon, 1e-5, steps)
    assert delta_of(gaussian(sigma, steps), epsilon) <= 1e-5


def test_the_classical_gaussian_beyond_its_range_is_caught() -> None:
    """Proved for ε < 1. At 5 · 8/3, δ = 1e-5, it lets 1.1e-4 through; at 13, 8.6e-5."""
    for epsilon, least in ((40 / 3, 1.0e-4), (13.0, 5e-5), (9.0, 1.05e-5)):
        sigma = classical_sigma(epsilon, 1e-5, 64.0)
        assert delta_of(gaussian(sigma, 64), epsilon) > least
    within = classical_sigma(0.9, 1e-5, 64.0)
    assert delta_of(gaussian(within, 64), 0.9) <= 1e-5


def test_samples_of_lattice_gaussian_have_the_law_that_was_checked() -> None:
    """χ² over 8 bins: 1e-6; power: σ 10 % off has a p-value under 1e-6 all but surely."""
    made, size = LatticeGaussian(1.0, 1.0, 1e-3, step=0.25), 2_500
    k = np.array([made.release(3.0) for _ in range(size)]) / 0.25 - 12
    assert np.array_equal(k, np.rint(k))
    sigma = made.scale

    def p_value(scale: float) -> float:
        edges = stats.norm.ppf(np.linspace(0, 1, 13)) * sigma
        lattice = np.arange(-400, 401)
        p = np.exp(-(lattice**2) / (2 * scale**2))
        expected = np.histogram(lattice, edges, weights=p / p.sum())[0]
        return float(
            stats.chisquare(np.histogram(k, edges)[0], expected / expected.sum() * size).pvalue
        )

    assert_p_value(p_value(sigma), 1e-6)
    assert min(p_value(0.85 * sigma), p_value(1.15 * sigma)) < 1e-6
    assert power_of_two_step(1.0, 1.0) == 1.0
