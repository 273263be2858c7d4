"""Bad input ends in a plain error and exit code 2, and nothing is written; odd input does not.

A dry run is the command line's; a release is the flow as a plain function, since the command
checks the configuration before it starts Prefect and leaves the log to the flow.
"""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.cli.main import run
from schemas.errors import ClusterdpError
from tests.conftest import (
    EXACT,
    SENTINEL,
    Builder,
    Content,
    Experiment,
    a_log,
    build_experiment,
    rows,
    told,
)

OWN = {"epsilon": None, "resampling_probability": 0.8, "truncation_threshold": 0.02}
PARAMETERS = OWN | {"noise_scale": 10.0}

SECRETS = (str(SENTINEL), "PRIVATEUNIT")


@dataclass(frozen=True)
class Bad:
    """An input that is refused, and what the refusal says."""

    says: str
    log: Content | None = None
    file: str = "log.parquet"
    period: str | None = None
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)

    def build(self, experiment: Builder) -> Experiment:
        """Put it on disk."""
        return experiment(self.log, self.file, **self.sections)

    def arguments(self, built: Experiment) -> list[str]:
        """The words after the command."""
        return [str(built.config), *([] if self.period is None else ["--period", self.period])]


def configured(says: str, **sections: dict[str, Any]) -> Bad:
    return Bad(says, sections=sections)


def log_of(*lines: tuple[Any, Any, Any, Any]) -> pl.DataFrame:
    """A log whose every outcome is private."""
    return rows(*lines).with_columns(clicks=pl.lit(SENTINEL))


CONFIGURATIONS = {
    "unknown key": configured("privacy.eps: unknown key", privacy={"eps": 1.0}),
    "wrong type": configured("privacy.epsilon: ", privacy={"epsilon": "two"}),
    "K = 1": configured("outcome.values: the grid has 1 point", outcome={"values": [1]}),
    "γ > 1/K": configured(
        "privacy.truncation_threshold: 0.26 is more than 1/K = 1/4",
        privacy=PARAMETERS | {"truncation_threshold": 0.26},
    ),
    "γ = 0": configured(
        "privacy.truncation_threshold: 0.0 is not greater than 0",
        privacy=PARAMETERS | {"truncation_threshold": 0.0},
    ),
    "γ < 0": configured(
        "privacy.truncation_threshold: -0.1 is not greater than 0",
        privacy=PARAMETERS | {"truncation_threshold": -0.1},
    ),
    "λ = 0": configured(
        "privacy.resampling_probability: 0.0 is not strictly between 0 and 1",
        privacy=PARAMETERS | {"resampling_probability": 0.0},
    ),
    "λ = 1": configured(
        "privacy.resampling_probability: 1.0 is not strictly between 0 and 1",
        privacy=PARAMETERS | {"resampling_probability": 1.0},
    ),
    "λ > 1": configured(
        "privacy.resampling_probability: 1.5 is not strictly between 0 and 1",
        privacy=PARAMETERS | {"resampling_probability": 1.5},
    ),
    "λ < 0": configured(
        "privacy.resampling_probability: -0.5 is not strictly between 0 and 1",
        privacy=PARAMETERS | {"resampling_probability": -0.5},
    ),
    "ε = 0": configured("privacy.epsilon: 0.0 is not greater than 0", privacy={"epsilon": 0.0}),
    "ε < 0": configured("privacy.epsilon: -1.0 is not greater than 0", privacy={"epsilon": -1.0}),
    "period": Bad("--period: 'a/b' must begin with a letter or digit", period="a/b"),
    "empty period": Bad("--period: '' must begin with a letter or digit", period=""),
    "no period": configured("--period: missing", source={"path": "{period}.csv"}),
}

LOGS = {
    "missing file": configured("no file matches", source={"path": "nothing.csv"}),
    "missing period": Bad(
        "no file matches", period="2026-11-20", sections={"source": {"path": "{period}/*.csv"}}
    ),
    "no Parquet": Bad("log.parquet: cannot be read as Parquet", log=f"{SENTINEL}\n" * 99),
    "half a CSV": Bad(
        "log.csv: cannot be read as CSV: row 3 does not parse (the header is row 1)",
        log=f"customer,variant,region,clicks\na,none,east,1\nPRIVATEUNIT,none,east,{SENTINEL},1\n",
        file="log.csv",
    ),
    "half a JSON": Bad(
        "log.jsonl: cannot be read as JSON Lines: line 2 does not parse",
        log=f'{{"customer": "a"}}\n{{"customer": "PRIVATEUNIT", "clicks": {SENTINEL}',
        file="log.jsonl",
    ),
    "missing column": Bad("there is no column 'clicks'", log=a_log(8).drop("clicks")),
    "missing attribute": configured(
        "there is no column 'country' (columns.attributes)", columns={"attributes": ["country"]}
    ),
    "missing household": configured(
        "there is no column 'home' (columns.assigned_by)", columns={"assigned_by": "home"}
    ),
    "the outcome as an attribute": configured(
        "columns.attributes: 'clicks' is columns.outcome already",
        columns={"attributes": ["clicks"]},
    ),
    "the outcome as a household": configured(
        "columns.assigned_by: 'clicks' is columns.outcome already",
        columns={"assigned_by": "clicks"},
    ),
    "an attribute of lists": Bad(
        "column 'x' (columns.attributes) is List",
        log=a_log(8).with_columns(x=pl.lit([SENTINEL])),
        sections={"columns": {"attributes": ["x"]}},
    ),
    "a household of float": Bad(
        "column 'home' (assigned_by) is Float64",
        log=a_log(8).with_columns(home=pl.lit(SENTINEL)),
        sections={"columns": {"assigned_by": "home"}},
    ),
    "households of two arms alone": Bad(
        "no row is left: all 8 were set aside (assigned_arms 8)",
        log=a_log(8).with_columns(home=pl.lit("h")),
        sections={"columns": {"assigned_by": "home"}},
    ),
    "units of float": Bad(
        "column 'customer' (unit) is Float64", log=a_log(8).with_columns(customer=pl.lit(SENTINEL))
    ),
    "absent treatment": configured(
        "arms.treatments: the declared arm 'fax' has no units",
        arms={"treatments": ["mail", "fax"]},
    ),
    "absent control": configured(
        "arms.control: the declared arm 'nobody' has no units", arms={"control": "nobody"}
    ),
    "empty log": Bad("the log is empty", log=a_log(8).clear()),
    "empty file": Bad("log.csv: there is no column 'customer'", log="", file="log.csv"),
    "all of other arms": Bad(
        "no row is left: all 2 were set aside (arm_not_declared 2)",
        log=log_of(("PRIVATEUNIT", "fax", "east", 1.0), ("b", "fax", "east", 1.0)),
    ),
    "all twice": Bad(
        "no row is left: all 4 were set aside (unit_twice 4)",
        log=log_of(*[("a", "none", "e", 1.0)] * 2, *[("b", "mail", "e", 1.0)] * 2),
    ),
}

BAD = CONFIGURATIONS | LOGS


def assert_plain(told_to_people: str, bad: Bad) -> None:
    assert bad.says in told_to_people
    assert told_to_people.startswith("clusterdp: ")
    assert len(told_to_people.splitlines()) == 1
    for secret in SECRETS:
        assert secret not in told_to_people


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_dry_run_refuses_it_plainly(
    experiment: Builder, capsys: pytest.CaptureFixture[str], bad: Bad
) -> None:
    built = bad.build(experiment)
    before = built.entries
    assert run(["check", *bad.arguments(built)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert_plain(printed.err, bad)
    assert built.entries == before


@pytest.mark.parametrize("bad", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_the_command_refuses_a_bad_configuration_before_prefect_is_started(
    experiment: Builder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    bad: Bad,
) -> None:
    monkeypatch.setitem(sys.modules, "flows.release", None)  # importing it would fail
    built = bad.build(experiment)
    before = built.entries
    assert run(["release", *bad.arguments(built)]) == 2
    assert_plain(capsys.readouterr().err, bad)
    assert built.entries == before


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_the_flow_refuses_it_and_writes_no_file(experiment: Builder, bad: Bad) -> None:
    built = bad.build(experiment)
    before = built.files
    error = refused(lambda: built.run(bad.period))
    assert error.exit_code == 2
    assert_plain(f"clusterdp: {error}", bad)
    for secret in SECRETS:
        assert secret not in told(error)
    assert built.files == before


def refused(act: Callable[[], object]) -> ClusterdpError:
    with pytest.raises(ClusterdpError) as caught:
        act()
    return caught.value


def test_a_refused_release_leaves_not_even_an_empty_folder(experiment: Builder) -> None:
    built = LOGS["empty log"].build(experiment)
    before = built.entries
    refused(built.run)
    assert built.entries == before


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sound experiment with a release."""
    built = build_experiment(tmp_path_factory.mktemp("earlier") / "experiment")
    built.run("2026-11-19")
    return built.folder


@pytest.mark.parametrize("bad", LOGS.values(), ids=LOGS.keys())
def test_a_refusal_leaves_earlier_releases_as_they_are(
    experiment: Builder, earlier: Path, tmp_path: Path, bad: Bad
) -> None:
    shutil.copytree(earlier, tmp_path / "experiment")
    built = bad.build(experiment)  # over the sound one
    assert len(list(built.releases.glob("trial.2026-11-19.r1*"))) > 0
    before = {name: (built.folder / name).read_bytes() for name in built.files}
    refused(lambda: built.run(bad.period or "2026-11-21"))
    assert {name: (built.folder / name).read_bytes() for name in built.files} == before


def test_what_is_refused_here_is_released_where_it_is_sound(experiment: Builder) -> None:
    """Else the refusals above could have any reason."""
    for privacy in ({}, PARAMETERS):
        assert run(["check", str(experiment(privacy=privacy).config)]) == 0
    assert experiment().run("2026-11-20").status == "published"


# odd, but not bad: a dry run and a release take them, and count alike

A_LOG = a_log(80)

ODD = {
    "an arm that is not declared": (a_log(120, arms=("none", "mail", "fax")), 80, 40),
    "a cluster with one unit": (pl.concat([A_LOG, rows(("x", "mail", "north", 1.0))]), 81, 0),
    "a cluster without one arm": (
        pl.concat([A_LOG, rows(*[(f"x{i}", "mail", "north", 1.0) for i in range(9)])]),
        89,
        0,
    ),
    "all outcomes missing": (A_LOG.with_columns(clicks=pl.lit(None, pl.Float64)), 80, 0),
    "all outcomes equal": (A_LOG.with_columns(clicks=pl.lit(2.0)), 80, 0),
    "all outcomes unreadable": (A_LOG.with_columns(clicks=pl.lit("none")), 80, 0),
    "all outcomes out of range": (A_LOG.with_columns(clicks=pl.lit(1e300)), 80, 0),
    "a unit twice": (pl.concat([A_LOG, A_LOG[:1]]), 79, 2),
    "a unit in two arms": (pl.concat([A_LOG, rows(("c00000", "mail", "east", 1.0))]), 79, 2),
}


@pytest.mark.parametrize("privacy", [{}, EXACT], ids=["noisy", "exact"])
@pytest.mark.parametrize(("log", "kept", "aside"), ODD.values(), ids=ODD.keys())
def test_odd_input_is_released(
    experiment: Builder, log: pl.DataFrame, kept: int, aside: int, privacy: dict[str, Any]
) -> None:
    """What the estimates then are is checked in tests/flows/released/estimates/test_release.py."""
    built = experiment(log, privacy=privacy)
    dry, result = built.check(), built.run()
    assert dry.roster == result.roster
    assert (result.roster.n_units, result.roster.quarantined) == (kept, aside)
    assert result.estimates[0].estimate is not None
    assert result.estimates[0].n_units == min(kept, 80)
