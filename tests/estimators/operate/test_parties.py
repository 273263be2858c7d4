"""What units assigned together contribute to several releases, against their variance in one."""

from dataclasses import replace

import numpy as np
import pytest

from estimators.operate.parties import families, party_contributions
from estimators.operate.people import Returners, contributions, cross_terms, together
from schemas.arrays import Floats, Ints, Words
from tests.estimators.strata.test_assigned import Trial, trial
from tests.statistical.found import ratio, ratio_error
from tests.support.distances import assert_between


def members(of: Trial) -> Returners:
    return Returners(np.zeros(len(of.arm), np.int64), of.cluster, of.arm, of.d, of.party)


def of_parties(of: Trial) -> tuple[Floats, Words]:
    """What each family contributes, and which it is."""
    found = party_contributions(members(of), 1, 0, same_shares=False)
    nowhere = np.zeros(len(of.arm), np.int64)
    who = families(nowhere, of.party.astype(np.uint64), found.collapsed)
    _, family, _, total = together(nowhere, who, nowhere, found.value)
    return total, family


def pairs(n_pairs: int, random: np.random.Generator, shops: Floats | None = None) -> Trial:
    """Matched pairs of shops, a cluster each, of three customers or four."""
    if shops is None:
        shops = random.normal(size=2 * n_pairs)
    size = np.resize([3, 4, 3], 2 * n_pairs)
    party = np.repeat(np.arange(2 * n_pairs), size)
    outcome = 2.0 + shops[party] + random.normal(size=len(party))
    return Trial(party // 2, party % 2, party, outcome)


def some_alone(seed: int) -> Trial:
    """Three shops an arm in each of two clusters; in three others one treated, and two not."""
    random = np.random.default_rng(seed)
    arm = np.array([0, 0, 0, 1, 1, 1] * 2 + [0, 0, 1] * 3)
    cluster = np.repeat(np.arange(5), [6, 6, 3, 3, 3])
    party = np.repeat(np.arange(len(arm)), 4)
    outcome = 2.0 + random.normal(size=len(arm))[party] + 0.3 * random.normal(size=len(party))
    return Trial(cluster[party], arm[party], party, outcome)


TRIALS = {
    "one cluster": trial(12, [1, 2, 5]),
    "nested": trial(24, [2, 3, 9], 4, seed=3),
    "spanning": trial(24, [2, 3, 9], 3, nested=False, seed=5),
    "two an arm": trial(6, [4], 3, seed=6),
    "matched pairs": pairs(9, np.random.default_rng(7)),
    "some alone": some_alone(8),
}


@pytest.mark.parametrize("name", TRIALS)
def test_the_same_parties_with_the_same_outcomes_twice_are_one_release(name: str) -> None:
    of = TRIALS[name]
    once = of.contrast()
    assert once.variance[0] > 1.05 * of.contrast(together=False).variance[0]
    total, family = of_parties(of)
    n = float(once.n_units[0])
    assert (total**2).sum() / n**2 == pytest.approx(once.variance[0], rel=1e-9)
    twice = cross_terms(
        np.zeros(2 * len(total), np.int64),
        np.tile(family, 2),
        np.repeat(np.arange(2), len(total)),
        np.tile(total, 2),
        (2, 1),
    )
    both = 2.0 * (total**2).sum() + twice.total.sum()
    assert both / (2.0 * n) ** 2 == pytest.approx(once.variance[0], rel=1e-9)


def test_parties_of_one_unit_contribute_what_units_do() -> None:
    by_themselves = replace(members(trial(30, [2, 4, 7], 3)), party=None)
    found = party_contributions(by_themselves, 1, 0, same_shares=False)
    expected = contributions(by_themselves, 1, 0, same_shares=False)
    np.testing.assert_allclose(found.value, expected, atol=1e-12)
    assert (found.collapsed == -1).all()


def test_an_arm_of_one_party_says_nothing() -> None:
    of = Trial(np.zeros(8, np.int64), np.repeat([0, 1], 4), np.repeat([0, 1], 4), np.arange(8.0))
    found = party_contributions(members(of), 1, 0, same_shares=False)
    assert not found.value.any()
    assert (found.collapsed == -1).all()


def test_one_collapsed_stratum_takes_the_others_with_it() -> None:
    """Nothing could be compared with it otherwise, and it would seem to contribute nothing."""
    of = some_alone(2)
    chosen = of.cluster <= 2
    few = Trial(of.cluster[chosen], of.arm[chosen], of.party[chosen], of.outcome[chosen])
    found = party_contributions(members(few), 1, 0, same_shares=False)
    assert (found.collapsed >= 0).all()
    assert np.unique(found.collapsed).size == 3


def test_those_who_ever_shared_a_collapsed_stratum_are_one_family() -> None:
    """Parties 1 and 2 in one night, 2 and 3 in the next; 4 is by itself, and so are others' 1."""
    effect: Ints = np.array([0, 0, 0, 0, 0, 1])
    party: Words = np.array([1, 2, 2, 3, 4, 1], dtype=np.uint64)
    found = families(effect, party, np.array([7, 7, 9, 9, -1, -1]))
    assert np.unique(found[:4]).size == 1
    assert np.unique(found).size == 3


N_SERIES, N_NIGHTS, N_PAIRS = 400, 3, 12


@pytest.mark.statistical
@pytest.mark.parametrize("back", ["both", "treated", "nobody"])
def test_shops_of_matched_pairs_that_come_back_widen_the_error(back: str) -> None:
    """Mean variance over 400 series against the variance of their estimates.

    The variance of 400 estimates has a relative standard error of 7.1 %, and the mean of their
    variances of 2 %, so 3 in 100,000 runs fail by chance (4.4 standard errors, 3 cases). Without
    the products of pairs, the variance is 0.4 of what it has to be where both shops come back.
    """
    random = np.random.default_rng(11)
    estimates, variances, without = [], [], []
    stays = {"both": [True, True], "treated": [False, True], "nobody": [False, False]}[back]
    returns = np.resize(stays, 2 * N_PAIRS)
    for _ in range(N_SERIES):
        first = random.normal(size=2 * N_PAIRS)
        rows = []
        for night in range(N_NIGHTS):
            shops = np.where(returns, first, random.normal(size=2 * N_PAIRS))
            of = pairs(N_PAIRS, random, shops)
            found = party_contributions(members(of), 1, 0, same_shares=False)
            once = of.contrast()
            # a shop that does not come back is another one: it has another number
            who = of.party + np.where(returns[of.party], 0, 1_000 * (night + 1))
            rows.append((once, found, who.astype(np.uint64), night))
        n = float(rows[0][0].n_units[0])
        estimates.append(np.mean([once.estimate[0] for once, *_ in rows]))
        squares = sum(once.variance[0] for once, *_ in rows) / N_NIGHTS**2
        period: Ints = np.concatenate([np.full(len(who), at) for _, _, who, at in rows])
        who_of = np.concatenate([who for _, _, who, _ in rows])
        collapsed = np.concatenate([found.collapsed * N_NIGHTS + at for _, found, _, at in rows])
        nowhere = np.zeros(len(period), np.int64)
        family = families(nowhere, who_of, collapsed)
        value = np.concatenate([found.value for _, found, _, _ in rows])
        by_night = [
            together(nowhere[at], family[at], period[at], value[at])
            for at in (period == night for night in range(N_NIGHTS))
        ]
        effect, unit, when, part = (np.concatenate(one) for one in zip(*by_night, strict=True))
        cross = cross_terms(effect, unit, when, part, (N_NIGHTS, 1)).total.sum()
        variances.append(squares + cross / (N_NIGHTS * n) ** 2)
        without.append(squares)
    truth = float(np.var(estimates, ddof=1))
    told = (np.array(estimates), np.array(variances))
    assert_between(ratio(*told), (0.67, 1.33), 1.0, ratio_error(*told))
    if back == "both":
        assert np.mean(without) < 0.55 * truth
