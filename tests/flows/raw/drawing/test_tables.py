"""The order in which what response tables say of outputs is written."""

import numpy as np
import pytest

from flows.raw.drawing.tables import by_output


@pytest.mark.parametrize("n_cells", [1, 5, 1024, 5000])
def test_rows_of_outputs_stand_in_runs_of_one_arm_and_few_pools(n_cells: int) -> None:
    arm = np.arange(n_cells) * 7 % 3
    order = by_output(arm, 4)
    assert np.array_equal(np.sort(order), np.arange(4 * n_cells))
    number = arm[order // 4] * 4 + order % 4
    groups = -(-n_cells // 1024)
    assert np.count_nonzero(np.diff(number)) < 4 * (3 + groups)
    apart = max(np.ptp(np.flatnonzero(order // 4 == cell)) for cell in (0, n_cells // 2))
    assert apart < 4 * 1024
