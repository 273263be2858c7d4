"""Moments of strata whose units were released by response tables.

A unit counts as what its output stands for in the table of its pool: a debiased outcome, and what
it adds to noise and to squares. So the mean needs no debiasing, and λ is 0.
"""

from dataclasses import dataclass

import numpy as np

from estimators.response.response_tables import OutputFunctions
from estimators.strata.evidence import OutputMeans, sum_by
from estimators.strata.moments import Moments
from schemas.arrays import Floats, Ints


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
