"""A database that is started anew, a line that is cut, a full disk, a clock that is set back.

Runs recover by themselves or say what to do; whatever happens, nothing is drawn twice, and no less
is charged than was published.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

import clusterdp
from flows.ledger.account import Account
from flows.ledger.place import ledger_url
from schemas.errors import ClusterdpError, InputError
from tests.conftest import Builder, Experiment, a_log, told
from tests.faults.test_spill import Disk, fill
from tests.support.cut_lines import Line, a_line

if TYPE_CHECKING:  # not imported twice, as it is a plug-in
    from tests.postgresql import PostgreSQL

pytest_plugins = ["tests.postgresql", "tests.faults.test_spill"]

EPSILON = 2.0
LIGHT = {
    "mechanism": "uniform-prior-dp",
    "strata_statistic": "none",
    "epsilon": EPSILON,
    "budget_epsilon": 10.0,
}
STEPS = (
    "flows.release.validate",  # nothing is charged yet
    "flows.raw.charge.set_known_aside",  # while it has the population's turn
    "flows.ledger.account.sweep",  # charged
    "flows.release.privatize",  # drawn
    "flows.ledger.account.complete",  # before it notes that it begins to publish
    "flows.ledger.account.make_public",  # public
)


def interrupted_at(place: str, act: Callable[[], None]) -> Any:
    """Let ``act`` happen once, right after a function has done its work."""
    module, _, name = place.rpartition(".")
    owner = import_module(module)
    original = getattr(owner, name)
    left = [act]

    def then_act(*given: Any, **named: Any) -> Any:
        result = original(*given, **named)
        while left:
            left.pop()()
        return result

    return patch.object(owner, name, then_act)


def assert_the_next_run_finishes(built: Experiment, period: str = "a") -> None:
    result = built.run(period)
    assert result.release_id == f"trial.{period}.r1"
    assert built.run(period).status == "unchanged"
    account = Account.of(built.load())
    assert account.statement(exact=True).spent.epsilon == EPSILON
    assert sorted(path.name for path in built.releases.iterdir()) == [
        "SHA256SUMS",
        "latest.duckdb",
        "series.duckdb",
        f"trial.{period}.r1.duckdb",
    ]
    assert not list(built.folder.rglob(".*"))


def assert_plain(error: ClusterdpError) -> None:
    assert error.exit_code == 2
    assert "\n" not in str(error)
    assert "run again" in str(error)
    assert "c000" not in told(error)


# the server


@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_is_started_anew_in_the_middle_of_a_run(
    own_postgresql: "PostgreSQL", experiment: Builder, step: str
) -> None:
    """Each transaction is short and opens anew, so hardly any run notices."""
    ledger = {"url": own_postgresql.database(), "key_file": "account.key"}
    built = experiment(a_log(160), privacy=LIGHT, ledger=ledger)
    with interrupted_at(step, own_postgresql.restart):
        try:
            assert built.run("a").status == "published"
        except ClusterdpError as error:
            assert_plain(error)
            assert step == "flows.raw.charge.set_known_aside"
    assert_the_next_run_finishes(built)


@pytest.fixture
def line(postgresql: "PostgreSQL") -> Iterator[Line]:
    """A line to the server that can be cut."""
    folder = Path(tempfile.mkdtemp(prefix="clusterdp-line-"))  # a socket's path has 107 bytes
    try:
        with a_line(postgresql.socket / ".s.PGSQL.5432", folder) as found:
            yield found
    finally:
        shutil.rmtree(folder)


def over(line: Line, server: "PostgreSQL", more: str = "") -> dict[str, str]:
    """The section of a ledger that is reached by a line."""
    url = server.database().replace(str(server.socket), str(line.folder))
    return {"url": f"{url}{more}", "key_file": "account.key"}


@pytest.mark.parametrize("step", STEPS)
def test_a_line_that_is_cut_in_the_middle_of_a_run(
    postgresql: "PostgreSQL", line: Line, experiment: Builder, step: str
) -> None:
    built = experiment(a_log(160), privacy=LIGHT, ledger=over(line, postgresql))
    was_public = step.endswith("make_public")
    with interrupted_at(step, line.cut):
        if was_public:  # what has its name is published, whether or not that can be noted
            result = built.run("a")
            assert any("is public, which the next run notes" in one for one in result.warnings)
        else:
            with pytest.raises(ClusterdpError) as failure:
                built.run("a")
            assert_plain(failure.value)
    public = list(built.releases.glob("*.r1.duckdb"))
    assert len(public) == was_public
    with pytest.raises(InputError) as failure:  # still cut
        clusterdp.status(built.config)
    assert_plain(failure.value)
    with pytest.raises(InputError) as failure:
        built.run("b")
    assert_plain(failure.value)
    line.mend()
    assert_the_next_run_finishes(built)


def test_a_server_that_does_not_answer_is_not_waited_for_without_end(
    postgresql: "PostgreSQL", line: Line, experiment: Builder
) -> None:
    ledger = over(line, postgresql, "&connect_timeout=2")
    built = experiment(a_log(160), privacy=LIGHT, ledger=ledger)
    line.fall_silent()
    with pytest.raises(InputError) as failure:
        built.run("a")
    assert_plain(failure.value)
    line.mend()
    assert_the_next_run_finishes(built)


def test_a_line_that_is_dead_is_noticed_within_minutes(
    postgresql: "PostgreSQL", tmp_path: Path
) -> None:
    """Of TCP: without these a run would wait for a quarter of an hour, or for ever."""
    from flows.ledger.database import Ledger  # noqa: PLC0415 - beside its test

    url = ledger_url(postgresql.database(), tmp_path)
    with Ledger(url).engine.connect() as connection:
        given = connection.connection.driver_connection.info.get_parameters()  # type: ignore[union-attr] # psycopg's
    assert {name: given[name] for name in ("keepalives_idle", "tcp_user_timeout")} == {
        "keepalives_idle": "30",
        "tcp_user_timeout": "60000",
    }


# the disk


@pytest.mark.parametrize("full", ["releases", "ledger"])
def test_a_disk_that_is_full_ends_a_run_plainly_and_the_next_one_finishes(
    experiment: Builder, disk: Disk, full: str
) -> None:
    place = disk("64m")
    sections = {"publish": {"directory": str(place / "releases")}}
    if full == "ledger":
        sections = {"ledger": {"url": f"sqlite:///{place}/kept/ledger.sqlite"}}
    built = experiment(a_log(160), privacy=LIGHT, **sections)
    filler = fill(place, 40_000)
    with pytest.raises(ClusterdpError) as failure:
        built.run("a")
    assert failure.value.exit_code == 2
    assert str(place) in str(failure.value)
    assert "\n" not in str(failure.value)
    if full == "releases":
        assert "cannot write here (No space left on device); nothing was published" in str(
            failure.value
        )
    filler.unlink()
    assert built.run("a").status == "published"
    assert Account.of(built.load()).statement(exact=True).spent.epsilon == EPSILON
    assert not list(place.rglob(".*"))


def test_a_backup_on_a_full_disk_is_none(experiment: Builder, disk: Disk) -> None:
    built, place = experiment(a_log(160), privacy=LIGHT), disk("1m")
    built.run("a")
    filler = fill(place, 20_000)
    with pytest.raises(InputError, match=r"no backup was made.*make room"):
        clusterdp.backup(built.config, output=place / "backup")
    assert list(place.iterdir()) == [filler]
    filler.unlink()
    clusterdp.backup(built.config, output=place / "backup")


def test_a_ledger_is_not_put_back_by_half_on_a_full_disk(
    experiment: Builder, disk: Disk, tmp_path: Path
) -> None:
    place = disk("1m")
    ledger = {"url": f"sqlite:///{place}/kept/ledger.sqlite"}
    built = experiment(a_log(160), privacy=LIGHT, ledger=ledger)
    built.run("a")
    clusterdp.backup(built.config, output=tmp_path / "backup")
    shutil.rmtree(place / "kept")
    filler = fill(place, 30_000)
    with pytest.raises(ClusterdpError) as failure:
        clusterdp.restore(tmp_path / "backup", built.config, complete=True)
    assert failure.value.exit_code == 2
    filler.unlink()
    assert Account.of(built.load()).statement().entries == ()
    clusterdp.restore(tmp_path / "backup", built.config, complete=True)
    assert Account.of(built.load()).statement(exact=True).spent.epsilon == EPSILON


# the clock


def test_a_clock_that_is_set_back_draws_nothing_twice(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [f"2026-11-{day}" for day in range(18, 23)]
    built = experiment(
        {f"{day}.parquet": a_log(160) for day in days},
        source={"path": "{period}.parquet"},
        privacy=LIGHT,
        schedule={"since": days[0]},
    )

    def at(day: int) -> None:
        now = datetime(2026, 11, day, 3, tzinfo=UTC)
        monkeypatch.setattr("flows.runtime.clock.now", lambda: now)

    def released() -> list[str]:
        return [str(one.period) for one in clusterdp.release_due(built.config).releases]

    def states() -> dict[str, str]:
        (one,) = clusterdp.status(built.config).experiments
        return {period.period: str(period.state) for period in one.periods}

    at(21)
    assert released() == days[:3]
    before = {path.name: path.read_bytes() for path in built.releases.glob("*.r1.duckdb")}
    at(19)
    assert released() == []
    assert states() == dict.fromkeys(days[:3], "published") | {}
    at(20)
    assert released() == []
    assert {path.name: path.read_bytes() for path in built.releases.glob("*.r1.duckdb")} == before
    at(23)
    assert released() == days[3:]
    assert set(states().values()) >= {"published"}
    assert Account.of(built.load()).statement(exact=True).spent.epsilon == EPSILON * len(days)
