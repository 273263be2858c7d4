"""From what a publisher asks for to Cluster-Optimal-DP with parameters, without any data.

A part of ε pays for noisy counts (or sums) of the strata, which tables are learnt from and which
estimates use, and what it leaves is what every table keeps.
"""

from dataclasses import dataclass

import numpy as np

from privatizers.accounting.accountant import calibrate_bounded, delta_at
from privatizers.accounting.events import CountsNoise, Event, SquareNoise, SumNoise, Together
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.noisy_counts import moved_cells
from privatizers.mechanisms.noisy_squares import NoisySquares
from privatizers.mechanisms.parameters import OptimalParameters, event_of
from privatizers.optimal_response.programme import MOST_INPUTS
from privatizers.optimal_response.whole_numbers import MOST_EPSILON, even_table
from privatizers.planning.design import StatisticName, check_range, check_workable
from schemas.errors import ConfigError

LEAST_EPSILON = 1e-3
"""Of a release by it."""

COUNTS_SHARE = 0.02
"""The part of ε that pays for the statistic of the strata, where no plan says another.

Of 1, 2 and 3 % it left the least noise a unit, or nearly, on Experiment 1, Hillstrom's spend and
STAR at ε = 2, 4 and 6."""


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


@dataclass(frozen=True)
class OptimalDesign:
    """Cluster-Optimal-DP, and the (ε, δ) that its release states: as requested."""

    mechanism: ClusterOptimalDP
    epsilon: float
    delta: float


def optimal_design(request: OptimalRequest) -> OptimalDesign:
    """Split ε; ``auto`` publishes counts.

    Raises:
        ConfigError: A value of the request cannot be used; the error names its key.
    """
    check_optimal(request)
    if request.epsilon is None:
        raise AssertionError("checked above")
    epsilon, k = request.epsilon, len(request.grid)
    share, lattice = epsilon * request.statistic_share, None
    noise: Event | None = None
    scale: float | None = None
    squares: NoisySquares | None = None
    if request.strata_statistic == "means" and request.lattice is not None:
        lattice = request.lattice
        scale = lattice.most / share
        noise = SumNoise(scale, lattice.most)
        squares = NoisySquares.of_price(lattice, epsilon * request.square_share, of_means=True)
        if squares is not None:
            noise = Together((noise, SquareNoise(squares.noise_scale, squares.steps.most)))
    elif request.strata_statistic != "none":
        scale = moved_cells(k) / share
        noise = CountsNoise(scale, moved_cells(k))
    response = calibrate_bounded(epsilon, request.delta, noise)
    parameters = OptimalParameters(request.grid, request.guess, response, scale, lattice, squares)
    event = event_of(parameters)
    if delta_at(event, epsilon) > request.delta:  # never happens; the claim rests on it
        raise AssertionError("calibration exceeded the epsilon asked for")
    try:  # before any draw: a release falls back on this table, and has no other way out
        even_table(np.array(request.grid), response)
    except ValueError:
        raise ConfigError(
            "privacy.epsilon", "too small: no table keeps what is left for outcomes; ask for more"
        ) from None
    return OptimalDesign(ClusterOptimalDP(parameters), epsilon, request.delta)


def check_optimal(request: OptimalRequest) -> None:
    """Raise ConfigError for impossible values; it names the key, the value and the rule."""
    k = len(request.grid)
    if k < 2:
        raise ConfigError(
            "outcome", f"the grid has {k} point: at least 2 distinct values are needed"
        )
    if k > MOST_INPUTS:
        raise ConfigError(
            "outcome",
            f"the grid has {k:,} points, and cluster-optimal-dp takes {MOST_INPUTS} at most: "
            'give low, high and fewer levels, or levels = "auto"; outcomes between points are '
            "rounded at random, which biases nothing",
        )
    if request.epsilon is None:
        raise ConfigError("privacy.epsilon", "missing: cluster-optimal-dp is solved for an epsilon")
    check_range("epsilon", request.epsilon, 0, float("inf"))
    check_workable("epsilon", request.epsilon, LEAST_EPSILON, MOST_EPSILON)
    if not 0 <= request.delta < 1:
        raise ConfigError("privacy.delta", f"{request.delta!r} is not at least 0 and less than 1")
    if request.strata_statistic == "means" and request.lattice is None:
        raise ConfigError(
            "privacy.strata_statistic",
            '"means" needs a grid whose points lie whole steps apart: space them evenly, or '
            'publish "counts"',
        )
