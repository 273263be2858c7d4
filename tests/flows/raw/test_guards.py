"""A broken night is stopped by public facts, before anything is charged, drawn or written."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from flows.operate.due import release_due
from flows.operate.status import status
from flows.raw.ingest import ingest
from flows.raw.validate import validate
from flows.runtime import clock
from schemas.errors import BudgetError, InputError
from tests.conftest import SENTINEL, Builder, Experiment, a_log, rows, write_content
from tests.support.surroundings import Command

REFUSE = {"sample_ratio": "refuse"}


def faulty(n_faulty: int, n_rows: int = 100, outcome: float = SENTINEL) -> pl.DataFrame:
    """A log of so many rows, of which some name an arm that is not declared."""
    wrong = [(f"x{one}", "fax", "east", outcome) for one in range(n_faulty)]
    return rows(*a_log(n_rows - n_faulty).rows(), *wrong)


def uneven(n_control: int, n_mail: int, first: int = 0) -> pl.DataFrame:
    """A log of arms of these sizes, whose units are counted from ``first`` on."""
    arms = ["none"] * n_control + ["mail"] * n_mail
    return rows(*[(f"u{first + one}", arm, "east", 1.0) for one, arm in enumerate(arms)])


def judged(built: Experiment) -> None:
    config = built.load()
    validate(config.log_facts, ingest(config.log_source, "once"))


def refusal(run: Callable[[], Any]) -> InputError:
    with pytest.raises(InputError) as refused:
        run()
    assert str(SENTINEL) not in str(refused.value)
    return refused.value


# faults


@pytest.mark.parametrize(
    ("n_faulty", "at_most", "refused"),
    [(5, 0.05, False), (6, 0.05, True), (0, 0.0, False), (1, 0.0, True), (60, None, False)],
)
def test_more_faults_than_may_be_stop_a_run(
    experiment: Builder, n_faulty: int, at_most: float | None, *, refused: bool
) -> None:
    built = experiment(faulty(n_faulty), quarantine={"at_most": at_most})
    if not refused:
        judged(built)
        return
    error = refusal(lambda: judged(built))
    assert error.key == "quarantine.at_most"
    assert f"{n_faulty} of 100 rows" in str(error)
    assert f"arm_not_declared {n_faulty}" in str(error)


@pytest.mark.parametrize("outcome", [0.0, 3.0, SENTINEL, float("nan")])
def test_what_is_said_of_faults_hangs_on_no_outcome(experiment: Builder, outcome: float) -> None:
    built = experiment(faulty(9, outcome=outcome), quarantine={"at_most": 0.05})
    assert str(refusal(lambda: judged(built))) == (
        "quarantine.at_most: 9 of 100 rows (9 %) have a fault (arm_not_declared 9), and 5 % may. "
        "No release is made, and nothing was charged. Mend the log, or raise quarantine.at_most "
        "if these faults are as they should be"
    )


def test_of_events_the_share_is_of_exposures(experiment: Builder) -> None:
    exposures = [(f"u{one}", ("none", "mail")[one % 2], "east", "2026-11-01") for one in range(18)]
    lost = [("u0", "none", "east", None), ("u1", "mail", "east", None)]
    names = ["customer", "variant", "region", "at"]
    events = pl.DataFrame({"customer": ["u0"], "at": ["2026-11-02"]})
    built = experiment(
        {
            "log.csv": pl.DataFrame([*exposures, *lost], names, orient="row"),
            "events.csv": events,
        },
        source={"path": "log.csv", "grain": "event", "outcomes_path": "events.csv"},
        columns={"time": "at", "outcome": None},
        outcome={"aggregate": "count"},
        quarantine={"at_most": 0.09},
    )
    assert "2 of 20 rows" in str(refusal(lambda: judged(built)))


@pytest.mark.release
@pytest.mark.parametrize("account", ["unit", "population"])
def test_a_night_with_faults_leaves_nothing_and_costs_nothing(
    experiment: Builder, account: str
) -> None:
    built = experiment(faulty(9), quarantine={"at_most": 0.05}, privacy={"account": account})
    before = built.files
    of_check = refusal(built.check)
    assert str(refusal(built.run)) == str(of_check)
    assert built.files == before
    faulty(5).write_parquet(built.folder / "log.parquet")
    assert built.run().statement.spent.epsilon == 2.0


@pytest.mark.release
def test_who_is_left_out_by_accounts_has_no_fault(experiment: Builder) -> None:
    built = experiment(
        {"a.parquet": a_log(80), "b.parquet": a_log(100)},
        source={"path": "{period}.parquet"},
        privacy={"returning": "set_aside"},
        quarantine={"at_most": 0.0},
    )
    built.run("a")
    assert built.check("b").roster.quarantined_by_rule == {"released_before": 80}
    assert built.run("b").roster.n_units == 20


# arm sizes


@pytest.mark.release
@pytest.mark.parametrize("account", ["unit", "population"])
def test_arm_sizes_that_do_not_fit_stop_a_release_where_it_is_asked_for(
    experiment: Builder, account: str
) -> None:
    built = experiment(uneven(60, 140), arms=REFUSE, privacy={"account": account})
    before = built.files
    of_check = refusal(built.check)
    assert (of_check.key, of_check.exit_code) == ("arms.sample_ratio", 2)
    assert "p = 1.5e-08): the arm sizes (none 60, mail 140)" in str(of_check)
    assert str(refusal(built.run)) == str(of_check)
    assert built.files == before
    uneven(90, 110).write_parquet(built.folder / "log.parquet")
    assert built.run().status == "published"


@pytest.mark.release
def test_a_period_that_was_released_is_not_judged_again_but_to_be_revised(
    experiment: Builder,
) -> None:
    built = experiment(uneven(60, 140))
    built.run()
    text = built.config.read_text()
    built.config.write_text(text.replace("[arms]", '[arms]\nsample_ratio = "refuse"'))
    assert built.run().status == "unchanged"
    assert built.check().warnings
    assert "sample ratio" in str(refusal(lambda: built.run(revise=True)))


@pytest.mark.release
def test_where_some_are_left_out_by_accounts_the_others_are_judged(experiment: Builder) -> None:
    """Who comes back may follow the treatment, and is no fault of the assignment."""
    first, new = uneven(100, 100), uneven(100, 100, 1000)
    back = first.filter(pl.col("variant") == "mail")
    few = uneven(20, 80, 2000)
    built = experiment(
        {
            "a.parquet": first,
            "b.parquet": pl.concat([back, new]),
            "c.parquet": pl.concat([first.filter(pl.col("variant") == "none")[:60], few]),
        },
        source={"path": "{period}.parquet"},
        arms=REFUSE,
        privacy={"returning": "set_aside"},
    )
    built.run("a")
    assert built.check("b").roster.n_units == 200
    assert built.run("b").roster.n_units == 200
    for of in (built.check, built.run):
        assert "(none 20, mail 80)" in str(refusal(lambda of=of: of("c")))  # type: ignore[misc] # read at once
    assert built.check("a").statement.n_releases == 2


@pytest.mark.release
def test_arms_are_judged_before_anything_is_charged(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A negative control: with the guard taken out, the same night is charged."""
    built = experiment(uneven(60, 140), arms=REFUSE)

    def reserve(*_: object, **__: object) -> None:
        raise BudgetError("it was to be charged")

    monkeypatch.setattr("flows.ledger.account.Account.reserve", reserve)
    refusal(built.run)
    monkeypatch.setattr("flows.raw.charge.check_sample_ratio", lambda *_: None)
    with pytest.raises(BudgetError, match="it was to be charged"):
        built.run()


# nights


@pytest.mark.release
def test_a_broken_night_is_failed_with_its_reason_and_stops_no_other(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = ["2026-11-01", "2026-11-02", "2026-11-03"]
    logs = dict(zip(days, (faulty(9), uneven(10, 90), a_log(40)), strict=True))
    built = experiment(
        {f"{day}.csv": log for day, log in logs.items()},
        source={"path": "{period}.csv"},
        arms=REFUSE,
        quarantine={"at_most": 0.05},
        schedule={"since": days[0]},
        privacy={"mechanism": "uniform-prior-dp", "strata_statistic": "none"},
    )
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 11, 4, 6, tzinfo=UTC))
    result = release_due(str(built.config))
    assert [one.status for one in result.releases] == ["failed", "failed", "published"]
    assert result.exit_code == 2
    (found,) = status(built.config).experiments
    states = {one.period: (str(one.state), one.reason or "") for one in found.periods}
    assert states[days[0]][0] == states[days[1]][0] == "failed"
    assert states[days[0]][1].startswith("quarantine.at_most: 9 of 100 rows")
    assert states[days[1]][1].startswith("arms.sample_ratio: sample ratio mismatch")
    assert str(SENTINEL) not in json.dumps(result.as_json())
    write_content(built.folder / f"{days[0]}.csv", a_log(40))
    again = release_due(str(built.config))
    assert [one.status for one in again.releases] == ["published", "failed"]


@pytest.mark.release
def test_the_program_ends_with_2_and_says_what_to_do(command: Command, experiment: Builder) -> None:
    built = experiment(faulty(9), quarantine={"at_most": 0.05})
    for name in ("check", "plan", "release"):
        ended = command(name, built.config)
        assert ended.returncode == 2
        night = "trial once: " if name == "release" else ""
        assert ended.stderr.startswith(f"clusterdp: {night}quarantine.at_most: 9 of 100 rows (9 %)")
        assert "Mend the log" in ended.stderr
