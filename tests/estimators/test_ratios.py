"""Ratios against their definitions, unit by unit, and what becomes of denominators near zero."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from estimators.arm_effects import Contrasts, contrasts, effects
from estimators.between_arms import ratios_between
from estimators.intervals import holm, minimum_detectable_effect, relative_effect
from estimators.means import EstimatorName, means
from estimators.ratios import (
    SURE_ERRORS,
    RatioContrasts,
    RatioEvidence,
    fieller,
    ratio_contrasts,
    ratio_effects,
    ratio_means,
)
from estimators.strata.assigned import parties_of
from schemas.arrays import Floats
from tests.estimators.told_release import (
    Cell,
    Told,
    Unit,
    evidence_of,
    identity,
    random_release,
)

Pair = tuple[Told, Told]
"""Numerator and denominator: the same units in the same order, each with outcomes of its own."""

BOTH: tuple[EstimatorName, ...] = ("combined", "tau_q")


def pair_at_random(
    stream: int, size: int = 12, *, at: float = 10.0, rate: float = 0.2, n_groups: int = 1
) -> Pair:
    """Three clusters in two pools and three arms; the denominator's grid has its middle ``at``."""
    random = np.random.default_rng(stream)
    grids = ((-1.0, 0.0, 1.0, 2.0), (at - 2, at, at + 2))
    places = [(c, a) for c in range(3) for a in range(3) for _ in range(size + c)]
    below = random.integers(0, 3, len(places))
    above = np.where(random.random(len(places)) < 0.6, below, random.integers(0, 4, len(places)))
    groups = [
        frozenset(np.flatnonzero(random.random(n_groups) < 0.7).tolist())
        if n_groups > 1
        else frozenset({0})
        for _ in places
    ]
    pool_of = {0: 0, 1: 1, 2: 1}
    told = []
    for grid, levels in zip(grids, (above, below), strict=True):
        units = tuple(
            Unit(c, a, grid[level], group)
            for (c, a), level, group in zip(places, levels, groups, strict=True)
        )
        shares = [1 / len(grid)] * len(grid)
        cells = {
            (p, a): Cell(tuple(shares), tuple(random.integers(3, 12, len(grid)).tolist()), 0.4, 0.3)
            for p in range(2)
            for a in range(3)
        }
        told.append(Told(grid, rate, units, pool_of, cells, 1.5))
    return told[0], told[1]


def evidence_of_both(pair: Pair) -> RatioEvidence:
    numerator, denominator = map(evidence_of, pair)
    units, columns = pair[0].units, [debiased(told) for told in pair]
    names = sorted({group for unit in units for group in unit.groups})
    slices = numerator.slices
    covariance = np.zeros(len(slices.n_units))
    for row, place in enumerate(zip(slices.group, slices.cluster, slices.arm, strict=True)):
        chosen = [
            at
            for at, unit in enumerate(units)
            if names[place[0]] in unit.groups and (unit.cluster, unit.arm) == place[1:]
        ]
        if len(chosen) > 1:
            covariance[row] = np.cov([column[chosen] for column in columns])[0, 1]
    return RatioEvidence("ratio", numerator, denominator, covariance)


def debiased(told: Told) -> Floats:
    return np.array([told.debiased(unit, identity) + told.center for unit in told.units])


def contrast_of(pair: Pair, name: EstimatorName, arm: int = 1) -> RatioContrasts:
    evidence = evidence_of_both(pair)
    return ratio_contrasts(evidence, name, arm, 0, 1, same_shares=False, level=0.95)


def of_outcomes(pair: Pair, name: EstimatorName, arm: int = 1) -> tuple[Contrasts, Contrasts]:
    above, below = (
        contrasts(evidence_of(told), name, arm, 0, 1, same_shares=False) for told in pair
    )
    return above, below


def strata(pair: Pair, arm: int) -> Iterator[tuple[float, float, np.ndarray]]:
    """The sign and weight b of each stratum, and which units are in it."""
    units = pair[0].units
    cluster = np.array([unit.cluster for unit in units])
    arms = np.array([unit.arm for unit in units])
    for sign, side in ((1.0, arm), (-1.0, 0)):
        for c in np.unique(cluster):
            yield sign, float(np.mean(cluster == c)), (cluster == c) & (arms == side)


@pytest.mark.parametrize("arm", [1, 2])
@pytest.mark.parametrize("stream", range(5))
def test_tau_q_is_the_delta_method_on_the_debiased_columns(stream: int, arm: int) -> None:
    pair = pair_at_random(stream)
    columns = [debiased(told) for told in pair]
    ratio: dict[float, float] = {}
    mean: dict[float, float] = {}
    for sign in (1.0, -1.0):
        of_arm = [(b, at) for own, b, at in strata(pair, arm) if own == sign]
        above, below = (sum(b * column[at].mean() for b, at in of_arm) for column in columns)
        ratio[sign], mean[sign] = above / below, below
    variance = scatter = noise = 0.0
    for sign, b, at in strata(pair, arm):
        linear = (columns[0] - ratio[sign] * columns[1])[at] / mean[sign]
        part = b**2 * linear.var(ddof=1) / at.sum()
        variance, scatter = variance + part, scatter + part**2 / (at.sum() + 1)
        for told, factor in zip(pair, (1.0, ratio[sign]), strict=True):
            of_units = [told.unit_noise(told.units[i], identity) for i in np.flatnonzero(at)]
            noise += (b * factor / mean[sign] / at.sum()) ** 2 * sum(of_units)
    found = contrast_of(pair, "tau_q", arm)
    assert found.estimate[0] == pytest.approx(ratio[1.0] - ratio[-1.0], rel=1e-9)
    assert found.variance[0] == pytest.approx(variance, rel=1e-9)
    assert found.noise_variance[0] == pytest.approx(noise, rel=1e-9)
    assert found.degrees_of_freedom[0] == pytest.approx(variance**2 / scatter - 2, rel=1e-9)
    assert found.control_mean[0] == pytest.approx(ratio[-1.0], rel=1e-9)


@pytest.mark.parametrize("stream", range(5))
def test_combined_has_the_variances_of_outcomes_and_the_covariance_of_columns(stream: int) -> None:
    pair = pair_at_random(stream, size=40)
    above, below = of_outcomes(pair, "combined")
    columns = [debiased(told) for told in pair]
    covariance = {1.0: 0.0, -1.0: 0.0}
    for sign, b, at in strata(pair, 1):
        covariance[sign] += b**2 * np.cov(columns[0][at], columns[1][at])[0, 1] / at.sum()
    variance = 0.0
    for sign, side in ((1.0, "treated"), (-1.0, "control")):
        top, bottom = getattr(above, f"{side}_mean")[0], getattr(below, f"{side}_mean")[0]
        ratio = top / bottom
        parts = (getattr(one, f"{side}_variance")[0] for one in (above, below))
        own, other = parts
        variance += (own + ratio**2 * other - 2 * ratio * covariance[sign]) / bottom**2
    found = contrast_of(pair, "combined")
    ratios = [
        getattr(above, f"{side}_mean")[0] / getattr(below, f"{side}_mean")[0]
        for side in ("treated", "control")
    ]
    assert found.estimate[0] == pytest.approx(ratios[0] - ratios[1], rel=1e-9)
    assert found.variance[0] == pytest.approx(variance, rel=1e-7)


def test_the_covariance_counts_and_has_a_sign() -> None:
    """Numerator and denominator rise together here, so the ratio is surer than without."""
    pair = pair_at_random(1, size=300, rate=0.05)
    evidence = evidence_of_both(pair)
    for name in BOTH:
        variance = [
            ratio_contrasts(
                replace(evidence, covariance=factor * evidence.covariance),
                name,
                1,
                0,
                1,
                same_shares=False,
                level=0.95,
            ).variance[0]
            for factor in (1.0, 0.0, -1.0)
        ]
        assert variance[0] < variance[1] < variance[2]
        assert variance[2] - variance[1] == pytest.approx(variance[1] - variance[0], rel=1e-6)


@pytest.mark.parametrize("name", BOTH)
def test_a_denominator_of_twos_halves_everything(name: EstimatorName) -> None:
    """With next to no noise, a ratio to a constant is the numerator over it."""
    numerator, denominator = pair_at_random(3)
    cells = {
        key: replace(cell, noisy=None, mean_weight=0.0, square_weight=0.0)
        for key, cell in denominator.cells.items()
    }
    units = tuple(replace(unit, value=2.0) for unit in denominator.units)
    constant = Told((1.0, 2.0, 3.0), 1e-13, units, denominator.pool_of, cells)
    if name == "combined":
        cells = {
            key: replace(cell, noisy=(0, len(denominator.of(key)), 0))
            for key, cell in cells.items()
        }
        constant = replace(constant, cells=cells, noise_scale=1e-3)
    evidence = evidence_of_both((numerator, constant))
    arms = ("control", "one", "two")
    found = ratio_effects(evidence, arms, "control", [None], same_shares=False)
    plain = effects(evidence.numerator, arms, "control", [None], same_shares=False)
    pairs = [
        (ratio, one)
        for ratio in found
        for one in plain
        if ratio.estimator == one.estimator == name and ratio.arm == one.arm
    ]
    assert len(pairs) == 2
    for ratio, one in pairs:
        assert ratio.metric == "ratio"
        assert (ratio.n_units, ratio.n_segment) == (one.n_units, one.n_segment)
        for scaled in (
            "estimate",
            "std_error",
            "privacy_std_error",
            "ci_lower",
            "ci_upper",
            "minimum_detectable_effect",
            "control_mean",
            "control_std_error",
        ):
            assert getattr(ratio, scaled) == pytest.approx(getattr(one, scaled) / 2, rel=1e-5)
        for same in ("p_value", "p_value_holm"):
            assert getattr(ratio, same) == pytest.approx(getattr(one, same), rel=1e-4)


@pytest.mark.parametrize("name", BOTH)
def test_segments_together_are_each_of_them_alone(name: EstimatorName) -> None:
    pair = pair_at_random(5, size=14, n_groups=3)
    evidence = evidence_of_both(pair)
    together = ratio_contrasts(evidence, name, 1, 0, 4, same_shares=True, level=0.95)
    for group in range(3):
        rows = np.flatnonzero(evidence.numerator.slices.group == group)
        above, below = (
            replace(
                part,
                slices=replace(part.slices.take(rows), group=np.zeros_like(rows)),
                mean=part.mean.take(rows),
                square=part.square.take(rows),
            )
            for part in (evidence.numerator, evidence.denominator)
        )
        one = RatioEvidence("ratio", above, below, evidence.covariance[rows])
        own = ratio_contrasts(one, name, 1, 0, 1, same_shares=True, level=0.95)
        for field in ("estimate", "variance", "noise_variance", "degrees_of_freedom", "n_units"):
            assert getattr(together, field)[group] == pytest.approx(getattr(own, field)[0])
    assert math.isnan(together.estimate[3])  # nobody is in the fourth
    assert together.n_units[3] == 0


def test_the_whole_strata_merged_in_pairs_scale_with_the_numerator() -> None:
    """One unit an arm in most clusters: the variance of pairs is that of ℓ, and no other."""
    random = np.random.default_rng(2)
    places = [(c, a) for c in range(30) for a in (0, 1)]
    told = []
    for grid in ((0.0, 1.0, 2.0), (9.0, 10.0, 11.0)):
        units = tuple(Unit(c, a, grid[random.integers(3)]) for c, a in places)
        cells = {(0, a): Cell((0.2, 0.3, 0.5)) for a in (0, 1)}
        told.append(Told(grid, 0.1, units, dict.fromkeys(range(30), 0), cells))
    pair = (told[0], told[1])
    found = ratio_contrasts(evidence_of_both(pair), "tau_q", 1, 0, 1, same_shares=True, level=0.95)
    columns = [debiased(one) for one in pair]
    arms = np.array([a for _, a in places])
    linear = np.zeros(len(places))
    for side in (0, 1):
        top, bottom = (column[arms == side].mean() for column in columns)
        linear[arms == side] = (columns[0] - top / bottom * columns[1])[arms == side] / bottom
    z = (linear[arms == 1] - linear[arms == 0]) / 30
    expected = sum(2 * np.var(z[at : at + 2], ddof=1) for at in range(0, 30, 2))
    assert found.n_units[0] == 60
    assert found.variance[0] == pytest.approx(expected, rel=1e-9)


def test_holm_counts_the_arms_of_a_ratio() -> None:
    evidence = evidence_of_both(pair_at_random(7, size=40))
    found = ratio_effects(evidence, ("a", "b", "c"), "a", [None], same_shares=False)
    for name in BOTH:
        rows = [one for one in found if one.estimator == name]
        assert [one.arm for one in rows] == ["b", "c"]
        p_values = np.array([one.p_value for one in rows], dtype=np.float64)
        raised = holm(p_values, p_values >= 0)
        assert [one.p_value_holm for one in rows] == pytest.approx(raised.tolist())


def test_an_arm_that_was_refused_by_what_was_drawn_is_a_hypothesis_all_the_same() -> None:
    """Its denominators are −2 and 2 in turn; those of the others are 2."""
    numerator, denominator = pair_at_random(2, size=40, at=0.0)
    cells = {key: replace(cell, noisy=None) for key, cell in denominator.cells.items()}
    units = tuple(
        replace(unit, value=2.0 if unit.arm < 2 else 2.0 - 4.0 * (nth % 2))
        for nth, unit in enumerate(denominator.units)
    )
    unsure = replace(denominator, rate=0.05, units=units, cells=cells)
    evidence, arms = evidence_of_both((numerator, unsure)), ("a", "b", "c")
    own, refused = ratio_effects(evidence, arms, "a", [None], same_shares=False)
    (pair,) = ratios_between(evidence, arms, "d", same_shares=False)  # of three
    assert refused.n_units > 0
    assert refused.p_value is refused.p_value_holm is None
    for one, n_asked in ((own, 2), (pair, 3)):
        assert one.p_value is not None
        assert 0.01 < one.p_value < 0.3
        assert one.p_value_holm == n_asked * one.p_value


def test_relative_effects_and_power_are_those_of_ratios() -> None:
    pair = pair_at_random(11, size=400)
    found = contrast_of(pair, "tau_q")
    columns = found.columns(0.9)
    assert found.treated.is_sure[0]
    expected = relative_effect(
        (found.treated_mean, found.treated_variance, found.treated_fourth),
        (found.control_mean, found.control_variance, found.control_fourth),
        found.degrees_of_freedom,
        0.9,
    )
    assert columns["relative"][0] == found.treated_mean[0] / found.control_mean[0] - 1
    assert columns["relative_ci_upper"][0] == expected.upper[0]
    assert columns["minimum_detectable_effect"] == minimum_detectable_effect(
        np.sqrt(found.variance), found.law, 0.9
    )


def test_an_arms_ratio_is_that_of_its_means() -> None:
    evidence = evidence_of_both(pair_at_random(4, size=30))
    arms = ("a", "b", "c")
    found = ratio_means(evidence, arms, same_shares=False)
    above, below = (
        {(mean.arm, mean.estimator): mean for mean in means(part, arms, same_shares=False)}
        for part in (evidence.numerator, evidence.denominator)
    )
    assert [(one.metric, one.arm, one.estimator) for one in found] == [
        ("ratio", arm, name) for name in BOTH for arm in arms
    ]
    for one in found:
        key = (one.arm, one.estimator)
        assert one.mean == pytest.approx(above[key].mean / below[key].mean, rel=1e-12)
        lone = above[key].std_error / below[key].mean
        other = abs(one.mean) * below[key].std_error / below[key].mean
        assert abs(lone - other) <= one.std_error <= lone + other


@pytest.mark.parametrize("stream", range(4))
def test_fieller_solves_its_equation(stream: int) -> None:
    random = np.random.default_rng(stream)
    above, below = random.normal(size=50) * 3, random.normal(size=50) + 6
    root = random.normal(size=(50, 2, 2))
    covariance = root @ root.transpose(0, 2, 1)
    parts = (covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1])
    lower, upper = fieller((above, below), parts, np.full(50, 4.0))
    told = below**2 > 4.0 * parts[2]
    assert np.array_equal(~np.isnan(lower), told)
    for end in (lower[told], upper[told]):
        variance = parts[0][told] - 2 * end * parts[1][told] + end**2 * parts[2][told]
        off = (above - 0.0)[told] - end * below[told]
        assert off**2 == pytest.approx(4.0 * variance, rel=1e-6)
    ratio = (above / below)[told]
    assert np.all((lower[told] <= ratio) & (ratio <= upper[told]))


@pytest.mark.parametrize("name", BOTH)
def test_an_unsure_denominator_has_intervals_after_fieller(name: EstimatorName) -> None:
    seen = set()
    for stream in range(30):
        found = contrast_of(pair_at_random(stream, at=2.5, rate=0.5), name)
        if math.isnan(found.estimate[0]) or (found.treated.is_sure & found.control.is_sure)[0]:
            continue
        columns = {key: float(values[0]) for key, values in found.columns(0.95).items()}
        low, high = columns["ci_lower"], columns["ci_upper"]
        assert low < columns["estimate"] < high
        assert (columns["p_value"] < 0.05) == (low > 0 or high < 0)
        assert math.isnan(columns["minimum_detectable_effect"])
        assert math.isnan(columns["relative"])
        one, two = found.treated, found.control
        assert one.lower[0] < one.ratio[0] < one.upper[0]
        reach = math.hypot(one.ratio[0] - one.lower[0], two.upper[0] - two.ratio[0])
        assert low == pytest.approx(columns["estimate"] - reach)
        seen.add(low > 0 or high < 0)
    assert False in seen


def test_at_a_level_of_next_to_nothing_an_interval_is_its_estimate_and_warns_of_nothing() -> None:
    """Bounds are divided by a quantile of 0: numpy would warn, which is an error here."""
    n_unsure = 0
    for stream in range(12):
        evidence = evidence_of_both(pair_at_random(stream, at=2.5, rate=0.5))
        found = ratio_contrasts(evidence, "tau_q", 1, 0, 1, same_shares=False, level=1e-300)
        columns = found.columns(1e-300)
        n_unsure += not (found.treated.is_sure & found.control.is_sure)[0]
        for end in ("ci_lower", "ci_upper"):
            assert columns[end] == pytest.approx(found.estimate)
    assert n_unsure > 0


def test_what_is_sure_is_a_number_of_standard_errors() -> None:
    seen = []
    for stream in range(20):
        pair = pair_at_random(stream, at=4.0, rate=0.4)
        _, below = of_outcomes(pair, "tau_q")
        found = contrast_of(pair, "tau_q")
        errors = below.treated_mean[0] / math.sqrt(below.treated_variance[0])
        assert found.treated.is_sure[0] == (errors >= SURE_ERRORS)
        seen.append(bool(found.treated.is_sure[0]))
    assert 3 <= sum(seen) <= 17


@pytest.mark.parametrize("at", [0.0, 1e-13])
def test_a_denominator_of_zeros_gives_nothing_and_breaks_nothing(at: float) -> None:
    numerator, denominator = pair_at_random(6, at=0.0)
    cells = {key: replace(cell, noisy=None) for key, cell in denominator.cells.items()}
    units = tuple(replace(unit, value=at) for unit in denominator.units)
    zeros = replace(denominator, grid=(at - 1, at, at + 1), units=units, cells=cells)
    evidence = evidence_of_both((numerator, zeros))
    found = ratio_effects(evidence, ("a", "b", "c"), "a", [None], same_shares=False)
    assert [(one.arm, one.estimator) for one in found] == [("b", "tau_q"), ("c", "tau_q")]
    for one in found:
        assert one.n_units > 0
        assert one.coverage == 1.0
        numbers = (one.estimate, one.std_error, one.ci_lower, one.p_value, one.control_mean)
        assert numbers == (None,) * 5
    assert ratio_means(evidence, ("a", "b", "c"), same_shares=False) == []


def test_a_numerator_of_zeros_has_the_ratio_zero() -> None:
    numerator, denominator = pair_at_random(6)
    cells = {key: replace(cell, noisy=None) for key, cell in numerator.cells.items()}
    units = tuple(replace(unit, value=0.0) for unit in numerator.units)
    zeros = replace(numerator, grid=(-1.0, 0.0, 1.0, 2.0), rate=1e-12, units=units, cells=cells)
    (one, _) = ratio_effects(
        evidence_of_both((zeros, denominator)), ("a", "b", "c"), "a", [None], same_shares=False
    )
    assert one.estimate == pytest.approx(0.0, abs=1e-9)
    assert one.std_error == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("same_shares", [False, True])
@pytest.mark.parametrize("streams", [range(i, i + 10) for i in range(0, 40, 10)], ids=str)
def test_no_release_breaks_a_ratio(streams: range, same_shares: bool) -> None:
    """Strata of 0 to 6 units, weights and noise of every kind: compared where outcomes are."""
    for stream in streams:
        told = random_release(stream)
        units = tuple(replace(unit, groups=frozenset({0})) for unit in told.units)
        told = replace(told, units=units)
        flipped = tuple(
            replace(unit, value=told.grid[-1 - told.grid.index(unit.value)]) for unit in units
        )
        evidence = evidence_of_both((told, replace(told, units=flipped, rate=0.3)))
        arms = [str(a) for a in range(1 + max(unit.arm for unit in units))]
        found = ratio_effects(evidence, arms, "0", [None], same_shares=same_shares)
        plain = effects(evidence.numerator, arms, "0", [None], same_shares=same_shares)
        expected = [(e.arm, e.estimator, e.n_units) for e in plain if e.estimator != "histogram"]
        assert [(one.arm, one.estimator, one.n_units) for one in found] == expected
        for one in found:
            if one.estimate is not None:
                assert one.n_units > 0
                assert one.std_error is not None
                assert one.std_error >= 0
                assert one.privacy_std_error is not None
                assert math.isfinite(one.estimate)


@pytest.mark.parametrize("name", BOTH)
def test_units_assigned_together_are_counted_together(name: EstimatorName) -> None:
    """What parties add is Σ_g A_g² − b² s²/n of ℓ, by its definition (strata/assigned.py)."""
    pair = pair_at_random(8, size=24, rate=0.05)
    evidence = evidence_of_both(pair)
    units, columns = pair[0].units, [debiased(told) for told in pair]
    rows = {
        place: at
        for at, place in enumerate(
            zip(evidence.numerator.slices.cluster, evidence.numerator.slices.arm, strict=True)
        )
    }
    slice_of = np.array([rows[unit.cluster, unit.arm] for unit in units])
    values = [unit.value for unit in pair[1].units]
    alike = np.searchsorted(sorted(set(values)), values)
    party = (slice_of * 10 + alike).astype(np.uint64)
    arms = np.array([unit.arm for unit in units])
    above, below = (
        replace(part, parties=parties_of(slice_of, party, arms, column, len(rows)))
        for part, column in zip((evidence.numerator, evidence.denominator), columns, strict=True)
    )
    nothing = np.zeros(len(rows))
    together = RatioEvidence("ratio", above, below, evidence.covariance, products=nothing)
    plain, found = (
        ratio_contrasts(given, name, 1, 0, 1, same_shares=False, level=0.95)
        for given in (evidence, together)
    )
    added = {1.0: 0.0, -1.0: 0.0}
    for sign, b, at in strata(pair, 1):
        side = "treated" if sign > 0 else "control"
        ratio = getattr(plain, side).ratio[0]
        middle = [getattr(one, f"{side}_mean")[0] for one in of_outcomes(pair, name)]
        linear = (columns[0] - ratio * columns[1])[at] / middle[1]
        apart = linear - linear.mean()
        for one in np.unique(party[at]):
            chosen = party[at] == one
            share = chosen.sum() / at.sum()
            added[sign] += (b * apart[chosen].sum() / at.sum()) ** 2 / (1 - share)
        added[sign] -= b**2 * linear.var(ddof=1) / at.sum()
    assert max(added.values()) > 0
    expected = sum(max(part, 0.0) for part in added.values())
    more = found.variance[0] - plain.variance[0]
    if name == "tau_q":
        assert more == pytest.approx(expected, rel=1e-6)
    assert more > 0  # of combined, drawn to what is known without the noise of products
    assert found.estimate[0] == plain.estimate[0]
    assert found.degrees_of_freedom[0] < plain.degrees_of_freedom[0]
