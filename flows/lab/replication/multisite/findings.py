"""What the replication over sites found, from its rows: ratios, and where they come from."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

OURS, PRINTED = "ours", "as printed"
TRIAL, SMOOTH, GLOBAL = "difference in means", "smooth matching", "global matching"
BOUND, SPARE = 1.1, 3.0
"""What mvagg's error over the better of all and largest is held to, and with how much to spare."""


@dataclass(frozen=True)
class MultisiteRow:
    """The error of one aggregate over all runs."""

    data: str
    sites: str
    """Proportions of their sizes, or how they were made."""
    estimator: str
    form: str
    alpha: float
    epsilons: tuple[float, ...]
    delta: float
    aggregate: str
    mae: float
    """Mean of |τ̂_DP − τ̂|, in parts of the range of outcomes."""
    mae_std_error: float
    ratio: float
    """``mae`` over that of the better of all and largest."""
    ratio_std_error: float
    """From differences within runs: aggregates are of the same reports."""
    runs: int


@dataclass(frozen=True)
class Finding:
    """What the paper found, in the errors of one estimator on one data set, over all settings.

    Means are geometric ones, over proportions and alphas.
    """

    data: str
    estimator: str
    form: str
    mvagg_over_better: float
    """Mean of mvagg's error over that of the better of all and largest."""
    worst: float
    """The greatest of them."""
    worst_std_error: float
    n_beyond: int
    """Settings where it is over 1.1 by more than :data:`SPARE` standard errors."""
    n_settings: int
    all_over_mvagg: tuple[float, float, float]
    """Mean of all's error over mvagg's, at the least, middle and greatest alpha."""
    largest_over_mvagg: tuple[float, float, float]
    """The same of largest."""
    ivw_over_mvagg: float
    smooth_over_global: float | None
    """Mean of mvagg's error with smooth matching over that with global matching."""


def findings(rows: Sequence[MultisiteRow]) -> tuple[Finding, ...]:
    """Return what the paper found, of every data set, estimator and form among ``rows``."""
    kinds = dict.fromkeys((one.data, one.estimator, one.form) for one in rows)
    return tuple(_finding(rows, *kind) for kind in kinds)


def _finding(rows: Sequence[MultisiteRow], data: str, estimator: str, form: str) -> Finding:
    mine = _by_setting(rows, data, estimator, form)
    other = _by_setting(rows, data, GLOBAL, form) if estimator == SMOOTH else {}
    every = [one["mvagg"] for one in mine.values()]
    worst = max(every, key=lambda one: one.ratio)

    def over_mvagg(aggregate: str) -> tuple[float, float, float]:
        least, middle, greatest = (
            _mean(
                one[aggregate].mae / one["mvagg"].mae
                for (_, alpha), one in mine.items()
                if alpha == at
            )
            for at in three(alpha for _, alpha in mine)
        )
        return least, middle, greatest

    return Finding(
        data, estimator, form,
        mvagg_over_better=_mean(one.ratio for one in every),
        worst=worst.ratio,
        worst_std_error=worst.ratio_std_error,
        n_beyond=sum(one.ratio > BOUND + SPARE * one.ratio_std_error for one in every),
        n_settings=len(every),
        all_over_mvagg=over_mvagg("all"),
        largest_over_mvagg=over_mvagg("largest"),
        ivw_over_mvagg=_mean(one["ivw"].mae / one["mvagg"].mae for one in mine.values()),
        smooth_over_global=_mean(
            one["mvagg"].mae / other[key]["mvagg"].mae for key, one in mine.items()
        ) if other else None,
    )  # fmt: skip


def _by_setting(
    rows: Sequence[MultisiteRow], data: str, estimator: str, form: str
) -> dict[tuple[str, float], dict[str, MultisiteRow]]:
    """Rows by proportions and alpha, then by aggregate."""
    found: dict[tuple[str, float], dict[str, MultisiteRow]] = {}
    for one in rows:
        if (one.data, one.estimator, one.form) == (data, estimator, form):
            found.setdefault((one.sites, one.alpha), {})[one.aggregate] = one
    return found


def three(alphas: Iterable[float]) -> tuple[float, float, float]:
    """The least, the middle and the greatest."""
    every = sorted(set(alphas))
    return every[0], every[len(every) // 2], every[-1]


def _mean(ratios: Iterable[float]) -> float:
    return math.exp(float(np.mean([math.log(one) for one in ratios])))


FORMS = {
    OURS: "Ours, as `clusterdp site` reports",
    PRINTED: "As the paper prints it, without a guarantee",
}
FINDINGS = (
    "data", "estimator", "smooth/global", "mvagg/better", "worst", "over 1.1",
    "all/mvagg", "largest/mvagg", "ivw/mvagg",
)  # fmt: skip
NOTES = (
    "  Ratios of errors, in the (geometric) mean of all proportions and alphas. smooth/global: the",
    "  two matchings, with mvagg. mvagg/better: over the better of all and largest, and the worst",
    "  of it; over 1.1: in how many settings by more than three standard errors. all and largest",
    "  over mvagg: at the least, middle and greatest alpha.",
    "",
    "  Where it is otherwise than in the paper: star's sites have effects of their own, and one",
    "  that is left out for its noise takes its part of the effect with it, so that for small",
    "  alpha mvagg and ivw may be worse than all. With the same pupils dealt out at random",
    "  (star-random) they are not. On ihdp smooth matching gains little: at a third of the data",
    "  eight strata have about six treated each, and its bound is near the worst case. Fewer",
    "  strata help.",
    "",
)


def as_cells(one: Finding) -> list[str]:
    """A finding as a line of a table under :data:`FINDINGS`."""
    smooth = "" if one.smooth_over_global is None else f"{one.smooth_over_global:.2f}"
    return [
        one.data, one.estimator, smooth, f"{one.mvagg_over_better:.2f}",
        f"{one.worst:.2f}", f"{one.n_beyond} of {one.n_settings}",
        " ".join(f"{ratio:.1f}" for ratio in one.all_over_mvagg),
        " ".join(f"{ratio:.1f}" for ratio in one.largest_over_mvagg), f"{one.ivw_over_mvagg:.2f}",
    ]  # fmt: skip
