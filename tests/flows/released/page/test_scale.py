"""In which unit a metric is shown."""

import numpy as np
import pytest

from flows.released.page.scale import scale_of
from schemas.released import Metric, Ratio


def metric(
    name: str = "outcome",
    *,
    label: str | None = None,
    measured_in: str | None = None,
) -> Metric:
    return Metric(
        metric=name,
        epsilon=1.0,
        delta=0.0,
        resampling_probability=0.5,
        truncation_threshold=0.1,
        noise_scale=None,
        strata_statistic="none",
        grid_step=None,
        n_outcomes=2,
        computed_epsilon=1.0,
        computed_delta=0.0,
        missing=0.0,
        label=label,
        measured_in=measured_in,
    )


@pytest.mark.parametrize(
    ("measured_in", "outcomes", "factor", "unit", "step"),
    [
        (None, [0, 1], 100.0, "%", "percentage points"),
        ("share", [0, 1], 100.0, "%", "percentage points"),
        ("%", [0, 1], 100.0, "%", "percentage points"),
        ("share", [0, 0.5, 1], 100.0, "%", "percentage points"),
        ("%", [0, 50, 100], 1.0, "%", "percentage points"),
        ("EUR", [0, 1], 1.0, "EUR", "EUR"),
        ("EUR", [0, 10, 20], 1.0, "EUR", "EUR"),
        (None, [0, 1, 2], 1.0, "", ""),
        (None, [1, 2], 1.0, "", ""),
        (None, [], 1.0, "", ""),
    ],
)
def test_shares_are_in_per_cent_and_nothing_else_is(
    measured_in: str | None, outcomes: list[float], factor: float, unit: str, step: str
) -> None:
    found = scale_of(metric(measured_in=measured_in), np.array(outcomes, dtype=np.float64))
    assert (found.factor, found.unit, found.step) == (factor, unit, step)


def test_a_metric_is_called_by_its_label_else_by_its_name() -> None:
    many, two = np.arange(3.0), np.arange(2.0)
    assert scale_of(metric("spend", label="Spend a week"), many).subject == "Spend a week"
    assert scale_of(metric("spend"), many).subject == "spend"
    assert scale_of(metric(), many).subject == "the mean outcome"
    assert scale_of(metric(), two).subject == "the share of outcome 1"
    assert scale_of(metric(), many).label == ""


def test_only_numbers_of_units_have_an_average() -> None:
    many = np.arange(3.0)
    assert scale_of(metric("spend"), many).is_average
    assert not scale_of(metric(), many).is_average  # "the mean outcome" says so
    assert not scale_of(metric("visit"), np.arange(2.0)).is_average
    ratio = Ratio(metric="per_visit", numerator="spend", denominator="visits", measured_in="EUR")
    assert not scale_of(ratio, np.array([])).is_average
    assert scale_of(ratio, np.array([])).unit == "EUR"


def test_heads_of_means_have_the_unit() -> None:
    assert scale_of(metric(), np.arange(2.0)).heading("Mean") == "Mean (%)"
    assert scale_of(metric(), np.arange(3.0)).heading("Mean") == "Mean"
