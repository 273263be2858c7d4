"""Pairs of the most different neighbours, against the accountant and against enumeration."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from flows.released.loss.pairs import (
    Pair,
    cells,
    coin,
    decimal_of,
    delta_of,
    epsilon_of,
    logarithm,
    response,
    shift,
    total,
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
OF_RESPONSE = response(Fraction(RATE), Fraction(LEAST))

CASES: list[tuple[list[Pair], Event]] = [
    ([cells(10.0, 2), OF_RESPONSE], Together((CountsNoise(10.0, 2), Response(RATE, LEAST)))),
    ([cells(3.0, 1), OF_RESPONSE], Together((CountsNoise(3.0, 1), Response(RATE, LEAST)))),
    ([shift(40.0, 7), OF_RESPONSE], Together((SumNoise(40.0, 7), Response(RATE, LEAST)))),
    ([shift(400.0, 1001)], SumNoise(400.0, 1001)),
    (
        [shift(40.0, 7), coin(decimal_of(Fraction(49, 300))), coin(Decimal("0.75"))],
        Together((SumNoise(40.0, 7), SquareNoise(300.0, 49), BoundedResponse(0.75))),
    ),
]


@pytest.mark.parametrize(("pairs", "event"), CASES)
def test_all_together_are_what_the_accountant_computes(pairs: list[Pair], event: Event) -> None:
    for epsilon in (0.0, 0.1, 0.5, 1.0, 1.5):
        ours, theirs = float(delta_of(pairs, Decimal(epsilon))), delta_at(event, epsilon)
        assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-300)
        assert ours <= theirs
    for delta in (1e-9, 1e-4, 0.01, 0.5):
        pure = total(max((p / q for p, q in pair)).ln() for pair in pairs)
        found = epsilon_of(pairs, Decimal(delta), pure)
        assert float(found) == pytest.approx(epsilon_at(event, delta), rel=1e-9)
        assert delta_of(pairs, found) <= Decimal(delta) or found == pure


def test_a_shifted_sum_by_adding_up_its_noise() -> None:
    """δ(ε) = Σ_k max(P(k) − e^ε P(k − M), 0), over all that discrete Laplace noise may be."""
    scale, moved, epsilon = 3.0, 5, 0.4
    a = math.exp(-1.0 / scale)

    def law(k: int) -> float:
        return (1.0 - a) / (1.0 + a) * a ** abs(k)

    added = sum(max(law(k) - math.exp(epsilon) * law(k - moved), 0.0) for k in range(-400, 400))
    assert float(delta_of([shift(scale, moved)], Decimal(epsilon))) == pytest.approx(added)


def test_what_counts_and_a_response_tell_is_attained() -> None:
    """Two noisy counts at σ = 1, γ = 0.1 and λ = 0.5: 2 + ln 11, 4.398."""
    loss = logarithm(1 + Fraction(0.5) / (Fraction(0.5) * Fraction(0.1)))
    assert float(2 + loss) == pytest.approx(4.398, abs=5e-4)
    pairs = [cells(1.0, 2), response(Fraction(0.5), Fraction(0.1))]
    assert delta_of(pairs, Decimal("4.3978")) > 0
    assert delta_of(pairs, total([Decimal(2), loss])) < Decimal(10) ** -50


def test_scales_that_nobody_takes_are_numbers_all_the_same() -> None:
    pairs = [shift(1e-6, 100_000), coin(Decimal("Infinity")), cells(1e18, 2)]
    assert delta_of(pairs, Decimal(10) ** 300) == pytest.approx(Decimal(1))
    assert epsilon_of(pairs[:1], Decimal("1e-9"), Decimal(10) ** 11) > 10**6
