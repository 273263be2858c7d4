"""Households that pay for their members: how many are released, what they pay, who returns."""

import math

import polars as pl
import pytest

from flows.cli.night.release import release_text
from flows.cli.night.released import inspect_text
from flows.raw.charge import HOUSEHOLD_FULL, RELEASED_BEFORE
from flows.released.file.read import read_release
from flows.released.report import write_report
from privatizers.accounting.budget import Budget, of_group
from schemas.errors import BudgetError, ConfigError
from tests.conftest import Builder, Experiment, Section, released

HOMES: Section = {"privacy_unit": "home"}


def log_of(first: int, last: int, *, members: int = 3) -> pl.DataFrame:
    """Households of so many members each; the third of each is in no household that says so."""
    people = [(home, member) for home in range(first, last) for member in range(members)]
    return pl.DataFrame(
        {
            "customer": [f"c{home:03d}-{member}" for home, member in people],
            "home": [f"h{home}" for home, _ in people],
            "variant": [("none", "mail")[(home + member) % 2] for home, member in people],
            "region": [("east", "west")[home // 2 % 2] for home, _ in people],
            "clicks": [float(member % 3) for _, member in people],
        }
    )


def nights(experiment: Builder, logs: dict[str, pl.DataFrame], **privacy: object) -> Experiment:
    files = {f"{name}.parquet": log for name, log in logs.items()}
    asked = {"rows_each": 2, **privacy}
    source = {"path": "{period}.parquet"}
    return experiment(files, source=source, columns=HOMES, privacy=asked)


def test_a_household_pays_for_as_many_members_as_are_released(experiment: Builder) -> None:
    logs = {"n1": log_of(0, 30), "n2": log_of(20, 50)}
    built = nights(experiment, logs, budget_epsilon=6.0)
    result = built.run("n1")
    units = released(result.path, "units")["unit_id"].to_list()
    assert units == [f"c{home:03d}-{member}" for home in range(30) for member in range(2)]
    assert result.roster.quarantined_by_rule == {HOUSEHOLD_FULL: 30}
    (row,) = released(result.path, "release").to_dicts()
    assert (row["epsilon"], row["rows_each"], row["n_set_aside"]) == (2.0, 2, 30)
    assert result.statement.spent == Budget(4.0)
    assert "4: whoever pays has up to 2 rows here" in release_text(result)
    assert "together, epsilon is 4" in " ".join(inspect_text(read_release(result.path)).split())
    page = write_report(result.path, built.folder / "page.html").read_text(encoding="utf-8")
    assert "has up to 2 units here" in " ".join(page.split())
    with pytest.raises(BudgetError, match="costs epsilon 4, which 10 of its 30 units cannot pay"):
        built.run("n2")
    assert built.run("n1").status == "unchanged"


def test_a_household_is_released_once(experiment: Builder) -> None:
    logs = {"n1": log_of(0, 30), "n2": log_of(20, 50, members=2)}
    built = nights(experiment, logs, budget_epsilon=4.0, returning="set_aside")
    built.run("n1")
    second = built.run("n2")
    assert second.roster.quarantined_by_rule == {RELEASED_BEFORE: 20}
    assert second.roster.n_units == 40
    assert (second.roster.n_returning, second.roster.n_arm_changed) == (20, None)


def test_units_and_households_do_not_share_a_population(experiment: Builder) -> None:
    logs = {"n1": log_of(0, 30), "n2": log_of(20, 50)}
    built = nights(experiment, logs)
    built.run("n1")
    config = built.config.read_text()
    built.config.write_text(
        config.replace('privacy_unit = "home"\n', "").replace("rows_each = 2\n", "")
    )
    with pytest.raises(ConfigError, match="let the same pay as before"):
        built.run("n2")


def test_a_row_without_its_household_is_set_aside(experiment: Builder) -> None:
    log = log_of(0, 30, members=2)
    lost = pl.when(pl.col("customer") == "c003-1").then(None).otherwise(pl.col("home"))
    built = nights(experiment, {"n1": log.with_columns(lost.alias("home"))})
    assert built.run("n1").roster.quarantined_by_rule == {"privacy_unit_missing": 1}


def test_the_household_of_a_unit_is_that_of_its_first_exposure(experiment: Builder) -> None:
    seen = log_of(0, 30, members=2).drop("clicks").with_columns(ts=pl.lit("2026-11-01T10:00:00Z"))
    later = seen.with_columns(
        ts=pl.lit("2026-11-02T10:00:00Z"), home=pl.lit("h0"), region=pl.lit("east")
    )
    events = pl.DataFrame({"customer": ["c001-0"], "ts": ["2026-11-01T11:00:00Z"], "clicks": [1.0]})
    built = experiment(
        {"seen.parquet": pl.concat([later, seen]), "events.parquet": events},
        source={"path": "seen.parquet", "grain": "event", "outcomes_path": "events.parquet"},
        columns={**HOMES, "time": "ts"},
        outcome={"aggregate": "count"},
        privacy={"rows_each": 2},
    )
    result = built.run()
    assert result.roster.n_units == 60
    assert result.roster.quarantined_by_rule == {}


def test_rows_on_disk_are_kept_alike(experiment: Builder) -> None:
    log = log_of(0, 900)
    built = experiment(
        {"n1.parquet": log},
        source={"path": "{period}.parquet"},
        columns=HOMES,
        privacy={"rows_each": 2},
        run={"memory_limit": "60KB"},
    )
    assert built.run("n1").roster.quarantined_by_rule == {HOUSEHOLD_FULL: 900}


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"columns": HOMES}, "privacy.rows_each"),
        ({"privacy": {"rows_each": 2}}, "privacy.rows_each"),
        ({"columns": HOMES, "privacy": {"rows_each": 0}}, "privacy.rows_each"),
        (
            {"columns": HOMES, "privacy": {"rows_each": 2, "account": "population"}},
            "columns.privacy_unit",
        ),
    ],
)
def test_keys_that_do_not_go_together(
    experiment: Builder, sections: dict[str, Section], key: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: "):
        experiment(**sections).load()


def test_a_group_pays_more_than_in_proportion_where_there_is_a_delta() -> None:
    assert of_group(Budget(0.1), 3) == Budget(0.3)
    assert of_group(Budget(0.7, 1e-6), 1) == Budget(0.7, 1e-6)
    found = of_group(Budget(1.0, 1e-6), 3)
    exact = 1e-6 * (math.exp(3.0) - 1.0) / (math.exp(1.0) - 1.0)
    assert found.epsilon == 3.0
    assert exact <= found.delta <= exact * (1.0 + 1e-9)
    assert of_group(Budget(0.0, 1e-6), 4).delta == pytest.approx(4e-6, rel=1e-9)
    assert of_group(Budget(100.0, 1e-6), 900) == Budget(90_000.0, 1.0)
