"""One person under several spellings of an id: recognised over nights, charged twice in one."""

import unicodedata
from collections.abc import Callable, Sequence

import polars as pl
import pytest

from flows.raw.charge import RELEASED_BEFORE
from schemas.errors import BudgetError
from tests.conftest import Builder, Experiment, released

Spelling = Callable[[int], str | int]

OTHERWISE: dict[str, tuple[Spelling, Spelling]] = {
    "whole number, then with a point": (str, lambda n: f"{n}.0"),
    "number column, then text with a point": (int, lambda n: f"{n}.00"),
    "leading zeros": (str, lambda n: f"{n:08}"),
    "blanks around it": (str, lambda n: f" {n}\t"),
    "exponent form": (lambda n: f"{n}{'0' * 15}", lambda n: f"{n}e+15"),
    "more than 64 bits": (lambda n: f"{n}{'0' * 30}", lambda n: f"{n}E30"),
    "composed, then decomposed": (
        lambda n: f"José-{n}",
        lambda n: unicodedata.normalize("NFD", f"José-{n}"),
    ),
    "lower case, then capitals": (lambda n: f"straße-{n}", lambda n: f"STRASSE-{n}"),
    "wide digits": (str, lambda n: "".join(chr(ord(d) + 0xFEE0) for d in str(n))),
}
TOGETHER: dict[str, Spelling] = {
    "with a point": lambda n: f"{n}.0",
    "with zeros": lambda n: f"0{n}",
    "with a blank": lambda n: f" {n}",
    "as another kind of digit": lambda n: "".join(chr(ord(d) + 0x630) for d in str(n)),
}


def log_of(ids: Sequence[str | int]) -> pl.DataFrame:
    """A log of people in two arms, of one region."""
    n = len(ids)
    return pl.DataFrame(
        {
            "customer": ids,
            "variant": ["none", "mail"] * (n // 2),
            "region": ["east"] * n,
            "clicks": [0.0, 1.0, 2.0, 1.0] * (n // 4),
        }
    )


def nights(experiment: Builder, logs: dict[str, pl.DataFrame], **privacy: object) -> Experiment:
    files = {f"{name}.parquet": log for name, log in logs.items()}
    asked = {"epsilon": 0.5, "budget_epsilon": 0.5, **privacy}
    return experiment(files, source={"path": "{period}.parquet"}, privacy=asked)


@pytest.mark.parametrize("name", OTHERWISE)
def test_people_who_come_back_under_another_spelling_are_recognised(
    experiment: Builder, name: str
) -> None:
    first, then = OTHERWISE[name]
    again = [str(then(n)) for n in range(101, 121)]
    new = [f"new-{n}" for n in range(20)]
    logs = {"n1": log_of([first(n) for n in range(101, 121)]), "n2": log_of(new + again)}
    charged = nights(experiment, logs)
    charged.run("n1")
    with pytest.raises(BudgetError, match="which 20 of its 40 units cannot pay"):
        charged.run("n2")
    second = nights(experiment, logs, returning="set_aside").run("n2")
    assert second.roster.n_returning == 20
    assert second.roster.quarantined_by_rule == {RELEASED_BEFORE: 20}
    assert sorted(released(second.path, "units")["unit_id"].to_list()) == sorted(new)
    assert second.roster.n_together == 0


def test_without_accounts_by_unit_everybody_pays_for_the_most_rows_of_one(
    experiment: Builder,
) -> None:
    logs = {"n1": log_of([*map(str, range(101, 141)), "0101", "0102", "0103", "103.0"])}
    built = nights(experiment, logs, account="population", budget_epsilon=1.5)
    result = built.run("n1")
    assert (result.roster.n_together, result.statement.spent.epsilon) == (7, 1.5)
    short = nights(experiment, logs, account="population", budget_epsilon=1.4, epsilon=0.49)
    with pytest.raises(BudgetError):
        short.run("n1", revise=True)
    exact = {"path": "{period}.parquet", "ids": "exact"}
    assert experiment(source=exact).check("n1").roster.n_together == 0


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_of_one_person_in_one_night_are_each_charged(experiment: Builder, name: str) -> None:
    people = [str(n) for n in range(101, 141)]
    twice = [str(TOGETHER[name](n)) for n in range(101, 121)]
    logs = {"n1": log_of(people + twice)}
    short = nights(experiment, logs, returning="set_aside")
    for refused in (short.check, short.run):
        with pytest.raises(BudgetError, match=r"epsilon (1|0\.5 \(1 for 2 rows)"):
            refused("n1")
    built = nights(experiment, logs, budget_epsilon=1.0, returning="set_aside")
    told = "40 row(s) have the id of another row"
    checked = built.check("n1")
    assert checked.as_json()["n_together"] == 40
    assert any(told in warning for warning in checked.warnings)
    result = built.run("n1")
    assert any(told in warning for warning in result.warnings)
    assert sorted(released(result.path, "units")["unit_id"].to_list()) == sorted(people + twice)
    assert result.roster.quarantined == 0
    assert result.statement.spent.epsilon == 1.0
    (row,) = released(result.path, "release").to_dicts()
    assert (row["epsilon"], row["rows_each"]) == (0.5, 2)  # so a ledger made anew knows it
    (entry,) = result.statement.entries
    assert (entry.cost.epsilon, entry.most.epsilon) == (1.0, 1.0)
    assert built.run("n1").status == "unchanged"
