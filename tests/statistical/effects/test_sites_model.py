"""One effect model of four sites is as near as that of one place at the same total noise.

Root mean squared errors over :data:`N_PAIRS` pairs of models of the same people, set-ups A to E:
four sites of a quarter of the people each at ρ, and one place with all of them at ρ/4, whose noise
is that of the four together. The ratio is 1.1 at most, within four standard errors: a check fails
by chance in fewer than one of 10⁴ runs. With one site's effects left out of the sum it does.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from estimators.concentrated import concentrated_rho
from estimators.effects.models.fit import fit
from estimators.effects.models.queries import EFFECTS, named
from flows.effects.released.loss import epsilon_of
from flows.lab.replication.cate.setups import SetUp, SetUpPeople, simulated
from privatizers.effects.models.lattice_sums import BATCH
from privatizers.effects.models.moments import draw_sums
from schemas.arrays import Floats
from schemas.effects.model import Agreed, EffectDesign, NoisySums, SiteSums
from tests.support.distances import assert_near, distance

pytestmark = pytest.mark.statistical

N_PAIRS = 10
N, SITES, DELTA = 16_000, "abcd", 1e-5
EPSILON = 8.0
"""Of each site."""
SPREADS = {"A": None, "E": (1.8, 2.1, 2.35)} | dict.fromkeys("BCD", (1.0,) * 6)
"""Standard deviations of numbers by set-up, which sites know; those of A are even."""


def agreed(set_up: SetUp) -> EffectDesign:
    spreads = SPREADS[set_up.name] or ()
    usual = [(-spread, spread) for spread in spreads]
    more = [None] * (len(set_up.features) - len(usual))
    made = Agreed("0" * 64, 2, (*usual, *more))
    return replace(set_up.design(EPSILON, DELTA), targeting=False, agreed=made)


def drawn(set_up: SetUp, design: EffectDesign, people: SetUpPeople) -> tuple[NoisySums, ...]:
    return draw_sums(design, len(people.outcome), set_up.batches(people, BATCH))


def of_site(people: SetUpPeople, number: int) -> SetUpPeople:
    part = slice(number, None, len(SITES))
    return SetUpPeople(
        people.features[part], people.treated[part], people.outcome[part], people.effect[part]
    )


def together(design: EffectDesign, by_site: dict[str, tuple[NoisySums, ...]]) -> EffectDesign:
    assert design.agreed is not None
    size = N // len(by_site)
    sites = tuple(SiteSums(site, 1, size, EPSILON, DELTA) for site in by_site)
    return replace(design, agreed=replace(design.agreed, sites=sites))


def squared_errors(set_up: SetUp, *, forgets: bool = False) -> Floats:
    """Mean squared errors of the four sites' models and of one place's, shape [pairs, 2].

    ``forgets``: the sums of one site's effects are those of none.
    """
    random, design = np.random.default_rng(7), agreed(set_up)
    quarter = concentrated_rho(EPSILON, DELTA) / len(SITES)
    of_one = replace(design, epsilon=epsilon_of(quarter, DELTA))
    fresh = set_up.fresh(random)
    at, found = set_up.positions(fresh.features), []
    for _ in range(N_PAIRS):
        people = set_up.draw(N, random)
        by_site = {
            site: drawn(set_up, design, of_site(people, number))
            for number, site in enumerate(SITES)
        }
        sums = [
            replace(
                each,
                name=named(site, each.name),
                steps=each.steps * (not forgets or (site, each.name) != ("d", EFFECTS)),
            )
            for site, own in by_site.items()
            for each in own
        ]
        models = (
            fit(together(design, by_site), N, sums),
            fit(of_one, N, drawn(set_up, of_one, people)),
        )
        found.append([np.mean((each.predict(at)[0] - fresh.effect) ** 2) for each in models])
    return np.array(found)


def ratio(errors: Floats) -> tuple[float, float]:
    """The ratio of root mean squared errors, and its standard error."""
    mean = errors.mean(axis=0)
    found = math.sqrt(mean[0] / mean[1])
    apart = (errors / mean) @ np.array([0.5, -0.5])
    return found, found * float(apart.std(ddof=1)) / math.sqrt(len(errors))


@pytest.mark.parametrize("set_up", simulated(), ids=lambda each: each.name)
def test_four_sites_are_as_near_as_one_place(set_up: SetUp) -> None:
    found, error = ratio(squared_errors(set_up))
    assert_near(found, (0.0, 1.1), error, 4.0)


def test_a_site_that_is_left_out_shows() -> None:
    found, error = ratio(squared_errors(simulated()[1], forgets=True))
    assert distance(found, (0.0, 1.1), error) > 4.0
