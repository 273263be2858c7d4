"""The people of Experiment 1 of Javanmard, Mirrokni and Pouget-Abadie (2025), §4.

Three clusters of 500, 1,000 and 2,000 units, half of each treated; y′ = √β μ_c + √(v − β) w_i with
standard normal μ_c and w_i, β = 4.5, v = 5, rounded to −5 … 5 in steps of 2√v/5 and cut off at 2√v;
treatment adds 1. So there are K = 12 outcomes, −5 … 6, and the true effect is 1.
"""

import numpy as np
from numpy.random import Generator

from schemas.arrays import Floats, Ints

SIZES: Ints = np.array([[250, 250], [500, 500], [1000, 1000]])
GRID: Floats = np.arange(-5.0, 7.0)
K = len(GRID)
BETA, VARIANCE, EXTREME = 4.5, 5.0, 5


def population(random: Generator) -> Ints:
    """Draw the levels of every unit in control and under treatment, shape [2, n]."""
    return latent_levels(random, SIZES.sum(axis=1), BETA)


def latent_levels(random: Generator, n: Ints, beta: float) -> Ints:
    """Draw as many units in each cluster, with centres of their own; shape [2, Σn]."""
    center = np.repeat(random.standard_normal(len(n)), n)
    latent = np.sqrt(beta) * center + np.sqrt(VARIANCE - beta) * random.standard_normal(n.sum())
    step = 2.0 * np.sqrt(VARIANCE) / EXTREME
    control = np.clip(np.rint(latent / step), -EXTREME, EXTREME).astype(np.int64) + EXTREME
    return np.stack([control, control + 1])


def shares_of(levels: Ints) -> Floats:
    """Return how the outcomes of each (cluster, arm) are spread over the grid, shape [6, K]."""
    n = SIZES.sum(axis=1)
    key = (np.repeat(np.arange(len(n)), n) * 2 + np.arange(2)[:, np.newaxis]) * K + levels
    counts = np.bincount(key.ravel(), minlength=2 * len(n) * K).reshape(-1, K)
    shares: Floats = counts / counts.sum(axis=1, keepdims=True)
    return shares
