"""What has to hold after every step of a life, of files, charges and words.

The ledger's table and the files are read as they are, without the program. After a calm night all
is known that must be so: each period's state, the exit code, what people were told, the lists
beside the releases. After any other step some of it is open; what is said must be true.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb

from tests.nights.life import KILLED, Life, Ran, Weather
from tests.nights.seen import (
    closed_of,
    file_of,
    hold,
    paid_when_tried,
    settled,
    sums_of,
    tried_as,
    usable,
)
from tests.nights.world import (
    EPSILON,
    MISSING,
    OUTCOME,
    PERSON,
    REASON,
    Place,
    Row,
    day_of,
    digest_of,
)

_CODES = (0, 2, 3, 4)
_CODE_OF = {"refused": 3, "failed": 2, "lost": 4, "altered": 4, "running": 4, "due": -1}
"""Of the states that leave something to do; -1: some other than 0."""
_EVENTS = {"failed": "failed", "refused": "refused", "lost": "lost", "altered": "lost"}
_TRIED = ("failed", "refused", "waiting")
_OF_RELEASES = ("sample_ratio", "set_aside", "one_value")
_SECRETS = (PERSON, str(OUTCOME).partition(".")[0], "very-secret")
_LISTS = {"withdrawn", "pruned", "elsewhere", "not_published"}

Periods = dict[str, dict[str, Any]]


@dataclass
class Truth:
    """What was seen of a life so far."""

    life: Life
    public: dict[tuple[str, str], str] = field(default_factory=dict)
    """Digests of all files that were ever public, by folder and release id."""
    paid: dict[str, float] = field(default_factory=dict)
    """What was charged for releases that were ever public, by release id."""
    told: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    """Experiment, period and event that people were told of, and whether that is surely noted."""
    farewells: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Experiment and last period that were said to be the end; likewise."""
    units: dict[str, int] = field(default_factory=dict)
    """How many units a file says that it has, by its digest."""
    charged: set[str] = field(default_factory=set)
    """Releases that were charged for before the step that is looked at."""
    is_restored: bool = False
    """Whether a ledger was put back: what it said before may be said again."""

    def look(self, what: str, ran: Ran | None, configs: list[Path]) -> None:
        """See what there is after a step, and whether all of it holds."""
        rows = self.life.world.rows()
        self._hold_all(what, ran, configs, rows)
        self.charged = {str(row.release_id) for row in rows if row.state != "void"}

    def _hold_all(self, what: str, ran: Ran | None, configs: list[Path], rows: list[Row]) -> None:
        life = self.life
        weather = life.weather
        self._published_stays_and_is_paid(rows)
        self._restored()
        status = self._status()
        for place in life.world.places:
            self._words_are_true(place, status[place.config], rows)
            self._lists_are_true(place)
        if what != "night" or ran is None:
            self._operator_was_answered(weather, has_charged=bool(rows))
            return
        self._ended_well(ran, configs, weather, status)
        self._told_truly(ran, weather, status)
        self._farewells_once(ran, weather)
        if weather.is_fine:
            self._all_is_done(ran, configs, status, rows)

    def _operator_was_answered(self, weather: Weather, *, has_charged: bool) -> None:
        """What can be done by day is done in calm weather, and ends in plain words in any other.

        There is nothing to back up, and that is said, while no run has come as far as the ledger.
        """
        for number, (command, ran) in enumerate(self.life.answers, 1):
            self._says_no_secret(ran.words)
            hold(ran.code in (*_CODES, KILLED), "nobody foresaw this", command, ran.code, ran.words)
            is_last = number == len(self.life.answers)
            if is_last and command != "release" and (weather.is_fine or command == "restore"):
                is_done = ran.code == 0 or (not has_charged and "there is none yet" in ran.words)
                hold(is_done, "is refused to the operator", command, ran.code, ran.words)

    # files and charges

    def _published_stays_and_is_paid(self, rows: Iterable[Row]) -> None:
        charged = {row.release_id: row for row in rows if row.state != "void"}
        for place in self.life.world.places:
            files = place.files
            for name, digest in files.items():
                if file_of(place, name) in self.life.world.damaged:
                    continue
                row = charged.get(name)
                hold(row, "a file that nobody has paid for", name, place.directory)
                assert row is not None
                hold(row.sha256 == digest, "a file that is not what was charged", name, row)
                hold(row.state in ("published", "publishing"), "a file of a charge that is", row)
                if (place.directory, name) not in self.public:  # what comes of it is news again
                    self._forget_told(row)
                seen = self.public.setdefault((place.directory, name), digest)
                hold(seen == digest, "a published file has changed", name)
                self.paid[name] = row.epsilon
            for directory, name in self.public:
                row = charged.get(name)
                is_ours = directory == place.directory and name.startswith(f"{place.experiment}.")
                if is_ours and name not in files and not (row and row.is_pruned):
                    is_known = file_of(place, name) in self.life.world.damaged
                    hold(is_known, "a published file is gone", name)
        for name, epsilon in self.paid.items():
            row = charged.get(name)
            hold(row and row.epsilon == epsilon == EPSILON, "a charge was lost", name, row)

    def _forget_told(self, row: Row) -> None:
        of_period = (row.experiment, row.period)
        self.told = {key: sure for key, sure in self.told.items() if key[:2] != of_period}

    def _restored(self) -> None:
        """What people were told may be told again once an older ledger is put back."""
        if "restores" in self.life.diary[-1]:
            self.told = dict.fromkeys(self.told, False)
            self.farewells = dict.fromkeys(self.farewells, False)

    # words: status

    def _status(self) -> dict[Path, Periods]:
        configs = [one.config for one in self.life.world.places]
        ran = self.life.ask("status", *configs, "--json")
        self._says_no_secret(ran.words)
        hold(ran.code in (0, 4), "status fails", ran.code, ran.words)
        found = [
            {one["period"]: one for one in each["periods"]} for each in ran.document["experiments"]
        ]
        lost = [
            one for each in found for one in each.values() if one["state"] in ("lost", "altered")
        ]
        hold((ran.code == 4) == bool(lost), "the exit code of status", ran.code, lost)
        return dict(zip(configs, found, strict=True))

    def _words_are_true(self, place: Place, periods: Periods, rows: list[Row]) -> None:
        world, now = self.life.world, self.life.clock.moment
        begun = [day_of(n) for n in range(world.n_days) if self._has_begun(day_of(n))]
        hold(set(begun) <= set(periods), "periods that status leaves out", begun, list(periods))
        for period, one in periods.items():
            stands = settled(self.life.world, self.public, place, period, rows)
            state, reason = one["state"], one["reason"] or ""
            if stands is not None:
                self._is_settled_as(place, one, stands)
            elif state == "waiting":
                is_early = now < world.due_at(period)
                is_missing = "no file matches" in reason and now < world.due_at(period) + MISSING
                hold(is_early or is_missing, "waits for nothing", one)
            else:
                hold(state in ("due", "failed", "refused"), "a state that nothing explains", one)
                hold(now >= world.due_at(period), "a period before its time", one, now)
            hold(one["due_at"] == f"{world.due_at(period):%Y-%m-%dT%H:%M:%SZ}", "due at", one)

    def _has_begun(self, period: str) -> bool:
        # a day begins a day before its end, but for an hour where clocks change
        began = self.life.world.due_at(period) - timedelta(hours=28)
        return began + timedelta(hours=1) <= self.life.clock.moment

    def _is_settled_as(self, place: Place, one: Mapping[str, Any], stands: str) -> None:
        state, reason = one["state"], one["reason"] or ""
        is_elsewhere = "its file is not here" in reason
        found = "elsewhere" if state == "published" and is_elsewhere else state
        hold(found == stands, "status says what is not so", place.directory, one, stands)
        if state == "withdrawn":
            hold(REASON in reason, "a withdrawal without its reason", one)

    # words: lists beside the releases

    def _lists_are_true(self, place: Place) -> None:
        """No list has a wrong digest, whatever has not been written yet."""
        for name, digest in sums_of(place).items():
            known = self.public.get((place.directory, name.removesuffix(".duckdb")))
            if name.startswith(f"{place.experiment}."):
                hold(known == digest, "SHA256SUMS has another digest", name)
        closed = closed_of(place)
        if closed is not None:
            self._says_no_secret(json.dumps(closed))

    # words: how a night ends

    def _ended_well(
        self, ran: Ran, configs: list[Path], weather: Weather, status: dict[Path, Periods]
    ) -> None:
        self._says_no_secret(ran.words)
        if ran.code == KILLED:
            return
        hold(ran.code in _CODES, "an exit code of what nobody foresaw", ran.code, ran.words)
        left = {one["state"] for each in status.values() for one in each.values()}
        codes = {_CODE_OF.get(state, 0) for state in left} - {0}
        if ran.code == 0:
            hold(not codes, "ended well though something is left", left, ran.words)
        self._blames_nobody_else(weather, configs, status)

    def _blames_nobody_else(
        self, weather: Weather, configs: list[Path], status: dict[Path, Periods]
    ) -> None:
        """A store that gave no answer is no day without a file, and nothing else fails a night."""
        if weather.fault is not None:
            return
        world, store = self.life.world, self.life.store
        experiments = {one.config: one.experiment for one in world.places}
        for config in configs:
            for period, one in status[config].items():
                is_there = (experiments[config], period) in world.content
                is_listed = f"{period}.csv" not in store.unlisted
                says_none = (
                    "no file matches" in (one["reason"] or "") and one["state"] != "published"
                )
                if says_none and is_there and self._was_tried(one):
                    hold(not is_listed, "a file that is there is said not to be", one, weather)

    def _was_tried(self, one: Mapping[str, Any]) -> bool:
        return bool(self.life.clock.moment >= self.life.world.due_at(one["period"]))

    # words: what people are told

    def _told_truly(self, ran: Ran, weather: Weather, status: dict[Path, Periods]) -> None:
        life, hook = self.life, self.life.hook
        is_sure = weather.fault is None
        hold(not hook.held_up, "a run waited for the webhook")
        hold(hook.n_unanswered <= len(life.world.places), "asked again after no answer", hook)
        if hook.n_links is not None:
            late = [Path(one).name for one in hook.links[hook.n_links :] if ".r" in Path(one).name]
            hold(not late, "a release came after a webhook was waited for", late)
        for one in hook.heard:
            self._says_no_secret(json.dumps(one))
            if one["period"] is None:
                hold(not is_sure, "a failure of nothing", one)
            elif is_sure:
                self._is_so(one, ran, status)
        for one in hook.answered:
            key = (one["experiment"], str(one["period"]), one["event"])
            # over a line that is cut nobody can see what was told
            hold(not is_sure or not self.told.get(key, False), "told twice", one)
            self.told[key] = is_sure and one["period"] is not None

    def _is_so(self, told: Mapping[str, Any], ran: Ran, status: dict[Path, Periods]) -> None:
        places = self.life.world.of(told["experiment"])
        states = {status[place.config][told["period"]]["state"] for place in places}
        if len(places) > 1:  # each of the folders tries it, and a budget may be spent between
            states |= {*tried_as(ran.document, told["experiment"], told["period"])}
        event = told["event"]
        if event in _OF_RELEASES:
            hold("published" in states or "withdrawn" in states, "told of no release", told, states)
            return
        events = {"late" if state == "waiting" else _EVENTS.get(state) for state in states}
        hold(event in events and told["state"] in states, "told what is not so", told, states)

    def _farewells_once(self, ran: Ran, weather: Weather) -> None:
        for experiment in self.life.world.experiments:
            n_said = ran.words.count(f"{experiment} ended with")
            last = (experiment, self.life.world.until)
            before = self.farewells.get(last)
            hold(n_said == 0 or not before, "the end is said again", experiment, ran.words)
            hold(n_said <= 1 or weather.fault, "the end is said twice", ran.words)
            if n_said:
                hold(f"ended with {last[1]}" in ran.words, "another end", ran.words)
                self.farewells[last] = weather.fault is None

    # after a calm night

    def _all_is_done(
        self, ran: Ran, configs: list[Path], status: dict[Path, Periods], rows: list[Row]
    ) -> None:
        world = self.life.world
        states = {row.state for row in rows}
        hold(not states & {"reserved", "publishing"}, "a charge that is left open", rows)
        places = {one.config: one for one in world.places}
        codes = []
        for config in configs:
            place, periods = places[config], self._as_left(ran, configs, config, status[config])
            for period, one in periods.items():
                paid = paid_when_tried(world, rows, self.charged, configs, config, period)
                self._could_not_be_released(place, one, rows, paid)
                self._was_told(place, period, one)
            codes += [
                _CODE_OF[one["state"]]
                for _, one in sorted(periods.items())
                if one["state"] in _CODE_OF
            ][:1]
        hold(ran.code == (codes[0] if codes else 0), "the exit code", ran.code, codes, ran.words)
        self._documents_are_right(ran, configs, status)
        for place in world.places:
            if place.config == configs[-1] or len(world.of(place.experiment)) == 1:
                self._is_in_order(place, status[place.config], rows)

    def _as_left(self, ran: Ran, configs: list[Path], config: Path, periods: Periods) -> Periods:
        """What status says of periods; of what two folders have tried, how its own trial ended.

        A budget may be spent between the two.
        """
        experiments = {one.config: one.experiment for one in self.life.world.places}
        folders = [one for one in configs if experiments[one] == experiments[config]]
        left = dict(periods)
        for period, one in periods.items():
            trials = tried_as(ran.document, experiments[config], period)
            if one["state"] in _TRIED and len(trials) == len(folders):
                left[period] = {**one, "state": trials[folders.index(config)]}
        return left

    def _could_not_be_released(
        self, place: Place, one: Mapping[str, Any], rows: list[Row], paid: float
    ) -> None:
        """What is due and was never public has no sound log, or nobody may pay for it."""
        world, period, state = self.life.world, one["period"], one["state"]
        is_early = self.life.clock.moment < world.due_at(period)
        if is_early or settled(world, self.public, place, period, rows):
            return
        is_spent = paid + EPSILON > world.budget
        content = world.content.get((place.experiment, period), "absent")
        if content == "absent":
            is_late = self.life.clock.moment >= world.due_at(period) + MISSING
            wanted = "failed" if is_late else "waiting"
        else:
            wanted = "failed" if content is None else "refused"
        if is_spent and self.life.world.account == "population":
            wanted = "refused"
        allowed = {wanted, "refused"} if is_spent else {wanted} - {"refused"}
        hold(state in allowed, "a calm night leaves", one, allowed, f"{paid} of {world.budget}")

    def _was_told(self, place: Place, period: str, one: Mapping[str, Any]) -> None:
        is_late = one["state"] == "waiting" and self._was_tried(one)
        event = "late" if is_late else _EVENTS.get(one["state"])
        if event is not None:
            is_told = (place.experiment, period, event) in self.told
            hold(is_told, "nobody was told", event, one)

    def _documents_are_right(
        self, ran: Ran, configs: list[Path], status: dict[Path, Periods]
    ) -> None:
        """What the run says of each period, as it left it, is what status says of it."""
        names = {one.config: one.experiment for one in self.life.world.places}
        by_experiment = {names[config]: status[config] for config in reversed(configs)}
        releases = ran.document["releases"]
        last = {(made["experiment"], made["period"]): made for made in releases}
        for made in releases:
            is_last = made is last[made["experiment"], made["period"]]
            if made["status"] in _TRIED and not is_last:  # by one folder, before another's trial
                continue
            known = by_experiment[made["experiment"]].get(made["period"])
            said = {"unchanged": "published"}.get(made["status"], made["status"])
            hold(known and known["state"] == said, "run and status differ", made, known)

    def _is_in_order(self, place: Place, periods: Periods, rows: list[Row]) -> None:
        """Lists, the latest, the end; and nothing half done lies about."""
        if not place.releases.exists():
            return
        leftovers = [one.name for one in place.releases.iterdir() if one.name.startswith(".")]
        hold(not leftovers, "left behind", leftovers)
        files = {f"{name}.duckdb": digest for name, digest in place.files.items()}
        if not files and not sums_of(place):
            return
        charged = {f"{row.release_id}.duckdb": row.sha256 for row in rows if not row.is_pruned}
        sums = {name: one for name, one in sums_of(place).items() if name.endswith(".duckdb")}
        wanted = {name: charged[name] for name in files if name in charged}
        hold(sums == wanted, "SHA256SUMS", sums, wanted)
        self._latest_is_right(place, rows)
        self._end_is_right(place, periods)
        if self.life.is_whole:
            self._pooled_is_right(place, rows)

    def _latest_is_right(self, place: Place, rows: list[Row]) -> None:
        found, latest = usable(place, rows), place.releases / "latest.duckdb"
        hold(latest.exists() == bool(found), "latest", latest.exists(), found)
        if found:
            digest = digest_of(latest)
            hold(digest == found[-1].sha256, "latest is another", found[-1])

    def _end_is_right(self, place: Place, periods: Periods) -> None:
        """The experiment has ended once its last period is due and each was public."""
        world, closed = self.life.world, closed_of(place)
        days = [day_of(number) for number in range(world.n_days)]
        states = {day: periods[day]["state"] if day in periods else "none" for day in days}
        open_ones = {"waiting", "due", "failed", "refused", "none"}
        is_due = self.life.clock.moment >= world.due_at(world.until)
        is_over = is_due and not open_ones & set(states.values())
        hold((closed is not None) == is_over, "closed.json", closed, states)
        if closed is None:
            return
        reasons = {day: periods[day]["reason"] or "" for day in days}
        wanted = {
            "withdrawn": [day for day in days if states[day] == "withdrawn"],
            "pruned": [day for day in days if states[day] == "pruned"],
            "not_published": [day for day in days if states[day] in ("lost", "altered")],
            "elsewhere": [day for day in days if "its file is not here" in reasons[day]],
        }
        hold({name: closed[name] for name in _LISTS} == wanted, "closed.json says", closed, wanted)
        hold(closed["last_period"] == world.until, "another end", closed)
        is_said = (place.experiment, world.until) in self.farewells
        hold(is_said or "kill" in str(self.life.diary), "the end was never said", closed)

    def _pooled_is_right(self, place: Place, rows: list[Row]) -> None:
        """The people that effects are pooled over are those of the files, each period's last."""
        last = {row.period: str(row.release_id) for row in usable(place, rows, with_pruned=True)}
        damaged = [one for one in self.life.world.damaged if one.parent == place.releases]
        if not last or any(one.exists() for one in damaged):  # a file that is none is an error
            return
        ran = self.life.ask("estimate", place.releases, "--json")
        self._says_no_secret(ran.words)
        hold(ran.code == 0, "estimate fails", ran.code, ran.words)
        found = {one["n_units"] for one in ran.document["pooled"] if one["n_units"] is not None}
        n_units = sum(self._n_units(file_of(place, name)) for name in last.values())
        hold(found == {n_units}, "pooled n", found, n_units, last)

    def _n_units(self, path: Path) -> int:
        digest = digest_of(path)
        if digest not in self.units:
            with duckdb.connect(str(path), read_only=True) as connection:
                (row,) = connection.execute("SELECT count(*) FROM main.units").fetchall()
            self.units[digest] = int(row[0])
        return self.units[digest]

    @staticmethod
    def _says_no_secret(words: str) -> None:
        for secret in _SECRETS:
            hold(secret not in words, "a value is told", secret, words)
