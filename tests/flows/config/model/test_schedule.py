"""``[schedule]``: what is read of it, and what is refused by the name of a key."""

from datetime import date, timedelta
from typing import Any

import pytest

from schemas.errors import ConfigError
from tests.conftest import Builder, Experiment

EVENTS = {
    "source": {
        "path": "seen/{period}.csv",
        "grain": "event",
        "outcomes_path": "done/{period}.csv",
        "window": "1d",
    },
    "columns": {"time": "ts"},
    "outcome": {"aggregate": "sum"},
}
SINCE = {"since": "2026-11-01"}


def of_units(experiment: Builder, **keys: Any) -> Experiment:
    return experiment(source={"path": "{period}.csv"}, schedule=SINCE | keys)


def of_events(experiment: Builder, source: dict[str, Any], **keys: Any) -> Experiment:
    sections: dict[str, Any] = EVENTS | {"source": EVENTS["source"] | source}
    return experiment(**sections, schedule=SINCE | keys)


def refused(built: Experiment) -> str:
    with pytest.raises(ConfigError) as caught:
        built.load()
    return str(caught.value)


def test_a_schedule_of_units(experiment: Builder) -> None:
    built = of_units(experiment, timezone="Europe/Zurich", lateness="3h", missing_after="1d")
    found = built.load().calendar
    assert found is not None
    assert (found.since, str(found.zone)) == (date(2026, 11, 1), "Europe/Zurich")
    assert (found.window, found.lateness) == (timedelta(), timedelta(hours=3))
    assert (found.missing_after, found.whole_days) == (timedelta(days=1), False)


def test_a_day_may_be_written_as_toml_writes_days(experiment: Builder) -> None:
    built = of_units(experiment)
    text = built.config.read_text().replace('since = "2026-11-01"', "since = 2026-11-01")
    built.config.write_text(text)
    found = built.load().calendar
    assert found is not None
    assert found.since == date(2026, 11, 1)


def test_a_schedule_may_have_an_end(experiment: Builder) -> None:
    found = of_units(experiment, until="2026-11-01").load().calendar  # of a single day
    assert found is not None
    assert (found.since, found.until) == (date(2026, 11, 1), date(2026, 11, 1))


def test_defaults(experiment: Builder) -> None:
    found = of_units(experiment).load().calendar
    assert found is not None
    assert (str(found.zone), found.lateness) == ("UTC", timedelta(hours=2))
    assert found.missing_after == timedelta(days=2)
    assert experiment().load().calendar is None


def test_a_schedule_of_events_waits_for_the_window(experiment: Builder) -> None:
    found = of_events(experiment, {}, events="may_be_absent").load().calendar
    assert found is not None
    assert (found.window, found.whole_days) == (timedelta(days=1), True)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"since": "yesterday"}, r"schedule.since: 'yesterday' is no day from 1970-01-01 to"),
        ({"since": "1969-12-31"}, r"schedule.since: '1969-12-31' is no day"),
        ({"since": None}, "schedule.since: missing"),
        (
            {"timezone": "Mars"},
            "schedule.timezone: 'Mars' is not a time zone such as Europe/Zurich",
        ),
        ({"lateness": "soon"}, "schedule.lateness: 'soon' is not a whole number and d, h, m or s"),
        ({"missing_after": "-1d"}, "schedule.missing_after: '-1d' is not a whole number"),
        ({"events": "required"}, 'schedule.events: belongs to grain = "event"'),
        ({"events": "sometimes"}, "schedule.events: input should be 'required' or 'may_be_absent'"),
        ({"lateness": 2}, "schedule.lateness: input should be a valid string, not 2"),
        ({"till": "2027-01-01"}, "schedule.till: unknown key"),
        (
            {"untl": "2027-01-01"},
            "schedule.untl: unknown key; remove it or correct its spelling; d",
        ),
        ({"until": "2026-31-12"}, "schedule.until: '2026-31-12' is no day from 1970-01-01 to"),
        (
            {"until": "2026-10-31"},
            "schedule.until: 2026-10-31 is before schedule.since (2026-11-01)",
        ),
    ],
)
def test_what_is_refused(experiment: Builder, keys: dict[str, Any], says: str) -> None:
    assert refused(of_units(experiment, **keys)).startswith(says)


def test_a_schedule_needs_paths_of_periods_and_an_end_of_the_window(experiment: Builder) -> None:
    fixed = experiment(schedule=SINCE)
    assert refused(fixed).startswith("source.path: has no {period}; with [schedule]")
    endless = of_events(experiment, {"window": None})
    assert refused(endless).startswith("source.window: missing: with [schedule]")
    single = of_events(experiment, {"outcomes_path": "done.csv"}, events="required")
    assert refused(single).startswith("schedule.events: is about files of days")
