"""Logs as JSON: one object a line, with what is known of the run."""

import json
import logging
from collections.abc import Iterator
from io import StringIO

import pytest

from flows.runtime import logs
from flows.runtime.progress import Progress


@pytest.fixture
def stream() -> Iterator[StringIO]:
    """What a handler with the formatter writes of the program's log."""
    written, log = StringIO(), logging.getLogger("clusterdp")
    handler = logging.StreamHandler(written)
    handler.setFormatter(logs.JsonFormatter("default", None, "%"))  # as Prefect makes one
    level, log.propagate = log.level, False
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    logs.choose_json(chosen=True)
    yield written
    logs.choose_json(chosen=False)
    log.removeHandler(handler)
    log.setLevel(level)
    log.propagate = True


def lines(stream: StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_lines_have_what_is_known_of_their_run(stream: StringIO) -> None:
    log = logging.getLogger("clusterdp")
    log.info("before")
    with logs.known(experiment="autumn", period="2026-11-01", run="a1"):
        log.info("reading %d", 3)
        logs.learn(release_id="autumn.2026-11-01.r1")
        logs.tell(logging.WARNING, "late", state="waiting")
    with logs.known(experiment="winter"):
        log.info("another")
    logs.learn(release_id="nobody's")
    log.error("after")
    before, reading, late, another, after = lines(stream)
    assert list(before) == list(after) == ["time", "level", "message"]
    assert (before["level"], after["level"]) == ("info", "error")
    run = {"experiment": "autumn", "period": "2026-11-01", "run": "a1"}
    assert reading.items() >= {"message": "reading 3", **run}.items()
    assert "release_id" not in reading
    more = {"release_id": "autumn.2026-11-01.r1", "state": "waiting", "level": "warning"}
    assert late.items() >= {**run, **more}.items()
    assert set(another) == {"time", "level", "message", "experiment"}


def test_lines_for_people_begin_with_their_night_once(caplog: pytest.LogCaptureFixture) -> None:
    logs.warn("before")
    with logs.known(experiment="autumn", period="2026-11-01", run="a1"):
        logs.warn("late")
        logs.warn("autumn 2026-11-01: nobody was told")
        assert Progress("counting").line(2.0) == "autumn 2026-11-01: counting: 0 rows, 0 a second"
    of_night = "clusterdp: warning: autumn 2026-11-01:"
    told = [record.getMessage() for record in caplog.records]
    assert told == ["clusterdp: warning: before", f"{of_night} late", f"{of_night} nobody was told"]


def test_no_name_breaks_a_line_and_no_error_tells_its_text(stream: StringIO) -> None:
    log = logging.getLogger("clusterdp")
    log.info("one\nand\x1b[31m\u202eanother")
    try:
        raise ValueError("987654.5")
    except ValueError:
        log.exception("failed")
    told, failed = lines(stream)
    assert "\x1b" not in str(told["message"])
    assert failed["error"] == "ValueError"
    assert "987654" not in stream.getvalue()


def test_people_are_not_told_twice(stream: StringIO) -> None:
    logs.choose_json(chosen=False)
    logs.tell(logging.INFO, "of machines alone")
    assert stream.getvalue() == ""
