"""Theorems and propositions of Javanmard, Mirrokni and Pouget-Abadie (2025), by themselves."""

from math import exp, log

import numpy as np

from estimators.response.debias import debias_vector
from estimators.theory import (
    cluster_prior_gap_bound,
    noisy_histogram_gap,
    noisy_horvitz_thompson_gap,
    prior_distance_bound,
    prior_penalty,
    uniform_prior_variance,
)
from flows.lab.replication.claims import Found, Run, mean_of
from flows.lab.replication.cluster_dp.people import DELTA, People, Release, printed_rate
from flows.lab.replication.experiment_one import GRID, SIZES, K
from flows.lab.replication.panels import Line, Panel
from privatizers.accounting.accountant import delta_at, epsilon_at, pure_epsilon
from privatizers.accounting.events import CountsNoise, Response, Together
from privatizers.mechanisms.prior import truncated_prior
from schemas.arrays import Floats

SIGMA, GAMMA, RATE = 10.0, 0.02, 0.8
"""The paper's defaults."""
EPSILONS = (0.2, 1.0, 4.0)
_N = 100  # people of the counterexample, with K = 2, γ = .1, λ = .5 and σ = 1


def _price(rate: float, gamma: float, noise_scale: float = SIGMA, moved: int = 2) -> Together:
    return Together((CountsNoise(noise_scale, moved), Response(rate, gamma)))


def _privacy(_: Run) -> Found:
    printed = pure_epsilon(_price(RATE, GAMMA, moved=1))
    found = {
        "3.1": pure_epsilon(_price(RATE, GAMMA)) / printed,
        "3.1 delta": delta_at(_price(RATE, GAMMA), printed),
        "3.1 event": _counterexample(),
    }
    for part in (0.1, 1.0):
        gamma = part / K
        spent = _price(printed_rate(0.2, gamma, SIGMA), gamma)
        found[f"1a epsilon {part:g}"] = epsilon_at(spent, DELTA)
        found[f"1a delta {part:g}"] = delta_at(spent, 0.2)
    return {key: (one, 0.0) for key, one in found.items()}, ()


def _counterexample() -> float:
    """The log ratio of an event's probabilities at (1, n − 1) and (0, n), over the printed ε.

    The event: the noisy share of the first outcome is from 1/n to γ, that of the second from 1 − γ
    to 1 − 1/n, and somebody, whose outcome is the one that differs, shows the first.
    """
    gamma, rate, scale = 0.1, 0.5, 1.0
    noisy = np.stack(np.meshgrid(*[np.arange(-60, 161)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    prior = truncated_prior(noisy, np.full(len(noisy), _N), gamma)[:, 0]
    low, high = noisy.T / _N
    inside = (low >= 1 / _N) & (low <= gamma) & (high >= 1 - gamma) & (high <= 1 - 1 / _N)
    a = exp(-1.0 / scale)

    def probability(first: int) -> float:
        apart = np.abs(noisy - [first, _N - first]).sum(axis=1)
        mass = ((1 - a) / (1 + a)) ** 2 * np.exp(-apart / scale)
        shown = rate * prior + (1 - rate) * first
        return float(mass[inside] @ shown[inside])

    return (log(probability(1)) - log(probability(0))) / pure_epsilon(
        _price(rate, gamma, scale, moved=1)
    )


def _unbiased(run: Run) -> Found:
    people = People.of_experiment_one(run.random)
    n = 20_000 if run.quick else 50_000
    found: dict[str, tuple[float, float]] = {}
    for name, of in _AT_DEFAULTS.items():
        error = _errors(of, people, n, run)
        found[f"3.2 {name}"] = mean_of(error)
    uniform = _AT_DEFAULTS["nobody"]
    estimate = uniform.estimates(people, n, run.random)
    theory = uniform_prior_variance(people.population, people.sizes, uniform.rate).total
    found["A.5"] = float(estimate.var()) / theory, float(np.sqrt(2.0 / n))
    priors = run.random.dirichlet(np.ones(K), 100)
    v = debias_vector(GRID, priors, RATE)
    q = (1 - RATE) * np.eye(K) + RATE * priors[:, :, np.newaxis]
    inverse = np.linalg.solve(
        q.transpose(0, 2, 1), np.broadcast_to(GRID[:, np.newaxis], (100, K, 1))
    )
    found["Q"] = float(np.abs(v - inverse[..., 0]).max()), 0.0
    return found, ()


_AT_DEFAULTS = {one: Release(one, RATE, GAMMA, SIGMA) for one in ("cluster", "arm", "nobody")}


def _errors(of: Release, people: People, n: int, run: Run) -> Floats:
    """Draw in pieces; errors about the truth, shape [n]."""
    pieces = [of.estimates(people, 2_500, run.random) for _ in range(n // 2_500)]
    return np.concatenate(pieces) - people.effect


def _aggregates(_: Run) -> Found:
    n = SIZES.sum(axis=1)
    found: dict[str, float] = {}
    square = (n / n.sum()) ** 2
    for epsilon in EPSILONS:
        scale = np.abs(GRID).max() / SIZES.min(axis=1) / epsilon
        printed = 2.0 * float(square @ scale**2)
        cells = 2.0 / epsilon**2 * float(GRID @ GRID * (square @ np.sum(1.0 / SIZES**2, axis=1)))
        sound = noisy_horvitz_thompson_gap(GRID, SIZES, n, epsilon)
        histogram = noisy_histogram_gap(GRID, SIZES, n, epsilon)
        found |= {
            f"A.2 {epsilon:g}": sound / printed,
            f"A.3 {epsilon:g}": histogram / cells,
            f"A.4 printed {epsilon:g}": cells / printed,
            f"A.4 sound {epsilon:g}": histogram / sound,
        }
    return {key: (one, 0.0) for key, one in found.items()}, ()


def _bound(run: Run) -> Found:
    """Experiment 5: the gap between the variances with and without privacy, and Theorem 3.5."""
    betas = (0.0, 2.0, 4.0, 4.9) if run.quick else (0.0, 1.0, 2.0, 3.0, 4.0, 4.5, 4.9)
    populations, inside = 12 if run.quick else 30, []
    found: dict[str, tuple[float, float]] = {}
    rows: list[list[Floats]] = []
    for beta in betas:
        each = []
        for _ in range(populations):
            people = People.of_experiment_one(run.random, beta)
            gap = _AT_DEFAULTS["cluster"].noise(people, 100, run.random)
            bound = cluster_prior_gap_bound(people.population, people.sizes, RATE, GAMMA, SIGMA)
            inside.append(bound.within <= gap <= bound.printed)
            each.append(
                np.array([gap, bound.within, bound.printed, bound.tight, bound.prior_printed])
            )
        rows.append([*np.transpose(np.array(each))])
        if beta in (0.0, 4.9):
            gaps, within, _, _, second = rows[-1]
            for what, value in (("first", within), ("second", second)):
                found[f"5 {what} {beta:g}"] = mean_of(value / gaps)
    found["5 inside"] = float(np.mean(inside)), 0.0
    grown = _printed_factor(10.0) / _printed_factor(1.0) / 100.0
    found["3.5 scale"] = (grown, 0.0)
    names = ("variance that privacy adds", "first term", "Theorem 3.5", "our tighter form")
    lines = tuple(
        Line.of(name, betas, [mean_of(one[at]) for one in rows]) for at, name in enumerate(names)
    )
    return found, (
        Panel(
            "Experiment 5",
            "β: outcomes' variance between clusters",
            "variance of the effect, (outcome's unit)²",
            lines,
        ),
    )


def _printed_factor(scale: float) -> float:
    """A(x) of the main text, with its plus sign, for outcomes ``scale`` times as great."""
    grid, n = scale * GRID, np.array([1000.0])
    distance = prior_distance_bound(n, K, GAMMA, SIGMA)
    product = prior_penalty(n, grid, RATE, GAMMA, SIGMA).printed / distance
    singular, square = ((RATE * np.sqrt(K) + 1.0) / (1.0 - RATE)) ** 2, float(grid @ grid)
    entry = 1.0 - RATE * (K - 1) * GAMMA
    return float((product + entry * (singular + square - singular * square))[0])


MEASURES = {
    "privacy": _privacy,
    "unbiased": _unbiased,
    "aggregates": _aggregates,
    "experiment 5": _bound,
}
