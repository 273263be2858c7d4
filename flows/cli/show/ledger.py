"""What a population has paid and may still pay, as it is shown to people."""

import math
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, Any

from flows.ledger.rules import amount_text
from flows.runtime.terminal import pairs, table
from privatizers.accounting.budget import NO_LIMIT, Budget, total

if TYPE_CHECKING:
    from flows.ledger.rules import Entry
    from flows.ledger.statement import Statement


def ledger_document(name: str, statement: "Statement", *, everything: bool) -> dict[str, Any]:
    """The document of ``clusterdp ledger --json`` for the experiment, or site, of this name."""
    listed = [entry for entry in statement.entries if entry.counts or everything]
    entries = [entry.as_json() for entry in listed]
    totals = {**statement.as_json(), **statement.composed_json(), **statement.tally_json()}
    return {"experiment": name, **totals, "entries": entries}


def ledger_text(statement: "Statement", *, everything: bool) -> str:
    """What a population has paid, entry by entry."""
    terms = statement.terms
    listed = [entry for entry in statement.entries if entry.counts or everything]
    rows = [
        (
            entry.name.release_id,
            amount_text(entry.cost.epsilon),
            amount_text(entry.cost.delta),
            _state_text(entry),
            f"{entry.created_at:%Y-%m-%d %H:%M}",
            entry.host,
        )
        for entry in listed
    ]
    head = ("release", "epsilon", "delta", "state", "charged (UTC)", "by")
    left = terms.limit.left_after(statement.spent)
    return "\n".join(
        [
            f"population {terms.population!r}",
            "",
            *pairs(
                {
                    "paid": paid_text(statement),
                    **_by_unit(statement),
                    **_composed_pair(statement),
                    "left": _amounts(left) or "no limit is declared (privacy.budget_epsilon)",
                    "next release": _amounts(terms.cost),
                }
            ),
            "",
            *(table(head, rows) if rows else ["Nothing was charged yet."]),
        ]
    )


def _state_text(entry: "Entry") -> str:
    """How far a charge has come, and what was noted of its release since."""
    noted = [str(entry.state)]
    noted += ["withdrawn"] if entry.withdrawal is not None else []
    noted += ["pruned"] if entry.pruned_at is not None else []
    return ", ".join(noted)


def _by_unit(statement: "Statement") -> dict[str, str]:
    """What units have paid, where each has an account."""
    counted = statement.tally
    if counted is None:
        return {}
    if not counted.n_units:
        everybody = f"the lists of {len(counted.lost)} release(s) are lost: everybody pays for them"
        return {"units": everybody} if counted.lost else {}
    lost = f"; the lists of {len(counted.lost)} release(s) are lost" if counted.lost else ""
    return {
        "units": f"{counted.n_units:,}, the median of whom has paid epsilon "
        f"{amount_text(counted.median_epsilon)}{lost}"
    }


def _composed_pair(statement: "Statement") -> dict[str, str]:
    """What the charges come to by the tighter composition, rounded up to four digits."""
    composed = statement.composed
    if composed is None:
        return {}
    up = Context(prec=4, rounding=ROUND_CEILING).create_decimal_from_float(composed.epsilon)
    return {
        "composed": f"epsilon {up.normalize():f} at delta {amount_text(composed.delta)}, by "
        "optimal composition, if these charges were fixed in advance; the budget counts the sum"
    }


def paid_text(statement: "Statement") -> str:
    """What the member of the population has paid that has paid most."""
    many = statement.n_releases
    by = "by a unit in its one release" if many == 1 else f"by a unit in all {many:,} releases"
    of_all = total(entry.cost for entry in statement.entries if entry.counts)
    if statement.spent != of_all:
        by = f"by whoever has paid most in {many:,} releases"
    paid = _amounts(statement.spent, statement.terms.limit)
    return f"{paid}, {by}" if many else paid


def _amounts(amounts: Budget, of: Budget = NO_LIMIT) -> str:
    """Each amount by its name, and ``of`` what limit; what is endless goes without saying."""
    parts = []
    for name in ("epsilon", "delta"):
        amount, limit = getattr(amounts, name), getattr(of, name)
        if math.isinf(amount) or (name == "delta" and not amount and math.isinf(limit)):
            continue
        declared = "" if math.isinf(limit) else f" of {amount_text(limit)}"
        parts.append(f"{name} {amount_text(amount)}{declared}")
    return ", ".join(parts)
