"""What units that were assigned together add to variances, against independent implementations.

Without noise τ̂_Q is a regression on indicators of stratum and arm, so its variance has to be that
regression's, clustered: by statsmodels where parties are of one size, and by the matrices of Bell
and McCaffrey (CR2) where they are not.
"""

from dataclasses import replace

import numpy as np
import pytest
from statsmodels.regression.linear_model import OLS

from estimators.arm_effects import Contrasts, contrasts
from estimators.strata.assigned import parties_of
from estimators.strata.evidence import Evidence, Pools, Slices, Statistic, sum_by
from estimators.strata.parties import Parties
from schemas.arrays import Bools, Floats, Ints

RATE = 1e-12


class Trial:
    """Units with a cluster, an arm, a party and an outcome from 0 to 4, hardly randomised."""

    def __init__(self, cluster: Ints, arm: Ints, party: Ints, outcome: Floats) -> None:
        self.cluster, self.arm, self.party, self.outcome = cluster, arm, party, outcome
        keys, self.slice = np.unique(cluster * 2 + arm, return_inverse=True)
        self.n = np.bincount(self.slice).astype(np.float64)
        self.d = outcome - 2.0
        mean = np.bincount(self.slice, self.d) / self.n
        squares = np.bincount(self.slice, (self.d - mean[self.slice]) ** 2)
        nowhere = np.zeros(len(keys), dtype=np.int64)
        fourth = np.bincount(self.slice, self.d**4) / self.n
        variance = squares / np.maximum(self.n - 1.0, 1.0)
        self.slices = Slices(nowhere, keys // 2, keys % 2, keys % 2, self.n, mean, variance, fourth)

    @property
    def parties(self) -> Parties:
        of = self.party.astype(np.uint64)
        return parties_of(self.slice, of, self.arm, self.d, len(self.n))

    def evidence(self, parties: Parties | None) -> Evidence:
        none, zero = np.full(2, np.nan), np.zeros(2)
        nobody: Ints = np.zeros(2, dtype=np.int64)
        nothing = Statistic(none, none, none, zero)
        pools = Pools(zero, zero + 2, zero + 2, zero + 2.8, nothing, nothing, nobody, nobody)
        return Evidence.of(self.slices, self.slices, pools, RATE, np.arange(5.0), parties=parties)

    def contrast(self, *, together: bool = True, same_shares: bool = False) -> Contrasts:
        given = self.evidence(self.parties if together else None)
        return contrasts(given, "tau_q", 1, 0, 1, same_shares=same_shares)

    @property
    def design(self) -> tuple[Floats, Floats]:
        """Indicators of (cluster, arm), and the coefficients of the contrast."""
        columns = np.eye(len(self.n))[self.slice]
        share = np.bincount(self.cluster)[self.slices.cluster] / len(self.cluster)
        return columns, share * np.where(self.slices.arm == 1, 1.0, -1.0)


def trial(
    n_parties: int, sizes: list[int], n_clusters: int = 1, *, nested: bool = True, seed: int = 1
) -> Trial:
    """Parties an arm, of these sizes in turn, whose units are alike."""
    random = np.random.default_rng(seed)
    every = 2 * n_parties
    size = np.resize(sizes, every)
    party = np.repeat(np.arange(every), size)
    n = len(party)
    cluster = (np.arange(every) // 2 % n_clusters)[party]
    if not nested:
        cluster = random.integers(0, n_clusters, n)
    mood = random.normal(size=every)[party] + random.normal(size=n) * 0.7
    arm = party % 2
    return Trial(cluster, arm, party, np.clip(np.rint(2.0 + mood + 0.3 * arm), 0, 4))


def by_matrices(of: Trial) -> float:
    """lᵀ(X'X)⁻¹ Σ_g X_g' A_g e_g e_g' A_g X_g (X'X)⁻¹ l, A_g = (I − H_gg)^(−1/2), arm by arm."""
    columns, coefficients = of.design
    inverse = np.linalg.inv(columns.T @ columns)
    residual = of.outcome - columns @ (inverse @ columns.T @ of.outcome)
    scores: dict[tuple[int, int], float] = {}
    for party in np.unique(of.party):
        own = of.party == party
        inside = columns[own] @ inverse @ columns[own].T
        values, vectors = np.linalg.eigh(np.eye(own.sum()) - inside)
        root = vectors @ np.diag(np.where(values > 1e-9, values, 1.0) ** -0.5) @ vectors.T
        score = coefficients @ inverse @ columns[own].T @ root @ residual[own]
        scores[int(party), int(of.arm[own][0])] = float(score)
    return sum(score**2 for score in scores.values())


@pytest.mark.parametrize("n_clusters", [1, 3])
def test_parties_of_one_size_have_the_errors_of_statsmodels(n_clusters: int) -> None:
    """In each stratum an arm has G parties, so CR2 is CR0 times G/(G − 1), in every part alike."""
    of = trial(18, [3], n_clusters)
    columns, coefficients = of.design
    fit = OLS(of.outcome, columns).fit(
        cov_type="cluster", cov_kwds={"groups": of.party, "use_correction": False}
    )
    each = 18 // n_clusters
    expected = float(coefficients @ fit.cov_params() @ coefficients) * each / (each - 1)
    found = of.contrast()
    assert found.estimate[0] == pytest.approx(float(coefficients @ fit.params), abs=1e-9)
    assert found.variance[0] == pytest.approx(expected, rel=1e-9)
    assert found.variance[0] > 1.5 * of.contrast(together=False).variance[0]
    assert found.degrees_of_freedom[0] == pytest.approx(2 * n_clusters * (each - 1), rel=0.35)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("n_clusters", [1, 2, 4])
def test_parties_of_any_size_have_the_errors_of_bell_and_mccaffrey(
    n_clusters: int, nested: bool
) -> None:
    of = trial(24, [1, 2, 3, 5, 9], n_clusters, nested=nested, seed=3)
    assert of.contrast().variance[0] == pytest.approx(by_matrices(of), rel=1e-9)


def test_parties_of_one_unit_change_nothing() -> None:
    of = trial(30, [2, 4, 7], 3)
    alone = Trial(of.cluster, of.arm, np.arange(len(of.arm)), of.outcome)
    found, plain = alone.contrast(), alone.contrast(together=False)
    assert found.estimate[0] == plain.estimate[0]
    assert found.variance[0] == pytest.approx(plain.variance[0], rel=1e-12)
    assert found.degrees_of_freedom[0] == pytest.approx(plain.degrees_of_freedom[0], rel=1e-9)


def test_degrees_of_freedom_are_the_parties_less_one_an_arm() -> None:
    """Those of the sum of two variances, the arms', by Welch (1947)."""
    of = trial(12, [6], seed=8)
    found = of.contrast()
    of_arms = np.array([found.treated_variance[0], found.control_variance[0]])
    expected = of_arms.sum() ** 2 / (of_arms**2 / 13.0).sum() - 2
    assert found.degrees_of_freedom[0] == pytest.approx(expected, rel=1e-9)


def test_an_error_is_never_less_than_that_of_units() -> None:
    """In parties whose units are opposites, products are below 0."""
    arm = np.repeat(np.tile([0, 1], 10), 2)
    of = Trial(np.zeros(40, np.int64), arm, np.arange(40) // 2, np.tile([0.0, 4.0], 20))
    found, plain = of.contrast(), of.contrast(together=False)
    assert by_matrices(of) < 0.1 * plain.variance[0]
    assert found.variance[0] == plain.variance[0]
    assert found.degrees_of_freedom[0] < plain.degrees_of_freedom[0]


def test_strata_of_one_party_an_arm_are_compared_with_each_other() -> None:
    """Matched pairs of one size: the variance of the differences of pairs."""
    of = trial(15, [4], 15, seed=5)
    differences = np.array(
        [
            of.outcome[(of.cluster == c) & (of.arm == 1)].mean()
            - of.outcome[(of.cluster == c) & (of.arm == 0)].mean()
            for c in range(15)
        ]
    )
    found = of.contrast()
    assert found.variance[0] == pytest.approx(differences.var(ddof=1) / 15, rel=1e-9)
    assert found.degrees_of_freedom[0] == pytest.approx(14, rel=1e-9)


def test_one_party_an_arm_has_no_error() -> None:
    of = trial(1, [9])
    found = of.contrast()
    assert np.isfinite(found.estimate[0])
    assert np.isnan(found.variance[0])


def test_sums_of_slices_say_what_cells_say() -> None:
    """Parties in one slice, as sums: what a release is read as."""
    of = trial(24, [1, 2, 3, 5, 9], 4, seed=3)
    cells = of.parties
    part = cells.n_units / of.n[cells.slice]
    more, less = (
        1.0 / np.where(part < 1.0, 1.0 - part, 1.0),
        1.0 / np.where(part < 1.0, 1.0 + part, 1.0),
    )

    def by_slice(values: Floats) -> Floats:
        return sum_by(cells.slice, values, len(of.n))

    m = cells.n_units
    nested = replace(
        cells.nested,
        n_parties=by_slice(np.ones_like(m)),
        n_units=by_slice(m),
        products=by_slice(cells.deviation**2 * more),
        second=by_slice(m**2),
        second_less=by_slice(m**2 * less),
        third_less=by_slice(m**3 * less),
        fourth_less=by_slice(m**4 * less),
    )
    nobody: Ints = np.zeros(0, dtype=np.int64)
    sums = Parties(nobody, nobody, np.zeros(0), np.zeros(0), nested)
    found = contrasts(of.evidence(sums), "tau_q", 1, 0, 1, same_shares=False)
    expected = of.contrast()
    for name in ("variance", "degrees_of_freedom", "control_variance"):
        assert getattr(found, name)[0] == pytest.approx(getattr(expected, name)[0], rel=1e-9)


def test_groups_do_not_mix() -> None:
    """Two segments side by side have each the error it has alone."""
    first, second = trial(12, [2, 3]), trial(9, [4, 1, 2], 2, seed=6)
    alone = [of.contrast() for of in (first, second)]
    both = [(of.slices, of.parties) for of in (first, second)]
    shift = len(first.n)
    slices = Slices(
        *(
            np.concatenate([getattr(both[0][0], name), getattr(both[1][0], name)])
            for name in Slices.__dataclass_fields__
            if name not in ("outputs", "n_parties", "own_sizes")
        )
    )
    slices = replace(slices, group=(np.arange(len(slices.group)) >= shift).astype(np.int64))
    cells = parties_of(
        np.concatenate([first.slice, second.slice + shift]),
        np.concatenate([first.party, second.party + 1000]).astype(np.uint64),
        np.concatenate([first.arm, second.arm]),
        np.concatenate([first.d, second.d]),
        len(slices.group),
    )
    evidence = first.evidence(None)
    given = Evidence.of(slices, slices, evidence.pools, RATE, np.arange(5.0), parties=cells)
    found = contrasts(given, "tau_q", 1, 0, 2, same_shares=False)
    for at, one in enumerate(alone):
        assert found.variance[at] == pytest.approx(one.variance[0], rel=1e-9)
        assert found.degrees_of_freedom[at] == pytest.approx(one.degrees_of_freedom[0], rel=1e-9)


def same_party(of: Trial) -> Bools:
    """Whether each pair of units is of one party."""
    found: Bools = of.party[:, np.newaxis] == of.party
    return found


def test_merged_clusters_count_products_between_clusters() -> None:
    """Where pairs of merged clusters tell the variance, only products between clusters are added.

    Those within a cluster are in the pairs already: adding them, too, would count them twice.
    """
    random = np.random.default_rng(4)
    cluster = np.repeat(np.arange(40), 4)
    arm = np.tile([1, 0, 0, 0], 40)
    party = np.where(arm == 1, 1000 + cluster // 2, cluster // 4)
    outcome = np.clip(np.rint(2 + random.normal(size=len(party)) + (party % 7 - 3) / 2), 0, 4)
    of = Trial(cluster, arm, party, outcome)
    found = of.contrast(same_shares=True)
    plain = of.contrast(together=False, same_shares=True)
    expected = 0.0
    for side in (0, 1):
        own = arm == side
        n = own.sum()
        parts = (outcome - outcome[own].mean()) * own / n
        share = np.array([(own & (party == one)).sum() / n for one in party])
        parts = parts / np.sqrt(1.0 - share)
        between = same_party(of) & (cluster[:, np.newaxis] != cluster)
        expected += max(float(parts @ between @ parts), 0.0)
    assert expected > 0
    assert found.variance[0] - plain.variance[0] == pytest.approx(expected, rel=1e-9)
