"""In which unit a page shows a metric: its numbers, its words, its axes."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas.arrays import Floats
from schemas.released import OUTCOME, Metric, Ratio
from schemas.tables import UNNAMED

_SHARE: Final = "share"
"""What a number from 0 to 1 may say that it is measured in; it is shown in per cent."""
_PERCENT: Final = "%"


@dataclass(frozen=True)
class Scale:
    """How numbers of a metric are shown: times ``factor``, with a unit behind."""

    label: str = ""
    """Its name for people; empty where the one outcome has none."""
    subject: str = "the mean outcome"
    """What is higher or lower, at the beginning of a sentence."""
    is_average: bool = False
    """Whether the subject, being a number of each unit, is so on average."""
    is_yes_no: bool = False
    factor: float = 1.0
    unit: str = ""
    """Of a mean; empty where none is declared."""

    @property
    def step(self) -> str:
        """The unit of a difference of means."""
        return "percentage points" if self.unit == _PERCENT else self.unit

    def heading(self, words: str) -> str:
        """Return the head of a column of means, with their unit in brackets."""
        return f"{words} ({self.unit})" if self.unit else words


PLAIN: Final = Scale()
"""That of numbers as they are."""


def scale_of(metric: Metric | Ratio, outcomes: Floats) -> Scale:
    """Return the scale of a metric; ``outcomes`` is its grid, empty for a ratio.

    Shares are shown in per cent, and their differences in percentage points: outcomes that are 0 or
    1 and have no other unit, and whatever is measured in "share". What is measured in "%" is so
    already.
    """
    is_yes_no = metric.kind == OUTCOME and np.array_equal(outcomes, [0.0, 1.0])
    is_share = metric.measured_in == _SHARE or (
        is_yes_no and metric.measured_in in (None, _PERCENT)
    )
    label = metric.label or ("" if metric.metric == UNNAMED else metric.metric)
    unnamed = "the share of outcome 1" if is_yes_no else "the mean outcome"
    return Scale(
        label=label,
        subject=label or unnamed,
        is_average=bool(label) and metric.kind == OUTCOME and not is_share,
        is_yes_no=is_yes_no,
        factor=100.0 if is_share else 1.0,
        unit=_PERCENT if is_share else metric.measured_in or "",
    )
