"""What the literature claims as printed is there to be replicated, and is told from a guarantee."""

import math

import pytest

from privatizers.accounting.accountant import epsilon_at
from privatizers.accounting.budget import Budget
from privatizers.lab.unprotected.as_printed import UnsoundClaim, theorem_3_1
from privatizers.mechanisms.parameters import Parameters, event_of


def test_the_defaults_of_the_paper_give_the_claim_of_the_paper() -> None:
    """σ = 10, γ = 0.02, λ = 0.8: 2.70 as printed, 2.80 in truth."""
    claim = theorem_3_1(0.8, 0.02, 10.0)
    assert claim.printed_epsilon == pytest.approx(2.70, abs=0.005)
    sound = epsilon_at(event_of(Parameters.of(12, 0.8, 0.02, 10.0)), 0.0)
    assert sound == pytest.approx(claim.printed_epsilon + 1 / 10, abs=1e-6)


def test_the_second_branch_is_printed_too() -> None:
    response = math.log1p(0.5 / (0.5 * 0.25))
    assert theorem_3_1(0.5, 0.25, 0.01).printed_epsilon == pytest.approx(2 / 0.25 + response)


def test_the_counterexample_exceeds_the_claim_by_one() -> None:
    """K = 2 with both counts noised, n = 100, γ = 0.1, λ = 0.5, σ = 1: attained at 4.398."""
    assert theorem_3_1(0.5, 0.1, 1.0).printed_epsilon == pytest.approx(4.398 - 1, abs=1e-3)


def test_it_cannot_be_taken_for_a_guarantee() -> None:
    claim = theorem_3_1(0.8, 0.02, 10.0)
    assert claim.sound is False
    assert "Unsound" in repr(claim)
    with pytest.raises(TypeError):
        float(claim)  # type: ignore[arg-type] # which is the point
    with pytest.raises(TypeError):
        Budget(claim)  # type: ignore[arg-type]
    assert not isinstance(claim, int | float)
    assert isinstance(claim, UnsoundClaim)


@pytest.mark.parametrize(
    "parameters", [(0, 0.1, 1), (1.1, 0.1, 1), (0.5, 0, 1), (0.5, 0.6, 1), (0.5, 0.1, 0)]
)
def test_impossible_parameters_are_refused(parameters: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="need 0 < λ"):
        theorem_3_1(*parameters)
