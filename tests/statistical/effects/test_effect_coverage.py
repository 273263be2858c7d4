"""Intervals of effect models hold what they say, with privacy and all; and faults show.

Coverage of 95 % intervals in ``N_MODELS`` models of each case (or 300, under ``make soak``). By the
binomial law, with 1 % of miscoverage allowed for, sound intervals fail in one of 10,000 runs of
this file or less: 30 shares, each of which is too small once in 330,000. Where intervals hold in 75
of 100 models a share fails in 99 of 100 runs; those without the part of privacy are caught.
Standard errors 30 % short double the mean square of subgroups' errors, of which 1.4 is allowed.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from estimators.effects.models.fit import fit
from estimators.effects.models.model import EffectModel
from privatizers.effects.models.moments import draw_sums
from privatizers.effects.models.rows import EffectRows
from schemas.effects.model import EffectDesign, NumberFeature, Propensity, Subgroups
from tests.support.distances import assert_near, assert_p_value
from tests.support.effect_rows import DESIGN, batches

pytestmark = pytest.mark.statistical

N_MODELS = 150
LEAST = 3e-6
"""A probability: of 150 intervals 125 have to hold."""
CASES = [(2000, 4.0), (16_000, 1.0), (16_000, 4.0)]

SKEWED = EffectDesign(
    features=(NumberFeature("x", 0.0, 1.0), NumberFeature("z", 0.0, 1.0)),
    subgroups=(Subgroups("by x", "x", (0.5,)),),
    low=0.0,
    high=200.0,
    propensity=Propensity("value", 0.5),
    epsilon=1.0,
    delta=1e-5,
    targeting=False,
)
"""One in a hundred buys, for a log-normal amount; treated ones more often as x rises."""


def skewed(n: int, random: np.random.Generator) -> EffectRows:
    x = random.uniform(size=(n, 2))
    treated = random.uniform(size=n) < 0.5
    buys = random.uniform(size=n) < 0.01 * (1.0 + treated * x[:, 0])
    amount = np.where(buys, np.exp(random.normal(3.5, 0.8, n)), 0.0)
    outcome = np.clip(amount / 100.0 - 1.0, -1.0, 1.0)
    return EffectRows(x, treated, outcome, None, np.ones(n, dtype=np.bool_))


def mean_amount() -> float:
    """E min(amount, 200) of a buyer, by quadrature over the normal quantiles."""
    at = np.linspace(-8.0, 8.0, 200_001)
    density = np.exp(-(at**2) / 2.0)
    return float(np.minimum(np.exp(3.5 + 0.8 * at), 200.0) @ density / density.sum())


def chosen(n: int, random: np.random.Generator) -> EffectRows:
    """People treated by a declared column of propensities; the effect is 2 · age."""
    age, visits = random.uniform(size=n), random.uniform(size=n)
    region = random.integers(3, size=n).astype(np.float64)
    e = np.clip(0.1 + 0.8 * visits, 0.1, 0.9)
    treated = random.uniform(size=n) < e
    outcome = 3.0 + 2.0 * visits + treated * 2.0 * age + random.uniform(-1.0, 1.0, n)
    features = np.stack([age, visits, region], axis=1)
    return EffectRows(features, treated, (outcome - 5.0) / 5.0, e, np.ones(n, dtype=np.bool_))


def models(
    design: EffectDesign, make: object, n: int, seed: int, n_models: int
) -> list[EffectModel]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(n_models):
        rows = make(n, random)  # type: ignore[operator] # a function
        found.append(fit(design, n, draw_sums(design, n, batches(rows))))
    return found


def too_few(hits: list[bool]) -> float:
    """How often so few of sound intervals hold, or fewer."""
    return float(binom.cdf(sum(hits), len(hits), 0.94))


def judge(found: list[EffectModel], truth: float, parts: list[float]) -> None:
    ate = [m.ate for m in found if m.ate is not None]
    assert len(ate) == len(found)
    covered = [each.ci_lower <= truth <= each.ci_upper for each in ate]
    errors = np.array([(each.estimate - truth) / each.std_error for each in ate])
    assert_p_value(too_few(covered), LEAST, is_bound=True)
    assert_near(float(np.mean(errors**2)), 1.0, math.sqrt(2.0 / len(ate)), 6.0)
    squares = list[float]()
    for place, of_part in enumerate(parts):
        some = [one for m in found if (one := m.subgroups[place].effect)]
        hits = [each.ci_lower <= of_part <= each.ci_upper for each in some]
        if len(hits) > len(found) / 2:
            assert_p_value(too_few(hits), LEAST, is_bound=True)
            squares += [((each.estimate - of_part) / each.std_error) ** 2 for each in some]
    # Parts by age and by region are of the same people: half of them are independent.
    assert_near(float(np.mean(squares)), 1.0, math.sqrt(4.0 / len(squares)), 6.0)


@pytest.mark.parametrize(("n", "epsilon"), CASES)
@pytest.mark.parametrize("n_models", [N_MODELS, pytest.param(300, marks=pytest.mark.soak)])
def test_a_skewed_outcome(n: int, epsilon: float, n_models: int) -> None:
    mean = 0.01 * mean_amount()
    found = models(replace(SKEWED, epsilon=epsilon), skewed, n, 1, n_models)
    judge(found, mean / 2.0, [mean / 4.0, mean * 3.0 / 4.0])


@pytest.mark.parametrize(("n", "epsilon"), CASES)
@pytest.mark.parametrize("n_models", [N_MODELS, pytest.param(300, marks=pytest.mark.soak)])
def test_a_declared_column(n: int, epsilon: float, n_models: int) -> None:
    groups = (Subgroups("by age", "age", (38.0, 58.0)), Subgroups("by region", "region"))
    design = replace(
        DESIGN, epsilon=epsilon, propensity=Propensity("column", None, 0.1), subgroups=groups
    )
    found = models(design, chosen, n, 2, n_models)
    judge(found, 1.0, [0.25, 0.75, 1.5, 1.0, 1.0, 1.0])


def test_intervals_without_the_part_of_privacy_do_not_hold() -> None:
    """The power of this file: at ε = 0.5 and 4,000 people, noise is nearly all of the error."""
    column = Propensity("column", None, 0.1)
    design = replace(DESIGN, epsilon=0.5, propensity=column, subgroups=())
    hits = []
    for model in models(design, chosen, 4000, 3, N_MODELS):
        ate = model.ate
        if ate is not None:
            sampling = math.sqrt(max(ate.std_error**2 - ate.privacy_std_error**2, 0.0))
            hits.append(abs(ate.estimate - 1.0) <= 1.96 * sampling)
    assert too_few(hits) < LEAST
