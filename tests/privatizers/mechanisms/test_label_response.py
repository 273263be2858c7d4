"""Randomised labels cost what they are said to, and a release made of them alone costs the sum.

The exact half lists every output of a tiny release, noise and all, with nothing of the proof in
it. The one statistical test here is a false alarm with probability 1e-6 a case, six cases.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from privatizers.accounting.budget import written
from privatizers.mechanisms.cluster_dp import ClusterDP
from privatizers.mechanisms.label_response import LabelResponse
from privatizers.mechanisms.parameters import Parameters
from privatizers.mechanisms.prior import realised_prior, truncated_prior
from privatizers.noise.randomness import UNIT
from privatizers.planning.design import Request, design
from schemas.errors import ConfigError
from tests.statistical.simulate import pearson
from tests.support.distances import assert_p_value
from tests.support.guarantee import guarantee

CASES = [(k, epsilon) for k in (2, 3, 12) for epsilon in (0.1, 2.0)]


def chances(response: LabelResponse) -> list[list[Fraction]]:
    """P(l̃ | l) as realised, exactly: [l][l̃]."""
    k = response.n_labels
    rate = Fraction(response.resampling_probability)
    shares = [UNIT // k] * k
    shares[0] += UNIT - sum(shares)  # where a prior puts what is left: its first largest cell
    return [
        [(1 - rate) * (here == there) + rate * Fraction(shares[there], UNIT) for there in range(k)]
        for here in range(k)
    ]


def loss_of(response: LabelResponse) -> Decimal:
    """The greatest log ratio of any label under any two, to 60 digits."""
    table = chances(response)
    worst = max(max(column) / min(column) for column in zip(*table, strict=True))
    with localcontext(prec=60):
        return (Decimal(worst.numerator) / Decimal(worst.denominator)).ln()


# labels alone


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.7, 2.0, 11.0, 30.0])
@pytest.mark.parametrize("k", [2, 3, 5, 40])
def test_a_label_costs_what_was_asked_for_and_hardly_less(k: int, epsilon: float) -> None:
    response = LabelResponse.of(k, epsilon)
    assert loss_of(response) <= written(epsilon)
    assert Decimal(response.guarantee) >= loss_of(response)
    assert response.guarantee <= epsilon
    a_step_less = LabelResponse(k, response.resampling_probability - 1 / UNIT)
    assert a_step_less.guarantee > epsilon
    kept = math.exp(epsilon) / (math.exp(epsilon) + k - 1)
    assert float(chances(response)[k - 1][k - 1]) == pytest.approx(kept, rel=1e-9)


def test_labels_kept_three_tenths_more_often_cost_more_than_is_claimed() -> None:
    """The negative control of what is above."""
    kept = 1.3 * math.e / (math.e + 2)
    rate = round((1 - kept) * 1.5 * UNIT) / UNIT
    assert loss_of(LabelResponse(3, rate)) > 1.5


def test_the_realised_shares_are_those_that_are_drawn_with() -> None:
    response = LabelResponse.of(3, 1.0)
    prior = response._tables.priors
    assert [len(prior.entries), prior.n_outcomes] == [1, 3]
    assert response._tables.resampling_probability == response.resampling_probability


@pytest.mark.parametrize(("k", "epsilon"), CASES)
def test_labels_come_out_as_often_as_published(k: int, epsilon: float) -> None:
    """200,000 draws a label; a keeping probability 30 % off is told (p under 1e-30)."""
    response = LabelResponse.of(k, epsilon)
    size = 200_000
    expected = np.array([[float(one) for one in row] for row in chances(response)])
    drawn = response.draw(np.repeat(np.arange(k, dtype=np.uint32), size)).reshape(k, size)
    observed = np.stack([np.bincount(row, minlength=k) for row in drawn])
    assert_p_value(pearson(observed, expected), 1e-6)
    wrong = expected + np.eye(k) * 0.3 * expected
    assert pearson(observed, wrong / wrong.sum(axis=1, keepdims=True)) < 1e-30


def test_units_are_drawn_apart_and_anew() -> None:
    """Two draws of 10,000 labels over two, each kept with probability 0.52: alike never."""
    response = LabelResponse.of(2, 0.1)
    labels = np.zeros(10_000, dtype=np.int64)
    one, other = response.draw(labels), response.draw(labels)
    assert 0.4 < (one == other).mean() < 0.6
    assert len(response.draw(labels[:0])) == 0


@pytest.mark.parametrize("labels", [[0, 2], [-1, 0]])
def test_a_label_there_is_none_of_is_refused_without_a_word_on_whose(labels: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^a level is not on the grid$"):
        LabelResponse.of(2, 1.0).draw(np.array(labels))


def test_what_protects_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="1 label: at least 2"):
        LabelResponse(1, 0.5)
    with pytest.raises(ConfigError, match="too small"):
        LabelResponse.of(2, 1e-300)


# a whole release, listed

Person = tuple[int, int]
"""Cluster and outcome, both 0 or 1."""
Output = tuple[object, ...]
Log = tuple[Person, ...]


@dataclass(frozen=True)
class Release:
    """Randomised labels, noisy counts of their clusters, randomised outcomes: all that is shown."""

    labels: LabelResponse
    mechanism: ClusterDP
    counts_raw_clusters: bool = False
    """Broken: the counts are of raw clusters."""
    shows_raw_sizes: bool = False
    """Broken: the sizes that are published are of raw clusters."""
    reach: int = 8
    """Noisy counts are listed from −8 to n + 8: beyond, ratios of probabilities stay the same."""

    def outputs(self, log: Log) -> Iterator[tuple[Output, float]]:
        """Every output with its probability."""
        table = chances(self.labels)
        for drawn in itertools.product((0, 1), repeat=len(log)):
            chance = math.prod(
                float(table[raw][own]) for (raw, _), own in zip(log, drawn, strict=True)
            )
            for counts in itertools.product(*(self._counts(log, drawn, c) for c in (0, 1))):
                for outcomes, its in self._outcomes(log, drawn, [one for one, _ in counts]):
                    raw = sum(cluster for cluster, _ in log) if self.shows_raw_sizes else None
                    shown = (drawn, tuple(one for one, _ in counts), outcomes, raw)
                    yield shown, chance * its * math.prod(mass for _, mass in counts)

    def _counts(self, log: Log, drawn: tuple[int, ...], c: int) -> list[tuple[int, float]]:
        """The noisy count of outcome 1 in a cluster, and its probability."""
        scale = self.mechanism.parameters.noise_scale
        assert scale is not None
        if c not in drawn:
            return [(0, 1.0)]  # an empty cluster publishes nothing
        own = [raw for raw, _ in log] if self.counts_raw_clusters else drawn
        true = sum(y for (_, y), place in zip(log, own, strict=True) if place == c)
        a = math.exp(-1 / scale)
        return [
            (noisy, (1 - a) / (1 + a) * a ** abs(noisy - true))
            for noisy in range(-self.reach, len(log) + self.reach + 1)
        ]

    def _outcomes(
        self, log: Log, drawn: tuple[int, ...], noisy: list[int]
    ) -> Iterator[tuple[tuple[int, ...], float]]:
        """Randomised outcomes, from the priors that the noisy counts make."""
        parameters = self.mechanism.parameters
        rate, gamma = parameters.resampling_probability, parameters.truncation_threshold
        priors = {c: prior_of(drawn.count(c), noisy[c], gamma) for c in set(drawn)}
        for outcomes in itertools.product((0, 1), repeat=len(log)):
            yield (
                outcomes,
                math.prod(
                    (1 - rate) * (shown == y) + rate * priors[c][shown]
                    for shown, (_, y), c in zip(outcomes, log, drawn, strict=True)
                ),
            )


CACHE: dict[tuple[int, int, float], list[float]] = {}


def prior_of(size: int, noisy: int, gamma: float) -> list[float]:
    key = (size, noisy, gamma)
    if key not in CACHE:
        counts = np.array([[size - noisy, noisy]])
        shares = truncated_prior(counts, np.array([size]), gamma)
        CACHE[key] = [float(one) for one in realised_prior(shares, gamma)[0]]
    return CACHE[key]


LOGS: list[Log] = [((0, 0), (1, 1)), ((0, 1), (0, 0)), ((1, 1), (1, 1))]
PEOPLE: list[Person] = [(cluster, outcome) for cluster in (0, 1) for outcome in (0, 1)]


def pairs() -> Iterator[tuple[Log, Log]]:
    """Neighbours: the first unit has another outcome, another cluster, or both."""
    for log in LOGS:
        for other in PEOPLE:
            if other != log[0]:
                yield log, (other, *log[1:])


def over_pairs(
    release: Release, of: Callable[[dict[Output, float], dict[Output, float]], float]
) -> float:
    listed = {log: dict(release.outputs(log)) for pair in pairs() for log in pair}
    return max(of(listed[one], listed[other]) for one, other in pairs())


def loss(one: dict[Output, float], other: dict[Output, float]) -> float:
    """The greatest log ratio of any output, infinite where only one of both can have it."""
    if set(one) != set(other):
        return math.inf
    return max(abs(math.log(one[output] / other[output])) for output in one)


def release_of(
    epsilon: float, rate: float = 0.9, scale: float = 0.5, **broken: bool
) -> tuple[Release, float]:
    """A release and what it claims: ε₁ + ε₂."""
    labels = LabelResponse.of(2, epsilon)
    mechanism = ClusterDP(Parameters.of(2, rate, 0.25, scale))
    return Release(labels, mechanism, **broken), labels.guarantee + guarantee(mechanism)


SETTINGS = [(0.5, 0.9, 0.5), (2.0, 0.4, 3.0)]


@pytest.mark.parametrize(("epsilon", "rate", "scale"), SETTINGS)
def test_all_that_is_released_costs_the_sum_at_most(
    epsilon: float, rate: float, scale: float
) -> None:
    release, claim = release_of(epsilon, rate, scale)
    assert 0.8 * claim < over_pairs(release, loss) <= claim


@pytest.mark.parametrize(("epsilon", "rate", "scale"), SETTINGS)
def test_and_no_less(epsilon: float, rate: float, scale: float) -> None:
    """It is reached where all four come out in one cluster, and a share of 1/4 is γ."""
    release, claim = release_of(epsilon, rate, scale)
    release = replace(release, reach=1)
    rest: Log = ((0, 0),) * 3
    one, other = (dict(release.outputs((first, *rest))) for first in ((0, 1), (1, 0)))
    assert loss(one, other) == pytest.approx(claim, rel=1e-9)


def test_probabilities_of_a_list_add_up() -> None:
    """All but what lies in the tails of the noise."""
    release, _ = release_of(0.5)
    assert sum(chance for _, chance in release.outputs(LOGS[0])) == pytest.approx(1, abs=1e-6)


def test_sizes_of_raw_clusters_give_them_away() -> None:
    release, _ = release_of(0.5, shows_raw_sizes=True)
    assert over_pairs(release, loss) == math.inf


def test_counts_of_raw_clusters_cost_more_than_is_claimed() -> None:
    """Two of them move where a unit takes its outcome to another cluster: 2/σ in place of 1/σ."""
    release, claim = release_of(0.5, counts_raw_clusters=True)
    assert over_pairs(release, loss) > claim + 1


def test_labels_add_nothing_to_delta() -> None:
    """(ε₂, δ) for outcomes and ε₁ for labels are (ε₁ + ε₂, δ), and less would not do."""
    epsilon, delta = 0.5, 0.05
    found = design(Request("cluster-dp", 2, epsilon=1.0, delta=delta))
    assert isinstance(found.mechanism, ClusterDP)
    release = Release(LabelResponse.of(2, epsilon), found.mechanism)

    def delta_at(whole: float) -> float:
        return over_pairs(
            release, lambda p, q: sum(max(0.0, p[o] - math.exp(whole) * q[o]) for o in p)
        )

    assert delta_at(epsilon + 1.0) <= delta
    assert delta_at(0.0) > delta
