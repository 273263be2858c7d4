"""How much sharper estimates get at the same sound epsilon: Experiment 1, run again.

Set-up of Javanmard, Mirrokni and Pouget-Abadie (2025), §4, Experiment 1: three clusters of 500,
1,000 and 2,000 units, half of each treated; y′ = √β μ_c + √(v − β) w_i with standard normal μ_c and
w_i, β = 4.5, v = 5, rounded to −5 … 5 in steps of 2√v/5 and cut off at 2√v; treatment adds 1. So
K = 12 outcomes, −5 … 6, and the true effect is 1.

Every release is made by the product's functions at the same price: ε as the accountant computes it
for everything published together, δ = 1e-4. (The paper's own ε does not hold; see the README.) The
mean squared error is about the *true effect* of the population, so it has the error that the
assignment makes in it too. Where we differ from the paper: it draws sub-populations from one
super-population, we draw the whole model anew, μ_c too, as results depend on it.

**What Cluster-DP is tuned over.** γ from 0.01/K to 0.6/K, and from 0.9 to 0.1 of ε for its counts;
chosen is what has the least noise in τ̂_Q when the true outcomes are known, which nobody has. Both
bounds bind at every ε: τ̂_Q is sharpest where Cluster-DP is least like itself, and without bounds it
turns into Uniform-Prior-DP without counts, which is shown as well.

Planned releases see public sizes and a uniform guess, and no outcome. For a segment there are two:
as the planner has it, which weighs the effect on everybody alike, and for the segment alone.
"""

import logging
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from estimators.debias import prior_moments
from estimators.means import EstimatorName
from flows.replication.efficiency_rows import Row
from flows.runtime.terminal import table
from privatizers.accounting.accountant import calibrate
from privatizers.accounting.events import CountsNoise
from privatizers.accounting.rounding import realised_threshold
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.noisy_counts import moved_cells
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.prior import truncated_prior
from privatizers.planning.approximate_rate import Moves, odds_at
from privatizers.planning.design import Request, design
from privatizers.planning.grids import grids_of
from privatizers.planning.planner import Question, plan
from privatizers.simulation.simulate import Answers, simulate
from privatizers.simulation.trial import Trial
from schemas.arrays import Bools, Floats, Ints

NAME = "efficiency"
SIZES: Ints = np.array([[250, 250], [500, 500], [1000, 1000]])
GRID: Floats = np.arange(-5.0, 7.0)
K = len(GRID)
BETA, VARIANCE, EXTREME = 4.5, 5.0, 5
DELTA = 1e-4
THRESHOLDS = (0.01, 0.1, 0.24, 0.3, 0.6)
"""Tried for γ K."""
SHARES: Floats = np.array([0.1, 0.25, 0.5, 2 / 3, 0.9])
"""Parts of ε tried for the counts."""
HALF = 0.5

log = logging.getLogger("clusterdp")


@dataclass(frozen=True)
class Scale:
    """How much is run."""

    epsilons: tuple[float, ...]
    n_populations: int
    n_releases: int
    """Of each population."""


FULL = Scale((0.2, 1.0, 2.0, 4.0), 40, 100)
QUICK = Scale((0.2, 1.0), 40, 20)


@dataclass(frozen=True)
class Made:
    """How a release is made."""

    name: str
    mechanism: Mechanism
    grid: Floats
    statistic_share: float
    """Part of ε that pays for the statistic of the strata."""


@dataclass(frozen=True)
class Replication:
    """All that was found, and the figures of it."""

    scale: Scale
    rows: tuple[Row, ...]
    figures: tuple[Path, ...]

    def as_json(self) -> dict[str, Any]:
        """The document of ``clusterdp replicate --json``."""
        return {
            "name": NAME,
            "quick": self.scale != FULL,
            "rows": [asdict(one) for one in self.rows],
            "figures": [str(path) for path in self.figures],
        }

    def text(self) -> str:
        """One screen for people."""
        return "\n".join(_text(self))


def replicate(folder: Path, *, quick: bool = False) -> Replication:
    """Run the experiment and draw its figure into ``folder``, which is made if need be.

    Raises InputError where the folder cannot be written to, before anything is run.
    """
    from flows.replication.efficiency_figure import draw  # noqa: PLC0415 - matplotlib
    from flows.runtime.plots import folder_for_figures  # noqa: PLC0415

    target = folder_for_figures(folder)
    scale = QUICK if quick else FULL
    rows = run(scale)
    return Replication(scale, rows, (draw(rows, target),))


def run(scale: Scale) -> tuple[Row, ...]:
    """Return every row, by ε. Populations and assignments are the same in every run of a scale.

    The noise of privacy is not: it comes from the operating system, and may not be fixed.
    """
    random = default_rng(2025)
    people = [population(random) for _ in range(scale.n_populations)]
    inside = random.permuted(np.tile(np.arange(2), SIZES.sum() // 2)) == 0
    return tuple(
        row for epsilon in scale.epsilons for row in _rows(epsilon, scale, people, inside, random)
    )


def population(random: Generator) -> Ints:
    """Draw the levels of every unit in control and under treatment, shape [2, n]."""
    n = SIZES.sum(axis=1)
    center = np.repeat(random.standard_normal(len(n)), n)
    latent = np.sqrt(BETA) * center + np.sqrt(VARIANCE - BETA) * random.standard_normal(n.sum())
    step = 2.0 * np.sqrt(VARIANCE) / EXTREME
    control = np.clip(np.rint(latent / step), -EXTREME, EXTREME).astype(np.int64) + EXTREME
    return np.stack([control, control + 1])


# releases


def tuned(epsilon: float, people: Sequence[Ints], random: Generator) -> Made:
    """Return the Cluster-DP release with the least noise in τ̂_Q, for outcomes that are known."""
    tried = [
        (noise, threshold, share)
        for threshold in THRESHOLDS
        for noise, share in zip(
            _tau_q_noise(epsilon, threshold / K, people, random), SHARES.tolist(), strict=True
        )
    ]
    _, threshold, share = min(tried)
    gamma, moved = realised_threshold(threshold / K, K), moved_cells(K)
    noise_scale = moved / (epsilon * share)
    rate = calibrate(epsilon, DELTA, gamma, CountsNoise(noise_scale, moved))
    mechanism = ClusterDP(Parameters(K, rate, gamma, noise_scale))
    return Made("cluster-dp, tuned for tau_q", mechanism, GRID, share)


def _tau_q_noise(
    epsilon: float, gamma: float, people: Sequence[Ints], random: Generator
) -> list[float]:
    """What resampling adds to the variance of τ̂_Q for every share in ``SHARES``, on average.

    Over populations and over noise on their counts: Σ b_c² [r E(y − m)² + r(1 + r) Var_q̃]/n_ca.
    """
    moved = moved_cells(K)
    odds = odds_at(epsilon, DELTA, SHARES, gamma, Moves.of(K, None))
    shares = np.concatenate([_shares(levels) for levels in people])
    n = np.tile(SIZES.ravel(), len(people)).astype(np.float64)
    weight = np.repeat((SIZES.sum(axis=1) / SIZES.sum()) ** 2, 2)
    weight = np.tile(weight, len(people)) / n / len(people)
    found = []
    for r, share in zip(odds, SHARES, strict=True):
        noise = random.laplace(scale=moved / (epsilon * share), size=shares.shape)
        prior = truncated_prior(n[:, np.newaxis] * shares + noise, n, gamma)
        mean, spread = prior_moments(GRID, prior)
        about = np.sum(shares * (GRID - mean[:, np.newaxis]) ** 2, axis=1)
        found.append(float(weight @ (r * about + r * (1.0 + r) * spread)))
    return found


def _shares(levels: Ints) -> Floats:
    """How outcomes of every (cluster, arm) are spread over the grid, shape [6, K]."""
    n = SIZES.sum(axis=1)
    key = (np.repeat(np.arange(len(n)), n) * 2 + np.arange(2)[:, np.newaxis]) * K + levels
    counts = np.bincount(key.ravel(), minlength=2 * len(n) * K).reshape(-1, K)
    shares: Floats = counts / counts.sum(axis=1, keepdims=True)
    return shares


def uniform(epsilon: float) -> Made:
    """Return the release of outcomes alone that has the least noise for its price."""
    asked = Request("uniform-prior-dp", K, "none", epsilon=epsilon, delta=DELTA)
    return Made("uniform-prior-dp, nothing else", design(asked).mechanism, GRID, 0.0)


def planned(epsilon: float, name: str, *segments: float, overall: bool = True) -> Made:
    """Return the release that the planner chooses: from sizes and the uniform guess alone."""
    question = Question(
        epsilon=epsilon,
        delta=DELTA,
        values=GRID,
        guess=np.full(K, 1.0 / K),
        grids=grids_of(GRID.tolist(), continuous=False),
        statistics=("counts", "means", "none"),
        sizes=SIZES,
        segment_shares=segments,
        overall=overall,
    )
    found = plan(question)
    grid = np.array(found.option.grid)
    return Made(name, found.design.mechanism, grid, found.option.statistic_share)


# errors


@dataclass(frozen=True)
class _Errors:
    """Squared errors of one estimator in every repetition."""

    made: Made
    estimator: str
    about_truth: Floats
    about_plain: Floats

    @property
    def label(self) -> str:
        return f"{self.estimator}, {self.made.name}"

    def over(self, other: "_Errors") -> tuple[float, float]:
        """The ratio of mean squared errors, and its standard error."""
        own, base = self.about_truth, other.about_truth
        ratio = own.mean() / base.mean()
        apart = own - ratio * base
        spread = apart.var() if self.made is other.made else own.var() + ratio**2 * base.var()
        return float(ratio), float(np.sqrt(spread / len(own)) / base.mean())


def _errors(
    made: Made,
    scale: Scale,
    people: Sequence[Ints],
    random: Generator,
    inside: Bools | None = None,
) -> dict[EstimatorName, _Errors]:
    support = None if made.grid is GRID else GRID
    every: dict[EstimatorName, list[Answers]] = {}
    for levels in people:
        trial = Trial(made.grid, SIZES, levels, made.mechanism, support=support)
        for one in simulate(trial, scale.n_releases, random, inside=inside).answers:
            every.setdefault(one.estimator, []).append(one)
    return {
        name: _Errors(
            made,
            name,
            np.concatenate([(one.estimate - one.truth) ** 2 for one in ones]),
            np.concatenate([(one.estimate - one.unprotected) ** 2 for one in ones]),
        )
        for name, ones in every.items()
    }


def _rows(
    epsilon: float,
    scale: Scale,
    people: Sequence[Ints],
    inside: Bools,
    random: Generator,
) -> Iterator[Row]:
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
    for name, overall in (
        ("planned for everybody and a half", True),
        ("planned for a half alone", False),
    ):
        made = planned(epsilon, name, HALF, overall=overall)
        found = _errors(made, scale, people, random, inside)
        yield _row(epsilon, "half", found["combined" if "combined" in found else "tau_q"], of_half)


def _row(epsilon: float, effect_on: str, own: _Errors, base: _Errors | None = None) -> Row:
    ratio, error = (None, None) if base is None else own.over(base)
    parameters, n = own.made.mechanism.parameters, len(own.about_truth)
    return Row(
        epsilon=epsilon,
        delta=DELTA,
        effect_on=effect_on,
        release=own.made.name,
        estimator=own.estimator,
        mse=float(own.about_truth.mean()),
        mse_std_error=float(own.about_truth.std() / np.sqrt(n)),
        privacy_mse=float(own.about_plain.mean()),
        ratio=ratio,
        ratio_std_error=error,
        ratio_to=None if base is None else base.label,
        repetitions=n,
        mechanism=own.made.mechanism.name,
        levels=parameters.n_outcomes,
        strata_statistic=parameters.strata_statistic,
        statistic_share=own.made.statistic_share,
        truncation_threshold=parameters.truncation_threshold,
        resampling_probability=parameters.resampling_probability,
        noise_scale=parameters.noise_scale,
    )


# telling


_HEADS = {
    "everybody": "The effect on everybody; ratios to tau_q of the tuned Cluster-DP release",
    "half": "The effect on a random half; ratios to tau_q of Uniform-Prior-DP on the full grid",
}
_NOTES = (
    "Cluster-DP is tuned with the true outcomes known, over γ from 0.01/K to 0.6/K and 0.1 to 0.9 "
    "of epsilon for its counts. It is best at the end of both: where it is most like "
    "Uniform-Prior-DP, which it turns into without these bounds. Planned releases know sizes and a "
    "uniform guess alone.",
    "What is planned for everybody and a half weighs both effects alike (the sum of the logarithms "
    "of their variances), so it is less sharp for the half than what is planned for a half alone "
    "(overall_effect = false).",
)


def _text(found: Replication) -> list[str]:
    n = found.rows[0].repetitions
    lines = [
        "Experiment 1 of Javanmard, Mirrokni and Pouget-Abadie (2025), at equal sound epsilon",
        f"(delta {DELTA:g}): 3,500 units in 3 clusters, 12 outcomes, a true effect of 1.",
        "Mean squared errors are about the true effect; ± is the standard error of the simulation.",
        f"{n:,} repetitions a row"
        + ("" if found.scale == FULL else ": a quick run, fewer epsilons and repetitions"),
    ]
    for effect_on, head in _HEADS.items():
        rows = [one for one in found.rows if one.effect_on == effect_on]
        columns = ["epsilon", "release", "estimator", "mean squared error", "ratio"]
        lines += ["", head, *table(columns, [_columns(one) for one in rows])]
    lines += ["", "how each release is made"]
    columns = ["epsilon", "release", "mechanism", "levels", "of strata", "its part", "γ K", "λ"]
    designs = {(one.epsilon, one.release): one for one in found.rows}.values()
    lines += table(columns, [_made(one) for one in designs])
    notes = [line for note in _NOTES for line in ("", *textwrap.wrap(note, 96))]
    return [*lines, *notes, "", *(f"figure: {path}" for path in found.figures)]


def _columns(one: Row) -> list[str]:
    error = ""
    if one.ratio is not None and one.ratio_std_error is not None:
        error = f"{100 * one.ratio:.3g} % ± {100 * one.ratio_std_error:.1g}"
    mse = f"{one.mse:.4g} ± {one.mse_std_error:.2g}"
    return [f"{one.epsilon:g}", one.release, one.estimator, mse, error]


def _made(one: Row) -> list[str]:
    return [
        f"{one.epsilon:g}",
        one.release,
        one.mechanism,
        str(one.levels),
        one.strata_statistic,
        f"{one.statistic_share:.1%}",
        f"{one.truncation_threshold * one.levels:.2g}",
        f"{one.resampling_probability:.5f}",
    ]
