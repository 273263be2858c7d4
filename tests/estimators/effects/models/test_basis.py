"""The basis of an effect model: orthonormal under histograms, bounded when weighted."""

import numpy as np
import pytest

from estimators.effects.models.basis import (
    CURVATURE,
    INTERCEPT,
    LINEAR,
    PAIR,
    Basis,
    basis_of,
    bin_centres,
)
from schemas.effects.model import EffectDesign, NumberFeature, Propensity
from tests.support.effect_rows import DESIGN

COUNTS = [
    np.concatenate([np.linspace(0.0, 90.0, 31), [1.0]]),
    np.full(32, 40.0),
    np.array([700.0, 250.0, 50.0]),
]


def of(feature: NumberFeature, count: np.ndarray, noise_std: float = 0.0) -> Basis:
    design = EffectDesign((feature,), (), 0.0, 1.0, Propensity("learn"), 1.0, 1e-5)
    return basis_of(design, [count], noise_std, 2)


def test_functions_are_orthonormal_under_their_histograms() -> None:
    basis = basis_of(DESIGN, COUNTS, 0.0, 2)
    assert basis.kinds == (INTERCEPT, LINEAR, CURVATURE, LINEAR, CURVATURE, LINEAR, LINEAR)
    for terms, share, place in zip(basis.terms, basis.shares, basis.places, strict=True):
        cells = bin_centres(32) if len(share) == 32 else np.arange(3.0)
        values = terms.values(cells)
        assert share @ values == pytest.approx(np.zeros(values.shape[1]), abs=1e-12)
        assert (values * share[:, None]).T @ values == pytest.approx(np.eye(values.shape[1]))
        assert place.stop - place.start == terms.n_terms


def test_weighted_rows_are_never_longer_than_the_bound() -> None:
    basis = basis_of(DESIGN, COUNTS, 0.0, 2)
    random = np.random.default_rng(1)
    n = 500
    features = np.stack(
        [random.choice([0.0, 0.5, 1.0], n), random.uniform(size=n), random.integers(3, size=n)],
        axis=1,
    )
    v, w = basis.weighted(features)
    assert (w <= 1.0).all()
    assert (np.linalg.norm(v, axis=1) <= np.sqrt(basis.size) * (1 + 1e-14)).all()
    assert v / w[:, None] == pytest.approx(basis.values(features))
    assert (w < 1.0).any()


def test_a_number_without_variation_has_no_terms() -> None:
    alone = np.zeros(32)
    alone[7] = 500.0
    assert of(NumberFeature("x", 0.0, 1.0), alone).kinds == (INTERCEPT,)


def test_a_number_of_two_values_has_no_square() -> None:
    two = np.zeros(32)
    two[0], two[31] = 400.0, 600.0
    assert of(NumberFeature("x", 0.0, 1.0), two).kinds == (INTERCEPT, LINEAR)


def test_nothing_but_noise_is_an_even_histogram() -> None:
    noise = np.random.default_rng(2).normal(0.0, 3.0, 32)
    basis = of(NumberFeature("x", 0.0, 1.0), np.minimum(noise, 2.9), noise_std=3.0)
    assert basis.shares[0] == pytest.approx(np.full(32, 1 / 32))


def test_pairs_are_products_of_first_terms() -> None:
    design = EffectDesign(
        DESIGN.features, (), 0.0, 1.0, Propensity("learn"), 1.0, 1e-5, pairs=(("age", "visits"),)
    )
    basis = basis_of(design, COUNTS, 0.0, 1)
    assert basis.kinds[-1] == PAIR
    features = np.array([[0.1, 0.9, 1.0], [0.8, 0.3, 2.0]])
    phi = basis.values(features)
    assert phi[:, -1] == pytest.approx(phi[:, 1] * phi[:, 2])


def test_a_number_on_a_logarithmic_scale() -> None:
    feature = NumberFeature("x", 1.0, 100.0, scale="log")
    positions = feature.positions(np.array([0.1, 1.0, 10.0, 100.0, 1e6]))
    assert positions == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0])
    assert feature.values_at(positions) == pytest.approx([1.0, 1.0, 10.0, 100.0, 100.0])
