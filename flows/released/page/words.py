"""How a page shows names and numbers: parts of a page that hold no markup of anybody else's.

What people named, and numbers with their exact values, are made into markup here and nowhere else.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from flows.released.page.scale import PLAIN, Scale

_UNSEEN = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
"""Controls, halves of signs, what no XML may hold, and marks that turn the direction of the text
behind them; scripts are read rightly without."""
NONE = "–"


def clean(text: str) -> str:
    """``text`` with a sign in place of what no page may hold, nobody could see, or turns text."""
    return _UNSEEN.sub("\ufffd", text)


def short(label: str, most: int = 26) -> str:
    """A name that fits into a figure or the head of a column; the tables have it in full."""
    return clean(label if len(label) <= most else label[: most - 1] + "…")


def said(*parts: object) -> Markup:
    """Texts, and parts that are markup already, one after the other."""
    return Markup("").join(
        escape(one if hasattr(one, "__html__") else clean(str(one))) for one in parts
    )


def name(text: str) -> Markup:
    """What people named, kept apart from the direction in which the text around it is read."""
    return Markup("<bdi>{}</bdi>").format(clean(text))


def names(found: Iterable[object], most: int = 6) -> Markup:
    """Names as a list in a sentence; of more than ``most`` how many more there are."""
    every = [said(one) for one in found]
    if len(every) > most:
        every = [*every[: most - 1], said(f"{len(every) - most + 1:,} more")]
    return listed(every)


def listed(parts: Sequence[Markup]) -> Markup:
    """Parts of a sentence as a list in it."""
    *first, last = parts
    return said(Markup(", ").join(first), " and " if first else "", last)


def exactly(value: float, text: str) -> Markup:
    """A number as it is shown, with its exact value in the page."""
    exact = repr(value) if isinstance(value, int) else repr(float(value))
    return Markup('<data value="{}">{}</data>').format(exact, text)


def shown(value: float, digits: int = 4) -> str:
    """A number as people read it."""
    return f"{value + 0.0:.{digits}g}".replace("-", "−")


def fixed(value: float, decimals: int, *, sign: bool = False) -> str:
    """A number with as many decimals as those beside it; ``sign`` gives it one above zero, too."""
    plus = "+" if sign else ""
    if decimals > 6 or abs(value) >= 1e9:
        return f"{value:{plus}.3g}".replace("-", "−")
    rounded = round(value, decimals) + 0.0
    plus = plus if rounded else ""
    return f"{rounded:{plus},.{decimals}f}".replace("-", "−")


def decimals_for(size: float, digits: int = 2) -> int:
    """How many decimals show ``digits`` digits of a number of this size."""
    return max(digits - 1 - math.floor(math.log10(size)), 0) if 0 < size < math.inf else 0


def number(value: float | None, digits: int = 4) -> Markup:
    """A number, or a dash where there is none."""
    return scaled(None if value is None or math.isnan(value) else value, PLAIN, digits)


def scaled(value: float | None, scale: Scale, digits: int = 3) -> Markup:
    """A number in the unit in which its metric is shown, without the unit."""
    return said(NONE) if value is None else exactly(value, shown(scale.factor * value, digits))


def between(lower: float | None, upper: float | None, scale: Scale) -> Markup:
    """From where to where, both in the unit of the metric."""
    if lower is None or upper is None:
        return said(NONE)
    return said(scaled(lower, scale), " to ", scaled(upper, scale))


def percent(share: float | None, digits: int = 3) -> Markup:
    """A share in per cent."""
    return said(NONE) if share is None else exactly(share, f"{shown(100 * share, digits)}\u00a0%")


def relative(share: float | None) -> Markup:
    """A relative effect in per cent, without the sign of it."""
    return said(NONE) if share is None else exactly(share, relative_words(share)[:-2])


def relative_words(share: float | None) -> str:
    """A relative effect in per cent, with its sign."""
    if share is None:
        return f"relative {NONE}"
    digits = 3 if abs(share) >= 1 else 2
    return f"{'+' if share > 0 else ''}{shown(100 * share, digits)}\u00a0%"


def grouped(value: float) -> str:
    """A number of units, with all of its digits, as people read it."""
    return f"{value:,}".replace("-", "−")


def count(value: int | None) -> Markup:
    """A number of units, or a dash where it is not known."""
    return said(NONE) if value is None else exactly(value, grouped(value))


def counted(value: int, what: str) -> str:
    """A number and what there is of it, in the plural where it is not one."""
    return f"{grouped(value)} {what}{'' if value == 1 else 's'}"


def cells(row: object, scale: Scale, *fields: str) -> list[Markup]:
    """Return the cells of an estimate, by its fields; those called "ci" are intervals."""
    known = row if isinstance(row, Mapping) else vars(row)
    return [_cell(known, scale, one) for one in fields]


def _cell(row: Mapping[str, Any], scale: Scale, field: str) -> Markup:
    if field.endswith("ci") or field == "ci_always":
        low, high = (row[field.replace("ci", f"ci_{end}")] for end in ("lower", "upper"))
        if field == "relative_ci" and low is not None:
            return said(relative(low), " to ", relative(high))
        return between(low, high, scale)
    value = row[field]
    if field == "relative":
        return relative(value)
    if field == "n_units":
        coverage = row.get("coverage")
        partly = coverage is not None and coverage < 1
        return said(count(value), " (", percent(coverage), ")") if partly else count(value)
    return number(value, 2) if field.startswith("p_value") else scaled(value, scale)


def called(scale: Scale) -> Markup:
    """What a metric is called at the beginning of a line or sentence."""
    return name(scale.label) if scale.label else said(scale.subject[0].upper(), scale.subject[1:])


def in_step(scale: Scale, before: str = "\u00a0") -> Markup:
    """The unit of a metric's effects, with what stands ``before`` it; nothing where it has none."""
    return said(before, name(scale.step)) if scale.step else said()


def over(scale: Scale, arm: str | None = None) -> Markup:
    """What stands over rows of a table on a metric: its name and unit, and an arm."""
    of_arm = "" if arm is None else said(", ", name(arm))
    return said(called(scale), of_arm, said(" (", name(scale.step), ")") if scale.step else "")


def first_of(listed: int, total: int, what: str) -> str:
    """Return what a table leaves out, if anything."""
    return f" The first {listed} of {total:,} {what}." if total > listed else ""


def estimator_name(one: str, statistic: str) -> str:
    """What an estimator uses, in words; ``statistic`` is what the release publishes of pools."""
    names = {
        "combined": "Both combined",
        "tau_q": "Randomised outcomes",
        "histogram": "Noisy means" if statistic == "means" else "Noisy counts",
        "horvitz_thompson": "Noisy differences",
    }
    return names.get(one, one)


def rounded_up(share: float) -> str:
    """A bound from above in per cent, rounded up."""
    return "over 99.9\u00a0%" if share > 0.999 else f"{math.ceil(1000 * share) / 10:g}\u00a0%"


def rounded_down(share: float) -> str:
    """A bound from below in per cent, rounded down."""
    return "under 0.1\u00a0%" if share < 0.001 else f"{math.floor(1000 * share) / 10:g}\u00a0%"


def level_words(level: float) -> str:
    """A confidence level as people read it."""
    return f"{100 * level:g}\u00a0%"


def share_bar(share: float) -> Markup:
    """A share as a bar below its number."""
    return Markup('<i style="width: {:.1f}%"></i>').format(100 * min(max(share, 0.0), 1.0))
