"""Adjusted effects against a regression written out in full, and over many releases.

What is exact is compared with statsmodels on dummies, or with quadratic forms over units. Over
releases, assignments come from fixed seeds; without privacy nothing is left to chance, and where
privacy noise comes from the operating system false alarms are told test by test: together 3e-5.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from statsmodels.regression.linear_model import OLS

from estimators.arm_effects import AdjustedName, Estimate, contrasts, effects
from estimators.regression import UNITS_PER_COLUMN, Units, bearable_columns, regressions
from estimators.strata.evidence import Evidence, Pools, Statistic
from privatizers.planning.design import MechanismName, Request, design
from schemas.arrays import Floats, Ints
from tests.estimators.reference import strata_of, weighted
from tests.estimators.told_release import Told, Unit, evidence_of, identity, random_release
from tests.statistical.found import ratio, ratio_error
from tests.statistical.simulate import Trial, UnitPositions, slices_of, without_privacy
from tests.support.distances import assert_between, assert_mean, share_error

ARMS = ("none", "mail", "call")


# against a regression in full, without privacy


@dataclass(frozen=True)
class People:
    """Units of an experiment without privacy; arm 0 is control."""

    cluster: Ints
    arm: Ints
    outcome: Floats
    covariates: Floats

    @property
    def evidence(self) -> Evidence:
        nothing = np.zeros_like(self.cluster)
        places = UnitPositions(nothing, self.cluster, self.arm, self.cluster * 3 + self.arm)
        grid = np.array([-1.0, 1.0])  # of the mean 0, so that outcomes stay what they are
        return without_privacy(slices_of(self.outcome, places), grid)

    @property
    def units(self) -> Units:
        return Units(self.cluster, self.arm, self.outcome, self.covariates)

    def estimates(self, *, same_shares: bool = False) -> list[Estimate]:
        return regressions(
            self.evidence, self.units, ARMS, "none", same_shares=same_shares
        ).estimates


def people(
    seed: int, p: int = 2, sizes: Sequence[Sequence[int]] = ((9, 7, 5), (12, 20, 4))
) -> People:
    """Clusters and arms with slopes, levels and variances of their own."""
    random = np.random.default_rng(seed)
    cells = [(c, a) for c, row in enumerate(sizes) for a, n in enumerate(row) for _ in range(n)]
    cluster, arm = np.array(cells, dtype=np.int64).T
    x = random.standard_normal((len(cells), p)) * 3 + cluster[:, np.newaxis] + 7
    slope = np.array([0.5, -1.0, 2.0])[arm]
    noise = random.standard_normal(len(cells)) * (1 + np.abs(x[:, 0] - 7))
    return People(cluster, arm, slope * x.sum(axis=1) + 5 * cluster + arm + noise, x)


@dataclass(frozen=True)
class Full:
    estimate: float
    std_error: float
    degrees_of_freedom: float


def in_full(
    own: People, stratum: Ints, arm: int, *, common: bool = False, kind: str = "HC2"
) -> Full:
    """Dummies of arm × stratum and arm × (x − x̄ of the stratum); ``common`` has one slope.

    The degrees of freedom follow from the same regression's leverages.
    """
    size = int(stratum.max()) + 1
    middle = np.stack([own.covariates[stratum == s].mean(axis=0) for s in range(size)])
    share = np.bincount(stratum[stratum >= 0]) / (stratum >= 0).sum()
    at = np.flatnonzero((stratum >= 0) & np.isin(own.arm, (0, arm)))
    treated, place = (own.arm[at] == arm).astype(int), stratum[at]
    dummies = np.zeros((len(at), 2 * size))
    dummies[np.arange(len(at)), treated * size + place] = 1
    apart = own.covariates[at] - middle[place]
    slopes = [apart] if common else [apart * (treated == one)[:, np.newaxis] for one in (0, 1)]
    found = OLS(own.outcome[at], np.hstack([dummies, *slopes])).fit(cov_type=kind)
    chosen = np.zeros(len(found.params))
    chosen[: 2 * size] = np.concatenate([-share, share])
    hat = found.get_influence().hat_matrix_diag
    weight = (found.model.pinv_wexog.T @ chosen) ** 2 * found.resid**2 / (1 - hat)
    cell = treated * size + place
    parts, free = np.bincount(cell, weight), np.bincount(cell, 1 - hat)
    variance = float(chosen @ found.cov_params() @ chosen)
    freedom = variance**2 / float((parts**2 / (free + 2)).sum()) - 2
    return Full(float(chosen @ found.params), variance**0.5, freedom)


def assert_is(found: Estimate, expected: Full) -> None:
    assert found.estimate == pytest.approx(expected.estimate, rel=1e-9)
    assert found.std_error == pytest.approx(expected.std_error, rel=1e-9)
    reach = stats.t.ppf(0.975, expected.degrees_of_freedom) * expected.std_error
    assert found.ci_lower == pytest.approx(expected.estimate - reach, rel=1e-9)
    assert found.ci_upper == pytest.approx(expected.estimate + reach, rel=1e-9)


def named(found: Sequence[Estimate], name: AdjustedName) -> list[Estimate]:
    return [one for one in found if one.estimator == name]


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_without_privacy_it_is_the_fully_interacted_regression(seed: int, p: int) -> None:
    own = people(seed, p)
    found = named(own.estimates(), "regression")
    assert [one.arm for one in found] == ["mail", "call"]
    for nth, one in enumerate(found, 1):
        assert_is(one, in_full(own, own.cluster, nth))
        assert one.n_units == 57
        assert one.privacy_std_error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cuped_is_the_regression_with_one_slope(seed: int) -> None:
    own = people(seed, 1)
    for nth, one in enumerate(named(own.estimates(), "cuped"), 1):
        assert_is(one, in_full(own, own.cluster, nth, common=True))
    assert not named(people(seed, 2).estimates(), "cuped")


def test_small_clusters_are_merged_as_elsewhere() -> None:
    own = people(5, 2, [(9, 7, 9), (1, 6, 3), (6, 1, 1), (12, 20, 4)])
    merged = np.array([0, 1, 1, 2])[own.cluster]
    # The arm "call" can be compared in cluster 0 and 3, and in both small ones together.
    for nth, one in enumerate(named(own.estimates(same_shares=True), "regression"), 1):
        assert_is(one, in_full(own, merged, nth))
    left_out = np.array([0, -1, -1, 1])[own.cluster]
    for nth, one in enumerate(named(own.estimates(), "regression"), 1):
        assert_is(one, in_full(own, left_out, nth))


def test_what_is_broken_on_purpose_is_not_that_regression() -> None:
    """Slopes of the other arm, x̄ over the two arms alone, and other divisors are all seen."""
    own = people(1, 2)
    (found, _) = named(own.estimates(), "regression")
    pair = own.arm < 2
    alone = People(*(getattr(own, field.name)[pair] for field in fields(People)))
    (without_third, *_) = named(alone.estimates(), "regression")
    share = np.bincount(own.cluster) / len(own.cluster)
    swapped = 0.0
    for sign, arm, other in ((1, 1, 0), (-1, 0, 1)):
        slope = within_slope(own, other)
        for c, b in enumerate(share):
            here = (own.cluster == c) & (own.arm == arm)
            gap = own.covariates[here].mean(axis=0) - own.covariates[own.cluster == c].mean(axis=0)
            swapped += sign * b * (own.outcome[here].mean() - slope @ gap)
    for kind in ("HC0", "HC1", "HC3", "nonrobust"):  # of other divisors, or of one variance
        wrong_error = in_full(own, own.cluster, 1, kind=kind).std_error
        assert wrong_error != pytest.approx(found.std_error, rel=1e-3), kind
    for wrong in (without_third.estimate, swapped):
        assert found.estimate is not None
        assert wrong != pytest.approx(found.estimate, rel=1e-3)


def within_slope(own: People, arm: int) -> Floats:
    x, y = own.covariates.copy(), own.outcome.copy()
    for c in np.unique(own.cluster):
        here = (own.cluster == c) & (own.arm == arm)
        x[here] -= x[here].mean(axis=0)
        y[here] -= y[here].mean()
    at = own.arm == arm
    slope: Floats = np.linalg.lstsq(x[at], y[at], rcond=None)[0]
    return slope


def numbers(found: Sequence[Estimate]) -> list[float]:
    names = ("estimate", "std_error", "privacy_std_error", "ci_lower", "relative_ci_upper")
    return [getattr(one, name) or np.nan for one in found for name in names]


def test_scale_and_origin_of_covariates_do_not_matter() -> None:
    own = people(3)
    other = replace(own, covariates=own.covariates * [1e6, -1e-6] + [2e7, 5.0])
    expected = numbers(own.estimates())
    assert numbers(other.estimates()) == pytest.approx(expected, rel=1e-7, nan_ok=True)


def test_columns_that_say_nothing_new_are_not_used() -> None:
    own = people(3)
    x = own.covariates
    more = np.column_stack(
        [np.full(len(x), 2020.0), x[:, 0], own.cluster * 1.7, x[:, 1], x.sum(axis=1) + own.cluster]
    )
    found = regressions(
        own.evidence, replace(own.units, covariates=more), ARMS, "none", same_shares=False
    )
    assert found.used.tolist() == [False, True, False, True, False]
    assert numbers(found.estimates) == pytest.approx(
        numbers(own.estimates()), rel=1e-9, nan_ok=True
    )


def test_a_column_that_is_constant_in_an_arm_moves_the_other_arm_alone() -> None:
    own = people(3, 1)
    x = np.where(own.arm == 0, 2020.1, own.covariates[:, 0])[:, np.newaxis]
    found = named(replace(own, covariates=x).estimates(), "regression")
    plain = contrasts(own.evidence, "tau_q", 1, 0, 1, same_shares=False)
    assert (found[0].relative or 0) + 1 != 0
    treated = within_slope(replace(own, covariates=x), 1)
    share = np.bincount(own.cluster) / len(own.cluster)
    gap = sum(
        b * (x[(own.cluster == c) & (own.arm == 1)].mean() - x[own.cluster == c].mean())
        for c, b in enumerate(share)
    )
    assert found[0].estimate == pytest.approx(plain.estimate[0] - treated[0] * gap, rel=1e-9)


def test_a_unit_that_a_column_is_all_about_leaves_a_variance() -> None:
    own = people(3, 2)
    lone = np.zeros(len(own.arm))
    lone[np.flatnonzero(own.arm == 1)[0]] = 1
    found = replace(own, covariates=np.column_stack([own.covariates, lone])).estimates()
    for one, other in zip(found, own.estimates(), strict=True):
        assert one.std_error is not None
        assert other.std_error is not None
        assert 0.5 < one.std_error / other.std_error < 2


def test_where_nothing_can_be_compared_there_is_no_number() -> None:
    own = people(3, 2, [(5, 1, 4), (1, 5, 4)])
    (mail, call) = named(own.estimates(), "regression")
    assert (mail.estimate, mail.std_error, mail.n_units) == (None, None, 0)
    assert call.estimate is not None


def test_the_smallest_arm_says_how_many_columns_can_be_borne() -> None:
    n = 3 * UNITS_PER_COLUMN
    sizes = [(n, n + 9, 2 * n), (n, n - 8, 2 * n), (0, 1, 500)]
    own = people(1, 1, sizes)  # the arm "mail" has 6 · 10 + 1 units in two strata
    assert bearable_columns(own.evidence, 3, 0, same_shares=False) == 5
    assert bearable_columns(people(1, 1, [(5, 1, 0)]).evidence, 3, 0, same_shares=False) == 0


# against quadratic forms over units, with privacy


def with_covariates(told: Told, seed: int) -> tuple[Units, Floats]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((len(told.units), 2))
    return Units(
        np.array([unit.cluster for unit in told.units]),
        np.array([unit.arm for unit in told.units]),
        np.array([unit.value for unit in told.units]) - told.center,
        x,
    ), x


def large_release(stream: int) -> Told:
    """A random release in which every stratum has units enough."""
    random, small = np.random.default_rng(stream), random_release(stream)
    units = tuple(
        Unit(cluster, arm, small.grid[random.integers(len(small.grid))])
        for cluster in small.pool_of
        for arm in (0, 1)
        for _ in range(random.integers(6, 15))
    )
    (cell, *_) = small.cells.values()
    cells = {(pool, arm): cell for pool in set(small.pool_of.values()) for arm in (0, 1)}
    return replace(small, units=units, cells=cells)


@dataclass(frozen=True)
class ByUnits:
    """One arm's adjusted mean as a sum over units, and its variance by quadratic forms."""

    mean: float
    variance: float
    noise: float


def by_units(told: Told, x: Floats, arm: int, *, combined: bool) -> ByUnits:
    """With dense matrices; strata are clusters, all of them comparable."""
    strata = strata_of(
        told.units, range(len(told.units)), lambda unit: unit.cluster, (arm, 1 - arm),
        same_shares=False,
    )  # fmt: skip
    at = [i for one in strata for i in one.treated]
    n = np.array([float(len(one.treated)) for one in strata for _ in one.treated])
    b = np.array([one.weight / len(told.units) for one in strata for _ in one.treated])
    v = np.array([told.debiased(told.units[i], identity) for i in at])
    eta = np.array([told.unit_noise(told.units[i], identity) for i in at])
    place = np.array([told.units[i].cluster for i in at])
    same = (place[:, np.newaxis] == place) / n
    inner = x[at] - same @ x[at]
    solve = np.linalg.inv(inner.T @ inner) @ inner.T
    everyone = np.array([x[one.treated + one.control].mean(axis=0) for one in strata])
    gap = sum(
        one.weight / len(told.units) * (x[one.treated].mean(axis=0) - middle)
        for one, middle in zip(strata, everyone, strict=True)
    )
    moved = gap @ solve
    weights = {key: cell.mean_weight * combined for key, cell in told.cells.items()}
    omega = dict(zip(at, (b / n - moved).tolist(), strict=True))
    found = weighted(told, identity, omega, weights)
    leverage = np.diag(same) + np.diag(inner @ solve)
    residual = v - same @ v - inner @ (solve @ v)
    square = residual**2 / (1 - leverage)
    if not combined:
        return ByUnits(found.value, float((b / n - moved) ** 2 @ square), found.noise)
    by_everyone = evidence_of(replace(told, own_sizes={}))
    plain = contrasts(by_everyone, "combined", arm, 1 - arm, 1, same_shares=False)
    total = plain.treated_variance[0] - noise_of(told, at, b / n, weights)
    k = np.diag(b**2 / (n * (n - 1)))
    form = k @ inner @ solve + solve.T @ inner.T @ k
    form -= solve.T @ inner.T @ k @ inner @ solve
    removed = (v - same @ v) @ form @ (v - same @ v) - np.diag(form) @ square
    left = 1 - min(max(removed / total, 0.0), 1.0) if total > 1e-9 else 1.0
    slopes = max(float(moved**2 @ (square - eta)), 0.0)
    return ByUnits(found.value, left * total + slopes + found.noise, found.noise)


def noise_of(
    told: Told, at: list[int], share: Floats, weights: dict[tuple[int, int], float]
) -> float:
    plain = dict(zip(at, share.tolist(), strict=True))
    return weighted(told, identity, plain, weights).noise


@pytest.mark.parametrize("stream", range(12))
@pytest.mark.parametrize("name", ["regression", "regression_combined"])
def test_with_privacy_it_is_what_quadratic_forms_say(stream: int, name: AdjustedName) -> None:
    """The estimate, its variance, and what privacy adds; weights and pools of every kind."""
    told = large_release(stream)
    units, x = with_covariates(told, stream)
    found = regressions(
        evidence_of(told), units, ("none", "mail"), "none", same_shares=False
    ).estimates
    (one,) = named(found, name)
    treated, control = (by_units(told, x, arm, combined="_" in name) for arm in (1, 0))
    assert one.estimate == pytest.approx(treated.mean - control.mean, rel=1e-8)
    noise = treated.noise + control.noise
    variance = max(treated.variance + control.variance, noise)
    assert one.std_error == pytest.approx(variance**0.5, rel=1e-8)
    assert one.privacy_std_error == pytest.approx(noise**0.5, rel=1e-8)


# over many releases

N_RELEASES = 1_400
N_PLAIN = 800
"""Without privacy, where nothing is left to chance."""
CHUNK = 100
ERRORS = 5.0
"""Standard errors that a mean may be off: 6e-7."""


@dataclass(frozen=True)
class Study:
    """A population that is randomised, and released, many times over."""

    sizes: tuple[tuple[int, ...], ...]
    n_columns: int
    explained: float
    """Share of the variance of the outcomes, before they are put on the grid, that x explains."""
    uneven: float = 0.0
    """By how much the effect depends on x."""
    epsilon: float | None = None
    """None without privacy."""
    mechanism: MechanismName = "uniform-prior-dp"
    compare: bool = False
    """Whether to have unadjusted estimates, too."""

    @property
    def covariates(self) -> Floats:
        n = int(np.sum(self.sizes))
        return np.random.default_rng(n).standard_normal((n, self.n_columns))

    @property
    def trial(self) -> Trial:
        sizes, x = np.array(self.sizes), self.covariates[:, 0]
        random = np.random.default_rng(self.n_columns)
        rest = np.sqrt(1 - self.explained) * random.standard_normal(len(x))
        cluster = np.repeat(np.arange(len(sizes)), sizes.sum(axis=1))
        control = np.sqrt(self.explained) * x + rest + 0.3 * cluster
        cuts = np.quantile(control, np.arange(1, 5) / 5)
        levels = [np.searchsorted(cuts, y) for y in (control, control + 0.3 + self.uneven * x)]
        local = Request("uniform-prior-dp", 5, strata_statistic="none", resampling_probability=0.5)
        asked = Request(self.mechanism, 5, epsilon=self.epsilon, strata_statistic="counts")
        mechanism = design(asked if self.epsilon else local).mechanism
        return Trial(np.arange(5.0), sizes, np.stack(levels).astype(np.int64), mechanism)


@dataclass(frozen=True)
class Outcome:
    """Every release's estimate; arrays are [releases]."""

    estimate: Floats
    std_error: Floats
    privacy_std_error: Floats
    ci_lower: Floats
    ci_upper: Floats
    truth: float

    @property
    def covered(self) -> float:
        return float(((self.ci_lower <= self.truth) & (self.truth <= self.ci_upper)).mean())

    @property
    def ratio(self) -> float:
        """Mean of V̂ to the variance."""
        return ratio(self.estimate, self.std_error**2)

    def covered_with(self, variance: Floats) -> float:
        """Had the variance been this."""
        reach = (self.ci_upper - self.estimate) / self.std_error * np.sqrt(np.maximum(variance, 0))
        return float((np.abs(self.estimate - self.truth) <= reach).mean())


def lone_release(evidence: Evidence, nth: int, n_cells: int, grid: Floats) -> Evidence:
    """One of the releases that ``evidence`` tells of, each with ``n_cells`` (pool, arm)s."""
    slices = evidence.slices.take(np.flatnonzero(evidence.slices.group == nth))
    own = replace(slices, group=np.zeros_like(slices.group), pool=slices.pool - nth * n_cells)
    cells = slice(nth * n_cells, (nth + 1) * n_cells)
    every = evidence.pools

    def cut(statistic: Statistic) -> Statistic:
        return Statistic(*(getattr(statistic, one.name)[cells] for one in fields(Statistic)))

    pools = Pools(
        every.prior_mean[cells],
        every.prior_variance[cells],
        every.prior_square[cells],
        every.prior_square_variance[cells],
        cut(every.of_mean),
        cut(every.of_square),
        every.pool[cells],
        every.n_clusters[cells],
    )
    return Evidence.of(own, own, pools, evidence.rate, grid)


@cache
def studied(study: Study) -> dict[str, Outcome]:
    """Estimates of all releases, by estimator."""
    trial, random, x = study.trial, np.random.default_rng(1), study.covariates
    n_cells = len(trial.strata.cell_sizes)
    found: dict[str, list[list[float]]] = {}
    names = ("estimate", "std_error", "privacy_std_error", "ci_lower", "ci_upper")
    private, pair, side_by_side = study.epsilon is not None, ("none", "mail"), [None] * CHUNK
    for _ in range((N_RELEASES if private else N_PLAIN) // CHUNK):
        arms = trial.assign(CHUNK, random)
        drawn = trial.release(arms)
        every = drawn.evidence() if private else drawn.unprotected()
        levels = (drawn.randomised if private else drawn.levels).reshape(CHUNK, -1)
        estimates = (
            effects(every, pair, "none", side_by_side, same_shares=False) if study.compare else []
        )
        for nth in range(CHUNK):
            evidence = lone_release(every, nth, n_cells, trial.grid)
            steps = (trial.grid - trial.grid.mean())[levels[nth]]
            units = Units(trial.cluster, arms[nth], steps, x)
            estimates += regressions(evidence, units, pair, "none", same_shares=False).estimates
        for one in estimates:
            found.setdefault(one.estimator, []).append([getattr(one, name) for name in names])
    return {
        name: Outcome(**dict(zip(names, np.array(rows).T, strict=True)), truth=trial.truth())
        for name, rows in found.items()
    }


PLAIN = {
    "few units and three columns": Study(((31, 31),), 3, 0.6, compare=True),
    "twelve strata of eight": Study(((4, 4),) * 12, 2, 0.5),
    "arms of other sizes, effects of other signs": Study(((12, 36),), 1, 0.6, 0.7),
    "ten columns, nine of them of no use": Study(((52, 52), (52, 52)), 10, 0.5, 0.3),
}
PRIVATE = {
    "hardly anything but noise": Study(((60, 60), (60, 60)), 5, 0.5, epsilon=0.3),
    "much noise": Study(((60, 60),), 6, 0.9, epsilon=1.0),
    "pools shared": Study(
        ((120, 80), (80, 80)), 2, 0.8, 0.3, 2.0, mechanism="cluster-free-dp", compare=True
    ),
    "little noise, priors of their own": Study(
        ((31, 31), (21, 21)), 2, 0.9, epsilon=6.0, mechanism="cluster-dp"
    ),
}


COVERED = {True: 0.912, False: 0.935}
"""Least coverage, with privacy and without. Of 1,400 releases 0.945 falls short of it once in 1e6;
without privacy all is of seeds."""
RATIO = {True: (0.79, 1.35), False: (0.9, 1.35)}
"""Of V̂ to the variance, known to 4 %: 0.98, the least seen, falls short once in 1e6."""


@pytest.mark.statistical
@pytest.mark.parametrize("title", [*PLAIN, *PRIVATE], scope="module")
def test_intervals_cover_and_are_not_much_too_wide(title: str) -> None:
    """8 estimators with privacy: 8 · 2.6e-6 false alarms, of coverage, mean and variance."""
    private = title in PRIVATE
    low, high = RATIO[private]
    for own in studied((PLAIN | PRIVATE)[title]).values():
        error = share_error(0.95, len(own.estimate))
        assert_between(own.covered, (COVERED[private], np.inf), (0.945, 1.0), error)
        assert_mean(own.estimate, own.truth, ERRORS)
        error = ratio_error(own.estimate, own.std_error**2)
        assert_between(own.ratio, (low, high), (0.98, high), error)


@pytest.mark.statistical
def test_the_check_of_coverage_catches_noise_forgotten() -> None:
    for title in ("hardly anything but noise", "pools shared"):
        for name in ("regression", "regression_combined"):
            own = studied(PRIVATE[title])[name]
            without = own.std_error**2 - own.privacy_std_error**2
            assert own.covered_with(without) < COVERED[True] - 0.1


@pytest.mark.statistical
@pytest.mark.parametrize("title", [*PLAIN, "hardly anything but noise"], scope="module")
def test_the_check_of_the_variance_catches_one_that_is_a_third_short(title: str) -> None:
    """With privacy V̂ is right on average, and is taken for it once in 1e7."""
    low, _ = RATIO[title in PRIVATE]
    for name, own in studied((PLAIN | PRIVATE)[title]).items():
        assert own.ratio * 0.66 < low, name


@pytest.mark.statistical
def test_the_gain_is_what_the_covariate_explains() -> None:
    """The variance falls by R², of the outcomes on their grid; from seeds alone."""
    study = PLAIN["few units and three columns"]
    trial, x = study.trial, study.covariates
    share = []
    for levels in trial.levels:
        y = trial.grid[levels]
        share.append(np.var(y - np.polyval(np.polyfit(x[:, 0], y, 1), x[:, 0])) / np.var(y))
    own = studied(study)
    gained = own["regression"].estimate.var() / own["tau_q"].estimate.var()
    assert 0.3 < np.mean(share) < 0.6
    assert gained == pytest.approx(np.mean(share), rel=0.15)  # and three slopes cost about 5 %


@pytest.mark.statistical
def test_beside_much_noise_the_calibrated_estimate_alone_gains() -> None:
    """Ratios of mean variances, certain to a per cent: 0.84 of what it is compared with."""
    own = studied(PRIVATE["pools shared"])
    mean = {name: float((one.std_error**2).mean()) for name, one in own.items()}
    assert mean["regression_combined"] < 0.9 * mean["combined"]
    assert mean["regression_combined"] < 0.9 * mean["regression"]
