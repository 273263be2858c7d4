"""No release tells more than is claimed of it: claims against the exact list of outcomes.

Over 240 sets of parameters, the same in every run so that a failure can be met again.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from privatizers.accounting.accountant import delta_at, pure_epsilon
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.cluster_free_dp import ClusterFreeDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import Parameters, event_of
from privatizers.mechanisms.uniform_prior_dp import UniformPriorDP
from tests.exact.enumeration import enumerate_outcomes, model_of
from tests.exact.neighbours import worst_instances
from tests.support.guarantee import guarantee

pytestmark = pytest.mark.statistical

KINDS: tuple[type[ClusterDP | ClusterFreeDP | UniformPriorDP], ...] = (
    ClusterDP,
    ClusterFreeDP,
    UniformPriorDP,
)
SETS, BATCHES = 240, 8
LOSS = 1e-11  # what `enumeration` states of the arithmetic of a loss
PROBABILITY = 1e-13  # and of a sum of a hundred thousand probabilities


@dataclass(frozen=True)
class Case:
    mechanism: Mechanism
    n_units: int


def cases(batch: int) -> list[Case]:
    """K 2–5, n 2–60, σ 0.3–20 and γ 0.01/K–1/K (both in logarithms), λ 0.05–0.99."""
    found = []
    for number in range(batch, SETS, BATCHES):
        draw = np.random.default_rng([20250, number])
        k, n = int(draw.integers(2, 6)), int(draw.integers(2, 61))
        scale = math.exp(draw.uniform(math.log(0.3), math.log(20)))
        rate, share = draw.uniform(0.05, 0.99), math.exp(draw.uniform(math.log(0.01), 0))
        kind = KINDS[number % len(KINDS)]
        gamma = 1 / k if kind is UniformPriorDP else share / k
        found.append(Case(kind(Parameters.of(k, rate, gamma, scale)), n))
    return found


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_exact_loss_is_at_most_the_claim_and_so_is_delta(batch: int) -> None:
    for case in cases(batch):
        claim, event = guarantee(case.mechanism), event_of(case.mechanism.parameters)
        model = model_of(case.mechanism)
        for instance in worst_instances(case.n_units, model.parameters.n_outcomes)[:2]:
            found = enumerate_outcomes(model, instance)
            assert found.epsilon <= claim + LOSS, case
            for share in (0.2, 0.95):
                epsilon = share * pure_epsilon(event)
                listed = found.listed_delta_at(epsilon)
                assert listed <= delta_at(event, epsilon) + PROBABILITY, case


def reached(case: Case) -> bool:
    """Whether an instance can have a count that shows the change while its prior is at γ."""
    uniform = case.mechanism.name == "uniform-prior-dp"
    return uniform or case.mechanism.parameters.truncation_threshold * case.n_units >= 1


def test_the_claim_is_reached_to_one_percent_wherever_it_can_be() -> None:
    able = [case for batch in range(BATCHES) for case in cases(batch) if reached(case)][::3]
    assert len(able) >= 30
    for case in able:
        k = case.mechanism.parameters.n_outcomes
        model = model_of(case.mechanism)
        found = max(
            enumerate_outcomes(model, each).epsilon for each in worst_instances(case.n_units, k)[:2]
        )
        assert found >= 0.99 * guarantee(case.mechanism), case
