"""From what a publisher asks for to Cluster-Optimal-DP with parameters, without any data.

A part of ε pays for noisy counts (or sums) of the strata, which estimates use and which tables may
be learnt from; another may pay for noisy counts of whole arms, which tables alone are learnt from.
What they leave is what every table keeps.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from privatizers.accounting.accountant import calibrate_bounded, delta_at
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.parameters import OptimalParameters, event_of, statistics_event
from privatizers.mechanisms.statistics.margin_sums import MarginSums
from privatizers.mechanisms.statistics.noisy_counts import moved_cells
from privatizers.mechanisms.statistics.noisy_squares import NoisySquares
from privatizers.optimal_response.programme import MOST_INPUTS
from privatizers.optimal_response.whole_numbers import MOST_EPSILON, even_table
from privatizers.planning.design import (
    StatisticName,
    check_grid,
    check_margins,
    check_means,
    check_price,
)
from schemas.errors import ConfigError

LEAST_EPSILON = 1e-3
"""Of a release by it."""

COUNTS_SHARE = 0.02
"""The part of ε that pays for the statistic of the strata, where no plan says another.

Of 1, 2 and 3 % it left the least noise a unit, or nearly, on Experiment 1, Hillstrom's spend and
STAR at ε = 2, 4 and 6."""


ARMS_SHARE = 0.01
"""The part of ε that pays for noisy counts of arms, where no plan says another.

Of 0.5, 1, 2 and 3 % it left the least noise a unit, or nearly, on Hillstrom's spend and STAR at
ε = 2, 4 and 8."""

LearnFrom = Literal["auto", "strata", "arms", "nothing"]
"""Where tables are learnt from; ``auto``: from what tells most, or where nothing is planned, from
the counts of strata that are asked for, else from counts of arms."""


@dataclass(frozen=True)
class OptimalRequest:
    """The publisher's request, for one outcome."""

    grid: tuple[float, ...]
    guess: tuple[float, ...]
    epsilon: float | None
    delta: float = 0.0
    strata_statistic: StatisticName = "auto"
    lattice: Lattice | None = None
    """The lattice of the grid, if it has one: means are published as sums of its steps."""
    statistic_share: float = COUNTS_SHARE
    square_share: float = 0.0
    """The part of ``epsilon`` that pays for arms' sums of squares, beside published means."""
    learn_from: LearnFrom = "auto"
    arms_share: float = ARMS_SHARE
    """The part of ``epsilon`` that pays for noisy counts of arms, where tables learn from these."""
    margin_shares: tuple[float, ...] = ()
    """The part of ``epsilon`` that pays for the sums of each margin; shape [J]."""

    @property
    def learns(self) -> LearnFrom:
        """Where tables are learnt from, settled: of two outcomes the table is known anyhow."""
        if self.learn_from != "auto":
            return self.learn_from
        if self.strata_statistic == "counts":
            return "strata"
        return "nothing" if len(self.grid) == 2 else "arms"

    @property
    def publishes(self) -> StatisticName:
        """The statistic of strata, settled; ``auto``: counts, where tables learn from them."""
        if self.strata_statistic != "auto":
            return self.strata_statistic
        return "counts" if self.learns == "strata" else "none"


@dataclass(frozen=True)
class OptimalDesign:
    """Cluster-Optimal-DP, and the (ε, δ) that its release states: as requested."""

    mechanism: ClusterOptimalDP
    epsilon: float
    delta: float


def optimal_design(request: OptimalRequest) -> OptimalDesign:
    """Split ε between the statistic of strata, what is learnt from, and tables.

    Raises:
        ConfigError: A value of the request cannot be used; the error names its key.
    """
    check_optimal(request)
    if request.epsilon is None:
        raise AssertionError("checked above")
    epsilon, k = request.epsilon, len(request.grid)
    share, scale = epsilon * request.statistic_share, None
    lattice = request.lattice if request.publishes == "means" else None
    squares = NoisySquares.of_price(lattice, epsilon * request.square_share, of_means=True)
    if request.publishes != "none":
        scale = (moved_cells(k) if lattice is None else lattice.most) / share
    arm_scale = (
        moved_cells(k) / (epsilon * request.arms_share) if request.learns == "arms" else None
    )
    unpaid = OptimalParameters(
        request.grid,
        request.guess,
        epsilon,
        scale,
        lattice,
        squares,
        arm_scale,
        learns=request.learns != "nothing",
        margins=MarginSums.of_price(request.lattice, epsilon, request.margin_shares),
    )
    response = calibrate_bounded(epsilon, request.delta, statistics_event(unpaid))
    parameters = replace(unpaid, response_epsilon=response)
    event = event_of(parameters)
    if delta_at(event, epsilon) > request.delta:  # never happens; the claim rests on it
        raise AssertionError("calibration exceeded the epsilon asked for")
    try:  # before any draw: a release has nothing else to fall back on
        is_of_use = even_table(np.array(request.grid), response).tells_apart(response)
    except ValueError:
        is_of_use = False
    if not is_of_use:
        raise ConfigError(
            "privacy.epsilon", "too small: no table keeps what is left for outcomes; ask for more"
        )
    return OptimalDesign(ClusterOptimalDP(parameters), epsilon, request.delta)


def check_optimal(request: OptimalRequest) -> None:
    """Raise ConfigError for impossible values; it names the key, the value and the rule."""
    k = len(request.grid)
    check_grid(k)
    if k > MOST_INPUTS:
        raise ConfigError(
            "outcome",
            f"the grid has {k:,} points, and cluster-optimal-dp takes {MOST_INPUTS} at most: "
            'give low, high and fewer levels, or levels = "auto"; outcomes between points are '
            "rounded at random, which biases nothing",
        )
    if request.epsilon is None:
        raise ConfigError("privacy.epsilon", "missing: cluster-optimal-dp is solved for an epsilon")
    check_price(request.epsilon, request.delta, workable=(LEAST_EPSILON, MOST_EPSILON))
    if request.learn_from == "strata" and request.strata_statistic in ("means", "none"):
        raise ConfigError(
            "privacy.learn_from",
            f'"strata" needs noisy counts of them, and privacy.strata_statistic is '
            f'"{request.strata_statistic}": make that "counts" or "auto", or learn from "arms"',
        )
    check_means(request.strata_statistic, request.lattice)
    check_margins(request.margin_shares, request.lattice, request.epsilon)
