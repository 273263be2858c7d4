"""The commands on effect models: what people and programs read, and exit codes."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli.main import app, run
from tests.conftest import write_content
from tests.effect_logs import AtHome, Campaign, campaign, people

__all__ = ["campaign"]  # a fixture

pytestmark = pytest.mark.release

Shown = pytest.CaptureFixture[str]


def document(capfd: Shown, *arguments: object) -> dict[str, Any]:
    """The one JSON document that a command printed, and nothing besides."""
    assert run([*map(str, arguments), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert isinstance(found, dict)
    return found


def text(capfd: Shown, *arguments: object) -> str:
    assert run(list(map(str, arguments))) == 0
    return capfd.readouterr().out


def error(capfd: Shown, code: int, *arguments: object) -> str:
    assert run(list(map(str, arguments))) == code
    shown = capfd.readouterr()
    assert shown.out == ""
    return shown.err


def test_the_commands_take_what_the_contract_says() -> None:
    for name, wanted in {
        "cate": ["CONFIG", "--period", "--revise", "--prefect", "--json"],
        "cate-predict": ["MODEL", "FILE", "--output", "-o", "--json"],
    }.items():
        told = CliRunner().invoke(app, [name, "--help"])
        assert told.exit_code == 0
        assert all(word in told.stdout for word in wanted)


def test_people_read_what_it_found(campaign: Campaign, capfd: Shown) -> None:
    built = campaign(people(6_000), privacy="budget_epsilon = 10\nbudget_delta = 1e-5")
    shown = text(capfd, "cate", built.config)
    for words in (
        "mail+cate.once.r1 is published.",
        "each unit's whole row: outcome, arm, features",
        "another row of one unit would change the probability of this file by 54.6 times",
        "epsilon 4 of 10",
        "6,000",
        "degree 2: curves",
        "declared, the same for everybody",
        "effect of 'mail' against 'none'",
        "everybody",
        "under 40",
        "variance from privacy",
        "highest fifth",
        "With epsilon 5 all noise would be",
    ):
        assert words in shown
    again = text(capfd, "cate", built.config)
    assert "unchanged, nothing was drawn or charged" in again
    assert again.partition("\n\n")[2] == shown.partition("\n\n")[2]


def test_people_read_why_there_is_none(campaign: Campaign, capfd: Shown) -> None:
    small = text(capfd, "cate", campaign(people(300), epsilon=1.0).config)
    assert "degree 1: straight lines" in small
    assert "too few rows" in small
    learnt = text(capfd, "cate", campaign(propensity="learn = true", name="learnt").config)
    assert "no interval: the propensity was learnt" in learnt
    assert "95 % interval" not in learnt
    by_outcome = campaign(privacy='neighbours = "outcome"', name="outcome").config
    shown = text(capfd, "cate", by_outcome)
    assert "each unit's outcome; arms and features are not" in shown
    assert "another outcome of one unit" in shown


def test_programs_read_one_document(campaign: Campaign, capfd: Shown) -> None:
    built = campaign(people(6_000))
    found = document(capfd, "cate", built.config)
    path = Path(found["model_path"])
    assert path.is_absolute()
    assert set(found["ate"]) >= {"estimate", "std_error", "ci_lower", "ci_upper"}
    assert {"name", "level", "estimate", "std_error", "ci_lower", "ci_upper", "refused"} <= set(
        found["subgroups"][0]
    )
    assert set(found["importance"][0]) == {"feature", "importance"}
    assert document(capfd, "cate", built.config)["status"] == "unchanged"
    revised = document(capfd, "cate", built.config, "--revise")
    assert revised["model_id"] == "mail+cate.once.r2"

    table = built.folder / "people.csv"
    write_content(table, people(50).select("id", "age", "sex"))
    out = built.folder / "effects.parquet"
    done = document(capfd, "cate-predict", path, table, "-o", out)
    assert done == {"path": str(out), "n_rows": 50}
    assert pl.read_parquet(out).columns == ["id", "age", "sex", "effect", "noise_std_error"]
    other = built.folder / "effects.csv"
    assert "50 rows with their predicted effects" in text(
        capfd, "cate-predict", path, table, "-o", other
    )

    ledger = document(capfd, "ledger", built.config)
    assert ledger["experiment"] == "mail+cate"
    assert [entry["kind"] for entry in ledger["entries"]] == ["cate", "cate"]
    assert ledger["spent_epsilon"] == 8.0
    assert "mail+cate.once.r2" in text(capfd, "ledger", built.config)


def test_exit_codes(campaign: Campaign, capfd: Shown) -> None:
    built = campaign(privacy="budget_epsilon = 9")
    said = error(capfd, 2, "cate", built.folder / "none.toml")
    assert said.startswith("clusterdp: ")
    assert "source.path" in error(capfd, 2, "cate", edited(built, "log.parquet", "no.parquet"))
    assert "--period" in error(capfd, 2, "cate", edited(built, "no.parquet", "{period}.parquet"))
    edited(built, "{period}.parquet", "log.parquet")
    run(["cate", str(built.config)])
    capfd.readouterr()
    edited(built, "edges = [40]", "edges = [45]")
    assert "--revise" in error(capfd, 4, "cate", built.config)
    edited(built, "budget_epsilon = 9", "budget_epsilon = 5")
    assert "refused: " in error(capfd, 3, "cate", built.config, "--revise")
    model = next(built.models.iterdir())
    said = error(capfd, 2, "cate-predict", model, built.folder / "no.csv", "-o", "x.csv")
    assert "no.csv" in said


def edited(built: AtHome, found: str, instead: str) -> Path:
    built.edit(found, instead)
    return built.config
