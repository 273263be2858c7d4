"""From noisy sums to a model: the same for whoever has them, and what it says in words."""

from dataclasses import replace

import numpy as np
import pytest

from estimators.effects.models.fit import LEARNT, fit
from estimators.effects.models.model import EffectModel
from estimators.effects.models.table import PREDICTED
from privatizers.effects.models.moments import draw_sums
from schemas.effects.model import EffectDesign, NumberFeature, Propensity, Subgroups
from tests.support.distances import assert_near
from tests.support.effect_rows import DESIGN, batches, people, without

SHARP = replace(DESIGN, epsilon=1e6)


def model_of(design: EffectDesign, n: int, seed: int = 1, faulty: float = 0.0) -> EffectModel:
    random = np.random.default_rng(seed)
    rows = people(n, random, propensity=design.propensity.kind == "column").rows
    rows = without(rows, random.uniform(size=n) < faulty)
    return fit(design, n, draw_sums(design, n, batches(rows)))


def test_whoever_has_the_sums_gets_the_same_model() -> None:
    model = model_of(DESIGN, 1500)
    again = fit(model.design, model.n_rows, model.sums)
    assert (again.coefficients == model.coefficients).all()
    assert again.ate == model.ate
    assert again.subgroups == model.subgroups


def test_sums_of_another_model_are_refused() -> None:
    model = model_of(DESIGN, 300)
    with pytest.raises(ValueError, match="has the sums histograms, gram"):
        fit(DESIGN, 300, model.sums[1:])


def test_with_hardly_any_noise_the_effect_is_found() -> None:
    """Within 5 standard errors: 6e-7."""
    random = np.random.default_rng(5)
    model = model_of(SHARP, 20_000)
    fresh = people(2000, random)
    effects, errors = model.predict(fresh.rows.features)
    assert np.mean((effects - fresh.effect) ** 2) < 0.02
    assert errors is not None
    assert model.ate is not None
    assert_near(model.ate.estimate, 1.0, model.ate.std_error, 5.0)
    assert model.importance[0][0] == "age"
    age = next(curve for curve in model.curves if curve.feature == "age")
    assert age.at[0] == pytest.approx(18.0)
    assert age.at[-1] == pytest.approx(98.0)
    assert age.effects[0] < 0.4
    assert age.effects[-1] > 1.6


def test_intervals_hold_all_subgroups_in_order() -> None:
    model = model_of(SHARP, 20_000)
    names = [(group.name, group.level) for group in model.subgroups]
    assert names[:3] == [
        ("by age", "under 40"),
        ("by age", "40 to 60"),
        ("by age", "60 and more"),
    ]
    assert names[3:6] == [("by region", level) for level in ("north", "south", "west")]
    assert {name for name, _ in names[6:]} == {PREDICTED}
    young, _, old = (group.effect for group in model.subgroups[:3])
    assert young is not None
    assert old is not None
    assert young.ci_upper < old.ci_lower
    fifths = [group.effect for group in model.subgroups[6:]]
    assert fifths[0] is not None
    assert fifths[-1] is not None
    assert fifths[0].estimate < fifths[-1].estimate


def test_no_interval_where_the_propensity_was_learnt() -> None:
    model = model_of(replace(DESIGN, propensity=Propensity("learn")), 1500)
    assert model.ate is None
    assert model.subgroups == ()
    assert model.no_intervals == LEARNT
    assert model.predict(np.zeros((1, 3)))[1] is None
    assert all(curve.noise_std_errors is None for curve in model.curves)


def test_a_subgroup_of_too_few_is_refused_in_words() -> None:
    groups = (Subgroups("by age", "age", (19.0, 97.0)),)
    model = model_of(replace(SHARP, subgroups=groups, targeting=False), 2000)
    assert [group.effect is None for group in model.subgroups] == [True, False, True]
    assert model.subgroups[0].refused is not None
    assert "too few units" in model.subgroups[0].refused


def test_faulty_rows_do_not_draw_effects_to_zero() -> None:
    """Beyond five standard errors in fewer than one of a million runs."""
    model = model_of(SHARP, 20_000, faulty=0.4)
    assert model.base.n_complete == pytest.approx(12_000, rel=0.03)
    assert any("take part" in warning for warning in model.warnings)
    assert model.ate is not None
    assert_near(model.ate.estimate, 1.0, model.ate.std_error, 5.0)
    assert model.ate.std_error < 0.05


def test_bounds_ten_times_too_wide_are_told_by_the_histogram() -> None:
    wide = NumberFeature("age", -400.0, 400.0)
    random = np.random.default_rng(6)
    rows = people(5000, random).rows
    features = rows.features.copy()
    features[:, 0] = 0.5 + features[:, 0] * 0.1
    design = replace(DESIGN, features=(wide, *DESIGN.features[1:]), subgroups=())
    model = fit(design, 5000, draw_sums(design, 5000, batches(replace(rows, features=features))))
    assert [w for w in model.warnings if "'age'" in w and "narrower bounds" in w]
    outcomes = replace(rows, outcome=rows.outcome * 0.1)
    narrow = fit(DESIGN, 5000, draw_sums(DESIGN, 5000, batches(outcomes)))
    assert [w for w in narrow.warnings if "of their declared range" in w]
    assert model_of(DESIGN, 5000).warnings == ()


def test_a_feature_without_variation_is_told() -> None:
    rows = people(5000, np.random.default_rng(7)).rows
    features = rows.features.copy()
    features[:, 1] = 0.51
    model = fit(DESIGN, 5000, draw_sums(DESIGN, 5000, batches(replace(rows, features=features))))
    assert [warning for warning in model.warnings if "'visits'" in warning]
