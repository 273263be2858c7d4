"""The learners that `cate` compares: moment effect models, Algorithm 1, DP-EBM as published."""

from functools import partial

from numpy.random import Generator

from estimators.effects.models.fit import fit_learner
from estimators.effects.models.queries import MetaLearner
from flows.lab.replication.cate import library as cate_library
from flows.lab.replication.cate.rows import Learner, Predict
from flows.lab.replication.cate.setups import SetUp, SetUpPeople
from privatizers.effects.models import meta
from privatizers.effects.models.lattice_sums import BATCH
from schemas.effects.model import NEIGHBOURS, Neighbours
from schemas.effects.model import Learner as EffectLearner

MOMENTS, MOMENTS_OUTCOME = "moments", "moments, outcome"
LEARNERS: tuple[MetaLearner, ...] = ("dr", "r", "s")
"""Of the paper; the T- and X-learner are none of its."""


def sound() -> tuple[Learner, ...]:
    """Return the learners whose guarantee is proved."""
    return (
        Learner(MOMENTS, NEIGHBOURS["row"], partial(_fit, "moments", "row")),
        Learner(MOMENTS_OUTCOME, NEIGHBOURS["outcome"], partial(_fit, "moments", "outcome")),
        *(
            Learner(name, NEIGHBOURS["row"], partial(_fit, name, "row"), reference=name)
            for name in LEARNERS
        ),
    )


def published() -> tuple[Learner, ...]:
    """Return DP-EBM learners, none where the library is not installed."""
    if not cate_library.is_installed():
        return ()
    return tuple(
        Learner(f"DP-EBM {name}", cate_library.CLAIM, partial(cate_library.fit, name), name, True)
        for name in LEARNERS
    )


def _fit(
    learner: EffectLearner,
    neighbours: Neighbours,
    set_up: SetUp,
    people: SetUpPeople,
    *,
    epsilon: float,
    delta: float,
    random: Generator,  # noqa: ARG001 - noise is the operating system's
) -> Predict:
    asked = set_up.design(epsilon, delta, neighbours), len(people.outcome)
    batches = set_up.batches(people, BATCH)
    model = fit_learner(learner, *asked, meta.draw_sums(learner, *asked, batches))
    return lambda features: model.predict(set_up.positions(features))[0]
