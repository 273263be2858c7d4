"""Arms' own means: by hand, and as the two sides of an effect."""

import math
import statistics
from dataclasses import replace

import pytest

from estimators.arm_effects import effects
from estimators.means import Mean, means
from tests.estimators.test_arm_effects import ARMS, COUNTED, trial
from tests.estimators.told_release import Told, evidence_of, random_release

_EVERYBODY = frozenset({0})


def by_name(found: list[Mean]) -> dict[tuple[str, str], Mean]:
    return {(one.estimator, one.arm): one for one in found}


@pytest.mark.parametrize("same_shares", [False, True])
def test_where_both_arms_have_the_same_strata_two_means_make_the_effect(same_shares: bool) -> None:
    evidence = evidence_of(COUNTED)
    found = by_name(means(evidence, ARMS, same_shares=same_shares))
    estimates = effects(evidence, ARMS, "control", [None], same_shares=same_shares)
    assert len(found) == len(ARMS) * len({one.estimator for one in estimates})
    for one in estimates:
        treated, control = (found[one.estimator, arm] for arm in (one.arm, "control"))
        assert one.estimate == pytest.approx(treated.mean - control.mean, rel=1e-9, abs=1e-12)
        both = math.hypot(treated.std_error, control.std_error)
        # Each mean of tau_q has at least its own noise, and the effect that of both.
        noisy = (one.privacy_std_error or 0.0) if one.estimator == "tau_q" else both
        assert one.std_error is not None
        assert noisy * (1 - 1e-9) <= one.std_error <= both * (1 + 1e-9)


LONELY = trial(
    [[1.0, 3.0, 8.0], [2.0, 4.0]],  # weighs 5
    [[10.0, 20.0], [7.0]],  # weighs 3: alone for control, not for the other
    [[-6.0], [1.0, 5.0, 9.0]],  # weighs 4: the other way round
)


def test_clusters_with_one_unit_of_the_arm_are_left_out() -> None:
    found = by_name(means(evidence_of(LONELY), ["none", "mail"], same_shares=False))
    assert set(found) == {("tau_q", "none"), ("tau_q", "mail")}
    none, mail = found["tau_q", "none"], found["tau_q", "mail"]
    assert none.mean == pytest.approx(5 / 8 * 4 + 3 / 8 * 15)
    spread = [statistics.variance(own) / len(own) for own in ([1.0, 3.0, 8.0], [10.0, 20.0])]
    assert none.std_error == pytest.approx(math.hypot(*_weighed((5 / 8, 3 / 8), spread)))
    assert mail.mean == pytest.approx(5 / 9 * 3 + 4 / 9 * 5)
    assert none.metric == "outcome"


def _weighed(shares: tuple[float, float], variances: list[float]) -> list[float]:
    return [share * math.sqrt(one) for share, one in zip(shares, variances, strict=True)]


def test_they_count_together_where_two_units_are_there_and_shares_are_alike() -> None:
    lone = trial([[1.0, 3.0, 8.0] * 2, [2.0, 4.0] * 2], [[10.0], [7.0]], [[-6.0], [1.0]])
    for same_shares, wanted in ((False, 4.0), (True, 5 / 7 * 4 + 2 / 7 * 2)):
        found = by_name(means(evidence_of(lone), ["none", "mail"], same_shares=same_shares))
        assert found["tau_q", "none"].mean == pytest.approx(wanted)


def test_an_arm_with_one_unit_has_no_mean() -> None:
    alone = trial([[1.0, 3.0], [2.0]])
    found = means(evidence_of(alone), ["none", "mail"], same_shares=True)
    assert [one.arm for one in found] == ["none"]


@pytest.mark.parametrize("stream", range(60))
def test_what_effects_have_found_already_is_what_means_are_alone(stream: int) -> None:
    told = random_release(stream)
    told = replace(told, units=tuple(replace(unit, groups=_EVERYBODY) for unit in told.units))
    known, names = evidence_of(told), [f"arm {arm}" for arm in range(5)]
    for same_shares in (False, True):
        effects(known, names, names[0], [None], same_shares=same_shares)
        alone = means(evidence_of(told), names, same_shares=same_shares)
        assert means(known, names, same_shares=same_shares) == alone


@pytest.mark.parametrize("stream", range(12))
def test_whatever_is_released_its_means_are_numbers(stream: int) -> None:
    told: Told = random_release(stream)
    names = [f"arm {arm}" for arm in range(1 + max(unit.arm for unit in told.units))]
    found = means(evidence_of(told), names, same_shares=True)
    assert found
    for one in found:
        assert math.isfinite(one.mean)
        assert one.std_error >= 0
