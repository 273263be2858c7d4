"""What a plan is asked, and what it chooses among; nothing else enters it."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from estimators.published_guess import evened
from privatizers.domain.lattice import lattice_of
from privatizers.domain.strata import (
    PoolOf,
    Strata,
    clusters_together,
    lay_out,
    small_clusters_share,
)
from privatizers.optimal_response.programme import MOST_INPUTS
from privatizers.optimal_response.whole_numbers import MOST_EPSILON
from privatizers.planning.design import StatisticName, check_margins
from privatizers.planning.optimal_design import LEAST_EPSILON, LearnFrom
from privatizers.planning.predicted_variance import ContrastWeights, contrast_weights
from privatizers.planning.predictions import Prediction
from privatizers.planning.thinned_sizes import leaves_few, thinned_sizes
from schemas.arrays import Bools, Floats, Ints

PlannedMechanism = Literal["uniform-prior-dp", "cluster-optimal-dp"]
"""The mechanisms that designs can be planned for."""


@dataclass(frozen=True)
class GuessesWithin:
    """Guesses at how outcomes are spread in strata, those that are alike together."""

    guesses: Floats
    """Each adding up to one, shape [G, V]."""
    n_units: Ints
    """How many units are in strata with that guess, shape [G]."""

    def mean(self, of_each: Floats) -> float:
        """Return the mean over units of what each of the guesses has, shape [G]."""
        return float(self.n_units @ of_each / self.n_units.sum())


@dataclass(frozen=True)
class Question:
    """The request and the public facts; nothing else enters a plan."""

    epsilon: float
    delta: float
    values: Floats
    """The values that outcomes may have, increasing, the ends of the range included; shape [V]."""
    guess: Floats
    """The guess at the distribution of outcomes, adding up to one; shape [V]."""
    grids: tuple[tuple[float, ...], ...]
    """Grids to choose from, each with the ends of ``values``."""
    statistics: tuple[StatisticName, ...]
    """Statistics of the strata to choose from: ``counts``, ``means``, ``none``."""
    sizes: Ints
    """Units, shape [clusters, arms], control first."""
    min_stratum: int = 10
    same_shares: bool = False
    segment_shares: tuple[float, ...] = ()
    overall: bool = True
    """Whether the effect on everybody matters too; it is predicted in any case."""
    mechanism: PlannedMechanism | Literal["auto"] = "uniform-prior-dp"
    """What to plan for; "auto": whichever of them tells more."""
    table_grids: tuple[tuple[float, ...], ...] = ()
    """Grids to choose from for tables, where ``mechanism`` is "auto"; else all are ``grids``."""
    learn_from: LearnFrom = "auto"
    """Where tables of the optimal randomiser may be learnt from; ``auto``: what predicts best."""
    one_by_one: bool = True
    """Whether each unit was assigned by itself."""
    margin_shares: tuple[float, ...] = ()
    """The part of ``epsilon`` that pays for the sums of each margin."""
    within: "GuessesWithin | None" = None
    """What is guessed of strata by themselves; None for nothing."""
    even_part: float | None = None
    """η of a guess that was learnt from earlier releases: the least part of an even distribution
    that a plan is made with; 0 where it is in ``guess`` already. None for a declared guess, which
    nobody knows to be right: plans are made for a pessimistic one, too."""

    def with_part(self, even_part: float) -> "Question":
        """Return the question with this part of an even distribution in the guess."""
        left = 0.0 if even_part < 1.0 else None
        within = self.within
        if within is not None:
            within = replace(within, guesses=evened(within.guesses, even_part))
        return replace(self, guess=evened(self.guess, even_part), within=within, even_part=left)

    @property
    def beside_margins(self) -> "Question":
        """The question about what margins leave of ``epsilon``, on grids that they can have."""
        if not self.margin_shares:
            return self
        grids, of_tables = (
            tuple(grid for grid in each if lattice_of(grid) is not None)
            for each in (self.grids, self.table_grids)
        )
        if not grids:
            check_margins(self.margin_shares, None, self.epsilon)
        left = self.epsilon * (1.0 - sum(self.margin_shares))
        return replace(self, epsilon=left, margin_shares=(), grids=grids, table_grids=of_tables)

    def alone(self, mechanism: PlannedMechanism) -> "Question":
        """Return the question for one of the mechanisms of "auto"."""
        own = self.mechanism == "auto" and mechanism == "cluster-optimal-dp"
        return replace(self, mechanism=mechanism, grids=self.table_grids if own else self.grids)

    @cached_property
    def no_tables(self) -> str | None:
        """Why "auto" has no tables to choose; None where it has, and where they are named."""
        return no_tables(self) if self.mechanism == "auto" else None

    @cached_property
    def contrast_weights(self) -> list[ContrastWeights | None]:
        """The weights of every treatment arm, where small clusters share a pool."""
        return self.contrast_weights_in(small_clusters_share)

    @cached_property
    def segment_weights(self) -> dict[float, list[ContrastWeights | None]]:
        """The same within segments of the shares that leave few units in an arm of a cluster."""
        return self.segment_weights_in(small_clusters_share)

    def contrast_weights_in(self, pool_of: PoolOf) -> list[ContrastWeights | None]:
        """Return those of every treatment arm, for the pools of a mechanism."""
        return contrast_weights(
            self._strata(pool_of), None, self._together(pool_of), same_shares=self.same_shares
        )

    def segment_weights_in(self, pool_of: PoolOf) -> dict[float, list[ContrastWeights | None]]:
        """Return those within segments likewise, by the share of the segment."""
        return {
            share: contrast_weights(
                self._strata(pool_of),
                thinned_sizes(self.sizes, share),
                self._together(pool_of),
                same_shares=self.same_shares,
            )
            for share in self.segment_shares
            if leaves_few(self.sizes, share)
        }

    def _strata(self, pool_of: PoolOf) -> Strata:
        return lay_out([], [], self.sizes, pool_of(self.sizes, self.min_stratum))

    def _together(self, pool_of: PoolOf) -> Bools | None:
        """The clusters that count by an arm's own units; None for none."""
        if not (self.same_shares and self.one_by_one):
            return None
        return clusters_together(self.sizes, self.min_stratum, pool_of)

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of units whose effects are predicted; 1 for everybody."""
        return (1.0, *self.segment_shares)


@dataclass(frozen=True)
class Option:
    """A grid and a statistic, with the best split of ε for them."""

    grid: tuple[float, ...]
    strata_statistic: StatisticName
    statistic_share: float
    square_share: float
    predicted: tuple[Prediction, ...]
    score: float
    """Σ ln W² by the declared guess and by the pessimistic one; infinite for too great an error."""
    mechanism: PlannedMechanism
    noise_share: float
    """The part of each V that is not sampling's, added up likewise."""
    n_widths: int
    arms_share: float = 0.0
    """The part of ε that pays for noisy counts of arms, which tables are learnt from."""


def no_tables(*outcomes: Question) -> str | None:
    """Say why no tables can be chosen for all of these outcomes; None where they can be."""
    if not all(LEAST_EPSILON <= one.epsilon <= MOST_EPSILON for one in outcomes):
        return f"its tables are solved for epsilon from {LEAST_EPSILON:g} to {MOST_EPSILON:g}"
    if all(len(grid) == 2 for one in outcomes for grid in one.table_grids):
        return "of two outcomes, randomised response is the least noisy table"
    if not all(min(map(len, one.table_grids)) <= MOST_INPUTS for one in outcomes):
        return f"its tables have {MOST_INPUTS} outcomes at most"
    return None
