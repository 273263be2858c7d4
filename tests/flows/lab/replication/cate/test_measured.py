"""How errors of effect models are told apart; what is found of claims is in test_claims.py."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from flows.lab.replication.cate import library
from flows.lab.replication.cate.measured import (
    DELTA,
    MEASURES,
    PUBLISHED,
    SOUND,
    Study,
    error,
    squared_bias,
    variance,
)
from flows.lab.replication.cate.setups import Predict, SetUp, SetUpPeople, simulated
from flows.lab.replication.claims import NotTriedError, Run
from schemas.arrays import Floats

A, B, *_ = simulated()


def biased(_: SetUp, people: SetUpPeople, __: float, random: Generator) -> Predict:
    """τ + 0.5 + noise of variance 0.09, whoever is learnt from; of A."""
    assert len(people.outcome) == 50
    return lambda x: (x[:, 0] + x[:, 1]) / 2.0 + 0.5 + random.normal(0.0, 0.3, len(x))


def test_bias_and_variance_are_told_apart() -> None:
    """At 20,000 people, who have noise of their own: to 3 % of each. The numbers are fixed."""
    study, cell = Study(A, {"made up": biased}, 4, default_rng(3)), ("made up", 50, 1.0)
    for part, expected in ((squared_bias, 0.25), (variance, 0.09), (error, 0.34)):
        found, spread = study.found(part, cell)
        assert found == pytest.approx(expected, rel=0.03)
        assert 0.0 < spread < 0.03 * expected
    assert study.products(*cell) is study.products(*cell)  # fitted once


def test_products_are_those_of_errors() -> None:
    def constant(*_: object) -> Predict:
        one = next(values)
        return lambda x: (x[:, 0] + x[:, 1]) / 2.0 + np.full(len(x), one)

    values: Iterator[float] = iter((1.0, 3.0))
    products: Floats = Study(A, {"one": constant}, 2, default_rng(1)).products("one", 50, 1.0)
    assert products == pytest.approx(np.array([[1.0, 3.0], [3.0, 9.0]]))
    assert (error(products), squared_bias(products), variance(products)) == (5.0, 3.0, 2.0)


def test_people_are_the_same_for_all_learners() -> None:
    seen: list[int] = []

    def look(_: SetUp, people: SetUpPeople, *__: object) -> Predict:
        seen.append(id(people))
        return lambda x: np.zeros(len(x))

    study = Study(A, {"one": look, "other": look}, 3, default_rng(1))
    for learner, epsilon in (("one", 1.0), ("one", 2.0), ("other", 1.0)):
        study.products(learner, 50, epsilon)
    assert seen[:3] == seen[3:6] == seen[6:]
    assert len(set(seen)) == 3


def test_sound_learners_learn() -> None:
    """Without noise the effects of B vary by 1.27: four fits of 4,000 have a quarter of it left."""
    study = Study(B, SOUND, 2, default_rng(1))
    assert set(SOUND) == {"moments", "dr", "r", "s"}
    for learner in SOUND:
        assert error(study.products(learner, 4_000, 1e4)) < 0.32


def test_the_library_is_not_tried_in_a_quick_run_or_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(NotTriedError, match="minutes"):
        MEASURES["as published"](Run(quick=True, data=None))
    monkeypatch.setattr(library, "is_installed", lambda: False)
    with pytest.raises(NotTriedError, match="cate-replication"):
        MEASURES["as published"](Run(quick=False, data=None))


@pytest.mark.statistical
@pytest.mark.skipif(not library.is_installed(), reason="an extra: clusterdp[cate-replication]")
def test_published_learners_have_errors_like_those_published() -> None:
    """B at n = 2,000, ε = 1: DR 21.6, S 1.35 in the authors' file. Within a factor of 4."""
    study = Study(B, PUBLISHED, 2, default_rng(1))
    assert DELTA == 1e-5
    for learner, printed in (("dr", 21.6), ("s", 1.35)):
        assert 0.25 < error(study.products(learner, 2_000, 1.0)) / printed < 4.0
