"""Pairs of the most different neighbours, against the accountant and against enumeration."""

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

import pytest

from flows.released.loss.pairs import (
    Pair,
    coin,
    decimal_of,
    delta_of,
    epsilon_of,
    exactly,
    logarithm,
    response,
    shift,
    together,
)
from privatizers.accounting.accountant import delta_at, epsilon_at
from privatizers.accounting.events import (
    BoundedResponse,
    CountsNoise,
    Event,
    Response,
    SquareNoise,
    SumNoise,
    Together,
)

RATE, LEAST = 0.75, 0.0625


@pytest.fixture(autouse=True)
def _in_decimals() -> Iterator[None]:
    """All of this is called in decimals of 80 digits."""
    with exactly():
        yield


def counts(scale: float, moved: int) -> list[Pair]:
    """Noisy counts of which ``moved`` move by one."""
    return [coin(decimal_of(1 / Fraction(scale)))] * moved


def drawn_anew() -> Pair:
    return response(Fraction(RATE), Fraction(LEAST))


CASES: list[tuple[Callable[[], list[Pair]], Event]] = [
    (
        lambda: [*counts(10.0, 2), drawn_anew()],
        Together((CountsNoise(10.0, 2), Response(RATE, LEAST))),
    ),
    (
        lambda: [*counts(3.0, 1), drawn_anew()],
        Together((CountsNoise(3.0, 1), Response(RATE, LEAST))),
    ),
    (lambda: [shift(40.0, 7), drawn_anew()], Together((SumNoise(40.0, 7), Response(RATE, LEAST)))),
    (lambda: [shift(400.0, 1001)], SumNoise(400.0, 1001)),
    (
        lambda: [shift(40.0, 7), coin(decimal_of(Fraction(49, 300))), coin(Decimal("0.75"))],
        Together((SumNoise(40.0, 7), SquareNoise(300.0, 49), BoundedResponse(0.75))),
    ),
]


@pytest.mark.parametrize(("published", "event"), CASES)
def test_all_together_are_what_the_accountant_computes(
    published: Callable[[], list[Pair]], event: Event
) -> None:
    pairs = published()
    told = together(pairs)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 1.5):
        ours, theirs = float(delta_of(told, Decimal(epsilon))), delta_at(event, epsilon)
        assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-300)
        assert ours <= theirs
    for delta in (1e-9, 1e-4, 0.01, 0.5):
        pure = sum((max((p / q for p, q in pair)).ln() for pair in pairs), Decimal(0))
        found = epsilon_of(told, Decimal(delta), pure)
        assert float(found) == pytest.approx(epsilon_at(event, delta), rel=1e-9)
        assert delta_of(told, found) <= Decimal(delta) or found == pure


def test_a_shifted_sum_by_adding_up_its_noise() -> None:
    """δ(ε) = Σ_k max(P(k) − e^ε P(k − M), 0), over all that discrete Laplace noise may be."""
    scale, moved, epsilon = 3.0, 5, 0.4
    a = math.exp(-1.0 / scale)

    def law(k: int) -> float:
        return (1.0 - a) / (1.0 + a) * a ** abs(k)

    added = sum(max(law(k) - math.exp(epsilon) * law(k - moved), 0.0) for k in range(-400, 400))
    assert float(delta_of(together([shift(scale, moved)]), Decimal(epsilon))) == pytest.approx(
        added
    )


def test_what_counts_and_a_response_tell_is_attained() -> None:
    """Two noisy counts at σ = 1, γ = 0.1 and λ = 0.5: 2 + ln 11, 4.398."""
    loss = logarithm(1 + Fraction(0.5) / (Fraction(0.5) * Fraction(0.1)))
    assert float(2 + loss) == pytest.approx(4.398, abs=5e-4)
    told = together([*counts(1.0, 2), response(Fraction(0.5), Fraction(0.1))])
    assert delta_of(told, Decimal("4.3978")) > 0
    assert delta_of(told, 2 + loss) < Decimal(10) ** -50


def test_scales_that_nobody_takes_are_numbers_all_the_same() -> None:
    wide = shift(1e-6, 100_000)
    told = together([wide, coin(Decimal("Infinity")), *counts(1e18, 2)])
    assert delta_of(told, Decimal(10) ** 300) == pytest.approx(Decimal(1))
    assert epsilon_of(together([wide]), Decimal("1e-9"), Decimal(10) ** 11) > 10**6
