"""What is asked of a ledger besides a charge: pure functions, as those of the rules are."""

from collections.abc import Iterable, Sequence

from flows.config.model.declared import Terms
from flows.ledger.rules import OPEN, ChargeRequest, Entry, check_budget, of_period, spent
from privatizers.accounting.budget import Budget


def refuse_early(
    entries: Sequence[Entry], terms: Terms, period: str, *, revise: bool = False
) -> None:
    """Raise BudgetError where no log could change that; so that no log is read in vain.

    A period that was released may turn out unchanged, and an unfinished run may turn out dead:
    neither is refused here.
    """
    if revise or not of_period(entries, terms.experiment, period):
        done = [entry for entry in entries if entry.state not in OPEN]
        if terms.by_unit:  # who is in the log, nobody knows yet
            done = [entry for entry in done if entry.roster is None]
        check_budget(done, terms.population, terms.cost, terms.limit)


def same_people(entries: Iterable[Entry], asked: ChargeRequest) -> dict[str, Budget]:
    """What other populations paid for releases of exactly the units that are asked for."""
    theirs = [
        entry
        for entry in entries
        if entry.population != asked.terms.population
        and entry.counts
        and entry.fingerprint is not None
        and entry.fingerprint.units == asked.fingerprint.units
    ]
    return {name: spent(theirs, name) for name in sorted({each.population for each in theirs})}
