"""Geometric numbers from their digits: the law in rational arithmetic, and every word's part in it.

Words are handed in throughout, so each test gives the same result every time.
"""

import itertools
import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from privatizers.noise.geometric_digits import (
    Digits,
    Probability,
    WordSource,
    digits_of,
    geometric,
    is_below,
    tail_value,
)
from schemas.arrays import Floats, Words
from tests.statistical.simulate import pearson
from tests.support.distances import assert_near, assert_p_value

Interval = tuple[Fraction, Fraction]

TOP = 1 << 64
SCALES = [0.02, 0.3, 1.0, 2.5, 10.0, 1e3, 123_456.789, 1e12]


def exponential(x: Fraction) -> Fraction:
    """e^(−x) for 0 < x < 200 to 10⁻³⁰⁰, by its power series alone."""
    with localcontext(prec=400):
        value = Decimal(x.numerator) / Decimal(x.denominator)
        term = total = Decimal(1)
        for n in itertools.count(1):
            term = term * value / n
            total += term
            if n > 400 and term < Decimal(10) ** -390:
                return 1 / Fraction(total)
    raise AssertionError


def exact(probability: Probability) -> Fraction:
    """The probability to 10⁻³⁰⁰ or so."""
    power = exponential((1 << probability.power) / Fraction(probability.scale))
    return power if probability.is_tail else power / (1 + power)


def scripted(*requests: list[int]) -> WordSource:
    """Words that were written down, and only as many at a time as were expected."""
    script: Iterator[list[int]] = iter(requests)

    def words(size: int) -> Words:
        given = np.array(next(script), dtype=np.uint64)
        assert len(given) == size
        return given

    return words


def simulated(number: int) -> WordSource:
    made = np.random.default_rng(number)
    return lambda size: made.integers(0, TOP, size, dtype=np.uint64)


# the law


@pytest.mark.parametrize("ratio", [Fraction(1, 3), Fraction(9, 10), Fraction(999, 1000)])
@pytest.mark.parametrize("n_digits", [0, 1, 4])
def test_independent_digits_make_up_the_geometric_law(ratio: Fraction, n_digits: int) -> None:
    """The identity of `discrete_laplace.md`, without rounding; a factor 30 % off breaks it."""
    odds = [ratio ** (1 << j) for j in range(n_digits)]
    tail = ratio ** (1 << n_digits)
    for factor, holds in ((Fraction(1), True), (Fraction(13, 10), n_digits == 0)):
        ones = [factor * odd / (1 + odd) for odd in odds]
        laws = []
        for number in range(64):
            law = (1 - tail) * tail ** (number >> n_digits)
            for j, one in enumerate(ones):
                law *= one if number >> j & 1 else 1 - one
            laws.append(law == (1 - ratio) * ratio**number)
        assert all(laws) == holds


def law_of(digits: Digits, number: int, factor: Fraction = Fraction(1)) -> Interval:
    """Bounds of P(G = number), from the first three words of each probability."""

    def bounds(probability: Probability, scaled_by: Fraction) -> Interval:
        words = [probability.word(nth) for nth in (1, 2, 3)]
        whole = (words[0] << 128 | words[1] << 64 | words[2]) * scaled_by
        return Fraction(whole, 1 << 192), Fraction(whole + 1, 1 << 192)

    low, high = bounds(digits.tail, Fraction(1))
    least = (1 - high) * low ** (number >> digits.count)
    most = (1 - low) * high ** (number >> digits.count)
    for j in range(digits.count):
        low, high = bounds(Probability(digits.scale, j), factor)
        least *= low if number >> j & 1 else 1 - high
        most *= high if number >> j & 1 else 1 - low
    return least, most


def within(law: Interval, scale: float, number: int) -> bool:
    ratio = exponential(1 / Fraction(scale))
    return law[0] <= (1 - ratio) * ratio**number <= law[1]


@pytest.mark.parametrize("scale", [0.02, 0.3, 1.0, 2.5, 10.0])
def test_the_bits_that_are_compared_make_up_the_geometric_law(scale: float) -> None:
    """P(G = g) lies between bounds that are under 10⁻⁵⁰ apart, for g that reach the tail, too."""
    digits = digits_of(scale)
    beyond = 1 << digits.count
    for number in (*range(24), beyond - 1, beyond, beyond + 1):
        law = law_of(digits, number)
        assert law[1] - law[0] < Fraction(1, 10**50)
        assert within(law, scale, number)


def test_digits_of_another_law_are_caught() -> None:
    digits = digits_of(2.5)
    for number in range(12):
        assert not within(law_of(digits, number), 2.5 / 2, number)  # 2/σ in place of 1/σ
        assert not within(law_of(digits, number, Fraction(13, 10)), 2.5, number)
        assert not within(law_of(digits, number, 1 + Fraction(1, 10**15)), 2.5, number)


@pytest.mark.parametrize("scale", SCALES)
def test_every_word_of_a_probability_is_right(scale: float) -> None:
    """Against a power series in 400 places, for the first four words."""
    digits = digits_of(scale)
    probabilities = [digits.tail, *(Probability(scale, j) for j in range(0, digits.count, 3))]
    for probability in probabilities:
        for nth in range(1, 5):
            expected = math.floor(exact(probability) * (1 << 64 * nth)) % TOP
            assert probability.word(nth) == expected
    assert digits.thresholds == tuple(Probability(scale, j).word(1) for j in range(digits.count))


@pytest.mark.parametrize("scale", [5e-324, 1e-300, *SCALES, 1e17])
def test_the_tail_is_below_one_word_and_no_digit_is_spent_on_less(scale: float) -> None:
    digits = digits_of(scale)
    assert digits.tail.word(1) == 0
    if digits.count:
        assert Probability(scale, digits.count - 1, is_tail=True).word(1) > 0


def test_precision_rises_where_it_is_needed() -> None:
    """x under 10⁻³⁰⁰: p is 1/2 less x/4, so its first 990 bits are 0 and then ones."""
    hardly_less = Probability(1e300, 0)
    assert hardly_less.floor(960) == (1 << 959) - 1
    assert hardly_less.word(1) == TOP // 2 - 1
    assert hardly_less.word(2) == TOP - 1


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_of_no_noise_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="positive number"):
        digits_of(scale)


def test_a_scale_that_does_not_fit_is_refused() -> None:
    assert digits_of(1.03e17).count == 62
    for scale in (1.05e17, 1e300):
        with pytest.raises(ValueError, match="does not fit 64 bits"):
            digits_of(scale)


# the words

HALF = digits_of(0.5)
"""Five digits, and a tail of 2⁻⁹²."""
NO, YES = TOP - 1, 0
"""Words that make a digit 0, or 1."""


def number_of(*requests: list[int], digits: Digits = HALF) -> list[int]:
    words = scripted(*requests)
    numbers = geometric(digits, len(requests[0]), words)
    with pytest.raises(StopIteration):
        words(1)  # all the words were used
    return [int(number) for number in numbers]


def test_every_digit_has_its_place() -> None:
    """One number with digit j alone, for each j, and one with none."""
    requests = [[YES if i == j else NO for i in range(6)] for j in range(5)]
    assert number_of(*requests, [1] * 6) == [1, 2, 4, 8, 16, 0]


@pytest.mark.parametrize("j", range(5))
def test_a_digit_is_one_for_exactly_the_words_below_its_threshold(j: int) -> None:
    threshold = HALF.thresholds[j]
    ends = [threshold - 1, threshold + 1, 0, NO]
    requests = [ends if i == j else [NO] * 4 for i in range(5)]
    assert number_of(*requests, [1] * 4) == [1 << j, 0, 1 << j, 0]


@pytest.mark.parametrize("j", range(5))
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a_word_that_equals_its_threshold_is_decided_by_further_ones(j: int, depth: int) -> None:
    """By the first word that differs from the probability's own, however late it comes."""
    own = Probability(0.5, j)
    alike = [[own.word(nth)] for nth in range(2, depth)]
    for change, digit in ((-1, 1), (1, 0)):
        requests: list[list[int]] = []
        for i in range(5):
            requests += [[NO, HALF.thresholds[j], NO] if i == j else [NO] * 3]
            requests += [*alike, [own.word(depth) + change]] if i == j else []
        assert number_of(*requests, [1] * 3) == [0, digit << j, 0]


def test_a_tail_of_zeros_goes_on_to_further_bits() -> None:
    """2⁻⁹² after one word of 0: 28 more zeros, then the bits of t."""
    second = HALF.tail.word(2)
    assert 0 < second < 1 << 36
    low = [[NO, YES]] + [[NO, NO]] * 4  # the second number has digit 0
    assert number_of(*low, [1, 0], [second + 1]) == [0, 1]  # no success
    assert number_of(*low, [1, 0], [second - 1], [7]) == [0, 33]  # one, then none
    again = [[0], [second], [HALF.tail.word(3) - 1]]
    assert number_of(*low, [1, 0], [0], *again, [7]) == [0, 65]  # two
    assert number_of(*low, [1, 0], [0], [0], [second + 1]) == [0, 33]


def test_all_numbers_of_a_batch_may_have_a_tail() -> None:
    low = [[NO] * 3] * 5
    assert number_of(*low, [0, 0, 0], [0], [1], [NO], [0], [0], [0], [1]) == [32, 0, 64]


def test_a_tiny_scale_has_a_tail_alone() -> None:
    tiny = digits_of(1e-300)
    assert tiny.count == 0
    assert number_of([0, 5], [0], [0], [1], digits=tiny) == [0, 0]


def test_what_is_beyond_64_bits_is_kept_modulo_them() -> None:
    """H = 2 and H = 4 with 62 digits: 2⁶³ and 2⁶⁴, and a digit to see that it stays."""
    great = digits_of(1e17)
    low = [[YES]] + [[NO]] * 61
    assert number_of(*low, *[[0], [0]] * 2, [1], digits=great) == [1 - (1 << 63)]
    assert number_of(*low, *[[0], [0]] * 4, [1], digits=great) == [1]


@pytest.mark.statistical
def test_the_slow_path_has_the_probability_that_is_left_to_it() -> None:
    """Given that U and p agree in a word, U < p with the fraction of p that follows that word.

    t 2⁶⁴ is 0.92 for σ = 0.0225: of 4,000 tails whose first word is 0 so many succeed (5 standard
    deviations, 1e-6); 0.7 of it is more than 60 standard deviations off..
    """
    tail = digits_of(0.0225).tail
    share = float(exact(tail) * TOP)
    assert 0.9 < share < 0.95
    digit = Probability(0.5, 1)
    rest = float(exact(digit) * TOP % 1)
    error = math.sqrt(4_000 * 0.25)
    words = simulated(1)
    assert_near(sum(tail_value(tail, words) for _ in range(4_000)), 4_000 * share, error, 5.0)
    assert_near(sum(is_below(digit, words) for _ in range(4_000)), 4_000 * rest, error, 5.0)
    assert 0.3 * 4_000 * share > 30 * error


# many words


def p_value(numbers: NDArray[np.int64], scale: float) -> float:
    """Pearson's test against P(G = g) = (1 − a) a^g, numbers from 4 σ on joined."""
    ratio, last = math.exp(-1 / scale), max(1, int(4 * scale))
    law: Floats = (1 - ratio) * ratio ** np.arange(last + 1, dtype=np.float64)
    law[-1] = ratio**last
    observed = np.bincount(np.minimum(numbers, last), minlength=last + 1)
    return pearson(observed[np.newaxis], law[np.newaxis])


@pytest.mark.parametrize("scale", [0.7, 3.0, 10.0, 47.0])
def test_numbers_of_many_words_follow_the_law(scale: float) -> None:
    """False alarm 1e-6, were the words not always the same; what is 30 % off is caught."""
    digits, size = digits_of(scale), 200_000
    assert_p_value(p_value(geometric(digits, size, simulated(2)), scale), 1e-6)
    for other in (scale / 2, 0.7 * scale, 1.3 * scale):
        assert p_value(geometric(digits_of(other), size, simulated(2)), scale) < 1e-12
    for j in range(sum(one > TOP // 20 for one in digits.thresholds)):  # else too rare to see here
        wrong = [round(t * 0.7) if i == j else t for i, t in enumerate(digits.thresholds)]
        numbers = geometric(Digits(scale, tuple(wrong)), size, simulated(2))
        assert p_value(numbers, scale) < 1e-12
