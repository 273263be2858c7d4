"""The parameters of a mechanism, the statistics it publishes, and the event to be priced."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from estimators.response.pool_statistics import StatisticNoise, statistic_noise
from privatizers.accounting.events import (
    BoundedResponse,
    CountsNoise,
    Event,
    MarginNoise,
    Response,
    SquareNoise,
    SumNoise,
    Together,
)
from privatizers.accounting.rounding import realised_rate, realised_threshold
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.statistics.margin_sums import MarginSums
from privatizers.mechanisms.statistics.noisy_counts import NoisyCounts, NoisySums, moved_cells
from privatizers.mechanisms.statistics.noisy_squares import NoisySquares, is_even, square_steps
from privatizers.noise.geometric_digits import digits_of
from privatizers.noise.randomness import UNIT
from privatizers.optimal_response.programme import MOST_INPUTS
from schemas.arrays import Floats

LearntFrom = Literal["strata", "arms", "nothing"]
"""The noisy counts that the guess of a whole arm is learnt from."""


class StrataStatistic:
    """The statistics that are published of strata and arms, by the parameters of a mechanism."""

    n_outcomes: int
    noise_scale: float | None
    lattice: Lattice | None
    squares: NoisySquares | None
    """The arms' sums of squares that are published beside means; None without."""
    margins: MarginSums | None
    """The sums of margins that are published; None without."""

    @property
    def counts(self) -> NoisyCounts | None:
        """The noisy counts that are published, if any."""
        if self.noise_scale is None or self.lattice is not None:
            return None
        return NoisyCounts(self.n_outcomes, self.noise_scale)

    @property
    def sums(self) -> NoisySums | None:
        """The noisy sums that are published, if any."""
        if self.noise_scale is None or self.lattice is None:
            return None
        return NoisySums(self.lattice, self.noise_scale)

    @property
    def arm_counts(self) -> NoisyCounts | None:
        """The noisy counts of whole arms that are published beside it, if any."""
        return None

    @property
    def learnt_from(self) -> LearntFrom | None:
        """What response tables are learnt from; None for mechanisms that have none."""
        return None

    @property
    def strata_statistic(self) -> str:
        """The name of the statistic of a stratum: ``means``, ``none``, or a kind of counts."""
        if self.noise_scale is None:
            return "none"
        return "means" if self.counts is None else self.counts.statistic

    def noise_on(self, grid: Floats) -> StatisticNoise | None:
        """Return the noise on the statistic of a stratum on this ``grid``; None without one."""
        step = None if self.lattice is None else self.lattice.step_of(grid.tolist())
        return statistic_noise(self.noise_scale, self.strata_statistic, step)

    @property
    def statistic_epsilon(self) -> float:
        """The pure ε of that statistic by itself, without squares; 0 where there is none."""
        if self.noise_scale is None:
            return 0.0
        most = moved_cells(self.n_outcomes) if self.lattice is None else self.lattice.most
        return most / self.noise_scale

    @property
    def margins_epsilon(self) -> float:
        """The pure ε of the sums of margins by themselves; 0 where there are none."""
        margins = self.margins
        return (
            0.0
            if margins is None
            else sum(margins.lattice.most / one for one in margins.noise_scales)
        )

    @property
    def arm_counts_epsilon(self) -> float:
        """The pure ε of the noisy counts of arms by themselves; 0 where there are none."""
        counts = self.arm_counts
        return 0.0 if counts is None else moved_cells(self.n_outcomes) / counts.noise_scale


def _check_statistic(parameters: StrataStatistic, *, with_means: bool) -> None:
    """Refuse a lattice of another grid, an impossible scale, and squares that no estimate can use.

    Raises:
        ValueError: There is one of these. Squares cannot be used beside counts, of another grid,
            or, ``with_means``, of a grid whose mean is not its middle.
    """
    squares, lattice, margins = parameters.squares, parameters.lattice, parameters.margins
    for one in (lattice, None if margins is None else margins.lattice):
        if one is not None and len(one.steps) != parameters.n_outcomes:
            raise ValueError(
                f"a lattice of {len(one.steps)} points for {parameters.n_outcomes} outcomes"
            )
    if parameters.noise_scale is not None:
        digits_of(parameters.noise_scale)  # refuses a scale that no noise can be drawn of
    if squares is None:
        return
    if lattice is None or square_steps(lattice) != squares.steps:
        raise ValueError("sums of squares go with means on the lattice that they are of")
    if with_means and not is_even(lattice):
        raise ValueError("sums of squares go with means on a lattice whose mean is its middle")


@dataclass(frozen=True)
class Parameters(StrataStatistic):
    """λ, γ and σ of a user-level mechanism, as realised, and K.

    ``resampling_probability`` and ``truncation_threshold`` are multiples of 2⁻⁵³ (use
    :meth:`of` to round toward privacy). ``noise_scale`` is in units for counts, in grid steps for
    sums, and None where no statistic of strata is published.
    """

    n_outcomes: int
    resampling_probability: float
    truncation_threshold: float
    noise_scale: float | None
    lattice: Lattice | None = None
    """The lattice of the grid, where sums are published; None for counts."""
    squares: NoisySquares | None = None
    margins: MarginSums | None = None

    response_epsilon: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Refuse parameters that are not rounded: the guarantee would not hold exactly."""
        for value in (self.resampling_probability, self.truncation_threshold):
            if not (0 < value < 1 and (value * UNIT).is_integer()):
                raise ValueError(
                    f"{value!r} is not a multiple of 2⁻⁵³ between 0 and 1; use Parameters.of"
                )
        if round(self.truncation_threshold * UNIT) * self.n_outcomes > UNIT:
            raise ValueError(f"γ = {self.truncation_threshold!r} is more than 1/{self.n_outcomes}")
        _check_statistic(self, with_means=True)

    @classmethod
    def of(
        cls,
        n_outcomes: int,
        resampling_probability: float,
        truncation_threshold: float,
        noise_scale: float | None,
        lattice: Lattice | None = None,
    ) -> "Parameters":
        """Round λ up, and γ to a value that a prior can have, toward privacy where possible."""
        return cls(
            n_outcomes,
            realised_rate(resampling_probability),
            realised_threshold(truncation_threshold, n_outcomes),
            noise_scale,
            lattice,
        )


@dataclass(frozen=True)
class AggregateParameters(StrataStatistic):
    """σ of an aggregate mechanism, and the statistic that it is for; there are no λ and γ."""

    n_outcomes: int
    noise_scale: float
    """In units for counts, in grid steps for means and differences."""
    lattice: Lattice | None = None
    """The lattice of the grid, where means or differences are published; None for counts."""
    differences: bool = False
    """Whether differences between two arms are published in place of the arms' means."""
    squares: NoisySquares | None = None
    margins: None = None
    """There are no units for them to be reconciled with."""

    resampling_probability: ClassVar[None] = None
    truncation_threshold: ClassVar[None] = None
    response_epsilon: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Refuse parameters that no mechanism can have."""
        if self.differences and self.lattice is None:
            raise ValueError("differences are published in whole steps of a lattice")
        _check_statistic(self, with_means=not self.differences)

    @property
    def sums(self) -> NoisySums | None:
        """The noisy sums that are published, if any."""
        return None if self.differences else super().sums

    @property
    def strata_statistic(self) -> str:
        """The name of the statistic: ``differences``, ``means``, or a kind of counts."""
        return "differences" if self.differences else super().strata_statistic


@dataclass(frozen=True)
class OptimalParameters(StrataStatistic):
    """What an optimal randomiser is solved for, and the statistic beside it; there are no λ and γ.

    Raises:
        ValueError: Shapes differ, there are too many outcomes, or the statistic cannot be.
    """

    grid: tuple[float, ...]
    """y, increasing, shape [K]."""
    guess: tuple[float, ...]
    """The public guess at how often the outcomes occur, shape [K]."""
    response_epsilon: float
    """ε₂, which every table keeps."""
    noise_scale: float | None
    """σ, in units for counts, in grid steps for sums; None where no statistic is published."""
    lattice: Lattice | None = None
    squares: NoisySquares | None = None
    arm_noise_scale: float | None = None
    """σ of the noisy counts of whole arms, in units; None where none are published."""
    learns: bool = True
    """Whether tables are learnt from noisy counts; else they are those of ``guess``."""
    margins: MarginSums | None = None

    n_outcomes: int = field(init=False)
    """K."""

    resampling_probability: ClassVar[None] = None
    truncation_threshold: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Refuse what no table can be made of."""
        object.__setattr__(self, "n_outcomes", len(self.grid))
        if len(self.guess) != len(self.grid) or not 2 <= len(self.grid) <= MOST_INPUTS:
            raise ValueError(f"from 2 to {MOST_INPUTS} outcomes, and a guess of as many")
        if not 0 < self.response_epsilon < math.inf:
            raise ValueError(f"response_epsilon is {self.response_epsilon!r}")
        if self.arm_noise_scale is not None:
            digits_of(self.arm_noise_scale)
            if not self.learns:
                raise ValueError("counts of arms are published to be learnt from")
        _check_statistic(self, with_means=True)

    @property
    def arm_counts(self) -> NoisyCounts | None:
        """The noisy counts of whole arms that are published, if any."""
        if self.arm_noise_scale is None:
            return None
        return NoisyCounts(self.n_outcomes, self.arm_noise_scale)

    @property
    def learnt_from(self) -> LearntFrom:
        """What the guess of an arm is learnt from: its own counts, else those of its strata."""
        if self.arm_noise_scale is not None:
            return "arms"
        return "strata" if self.learns and self.counts is not None else "nothing"


UnitParameters = Parameters | OptimalParameters
"""Those of mechanisms that publish units."""


def event_of(parameters: UnitParameters | AggregateParameters) -> Event:
    """Return the event of a mechanism with these parameters for the people of one stratum.

    The strata of a release are disjoint and treated alike: ``Disjoint((event,) * n_strata)`` is
    the whole release, and costs the same. A noisy difference between arms costs no more than a
    noisy sum with the same σ and M, at any δ (`aggregates.md`). Sums of squares and counts of arms
    are of whole arms, which are disjoint as well: a unit is in one stratum and in one arm.
    """
    rate, least = parameters.resampling_probability, parameters.truncation_threshold
    parts = _statistics(parameters)
    if rate is not None and least is not None:
        parts.append(Response(rate, least))
    if parameters.response_epsilon is not None:
        parts.append(BoundedResponse(parameters.response_epsilon))
    return parts[0] if len(parts) == 1 else Together(tuple(parts))


def statistics_event(parameters: StrataStatistic) -> Event | None:
    """Return the part of :func:`event_of` that is not of units; None where there is none."""
    parts = _statistics(parameters)
    if len(parts) < 2:
        return parts[0] if parts else None
    return Together(tuple(parts))


def _statistics(parameters: StrataStatistic) -> list[Event]:
    scale, squares, arms = parameters.noise_scale, parameters.squares, parameters.arm_counts
    margins = parameters.margins
    parts: list[Event] = []
    if scale is not None and parameters.lattice is not None:
        parts.append(SumNoise(scale, parameters.lattice.most))
    elif scale is not None:
        parts.append(CountsNoise(scale, moved_cells(parameters.n_outcomes)))
    if squares is not None:
        parts.append(SquareNoise(squares.noise_scale, squares.steps.most))
    if arms is not None:
        parts.append(CountsNoise(arms.noise_scale, moved_cells(arms.n_outcomes)))
    if margins is not None:
        parts.append(MarginNoise(margins.noise_scales, margins.lattice.most))
    return parts
