"""Over many releases with randomised clusters, estimates are right on average.

Raw clusters differ much in their outcomes and in their effects. Assignment is from a fixed seed,
over everybody together; labels and outcomes are randomised anew, by the functions of a release.

False alarms: two means of 200 releases within ``ERRORS`` = 5.5 standard errors, 1e-7 each; one
standard error within 30 % of the deviation of 200 estimates, which is known to 5 %: 1e-6. Each
check has a power or a broken release beside it.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from flows.config.model.experiment import Config
from flows.raw.privatize import privatize
from flows.released.estimates.release import estimate
from flows.released.publish import new_draft, publish
from schemas.arrays import Floats
from schemas.names import ReleaseName
from schemas.released import ReleaseTables
from tests.conftest import build_experiment, made_units, sealed_rows
from tests.statistical.found import errors_off
from tests.support.distances import assert_between, assert_mean

N_RELEASES = 200
ERRORS = 5.5
N_UNITS = 1500
LABELS = ["east", "west", "north"]
MEANS = np.array([0.2, 1.0, 1.8])
"""Of outcomes without treatment, in the raw clusters."""
EFFECTS = np.array([0.9, 0.5, 0.1])
NAME = ReleaseName("trial", "once", 1)


def people(generator: np.random.Generator) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Raw clusters, and outcomes without and with treatment, on the grid 0 … 3."""
    cluster = generator.integers(len(LABELS), size=N_UNITS)
    control = generator.binomial(2, MEANS[cluster] / 2).astype(np.float64)
    treated = control + (generator.random(N_UNITS) < EFFECTS[cluster])
    return cluster, control, treated


CLUSTER, CONTROL, TREATED = people(np.random.default_rng(11))
EFFECT = float((TREATED - CONTROL).mean())


def log_of(generator: np.random.Generator, shares: list[float]) -> pl.DataFrame:
    """Everybody assigned to an arm, each raw cluster with its share of treatment."""
    treats = np.zeros(N_UNITS, dtype=np.bool_)
    if len(set(shares)) == 1:
        chosen = generator.permutation(N_UNITS)[: round(shares[0] * N_UNITS)]
        treats[chosen] = True
    else:
        treats = generator.random(N_UNITS) < np.array(shares)[CLUSTER]
    return pl.DataFrame(
        {
            "unit": range(N_UNITS),
            "arm": np.where(treats, "mail", "none"),
            "cluster": np.array(LABELS)[CLUSTER],
            "outcome": np.where(treats, TREATED, CONTROL),
        }
    )


@cache
def configuration() -> Config:
    with TemporaryDirectory() as place:
        built = build_experiment(
            Path(place) / "experiment",
            arms={"same_shares": True},
            privacy={"mechanism": "uniform-prior-dp", "epsilon": 9.0},
            private_clusters={"epsilon": 1.0, "labels": LABELS},
        )
        return built.load()


def tables_of(log: pl.DataFrame) -> ReleaseTables:
    config = configuration()
    return privatize(config, sealed_rows(log, config.arms.names), config.design(), NAME)


def weighted(means: pl.DataFrame) -> float:
    """Differences of ``mean`` between arms, weighted by the sizes of randomised clusters."""
    wide = means.pivot("arm", index="cluster", values=["mean", "n_units"])
    size = wide["n_units_mail"] + wide["n_units_none"]
    return float(((wide["mean_mail"] - wide["mean_none"]) * size).sum() / N_UNITS)


def by_hand(tables: ReleaseTables) -> dict[str, float]:
    """The estimates from units alone, and from noisy counts alone; each cluster is a pool."""
    units = made_units(tables).group_by("cluster", "arm")
    debiased = units.agg(pl.col("outcome_debiased").mean().alias("mean"), n_units=pl.len())
    middle = pl.col("outcome") - 1.5
    counted = (
        tables.counts.with_columns(pl.col("pool", "arm").cast(pl.String))
        .join(tables.pools.select("pool", "arm", "n_units"), on=["pool", "arm"])
        .group_by(pl.col("pool").alias("cluster"), "arm")
        .agg(
            ((middle * pl.col("noisy_count")).sum() / pl.col("n_units").first()).alias("mean"),
            pl.col("n_units").first(),
        )
    )
    return {"tau_q": weighted(debiased), "histogram": weighted(counted)}


@cache
def estimates(
    shares: tuple[float, ...] = (0.5, 0.5, 0.5), size: int = N_RELEASES
) -> dict[str, Floats]:
    """Estimates of so many releases, each with an assignment of its own."""
    generator = np.random.default_rng(2026)
    found = [by_hand(tables_of(log_of(generator, list(shares)))) for _ in range(size)]
    return {name: np.array([one[name] for one in found]) for name in found[0]}


@pytest.mark.parametrize("name", ["tau_q", "histogram"])
def test_effects_over_randomised_clusters_are_estimated_without_bias(name: str) -> None:
    """And an estimate 30 % off would be found."""
    values = estimates()[name]
    assert len(values) == N_RELEASES
    assert_mean(values, EFFECT, ERRORS)
    assert errors_off(1.3 * values, EFFECT) > 2 * ERRORS


def test_a_release_has_these_estimates_with_errors_that_are_theirs(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    tables = tables_of(log_of(generator, [0.5] * 3))
    with new_draft(path := tmp_path / "draft.duckdb") as draft:
        publish(tables, draft)
        found = {one.estimator: one for one in estimate(draft).estimates}
    assert set(found) == {"tau_q", "histogram", "combined"}
    with duckdb.connect(str(path), read_only=True) as connection:
        units = pl.DataFrame(pl.from_arrow(connection.sql("FROM main.units").to_arrow_table()))
    debiased = units.group_by("cluster", "arm").agg(
        pl.col("outcome_debiased").mean().alias("mean"), n_units=pl.len()
    )
    assert found["tau_q"].estimate == pytest.approx(weighted(debiased), rel=1e-9)
    error = found["tau_q"].std_error
    assert error is not None
    found_error = error / float(estimates()["tau_q"].std(ddof=1))
    assert_between(found_error, (0.7, 1.3), 1.0, np.sqrt(0.5 / N_RELEASES))


def test_with_shares_that_differ_effects_would_be_confounded() -> None:
    """Why ``arms.same_shares`` is demanded: here it is said, and not so."""
    values = estimates((0.2, 0.5, 0.8), 30)["tau_q"]
    assert errors_off(values, EFFECT) > 2 * ERRORS
