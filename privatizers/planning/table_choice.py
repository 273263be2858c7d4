"""When tables of the optimal randomiser are worth choosing in place of a uniform prior.

``mechanism = "auto"`` takes the design with the least score (`planner`) of both kinds, tables only
where they can be had, and only where they gain something worth having: the uniform prior is simpler
to explain, and quicker. What :data:`LEAST_GAIN` less noise would bring to every effect is the least
gain in the score that counts. So rounding errors, and those of what is interpolated, choose
nothing, and where noise is a small part of an error, so is the gain that is asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, isinf

import numpy as np

from privatizers.optimal_response.programme import MOST_INPUTS
from privatizers.planning.noise.response_noise import DividedEpsilon
from privatizers.planning.predicted_variance import HalfWidths
from privatizers.planning.predictions import PredictedEffect
from privatizers.planning.question import Option, PlannedMechanism
from schemas.arrays import Floats, Ints

MANY_POINTS = 12
"""Grids of more points are tried for tables only if the finest up to here gains enough."""

LEAST_GAIN = 0.02
"""The part of the noise that tables have to save at least."""


@dataclass(frozen=True)
class Splits:
    """Every split of ε that was tried on a grid with a statistic; shape [J] each."""

    mechanism: PlannedMechanism
    grid: tuple[float, ...]
    divided: DividedEpsilon
    effects: list[tuple[int, float, PredictedEffect]]
    errors: Floats
    """Σ ln V by the declared guess."""
    widths: list[HalfWidths]
    """Of every effect, by every guess; the score is Σ ln W²."""
    noise_shares: Floats

    def best(self, among: Ints) -> tuple[int, float]:
        """Return the first of these splits with the least score, to nine digits, and its score."""
        least = _score([one.least[among] for one in self.widths])
        first = among[[int(np.argmin(least))]]
        near = among[least <= self._scores(first)[0] + 1e-9]
        scores = self._scores(near)
        place = int(np.argmin(np.round(scores, 9)))
        return int(near[place]), float(scores[place])

    @property
    def least(self) -> float:
        """The least score of all."""
        return self.best(np.arange(len(self.errors)))[1]

    def _scores(self, splits: Ints) -> Floats:
        return _score([one.at(splits) for one in self.widths])


def _score(half_widths: Sequence[Floats]) -> Floats:
    found: Floats = np.sum([np.log(one**2) for one in half_widths], axis=0)
    return found


def try_tables(
    grids: Sequence[tuple[float, ...]], attempt: Callable[[tuple[float, ...]], list[Splits]]
) -> list[Splits]:
    """Try the grids that tables are solved for: fine ones if the one before these was worth it.

    Fine grids take long, in a plan and in a release. One of them may fit a guess by chance less
    well than a coarser one, so they are tried together. What an ``attempt`` finds of a grid is one
    or more splits of ε.
    """
    in_order = sorted((one for one in grids if len(one) <= MOST_INPUTS), key=len)
    coarse = [grid for grid in in_order if len(grid) <= MANY_POINTS] or in_order[:1]
    found = [attempt(grid) for grid in coarse]
    tried = [splits for of_grid in found for splits in of_grid]
    if len(found) > 1:
        least = [min(splits.least for splits in of_grid) for of_grid in found]
        share = float(np.min([splits.noise_shares.min() for splits in tried]))
        if min(least[:-1]) - least[-1] <= LEAST_GAIN * share:
            return tried
    return tried + [splits for grid in in_order[len(coarse) :] for splits in attempt(grid)]


def simpler_first(ranked: Sequence[Option]) -> list[Option]:
    """Return designs, best first, with the best uniform prior first if tables gain too little."""
    tables, uniform = _best_of_each(ranked)
    if not uniform or not tables or worth_tables(tables, uniform):
        return list(ranked)
    return [*uniform, *(one for one in ranked if one is not uniform[0])]


def choice_reason(ranked: Sequence[Option], refused: str | None) -> str:
    """Say why the first of designs for one outcome was chosen; ``refused`` is :func:`no_tables`."""
    return refusal(refused) if refused is not None else reason(*_best_of_each(ranked))


def refusal(why: str) -> str:
    """Say that tables were not looked at, and why."""
    return f"cluster-optimal-dp is not considered: {why}"


def _best_of_each(ranked: Sequence[Option]) -> tuple[list[Option], list[Option]]:
    best = sorted(ranked, key=lambda design: design.score)
    tables = [one for one in best if one.mechanism == "cluster-optimal-dp"]
    return tables[:1], [one for one in best if one.mechanism == "uniform-prior-dp"][:1]


def worth_tables(tables: Sequence[Option], uniform: Sequence[Option]) -> bool:
    """Whether tables gain enough: the best designs of each kind, one for each outcome."""
    gain = sum(one.score for one in uniform) - sum(one.score for one in tables)
    return gain > LEAST_GAIN * sum(one.noise_share for one in uniform)


def reason(tables: Sequence[Option], uniform: Sequence[Option]) -> str:
    """Say why one kind was chosen of the two, for one outcome or for several together."""
    if not worth_tables(tables, uniform):
        return f"what cluster-optimal-dp brings is worth less than {LEAST_GAIN:.0%} of the noise"
    gain = sum(one.score for one in uniform) - sum(one.score for one in tables)
    if isinf(gain):
        return "standard errors with uniform-prior-dp would be too far above the least possible"
    ratio = exp(-gain / (2.0 * sum(one.n_widths for one in tables)))
    return f"intervals are predicted to be {ratio:.2f} times as wide as with uniform-prior-dp"
