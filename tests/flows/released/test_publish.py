"""The released file: the contract's tables and types, whole, closed, and open to everybody."""

import os
import re
import stat
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import clusterdp
from flows.released import publish as publish_module
from flows.released import small_file
from schemas.errors import InputError
from schemas.released import SCHEMA_VERSION
from tests.conftest import EXACT, Builder, a_log, released, rows

METRIC = {"metric": "VARCHAR"}
CELL = {**METRIC, "pool": "VARCHAR", "arm": "VARCHAR", "outcome": "DOUBLE"}
LABELS = {"metric": "ENUM('outcome')", "arm": "ENUM('mail', 'none')"}
TABLES = {
    "release": {
        "release_id": "VARCHAR",
        "experiment": "VARCHAR",
        "period": "VARCHAR",
        "revision": "INTEGER",
        "created_at": "TIMESTAMP",
        "mechanism": "VARCHAR",
        "epsilon": "DOUBLE",
        "delta": "DOUBLE",
        "neighbours": "VARCHAR",
        "cluster_epsilon": "DOUBLE",
        "control": "VARCHAR",
        "same_shares": "BOOLEAN",
        "n_units": "BIGINT",
        "n_clusters": "BIGINT",
        "n_set_aside": "BIGINT",
        "sample_ratio_p": "DOUBLE",
        "n_returning": "BIGINT",
        "n_arm_changed": "BIGINT",
        "account": "VARCHAR",
        "returning": "VARCHAR",
        "rows_each": "BIGINT",
        "budget_epsilon": "DOUBLE",
        "decision": "VARCHAR",
        "unit_id_key_fingerprint": "VARCHAR",
        "account_key_fingerprint": "VARCHAR",
        "guess_from": "VARCHAR",
        "schema_version": "INTEGER",
        "package_version": "VARCHAR",
    },
    "metrics": {
        "metric": "VARCHAR",
        "kind": "VARCHAR",
        "label": "VARCHAR",
        "measured_in": "VARCHAR",
        "epsilon": "DOUBLE",
        "delta": "DOUBLE",
        "resampling_probability": "DOUBLE",
        "truncation_threshold": "DOUBLE",
        "noise_scale": "DOUBLE",
        "strata_statistic": "VARCHAR",
        "grid_step": "DOUBLE",
        "n_outcomes": "BIGINT",
        "numerator": "VARCHAR",
        "denominator": "VARCHAR",
        "texts": "VARCHAR",
        "role": "VARCHAR",
        "margin": "DOUBLE",
        "direction": "VARCHAR",
        "response_epsilon": "DOUBLE",
        "drawn_with": "VARCHAR",
        "computed_epsilon": "DOUBLE",
        "computed_delta": "DOUBLE",
        "missing": "DOUBLE",
        "unit_noise": "DOUBLE",
    },
    "outcomes": {**METRIC, "outcome": "DOUBLE"},
    "pools": {
        **METRIC,
        "pool": "VARCHAR",
        "arm": "VARCHAR",
        "n_units": "BIGINT",
        "noisy_mean": "DOUBLE",
        "noisy_difference": "DOUBLE",
        "mean_weight": "DOUBLE",
        "square_weight": "DOUBLE",
        "table": "BIGINT",
    },
    "strata": {
        "cluster": "VARCHAR",
        "arm": "VARCHAR",
        "pool": "VARCHAR",
        "n_units": "BIGINT",
        "own_sizes": "DOUBLE",
    },
    "debias": {
        **CELL,
        **LABELS,
        "probability": "DOUBLE",
        "weight": "DOUBLE",
        "noise_variance": "DOUBLE",
        "table": "BIGINT",
    },
    "counts": {**CELL, **LABELS, "noisy_count": "BIGINT"},
    "arm_counts": {
        **METRIC,
        "arm": "VARCHAR",
        "outcome": "DOUBLE",
        "noisy_count": "BIGINT",
        "noise_scale": "DOUBLE",
    },
    "squares": {
        **METRIC,
        "arm": "VARCHAR",
        "noisy_square": "DOUBLE",
        "noise_scale": "DOUBLE",
        "centre": "DOUBLE",
    },
    "margins": {
        **METRIC,
        "margin": "INTEGER",
        "attribute": "VARCHAR",
        "cell": "INTEGER",
        "value": "VARCHAR",
        "arm": "VARCHAR",
        "n_units": "BIGINT",
        "noisy_sum": "DOUBLE",
        "noise_scale": "DOUBLE",
    },
    "randomiser": {
        **METRIC,
        "table": "BIGINT",
        "outcome": "DOUBLE",
        "output": "DOUBLE",
        "probability": "DOUBLE",
        "other_outcome": "DOUBLE",
    },
    "guess": {
        **METRIC,
        "cluster": "VARCHAR",
        "arm": "VARCHAR",
        "outcome": "DOUBLE",
        "probability": "DOUBLE",
    },
    "units": {
        "unit_id": "VARCHAR",
        "cluster": "ENUM('east', 'west')",  # in the order of text, so that both stand in one order
        "arm": "ENUM('mail', 'none')",
        "outcome": "DOUBLE",
        "outcome_randomised": "DOUBLE",
        "outcome_debiased": "DOUBLE",
        "weight": "DOUBLE",
    },
    "means": {
        **METRIC,
        "arm": "VARCHAR",
        "estimator": "VARCHAR",
        "mean": "DOUBLE",
        "std_error": "DOUBLE",
    },
    "estimates": {
        **METRIC,
        "arm": "VARCHAR",
        "control": "VARCHAR",
        "segment": "VARCHAR",
        "estimator": "VARCHAR",
        "estimate": "DOUBLE",
        "std_error": "DOUBLE",
        "privacy_std_error": "DOUBLE",
        "ci_lower": "DOUBLE",
        "ci_upper": "DOUBLE",
        "p_value": "DOUBLE",
        "p_value_holm": "DOUBLE",
        "confidence_level": "DOUBLE",
        "n_units": "BIGINT",
        "n_segment": "BIGINT",
        "coverage": "DOUBLE",
        "planned_std_error": "DOUBLE",
    },
    "ends": {**METRIC, "end": "VARCHAR", "share": "DOUBLE", "std_error": "DOUBLE"},
}
"""The contract's tables, as DuckDB reports them.

`cluster_epsilon`, `same_shares`, `noisy_difference`, the weights of the pools and `p_value_holm`
are additions of ours.
"""

NOT_KNOWN = {
    "segment", "label", "measured_in", "numerator", "denominator", "unit_id_key_fingerprint",
    "decision", "role", "direction", "texts", "drawn_with",
}  # fmt: skip
"""Columns of text that are null in a release such as these."""

MECHANISMS = ["cluster-dp", "cluster-free-dp", "uniform-prior-dp", "cluster-optimal-dp"]


def columns_of(path: Path) -> dict[str, dict[str, str]]:
    query = (
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'main' ORDER BY ordinal_position"
    )
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in released(path, query).rows():
        found.setdefault(table, {})[column] = kind
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_file_has_the_tables_of_the_contract(experiment: Builder, mechanism: str) -> None:
    path = experiment(privacy={"mechanism": mechanism}).run().path
    found = columns_of(path)
    assert {table: list(found[table].items()) for table in found} == {
        table: list(columns.items()) for table, columns in TABLES.items()
    }


def test_labels_are_told_apart_as_text_is(experiment: Builder) -> None:
    """In joins, comparisons and unions, whatever names there are."""
    log = a_log(240, clusters=("it's", '"quoted", (so)'))
    path = experiment(log).run().path
    rows = released(
        path,
        """SELECT cluster, count(*) AS n FROM (
               FROM units JOIN (VALUES ('it''s', 1), ('neither', 2)) AS mine (cluster, n)
               USING (cluster) WHERE cluster <> 'other' AND arm IN ('none', 'such')
               UNION ALL SELECT * REPLACE ('of another' AS cluster), 3 FROM units
           ) GROUP BY cluster ORDER BY cluster""",
    ).rows()
    assert rows == [("it's", 60), ("of another", 240)]
    assert set(clusterdp.open(path).units()["cluster"]) == {"it's", '"quoted", (so)'}
    assert len(clusterdp.open(path).ate())


def test_labels_are_those_of_their_rows(experiment: Builder) -> None:
    """In the file they stand in the order of text, here with control first."""
    arms = {"control": "none", "treatments": ["it's", "mail"]}
    log = a_log(240, arms=("none", "it's", "mail"))
    path = experiment(log, arms=arms).run().path
    pools = released(path, "SELECT metric, pool, arm FROM pools ORDER BY ALL").rows()
    for table in ("debias", "counts"):
        assert columns_of(path)[table]["arm"] == "ENUM('it''s', 'mail', 'none')"
        query = f"SELECT DISTINCT metric::VARCHAR, pool, arm::VARCHAR FROM {table} ORDER BY ALL"
        assert released(path, query).rows() == pools


def test_very_many_labels_stay_text(experiment: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_module, "MOST_LABELS", 1)
    path = experiment().run().path
    assert {columns_of(path)["units"][name] for name in ("cluster", "arm")} == {"VARCHAR"}
    assert len(clusterdp.open(path).ate())


def test_ids_that_are_text_name_their_compression(experiment: Builder) -> None:
    path = experiment().run().path
    query = "SELECT sql FROM duckdb_tables() WHERE table_name = 'drawn'"
    assert "unit_id VARCHAR USING COMPRESSION FSST" in released(path, query).item()


def test_storage_without_a_compression_that_is_named_is_written_without_it(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 1.4 on, DuckDB's storage has FSST and dictionaries as one, and refuses either's name."""
    monkeypatch.setattr(small_file, "STORAGE_VERSION", "v2.0.0")
    path = experiment().run().path
    query = "SELECT sql FROM duckdb_tables() WHERE table_name = 'drawn'"
    assert "unit_id VARCHAR," in released(path, query).item()
    assert released(path, "SELECT count(*) AS n FROM units").item() == 240


@pytest.mark.parametrize("most", [2, 3])
def test_clusters_too_many_for_labels_are_text(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(publish_module, "MOST_LABELS", most)
    path = experiment(a_log(240, clusters=("west", "east", "north"))).run().path
    assert (columns_of(path)["units"]["cluster"] == "VARCHAR") is (most == 2)
    assert len(clusterdp.open(path).ate())


def test_every_table_has_the_rows_it_should(experiment: Builder) -> None:
    path = experiment().run().path
    counts = {table: released(path, table).height for table in TABLES}
    assert counts == {
        "release": 1,
        "metrics": 1,
        "outcomes": 4,
        "pools": 4,
        "strata": 4,
        "debias": 16,
        "counts": 16,
        "ends": 3,
        "arm_counts": 0,
        "squares": 0,
        "margins": 0,
        "randomiser": 0,
        "guess": 0,
        "units": 240,
        "means": 6,  # an arm and estimator each
        "estimates": 3,  # as many estimators
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_text_is_never_missing(experiment: Builder, mechanism: str) -> None:
    path = experiment(a_log(clusters=("a", "b", "c")), privacy={"mechanism": mechanism}).run().path
    for table, columns in TABLES.items():
        frame = released(path, table)
        for column, kind in columns.items():
            if kind == "VARCHAR":
                missing = frame.height if column in NOT_KNOWN else 0
                assert frame[column].null_count() == missing, column


def test_the_release_row_says_what_was_done(experiment: Builder) -> None:
    before = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    path = experiment(privacy={"epsilon": 0.7}).run("2026-11-20").path
    row = released(path, "release").to_dicts()[0]
    assert before <= row.pop("created_at") <= before + timedelta(minutes=5)
    assert re.fullmatch("[0-9a-f]{32}", row.pop("account_key_fingerprint"))
    expected = {
        "release_id": "trial.2026-11-20.r1",
        "experiment": "trial",
        "period": "2026-11-20",
        "revision": 1,
        "mechanism": "cluster-dp",
        "epsilon": 0.7,
        "delta": 0.0,
        "neighbours": "one unit's outcome (substitution)",
        "control": "none",
        "same_shares": False,
        "n_units": 240,
        "n_clusters": 2,
        "n_set_aside": 0,
        "sample_ratio_p": 1.0,
        "n_returning": 0,
        "n_arm_changed": 0,
        "account": "unit",
        "returning": "charge",
        "rows_each": None,
        "budget_epsilon": 1000.0,
        "unit_id_key_fingerprint": None,
        "cluster_epsilon": None,
        "decision": None,
        "guess_from": "",
        "schema_version": SCHEMA_VERSION,
        "package_version": version("clusterdp"),
    }
    assert row == expected


def test_the_metrics_row_says_how_the_outcome_was_randomised(experiment: Builder) -> None:
    path = experiment(privacy={"epsilon": 0.7, "delta": 1e-6}).run().path
    (row,) = released(path, "metrics").to_dicts()
    parameters = [row.pop(f"{name}") for name in ("resampling_probability", "noise_scale")]
    assert all(number > 0 for number in parameters)
    assert 0 < row.pop("truncation_threshold") <= 0.25
    assert 0.69 < row.pop("computed_epsilon") <= 0.7
    assert 0 < row.pop("computed_delta") <= 1e-6
    assert row == {
        "metric": "outcome",
        "kind": "outcome",
        "label": None,
        "measured_in": None,
        "epsilon": 0.7,
        "delta": 1e-6,
        "strata_statistic": "counts",
        "grid_step": None,
        "n_outcomes": 4,
        "numerator": None,
        "denominator": None,
        "texts": None,
        "role": None,
        "margin": None,
        "direction": None,
        "response_epsilon": None,
        "drawn_with": None,
        "missing": 0.0,
        "unit_noise": None,
    }


def test_rows_set_aside_the_arm_sizes_and_the_budget_are_stated(experiment: Builder) -> None:
    log = pl.concat([a_log(40), rows(("x", "fax", "east", 1.0), ("y", "none", None, 1.0))])
    uneven = log.filter(~((pl.col("variant") == "mail") & (pl.col("customer") < "c00020")))
    built = experiment(uneven, privacy={"budget_epsilon": 3.0})
    result = built.run()
    (row,) = released(result.path, "release").to_dicts()
    assert row["n_set_aside"] == result.roster.quarantined == 2
    assert row["sample_ratio_p"] == result.roster.sample_ratio_p
    assert row["sample_ratio_p"] < 0.2
    assert row["budget_epsilon"] == 3.0


def test_every_metric_dependent_row_names_its_metric(experiment: Builder) -> None:
    path = experiment().run().path
    for table, columns in TABLES.items():
        if "metric" in columns:
            assert set(released(path, table)["metric"]) <= {"outcome"}, table


# what the file says of itself


def test_every_table_column_and_macro_says_what_it_is(experiment: Builder) -> None:
    path = experiment().run().path
    asked = {
        "tables": "SELECT table_name AS name, comment FROM duckdb_tables() "
        "UNION ALL SELECT view_name, comment FROM duckdb_views() WHERE NOT internal",
        "columns": "SELECT table_name || '.' || column_name AS name, comment FROM duckdb_columns() "
        "WHERE schema_name = 'main' AND NOT internal",
        "columns of the macros": "SELECT table_name || '.' || column_name AS name, comment "
        "FROM duckdb_columns() WHERE schema_name <> 'main' AND NOT internal",
        "macros": "SELECT function_name AS name, comment FROM duckdb_functions() "
        "WHERE NOT internal",
    }
    told = {kind: dict(released(path, query).rows()) for kind, query in asked.items()}
    assert set(told["tables"]) >= set(TABLES)
    assert set(told["columns"]) == {
        f"{table}.{column}" for table, columns in TABLES.items() for column in columns
    }
    assert set(told["macros"]) == {"ate", "ate_by", "ate_by_segment"}
    for names in told.values():
        for name, comment in names.items():
            assert comment, name
            assert comment.endswith("."), name


# statistics


@pytest.mark.parametrize(
    ("values", "privacy", "statistic"),
    [
        ([0, 1], {}, "count-and-complement"),
        ([0, 1, 2], {}, "counts"),
        ([0, 1], EXACT, "none"),
        ([0, 1, 2], EXACT, "none"),
    ],
)
def test_what_is_published_of_the_strata_is_named(
    experiment: Builder, values: list[int], privacy: dict[str, Any], statistic: str
) -> None:
    path = experiment(outcome={"values": values}, privacy=privacy).run().path
    (metric,) = released(path, "metrics").to_dicts()
    counts = released(path, "counts")["noisy_count"]
    assert metric["strata_statistic"] == statistic
    assert (metric["noise_scale"] is None) == (statistic == "none")
    assert counts.null_count() == 0
    assert len(counts) == (0 if statistic == "none" else 4 * len(values))
    assert released(path, "pools")["noisy_mean"].null_count() == 4


def test_a_count_and_its_complement_add_up_to_the_units(experiment: Builder) -> None:
    built = experiment(a_log(n_outcomes=2), outcome={"values": [0, 1]}, privacy={"epsilon": 0.1})
    query = (
        "SELECT d.pool, d.arm, sum(noisy_count)::BIGINT AS counted, any_value(p.n_units) AS n "
        "FROM main.counts d JOIN main.pools p USING (pool, arm) GROUP BY ALL"
    )
    sums = released(built.run().path, query)
    assert len(sums) == 4
    assert sums["counted"].to_list() == sums["n"].to_list()


def test_an_estimator_without_its_statistic_has_no_row(experiment: Builder) -> None:
    built = experiment()
    estimates = released(built.run().path, "estimates")
    assert estimates["estimator"].to_list() == ["combined", "tau_q", "histogram"]
    estimates = released(experiment(privacy=EXACT).run(revise=True).path, "estimates")
    assert estimates["estimator"].to_list() == ["tau_q"]


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (pl.Series(["007", "7", "é", "x"]), "VARCHAR"),
        (pl.Series([3, -1, 10, 2], dtype=pl.Int16), "BIGINT"),
        (pl.Series([3, 2**40, 10, 2]), "BIGINT"),
        (pl.Series([2**64 - 1, 0, 2**63, 7], dtype=pl.UInt64), "UBIGINT"),
    ],
)
def test_unit_ids_keep_their_type_and_value(experiment: Builder, ids: pl.Series, kind: str) -> None:
    log = a_log(4, clusters=("east",)).with_columns(ids.alias("customer"))
    path = experiment(log).run().path
    assert columns_of(path)["units"]["unit_id"] == kind
    assert released(path, "units")["unit_id"].to_list() == sorted(ids.to_list())


def test_integers_too_large_for_a_common_type_are_released_whole(experiment: Builder) -> None:
    parts = {
        "logs/a.parquet": a_log(4).with_columns(
            customer=pl.Series([2**63 + i for i in range(4)], dtype=pl.UInt64)
        ),
        "logs/b.parquet": a_log(4).with_columns(customer=pl.Series([1, 2, 3, 4])),
    }
    path = experiment(parts, source={"path": "logs/*"}).run().path
    found = {int(unit) for unit in released(path, "units")["unit_id"]}
    assert found == {1, 2, 3, 4, *(2**63 + i for i in range(4))}


def test_names_with_quotes_and_letters_of_all_kinds_survive(experiment: Builder) -> None:
    names = ("o'east", 'we"st', "sé / ver", "--", "日本")
    path = experiment(a_log(200, clusters=names), arms={"treatments": ["mail"]}).run().path
    assert set(released(path, "strata")["cluster"]) == set(names)


# the order of rows


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_log_sorted_by_outcome_leaves_no_trace_in_any_order(
    experiment: Builder, mechanism: str
) -> None:
    log = a_log(600, clusters=("west", "east", "north"))
    keys = {
        "outcomes": "outcome",
        "pools": "pool, arm, n_units",
        "strata": "cluster, arm, pool, n_units",
        "debias": "pool, arm, outcome",
        "counts": "pool, arm, outcome",
        "means": "arm, estimator",
        "units": "unit_id, cluster, arm",
        "estimates": "arm, control, estimator",
    }
    orders = []
    for shuffled in (log.sort("clicks"), log.sample(fraction=1, shuffle=True, seed=7)):
        path = experiment(shuffled, privacy={"mechanism": mechanism}).run(revise=True).path
        orders.append(
            {
                table: released(path, f"SELECT {key} FROM main.{table}").rows()
                for table, key in keys.items()
            }
        )
    assert orders[0] == orders[1]
    released_units = [unit for unit, _, _ in orders[0]["units"]]
    assert released_units == sorted(released_units)


# the file


def test_anyone_can_open_it_in_the_storage_version_that_is_stated(experiment: Builder) -> None:
    path = experiment().run().path
    head = path.read_bytes()[:20]
    assert head[8:12] == b"DUCK"
    assert int.from_bytes(head[12:20], "little") == 64  # of DuckDB 1.0 and later
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS theirs (READ_ONLY)")
        assert connection.execute("SELECT count(*) FROM theirs.units").fetchone() == (240,)


def test_few_units_and_many_are_laid_out_alike(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few are written by an engine that stays open, into tables that it copies."""
    told = []
    for period, few in (("a", 20_000), ("b", 20_000), ("c", 0)):
        monkeypatch.setattr(publish_module, "_FEW", few)
        with duckdb.connect(str(experiment(a_log()).run(period).path), read_only=True) as file:
            tables = "comment, sql, column_count FROM duckdb_tables()"
            columns = "table_name, column_name, data_type, comment FROM duckdb_columns()"
            views = "view_name, sql, comment FROM duckdb_views()"
            found = [
                file.sql(f"SELECT {what} WHERE NOT internal").fetchall()
                for what in (tables, columns, views)
            ]
        told.append(re.sub("_clusterdp_[0-9a-f]{16}", "", str(found)))
    assert told[0] == told[1] == told[2]


def test_a_file_that_cannot_be_written_stands_in_no_others_way(tmp_path: Path) -> None:
    """What writes few units, one file after the other, is let go of where it fails."""
    with publish_module.new_draft(tmp_path / "one", None, 1):
        kept = small_file._kept()
    with (
        pytest.raises(InputError, match="cannot write here"),
        publish_module.new_draft(tmp_path / "none" / "two", None, 1),
    ):
        pass
    with publish_module.new_draft(tmp_path / "three", None, 1):
        assert small_file._kept() is not kept


def test_nothing_but_the_release_is_left(experiment: Builder) -> None:
    built = experiment()
    built.run()
    assert sorted(entry.name for entry in built.releases.iterdir()) == [
        "SHA256SUMS",
        "latest.duckdb",
        "series.duckdb",
        "trial.once.r1.duckdb",
    ]
    (register, lock) = [name for name in built.files if name.startswith("ledger.sqlite.accounts/")]
    assert lock.endswith(".lock")
    assert register.endswith("-1")
    assert [name for name in built.files if name not in (lock, register)] == [
        "account.key",
        "ledger.sqlite",
        "log.parquet",
        "quarantine/digest.key",
        "releases/trial/SHA256SUMS",
        "releases/trial/latest.duckdb",
        "releases/trial/series.duckdb",
        "releases/trial/trial.once.r1.duckdb",
        "trial.toml",
    ]


def test_the_file_cannot_be_written_and_everybody_can_read_it(experiment: Builder) -> None:
    path = experiment().run().path
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    latest = path.with_name("latest.duckdb")
    assert stat.S_IMODE(latest.stat().st_mode) == 0o444
    assert latest.read_bytes() == path.read_bytes()


def test_the_file_keeps_its_mode_whatever_the_umask_is(experiment: Builder) -> None:
    before = os.umask(0o077)
    try:
        built = experiment(rows(*a_log(20).rows(), ("x", "fax", "east", 1.0)))
        path = built.run().path
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert stat.S_IMODE(built.releases.stat().st_mode) == 0o755
    assert stat.S_IMODE(built.quarantine.stat().st_mode) == 0o700


def test_a_reader_neither_blocks_a_run_nor_loses_what_it_reads(experiment: Builder) -> None:
    built = experiment()
    built.run("a")
    latest = built.releases / "latest.duckdb"
    with duckdb.connect(str(latest), read_only=True) as reader:
        assert built.run("b").status == "published"
        assert reader.execute("SELECT period FROM release").fetchone() == ("a",)
    assert released(latest, "release")["period"].to_list() == ["b"]


def test_the_folder_of_releases_may_have_a_quote_in_its_name(experiment: Builder) -> None:
    built = experiment(publish={"directory": "it's; here"})
    path = built.run().path
    assert path == built.folder / "it's; here" / "trial" / "trial.once.r1.duckdb"
    assert released(path, "units").height == 240
