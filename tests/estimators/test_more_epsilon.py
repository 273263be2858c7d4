"""What more ε buys, by what is known of zero-concentrated differential privacy."""

import math

import numpy as np
import pytest

from estimators.effect_models.more_epsilon import at_epsilon, rho_of
from schemas.effects import Effect, EffectDesign, NumberFeature, Propensity

DESIGN = EffectDesign(
    (NumberFeature("age", 0.0, 1.0),), (), 0.0, 1.0, Propensity("value", 0.5), 1.0, 1e-5
)


@pytest.mark.parametrize(
    ("epsilon", "rho"), [(1, 0.03056), (2, 0.10826), (4, 0.37314), (8, 1.22971), (16, 3.80654)]
)
def test_rho_is_what_is_known_of_it(epsilon: float, rho: float) -> None:
    assert rho_of(epsilon, 1e-5) == pytest.approx(rho, rel=1e-5, abs=5e-6)


@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_rho_pays_for_no_more_than_delta(delta: float) -> None:
    """By the formula at every α of a finer grid: the least δ is met, and met closely."""
    rho, orders = rho_of(0.7, delta), 1.0 + np.geomspace(1e-3, 1e5, 100_000)
    bound = (orders - 1) * (orders * rho - 0.7) + orders * np.log1p(-1 / orders)
    least = np.min(bound - np.log(orders - 1))
    assert least == pytest.approx(math.log(delta), abs=1e-3)


def test_noise_shrinks_and_sampling_stays() -> None:
    ate = Effect(0.1, 0.05, 0.03, 0.0, 0.2)
    now, more = (at_epsilon(DESIGN, ate, epsilon) for epsilon in (1.0, 2.0))
    assert (now.noise, now.std_error) == pytest.approx((1.0, 0.05))
    assert more.noise == pytest.approx(math.sqrt(0.03056 / 0.10826), rel=1e-3)
    assert more.std_error == pytest.approx(math.sqrt(0.04**2 + (0.03 * more.noise) ** 2))
    assert at_epsilon(DESIGN, None, 2.0).std_error is None
