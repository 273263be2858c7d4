"""From what a publisher asks for to an aggregate mechanism with its σ, without any data.

Given ε, σ is the least double whose price is not above it; given σ, ε is its price, rounded up.
Both are pure: where a δ above 0 is configured, σ is what ε alone pays for and δ is stated as asked,
which is sound and buys nothing.
"""

import math
from dataclasses import dataclass
from typing import Literal

from privatizers.accounting.accountant import pure_epsilon
from privatizers.accounting.events import CountsNoise, Event, SquareNoise, SumNoise, Together
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.noisy_counts import moved_cells
from privatizers.mechanisms.noisy_histogram import NoisyHistogram
from privatizers.mechanisms.noisy_horvitz_thompson import NoisyHorvitzThompson
from privatizers.mechanisms.noisy_squares import NoisySquares, is_even, square_steps
from privatizers.mechanisms.parameters import AggregateParameters, event_of
from privatizers.planning.design import check_range, check_workable
from schemas.errors import ConfigError

SQUARE_SHARE = 0.05
"""The part of ε that pays for arms' sums of squares in a release of differences or means."""

AggregateName = Literal["noisy-histogram", "noisy-horvitz-thompson"]


@dataclass(frozen=True)
class AggregateRequest:
    """What a publisher asks for: ``epsilon`` or ``noise_scale``, never both."""

    mechanism: AggregateName
    n_outcomes: int
    n_treatments: int = 1
    """Treatment arms; of one, differences are published, of more, means."""
    epsilon: float | None = None
    delta: float = 0.0
    noise_scale: float | None = None
    lattice: Lattice | None = None
    """Of the grid, if it has one."""
    square_share: float = 0.0
    """The part of ``epsilon`` that pays for arms' sums of squares, where they tell anything."""


@dataclass(frozen=True)
class AggregateDesign:
    """An aggregate mechanism, and the (ε, δ) that its release states."""

    mechanism: AggregateMechanism
    epsilon: float
    delta: float


def aggregate_design(request: AggregateRequest) -> AggregateDesign:
    """Choose the σ of an aggregate mechanism; raises ConfigError naming the key."""
    check_aggregate(request)
    lattice = None if request.mechanism == "noisy-histogram" else request.lattice
    scale, squares = request.noise_scale, None
    if request.epsilon is not None:
        squares = _squares(request, request.epsilon, lattice)
        left = request.epsilon * (1.0 - request.square_share * (squares is not None))
        scale = _least_scale(request.epsilon, left, request.n_outcomes, lattice, squares)
    if scale is None:
        raise _missing()
    differences = lattice is not None and request.n_treatments == 1
    parameters = AggregateParameters(request.n_outcomes, scale, lattice, differences, squares)
    kind = NoisyHistogram if lattice is None else NoisyHorvitzThompson
    price = pure_epsilon(event_of(parameters))
    epsilon = price if request.epsilon is None else request.epsilon
    if price > epsilon:  # cannot happen; the claim hangs on it
        msg = "calibration exceeded the epsilon asked for"
        raise AssertionError(msg)
    return AggregateDesign(kind(parameters), epsilon, request.delta)


def _squares(
    request: AggregateRequest, epsilon: float, lattice: Lattice | None
) -> NoisySquares | None:
    """Sums of squares at their part of ε; None beside counts and where they tell nothing.

    That is for two outcomes, and beside means of a grid whose mean is not its middle.
    """
    if lattice is None or request.square_share == 0:
        return None
    steps = square_steps(lattice)
    if steps is None or (request.n_treatments > 1 and not is_even(lattice)):
        return None
    return NoisySquares(steps, steps.most / (epsilon * request.square_share))


def _least_scale(
    epsilon: float,
    left: float,
    n_outcomes: int,
    lattice: Lattice | None,
    squares: NoisySquares | None,
) -> float:
    """The least σ, a double, that costs at most ``epsilon``: cells, or steps, moved by ε.

    ``left`` is about what ``squares`` leave of it.
    """
    most = moved_cells(n_outcomes) if lattice is None else lattice.most

    def noise(scale: float) -> Event:
        own = CountsNoise(scale, most) if lattice is None else SumNoise(scale, most)
        if squares is None:
            return own
        return Together((own, SquareNoise(squares.noise_scale, squares.steps.most)))

    scale = most / left
    while pure_epsilon(noise(scale)) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return scale


def check_aggregate(request: AggregateRequest) -> None:
    """Raise ConfigError for impossible values, naming the key, the value and the rule."""
    name = request.mechanism
    if request.n_outcomes < 2:
        raise ConfigError(
            "outcome",
            f"the grid has {request.n_outcomes} point: at least 2 distinct values are needed",
        )
    if name == "noisy-horvitz-thompson" and request.lattice is None:
        raise ConfigError(
            "privacy.mechanism",
            f'"{name}" needs a grid whose points lie whole steps apart: space them evenly, or use '
            '"noisy-histogram"',
        )
    _check_price(request)


def _check_price(request: AggregateRequest) -> None:
    if request.epsilon is not None and request.noise_scale is not None:
        raise ConfigError(
            "privacy.noise_scale", "given together with epsilon: give the one or the other"
        )
    if request.epsilon is None and request.noise_scale is None:
        raise _missing()
    check_range("epsilon", request.epsilon, 0, math.inf)
    check_workable("epsilon", request.epsilon, 1e-9, 700.0)
    if not 0 <= request.delta < 1:
        raise ConfigError("privacy.delta", f"{request.delta!r} is not at least 0 and less than 1")
    check_range("noise_scale", request.noise_scale, 0, math.inf)
    check_workable("noise_scale", request.noise_scale, 1e-3, 1e12)


def _missing() -> ConfigError:
    return ConfigError("privacy.epsilon", "missing: give it, or noise_scale instead")
