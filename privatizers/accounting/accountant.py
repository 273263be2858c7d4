"""The price of an event: pure ε, δ at an ε, ε at a δ, and parameters for a price.

The privacy loss of one release has only a few atoms, so its δ(ε) is a finite sum, computed here
with 60 digits. What many releases cost together, by their prices alone, is in `composition`.

**Rounding.** Every price is rounded toward privacy. Losses are rounded up. From the pure ε on δ is
0; below it losses and masses are raised by 10⁻⁴⁰ of themselves before a δ is summed. This is more
than the error of 60-digit arithmetic (at most 10⁻⁴⁴ of a loss, for the least possible loss); δ
grows with both, so the sum is not below the exact one.
Prices are rounded up to doubles such that neither the double nor the decimal number that it prints
as is below the price (the two differ in the 17th digit). A given budget or δ is read as the lesser
of the two.
"""

import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

from estimators.concentrated import concentrated_delta, concentrated_epsilon
from privatizers.accounting.budget import written
from privatizers.accounting.events import (
    BoundedResponse,
    ConcentratedNoise,
    CountsNoise,
    Disjoint,
    Event,
    MarginNoise,
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
_RAISE = Decimal(f"1.{1:040}")  # written out: the usual context of a sum has 28 digits
_LEAST_PART, _MOST_PART = 1e-6, 2.0  # of ε: what a response may have of it, δ included
_MOST_PATHS = 4096  # through disjoint parts; the strata of a release are alike and make one path
_MOST_ATOMS = 4_000  # of an exact loss; with counts there are nine, with all beside means 3,000
SUM_ATOMS = 256
"""The number of different values that the loss of a noisy sum has, besides the least."""

Loss = TypeVar("Loss", int, Decimal)

StepCounts = frozenset[tuple[Step, int]]
"""The steps that are done to one person, and how often each."""
Losses = tuple[tuple[Decimal, Decimal], ...]
"""Positive values of a privacy loss and their masses, both raised by 10⁻⁴⁰ of themselves."""


def pure_loss(event: Event) -> Decimal:
    """Return the pure ε of an event to 60 digits, rounded up; infinite for what is unprotected.

    ``Together``: the sum. ``Disjoint``: the greatest. ``CountsNoise``: moved cells / σ.
    ``SumNoise``: most steps / σ, ``SquareNoise`` likewise, ``MarginNoise`` the sum of these over
    margins. ``Response``: ln(1 + (1 − λ)/(λ γ)).
    ``BoundedResponse``: its ε.
    Theorem 3.1 of Javanmard, Mirrokni and Pouget-Abadie (2025) has 1/σ where two cells move, and a
    branch 2/γ; both do not hold. `cluster_dp.md` has the proof. Concentrated noise has no pure ε.
    """
    match event:
        case CountsNoise():
            return counts_loss(event.noise_scale, event.moved_cells)
        case SumNoise() | SquareNoise():
            return counts_loss(event.noise_scale, event.most_steps)
        case Response():
            return response_loss(event.resampling_probability, event.least_probability)
        case Together() | MarginNoise():
            with localcontext(prec=_DIGITS, rounding=ROUND_CEILING):
                return sum((pure_loss(part) for part in event.parts), Decimal(0))
        case Disjoint():
            return max((pure_loss(part) for part in _distinct(event)), default=Decimal(0))
        case BoundedResponse() | ConcentratedNoise() | Unprotected():
            return Decimal(event.epsilon if isinstance(event, BoundedResponse) else math.inf)


def pure_epsilon(event: Event) -> float:
    """Return the least ε, a double, for which the event is ε-DP; never below the exact one."""
    return _price(pure_loss(event))


def delta_at(event: Event, epsilon: float) -> float:
    """Return δ(ε), the least δ for which the event is (ε, δ)-DP, rounded up.

    δ(ε) = Σ P(loss) (1 − e^(ε − loss))₊, over the atoms of the privacy loss,

    where the loss of parts done together is the sum of independent losses, one of each part, of
    dominating pairs (which compose: Zhu, Dong and Wang 2022):

    - a moved cell of counts has ±1/σ with the masses 1/(1+a) and a/(1+a), a = e^(−1/σ),
    - a sum moved by M has (M − 2k)/σ for k = 0 … M with the masses 1/(1+a), then (1−a)a^k/(1+a),
      and a^M/(1+a) for k = M,
    - a sum of squares moved by M has ±M/σ with the masses of binary randomised response, which
      dominates everything of the same pure ε (Kairouz, Oh and Viswanath 2015) and is close to the
      truth where M/σ is small,
    - a bounded response has ±ε with those masses, and so have sums of margins, all of them
      together, for the same reason,
    - a response has the log ratios of P = (1 − λ + λγ, λγ, λ(1 − 2γ)) and Q, P with the first two
      swapped.

    Over disjoint parts δ(ε) is the greatest. It is zero from the pure ε on. ``epsilon`` is at least
    0.

    ``ConcentratedNoise`` has the δ of :func:`concentrated_delta` instead, of all that was done to
    one person; together with anything else it is refused, since its loss is bounded by its moments
    and not known value by value: ValueError.
    """
    rhos, curve = _parted(event)
    is_pure = pure_loss(event) <= _read(epsilon)
    exact = 0.0 if is_pure or not curve else _price(_delta(curve, _read(epsilon)))
    return min(1.0, max([exact, *(concentrated_delta(rho, float(_read(epsilon))) for rho in rhos)]))


def epsilon_at(event: Event, delta: float) -> float:
    """Return the least ε ≥ 0, a double, with :func:`delta_at` of at most ``delta``.

    Found by bisection of the doubles between 0 and the pure ε; δ at the upper end is always known
    to be at most ``delta``. Infinite where something is unprotected.
    """
    allowed, pure = _allowed(delta), pure_loss(event)
    if allowed == 0:
        return _price(pure)
    rhos, curve = _parted(event)
    if rhos:
        pure = max((loss for losses in curve for loss, _ in losses), default=Decimal(0))
    exact = _exact_epsilon(curve, allowed, _price(pure)) if curve else 0.0
    return max([exact, *(concentrated_epsilon(rho, delta) for rho in rhos)])


def _exact_epsilon(curve: list[Losses], allowed: Decimal, highest: float) -> float:
    """Return the least ε at which δ of a curve is at most ``allowed``; it is at ``highest``."""
    if math.isinf(highest):
        return highest
    return _double(
        _least(
            -1,
            _position(highest),
            lambda at: _delta(curve, _read(_double(at))) <= allowed,
        )
    )


def _least(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the least number above ``low`` that ``fits``, as ``high`` and all above it do."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _fits(response: Step, beside: Event | None, epsilon: float, delta: float) -> bool:
    """Whether a response, and what is published ``beside`` it, cost at most (ε, δ) together."""
    event = response if beside is None else Together((beside, response))
    limit, allowed = _read(epsilon), _allowed(delta)
    return pure_loss(event) <= limit or (allowed > 0 and _delta(_curve(event), limit) <= allowed)


@lru_cache(maxsize=256)  # a configuration and its release ask the same
def calibrate(
    epsilon: float, delta: float, least_probability: float, counts: Event | None = None
) -> float:
    """Return the least λ, a multiple of 2⁻⁵³, for which a release costs at most (ε, δ).

    The release is ``counts`` (or sums), where there are any, and a response whose prior gives
    every outcome at least ``least_probability`` γ. To resample more is post-processing, so δ(ε)
    falls as λ grows, and λ is found by bisection; δ(ε) at the λ returned has been checked.

    Raises:
        ConfigError: ε is too small.
    """

    def fits(steps: int) -> bool:
        return _fits(Response(steps / UNIT, least_probability), counts, epsilon, delta)

    if not fits(UNIT - 1):
        raise ConfigError(
            "privacy.epsilon", "too small: every outcome would be resampled; ask for more"
        )
    return _least(0, UNIT - 1, fits) / UNIT


@lru_cache(maxsize=256)  # likewise
def calibrate_bounded(epsilon: float, delta: float, statistic: Event | None = None) -> float:
    """Return the greatest ε₂ for which a release costs at most (ε, δ).

    The release is ``statistic``, where there is one, and tables of
    :class:`~privatizers.accounting.events.BoundedResponse` at ε₂. Found by bisection of the
    doubles; δ(ε) at the ε₂ returned has been checked.

    Raises:
        ConfigError: ε is too small.
    """

    def exceeds(position: int) -> bool:
        return not _fits(BoundedResponse(_double(position)), statistic, epsilon, delta)

    low, high = _position(epsilon * _LEAST_PART), _position(epsilon * _MOST_PART)
    if exceeds(low):
        raise ConfigError(
            "privacy.epsilon", "too small: nothing would be left for outcomes; ask for more"
        )
    return _double(_least(low, high, exceeds) - 1)


def paths(event: Event) -> frozenset[StepCounts]:
    """Return the different combinations of steps that may have been done to one person.

    Parts done together add up; disjoint parts are alternatives, since a person is in one of them.

    Raises:
        ValueError: There are more than 4,096 combinations.
    """
    match event:
        case Together():
            totals = frozenset({StepCounts()})
            for part in event.parts:
                totals = frozenset(
                    StepCounts((Counter(dict(total)) + Counter(dict(more))).items())
                    for total in totals
                    for more in paths(part)
                )
                if len(totals) > _MOST_PATHS:
                    raise ValueError(
                        f"more than {_MOST_PATHS} ways through disjoint parts: price them apart"
                    )
            return totals
        case Disjoint():
            return frozenset[StepCounts]().union(*map(paths, _distinct(event))) or frozenset(
                {StepCounts()}
            )
        case _:
            return frozenset({StepCounts({(event, 1)})})


def _parted(event: Event) -> tuple[list[float], list[Losses]]:
    """Return the ρ of each path of concentrated noise, and the losses of all other paths."""
    rhos: list[float] = []
    curve: list[Losses] = []
    for way in paths(event):
        concentrated = [(s.rho, times) for s, times in way if isinstance(s, ConcentratedNoise)]
        if not concentrated:
            curve.append(_losses(way))
            continue
        if len(concentrated) < len(way):
            raise ValueError("concentrated noise beside other steps: price them apart, and add up")
        exact = sum(Fraction(rho) * times for rho, times in concentrated)
        rhos.append(math.nextafter(float(exact), math.inf))
    return rhos, curve


def _distinct(event: Disjoint) -> list[Event]:
    """Return the parts without repetitions: a release repeats one object for all its strata."""
    return list(dict.fromkeys({id(part): part for part in event.parts}.values()))


def _delta(curve: list[Losses], epsilon: Decimal) -> Decimal:
    """Return δ(ε) with 60 digits, never below the exact value; ``epsilon`` is used as it is."""
    with localcontext(prec=_DIGITS):
        sums = (
            sum((mass * (1 - (epsilon - loss).exp()) for loss, mass in losses if loss > epsilon))
            for losses in curve
        )
        return Decimal(max(sums))


def _curve(event: Event) -> list[Losses]:
    """Return the losses of every path through an event; δ(ε) is the greatest of theirs."""
    return [_losses(steps) for steps in paths(event)]


def _losses(steps: StepCounts) -> Losses:
    if any(isinstance(step, Unprotected) for step, _ in steps):
        return ((Decimal("Infinity"), Decimal(1)),)
    with localcontext(prec=_DIGITS):
        atoms = {Decimal(0): Decimal(1)}
        for step, times in steps:
            atoms = _convolve(atoms, _atoms(step, times))
            if len(atoms) > _MOST_ATOMS:
                raise ValueError(
                    f"more than {_MOST_ATOMS} values of the loss: too many to add up exactly"
                )
        return tuple(
            (loss * _RAISE, mass * _RAISE) for loss, mass in sorted(atoms.items()) if loss > 0
        )


def _atoms(step: Step, times: int) -> dict[Decimal, Decimal]:
    """Return the losses of a step done ``times`` times, with their masses.

    All are multiples of one loss.
    """
    if isinstance(step, CountsNoise):
        base, times = counts_loss(step.noise_scale, 1), times * step.moved_cells
        a = (-base).exp()
        once = {1: 1 / (1 + a), -1: a / (1 + a)}
    elif isinstance(step, SumNoise):
        base, once = _sum_atoms(step)
    elif isinstance(step, SquareNoise | MarginNoise | BoundedResponse):
        base = pure_loss(step)
        once = {1: 1 / (1 + (-base).exp()), -1: 1 / (1 + base.exp())}
    elif isinstance(step, Response):
        rate, least = Decimal(step.resampling_probability), Decimal(step.least_probability)
        base = response_loss(step.resampling_probability, step.least_probability)
        once = {1: 1 - rate + rate * least, -1: rate * least, 0: rate * (1 - 2 * least)}
    else:
        raise TypeError(f"{step} has no distribution of a loss")
    masses = {0: Decimal(1)}
    for _ in range(times):
        masses = _convolve(masses, once)
    return {multiple * base: mass for multiple, mass in masses.items()}


@lru_cache(maxsize=64)
def _sum_atoms(step: SumNoise) -> tuple[Decimal, dict[int, Decimal]]:
    """Return 1/σ and the masses of a noisy sum's losses in multiples of it; merged for great M.

    Every ⌈M/256⌉ values of k in a row share the loss of the least k, which is the greatest of
    theirs, so merging can only raise δ(ε); their masses add up to (a^k₁ − a^k₂)/(1+a).
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


def _convolve(masses: Mapping[Loss, Decimal], more: Mapping[Loss, Decimal]) -> dict[Loss, Decimal]:
    """Return the distribution of the sum of two independent losses."""
    total: dict[Loss, Decimal] = {}
    for loss, mass in masses.items():
        for other, factor in more.items():
            total[loss + other] = total.get(loss + other, Decimal(0)) + mass * factor
    return total


def _price(value: Decimal) -> float:
    """Round up to a double that is not below ``value``, nor is the number that it prints as."""
    if value.is_infinite():
        return math.inf
    price = round_up(value)
    while written(price) < value:
        price = math.nextafter(price, math.inf)
    return price


def _read(epsilon: float) -> Decimal:
    """Return the lesser of the double and the decimal number that it prints as, at least 0."""
    if not epsilon >= 0:
        raise ValueError(f"epsilon is at least 0, not {epsilon!r}")
    return min(Decimal(epsilon), written(epsilon))


def _allowed(delta: float) -> Decimal:
    if not 0 <= delta < 1:
        raise ValueError(f"delta is at least 0 and less than 1, not {delta!r}")
    return min(Decimal(delta), written(delta))


def _position(value: float) -> int:
    """Number the doubles from 0.0 up; greater ones have greater numbers."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _double(position: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", position))[0])
