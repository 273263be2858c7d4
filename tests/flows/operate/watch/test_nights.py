"""Nights with faults: status, notices, metrics and files agree at every step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.conftest import a_log
from tests.flows.operate.watch.nights import Act, Nights, day, through
from tests.flows.operate.watch.servers import web_server
from tests.support.surroundings import Command

if TYPE_CHECKING:
    from tests.postgresql import PostgreSQL

pytest_plugins = ["tests.postgresql"]
pytestmark = pytest.mark.process

BROKEN = "nothing,of\nthe,kind\n"
TWICE = a_log(160).vstack(a_log(160).with_columns(customer=pl.lit("twice")))
SKEWED = a_log(300).with_columns(
    variant=pl.when(pl.int_range(pl.len()) < 250).then(pl.lit("mail")).otherwise(pl.lit("none"))
)
EVENING = "21:15"  # before the night of the period
NIGHT, MORNING, AFTERNOON = "03:15", "09:15", "15:15"


@pytest.fixture
def nights(
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Nights]:
    """Three experiments; the ledger of the third is in PostgreSQL where there is a server."""
    ledger = {}
    with suppress(pytest.skip.Exception):
        postgresql: PostgreSQL = request.getfixturevalue("postgresql")
        ledger = {"url": postgresql.database(), "key_file": "account.key"}
    with web_server() as web:
        found = Nights(tmp_path, web, command, monkeypatch)
        found.add("autumn")
        found.add("spring", privacy={"budget_epsilon": 4.0})
        found.add("winter", ledger=ledger)
        yield found


def logs(nights: Nights, n_days: int, *but: tuple[str, int]) -> None:
    """Sound logs of all days, but for these."""
    for name in nights.places:
        for number in range(n_days):
            if (name, number) not in but:
                nights.bring(name, number)


def brings(name: str, number: int, content: pl.DataFrame | str | None = None) -> Act:
    return partial(Nights.bring, name=name, number=number, content=content)


def certain(nights: Nights) -> dict[str, int]:
    """What was told but for ``one_value``: of so few people that hangs on their noise."""
    return {event: n for event, n in nights.n_told.items() if event != "one_value"}


def test_two_nights(nights: Nights) -> None:
    """The first has a late file, a broken one and, with odd arms and rows set aside, a run that is
    killed; the second is refused to one experiment."""
    logs(nights, 2, ("autumn", 0), ("spring", 0), ("winter", 0))
    nights.bring("spring", 0, BROKEN)
    nights.bring("winter", 0, SKEWED.vstack(TWICE))
    nights.edit("spring", "budget_epsilon = 4.0", "budget_epsilon = 2.0")
    plan: Mapping[tuple[int, str], Sequence[Act]] = {
        (0, NIGHT): [partial(Nights.killed, name="winter")],
        (0, AFTERNOON): [brings("autumn", 0), brings("spring", 0)],
    }
    through(nights, plan, 2)
    assert certain(nights) == {
        "late": 1, "failed": 1, "refused": 1, "sample_ratio": 1, "set_aside": 1,
    }  # fmt: skip
    assert nights.n_looks == 9


@pytest.mark.soak
def test_seven_nights(nights: Nights) -> None:
    """Late, missing and broken files, a budget that is spent and raised, runs killed with their
    draft and without, rows set aside, odd arms; a ledger in PostgreSQL."""
    odd = [("autumn", 1), ("autumn", 4), ("spring", 2), ("winter", 1), ("winter", 3), ("winter", 4)]
    logs(nights, 7, *odd)
    nights.bring("spring", 2, BROKEN)
    nights.bring("winter", 1, TWICE)
    nights.bring("winter", 3, SKEWED)
    nights.bring("winter", 4, SKEWED.vstack(TWICE))
    plan: Mapping[tuple[int, str], Sequence[Act]] = {
        (0, NIGHT): [partial(Nights.killed, name="winter")],
        (2, AFTERNOON): [brings("autumn", 1)],  # two nights late
        (3, MORNING): [brings("spring", 2)],
        (2, NIGHT): [partial(Nights.killed, name="winter", place="gone")],
        (4, NIGHT): [partial(Nights.killed, name="winter")],
        (4, MORNING): [partial(Nights.revise, name="winter", number=2)],
        (5, EVENING): [
            partial(Nights.edit, name="spring", old="_epsilon = 4.0", new="_epsilon = 40.0")
        ],
        (5, NIGHT): [partial(Nights.killed, name="autumn")],
    }
    through(nights, plan, 7)
    assert certain(nights) == {
        "late": 2, "failed": 2, "refused": 4, "lost": 1, "sample_ratio": 2, "set_aside": 2,
    }  # fmt: skip
    assert nights.n_looks == 7 * 4 + 5


def test_what_does_not_agree_is_seen(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_server() as web:
        nights = Nights(tmp_path, web, command, monkeypatch)
        nights.add("autumn")
        nights.bring("autumn", 0)
        nights.at(0, NIGHT)
        nights.run("autumn")
        place = nights.places["autumn"]
        listed, hook = place.releases / "SHA256SUMS", place.folder / "hook"
        release = place.releases / f"autumn.{day(0)}.r1.duckdb"
        sums, url = listed.read_text(), hook.read_text()

        def disagrees(act: Callable[[], object] = nights.look) -> None:
            with pytest.raises((AssertionError, KeyError)):
                act()

        release.rename(tmp_path / "elsewhere")
        disagrees()
        (tmp_path / "elsewhere").rename(release)
        listed.write_text(sums.replace("0", "1"))
        disagrees()
        listed.write_text(sums)
        web.got.append({"experiment": "autumn", "period": day(0), "event": "failed"})
        disagrees()
        nights.look()
        nights.at(1, MORNING)
        nights.edit("autumn", 'directory = "metrics"', 'directory = "."')
        disagrees()
        nights.edit("autumn", 'directory = "."', 'directory = "metrics"')
        nights.look()
        hook.write_text(url.replace("http", "nothing"))
        disagrees(partial(nights.run, "autumn"))
