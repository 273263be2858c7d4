"""Nights of several experiments on a compressed clock, and whether all that tells of them agrees.

After every step :meth:`Nights.look` holds against each other what ``clusterdp status --json`` says,
what a webhook received, the files of metrics, the files in the folders of releases, the lists of
their digests and the ledgers. It keeps its own account of what people should have been told by now.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

from flows.released.file.checks.stated import stated_warnings
from flows.runtime import clock
from schemas.roster import SAMPLE_RATIO_ALARM
from tests.conftest import PATIENCE, Content, a_log, build_experiment, write_content
from tests.flows.operate.watch.servers import Web
from tests.support.surroundings import Command

FIRST = date(2026, 11, 2)
SET_ASIDE_ABOVE = 0.05
_EVENTS = {"failed": "failed", "refused": "refused", "lost": "lost"}

_KILLED = """
import os, signal, sys
from datetime import datetime
from pathlib import Path

from flows.operate.due import release_due
from flows.ledger import account
from flows.runtime import clock

config, moment, place = sys.argv[1], datetime.fromisoformat(sys.argv[2]), sys.argv[3]
clock.now = lambda: moment


def die(draft, path):
    if place == "gone":
        Path(draft).unlink()
    os.kill(os.getpid(), signal.SIGKILL)


account.make_public = die
release_due(config)
"""


def day(number: int) -> str:
    """A period, from 0; its night is that of the next day."""
    return (FIRST + timedelta(days=number)).isoformat()


@dataclass
class Place:
    """An experiment, and what has been seen of it."""

    config: Path
    told: set[tuple[str, str]] = field(default_factory=set)
    """Periods and events that people know of."""
    public: set[str] = field(default_factory=set)
    """Names of releases at the last look."""
    published_at: float | None = None
    """When a run of its own last published something."""

    @property
    def name(self) -> str:
        return self.config.stem

    @property
    def folder(self) -> Path:
        return self.config.parent

    @property
    def releases(self) -> Path:
        return self.folder / "releases" / self.name


@dataclass
class Nights:
    """The experiments, their clock, and the web server that is told."""

    folder: Path
    web: Web
    command: Command
    monkeypatch: pytest.MonkeyPatch
    places: dict[str, Place] = field(default_factory=dict)
    moment: datetime = datetime(2026, 11, 2, tzinfo=UTC)
    n_looks: int = 0
    n_told: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, **sections: Mapping[str, Any]) -> None:
        """An experiment on a schedule that tells the web server, and writes metrics."""
        light = {"mechanism": "uniform-prior-dp", "strata_statistic": "none"}
        built = build_experiment(
            self.folder / name, {},
            source={"path": "{period}.csv"},
            schedule={"since": day(0), "lateness": "1h", "missing_after": "2d"},
            notify={"webhook_file": "hook", "set_aside_above": SET_ASIDE_ABOVE},
            run={"metrics_directory": "metrics"},
            privacy=light | dict(sections.pop("privacy", {})),
            **sections,
        )  # fmt: skip
        config = built.folder / f"{name}.toml"
        config.write_text(built.config.read_text().replace('"trial"', f'"{name}"'))
        built.config.unlink()
        (built.folder / "hook").write_text(self.web.url)
        (built.folder / "hook").chmod(0o600)
        (built.folder / "metrics").mkdir()
        self.places[name] = Place(config)

    def bring(self, name: str, number: int, content: Content | None = None) -> None:
        """Let the log of a day come."""
        path = self.places[name].folder / f"{day(number)}.csv"
        write_content(path, a_log(160) if content is None else content)

    def edit(self, name: str, old: str, new: str) -> None:
        """Change the configuration of an experiment."""
        config = self.places[name].config
        text = config.read_text()
        assert old in text
        config.write_text(text.replace(old, new))

    def at(self, number: int, hour: str) -> None:
        """Let it be this hour, in UTC, of the day after a period."""
        self.moment = datetime.fromisoformat(f"{day(number + 1)}T{hour}").replace(tzinfo=UTC)
        self.monkeypatch.setattr(clock, "now", lambda: self.moment)

    def run(self, *names: str) -> None:
        """The night's run of some experiments, by one command; then look."""
        configs = [self.places[name].config for name in names]
        done = self.command("release", *configs, "--due", "--json")
        document = json.loads(done.stdout)
        states = self.look(ran=names)
        for made in document["releases"]:
            name = made.get("experiment", names[0])
            status = {"unchanged": "published"}.get(made["status"], made["status"])
            assert states[name][made["period"]]["state"] == status, made
            of_few = next((one for one in made.get("warnings", ()) if "may all be" in one), None)
            assert states[name][made["period"]]["reason"] == (made["reason"] or of_few), made
        left = {each["state"] for name in names for each in states[name].values()}
        assert (done.returncode != 0) == bool(left & {"failed", "refused", "lost", "running"})

    def killed(self, name: str, place: str = "whole") -> None:
        """A run that is killed as it publishes; ``gone`` if its draft goes with it. Then look."""
        config = self.places[name].config
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, config, self.moment.isoformat(), place],
            cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        assert done.returncode == -9, done.stderr
        self.look(ran=[name], died=True)

    def revise(self, name: str, number: int) -> None:
        """A person asks for another draw; then look."""
        config = self.places[name].config
        done = self.command("release", config, "--period", day(number), "--revise", "--json")
        assert done.returncode == 0, done.stderr
        self.look(ran=[name])

    # whether all that is told agrees

    def look(
        self, ran: Sequence[str] = (), *, died: bool = False
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """Hold all that tells of the experiments against each other; gives periods by name.

        ``ran`` are those that have just been run: no other may have told anybody anything. A run
        that ``died`` told what it found on its way, and nothing of its own end.
        """
        self.n_looks += 1
        configs = [place.config for place in self.places.values()]
        done = self.command("status", *configs, "--metrics", "--json")
        assert done.returncode == 0, done.stderr
        found = {}
        notices = [dict(one) for one in self.web.got]
        self.web.got.clear()
        for status in json.loads(done.stdout)["experiments"]:
            place = self.places[status["experiment"]]
            periods = {one["period"]: one for one in status["periods"]}
            found[place.name] = periods
            made = self._files_agree(place, periods)
            if place.name in ran and self._new(place, made):
                place.published_at = self.moment.timestamp()
            mine = [one for one in notices if one["experiment"] == place.name]
            tried = () if place.name not in ran else periods
            known = {
                one: periods[one] for one in tried if not died or periods[one]["state"] != "lost"
            }
            self._notices_agree(place, known, made, mine)
            self._metrics_agree(place, status, made)
            place.public = set(made)
        return found

    def _files_agree(self, place: Place, periods: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Files, digests, ledger and status name the same releases; what each says of itself."""
        paths = {path.stem: path for path in place.releases.glob(f"{place.name}.*.duckdb")}
        listed = place.releases / "SHA256SUMS"
        lines = listed.read_text().splitlines() if listed.exists() else []
        sums = {line[66:]: line[:64] for line in lines}
        digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in paths.values()}
        assert sums == digests
        told = json.loads(self.command("ledger", place.config, "--json").stdout)["entries"]
        assert {one["release_id"] for one in told if one["state"] == "published"} == set(paths)
        public = {one["release_id"] for one in periods.values() if one["state"] == "published"}
        assert public <= set(paths)
        assert {name.split(".")[1] for name in paths} == {name.split(".")[1] for name in public}
        return {name: _facts(path) for name, path in paths.items()}

    @staticmethod
    def _new(place: Place, made: Mapping[str, Any]) -> set[str]:
        return set(made) - place.public

    def _notices_agree(
        self,
        place: Place,
        periods: Mapping[str, Mapping[str, Any]],
        made: Mapping[str, Mapping[str, Any]],
        notices: Sequence[Mapping[str, Any]],
    ) -> None:
        """What was told since the last look is what is new, and in the words of status.

        ``periods`` are those that a run may have told of.
        """
        expected: dict[tuple[str, str], str] = {}
        new = self._new(place, made)
        place.told -= {
            one for one in place.told if one[0] in {made[name]["period"] for name in new}
        }
        for name in new:
            facts = made[name]
            if facts["sample_ratio_p"] < SAMPLE_RATIO_ALARM:
                expected[facts["period"], "sample_ratio"] = "published"
            if facts["n_set_aside"] / facts["n_read"] > SET_ASIDE_ABOVE:
                expected[facts["period"], "set_aside"] = "published"
            if facts["one_value"]:
                expected[facts["period"], "one_value"] = "published"
        for period, one in periods.items():
            event = _EVENTS.get(one["state"])
            if one["state"] == "waiting" and _moment(one["due_at"]) <= self.moment:
                event = "late"
            if event is not None and (period, event) not in place.told:
                expected[period, event] = one["state"]
        got = {(one["period"], one["event"]): one for one in notices}
        assert len(got) == len(notices)
        assert {key: one["state"] for key, one in got.items()} == expected, (
            self.moment,
            place.name,
        )
        for (period, event), one in got.items():
            if event not in ("sample_ratio", "set_aside", "one_value"):
                assert one["reason"] == periods[period]["reason"]
            else:
                assert one["release_id"] == periods[period]["release_id"]
        place.told |= set(expected)
        self.n_told.update(event for _, event in expected)

    def _metrics_agree(
        self, place: Place, status: Mapping[str, Any], made: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """The file of metrics has the counts, times and amounts of status and of the files."""
        found = _samples(place)
        counts = Counter(one["state"] for one in status["periods"])
        states = {key[1]: value for key, value in found.items() if key[0] == "periods"}
        assert {name: n for name, n in states.items() if n} == dict(counts)
        assert found.get(("epsilon_left",)) == status["least_epsilon_left"]
        due = status["next_due_at"]
        next_due = found.get(("next_due_timestamp_seconds",))
        assert next_due == (None if due is None else _moment(due).timestamp())
        assert found.get(("last_success_timestamp_seconds",)) == place.published_at
        if place.published_at is None:
            return
        # A run that was killed could tell neither how long it took nor the rules of its rows.
        is_told = ("release_duration_seconds",) in found
        aside = sum(n for key, n in found.items() if key[0] == "release_rows_set_aside")
        names = ("release_units", "release_rows_read", "sample_ratio_p")
        of_release = (*(found[name,] for name in names), aside if is_told else 0)
        assert of_release in {
            (one["n_units"], one["n_read"], one["sample_ratio_p"], is_told * one["n_set_aside"])
            for one in made.values()
        }
        assert sum(n for key, n in found.items() if key[0] == "last_run_state") == 1


def _facts(path: Path) -> dict[str, Any]:
    """What a released file says of itself."""
    query = "SELECT period, n_units, n_set_aside, sample_ratio_p FROM release"
    with duckdb.connect(str(path), read_only=True) as connection:
        row = pl.DataFrame(connection.sql(query).to_arrow_table()).row(0, named=True)
    warned = bool(stated_warnings(path))
    return {**row, "n_read": row["n_units"] + row["n_set_aside"], "one_value": warned}


def _samples(place: Place) -> dict[tuple[str, ...], float]:
    text = (place.folder / "metrics" / f"clusterdp_{place.name}.prom").read_text()
    return {
        (one.name.removeprefix("clusterdp_"), *(
            value for label, value in one.labels.items() if label != "experiment"
        )): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }  # fmt: skip


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


Act = Callable[[Nights], None]
"""What happens at an hour."""


def through(nights: Nights, plan: Mapping[tuple[int, str], Sequence[Act]], n_nights: int) -> None:
    """Let the nights pass: every six hours a look, at 03:15 a run of all, and what is planned."""
    for number in range(n_nights):
        for hour in ("03:15", "09:15", "15:15", "21:15"):
            nights.at(number, hour)
            for act in plan.get((number, hour), ()):
                act(nights)
            if hour == "03:15":
                nights.run(*nights.places)
            else:
                nights.look()
