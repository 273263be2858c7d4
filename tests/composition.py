"""What many releases cost the people who are in all of them, through dp-accounting.

The exact loss of `accountant` has too many values once many releases add up. dp-accounting puts
the losses on a lattice, always upward (its pessimistic estimate), and convolves them there.
"""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from dp_accounting.pld import privacy_loss_distribution as pld

from privatizers.accounting.accountant import StepCounts, paths, pure_epsilon, pure_loss
from privatizers.accounting.events import (
    BoundedResponse,
    CountsNoise,
    Event,
    MarginNoise,
    Response,
    SquareNoise,
    Step,
    SumNoise,
    Together,
)

_FINENESS = 1000
_ARITHMETIC = 1e-12  # of δ: above what Fourier transforms and cut-off tails leave (1e-15 each)

Distribution = Any  # dp-accounting ships no types


def composed_delta(events: Sequence[Event], epsilon: float, interval: float | None = None) -> float:
    """Return an upper bound on δ(ε) of ``events`` that were all done to the same people.

    Each of the n steps done to a person raises the loss by less than ``interval``, so the bound
    lies between the exact δ(ε) and δ(ε − n · interval) + 10⁻¹².
    """
    together = Together(tuple(events))
    pure = pure_epsilon(together)
    if epsilon >= pure or math.isinf(pure):
        return 0.0 if epsilon >= pure else 1.0
    composed = [_composed(way, interval or _interval(together)) for way in paths(together)]
    bound = max(float(each.get_delta_for_epsilon(epsilon)) for each in composed)
    return min(1.0, bound + _ARITHMETIC)


def composed_epsilon(events: Sequence[Event], delta: float, interval: float | None = None) -> float:
    """Return an upper bound on the ε at ``delta`` of ``events`` done to the same people.

    Never above the sum of the pure ε, which it is at δ = 0. ``interval`` is that of the lattice;
    by default the whole of the rounding is at most a thousandth of the pure ε.
    """
    together = Together(tuple(events))
    pure = pure_epsilon(together)
    allowed = delta - _ARITHMETIC
    if allowed <= 0 or math.isinf(pure):
        return pure
    composed = [_composed(way, interval or _interval(together)) for way in paths(together)]
    bound = max(float(each.get_epsilon_for_delta(allowed)) for each in composed)
    return min(pure, math.nextafter(bound, math.inf))


def _interval(event: Event) -> float:
    """A thousandth of the pure ε, shared by the steps of the longest way through the event."""
    steps = max(sum(times * _cells(step) for step, times in way) for way in paths(event))
    return pure_epsilon(event) / (_FINENESS * max(1, steps))


def _composed(way: StepCounts, interval: float) -> Distribution:
    """The privacy loss distribution of everything along one way, put on the lattice upward."""
    composed = pld.identity(value_discretization_interval=interval)
    for step, times in sorted(way, key=repr):  # in an order of its own: the same bits each time
        one = _distribution(step, interval)
        composed = composed.compose(one.self_compose(times * _cells(step)))
    return composed


def _cells(step: Step) -> int:
    return step.moved_cells if isinstance(step, CountsNoise) else 1


def _distribution(step: Step, interval: float) -> Distribution:
    """The loss of a moved cell of counts, of a moved sum, or of a response: its three outcomes."""
    if isinstance(step, CountsNoise):
        return pld.from_discrete_laplace_mechanism(
            1 / step.noise_scale, sensitivity=1, value_discretization_interval=interval
        )
    if isinstance(step, SumNoise):
        return pld.from_discrete_laplace_mechanism(
            1 / step.noise_scale,
            sensitivity=step.most_steps,
            value_discretization_interval=interval,
        )
    if isinstance(step, SquareNoise | MarginNoise | BoundedResponse):  # binary randomised response
        loss = float(pure_loss(step))
        above, under = -math.log1p(math.exp(-loss)), -math.log1p(math.exp(loss))
        return pld.from_two_probability_mass_functions(
            {0: under, 1: above}, {0: above, 1: under}, value_discretization_interval=interval
        )
    if isinstance(step, Response):
        upper = _log_masses(step)
        lower = {0: upper[1], 1: upper[0], 2: upper[2]}
        return pld.from_two_probability_mass_functions(
            lower, upper, value_discretization_interval=interval
        )
    msg = f"{step} has no distribution of a loss"
    raise TypeError(msg)


def _log_masses(response: Response) -> dict[int, float]:
    """P = (1 − λ + λγ, λγ, λ(1 − 2γ)), in logarithms, from exact sums and products."""
    rate, least = Decimal(response.resampling_probability), Decimal(response.least_probability)
    masses = (1 - rate + rate * least, rate * least, rate * (1 - 2 * least))
    return {key: float(mass.ln()) if mass > 0 else -math.inf for key, mass in enumerate(masses)}
