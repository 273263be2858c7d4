"""τ̂_Q against a transcription that knows every unit, and its treatment of small clusters.

A cluster's weight counts its units of all arms, also of those outside the contrast: the effect is
that on the whole population of the clusters compared.
"""

import math
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import ttest_ind

from estimators.effects import (
    Contrast,
    Estimate,
    StratumMeans,
    comparable_strata,
    contrast,
    describe,
    tau_q,
)

Floats = NDArray[np.float64]
Units = list[list[list[float]]]
"""Debiased outcomes of every unit, by cluster and arm."""


@dataclass(frozen=True)
class Trial:
    """Every unit's debiased outcome, and a noise variance for each stratum."""

    units: Units
    noise: list[list[float]]

    @property
    def strata(self) -> StratumMeans:
        """What the estimators are given of it: NaN where there is nothing to say."""
        return StratumMeans(
            n_units=np.array([[float(len(arm)) for arm in arms] for arms in self.units]),
            mean=np.array([[fmean(arm) if arm else np.nan for arm in arms] for arms in self.units]),
            variance=np.array(
                [[variance(arm) if len(arm) > 1 else np.nan for arm in arms] for arms in self.units]
            ),
            noise_variance=np.where(
                [[bool(arm) for arm in arms] for arms in self.units], self.noise, np.nan
            ),
        )


def trial(*clusters: list[list[float]]) -> Trial:
    """A trial whose strata all have the noise variance 0.01."""
    return Trial(list(clusters), [[0.01] * len(arms) for arms in clusters])


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    n_clusters, n_arms = draw(st.integers(1, 6)), draw(st.integers(2, 4))
    outcomes = st.lists(st.floats(-100, 100).map(lambda value: round(value, 2)), max_size=6)
    noises = st.lists(st.floats(0.001, 10), min_size=n_arms, max_size=n_arms)
    arms = st.lists(outcomes, min_size=n_arms, max_size=n_arms)
    return Trial(
        draw(st.lists(arms, min_size=n_clusters, max_size=n_clusters)),
        draw(st.lists(noises, min_size=n_clusters, max_size=n_clusters)),
    )


@dataclass(frozen=True)
class Group:
    """A stratum of the estimator: one cluster, or several merged."""

    treated: list[float]
    control: list[float]
    noise: tuple[float, float]
    """Noise variances of the two means."""
    weight: int


def merged_noise(units: Units, noise: list[list[float]], arm: int) -> float:
    """The noise variance of the mean of several clusters' units in an arm."""
    total = sum(len(arms[arm]) for arms in units)
    return sum(
        (len(arms[arm]) / total) ** 2 * own[arm]
        for arms, own in zip(units, noise, strict=True)
        if arms[arm]
    )


def groups(given_: Trial, arm: int, *, same_shares: bool) -> list[Group]:
    """Clusters with two units in arm and control (0), and the rest in one group if it may be."""
    found, rest = [], []
    for arms, noise in zip(given_.units, given_.noise, strict=True):
        if min(len(arms[arm]), len(arms[0])) >= 2:
            own = (noise[arm], noise[0])
            found.append(Group(arms[arm], arms[0], own, sum(map(len, arms))))
        elif arms[arm] or arms[0]:
            rest.append((arms, noise))
    units, noises = [arms for arms, _ in rest], [noise for _, noise in rest]
    treated = [value for arms in units for value in arms[arm]]
    control = [value for arms in units for value in arms[0]]
    if same_shares and min(len(treated), len(control)) >= 2:
        both = (merged_noise(units, noises, arm), merged_noise(units, noises, 0))
        found.append(Group(treated, control, both, sum(len(a) for arms in units for a in arms)))
    return found


def brute_force(given_: Trial, arm: int, *, same_shares: bool) -> Contrast | None:
    """τ̂_Q, V̂ and the degrees of freedom, unit by unit."""
    found = groups(given_, arm, same_shares=same_shares)
    if not found:
        return None
    whole = sum(group.weight for group in found)
    means, spreads, scatter, noise = [0.0, 0.0], [0.0, 0.0], 0.0, 0.0
    for group in found:
        share = group.weight / whole
        for side, values in enumerate((group.treated, group.control)):
            spread = share**2 * variance(values) / len(values)
            means[side] += share * fmean(values)
            spreads[side] += spread
            scatter += spread**2 / (len(values) - 1)
            noise += share**2 * group.noise[side]
    total = sum(spreads)
    degrees = total**2 / scatter if scatter > 0 else math.inf
    return Contrast(
        means[0] - means[1],
        total,
        noise,
        degrees,
        whole,
        means[0],
        spreads[0],
        means[1],
        spreads[1],
    )  # fmt: skip - estimate and error, then the two sides


def assert_same(found: Contrast, expected: Contrast) -> None:
    assert found.n_units == expected.n_units
    for name in ("estimate", "treated_mean", "control_mean"):
        # Means of numbers up to 100, in doubles.
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-11)
    for name in ("variance", "noise_variance", "treated_variance", "control_variance"):
        # Mean squares of numbers up to 100 that may nearly cancel: 1e4 · 1e-16, and some.
        wanted = getattr(expected, name)
        assert getattr(found, name) == pytest.approx(wanted, rel=1e-9, abs=1e-11)
    if expected.variance > 0:  # at least 1e-9, as outcomes that differ do so by 0.01
        wanted = expected.degrees_of_freedom
        assert found.degrees_of_freedom == pytest.approx(wanted, rel=1e-5, abs=0)  # 1e-11 / 1e-9


@settings(max_examples=300, deadline=None)
@given(trials(), st.booleans())
def test_tau_q_is_that_of_the_brute_force_transcription(given_: Trial, same_shares: bool) -> None:
    strata = given_.strata
    for arm in range(1, strata.n_units.shape[1]):
        expected = brute_force(given_, arm, same_shares=same_shares)
        found = contrast(*comparable_strata(strata, arm, 0, same_shares=same_shares))
        if expected is None or found is None:
            assert found is expected
            continue
        assert_same(found, expected)


LARGE = [[1.0, 2.0, 4.0], [3.0, 5.0, 7.0]]
"""A cluster that can be compared on its own: control, treated; a difference of 8/3."""


def only(found: list[Estimate]) -> Estimate:
    assert len(found) == 1
    return found[0]


def estimated(given_: Trial, *, same_shares: bool) -> Estimate:
    return only(tau_q(given_.strata, ["control", "drug"], "control", same_shares=same_shares))


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
    assert found.std_error == pytest.approx(expected.std_error, rel=1e-14, abs=0)  # as above
    assert found.n_units == 6 + sum(map(len, merged))


@pytest.mark.parametrize(
    "small", [[[0.0], [9.0, 9.5]], [[0.0, 1.0], []], [[], [3.0]], [[0.0], [1.0]]]
)
@pytest.mark.parametrize("same_shares", [False, True])
def test_a_cluster_that_cannot_be_compared_is_left_out_and_not_counted(
    small: list[list[float]], same_shares: bool
) -> None:
    """With the same shares, too: alone it stays too small, as there is nothing to merge with."""
    found = estimated(trial(LARGE, small), same_shares=same_shares)
    assert found == estimated(trial(LARGE), same_shares=same_shares)
    assert found.n_units == 6
    assert found.estimate == pytest.approx(8 / 3, rel=1e-15, abs=0)  # two roundings


def test_without_the_same_shares_small_clusters_are_left_out_though_they_could_be_merged() -> None:
    small = [[[0.0], [9.0, 9.5]], [[1.0, 2.0], [8.0]]]
    assert estimated(trial(LARGE, *small), same_shares=False).n_units == 6
    assert estimated(trial(LARGE, *small), same_shares=True).n_units == 12


def test_a_merged_contrast_weights_clusters_by_their_units_in_each_arm() -> None:
    """Which is why the arms' shares must be the same: it is not the mean of two differences."""
    found = estimated(trial([[0.0], [10.0, 10.0]], [[1.0, 1.0], [11.0]]), same_shares=True)
    assert found.estimate == pytest.approx(31 / 3 - 2 / 3, rel=1e-15, abs=0)  # three roundings


def test_weights_count_the_units_of_all_arms() -> None:
    """A third arm of 90 makes the first cluster's weight 94, though the contrast has 4 of it."""
    first = [[0.0, 1.0], [5.0, 6.0], [0.0] * 90]
    second = [[0.0, 1.0], [1.0, 2.0], [0.0, 1.0]]
    found = tau_q(
        trial(first, second).strata, ["control", "drug", "other"], "control", same_shares=False
    )
    assert found[0].estimate == pytest.approx(
        (94 * 5 + 6 * 1) / 100, rel=1e-14, abs=0
    )  # a few roundings
    assert found[0].n_units == 100


def test_a_merged_stratum_counts_the_units_of_all_arms_too() -> None:
    clusters = [[[0.0], [1.0], [0.0] * 7], [[0.0], [1.0], [0.0] * 8]]
    strata, weights = comparable_strata(trial(*clusters).strata, 1, 0, same_shares=True)
    assert weights.tolist() == [19.0]
    assert strata.n_units.tolist() == [[2.0, 2.0]]


def test_a_cluster_with_neither_arm_of_a_contrast_does_not_count_in_it() -> None:
    empty: list[list[float]] = [[], [], [1.0, 2.0, 3.0]]
    large = [*LARGE, [0.0]]
    for same_shares in (False, True):
        _, weights = comparable_strata(trial(large, empty).strata, 1, 0, same_shares=same_shares)
        assert weights.tolist() == [7.0]


def test_every_treatment_arm_is_compared_with_control_in_the_order_of_the_arms() -> None:
    arms = [[3.0, 4.0], [0.0, 1.0], [7.0, 8.0]]  # the second is control
    found = tau_q(trial(arms).strata, ["b", "control", "a"], "control", same_shares=False)
    assert [(one.arm, one.control) for one in found] == [("b", "control"), ("a", "control")]
    assert [one.estimate for one in found] == [3.0, 7.0]
    assert [one.estimator for one in found] == ["tau_q", "tau_q"]


def test_arms_that_cannot_be_compared_have_no_numbers_and_cover_nobody() -> None:
    found = tau_q(
        trial([[0.0, 1.0], [5.0, 6.0], [9.0]]).strata,
        ["control", "drug", "rare"],
        "control",
        same_shares=True,
    )
    assert found[0].estimate == 5.0
    assert found[1] == describe(None, "rare", "control", "tau_q", 0.95)
    assert found[1].n_units == 0
    assert found[1].estimate is found[1].std_error is found[1].ci_lower is found[1].p_value is None


def test_outcomes_that_are_all_equal_have_no_error_and_no_bounds() -> None:
    found = estimated(trial([[1.0] * 4, [3.0] * 4]), same_shares=False)
    assert found.estimate == 2.0
    assert found.std_error == 0.0
    assert found.ci_lower is found.ci_upper is found.p_value is None
    assert found.relative is found.relative_ci_lower is found.relative_ci_upper is None


def test_one_arm_of_equal_outcomes_leaves_the_error_of_the_other() -> None:
    found = contrast(
        *comparable_strata(trial([[1.0] * 4, LARGE[1]]).strata, 1, 0, same_shares=True)
    )
    assert found is not None
    assert found.variance == pytest.approx(4 / 3, rel=1e-15, abs=0)  # s² = 4 over n = 3
    assert found.degrees_of_freedom == pytest.approx(
        2, rel=1e-15, abs=0
    )  # those of one arm of three


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(2, 30), st.floats(0.1, 10))
def test_in_a_single_cluster_it_is_welchs_test(
    stream: int, n_control: int, n_treated: int, ratio: float
) -> None:
    """Satterthwaite's degrees of freedom are Welch's there."""
    generator = np.random.default_rng(stream)
    control = generator.normal(3, 1, n_control)
    treated = generator.normal(3.5, ratio, n_treated)
    found = estimated(trial([control.tolist(), treated.tolist()]), same_shares=False)
    welch = ttest_ind(treated, control, equal_var=False)
    interval = welch.confidence_interval(0.95)
    # Two implementations of Student's t.
    assert found.p_value == pytest.approx(float(welch.pvalue), rel=1e-7, abs=0)
    assert found.ci_lower == pytest.approx(float(interval.low), rel=1e-7, abs=1e-7)
    assert found.ci_upper == pytest.approx(float(interval.high), rel=1e-7, abs=1e-7)


def test_an_estimate_is_described_with_its_interval_its_noise_and_its_lift() -> None:
    found = describe(
        Contrast(
            estimate=2.0,
            variance=0.25,
            noise_variance=0.04,
            degrees_of_freedom=math.inf,
            n_units=100,
            treated_mean=12.0,
            treated_variance=0.16,
            control_mean=10.0,
            control_variance=0.09,
        ),
        "drug",
        "control",
        "tau_q",
        0.9,
    )
    assert (found.estimate, found.std_error, found.n_units) == (2.0, 0.5, 100)
    assert found.privacy_std_error == pytest.approx(0.2, rel=1e-15, abs=0)  # a square root
    assert found.confidence_level == 0.9
    assert found.ci_upper == pytest.approx(2 + 1.6448536 * 0.5, abs=1e-7)  # digits given
    assert found.relative == pytest.approx(0.2, rel=1e-14, abs=0)  # a division and a difference
    assert found.relative_ci_lower is not None
    assert found.relative_ci_upper is not None
    assert found.relative_ci_lower < 0.2 < found.relative_ci_upper
