"""Names for the types of arrays; the docstring of each argument gives its shape."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

Ints: TypeAlias = NDArray[np.int64]
"""Whole numbers that the program made itself: counts, positions, steps of a grid."""

Integers: TypeAlias = NDArray[np.integer]
"""Whole numbers of any width."""

Words: TypeAlias = NDArray[np.uint64]
"""Random words of 64 bits."""

Bools: TypeAlias = NDArray[np.bool_]

Levels: TypeAlias = NDArray[np.unsignedinteger]
"""Positions on a grid of outcomes, in as few bytes as they need."""
