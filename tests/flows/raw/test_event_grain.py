"""Grain "event" from the logs to the release: exposures say who, outcome events say what."""

import json
import logging
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.cli.main import run
from flows.config.resolve import ResolvedRelease
from flows.plan import resolved_release_of
from flows.raw.boundary.sealed import Sealed
from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.spill.sorted_runs import Stored
from flows.raw.units.rows import counted, rows_of
from flows.raw.validate import validate
from flows.released.publish import new_draft, publish
from flows.runtime import progress
from schemas.errors import ClusterdpError, ConflictError, InputError
from schemas.names import ReleaseName
from schemas.raw import ARM, CLUSTER, OUTCOME, UNIT, event_rules
from tests.boundary.canary import contents, spelt
from tests.conftest import EXACT, Builder, Content, Experiment, plain_rows, released, write_content
from tests.support.spilling import Spilled

START = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
GRID = [float(value) for value in range(-3, 9)]
MISSING = 1.0
ARMS = ("none", "mail")

Exposure = tuple[str | None, str | None, str | None, datetime | None]
"""Who, variant, region, when."""
Event = tuple[str, datetime | None, float | None, str | None]
"""Who, when, what it is worth, id."""

SOURCE = {"path": "exposures/*", "grain": "event", "outcomes_path": "events/*"}
COLUMNS = {
    "time": "seen",
    "outcome": "amount",
    "outcome_unit": "who",
    "outcome_time": "at",
    "event": "id",
}
SUM = {"values": GRID, "missing": MISSING, "aggregate": "sum"}


@dataclass(frozen=True)
class Rules:
    """The settings that say what events come to, and for controls, a rule that is ``broken``."""

    aggregate: str = "sum"
    hours: int | None = None
    cap: float | None = None
    ids: bool = True
    values: bool = True
    broken: str = ""

    def sections(self) -> dict[str, dict[str, Any]]:
        """As a configuration says them."""
        window = None if self.hours is None else f"{self.hours}h"
        columns = COLUMNS | ({} if self.ids else {"event": None})
        return {
            "source": SOURCE | {"window": window},
            "columns": columns | ({} if self.values else {"outcome": None}),
            "outcome": SUM | {"aggregate": self.aggregate, "cap": self.cap},
        }


# two logs


def exposures(rng: np.random.Generator, n_units: int = 90) -> list[Exposure]:
    """Units exposed once or more; some in two arms, some with rows at fault."""
    rows: list[Exposure] = []
    for number in range(n_units):
        unit, arm = f"c{number:03d}", ARMS[number % 2]
        if number % 7 == 6:
            continue  # never exposed
        for _ in range(int(rng.integers(1, 4))):
            region = ("east", "west")[int(rng.integers(0, 2))]
            rows.append((unit, arm, region, START + int(rng.integers(0, 8)) * HOUR))
        if number % 17 == 3:
            rows.append((unit, ARMS[1 - number % 2], "east", START + 90 * HOUR))
        if number % 17 == 4:
            rows.append((unit, "fax", "east", START + 90 * HOUR))
        if number % 17 == 5:
            rows.append((unit, arm, "east", None))  # does its unit no harm
    rows += [
        (None, "mail", "east", START),
        ("x1", None, "east", START),
        ("x2", "mail", None, START),
    ]
    return [rows[place] for place in rng.permutation(len(rows))]


def events(rng: np.random.Generator, n_units: int = 90, n_events: int = 600) -> list[Event]:
    """Events of most units, exposed or not, some of them copies, some not readable."""
    worth = (1.0, 1.0, 2.0, -1.0, 4.0, 0.0, math.inf, -math.inf, None)
    chances = np.array([30, 30, 10, 20, 5, 10, 1, 1, 5]) / 112
    rows: list[Event] = []
    for _ in range(n_events):
        number = int(rng.integers(0, n_units))
        if number % 5 == 2:
            continue  # nothing ever happens to it
        at = None if rng.random() < 0.03 else START + int(rng.integers(-6, 32)) * HOUR
        which = None if rng.random() < 0.1 else f"e{int(rng.integers(0, 12))}"
        rows.append((f"c{number:03d}", at, worth[int(rng.choice(9, p=chances))], which))
    return rows


def written(rows: Iterable[tuple[Any, ...]], names: list[str], file: str, turn: int) -> Content:
    """A file of such rows; times and what is unreadable are spelt in some way of its format's."""
    frame = pl.DataFrame(list(rows), names, orient="row", infer_schema_length=None)
    when = "seen" if "seen" in names else "at"
    if file.endswith(".parquet"):
        units: tuple[Literal["us", "ns", "ms"], ...] = ("us", "ns", "ms")
        zone = "Europe/Zurich" if turn % 2 else None
        time = pl.col(when).cast(pl.Datetime("us", "UTC"))
        time = time.dt.convert_time_zone(zone) if zone else time.dt.replace_time_zone(None)
        return frame.with_columns(time.dt.cast_time_unit(units[turn % 3]))
    spelt_time = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M+00:00")[turn % 3]
    time = pl.col(when).cast(pl.Datetime("us", "UTC")).dt.strftime(spelt_time)
    frame = frame.with_columns(time.fill_null("whenever" if turn % 2 else ""))
    if "amount" in names:
        amount = pl.col("amount").cast(pl.String).fill_null("n/a" if turn % 2 else "")
        frame = frame.with_columns(amount)
    return frame


EXPOSURE_NAMES, EVENT_NAMES = (
    ["customer", "variant", "region", "seen"],
    ["who", "at", "amount", "id"],
)
TWO = ("one.parquet", "two.csv")
MIXED = ("one.parquet", "two.csv", "three.jsonl", "four.parquet", "five.csv.gz")


def files_of(
    seen: list[Exposure], happened: list[Event], formats: tuple[str, ...] = MIXED
) -> dict[str, Content]:
    """Both logs, spread over files of these names."""
    contents: dict[str, Content] = {}
    for turn, name in enumerate(formats):
        share = slice(turn, None, len(formats))
        contents[f"exposures/{name}"] = written(seen[share], EXPOSURE_NAMES, name, turn)
        contents[f"events/{name}"] = written(happened[share], EVENT_NAMES, name, turn)
    return contents


def a_trial(
    experiment: Builder,
    rules: Rules | None = None,
    formats: tuple[str, ...] = MIXED,
    **sections: dict[str, Any],
) -> tuple[Experiment, list[Exposure], list[Event]]:
    """Both logs on disk, and as they are."""
    rng = np.random.default_rng(11)
    seen, happened = exposures(rng), events(rng)
    own = (rules or Rules()).sections()
    merged = {name: own.get(name, {}) | sections.get(name, {}) for name in {**own, **sections}}
    return experiment(files_of(seen, happened, formats), "exposures/*", **merged), seen, happened


def replace_logs(built: Experiment, contents: dict[str, Content]) -> None:
    for folder in ("exposures", "events"):
        for file in (built.folder / folder).iterdir():
            file.unlink()
    for name, content in contents.items():
        write_content(built.folder / name, content)


# what the rules say, a unit at a time


@dataclass(frozen=True)
class Expected:
    units: list[tuple[str, str, str, float]]
    """Unit, cluster, arm, outcome; sorted."""
    aside: dict[str, int]


def expected(seen: list[Exposure], happened: list[Event], rules: Rules) -> Expected:
    by_unit: dict[str | None, list[Exposure]] = defaultdict(list)
    for row in seen:
        by_unit[row[0]].append(row)
    aside: Counter[str] = Counter()
    units = []
    for unit, rows in by_unit.items():
        faults = [_fault(row) for row in rows]
        aside.update(fault for fault in faults if fault)
        sound = [row for row, fault in zip(rows, faults, strict=True) if not fault]
        if unit is not None and len({row[1] for row in rows}) > 1:
            aside["unit_in_two_arms"] += len(sound)
            continue
        if sound:
            pick = max if rules.broken == "the last exposure" else min
            first = pick(sound, key=lambda row: (row[3], row[2]))
            own = [row for row in happened if row[0] == unit]
            outcome = _outcome(own, first[3], rules)
            units.append((str(unit), str(first[2]), str(first[1]), outcome))
    return Expected(sorted(units), {rule: count for rule, count in aside.items() if count})


def _fault(row: Exposure) -> str:
    unit, arm, region, when = row
    if unit is None:
        return "unit_missing"
    if arm is None:
        return "arm_missing"
    if region is None:
        return "cluster_missing"
    if arm not in ARMS:
        return "arm_not_declared"
    return "time_missing" if when is None else ""


def _outcome(own: list[Event], exposed: datetime | None, rules: Rules) -> float:
    """The outcome of one unit, on the grid."""
    assert exposed is not None
    copies: dict[Any, list[tuple[datetime, float]]] = defaultdict(list)
    for number, (_, at, amount, which) in enumerate(own):
        value = amount if rules.values else 1.0
        if at is None or value is None:
            continue
        key: Any = which if rules.ids and which else (at, value)
        copies[number if rules.broken == "copies count" else key].append((at, value))
    end = None if rules.hours is None else exposed + rules.hours * HOUR
    inside = [
        value
        for at, value in map(min, copies.values())
        if (at >= exposed or rules.broken == "the past counts")
        and (end is None or at < end or (rules.broken == "the window is closed" and at == end))
    ]
    outcome = _aggregated(inside, rules.aggregate)
    if math.isnan(outcome):
        return GRID[0] if rules.broken == "missing is lowest" else MISSING
    if rules.cap is not None and rules.broken != "no cap":
        outcome = min(max(outcome, -rules.cap), rules.cap)
    return min(max(outcome, GRID[0]), GRID[-1])


def _aggregated(values: list[float], aggregate: str) -> float:
    if not values:
        return math.nan
    if aggregate == "any":
        return float(any(values))
    if aggregate == "count":
        return float(len(values))
    return sum(values) if aggregate == "sum" else max(values)


RULES = [
    Rules("count"),
    Rules("count", hours=9, ids=False),
    Rules("count", hours=30, cap=2.0, values=False),
    Rules("count", ids=False, values=False),
    Rules("sum", hours=24, cap=4.0),
    Rules("sum", ids=False),
    Rules("max", hours=5),
    Rules("max", cap=2.0, ids=False),
    Rules("any", hours=3),
    Rules("any", ids=False),
]


@pytest.mark.parametrize(
    ("rules", "memory"),
    [*((rules, "8GB") for rules in RULES), (RULES[0], "60KB"), (RULES[5], "60KB")],
    ids=str,
)
def test_a_release_holds_what_the_rules_say(
    experiment: Builder, spilled: list[Spilled], rules: Rules, memory: str
) -> None:
    """With parameters that leave outcomes as they are, but for one unit in 10¹²."""
    built, seen, happened = a_trial(
        experiment, rules, privacy=dict(EXACT), run={"memory_limit": memory}
    )
    wanted = expected(seen, happened, rules)
    result = built.run()
    assert any(file.name == "events-run" for file in spilled) == (memory != "8GB")
    query = "SELECT unit_id, cluster, arm, outcome_randomised FROM units ORDER BY unit_id"
    assert released(result.path, query).rows() == wanted.units
    returned = replace(result.roster, n_returning=result.roster.n_units)
    assert returned == built.check("again").roster
    assert result.roster.n_units == len(wanted.units)
    assert result.roster.quarantined_by_rule == wanted.aside
    assert not list((built.folder / "quarantine").glob(".spill*"))


@pytest.mark.parametrize(
    ("broken", "rules"),
    [
        ("the past counts", Rules("sum")),
        ("the window is closed", Rules("count", hours=9, ids=False)),
        ("copies count", Rules("count")),
        ("copies count", Rules("sum", ids=False)),
        ("the last exposure", Rules("count", hours=9)),
        ("no cap", Rules("sum", hours=24, cap=4.0)),
        ("missing is lowest", Rules("any")),
    ],
)
def test_the_comparison_notices_a_broken_rule(broken: str, rules: Rules) -> None:
    rng = np.random.default_rng(11)
    seen, happened = exposures(rng), events(rng)
    right = expected(seen, happened, rules)
    assert expected(seen, happened, replace(rules, broken=broken)).units != right.units


def test_the_logs_hold_every_kind_of_unit() -> None:
    """Else the comparison above could pass without ever meeting one."""
    rng = np.random.default_rng(11)
    seen, happened = exposures(rng), events(rng)
    wanted = expected(seen, happened, Rules("count", hours=9))
    kept, active = {unit for unit, *_ in wanted.units}, {event[0] for event in happened}
    assert kept - active
    assert active - {row[0] for row in seen}
    assert {row[0] for row in seen} - kept - {None}
    assert len({outcome for *_, outcome in wanted.units}) > 3
    assert set(wanted.aside) == {rule.name for rule in event_rules(("none", "mail"))}


def test_what_is_set_aside_is_kept_for_the_operator_without_times(experiment: Builder) -> None:
    built, seen, happened = a_trial(experiment)
    result = built.run()
    wanted = expected(seen, happened, Rules())
    (file,) = built.quarantine.iterdir()
    aside = pl.read_parquet(file)
    assert dict(aside["rule"].value_counts().rows()) == wanted.aside
    assert aside.columns == ["rule", "unit", "arm", "cluster", "source_file", "source_row"]
    assert aside["source_file"].str.contains("/exposures/").all()
    two_arms = aside.filter(pl.col("rule") == "unit_in_two_arms")["unit"].unique().to_list()
    assert not set(two_arms) & set(released(result.path, "units")["unit_id"])
    assert result.roster.quarantined == aside.height


def test_the_other_commands_take_it(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    built, *_ = a_trial(experiment)
    result = built.run()
    for words in (["plan", str(built.config)], ["estimate", str(result.path)]):
        capsys.readouterr()
        assert run([*words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        if words[0] == "plan":
            assert found["n_units"] == result.roster.n_units
        else:
            assert found["estimates"][0]["n_units"] == result.roster.n_units


# the same again


def reshuffled(seen: list[Exposure], happened: list[Event]) -> dict[str, Content]:
    rng = np.random.default_rng(5)
    return files_of(
        [seen[place] for place in rng.permutation(len(seen))],
        [happened[place] for place in rng.permutation(len(happened))],
    )


def duplicated(seen: list[Exposure], happened: list[Event]) -> dict[str, Content]:
    return files_of(seen + seen[::2], happened + happened[::3])


def split_otherwise(seen: list[Exposure], happened: list[Event]) -> dict[str, Content]:
    return files_of(seen, happened, ("a.parquet", "b.parquet"))


@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no ids"])
@pytest.mark.parametrize("again", [reshuffled, duplicated, split_otherwise])
def test_the_same_logs_in_another_form_are_unchanged(
    experiment: Builder,
    again: Callable[[list[Exposure], list[Event]], dict[str, Content]],
    *,
    ids: bool,
) -> None:
    built, seen, happened = a_trial(experiment, Rules("sum", hours=24, ids=ids))
    first = built.run()
    before = first.path.read_bytes()
    replace_logs(built, again(seen, happened))
    second = built.run()
    assert (first.status, second.status) == ("published", "unchanged")
    assert second.path.read_bytes() == before
    assert second.statement.spent.epsilon == first.statement.spent.epsilon


def test_ids_are_those_of_the_exposures_whatever_the_events_files_hold(experiment: Builder) -> None:
    """Integers stay integers, though events come as text, or as nothing but nulls."""
    units = list(range(1, 41))
    seen = pl.DataFrame({"customer": units, "variant": ["none", "mail"] * 20}).with_columns(
        region=pl.lit("east"), seen=pl.lit(START)
    )
    happened = pl.DataFrame({"who": ["1", "2", "02", "x", ""], "id": [*"abcde"]}).with_columns(
        at=pl.lit("2026-11-21"), amount=pl.lit("3")
    )
    whole = happened.head(2).with_columns(who=pl.Series([1, 2], dtype=pl.UInt64))
    nothing = happened.clear().with_columns(who=pl.Series([], dtype=pl.Null))
    built = experiment(
        {"exposures/log.parquet": seen, "events/log.csv": happened},
        "exposures/*",
        **Rules().sections(),
        privacy=EXACT,
    )
    result = built.run()
    found = released(result.path, "SELECT unit_id, outcome_randomised FROM units ORDER BY unit_id")
    assert found.rows() == [(unit, 3.0 if unit <= 2 else MISSING) for unit in units]
    for content in (happened.write_ndjson().encode(), whole.write_ndjson().encode(), whole):
        name = "events/log.parquet" if isinstance(content, pl.DataFrame) else "events/log.jsonl"
        for file in (built.folder / "events").iterdir():
            file.unlink()
        write_content(built.folder / name, content)
        assert built.run().status == "unchanged"
    write_content(built.folder / "events" / "log.parquet", nothing)
    assert (
        validate(built.load().log_facts, ingest(built.load().log_source, "once"))[0]
        .open()
        .unit_type
        == pl.Int64
    )


def test_a_changed_event_is_a_conflict_if_it_counts(
    experiment: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = Rules("sum", hours=24)
    built, seen, happened = a_trial(experiment, rules)
    built.run()
    kept = {unit for unit, *_ in expected(seen, happened, rules).units}
    idle = next(unit for unit in sorted(kept) if unit not in {event[0] for event in happened})
    first = min(row[3] for row in seen if row[0] == idle and row[3] is not None)
    for ignored in ((idle, first - HOUR, 2.0, "n1"), (idle, first + 24 * HOUR, 2.0, "n2")):
        replace_logs(built, files_of(seen, [*happened, ignored]))
        assert built.run().status == "unchanged"
    files = built.files
    replace_logs(built, files_of(seen, [*happened, (idle, first, 2.0, "n3")]))
    with pytest.raises(ConflictError, match=r"trial\.once\.r1") as caught:
        built.run()
    assert caught.value.exit_code == 4
    assert built.files == files
    revised = built.run(revise=True)
    assert revised.path.name == "trial.once.r2.duckdb"
    capsys.readouterr()


# nobody is told how many events there are

N_EVENTS, N_COUNTING, N_UNEXPOSED = 7919, 5303, 1409
"""Events in all, those that count, and those of units that were never exposed."""


def counted_trial(experiment: Builder, **sections: dict[str, Any]) -> Experiment:
    """So many events, on 120 units."""
    seen: list[Exposure] = [
        (f"c{number:03d}", ARMS[number % 2], "east", START) for number in range(120)
    ]
    seen.append(("c000", "mail", "east", START))  # so that something is set aside
    groups = {
        "c": (N_COUNTING, 1),
        "never": (N_UNEXPOSED, 1),
        "c0": (N_EVENTS - N_COUNTING - N_UNEXPOSED, -1),
    }
    happened: list[Event] = []
    for name, (count, sign) in groups.items():
        for number in range(count):
            unit = f"{name}{number % 119 + 1:03d}" if name != "c0" else "c001"
            at = START + timedelta(seconds=sign * (number + 1))
            happened.append((unit, at, 1.0, f"{name}-{number}"))
    files = files_of(seen, happened, ("log.parquet",))
    own = Rules("count").sections()
    return experiment(files, "exposures/*", **own, **sections)


def numbers_in(*texts: str) -> list[int]:
    """Which of the numbers of events stand in a text as numbers of their own."""
    found = []
    for number in (N_EVENTS, N_COUNTING, N_UNEXPOSED, N_EVENTS - N_UNEXPOSED):
        spelling = rf"(?<![\w.:-])(?:{number}|{number:,})(?:\.0+)?(?![\w:-]|\.\d)"
        found += [number for text in texts if re.search(spelling, text)]
    return found


@pytest.mark.parametrize("text", ["7919", "read 7,919 events", '{"n": 5303}', "(1409.0, 2)"])
def test_the_search_finds_a_number(text: str) -> None:
    assert numbers_in(text)
    assert not numbers_in("0.7919 17919 a7919 79190 7,9190 10:7919 2026-7919")


@pytest.mark.parametrize("memory", ["8GB", "200KB"], ids=["in memory", "beside it"])
def test_how_many_events_there_are_stands_nowhere(
    experiment: Builder,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    memory: str,
) -> None:
    monkeypatch.setattr(progress, "_QUIET", -1.0)  # progress would be told of from the first row on
    monkeypatch.setattr(progress, "_EVERY", -1.0)
    caplog.set_level(logging.DEBUG)
    built = counted_trial(experiment, run={"memory_limit": memory})
    result = built.run()
    again = built.run()
    assert (result.status, again.status) == ("published", "unchanged")
    assert run(["check", str(built.config), "--json", "--period", "x"]) == 0
    assert run(["ledger", str(built.config)]) == 0
    assert run(["inspect", str(result.path), "--json"]) == 0
    heard = capfd.readouterr()
    documents = json.dumps([result.as_json(), again.as_json()])
    assert "released" not in heard.err
    assert "reading outcome events" not in heard.err
    assert "validate" in caplog.text
    assert numbers_in(heard.out, heard.err, caplog.text, documents, spelt([result, again])) == []
    for folder in ("exposures", "events"):
        for file in (built.folder / folder).iterdir():
            file.unlink()
    left = [path for path in built.folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in left} >= {".duckdb", ".sqlite", ".parquet"}
    for path in left:
        assert numbers_in(*(piece for piece in contents(path) if isinstance(piece, str))) == []


def test_a_terminal_alone_sees_the_events_go_by(
    experiment: Builder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above could not fail: the operator may look on."""
    monkeypatch.setattr(progress, "_QUIET", -1.0)
    monkeypatch.setattr(progress, "_EVERY", -1.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    counted_trial(experiment).check()
    told = capsys.readouterr().err
    assert "reading outcome events" in told
    assert numbers_in(told) == [N_EVENTS]


def test_how_a_file_is_laid_out_does_not_depend_on_parts(experiment: Builder) -> None:
    """Parts are cut by events, too, where a run does not fit into memory."""
    n_units = 260_000
    config = experiment(privacy={**EXACT, "resampling_probability": 0.5}).load()
    frame = pl.DataFrame({UNIT: range(n_units)}).with_columns(
        pl.Series(ARMS)[np.arange(n_units) % 2].cast(pl.Enum(ARMS)).alias(ARM),
        pl.lit("east").cast(pl.Categorical).alias(CLUSTER),
        pl.lit(1.0).alias(OUTCOME),
    )
    layouts = []
    for cut in (0, 130_000, 150_000):
        parts = [
            (Stored(part.height, part), counted(part, len(ARMS), None))
            for part in (frame[:cut], frame[cut:])
            if part.height
        ]
        rows = rows_of(parts, ARMS, pl.Int64())
        tables = privatize(
            config, Sealed(rows, n_units), config.design(), ReleaseName("trial", "once", 1)
        )
        path = config.directory / f"{cut}.duckdb"
        with new_draft(path) as draft:
            publish(tables, draft)
        query = (
            "SELECT DISTINCT row_group_id, count "
            f"FROM pragma_storage_info('{tables.manifest.own_schema}.drawn') "
            "WHERE column_name = 'unit_id' AND segment_type = 'BIGINT' ORDER BY ALL"
        )
        layouts.append(released(path, query).rows())
    assert layouts[0]
    assert layouts[0] == layouts[1] == layouts[2]


# who is in a release does not depend on events, nor does whether there is one

QUIET = settings(
    max_examples=20,
    deadline=None,  # files are written and read
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # overwritten every time
        HealthCheck.too_slow,
    ],
)
anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
units_or_not = st.sampled_from([f"c{number:03d}" for number in range(14)]) | st.text(max_size=3)
times_or_not = st.datetimes().map(datetime.isoformat) | st.text(max_size=12)
numbers_or_not = st.floats().map(str) | st.text(max_size=8)


class RosterOf:
    """Who is kept and who is set aside with a file of events, and ``without`` any event."""

    def __init__(self, built: Experiment) -> None:
        self.built, self.config = built, built.load()
        self.without = self("log.jsonl", "")

    def __call__(self, file: str, content: Content) -> Any:
        for old in (self.built.folder / "events").iterdir():
            old.unlink()
        write_content(self.built.folder / "events" / file, content)
        rows, _, roster = validate(self.config.log_facts, ingest(self.config.log_source, "once"))
        kept = plain_rows(rows.open())
        assert kept["outcome"].is_between(GRID[0], GRID[-1]).all()
        return kept.select("unit", "arm", "cluster").rows(), rows.open().unit_type, roster


@pytest.fixture
def roster_of(experiment: Builder) -> RosterOf:
    rng = np.random.default_rng(3)
    files = {
        "exposures/log.parquet": written(exposures(rng, 30), EXPOSURE_NAMES, "log.parquet", 0),
        "events/log.jsonl": "",
    }
    built = experiment(files, "exposures/*", **Rules("sum", hours=24, cap=3.0).sections())

    return RosterOf(built)


def test_an_event_without_an_id_or_a_unit_stops_nothing(experiment: Builder) -> None:
    """Many programs write whole numbers as floats where one is missing."""
    seen = pl.DataFrame({"customer": range(4), "variant": ARMS * 2, "seen": ["2026-11-20"] * 4})
    at = ["2026-11-20"] * 5
    done = pl.DataFrame({"who": [0, 1, 1, 1, None], "id": [7.0, 1.0, 1.0, None, 2.0], "at": at})
    files = {"exposures/log.parquet": seen, "events/log.parquet": done.cast({"who": pl.Float64})}
    columns = {"cluster": None, **COLUMNS, "outcome": None}
    outcome = {"values": GRID, "aggregate": "count", "missing": 0.0}
    built = experiment(files, "exposures/*", source=SOURCE, columns=columns, outcome=outcome)
    config = built.load()
    rows, _, _ = validate(config.log_facts, ingest(config.log_source, "once"))
    assert plain_rows(rows.open())["outcome"].to_list() == [1.0, 2.0, 0.0, 0.0]


@pytest.mark.process
@QUIET
@given(st.lists(st.tuples(units_or_not, times_or_not, numbers_or_not, st.text(max_size=4))))
def test_events_of_a_csv_leave_the_roster(
    roster_of: RosterOf, lines: list[tuple[str, ...]]
) -> None:
    frame = pl.DataFrame(lines, dict.fromkeys(EVENT_NAMES, pl.String), orient="row")
    assert roster_of("log.csv", frame) == roster_of.without


@pytest.mark.process
@QUIET
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(EVENT_NAMES),
            units_or_not | times_or_not | st.recursive(anything, st.lists, max_leaves=4),
        )
    )
)
def test_events_of_json_lines_leave_the_roster(
    roster_of: RosterOf, lines: list[dict[str, Any]]
) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert roster_of("log.jsonl", text) == roster_of.without


WHO = [pl.String, pl.Int64, pl.UInt64, pl.Int8, pl.Float64, pl.Null, pl.Categorical]
WHEN = [pl.Datetime("us"), pl.Datetime("ns", "UTC"), pl.Datetime("ms"), pl.Date, pl.String, pl.Null]
WORTH = [pl.Float64, pl.Float32, pl.Int64, pl.String, pl.Boolean, pl.Null]
WHICH = [pl.String, pl.Int32, pl.UInt64, pl.Float64, pl.Boolean, pl.Null]


def of_kind(name: str, kind: Any, values: list[Any]) -> pl.Series:
    """A column of this type; of times, any bits."""
    if kind == pl.Null:
        return pl.Series(name, [None] * len(values), dtype=pl.Null)
    if name == "who" and kind in (pl.String, pl.Categorical):
        return pl.Series(name, [f"c{value:03d}" for value in values], dtype=pl.String).cast(kind)
    if name == "at":
        bits = 32 if kind == pl.Date else 64
        packed = [(value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for value in values]
        return pl.Series(name, packed, dtype=pl.Int32 if bits == 32 else pl.Int64).cast(kind)
    whole = pl.Float64 if name == "amount" else pl.Int64
    return pl.Series(name, values, dtype=whole).cast(kind, strict=False)


@pytest.mark.process
@QUIET
@given(
    st.tuples(*(st.sampled_from(kinds) for kinds in (WHO, WHEN, WORTH, WHICH))),
    st.lists(st.tuples(st.integers(0, 13), st.integers(), st.floats(), st.integers(-9, 9))),
)
def test_events_of_a_parquet_leave_the_roster(
    roster_of: RosterOf,
    kinds: tuple[Any, ...],
    lines: list[tuple[int, int, float, int]],
) -> None:
    """Of every type that is taken; bits of a time and a value may be anything."""
    values = zip(*lines, strict=True) if lines else [()] * 4
    columns = [
        of_kind(name, kind, list(own))
        for name, kind, own in zip(EVENT_NAMES, kinds, values, strict=True)
    ]
    assert roster_of("log.parquet", pl.DataFrame(columns)) == roster_of.without


def test_success_does_not_depend_on_events(experiment: Builder) -> None:
    """A release with none, and with nothing but unreadable, huge or infinite ones."""
    built, seen, happened = a_trial(experiment, None, TWO)
    rosters = [built.run("a").roster]
    kept = sorted({str(row[0]) for row in seen})
    odd: dict[str, list[Event]] = {
        "b": [],
        "c": [(unit, None, None, None) for unit in kept],
        "d": [(unit, START + 20 * HOUR, 1.7e308, str(i)) for unit in kept for i in range(9)],
        "e": [
            (unit, START + 20 * HOUR, sign * math.inf, None) for unit in kept for sign in (1, -1)
        ],
        "f": [("c001", START + 20 * HOUR, 1.0, str(i)) for i in range(3000)],
    }
    for period, rows in odd.items():
        replace_logs(built, files_of(seen, rows, TWO))
        rosters.append(replace(built.run(period).roster, n_returning=0))
    assert all(one == rosters[0] for one in rosters)
    assert len(happened) > 100


# what does fail is public

A_FILE = pl.DataFrame(
    {"who": ["c001"], "at": [START], "amount": [1.0], "id": ["e1"], "more": [START.date()]}
)


@pytest.mark.parametrize(
    ("content", "file", "says"),
    [
        (None, "", "source.outcomes_path: no file matches"),
        (A_FILE.drop("who"), "log.parquet", "there is no column 'who'"),
        (A_FILE.drop("at"), "log.csv", "there is no column 'at'"),
        (A_FILE.drop("amount"), "log.parquet", "there is no column 'amount'"),
        (A_FILE.drop("id"), "log.csv", "there is no column 'id'"),
        ("", "log.csv", "there is no column 'who'"),
        (b"", "log.parquet", "cannot be read as Parquet"),
        (b"PAR1PAR1", "log.parquet", "cannot be read as Parquet"),
        ('{"who": "c001"', "log.jsonl", "cannot be read as JSON Lines: line 1 does not parse"),
        ("who,at,amount,id\na,b,c,d\na,b,c,d,e\n", "log.csv", "as CSV: row 3 does not parse"),
        # Not of floats, which ids are written as where one event has none.
        (A_FILE.with_columns(who="more"), "log.parquet", "column 'who' (unit) is Date"),
        (A_FILE.with_columns(at=pl.lit(7)), "log.parquet", "column 'at' (time) is Int32"),
        (A_FILE.with_columns(id="more"), "log.parquet", "column 'id' (event) is Date"),
        (A_FILE, "log.xlsx", "not a format that can be read"),
    ],
)
def test_a_log_of_events_that_cannot_be_read_is_refused(
    experiment: Builder,
    capsys: pytest.CaptureFixture[str],
    content: Content | None,
    file: str,
    says: str,
) -> None:
    built, *_ = a_trial(experiment, None, TWO)
    for old in (built.folder / "events").iterdir():
        old.unlink()
    if content is not None:
        ours = b"" if file == "log.xlsx" else content
        write_content(built.folder / "events" / file, ours)
    before = built.entries
    assert run(["check", str(built.config)]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert str(built.folder / "events" / file) in told
    with pytest.raises(InputError) as caught:
        built.run()
    assert told == f"clusterdp: {caught.value}\n"
    assert built.entries == before


@pytest.mark.parametrize(
    "content", [A_FILE.clear(), "who,at,amount,id\n", "", "\n"], ids=["Parquet", "CSV", "", "line"]
)
def test_an_empty_log_of_events_is_none_to_be_refused(
    experiment: Builder, content: Content
) -> None:
    built, *_ = a_trial(experiment)
    for old in (built.folder / "events").iterdir():
        old.unlink()
    ending = (
        "parquet" if isinstance(content, pl.DataFrame) else "csv" if "who" in content else "json"
    )
    write_content(built.folder / "events" / f"log.{ending}", content)
    assert built.check().roster.n_units > 50


# plans read no outcome


def test_a_plan_and_an_audit_read_no_log_of_events(
    experiment: Builder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    audited: list[str] = []

    def begun(release: ResolvedRelease, _: object) -> NoReturn:
        audited.append(release.mechanism)
        raise InputError("far enough: the rest takes long, and no log")

    monkeypatch.setattr("flows.lab.audit.look", begun)
    built, *_ = a_trial(
        experiment,
        source={"outcomes_path": "events-{period}/*"},
        privacy={"mechanism": "auto", "epsilon": 1.0},
    )
    with pytest.raises(InputError, match="outcomes_path: no file matches"):
        built.check("p")
    planned = json.loads(_printed(capsys, ["plan", str(built.config), "--period", "p"]))
    assert run(["audit", str(built.config), "--period", "p"]) == 2
    assert "far enough" in capsys.readouterr().err
    (built.folder / "events").rename(built.folder / "events-p")
    found = built.check("p")
    assert planned["n_units"] == found.roster.n_units
    assert planned["mechanism"] == found.chosen.designs[0].mechanism.name
    assert audited == [found.chosen.designs[0].mechanism.name]
    assert resolved_release_of(built.config, "p").designs == found.chosen.designs


def _printed(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    capsys.readouterr()
    assert run([*words, "--json"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "release", "plan"])
def test_a_period_in_the_path_of_events_has_to_be_named(
    experiment: Builder, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    built, *_ = a_trial(experiment, source={"outcomes_path": "events/{period}/*"})
    before = built.entries
    assert run([command, str(built.config)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("clusterdp: --period: missing: source.outcomes_path holds {period}")
    assert built.entries == before


def test_a_period_is_filled_into_both_paths(experiment: Builder) -> None:
    built, *_ = a_trial(
        experiment, source={"path": "exposures-{period}/*", "outcomes_path": "{period}/*"}
    )
    (built.folder / "exposures").rename(built.folder / "exposures-p1")
    (built.folder / "events").rename(built.folder / "p1")
    assert built.run("p1").status == "published"
    with pytest.raises(ClusterdpError, match=re.escape(str(Path("exposures-p2")))):
        built.run("p2")


@pytest.mark.parametrize(
    "source",
    [{"path": "e*/*"}, {"path": "{period}/*", "outcomes_path": "events/*"}, {"path": "events/*"}],
)
def test_outcome_events_are_no_exposures_wherever_their_files_are(
    experiment: Builder, source: dict[str, str]
) -> None:
    """Else whoever has one would be set aside for it, as it names no arm, and all be counted."""
    built, *_ = a_trial(experiment, source=source)
    before = built.entries
    with pytest.raises(ClusterdpError, match="who is released would follow from outcomes"):
        built.run("events")
    assert built.entries == before
