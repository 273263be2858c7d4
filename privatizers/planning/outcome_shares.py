"""Dividing ε between several outcomes before any data is read.

The planner of one outcome (`planner`) has a score for every ε: Σ ln W² over the effects that
matter, W the predicted width of an interval. The shares s_i of ε are chosen among multiples of
1/M, each at least 1/M, to minimise

    Σ_i score_i(s_i ε),   Σ_i s_i = 1,

where

- score_i is that of the best option for outcome i at s_i of ε (and of δ), by its ``Question``,
- M is :data:`STEPS` for few outcomes, else the least power of two that is twice their number. So a
  share prints exactly as what it is, and shares add up to one exactly.

A score is computed at ten numbers of parts; between them it is interpolated linearly in ln s, in
which ln W² is nearly straight.

ln W² does not change where an outcome is measured in another unit but for a constant, so no outcome
counts for more because its numbers are greater. The minimum over the grid is exact (dynamic
programming over what is left to divide). Of equal sums, the shares that come first in the order of
outcomes are the smaller ones. Nothing here reads an outcome, and the same questions have the same
answer.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privatizers.planning.planner import rank_options
from privatizers.planning.question import Question
from schemas.arrays import Floats

STEPS = 32
"""Equal parts of ε that are handed out, where there are at most half as many outcomes."""

_TRIED = 10


def plan_shares(questions: Sequence[Question]) -> tuple[float, ...]:
    """Return the share of each outcome, multiples of 1/M adding up to one.

    ``questions`` are those of the outcomes, each at the whole of ε and δ. Raises ConfigError where
    no arm can be compared with control.
    """
    number = len(questions)
    if number == 1:
        return (1.0,)
    steps = max(STEPS, 1 << (2 * number - 1).bit_length())
    most = steps - number + 1
    scores = np.array([_scores(one, steps, most) for one in questions])
    return tuple(part / steps for part in divide(scores, steps))


def _scores(question: Question, steps: int, most: int) -> Floats:
    """Return the score of 1 to ``most`` parts of ε, shape [most]."""
    tried = np.unique(np.rint(np.geomspace(1, most, _TRIED)).astype(np.int64))
    scores = []
    for share in (tried / steps).tolist():
        epsilon, delta = question.epsilon * share, question.delta * share
        scores.append(rank_options(replace(question, epsilon=epsilon, delta=delta))[0].score)
    parts = np.arange(1, most + 1)
    return np.interp(np.log(parts), np.log(tried), scores)


def divide(scores: Floats, steps: int) -> tuple[int, ...]:
    """Return the parts, whole numbers from 1 adding up to ``steps``, with the least sum of scores.

    ``scores`` has the shape [outcomes, parts]: that of 1, 2, … parts. Every outcome may have as
    many parts as leave one for each other.
    """
    number, most = scores.shape
    if steps < number or most < steps - number + 1:
        raise ValueError(f"{steps} parts cannot be divided between {number} outcomes")
    rounded = np.round(scores, 9)  # so that the last bits of a score decide nothing
    best = np.full(steps + 1, np.inf)
    best[0] = 0.0
    chosen = np.zeros((number, steps + 1), dtype=np.int64)
    for outcome in range(number - 1, -1, -1):
        sums = np.full((steps + 1, most), np.inf)
        for part, score in enumerate(rounded[outcome], start=1):
            sums[part:, part - 1] = best[: steps + 1 - part] + score
        best, chosen[outcome] = sums.min(axis=1), sums.argmin(axis=1) + 1
    parts, left = [], steps
    for outcome in range(number):
        parts.append(int(chosen[outcome, left]))
        left -= parts[-1]
    return tuple(parts)
