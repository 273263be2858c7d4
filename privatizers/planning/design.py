"""From what a publisher asks for to a mechanism with parameters, without any data.

Where λ, γ and σ are given, they are used as they are. Where ε (and δ) is given, a simple stated
rule splits it: a tenth of ε pays for the counts, the rest for the outcomes, and γ = 1/(2K) where
the mechanism has a prior of its own. ``auto`` is the uniform prior with counts: at equal ε no prior
made of noisy counts gives less noise (docs/method.md).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from privatizers.accounting.accountant import calibrate, delta_at, epsilon_at
from privatizers.accounting.rounding import realised_threshold
from privatizers.domain.lattice import Lattice
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.cluster_free_dp import ClusterFreeDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import Parameters, event_of, statistics_event
from privatizers.mechanisms.statistics.margin_sums import MarginSums
from privatizers.mechanisms.statistics.noisy_counts import moved_cells
from privatizers.mechanisms.statistics.noisy_squares import NoisySquares
from privatizers.mechanisms.uniform_prior_dp import UniformPriorDP
from schemas.errors import ConfigError

MechanismName = Literal["auto", "cluster-dp", "cluster-free-dp", "uniform-prior-dp"]
StatisticName = Literal["auto", "counts", "means", "none"]

STATISTIC_SHARE = 0.1
"""The part of ε that pays for the statistic of the strata, where ε is given without a plan."""


MARGINS_SHARE = 0.4
"""The part of ε that pays for the sums of margins, where there are any."""


@dataclass(frozen=True)
class Request:
    """The publisher's request: ``epsilon``, or λ, γ and σ; never both."""

    mechanism: MechanismName
    n_outcomes: int
    strata_statistic: StatisticName = "auto"
    epsilon: float | None = None
    delta: float = 0.0
    resampling_probability: float | None = None
    truncation_threshold: float | None = None
    noise_scale: float | None = None
    lattice: Lattice | None = None
    """The lattice of the grid, if it has one: means are published as sums of its steps."""
    statistic_share: float = STATISTIC_SHARE
    """The part of ``epsilon`` that pays for the statistic of the strata, if any."""
    square_share: float = 0.0
    """The part of ``epsilon`` that pays for arms' sums of squares, beside published means."""
    margin_shares: tuple[float, ...] = ()
    """The part of ``epsilon`` that pays for the sums of each margin; shape [J]."""


@dataclass(frozen=True)
class Design:
    """A mechanism, and the (ε, δ) that its release states: as requested, or ε as computed at δ."""

    mechanism: Mechanism
    epsilon: float
    delta: float


def design(request: Request) -> Design:
    """Choose mechanism and parameters.

    Raises:
        ConfigError: A value of the request cannot be used; the error names its key.
    """
    check(request)
    kinds: dict[str, Callable[[Parameters], Mechanism]]
    kinds = {"cluster-dp": ClusterDP, "cluster-free-dp": ClusterFreeDP}
    kind = kinds.get(request.mechanism, UniformPriorDP)
    if request.epsilon is None:
        parameters = _declared(request)
        epsilon = epsilon_at(event_of(parameters), request.delta)
        return Design(kind(parameters), epsilon, request.delta)
    parameters = _calibrate(request, request.epsilon)
    event = event_of(parameters)
    if delta_at(event, request.epsilon) > request.delta:  # never happens; the claim rests on it
        raise AssertionError("calibration exceeded the epsilon asked for")
    return Design(kind(parameters), request.epsilon, request.delta)


def _has_own_prior(request: Request) -> bool:
    return request.mechanism in ("cluster-dp", "cluster-free-dp")


def _lattice(request: Request) -> Lattice | None:
    return request.lattice if request.strata_statistic == "means" else None


def _declared(request: Request) -> Parameters:
    k = request.n_outcomes
    gamma = request.truncation_threshold
    if request.resampling_probability is None:
        raise ConfigError("privacy.resampling_probability", "missing: give it, or give epsilon")
    if _has_own_prior(request):
        if gamma is None:
            raise ConfigError("privacy.truncation_threshold", "missing: this mechanism needs it")
    elif gamma is not None and not math.isclose(gamma, 1 / k, rel_tol=1e-9):
        raise ConfigError(
            "privacy.truncation_threshold",
            f"{gamma!r}: a uniform prior over {k} outcomes has 1/{k}; leave the key out",
        )
    if (request.strata_statistic != "none") != (request.noise_scale is not None):
        raise ConfigError(
            "privacy.noise_scale",
            'missing: what is published of the strata needs it (or strata_statistic = "none")'
            if request.noise_scale is None
            else 'given, but strata_statistic is "none": leave one of them out',
        )
    threshold = gamma if gamma is not None and _has_own_prior(request) else 1 / k
    return Parameters.of(
        k, request.resampling_probability, threshold, request.noise_scale, _lattice(request)
    )


def _calibrate(request: Request, epsilon: float) -> Parameters:
    """Split ε: a tenth for the strata, the rest for the response, λ rounded toward privacy."""
    k = request.n_outcomes
    gamma = realised_threshold(1 / (2 * k) if _has_own_prior(request) else 1 / k, k)
    share, lattice = epsilon * request.statistic_share, _lattice(request)
    scale: float | None = None
    squares = NoisySquares.of_price(lattice, epsilon * request.square_share, of_means=True)
    if request.strata_statistic != "none":
        scale = (moved_cells(k) if lattice is None else lattice.most) / share
    margins = MarginSums.of_price(request.lattice, epsilon, request.margin_shares)
    uncalibrated = Parameters(k, 0.5, gamma, scale, lattice, squares, margins)
    rate = calibrate(epsilon, request.delta, gamma, statistics_event(uncalibrated))
    return replace(uncalibrated, resampling_probability=rate)


def check(request: Request) -> None:
    """Raise ConfigError for impossible values; it names the key, the value and the rule."""
    k, gamma = request.n_outcomes, request.truncation_threshold
    check_grid(k)
    if _has_own_prior(request) and request.strata_statistic in ("none", "means"):
        raise ConfigError(
            "privacy.strata_statistic",
            f'"{request.strata_statistic}" does not go with {request.mechanism}: its prior is made '
            "of the counts",
        )
    check_means(request.strata_statistic, request.lattice)
    check_margins(request.margin_shares, request.lattice, request.epsilon)
    parameters = {
        "resampling_probability": request.resampling_probability,
        "truncation_threshold": gamma,
        "noise_scale": request.noise_scale,
    }
    given = [name for name, value in parameters.items() if value is not None]
    if request.epsilon is None and not given:
        raise ConfigError(
            "privacy.epsilon", "missing: give it, or the parameters themselves instead"
        )
    if request.epsilon is not None and given:
        raise ConfigError(
            f"privacy.{given[0]}", "given together with epsilon: give the one or the other"
        )
    check_price(request.epsilon, request.delta, request.noise_scale)
    check_range("resampling_probability", request.resampling_probability, 0, 1)
    check_range("truncation_threshold", gamma, 0, math.inf)
    if gamma is not None and gamma > 1 / k:
        raise ConfigError(
            "privacy.truncation_threshold",
            f"{gamma!r} is more than 1/K = 1/{k}: {k} outcomes cannot each have that probability",
        )


def check_grid(n_outcomes: int) -> None:
    """Raise ConfigError for a grid that tells nothing."""
    if n_outcomes < 2:
        raise ConfigError(
            "outcome", f"the grid has {n_outcomes} point: at least 2 distinct values are needed"
        )


def check_means(statistic: StatisticName, lattice: Lattice | None) -> None:
    """Raise ConfigError for means on a grid that is on no lattice."""
    if statistic == "means" and lattice is None:
        raise ConfigError(
            "privacy.strata_statistic",
            '"means" needs a grid whose points lie whole steps apart: space them evenly, or '
            'publish "counts"',
        )


def check_margins(
    shares: tuple[float, ...], lattice: Lattice | None, epsilon: float | None
) -> None:
    """Raise ConfigError for margins on a grid that is on no lattice, or of no known price."""
    if shares and epsilon is None:
        raise ConfigError(
            "privacy.margins", "are paid from privacy.epsilon: give it in place of parameters"
        )
    if shares and lattice is None:
        raise ConfigError(
            "privacy.margins",
            "need a grid whose points lie whole steps apart: space them evenly, or leave the key "
            "out",
        )


def check_price(
    epsilon: float | None,
    delta: float,
    noise_scale: float | None = None,
    workable: tuple[float, float] = (1e-9, 700.0),
) -> None:
    """Raise ConfigError for an ε, δ or σ that no release can have; ε has to be ``workable``."""
    check_range("epsilon", epsilon, 0, math.inf)
    check_workable("epsilon", epsilon, *workable)
    if not 0 <= delta < 1:
        raise ConfigError("privacy.delta", f"{delta!r} is not at least 0 and less than 1")
    check_range("noise_scale", noise_scale, 0, math.inf)
    check_workable("noise_scale", noise_scale, 1e-3, 1e12)


def check_range(name: str, value: float | None, low: float, high: float) -> None:
    """Raise ConfigError for a value, if given, that is not strictly from ``low`` to ``high``."""
    if value is None or low < value < high:
        return
    rule = f"strictly between {low} and {high}" if math.isfinite(high) else f"greater than {low}"
    raise ConfigError(f"privacy.{name}", f"{value!r} is not {rule}")


def check_workable(name: str, value: float | None, least: float, most: float) -> None:
    """Raise ConfigError for values so extreme that no use needs them and arithmetic would fail."""
    if value is not None and not least <= value <= most:
        raise ConfigError(f"privacy.{name}", f"{value!r} is not from {least:g} to {most:g}")
