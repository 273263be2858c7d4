"""The joint loss of several outcomes, and the laws of what is drawn of two of them."""

import numpy as np
import pytest

from privatizers.accounting.accountant import delta_at, epsilon_at
from privatizers.accounting.events import Together
from privatizers.audit.checks import judge_events
from privatizers.audit.laws import Responses
from privatizers.audit.mechanism_laws import noise_pairs
from privatizers.audit.several_outcomes import joint_loss, response_pairs
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import event_of
from privatizers.planning.design import Request, design
from schemas.arrays import Floats, Ints

ERROR = 1e-9
N = 40_000


def mechanism(k: int, epsilon: float, delta: float = 0.0) -> Mechanism:
    return design(Request("uniform-prior-dp", k, "counts", epsilon=epsilon, delta=delta)).mechanism


def test_losses_of_all_outcomes_add_up_and_are_attained() -> None:
    found = joint_loss([mechanism(2, 1.0), mechanism(3, 0.5), mechanism(2, 0.5)], 2.0)
    assert found.epsilon == 2.0
    assert found.check.holds


def test_a_price_that_is_left_out_of_the_claim_is_found() -> None:
    found = joint_loss([mechanism(2, 1.0), mechanism(3, 0.5)], 1.0)
    assert found.epsilon == pytest.approx(1.5, abs=1e-9)
    assert not found.check.holds


def test_a_delta_that_is_divided_holds_for_all_together() -> None:
    parts = [mechanism(2, 1.0, 5e-6), mechanism(3, 1.0, 5e-6)]
    found = joint_loss(parts, 2.0, 1e-5)
    whole = Together(tuple(event_of(one.parameters) for one in parts))
    assert delta_at(whole, 2.0) <= 1e-5
    assert found.epsilon <= epsilon_at(whole, 1e-5) + 1e-9
    assert found.epsilon > 1.9  # and not far below it
    assert not joint_loss(parts, 1.5, 1e-5).check.holds


def responses(levels: Ints, kept: np.ndarray, prior: Floats, rate: float) -> Responses:
    other = 1 - levels
    drawn = np.where(kept, levels, other)
    return Responses(levels, np.zeros_like(levels), drawn, rate, prior)


@pytest.mark.parametrize("shared", [False, True])
def test_shared_coins_are_found(shared: bool) -> None:
    """False alarms: at most 1 in 10⁹."""
    random = np.random.default_rng(7)
    prior, rate = np.full((1, 2), 0.5), 0.5
    levels = random.integers(0, 2, (2, N))
    coins = random.random((2, N))
    kept = coins < 1.0 - rate + rate * 0.5
    first = responses(levels[0], kept[0], prior, rate)
    second = responses(levels[1], kept[0 if shared else 1], prior, rate)
    check = judge_events("apart", response_pairs(first, second, "two"), ERROR)
    assert check.holds is not shared


@pytest.mark.parametrize("scale", [0.8, 9.0])
@pytest.mark.parametrize("shared", ["no", "the same", "of another scale", "its negative"])
def test_shared_noise_is_found(shared: str, scale: float) -> None:
    """False alarms: at most 1 in 10⁹."""
    random = np.random.default_rng(11)

    def noise(own: float, words: Floats) -> Ints:
        sizes = np.floor(np.log(words[0]) * -own).astype(np.int64)
        other = np.floor(np.log(words[1]) * -own).astype(np.int64)
        drawn: Ints = sizes - other
        return drawn

    words = 1.0 - random.random((2, N))
    one = noise(scale, words)
    own = 3.0 * scale if shared == "of another scale" else scale
    second = {
        "no": noise(scale, 1.0 - random.random((2, N))),
        "the same": one,
        "of another scale": noise(own, words),
        "its negative": -one,
    }[shared]
    events = noise_pairs((one, scale), (second, own), "two")
    assert judge_events("apart", events, ERROR).holds is (shared == "no")
