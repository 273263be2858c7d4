"""What follows from the noisy sums, stage by stage: basis, nuisance, effect.

A stage uses sums of the stages before it alone. So the run that draws the sums takes its steps by
the same functions as whoever reads them, and everything here is post-processing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from estimators.effects.models import queries
from estimators.effects.models.basis import Basis, basis_of, usual_shares
from estimators.effects.models.bayes import Posterior, entries_of, solve, symmetric
from schemas.arrays import Floats
from schemas.effects.model import EffectDesign, NoisySums, Propensity

Sums = Mapping[str, NoisySums]

ROWS_FOR_DETAIL = 4000.0 / 6.0
"""A feature: from so many n √(2ρ) on squares, and less clipped residuals, are worth their noise."""
LEAST_SQUARE = 1e-4
LEAST_EIGENVALUE = 0.1
CLIPPED_AT, CLIPPED_LATE = 2.2, 3.0
"""Standard deviations of a residual at which it is clipped; the latter where detail is worth it.

What is cut makes effects smaller where outcomes spread most, which more people do not mend.
"""
_UNSURE = 0.5
"""Standard deviations of the noise of s² that are added to it before residuals are clipped: too
low a clip costs more than too high a one."""
_MOST = 2.0**53  # steps: up to here doubles are exact
_GREATEST_WEIGHT = 0.3
"""Of a treated row's (T − e)² on average; it is e(1 − e), at most 1/4, but for noise."""


@dataclass(frozen=True)
class Foundation:
    """What the histograms say: the basis, and how many rows take part."""

    basis: Basis
    degree: int
    n_complete: float
    """Rows that are complete, n where the histograms show no others; noisy, so no whole number."""


def foundation(design: EffectDesign, n_rows: int, histograms: NoisySums) -> Foundation:
    """Return the basis under the noisy ``histograms``.

    Squares take part where detail is worth its noise; always where features are not protected.
    Where sites agreed on a degree and on how people are spread, it is the basis of that, and the
    histograms say how many rows take part.
    """
    counts = counts_by_feature(design, histograms)
    complete = complete_rows(n_rows, counts, histograms.noise_std)
    if design.agreed is not None:
        usual = usual_shares(design, design.agreed)
        return Foundation(
            basis_of(design, usual, 0.0, design.agreed.degree), design.agreed.degree, complete
        )
    degree = 2
    if queries.rho_shares(design)[queries.HISTOGRAMS]:
        degree = degree_for(n_rows, rho_by(design, queries.HISTOGRAMS, histograms), design)
    return Foundation(basis_of(design, counts, histograms.noise_std, degree), degree, complete)


def degree_for(n_rows: float, rho: float, design: EffectDesign) -> int:
    """Return 2 where detail is worth its noise, else 1.

    It is where n √(2ρ) ≥ 4000 d/6, ρ being that of all sums but the table's, d the number of
    features.
    """
    return 2 if n_rows * math.sqrt(2.0 * rho) >= ROWS_FOR_DETAIL * len(design.features) else 1


def rho_by(design: EffectDesign, name: str, one: NoisySums) -> float:
    """The ρ of all sums but the table's, by that of ``one`` of them."""
    shares = queries.rho_shares(design)
    left = sum(part for query, part in shares.items() if query != queries.TABLE)
    return one.rho / shares[name] * left


def counts_by_feature(design: EffectDesign, histograms: NoisySums) -> list[Floats]:
    """Return the noisy histogram of each feature, shape [cells] each."""
    sizes = [feature.n_cells for feature in design.features]
    return np.split(histograms.values, np.cumsum(sizes)[:-1])


def complete_rows(n_rows: float, counts: list[Floats], noise_std: float) -> float:
    """Return the number of complete rows by the histograms; n unless that is clearly too many.

    Every histogram adds up to it, with a variance of as many σ² as it has cells.
    """
    cells = np.array([len(count) for count in counts], dtype=np.float64)
    totals = np.array([count.sum() for count in counts])
    estimate = float((totals / cells).sum() / (1.0 / cells).sum())
    error = noise_std / math.sqrt(float((1.0 / cells).sum()))
    if estimate + 2.5 * error >= n_rows:
        return float(n_rows)
    return min(max(estimate, 1.0), float(n_rows))


@dataclass(frozen=True)
class Nuisance:
    """Outcomes and propensities as functions of the features, and how large residuals are."""

    outcome_coefficients: Floats = field(repr=False)
    """γ, shape [p]."""
    propensity_coefficients: Floats | None = field(repr=False)
    """π, shape [p]; None where the propensity is declared."""
    gram: Floats = field(repr=False)
    """G, shape [p, p], a row."""
    residual_std: float
    """s, in halves of the outcomes' range."""
    outcome_std: float
    """Standard deviation of all outcomes, likewise."""
    clip: float
    """C: residuals are clipped to ±C."""
    propensity: Propensity
    """How e was declared."""
    table_outcomes: "TableOutcomes"
    """What outcomes are compared with in the table."""

    def outcomes(self, phi: Floats) -> Floats:
        """Return η = clip(φ γ, −1, 1), shape [n], for φ of shape [n, p]."""
        return np.clip(phi @ self.outcome_coefficients, -1.0, 1.0)

    def propensities(self, phi: Floats, declared: Floats | None) -> Floats:
        """Return e, shape [n]; see :func:`propensities`."""
        return propensities(self.propensity, self.propensity_coefficients, phi, declared)

    @property
    def most_weight(self) -> float:
        """Return max |T − e|."""
        return 1.0 - least_share(self.propensity)

    @property
    def greatest_psi(self) -> float:
        """Return Ψ ≥ |ψ|, ψ = (T − e)(y − η)/(e (1 − e)), η being that of the table."""
        return self.table_outcomes.farthest / least_share(self.propensity)

    def psi(self, phi: Floats, treated: Floats, outcome: Floats, e: Floats) -> Floats:
        """Return ψ/Ψ in [−1, 1], shape [n]: by row, a number whose average is the effect."""
        eta = self.table_outcomes.of(phi @ self.outcome_coefficients)
        psi = (treated - e) * (outcome - eta) / (e * (1.0 - e))
        return np.clip(psi / self.greatest_psi, -1.0, 1.0)


@dataclass(frozen=True)
class TableOutcomes:
    """η = a clip(φ γ, low, high): the less of a prediction, the less noise, and the more spread."""

    low: float
    high: float
    part: float
    """a, in [0, 1]."""

    @property
    def farthest(self) -> float:
        """Return the greatest |y − η| of an outcome y in [−1, 1]."""
        return max(1.0 + self.part * self.high, 1.0 - self.part * self.low)

    def of(self, predicted: Floats) -> Floats:
        """Return η, shape [n], for φ γ of shape [n]."""
        return self.part * np.clip(predicted, self.low, self.high)


def constant_of(how: Propensity) -> float | None:
    """Return e, where it is one number."""
    return how.value if how.kind == "value" else None


def least_share(how: Propensity) -> float:
    """Return the least that e or 1 − e can be; e(1 − e) is at least that times its complement."""
    e = constant_of(how)
    return how.bound if e is None else min(e, 1.0 - e)


def propensities(
    how: Propensity, fitted: Floats | None, phi: Floats, declared: Floats | None
) -> Floats:
    """Return e, shape [n]: the constant, the declared column, or clip(1/2 + φ π, c, 1 − c).

    ``fitted`` is π, shape [p]; None where the propensity is declared.
    """
    constant = constant_of(how)
    if constant is not None:
        return np.full(len(phi), constant)
    e = declared if fitted is None else 0.5 + phi @ fitted
    if e is None:
        raise ValueError("the propensities of rows are declared, and not there")
    return np.clip(e, how.bound, 1.0 - how.bound)


def _table_outcomes(
    design: EffectDesign, n: float, sums: Sums, fit: tuple[Floats, Floats, float]
) -> TableOutcomes:
    """Return η with the a for which the average effect's variance, as foreseen, is least.

        (s² + (1 − a)² γᵀ G γ)/(e (1 − e) n) + (ν Ψ_a/n)²,

    ν being the table's noise; ``fit`` is γ, G and s². 1/5 stands for e (1 − e) where e differs.
    """
    gamma, gram, variance = fit
    reach = 2.0 * math.sqrt(float(gamma[1:] @ gamma[1:]))
    low, high = np.clip([gamma[0] - reach, gamma[0] + reach], -1.0, 1.0).tolist()
    whole = TableOutcomes(low, high, 1.0)
    shares = queries.rho_shares(design)
    rho = sums[queries.OUTCOMES].rho / shares[queries.OUTCOMES] * shares.get(queries.TABLE, 0.0)
    if not rho > 0.0:
        return whole
    noise = 2.0 * math.sqrt(queries.n_partitions(design) / (2.0 * rho))
    e = constant_of(design.propensity)
    weight = 0.2 if e is None else e * (1.0 - e)
    explained = float(gamma @ gram @ gamma)

    def foreseen(made: TableOutcomes) -> float:
        psi = made.farthest / least_share(design.propensity)
        sampling = (variance + (1.0 - made.part) ** 2 * explained) / weight
        return sampling / n + (noise * psi / n) ** 2

    return min((TableOutcomes(low, high, part / 10.0) for part in range(11)), key=foreseen)


def nuisance(design: EffectDesign, base: Foundation, sums: Sums) -> Nuisance:
    """Return outcomes and propensities by the sums of the second stage.

    γ solves G γ = Σ w v y/n; e is 1/2 + φ π with G π = Σ w v (T − 1/2)/n. The equations' noise is
    that of the sums and their sampling: S = σ² I + s² G/n. The residual variance s² is that
    which Q = Σ w² y²/n leaves, Q − 2 γᵀ s + γᵀ G γ.
    """
    n, kinds = base.n_complete, base.basis.kinds
    grams, outcomes, squares = (
        sums[name] for name in (queries.GRAM, queries.OUTCOMES, queries.SQUARES)
    )
    gram = _clean_gram(symmetric(grams.values / n, len(kinds)), grams.noise_std / n)
    pi = None
    if queries.TREATMENT in sums:
        pi = solved(gram, sums[queries.TREATMENT], gram / 4.0, n, kinds).mean
    square = max(float(squares.values[0]) / n, LEAST_SQUARE)
    gamma, variance = residual_fit(gram, outcomes, square, n, kinds)
    residual = math.sqrt(variance)
    length = math.sqrt(float(gamma @ gamma))
    unsure = math.hypot(squares.noise_std, 2.0 * length * outcomes.noise_std) / n
    wide = math.sqrt(min(variance + _UNSURE * unsure, square))
    degree = base.degree  # of all sites together, where they agreed on it
    if design.agreed is None:
        degree = degree_for(n, rho_by(design, queries.OUTCOMES, outcomes), design)
    clipped_at = CLIPPED_LATE if degree == 2 else CLIPPED_AT
    return Nuisance(
        outcome_coefficients=gamma,
        propensity_coefficients=pi,
        gram=gram,
        residual_std=residual,
        outcome_std=math.sqrt(max(square - float(gamma[0]) ** 2, variance)),
        clip=min(clipped_at * wide, 2.0),
        propensity=design.propensity,
        table_outcomes=_table_outcomes(design, n, sums, (gamma, gram, variance)),
    )


def added(sums: Sequence[NoisySums]) -> NoisySums:
    """Return the sums over all people of several places, by those of each under one name.

    Exact, in the finest of their steps, which are powers of two; σ² h² is that of all together.
    Their ρ is the greatest, as nobody is in two.
    """
    step = min(each.step for each in sums)
    parts = [each.values / step for each in sums]
    if not all(len(each) == len(parts[0]) and np.abs(each).max() < _MOST for each in parts):
        raise ValueError("sums that do not go together, or are too great")
    return replace(
        sums[0],
        rho=max(each.rho for each in sums),
        sensitivity=max(each.sensitivity for each in sums),
        step=step,
        scale=math.hypot(*(each.noise_std for each in sums)) / step,
        steps=np.sum([each.astype(np.int64) for each in parts], axis=0),
    )


def solved(
    matrix: Floats, sums: NoisySums, sampling: Floats, n: float, kinds: tuple[int, ...]
) -> Posterior:
    """Solve M b = s/n with the noise of s and ``sampling``/n, the covariance of a row's part."""
    return solved_for(matrix, sums.values / n, sums.noise_std / n, sampling / n, kinds)


def solved_for(
    matrix: Floats, sums: Floats, noise_std: float, sampling: Floats, kinds: tuple[int, ...]
) -> Posterior:
    """Solve M b = ``sums`` with noise of ``noise_std`` on each, and the covariance ``sampling``."""
    return solve(matrix, sums, noise_std**2 * np.eye(len(sums)) + sampling, kinds)


def residual_fit(
    matrix: Floats, sums: NoisySums, square: float, n: float, kinds: tuple[int, ...]
) -> tuple[Floats, float]:
    """Return b of M b = s/n and the residual variance s² = E y² − 2 b·s + bᵀ M b, found twice.

    ``square`` is E y².
    """
    products, variance = sums.values / n, square
    for _ in range(2):
        found = solved(matrix, sums, variance * matrix, n, kinds).mean
        left = square - 2.0 * found @ products + found @ matrix @ found
        variance = float(np.clip(left, 0.02 * square, square))
    return found, variance


def _clean_gram(gram: Floats, noise_std: float) -> Floats:
    """Return a Gram matrix with less noise: a σ of ``noise_std`` on each entry of its vector.

    Under the noisy histograms it is about I. Entries off the diagonal are shrunk to 0, those on it
    to their mean, as far as noise explains their squares; eigenvalues are 0.1 at least.
    """
    diagonal = np.diag(gram)
    apart = gram - np.diag(diagonal)
    size = len(gram)
    if noise_std > 0.0 and size > 1:
        energy = float((apart**2).sum()) / (size * (size - 1))
        apart = apart * kept_part(noise_std**2 / 2.0, energy)
        mean = diagonal.mean()
        around = diagonal - mean
        diagonal = mean + around * kept_part(noise_std**2, float((around**2).mean()))
    values, vectors = np.linalg.eigh(apart + np.diag(diagonal))
    cleaned: Floats = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
    return cleaned


def kept_part(noise: float, energy: float) -> float:
    """Return the part of something that is no noise: max(0, 1 − noise/energy)."""
    return max(0.0, 1.0 - noise / energy) if energy > 0.0 else 0.0


def effect(base: Foundation, known: Nuisance, sums: Sums) -> Posterior:
    """Return the effect by the sums of the third stage: M β = Σ w v (T − e) clip(y − η, −C, C).

    M = Σ (T − e)² v vᵀ, or e (1 − e) G where e is one number. The noise of the equations is that of
    the sums, of their sampling, and of M: S = σ² I + s² M/n + σ_M² |β|² I/2.
    """
    n, kinds = base.n_complete, base.basis.kinds
    noise_std = 0.0
    constant = constant_of(known.propensity)
    if constant is not None:
        matrix = constant * (1.0 - constant) * known.gram
    else:
        noise = sums[queries.TREATED_GRAM].noise_std / n
        matrix, noise_std = _clean_treated(sums[queries.TREATED_GRAM].values / n, noise, known)
    beta = np.zeros(len(kinds))
    for _ in range(2):
        sampling = known.residual_std**2 * matrix
        sampling = sampling + n * noise_std**2 * float(beta @ beta) / 2.0 * np.eye(len(kinds))
        posterior = solved(matrix, sums[queries.EFFECTS], sampling, n, kinds)
        beta = posterior.mean
    return posterior


def _clean_treated(entries: Floats, noise_std: float, known: Nuisance) -> tuple[Floats, float]:
    """Return Σ (T − e)² v vᵀ/n, shrunk toward a multiple of the Gram matrix, and its error.

    The error is a standard deviation of an entry: what is kept of the noise, √kept σ_M.
    """
    size = len(known.gram)
    matrix = symmetric(entries, size)
    least = known.propensity.bound * (1.0 - known.propensity.bound)
    ratio = np.clip(np.trace(matrix) / np.trace(known.gram), least, _GREATEST_WEIGHT)
    typical = ratio * known.gram
    apart = matrix - typical
    kept = 1.0
    if noise_std > 0.0:
        kept = kept_part(noise_std**2, float((entries_of(apart) ** 2).mean()))
    values, vectors = np.linalg.eigh(typical + kept * apart)
    floor = least * LEAST_EIGENVALUE
    cleaned: Floats = (vectors * np.maximum(values, floor)) @ vectors.T
    return cleaned, noise_std * math.sqrt(kept)
