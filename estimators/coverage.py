"""How many of the people that an estimate is meant for it compares, in words where they are few.

Clusters in which an arm has fewer than two units cannot be compared, so the effect does not speak
for the people in them, and its interval is wider than their number suggests.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from schemas.errors import shown

if TYPE_CHECKING:
    from estimators.arm_effects import Estimate  # numpy takes long

LEAST_COVERAGE: Final = 0.9
"""Where a smaller share of the people meant is compared, this is told."""

MOST_SKEWNESS: Final = 20**-0.5
"""Where the skewness of an estimate's law is greater in size, its interval may not hold.

Of 0 and 1 at a rate p it is at most 1/√(p n), n units in the smaller arm, so 20 events to be
expected in each arm are enough; with 8 in it, intervals were seen to cover 91.5 to 93.5 %.
"""


def remedy(*, same_shares: bool) -> str:
    """Return what to do where few are compared; ``same_shares`` as the release declares it."""
    if same_shares:
        return "take larger clusters or coarser segments"
    return (
        "arms.same_shares = true lets small clusters merge if all were randomised with the same "
        "arm shares; else take larger clusters or coarser segments"
    )


def coverage_warnings(estimates: Sequence["Estimate"], *, same_shares: bool) -> tuple[str, ...]:
    """Return sentences on effects that compare less than 90 % of their people, or have skew laws.

    An effect counts once, by its first estimator. Segments without anybody do not count.
    """
    return (*_few_compared(estimates, same_shares=same_shares), *_skew_laws(estimates))


def is_skew(skewness: float | None) -> bool:
    """Whether an estimate's law is too skew for its interval; None is not known."""
    return skewness is not None and abs(skewness) > MOST_SKEWNESS


def _skew_laws(estimates: Sequence["Estimate"]) -> tuple[str, ...]:
    found = [one for one in estimates if is_skew(one.skewness)]
    effects = {(one.metric, one.arm, one.segment): one for one in found}
    return tuple(
        f"{metric}: the interval of the effect of {shown(arm)}{_within(segment)} may not hold: "
        f"few outcomes are unlike the others, and one arm is small (skewness {one.skewness:.2g}). "
        "It may hold the truth far less often than it says, and shows neither an effect nor that "
        "there is none; take more units of the small arm"
        for (metric, arm, segment), one in list(effects.items())[:_MOST_NAMED]
    ) + (
        (f"and so for {len(effects) - _MOST_NAMED:,} more effects",)
        if len(effects) > _MOST_NAMED
        else ()
    )


_MOST_NAMED: Final = 3


def _within(segment: str | None) -> str:
    return "" if segment is None else f" in segment {shown(segment)}"


def _few_compared(estimates: Sequence["Estimate"], *, same_shares: bool) -> tuple[str, ...]:
    effects = {(one.metric, one.arm, one.segment): one for one in reversed(estimates)}.values()
    known = [one for one in effects if one.coverage is not None]
    few = [one for one in known if (one.coverage or 0.0) < LEAST_COVERAGE]
    if not few:
        return ()
    least = min(few, key=lambda one: one.coverage or 0.0)
    where = _within(least.segment)
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
