"""Every estimator against a transcription that knows every unit, and small clusters.

A cluster's weight counts its units of all arms, also of those outside the contrast: the effect is
that on the whole population of the clusters compared.
"""

import math
from dataclasses import asdict, astuple, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from estimators.arm_effects import Contrasts, Estimate, contrasts, effects
from estimators.coverage import coverage_warnings, is_skew
from estimators.means import EstimatorName
from estimators.strata.contrast_strata import contrast_strata
from tests.estimators.reference import Result, contrast, p_value, quantile
from tests.estimators.told_release import (
    Cell,
    Told,
    Unit,
    evidence_of,
    laplace_cumulants,
    random_release,
)

Units = list[list[list[float]]]
"""Debiased outcomes of every unit, by cluster and arm."""

ESTIMATORS: tuple[EstimatorName, ...] = ("combined", "tau_q", "histogram")


def trial(*clusters: list[list[float]]) -> Told:
    """A release without noise in which these are the outcomes, exactly."""
    units = [
        Unit(cluster, arm, value)
        for cluster, arms in enumerate(clusters)
        for arm, values in enumerate(arms)
        for value in values
    ]
    cells = {(unit.cluster, unit.arm): Cell((0.5, 0.5)) for unit in units}
    return Told((-100.0, 100.0), 0.0, tuple(units), {c: c for c in range(len(clusters))}, cells)


def found_at(found: Contrasts, group: int) -> Result:
    numbers: dict[str, Any] = {
        field.name: float(getattr(found, field.name)[group]) for field in fields(Result)
    }
    return Result(**numbers)


def assert_same(found: Result, expected: Result, scale: float) -> None:
    """``scale`` is the size of debiased outcomes: doubles cancel in proportion to it."""
    assert found.n_units == expected.n_units
    for name in ("estimate", "treated_mean", "control_mean"):
        wanted = getattr(expected, name)
        assert getattr(found, name) == pytest.approx(wanted, abs=1e-11 * scale)
    for name in ("variance", "noise_variance", "treated_variance", "control_variance"):
        # Differences of squares, and of powers of four: 1e-16 of them, and some.
        wanted = getattr(expected, name)
        assert getattr(found, name) == pytest.approx(wanted, rel=1e-7, abs=1e-9 * scale**2)
    if expected.variance > 1e-4 * scale**2:
        # As above. Where nothing is uncertain they are infinite, but for rounding.
        wanted = 1 / expected.degrees_of_freedom
        found_one = 1 / found.degrees_of_freedom
        assert found_one == pytest.approx(wanted, rel=1e-4, abs=1e-9, nan_ok=True)
        assert found.kurtosis == pytest.approx(expected.kurtosis, rel=1e-4, abs=1e-9)


def assert_is_the_reference(told: Told, n_groups: int, *, same_shares: bool) -> None:
    evidence = evidence_of(told)
    scale = (told.grid[-1] - told.grid[0]) / (1 - told.rate)
    for arm in range(1, max(unit.arm for unit in told.units) + 1):
        for name in ESTIMATORS:
            if name == "histogram" and n_groups > 1:
                continue
            used = evidence.by_pool(same_shares=same_shares) if name == "histogram" else evidence
            found = contrasts(used, name, arm, 0, n_groups, same_shares=same_shares)
            for group in range(n_groups):
                expected = contrast(told, name, arm, group=group, same_shares=same_shares)
                if expected is None:
                    assert found.n_units[group] == 0
                    assert math.isnan(found.estimate[group])
                    assert math.isnan(found.variance[group])
                else:
                    assert_same(found_at(found, group), expected, scale)


every_stream = pytest.mark.parametrize(
    "streams", [range(i, i + 12) for i in range(0, 72, 12)], ids=str
)
shares = pytest.mark.parametrize("same_shares", [False, True])


@shares
@every_stream
def test_every_estimator_is_its_transcription(streams: range, same_shares: bool) -> None:
    for stream in streams:
        told = random_release(stream)
        whole = tuple(replace(unit, groups=frozenset({0})) for unit in told.units)
        assert_is_the_reference(replace(told, units=whole), 1, same_shares=same_shares)


@shares
@every_stream
def test_every_segment_is_its_transcription(streams: range, same_shares: bool) -> None:
    """Segments that overlap, and units that are in none of them but count in their pool."""
    for stream in streams:
        told = random_release(stream)
        if any(unit.groups for unit in told.units):
            assert_is_the_reference(told, 3, same_shares=same_shares)


def test_the_releases_tried_have_every_case_in_them() -> None:
    """Merged strata, pools of several clusters, contrasts of nobody, noise that is Laplace's."""
    seen: dict[str, int] = dict.fromkeys(("loud", "several", "merged", "none"), 0)
    for stream in range(40):
        told = random_release(stream)
        told = replace(told, units=tuple(replace(u, groups=frozenset({0})) for u in told.units))
        seen["several"] += len(set(told.pool_of.values())) < len(told.pool_of)
        apart = contrast(told, "combined", 1, same_shares=False)
        together = contrast(told, "combined", 1, same_shares=True)
        seen["none"] += apart is None
        seen["merged"] += (together.n_units if together else 0) > (apart.n_units if apart else 0)
        loud = contrast(replace(told, noise_scale=100.0), "combined", 1)
        seen["loud"] += loud is not None and loud.kurtosis > 0.3
    assert min(seen.values()) >= 3, seen


def numbers(one: Estimate) -> list[float]:
    return [math.nan if x is None else float(x) for x in astuple(one) if not isinstance(x, str)]


@pytest.mark.parametrize("stream", [1, 2, 3, 5, 8, 13])
def test_groups_together_are_each_of_them_alone(stream: int) -> None:
    told = random_release(stream)
    arms = [f"arm {arm}" for arm in range(max(unit.arm for unit in told.units) + 1)]
    assert len(arms) > 1
    assert all(any(group in unit.groups for unit in told.units) for group in range(3))
    names = ("a", "b", "c")
    together = effects(evidence_of(told), arms, "arm 0", names, same_shares=True)
    for group, name in enumerate(names):
        mine = [
            replace(unit, groups=frozenset({0} if group in unit.groups else ()))
            for unit in told.units
        ]
        evidence = evidence_of(replace(told, units=tuple(mine)))
        alone = effects(evidence, arms, "arm 0", [name], same_shares=True)
        own = [one for one in together if one.segment == name]
        assert [(o.arm, o.estimator) for o in own] == [(o.arm, o.estimator) for o in alone]
        for one, other in zip(own, alone, strict=True):
            # The same sums in the same order, but for where a merged stratum stands.
            assert numbers(one) == pytest.approx(numbers(other), rel=1e-9, abs=1e-9, nan_ok=True)


LARGE = [[1.0, 2.0, 4.0] * 2, [3.0, 5.0, 7.0] * 2]
"""A cluster that can be compared on its own: control, treated; a difference of 8/3."""


def only(found: list[Estimate]) -> Estimate:
    assert len(found) == 1
    return found[0]


def estimated(given_: Told, *, same_shares: bool) -> Estimate:
    return only(
        effects(
            evidence_of(given_), ["control", "drug"], "control", [None], same_shares=same_shares
        )
    )


@pytest.mark.parametrize(
    "small",
    [
        pytest.param([[[0.0], [9.0, 9.5]], [[1.0, 2.0], [8.0]]], id="an arm with one unit"),
        pytest.param([[[], [9.0, 9.5]], [[0.0, 1.0], []]], id="an arm without units"),
    ],
)
def test_small_clusters_are_merged_where_arms_have_the_same_shares(small: Units) -> None:
    merged = [[v for cluster in small for v in cluster[arm]] for arm in (0, 1)]
    found = estimated(trial(LARGE, *small), same_shares=True)
    expected = estimated(trial(LARGE, merged), same_shares=True)
    assert found.estimate == pytest.approx(
        expected.estimate, rel=1e-14, abs=0
    )  # the order of a sum
    assert found.n_units == 12 + sum(map(len, merged))
    if not all(len(arm) for cluster in small for arm in cluster):
        # Arms that never meet in a cluster leave nothing to compare by twos: units vary as they do.
        assert found.std_error == pytest.approx(expected.std_error, rel=1e-14, abs=0)  # as above


def merged_variance(*clusters: list[list[float]]) -> float:
    evidence = evidence_of(trial(*clusters))
    return float(contrasts(evidence, "tau_q", 1, 0, 1, same_shares=True).variance[0])


def test_merged_clusters_are_compared_by_twos() -> None:
    """Four of one size, paired by name: Σ (τ̂_j − τ̂_k)²/4² over both pairs."""
    four = [[[0.0, 2.0], [5.0]], [[7.0, 9.0], [9.0]], [[1.0, 1.0], [3.0]], [[4.0, 5.0], [10.0]]]
    # Effects of 4, 1, 2 and 5.5.
    expected = ((4 - 1) ** 2 + (2 - 5.5) ** 2) / 4**2
    assert merged_variance(*four) == pytest.approx(expected, rel=1e-12)


def test_an_odd_cluster_goes_with_the_last_two() -> None:
    """Five of one size: a pair, and three with 3/2 of their squares about their mean."""
    effects_ = [4.0, 1.0, 2.0, 5.5, 3.0]
    five = [[[0.0 + at, 2.0 + at], [1.0 + at + effect]] for at, effect in enumerate(effects_)]
    last = np.array(effects_[2:])
    expected = ((4 - 1) ** 2 + 3 / 2 * np.sum((last - last.mean()) ** 2)) / 5**2
    assert merged_variance(*five) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("factor", [1.0, 1e-9, 1e9, 1 / 3, 0.1, 0.7])
def test_pairs_whose_effects_differ_by_rounding_alone_have_a_variance_of_zero(
    factor: float,
) -> None:
    """z is no outcome's: it is measured from means over all clusters, which are rounded."""
    outcomes = [(0.1, 0.0), (0.8, 0.7), (0.0, 0.0), (0.7, 0.7), (0.7, 0.0), (0.8, 0.1)]
    alike = [[[none * factor], [mail * factor]] for mail, none in outcomes]
    assert merged_variance(*alike) == 0.0
    alike[0][1][0] += 1e-7 * factor
    assert merged_variance(*alike) == pytest.approx((1e-7 * factor) ** 2 / 6**2, rel=1e-6)


def test_how_clusters_differ_is_no_part_of_their_variance_by_twos() -> None:
    first = [[[0.0, 2.0], [5.0]], [[1.0, 3.0], [2.0]], [[1.0, 1.0], [3.0]], [[0.0, 1.0], [3.0]]]
    far = [
        [[value + 20 * at for value in arm] for arm in cluster] for at, cluster in enumerate(first)
    ]
    assert merged_variance(*far) == pytest.approx(merged_variance(*first), rel=1e-9)


def test_pairs_of_one_size_are_made_by_name_whatever_their_outcomes() -> None:
    """And whatever each got; sizes come before names: the second and the fourth are alike."""
    clusters = [
        [[0.0, 2.0], [5.0]], [[7.0], [9.0, 9.0, 8.0]], [[1.0], [3.0, 1.0]], [[4.0, 1.0, 1.0], [1.]],
    ]  # fmt: skip
    for change in (0.0, 3.0):
        clusters[0][1][0] = 5.0 + change
        found = contrast_strata(evidence_of(trial(*clusters)).slices, 1, 0, same_shares=True)
        member = {
            cluster: int(at)
            for cluster, at in zip(
                evidence_of(trial(*clusters)).slices.cluster[found.treated.rows].tolist(),
                found.treated.member,
                strict=True,
            )
        }
        pair = {cluster: int(found.merged.pair[at]) for cluster, at in member.items()}
        assert pair[0] == pair[2] != pair[1] == pair[3]


def test_the_variance_is_brought_to_zero_once_and_not_stratum_by_stratum() -> None:
    """A stratum that seems to vary by less than nothing takes from one that seems to by more.

    With λ = ½ and a prior of both ends, outcomes of −1 and 1 are debiased to −2 and 2 and their
    squares, all 1, to 1: Ŝ² = n/(n − 1)·[1 − μ̂² + V̂(μ̂)], V̂(μ̂) = 2·(1 + ½)/n. For four alike that is
    4/3·(1 − 4 + 3/4) = −3, for two of each 4/3·(1 − 0 + 3/4) = 7/3.
    """
    alike, mixed = [1.0] * 4, [-1.0, -1.0, 1.0, 1.0]

    def variance_of(*arms: list[float]) -> float:
        units = tuple(
            Unit(cluster, arm, value)
            for cluster, values in enumerate(arms)
            for arm in (0, 1)
            for value in values
        )
        cells = {
            (cluster, arm): Cell((0.5, 0.5), (0, 0), 0.0, 0.0)
            for cluster in range(len(arms))
            for arm in (0, 1)
        }
        pools = {cluster: cluster for cluster in range(len(arms))}
        told = Told((-1.0, 1.0), 0.5, units, pools, cells, 1.0)
        found = contrasts(evidence_of(told), "combined", 1, 0, 1, same_shares=False)
        return float(found.variance[0] - found.noise_variance[0])

    assert variance_of(alike) == 0.0
    found = variance_of(alike, mixed, mixed, mixed)
    assert found == pytest.approx(2 * (-3 + 3 * 7 / 3) / 4 / 4**2, rel=1e-12)


@pytest.mark.parametrize(
    "small", [[[0.0], [9.0, 9.5]], [[0.0, 1.0], []], [[], [3.0]], [[0.0], [1.0]]]
)
@pytest.mark.parametrize("same_shares", [False, True])
def test_a_cluster_that_cannot_be_compared_is_left_out_and_not_counted(
    small: list[list[float]], same_shares: bool
) -> None:
    """With the same shares, too: alone it stays too small, as there is nothing to merge with."""
    found = estimated(trial(LARGE, small), same_shares=same_shares)
    alone = estimated(trial(LARGE), same_shares=same_shares)
    assert found == replace(alone, n_segment=found.n_segment, coverage=found.coverage)
    assert found.n_units == 12
    assert found.n_segment == 12 + sum(map(len, small))
    assert found.coverage == 12 / found.n_segment
    assert found.estimate == pytest.approx(8 / 3, rel=1e-15, abs=0)  # two roundings


def test_without_the_same_shares_small_clusters_are_left_out_though_they_could_be_merged() -> None:
    small = [[[0.0], [9.0, 9.5]], [[1.0, 2.0], [8.0]]]
    assert estimated(trial(LARGE, *small), same_shares=False).n_units == 12
    assert estimated(trial(LARGE, *small), same_shares=True).n_units == 18


def test_a_merged_contrast_weights_clusters_by_their_units_in_each_arm() -> None:
    """Which is why the arms' shares must be the same: it is not the mean of two differences."""
    found = estimated(trial([[0.0], [10.0, 10.0]], [[1.0, 1.0], [11.0]]), same_shares=True)
    assert found.estimate == pytest.approx(31 / 3 - 2 / 3, rel=1e-15, abs=0)  # three roundings


def test_weights_count_the_units_of_all_arms() -> None:
    """A third arm of 90 makes the first cluster's weight 94, though the contrast has 4 of it."""
    first = [[0.0, 1.0], [5.0, 6.0], [0.0] * 90]
    second = [[0.0, 1.0], [1.0, 2.0], [0.0, 1.0]]
    found = effects(
        evidence_of(trial(first, second)),
        ["control", "drug", "other"],
        "control",
        [None],
        same_shares=False,
    )
    assert found[0].estimate == pytest.approx(
        (94 * 5 + 6 * 1) / 100, rel=1e-14, abs=0
    )  # a few roundings
    assert found[0].n_units == 100


def strata_weights(given_: Told, *, same_shares: bool) -> list[float]:
    found = contrast_strata(evidence_of(given_).slices, 1, 0, same_shares=same_shares)
    return [float(weight) for weight in found.weight]


def test_a_merged_stratum_counts_the_units_of_all_arms_too() -> None:
    clusters = [[[0.0], [1.0], [0.0] * 7], [[0.0], [1.0], [0.0] * 8]]
    found = contrast_strata(evidence_of(trial(*clusters)).slices, 1, 0, same_shares=True)
    assert found.weight.tolist() == [19.0]
    assert found.treated.stratum.tolist() == found.control.stratum.tolist() == [0, 0]


def test_a_small_cluster_with_neither_arm_of_a_contrast_is_merged_by_its_size() -> None:
    """Not by what it happened to get: who is in the merged stratum would follow that otherwise."""
    empty: list[list[float]] = [[], [], [1.0, 2.0, 3.0]]
    large = [*LARGE, [0.0] * 6]
    assert strata_weights(trial(large, empty, [[0.0], [1.0], []]), same_shares=False) == [18.0]
    more = [[0.0], [1.0], []]
    assert strata_weights(trial(large, empty, more, more), same_shares=True) == [18.0, 7.0]


def test_every_treatment_arm_is_compared_with_control_in_the_order_of_the_arms() -> None:
    arms = [[3.0, 4.0], [0.0, 1.0], [7.0, 8.0]]  # the second is control
    found = effects(
        evidence_of(trial(arms)), ["b", "control", "a"], "control", [None], same_shares=False
    )
    assert [(one.arm, one.control) for one in found] == [("b", "control"), ("a", "control")]
    assert [one.estimate for one in found] == [3.0, 7.0]
    assert [one.estimator for one in found] == ["tau_q", "tau_q"]


def test_arms_that_cannot_be_compared_have_no_numbers_and_cover_nobody() -> None:
    found = effects(
        evidence_of(trial([[0.0, 1.0], [5.0, 6.0], [9.0]])),
        ["control", "drug", "rare"],
        "control",
        [None],
        same_shares=True,
    )
    assert found[0].estimate == 5.0
    assert found[0].p_value_holm == found[0].p_value  # one hypothesis is left
    numbers = {name for name, value in asdict(found[1]).items() if value is not None}
    assert numbers == {
        "metric", "arm", "control", "estimator", "confidence_level", "n_units", "n_segment",
        "coverage",
    }  # fmt: skip
    assert (found[1].n_units, found[1].n_segment, found[1].coverage) == (0, 5, 0.0)


def test_without_any_treatment_there_is_nothing_to_compare() -> None:
    assert effects(evidence_of(trial([[0.0, 1.0]])), ["c"], "c", [None], same_shares=True) == []


def test_outcomes_that_are_all_equal_have_no_error_and_no_bounds() -> None:
    found = estimated(trial([[1.0] * 4, [3.0] * 4]), same_shares=False)
    assert found.estimate == 2.0
    assert found.std_error == 0.0
    assert found.ci_lower is found.ci_upper is found.p_value is found.p_value_holm is None
    assert found.minimum_detectable_effect is None
    assert found.relative is found.relative_ci_lower is found.relative_ci_upper is None


def test_the_error_is_never_less_than_the_noise_alone() -> None:
    """Outputs that are all alike show nothing of how outcomes vary: the noise, and no bounds."""
    alike = replace(trial([[1.0] * 4, [1.0] * 4]), rate=0.5)
    found = estimated(alike, same_shares=False)
    assert found.privacy_std_error
    assert found.std_error == found.privacy_std_error
    assert found.control_std_error == pytest.approx(found.std_error / math.sqrt(2))
    assert found.ci_lower is found.ci_upper is found.p_value is None


def test_the_skewness_of_an_effect_is_that_of_its_sum() -> None:
    """Σ b³ μ₃ (1/n₁² − 1/n₀²)/V^{3/2} of outcomes with one law; equal arms cancel it."""
    evidence = replace(evidence_of(trial([[0.0] * 18, [0.0, 1.0]])), skewness=7.0)
    (found,) = effects(evidence, ["none", "mail"], "none", [None], same_shares=False)
    wanted = 7 * (1 / 2**2 - 1 / 18**2) / (1 / 2 + 1 / 18) ** 1.5
    assert found.skewness == pytest.approx(wanted, rel=1e-12)
    (warning,) = coverage_warnings([found], same_shares=False)
    assert "may not hold" in warning
    even = replace(evidence_of(trial([[0.0] * 9, [0.0] * 9])), skewness=7.0)
    found = only(effects(even, ["none", "mail"], "none", [None], same_shares=False))
    assert found.skewness == 0.0
    assert coverage_warnings([found], same_shares=False) == ()


@pytest.mark.parametrize("times", [1, 2, 100, 1e6])
@pytest.mark.parametrize("small", [200, 2_000, 1e6])
def test_twenty_events_in_each_arm_are_enough_for_an_interval(small: float, times: float) -> None:
    """At one rate; the small arm has 20 of them."""
    rate, sizes = 20 / small, np.array([small * times, small])
    skewness = (1 - 2 * rate) / math.sqrt(rate * (1 - rate))
    assert not is_skew(
        skewness * (1 / sizes[1] ** 2 - 1 / sizes[0] ** 2) / (1 / sizes).sum() ** 1.5
    )


def test_one_arm_of_equal_outcomes_leaves_the_error_of_the_other() -> None:
    evidence = evidence_of(trial([[1.0] * 4, [3.0, 5.0, 7.0]]))
    found = contrasts(evidence, "tau_q", 1, 0, 1, same_shares=True)
    # s² = 4 over n = 3, and the degrees of freedom of one arm of three.
    assert found.variance[0] == pytest.approx(4 / 3, rel=1e-15, abs=0)
    assert found.degrees_of_freedom[0] == pytest.approx(2, rel=1e-15, abs=0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(2, 30), st.floats(0.1, 10))
def test_in_a_single_cluster_it_is_welchs_test(
    stream: int, n_control: int, n_treated: int, ratio: float
) -> None:
    """With the degrees of freedom of 1947, which are the true ones on average."""
    generator = np.random.default_rng(stream)
    control = generator.normal(3, 1, n_control)
    treated = generator.normal(3.5, ratio, n_treated)
    found = estimated(trial([control.tolist(), treated.tolist()]), same_shares=False)
    parts = [(one.var(ddof=1) / len(one), len(one)) for one in (treated, control)]
    variance = sum(part for part, _ in parts)
    freedom = max(variance**2 / sum(part**2 / (n + 1) for part, n in parts) - 2, 1)
    effect, error = treated.mean() - control.mean(), math.sqrt(variance)
    reach = student.ppf(0.975, freedom) * error
    # Two implementations of Student's t.
    assert found.p_value == pytest.approx(2 * student.sf(abs(effect) / error, freedom), rel=1e-7)
    assert found.ci_lower == pytest.approx(effect - reach, rel=1e-7, abs=1e-7)
    assert found.ci_upper == pytest.approx(effect + reach, rel=1e-7, abs=1e-7)


COUNTED = Told(
    grid=(0.0, 1.0, 2.0),
    rate=0.25,
    units=tuple(
        Unit(cluster, arm, float((3 * cluster + 5 * arm + i * i) % 3 if i % 4 else arm % 3))
        for cluster in range(3)
        for arm in range(4)
        for i in range(12 + 3 * arm)
    ),
    pool_of={0: 0, 1: 1, 2: 1},
    cells={
        (pool, arm): Cell((0.2, 0.3, 0.5), (3 + arm, 4, 5 + 2 * arm), 0.4, 0.7)
        for pool in range(2)
        for arm in range(4)
    },
    noise_scale=1.5,
)
"""A release with counts: two of three clusters share a pool."""
ARMS = ["control", "a", "b", "c"]


def test_an_estimate_is_described_with_its_interval_its_noise_and_its_lift() -> None:
    found = effects(evidence_of(COUNTED), ARMS, "control", [None], same_shares=True, level=0.9)
    assert [(one.estimator, one.arm) for one in found] == [
        (name, arm) for name in ESTIMATORS for arm in "abc"
    ]
    for one in found:
        known = contrast(COUNTED, one.estimator, ARMS.index(one.arm), same_shares=True)
        assert known is not None
        error, law = math.sqrt(known.variance), (known.degrees_of_freedom, known.kurtosis)
        expected = {
            "estimate": known.estimate,
            "std_error": error,
            "privacy_std_error": math.sqrt(known.noise_variance),
            "ci_lower": known.estimate - quantile(0.9, *law) * error,
            "ci_upper": known.estimate + quantile(0.9, *law) * error,
            "p_value": p_value(abs(known.estimate) / error, *law),
            "minimum_detectable_effect": (quantile(0.9, *law) + quantile(0.6, *law)) * error,
            "kurtosis": known.kurtosis,
        }
        for name, number in expected.items():
            assert getattr(one, name) == pytest.approx(number, rel=1e-8), name
        assert (one.confidence_level, one.n_units, one.segment) == (0.9, 198, None)
        if one.relative is not None:
            assert one.relative == pytest.approx(known.treated_mean / known.control_mean - 1)
            assert one.relative_ci_lower is not None
            assert one.relative_ci_upper is not None
            assert one.relative_ci_lower < one.relative < one.relative_ci_upper
    assert any(one.relative is not None for one in found)


def test_p_values_are_adjusted_within_an_estimator_and_a_segment() -> None:
    halves = [replace(u, groups=frozenset({i % 2})) for i, u in enumerate(COUNTED.units)]
    evidence = evidence_of(replace(COUNTED, units=tuple(halves)))
    found = effects(evidence, ARMS, "control", ["even", "odd"], same_shares=True)
    assert len(found) == 2 * 2 * 3
    for name in ("tau_q", "combined"):
        for segment in ("even", "odd"):
            own = [one for one in found if (one.estimator, one.segment) == (name, segment)]
            own.sort(key=lambda one: one.p_value or 0)
            raised = 0.0
            for nth, one in enumerate(own):
                assert one.p_value is not None
                raised = max(raised, min(1.0, one.p_value * (3 - nth)))
                assert one.p_value_holm == pytest.approx(raised, rel=1e-12)


def test_only_the_whole_has_the_histogram() -> None:
    evidence = evidence_of(COUNTED)
    whole = effects(evidence, ARMS, "control", [None], same_shares=True)
    segment = effects(evidence, ARMS, "control", ["everyone"], same_shares=True)
    assert {one.estimator for one in whole} == set(ESTIMATORS)
    assert {one.estimator for one in segment} == {"tau_q", "combined"}
    both = [[one for one in found if one.estimator != "histogram"] for found in (whole, segment)]
    assert [replace(one, segment="everyone") for one in both[0]] == both[1]


def test_coverage_is_the_share_of_those_meant_that_are_compared() -> None:
    told = trial([[1.0, 3.0], [2.0, 5.0]], [[4.0, 6.0, 8.0], [7.0]])
    (apart,) = effects(evidence_of(told), ["c", "t"], "c", [None], same_shares=False)
    assert (apart.n_units, apart.n_segment, apart.coverage) == (4, 8, 0.5)
    (nobody,) = effects(
        evidence_of(trial([[4.0], [7.0]])), ["c", "t"], "c", [None], same_shares=False
    )
    assert (nobody.n_units, nobody.n_segment, nobody.coverage) == (0, 2, 0.0)
    assert nobody.estimate is None


def test_the_histogram_leaves_out_of_its_coverage_whom_it_leaves_out() -> None:
    found = effects(evidence_of(COUNTED), ARMS, "control", [None], same_shares=False)
    covered = {(one.estimator, one.coverage) for one in found}
    assert covered == {("tau_q", 1.0), ("histogram", 66 / 198), ("combined", 1.0)}
    assert {one.metric for one in found} == {"outcome"}


def test_shared_pools_have_no_histogram_unless_arms_have_the_same_shares() -> None:
    evidence = evidence_of(COUNTED)
    apart = effects(evidence, ARMS, "control", [None], same_shares=False)
    together = effects(evidence, ARMS, "control", [None], same_shares=True)
    assert {one.n_units for one in apart if one.estimator == "histogram"} == {66}
    assert {one.n_units for one in together if one.estimator == "histogram"} == {198}
    shared = replace(COUNTED, pool_of=dict.fromkeys(range(3), 0))
    shared = replace(shared, cells={k: v for k, v in COUNTED.cells.items() if k[0] == 0})
    found = effects(evidence_of(shared), ARMS, "control", [None], same_shares=False)
    assert {one.estimator for one in found} == {"tau_q", "combined"}


def test_laplace_noise_gives_an_effect_its_kurtosis() -> None:
    """That of four numbers of kurtosis 3; it has nothing to do with degrees of freedom."""
    loud = replace(COUNTED, noise_scale=3e3, pool_of=dict.fromkeys(range(3), 0))
    found = contrasts(evidence_of(loud), "histogram", 1, 0, 1, same_shares=True)
    second, fourth = laplace_cumulants(1e2)
    assert fourth / second**2 == pytest.approx(3, rel=1e-3)
    # M = Σ (y − ȳ) Ñ / n has two numbers an arm, ±1 beside 0; arms have 36 and 45 units.
    parts = [2 / n**2 for n in (36, 45)]
    kurtosis = 3 * sum(2 / n**4 for n in (36, 45)) / sum(parts) ** 2
    assert found.kurtosis[0] == pytest.approx(kurtosis, rel=1e-3)
    assert found.degrees_of_freedom[0] > 4 + 6 / kurtosis


def test_the_variance_of_outcomes_stays_within_what_the_grid_allows() -> None:
    """Counts far off make squares and means that no outcomes have."""
    for counts, least in (((500, -900, 500), False), ((-400, 900, -400), True)):
        cells = {key: replace(cell, noisy=counts) for key, cell in COUNTED.cells.items()}
        told = replace(COUNTED, cells=cells)
        found = contrasts(evidence_of(told), "combined", 1, 0, 1, same_shares=True)
        sampling = found.variance[0] - found.noise_variance[0]
        if least:
            assert sampling == 0
        else:
            assert 0 < sampling < 1.0 / 11 * 2  # a spread of 1 at most, over 12 and 15 units each
