"""Checks that Cluster-Optimal-DP draws what it states: its noise, its tables, and units' outputs.

They do for this mechanism what `mechanism_laws` does for those with a prior. A table is checked as
it is published, in whole numbers, without the code that made it.
"""

from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from privatizers.audit.checks import Check, Events, exactly, judge_events
from privatizers.audit.laws import TableResponses, response_events
from privatizers.audit.mechanism_laws import (
    NOISE,
    RESPONSE,
    drawn_noise,
    made_up_counts,
    noise_laws,
    noise_pairs,
    square_laws,
)
from privatizers.audit.sampling import Effort, noised_cells
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP, OptimalRelease
from privatizers.mechanisms.paired_optimal_dp import PairedOptimalDP
from privatizers.noise.randomness import UNIT
from privatizers.optimal_response.learnt_guess import public_response
from privatizers.optimal_response.response import OptimalResponse
from privatizers.optimal_response.whole_numbers import ResponseTable
from schemas.arrays import Floats, Ints

TABLES = "tables are those that the noisy counts choose, keep their epsilon and bias nothing"

_MOST_NOISE = 1_500_000
_MOST_UNITS = 4_000_000
_STRATA = 12
_LARGE = 4  # of them, whose own counts tell enough
_ARMS = 2
_TOLERANCE, _LAST_BITS = 1e-12, 2.0**-50
"""Of bias, as a part of how far outputs are from the grid's middle, and of the greatest of them:
that of doubles."""


def optimal_laws(mechanism: ClusterOptimalDP, effort: Effort, error: float) -> list[Check]:
    """Check noise, tables and draws of Cluster-Optimal-DP."""
    parameters, k = mechanism.parameters, mechanism.parameters.n_outcomes
    size = max(min(effort.noised_cells // 10, _MOST_NOISE) // noised_cells(mechanism) // 2, 8)
    counts = made_up_counts(size, k) % 2  # so small that no programme is solved for them
    counts[:, 0] += 1
    arm = np.arange(size)
    releases = [mechanism.strata(counts, arm) for _ in range(2)]
    noises = [drawn_noise(parameters, counts, release) for release in releases]
    scale = parameters.noise_scale
    statistic = [] if scale is None else noise_laws(noises, scale)
    statistic += _arm_laws(mechanism, counts, releases, noises)
    learning, arms = learning_counts(mechanism)
    learnt = mechanism.strata(learning, arms)
    problems = (
        *release_problems(mechanism, counts.sum(axis=1), arm, releases[0]),
        *release_problems(mechanism, learning.sum(axis=1), arms, learnt),
        *weight_problems(mechanism),
    )
    return [
        judge_events(NOISE, statistic + square_laws(parameters, counts), error / 2),
        exactly(TABLES, problems, f"{size + len(learning):,} strata"),
        judge_events(
            RESPONSE, response_events(_draws(learnt.response, effort), "a unit"), error / 2
        ),
    ]


def _arm_laws(
    mechanism: ClusterOptimalDP, counts: Ints, releases: list[OptimalRelease], noises: list[Ints]
) -> list[Events]:
    """Return the events of noise on counts of arms, each row of ``counts`` being one.

    And of pairs with the ``noises`` of strata, where one scale is taken for both.
    """
    stated = mechanism.parameters.arm_counts
    if stated is None:
        return []
    drawn = [
        drawn_noise(mechanism.parameters, counts, replace(release, noisy_counts=release.noisy_arms))
        for release in releases
        if release.noisy_arms is not None
    ]
    events = noise_laws(drawn, stated.noise_scale)
    scale = mechanism.parameters.noise_scale
    if scale is not None and noises[0].size:
        one, other = noises[0][:, 0], drawn[0][:, 0]
        events += noise_pairs(
            (one, scale), (other, stated.noise_scale), "noises of strata and arms"
        )
    return events


def learning_counts(mechanism: ClusterOptimalDP) -> tuple[Ints, Ints]:
    """Return counts of strata of which some get tables of their own, and their arms.

    Outcomes of large strata are spread in different ways, so that the tables differ.
    """
    parameters, k = mechanism.parameters, mechanism.parameters.n_outcomes
    counts, arms = made_up_counts(_STRATA, k), np.arange(_STRATA) % _ARMS
    of_strata = 0.0 if parameters.counts is None else parameters.statistic_epsilon
    prices = [price for price in (of_strata, parameters.arm_counts_epsilon) if price > 0]
    for stratum in range(_LARGE if prices else 0):
        counts[stratum, (stratum * 5) % k] += int(8 * k / min(prices)) + 1
    return counts, arms


def release_problems(
    mechanism: ClusterOptimalDP, sizes: Ints, arms: Ints, release: OptimalRelease
) -> list[str]:
    """Return how the tables of a release differ from what is stated; never by chance."""
    problems = tables_problems(release.response.tables_used, mechanism.parameters.response_epsilon)
    stated = mechanism.response(release.noisy_counts, sizes, arms, release.noisy_arms)
    other = _different(release.response, stated)
    if other:
        problems.append(f"{other:,} of {len(sizes):,} tables are not those of the noisy counts")
    of_arms = np.bincount(arms, sizes).astype(np.int64)
    for noisy, units in ((release.noisy_counts, sizes), (release.noisy_arms, of_arms)):
        if noisy is not None and noisy.shape[1] == 2 and not np.all(noisy.sum(axis=1) == units):
            problems.append("a count and its complement do not add up to the units there are")
    return problems


def _different(release: OptimalResponse, stated: OptimalResponse) -> int:
    """Count the strata whose table is another; padding with outputs that never occur is none."""
    same = np.array(
        [[_same_table(one, other) for other in stated.tables_used] for one in release.tables_used]
    )
    return int(np.count_nonzero(~same[release.table_of, stated.table_of]))


def _same_table(one: ResponseTable, other: ResponseTable) -> bool:
    return np.array_equal(one.units, other.units) and np.array_equal(one.values, other.values)


def tables_problems(tables: tuple[ResponseTable, ...], epsilon: float) -> list[str]:
    """Return what is wrong with tables that should keep ``epsilon``, one problem for each."""
    return [
        f"of {len(tables):,} tables number {number} {problem}"
        for number, table in enumerate(tables, 1)
        for problem in table_problems(table.units, table.values, table.inputs, epsilon)
    ]


def table_problems(units: Ints, values: Floats, grid: Floats, epsilon: float) -> list[str]:
    """Return what is wrong with a table of ``units`` of 2⁻⁵³, shape [K, J], and values, [J]."""
    problems = []
    if not bool(np.all(units.sum(axis=1) == UNIT)) or bool((units < 0).any()):
        problems.append("has rows that do not add up to one")
    most, least = units.max(axis=0).tolist(), units.min(axis=0).tolist()
    seen = [(high, low) for high, low in zip(most, least, strict=True) if high > 0]
    if any(low == 0 for _, low in seen):
        problems.append("has an output that some outcomes cannot have")
    else:
        ratio = max(Fraction(high, low) for high, low in seen)
        with localcontext(prec=60):
            loss = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
            if loss > Decimal(epsilon) * (1 + Decimal(10) ** -40):
                problems.append(f"keeps {float(loss):.6g}, and {epsilon:.6g} is claimed")
    middle = (grid[0] + grid[-1]) / 2.0
    bias = np.abs(units / UNIT @ (values - middle) - (grid - middle)).max()
    furthest, greatest = np.abs(values - middle).max(), np.abs(values).max()
    if not bias <= _TOLERANCE * furthest + _LAST_BITS * greatest:
        problems.append(f"is biased by {bias / (grid[-1] - grid[0]):.3g} of the range")
    return problems


def weight_problems(mechanism: ClusterOptimalDP) -> list[str]:
    """Return whether the noise that weights are made of is that of the public guess's table."""
    parameters, guess = mechanism.parameters, np.array(mechanism.parameters.guess)
    stated = mechanism.response_noise(guess).of_mean
    if isinstance(mechanism, PairedOptimalDP):
        both = [np.array(one.guess) for one in mechanism.pair]
        noise = mechanism.table.sides[mechanism.place].noise
        expected = float(np.outer(*both).ravel() @ noise)
    else:
        public = public_response(np.array(parameters.grid), guess, parameters.response_epsilon, 1)
        expected = float(guess @ public.tables_used[0].noise)
    if np.isclose(stated, expected, rtol=1e-6, atol=0.0):
        return []
    return ["the noise that weights are made of is not that of the public guess's table"]


def _draws(response: OptimalResponse, effort: Effort) -> TableResponses:
    """Draw units of all strata, equally many with every outcome, or pair of them."""
    n_strata, n_outcomes = len(response.table_of), len(response.tables_used[0].inputs)
    n = max(min(effort.units // 2, _MOST_UNITS), n_strata)
    strata = np.arange(n) * n_strata // n
    levels = (np.arange(n) * 7 + strata) % n_outcomes
    drawn = response.draw(levels, strata)
    return TableResponses(levels, strata, drawn, response.probabilities, response.table_of)
