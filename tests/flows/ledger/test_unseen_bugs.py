"""What `clusterdp audit` cannot see by sampling: where keys come from, and lists that are cut."""

import itertools
import os
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from flows.runtime.reading.key_files import KEY_SIZE, kept_key
from privatizers.noise import randomness
from tests.conftest import Builder, a_log

MANY = 65_536 + 700
"""More units than two bytes tell apart."""

Draw = Callable[[], bytes]

DRAWS: dict[str, Draw] = {
    "keys": randomness.secret_key,
    "words": lambda: randomness.random_words(40).tobytes(),
    "noise": lambda: randomness.discrete_laplace(40, 5.0).tobytes(),
}


def hangs_on_entropy_alone(draw: Draw) -> bool:
    """Whether the same entropy gives the same at another time, and other entropy something else."""
    return draw_of(draw, 1, 1e9) == draw_of(draw, 1, 2e9) != draw_of(draw, 2, 1e9)


def draw_of(draw: Draw, first: int, now: float) -> bytes:
    """Draw with a system whose entropy begins with a number, and whose clocks stand still."""
    numbers = itertools.count(first << 32)

    def entropy(size: int) -> bytes:
        return next(numbers).to_bytes(size, "big")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", entropy)
        for clock in ("time", "monotonic", "perf_counter"):
            patch.setattr(time, clock, lambda: now)
            patch.setattr(time, f"{clock}_ns", lambda: int(now * 1e9))
        return draw()


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_hangs_on_the_systems_entropy_and_on_no_clock(name: str) -> None:
    assert hangs_on_entropy_alone(DRAWS[name])


def test_a_key_made_from_the_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_clock(size: int) -> bytes:
        return np.random.default_rng(time.time_ns()).bytes(size)

    assert not hangs_on_entropy_alone(lambda: of_clock(32))
    assert not hangs_on_entropy_alone(lambda: os.urandom(28) + of_clock(4))


def test_the_key_of_a_ledger_is_the_systems_entropy(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def keys() -> Iterator[bytes]:
        folder = tmp_path_factory.mktemp("ledger")
        yield kept_key(folder / "account.key", "a ledger", "nothing is lost")

    assert hangs_on_entropy_alone(lambda: next(keys()))
    assert len(next(keys())) == KEY_SIZE


@pytest.mark.parametrize("returning", ["set_aside", "charge"])
def test_the_list_of_who_was_released_is_never_cut(experiment: Builder, returning: str) -> None:
    """Whoever is not on it would be released twice, or pay once."""
    everybody = a_log(MANY + 400)
    built = experiment(
        {"1.parquet": everybody.head(MANY), "2.parquet": everybody},
        "{period}.parquet",
        privacy={"returning": returning},
        publish={"unit_id": "plain"},
    )
    assert built.run("1").roster.n_units == MANY
    again = built.run("2")
    assert again.roster.n_returning == MANY
    once = returning == "set_aside"
    assert again.roster.n_units == (400 if once else MANY + 400)
    assert again.statement.spent.epsilon == (2.0 if once else 4.0)
    if once:
        assert again.roster.quarantined == MANY
