"""Checks a claimed guarantee: the exact loss of small instances, and a bound from samples.

The exact half lists what the mechanism says it does (`enumeration`): it finds a claim that does
not follow from λ, γ, σ and K. The sampled half runs what the mechanism really does
(`audit_samples`): it finds code that does something else, as far as samples can show it, and its
bound is valid whatever the mechanism does to a stratum. Neither of them proves a guarantee: that
is done in the notes beside the mechanisms (`cluster_dp.md` and others). Data are made up here; no
audit reads anybody's outcomes.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from privatizers.aggregates import AggregateMechanism
from privatizers.audit_aggregates import (
    aggregate_size,
    called_aggregates,
    listed_aggregates,
    stacked_aggregates,
)
from privatizers.audit_bounds import Bound, lower_bound
from privatizers.audit_samples import (
    UNDER_A_MINUTE,
    Effort,
    Neighbours,
    called,
    stacked,
    stacked_size,
)
from privatizers.enumeration import Enumeration, Model, enumerated, model_of
from privatizers.instances import Instance, worst_instances
from privatizers.mechanism import Mechanism

_ARITHMETIC = 1e-10  # of an exact ε; a list never has a loss above what its λ, γ and σ allow
_SLACK = 1e-12  # of δ, for the arithmetic of sums of 100,000 probabilities
_TESTS = 4  # bounds from samples: stacked and called, in both directions
_MOST_ELEMENTS = 3_000_000  # of a table of priors: a tenth of a second or so
_MOST_UNITS = 200


@dataclass(frozen=True)
class AuditResult:
    """What was found of a claim."""

    claimed_epsilon: float
    delta: float
    exact_epsilon: float
    """The greatest exact ε at δ of the instances; the claim itself where 10⁻¹⁰ from it or less."""
    sampled_lower_bound: float
    """A bound that is above the true ε with a probability of at most 1 − ``confidence``."""
    confidence: float
    instance: Instance
    """Where the exact ε is greatest."""
    sampled_instance: Instance
    """What was sampled."""
    evidence: str
    """The event behind the sampled bound."""
    n_samples: int
    """Stacked replicates of the two data sets together."""

    @property
    def holds(self) -> bool:
        """Whether neither half exceeds the claim."""
        return max(self.exact_epsilon, self.sampled_lower_bound) <= self.claimed_epsilon


def audit(
    mechanism: Mechanism | AggregateMechanism,
    claimed_epsilon: float,
    delta: float = 0.0,
    *,
    confidence: float = 0.9999,
    effort: Effort = UNDER_A_MINUTE,
) -> AuditResult:
    """Check that ``mechanism`` is (``claimed_epsilon``, ``delta``)-DP, as far as can be seen.

    A sound mechanism is reported as unsound with a probability of at most 1 − ``confidence``.
    """
    listed = _listed(mechanism)
    exact = [_exact(each, claimed_epsilon, delta) for each in listed]
    worst = int(np.argmax(exact))
    error = (1 - confidence) / _TESTS
    to_sample, size = _to_sample(mechanism, listed, delta, error, effort)
    found = _sampled(mechanism, to_sample, size, delta, error, effort)
    return AuditResult(
        claimed_epsilon,
        delta,
        exact[worst],
        found.epsilon,
        confidence,
        listed[worst].instance,
        to_sample,
        "none" if found.telltale is None else str(found.telltale),
        2 * size,
    )


def _listed(mechanism: Mechanism | AggregateMechanism) -> list[Enumeration]:
    if isinstance(mechanism, AggregateMechanism):
        return listed_aggregates(mechanism)
    model = realised_model(mechanism)
    return [enumerated(model, each) for each in instances(mechanism)]


def realised_model(mechanism: Mechanism) -> Model:
    """What the mechanism says it does, with the λ that its response draws with."""
    model = model_of(mechanism)
    k = model.parameters.n_outcomes
    response = mechanism.strata(np.ones((1, k), dtype=np.int64)).response
    parameters = replace(model.parameters, resampling_probability=response.resampling_probability)
    return replace(model, parameters=parameters)


def instances(mechanism: Mechanism) -> list[Instance]:
    """Neighbours of several sizes, up to one where a count of one unit is below γ n.

    From there on the loss of an instance reaches the guarantee; it is not reached where that size
    would make the list too long.
    """
    parameters = mechanism.parameters
    k = parameters.n_outcomes
    most = min(_MOST_UNITS, max(2, math.isqrt(2 * _MOST_ELEMENTS // k**3)))
    reaching = math.ceil(1 / parameters.truncation_threshold) + 1
    sizes = sorted({min(most, size) for size in (2, 8, reaching)})
    return [instance for size in sizes for instance in worst_instances(size, k)]


def _to_sample(
    mechanism: Mechanism | AggregateMechanism,
    listed: list[Enumeration],
    delta: float,
    error: float,
    effort: Effort,
) -> tuple[Instance, int]:
    """The instance that samples can be expected to show most of, and how many it is worth."""
    sizes = [_size(mechanism, each.instance, effort) for each in listed]
    expected = [
        expected_bound(each, size // 2, delta, error)
        for each, size in zip(listed, sizes, strict=True)
    ]
    best = int(np.argmax(expected))
    return listed[best].instance, sizes[best]


def expected_bound(each: Enumeration, size: int, delta: float, error: float) -> float:
    """Roughly what ``size`` samples under D and D′ bound ε by, for the best event of a list.

    ln((P − z √(P/N) − δ)/(Q + z √(Q/N) + z²/N)), z the normal quantile of half the ``error``.
    """
    z = float(stats.norm.isf(error / 2))
    best = 0.0
    for p, q in each.prefixes():
        low = p - z * np.sqrt(p / size) - delta
        high = q + z * np.sqrt(q / size) + z**2 / size
        best = max(best, math.log(max(1.0, float((low / high).max()))))
    return best


def _size(mechanism: Mechanism | AggregateMechanism, instance: Instance, effort: Effort) -> int:
    if isinstance(mechanism, AggregateMechanism):
        return aggregate_size(mechanism, instance, effort)
    return stacked_size(mechanism, instance, effort)


def _replicates(
    mechanism: Mechanism | AggregateMechanism, instance: Instance, size: int, calls: int
) -> tuple[Neighbours, Neighbours]:
    """Stacked and called replicates."""
    if isinstance(mechanism, AggregateMechanism):
        alike = stacked_aggregates(mechanism, instance, size)
        return alike, called_aggregates(mechanism, instance, calls)
    return stacked(mechanism, instance, size), called(mechanism, instance, calls)


def _sampled(
    mechanism: Mechanism | AggregateMechanism,
    instance: Instance,
    size: int,
    delta: float,
    error: float,
    effort: Effort,
) -> Bound:
    """The greatest lower bound of stacked and called replicates, each in both directions."""
    bounds = []
    for here, there in _replicates(mechanism, instance, size, effort.calls // 2):
        bounds += [lower_bound(here, there, delta, error), lower_bound(there, here, delta, error)]
    return max(bounds, key=lambda bound: bound.epsilon)


def _exact(each: Enumeration, claimed_epsilon: float, delta: float) -> float:
    """The exact ε of an instance at δ, as far as arithmetic can tell it from the claim."""
    epsilon = each.epsilon_at(delta + _SLACK if delta > 0 else 0.0)
    return claimed_epsilon if abs(epsilon - claimed_epsilon) <= _ARITHMETIC else epsilon
