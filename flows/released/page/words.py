"""How a page shows names and numbers: text that holds no markup, and needs none."""

import math
from unicodedata import category

_TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks that turn the direction of the text behind them; scripts are read rightly without."""
_NO_XML = "\ufffe\uffff"


def clean(text: str) -> str:
    """``text`` with a sign in place of what no page may hold, nobody could see, or turns text."""
    return "".join(
        "\ufffd" if category(one) in ("Cc", "Cs") or one in _TURNS + _NO_XML else one
        for one in text
    )


def shown(value: float, digits: int = 4) -> str:
    """A number as people read it."""
    return f"{value + 0.0:.{digits}g}".replace("-", "−")


def grouped(value: float) -> str:
    """A number of units, with all of its digits, as people read it."""
    return f"{value:,}".replace("-", "−")


def rounded_up(share: float) -> str:
    """A bound from above in per cent, rounded up."""
    return "over 99.9\u00a0%" if share > 0.999 else f"{math.ceil(1000 * share) / 10:g}\u00a0%"


def rounded_down(share: float) -> str:
    """A bound from below in per cent, rounded down."""
    return "under 0.1\u00a0%" if share < 0.001 else f"{math.floor(1000 * share) / 10:g}\u00a0%"


def level_words(level: float) -> str:
    """A confidence level as people read it."""
    return f"{100 * level:g}\u00a0%"


def short(label: str, most: int = 26) -> str:
    """A name that fits into a figure or the head of a column; the tables have it in full."""
    cut = label if len(label) <= most else label[: most - 1] + "…"
    return clean(cut)
