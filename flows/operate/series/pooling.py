"""From the estimates of periods to those of all periods together: rows in, rows out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from estimators.arm_effects import Contrasts, Estimate
from estimators.intervals import holm, interval_degrees
from estimators.operate.people import CrossTerms
from estimators.operate.series import (
    LOOKS,
    N_SCALES,
    PeriodEffects,
    PooledEffects,
    always_valid,
    pool,
)
from flows.operate.series.people import Kind, People
from schemas.arrays import Floats

Key = tuple[str, str, str, str | None, str]
"""What an effect is of: metric, arm, control, segment, estimator."""


@dataclass(frozen=True)
class PooledEstimate(Estimate):
    """An effect over several periods; a number is None where they cannot give it.

    ``n_units`` and ``n_segment`` are added up: whoever is in two releases counts twice.
    ``relative`` and its interval are None where people come back, or may.
    """

    n_releases: int = 0
    """Periods that it is made of."""
    ci_lower_always: float | None = None
    """Lower end of the interval for those who look after every period; None without a plan."""
    ci_upper_always: float | None = None
    people: Kind = "unknown"


def keys_of(periods: Sequence[Sequence[Estimate]]) -> list[Key]:
    """The effects that periods have, in the order in which they come up."""
    return list(dict.fromkeys(key_of(one) for period in periods for one in period))


def key_of(one: Estimate) -> Key:
    """What an estimate is of."""
    return one.metric, one.arm, one.control, one.segment, one.estimator


@dataclass(frozen=True)
class Pooled:
    """The effects after every period; arrays have the shape [T, E], E being ``keys``."""

    keys: Sequence[Key]
    people: People
    level: float
    effects: PooledEffects
    always: tuple[Floats, Floats]
    n_segment: Floats
    planned: Floats
    """The planned standard error of the pooled effect; NaN where it is not known."""
    control_mean: Floats
    control_variance: Floats

    def after(self, period: int) -> list[PooledEstimate]:
        """The estimates after the period of this position, in the order of ``keys``."""
        columns = {name: values.tolist() for name, values in self._columns(period).items()}
        n_units, n_segment = self.effects.n_units[period], self.n_segment[period]
        n_releases = self.effects.n_releases[period]
        people = self.people.until(period)
        return [
            PooledEstimate(
                metric=metric, arm=arm, control=control, segment=segment,
                estimator=estimator,  # type: ignore[arg-type] # as it stands in an Estimate
                confidence_level=self.level,
                n_units=int(n_units[at]),
                n_segment=int(n_segment[at]),
                coverage=float(n_units[at] / n_segment[at]) if n_segment[at] > 0 else None,
                n_releases=int(n_releases[at]),
                people=people,
                **{
                    name: values[at] if np.isfinite(values[at]) else None
                    for name, values in columns.items()
                },
            )
            for at, (metric, arm, control, segment, estimator) in enumerate(self.keys)
        ]  # fmt: skip

    def _columns(self, period: int) -> dict[str, Floats]:
        effects = self.effects
        estimate, variance = effects.estimate[period], effects.variance[period]
        control, nothing = (
            (self.control_mean[period], self.control_variance[period]),
            0.0 * estimate,
        )
        columns = Contrasts(
            estimate,
            variance,
            effects.noise_variance[period],
            effects.degrees_of_freedom[period],
            effects.n_units[period],
            estimate + control[0],
            np.maximum(variance - control[1], 0.0),
            *control,
            treated_fourth=nothing,  # a night's Student's t has what its own noise adds
            control_fourth=nothing,
        ).columns(self.level)
        adjusted = columns["p_value"].copy()
        families: dict[tuple[str, str | None, str], list[int]] = {}
        for at, (metric, _, _, segment, estimator) in enumerate(self.keys):
            families.setdefault((metric, segment, estimator), []).append(at)
        for places in families.values():
            asked = effects.n_units[period][places] > 0
            adjusted[places] = holm(columns["p_value"][places], asked)
        return columns | {
            "p_value_holm": adjusted,
            "planned_std_error": self.planned[period],
            "ci_lower_always": self.always[0][period],
            "ci_upper_always": self.always[1][period],
        }


def pool_periods(
    periods: Sequence[Sequence[Estimate]],
    people: People,
    n_arms: int,
    level: float,
    looks: int = LOOKS,
    cross: CrossTerms | None = None,
    n_scales: int = N_SCALES,
) -> Pooled:
    """Pool the estimates of periods, the oldest first; those of a period have one level.

    ``n_arms`` is the number of treatment arms, ``level`` the confidence level of what is asked for.
    ``cross`` is what ties periods together, where it is known who comes back, with a column for
    each of the effects (:func:`keys_of`). ``n_scales`` is that of
    :func:`estimators.operate.series.always_valid`, as the series began.
    """
    keys = keys_of(periods)
    table = _Table(periods, keys)
    given = PeriodEffects(
        table.column("estimate"), table.variance, table.column("privacy_std_error") ** 2,
        interval_degrees(
            (table.column("ci_upper") - table.column("ci_lower")) / 2.0,
            table.column("std_error"),
            table.level,
        ),
        table.n_units,
    )  # fmt: skip
    are_new = None if people.kind == "disjoint" or cross is not None else people.are_new
    effects = pool(given, are_new=are_new, cross=cross)
    first = np.argmax(table.n_units > 0, axis=0), np.arange(len(keys))  # periods of each effect
    planned, n_first = table.column("planned_std_error")[first], table.n_units[first]
    always = always_valid(
        effects, planned, n_first, level, n_arms=n_arms, looks=looks, n_scales=n_scales
    )
    is_disjoint = np.array([people.until(t) == "disjoint" for t in range(len(periods))])
    hidden = np.where(is_disjoint, 0.0, np.nan)[:, np.newaxis]
    return Pooled(
        keys, people, level, effects, always,
        n_segment=np.cumsum(table.n_segment, axis=0),
        planned=np.sqrt(table.weighted(table.column("planned_std_error") ** 2, 2)) + hidden,
        control_mean=table.weighted(table.column("control_mean"), 1) + hidden,
        control_variance=table.weighted(table.column("control_std_error") ** 2, 2) + hidden,
    )  # fmt: skip


class _Table:
    """The estimates of periods as arrays of the shape [T, E]; NaN where a period has none."""

    def __init__(self, periods: Sequence[Sequence[Estimate]], keys: Sequence[Key]) -> None:
        self._place = {key: at for at, key in enumerate(keys)}
        self._periods = periods
        self._shape = (len(periods), len(keys))
        self.variance = self.column("std_error") ** 2
        self.n_segment = np.nan_to_num(self.column("n_segment"))
        has_one = ~np.isnan(self.column("estimate"))
        self.n_units = np.where(has_one, np.nan_to_num(self.column("n_units")), 0.0)
        levels = self.column("confidence_level")
        self.level = float(levels[~np.isnan(levels)][0]) if np.isfinite(levels).any() else 0.95

    def column(self, name: str) -> Floats:
        values = np.full(self._shape, np.nan)
        for t, period in enumerate(self._periods):
            for one in period:
                value = getattr(one, name)
                values[t, self._place[key_of(one)]] = np.nan if value is None else value
        return values

    def weighted(self, values: Floats, power: int) -> Floats:
        """Σ (n_r/n)^power · value over the periods up to each; NaN where one is not known."""
        parts = np.where(self.n_units > 0, self.n_units**power * values, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            total: Floats = np.cumsum(parts, axis=0) / np.cumsum(self.n_units, axis=0) ** power
        return total
