"""A release by Cluster-DP is said to cost more than the paper prints, which does not hold."""

import pytest

from privatizers.accounting.accountant import epsilon_at
from privatizers.mechanisms.parameters import Parameters, event_of
from tests.support.as_printed import theorem_3_1


def test_the_defaults_of_the_paper_cost_more_than_the_paper_says() -> None:
    """σ = 10, γ = 0.02, λ = 0.8: 2.70 as printed, 2.80 in truth."""
    printed = theorem_3_1(0.8, 0.02, 10.0)
    assert printed == pytest.approx(2.70, abs=0.005)
    sound = epsilon_at(event_of(Parameters.of(12, 0.8, 0.02, 10.0)), 0.0)
    assert sound == pytest.approx(printed + 1 / 10, abs=1e-6)


def test_the_counterexample_exceeds_the_claim_by_one() -> None:
    """K = 2 with both counts noised, n = 100, γ = 0.1, λ = 0.5, σ = 1: attained at 4.398."""
    assert theorem_3_1(0.5, 0.1, 1.0) == pytest.approx(4.398 - 1, abs=1e-3)
