"""The rows of the experiment `efficiency`, from which its table and its figure are made."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EfficiencyRow:
    """The mean squared error of one estimator on one kind of release, from simulation."""

    epsilon: float
    delta: float
    effect_on: str
    """``everybody``, or ``half``: a segment that holds a random half of every cluster."""
    release: str
    estimator: str
    mse: float
    mse_std_error: float
    """The standard error of ``mse`` that is due to the number of repetitions."""
    privacy_mse: float
    """The mean squared error about the estimate without privacy from the same assignment."""
    ratio: float | None
    """``mse`` divided by that of ``ratio_to``."""
    ratio_std_error: float | None
    ratio_to: str | None
    repetitions: int
    mechanism: str
    levels: int
    strata_statistic: str
    statistic_share: float
    truncation_threshold: float | None
    resampling_probability: float | None
    noise_scale: float | None


@dataclass(frozen=True)
class NoiseRow:
    """What a release adds to the variance of a unit's debiased outcome, worked out and averaged."""

    epsilon: float
    """Of everything that is published together; δ = 0."""
    release: str
    noise: float
    """In the squared unit of outcomes, rounding onto a coarser grid included."""
    over_limit: float
    """``noise`` over that of the limit."""
    over_planned: float
    """``noise`` over that of the release that is planned among uniform priors."""
    n_populations: int


@dataclass(frozen=True)
class HalfRow:
    """The variance of the effect on a random half of everybody, worked out and averaged."""

    epsilon: float
    """Of everything that is published together; δ = 0."""
    release: str
    levels: int
    strata_statistic: str
    variance: float
    over_planned: float
    """``variance`` over that of the release that is planned among uniform priors."""
    n_populations: int
