"""Matching against Algorithm 1 written as its loops, and what is computed of it.

Generators with fixed seeds make the people; nothing here is noised.
"""

import math

import numpy as np
import pytest

from privatizers.effects.sites.matching import (
    SitePeople,
    evaluate,
    matched,
    reuse_squares,
    stratum_variances,
)
from privatizers.effects.toolbox.bounded_mean import Bounds
from privatizers.lab.unprotected.as_printed import paired_variance
from schemas.arrays import Bools, Floats, Ints
from tests.support.distances import assert_mean, mean_error


def some_people(seed: int, n_units: int, n_strata: int, treated: float = 0.4) -> SitePeople:
    generator = np.random.default_rng(seed)
    return SitePeople(
        generator.choice(n_strata, n_units, p=generator.dirichlet(np.ones(n_strata))),
        generator.random(n_units) < treated,
        generator.integers(0, 33, n_units) / 32.0,
        n_strata,
    )


def by_loops(people: SitePeople) -> tuple[Ints, Ints, float]:
    """Algorithm 1 line by line: partners, uses, and the sum of Ŷ(1) − Ŷ(0)."""
    partner = np.full(people.n_units, -1)
    reuse = np.zeros(people.n_units, dtype=np.int64)
    total = 0.0
    for x in range(people.n_strata):
        here = people.stratum == x
        arms = [np.flatnonzero(here & (people.treated == arm)) for arm in (True, False)]
        if not len(arms[0]) or not len(arms[1]):
            continue
        for own, other, sign in ((arms[0], arms[1], 1), (arms[1], arms[0], -1)):
            for j, i in enumerate(own):
                m = other[j % len(other)]
                partner[i] = m
                reuse[m] += 1
                total += sign * (people.outcome[i] - people.outcome[m])
    return partner, reuse, total


CASES = [(1, 1, 1), (2, 2, 1), (3, 40, 3), (4, 200, 9), (5, 200, 90), (6, 500, 2)]


@pytest.mark.parametrize(("seed", "n_units", "n_strata"), CASES)
@pytest.mark.parametrize("treated", [0.03, 0.4, 1.0])
def test_it_is_algorithm_1(seed: int, n_units: int, n_strata: int, treated: float) -> None:
    people = some_people(seed, n_units, n_strata, treated)
    partner, reuse, total = by_loops(people)
    match = matched(people.stratum, people.treated)
    assert match.partner.tolist() == partner.tolist()
    assert np.where(partner >= 0, match.reuse, 0).tolist() == reuse.tolist()
    found = evaluate(people, 1.0)
    assert found.effect_sum == total  # outcomes of whole 32nds: exact
    assert found.effect == total / n_units


def test_nobody_stands_in_for_more_than_a_fair_share() -> None:
    people = some_people(7, 3_000, 20)
    treated, control = people.sizes()
    match = matched(people.stratum, people.treated)
    own = np.where(people.treated, treated[people.stratum], control[people.stratum])
    other = np.where(people.treated, control[people.stratum], treated[people.stratum])
    assert (match.reuse <= -(-other // own)).all()
    assert (match.reuse >= other // own).all()
    weights = match.weights(people.treated)
    assert weights.sum() == 0  # an effect does not change where all outcomes move together
    squares = np.bincount(2 * people.stratum + people.treated, weights=(1 + match.reuse) ** 2)
    assert squares[1::2].tolist() == reuse_squares(treated, control).tolist()
    assert squares[::2].tolist() == reuse_squares(control, treated).tolist()


def test_only_the_order_within_an_arm_of_a_stratum_matters() -> None:
    """Two treated of which one stands in for two: who comes first does."""
    stratum, treated = np.zeros(5, dtype=np.int64), np.array([True, False, False, True, False])
    outcome = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    first = evaluate(SitePeople(stratum, treated, outcome, 1), 1.0)
    assert first.effect == 3 / 5
    swapped = outcome[[3, 1, 2, 0, 4]]
    assert evaluate(SitePeople(stratum, treated, swapped, 1), 1.0).effect == 2 / 5
    mixed = np.array([1, 0, 2, 3, 4])  # a control before the treated
    again = SitePeople(stratum[mixed], treated[mixed], outcome[mixed], 1)
    assert evaluate(again, 1.0).effect == 3 / 5


@pytest.mark.parametrize("all_of_them", [True, False])
def test_without_a_match_the_effect_is_0(all_of_them: bool) -> None:
    for stratum, treated in (
        (np.zeros(4, dtype=np.int64), np.full(4, all_of_them)),
        (np.arange(4), np.array([True, False, all_of_them, True])),
    ):
        people = SitePeople(stratum, treated, np.ones(4), 9)
        found = evaluate(people, 1.0)
        assert (found.effect_sum, found.variance_sum, paired_variance(people, 1.0)) == (0, 0, 0)


def test_outcomes_are_brought_into_the_declared_range() -> None:
    stratum, treated = np.zeros(6, dtype=np.int64), np.arange(6) < 3
    wild = np.array([np.nan, np.inf, 7.0, -np.inf, -3.0, 0.5])
    tame = np.array([0.0, 2.0, 2.0, 0.0, 0.0, 0.5])
    found, expected = (
        evaluate(SitePeople(stratum, treated, outcome, 1), 2.0) for outcome in (wild, tame)
    )
    assert found == expected
    assert found.effect == pytest.approx((4.0 - 0.5) / 3.0)
    pairs = (paired_variance(SitePeople(stratum, treated, one, 1), 2.0) for one in (wild, tame))
    assert len(set(pairs)) == 1


@pytest.mark.parametrize("high", [1.0, 0.3, 7.0, 1e-12, 1e12])
def test_a_lattice_stays_within_its_range_and_close(high: float) -> None:
    lattice = Bounds(0.0, high)
    values = np.linspace(-0.2, 1.2, 1_001) * high
    there = lattice.whole(values) * lattice.step
    assert math.frexp(lattice.step)[0] == 0.5
    assert (there >= 0).all()
    assert (there <= high).all()
    assert np.abs(there - np.clip(values, 0, high)).max() <= 2**-20 * high


def test_the_variance_is_unbiased_given_who_is_where() -> None:
    """5,000 draws of outcomes with arms of unlike variances and effects that differ by stratum.

    Its mean is within 5.5 standard errors (4e-8) of the variance of the effect, and within 2 %; a
    mean off by 3 % would fail. The paper's is too large by the squared effects.
    """
    generator = np.random.default_rng(8)
    stratum = np.repeat([0, 1, 2], [7, 12, 9])
    treated = np.concatenate([np.arange(7) < 2, np.arange(12) < 6, np.arange(9) < 7])
    match = matched(stratum, treated)
    centre = 0.3 + 0.2 * treated + 0.1 * stratum * treated
    width = np.where(treated, 0.1, 0.25)
    draws = centre + width * generator.uniform(-1, 1, size=(5_000, 28))
    truth = float((match.weights(treated) ** 2 * width**2 / 3).sum()) / 28**2
    everybody = (SitePeople(stratum, treated, y, 3) for y in draws)
    found = np.array([evaluate(people, 1.0).variance_sum for people in everybody]) / 28**2
    paired = np.array(
        [paired_variance(SitePeople(stratum, treated, y, 3), 1.0) for y in draws[:500]]
    )
    assert_mean(found, truth, min(5.5, 0.02 * truth / mean_error(found)))
    assert paired.mean() > 2.0 * truth
    effects = (draws @ match.weights(treated)) / 28
    assert effects.var() == pytest.approx(truth, rel=0.1)


def test_a_unit_alone_in_its_arm_counts_as_uncertain_as_can_be() -> None:
    people = SitePeople(np.zeros(3, dtype=np.int64), np.array([True, False, False]), np.ones(3), 1)
    assert stratum_variances(people, 1.0).tolist() == [(1 + 2) ** 2 / 4]


def test_a_changed_order_changes_the_paper_s_variance_and_not_ours() -> None:
    people = some_people(9, 400, 3)
    mixed = np.random.default_rng(10).permutation(400)
    other = SitePeople(people.stratum[mixed], people.treated[mixed], people.outcome[mixed], 3)
    assert evaluate(people, 1.0).variance_sum == evaluate(other, 1.0).variance_sum
    assert paired_variance(people, 1.0) != paired_variance(other, 1.0)


# refusals


def test_people_print_as_nothing() -> None:
    people = some_people(11, 3, 2)
    assert repr(people).startswith("<")
    assert "0." not in repr(people)
    assert repr(evaluate(people, 1.0)).startswith("<")


WRONG = [
    (np.array([0, 2]), np.array([True, False]), np.zeros(2), 2),
    (np.array([0, -1]), np.array([True, False]), np.zeros(2), 2),
    (np.array([0, 1]), np.array([1, 0]), np.zeros(2), 2),
    (np.array([0, 1]), np.array([True, False]), np.zeros(3), 2),
    (np.array([], dtype=np.int64), np.array([], dtype=np.bool_), np.zeros(0), 2),
    (np.array([0]), np.array([True]), np.zeros(1), 0),
]


@pytest.mark.parametrize(("stratum", "treated", "outcome", "n_strata"), WRONG)
def test_what_no_binning_makes_is_refused(
    stratum: Ints, treated: Bools, outcome: Floats, n_strata: int
) -> None:
    with pytest.raises(ValueError, match=r"strata are numbered|people have"):
        SitePeople(stratum, treated, outcome, n_strata)
