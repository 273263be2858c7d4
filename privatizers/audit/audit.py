"""Checks a claimed guarantee: the exact loss of small instances, bounds from samples, and laws.

The exact part lists what the mechanism says it does (`enumeration`): it finds a claim that does
not follow from λ, γ, σ and K. The sampled part runs what the mechanism really does
(`sampling`, `marked_replicates`): it finds code that does something else, as far as samples can
show it, and its bound is valid whatever the mechanism does to a stratum. The laws
(`mechanism_laws`) find noise and draws that are not what is stated, however little that tells.
None of them proves a guarantee: that is done in the notes beside the mechanisms (`cluster_dp.md`
and others). Which fault is found by what stands in `audit.md`. Data are made up here; no audit
reads anybody's outcomes.
"""

import logging
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from privatizers.audit.aggregates import (
    aggregate_size,
    called_aggregates,
    joint_aggregates,
    listed_aggregates,
    stacked_aggregates,
)
from privatizers.audit.checks import Check
from privatizers.audit.enumeration import (
    Enumeration,
    Model,
    enumerated,
    model_of,
    neighbours,
    with_squares,
)
from privatizers.audit.lower_bounds import Bound, lower_bound
from privatizers.audit.marked_replicates import Marked, marked_bound, marked_size, telling_instance
from privatizers.audit.mechanism_laws import aggregate_laws, mechanism_laws
from privatizers.audit.neighbours import Instance
from privatizers.audit.sampling import (
    UNDER_TWO_MINUTES,
    Effort,
    Neighbours,
    called,
    joint,
    joint_size,
    stacked,
    stacked_size,
)
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.mechanism import Mechanism

_ARITHMETIC = 1e-10  # of an exact ε; a list never has a loss above what its λ, γ and σ allow
_SLACK = 1e-12  # of δ, for the arithmetic of sums of 100,000 probabilities
_KINDS = 3  # of replicates whose columns are looked at: stacked, joint and called
_LITTLE = 80  # one instance is sampled in full, the others by so many parts of it
_EXACT = "the exact loss of small releases is within the claim"
_BOUND = "no bound from samples exceeds the claim"
_log = logging.getLogger("clusterdp")
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
    """Replicates behind the sampled bound, of the two data sets together."""
    laws: tuple[Check, ...] = ()
    """What was checked of what is drawn, beside how much it tells."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """Everything that was looked at."""
        exact = f"epsilon {self.exact_epsilon:.6g}, counts {self.instance.counts}"
        bound = f"epsilon {self.sampled_lower_bound:.4g} at least: {self.evidence}"
        return (
            Check(_EXACT, self.exact_epsilon <= self.claimed_epsilon, exact),
            Check(_BOUND, self.sampled_lower_bound <= self.claimed_epsilon, bound),
            *self.laws,
        )

    @property
    def holds(self) -> bool:
        """Whether nothing exceeds the claim, and everything is drawn as stated."""
        return all(check.holds for check in self.checks)


def audit(
    mechanism: Mechanism | AggregateMechanism,
    claimed_epsilon: float,
    delta: float = 0.0,
    *,
    confidence: float = 0.9999,
    effort: Effort = UNDER_TWO_MINUTES,
) -> AuditResult:
    """Check that ``mechanism`` is (``claimed_epsilon``, ``delta``)-DP, as far as can be seen.

    A sound mechanism is reported as unsound with a probability of at most 1 − ``confidence``: half
    of it is for bounds, half for laws.
    """
    _log.info("listing all outcomes of small releases")
    listed = _listed(mechanism)
    whole = (with_squares(mechanism.parameters, each) for each in listed)
    exact = [_exact(each, claimed_epsilon, delta) for each in whole]
    worst = int(np.argmax(exact))
    error = (1 - confidence) / 2
    found = _sampled(mechanism, listed, delta, error, effort)
    _log.info("comparing noise and draws with their laws")
    laws = (
        aggregate_laws(mechanism, effort, error)
        if isinstance(mechanism, AggregateMechanism)
        else mechanism_laws(mechanism, effort, error)
    )
    return AuditResult(
        claimed_epsilon,
        delta,
        exact[worst],
        found.epsilon,
        confidence,
        listed[worst].instance,
        found.instance,
        found.evidence,
        2 * found.size,
        tuple(laws),
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
    """Neighbours of several sizes, up to one where a count of two units is below γ n.

    From a count of one on the loss of an instance reaches the guarantee; it is not reached where
    that size would make the list too long.
    """
    parameters = mechanism.parameters
    k = parameters.n_outcomes
    most = min(_MOST_UNITS, max(2, math.isqrt(2 * _MOST_ELEMENTS // k**3)))
    reaching = [math.ceil(units / parameters.truncation_threshold) + 1 for units in (1, 2)]
    sizes = sorted({min(most, size) for size in (2, 8, *reaching)})
    return [instance for size in sizes for instance in neighbours(parameters, size)]


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
    return stacked_size(mechanism, instance, effort.less)


def _replicates(
    mechanism: Mechanism | AggregateMechanism, instance: Instance, size: int, effort: Effort
) -> list[Neighbours]:
    """Stacked, joint and called replicates."""
    calls = effort.calls // 2
    if isinstance(mechanism, AggregateMechanism):
        return [
            stacked_aggregates(mechanism, instance, size),
            joint_aggregates(mechanism, instance, max(size // 3, 10)),
            called_aggregates(mechanism, instance, calls),
        ]
    return [
        stacked(mechanism, instance, size),
        joint(mechanism, instance, joint_size(mechanism, effort.less)),
        called(mechanism, instance, calls),
    ]


def _sampled(
    mechanism: Mechanism | AggregateMechanism,
    listed: list[Enumeration],
    delta: float,
    error: float,
    effort: Effort,
) -> Marked:
    """The greatest lower bound there is, wrong with a probability of at most ``error``.

    Of one instance all columns are looked at, in both directions, of one a size the categories.
    """
    marked = [] if isinstance(mechanism, AggregateMechanism) else _by_size(mechanism, listed)
    share = error / (2 * _KINDS + 2 * len(marked)) / 2  # half is for the instance that tells most
    to_sample, size = _to_sample(mechanism, listed, delta, share, effort)
    _log.info("sampling releases of %d units", to_sample.n_units)
    bounds: list[Bound] = []
    for here, there in _replicates(mechanism, to_sample, size, effort):
        bounds += [lower_bound(here, there, delta, share), lower_bound(there, here, delta, share)]
    best = max(bounds, key=lambda bound: bound.epsilon)
    evidence = "none" if best.telltale is None else str(best.telltale)
    found = [Marked(best.epsilon, to_sample, evidence, size)]
    if not isinstance(mechanism, AggregateMechanism):
        full = marked_size(mechanism, effort)
        for number, instance in enumerate(marked):
            _log.info("sampling releases of %d units", instance.n_units)
            times = full if number == 0 else max(full // _LITTLE, 10)
            part = 2 * share if number else error / 2
            found.append(marked_bound(mechanism, instance, times, delta, part))
    return max(found, key=lambda one: one.epsilon)


def _by_size(mechanism: Mechanism, listed: list[Enumeration]) -> list[Instance]:
    """The most telling instance, and the one with the greatest exact loss of each size listed."""
    worst: dict[int, Enumeration] = {}
    for each in listed:
        n = each.instance.n_units
        if n not in worst or each.epsilon > worst[n].epsilon:
            worst[n] = each
    return [telling_instance(mechanism), *(each.instance for each in worst.values())]


def _exact(each: Enumeration, claimed_epsilon: float, delta: float) -> float:
    """The exact ε of an instance at δ, as far as arithmetic can tell it from the claim."""
    epsilon = each.epsilon_at(delta + _SLACK if delta > 0 else 0.0)
    return claimed_epsilon if abs(epsilon - claimed_epsilon) <= _ARITHMETIC else epsilon
