"""Periods: when days begin and end, when they are due, and which days a window reaches."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.schedule.durations import length_of
from flows.schedule.periods import Schedule, day_of, zone_of

ZURICH = ZoneInfo("Europe/Zurich")
ZONES = [
    "UTC", "Europe/Zurich", "America/New_York", "Pacific/Apia", "Africa/Cairo",
    "America/Havana", "Australia/Lord_Howe", "Pacific/Kiritimati", "Asia/Kathmandu",
]  # fmt: skip
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def day(text: str) -> date:
    return date.fromisoformat(text)


def schedule(zone: str = "Europe/Zurich", window: timedelta = timedelta()) -> Schedule:
    return Schedule(day("2026-01-01"), ZoneInfo(zone), window)


@pytest.mark.parametrize(
    ("zone", "period", "end"),
    [
        ("UTC", "2026-11-20", "2026-11-21T00:00"),
        ("Europe/Zurich", "2026-11-20", "2026-11-20T23:00"),
        ("Europe/Zurich", "2026-07-20", "2026-07-20T22:00"),
        # the days on which clocks change have 23 and 25 hours
        ("Europe/Zurich", "2026-03-29", "2026-03-29T22:00"),
        ("Europe/Zurich", "2026-10-25", "2026-10-25T23:00"),
        # midnight that does not exist: the day begins with the jump, at 1:00
        ("Africa/Cairo", "2026-04-23", "2026-04-23T22:00"),
        # midnight that comes twice: the first of both
        ("America/Havana", "2026-10-31", "2026-11-01T04:00"),
        ("Pacific/Kiritimati", "2026-11-20", "2026-11-20T10:00"),
    ],
)
def test_a_day_ends_where_the_clocks_of_its_zone_say_so(zone: str, period: str, end: str) -> None:
    assert schedule(zone).end(day(period)) == at(end)


def test_a_period_is_due_once_it_its_window_and_late_rows_are_over() -> None:
    found = Schedule(day("2026-01-01"), ZURICH, 7 * DAY, 2 * HOUR, DAY)
    assert found.due_at(day("2026-11-20")) == at("2026-11-28T01:00")
    assert found.missing_at(day("2026-11-20")) == at("2026-11-29T01:00")
    # a window is time that has passed: over the end of summer time it ends an hour earlier
    assert found.due_at(day("2026-10-20")) == at("2026-10-28T00:00")


def days(*texts: str) -> tuple[date, ...]:
    return tuple(map(day, texts))


@pytest.mark.parametrize(
    ("window", "period", "reached"),
    [
        (timedelta(), "2026-11-20", ["2026-11-20"]),
        (timedelta(seconds=1), "2026-11-20", ["2026-11-20", "2026-11-21"]),
        (DAY, "2026-11-20", ["2026-11-20", "2026-11-21"]),
        (DAY + HOUR, "2026-11-20", ["2026-11-20", "2026-11-21", "2026-11-22"]),
        # 24 hours end within the day of 25, and go beyond the day of 23
        (DAY, "2026-10-24", ["2026-10-24", "2026-10-25"]),
        (DAY, "2026-03-28", ["2026-03-28", "2026-03-29", "2026-03-30"]),
    ],
)
def test_a_window_reaches_the_days_in_which_an_event_may_count(
    window: timedelta, period: str, reached: list[str]
) -> None:
    assert schedule(window=window).days_reached(day(period)) == days(*reached)


def test_where_files_may_be_absent_the_last_day_reached_has_to_be_over() -> None:
    part = Schedule(day("2026-01-01"), ZURICH, 12 * HOUR, 2 * HOUR, whole_days=True)
    assert part.due_at(day("2026-11-20")) == at("2026-11-22T01:00")
    whole = Schedule(day("2026-01-01"), ZURICH, DAY, 2 * HOUR, whole_days=True)
    assert whole.due_at(day("2026-11-20")) == at("2026-11-22T01:00")
    assert whole.due_at(day("2026-03-28")) == at("2026-03-31T00:00")


def test_periods_begin_with_the_first_and_end_with_today() -> None:
    found = Schedule(day("2026-11-19"), ZURICH)
    assert found.begun(at("2026-11-18T22:59")) == []
    assert found.begun(at("2026-11-18T23:00")) == [day("2026-11-19")]
    assert len(found.begun(at("2027-11-18T22:59"))) == 365
    assert found.next_due(at("2020-01-01T00:00")) == at("2026-11-19T23:00")
    assert found.next_due(at("2026-11-19T23:00")) == at("2026-11-20T23:00")


def next_due(found: Schedule, now: datetime) -> datetime:
    """When something is due next by a schedule that has no end."""
    moment = found.next_due(now)
    assert moment is not None
    return moment


def test_after_the_last_period_nothing_begins_or_becomes_due() -> None:
    found = Schedule(day("2026-11-19"), ZURICH, lateness=2 * HOUR, until=day("2026-11-20"))
    assert tuple(found.begun(at("2026-11-20T12:00"))) == days("2026-11-19", "2026-11-20")
    assert found.begun(at("2030-01-01T00:00")) == found.begun(at("2026-11-20T12:00"))
    last = at("2026-11-21T01:00")
    assert found.next_due(last - timedelta(microseconds=1)) == last
    assert found.next_due(last) is None
    assert found.next_due(at("2030-01-01T00:00")) is None
    assert [found.has(one) for one in days("2026-11-18", "2026-11-19", "2026-11-20")] == [
        False, True, True,
    ]  # fmt: skip
    assert not found.has(day("2026-11-21"))


def test_a_day_that_a_zone_has_skipped_is_no_period() -> None:
    apia = Schedule(day("2011-12-28"), ZoneInfo("Pacific/Apia"), window=DAY)
    begun = apia.begun(at("2011-12-31T12:00"))
    assert tuple(begun) == days("2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01")
    assert apia.days_reached(day("2011-12-29")) == days("2011-12-29", "2011-12-31")
    assert apia.next_due(apia.due_at(day("2011-12-29"))) == apia.due_at(day("2011-12-31"))


@given(
    st.sampled_from(ZONES),
    st.dates(day("1990-01-01"), day("2090-01-01")),
    st.timedeltas(timedelta(), timedelta(days=40)),
    st.timedeltas(timedelta(), timedelta(days=40)),
)
def test_days_lie_one_after_the_other_and_windows_in_the_days_they_reach(
    zone: str, one: date, window: timedelta, lateness: timedelta
) -> None:
    found = Schedule(one, ZoneInfo(zone), window, lateness)
    start, end = found.start(one), found.end(one)
    assert timedelta() <= end - start <= timedelta(hours=26)
    reached = found.days_reached(one)
    assert reached[0] == one
    if start < end:
        assert found.today(start) == one
        assert found.today(end - timedelta(microseconds=1)) == one
        assert found.start(reached[-1]) < end + window <= found.end(reached[-1])
    now = found.due_at(one)
    assert next_due(found, now) > now
    assert next_due(found, now - timedelta(microseconds=1)) <= max(now, found.end(one) + window)
    assert one <= max(found.begun(now), default=one)


@pytest.mark.parametrize(
    "period", ["2026-1-1", "20261101", "2026-W01-1", "2026-11-31", "once", "", "0001-01-01"]
)
def test_what_is_written_otherwise_is_no_day(period: str) -> None:
    assert day_of(period) is None


def test_names_of_days_and_zones() -> None:
    assert day_of("2028-02-29") == day("2028-02-29")
    assert zone_of("Europe/Zurich") == ZURICH
    for name in ("", "Mars", "../UTC", "/etc/localtime", "\0", "Europe"):
        assert zone_of(name) is None


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("0s", timedelta()),
        ("90s", timedelta(seconds=90)),
        ("30m", HOUR / 2),
        ("36525d", 36525 * DAY),
    ],
)
def test_lengths_of_time(text: str, length: timedelta) -> None:
    assert length_of(text) == length


@pytest.mark.parametrize(
    "text", ["", "1", "d", "-1d", "1.5h", "01h", "36526d", "9999999999d", "1d "]
)
def test_what_is_no_length_of_time(text: str) -> None:
    assert length_of(text) is None
