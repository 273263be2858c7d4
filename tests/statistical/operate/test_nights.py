"""Effects pooled over forty nights: how often intervals hold, looked at once or every night.

Nights of different people are releases of the product's own simulator, noise from the operating
system; nights of people who come back are drawn from a fixed seed, through the product's functions.

What is expected is a coverage of 0.950. In ``N_SERIES`` its standard error is 0.35 %, so the bounds
lie 4.3 of them away (2e-5 for each of them); ``make soak`` repeats it with the promised bounds.
Of ``N_LOOKED`` series at most 5 % may ever exclude the truth: 1.5–3 % do, and 5 % lie over four
standard errors above 3 %, as over 20 % lie far below what fixed intervals do (about 30 %): 1e-4.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest

from estimators.arm_effects import Contrasts, contrasts
from estimators.intervals import interval_degrees
from estimators.means import EstimatorName
from estimators.operate.people import CrossTerms, Returners, contributions, cross_terms
from estimators.operate.series import PeriodEffects, PooledEffects, always_valid, pool
from estimators.strata.evidence import Evidence, Pools, Slices, Statistic
from privatizers.domain.lattice import lattice_of
from privatizers.lab.simulation.simulate import EstimateSample, Simulation, simulate
from privatizers.lab.simulation.trial import Trial
from privatizers.planning.design import Request, design
from schemas.arrays import Bools, Floats, Ints
from tests.support.distances import assert_between, share_error

NIGHTS = 40
N_SERIES, COVERAGES = 4_000, (0.935, 0.965)
N_MANY, PROMISED = 20_000, (0.94, 0.96)
N_LOOKED, MOST_EVER, LEAST_FIXED = 2_000, 0.05, 0.20


@cache
def nights(n_series: int, size: int = 12) -> Simulation:
    """Nights of ``4 · size`` people in two clusters, on four levels at ε = 2."""
    random = np.random.default_rng(17)
    control = np.repeat(random.integers(0, 3, 8), size // 2)
    grid = np.arange(4.0)
    asked = Request("uniform-prior-dp", 4, "counts", epsilon=2.0, lattice=lattice_of(grid.tolist()))
    sizes = np.full((2, 2), size)
    levels = np.stack([control, control + 1])
    trial = Trial(grid, sizes, levels, design(asked).mechanism, min_stratum=2)
    return simulate(trial, n_series * NIGHTS, np.random.default_rng(19))


def by_night(values: Floats) -> Floats:
    return values.reshape(NIGHTS, -1)


def pooled_of(sample: EstimateSample) -> PooledEffects:
    shape = by_night(sample.estimate).shape
    error = by_night(np.sqrt(sample.variance))
    return pool(
        PeriodEffects(
            by_night(sample.estimate),
            by_night(sample.variance),
            np.zeros(shape),
            interval_degrees(by_night(sample.interval.upper - sample.estimate), error, 0.95),
            np.full(shape, 48.0),
        )
    )


def holds(pooled: PooledEffects, truth: float) -> Bools:
    """Whether fixed 95 % intervals hold the truth, after each night; shape [T, series]."""
    from scipy.special import stdtrit  # noqa: PLC0415 - not for other tests

    reach = -stdtrit(pooled.degrees_of_freedom, 0.025) * np.sqrt(pooled.variance)
    found: Bools = np.abs(pooled.estimate - truth) <= reach
    return found


def check_disjoint(estimator: EstimatorName, n_series: int, bounds: tuple[float, float]) -> None:
    sample = nights(n_series).of(estimator)
    coverage = holds(pooled_of(sample), sample.truth)[-1].mean()
    assert_between(float(coverage), bounds, 0.95, share_error(0.95, n_series))


@pytest.mark.parametrize("estimator", ["tau_q", "combined"])
def test_intervals_over_forty_nights_hold(estimator: EstimatorName) -> None:
    check_disjoint(estimator, N_SERIES, COVERAGES)


@pytest.mark.soak
@pytest.mark.parametrize("estimator", ["tau_q", "combined"])
def test_intervals_over_forty_nights_hold_as_promised(estimator: EstimatorName) -> None:
    check_disjoint(estimator, N_MANY, PROMISED)


@pytest.mark.parametrize("off", [1 / 3, 1.0, 3.0])
@pytest.mark.parametrize("estimator", ["tau_q", "combined"])
def test_whoever_looks_every_night_is_seldom_wrong(estimator: EstimatorName, off: float) -> None:
    """However far the standard error that was forecast is off."""
    sample = nights(N_SERIES).of(estimator)
    pooled = pooled_of(sample)
    planned = np.full(N_SERIES, off * np.sqrt(sample.variance.mean()))
    lower, upper = always_valid(pooled, planned, pooled.n_units[0], 0.95)
    missed = (sample.truth < lower) | (sample.truth > upper)
    ever = missed[:, :N_LOOKED].any(axis=0).mean()
    fixed = (~holds(pooled, sample.truth))[:, :N_LOOKED].any(axis=0).mean()
    # Its true share is up to 3 %.
    assert_between(float(ever), (-np.inf, MOST_EVER), (0.0, 0.03), share_error(0.03, N_LOOKED))
    assert fixed >= LEAST_FIXED, fixed


# people who come back

N_UNITS, RATE = 60, 0.2


def evidence(members: Returners, n_series: int) -> Evidence:
    """Randomised outcomes 0 and 1, a series a group, as an estimator sees them."""
    code = members.group * 2 + members.arm
    released = (1 - RATE) * members.debiased + RATE * 0.5 - 0.5  # from the grid's mean
    n = np.bincount(code).astype(np.float64)
    mean = np.bincount(code, released) / n
    variance = np.bincount(code, (released - mean[code]) ** 2) / (n - 1)
    group, arm = np.divmod(np.arange(2 * n_series), 2)
    slices = Slices(
        group, np.zeros_like(group), arm, arm, n, mean, variance, np.full_like(n, 1 / 16)
    )
    half = np.full(2, 0.25)
    none = np.zeros(2)
    nothing = Statistic(*(np.full(2, np.nan),) * 3, none)
    pools = Pools(none, half, half, none, nothing, nothing, np.zeros(2, np.int64), np.ones(2, int))
    return Evidence.of(slices, slices, pools, RATE, np.array([0.0, 1.0]))


@cache
def returning(n_series: int, *, is_loyal: bool) -> tuple[PeriodEffects, CrossTerms]:
    """Forty nights of which half the people come back: all the time, or for a second night."""
    random = np.random.default_rng(23)
    half = N_UNITS // 2
    arm = np.tile(np.arange(half) % 2, 2)
    effects: list[Contrasts] = []
    rows: list[tuple[Any, ...]] = []
    known: list[tuple[Floats, Floats]] = []
    for night in range(NIGHTS + 1):  # a cohort a night, of people with outcomes of their own
        person = np.arange(half) + night * half
        outcome = random.random((n_series, half)) < 0.4 + 0.2 * arm[:half]
        known.append((np.tile(person.astype(np.float64), (n_series, 1)), outcome.astype(float)))
    for night in range(NIGHTS):
        cohorts = (known[0 if is_loyal else night], known[night + 1])
        people, true = (np.hstack(parts) for parts in zip(*cohorts, strict=True))
        redrawn = random.random(true.shape) < RATE
        released = np.where(redrawn, random.integers(0, 2, true.shape), true)
        group: Ints = np.repeat(np.arange(n_series), N_UNITS)
        debiased = ((released - RATE * 0.5) / (1 - RATE)).ravel()
        members = Returners(group, np.zeros_like(group), np.tile(arm, n_series), debiased)
        found = contrasts(evidence(members, n_series), "tau_q", 1, 0, n_series, same_shares=False)
        effects.append(found)
        parts = contributions(members, 1, 0, same_shares=False)
        rows.append((group, people.ravel().astype(np.uint64), np.full_like(group, night), parts))
    names = ("estimate", "variance", "noise_variance", "degrees_of_freedom", "n_units")
    periods = PeriodEffects(*(np.stack([getattr(one, name) for one in effects]) for name in names))
    every = [np.concatenate(column) for column in zip(*rows, strict=True)]
    cross = cross_terms(every[0], every[1], every[2], every[3], (NIGHTS, n_series))
    return periods, cross


def coverage(n_series: int, *, is_loyal: bool, with_cross: bool = True) -> float:
    periods, cross = returning(n_series, is_loyal=is_loyal)
    pooled = pool(periods, cross=cross if with_cross else None)
    return float(holds(pooled, 0.2)[-1].mean())


@pytest.mark.parametrize("is_loyal", [False, True], ids=["second night", "every night"])
def test_intervals_hold_where_half_the_people_come_back(is_loyal: bool) -> None:
    found = coverage(1_500, is_loyal=is_loyal)
    assert_between(found, (0.926, 0.974), 0.95, share_error(0.95, 1_500))


@pytest.mark.soak
@pytest.mark.parametrize("is_loyal", [False, True], ids=["second night", "every night"])
def test_intervals_hold_as_promised_where_half_the_people_come_back(is_loyal: bool) -> None:
    found = coverage(6_000, is_loyal=is_loyal)
    assert_between(found, PROMISED, 0.95, share_error(0.95, 6_000))


@pytest.mark.parametrize("is_loyal", [False, True], ids=["second night", "every night"])
def test_without_cross_terms_it_would_show(is_loyal: bool) -> None:
    assert coverage(1_500, is_loyal=is_loyal, with_cross=False) < 0.92


def test_the_bound_for_unknown_people_is_never_too_narrow() -> None:
    periods, _ = returning(1_500, is_loyal=True)
    are_new = np.arange(NIGHTS) == 0
    assert holds(pool(periods, are_new=are_new), 0.2)[-1].mean() >= 0.95
