"""Checks that a mechanism draws what it states, on made-up counts: its noise, prior and response.

Some faults hardly change ε (a λ that is 3 % too small costs a thousandth of ε on many grids), so a
bound on ε cannot show them; frequencies can. See `laws` for the events and `checks` for false
alarms.
"""

import numpy as np

from privatizers.audit.checks import Check, Events, exactly, judge_events
from privatizers.audit.laws import (
    Laplace,
    Responses,
    lagged_noise,
    noise_events,
    pair_events,
    response_events,
)
from privatizers.audit.sampling import Effort, UnitRelease, noised_cells
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism, AggregateRelease
from privatizers.mechanisms.mechanism import Mechanism, StrataRelease
from privatizers.mechanisms.noisy_horvitz_thompson import difference_scale
from privatizers.mechanisms.parameters import Parameters, StrataStatistic
from privatizers.mechanisms.prior import realised_prior, truncated_prior, uniform_prior
from privatizers.noise.randomness import UNIT
from schemas.arrays import Ints

NOISE = "noise follows its law, and no two strata or calls share it"
PRIOR = "priors and rates are those stated, and made of what is published alone"
RESPONSE = "outcomes are drawn with the published probabilities, each by itself"

_MOST_NOISE = 1_500_000
_MOST_UNITS = 4_000_000
_STRATA = 256
_MOST_PRIORS = 1 << 21  # entries


def made_up_counts(n_strata: int, n_outcomes: int) -> Ints:
    """Return counts of strata of many sizes and shapes, [S, K], with at least one unit each."""
    number = np.arange(n_strata)[:, np.newaxis] * 31 + np.arange(n_outcomes) * 17
    counts: Ints = number % 29 * (number % 5 != 0)
    counts[:, 0] += 1
    return counts


def mechanism_laws(mechanism: Mechanism, effort: Effort, error: float) -> list[Check]:
    """Check noise, prior and response of a mechanism that publishes units."""
    k = mechanism.parameters.n_outcomes
    size = max(min(effort.noised_cells // 10, _MOST_NOISE) // noised_cells(mechanism) // 2, 8)
    counts = made_up_counts(size, k)
    releases = [mechanism.strata(counts) for _ in range(2)]
    noises = [drawn_noise(mechanism.parameters, counts, release) for release in releases]
    scale = mechanism.parameters.noise_scale
    statistic = [] if scale is None else noise_laws(noises, scale)
    return [
        judge_events(NOISE, statistic + square_laws(mechanism.parameters, counts), error / 2),
        exactly(PRIOR, prior_and_rate_problems(mechanism, counts, releases[0]), f"{size:,} strata"),
        judge_events(RESPONSE, _response_laws(mechanism, effort), error / 2),
    ]


def drawn_noise(
    parameters: StrataStatistic, counts: Ints, release: UnitRelease | AggregateRelease
) -> Ints:
    """Return the noise that was drawn, [S, cells]: the published statistic less the true one."""
    if release.noisy_counts is not None:
        noise = release.noisy_counts - counts
        return noise[:, 1:] if counts.shape[1] == 2 else noise  # of two counts the upper is noised
    if release.noisy_sums is not None and parameters.lattice is not None:
        exact = counts @ np.array(parameters.lattice.steps, dtype=np.int64)
        return (release.noisy_sums - exact)[:, np.newaxis]
    return np.zeros((len(counts), 0), dtype=np.int64)


def noise_laws(noises: list[Ints], scale: float) -> list[Events]:
    """Return events of single noises and of pairs, for the ``noises`` of two calls.

    Pairs are of one stratum, of strata that lie 1, 2, 3 or half of all strata apart, and of two
    calls.
    """
    first, second = noises
    if first.size == 0:
        return []
    half = len(first) // 2
    by_stratum, by_cell = first.ravel(), first.T.ravel()
    return [
        *noise_events(by_stratum, scale, "noise"),
        *lagged_noise(by_stratum, scale, "noises of a stratum"),
        *lagged_noise(by_cell, scale, "noises of strata"),
        *pair_events(
            first[:half].ravel(), first[half : 2 * half].ravel(), scale, "noises of far strata"
        ),
        *pair_events(first.ravel(), second.ravel(), scale, "noises of two calls"),
    ]


def noise_pairs(first: tuple[Ints, float], second: tuple[Ints, float], whose: str) -> list[Events]:
    """Count how often two noises of any scales are both above 0, on both sides, odd and equal to 0.

    Each is given with its scale; values that stand at the same place are of the same cell. They are
    independent.
    """
    (one, scale), (other, other_scale) = first, second
    n = min(len(one), len(other))
    if n == 0:
        return []
    one, other = one[:n], other[:n]
    law, other_law = Laplace(scale), Laplace(other_scale)
    above, other_above = law.above(1), other_law.above(1)
    happened = {
        "both above 0": ((one > 0) & (other > 0), above * other_above),
        "above and below 0": ((one > 0) & (other < 0), above * other_above),
        "both odd": ((one & 1 == 1) & (other & 1 == 1), law.odd * other_law.odd),
        "both 0": ((one == 0) & (other == 0), law.zero * other_law.zero),
        "far from 0": (
            (np.abs(one) >= law.tails[-1]) & (np.abs(other) >= other_law.tails[-1]),
            4.0 * law.above(law.tails[-1]) * other_law.above(other_law.tails[-1]),
        ),
    }
    return [
        Events.one(f"{whose} are {what}", np.count_nonzero(seen), n * chance, n)
        for what, (seen, chance) in happened.items()
    ]


def square_laws(parameters: StrataStatistic, counts: Ints) -> list[Events]:
    """Return the events of noise on sums of squares, each row of ``counts`` being an arm."""
    squares = parameters.squares
    if squares is None:
        return []
    exact = counts @ np.array(squares.steps.steps, dtype=np.int64)
    noises = [(squares.noised(counts) - exact)[:, np.newaxis] for _ in range(2)]
    return noise_laws(noises, squares.noise_scale)


def prior_and_rate_problems(
    mechanism: Mechanism, counts: Ints, release: StrataRelease
) -> tuple[str, ...]:
    """Return how the rate and the priors differ from what is stated; never by chance."""
    parameters, response = mechanism.parameters, release.response
    problems = []
    if response.resampling_probability != parameters.resampling_probability:
        problems.append(
            f"outcomes are resampled with {response.resampling_probability!r}, and "
            f"{parameters.resampling_probability!r} is claimed"
        )
    problems += prior_problems(
        mechanism.name, parameters, counts.sum(axis=1), release.noisy_counts, response.prior
    )
    noisy = release.noisy_counts
    if noisy is not None and counts.shape[1] == 2 and not _adds_up(noisy, counts):
        problems.append("a count and its complement do not add up to the units there are")
    return tuple(problems)


def _adds_up(noisy: Ints, counts: Ints) -> bool:
    return bool(np.all(noisy.sum(axis=1) == counts.sum(axis=1)))


def prior_problems(
    name: str,
    parameters: Parameters,
    sizes: Ints,
    noisy: Ints | None,
    prior: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> list[str]:
    """Count priors that are below γ, do not add up to one, or do not come from the noisy counts."""
    gamma, problems = parameters.truncation_threshold, []
    below = int(np.count_nonzero((prior < gamma).any(axis=1)))
    if below:
        problems.append(f"{below:,} of {len(prior):,} priors go below the {gamma:.6g} claimed")
    steps = np.rint(prior * UNIT).astype(np.int64)
    off = int(np.count_nonzero((steps.sum(axis=1) != UNIT) | (steps / UNIT != prior).any(axis=1)))
    if off:
        problems.append(f"{off:,} of {len(prior):,} priors are no multiples of 2⁻⁵³ that add to 1")
    if name == "uniform-prior-dp" or noisy is None:
        expected = realised_prior(uniform_prior(*prior.shape), gamma)
    else:
        expected = realised_prior(truncated_prior(noisy, sizes, gamma), gamma)
    other = int(np.count_nonzero((expected != prior).any(axis=1)))
    if other:
        problems.append(f"{other:,} of {len(prior):,} priors are not those of the noisy counts")
    return problems


def _response_laws(mechanism: Mechanism, effort: Effort) -> list[Events]:
    """Draw units of many strata, equally many with every outcome, and return the events."""
    k = mechanism.parameters.n_outcomes
    n = max(min(effort.units // 2, _MOST_UNITS), _STRATA)
    several = max(2, min(_STRATA, _MOST_PRIORS // k))
    release = mechanism.strata(made_up_counts(several, k))
    strata = np.arange(n) * several // n
    levels = (np.arange(n) * 7 + strata) % k
    drawn = release.response.draw(levels, strata)
    rate = mechanism.parameters.resampling_probability
    return response_events(Responses(levels, strata, drawn, rate, release.response.prior), "a unit")


# mechanisms that publish no units


def aggregate_laws(mechanism: AggregateMechanism, effort: Effort, error: float) -> list[Check]:
    """Check the noise of a mechanism that publishes statistics of pools alone."""
    parameters = mechanism.parameters
    k, cells = parameters.n_outcomes, 1
    if parameters.lattice is None and parameters.n_outcomes > 2:
        cells = k
    size = max(min(effort.noised_cells // 10, _MOST_NOISE) // cells // 2, 8)
    draw = _difference_noise if parameters.differences else _statistic_noise
    noises, scale = draw(mechanism, size)
    squares = square_laws(parameters, made_up_counts(size, k))
    return [judge_events(NOISE, noise_laws(noises, scale) + squares, error)]


def _statistic_noise(mechanism: AggregateMechanism, size: int) -> tuple[list[Ints], float]:
    counts = made_up_counts(size, mechanism.parameters.n_outcomes)
    cells = np.arange(size)[:, np.newaxis]
    draws = (mechanism.statistics(counts, cells) for _ in range(2))
    noises = [drawn_noise(mechanism.parameters, counts, release) for release in draws]
    return noises, mechanism.parameters.noise_scale


def _difference_noise(mechanism: AggregateMechanism, size: int) -> tuple[list[Ints], float]:
    """Draw the noise of pools whose arms have 3 and 5 units, so that it all has one scale."""
    parameters = mechanism.parameters
    if parameters.lattice is None:
        raise ValueError("differences are published in whole steps of a lattice")
    counts = np.zeros((2 * size, parameters.n_outcomes), dtype=np.int64)
    counts[0::2, 0], counts[0::2, -1] = 1, 2
    counts[1::2, 0], counts[1::2, -1] = 4, 1
    sums = counts @ np.array(parameters.lattice.steps, dtype=np.int64)
    exact = sums[1::2] * 3 - sums[0::2] * 5
    noises = []
    for _ in range(2):
        release = mechanism.statistics(counts, np.arange(2 * size).reshape(-1, 2))
        differences = release.noisy_differences
        noisy = np.zeros(0, dtype=np.int64) if differences is None else differences.noisy
        noises.append((noisy - exact)[:, np.newaxis])
    scale = float(difference_scale(np.array([3]), np.array([5]), parameters.noise_scale)[0])
    return noises, scale
