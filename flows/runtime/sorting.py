"""Sorting many whole numbers, on two cores: polars takes a quarter of numpy's time."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from schemas.arrays import Integers, Ints

N = TypeVar("N", bound=np.integer)


def rising(numbers: NDArray[N]) -> NDArray[N]:
    """The numbers in order, shape [n]; they can be read only."""
    import polars as pl  # noqa: PLC0415 - what asks a ledger alone does without

    found: NDArray[N] = pl.Series(numbers).sort().to_numpy()
    return found


def places_of_rising(numbers: Integers) -> Ints:
    """Where each of the numbers in order stands among them, shape [n]; equal ones in any order."""
    import polars as pl  # noqa: PLC0415 - likewise

    return pl.Series(numbers).arg_sort().to_numpy().astype(np.int64)
