"""What to distrust: always the same checks in the same order, by public facts and the release."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from estimators.coverage import is_skew, remedy
from estimators.ends import ends_warnings
from flows.released.page.contents import Contents
from flows.released.page.results import Answered, called
from flows.released.page.rows import Sign
from flows.released.page.words import count, name, names, number, percent, said
from schemas.roster import SAMPLE_RATIO_ALARM

MUCH_ASIDE: Final = 0.05
"""Where a greater share of the rows was set aside, this is a warning."""
MOST_ARMS: Final = 12
_MOST_ENDS: Final = 6


@dataclass(frozen=True)
class Check:
    """What was looked at: fine, to be looked into with what to do, or not known."""

    sign: Sign
    head: object
    text: object = ""


def checks(contents: Contents, found: Sequence[Answered]) -> list[Check]:
    """Return all checks of a release."""
    every = [
        _arm_sizes(contents), *_coverage(contents, found), *_ends(contents, found), _skew(found),
        aside(contents.manifest.n_set_aside, contents.manifest.n_units),
    ]  # fmt: skip
    return [*every, *_groups(contents), *_returning(contents)]


def _arm_sizes(contents: Contents) -> Check:
    p_value = contents.manifest.sample_ratio_p
    sizes = [(arm, contents.sizes.get(arm, 0)) for arm in contents.arms]
    told = said(*[said(", " if at else "", name(arm), " ", count(size))
                  for at, (arm, size) in enumerate(sizes[:MOST_ARMS])])  # fmt: skip
    if p_value is None:
        why = "the shares that were intended are not declared (arms.shares). "
        return Check("none", "Arm sizes cannot be checked:", said(why, told, "."))
    if p_value < SAMPLE_RATIO_ALARM:
        head = said("Arm sizes do not fit the intended shares (sample ratio mismatch, p = ",
                    number(p_value, 2), ").")  # fmt: skip
        todo = (
            " Something else decides who is in which arm, or who is in the log, and the same may "
            "be behind an effect. Find out what, before an effect is believed."
        )
        return Check("alert", head, said(told, ".", todo))
    text = said(told, " (p = ", number(p_value, 2), ").")
    return Check("holds", "Arm sizes fit the intended shares:", text)


def _coverage(contents: Contents, found: Sequence[Answered]) -> list[Check]:
    few = [(one, row) for one in found for row in one.few]
    if few:
        return [
            Check(
                "alert",
                said("The effect of ", name(row["arm"]), " on ", called(one.contents.scale),
                     " compares only ", percent(row["coverage"]), " of the people."),
                said("Elsewhere an arm has fewer than two of them in a cluster. To compare more, ",
                     remedy(same_shares=contents.manifest.same_shares), "."),
            )
            for one, row in few[:3]
        ]  # fmt: skip
    known = [row["coverage"] for one in found for row in one.leads if row["coverage"] is not None]
    if not known:
        return [Check("none", "Nothing is compared:", "there is no estimate.")]
    least = min(known)
    head = "Everybody is compared:" if least == 1 else "Nearly everybody is compared:"
    return [Check("holds", head, said(percent(least), " of people."))]


def _ends(contents: Contents, found: Sequence[Answered]) -> list[Check]:
    warnings = ends_warnings(contents.ends)
    if warnings:
        return [Check("alert", "An outcome may be one value alone.", f"{one}.") for one in warnings]
    if not contents.ends:
        return [Check("none", "Outcomes cannot be looked at:", "nothing of them is told.")]
    metrics = {one.contents.metric.metric: one.contents for one in found}
    told = []
    for metric, ends in groupby(contents.ends, key=lambda one: one.metric):
        most = max(ends, key=lambda one: (one.share, one.end != "missing"))
        grid = metrics[metric].outcomes
        value = {"lowest": f"{grid[0]:g}", "highest": f"{grid[-1]:g}"}.get(most.end, most.end)
        subject = called(metrics[metric].scale)
        told.append(said(subject, f" is {value} in ", percent(most.share, 2)))
    listed = said(*[said("; " if at else "", one) for at, one in enumerate(told[:_MOST_ENDS])])
    why = ". If that cannot be, a column was misread."
    return [Check("holds", "Outcomes look as declared:", said(listed, why))]


def _skew(found: Sequence[Answered]) -> Check:
    arms = list(dict.fromkeys(row["arm"] for one in found for row in one.leads
                              if is_skew(row["skewness"])))  # fmt: skip
    if not arms:
        return Check("holds", "No interval leans:", "each can be taken at its word.")
    text = "Few outcomes are unlike the others, and one arm is small: take more units of it."
    head = said("The interval", "s" if len(arms) > 1 else "", " of ", names(arms), " may not hold.")
    return Check("alert", head, text)


def aside(n_aside: int | None, n_units: int) -> Check:
    """Return what is to be said of rows that were set aside."""
    if n_aside is None:
        return Check("none", "Rows set aside are not known.")
    if n_aside == 0:
        return Check("holds", "No row was set aside.")
    share = n_aside / max(n_aside + n_units, 1)
    much = " These are many: find out why, and whether the arms lost equally."
    return Check(
        "alert" if share > MUCH_ASIDE else "holds",
        said(count(n_aside), " rows were set aside,"),
        said(percent(share, 2), " of the log, by public rules and never for their outcomes.",
             much if share > MUCH_ASIDE else ""),
    )  # fmt: skip


def _groups(contents: Contents) -> list[Check]:
    if not contents.manifest.assigned:
        return []
    head = "Arms were given to groups of units."
    if not contents.is_clustered:
        text = (
            "The errors here count each unit by itself. If outcomes within a group are alike, "
            "intervals are too short."
        )
        return [Check("alert", head, text)]
    sizes = list((contents.assigned or {}).items())
    told = [said(", " if at else " ", name(arm), " ", count(size))
            for at, (arm, size) in enumerate(sizes[:MOST_ARMS])]  # fmt: skip
    number_of = count(sum(size for _, size in sizes))
    many = said(" There are ", number_of, " of them:", *told, ".") if sizes else ""
    return [Check("holds", head, said("Errors and intervals follow these groups.", many))]


def _returning(contents: Contents) -> list[Check]:
    manifest = contents.manifest
    if not manifest.n_returning:
        return []
    changed = manifest.n_arm_changed
    text = said(count(changed), " of them are in another arm now.") if changed else ""
    head = said(count(manifest.n_returning), " units were released before.")
    return [Check("alert" if changed else "holds", head, text)]
