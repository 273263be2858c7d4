"""The audit accepts what is sound and catches what is broken.

A sound mechanism is accused with a probability of at most 1e-4 an audit, the default confidence of
0.9999; seven of the audits below are of sound mechanisms. Each broken one says which half of
the audit catches it: `exact`, the list of outcomes, or `sampled`, the bound from draws. A bound
from draws can miss what it is meant to catch, too: the broken mechanisms have parameters with
which that is less likely than 1e-4 (the expected bound is several standard errors above the claim).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privatizers.accounting.accountant import calibrate, pure_epsilon
from privatizers.accounting.events import CountsNoise, Response
from privatizers.accounting.rounding import realised_rate, realised_threshold
from privatizers.audit.audit import AuditResult, audit
from privatizers.audit.lower_bounds import DRAW, SIGNATURE, Sample, clopper_pearson, lower_bound
from privatizers.audit.sampling import Effort
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.cluster_free_dp import ClusterFreeDP
from privatizers.mechanisms.mechanism import Mechanism, StrataRelease, guarantee
from privatizers.mechanisms.noisy_counts import NoisyCounts
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.prior import realised_prior, truncated_prior
from privatizers.mechanisms.randomised_response import RandomisedResponse
from privatizers.mechanisms.uniform_prior_dp import UniformPriorDP
from privatizers.noise.randomness import discrete_laplace
from privatizers.planning.design import Request, design

Counts = NDArray[np.int64]

QUICK = Effort(noised_cells=40_000, units=1_000_000, calls=200)
MORE = Effort(noised_cells=60_000, units=2_000_000, calls=200)
MECHANISMS = (ClusterDP, ClusterFreeDP, UniformPriorDP)


# Sound mechanisms hold


@pytest.mark.parametrize(
    "mechanism",
    [
        ClusterDP(Parameters.of(3, 0.8, 0.1, 1.0)),
        ClusterDP(Parameters.of(2, 0.6, 0.1, 0.5)),
        ClusterFreeDP(Parameters.of(4, 0.5, 0.2, 3.0)),
        UniformPriorDP(Parameters.of(3, 0.8, 1 / 3, 1.0)),
        UniformPriorDP(Parameters.of(5, 0.5, 0.2, None)),
    ],
    ids=str,
)
def test_a_sound_mechanism_holds_and_its_claim_is_nearly_reached(mechanism: Mechanism) -> None:
    claim = guarantee(mechanism)
    found = audit(mechanism, claim, effort=QUICK)
    assert found.holds
    assert (found.claimed_epsilon, found.delta, found.confidence) == (claim, 0.0, 0.9999)
    assert found.exact_epsilon == claim
    assert found.sampled_lower_bound <= claim
    # Power: how near samples come depends on how rare the worst outcomes are.
    assert found.sampled_lower_bound > 0.45 * claim
    assert found.n_samples >= 10_000


def test_a_default_release_holds_at_the_default_effort() -> None:
    chosen = design(Request("auto", 12, epsilon=2.0))
    found = audit(chosen.mechanism, chosen.epsilon)
    assert found.holds
    assert found.exact_epsilon == pytest.approx(2.0, abs=1e-9)


def test_a_claim_with_a_delta_holds_and_a_smaller_one_does_not() -> None:
    least, counts = realised_threshold(1 / 3, 3), CountsNoise(4.0, 2)
    rate = calibrate(1.0, 0.01, least, counts)
    mechanism = UniformPriorDP(Parameters(3, rate, least, 4.0))
    assert guarantee(mechanism) > 1.0
    few = replace(QUICK, noised_cells=10_000, calls=100)
    assert audit(mechanism, 1.0, 0.01, effort=few).holds
    found = audit(mechanism, 1.0, 0.0099, effort=few)
    assert not found.holds
    assert found.exact_epsilon > 1.0


# Claims that do not follow from the parameters: the exact half catches them


def caught_by(found: AuditResult) -> set[str]:
    halves = {"exact": found.exact_epsilon, "sampled": found.sampled_lower_bound}
    caught = {half for half, epsilon in halves.items() if epsilon > found.claimed_epsilon}
    assert found.holds == (not caught)
    return caught


LITTLE = Effort(noised_cells=3_000, units=100_000, calls=40)


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("k", [3, 12])
def test_one_over_sigma_is_caught(
    kind: type[ClusterDP | ClusterFreeDP | UniformPriorDP], k: int
) -> None:
    """Theorem 3.1 of Javanmard, Mirrokni and Pouget-Abadie (2025): 1/σ for two moved cells."""
    gamma = 1 / k if kind is UniformPriorDP else 1 / (2 * k)
    mechanism = kind(Parameters.of(k, 0.8, gamma, 10.0))
    found = audit(mechanism, guarantee(mechanism) - 1 / 10, effort=LITTLE)
    assert caught_by(found) == {"exact"}
    assert found.exact_epsilon == pytest.approx(guarantee(mechanism), rel=0.01)


def test_counts_beside_a_uniform_prior_that_nobody_pays_for_are_caught() -> None:
    parameters = Parameters.of(3, 0.8, 1 / 3, 10.0)
    alone = Response(parameters.resampling_probability, parameters.truncation_threshold)
    found = audit(UniformPriorDP(parameters), pure_epsilon(alone), effort=LITTLE)
    assert caught_by(found) == {"exact"}


# Mechanisms that do not do what they say: the sampled half catches them


@dataclass(frozen=True)
class Imitation(ClusterDP):
    """Says that it is Cluster-DP, and is not."""

    def released(self, noisy: Counts, sizes: Counts) -> StrataRelease:
        gamma = self.parameters.truncation_threshold
        prior = realised_prior(truncated_prior(noisy, sizes, gamma), gamma)
        return StrataRelease(
            noisy, RandomisedResponse(self.parameters.resampling_probability, prior)
        )

    def scale(self) -> float:
        assert self.parameters.noise_scale is not None
        return self.parameters.noise_scale


@dataclass(frozen=True)
class ShortNoise(Imitation):
    """The noise is 30 % short."""

    def strata(self, counts: Counts) -> StrataRelease:
        noisy = NoisyCounts(counts.shape[1], 0.7 * self.scale()).noised(counts)
        return self.released(noisy, counts.sum(axis=1))


@dataclass(frozen=True)
class ClippedTails(Imitation):
    """The noise is clipped at three scales."""

    def strata(self, counts: Counts) -> StrataRelease:
        noise = discrete_laplace(counts.size, self.scale()).reshape(counts.shape)
        most = int(3 * self.scale())
        return self.released(counts + noise.clip(-most, most), counts.sum(axis=1))


@dataclass(frozen=True)
class AnotherResponse(RandomisedResponse):
    """Publishes one rate and one prior, and draws with others."""

    real: RandomisedResponse

    def draw(self, levels: NDArray[np.integer], strata: NDArray[np.integer]) -> Counts:
        return self.real.draw(levels, strata)


@dataclass(frozen=True)
class DrawsFromRaw(Imitation):
    """Rows are drawn from the stratum's own distribution, not from the noisy one."""

    def strata(self, counts: Counts) -> StrataRelease:
        honest = ClusterDP(self.parameters).strata(counts)
        rate, prior = honest.response.resampling_probability, honest.response.prior
        raw = realised_prior(counts / counts.sum(axis=1, keepdims=True), 0.0)
        response = AnotherResponse(rate, prior, RandomisedResponse(rate, raw))
        return StrataRelease(honest.noisy_counts, response)


@dataclass(frozen=True)
class ShortRate(Imitation):
    """Outcomes are resampled 5 % less often than is said and published."""

    name: ClassVar[str] = "uniform-prior-dp"

    def strata(self, counts: Counts) -> StrataRelease:
        honest = UniformPriorDP(self.parameters).strata(counts)
        rate, prior = honest.response.resampling_probability, honest.response.prior
        real = RandomisedResponse(realised_rate(0.95 * rate), prior)
        return StrataRelease(honest.noisy_counts, AnotherResponse(rate, prior, real))


@dataclass(frozen=True)
class ShortRatePublished(Imitation):
    """The claim is made with one rate, the release with one that is 5 % less."""

    def strata(self, counts: Counts) -> StrataRelease:
        honest = ClusterDP(self.parameters).strata(counts)
        rate = realised_rate(0.95 * self.parameters.resampling_probability)
        return StrataRelease(honest.noisy_counts, RandomisedResponse(rate, honest.response.prior))


@dataclass(frozen=True)
class SawTheOtherArm(Imitation):
    """The prior of each stratum is made of the raw counts of the strata beside it."""

    def strata(self, counts: Counts) -> StrataRelease:
        honest = ClusterDP(self.parameters).strata(counts)
        others = counts.sum(axis=0) - counts
        if len(counts) == 1:
            return honest
        return StrataRelease(
            honest.noisy_counts, self.released(others, others.sum(axis=1)).response
        )


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (ShortNoise, Parameters.of(2, 0.8, 0.5, 0.5)),
        (ClippedTails, Parameters.of(3, 0.8, 0.2, 2.0)),
        (DrawsFromRaw, Parameters.of(3, 0.8, 0.1, 2.0)),
        (ShortRate, Parameters.of(3, 0.5, 1 / 3, None)),
    ],
)
def test_a_mechanism_that_does_something_else_is_caught_by_samples(
    kind: type[Imitation], parameters: Parameters
) -> None:
    mechanism = cast(Mechanism, kind(parameters))
    found = audit(mechanism, guarantee(mechanism), effort=MORE)
    assert caught_by(found) == {"sampled"}


def test_a_rate_that_is_published_short_is_caught_exactly() -> None:
    mechanism = ShortRatePublished(Parameters.of(3, 0.8, 0.1, 2.0))
    assert caught_by(audit(mechanism, guarantee(mechanism), effort=LITTLE)) == {"exact"}


def test_a_prior_that_saw_the_other_arm_is_caught_by_what_is_said_of_that_arm() -> None:
    mechanism = SawTheOtherArm(Parameters.of(3, 0.8, 0.1, 2.0))
    found = audit(mechanism, guarantee(mechanism), effort=replace(QUICK, calls=600))
    assert caught_by(found) == {"sampled"}
    assert "stratum before" in found.evidence or "stratum after" in found.evidence


# Bounds


@pytest.mark.parametrize("size", [1, 7, 400])
@pytest.mark.parametrize("error", [0.05, 1e-5])
def test_clopper_and_pearsons_bounds_are_those_of_exact_tests(size: int, error: float) -> None:
    happened = np.unique(np.array([0, 1, size // 2, size]))
    low, high = clopper_pearson(happened, size, error)
    for k, below, above in zip(happened.tolist(), low, high, strict=True):
        # By definition: at the bounds, what happened or more (or less) has just this probability.
        if k > 0:
            assert stats.binom.sf(k - 1, size, below) == pytest.approx(error, rel=1e-6)
        if k < size:
            assert stats.binom.cdf(k, size, above) == pytest.approx(error, rel=1e-6)
    assert low[0] == 0.0
    assert high[-1] == 1.0


def made_up(generator: np.random.Generator, size: int, shift: float) -> Sample:
    """Columns of which one tells ``shift``, beside others that tell nothing and tempt."""
    likely = 1 / (1 + math.exp(-shift))
    draw = np.where(generator.random(size) < likely, 0.0, 1.0)
    noise, signature = generator.integers(0, 40, (2, size)).astype(np.float64)
    return Sample({DRAW: draw, SIGNATURE: signature, "noise": noise})


def test_a_bound_is_above_the_truth_no_more_often_than_stated() -> None:
    """60 repetitions, error 0.2: more than 27 wrong ones have a probability of 5e-6.

    The events on offer are many and chosen by how much they seem to tell, so that bounding them
    on the samples that chose them is wrong more often than not: the negative control.
    """
    generator, truth, error = np.random.default_rng(7), 0.5, 0.2
    wrong = tempted = 0
    for _ in range(60):
        here, there = (made_up(generator, 400, sign * truth) for sign in (1, -1))
        wrong += lower_bound(here, there, 0.0, error).epsilon > truth
        tempted += lower_bound(repeated(here), repeated(there), 0.0, error).epsilon > truth
    assert wrong <= 27
    assert tempted > 27


def repeated(sample: Sample) -> Sample:
    """The first half of a sample, as both of its halves."""
    first = sample.halves()[0].columns
    return Sample({name: np.tile(values, 2) for name, values in first.items()})


def test_a_bound_has_power() -> None:
    generator = np.random.default_rng(11)
    here, there = (made_up(generator, 100_000, sign * 0.5) for sign in (1, -1))
    assert 0.45 < lower_bound(here, there, 0.0, 1e-5).epsilon <= 0.5
    # With a δ there is less left to explain: P − e^ε Q = δ at ε = ln((0.6225 − 0.1)/0.3775).
    assert 0.25 < lower_bound(here, there, 0.1, 1e-5).epsilon <= math.log(0.5225 / 0.3775)
