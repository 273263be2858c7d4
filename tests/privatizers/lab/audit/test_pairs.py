"""The laws of what is drawn of two outcomes: sound draws pass, shared ones are found."""

import numpy as np
import pytest

from privatizers.lab.audit import checks
from privatizers.lab.audit.checks import Responses, judge, laplace
from schemas.arrays import Floats, Ints

ERROR = 1e-9
N = 40_000


def responses(levels: Ints, kept: np.ndarray, prior: Floats, rate: float) -> Responses:
    other = 1 - levels
    drawn = np.where(kept, levels, other)
    q = np.broadcast_to(prior[:, np.newaxis], (*prior.shape, prior.shape[1]))
    return checks.responses(levels, np.zeros_like(levels), drawn, q, np.arange(len(q)), rate)


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
    check = judge("apart", [first.trials.both(second.trials).counted("two")], ERROR)
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
    events = [laplace(one, scale).both(laplace(second, own)).counted("two")]
    assert judge("apart", events, ERROR).holds is (shared == "no")
