"""What several commands say alike: what privacy costs, what was paid, and who is in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from flows.runtime.terminal import pairs, paragraph, table
from privatizers.accounting.budget import NO_LIMIT, Budget, total

if TYPE_CHECKING:
    from flows.ledger.statement import Statement
    from schemas.roster import Roster
R = TypeVar("R")


def table_of(rows: Iterable[R], cells: Mapping[str, Callable[[R], str]]) -> list[str]:
    """A table of ``rows``: what makes a cell of one, by the heading of its column."""
    return table(tuple(cells), [[cell(row) for cell in cells.values()] for row in rows])


def made_lines(what: str, status: str, done: str = "published") -> list[str]:
    """That something was made just now, or was there already."""
    unchanged = " already, from the same rows and settings: unchanged, nothing was drawn or charged"
    return paragraph(f"{what} is {done}{unchanged * (status == 'unchanged')}.")


def reason_lines(reasons: Mapping[str, str | None]) -> list[str]:
    """Why each of several stands as it does, its sentences one after the other; none: no lines."""
    told = {name: reason.replace("\n", " ") for name, reason in reasons.items() if reason}
    return ["", *pairs(told)] if told else []


def meaning(epsilon: float, delta: float, *, private_clusters: bool = False) -> str:
    """What a price means, as a sentence."""
    other = "another outcome and cluster" if private_clusters else "another outcome"
    further = f", and by a further {delta:g}" if delta else ""
    factor = math.exp(epsilon) if epsilon < 700 else math.inf
    if factor >= 1e6:
        return f"{other} of one unit could change the odds of this file beyond all bounds{further}"
    return (
        f"{other} of one unit would change the probability of this file by {factor:.3g} "
        f"times at most{further}"
    )


def paid_text(statement: Statement) -> str:
    """What the member of the population has paid that has paid most."""
    many = statement.n_releases
    by = "by a unit in its one release" if many == 1 else f"by a unit in all {many:,} releases"
    of_all = total(entry.cost for entry in statement.entries if entry.counts)
    if statement.spent != of_all:
        by = f"by whoever has paid most in {many:,} releases"
    paid = amounts_text(statement.spent, statement.terms.limit)
    return f"{paid}, {by}" if many else paid


def amounts_text(amounts: Budget, of: Budget = NO_LIMIT) -> str:
    """Each amount by its name, and ``of`` what limit; what is endless goes without saying."""
    from flows.ledger.rules import amount_text

    parts = []
    for name in ("epsilon", "delta"):
        amount, limit = getattr(amounts, name), getattr(of, name)
        if math.isinf(amount) or (name == "delta" and not amount and math.isinf(limit)):
            continue
        declared = "" if math.isinf(limit) else f" of {amount_text(limit)}"
        parts.append(f"{name} {amount_text(amount)}{declared}")
    return ", ".join(parts)


def roster_pairs(roster: Roster) -> dict[str, str]:
    """Who is in, who was set aside and why."""
    rules = ", ".join(f"{name} {n:,}" for name, n in roster.quarantined_by_rule.items())
    unused = f"{roster.repeats.n_unused:,}: after the first of a unit with several"
    return {
        "units": f"{roster.n_units:,} in {roster.n_clusters:,} clusters",
        "rows set aside": f"{roster.quarantined:,}" + f" ({rules})" * bool(roster.quarantined),
        **({"rows not used": unused} if roster.repeats.n_unused else {}),
    }
