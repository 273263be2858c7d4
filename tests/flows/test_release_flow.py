"""The nightly release: its steps in order, its result, and what Prefect is told of it.

Tests of what a run does to the ledger, to files and to its caller go both ways, by plain steps and
as a Prefect flow (the fixture ``way``). Those of the same account with other settings, and of data
alone, go by plain steps: steps, order and account are the same function.
"""

import inspect
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn, get_type_hints
from unittest.mock import patch
from uuid import UUID

import polars as pl
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.settings import (
    PREFECT_LOCAL_STORAGE_PATH,
    PREFECT_RESULTS_PERSIST_BY_DEFAULT,
    temporary_settings,
)

from flows.deployed import release
from flows.ledger.account import Account
from flows.orchestration.step import plain_step, step
from flows.release import ReleaseResult
from schemas.errors import BudgetError, ConfigError, ConflictError, InputError, StepError
from tests.conftest import (
    PATIENCE,
    SENTINEL,
    Builder,
    Experiment,
    a_log,
    build_experiment,
    released,
    rows,
    write_content,
)

STEPS = [
    "ingest",
    "validate",
    "fingerprint",
    "digest_units",
    "set_known_aside",
    "write_quarantine",
    "privatize",
    "publish",
    "estimate",
    "renew_series",
]


# one run


@pytest.mark.usefixtures("way")
def test_a_run_says_what_it_made(experiment: Builder) -> None:
    built = experiment(rows(*a_log(100).rows(), ("x", "fax", "east", 1.0)))
    result = built.run("2026-11-20")
    assert result.release_id == "trial.2026-11-20.r1"
    assert result.path == built.releases / "trial.2026-11-20.r1.duckdb"
    assert result.path.is_absolute()
    assert (result.status, result.manifest.mechanism) == ("published", "cluster-dp")
    assert (result.manifest.epsilon, result.manifest.delta) == (2.0, 0.0)
    assert result.roster.n_units == 100
    assert result.roster.quarantined_by_rule == {"arm_not_declared": 1}
    assert [(one.arm, one.estimator) for one in result.estimates] == [
        ("mail", "combined"),
        ("mail", "tau_q"),
        ("mail", "histogram"),
    ]


def test_its_document_has_the_keys_of_the_contract(experiment: Builder) -> None:
    document = experiment().run().as_json()
    assert set(document) >= {
        "release_id", "path", "status", "mechanism", "epsilon", "delta", "n_units", "quarantined",
        "quarantined_by_rule", "sample_ratio_p", "ledger",
    }  # fmt: skip
    assert document["ledger"] == {
        "population": "trial",
        "spent_epsilon": 2.0,
        "spent_delta": 0.0,
        "budget_epsilon": 1000.0,
        "budget_delta": None,
        "n_releases": 1,
    }
    assert set(document["estimates"][0]) >= {
        "arm", "control", "segment", "estimator", "estimate", "std_error", "privacy_std_error",
        "ci_lower", "ci_upper", "p_value", "relative", "relative_ci_lower", "relative_ci_upper",
        "n_units",
    }  # fmt: skip


# one draw a release


def paid(result: ReleaseResult) -> float:
    return result.statement.spent.epsilon


@pytest.mark.usefixtures("way")
def test_the_same_again_is_unchanged_and_free(experiment: Builder) -> None:
    log = rows(*a_log(100).rows(), ("x", "fax", "east", 1.0))
    built = experiment(log)
    first = built.run()
    content, before = first.path.read_bytes(), built.entries
    write_content(built.folder / "log.parquet", log.sample(fraction=1.0, shuffle=True, seed=1))
    again = built.run()
    assert (first.status, again.status) == ("published", "unchanged")
    assert paid(again) == paid(first) == 2.0
    assert again.path.read_bytes() == content
    assert built.entries == before
    was, now = first.as_json(), again.as_json()
    assert {key for key in was if was[key] != now[key]} == {"status"}


def other_rows(built: Experiment) -> None:
    log = a_log().with_columns(
        clicks=pl.when(pl.col("customer") == "c00007")
        .then((pl.col("clicks") + 1) % 4)
        .otherwise("clicks")
    )
    write_content(built.folder / "log.parquet", log)


def late_rows(built: Experiment) -> None:
    write_content(built.folder / "log.parquet", a_log(242))


def other_settings(built: Experiment) -> None:
    text = built.config.read_text(encoding="utf-8")
    built.config.write_text(text.replace("epsilon = 2.0", "epsilon = 1.5"), encoding="utf-8")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (other_rows, "from other rows; rows that came late need a revision"),
        (late_rows, "from other rows; rows that came late need a revision"),
        (other_settings, "with other settings"),
    ],
)
def test_anything_else_for_a_published_period_is_a_conflict_unless_revised(
    experiment: Builder, change: Callable[[Experiment], None], says: str
) -> None:
    built = experiment()
    first = built.run()
    content = first.path.read_bytes()
    change(built)
    with pytest.raises(ConflictError, match=rf"trial\.once\.r1.*{says}.*--revise"):
        built.run()
    assert paid_of(built) == 2.0
    revised = built.run(revise=True)
    assert revised.release_id == "trial.once.r2"
    assert paid(revised) == 2.0 + revised.manifest.epsilon
    assert first.path.read_bytes() == content
    assert built.run().release_id == "trial.once.r2"  # unchanged now


def paid_of(built: Experiment) -> float:
    config = built.load()
    return Account.of(config).statement().spent.epsilon


def test_what_no_release_depends_on_may_change(experiment: Builder) -> None:
    built = experiment()
    built.run()
    text = built.config.read_text(encoding="utf-8")
    built.config.write_text(f'{text}[run]\nmemory_limit = "1GB"\n', encoding="utf-8")
    (built.folder / "log.parquet").rename(built.folder / "other.parquet")
    text = built.config.read_text(encoding="utf-8").replace("log.parquet", "other.parquet")
    built.config.write_text(text, encoding="utf-8")
    assert built.run().status == "unchanged"


def test_the_revision_that_fits_is_the_answer(experiment: Builder) -> None:
    built = experiment()
    built.run()
    other_rows(built)
    built.run(revise=True)
    write_content(built.folder / "log.parquet", a_log())
    again = built.run()
    assert (again.release_id, again.status) == ("trial.once.r1", "unchanged")


@pytest.mark.usefixtures("way")
def test_a_release_whose_file_is_gone_is_not_drawn_again(experiment: Builder) -> None:
    built = experiment()
    path = built.run().path
    path.unlink()
    with pytest.raises(ConflictError, match=r"file is gone.*Put the file back.*--revise"):
        built.run()
    assert built.run(revise=True).release_id == "trial.once.r2"


def test_a_release_that_moved_with_its_folder_is_found(experiment: Builder) -> None:
    built = experiment()
    built.run()
    (built.folder / "releases").rename(built.folder / "moved")
    text = built.config.read_text(encoding="utf-8")
    built.config.write_text(f'{text}[publish]\ndirectory = "moved"\n', encoding="utf-8")
    again = built.run()
    assert again.status == "unchanged"
    assert again.path == built.folder / "moved" / "trial" / "trial.once.r1.duckdb"


# the budget


@pytest.mark.usefixtures("way")
def test_a_release_over_budget_is_refused_and_nothing_is_touched(experiment: Builder) -> None:
    built = experiment(privacy={"budget_epsilon": 5.0})
    built.run("a")
    built.run("b")
    with (
        patch("flows.ledger.shelves.files._YOUNG", 0),
        patch("flows.ledger.shelves.files._SECOND", 1),
    ):
        Account.of(built.load()).settle()  # notes what later runs need not read again
    before = {name: (built.folder / name).read_bytes() for name in built.files}
    with pytest.raises(BudgetError, match=r"costs epsilon 2.*of the 5 .*1 is left") as refused:
        built.run("c")
    assert "Spent by trial.a.r1 2 (240 of them), trial.b.r1 2 (240 of them)." in str(refused.value)
    with pytest.raises(BudgetError):
        built.run("b", revise=True)
    assert {name: (built.folder / name).read_bytes() for name in built.files} == before
    assert built.run("b").status == "unchanged"


def test_what_can_never_fit_is_refused_before_the_log_is_read(experiment: Builder) -> None:
    built = experiment(privacy={"budget_epsilon": 1.0}, source={"path": "none.csv"})
    before = built.entries
    with pytest.raises(BudgetError):
        built.run()
    with pytest.raises(BudgetError):
        built.check()
    assert built.entries == before


def test_tenths_fill_a_budget_exactly(experiment: Builder) -> None:
    built = experiment(privacy={"epsilon": 0.1, "budget_epsilon": 0.3})
    assert [paid(built.run(period)) for period in "abc"] == [0.1, 0.2, 0.3]
    with pytest.raises(BudgetError, match="0 is left"):
        built.run("d")


def test_delta_has_a_budget_of_its_own(experiment: Builder) -> None:
    built = experiment(privacy={"delta": 1e-6, "budget_delta": 1.5e-6})
    built.run("a")
    with pytest.raises(BudgetError, match=r"costs delta 1e-06.*of the 1\.5e-06.*5e-07 is left"):
        built.run("b")


def test_experiments_on_the_same_people_share_a_budget(tmp_path: Path) -> None:
    shared = {"population": "people", "budget_epsilon": 5.0}
    ledger = {"url": f"sqlite:///{tmp_path}/ledger.sqlite"}
    quarantine = {"directory": f"{tmp_path}/quarantine"}  # and with it the key of the digests
    one, two, apart = (
        build_experiment(tmp_path / name, privacy=privacy, ledger=ledger, quarantine=quarantine)
        for name, privacy in (("one", shared), ("two", shared), ("apart", {"budget_epsilon": 2.0}))
    )
    for number, built in enumerate((two, apart)):
        text = built.config.read_text(encoding="utf-8")
        built.config.write_text(text.replace('"trial"', f'"trial{number}"'), encoding="utf-8")
    assert [paid(built.run("a")) for built in (one, two)] == [2.0, 4.0]
    for built in (one, two):
        with pytest.raises(BudgetError, match=r"trial\.a\.r1 2 .*, trial0\.a\.r1 2 "):
            built.run("b")
    result = apart.run("a")
    assert paid(result) == 2.0
    (warning,) = result.warnings  # its people are the very same, which it did not declare
    assert "population 'people' too, for epsilon 4" in warning


@pytest.mark.usefixtures("way")
def test_what_a_failed_run_was_charged_is_given_back(experiment: Builder) -> None:
    built = experiment(privacy={"budget_epsilon": 2.0})
    built.lose()
    assert paid_of(built) == 0.0
    assert built.run().release_id == "trial.once.r1"


def test_the_charge_comes_before_any_draw(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = experiment()
    found = []

    def look(*_: object) -> NoReturn:
        found.append(paid_of(built))
        raise InterruptedError

    # Keys of the ledger are drawn before, by another function.
    monkeypatch.setattr("privatizers.noise.randomness._full_words", look)
    with pytest.raises(StepError, match="InterruptedError"):
        built.run()
    assert found == [2.0]


# revisions and periods


def test_a_revision_is_drawn_anew(experiment: Builder) -> None:
    """240 outcomes, of which about half are resampled: alike with probability under 10⁻²⁰."""
    built = experiment(privacy={"epsilon": 0.5})
    drawn = [
        released(built.run(revise=True).path, "units")["outcome_randomised"].to_list() for _ in "ab"
    ]
    assert drawn[0] != drawn[1]


def test_each_period_reads_its_own_log(experiment: Builder) -> None:
    parts = {"2026/log.csv": a_log(40), "2027/log.csv": a_log(60)}
    built = experiment(parts, source={"path": "{period}/log.csv"})
    assert [built.run(period).roster.n_units for period in ("2027", "2026")] == [60, 40]
    latest = released(built.releases / "latest.duckdb", "release")
    assert latest["period"].to_list() == ["2027"]


@pytest.mark.usefixtures("way")
def test_a_fault_in_the_configuration_is_told_before_anything_is_done(experiment: Builder) -> None:
    built = experiment(source={"path": "{period}.csv"})
    before = built.entries
    with pytest.raises(ConfigError, match="--period"):
        built.run()
    assert built.entries == before


@pytest.mark.usefixtures("way")
def test_after_a_failure_the_next_run_does_the_job(experiment: Builder) -> None:
    built = experiment()
    built.lose()
    assert [name for name in built.files if not name.startswith("ledger.sqlite.accounts/")] == [
        "account.key",
        "ledger.sqlite",
        "log.parquet",
        "quarantine/digest.key",
        "trial.toml",
    ]
    assert built.run().release_id == "trial.once.r1"


def test_its_parameters_can_be_given_to_a_schedule() -> None:
    """Deployments pass them by name and as JSON, so neither may change."""
    parameters = inspect.signature(release.fn).parameters
    assert list(parameters) == ["config_path", "period", "revise", "schedule_timezone"]
    kinds = get_type_hints(release.fn)
    assert all(kinds[name] in (str, bool, str | None) for name in parameters)


# a step


def test_a_step_outside_a_flow_is_its_function(caplog: pytest.LogCaptureFixture) -> None:
    def add(left: int, right: int = 2) -> int:
        return left + right

    caplog.set_level(logging.INFO, "clusterdp")
    assert step(add)(1, right=4) == plain_step(add)(1, right=4) == 5
    assert caplog.messages[0] == "add …"
    assert caplog.messages[1].startswith("add: 0.0")


def test_a_step_says_nothing_of_what_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    plain_step(str)(SENTINEL)
    assert caplog.messages
    assert str(SENTINEL) not in caplog.text


# as a Prefect flow


@pytest.fixture
def database(prefect_harness: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(next(prefect_harness.glob("*.db")))) as connection:
        yield connection


def run_in_prefect(built: Experiment, **parameters: Any) -> tuple[State[ReleaseResult], UUID]:
    state = release(str(built.config), **parameters, return_state=True)
    run_id = state.state_details.flow_run_id
    assert run_id is not None
    return state, run_id


def task_runs(database: sqlite3.Connection, run_id: UUID, last: str) -> list[dict[str, Any]]:
    """The task runs of a flow run in their order, up to that of the step ``last``.

    They arrive one by one, a little later than the run ends.
    """
    database.row_factory = sqlite3.Row
    query = "SELECT * FROM task_run WHERE flow_run_id IN (?, ?) ORDER BY start_time"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = database.execute(query, (str(run_id), run_id.hex)).fetchall()
        have_ended = all(row["state_type"] in ("COMPLETED", "FAILED") for row in found)
        if len(found) > STEPS.index(last) and have_ended:
            return [dict(row) for row in found]
        time.sleep(0.2)
    pytest.fail("the task runs never arrived")


def test_every_step_is_a_task_in_the_order_of_the_way(
    experiment: Builder, database: sqlite3.Connection
) -> None:
    state, run_id = run_in_prefect(experiment(), period="2026-11-20")
    assert state.is_completed()
    found = task_runs(database, run_id, STEPS[-1])
    names = [row["name"].split("-")[0] for row in found]
    at = STEPS.index("fingerprint")
    together = slice(at, at + 2)  # rows are recognised while their units are digested
    assert STEPS[together] == ["fingerprint", "digest_units"]
    names[together] = sorted(names[together], reverse=True)
    assert names == STEPS
    assert {row["state_type"] for row in found} == {"COMPLETED"}
    assert {row["run_count"] for row in found} == {1}
    assert {row["cache_key"] for row in found} == {None}


def test_prefect_knows_the_parameters_and_nothing_of_the_rows(
    experiment: Builder, prefect_harness: Path
) -> None:
    built = experiment()
    _, run_id = run_in_prefect(built, period="2026-11-20")
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(run_id).parameters == {
            "config_path": str(built.config),
            "period": "2026-11-20",
            "revise": False,
            "schedule_timezone": None,
        }


def test_a_refusal_comes_out_of_prefect_as_it_went_in(
    experiment: Builder, prefect_harness: Path
) -> None:
    built = experiment(rows(("a", "fax", "east", SENTINEL)))
    with pytest.raises(InputError, match="no row is left"):
        release(str(built.config))
    with pytest.raises(ConfigError, match="there is no such file"):
        release(str(built.folder / "none.toml"))


def test_a_step_that_fails_is_not_tried_again(
    experiment: Builder, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail(*given: object) -> None:
        calls.append(given)
        raise RuntimeError

    monkeypatch.setattr("flows.raw.privatize._drawn", fail)
    state, run_id = run_in_prefect(experiment())
    assert state.is_failed()
    assert len(calls) == 1
    last = task_runs(database, run_id, "privatize")[-1]
    assert (last["name"].split("-")[0], last["state_type"]) == ("privatize", "FAILED")
    assert last["run_count"] == 1


def test_nothing_of_a_run_is_kept_even_where_results_are_kept_by_default(
    experiment: Builder, prefect_harness: Path, tmp_path: Path
) -> None:
    @flow
    def other() -> int:
        return 1

    storage = tmp_path / "storage"
    keeping = {PREFECT_RESULTS_PERSIST_BY_DEFAULT: True, PREFECT_LOCAL_STORAGE_PATH: str(storage)}
    with temporary_settings(keeping):
        state, _ = run_in_prefect(experiment())
        assert state.is_completed()
        assert not storage.exists()
        other()
        assert len(list(storage.iterdir())) == 1


# several outcomes


def of_three(experiment: Builder, log: pl.DataFrame | None = None, **privacy: Any) -> Experiment:
    outcomes: list[dict[str, Any]] = [
        {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
        {"name": "spend", "column": "spent", "low": 0, "high": 60, "levels": 7},
        {"name": "buyer", "column": "spent", "values": [0, 1], "label": "Bought"},
    ]
    spent = (pl.int_range(pl.len()) % 7 * 10).cast(pl.Float64)
    return experiment(
        a_log().with_columns(spent=spent) if log is None else log,
        outcome=None,
        outcomes=outcomes,
        columns={"outcome": None},
        privacy=privacy,
    )


def test_several_outcomes_are_one_release_and_one_charge(experiment: Builder) -> None:
    built = of_three(experiment)
    result = built.run()
    assert paid(result) == result.manifest.epsilon == 2.0
    parts = [one.epsilon for one in result.manifest.outcomes]
    assert parts == [0.6666666666666666] * 3
    assert list(dict.fromkeys(one.metric for one in result.estimates)) == [
        *("clicks", "spend", "buyer"),
    ]
    units = released(result.path, "units")
    assert units.columns[3:-1] == [
        f"{name}{form}"
        for name in ("clicks", "spend", "buyer")
        for form in ("", "_randomised", "_debiased")
    ]
    means = released(result.path, "means")
    assert means["metric"].unique().sort().to_list() == ["buyer", "clicks", "spend"]
    again = built.run()
    assert (again.status, paid(again)) == ("unchanged", 2.0)
    assert again.estimates == result.estimates


def test_another_value_of_any_of_them_is_another_log(experiment: Builder) -> None:
    of_three(experiment).run()
    other = a_log().with_columns(spent=pl.lit(20.0))
    changed = of_three(experiment, other)
    with pytest.raises(ConflictError):
        changed.run()
    assert paid(changed.run(revise=True)) == 4.0


@pytest.mark.parametrize("mechanism", ["auto", "noisy-histogram", "noisy-horvitz-thompson"])
def test_every_mechanism_releases_several_outcomes(experiment: Builder, mechanism: str) -> None:
    log = a_log(2_000).with_columns(spent=(pl.int_range(pl.len()) % 7 * 10).cast(pl.Float64))
    result = of_three(experiment, log, mechanism=mechanism).run()
    assert {one.metric for one in result.estimates} == {"clicks", "spend", "buyer"}
    if mechanism == "auto":
        planned = [one for one in result.estimates if one.planned_std_error is not None]
        assert {one.metric for one in planned} == {"clicks", "spend", "buyer"}
