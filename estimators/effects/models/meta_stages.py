"""What follows from the noisy sums of a learner of Algorithm 1, stage by stage.

A stage is a moment regression: the equations M b = s of noisy sums, solved by empirical Bayes with
the known noise (:mod:`estimators.effects.models.bayes`). The run that draws the sums takes its
steps by the same functions as whoever reads them. With y in halves of the outcomes' range, in [−1,
1]:

- propensity: G π = Σ w v (T − 1/2), e = clip(1/2 + φ π, c, 1 − c).
- outcome, DR and S: μ(t, x) = clip(φ a + (2t − 1) φ b, −1, 1) with G a + K b = Σ w v y and
  K a + G b = Σ w v (2T − 1) y, where K = Σ (2T − 1) v vᵀ.
- outcome, R: η = clip(φ γ, −1, 1), G γ = Σ w v y.
- arms, T and X: μ_a = clip(φ b_a, −1, 1), Σ v vᵀ b_a = Σ w v y over the rows of arm a.
- effect: T: β = b_1 − b_0. X: β = β_0 + β_1, Σ v vᵀ β_a = Σ w v z over the rows of arm a, with
  z = (y − μ_0(x))/2 of the treated and (μ_1(x) − y)/2 of the others. DR: G β = Σ w v ψ.
  R: Σ (T − e)² v vᵀ β = Σ w v (T − e) clip(y − η, −C, C). S: β = 2b.

DR: ψ = μ(1, x) − μ(0, x) + (T − e) clip(y − μ(T, x), −C, C)/(e (1 − e)). C is 2.2 standard
deviations of the residuals, at most 2.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from estimators.effects.models.basis import basis_of
from estimators.effects.models.bayes import entries_of, solve, symmetric
from estimators.effects.models.meta_known import KnownSums, OutcomeFit
from estimators.effects.models.meta_plan import (
    ARM_GRAM,
    ARM_SQUARES,
    ARM_SUMS,
    CONTROL,
    CONTROL_EFFECT,
    EFFECT,
    OUTCOME,
    PROPENSITY,
    RESIDUALS,
    SCORES,
    SIGNED_GRAM,
    SIGNED_OUTCOMES,
    SQUARED_SCORES,
    TREATED,
    TREATED_EFFECT,
    named,
    stages,
)
from estimators.effects.models.moments import (
    LEAST_EIGENVALUE,
    LEAST_SQUARE,
    ROWS_FOR_SQUARES,
    complete_rows,
    counts_by_feature,
)
from estimators.effects.models.queries import (
    GRAM,
    HISTOGRAMS,
    OUTCOMES,
    SQUARES,
    TREATED_GRAM,
    TREATMENT,
)
from schemas.arrays import Floats
from schemas.effects.model import NoisySums

_SWEEPS = 3


def after(known: KnownSums, drawn: Mapping[str, NoisySums]) -> KnownSums:
    """Return what is known once the sums of one more pass are."""
    sums = {**known.sums, **drawn}
    known = replace(known, sums=sums)
    (stage,) = {name.partition(".")[0] for name in drawn}
    asked = {name.partition(".")[2] for name in drawn}
    if HISTOGRAMS in asked:
        return _founded(known, stage)
    if stage == PROPENSITY:
        gram, _ = _gram(known, stage)
        found = _solved(known, gram, sums[named(stage, TREATMENT)], gram / 4.0, stage)
        return replace(known, propensity=found)
    if stage in (TREATED, CONTROL, TREATED_EFFECT, CONTROL_EFFECT):
        known = replace(known, arms={**known.arms, stage: _arm(known, stage)})
        return replace(known, effect=_of_arms(known))
    if stage == OUTCOME:
        known = replace(known, outcome=_outcome(known))
        arm = known.outcomes.arm
        return (
            replace(known, effect=2.0 * arm) if known.learner == "s" and arm is not None else known
        )
    return replace(known, effect=_dr(known) if known.learner == "dr" else _r(known))


def rows_of(known: KnownSums, stage: str) -> float:
    """Return how many complete rows a stage has, by public sizes and noisy counts."""
    (plan,) = (each for each in stages(known.learner, known.design) if each.name == stage)
    return max(known.n_rows * plan.share * known.complete, 1.0)


def _founded(known: KnownSums, stage: str) -> KnownSums:
    """The basis under the noisy histograms of the first stage."""
    design, histograms = known.design, known.sums[named(stage, HISTOGRAMS)]
    counts = counts_by_feature(design, histograms)
    plans = stages(known.learner, design)
    n = known.n_rows * min(plan.share for plan in plans)
    degree = 2
    if histograms.rho:
        rho = histograms.rho / plans[0].weights[HISTOGRAMS]
        degree = 2 if n * math.sqrt(2.0 * rho) >= ROWS_FOR_SQUARES * len(counts) else 1
    size = known.n_rows * plans[0].share
    complete = complete_rows(size, counts, histograms.noise_std) / size
    basis = basis_of(design, counts, histograms.noise_std, degree)
    return replace(known, basis=basis, degree=degree, complete=complete)


def _gram(known: KnownSums, stage: str) -> tuple[Floats, float]:
    """G a row, cleaned, and the noise of an entry."""
    sums, n = known.sums[named(stage, GRAM)], rows_of(known, stage)
    matrix = symmetric(sums.values / n, known.functions.size)
    return _cleaned(matrix, sums.noise_std / n), sums.noise_std / n


def _cleaned(matrix: Floats, noise_std: float, typical: Floats | None = None) -> Floats:
    """Return a positive matrix with less noise, a σ of ``noise_std`` on each entry of its vector.

    What it differs by from ``typical``, by default its mean diagonal times I, is kept as far as
    noise does not explain its size; eigenvalues are a tenth of the mean of the typical at least.
    """
    mean = max(float(np.trace(matrix if typical is None else typical)) / len(matrix), 1e-6)
    typical = mean * np.eye(len(matrix)) if typical is None else typical
    apart = matrix - typical
    energy = float((entries_of(apart) ** 2).mean())
    if energy > 0.0:
        apart = apart * max(0.0, 1.0 - noise_std**2 / energy)
    values, vectors = np.linalg.eigh(typical + apart)
    cleaned: Floats = (vectors * np.maximum(values, LEAST_EIGENVALUE * mean)) @ vectors.T
    return cleaned


def _solved(
    known: KnownSums, matrix: Floats, sums: NoisySums, sampling: Floats, stage: str
) -> Floats:
    """Return b of M b = s/n with the noise of s and ``sampling``/n, a row's covariance."""
    n = rows_of(known, stage)
    return _posterior(known, matrix, sums.values / n, sums.noise_std / n, sampling / n)


def _posterior(
    known: KnownSums, matrix: Floats, sums: Floats, noise_std: float, sampling: Floats
) -> Floats:
    noise = noise_std**2 * np.eye(len(sums)) + sampling
    return solve(matrix, sums, noise, known.functions.kinds).mean


def _outcome(known: KnownSums) -> OutcomeFit:
    n = rows_of(known, OUTCOME)
    square = max(float(known.sums[named(OUTCOME, SQUARES)].values[0]) / n, LEAST_SQUARE)
    if known.learner == "r":
        gram, _ = _gram(known, OUTCOME)
        sums = known.sums[named(OUTCOME, OUTCOMES)]
        gamma = _residual_fit(known, gram, sums.values / n, sums.noise_std / n, square, n)
        return OutcomeFit(gamma[0], None, math.sqrt(gamma[1]))
    return _joint(known, square)


def _residual_fit(
    known: KnownSums, matrix: Floats, sums: Floats, noise_std: float, square: float, n: float
) -> tuple[Floats, float]:
    """Coefficients b of M b = s and the residual variance s² = E y² − 2 b·s + bᵀ M b, twice."""
    variance, found = square, np.zeros(len(sums))
    for _ in range(2):
        found = _posterior(known, matrix, sums, noise_std, variance * matrix / n)
        left = square - 2.0 * found @ sums + found @ matrix @ found
        variance = float(np.clip(left, 0.02 * square, square))
    return found, variance


def _arm(known: KnownSums, stage: str) -> Floats:
    """Return b of the rows of one arm, whose share the trace of their matrix tells."""
    n = rows_of(known, stage)
    grams, sums = known.sums[named(stage, ARM_GRAM)], known.sums[named(stage, ARM_SUMS)]
    matrix = symmetric(grams.values / n, known.functions.size)
    share = float(np.clip(np.trace(matrix) / len(matrix), 0.05, 1.0))
    size = n * share
    matrix = _cleaned(matrix / share, grams.noise_std / size)
    squares = float(known.sums[named(stage, ARM_SQUARES)].values[0]) / size
    square = max(squares, LEAST_SQUARE)
    return _residual_fit(known, matrix, sums.values / size, sums.noise_std / size, square, size)[0]


def _of_arms(known: KnownSums) -> Floats | None:
    """Return β once all stages of the learner are done: of half the outcomes' range."""
    if len(known.arms) < len(stages(known.learner, known.design)):
        return None
    if known.learner == "t":
        return known.arms[TREATED] - known.arms[CONTROL]
    return known.arms[TREATED_EFFECT] + known.arms[CONTROL_EFFECT]


def _joint(known: KnownSums, square: float) -> OutcomeFit:
    """Find a and b in turn, each given the other, so that effects have a prior of their own."""
    n, size = rows_of(known, OUTCOME), known.functions.size
    grams, sums = (
        known.sums[named(OUTCOME, SIGNED_GRAM)],
        known.sums[named(OUTCOME, SIGNED_OUTCOMES)],
    )
    noise_std, gram_noise = sums.noise_std / n, grams.noise_std / n
    plain, signed = (symmetric(half, size) for half in np.split(grams.values / n, 2))
    gram = _cleaned(plain, gram_noise)
    energy = float((entries_of(signed) ** 2).mean())
    kept = max(0.0, 1.0 - gram_noise**2 / energy) if energy > 0.0 else 0.0
    signed = _within(signed * kept, gram)
    level_sums, arm_sums = np.split(sums.values / n, 2)
    level, arm, variance = np.zeros(size), np.zeros(size), square
    for _ in range(_SWEEPS):
        for_level = _errors(variance * gram / n, gram_noise, arm)
        level = _posterior(known, gram, level_sums - signed @ arm, noise_std, for_level)
        for_arm = _errors(variance * gram / n, gram_noise, level)
        arm = _posterior(known, gram, arm_sums - signed @ level, noise_std, for_arm)
        explained = 2.0 * (level @ level_sums + arm @ arm_sums) - 2.0 * level @ signed @ arm
        left = square - explained + level @ gram @ level + arm @ gram @ arm
        variance = float(np.clip(left, 0.02 * square, square))
    return OutcomeFit(level, arm, math.sqrt(variance))


def _errors(sampling: Floats, gram_noise: float, other: Floats) -> Floats:
    """Sampling, and the noise of a matrix that is multiplied by known coefficients."""
    return sampling + gram_noise**2 * float(other @ other) / 2.0 * np.eye(len(other))


def _within(signed: Floats, gram: Floats) -> Floats:
    """K brought to where −0.9 G ≤ K ≤ 0.9 G: of a share between 5 % and 95 % it would be."""
    root = np.linalg.cholesky(gram)
    inner = np.linalg.solve(root, np.linalg.solve(root, signed).T)
    values, vectors = np.linalg.eigh((inner + inner.T) / 2.0)
    limited = (vectors * np.clip(values, -0.9, 0.9)) @ vectors.T
    found: Floats = root @ limited @ root.T
    return found


def _dr(known: KnownSums) -> Floats:
    gram, _ = _gram(known, EFFECT)
    n, sums = rows_of(known, EFFECT), known.sums[named(EFFECT, SCORES)]
    squares = float(known.sums[named(EFFECT, SQUARED_SCORES)].values[0]) / n
    square = max(squares, LEAST_SQUARE) * known.greatest_score**2
    return _residual_fit(known, gram, sums.values / n, sums.noise_std / n, square, n)[0]


def _r(known: KnownSums) -> Floats:
    grams, sums = known.sums[named(EFFECT, TREATED_GRAM)], known.sums[named(EFFECT, RESIDUALS)]
    n, size = rows_of(known, EFFECT), known.functions.size
    gram_noise, variance = grams.noise_std / n, known.outcomes.residual_std**2
    matrix = symmetric(grams.values / n, size)
    before, _ = _gram(known, OUTCOME)
    least = known.least_share * (1.0 - known.least_share)
    ratio = float(np.clip(np.trace(matrix) / np.trace(before), least, 0.3))
    matrix = _cleaned(matrix, gram_noise, ratio * before)
    beta = np.zeros(size)
    for _ in range(2):
        beta = _solved(
            known, matrix, sums, n * _errors(variance * matrix / n, gram_noise, beta), EFFECT
        )
    return beta
