"""What may be told of a log: how many units there are and where, and what was set aside."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from estimators.special import chdtrc
from flows.config.model.declared import LogFacts
from flows.raw.units.rows import Rows
from schemas.errors import InputError, did_you_mean
from schemas.roster import Roster

_FEW = 10  # clusters, of which nothing is asked
_NOTHING = Roster(n_units=0, n_clusters=0, units_by_arm={}, quarantined=0)


def roster_of(
    facts: LogFacts, rows: Rows, by_rule: dict[str, int], others: Roster = _NOTHING
) -> Roster:
    """The facts about a log of which these rows are kept, and so many set aside by each rule.

    What is known of it besides is as in ``others``.
    """
    by_arm = dict(zip(rows.arms, rows.sizes.sum(axis=0).tolist(), strict=True))
    return replace(
        others,
        n_units=rows.n_units,
        # As many as are declared where they are private.
        n_clusters=len(rows.clusters) if facts.n_clusters is None else facts.n_clusters,
        units_by_arm=by_arm if facts.tells_arms else {},
        quarantined=sum(by_rule.values()),
        quarantined_by_rule=by_rule,
        sample_ratio_p=_sample_ratio(list(by_arm.values()), facts.shares),
        one_arm_question=_one_arm_question(rows) if facts.asks_for_groups else None,
    )


def _one_arm_question(rows: Rows) -> str | None:
    """Ask where most clusters have one arm each, as if arms had been given to whole clusters.

    With arms given unit by unit at the shares p_a of all units, a cluster of n has one arm with
    probability Σ p_aⁿ. Asked where clusters of two units and more are ten at least, over half of
    them have one arm, and that is over twice what is to be expected.
    """
    sizes = rows.sizes[rows.sizes.sum(axis=1) >= 2]
    n, alone = sizes.sum(axis=1), (sizes > 0).sum(axis=1) == 1
    if len(n) < _FEW or 2 * alone.sum() <= len(n):
        return None
    shares = rows.sizes.sum(axis=0) / rows.n_units
    lengths, times = np.unique(n, return_counts=True)
    expected = float((times * (shares[:, np.newaxis] ** lengths).sum(axis=0)).sum())
    if alone.sum() <= 2 * expected:
        return None
    return (
        f"{int(alone.sum()):,} of {len(n):,} clusters with two units and more have one arm alone. "
        "Were arms given to clusters, or to households or shops, and not to each unit? Then name "
        "that column with columns.assigned_by, or errors are too small, and let columns.cluster "
        "name larger groups or none, as effects are told within clusters"
    )


def _sample_ratio(observed: list[int], shares: tuple[float, ...] | None) -> float | None:
    """p-value of Pearson's χ² test of the arm sizes against the intended shares."""
    total = sum(observed)
    if shares is None or total == 0:
        return None
    expected = [share * total for share in shares]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(chdtrc(len(observed) - 1, statistic))


def check_faults(facts: LogFacts, roster: Roster, n_read: int) -> None:
    """Raise InputError where more rows have faults than ``quarantine.at_most`` allows.

    To be asked before any account is: who is left out for what was released before has no fault.
    The share is of the rows that were read, as a row without a unit belongs to none.
    """
    at_most = facts.at_most
    if at_most is None or roster.quarantined <= at_most * n_read:
        return
    by_rule = ", ".join(f"{name} {count:,}" for name, count in roster.quarantined_by_rule.items())
    raise InputError(
        f"quarantine.at_most: {roster.quarantined:,} of {n_read:,} rows "
        f"({100 * roster.quarantined / n_read:.3g} %) have a fault ({by_rule}), and "
        f"{100 * at_most:.3g} % may. No release is made, and nothing was charged. Mend the log, or "
        f"raise quarantine.at_most if these faults are as they should be{_of_repeats(roster)}",
        key="quarantine.at_most",
    )


def check_sample_ratio(facts: LogFacts, roster: Roster) -> None:
    """Raise InputError where arm sizes do not fit and ``arms.sample_ratio`` is "refuse"."""
    problem = roster.sample_ratio_problem
    if not facts.refuses_odd_arms or problem is None:
        return
    raise InputError(
        f"arms.sample_ratio: {problem}. No release is made, and nothing was charged. Find out what "
        "went wrong in the assignment or the log; if the shares were meant to be these, declare "
        "arms.shares",
        key="arms.sample_ratio",
    )


def check_left(
    facts: LogFacts,
    roster: Roster,
    n_read: int,
    undeclared: Callable[[], Iterable[str]] = tuple,
) -> None:
    """Fail where the log cannot be released; by public facts alone.

    ``undeclared`` tells the labels of arms that were set aside, one of which may be meant; of a
    site they are nobody's business.
    """
    aside = ", ".join(f"{name} {count:,}" for name, count in roster.quarantined_by_rule.items())
    short = [
        (arm, count) for arm, count in roster.units_by_arm.items() if count < facts.least_in_arm
    ]
    labels = list(undeclared()) if short and facts.tells_rows else []
    meant = {arm: "" if count else did_you_mean(arm, labels) for arm, count in short}
    if roster.n_units == 0 and not any(meant.values()):
        raise InputError(
            f"no row is left: all {n_read:,} were set aside ({aside}); "
            f"check columns and arms in the configuration{_of_repeats(roster)}"
        )
    for arm, count in sorted(short, key=lambda one: not meant[one[0]]):
        key = "arms.control" if arm == facts.arms[0] else "arms.treatments"
        has = f"{count} unit(s)" if count else "no units"
        raise InputError(
            f"{key}: the declared arm {arm!r} has {has} in this log"
            + ("; a trial takes 2 at least, for an effect with a variance" if count else "")
            + (f" (rows set aside: {aside})" if aside else "")
            + (meant[arm] or _of_repeats(roster)),
            key=key,
        )


def _of_repeats(roster: Roster) -> str:
    """The people who are lost as they have several rows, behind what is wrong; or nothing."""
    problem = roster.repeats.problem
    return "" if problem is None else f". {problem}"
