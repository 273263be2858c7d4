"""The answer of a release: its effects as rows, and in a sentence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from markupsafe import Markup

from estimators.arm_effects import Estimate
from estimators.coverage import LEAST_COVERAGE, is_skew
from estimators.decisions import Decision
from flows.released.estimates.by_attribute import AttributeEstimate
from flows.released.file.macros import LEVEL
from flows.released.page.contents import MOST_ARMS as MOST_PAIRED
from flows.released.page.contents import Contents, MetricContents
from flows.released.page.rows import (
    HIGHER,
    LOWER,
    NOT_CLEAR,
    Finding,
    Group,
    Head,
    Results,
    Verdict,
    by_interval,
    excludes_zero,
    results,
    unknown,
    unprotected,
)
from flows.released.page.scale import Scale
from flows.released.page.words import (
    called,
    counted,
    first_of,
    in_step,
    level_words,
    listed,
    name,
    names,
    said,
    short,
    shown,
)
from schemas.released import Metric, Ratio
from schemas.roster import SAMPLE_RATIO_ALARM

MOST_SEGMENTS: Final = 30
"""Segments that are shown; of more the largest."""
MOST_ARMS: Final = 4
"""Arms that effects by an attribute are shown of."""
_FEW: Final = 3
"""So many clear effects on a metric are told with their sizes."""
TOO_FEW: Final = "Too few of its units can be compared with control"
SKEW: Final = (
    "Its interval may not hold: few outcomes are unlike the others, and one arm is small. It shows "
    "neither an effect nor that there is none; take more units of the small arm."
)

Estimated = Mapping[str, Any]
"""An estimate, by its fields."""


def verdict_of(
    row: Estimated, p_value: float | None = None, n_among: int = 1, what: str = ""
) -> Verdict:
    """Return the verdict on an effect: its interval and Holm's p-value have to leave zero out.

    ``p_value`` is adjusted for ``n_among`` comparisons, ``what`` names them. None: it is not.
    """
    low, high = row["ci_lower"], row["ci_upper"]
    if row["estimate"] is None or low is None:
        return unknown()
    if is_skew(row["skewness"]):
        return unknown(SKEW)
    holds = p_value is None or p_value < 1 - row["confidence_level"]
    if holds or not excludes_zero(low, high):
        return by_interval(low, high)
    note = f"Its interval leaves zero out, but of {n_among} {what} one may do so by chance (Holm)."
    return replace(NOT_CLEAR, note=note)


def decided(plain: Verdict, decision: Decision | None, direction: str | None) -> Verdict:
    """Return the verdict in the words of what was declared of the metric beforehand."""
    if plain.sign == "none":
        return plain
    if decision is not None and decision.role == "guardrail":
        return HOLDS if decision.verdict == "not worse than the margin" else FAILS
    if decision is not None and decision.verdict == "undecided":
        plain = plain if plain.note else NOT_CLEAR
    elif decision is not None:
        is_up = (decision.verdict == "better") == (decision.direction == "increase")
        plain = HIGHER if is_up else LOWER
    if direction is None or not plain.is_clear:
        return plain
    is_good = (plain.sign == "up") == (direction == "increase")
    return replace(plain, word="better" if is_good else "worse", tone="up" if is_good else "down")


HOLDS: Final = Verdict("holds", "holds", "up")
FAILS: Final = Verdict("fails", "not shown to hold", "down")


def finding(
    row: Estimated,
    named: object,
    verdict: Verdict,
    limits: tuple[float, float] = (-math.inf, math.inf),
    **more: Any,
) -> Finding:
    """Return an estimate as a row; a mean outside ``limits``, the metric's range, is not shown."""
    base, estimate = row.get("control_mean"), row["estimate"]
    new = None if base is None or estimate is None else base + estimate
    return Finding(
        name=named,
        verdict=verdict,
        estimate=estimate,
        low=row["ci_lower"],
        high=row["ci_upper"],
        unprotected=unprotected(row["std_error"], row["privacy_std_error"]),
        base=base,
        new=new if new is not None and limits[0] <= new <= limits[1] else None,
        relative=row.get("relative"),
        of=row,
        **more,
    )


@dataclass(frozen=True)
class Answered:
    """A metric with one effect an arm to read, the sharpest."""

    contents: MetricContents
    group: Group

    @property
    def leads(self) -> list[Estimated]:
        """The estimates behind the findings; fewer where arms have none."""
        return [one.of for one in self.group.findings if one.of is not None]

    @property
    def few(self) -> list[Estimated]:
        """Estimates that compare few of the people."""
        return [one for one in self.leads if (one["coverage"] or 1.0) < LEAST_COVERAGE]


def answered(contents: Contents, one: MetricContents) -> Answered:
    """Return a metric's effects against control, in its own unit."""
    metric = one.metric
    leads = {row["arm"]: row for row in reversed(one.estimates)}  # of an arm the first counts
    rows = contents.decisions.rows if contents.decisions else ()
    decisions = {row.arm: row for row in rows if row.metric == metric.metric}
    is_doubtful = (contents.manifest.sample_ratio_p or 1.0) < SAMPLE_RATIO_ALARM
    why = TOO_FEW + (
        ", or the mean below the line is not told from zero." if isinstance(metric, Ratio) else "."
    )

    def of_arm(arm: str) -> Finding:
        row = leads.get(arm)
        if row is None:
            return Finding(name=name(arm), verdict=unknown(why))
        plain = verdict_of(row, row["p_value_holm"], len(leads), "arms")
        verdict = decided(plain, decisions.get(arm), metric.direction)
        if is_doubtful or (row["coverage"] or 1.0) < LEAST_COVERAGE:
            verdict = replace(verdict, word=f"{verdict.word}?")
        return finding(row, name(arm), verdict, one.limits)

    return Answered(one, group_of(metric, one.scale, [of_arm(arm) for arm in contents.arms[1:]]))


def group_of(metric: Metric | Ratio, scale: Scale, findings: Sequence[Finding]) -> Group:
    """Return effects on a metric as rows with one ruler."""
    sign = -1.0 if metric.direction == "increase" else 1.0
    return Group(
        name=called(scale),
        about=about(metric, scale),
        findings=findings,
        scale=scale,
        unit=scale.step,
        margin=None if metric.margin is None else sign * metric.margin,
    )


def about(metric: Metric | Ratio, scale: Scale) -> Markup:
    """In which unit a metric and effects on it are, and what was declared of it."""
    parts: list[object] = []
    if scale.unit == "%":
        parts.append("in %, effects in points")
    elif scale.unit or scale.is_average:
        average = "average" if scale.is_average else ""
        parts.append(said(average, " in " if scale.unit else "", name(scale.unit)))
    parts += ["ratio of means"] if isinstance(metric, Ratio) else []
    if metric.role == "guardrail" and metric.margin is not None:
        way = "lose" if metric.direction == "increase" else "gain"
        size = shown(scale.factor * metric.margin, 3)
        parts.append(said("guardrail, may ", way, " ", size, _unit(scale), " at most (dashed)"))
    elif metric.direction is not None:
        good = "more" if metric.direction == "increase" else "less"
        parts.append(f"{metric.role}, {good} is better")
    return Markup(" · ").join(map(said, parts))


def _unit(scale: Scale) -> Markup:
    return said("\u00a0points") if scale.unit == "%" else in_step(scale)


# in a sentence

_PARTS: Final = {
    "up": "is higher with ",
    "down": "is lower with ",
    "holds": "holds with ",
    "fails": "is not shown to hold with ",
    "calm": "not clear with ",
    "wait": "not yet clear with ",
    "none": "nothing can be told of ",
}
_STARTS: Final = {
    "wait": "Not yet clear: ",
    "calm": "No clear difference in ",
    "none": "Nothing can be told of ",
}


def answer(groups: Sequence[Group]) -> Markup:
    """Tell the clear effects first, then what is not clear; of each metric its arms."""
    told = list[Markup]()
    others: dict[str, list[Markup]] = {sign: [] for sign in _STARTS}
    for group in groups:
        signs = {one.verdict.sign for one in group.findings}
        if signs - {*others}:
            told.append(_sentence(group))
        else:
            sign = next(one for one in others if one in signs or one == "none")
            others[sign].append(
                name(group.scale.label) if group.scale.label else said(group.scale.subject)
            )
    for sign, start in _STARTS.items():
        if others[sign]:
            told.append(said(start, listed(others[sign]), "."))
    return Markup(" ").join(told)


def _sentence(group: Group) -> Markup:
    is_few = sum(one.verdict.is_clear for one in group.findings) <= _FEW
    parts: list[Markup] = []
    for sign, words in _PARTS.items():
        of_sign = [one for one in group.findings if one.verdict.sign == sign]
        if of_sign and sign in ("up", "down") and is_few:
            told = [
                said(
                    group.shown(abs(one.estimate or 0.0)),
                    " with " if at else said(_unit(group.scale), words.removeprefix("is")),
                    one.name,
                )
                for at, one in enumerate(of_sign)
            ]
            parts.append(said("is ", listed(told)))
        elif of_sign:
            parts.append(said(words, names([one.name for one in of_sign])))
    is_doubtful = any(one.verdict.word.endswith("?") for one in group.findings)
    return said(group.name, " ", Markup("; ").join(parts), "?" if is_doubtful else ".")


def main_rows(contents: Contents, found: Sequence[Answered]) -> Results:
    """Return the rows of all metrics, against control."""
    control = name(contents.manifest.control)
    head = Head(said("Effects against ", control), "Arm", control, level_words(LEVEL))
    return results("rows", [one.group for one in found], head)


# arms against each other, and attributes


@dataclass(frozen=True)
class Compared:
    """Effects besides those on everybody against control, in groups and as rows."""

    title: object
    inside: str
    rows: Results | None = None
    """None where an attribute has too many values."""
    groups: Sequence[Group] = ()
    left_out: str = ""
    n_clear: int = 0


def between_arms(contents: Contents, found: Sequence[Answered]) -> Compared | None:
    """Return treatment arms against each other; None where there are no two."""

    def of_pair(row: Estimate, one: MetricContents) -> Finding:
        verdict = verdict_of(vars(row), row.p_value_holm, len(one.between), "comparisons")
        called = said(name(row.arm), " against ", name(row.control))
        return finding(vars(row), called, verdict, one.limits)

    groups = [
        _part(one, None, [of_pair(row, one.contents) for row in one.contents.between])
        for one in found
        if one.contents.between
    ]
    left_out = first_of(MOST_PAIRED, len(contents.arms) - 1, "treatment arms are compared")
    head = Head("Arm against arm", "Arms", "second", level_words(LEVEL))
    return _compared("between", head, groups, left_out) if groups else None


_DECLARED = (
    " Its values were declared beforehand: of each and every arm a noisy sum is published, so that "
    "these effects are sharper than those in other segments of as many people."
)


def by_attribute(
    contents: Contents, found: Sequence[Answered], attribute: str, anchor: str
) -> Compared:
    """Return effects by a published attribute, of all metrics."""
    estimates, groups = contents.by_attribute[attribute], list[Group]()
    for one in found:
        mine = [row for row in estimates if row.metric == one.contents.metric.metric]
        for arm in list(dict.fromkeys(row.arm for row in mine))[:MOST_ARMS]:
            rows = [row for row in mine if row.arm == arm]
            findings = [_of_segment(row, one.contents, len(rows)) for row in largest(rows)]
            groups.append(_part(one, arm, findings))
    n_segments = len({row.segment for row in estimates})
    left_out = first_of(MOST_ARMS, len({row.arm for row in estimates}), "arms are shown")
    if n_segments > MOST_SEGMENTS:
        left_out += f" The {MOST_SEGMENTS} largest of {n_segments:,} segments are shown."
    if attribute in contents.manifest.margins:
        left_out += _DECLARED
    title, control = said("By ", name(attribute)), name(contents.manifest.control)
    head = Head(title, name(short(attribute)), control, level_words(LEVEL))
    return (
        _compared(anchor, head, groups, left_out) if groups else Compared(title, "too many values")
    )


def _part(one: Answered, arm: str | None, findings: Sequence[Finding]) -> Group:
    """Effects on a metric, perhaps of an arm, which share a ruler with others on it."""
    of = one.group.name if arm is None else said(one.group.name, ", ", name(arm))
    unit = one.contents.metric.metric
    return replace(one.group, name=of, findings=findings, margin=None, unit=unit)


def _compared(anchor: str, head: Head, groups: Sequence[Group], left_out: str) -> Compared:
    every = [row for group in groups for row in group.findings]
    n_clear = sum(row.verdict.is_clear for row in every)
    rows = results(anchor, groups, head, most=MOST_SEGMENTS, few_rulers=True)
    inside = f"clear in {n_clear} of {counted(len(every), 'row')}"
    return Compared(head.caption, inside, rows, groups, left_out, n_clear)


def _of_segment(row: AttributeEstimate, one: MetricContents, n_segments: int) -> Finding:
    verdict = verdict_of(vars(row), row.p_value_holm_segments, n_segments, "segments")
    if row.estimate is None:
        verdict = unknown("Near zero below." if row.n_units else "Too few units.")
    called = name(row.segment or "")
    return finding(vars(row), called, verdict, one.limits, shrunken=row.shrunken)


def largest(rows: Sequence[AttributeEstimate]) -> Sequence[AttributeEstimate]:
    """Leave out the smallest segments, where there are more than a page has room for."""
    by_size = sorted(range(len(rows)), key=lambda at: (-rows[at].n_segment, at))
    return [rows[at] for at in sorted(by_size[:MOST_SEGMENTS])]
