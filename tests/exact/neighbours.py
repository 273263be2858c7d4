"""Small data sets and their neighbours, for which a guarantee is checked."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Instance:
    """The counts of outcomes in a stratum, and a neighbour where one unit has another outcome."""

    counts: tuple[int, ...]
    """N_y under D, one for each of the K outcomes."""
    from_cell: int
    """The outcome that the unit has under D."""
    to_cell: int
    """The outcome that it has under the neighbour D′."""

    def __post_init__(self) -> None:
        """Refuse counts and cells that are no pair of neighbours."""
        if self.from_cell == self.to_cell or min(self.counts) < 0:
            raise ValueError(
                f"{self} is no pair of neighbours: counts ≥ 0 and two different outcomes"
            )
        if self.counts[self.from_cell] < 1:
            raise ValueError(
                f"{self} is no pair of neighbours: no unit has outcome {self.from_cell}"
            )

    @property
    def n_units(self) -> int:
        """Units in the stratum, the same under D and D′."""
        return sum(self.counts)

    @property
    def n_outcomes(self) -> int:
        """K."""
        return len(self.counts)

    @property
    def neighbour(self) -> tuple[int, ...]:
        """N_y under D′."""
        moved = list(self.counts)
        moved[self.from_cell] -= 1
        moved[self.to_cell] += 1
        return tuple(moved)

    @property
    def unmoved(self) -> list[int]:
        """The counts of the outcomes that do not change."""
        moved = {self.from_cell, self.to_cell}
        return [count for cell, count in enumerate(self.counts) if cell not in moved]


def worst_instances(n_units: int, n_outcomes: int) -> list[Instance]:
    """Return neighbours of ``n_units`` ≥ 1 units among which the greatest loss is expected.

    A loss is greatest where the count that changes is small, so that its prior stays at γ while the
    noise shows the change, and the other units are elsewhere: in the other cell that changes, in a
    third one, in both, or everywhere. Audits compare D and D′ in both directions, so one of the two
    is enough.
    """
    last = n_outcomes - 1
    others, half = n_units - 1, (n_units - 1) // 2
    shapes = {
        _counts(n_outcomes, {0: 1, last: others}),
        _counts(n_outcomes, {0: n_units - half, last: half}),
        tuple(int(share) for share in np.diff(np.arange(n_outcomes + 1) * n_units // n_outcomes)),
    }
    if n_outcomes > 2:
        shapes |= {
            _counts(n_outcomes, {0: 1, 1: others}),
            _counts(n_outcomes, {0: 1, 1: others - half, last: half}),
        }
    return [Instance(counts, 0, last) for counts in sorted(shapes) if counts[0] > 0]


def _counts(n_outcomes: int, counts: dict[int, int]) -> tuple[int, ...]:
    return tuple(counts.get(cell, 0) for cell in range(n_outcomes))
