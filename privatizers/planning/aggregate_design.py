"""From what a publisher asks for to an aggregate mechanism with its σ, without any data.

Where ε is given, σ is the least double whose price is not above ε; where σ is given, ε is its
price, rounded up. Both are pure: where a δ above 0 is configured, ε alone pays for σ and δ is
stated as requested, which is sound but gains nothing.
"""

import math
from dataclasses import dataclass
from typing import Literal

from privatizers.accounting.accountant import pure_epsilon
from privatizers.accounting.events import CountsNoise, Event, SquareNoise, SumNoise, Together
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.noisy_histogram import NoisyHistogram
from privatizers.mechanisms.noisy_horvitz_thompson import NoisyHorvitzThompson
from privatizers.mechanisms.parameters import AggregateParameters, event_of
from privatizers.mechanisms.statistics.noisy_counts import moved_cells
from privatizers.mechanisms.statistics.noisy_squares import NoisySquares
from privatizers.planning.design import check_grid, check_price
from schemas.errors import ConfigError

SQUARE_SHARE = 0.05
"""The part of ε that pays for arms' sums of squares in a release of differences or means."""

AggregateName = Literal["noisy-histogram", "noisy-horvitz-thompson"]


@dataclass(frozen=True)
class AggregateRequest:
    """The publisher's request: ``epsilon`` or ``noise_scale``, never both."""

    mechanism: AggregateName
    n_outcomes: int
    n_treatments: int = 1
    """Number of treatment arms; for one, differences are published, for more, means."""
    epsilon: float | None = None
    delta: float = 0.0
    noise_scale: float | None = None
    lattice: Lattice | None = None
    """The lattice of the grid, if it has one."""
    square_share: float = 0.0
    """The part of ``epsilon`` that pays for arms' sums of squares, where they tell anything."""


@dataclass(frozen=True)
class AggregateDesign:
    """An aggregate mechanism, and the (ε, δ) that its release states."""

    mechanism: AggregateMechanism
    epsilon: float
    delta: float


def aggregate_design(request: AggregateRequest) -> AggregateDesign:
    """Choose the σ of an aggregate mechanism.

    Raises:
        ConfigError: A value of the request cannot be used; the error names its key.
    """
    check_aggregate(request)
    lattice = None if request.mechanism == "noisy-histogram" else request.lattice
    scale, squares = request.noise_scale, None
    if request.epsilon is not None:
        price, of_means = request.epsilon * request.square_share, request.n_treatments > 1
        squares = NoisySquares.of_price(lattice, price, of_means=of_means)
        left = request.epsilon * (1.0 - request.square_share * (squares is not None))
        scale = _least_scale(request.epsilon, left, request.n_outcomes, lattice, squares)
    if scale is None:
        raise AssertionError("checked above")
    differences = lattice is not None and request.n_treatments == 1
    parameters = AggregateParameters(request.n_outcomes, scale, lattice, differences, squares)
    kind = NoisyHistogram if lattice is None else NoisyHorvitzThompson
    price = pure_epsilon(event_of(parameters))
    epsilon = price if request.epsilon is None else request.epsilon
    if price > epsilon:  # never happens; the claim rests on it
        raise AssertionError("calibration exceeded the epsilon asked for")
    return AggregateDesign(kind(parameters), epsilon, request.delta)


def _least_scale(
    epsilon: float,
    left: float,
    n_outcomes: int,
    lattice: Lattice | None,
    squares: NoisySquares | None,
) -> float:
    """Return the least σ, a double, that costs at most ``epsilon`` together with ``squares``.

    It is the number of cells, or steps, that one unit can change, over ε. ``left`` is about the
    part of ε that ``squares`` leave.
    """
    most = moved_cells(n_outcomes) if lattice is None else lattice.most

    def noise(scale: float) -> Event:
        statistic = CountsNoise(scale, most) if lattice is None else SumNoise(scale, most)
        if squares is None:
            return statistic
        return Together((statistic, SquareNoise(squares.noise_scale, squares.steps.most)))

    scale = most / left
    while pure_epsilon(noise(scale)) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return scale


def check_aggregate(request: AggregateRequest) -> None:
    """Raise ConfigError for impossible values; it names the key, the value and the rule."""
    check_grid(request.n_outcomes)
    if request.mechanism == "noisy-horvitz-thompson" and request.lattice is None:
        raise ConfigError(
            "privacy.mechanism",
            f'"{request.mechanism}" needs a grid whose points lie whole steps apart: space them '
            'evenly, or use "noisy-histogram"',
        )
    if request.epsilon is not None and request.noise_scale is not None:
        raise ConfigError(
            "privacy.noise_scale", "given together with epsilon: give the one or the other"
        )
    if request.epsilon is None and request.noise_scale is None:
        raise ConfigError("privacy.epsilon", "missing: give it, or noise_scale instead")
    check_price(request.epsilon, request.delta, request.noise_scale)
