"""Prices of concentrated noise, against published values, continuous noise and each other."""

import math

import pytest

from estimators.concentrated import (
    concentrated_delta,
    concentrated_epsilon,
    concentrated_rho,
)
from privatizers.accounting.accountant import delta_at, epsilon_at, pure_epsilon
from privatizers.accounting.events import (
    ConcentratedNoise,
    CountsNoise,
    Disjoint,
    Response,
    Together,
)
from privatizers.effects.toolbox.lattice_gaussian import continuous_delta

KNOWN = {1.0: 0.03056, 2.0: 0.10826, 4.0: 0.37314, 8.0: 1.22971, 16.0: 3.80654}


@pytest.mark.parametrize(("epsilon", "rho"), KNOWN.items())
def test_rho_of_known_prices(epsilon: float, rho: float) -> None:
    found = concentrated_rho(epsilon, 1e-5)
    assert found == pytest.approx(rho, abs=5e-6)
    assert concentrated_delta(found, epsilon) <= 1e-5
    assert concentrated_delta(found * 1.001, epsilon) > 1e-5
    assert concentrated_epsilon(found, 1e-5) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 4.0, 50.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 10.0])
def test_never_below_what_gaussian_noise_costs(rho: float, epsilon: float) -> None:
    """Noise of Δ = 1 and σ = 1/√(2ρ) is ρ-zCDP, and its own curve is exact."""
    exact = continuous_delta(1.0 / math.sqrt(2.0 * rho), epsilon)
    assert concentrated_delta(rho, epsilon) >= exact


def test_the_accountant_adds_up_rho() -> None:
    parts = ConcentratedNoise(0.01), ConcentratedNoise(0.02)
    both = Together(parts)
    assert delta_at(both, 1.0) == pytest.approx(concentrated_delta(0.03, 1.0), rel=1e-9)
    assert epsilon_at(both, 1e-5) == pytest.approx(concentrated_epsilon(0.03, 1e-5), rel=1e-9)
    assert delta_at(Disjoint(parts), 1.0) == concentrated_delta(math.nextafter(0.02, 1.0), 1.0)
    assert math.isinf(pure_epsilon(both))
    assert math.isinf(epsilon_at(both, 0.0))


def test_beside_other_disjoint_parts_the_greatest_counts() -> None:
    response = Response(0.5, 0.1)
    event = Disjoint((ConcentratedNoise(0.001), response))
    assert delta_at(event, 0.5) == max(delta_at(response, 0.5), concentrated_delta(0.001, 0.5))
    assert epsilon_at(event, 1e-5) == epsilon_at(response, 1e-5)


def test_with_other_steps_on_the_same_people_it_is_refused() -> None:
    with pytest.raises(ValueError, match="price them apart"):
        delta_at(Together((ConcentratedNoise(0.1), CountsNoise(1.0, 2))), 1.0)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-5), (1.0, 0.0), (1.0, 1.0), (math.inf, 0.1)]
)
def test_prices_that_no_gaussian_noise_has(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="need epsilon above 0"):
        concentrated_rho(epsilon, delta)


def test_events_without_noise_are_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        ConcentratedNoise(0.0)
