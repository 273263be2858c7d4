"""Results as rows: verdict, arm, the interval drawn, effect, base and new; see ``rows.html``.

Texts are made here, places by rulers: a number x lies at zero + per · x per cent of a bar's width.
All rulers of a table have one zero, so that up and down are the same way everywhere.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median_low
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from flows.released.page.scale import PLAIN, Scale
from flows.released.page.words import decimals_for, fixed
from schemas.arrays import Floats

FEW_ROWS: Final = 8
"""Rows of a group that are open; more of them are folded."""
_MARGIN = 2.0
"""Per cent of a bar that stay free at its ends."""
_ZEROS = np.arange(4.0, 97.0)
_FARTHEST = 3.0
"""Times the usual reach of a row: what lies beyond is cut, with an arrow."""
_NARROWEST = 0.1
"""Part of a shared ruler that a group needs; else it has a ruler of its own."""
_TICK_ROOM, _LETTER = 270.0, 7.0  # pixels of a bar on a small phone, and of a letter on it
_STEPS = (1.0, 2.0, 2.5, 5.0)

Sign = Literal["up", "down", "calm", "wait", "holds", "fails", "none"]
Tone = Literal["up", "down", "calm"]


@dataclass(frozen=True)
class Verdict:
    """What is to be said of an effect, with a sign and a colour that say the same."""

    sign: Sign
    word: str
    tone: Tone = "calm"
    note: object = ""
    """A sentence below the row; empty where nothing is to be added."""

    @property
    def is_clear(self) -> bool:
        """Whether there is a difference."""
        return self.sign in ("up", "down")


HIGHER: Final = Verdict("up", "higher", "up")
LOWER: Final = Verdict("down", "lower", "down")
NOT_CLEAR: Final = Verdict("calm", "no clear difference")


def unknown(note: object = "", word: str = "cannot be told") -> Verdict:
    """Return the verdict on an effect that there is not, and why."""
    return Verdict("none", word, note=note)


def excludes_zero(low: float | None, high: float | None) -> bool:
    """Whether there is an interval, and zero lies without it."""
    return low is not None and high is not None and (low > 0 or high < 0)


def by_interval(low: float | None, high: float | None) -> Verdict:
    """Return the verdict of an interval that stands by itself."""
    if low is None or high is None:
        return unknown()
    return HIGHER if low > 0 else LOWER if high < 0 else NOT_CLEAR


def unprotected(std_error: float | None, privacy_std_error: float | None) -> float:
    """√(se² − privacy se²)/se, the share of an interval's width that is not due to privacy."""
    if std_error is None or not std_error > 0:
        return 1.0
    return math.sqrt(max(1 - ((privacy_std_error or 0.0) / std_error) ** 2, 0.0))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An effect in the outcome's unit; None where a number is not known."""

    name: object
    verdict: Verdict
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    unprotected: float = 1.0
    """Which share of the interval's width would remain without the noise of privacy."""
    always: tuple[float | None, float | None] = (None, None)
    """The interval for whoever looks every time."""
    base: float | None = None
    new: float | None = None
    relative: float | None = None
    shrunken: float | None = None
    """What stands in place of the relative effect, where it is known."""
    of: Mapping[str, Any] | None = None
    """The estimate, by its fields; None where there is none."""

    @property
    def ends(self) -> list[float]:
        """Every end that is drawn."""
        every = (self.estimate, self.low, self.high, *self.always)
        return [one for one in every if one is not None]

    @property
    def outer(self) -> tuple[float, float] | None:
        """The interval; None where there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def inner(self) -> tuple[float, float] | None:
        """What would remain of it without the noise of privacy; None for nothing."""
        if self.outer is None or self.estimate is None or not self.unprotected > 0:
            return None
        low, high = (self.estimate + self.unprotected * (one - self.estimate) for one in self.outer)
        return low, high

    @property
    def is_open(self) -> bool:
        """Whether zero is possible."""
        return not excludes_zero(self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Findings that have one ruler: a metric's arms, an arm's segments, the nights of an effect."""

    name: object
    about: object
    findings: Sequence[Finding]
    scale: Scale = PLAIN
    """In which unit numbers are shown."""
    unit: str = ""
    """Which groups share a ruler; empty for none."""
    margin: float | None = None
    """Where a guardrail breaks."""

    @cached_property
    def decimals(self) -> int:
        """How many decimals effects have: two digits of half the narrowest interval."""
        halves = [(one.outer[1] - one.outer[0]) / 2 for one in self.findings if one.outer]
        sizes = [abs(one.estimate) / 10 for one in self.findings if one.estimate]
        return decimals_for(self.scale.factor * min([*filter(None, halves)] or sizes or [1.0]))

    def shown(self, value: float, *, sign: bool = False) -> str:
        """Return an effect as it is shown, without its unit."""
        return fixed(self.scale.factor * value, self.decimals, sign=sign)

    def means(self, one: Finding) -> str:
        """Return the mean under control, and where it goes."""
        known = [self.scale.factor * value for value in (one.base, one.new) if value is not None]
        sign = "\u00a0%" if self.scale.unit == "%" else ""
        return " → ".join(f"{fixed(value, self._mean_decimals)}{sign}" for value in known)

    @cached_property
    def _mean_decimals(self) -> int:
        known = [
            abs(end) for one in self.findings for end in (one.base, one.new) if end is not None
        ]
        return decimals_for(self.scale.factor * max(known, default=0.0), 3)

    @property
    def span(self) -> tuple[float, float]:
        """How far it goes below and above zero; what is far beyond the usual is cut."""
        factor = self.scale.factor
        ends = [[factor * end for end in one.ends] for one in self.findings]
        reaches = [max(map(abs, one)) for one in ends if one]
        most = _FARTHEST * median_low(reaches) if reaches else 0.0
        known = [abs(factor * one.estimate) for one in self.findings if one.estimate is not None]
        most = max([most, *(1.05 * one for one in known)])
        limit = [] if self.margin is None else [factor * self.margin]
        every = [0.0, *(min(max(end, -most), most) for one in ends for end in one), *limit]
        return 0.0 - min(every), max(every)


class Head(NamedTuple):
    """What stands over a table of rows: what these are called ("Arm"), whose mean they begin at."""

    caption: object
    first: object
    control: object
    level: str


@dataclass(frozen=True)
class Ruler:
    """Where numbers lie on a bar: at zero + per · factor · x per cent; ticks are by factor · x."""

    zero: float
    per: float
    factor: float = 1.0

    def at(self, value: float) -> str:
        """Return the place of a number, in per cent of the width."""
        return f"{self.place(value):.1f}"

    def place(self, value: float) -> float:
        """Return the place of a number, at an end of the bar where it lies beyond."""
        return min(max(self.zero + self.per * self.factor * value, 0.0), 100.0)

    def stretch(self, ends: tuple[float, float]) -> tuple[str, str]:
        """Return from where on, and how wide, an interval is."""
        low, high = map(self.place, ends)
        return f"{low:.1f}", f"{high - low:.1f}"

    def cut(self, ends: tuple[float, float]) -> list[str]:
        """Return at which ends of the bar an interval goes on."""
        low, high = (self.zero + self.per * self.factor * end for end in ends)
        return ["left"] * (low < 0) + ["right"] * (high > 100)

    @property
    def ticks(self) -> list[tuple[str, str]]:
        """Places and labels of round numbers."""
        if not self.per > 0:
            return [(self.at(0.0), "0")]
        found = nice(-self.zero / self.per, (100.0 - self.zero) / self.per, _TICK_ROOM)
        return [(self.at(value / self.factor), label) for value, label in found]


def nice(low: float, high: float, room: float) -> list[tuple[float, str]]:
    """Return round numbers from ``low`` to ``high`` with signs, as many as ``room`` pixels have."""
    magnitude = 10.0 ** math.floor(math.log10(high - low))
    for step in (part * scale for scale in (magnitude / 10, magnitude) for part in _STEPS):
        decimals = next((n for n in range(7) if math.isclose(round(step, n), step)), 7)
        numbers = step * np.arange(math.ceil(low / step), math.floor(high / step) + 1)
        labels = [fixed(float(one), decimals, sign=True) if one else "0" for one in numbers]
        if len(labels) * (max(map(len, labels), default=0) + 2) * _LETTER <= room:
            return list(zip(numbers.tolist(), labels, strict=True))
    return [(0.0, "0")]


def rulers_of(groups: Sequence[Group]) -> list[Ruler]:
    """Rulers of groups; those in one unit share one."""
    spans = np.array([one.span for one in groups])
    for unit in {one.unit for one in groups} - {""}:
        same = np.array([one.unit == unit for one in groups])
        shared = spans[same].max(axis=0)
        wide = spans.sum(axis=1) >= _NARROWEST * shared.sum()
        spans[same & wide] = shared
    rulers = zip(placed(spans), groups, strict=True)
    return [replace(one, factor=group.scale.factor) if one.per else one for one, group in rulers]


def placed(spans: Floats) -> list[Ruler]:
    """Return rulers for ``spans``, how far each goes below and above zero, shape [G, 2].

    Their one zero is where it makes the narrowest as wide as it can be.
    """
    below, above = np.where(spans.sum(axis=1) > 0, spans.T, np.nan)
    with np.errstate(divide="ignore"):
        per = np.fmin(
            (_ZEROS[:, np.newaxis] - _MARGIN) / below, (100.0 - _MARGIN - _ZEROS)[:, None] / above
        )
    width = np.nan_to_num(per * (below + above), nan=np.inf).min(axis=1)
    best = int(width.argmax())
    return [Ruler(float(_ZEROS[best]), float(one)) for one in np.nan_to_num(per[best])]


class Results(NamedTuple):
    """A table of rows for ``rows.html``; apart those beyond as many as a group has open."""

    anchor: str
    head: Head
    zero: float
    groups: Sequence[Mapping[str, Any]]
    rest: Sequence[Mapping[str, Any]]


def results(
    anchor: str,
    groups: Sequence[Group],
    head: Head,
    most: int = FEW_ROWS,
    *,
    few_rulers: bool = False,
) -> Results:
    """Lay groups out as a table; rows beyond ``most`` of a group are given apart, as its rest.

    ``few_rulers``: of groups that share a ruler only the last one shows it.
    """
    rulers = rulers_of(groups)
    drawn, rest = list[dict[str, Any]](), list[dict[str, Any]]()
    for at, (group, ruler) in enumerate(zip(groups, rulers, strict=True)):
        mark = f"-{rulers.index(ruler) if few_rulers else at}"
        is_last = not few_rulers or ruler not in rulers[at + 1 :]
        one = {"group": group, "ruler": ruler, "mark": mark}
        drawn.append(one | {"rows": group.findings[:most], "has_ruler": is_last})
        if len(group.findings) > most:
            rest.append(one | {"rows": group.findings[most:], "has_ruler": True})
    return Results(anchor, head, rulers[0].zero, drawn, rest)
