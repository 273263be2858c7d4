"""What follows from the noisy sums of a learner of Algorithm 1, stage by stage.

A stage is a moment regression: the equations M b = s of noisy sums, solved by empirical Bayes with
the known noise (:mod:`estimators.effects.models.bayes`). The run that draws the sums takes its
steps by the same functions as whoever reads them. With y in halves of the outcomes' range, in [−1,
1]:

- propensity: G π = Σ w v (T − 1/2), e = clip(1/2 + φ π, c, 1 − c).
- outcome, DR and S: μ(t, x) = clip(φ a + (2t − 1) φ b, −1, 1) with G a + K b = Σ w v y and
  K a + G b = Σ w v (2T − 1) y, where K = Σ (2T − 1) v vᵀ.
- outcome, R: η = clip(φ γ, −1, 1), G γ = Σ w v y.
- effect: DR: G β = Σ w v ψ. R: Σ (T − e)² v vᵀ β = Σ w v (T − e) clip(y − η, −C, C). S: β = 2b.

DR: ψ = μ(1, x) − μ(0, x) + (T − e) clip(y − μ(T, x), −C, C)/(e (1 − e)). C is 2.2 standard
deviations of the residuals, at most 2.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from estimators.effects.models import queries
from estimators.effects.models.basis import Basis, basis_of
from estimators.effects.models.bayes import entries_of, symmetric
from estimators.effects.models.moments import (
    CLIPPED_AT,
    LEAST_EIGENVALUE,
    LEAST_SQUARE,
    complete_rows,
    counts_by_feature,
    degree_for,
    kept_part,
    least_share,
    propensities,
    residual_fit,
    solved,
    solved_for,
)
from estimators.effects.models.queries import (
    EFFECT,
    OUTCOME,
    PROPENSITY,
    MetaLearner,
    named,
    stages,
)
from schemas.arrays import Floats
from schemas.effects.model import EffectDesign, NoisySums

_SWEEPS = 3


@dataclass(frozen=True)
class OutcomeFit:
    """Outcomes as functions of the features and, but for the R-learner, of the arm."""

    level: Floats = field(repr=False)
    """a (DR, S) or γ (R), shape [p]."""
    arm: Floats | None = field(repr=False)
    """b, shape [p]; None for the R-learner."""
    residual_std: float

    @property
    def clip(self) -> float:
        """C."""
        return min(CLIPPED_AT * self.residual_std, 2.0)

    def means(self, phi: Floats, sign: Floats | float) -> Floats:
        """Return μ, shape [n]; ``sign`` is 2t − 1 and does not matter to the R-learner."""
        mean = phi @ self.level
        if self.arm is not None:
            mean = mean + sign * (phi @ self.arm)
        return np.clip(mean, -1.0, 1.0)


@dataclass(frozen=True)
class KnownSums:
    """What is known between two passes: declarations, noisy sums, and what follows from them."""

    learner: MetaLearner
    design: EffectDesign
    n_rows: int
    sums: Mapping[str, NoisySums] = field(default_factory=dict)
    basis: Basis | None = None
    degree: int = 1
    complete: float = 1.0
    """The share of rows that take part, by noisy counts."""
    propensity: Floats | None = None
    """π, shape [p]."""
    outcome: OutcomeFit | None = None
    effect: Floats | None = None
    """β, shape [p], in halves of the outcomes' range."""

    @property
    def functions(self) -> Basis:
        """The basis; every stage but the first begins with it."""
        if self.basis is None:
            raise AssertionError("the basis follows from the histograms")
        return self.basis

    @property
    def outcomes(self) -> OutcomeFit:
        """Outcomes, which the last stage begins with."""
        if self.outcome is None:
            raise AssertionError("outcomes follow from the sums of their stage")
        return self.outcome

    @property
    def least_share(self) -> float:
        """The least that e or 1 − e can be: 1/e(1 − e)·|T − e| is at most one over it."""
        return least_share(self.design.propensity)

    @property
    def most_weight(self) -> float:
        """Return max |T − e|."""
        return 1.0 - self.least_share

    @property
    def greatest_score(self) -> float:
        """Ψ = 2 + C/min(e, 1 − e) ≥ |ψ|."""
        return 2.0 + self.outcomes.clip / self.least_share

    def propensities(self, phi: Floats, declared: Floats | None) -> Floats:
        """Return e, shape [n]; see :func:`estimators.effects.models.moments.propensities`."""
        return propensities(self.design.propensity, self.propensity, phi, declared)

    def scores(self, phi: Floats, treated: Floats, outcome: Floats, e: Floats) -> Floats:
        """Return ψ of the DR-learner, shape [n], within ±Ψ."""
        fit = self.outcomes
        residual = np.clip(outcome - fit.means(phi, 2.0 * treated - 1.0), -fit.clip, fit.clip)
        psi = fit.means(phi, 1.0) - fit.means(phi, -1.0)
        psi = psi + (treated - e) * residual / (e * (1.0 - e))
        return np.clip(psi, -self.greatest_score, self.greatest_score)


def after(known: KnownSums, drawn: Mapping[str, NoisySums]) -> KnownSums:
    """Return what is known once the sums of one more pass are."""
    known = replace(known, sums={**known.sums, **drawn})
    (stage,) = {name.partition(".")[0] for name in drawn}
    if named(stage, queries.HISTOGRAMS) in drawn:
        return _founded(known, stage)
    if stage == PROPENSITY:
        gram, treatment = _gram(known, stage), _sums(known, stage, queries.TREATMENT)
        n, kinds = rows_of(known, stage), known.functions.kinds
        return replace(known, propensity=solved(gram, treatment, gram / 4.0, n, kinds).mean)
    if stage == OUTCOME:
        fit = _outcome(known)
        effect = 2.0 * fit.arm if known.learner == "s" and fit.arm is not None else None
        return replace(known, outcome=fit, effect=effect)
    return replace(known, effect=_dr(known) if known.learner == "dr" else _r(known))


def rows_of(known: KnownSums, stage: str) -> float:
    """Return how many complete rows a stage has, by public sizes and noisy counts."""
    (plan,) = (each for each in stages(known.learner, known.design) if each.name == stage)
    return max(known.n_rows * plan.share * known.complete, 1.0)


def _sums(known: KnownSums, stage: str, name: str) -> NoisySums:
    return known.sums[named(stage, name)]


def _founded(known: KnownSums, stage: str) -> KnownSums:
    design, histograms = known.design, _sums(known, stage, queries.HISTOGRAMS)
    counts = counts_by_feature(design, histograms)
    plans = stages(known.learner, design)
    degree = 2
    if histograms.rho:
        n = known.n_rows * min(plan.share for plan in plans)
        degree = degree_for(n, histograms.rho / plans[0].weights[queries.HISTOGRAMS], design)
    size = known.n_rows * plans[0].share
    complete = complete_rows(size, counts, histograms.noise_std) / size
    basis = basis_of(design, counts, histograms.noise_std, degree)
    return replace(known, basis=basis, degree=degree, complete=complete)


def _gram(known: KnownSums, stage: str) -> Floats:
    """G a row, cleaned."""
    sums, n = _sums(known, stage, queries.GRAM), rows_of(known, stage)
    return _cleaned(symmetric(sums.values / n, known.functions.size), sums.noise_std / n)


def _cleaned(matrix: Floats, noise_std: float, typical: Floats | None = None) -> Floats:
    """Return a positive matrix with less noise, a σ of ``noise_std`` on each entry of its vector.

    What it differs by from ``typical``, by default its mean diagonal times I, is kept as far as
    noise does not explain its size; eigenvalues are a tenth of the mean of the typical at least.
    """
    mean = max(float(np.trace(matrix if typical is None else typical)) / len(matrix), 1e-6)
    typical = mean * np.eye(len(matrix)) if typical is None else typical
    apart = matrix - typical
    values, vectors = np.linalg.eigh(typical + apart * _kept(apart, noise_std))
    cleaned: Floats = (vectors * np.maximum(values, LEAST_EIGENVALUE * mean)) @ vectors.T
    return cleaned


def _kept(matrix: Floats, noise_std: float) -> float:
    """Return the part of a matrix that noise does not explain."""
    return kept_part(noise_std**2, float((entries_of(matrix) ** 2).mean()))


def _outcome(known: KnownSums) -> OutcomeFit:
    n = rows_of(known, OUTCOME)
    square = max(float(_sums(known, OUTCOME, queries.SQUARES).values[0]) / n, LEAST_SQUARE)
    if known.learner != "r":
        return _joint(known, square)
    gram, sums = _gram(known, OUTCOME), _sums(known, OUTCOME, queries.OUTCOMES)
    gamma, variance = residual_fit(gram, sums, square, n, known.functions.kinds)
    return OutcomeFit(gamma, None, math.sqrt(variance))


def _joint(known: KnownSums, square: float) -> OutcomeFit:
    """Find a and b in turn, each given the other, so that effects have a prior of their own."""
    n, size, kinds = rows_of(known, OUTCOME), known.functions.size, known.functions.kinds
    grams = _sums(known, OUTCOME, queries.SIGNED_GRAM)
    sums = _sums(known, OUTCOME, queries.SIGNED_OUTCOMES)
    noise_std, gram_noise = sums.noise_std / n, grams.noise_std / n
    plain, signed = (symmetric(half, size) for half in np.split(grams.values / n, 2))
    gram = _cleaned(plain, gram_noise)
    signed = _within(signed * _kept(signed, gram_noise), gram)
    level_sums, arm_sums = np.split(sums.values / n, 2)
    level, arm, variance = np.zeros(size), np.zeros(size), square
    for _ in range(_SWEEPS):
        for_level = _errors(variance * gram / n, gram_noise, arm)
        level = solved_for(gram, level_sums - signed @ arm, noise_std, for_level, kinds).mean
        for_arm = _errors(variance * gram / n, gram_noise, level)
        arm = solved_for(gram, arm_sums - signed @ level, noise_std, for_arm, kinds).mean
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
    n, sums = rows_of(known, EFFECT), _sums(known, EFFECT, queries.SCORES)
    squares = float(_sums(known, EFFECT, queries.SQUARED_SCORES).values[0]) / n
    square = max(squares, LEAST_SQUARE) * known.greatest_score**2
    return residual_fit(_gram(known, EFFECT), sums, square, n, known.functions.kinds)[0]


def _r(known: KnownSums) -> Floats:
    grams = _sums(known, EFFECT, queries.TREATED_GRAM)
    sums = _sums(known, EFFECT, queries.RESIDUALS)
    n, size = rows_of(known, EFFECT), known.functions.size
    gram_noise, variance = grams.noise_std / n, known.outcomes.residual_std**2
    matrix, before = symmetric(grams.values / n, size), _gram(known, OUTCOME)
    least = known.least_share * (1.0 - known.least_share)
    ratio = float(np.clip(np.trace(matrix) / np.trace(before), least, 0.3))
    matrix = _cleaned(matrix, gram_noise, ratio * before)
    beta = np.zeros(size)
    for _ in range(2):
        sampling = n * _errors(variance * matrix / n, gram_noise, beta)
        beta = solved(matrix, sums, sampling, n, known.functions.kinds).mean
    return beta
