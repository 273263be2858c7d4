"""Effect models with numbers that are made up, for pages about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

import numpy as np

from estimators.effects.models.model import EffectModel
from estimators.effects.models.table import PREDICTED
from flows.effects.released.page.model import ModelFacts
from schemas.arrays import Floats
from schemas.effects.model import (
    Curve,
    Effect,
    EffectDesign,
    Feature,
    LevelFeature,
    NoisySums,
    NumberFeature,
    Propensity,
    SubgroupEffect,
    Subgroups,
    level_names,
)

FACTS = ModelFacts(
    model_id="stroke+cate.once.r1",
    experiment="stroke",
    period="once",
    created_at=datetime(2026, 11, 20, 3, 15),
    control="no aspirin",
    treatment="aspirin",
    guarantee="The model is (1, 1e-05)-differentially private for one unit's outcome, arm and "
    "features (substitution).",
)
N = 19435
REFUSED = "too few units: the noisy count is 31, and 50 are needed"
AGE = NumberFeature("age", 16.0, 99.0)
INCOME = NumberFeature("income", 30.0, 3300.0, scale="log")
SITE = LevelFeature("stroke type", ("lacunar", "posterior", "total anterior", "other"))


@dataclass(frozen=True)
class Made:
    """What a page needs of an effect model, in place of one."""

    design: EffectDesign
    n_rows: int
    sums: tuple[NoisySums, ...]
    degree: int
    ate: Effect | None
    subgroups: tuple[SubgroupEffect, ...]
    no_intervals: str | None
    importance: tuple[tuple[str, float], ...]
    curves: tuple[Curve, ...]
    warnings: tuple[str, ...]


def effect(estimate: float, std_error: float = 0.01, privacy: float = 0.006) -> Effect:
    """An effect with an interval of ±2 standard errors."""
    ends = estimate - 2 * std_error, estimate + 2 * std_error
    return Effect(estimate, std_error, privacy, *ends)


def design_of(
    features: tuple[Feature, ...] = (AGE, INCOME, SITE), *, learnt: bool = False
) -> EffectDesign:
    """Subgroups by every feature, and by predicted effect."""
    edges = {"age": (50.0, 65.0, 80.0), "income": (100.0, 1000.0)}
    return EffectDesign(
        features=features,
        subgroups=()
        if learnt
        else tuple(Subgroups(f"by {one.name}", one.name, edges.get(one.name)) for one in features),
        low=0.0,
        high=1.0,
        propensity=Propensity("learn") if learnt else Propensity("value", 0.5),
        epsilon=1.0,
        delta=1e-5,
    )


def table_of(counts: Sequence[float]) -> NoisySums:
    """The sums of a table whose noisy counts are these, with a noise of 10 each."""
    sums = np.array([(0.3 * count, 0.0, 0.0) for count in counts]).ravel()
    steps = np.round(sums * 2**20).astype(np.int64)
    return NoisySums("table", 0.2 * 0.03056, 3.5, 2.0**-20, 3.0 * 2**20, steps)


def sums_of(n_features: int) -> tuple[NoisySums, ...]:
    """A query of each kind but the table."""
    shares = {
        "histograms": 0.05, "gram": 0.13, "outcomes": 0.13, "squares": 0.04, "effects": 0.43,
        "new": 0.02,
    }  # fmt: skip
    return tuple(
        NoisySums(name, 0.03056 * share, 3.5, 2.0**-6, 1200.0, np.arange(1, 2 + 3 * n_features))
        for name, share in shares.items()
    )


def model_of(
    features: tuple[Feature, ...] = (AGE, INCOME, SITE),
    *,
    learnt: bool = False,
    predicted: bool = True,
) -> EffectModel:
    """A model; without intervals where the propensity is ``learnt``."""
    design = design_of(features, learnt=learnt)
    random = np.random.default_rng(5)
    cells = [
        SubgroupEffect(groups.name, level, effect(float(random.normal(0.02, 0.02)), 0.02), None)
        for groups in design.subgroups
        for level in level_names(design, groups)
    ]
    if cells:
        cells[-1] = replace(cells[-1], effect=None, refused=REFUSED)
    fifths = [
        SubgroupEffect(PREDICTED, f"{20 * one} to {20 * one + 20} %", effect(gain, 0.015), None)
        for one, gain in enumerate((-0.01, 0.01, 0.02, 0.04, 0.07))
    ]
    groups = [*cells, *(fifths if predicted and not learnt else [])]
    counts = [N, *(N / 5 for _ in groups)]
    made = Made(
        design=design,
        n_rows=N,
        sums=(*sums_of(len(features)), *([table_of(counts)] if cells else [])),
        degree=2,
        ate=None if learnt else effect(0.021),
        subgroups=tuple(groups),
        no_intervals="No interval is given: the propensity was learnt, and an error of it is in no "
        "standard error."
        if learnt
        else None,
        importance=tuple((one.name, 4e-4 / (place + 1)) for place, one in enumerate(features)),
        curves=tuple(_curve(one, learnt) for one in features),
        warnings=(f"the bounds of {features[0].name!r} are far wider than what lies in them",),
    )
    return cast("EffectModel", made)


def _curve(feature: Feature, learnt: bool) -> Curve:
    if isinstance(feature, LevelFeature):
        effects: Floats = np.linspace(-0.02, 0.05, len(feature.levels))
        return Curve(
            feature.name, feature.levels, effects, None if learnt else np.full(len(effects), 0.008)
        )
    positions = np.linspace(0.0, 1.0, 41)
    at = tuple(feature.values_at(positions).tolist())
    effects = 0.03 - 0.08 * (positions - 0.4) ** 2
    return Curve(feature.name, at, effects, None if learnt else 0.006 + 0.01 * positions**2)
