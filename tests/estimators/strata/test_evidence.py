"""Keys are told apart as NumPy does it, whichever of the faster ways is taken."""

import numpy as np
import pytest

from estimators.strata.evidence import distinct


@pytest.mark.parametrize(
    ("keys", "size"),
    [
        ([], 5),
        ([3], 10**12),
        ([0, 1, 4, 7], 10**12),
        ([4, 1, 1, 0, 4], 5),
        ([4, 1, 1, 0, 4], 10**12),
        ([0, 0, 0], 1),
    ],
)
def test_distinct_keys_are_those_of_numpy(keys: list[int], size: int) -> None:
    given = np.array(keys, dtype=np.int64)
    found, position = distinct(given, size)
    expected, inverse = np.unique(given, return_inverse=True)

    assert found.tolist() == expected.tolist()
    assert position.tolist() == inverse.tolist()
    assert found[position].tolist() == keys
