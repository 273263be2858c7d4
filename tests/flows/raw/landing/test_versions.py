"""Tables in versions: a rerun reads the one that was released, whatever has come since."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest

from flows.ledger.account import Account
from flows.operate.status import status
from schemas.errors import BudgetError, InputError
from tests.conftest import a_log, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import Builder, Experiment
    from tests.support.lakes import Lake

pytest_plugins = ["tests.support.lakes"]

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def late(number: int, n_units: int = 1) -> pl.DataFrame:
    """Rows of others, that come after all that came before."""
    return a_log(n_units).with_columns(customer=pl.format("late{}-{}", pl.lit(number), "customer"))


def versions(built: Experiment) -> list[Mapping[str, str] | None]:
    """Those that stand in the ledger, of charges that count."""
    return [one.versions for one in Account.of(built.load()).entries() if one.counts]


def reason(built: Experiment) -> str | None:
    """What ``status`` says of the table of the one period that was released."""
    ((period,),) = (one.periods for one in status(built.config).experiments)
    told_of = (period.reason or "").split("; ")
    return next((part for part in told_of if "its table" in part), None)


def test_late_rows_make_no_conflict(experiment: Builder, lake: Lake) -> None:
    lake.add("clicks", a_log(40))
    built = experiment(source=lake.source("clicks"))
    first = built.run()
    (pinned,) = versions(built)
    assert pinned is not None
    assert list(pinned) == ["source.table"]
    assert reason(built) is None
    ends = []
    for number in range(11):  # beyond the ten versions that Delta sums up in a checkpoint
        lake.add("clicks", late(number))
        ends.append(built.run())
    assert [one.status for one in ends] == ["unchanged"] * 11
    assert {one.roster.n_units for one in ends} == {40}
    assert versions(built) == [pinned]
    assert reason(built) == "its table has changed since"
    revised = built.run(revise=True)
    assert (revised.status, revised.roster.n_units) == ("published", 51)
    assert reason(built) is None
    lake.add("clicks", late(11))
    assert built.run().release_id == revised.release_id != first.release_id
    assert len({str(one) for one in versions(built)}) == 2


def test_events_have_a_version_of_their_own(experiment: Builder, lake: Lake) -> None:
    seen = a_log(40).drop("clicks").with_columns(ts=pl.lit(AT))
    events = a_log(40).select("customer", "clicks", ts=pl.lit(AT))
    lake.add("seen", seen)
    lake.add("done", events.head(0))  # nothing has happened yet
    source = lake.source("seen", grain="event", outcomes_table="done")
    built = experiment(source=source, columns={"time": "ts"}, outcome={"aggregate": "sum"})
    assert built.run().status == "published"
    lake.add("done", events)
    assert built.run().status == "unchanged"
    assert reason(built) == "its table has changed since"
    (pinned,) = versions(built)
    assert set(pinned or {}) == {"source.table", "source.outcomes_table"}


def test_a_version_that_has_expired_is_told(experiment: Builder, lake: Lake) -> None:
    lake.add("clicks", a_log(40))
    built = experiment(source=lake.source("clicks"))
    built.run()
    lake.add("clicks", late(0))
    lake.expire("clicks")
    with pytest.raises(InputError, match="version that this period was released from") as caught:
        built.run()
    assert caught.value.exit_code == 2
    assert "--revise" in str(caught.value)
    assert caught.value.__context__ is None
    assert not any(word in told(caught.value) for word in ("Object at", "Snapshot not found"))
    assert len(versions(built)) == 1
    assert built.run(revise=True).roster.n_units == 41


def test_a_column_that_came_later_is_told(experiment: Builder, lake: Lake) -> None:
    lake.add("clicks", a_log(40))
    experiment(source=lake.source("clicks")).run()
    lake.add("clicks", late(0).with_columns(device=pl.lit("phone")))
    built = experiment(source=lake.source("clicks"), columns={"attributes": ["device"]})
    with pytest.raises(InputError, match=r"the version .* has no column 'device'.*, by --revise"):
        built.run()
    assert built.run(revise=True).roster.n_units == 41


def test_only_what_was_charged_is_pinned(
    experiment: Builder, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.add("clicks", a_log(40))
    built = experiment(source=lake.source("clicks"), privacy={"budget_epsilon": 1.0})
    with pytest.raises(BudgetError):
        built.run()
    lake.add("clicks", late(0))
    built = experiment(source=lake.source("clicks"))
    with monkeypatch.context() as broken:
        broken.setattr("flows.release.privatize", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            built.run()  # charged, and given back
    assert versions(built) == []
    lake.add("clicks", late(1))
    assert built.run().roster.n_units == 42


def test_another_table_is_read_as_it_is(experiment: Builder, lake: Lake) -> None:
    """Versions are of one table: a copy of it is known by its rows, as files are."""
    lake.add("clicks", a_log(40))
    lake.add("copy", a_log(40))
    assert experiment(source=lake.source("clicks")).run().status == "published"
    built = experiment(source=lake.source("copy"))
    assert built.run().status == "unchanged"
    assert reason(built) == "its table has changed since"


def test_a_table_that_cannot_be_seen_is_told(experiment: Builder, lake: Lake) -> None:
    lake.add("clicks", a_log(40))
    experiment(source=lake.source("clicks")).run()
    told_of = reason(experiment(source=lake.source("none")))
    assert told_of == "whether its table has changed since cannot be seen from here"
    assert reason(experiment(a_log(40))) is None  # of files nobody knows
