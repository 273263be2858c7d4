"""How many of the people that an estimate is meant for it compares, in words where they are few.

Clusters in which an arm has fewer than two units cannot be compared, so the effect does not speak
for the people in them, and its interval is wider than their number suggests.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from schemas.errors import shown

if TYPE_CHECKING:
    from estimators.effects import Estimate  # scipy takes half a second

LEAST_COVERAGE: Final = 0.9
"""Where a smaller share of the people meant is compared, this is told."""


def remedy(*, same_shares: bool) -> str:
    """Return what to do where few are compared; ``same_shares`` as the release declares it."""
    if same_shares:
        return "take larger clusters or coarser segments"
    return (
        "arms.same_shares = true lets small clusters merge if all were randomised with the same "
        "arm shares; else take larger clusters or coarser segments"
    )


def coverage_warnings(estimates: Sequence["Estimate"], *, same_shares: bool) -> tuple[str, ...]:
    """Return a sentence on the effects that compare less than 90 % of their people, if any.

    An effect counts once, by its first estimator. Segments without anybody do not count.
    """
    effects = {(one.metric, one.arm, one.segment): one for one in reversed(estimates)}.values()
    known = [one for one in effects if one.coverage is not None]
    few = [one for one in known if (one.coverage or 0.0) < LEAST_COVERAGE]
    if not few:
        return ()
    least = min(few, key=lambda one: one.coverage or 0.0)
    where = "" if least.segment is None else f" in segment {shown(least.segment)}"
    share = f"{least.n_units:,} of {least.n_segment:,} people ({percent(least.coverage or 0.0)})"
    if len(few) == 1:
        subject = f"the effect of {shown(least.arm)}{where} compares only {share}"
    else:
        subject = (
            f"{len(few):,} of {len(known):,} effects compare less than "
            f"{percent(LEAST_COVERAGE)} of their people; the least, of {shown(least.arm)}"
            f"{where}, {share}"
        )
    return (
        f"{subject}: elsewhere an arm has fewer than two in a cluster. To compare more, "
        f"{remedy(same_shares=same_shares)}",
    )


def forecast_warning(coverage: float, whom: str, *, same_shares: bool) -> str:
    """Return a sentence on a forecast effect on ``whom`` that compares a share of the people."""
    return (
        f"the effect on {whom} is expected to compare only {percent(coverage)} of the people: "
        "elsewhere an arm has fewer than two in a cluster. To compare more, "
        f"{remedy(same_shares=same_shares)}"
    )


def percent(share: float) -> str:
    """Return a share in per cent, to three digits."""
    return f"{100 * share:.3g} %"


def segment_words(share: float | None) -> str:
    """Return whom a forecast effect is on: a segment that holds a share of the units, or all."""
    return "everybody" if share is None else f"a segment of {100 * share:g} %"
