"""A partition of all rows at random, whose parts can be taken once each.

Niu et al. (2022), Algorithm 1, split the rows into parts of fixed sizes, uniformly at random, and
let each stage see one part; so a person is in one stage, and all stages together cost what the
dearest of them costs. Here this holds by construction: whoever deals holds the rows, a stage gets a
:class:`RowPart`, and a part gives its rows to one stage alone.

**Substitution.** Which part a row is in hangs on its position and on nothing that the row holds.
One unit's row replaced is therefore one row replaced in one part, and the sizes stay. (With people
who come or go both would change.) The price holds for every partition, so nothing rests on how well
it is drawn; a uniform one is for the estimate.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from privatizers.effects.models.rows import EffectRows
from privatizers.noise.randomness import random_words
from schemas.arrays import Levels

Batches = Callable[[], Iterable[EffectRows]]
"""Reads all rows, in batches; every call gives the same rows in the same order."""


class PartUsedError(Exception):
    """A second stage asked for rows that another has seen: their price would add up."""


@dataclass(frozen=True)
class PartRows:
    """The rows of one part, for the one stage that took it; it may read them several times."""

    n_rows: int
    batches: Batches = field(repr=False)


class RowPart:
    """Rows that no stage has seen; :meth:`take` gives them to the first that asks."""

    def __init__(self, name: str, rows: PartRows) -> None:
        """Hold ``rows``; `Partition` makes parts."""
        self.name = name
        self.n_rows = rows.n_rows
        self.__rows: PartRows | None = rows

    def take(self) -> PartRows:
        """Return the rows. Raises PartUsedError after the first time."""
        rows, self.__rows = self.__rows, None
        if rows is None:
            raise PartUsedError(f"part {self.name!r}: its rows were given to a stage already")
        return rows

    def __repr__(self) -> str:
        """Its name and size, which are public."""
        return f"<part {self.name}, {self.n_rows} rows>"


def partition(n_rows: int, batches: Batches, shares: dict[str, float]) -> dict[str, RowPart]:
    """Deal ``n_rows`` rows out at random into parts of :func:`part_sizes`, by name.

    ``batches`` must give exactly ``n_rows`` rows; ValueError while reading if it gives others.
    """
    sizes = part_sizes(n_rows, shares)
    part_of = np.empty(n_rows, dtype=np.uint8)
    shuffled = np.argsort(random_words(n_rows), kind="stable")  # uniform, but for ties: n²/2⁵⁴
    part_of[shuffled] = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    part_of.flags.writeable = False
    return {
        name: RowPart(name, PartRows(size, _reader(batches, part_of, place)))
        for place, (name, size) in enumerate(sizes.items())
    }


def part_sizes(n_rows: int, shares: dict[str, float]) -> dict[str, int]:
    """Return how many rows each part has: its share, rounded down; the last has what is left.

    Raises ValueError unless shares are positive and sum to 1.
    """
    if min(shares.values(), default=0.0) <= 0.0 or abs(sum(shares.values()) - 1.0) > 1e-9:
        raise ValueError(f"shares of parts are positive and sum to 1, unlike {shares}")
    sizes = {name: int(n_rows * share) for name, share in shares.items()}
    last = next(reversed(sizes))
    sizes[last] += n_rows - sum(sizes.values())
    return sizes


def _reader(batches: Batches, part_of: Levels, place: int) -> Batches:
    def read() -> Iterable[EffectRows]:
        start = 0
        for rows in batches():
            stop = start + len(rows.outcome)
            if stop > len(part_of):
                raise ValueError(f"batches have more than the {len(part_of)} rows dealt out")
            yield rows.at(part_of[start:stop] == place)
            start = stop
        if start != len(part_of):
            raise ValueError(f"batches have fewer than the {len(part_of)} rows dealt out")

    return read
