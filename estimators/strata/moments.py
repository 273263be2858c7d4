"""Moments of the outcomes in each stratum.

A unit that was released by a response table counts as what its output stands for in the table of
its pool: a debiased outcome, and what it adds to noise and to squares. So λ is 0.
"""

from dataclasses import dataclass

import numpy as np

from estimators.response.response_tables import OutputFunctions
from estimators.strata.evidence import OutputMeans, sum_by
from schemas.arrays import Floats, Ints


@dataclass(frozen=True)
class Moments:
    """Moments by stratum; all arrays have the shape [S]."""

    n_units: Floats
    mean: Floats
    variance: Floats
    """The sample variance (divisor n − 1); 0 where n = 1."""
    fourth: Floats
    """Mean of the fourth powers."""


def moments_of_counts(values: Floats, counts: Ints) -> Moments:
    """Return the moments of strata in which value y_k of ``values`` stands ``counts[s, k]`` times.

    n_s = Σ_k n_sk, μ_s = Σ_k n_sk y_k / n_s, Σ_k n_sk (y_k − μ_s)²/(n_s − 1), Σ_k n_sk y_k⁴ / n_s,
    where ``values`` have the shape [K] and ``counts`` [S, K]. Every stratum has a unit.
    """
    n_units = counts.sum(axis=1).astype(np.float64)
    mean = (counts * values).sum(axis=1) / n_units
    apart = values - mean[:, np.newaxis]
    return Moments(
        n_units=n_units,
        mean=mean,
        variance=(counts * apart**2).sum(axis=1) / np.maximum(n_units - 1.0, 1.0),
        fourth=(counts * values**4).sum(axis=1) / n_units,
    )


@dataclass(frozen=True)
class OutputMoments:
    """Moments of v − ȳ by stratum, and means of what outputs add; shape [S] each."""

    of_values: Moments
    """The fourth is 0: nothing is made of it."""
    outputs: OutputMeans


def moments_of_outputs(
    functions: OutputFunctions, table: Ints, output: Ints, stratum: Ints, n_units: Ints, size: int
) -> OutputMoments:
    """Return the moments of ``size`` strata from groups of units with one output each.

    A group has ``n_units`` units in ``stratum`` that were released as ``output``, and the ``table``
    of its pool is a row of ``functions``; shape [G] each. Every stratum has a unit.
    """
    value = functions.mean[table, output]
    times = n_units.astype(np.float64)
    n = sum_by(stratum, times, size)
    mean = sum_by(stratum, times * value, size) / n
    square = sum_by(stratum, times * (value - mean[stratum]) ** 2, size)

    def average(function: Floats) -> Floats:
        return sum_by(stratum, times * function[table, output], size) / n

    return OutputMoments(
        Moments(n, mean, square / np.maximum(n - 1.0, 1.0), np.zeros(size)),
        OutputMeans(
            average(functions.noise), average(functions.square), average(functions.square_noise)
        ),
    )
