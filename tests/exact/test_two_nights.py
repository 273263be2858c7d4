"""Two nights, the second's table made of the first's file: whoever is in both pays ε₁ + ε₂.

All that the two nights publish of two people is listed, by the product's own tables and guess.
Nothing here is random.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from estimators.published_guess import Outputs, even_part, evened, learnt, learnt_within
from privatizers.optimal_response.learnt_guess import public_response, published_response
from schemas.arrays import Floats, Ints

GRID = np.array([0.0, 1.0, 4.0])
FIRST, SECOND = 1.1, 0.7
LATER = 2.0
"""Where clusters that differ have tables that differ."""
ROUNDED = 1e-5  # tables are shrunk by 2⁻²⁰, and bounded by whole numbers


def table(guess: Floats, epsilon: float) -> Floats:
    found: Floats = public_response(GRID, guess, epsilon, 1).probabilities[0]
    return found


def taught(chances: Floats, counts: Ints) -> Floats:
    """The second night's guess: of the first one's table and outputs, which its file has."""
    zero = np.zeros(1, dtype=np.int64)
    outputs = Outputs(GRID, chances[np.newaxis], zero, zero, counts[np.newaxis])
    (shares,) = learnt([outputs], GRID, 1, nearest=False)
    return evened(shares, even_part(2 * min(1.0, FIRST**2)))


def losses(*, peeks: bool = False) -> tuple[Floats, Floats]:
    """ln P/Q of all that is published: of one who is in both nights, and in the second alone.

    With ``peeks``, the guess is one that has seen the outcome, as none may.
    """
    first = table(np.full(3, 1 / 3), FIRST)
    n_outputs = first.shape[1]
    both, late, distinct = [], [], set()
    for other in range(3):
        for one, beside in itertools.product(range(n_outputs), repeat=2):
            counts = np.bincount([one, beside], minlength=n_outputs)
            if first[:, one].max() == 0 or first[other, beside] == 0:
                continue
            guess = taught(first, counts)
            seconds = [table(guess, SECOND)] * 3
            if peeks:
                seconds = [table(evened(np.eye(3)[own], 0.1), SECOND) for own in range(3)]
                width = max(part.shape[1] for part in seconds)
                seconds = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in seconds]
            distinct.add(seconds[0].tobytes())
            for x, y in itertools.permutations(range(3), 2):
                here, there = seconds[x][x], seconds[y][y]
                possible = (here > 0) & (there > 0)
                second = np.log(here[possible] / there[possible])
                late.append(second)
                both.append(second + np.log(first[x, one] / first[y, one]))
    assert len(distinct) > 1 or peeks  # the second table does follow what the first night published
    return np.concatenate(both), np.concatenate(late)


def by_strata() -> tuple[Floats, Floats]:
    """The same of one person, beside one of another cluster; each has the table of her cluster."""
    sizes, arm = np.ones(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    first = table(np.full(3, 1 / 3), FIRST)
    both, late, differ = [], [], 0
    for one, beside in itertools.product(range(first.shape[1]), repeat=2):
        counts = np.eye(first.shape[1], dtype=np.int64)[[one, beside]]
        night = Outputs(GRID, first[np.newaxis], arm, arm, counts, ("a", "b"))
        many = replace(night, counts=1000 * counts)  # as if each stood for so many: more is learnt
        shares = learnt([many], GRID, 1, nearest=False)
        found = learnt_within([many], GRID, shares, nearest=False)
        guesses = evened(np.vstack([found["a"], found["b"]]), 0.01)
        response = published_response(GRID, guesses.mean(axis=0), guesses, LATER, sizes)
        differ += response.table_of[0] != response.table_of[1]
        second = response.probabilities[response.table_of[0]]
        for x, y in itertools.permutations(range(3), 2):
            possible = (second[x] > 0) & (second[y] > 0)
            late.append(np.log(second[x][possible] / second[y][possible]))
            if first[x, one] > 0 and first[y, one] > 0:
                both.append(late[-1] + np.log(first[x, one] / first[y, one]))
    assert differ > 0  # the clusters' tables do follow what each of them has published
    return np.concatenate(both), np.concatenate(late)


def test_two_nights_by_strata_cost_exactly_what_they_cost_apart() -> None:
    both, late = by_strata()
    assert both.max() <= FIRST + LATER + 1e-12
    assert both.max() == pytest.approx(FIRST + LATER, abs=ROUNDED)
    assert late.max() <= LATER + 1e-12
    assert late.max() == pytest.approx(LATER, abs=ROUNDED)


def test_two_nights_cost_exactly_what_they_cost_apart() -> None:
    both, late = losses()
    assert both.max() <= FIRST + SECOND + 1e-12
    assert both.max() == pytest.approx(FIRST + SECOND, abs=ROUNDED)
    assert late.max() <= SECOND + 1e-12
    assert late.max() == pytest.approx(SECOND, abs=ROUNDED)


def test_a_guess_that_had_seen_the_outcome_would_be_caught() -> None:
    both, late = losses(peeks=True)
    assert both.max() > FIRST + SECOND + ROUNDED
    assert late.max() > SECOND + ROUNDED
