"""From what a publisher asks for to an aggregate mechanism with its σ, without any data.

Where ε is given, σ is the least double whose price is not above ε; where σ is given, ε is its
price, rounded up. Both are pure: where a δ above 0 is configured, ε alone pays for σ and δ is
stated as requested, which is sound but gains nothing.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

from privatizers.accounting.accountant import pure_epsilon
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
    differences = lattice is not None and request.n_treatments == 1
    parameters = partial(
        AggregateParameters, request.n_outcomes, lattice=lattice, differences=differences
    )
    kind = NoisyHistogram if lattice is None else NoisyHorvitzThompson
    epsilon, scale = request.epsilon, request.noise_scale
    if scale is not None:
        chosen = parameters(scale)
        return AggregateDesign(kind(chosen), pure_epsilon(event_of(chosen)), request.delta)
    if epsilon is None:
        raise AssertionError("checked above")
    price, of_means = epsilon * request.square_share, request.n_treatments > 1
    squares = NoisySquares.of_price(lattice, price, of_means=of_means)
    # The cells, or steps, that one unit can change, over about what squares leave of ε.
    most = moved_cells(request.n_outcomes) if lattice is None else lattice.most
    scale = most / (epsilon * (1.0 - request.square_share * (squares is not None)))
    while pure_epsilon(event_of(parameters(scale, squares=squares))) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return AggregateDesign(kind(parameters(scale, squares=squares)), epsilon, request.delta)


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
