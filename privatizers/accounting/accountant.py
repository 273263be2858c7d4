"""What an event costs: pure ε, δ at an ε, ε at a δ, and parameters for a price.

The privacy loss of one release has a handful of atoms, so its δ(ε) is a finite sum, worked out
here with 60 digits. What many releases cost together is in `composition`, through dp-accounting.

**Rounding.** Every price is rounded toward privacy. Losses and masses are raised by 10⁻⁴⁰ of
themselves, above the error of 60-digit arithmetic (at most 10⁻⁴⁴ of a loss, for the least there
is), before a δ is summed; δ grows with both, so the sum is not below the exact one. Prices become
doubles upward, so that neither the double nor the decimal number that it prints as is below the
price (the two differ in the 17th digit); budgets and δ given are read as the lesser of the two.
"""

import math
import struct
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import TypeVar

from privatizers.accounting.budget import written
from privatizers.accounting.events import (
    CountsNoise,
    Disjoint,
    Event,
    Response,
    SquareNoise,
    Step,
    SumNoise,
    Together,
    Unprotected,
)
from privatizers.accounting.rounding import counts_loss, response_loss, round_up
from privatizers.noise.randomness import UNIT
from schemas.errors import ConfigError

_DIGITS = 60
_RAISE = 1 + Decimal(10) ** -40
_MOST_WAYS = 4096  # through disjoint parts; the strata of a release are alike and make one
_MOST_ATOMS = 2_000  # of an exact loss; a release with counts has nine
SUM_ATOMS = 256
"""So many values of the loss of a noisy sum are told apart, beside the least."""

Loss = TypeVar("Loss", int, Decimal)

Way = frozenset[tuple[Step, int]]
"""What is done to one person: steps, and how often each."""
Losses = tuple[tuple[Decimal, Decimal], ...]
"""Positive values of a privacy loss and their masses, both raised by 10⁻⁴⁰ of themselves."""


def pure_loss(event: Event) -> Decimal:
    """Return the pure ε of an event to 60 digits; infinite where something is unprotected.

    Together: the sum. Disjoint: the greatest. ``CountsNoise``: moved cells / σ. ``SumNoise``: most
    steps / σ, ``SquareNoise`` likewise. ``Response``: ln(1 + (1 − λ)/(λ γ)). Theorem 3.1 of
    Javanmard, Mirrokni and Pouget-Abadie (2025) has 1/σ where two cells move, and a branch 2/γ,
    which do not hold; `cluster_dp.md` has the proof.
    """
    match event:
        case CountsNoise():
            return counts_loss(event.noise_scale, event.moved_cells)
        case SumNoise() | SquareNoise():
            return counts_loss(event.noise_scale, event.most_steps)
        case Response():
            return response_loss(event.resampling_probability, event.least_probability)
        case Together():
            with localcontext(prec=_DIGITS):
                return sum((pure_loss(part) for part in event.parts), Decimal(0))
        case Disjoint():
            return max((pure_loss(part) for part in _distinct(event)), default=Decimal(0))
        case Unprotected():
            return Decimal("Infinity")


def pure_epsilon(event: Event) -> float:
    """Return the least ε, a double, for which the event is ε-DP; never below the exact one."""
    return _price(pure_loss(event))


def delta_at(event: Event, epsilon: float) -> float:
    """Return δ(ε), the least δ for which the event is (ε, δ)-DP, rounded up.

    δ(ε) = Σ P(loss) (1 − e^(ε − loss))₊, over the atoms of the privacy loss,

    where the loss of parts done together is the sum of independent losses, one each, of
    dominating pairs (which compose: Zhu, Dong and Wang 2022): a moved cell of counts has ±1/σ with
    the masses 1/(1+a) and a/(1+a), a = e^(−1/σ); a sum moved by M has (M − 2k)/σ for k = 0 … M with
    the masses 1/(1+a), then (1−a)a^k/(1+a), and a^M/(1+a) at last; a sum of squares moved by M has
    ±M/σ with the masses of binary randomised response, which dominates whatever is as private
    (Kairouz, Oh and Viswanath 2015) and is close to it where M/σ is small; a response has the log
    ratios of P = (1 − λ + λγ, λγ, λ(1 − 2γ)) and Q, P with the first two swapped. Over disjoint
    parts it is the greatest. It is zero from the pure ε on. ``epsilon`` is at least 0.
    """
    return min(1.0, _price(_delta(_curve(event), _read(epsilon))))


def epsilon_at(event: Event, delta: float) -> float:
    """Return the least ε ≥ 0, a double, with :func:`delta_at` of at most ``delta``.

    Found by halving the doubles between 0 and the pure ε; δ at the upper end is known to be at
    most ``delta`` all the time. Infinite where something is unprotected.
    """
    allowed, highest = _allowed(delta), pure_epsilon(event)
    if allowed == 0 or math.isinf(highest):
        return highest
    curve = _curve(event)
    low, high = -1, _position(highest)
    while high - low > 1:
        middle = (low + high) // 2
        fits = _delta(curve, _read(_double(middle))) <= allowed
        low, high = (low, middle) if fits else (middle, high)
    return _double(high)


@lru_cache(maxsize=256)  # a configuration and its release ask the same
def calibrate(
    epsilon: float, delta: float, least_probability: float, counts: Event | None = None
) -> float:
    """Return the least λ, a multiple of 2⁻⁵³, for which a release costs at most (ε, δ).

    The release is ``counts`` (or sums), where there are any, and a response whose prior gives
    every outcome at least ``least_probability`` γ. To resample more is post-processing, so δ(ε)
    falls as λ grows, and λ is found by halving; δ(ε) at the one returned has been checked. For
    δ = 0 it is the `calibrated_rate` of what the counts leave of ε. Raises ConfigError where ε is
    too small.
    """
    budget, allowed = _read(epsilon), _allowed(delta)

    def fits(steps: int) -> bool:
        response = Response(steps / UNIT, least_probability)
        event = response if counts is None else Together((counts, response))
        return _delta(_curve(event), budget) <= allowed

    low, high = 0, UNIT - 1
    if not fits(high):
        raise ConfigError(
            "privacy.epsilon", "too small: every outcome would be resampled; ask for more"
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high / UNIT


def ways(event: Event) -> frozenset[Way]:
    """List what may have been done to one person.

    Parts done together add up; disjoint parts are alternatives, since a person is in one of them.
    What comes to the same is listed once.
    """
    match event:
        case Together():
            found = frozenset({Way()})
            for part in event.parts:
                found = frozenset(_joined(one, other) for one in found for other in ways(part))
                if len(found) > _MOST_WAYS:
                    msg = f"more than {_MOST_WAYS} ways through disjoint parts: price them apart"
                    raise ValueError(msg)
            return found
        case Disjoint():
            return frozenset[Way]().union(*map(ways, _distinct(event))) or frozenset({Way()})
        case _:
            return frozenset({Way({(event, 1)})})


def _joined(one: Way, other: Way) -> Way:
    return Way((Counter(dict(one)) + Counter(dict(other))).items())


def _distinct(event: Disjoint) -> list[Event]:
    """Parts that differ, quickly: a release repeats one and the same object for its strata."""
    return list(dict.fromkeys({id(part): part for part in event.parts}.values()))


def _delta(curve: list[Losses], epsilon: Decimal) -> Decimal:
    """δ(ε) with 60 digits, never below the exact value; ``epsilon`` is taken as it is."""
    with localcontext(prec=_DIGITS):
        sums = (
            sum((mass * (1 - (epsilon - loss).exp()) for loss, mass in losses if loss > epsilon))
            for losses in curve
        )
        return Decimal(max(sums))


def _curve(event: Event) -> list[Losses]:
    """The losses of every way through an event; δ(ε) is the greatest that any of them gives."""
    return [_losses(way) for way in ways(event)]


def _losses(way: Way) -> Losses:
    if any(isinstance(step, Unprotected) for step, _ in way):
        return ((Decimal("Infinity"), Decimal(1)),)
    with localcontext(prec=_DIGITS):
        atoms = {Decimal(0): Decimal(1)}
        for step, times in way:
            atoms = _convolved(atoms, _atoms(step, times))
            if len(atoms) > _MOST_ATOMS:
                msg = f"more than {_MOST_ATOMS} values of the loss: use `composition`"
                raise ValueError(msg)
        return tuple(
            (loss * _RAISE, mass * _RAISE) for loss, mass in sorted(atoms.items()) if loss > 0
        )


def _atoms(step: Step, times: int) -> dict[Decimal, Decimal]:
    """The loss of a step done ``times`` times: multiples of one loss, and their masses."""
    if isinstance(step, CountsNoise):
        base, times = counts_loss(step.noise_scale, 1), times * step.moved_cells
        a = (-base).exp()
        once = {1: 1 / (1 + a), -1: a / (1 + a)}
    elif isinstance(step, SumNoise):
        base, once = _sum_atoms(step)
    elif isinstance(step, SquareNoise):
        base = counts_loss(step.noise_scale, step.most_steps)
        once = {1: 1 / (1 + (-base).exp()), -1: 1 / (1 + base.exp())}
    elif isinstance(step, Response):
        rate, least = Decimal(step.resampling_probability), Decimal(step.least_probability)
        base = response_loss(step.resampling_probability, step.least_probability)
        once = {1: 1 - rate + rate * least, -1: rate * least, 0: rate * (1 - 2 * least)}
    else:
        msg = f"{step} has no distribution of a loss"
        raise TypeError(msg)
    masses = {0: Decimal(1)}
    for _ in range(times):
        masses = _convolved(masses, once)
    return {multiple * base: mass for multiple, mass in masses.items()}


@lru_cache(maxsize=64)
def _sum_atoms(step: SumNoise) -> tuple[Decimal, dict[int, Decimal]]:
    """The loss of a noisy sum in multiples of 1/σ; where M is great, put together upward.

    Of every ⌈M/256⌉ values of k the loss is that of the least, the greatest of theirs, which can
    only raise δ(ε); their masses add up to (a^k₁ − a^k₂)/(1+a).
    """
    with localcontext(prec=_DIGITS):
        most, base = step.most_steps, counts_loss(step.noise_scale, 1)
        a = (-base).exp()
        width = -(-most // SUM_ATOMS)
        once = {
            most - 2 * k: (a**k - a ** min(k + width, most)) / (1 + a)
            for k in range(0, most, width)
        }
        once[most] += a / (1 + a)
        once[-most] = a**most / (1 + a)
        return base, once


def _convolved(one: Mapping[Loss, Decimal], other: Mapping[Loss, Decimal]) -> dict[Loss, Decimal]:
    """The distribution of the sum of two independent losses."""
    together: dict[Loss, Decimal] = {}
    for loss, mass in one.items():
        for more, factor in other.items():
            together[loss + more] = together.get(loss + more, Decimal(0)) + mass * factor
    return together


def _price(value: Decimal) -> float:
    """Round up to a double that is not below ``value``, and is not written below it either."""
    if value.is_infinite():
        return math.inf
    with localcontext(prec=_DIGITS):
        raised = value * _RAISE
    price = round_up(raised)
    while written(price) < raised:
        price = math.nextafter(price, math.inf)
    return price


def _read(epsilon: float) -> Decimal:
    """Return the lesser of the double and the number it is written as, at least 0."""
    if not epsilon >= 0:
        msg = f"epsilon is at least 0, not {epsilon!r}"
        raise ValueError(msg)
    return min(Decimal(epsilon), written(epsilon))


def _allowed(delta: float) -> Decimal:
    if not 0 <= delta < 1:
        msg = f"delta is at least 0 and less than 1, not {delta!r}"
        raise ValueError(msg)
    return min(Decimal(delta), written(delta))


def _position(value: float) -> int:
    """Number the doubles from 0.0 up; greater ones have greater numbers."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _double(position: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", position))[0])
