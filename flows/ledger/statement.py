"""What a population has paid and may still pay, as it is told to people and programs."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

from flows.config.model.declared import Terms
from flows.ledger.rules import Entry, spent
from flows.ledger.units.accounts import Tally
from privatizers.accounting.budget import Budget, total
from privatizers.accounting.composition import composed_epsilon
from privatizers.accounting.histories import History


@dataclass(frozen=True)
class Statement:
    """What a population has paid and may pay; ``entries`` are its own, the oldest first."""

    terms: Terms
    entries: tuple[Entry, ...]
    lost: frozenset[int] = frozenset()
    """Charges whose register cannot be read."""
    tally: Tally | None = None
    """What every unit has paid, where that was looked at."""

    @property
    def spent(self) -> Budget:
        """The most that a member of the population has paid, ε and δ each."""
        if not self.terms.by_unit:
            return total(entry.cost for entry in self.entries if entry.counts)
        if self.tally is not None:
            return self.tally.most
        return spent(self.entries, self.terms.population, self.lost)

    @property
    def n_releases(self) -> int:
        """How many charges make up what was spent."""
        return sum(entry.counts for entry in self.entries)

    @cached_property
    def composed(self) -> Budget | None:
        """What the dearest history comes to, had it been fixed in advance; see `composition`.

        At the budget's δ, or the sum's where that is greater or alone. None where it tells nothing
        that the sum does not: of one charge, without a δ, or less than a thousandth below the sum.
        """
        limit = self.terms.limit.delta
        delta = max(self.spent.delta, limit if limit < 1.0 else 0.0)
        if not 0.0 < delta < 1.0:
            return None
        epsilon = max(
            composed_epsilon(prices, delta) if len(prices) > 1 else total(prices).epsilon
            for prices in self._histories
        )
        return Budget(epsilon, delta) if epsilon < 0.999 * self.spent.epsilon else None

    @property
    def _histories(self) -> set[tuple[Budget, ...]]:
        """The prices of each history of releases that a member of the population has."""
        charges = [entry for entry in self.entries if entry.counts]
        lost = self.lost if self.tally is None else self.tally.lost
        by_unit = self.tally is not None and self.tally.n_units > 0
        common = [e.cost for e in charges if not by_unit or e.roster is None or e.id in lost]
        theirs: Iterable[History] = () if self.tally is None else self.tally.histories
        of_units = [
            [Budget(way.epsilon, way.delta) for way, n in history for _ in range(n)]
            for history in theirs
        ] or [[]]
        return {tuple(sorted(common + more, key=astuple)) for more in of_units}

    def composed_json(self) -> dict[str, float | None]:
        """The fields of ``clusterdp ledger --json`` on :attr:`composed`; null where it is None."""
        amount = self.composed
        return {
            "composed_epsilon": None if amount is None else amount.epsilon,
            "composed_delta": None if amount is None else amount.delta,
        }

    def tally_json(self) -> dict[str, float | int | None]:
        """What ``clusterdp ledger --json`` says of all units; null where it is not known."""
        tally = self.tally if self.tally is not None and self.tally.n_units else None
        return {
            "median_epsilon": None if tally is None else tally.median_epsilon,
            "n_units": None if tally is None else tally.n_units,
        }

    def as_json(self) -> dict[str, Any]:
        """The amounts, as ``clusterdp release --json`` gives them; null where no limit is set."""
        limit = self.terms.limit
        return {
            "population": self.terms.population,
            "spent_epsilon": self.spent.epsilon,
            "spent_delta": self.spent.delta,
            "budget_epsilon": None if limit.epsilon == float("inf") else limit.epsilon,
            "budget_delta": None if limit.delta == float("inf") else limit.delta,
            "n_releases": self.n_releases,
        }
