"""The first points of Sobol's sequence, which fill a cube evenly; not random at all.

They are those of `scipy.stats.qmc.Sobol`, without the half second that it takes to import that into
every release. Directions: S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better
two-dimensional projections", SIAM J. Sci. Comput. 30 (2008), their table new-joe-kuo-6.
"""

from functools import reduce

import numpy as np

from schemas.arrays import Floats

_TABLE = (
    (1, (1,)),
    (3, (1,)),
    (7, (1, 3)),
    (11, (1, 3, 1)),
    (13, (1, 1, 1)),
    (19, (1, 1, 3, 3)),
    (25, (1, 3, 5, 13)),
    (37, (1, 1, 5, 5, 17)),
    (41, (1, 1, 5, 5, 5)),
    (47, (1, 1, 7, 11, 19)),
    (55, (1, 1, 5, 1, 1)),
    (59, (1, 1, 1, 3, 11)),
    (61, (1, 3, 5, 5, 31)),
    (67, (1, 3, 3, 9, 7, 49)),
    (91, (1, 1, 1, 15, 21, 21)),
    (97, (1, 3, 1, 13, 27, 49)),
    (103, (1, 1, 1, 15, 7, 5)),
    (109, (1, 3, 1, 15, 13, 25)),
    (115, (1, 1, 5, 5, 19, 61)),
    (131, (1, 3, 7, 11, 23, 15, 103)),
    (137, (1, 3, 7, 13, 13, 15, 69)),
    (143, (1, 1, 3, 13, 7, 35, 63)),
    (145, (1, 3, 5, 9, 1, 25, 53)),
    (157, (1, 3, 1, 13, 9, 35, 107)),
)
"""Of each dimension its polynomial over GF(2), as the bits of a number, and its first odd numbers.

The first dimension has neither: its numbers are all 1.
"""


def sobol_points(n_dimensions: int, log2_points: int) -> Floats:
    """Return the first 2^``log2_points`` points, [points, dimensions], each within [0, 1)."""
    if n_dimensions > len(_TABLE):
        from scipy.stats import qmc  # noqa: PLC0415 - takes half a second

        points: Floats = qmc.Sobol(n_dimensions, scramble=False).random_base2(log2_points)
        return points
    place = np.arange(2**log2_points)
    gray = place ^ (place >> 1)
    whole = np.zeros((len(place), n_dimensions), dtype=np.int64)
    for dimension in range(n_dimensions):
        for bit, direction in enumerate(_directions(dimension, log2_points)):
            whole[:, dimension] ^= ((gray >> bit) & 1) * direction
    return whole / 2.0**log2_points


def _directions(dimension: int, bits: int) -> list[int]:
    """What each bit of a point's number adds, as whole multiples of 2^-``bits``."""
    polynomial, given = _TABLE[dimension]
    odd = list(given) if dimension else [1] * bits
    degree = polynomial.bit_length() - 1
    while len(odd) < bits:
        terms = [odd[-k] << k for k in range(1, degree + 1) if polynomial >> (degree - k) & 1]
        odd.append(reduce(int.__xor__, terms, odd[-degree]))
    return [number << (bits - 1 - place) for place, number in enumerate(odd[:bits])]
