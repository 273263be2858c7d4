"""Tasks that draw: randomised response and discrete Laplace noise, ours and others'."""

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

from privatizers.mechanisms.randomised_response import RandomisedResponse
from privatizers.noise.randomness import discrete_laplace
from tests.benchmarks.watch import Watch

dp.enable_features("contrib")

N_OUTCOMES = 12
N_STRATA = 2_000
RATE = 0.5
"""λ, the probability of drawing anew."""


def response(watch: Watch, work: str, prefect_home: str | None, by: str, rows: int) -> int:
    """Randomised response of so many rows over 12 outcomes, ours with a prior for each stratum."""
    generator = np.random.default_rng(7)
    levels = generator.integers(0, N_OUTCOMES, rows)
    strata = generator.integers(0, N_STRATA, rows)
    drawn: NDArray[np.integer]
    prior = generator.multinomial(1 << 20, [1 / N_OUTCOMES] * N_OUTCOMES, N_STRATA) / (1 << 20)
    if by == "ours":
        ours = RandomisedResponse(RATE, prior)
        with watch:
            drawn = ours.draw(levels, strata)
    elif by == "loop":
        with watch:
            drawn = _loop(levels, strata, prior, generator)
    else:
        # P(kept) = 1 − λ + λ/K: the same probability of the truth as with a uniform prior.
        kept = 1 - RATE + RATE / N_OUTCOMES
        theirs = dp.m.make_randomized_response(list(range(N_OUTCOMES)), kept)
        with watch:
            drawn = np.array([theirs(level) for level in levels.tolist()])
    return len(drawn)


def _loop(
    levels: NDArray[np.int64],
    strata: NDArray[np.int64],
    prior: NDArray[np.float64],
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """A row at a time, as one would write it down; its randomness can be predicted."""
    bounds = prior.cumsum(axis=1)
    drawn = levels.copy()
    for row in range(len(levels)):
        if generator.random() < RATE:
            drawn[row] = bounds[strata[row]].searchsorted(generator.random(), side="right")
    return drawn


def laplace(watch: Watch, work: str, prefect_home: str | None, by: str, rows: int) -> int:
    """Discrete Laplace noise of scale 10 for so many cells."""
    if by == "ours":
        with watch:
            drawn = discrete_laplace(rows, 10.0)
    elif by == "vector":
        domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        with watch:
            drawn = np.array(dp.m.make_laplace(domain, metric, scale=10.0)([0] * rows))
    else:
        scalar = dp.m.make_laplace(
            dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=10.0
        )
        with watch:
            drawn = np.array([scalar(0) for _ in range(rows)])
    return len(drawn)


TASKS = {"response": response, "laplace": laplace}
