"""Checks a claimed guarantee: the exact loss of small instances, bounds from samples, and laws.

The exact part enumerates what the mechanism says it does (`enumeration`): it finds a claim that
does not follow from λ, γ, σ and K, or from the tables. The sampled part runs the mechanism's code
(`sampling`, `marked_replicates`): it finds code that does something else, as far as samples can
show it, and its bound is valid whatever the mechanism does to a stratum. The laws
(`mechanism_laws`) find noise and draws that differ from what is stated, even where that changes ε
by little. None of them proves a guarantee: the notes beside the mechanisms do (`cluster_dp.md` and
others). `audit.md` says which part finds which fault. Data are made up here; no audit reads
anybody's outcomes.
"""

import logging
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from privatizers.audit.aggregates import (
    aggregate_size,
    enumerate_aggregates,
    sample_called_aggregates,
    sample_joint_aggregates,
    sample_stacked_aggregates,
)
from privatizers.audit.checks import Check
from privatizers.audit.enumeration import (
    Enumeration,
    Model,
    enumerate_outcomes,
    model_of,
    neighbours,
    with_squares,
)
from privatizers.audit.lower_bounds import Bound, lower_bound
from privatizers.audit.marked_replicates import Marked, marked_bound, marked_size, telling_instance
from privatizers.audit.mechanism_laws import aggregate_laws, mechanism_laws
from privatizers.audit.neighbours import Instance
from privatizers.audit.optimal_enumeration import optimal_enumerations, taught_instance
from privatizers.audit.optimal_laws import optimal_laws
from privatizers.audit.sampling import (
    UNDER_TWO_MINUTES,
    Effort,
    Neighbours,
    UnitMechanism,
    joint_size,
    sample_called,
    sample_joint,
    sample_stacked,
    stacked_size,
)
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism

AnyMechanism = UnitMechanism | AggregateMechanism

ARITHMETIC = 1e-10  # error of an exact ε; no listed loss is above what λ, γ and σ allow
SLACK = 1e-12  # error of δ, a sum of 100,000 probabilities
_KINDS = 3  # kinds of replicates whose columns are looked at: stacked, joint and called
_FEWER = 80  # one instance is sampled in full, the others with this many times fewer replicates
_EXACT = "the exact loss of small releases is within the claim"
_BOUND = "no bound from samples exceeds the claim"
_log = logging.getLogger("clusterdp")
_MOST_ELEMENTS = 3_000_000  # of a table of priors: about a tenth of a second
_MOST_UNITS = 200
_FEW_UNITS = 8


@dataclass(frozen=True)
class AuditResult:
    """The result of checking a claim."""

    claimed_epsilon: float
    delta: float
    exact_epsilon: float
    """The greatest exact ε of the instances at δ; the claim itself where at most 10⁻¹⁰ from it."""
    sampled_lower_bound: float
    """A bound that is above the true ε with a probability of at most 1 − ``confidence``."""
    confidence: float
    instance: Instance
    """The instance with the greatest exact ε."""
    sampled_instance: Instance
    """The instance that was sampled."""
    evidence: str
    """The event behind the sampled bound."""
    n_samples: int
    """Replicates behind the sampled bound, of the two data sets together."""
    laws: tuple[Check, ...] = ()
    """Checks of the laws of noise and draws."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks."""
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
    mechanism: AnyMechanism,
    claimed_epsilon: float,
    delta: float = 0.0,
    *,
    confidence: float = 0.9999,
    effort: Effort = UNDER_TWO_MINUTES,
) -> AuditResult:
    """Check that ``mechanism`` is (``claimed_epsilon``, ``delta``)-DP, as far as tests can show.

    A sound mechanism is reported as unsound with a probability of at most 1 − ``confidence``: half
    of it for bounds, half for laws.
    """
    _log.info("listing all outcomes of small releases")
    listed_all = enumerations(mechanism)
    whole = (with_squares(mechanism.parameters, listed) for listed in listed_all)
    exact = [_exact_epsilon(listed, claimed_epsilon, delta) for listed in whole]
    worst = int(np.argmax(exact))
    error = (1 - confidence) / 2
    marked = _sample_bound(mechanism, listed_all, delta, error, effort)
    _log.info("comparing noise and draws with their laws")
    laws = _laws(mechanism, effort, error)
    return AuditResult(
        claimed_epsilon,
        delta,
        exact[worst],
        marked.epsilon,
        confidence,
        listed_all[worst].instance,
        marked.instance,
        marked.evidence,
        2 * marked.size,
        tuple(laws),
    )


def enumerations(mechanism: AnyMechanism) -> list[Enumeration]:
    """Return the outcomes of small instances of several kinds, without sums of squares."""
    if isinstance(mechanism, AggregateMechanism):
        return enumerate_aggregates(mechanism)
    if isinstance(mechanism, ClusterOptimalDP):
        return optimal_enumerations(mechanism)
    model = realised_model(mechanism)
    return [enumerate_outcomes(model, instance) for instance in instances(mechanism)]


def _laws(mechanism: AnyMechanism, effort: Effort, error: float) -> list[Check]:
    if isinstance(mechanism, AggregateMechanism):
        return aggregate_laws(mechanism, effort, error)
    if isinstance(mechanism, ClusterOptimalDP):
        return optimal_laws(mechanism, effort, error)
    return mechanism_laws(mechanism, effort, error)


def realised_model(mechanism: Mechanism) -> Model:
    """Return the model of a mechanism, with the λ that its response draws with."""
    model = model_of(mechanism)
    k = model.parameters.n_outcomes
    response = mechanism.strata(np.ones((1, k), dtype=np.int64)).response
    parameters = replace(model.parameters, resampling_probability=response.resampling_probability)
    return replace(model, parameters=parameters)


def instances(mechanism: Mechanism) -> list[Instance]:
    """Return neighbours of several sizes, up to one where a count of two units is below γ n.

    Once a count of one unit is below γ n, the loss of an instance reaches the guarantee. Where that
    size would make the enumeration too long, it is left out.
    """
    parameters = mechanism.parameters
    k = parameters.n_outcomes
    most = min(_MOST_UNITS, max(2, math.isqrt(2 * _MOST_ELEMENTS // k**3)))
    large = [math.ceil(units / parameters.truncation_threshold) + 1 for units in (1, 2)]
    sizes = sorted({min(most, size) for size in (2, 8, *large)})
    return [instance for size in sizes for instance in neighbours(parameters, size)]


def _choose_instance(
    mechanism: AnyMechanism,
    enumerations: list[Enumeration],
    delta: float,
    error: float,
    effort: Effort,
) -> tuple[Instance, int]:
    """Return the instance with the greatest expected bound, and its number of samples."""
    if isinstance(mechanism, ClusterOptimalDP):  # many strata at once get no tables of their own
        enumerations = [each for each in enumerations if each.instance.n_units <= _FEW_UNITS]
    sizes = [_size(mechanism, listed.instance, effort) for listed in enumerations]
    expected = [
        expected_bound(listed, size // 2, delta, error)
        for listed, size in zip(enumerations, sizes, strict=True)
    ]
    best = int(np.argmax(expected))
    return enumerations[best].instance, sizes[best]


def expected_bound(listed: Enumeration, size: int, delta: float, error: float) -> float:
    """Return roughly the bound on ε from ``size`` samples under D and D′, for the best event.

    ln((P − z √(P/N) − δ)/(Q + z √(Q/N) + z²/N)), z the normal quantile of half the ``error``.
    """
    z = float(stats.norm.isf(error / 2))
    best = 0.0
    for p, q in listed.prefixes():
        low = p - z * np.sqrt(p / size) - delta
        high = q + z * np.sqrt(q / size) + z**2 / size
        best = max(best, math.log(max(1.0, float((low / high).max()))))
    return best


def _size(mechanism: AnyMechanism, instance: Instance, effort: Effort) -> int:
    if isinstance(mechanism, AggregateMechanism):
        return aggregate_size(mechanism, instance, effort)
    return stacked_size(mechanism, instance, effort.less)


def _replicates(
    mechanism: AnyMechanism, instance: Instance, size: int, effort: Effort
) -> list[Neighbours]:
    """Draw stacked, joint and called replicates."""
    calls = effort.calls // 2
    if isinstance(mechanism, AggregateMechanism):
        return [
            sample_stacked_aggregates(mechanism, instance, size),
            sample_joint_aggregates(mechanism, instance, max(size // 3, 10)),
            sample_called_aggregates(mechanism, instance, calls),
        ]
    called = instance
    if isinstance(mechanism, ClusterOptimalDP):
        called, most = taught_instance(mechanism)
        calls = min(calls, most)
    return [
        sample_stacked(mechanism, instance, size),
        sample_joint(mechanism, instance, joint_size(mechanism, effort.less)),
        sample_called(mechanism, called, calls),
    ]


def _sample_bound(
    mechanism: AnyMechanism,
    enumerations: list[Enumeration],
    delta: float,
    error: float,
    effort: Effort,
) -> Marked:
    """Return the greatest lower bound, wrong with a probability of at most ``error``.

    For one instance all columns are looked at, in both directions; for one instance of each size
    only the categories.
    """
    to_mark: list[Instance] = []
    if not isinstance(mechanism, AggregateMechanism):
        to_mark = _instances_to_mark(mechanism, enumerations)
    share = error / (2 * _KINDS + 2 * len(to_mark)) / 2  # half is for the most telling instance
    to_sample, size = _choose_instance(mechanism, enumerations, delta, share, effort)
    _log.info("sampling releases of %d units", to_sample.n_units)
    bounds: list[Bound] = []
    for here, there in _replicates(mechanism, to_sample, size, effort):
        bounds += [lower_bound(here, there, delta, share), lower_bound(there, here, delta, share)]
    best = max(bounds, key=lambda bound: bound.epsilon)
    evidence = "none" if best.telltale is None else str(best.telltale)
    results = [Marked(best.epsilon, to_sample, evidence, size)]
    if not isinstance(mechanism, AggregateMechanism):
        full = marked_size(mechanism, effort)
        for number, instance in enumerate(to_mark):
            _log.info("sampling releases of %d units", instance.n_units)
            times = full if number == 0 else max(full // _FEWER, 10)
            part = 2 * share if number else error / 2
            results.append(marked_bound(mechanism, instance, times, delta, part))
    return max(results, key=lambda marked: marked.epsilon)


def _instances_to_mark(mechanism: UnitMechanism, enumerations: list[Enumeration]) -> list[Instance]:
    """Return the most telling instance, and for each size the one with the greatest exact loss."""
    if isinstance(mechanism, ClusterOptimalDP):
        return [telling_instance(mechanism)]
    worst: dict[int, Enumeration] = {}
    for listed in enumerations:
        n = listed.instance.n_units
        if n not in worst or listed.epsilon > worst[n].epsilon:
            worst[n] = listed
    return [telling_instance(mechanism), *(listed.instance for listed in worst.values())]


def _exact_epsilon(listed: Enumeration, claimed_epsilon: float, delta: float) -> float:
    """Return the exact ε of an instance at δ, or the claim where arithmetic sees no difference."""
    epsilon = listed.epsilon_at(delta + SLACK if delta > 0 else 0.0)
    return claimed_epsilon if abs(epsilon - claimed_epsilon) <= ARITHMETIC else epsilon
