"""Real randomised experiments: released whole, read back, and released 200 times in memory.

At ε = 4 the estimate from a release is compared with the one that the same formulas give without
privacy, in units of the error that the release states for its noise. Per experiment, treatment
arm and estimator (τ̂_Q, combined), over 200 releases, and for five whole ones of the first:

| test                                                      | tests | false alarms, each     |
|-----------------------------------------------------------|-------|------------------------|
| mean 0: z test                                            | 16    | ``FALSE_ALARM`` = 1e-5 |
| variance 1: χ² test of the sum of squares, 200 df         | 16    | 1e-5                   |
| intervals hold the estimate without privacy: binomial     | 16    | at most 1e-5           |
| 5 whole releases: χ² test of the sum of squares, 5 df     | 4     | 1e-5                   |

together under 6e-4 a run, as privacy randomness cannot be seeded.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, chi2, norm

from estimators.arm_effects import Estimate, effects
from estimators.response.debias import debias_vector
from estimators.response.pool_statistics import ResponseNoise, counts_noise, declared_weights
from estimators.strata.evidence import Evidence, Slices
from flows.config.load import load
from flows.config.model.experiment import Config
from flows.config.resolve import resolve_design
from flows.raw.ingest import ingest
from flows.raw.privatize import _own_sizes
from flows.raw.units.private_clusters import known_sizes
from flows.raw.validate import validate
from flows.release import ReleaseResult, release_period
from flows.released.estimates.release import estimate_file
from flows.released.file.evidence import read_every
from flows.released.file.read import open_release, read_manifest, read_release
from privatizers.domain.outcome_grid import nearest_levels, stratum_counts
from privatizers.domain.strata import Strata, lay_out
from privatizers.mechanisms.aggregate_mechanism import AggregateMechanism
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.mechanisms.mechanism import Mechanism, StrataRelease
from privatizers.mechanisms.randomised_response import RandomisedResponse
from schemas.arrays import Floats, Ints
from schemas.raw import ARM, CLUSTER, OUTCOME
from tests.conftest import plain_rows
from tests.statistical.simulate import (
    PoolArms,
    UnitPositions,
    pools_of,
    real_data,
    slices_of,
    without_privacy,
)
from tests.support.distances import assert_near, assert_p_value

FALSE_ALARM = 1e-5
N_RELEASES = 200
COVERAGE = 0.95
EPSILON = 4.0


@dataclass(frozen=True)
class Experiment:
    """A log, what its columns mean, and public facts about it that a release must show."""

    name: str
    file: str
    unit: str
    arm: str
    cluster: tuple[str, ...]
    outcome: str
    control: str
    treatments: tuple[str, ...]
    n_units: int
    n_clusters: int
    not_comparable: tuple[int, ...]
    """For each treatment arm the units of clusters that cannot be compared, merged or not."""
    grid: str = "values = [0, 1]"
    mechanism: str = "auto"

    def log(self) -> pl.DataFrame:
        """The log, sorted by outcome: so the order of a release cannot come from the log's."""
        return pl.read_parquet(real_data(self.file)).sort(self.outcome)

    def write(self, folder: Path) -> Path:
        """Write the log and a configuration into ``folder``; the path of the latter."""
        self.log().write_parquet(folder / "log.parquet")
        config = folder / "experiment.toml"
        config.write_text(self.toml(), encoding="utf-8")
        return config

    def toml(self) -> str:
        def spelt(value: object) -> str:
            return json.dumps(value)  # TOML spells text and lists of text as JSON does

        return f"""
            experiment = "{self.name}"
            [source]
            path = "log.parquet"
            [columns]
            unit = {spelt(self.unit)}
            arm = {spelt(self.arm)}
            cluster = {spelt(self.cluster)}
            outcome = {spelt(self.outcome)}
            [arms]
            control = {spelt(self.control)}
            treatments = {spelt(self.treatments)}
            same_shares = true
            [outcome]
            {self.grid}
            [privacy]
            mechanism = "{self.mechanism}"
            epsilon = {EPSILON}
            strata_statistic = "counts"
        """


def hillstrom(name: str, cluster: tuple[str, ...], n_clusters: int) -> Experiment:
    """Hillstrom's e-mail experiment (2008): does an e-mail bring customers to the shop's site?"""
    return Experiment(
        name,
        "hillstrom/hillstrom.parquet",
        unit="customer_row",
        arm="segment",
        cluster=cluster,
        outcome="visit",
        control="No E-Mail",
        treatments=("Mens E-Mail", "Womens E-Mail"),
        n_units=64_000,
        n_clusters=n_clusters,
        not_comparable=(0, 0),
    )


def stroke(name: str, mechanism: str) -> Experiment:
    """The International Stroke Trial (1997): any stroke within 14 days, with and without aspirin.

    France has a patient in each arm, so it cannot be compared.
    """
    return Experiment(
        name,
        "international_stroke_trial/ist.parquet",
        unit="patient_row",
        arm="RXASP",
        cluster=("COUNTRY",),
        outcome="STRK14",
        control="N",
        treatments=("Y",),
        n_units=19_435,
        n_clusters=36,
        not_comparable=(2,),
        mechanism=mechanism,
    )


# Project STAR (1985): class size and mathematics in Tennessee's kindergartens. One school, of 34
# children, has no regular class.
STAR = Experiment(
    "star",
    "tennessee_star/star_aer.parquet",
    unit="student_id",
    arm="stark",
    cluster=("schoolidk",),
    outcome="mathk",
    control="regular",
    treatments=("small", "regular+aide"),
    n_units=6_325,
    n_clusters=79,
    not_comparable=(34, 34),
    # Rounding to the nearest level draws nothing, so the comparison is with the levels themselves.
    grid='low = 288\nhigh = 626\nlevels = 8\nmissing = 485\nrounding = "nearest"',
    mechanism="uniform-prior-dp",  # "auto" has tables here, and priors are what is looked at
)
HILLSTROM = hillstrom("hillstrom", ("zip_code", "channel"), 9)
EXPERIMENTS = [
    HILLSTROM,
    hillstrom("hillstrom-by-history", ("zip_code", "channel", "history_segment"), 57),
    STAR,
    stroke("stroke", "auto"),
    stroke("stroke-cluster-dp", "cluster-dp"),
]


@dataclass(frozen=True)
class Released:
    """A release on disk, and what the run said of it."""

    experiment: Experiment
    config: Path
    result: ReleaseResult

    def one(self, query: str) -> tuple[object, ...]:
        """The one row that a query of the file gives."""
        with duckdb.connect(str(self.result.path), read_only=True) as connection:
            rows = connection.execute(query).fetchall()
        assert len(rows) == 1
        return tuple(rows[0])


@pytest.fixture(scope="module", params=EXPERIMENTS, ids=lambda experiment: str(experiment.name))
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Released:
    experiment: Experiment = request.param
    config = experiment.write(tmp_path_factory.mktemp(experiment.name))
    return Released(experiment, config, release_period(str(config)))


def test_the_release_states_what_was_asked_for(released: Released) -> None:
    manifest, experiment = read_release(released.result.path).manifest, released.experiment
    asked = "uniform-prior-dp" if experiment.mechanism == "auto" else experiment.mechanism
    assert (manifest.mechanism, manifest.epsilon, manifest.delta) == (asked, EPSILON, 0.0)
    assert (manifest.n_units, manifest.n_clusters) == (experiment.n_units, experiment.n_clusters)
    assert (manifest.control, manifest.same_shares) == (experiment.control, True)
    expected = "count-and-complement" if manifest.outcomes[0].n_outcomes == 2 else "counts"
    assert manifest.outcomes[0].strata_statistic == expected


def test_rows_are_set_aside_for_their_arm_alone(released: Released) -> None:
    arm = released.experiment.log()[released.experiment.arm]
    roster = released.result.roster
    assert roster.quarantined == arm.null_count()
    assert roster.quarantined_by_rule.get("arm_missing", 0) == arm.null_count()
    assert roster.n_units + roster.quarantined == len(arm)


def test_every_unit_is_released_in_its_arm_and_order(released: Released) -> None:
    experiment = released.experiment
    log = experiment.log().drop_nulls(experiment.arm)
    with open_release(released.result.path) as connection:
        stored = f"opened.{read_manifest(connection).own_schema}.drawn"
        units = connection.execute(
            f"SELECT unit_id, arm FROM {stored} AS d JOIN main.units USING (unit_id) "
            "ORDER BY d.rowid"
        ).fetchall()
    expected = log.select(experiment.unit, experiment.arm).sort(experiment.unit)
    assert units == expected.rows()


CONSISTENT = {
    "the sizes of strata are those of their units": """
        SELECT count(*) FROM (
            (SELECT cluster, arm, count(*) AS n FROM main.units GROUP BY ALL
             EXCEPT SELECT cluster, arm, n_units FROM main.strata)
            UNION ALL
            (SELECT cluster, arm, n_units FROM main.strata
             EXCEPT SELECT cluster, arm, count(*) FROM main.units GROUP BY ALL))""",
    "the sizes of pools are those of their strata": """
        SELECT count(*) FROM (
            SELECT pool, arm, sum(n_units) AS n FROM main.strata GROUP BY ALL
            EXCEPT SELECT pool, arm, n_units FROM main.pools)""",
    "every unit's debiased outcome is the weight of its outcome": """
        SELECT count(*) FROM main.units AS u
        LEFT JOIN main.strata AS s ON s.cluster = u.cluster AND s.arm = u.arm
        LEFT JOIN main.debias AS d
            ON d.pool = s.pool AND d.arm = s.arm AND d.outcome = u.outcome_randomised
        WHERE d.weight IS NULL
            OR abs(d.weight - u.outcome_debiased) > 1e-9 * greatest(1, abs(d.weight))""",
    "every pool and arm has a weight for every point of the grid": """
        SELECT count(*) FROM main.pools AS p CROSS JOIN main.outcomes AS o
        LEFT JOIN main.debias AS d
            ON d.pool = p.pool AND d.arm = p.arm AND d.outcome = o.outcome
        WHERE d.weight IS NULL""",
    "every pool and arm has a noisy count for every point of the grid": """
        SELECT count(*) FROM main.pools AS p CROSS JOIN main.outcomes AS o
        LEFT JOIN main.counts AS c
            ON c.pool = p.pool AND c.arm = p.arm AND c.outcome = o.outcome
        WHERE c.noisy_count IS NULL""",
    "there are no other weights": """
        SELECT (SELECT count(*) FROM main.debias)
            - (SELECT count(*) FROM main.pools) * (SELECT count(*) FROM main.outcomes)""",
    "probabilities add up to one exactly, and none is below the threshold": """
        SELECT count(*) FROM (
            SELECT sum(CAST(probability * 9007199254740992 AS HUGEINT)) AS steps,
                   min(probability) AS least
            FROM main.debias GROUP BY pool, arm)
        WHERE steps <> 9007199254740992
            OR least < (SELECT truncation_threshold FROM main.metrics)""",
    "a count and its complement add up to the pool": """
        SELECT count(*) FROM (
            SELECT any_value(n_units) AS n, sum(noisy_count) AS counted
            FROM main.counts JOIN main.pools USING (pool, arm) GROUP BY pool, arm)
        WHERE counted <> n
            AND (SELECT strata_statistic FROM main.metrics) = 'count-and-complement'""",
    "no unit stands twice": "SELECT count(*) - count(DISTINCT unit_id) FROM main.units",
    "the number of units is that of the manifest": """
        SELECT sum(n_units) - (SELECT n_units FROM main.release) FROM main.strata""",
}


@pytest.mark.parametrize("rule", CONSISTENT)
def test_the_tables_of_a_release_fit_together(released: Released, rule: str) -> None:
    assert released.one(CONSISTENT[rule]) == (0,)


def test_the_weights_are_the_debias_vector_of_the_published_prior(released: Released) -> None:
    with open_release(released.result.path) as connection:
        rate = read_manifest(connection).outcomes[0].resampling_probability
        assert rate is not None
        rows = connection.execute(
            "SELECT outcome, probability, weight FROM main.debias ORDER BY pool, arm, outcome"
        ).fetchnumpy()
    k = int(np.unique(rows["outcome"]).size)
    outcome, prior, weight = (rows[name].reshape(-1, k) for name in rows)
    expected = debias_vector(outcome[0], prior, rate)
    # One dot product, which may be summed in another order.
    np.testing.assert_allclose(weight, expected, rtol=1e-12, atol=1e-12)


def test_estimates_come_from_the_file_alone(released: Released) -> None:
    again = estimate_file(released.result.path)
    stored = "SELECT count(*) FROM main.estimates"
    assert [(one.estimator, one.arm) for one in again] == [
        (name, arm)
        for name in ("combined", "tau_q", "histogram")
        for arm in sorted(released.experiment.treatments)
    ]
    assert released.one(stored) == (len(again),)
    for one, other in zip(again, released.result.estimates, strict=True):
        # DuckDB adds up in the order of its threads.
        assert one.estimate == pytest.approx(other.estimate, rel=1e-9)
        assert one.n_units == other.n_units


def test_the_population_covered_is_that_of_the_clusters_compared(released: Released) -> None:
    experiment = released.experiment
    left_out = dict(zip(experiment.treatments, experiment.not_comparable, strict=True))
    for name in ("tau_q", "combined"):
        covered = {one.arm: one.n_units for one in by_arm(released.result.estimates, name)}
        assert covered == {arm: experiment.n_units - count for arm, count in left_out.items()}


@dataclass(frozen=True)
class Prepared:
    """A log as the private step sees it, so that it can be released many times in memory."""

    config: Config
    mechanism: Mechanism
    grid: Floats
    arms: list[str]
    strata: Strata
    levels: Ints
    places: UnitPositions
    own_sizes: Floats
    """How far each cluster counts by its arms' own units."""

    def slices(self, levels: Ints) -> Slices:
        found = slices_of((self.grid - self.grid.mean())[levels], self.places)
        return replace(found, own_sizes=self.own_sizes[found.cluster])

    def estimates(self, evidence: Evidence) -> list[Estimate]:
        return effects(evidence, self.arms, self.arms[0], [None], same_shares=True)

    def without_privacy(self) -> list[Estimate]:
        return self.estimates(without_privacy(self.slices(self.levels), self.grid))

    def evidence(self, drawn: StrataRelease, levels: Ints) -> Evidence:
        """From what is published of the strata, and these randomised outcomes."""
        strata, parameters = self.strata, self.mechanism.parameters
        pool, _ = np.nonzero(strata.cell_of >= 0)
        n = strata.cell_sizes.astype(np.float64)
        assert parameters.counts is not None
        guess = np.array(self.config.outcome.weights)
        response = ResponseNoise.of_prior(
            self.grid,
            guess,
            self.mechanism.expected_prior(guess),
            parameters.resampling_probability,
        )
        noise = counts_noise(parameters.counts.noise_scale, parameters.counts.statistic)
        weights = declared_weights(self.grid, response, noise, n)
        members = np.bincount(strata.pool_of, minlength=len(strata.pools))
        cells = PoolArms(n, pool, members[pool], np.zeros_like(pool))
        pools = pools_of(self.mechanism, drawn, self.grid, cells, weights)
        own = self.slices(levels)
        return Evidence.of(own, own, pools, parameters.resampling_probability, self.grid)

    def released(self) -> list[Estimate]:
        """Estimates from one more release, drawn and estimated by the product's functions."""
        cells, k = self.places.pool, len(self.grid)
        counts = stratum_counts(self.levels, cells, len(self.strata.cell_sizes), k)
        drawn = self.mechanism.strata(counts)
        return self.estimates(self.evidence(drawn, drawn.response.draw(self.levels, cells)))


def codes(labels: pl.Series, names: list[str]) -> Ints:
    """Position of each label in ``names``."""
    places = {name: place for place, name in enumerate(names)}
    return labels.replace_strict(places, return_dtype=pl.Int64).to_numpy()


def prepare(config: Config) -> Prepared:
    """Read the log, and lay out pools and cells as a release does."""
    rows, _, _ = validate(config.log_facts, ingest(config.log_source, "once"))
    frame = plain_rows(rows.open())
    chosen = resolve_design(config, known_sizes(config.log_facts, rows))
    grid, mechanism = np.array(chosen.config.outcome.grid), chosen.design.mechanism
    assert not isinstance(mechanism, AggregateMechanism | ClusterOptimalDP)
    clusters = frame[CLUSTER].unique().sort().to_list()
    arms = [config.arms.control, *sorted(config.arms.treatments)]
    cluster, arm = codes(frame[CLUSTER], clusters), codes(frame[ARM], arms)
    stratum = cluster * len(arms) + arm
    sizes = np.bincount(stratum, minlength=len(clusters) * len(arms)).reshape(-1, len(arms))
    strata = lay_out(clusters, arms, sizes, mechanism.pool_of(sizes, config.privacy.min_stratum))
    levels = nearest_levels(frame[OUTCOME].to_numpy(), grid)
    places = UnitPositions(np.zeros_like(cluster), cluster, arm, strata.cells(cluster, arm))
    own = _own_sizes(config, rows.open(), [chosen.design])
    return Prepared(config, mechanism, grid, arms, strata, levels, places, own)


@dataclass(frozen=True)
class Repeated:
    """Estimates of many releases, shape [releases, arms], and those without privacy, [arms]."""

    plain: Floats
    estimate: Floats
    privacy_std_error: Floats
    lower: Floats
    upper: Floats

    @property
    def z(self) -> Floats:
        """Differences that privacy makes, in units of the error stated for them."""
        return (self.estimate - self.plain) / self.privacy_std_error


def by_arm(found: list[Estimate], estimator: str) -> list[Estimate]:
    return [one for one in found if one.estimator == estimator]


def repeated_from(
    plain: list[Estimate], releases: list[list[Estimate]], estimator: str
) -> Repeated:
    """By this estimator; without privacy there is τ̂_Q, unless clusters count by their own sizes."""
    plain = by_arm(plain, estimator) or by_arm(plain, "tau_q")
    releases = [by_arm(found, estimator) for found in releases]

    def column(name: str) -> Floats:
        return np.array([[getattr(one, name) for one in found] for found in releases], dtype=float)

    assert all([one.arm for one in found] == [one.arm for one in plain] for found in releases)
    return Repeated(
        np.array([one.estimate for one in plain], dtype=float),
        column("estimate"),
        column("privacy_std_error"),
        column("ci_lower"),
        column("ci_upper"),
    )


@pytest.fixture(scope="module")
def prepared(released: Released) -> Prepared:
    return prepare(load(released.config))


@pytest.fixture(scope="module")
def releases(prepared: Prepared) -> list[list[Estimate]]:
    return [prepared.released() for _ in range(N_RELEASES)]


@pytest.fixture(scope="module", params=["tau_q", "combined"])
def repeated(
    request: pytest.FixtureRequest, prepared: Prepared, releases: list[list[Estimate]]
) -> Repeated:
    return repeated_from(prepared.without_privacy(), releases, request.param)


def mean_p_values(z: Floats) -> Floats:
    """z test that the mean of standard normal ``z`` is 0, an arm each."""
    p_values: Floats = 2 * norm.sf(np.abs(z.mean(axis=0)) * np.sqrt(len(z)))
    return p_values


def spread_p_values(z: Floats) -> Floats:
    """χ² test, two-sided, that the squares of standard normal ``z`` are 1 on average."""
    total = (z**2).sum(axis=0)
    p_values: Floats = 2 * np.minimum(chi2.cdf(total, len(z)), chi2.sf(total, len(z)))
    return p_values


def assert_spread(z: Floats) -> None:
    more = chi2.sf((z**2).sum(axis=0), len(z))
    assert_p_value(more, FALSE_ALARM / 2, most=1 - FALSE_ALARM / 2)


def test_strata_in_memory_are_those_read_from_the_file(
    released: Released, prepared: Prepared
) -> None:
    """What is repeated 200 times below is what an analyst gets."""
    with open_release(released.result.path) as connection:
        manifest = read_manifest(connection)
        (file, *_) = read_every(connection, manifest, manifest.outcomes[:1])
        query = "SELECT outcome_randomised, cluster, arm FROM main.units"
        units = pl.DataFrame(connection.execute(query).fetchnumpy())
        query = """SELECT pool, arm, list(probability ORDER BY outcome),
            list(noisy_count ORDER BY outcome)
            FROM main.debias JOIN main.counts USING (metric, pool, arm, outcome) GROUP BY ALL"""
        published = {(row[0], row[1]): row[2:] for row in connection.execute(query).fetchall()}
    strata = prepared.strata
    pool, arm = np.nonzero(strata.cell_of >= 0)
    rows = [
        published[strata.pools[at], prepared.arms[of]] for at, of in zip(pool, arm, strict=True)
    ]
    prior, noisy = (np.array([row[part] for row in rows]) for part in (0, 1))
    assert file.metric.resampling_probability is not None
    response = RandomisedResponse(file.metric.resampling_probability, prior)
    levels = nearest_levels(units["outcome_randomised"].to_numpy(), prepared.grid)
    cluster = codes(units["cluster"], strata.clusters)
    of_arm = codes(units["arm"], prepared.arms)
    places = UnitPositions(np.zeros_like(cluster), cluster, of_arm, strata.cells(cluster, of_arm))
    again = replace(prepared, places=places)
    found, wanted = again.evidence(StrataRelease(noisy, response), levels), file.whole
    assert file.arms == tuple(prepared.arms)
    assert_same_evidence(found, wanted)


def assert_same_evidence(found: Evidence, wanted: Evidence) -> None:
    """But for the order of slices and of pools."""
    orders = [np.lexsort((one.slices.arm, one.slices.cluster)) for one in (found, wanted)]
    own, other = (
        one.slices.take(order) for one, order in zip((found, wanted), orders, strict=True)
    )
    pairs = [(getattr(own, name), getattr(other, name)) for name in own.__dataclass_fields__]
    del pairs[3]  # the pool's position
    for one, two in (
        (found.pools, wanted.pools),
        *(
            (getattr(found.pools, name), getattr(wanted.pools, name))
            for name in ("of_mean", "of_square")
        ),
    ):
        pairs += [
            (getattr(one, name)[own.pool], getattr(two, name)[other.pool])
            for name in one.__dataclass_fields__
            if name not in ("of_mean", "of_square", "pool") and getattr(one, name) is not None
        ]
    for left, right in pairs:
        if left is None and right is None:  # what only outputs of tables have
            continue
        # Sums of up to 10,000 doubles of one size, in another order.
        np.testing.assert_allclose(
            left, right, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(right).max())
        )


def test_privacy_moves_estimates_by_nothing_on_average(repeated: Repeated) -> None:
    errors = float(norm.isf(FALSE_ALARM / 2))
    assert_near(repeated.z.mean(axis=0), 0.0, 1 / np.sqrt(N_RELEASES), errors)


def test_privacy_moves_estimates_by_as_much_as_is_stated(repeated: Repeated) -> None:
    assert_spread(repeated.z)


def test_errors_stated_eighty_per_cent_off_would_be_caught(repeated: Repeated) -> None:
    """With 200 releases χ² tells a factor of 1.8 from 1 by five of its standard deviations."""
    assert (spread_p_values(repeated.z * 1.8) < FALSE_ALARM).all()
    assert (spread_p_values(repeated.z / 1.8) < FALSE_ALARM).all()


def test_estimates_off_by_three_quarters_of_their_error_would_be_caught(repeated: Repeated) -> None:
    """A shift of 0.75 is one of 10.6 in the z test, whose threshold is 4.4."""
    assert (mean_p_values(repeated.z + 0.75) < FALSE_ALARM).all()


def coverage_p_values(repeated: Repeated, width: float = 1.0) -> Floats:
    """Binomial test that intervals, ``width`` times as wide, hold the estimate without privacy.

    In 95 of 100 releases or more: they cover sampling too, so it should be more (98 in STAR, where
    the noise of privacy is largest beside it, 99.99 in Hillstrom's).
    """
    middle = (repeated.lower + repeated.upper) / 2
    reach = width * (repeated.upper - repeated.lower) / 2
    held = (np.abs(repeated.plain - middle) <= reach).sum(axis=0)
    p_values: Floats = binom.cdf(held, len(middle), COVERAGE)
    return p_values


def test_intervals_hold_the_estimate_without_privacy(repeated: Repeated) -> None:
    assert_p_value(coverage_p_values(repeated), FALSE_ALARM, is_bound=True)


def test_intervals_a_fifth_as_wide_would_be_caught(
    prepared: Prepared, releases: list[list[Estimate]]
) -> None:
    """τ̂_Q's would miss it in 37 of 100 releases at least, and the test allows 13.

    In the combined estimates sampling may be nearly all of the error.
    """
    repeated = repeated_from(prepared.without_privacy(), releases, "tau_q")
    assert (coverage_p_values(repeated, width=0.2) < FALSE_ALARM).all()


TAU_BY_SQL = """
    WITH means AS (
        SELECT cluster, arm, avg(outcome_debiased) AS mean FROM main.units GROUP BY ALL
    ), shares AS (
        SELECT cluster, count(*) / (SELECT count(*) FROM main.units) AS share
        FROM main.units GROUP BY cluster
    )
    SELECT sum(share * (t.mean - c.mean)) FROM shares
    JOIN means AS t ON t.cluster = shares.cluster AND t.arm = $1
    JOIN means AS c ON c.cluster = shares.cluster AND c.arm = $2
"""


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ReleaseResult]]:
    """Five whole releases of one experiment, each under a period of its own."""
    config = HILLSTROM.write(tmp_path_factory.mktemp("five"))
    return config, [release_period(str(config), period=f"night-{night}") for night in range(1, 6)]


def test_whole_releases_differ_from_the_truth_by_as_much_as_they_state(
    five: tuple[Path, list[ReleaseResult]],
) -> None:
    config, results = five
    plain = prepare(load(config)).without_privacy()
    for estimator in ("tau_q", "combined"):
        found = repeated_from(plain, [result.estimates for result in results], estimator)
        assert_spread(found.z)


def test_whole_releases_are_drawn_anew(five: tuple[Path, list[ReleaseResult]]) -> None:
    _, results = five
    estimates = {one.estimate for result in results for one in result.estimates}
    assert len(estimates) == 6 * len(results)  # two arms, three estimators
    assert len({result.path for result in results}) == len(results)


def test_tau_q_can_be_had_in_sql_from_the_debiased_outcomes(
    five: tuple[Path, list[ReleaseResult]],
) -> None:
    """Here, as every cluster can be compared: none is merged or left out."""
    result = five[1][0]
    with open_release(result.path) as connection:
        for one in by_arm(result.estimates, "tau_q"):
            found = connection.execute(TAU_BY_SQL, [one.arm, one.control]).fetchone()
            assert found is not None
            assert one.estimate == pytest.approx(found[0], rel=1e-9)  # sums of 64,000 doubles


# several outcomes

OF_HILLSTROM = """
experiment = "mail"
[source]
path = "{path}"
[columns]
unit = "customer_row"
arm = "segment"
cluster = "zip_code"
[arms]
control = "No E-Mail"
treatments = ["Mens E-Mail", "Womens E-Mail"]
same_shares = true
[[outcomes]]
name = "visit"
column = "visit"
values = [0, 1]
guess = [0.85, 0.15]
[[outcomes]]
name = "conversion"
column = "conversion"
values = [0, 1]
guess = [0.99, 0.01]
[[outcomes]]
name = "spend"
column = "spend"
low = 0
high = 500
levels = "auto"
[privacy]
mechanism = "auto"
epsilon = 6.0
"""


def test_visits_purchases_and_revenue_of_one_campaign(tmp_path: Path) -> None:
    """Six effects of one release, within 5.5 of the errors that privacy adds: 3e-7 each by chance.

    The effects without privacy are those of clusters weighted by their units.
    """
    log = real_data("hillstrom/hillstrom.parquet")
    config = tmp_path / "mail.toml"
    config.write_text(OF_HILLSTROM.format(path=log), encoding="utf-8")
    found = release_period(str(config))
    assert found.manifest.epsilon == 6.0
    people = pl.read_parquet(log)
    weights = people.group_by("zip_code").len()
    combined = [one for one in found.estimates if one.estimator == "combined"]
    assert len(combined) == 6
    for one in combined:
        of_cells = people.group_by("zip_code", "segment").agg(pl.col(one.metric).mean())
        wide = of_cells.pivot("segment", index="zip_code", values=one.metric).join(
            weights, on="zip_code"
        )
        effect = (wide[one.arm] - wide["No E-Mail"]) * wide["len"] / wide["len"].sum()
        assert one.estimate is not None
        assert one.privacy_std_error is not None
        assert_near(one.estimate, float(effect.sum()), one.privacy_std_error, 5.5)
