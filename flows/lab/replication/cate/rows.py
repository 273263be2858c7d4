"""Errors of effect models, split into squared bias and variance by two samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flows.lab.replication.cate.reference import REFERENCE, Reference
from schemas.arrays import Floats

Predict = Callable[[Floats], Floats]
"""From features, shape [n, d], to effects, shape [n], in the outcome's unit."""


Fit = Callable[..., Predict]
"""Learns effects from a ``SetUp`` and ``SetUpPeople`` at ``epsilon`` and ``delta``; noise does not
come from ``random``."""


@dataclass(frozen=True)
class Learner:
    """A way to learn effects."""

    name: str
    guarantee: str
    """What it protects, or is said to."""
    fit: Fit
    reference: str | None = None
    """The field of `Reference` that is the same learner."""
    is_library: bool = False


@dataclass(frozen=True)
class CateRow:
    """The error of one learner in one cell, in the outcome's unit squared."""

    set_up: str
    learner: str
    guarantee: str
    epsilon: float
    n: int
    mse: float
    """E (τ̂ − τ)² over fresh people, samples and noise: squared bias and variance together."""
    mse_std_error: float | None
    """Over pairs of samples; None for a single pair."""
    squared_bias: float
    """Its estimate may be negative."""
    variance: float
    fits: int
    effect_variance: float
    """Var τ: the error of the true average effect."""
    over_authors_dr: float | None
    """``mse`` over that of the authors' DR-learner, where it is known."""
    over_authors_same: float | None
    """``mse`` over that of the authors' learner of the same kind."""


@dataclass(frozen=True)
class Parts:
    """What two independent fits tell of a learner's error."""

    mse: float
    squared_bias: float
    variance: float


def two_samples(first: Floats, second: Floats, truth: Floats) -> Parts:
    """Split the mean squared error of fits f₁, f₂ on independent samples; shape [n] each.

    With the mean over people, E (f₁ − τ)(f₂ − τ) is the squared bias of the mean fit and
    E (f₁ − f₂)²/2 the variance about it, both without bias; they sum to the mean of the two errors.
    """
    one, other = first - truth, second - truth
    squared_bias = float(np.mean(one * other))
    variance = float(np.mean((one - other) ** 2)) / 2.0
    return Parts(squared_bias + variance, squared_bias, variance)


def as_row(
    set_up: str,
    learner: Learner,
    epsilon: float,
    n: int,
    parts: Sequence[Parts],
    effect_variance: float,
) -> CateRow:
    """Return the mean of all pairs."""
    errors = np.array([one.mse for one in parts])
    mse = float(errors.mean())
    spread = float(errors.std(ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else None
    known = REFERENCE.get((set_up, epsilon, n), Reference(None, None, None))
    same = getattr(known, learner.reference) if learner.reference else None
    return CateRow(
        set_up=set_up,
        learner=learner.name,
        guarantee=learner.guarantee,
        epsilon=epsilon,
        n=n,
        mse=mse,
        mse_std_error=spread,
        squared_bias=float(np.mean([one.squared_bias for one in parts])),
        variance=float(np.mean([one.variance for one in parts])),
        fits=2 * len(parts),
        effect_variance=effect_variance,
        over_authors_dr=mse / known.dr if known.dr else None,
        over_authors_same=mse / same if same else None,
    )
