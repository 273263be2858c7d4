"""Everything that a release with margins tells, listed: its loss is the claim, and no more."""

from dataclasses import replace

import pytest

from privatizers.accounting.accountant import delta_at, pure_epsilon
from privatizers.domain.lattice import lattice_of
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism
from privatizers.mechanisms.parameters import event_of
from privatizers.planning.design import Request, design
from privatizers.planning.optimal_design import OptimalRequest, optimal_design
from tests.exact.enumeration import (
    Enumeration,
    enumerate_outcomes,
    model_of,
    neighbours,
    with_margins,
)
from tests.exact.optimal_enumeration import enumerate_optimal

GRID = (0.0, 1.0, 3.0)
LATTICE = lattice_of(GRID)
LOSS = 1e-11  # what `enumeration` states of the arithmetic of a loss
SHARES = (0.25, 0.15)
REQUESTS = {
    "uniform-prior-dp and means": Request("uniform-prior-dp", 3, "means", 2.0),
    "uniform-prior-dp alone": Request("uniform-prior-dp", 3, "none", 1.0),
    "cluster-dp": Request("cluster-dp", 3, "counts", 2.0),
    "with a delta": Request("uniform-prior-dp", 3, "counts", 1.5, 1e-3),
}
Any = Mechanism | ClusterOptimalDP


def mechanism_of(name: str) -> Any:
    if name in REQUESTS:
        return design(replace(REQUESTS[name], lattice=LATTICE, margin_shares=SHARES)).mechanism
    tables = OptimalRequest(GRID, (0.7, 0.2, 0.1), 2.0, lattice=LATTICE, margin_shares=SHARES)
    return optimal_design(replace(tables, learn_from="nothing")).mechanism


def listed(mechanism: Any) -> list[Enumeration]:
    found = []
    for instance in neighbours(mechanism.parameters, 8):
        without = (
            enumerate_optimal(mechanism, instance)
            if isinstance(mechanism, ClusterOptimalDP)
            else enumerate_outcomes(model_of(mechanism), instance)
        )
        found.append(with_margins(mechanism.parameters, without))
    return found


@pytest.mark.parametrize("name", [*REQUESTS, "cluster-optimal-dp"])
def test_the_loss_of_everything_together_is_the_claim(name: str) -> None:
    mechanism = mechanism_of(name)
    event, every = event_of(mechanism.parameters), listed(mechanism)
    claim = pure_epsilon(event)
    assert max(one.epsilon for one in every) <= claim + LOSS
    near = 1e-2 if name == "cluster-dp" else 1e-6  # its prior has to be at its threshold, too
    assert max(one.epsilon for one in every) >= claim * (1.0 - near)
    for share in (0.3, 0.8):
        most = max(one.listed_delta_at(share * claim) for one in every)
        assert 0.0 < most <= delta_at(event, share * claim) + 1e-13


@pytest.mark.parametrize("name", ["uniform-prior-dp and means", "cluster-optimal-dp"])
def test_half_the_noise_of_one_margin_is_more_than_the_claim(name: str) -> None:
    mechanism = mechanism_of(name)
    own = mechanism.parameters
    claim = pure_epsilon(event_of(own))
    assert own.margins is not None
    scales = own.margins.noise_scales
    halved = replace(own.margins, noise_scales=(scales[0], scales[1] / 2))
    broken = replace(mechanism, parameters=replace(own, margins=halved))  # type: ignore[type-var]
    most = max(one.epsilon for one in listed(broken))
    assert most == pytest.approx(claim + own.margins.lattice.most / scales[1], rel=1e-6)
