"""What whoever pays for several units pays, by a loss that was worked out."""

from pathlib import Path

import pytest

from flows.released.loss.loss import Loss
from privatizers.accounting.budget import Budget, of_group


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("rows_each", [1, 2, 5, 400, 2**62])
def test_a_household_pays_as_a_group_does(rows_each: int, delta: float) -> None:
    loss = Loss(Path("a.duckdb"), "a", 1.0, delta, 0.9, 0.0, (), (), (), rows_each=rows_each)
    if rows_each > 400:  # whatever a file says, it is a number
        assert loss.household[1] in (0.0, 1.0)
        return
    known = of_group(Budget(0.9, delta), rows_each)
    assert loss.household == pytest.approx((known.epsilon, known.delta), rel=1e-9)
