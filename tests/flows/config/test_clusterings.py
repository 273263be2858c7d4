"""Columns compared as the cluster: by public facts, as plans with them would be."""

import json

import numpy as np
import polars as pl
import pytest

from flows.cli.night.plan import plan_text
from flows.config.clusterings import Clustering
from flows.plan import plan
from schemas.errors import ConfigError, InputError
from tests.conftest import Builder, Experiment, a_log
from tests.support.surroundings import Command

N_UNITS = 1200
AUTO = {"mechanism": "uniform-prior-dp", "strata_statistic": "counts", "epsilon": 1.0}


def log() -> pl.DataFrame:
    """A log with columns that may be the cluster; names hold slashes, as clusters' do."""
    unit = np.arange(N_UNITS)
    return a_log(N_UNITS, clusters=("east", "west", "north / far")).with_columns(
        country=pl.Series([f"k / {one}" for one in unit * 31 % 101 % 12]),
        device=pl.Series(np.where(unit * 7 % 10 < 6, "phone/", "desk")),
        session=pl.Series([f"s{one}" for one in unit]),
        store=pl.Series(unit * 17 % 97 % 4),
    )


def built(experiment: Builder) -> Experiment:
    return experiment({"log.parquet": log()}, privacy=AUTO)


def by_name(found: tuple[Clustering, ...]) -> dict[str, Clustering]:
    return {one.name: one for one in found}


def test_each_column_has_the_forecast_of_a_plan_with_it(experiment: Builder) -> None:
    made = built(experiment)
    asked = ["country", "device", "store", ("device", "region")]
    found = by_name(plan(made.config, clusters=asked).clusterings)
    text = made.config.read_text()
    configured = 'cluster = "region"'
    assert text.count(configured) == 1
    errors = {}
    for columns in ("region", *asked):
        names = [columns] if isinstance(columns, str) else list(columns)
        made.config.write_text(text.replace(configured, f"cluster = {json.dumps(names)}"))
        alone = plan(made.config)
        name = "+".join(names)
        errors[name] = alone.predicted[0].std_error
        one = found[name]
        everybody = [each for each in one.predicted if each.of == "everybody"]
        assert [each.std_error for each in everybody] == pytest.approx([errors[name]])
        assert [each.std_error_now for each in everybody] == pytest.approx([errors["region"]])
        assert (one.n_units, one.n_clusters) == (N_UNITS, alone.roster.n_clusters)
        assert one.is_configured == (name == "region")
    sizes = log().group_by("device", "region", "variant").len()["len"]
    assert found["device+region"].smallest_stratum == sizes.min()
    assert found["device+region"].n_strata == 6


def test_values_of_the_cluster_are_sharper_than_as_segments(experiment: Builder) -> None:
    found = plan(built(experiment).config, clusters=["device", ("region", "device")]).clusterings
    alone, both = (by_name(found)[name] for name in ("device", "region+device"))
    # By turns: what is the cluster gains, and what no longer is one loses.
    assert (alone.of_now("its own values") or 1) < 0.9
    assert (alone.of_now("values of now") or 0) > 1.1
    # A value of a cluster's part is the union of strata, with the noise of both.
    assert 1.0 < (both.of_now("values of now") or 0) < (alone.of_now("values of now") or 0)
    assert [one.of_now() for one in found] == sorted(one.of_now() or 1.0 for one in found)


def test_outcomes_change_nothing_and_nothing_is_written(experiment: Builder) -> None:
    turned, none = log().with_columns(clicks=3.0 - pl.col("clicks")), log().drop("clicks")
    found = []
    for frame in (log(), turned, none):
        made = experiment({"log.parquet": frame}, privacy=AUTO)
        result = plan(made.config, clusters=["country", "session"])
        found.append((result.as_json(), plan_text(result)))
        there = {path.name for path in made.config.parent.iterdir()}
        assert there == {made.config.name, "log.parquet"}
    assert found[0] == found[1] == found[2]


def test_a_cluster_of_its_own_for_each_row_tells_nothing(
    command: Command, experiment: Builder
) -> None:
    made = built(experiment)
    ended = command("plan", made.config, "--clusters", "session,device", "--json")
    found = json.loads(ended.stdout)["clusterings"]
    assert found[-1]["cluster"] == ["session"]
    assert found[-1]["n_clusters"] == N_UNITS
    assert found[-1]["predicted"] == []
    assert found[-1]["problem"].startswith("no effect can be estimated: no cluster has 2 units")
    assert command("plan", made.config, "--json").stdout.count('"clusterings": []') == 1
    told = command("plan", made.config, "--clusters", "session").stdout
    assert "region (now)" in told
    assert "Keep region: nothing here makes errors smaller by 2 %, all in all." in told
    better = command("plan", made.config, "--clusters", "device, device + region").stdout
    assert "is better: errors are 0." in better
    assert "values of region" in better


def test_a_column_that_some_units_lack_is_told_of(experiment: Builder) -> None:
    lacking = pl.when(pl.int_range(pl.len()) % 8 > 0).then("device").alias("device")
    made = experiment({"log.parquet": log().with_columns(lacking)}, privacy=AUTO)
    told = plan_text(plan(made.config, clusters=["device", "country"]))
    told = " ".join(told.split())
    assert f"device: {N_UNITS // 8:,} of {N_UNITS:,} units have no value there" in told
    assert "country: " not in told


@pytest.mark.parametrize(
    ("clusters", "told"),
    [
        ("contry", "there is no column 'contry'; correct the name; did you mean 'country'?"),
        ("country,", "an empty name"),
        ("", "an empty name"),
        ("country,device,country", "'country' is named twice"),
        ("device+region,region+device", "'region+device' is named twice"),
        ("clicks", "'clicks': 'clicks' is columns.outcome already"),
        ("customer", "'customer': 'customer' is columns.unit already"),
    ],
)
def test_what_cannot_be_the_cluster_is_named(experiment: Builder, clusters: str, told: str) -> None:
    asked = [one.split("+") for one in clusters.split(",")]
    with pytest.raises((ConfigError, InputError)) as caught:
        plan(built(experiment).config, clusters=asked)
    assert str(caught.value).startswith("--clusters")
    assert told in str(caught.value)


def test_a_log_without_clusters_may_get_some(experiment: Builder) -> None:
    made = experiment({"log.parquet": log()}, privacy=AUTO, columns={"cluster": None})
    found = by_name(plan(made.config, clusters="region").clusterings)
    assert found["no clusters"].n_strata == 1
    assert {one.of for one in found["region"].predicted} == {
        *("everybody", "a tenth", "its own values"),
    }
