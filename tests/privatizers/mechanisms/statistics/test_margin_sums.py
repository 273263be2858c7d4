"""What sums of margins cost, who pays for them, and with what noise they are drawn."""

from dataclasses import replace
from decimal import Decimal
from itertools import product

import numpy as np
import pytest

from privatizers.accounting.accountant import delta_at, epsilon_at, pure_epsilon
from privatizers.accounting.events import MarginNoise, SumNoise, Together
from privatizers.domain.lattice import Lattice, lattice_of
from privatizers.mechanisms.parameters import UnitParameters, event_of
from privatizers.mechanisms.statistics.margin_sums import MarginSums
from privatizers.planning.design import Request, design
from privatizers.planning.optimal_design import OptimalRequest, optimal_design
from schemas.errors import ConfigError
from tests.support.distances import assert_near

GRID = (0.0, 1.0, 2.0, 4.0)
SHARES = (0.3, 0.1)


def test_margins_cost_what_each_of_them_costs_added_up() -> None:
    event = MarginNoise((10.0, 40.0), 4)
    assert pure_epsilon(event) == pytest.approx(4 / 10 + 4 / 40, rel=1e-15)
    assert Decimal(pure_epsilon(event)) >= Decimal(4) / 10 + Decimal(4) / 40
    for scales, most in (((), 4), ((0.0,), 4), ((1.0,), 0)):
        with pytest.raises(ValueError, match="no such event"):
            MarginNoise(scales, most)


@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.1])
def test_with_a_delta_they_are_never_told_to_cost_less_than_they_do(epsilon: float) -> None:
    margins = MarginNoise((8.0, 5.0), 4)
    exact = Together((SumNoise(8.0, 4), SumNoise(5.0, 4)))
    assert delta_at(margins, epsilon) >= delta_at(exact, epsilon)
    assert pure_epsilon(margins) == pytest.approx(pure_epsilon(exact), rel=1e-15)


def designs(shares: tuple[float, ...], epsilon: float, delta: float) -> list[UnitParameters]:
    lattice = lattice_of(GRID)
    asked = Request(
        "uniform-prior-dp", 4, "means", epsilon, delta, lattice=lattice, margin_shares=shares
    )
    requests = [
        asked,
        replace(asked, strata_statistic="none"),
        replace(asked, mechanism="cluster-dp", strata_statistic="counts"),
    ]
    tables = OptimalRequest(
        GRID, (0.25,) * 4, epsilon, delta, lattice=lattice, margin_shares=shares
    )
    made = [design(one).mechanism.parameters for one in requests]
    return [*made, optimal_design(tables).mechanism.parameters]


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.0), (0.5, 0.0), (1.0, 1e-5)])
def test_a_design_pays_for_its_margins_from_its_epsilon(epsilon: float, delta: float) -> None:
    for own, without in zip(
        designs(SHARES, epsilon, delta), designs((), epsilon, delta), strict=True
    ):
        assert own.margins == MarginSums(
            Lattice((0, 1, 2, 4)), (4 / (0.3 * epsilon), 4 / (0.1 * epsilon))
        )
        assert epsilon_at(event_of(own), delta) == pytest.approx(epsilon, rel=1e-9)
        assert epsilon_at(event_of(own), delta) <= epsilon
        assert without.margins is None
        both = replace(without, margins=own.margins)
        assert epsilon_at(event_of(both), delta) > 1.3 * epsilon


def test_margins_need_a_lattice_and_an_epsilon() -> None:
    asked = Request("uniform-prior-dp", 3, "counts", 1.0, margin_shares=(0.4,))
    with pytest.raises(ConfigError, match="margins: need a grid whose points lie whole steps"):
        design(asked)
    given = replace(asked, epsilon=None, resampling_probability=0.5, noise_scale=9.0)
    with pytest.raises(ConfigError, match="margins: are paid from"):
        design(given)
    with pytest.raises(ValueError, match="no margins"):
        MarginSums(Lattice((0, 1)), ())


def test_every_sum_has_noise_of_its_margin_and_of_its_own() -> None:
    """Means of squares, in standard errors: each fails once in 1.7 million runs."""
    margins = MarginSums(Lattice((0, 1, 3)), (2.0, 7.0))
    sums = np.arange(60_000).reshape(30_000, 2)
    for margin, scale in enumerate(margins.noise_scales):
        noise = margins.noised(margin, sums) - sums
        assert noise.shape == sums.shape
        a = np.exp(-1.0 / scale)
        variance = 2.0 * a / (1.0 - a) ** 2
        fourth = variance * (1.0 + 10.0 * a + a**2) / (1.0 - a) ** 2
        error = np.sqrt((fourth - variance**2) / noise.size)
        assert_near((noise.astype(float) ** 2).mean(), variance, error, within=5)
        assert_near(
            (noise[:, 0] * noise[:, 1]).mean(), 0.0, variance / np.sqrt(len(noise)), within=5
        )


def test_what_is_attained_is_the_claim() -> None:
    """Two margins of one unit: the ratio of any pair of noisy sums, listed, is at most e^ε."""
    margins, most = MarginSums(Lattice((0, 1, 3)), (2.0, 5.0)), 3
    claimed = pure_epsilon(MarginNoise(margins.noise_scales, most))
    reach = range(-12, 16)
    losses = [
        sum(
            (abs(seen - true_there) - abs(seen - true)) / scale
            for seen, scale in zip(pair, margins.noise_scales, strict=True)
        )
        for true, true_there in ((0, 3), (3, 0), (0, 1), (1, 3))
        for pair in product(reach, repeat=2)
    ]
    assert max(losses) == pytest.approx(claimed, rel=1e-12)
