"""A lower bound on the ε of a mechanism, from samples of two neighbouring data sets.

If a mechanism is (ε, δ)-DP, every event A has P(A) ≤ e^ε Q(A) + δ. An event that tells D from D′ is
chosen with one half of the samples. With the other half, which the choice does not depend on, P(A)
is bounded from below and Q(A) from above (Clopper and Pearson), and so is ε.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from schemas.arrays import Floats, Ints

DRAW = "draw of the changed unit"
"""A required column: 0 for the outcome given up, 1 for the one taken, 2 for another."""
SIGNATURE = "signature"
"""An optional column of categories 0, 1, … in no order."""

_THRESHOLDS = 48
_VALUES = 16
_CAUTION = 1e-3  # among so many events some seem to tell D from D′ by chance


@dataclass(frozen=True)
class Sample:
    """Independent replicates of a published statistic, in columns of shape [R]."""

    columns: Mapping[str, Floats]

    @property
    def size(self) -> int:
        """The number of replicates."""
        return len(self.columns[DRAW])

    def values(self, column: str, draw: int | None) -> Floats:
        """Return a column where the changed unit's draw is ``draw``; the whole column for None."""
        values = self.columns[column]
        return values if draw is None else values[self.columns[DRAW] == draw]

    def halves(self) -> "tuple[Sample, Sample]":
        """Return the half to choose an event with, and the half to bound its probability with."""
        middle = self.size // 2
        first = {name: values[:middle] for name, values in self.columns.items()}
        second = {name: values[middle:] for name, values in self.columns.items()}
        return Sample(first), Sample(second)

    def ranked(self, ranks: Floats) -> "Sample":
        """Return the sample with every category of the signature replaced by its rank."""
        if SIGNATURE not in self.columns:
            return self
        rank = ranks[self.columns[SIGNATURE].astype(np.int64)]
        return Sample({**self.columns, SIGNATURE: rank})


@dataclass(frozen=True)
class Telltale:
    """The event that a column lies between two values, both included, and the draw is ``draw``."""

    column: str
    low: float
    high: float
    draw: int | None

    def __str__(self) -> str:
        """Describe the event, which is of made-up data."""
        drawn = "" if self.draw is None else f" and {DRAW} = {self.draw}"
        return f"{self.low:g} ≤ {self.column} ≤ {self.high:g}{drawn}"

    def count(self, sample: Sample) -> int:
        """Return the number of replicates in which it happened."""
        values = sample.values(self.column, self.draw)
        return int(np.count_nonzero((values >= self.low) & (values <= self.high)))


@dataclass(frozen=True)
class Bound:
    """A lower bound on ε, and the event that gave it."""

    epsilon: float
    telltale: Telltale | None


def lower_bound(here: Sample, there: Sample, delta: float, error: float) -> Bound:
    """Return ε̲ = ln((P̲(A) − δ)/Q̄(A)) ≤ ε, wrong with a probability of at most ``error``.

    ``here`` are samples under D, ``there`` under D′, with columns of the same names; P̲ and Q̄ are
    Clopper and Pearson's bounds, each wrong with half of ``error``. This is one direction; the
    samples in the other order give the other.
    """
    (choosing, bounding), (choosing_there, bounding_there) = here.halves(), there.halves()
    ranks = _ranks(choosing, choosing_there, _n_categories(here, there))
    telltale = _choose_event(choosing.ranked(ranks), choosing_there.ranked(ranks), delta, error)
    if telltale is None:
        return Bound(0.0, None)
    happened = [telltale.count(half.ranked(ranks)) for half in (bounding, bounding_there)]
    p, q = np.array([happened]).T
    epsilon = _epsilons(p, q, (bounding.size, bounding_there.size), delta, error)
    return Bound(float(epsilon[0]), telltale)


def clopper_pearson(happened: Ints, size: int, error: float) -> tuple[Floats, Floats]:
    """Return bounds on a probability from below and above, each wrong with at most ``error``.

    An event ``happened`` in that many of ``size`` independent trials; any shape. Exact
    for any probability (Clopper and Pearson 1934): quantiles of beta distributions.
    """
    below = stats.beta.ppf(error, happened, size - happened + 1)
    above = stats.beta.isf(error, happened + 1, size - happened)
    return np.where(happened == 0, 0.0, below), np.where(happened == size, 1.0, above)


def _epsilons(
    happened_p: Ints, happened_q: Ints, sizes: tuple[int, int], delta: float, error: float
) -> Floats:
    """Return ε̲ of events that happened so often, at least 0."""
    p_low, _ = clopper_pearson(happened_p, sizes[0], error / 2)
    _, q_high = clopper_pearson(happened_q, sizes[1], error / 2)
    epsilons: Floats = np.log(np.maximum((p_low - delta) / q_high, 1.0))
    return epsilons


def _n_categories(here: Sample, there: Sample) -> int:
    if SIGNATURE not in here.columns:
        return 0
    return 1 + int(max(sample.columns[SIGNATURE].max() for sample in (here, there)))


def _ranks(here: Sample, there: Sample, n_categories: int) -> Floats:
    """Rank the categories of the signature, those most typical of ``here`` first."""
    if n_categories == 0:
        return np.empty(0)
    p, q = (
        np.bincount(sample.columns[SIGNATURE].astype(np.int64), minlength=n_categories)
        for sample in (here, there)
    )
    ranks = np.empty(n_categories)
    ranks[np.argsort(-(p + 0.5) / (q + 0.5), kind="stable")] = np.arange(n_categories)
    return ranks


def _choose_event(here: Sample, there: Sample, delta: float, error: float) -> Telltale | None:
    """Return the event with the highest bound on the samples to choose with."""
    best, telltale = 0.0, None
    for column in here.columns:
        for draw in (None, 0, 1):
            p, q = here.values(column, draw), there.values(column, draw)
            low, high = _intervals(np.concatenate([p, q]))
            in_p, in_q = (_count_inside(np.sort(values), low, high) for values in (p, q))
            scores = _epsilons(in_p, in_q, (here.size, there.size), delta, _CAUTION * error)
            if len(scores) and scores.max() > best:
                at = int(scores.argmax())
                best = float(scores[at])
                telltale = Telltale(column, float(low[at]), float(high[at]), draw)
    return telltale


def _intervals(values: Floats) -> tuple[Floats, Floats]:
    """Return ends of intervals to try: tails at thresholds, and frequent values.

    Thresholds are spread both over the values that occur and over their frequencies.
    """
    distinct, times = np.unique(values, return_counts=True)
    if len(distinct) < 2:
        return np.empty(0), np.empty(0)
    spread = np.linspace(0, 1, _THRESHOLDS)
    by_value = distinct[(spread * (len(distinct) - 1)).astype(np.int64)]
    by_mass = np.quantile(values, spread, method="nearest")
    thresholds = np.union1d(by_value, by_mass)
    frequent = distinct[np.argsort(-times, kind="stable")[:_VALUES]]
    infinite = np.full(len(thresholds), np.inf)
    low = np.concatenate([thresholds, -infinite, frequent])
    high = np.concatenate([infinite, thresholds, frequent])
    return low, high


def _count_inside(ordered: Floats, low: Floats, high: Floats) -> Ints:
    """Return how many of the ``ordered`` values lie in each interval."""
    return np.searchsorted(ordered, high, "right") - np.searchsorted(ordered, low, "left")
