"""The learners that `cate` compares: moment effect models, Algorithm 1, DP-EBM as published."""

from functools import partial

from numpy.random import Generator

from estimators.effects.models.fit import fit_learner
from estimators.effects.models.queries import MetaLearner
from flows.lab.replication.cate import library as cate_library
from flows.lab.replication.cate.library import PublishedLearner
from flows.lab.replication.cate.rows import Learner, Predict
from flows.lab.replication.cate.setups import SetUp, SetUpPeople
from privatizers.effects.models import meta
from privatizers.effects.models.lattice_sums import BATCH
from privatizers.effects.models.moments import draw_sums
from schemas.effects.model import NEIGHBOURS, Neighbours

MOMENTS, MOMENTS_OUTCOME = "moments", "moments, outcome"
LEARNERS: tuple[PublishedLearner, ...] = ("dr", "r", "s")
"""Of the paper; the T- and X-learner are none of its."""


def sound() -> tuple[Learner, ...]:
    """Return the learners whose guarantee is proved."""
    return (
        Learner(MOMENTS, NEIGHBOURS["row"], partial(_moments, "row")),
        Learner(MOMENTS_OUTCOME, NEIGHBOURS["outcome"], partial(_moments, "outcome")),
        *(
            Learner(name, NEIGHBOURS["row"], partial(_meta, name), reference=name)
            for name in LEARNERS
        ),
    )


def published() -> tuple[Learner, ...]:
    """Return DP-EBM learners, none where the library is not installed."""
    if not cate_library.is_installed():
        return ()
    return tuple(
        Learner(f"DP-EBM {name}", cate_library.CLAIM, partial(_library, name), name, True)
        for name in LEARNERS
    )


def _moments(
    neighbours: Neighbours,
    set_up: SetUp,
    people: SetUpPeople,
    *,
    epsilon: float,
    delta: float,
    random: Generator,  # noqa: ARG001 - noise is the operating system's
) -> Predict:
    design = set_up.design(epsilon, delta, neighbours)
    n = len(people.outcome)
    model = fit_learner("moments", design, n, draw_sums(design, n, set_up.batches(people, BATCH)))
    return lambda features: model.predict(set_up.positions(features))[0]


def _meta(
    learner: MetaLearner,
    set_up: SetUp,
    people: SetUpPeople,
    *,
    epsilon: float,
    delta: float,
    random: Generator,  # noqa: ARG001 - noise is the operating system's
) -> Predict:
    design, n = set_up.design(epsilon, delta), len(people.outcome)
    sums = meta.draw_sums(learner, design, n, set_up.batches(people, BATCH))
    model = fit_learner(learner, design, n, sums)
    return lambda features: model.predict(set_up.positions(features))[0]


def _library(
    learner: PublishedLearner,
    set_up: SetUp,  # noqa: ARG001 - it reads bounds from the data
    people: SetUpPeople,
    *,
    epsilon: float,
    delta: float,
    random: Generator,
) -> Predict:
    return cate_library.fit(learner, people, epsilon, delta, random)
