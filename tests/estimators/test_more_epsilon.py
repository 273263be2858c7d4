"""What more ε buys, by what is known of zero-concentrated differential privacy."""

import math

import pytest

from estimators.effects.models.model import at_epsilon
from schemas.effects.model import Effect, EffectDesign, NumberFeature, Propensity

DESIGN = EffectDesign(
    (NumberFeature("age", 0.0, 1.0),), (), 0.0, 1.0, Propensity("value", 0.5), 1.0, 1e-5
)


def test_noise_shrinks_and_sampling_stays() -> None:
    ate = Effect(0.1, 0.05, 0.03, 0.0, 0.2)
    now, more = (at_epsilon(DESIGN, ate, epsilon) for epsilon in (1.0, 2.0))
    assert (now.noise, now.std_error) == pytest.approx((1.0, 0.05))
    assert more.noise == pytest.approx(math.sqrt(0.03056 / 0.10826), rel=1e-3)
    assert more.std_error == pytest.approx(math.sqrt(0.04**2 + (0.03 * more.noise) ** 2))
    assert at_epsilon(DESIGN, None, 2.0).std_error is None
