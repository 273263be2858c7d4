"""``clusterdp ledger``."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context
from functools import partial
from typing import TYPE_CHECKING

from flows.cli.answer import Answer
from flows.cli.options import ConfigFile
from flows.cli.show.words import amounts_text, paid_text, table_of
from flows.runtime.terminal import pairs, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.ledger.rules import Entry
    from flows.ledger.statement import Statement


def ledger(config: ConfigFile, everything: bool = False, abandon: str | None = None) -> Answer:
    """Show what was paid of the privacy budget, and what is left.

    The budget is of the people in the experiment, over all its releases.

    Reads CONFIG (of an experiment or of a site) and its ledger. Changes nothing, unless --abandon
    is given.

    Options:
        everything (--all): Show also charges that were given back.
        abandon (RELEASE_ID): First close the charge of a run that you know to be dead, on a machine
            that cannot be seen from here. It is given back only if nothing can have become public.
    """
    from flows.ledger.account import account_of

    name, account = account_of(config)
    notes: tuple[str, ...] = ()
    if abandon is not None:
        notes = (f"{shown(abandon)} is {account.abandon(abandon)} now",)
    statement = account.statement(exact=True)
    entries = [entry for entry in statement.entries if entry.counts or everything]
    totals = {**statement.as_json(), **statement.composed_json(), **statement.tally_json()}
    document = {"experiment": name, **totals, "entries": [entry.as_json() for entry in entries]}
    return Answer(partial(ledger_text, statement, entries), document, notes=notes)


def ledger_text(statement: Statement, entries: Sequence[Entry]) -> str:
    """What a population has paid, entry by entry."""
    from flows.ledger.rules import amount_text

    terms = statement.terms
    facts = {"paid": paid_text(statement), **_by_unit(statement)}
    if statement.composed is not None:
        composed = statement.composed
        up = Context(prec=4, rounding=ROUND_CEILING).create_decimal_from_float(composed.epsilon)
        facts["composed"] = (
            f"epsilon {up.normalize():f} at delta {amount_text(composed.delta)}, by optimal "
            "composition, if these charges were fixed in advance; the budget counts the sum"
        )
    left = amounts_text(terms.limit.left_after(statement.spent))
    facts["left"] = left or "no limit is declared (privacy.budget_epsilon)"
    facts["next release"] = amounts_text(terms.cost)
    charges = table_of(
        entries,
        {
            "release": lambda entry: entry.name.release_id,
            "epsilon": lambda entry: amount_text(entry.cost.epsilon),
            "delta": lambda entry: amount_text(entry.cost.delta),
            "state": _state_text,
            "charged (UTC)": lambda entry: f"{entry.created_at:%Y-%m-%d %H:%M}",
            "by": lambda entry: entry.host,
        },
    )
    lines = [f"population {terms.population!r}", "", *pairs(facts), ""]
    return "\n".join([*lines, *(charges if entries else ["Nothing was charged yet."])])


def _state_text(entry: Entry) -> str:
    noted = {"withdrawn": entry.withdrawal, "pruned": entry.pruned_at}
    return ", ".join([str(entry.state), *(word for word, at in noted.items() if at is not None)])


def _by_unit(statement: Statement) -> dict[str, str]:
    from flows.ledger.rules import amount_text

    counted = statement.tally
    if counted is None or not (counted.n_units or counted.lost):
        return {}
    lost = f"the lists of {len(counted.lost)} release(s) are lost" if counted.lost else ""
    if not counted.n_units:
        return {"units": f"{lost}: everybody pays for them"}
    median = f"the median of whom has paid epsilon {amount_text(counted.median_epsilon)}"
    return {"units": f"{counted.n_units:,}, {median}{lost and f'; {lost}'}"}
