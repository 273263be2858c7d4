"""What is measured of our own claims on efficiency: Experiment 1 at the same sound epsilon.

The people are those of :mod:`flows.lab.replication.experiment_one`: 3,500 units in three clusters,
twelve outcomes, a true effect of 1.

Every release is made by the product's functions at the same price: ε as the accountant computes it
for everything published together, δ = 1e-4. (The paper's own ε does not hold; see the README.) The
mean squared error is about the *true effect* of the population, so the error due to the assignment
is part of it. One thing differs from the paper: it draws sub-populations from one super-population,
whereas we draw the whole model anew each time, μ_c too, because results depend on it.

**How Cluster-DP is tuned.** γ runs from 0.01/K to 0.6/K, and the part of ε for its counts from 0.1
to 0.9. We take the release with the least noise in τ̂_Q when the true outcomes are known, which they
never are in practice. Both bounds bind at every ε: τ̂_Q is sharpest where Cluster-DP is least like
itself. Without bounds it becomes Uniform-Prior-DP without counts, which is shown as well.

Planned releases use public sizes and a uniform guess, and no outcome. For a segment there are two
of them: the planner's usual one, which gives the effect on everybody the same importance, and one
for the segment alone.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.random import Generator, default_rng

from estimators.response.debias import prior_moments
from flows.lab.replication.claims import Found, Measure, Run, mean_of, paired_ratio
from flows.lab.replication.efficiency.half import (
    PLANNED_TABLES,
    half_releases,
    half_variance,
    plain_variance,
)
from flows.lab.replication.efficiency.noise import (
    CLUSTER,
    LEARNT,
    LIMIT,
    PLANNED,
    PUBLIC,
    RELEASES,
    question_of,
    spreads,
)
from flows.lab.replication.experiment_one import GRID, SIZES, K, population, shares_of
from flows.lab.replication.panels import Line, Panel
from privatizers.accounting.accountant import calibrate
from privatizers.accounting.events import CountsNoise
from privatizers.accounting.rounding import realised_threshold
from privatizers.lab.simulation.simulate import simulate
from privatizers.lab.simulation.trial import Trial
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.prior import truncated_prior
from privatizers.mechanisms.statistics.noisy_counts import moved_cells
from privatizers.planning.design import Request, design
from privatizers.planning.noise.response_noise import StatisticShift, approximate_odds
from privatizers.planning.optimal_design import OptimalRequest, optimal_design
from privatizers.planning.planner import plan
from schemas.arrays import Bools, Floats, Ints

DELTA = 1e-4
THRESHOLDS = (0.01, 0.1, 0.24, 0.3, 0.6)
"""The values of γ K that are tried."""
SHARES: Floats = np.array([0.1, 0.25, 0.5, 2 / 3, 0.9])
"""The parts of ε for the counts that are tried."""
_EPSILONS = (0.2, 1.0, 2.0, 4.0)
_OF_UNITS: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
"""Of ε, where everything is worked out."""
_PLAIN = "without privacy"
_SOUND, _ERROR = "ε (sound, δ = 1e-4)", "mean squared error, outcomes' unit squared"

log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class ReleaseKind:
    """A kind of release: its mechanism, its grid and how it splits ε."""

    name: str
    mechanism: Mechanism | ClusterOptimalDP
    grid: Floats
    statistic_share: float
    """The part of ε that pays for the statistic of the strata."""


def tuned(epsilon: float, people: Sequence[Ints], random: Generator) -> ReleaseKind:
    """Return the Cluster-DP release with the least noise in τ̂_Q, given the true outcomes."""
    candidates = [
        (noise, threshold, share)
        for threshold in THRESHOLDS
        for noise, share in zip(
            _tau_q_noise(epsilon, threshold / K, people, random), SHARES.tolist(), strict=True
        )
    ]
    _, threshold, share = min(candidates)
    gamma, moved = realised_threshold(threshold / K, K), moved_cells(K)
    noise_scale = moved / (epsilon * share)
    rate = calibrate(epsilon, DELTA, gamma, CountsNoise(noise_scale, moved))
    mechanism = ClusterDP(Parameters(K, rate, gamma, noise_scale))
    return ReleaseKind("cluster-dp, tuned for tau_q", mechanism, GRID, share)


def _tau_q_noise(
    epsilon: float, gamma: float, people: Sequence[Ints], random: Generator
) -> list[float]:
    """The variance that resampling adds to τ̂_Q, for each share in ``SHARES``.

    It is Σ b_c² [r E(y − m)² + r(1 + r) Var_q̃]/n_ca, averaged over populations and over the noise
    on their counts.
    """
    moved = moved_cells(K)
    odds = approximate_odds(epsilon, DELTA, SHARES, gamma, StatisticShift.of(K, None))
    shares = np.concatenate([shares_of(levels) for levels in people])
    n = np.tile(SIZES.ravel(), len(people)).astype(np.float64)
    weight = np.repeat((SIZES.sum(axis=1) / SIZES.sum()) ** 2, 2)
    weight = np.tile(weight, len(people)) / n / len(people)
    variances = []
    for r, share in zip(odds, SHARES, strict=True):
        noise = random.laplace(scale=moved / (epsilon * share), size=shares.shape)
        prior = truncated_prior(n[:, np.newaxis] * shares + noise, n, gamma)
        mean, spread = prior_moments(GRID, prior)
        about = np.sum(shares * (GRID - mean[:, np.newaxis]) ** 2, axis=1)
        variances.append(float(weight @ (r * about + r * (1.0 + r) * spread)))
    return variances


def uniform(epsilon: float) -> ReleaseKind:
    """Return the release that publishes only outcomes, with the least noise for its price."""
    request = Request("uniform-prior-dp", K, "none", epsilon=epsilon, delta=DELTA)
    return ReleaseKind("uniform-prior-dp, nothing else", design(request).mechanism, GRID, 0.0)


def tables(epsilon: float) -> ReleaseKind:
    """Return the release by tables for a uniform guess, which publishes only outcomes."""
    request = OptimalRequest(
        tuple(GRID.tolist()), (1.0 / K,) * K, epsilon, DELTA, "none", learn_from="nothing"
    )
    return ReleaseKind(PUBLIC, optimal_design(request).mechanism, GRID, 0.0)


def planned(epsilon: float, name: str, *segments: float, overall: bool = True) -> ReleaseKind:
    """Return the release that the planner chooses from the sizes and a uniform guess."""
    asked = question_of(epsilon)
    chosen = plan(replace(asked, delta=DELTA, segment_shares=segments, overall=overall))
    grid = np.array(chosen.option.grid)
    return ReleaseKind(name, chosen.design.mechanism, grid, chosen.option.statistic_share)


def _errors(
    kind: ReleaseKind, people: Sequence[Ints], how: Run, inside: Bools | None = None
) -> dict[str, Floats]:
    """Mean squared errors about the true effect in each population, by estimator; shape [n]."""
    support = None if kind.grid is GRID else GRID
    found: dict[str, list[float]] = {}
    for levels in people:
        trial = Trial(kind.grid, SIZES, levels, kind.mechanism, support=support)
        answers = simulate(trial, 20 if how.quick else 40, how.random, inside=inside).answers
        for sample in answers:
            off = np.mean((sample.estimate - sample.truth) ** 2)
            found.setdefault(sample.estimator, []).append(float(off))
        plain = np.mean((answers[0].unprotected - answers[0].truth) ** 2)
        found.setdefault(_PLAIN, []).append(float(plain))
    return {name: np.array(errors) for name, errors in found.items()}


def _best(errors: dict[str, Floats]) -> Floats:
    return errors["combined" if "combined" in errors else "tau_q"]


def _everybody(how: Run) -> Found:
    people = [population(how.random) for _ in range(12 if how.quick else 40)]
    found: dict[str, tuple[float, float]] = {}
    heights: dict[str, list[Floats]] = {}
    for epsilon in _EPSILONS:
        log.info("epsilon %g …", epsilon)
        cluster = _errors(tuned(epsilon, people, how.random), people, how)
        alone, whole = uniform(epsilon), planned(epsilon, "planned for everybody")
        best = _best(_errors(whole, people, how))
        each = {
            "Cluster-DP, tuned for τ̂_Q: τ̂_Q": cluster["tau_q"],
            "the same: combined": cluster["combined"],
            whole.name: best,
            alone.name: _best(_errors(alone, people, how)),
            _PLAIN: cluster[_PLAIN],
        }
        _append(heights, each)
        found[f"combined {epsilon:g}"] = paired_ratio(cluster["combined"], cluster["tau_q"])
        found[f"planned {epsilon:g}"] = paired_ratio(best, cluster["tau_q"])
    return found, (_panel("The effect on everybody", _SOUND, _ERROR, _EPSILONS, heights),)


def _segments(how: Run) -> Found:
    people = [population(how.random) for _ in range(30 if how.quick else 40)]
    inside = how.random.permuted(np.tile(np.arange(2), SIZES.sum() // 2)) == 0
    epsilons = _EPSILONS[:2] if how.quick else _EPSILONS
    found: dict[str, tuple[float, float]] = {}
    heights: dict[str, list[Floats]] = {}
    for epsilon in epsilons:
        kinds = [
            uniform(epsilon),
            tables(epsilon),
            planned(epsilon, "planned for everybody and a half", 0.5),
            planned(epsilon, "planned for a half alone", 0.5, overall=False),
        ]
        errors = [_errors(one, people, how, inside) for one in kinds]
        each = {kind.name: _best(of) for kind, of in zip(kinds, errors, strict=True)}
        _append(heights, each | {_PLAIN: errors[0][_PLAIN]})
        first, _, both, alone = each.values()
        found[f"both {epsilon:g}"] = paired_ratio(both, first)
        found[f"half {epsilon:g}"] = paired_ratio(alone, first)
    return found, (_panel("The effect on a random half", _SOUND, _ERROR, epsilons, heights),)


def _append(to: dict[str, list[Floats]], each: dict[str, Floats]) -> None:
    for name, values in each.items():
        to.setdefault(name, []).append(values)


def _panel(
    title: str, across: str, up: str, epsilons: Sequence[float], heights: dict[str, list[Floats]]
) -> Panel:
    """Lines of the means over populations; ``heights`` have one value each, by ε."""
    lines = (
        Line.of(name, epsilons, [mean_of(one) for one in each], is_reference=name == _PLAIN)
        for name, each in heights.items()
    )
    return Panel(title, across, up, tuple(lines), "xy")


def _worked_out(
    how: Run,
    key: str,
    claimed: tuple[float, ...],
    compared: dict[str, str],
    by_release: Callable[[float, Sequence[Floats]], dict[str, Floats]],
) -> tuple[dict[str, tuple[float, float]], dict[str, list[Floats]], tuple[float, ...]]:
    """Values of releases over those of what is planned without tables."""
    people, epsilons = spreads(3 if how.quick else 12), claimed if how.quick else _OF_UNITS
    found: dict[str, tuple[float, float]] = {}
    heights: dict[str, list[Floats]] = {}
    for epsilon in epsilons:
        values = by_release(epsilon, people)
        _append(heights, values)
        if epsilon in claimed:
            found |= {
                f"{key} {one} {epsilon:g}": paired_ratio(values[name], values[PLANNED])
                for one, name in compared.items()
            }
    return found, heights, epsilons


def _of_units(how: Run) -> Found:
    """The noise of a unit at equal pure ε, worked out."""
    compared = {"cluster": CLUSTER, "public": PUBLIC, "learnt": LEARNT, "limit": LIMIT}
    found, heights, epsilons = _worked_out(
        how,
        "noise",
        (2.0, 4.0),
        compared,
        lambda epsilon, people: {
            name: np.array([noise(epsilon, one) for one in people])
            for name, noise in RELEASES.items()
        },
    )
    across, up = "ε of everything together (δ = 0)", "variance by a unit's noise, unit squared"
    return found, (_panel("The noise of a unit", across, up, epsilons, heights),)


def _of_halves(how: Run) -> Found:
    """The variance of the effect on a random half at equal pure ε, worked out."""

    def variances(epsilon: float, people: Sequence[Floats]) -> dict[str, Floats]:
        found = {_PLAIN: np.array([plain_variance(one) for one in people])}
        for name, release in half_releases(epsilon).items():
            random = default_rng(round(1e3 * epsilon))
            found[name] = np.array([half_variance(one, *release, random) for one in people])
        return found

    compared = {"planned": PLANNED_TABLES, "learnt": LEARNT}
    found, heights, epsilons = _worked_out(how, "variance", (4.0,), compared, variances)
    across, up = "ε of everything together (δ = 0)", "variance, unit squared"
    title = "The effect on a random half, worked out"
    return found, () if how.quick else (_panel(title, across, up, epsilons, heights),)


MEASURES: dict[str, Measure] = {
    "everybody": _everybody,
    "segments": _segments,
    "noise of units": _of_units,
    "halves": _of_halves,
}
