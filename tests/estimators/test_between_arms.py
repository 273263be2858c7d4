"""Treatment arms against each other: the transcription's numbers, and Holm over all pairs."""

from dataclasses import replace

import numpy as np
import pytest

from estimators.arm_effects import Estimate, effects
from estimators.between_arms import effects_between
from estimators.intervals import holm
from tests.estimators.reference import contrast
from tests.estimators.told_release import Cell, Told, Unit, evidence_of, random_release

ARMS = ("none", "a", "b", "c", "d")


def whole(told: Told) -> Told:
    """The same release with everybody in the one group."""
    return replace(told, units=tuple(replace(unit, groups=frozenset({0})) for unit in told.units))


def told_of(*arms: list[float]) -> Told:
    """A release of one cluster in which these are the debiased outcomes of each arm."""
    units = [Unit(0, arm, y, frozenset({0})) for arm, ys in enumerate(arms) for y in ys]
    cells = {(0, arm): Cell((0.5, 0.5)) for arm in range(len(arms))}
    return Told((-100.0, 100.0), 0.0, tuple(units), {0: 0}, cells)


def between(told: Told, *, same_shares: bool = False) -> list[Estimate]:
    n_arms = max(unit.arm for unit in told.units) + 1
    return effects_between(evidence_of(told), ARMS[:n_arms], ARMS[0], same_shares=same_shares)


@pytest.mark.parametrize("same_shares", [False, True])
@pytest.mark.parametrize("streams", [range(i, i + 6) for i in range(0, 36, 6)], ids=str)
def test_every_pair_is_the_transcriptions_contrast(streams: range, same_shares: bool) -> None:
    n_found = 0
    for stream in streams:
        told = whole(random_release(stream))
        scale = (told.grid[-1] - told.grid[0]) / (1 - told.rate)
        found = {(one.arm, one.control): one for one in between(told, same_shares=same_shares)}
        n_arms = max(unit.arm for unit in told.units) + 1
        for second in range(2, n_arms):
            for first in range(1, second):
                one = found.pop((ARMS[second], ARMS[first]), None)
                name = "tau_q" if one is None else one.estimator
                expected = contrast(told, name, second, first, same_shares=same_shares)
                if one is None or expected is None:
                    assert one is None
                    assert expected is None
                    continue
                n_found += 1
                assert one.estimate == pytest.approx(expected.estimate, abs=1e-11 * scale)
                assert one.std_error == pytest.approx(
                    expected.variance**0.5, rel=1e-6, abs=1e-4 * scale
                )
                assert one.n_units == expected.n_units
        assert found == {}
    assert n_found > 0


def test_a_pair_is_the_effect_with_one_of_them_as_control() -> None:
    told = told_of([1, 2, 4], [3, 5, 9], [2, 2, 7], [8, 9, 12])
    for one in between(told):
        others = effects(evidence_of(told), ARMS[:4], one.control, [None], same_shares=False)
        (same,) = [
            other for other in others if (other.arm, other.estimator) == (one.arm, one.estimator)
        ]
        assert replace(one, p_value_holm=None) == replace(same, p_value_holm=None)


def test_p_values_allow_for_all_pairs() -> None:
    found = between(told_of([1, 2], [3, 5, 9], [2, 2, 7], [38, 39, 52]))
    assert [(one.control, one.arm) for one in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    p_values = np.array([one.p_value for one in found], dtype=np.float64)
    assert [one.p_value_holm for one in found] == holm(p_values, p_values >= 0).tolist()
    assert found[1].p_value_holm != found[1].p_value  # else nothing was allowed for


def test_the_error_of_control_is_in_no_pair() -> None:
    """With a control nobody can rely on, effects against it are blurred; pairs are not."""
    sharp, blurred = (
        between(told_of(control, [1, 2, 3, 4], [5, 6, 7, 8]))[0]
        for control in ([0.0, 0.1, 0.2], [-200.0, 0.0, 200.0])
    )
    assert sharp.std_error == blurred.std_error
    assert sharp.estimate == blurred.estimate == pytest.approx(4.0)
    against = effects(
        evidence_of(told_of([-200, 0, 200], [1, 2, 3, 4], [5, 6, 7, 8])),
        ARMS[:3], "none", [None], same_shares=False,
    )  # fmt: skip
    assert all((one.std_error or 0.0) > 10 * (blurred.std_error or 0.0) for one in against)


def test_without_two_treatments_there_is_no_pair() -> None:
    assert between(told_of([1, 2, 3], [2, 3, 4])) == []
    assert between(told_of([1, 2, 3], [2, 3, 4], [9])) == []  # one unit cannot be compared
