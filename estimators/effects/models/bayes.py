"""Linear equations with known noise, solved by empirical Bayes.

Noisy sums s = M b + noise, noise ~ N(0, S), are solved under the prior b ~ N(0, D): where the
noise is large, coefficients shrink toward 0 instead of blowing up as M⁻¹ s would. D is diagonal:
0.05 for the intercept, and one variance for each kind of term, chosen by marginal likelihood.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from estimators.effects.models.basis import CURVATURE, LINEAR, PAIR, by_row
from schemas.arrays import Floats, Integers

GREATEST_EFFECT = 2.0
"""In halves of the outcomes' range: no difference of two outcomes is greater."""
_INTERCEPT_VARIANCE = 0.05
_ANY_VARIANCE = 4.0
"""Effects lie within ±2, and so do coefficients of orthonormal functions."""
_VARIANCES = (0.0, *np.geomspace(1e-5, 0.05, 10).tolist())
_SWEEPS = 2


@dataclass(frozen=True)
class Posterior:
    """Coefficients and what is known of their error; units of half the outcomes' range."""

    mean: Floats = field(repr=False)
    """Shape [p]."""
    covariance: Floats = field(repr=False)
    """Shape [p, p]."""

    def effects(self, phi: Floats) -> Floats:
        """Return τ = clip(φ β, −2, 2), shape [n], for φ of shape [n, p]; of a row by itself alone.

        The table parts rows by it: if one row decided on which side of an edge others are, it would
        move more than itself.
        """
        return np.clip(by_row(phi, self.mean), -GREATEST_EFFECT, GREATEST_EFFECT)

    def std_errors(self, phi: Floats) -> Floats:
        """Return √(φᵀ C φ), C the covariance of β; shape [n]."""
        found: Floats = np.sqrt(np.einsum("np,pq,nq->n", phi, self.covariance, phi))
        return found


def solve(matrix: Floats, sums: Floats, noise: Floats, kinds: Sequence[int]) -> Posterior:
    """Return the posterior of b given s = M b + N(0, S).

        b = D M (M D M + S)⁻¹ s,   cov = D − D M (M D M + S)⁻¹ M D

    where ``matrix`` is M, symmetric, shape [p, p], ``sums`` s, [p], ``noise`` S, [p, p], ``kinds``
    the kind of each coefficient, [p]. The variances of D maximise the density of s under
    N(0, M D M + S): out of eleven between 0 and 0.05, one kind after the other, twice.
    """
    kind_of = np.array(kinds)
    variances = {kind: _VARIANCES[5] for kind in (LINEAR, CURVATURE, PAIR) if kind in kinds}
    for _ in range(_SWEEPS):
        for kind in variances:
            priors = np.tile(_prior(kind_of, variances), (len(_VARIANCES), 1))
            priors[:, kind_of == kind] = np.array(_VARIANCES)[:, np.newaxis]
            fits = _log_densities(matrix, sums, noise, priors)
            variances[kind] = _VARIANCES[int(np.argmax(fits))]
    return _posterior(matrix, sums, noise, _prior(kind_of, variances))


def unshrunk(matrix: Floats, sums: Floats, noise: Floats) -> Posterior:
    """Return what ``sums`` alone say of b, as :func:`solve`: a prior variance of 4 shrinks nothing.

    It is more than any coefficient can have, and keeps what the sums do not tell finite.
    """
    return _posterior(matrix, sums, noise, np.full(len(sums), _ANY_VARIANCE))


def _posterior(matrix: Floats, sums: Floats, noise: Floats, prior: Floats) -> Posterior:
    spread = prior[:, None] * matrix  # D M
    gain = np.linalg.solve(matrix @ spread + noise, spread.T).T
    return Posterior(gain @ sums, np.diag(prior) - gain @ spread.T)


def _prior(kinds: Integers, variances: dict[int, float]) -> Floats:
    prior = np.full(len(kinds), _INTERCEPT_VARIANCE)
    for kind, variance in variances.items():
        prior[kinds == kind] = variance
    return prior


def _log_densities(matrix: Floats, sums: Floats, noise: Floats, priors: Floats) -> Floats:
    """Return the log density of s under N(0, M D M + S) for each D, without its constant."""
    roots = np.linalg.cholesky(matrix @ (priors[:, :, np.newaxis] * matrix) + noise)
    white = np.linalg.solve(roots, sums)
    diagonals = np.diagonal(roots, axis1=1, axis2=2)
    found: Floats = -0.5 * (white**2).sum(axis=1) - np.log(diagonals).sum(axis=1)
    return found


def symmetric(entries: Floats, size: int) -> Floats:
    """Return the symmetric matrix [p, p] of a vector of its entries, as :func:`entries_of`."""
    rows, columns = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[rows, columns] = np.where(rows == columns, entries, entries / np.sqrt(2.0))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


def entries_of(matrix: Floats) -> Floats:
    """Return the entries of a symmetric matrix once each, those off the diagonal times √2.

    The Euclidean norm of the result, shape [p (p + 1)/2], is the matrix's Frobenius norm.
    """
    rows, columns = np.triu_indices(len(matrix))
    return np.where(rows == columns, 1.0, np.sqrt(2.0)) * matrix[rows, columns]
