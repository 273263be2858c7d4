"""What many nights cost, and how sharp they are together, by the formulas of pooled estimates."""

import math

import numpy as np
import pytest

from estimators.operate.series import PeriodEffects, pool
from privatizers.accounting.budget import NO_LIMIT, Budget
from privatizers.planning.nights import affordable, paid, pooled
from privatizers.planning.predictions import Prediction

ONE = Prediction(1, None, 0.05, None, 0.03)
"""Its variance is 9 parts of sampling and 16 of privacy, in units of 0.01²."""


def by_the_estimator(n_nights: int, *, are_new: bool) -> float:
    """The standard error after so many nights, by the code that pools releases."""
    shape = (n_nights, 1)
    effects = PeriodEffects(
        np.zeros(shape), np.full(shape, ONE.std_error**2), np.full(shape, 0.04**2),
        np.full(shape, np.inf), np.full(shape, 1_000.0),
    )  # fmt: skip
    found = pool(effects, are_new=np.full(n_nights, are_new))
    return math.sqrt(float(found.variance[-1, 0]))


@pytest.mark.parametrize("n_nights", [1, 2, 40, 365])
def test_nights_of_new_people_are_pooled_as_releases_are(n_nights: int) -> None:
    found = pooled(ONE, n_nights)
    assert found.std_error == pytest.approx(by_the_estimator(n_nights, are_new=True), rel=1e-12)
    assert found.privacy_std_error == pytest.approx(0.04 / math.sqrt(n_nights))
    assert found.sampling_std_error == pytest.approx(0.03 / math.sqrt(n_nights))


@pytest.mark.parametrize("n_nights", [1, 2, 40])
def test_people_who_come_back_leave_at_most_one_night_of_sampling(n_nights: int) -> None:
    found = pooled(ONE, n_nights)
    assert found.most_std_error == pytest.approx(math.hypot(0.03, 0.04 / math.sqrt(n_nights)))
    assert found.std_error <= found.most_std_error
    assert found.most_std_error <= by_the_estimator(n_nights, are_new=False) + 1e-15


def test_the_bound_is_reached_by_people_whose_outcomes_never_change() -> None:
    """2,000 series of 5 nights, drawn with a fixed seed: known to 1.6 %, and 5 % is allowed."""
    random = np.random.default_rng(3)
    same = random.normal(0.0, ONE.sampling_std_error, (2_000, 1))
    noise = random.normal(0.0, 0.04, (2_000, 5))
    found = pooled(ONE, 5)
    assert (same + noise).mean(axis=1).std() == pytest.approx(found.most_std_error, rel=0.05)
    assert found.std_error < 0.9 * found.most_std_error  # a negative control


def test_prices_add_up_as_decimal_numbers() -> None:
    assert paid(Budget(0.1, 1e-6), 10) == Budget(1.0, 1e-5)
    assert paid(Budget(2.0), 1) == Budget(2.0)


@pytest.mark.parametrize(
    ("price", "limit", "nights"),
    [
        (Budget(0.1), Budget(1.0, math.inf), 10),
        (Budget(0.1), Budget(0.99, math.inf), 9),
        (Budget(2.0), Budget(1.0, math.inf), 0),
        (Budget(1.0, 1e-6), Budget(20.0, 5e-6), 5),
        (Budget(1.0), Budget(20.0, 0.0), 20),
        (Budget(1.0, 1e-6), Budget(20.0, 0.0), 0),
        (Budget(1.0, 1e-6), NO_LIMIT, None),
        (Budget(1.0), Budget(math.inf, 1e-6), None),
    ],
)
def test_a_budget_lasts_for_so_many_releases(
    price: Budget, limit: Budget, nights: int | None
) -> None:
    assert affordable(price, limit) == nights
    if nights:
        assert paid(price, nights).fits_into(limit)
    if nights is not None:
        assert not paid(price, nights + 1).fits_into(limit)
