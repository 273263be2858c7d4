"""Propose-test-release: its threshold, and what it does on either side of it.

Exact audits are in tests/statistical/effects/test_toolbox_audit.py.
"""

import math

import numpy as np
import pytest

from privatizers.effects.toolbox.bounded_mean import AddRemoveMean, Bounds
from privatizers.effects.toolbox.local_sensitivity import Tabulated
from privatizers.effects.toolbox.propose_test_release import ProposeTestRelease


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [0.1, 1e-4, 1e-9])
def test_the_threshold_is_the_least_that_holds(epsilon: float, delta: float) -> None:
    """P(Z ≥ T) ≤ δ < P(Z ≥ T − 1), by the sum of the law."""
    made = ProposeTestRelease(1.0, epsilon, delta)
    k = np.arange(100_000)
    law = np.exp(-k * epsilon / 2) * math.tanh(epsilon / 4)
    assert law[made.threshold :].sum() <= delta * (1 + 1e-9)
    assert law[made.threshold - 1 :].sum() > delta or made.threshold == 1


def test_the_threshold_is_twice_the_chapters_and_a_little_less() -> None:
    """For one ε: ln(1/(2δ))/ε₁ against ln(2/δ)/(2ε₁)."""
    made = ProposeTestRelease(1.0, 0.02, 1e-9)
    assert made.threshold == pytest.approx(math.log(0.5e9) / 0.01, rel=1e-3)
    assert made.threshold > 1.8 * math.log(2e9) / 0.02


def test_data_far_from_trouble_are_released_and_data_in_it_are_not() -> None:
    """Each side fails with a probability of 1e-9 at most in each of 100 releases."""
    made = ProposeTestRelease(0.01, 2.0, 1e-9)
    far = AddRemoveMean.of(np.full(10_000, 0.25), Bounds(0.0, 1.0))
    near = AddRemoveMean.of(np.full(99, 0.25), Bounds(0.0, 1.0))
    assert near.upto(0)[0] > 0.01
    released = [made.release(far) for _ in range(100)]
    assert all(one is not None and abs(one - 0.25) < 0.3 for one in released)
    assert [made.release(near) for _ in range(100)] == [None] * 100


def test_a_bound_that_always_holds_is_released_but_for_delta_cubed() -> None:
    made = ProposeTestRelease(1.0, 1.0, 1e-4)
    assert all(made.release(Tabulated(7.0, (), 1.0)) is not None for _ in range(50))
    law = np.exp(-np.arange(10_000) / 2) * math.tanh(0.25)  # of |Z| from 0 on, one side
    assert law[3 * made.threshold + 1 :].sum() < 1e-4**2.9  # P(4T + Z < T)


def test_values_beyond_the_lattice_are_clipped() -> None:
    made = ProposeTestRelease(1.0, 1e3, 1e-4, step=0.5)
    found = made.release(Tabulated(1e300, (), 1.0))
    assert found is not None
    assert found == pytest.approx(2.0**50, rel=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0}, {"epsilon": math.inf}, {"delta": 0.0}, {"delta": 0.5}, {"bound": 0.0},
        {"bound": math.inf}, {"step": 0.3}, {"bound": -1.0, "step": 0.5},
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"epsilon|step|sensitivity"):
        ProposeTestRelease(**({"bound": 1.0, "epsilon": 1.0, "delta": 1e-3} | wrong))
