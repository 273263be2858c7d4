"""The learners of Niu et al. (2022) as published: DP-EBM stages of the library InterpretML.

NOT SOUND UNDER REPLACEMENT. The library's regressor adds noise for targets within their observed
range, but boosts residuals that leave it, and reads ranges, and the largest weight, from the data;
its neighbours are people who come or go. What it claims is shown as its claim. It is for people
who are made up: nothing but replications may import it, and no command that reads anybody's data
does (import contracts). The library is the optional extra ``cate-replication``, imported when it is
asked for.

Algorithm 2, and the R- and S-learner of its §3.1: a quarter of the rows for e, a quarter for μ or
η, a half for τ; everything at the library's defaults; e clipped to [0.05, 0.95], as in the authors'
code. Parts are drawn uniformly, as the paper has it (the code draws them by arm).
"""

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.random import Generator

from estimators.effects.models.queries import MetaLearner
from flows.lab.replication.cate.setups import Predict, SetUp, SetUpPeople
from schemas.arrays import Floats, Ints

CLIP: Final = 0.05


def is_installed() -> bool:
    """Whether the library is there."""
    try:
        import interpret  # noqa: F401, PLC0415 - an extra that few have
    except ImportError:
        return False
    return True


def fit(
    learner: MetaLearner,
    delta: float,
    _: SetUp,
    people: SetUpPeople,
    epsilon: float,
    random: Generator,
) -> Predict:
    """Learn effects from ``people`` by DP-EBMs of (ε, δ) each, on parts of them.

    ``random`` deals people out to parts; the library draws its own noise, without a seed, and reads
    bounds from the data, whatever a set-up declares.
    """
    if learner == "s":
        everybody: Ints = np.arange(len(people.outcome))
        model = _outcome_model(people, everybody, epsilon, delta)
        return lambda x: model(x, 1.0) - model(x, 0.0)
    order = random.permutation(len(people.outcome))
    for_e, for_mean, last = np.split(order, [len(order) // 4, len(order) // 2])
    propensity = _propensity(people, for_e, epsilon, delta)(people.features[last])
    x, y = people.features[last], people.outcome[last]
    treated = people.treated[last].astype(np.float64)
    if learner == "dr":
        both = _outcome_model(people, for_mean, epsilon, delta)
        one, zero = both(x, 1.0), both(x, 0.0)
        score = one - zero
        score += treated * (y - one) / propensity - (1 - treated) * (y - zero) / (1 - propensity)
        return _regressor(x, score, epsilon, delta)
    mean = _regressor(people.features[for_mean], people.outcome[for_mean], epsilon, delta)
    residual = treated - propensity
    return _regressor(x, (y - mean(x)) / residual, epsilon, delta, residual**2)


def _propensity(people: SetUpPeople, places: Ints, epsilon: float, delta: float) -> Predict:
    treated = people.treated[places].astype(np.int64)
    rows = people.features[places], treated
    model = _fitted("DPExplainableBoostingClassifier", epsilon, delta, *rows)
    return lambda x: np.clip(np.asarray(model.predict_proba(x)[:, 1]), CLIP, 1.0 - CLIP)


def _outcome_model(
    people: SetUpPeople, places: Ints, epsilon: float, delta: float
) -> Callable[[Floats, float], Floats]:
    """μ(x, t), of the features and the arm."""
    arm = people.treated[places].astype(np.float64)
    joint = np.column_stack([arm, people.features[places]])
    model = _regressor(joint, people.outcome[places], epsilon, delta)
    return lambda x, t: model(np.column_stack([np.full(len(x), t), x]))


def _regressor(
    x: Floats, y: Floats, epsilon: float, delta: float, weight: Floats | None = None
) -> Predict:
    model = _fitted("DPExplainableBoostingRegressor", epsilon, delta, x, y, sample_weight=weight)
    return lambda features: np.asarray(model.predict(features), dtype=np.float64)


def _fitted(kind: str, epsilon: float, delta: float, *rows: Any, **weight: Any) -> Any:
    """Without the library's warnings that it reads ranges from the data: this page says so."""
    import interpret.privacy  # noqa: PLC0415 - an extra that few have, and takes seconds

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(interpret.privacy, kind)(epsilon=epsilon, delta=delta, n_jobs=1)
        return model.fit(*rows, **weight)
