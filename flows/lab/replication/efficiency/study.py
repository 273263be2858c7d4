"""How much sharper estimates become at the same sound epsilon: Experiment 1, run again.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator, default_rng

from estimators.means import EstimatorName
from estimators.response.debias import prior_moments
from flows.lab.replication.efficiency.half import HalfRow, half_rows
from flows.lab.replication.efficiency.noise import (
    FULL_NOISE,
    LEARNT,
    PUBLIC,
    QUICK_NOISE,
    NoiseRow,
    noise_rows,
    question_of,
)
from flows.lab.replication.efficiency.text import EfficiencyRow, text_of
from flows.lab.replication.experiment_one import GRID, SIZES, K, population, shares_of
from privatizers.accounting.accountant import calibrate
from privatizers.accounting.events import CountsNoise
from privatizers.accounting.rounding import realised_threshold
from privatizers.lab.simulation.simulate import EstimateSample, simulate
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
from schemas.documents import Document, taken

NAME = "efficiency"
DELTA = 1e-4
THRESHOLDS = (0.01, 0.1, 0.24, 0.3, 0.6)
"""The values of γ K that are tried."""
SHARES: Floats = np.array([0.1, 0.25, 0.5, 2 / 3, 0.9])
"""The parts of ε for the counts that are tried."""

log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class StudySize:
    """The size of a run of the experiment."""

    epsilons: tuple[float, ...]
    n_populations: int
    n_releases: int
    n_learnt: int
    """The same, two at least, where every release solves tables of its own: it takes a second."""


FULL = StudySize((0.2, 1.0, 2.0, 4.0), 40, 100, 10)
QUICK = StudySize((0.2, 1.0), 40, 20, 2)


@dataclass(frozen=True)
class ReleaseKind:
    """A kind of release: its mechanism, its grid and how it splits ε."""

    name: str
    mechanism: Mechanism | ClusterOptimalDP
    grid: Floats
    statistic_share: float
    """The part of ε that pays for the statistic of the strata."""


@dataclass(frozen=True)
class EfficiencyReplication(Document):
    """The results of the experiment, and the files of its figures."""

    name: str = field(default=NAME, init=False)
    quick: bool
    rows: tuple[EfficiencyRow, ...]
    noise: tuple[NoiseRow, ...]
    """What randomised outcomes add to the variance of a unit, on releases for segments."""
    half: tuple[HalfRow, ...]
    """The variance of the effect on a half, worked out."""
    figures: tuple[Path, ...]

    def text(self) -> str:
        """The results as text for a terminal."""
        lines = text_of(self.rows, self.noise, self.half, self.figures, quick=self.quick)
        return "\n".join(lines)


def replicate(folder: Path, *, quick: bool = False) -> EfficiencyReplication:
    """Run the experiment and draw its figures into ``folder``, which is made if it is missing.

    Raises InputError where the folder cannot be written to, before the experiment runs.
    """
    from flows.lab.replication.efficiency.figure import draw, draw_noise  # noqa: PLC0415 - matplotlib
    from flows.lab.replication.plots import folder_for_figures  # noqa: PLC0415 - matplotlib

    target = folder_for_figures(folder)
    rows, worked_out = run(QUICK if quick else FULL), QUICK_NOISE if quick else FULL_NOISE
    noise, half = noise_rows(worked_out), half_rows(worked_out)
    figures = (draw(rows, target), draw_noise(noise, target))
    return EfficiencyReplication(quick, rows, noise, half, figures)


def run(scale: StudySize) -> tuple[EfficiencyRow, ...]:
    """Return the rows of the experiment, by ε.

    Populations and assignments are the same in every run of a scale. The noise of the mechanisms is
    not: it comes from the operating system and cannot be fixed.
    """
    random = default_rng(2025)
    people = [population(random) for _ in range(scale.n_populations)]
    inside = random.permuted(np.tile(np.arange(2), SIZES.sum() // 2)) == 0
    return tuple(
        row for epsilon in scale.epsilons for row in _rows(epsilon, scale, people, inside, random)
    )


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


def optimal(epsilon: float, *, learnt: bool) -> ReleaseKind:
    """Return the release by tables for a uniform guess, or by those learnt from counts."""
    request = OptimalRequest(
        tuple(GRID.tolist()),
        (1.0 / K,) * K,
        epsilon,
        DELTA,
        "counts" if learnt else "none",
        learn_from="strata" if learnt else "nothing",
    )
    mechanism = optimal_design(request).mechanism
    name, share = (LEARNT, request.statistic_share) if learnt else (PUBLIC, 0.0)
    return ReleaseKind(name, mechanism, GRID, share)


def planned(epsilon: float, name: str, *segments: float, overall: bool = True) -> ReleaseKind:
    """Return the release that the planner chooses from the sizes and a uniform guess."""
    asked = question_of(epsilon)
    chosen = plan(replace(asked, delta=DELTA, segment_shares=segments, overall=overall))
    grid = np.array(chosen.option.grid)
    return ReleaseKind(name, chosen.design.mechanism, grid, chosen.option.statistic_share)


@dataclass(frozen=True)
class _Errors:
    """The squared errors of one estimator in every repetition, shape [repetitions] each."""

    kind: ReleaseKind
    estimator: str
    about_truth: Floats
    about_plain: Floats

    @property
    def label(self) -> str:
        return f"{self.estimator}, {self.kind.name}"

    def over(self, other: "_Errors") -> tuple[float, float]:
        """The mean squared error divided by that of ``other``, and its standard error.

        The errors of estimators on the same releases are paired.
        """
        errors, base = self.about_truth, other.about_truth
        ratio = errors.mean() / base.mean()
        if self.kind is other.kind:
            spread = (errors - ratio * base).var() / len(errors)
        else:
            spread = errors.var() / len(errors) + ratio**2 * base.var() / len(base)
        return float(ratio), float(np.sqrt(spread) / base.mean())


def _errors(
    kind: ReleaseKind,
    scale: StudySize,
    people: Sequence[Ints],
    random: Generator,
    inside: Bools | None = None,
) -> dict[EstimatorName, _Errors]:
    support = None if kind.grid is GRID else GRID
    by_estimator: dict[EstimatorName, list[EstimateSample]] = {}
    for levels in people:
        trial = Trial(kind.grid, SIZES, levels, kind.mechanism, support=support)
        for sample in simulate(trial, scale.n_releases, random, inside=inside).answers:
            by_estimator.setdefault(sample.estimator, []).append(sample)
    return {
        name: _Errors(
            kind,
            name,
            np.concatenate([(sample.estimate - sample.truth) ** 2 for sample in samples]),
            np.concatenate([(sample.estimate - sample.unprotected) ** 2 for sample in samples]),
        )
        for name, samples in by_estimator.items()
    }


def _rows(
    epsilon: float,
    scale: StudySize,
    people: Sequence[Ints],
    inside: Bools,
    random: Generator,
) -> Iterator[EfficiencyRow]:
    log.info("epsilon %g …", epsilon)
    cluster = _errors(tuned(epsilon, people, random), scale, people, random)
    base = cluster["tau_q"]
    alone = uniform(epsilon)
    whole = planned(epsilon, "planned for everybody")
    yield _row(epsilon, "everybody", base)
    yield _row(epsilon, "everybody", cluster["combined"], base)
    yield _row(epsilon, "everybody", _errors(alone, scale, people, random)["tau_q"], base)
    yield _row(epsilon, "everybody", _errors(whole, scale, people, random)["combined"], base)
    of_half = _errors(alone, scale, people, random, inside)["tau_q"]
    yield _row(epsilon, "half", of_half)
    tables = _errors(optimal(epsilon, learnt=False), scale, people, random, inside)["tau_q"]
    yield _row(epsilon, "half", tables, of_half)
    few = replace(scale, n_releases=scale.n_learnt)
    kind = optimal(epsilon, learnt=True)
    yield _row(epsilon, "half", _errors(kind, few, people, random, inside)["combined"], of_half)
    for name, overall in (
        ("planned for everybody and a half", True),
        ("planned for a half alone", False),
    ):
        kind = planned(epsilon, name, 0.5, overall=overall)
        errors = _errors(kind, scale, people, random, inside)
        best = errors["combined" if "combined" in errors else "tau_q"]
        yield _row(epsilon, "half", best, of_half)


def _row(
    epsilon: float, effect_on: str, errors: _Errors, base: _Errors | None = None
) -> EfficiencyRow:
    ratio, error = (None, None) if base is None else errors.over(base)
    parameters, n = errors.kind.mechanism.parameters, len(errors.about_truth)
    return taken(
        EfficiencyRow,
        parameters,
        errors.kind,
        epsilon=epsilon,
        delta=DELTA,
        effect_on=effect_on,
        release=errors.kind.name,
        estimator=errors.estimator,
        mse=float(errors.about_truth.mean()),
        mse_std_error=float(errors.about_truth.std() / np.sqrt(n)),
        privacy_mse=float(errors.about_plain.mean()),
        ratio=ratio,
        ratio_std_error=error,
        ratio_to=None if base is None else base.label,
        repetitions=n,
        mechanism=errors.kind.mechanism.name,
        levels=parameters.n_outcomes,
    )
