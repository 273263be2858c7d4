"""From a request to a mechanism: refusals name their key, and the ε asked for is kept."""

import math
from decimal import Decimal, localcontext
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.cluster_free_dp import ClusterFreeDP
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.uniform_prior_dp import UniformPriorDP
from privatizers.planning.design import MechanismName, Request, design
from schemas.errors import ConfigError
from tests.support.guarantee import guarantee

NAMES: tuple[MechanismName, ...] = get_args(MechanismName)
OWN_PRIOR: tuple[MechanismName, ...] = ("cluster-dp", "cluster-free-dp")

EPSILON = "privacy.epsilon"
RATE = "privacy.resampling_probability"
THRESHOLD = "privacy.truncation_threshold"
SCALE = "privacy.noise_scale"


def declared(
    *,
    mechanism: MechanismName = "cluster-dp",
    n_outcomes: int = 5,
    rate: float | None = 0.5,
    threshold: float | None = 0.05,
    scale: float | None = 8.0,
) -> Request:
    """A request that gives its parameters; sound as it stands."""
    return Request(
        mechanism,
        n_outcomes,
        resampling_probability=rate,
        truncation_threshold=threshold,
        noise_scale=scale,
    )


NOT_POSITIVE = (0.0, -1.0, math.inf, math.nan)
REFUSED = [
    *((Request("auto", 5, epsilon=value), EPSILON) for value in NOT_POSITIVE),
    *((declared(threshold=value), THRESHOLD) for value in NOT_POSITIVE),
    *((declared(scale=value), SCALE) for value in NOT_POSITIVE),
    *((declared(rate=value), RATE) for value in (0.0, 1.0, -0.5, 1.5, math.nan)),
    (declared(threshold=0.2000001), THRESHOLD),  # more than 1/K
    (Request("auto", 5), EPSILON),  # neither ε nor parameters
    (Request("auto", 5, epsilon=1.0, resampling_probability=0.5), RATE),  # both
    (Request("cluster-dp", 5, epsilon=1.0, truncation_threshold=0.1), THRESHOLD),
    (Request("auto", 5, epsilon=1.0, noise_scale=8.0), SCALE),
    (declared(rate=None), RATE),
    (declared(threshold=None), THRESHOLD),
    (declared(mechanism="cluster-free-dp", threshold=None), THRESHOLD),
    (declared(scale=None), SCALE),
    (declared(mechanism="uniform-prior-dp", threshold=None, scale=None), SCALE),
    (declared(mechanism="uniform-prior-dp", threshold=0.1), THRESHOLD),  # its γ is 1/K
    (
        Request("auto", 5, strata_statistic="none", resampling_probability=0.5, noise_scale=8.0),
        SCALE,
    ),
    *(
        (Request(name, 5, strata_statistic="none", epsilon=1.0), "privacy.strata_statistic")
        for name in OWN_PRIOR
    ),
    (Request("auto", 1, epsilon=1.0), "outcome"),
    (Request("auto", 0, epsilon=1.0), "outcome"),
    # Beyond what arithmetic holds: e^ε and 1/ε overflow, and noise of 64 bits would wrap around.
    *((Request("auto", 3, epsilon=value), EPSILON) for value in (1e-310, 1e-17, 1e7)),
    *((declared(scale=value), SCALE) for value in (1e-4, 1e13, 1e19)),
]


@pytest.mark.parametrize(("request_", "key"), REFUSED, ids=str)
def test_what_cannot_be_is_refused_and_the_key_named(request_: Request, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        design(request_)
    assert caught.value.key == key
    assert key in str(caught.value)


def test_the_request_those_refusals_start_from_is_sound() -> None:
    assert design(declared()).mechanism == ClusterDP(Parameters.of(5, 0.5, 0.05, 8.0))


def test_auto_is_the_uniform_prior_with_counts() -> None:
    chosen = design(Request("auto", 5, epsilon=1.0)).mechanism
    assert isinstance(chosen, UniformPriorDP)
    assert chosen.parameters.noise_scale is not None
    assert chosen == design(Request("uniform-prior-dp", 5, epsilon=1.0)).mechanism


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cluster-dp", ClusterDP),
        ("cluster-free-dp", ClusterFreeDP),
        ("uniform-prior-dp", UniformPriorDP),
    ],
)
def test_a_mechanism_is_had_by_its_name(name: MechanismName, kind: type) -> None:
    chosen = design(Request(name, 5, epsilon=1.0)).mechanism
    assert type(chosen) is kind
    assert chosen.name == name


def test_without_a_statistic_all_of_epsilon_pays_for_the_outcomes() -> None:
    chosen = design(Request("auto", 4, strata_statistic="none", epsilon=math.log(5))).mechanism
    assert chosen.parameters.noise_scale is None
    # λ = 1/(1 + (e^ε − 1)/K) = 1/2; ln 5 as a double, and γ, are off by 1e-16.
    assert chosen.parameters.resampling_probability == pytest.approx(0.5, rel=1e-15, abs=0)


@pytest.mark.parametrize(("n_outcomes", "moved"), [(2, 1), (3, 2), (12, 2)])
def test_a_tenth_of_epsilon_pays_for_the_counts(n_outcomes: int, moved: int) -> None:
    parameters = design(Request("auto", n_outcomes, epsilon=2.0)).mechanism.parameters
    assert parameters.noise_scale == moved / 0.2


@pytest.mark.parametrize("name", OWN_PRIOR)
def test_a_prior_of_its_own_goes_down_to_half_of_one_over_k(name: MechanismName) -> None:
    parameters = design(Request(name, 8, epsilon=2.0)).mechanism.parameters
    assert parameters.truncation_threshold == 1 / 16


@pytest.mark.parametrize("threshold", [None, 0.2])
def test_the_uniform_prior_needs_no_threshold_and_takes_its_own(threshold: float | None) -> None:
    chosen = design(declared(mechanism="uniform-prior-dp", threshold=threshold)).mechanism
    assert 5 * chosen.parameters.truncation_threshold <= 1
    assert chosen.parameters.truncation_threshold == pytest.approx(
        0.2, rel=1e-15, abs=0
    )  # 2⁻⁵³ below


def test_parameters_that_are_given_state_what_they_cost() -> None:
    made = design(declared(n_outcomes=12, rate=0.8, threshold=0.02, scale=10.0))
    assert made.epsilon == guarantee(made.mechanism)
    assert round(made.epsilon, 2) == 2.80


def exact_loss(parameters: Parameters) -> Decimal:
    moved = 1 if parameters.n_outcomes == 2 else 2
    rate = Decimal(parameters.resampling_probability)
    with localcontext(prec=200):
        odds = (1 - rate) / (rate * Decimal(parameters.truncation_threshold))
        counts = moved / Decimal(parameters.noise_scale) if parameters.noise_scale else 0
        return (1 + odds).ln() + counts


@pytest.mark.statistical
@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.integers(2, 30),
    st.floats(1e-3, 50),
    st.sampled_from(["auto", "none"]),
)
def test_the_epsilon_asked_for_is_stated_and_never_exceeded(
    name: MechanismName, n_outcomes: int, epsilon: float, statistic: str
) -> None:
    with_counts = statistic == "auto" or name in OWN_PRIOR
    made = design(Request(name, n_outcomes, "auto" if with_counts else "none", epsilon=epsilon))
    parameters = made.mechanism.parameters
    assert made.epsilon == epsilon
    assert guarantee(made.mechanism) <= epsilon
    assert exact_loss(parameters) <= Decimal(epsilon)
    if parameters.resampling_probability > 2.0**-52:  # else hardly a λ is left that spends more
        # One step of λ moves the loss by about 2⁻⁵³/λ, and λ > 2e-11 where ε ≤ 25.
        slack = 1e-5 if epsilon <= 25 else 1.0
        assert exact_loss(parameters) >= Decimal(epsilon) - Decimal(slack)


@pytest.mark.statistical
@settings(max_examples=100, deadline=None)
@given(st.integers(2, 30), st.floats(1e-3, 25), st.floats(1.01, 2))
def test_more_epsilon_buys_less_noise(n_outcomes: int, epsilon: float, factor: float) -> None:
    less, more = (
        design(Request("auto", n_outcomes, epsilon=value)).mechanism.parameters
        for value in (epsilon, epsilon * factor)
    )
    assert more.resampling_probability < less.resampling_probability
    assert (more.noise_scale or math.inf) < (less.noise_scale or 0.0)
