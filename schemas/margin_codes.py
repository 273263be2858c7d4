"""The numbers of the cells that a unit is in, eight margins to a column: a byte each."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.arrays import Integers
from schemas.tables import margin_columns

_KINDS: Final = {
    "UTINYINT": np.uint8,
    "USMALLINT": np.uint16,
    "UINTEGER": np.uint32,
    "UBIGINT": np.uint64,
}


def packed(
    cells: Sequence[NDArray[np.uint8]], numbers: Sequence[Integers]
) -> dict[str, NDArray[np.unsignedinteger]]:
    """The columns of units, shape [n] each, by name; the first of eight margins stands lowest.

    Of each margin ``numbers`` says for every unit which of its ``cells`` counts.
    """
    columns = {}
    for first, (name, kind) in zip(
        range(0, len(cells), 8), margin_columns(len(cells)).items(), strict=True
    ):
        column = np.zeros(len(numbers[0]), dtype=_KINDS[kind])
        for at, cell in enumerate(cells[first : first + 8]):
            column |= (cell.astype(column.dtype) << 8 * at)[numbers[first + at]]
        columns[name] = column
    return columns


def unpacked(columns: Sequence[Integers], n_margins: int) -> list[NDArray[np.uint8]]:
    """The number of every unit's cell in each margin, shape [n]; views of the ``columns``."""
    little = (one.astype(one.dtype.newbyteorder("<"), copy=False) for one in columns)
    codes = [code for one in little for code in one.view(np.uint8).reshape(len(one), -1).T]
    return codes[:n_margins]  # of the last column: it may have more bytes than it needs
