"""Cluster-Optimal-DP of two outcomes that are drawn together: one output a unit tells of both.

Each outcome has a statistic of its own, and what both leave of ε goes into one table of pairs
(`pair_table`), for the declared guesses: nothing is learnt. Guarantee, for everything of both
outcomes together: ε = ε_1 + ε_2 + ε_T, δ = 0, ε_i being what the statistic of outcome i costs, and
ε_T what the table keeps (`paired_optimal_dp.md` has the proof).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privatizers.accounting.accountant import pure_epsilon
from privatizers.accounting.events import BoundedResponse, Together
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.parameters import event_of, statistics_event
from privatizers.optimal_response.pair_table import PairTable, pair_table
from privatizers.optimal_response.pairs import PairedGrid
from privatizers.optimal_response.response import OptimalResponse
from schemas.arrays import Floats


@dataclass(frozen=True)
class PairedOptimalDP(ClusterOptimalDP):
    """What is published of one of two outcomes that are drawn together.

    ``parameters.response_epsilon`` is what the table of both keeps. A position of its response is
    that of a pair of values, the second outcome running fastest.
    """

    pair: tuple[PairedGrid, PairedGrid]
    """Both outcomes."""
    place: int
    """Which of them this is, 0 or 1."""

    def __post_init__(self) -> None:
        """Refuse parameters of another outcome, or of another table."""
        own, table = self.pair[self.place], self.table
        known = (self.parameters.grid, self.parameters.guess, self.parameters.response_epsilon)
        if known != (own.values, own.guess, table.epsilon) or self.parameters.learns:
            raise ValueError("parameters are not those of the pair")

    @property
    def table(self) -> PairTable:
        """The table that both outcomes are drawn from."""
        return pair_table(*self.pair)

    @property
    def partner(self) -> PairedGrid:
        """The other outcome."""
        return self.pair[1 - self.place]

    def _occurrences(self, guess: Floats) -> Floats:
        """As :class:`ClusterOptimalDP`, of pairs: the other is spread like its own guess.

        It is taken to be so independently of this one.
        """
        other = np.array(self.partner.guess)
        both = (guess, other) if self.place == 0 else (other, guess)
        return np.outer(*both).ravel()

    @property
    def has_published_tables(self) -> bool:
        """Never: the table of both is one for all strata."""
        return False

    def _public(self, n_strata: int) -> OptimalResponse:
        side = self.table.sides[self.place]
        return OptimalResponse((side,), np.zeros(n_strata, dtype=np.int64))


def drawn_together(
    first: ClusterOptimalDP, second: ClusterOptimalDP
) -> tuple[PairedOptimalDP, PairedOptimalDP]:
    """Return two mechanisms as they are where their tables become one at the sum of their ε.

    Raises:
        ValueError: There are too many pairs of values, no table keeps this ε, or counts of arms are
            published, from which nothing would be learnt.
    """
    one, other = (
        PairedGrid(own.grid, own.guess, own.response_epsilon)
        for own in (first.parameters, second.parameters)
    )
    pair = (one, other)
    whole = pair_table(*pair).epsilon
    drawn = tuple(
        PairedOptimalDP(replace(own.parameters, response_epsilon=whole, learns=False), pair, place)
        for place, own in enumerate((first, second))
    )
    return drawn[0], drawn[1]


def check_pairing(mechanisms: Sequence[object]) -> None:
    """Raise AssertionError unless the mechanisms of a release are the two of one pair, or of none.

    One of a pair without the other would be drawn from a table that is not its own.
    """
    paired = [one for one in mechanisms if isinstance(one, PairedOptimalDP)]
    if not paired:
        return
    if len(paired) != len(mechanisms) or [one.place for one in paired] != [0, 1]:
        raise AssertionError("outcomes that are drawn together are two, in their order")
    if paired[0].pair != paired[1].pair:
        raise AssertionError("outcomes that are drawn together are those of one table")


def price_together(first: PairedOptimalDP, second: PairedOptimalDP) -> float:
    """Return the pure ε of everything of both outcomes, of which the response is one."""
    events = (statistics_event(own.parameters) for own in (first, second))
    response = BoundedResponse(first.table.epsilon)
    return pure_epsilon(Together((*(one for one in events if one is not None), response)))


def own_price(mechanism: PairedOptimalDP) -> float:
    """Return the pure ε of what is published of one outcome, the outputs of both included."""
    return pure_epsilon(event_of(mechanism.parameters))
