"""Canaries in outcome events: their values, ids, times and number are looked for everywhere.

As in :mod:`tests.boundary.test_canary`, whose search and surroundings these are.
"""

import gzip
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import run
from flows.runtime import progress
from schemas.errors import ClusterdpError, InputError, StepError
from tests.boundary.canary import (
    Explosive,
    Number,
    contents,
    leaks_into,
    spelt,
)
from tests.boundary.planted import CLIPPED, N_EVENTS, Planted, plant_events
from tests.boundary.test_canary import Failure, as_a_panic, in_a_chain
from tests.boundary.watched import Watch
from tests.conftest import Builder, released, told
from tests.support.spilling import Spilled

SPILLING = {"memory_limit": "4MB"}


@pytest.fixture
def watch(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Watch:
    # Prefect is told how far a run has come from the first row on.
    monkeypatch.setattr(progress, "_ARTIFACT_QUIET", -1.0)
    monkeypatch.setattr(progress, "_ARTIFACT_EVERY", -1.0)
    return watch


OF_EVENTS = {"value", "event id", "event time", "unexposed id"}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_search_finds_what_is_planted(experiment: Builder, ending: str) -> None:
    """All of it stands in the log, but for what is computed from it."""
    planted = plant_events(experiment, ending)
    (log,) = planted.built.folder.glob("log.events.*")
    pieces = list(contents(log))
    assert {one.name for one in planted.secrets if any(map(one.is_in, pieces))} == OF_EVENTS


@pytest.mark.parametrize("text", [f"read {N_EVENTS:,} events", f'{{"n": {N_EVENTS}}}', "71993.0"])
def test_the_search_finds_a_number_of_events(tmp_path: Path, text: str) -> None:
    number = Number("n", (), number=N_EVENTS)
    (tmp_path / "file").write_text("0.71993 171993 a71993 10:71993 -71993- 71993.5")
    assert leaks_into(tmp_path, number) == []
    (tmp_path / "file").write_text(text)
    assert leaks_into(tmp_path, number)
    (tmp_path / "file").write_bytes(gzip.compress(text.encode()))
    assert leaks_into(tmp_path, number)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("ending", "sections"),
    [
        ("parquet", {"run": SPILLING}),
        ("jsonl", {"outcome": CLIPPED | {"aggregate": "max", "cap": 2.0}}),
    ],
    ids=["Parquet, beside memory", "JSON Lines, clipped"],
)
def test_a_release_holds_nothing_of_an_event(
    experiment: Builder,
    watch: Watch,
    spilled: list[Spilled],
    ending: str,
    sections: dict[str, Any],
) -> None:
    planted = plant_events(experiment, ending, **sections)
    result = planted.built.run()
    again = planted.built.run()
    assert (result.status, again.status) == ("published", "unchanged")
    assert result.roster.quarantined_by_rule == {"unit_in_two_arms": 2}
    assert len(released(result.path, "units")) == result.roster.n_units == 23
    assert bool(spilled) == ("run" in sections)
    assert not any(file.path.exists() for file in spilled)
    assert watch.leaks(planted, result, again) == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("target", "at_stake", "failure", "ending"),
    [
        ("flows.raw.ingest.outcome", OF_EVENTS, in_a_chain, "csv"),
        (
            "flows.raw.validate.attributed",
            {"value", "event id", "event time"},
            in_a_chain,
            "parquet",
        ),
        ("flows.raw.units.attribution._aggregated", {"value", "since"}, as_a_panic, "parquet"),
        ("polars.DataFrame.write_ipc", set(), in_a_chain, "parquet"),
    ],
)
def test_a_step_that_fails_tells_nothing_of_an_event(
    experiment: Builder,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    at_stake: set[str],
    failure: Failure,
    ending: str,
) -> None:
    spills = "write_ipc" in target
    planted = plant_events(experiment, ending, **({"run": SPILLING} if spills else {}))
    explosive = Explosive(failure)
    with monkeypatch.context() as failing:
        failing.setattr(target, explosive)
        with pytest.raises(ClusterdpError) as caught:
            planted.built.run()
    assert isinstance(caught.value, StepError)
    held = {secret.name for secret in planted.secrets if secret.is_in(explosive.said)}
    assert spills or at_stake <= held
    assert explosive.said or spills
    assert watch.leaks(planted, told(caught.value)) == []
    assert not list(planted.built.releases.glob("*"))
    assert not list((planted.built.folder / "quarantine").glob(".spill*"))


@pytest.mark.usefixtures("way")
def test_a_log_of_events_that_cannot_be_read_tells_nothing_of_it(
    experiment: Builder, watch: Watch
) -> None:
    """But for the line that cannot be read, which is told on purpose."""
    planted = plant_events(experiment, "jsonl")
    (log,) = planted.built.folder.glob("log.events.*")
    log.write_bytes(log.read_bytes()[:-5])
    with pytest.raises(InputError, match="cannot be read as") as caught:
        planted.built.run()
    assert run(["check", str(planted.built.config)], debug=True) == 2
    known = Planted(
        planted.built, tuple(one for one in planted.secrets if not isinstance(one, Number))
    )
    assert watch.leaks(known, told(caught.value)) == []


def test_what_a_watcher_would_find_is_found(experiment: Builder, watch: Watch) -> None:
    """Were the tables of the log to come back, as a result, or to stay in a file."""
    planted = plant_events(experiment)
    config = planted.built.load()
    from flows.raw.ingest import ingest  # noqa: PLC0415 - what nothing outside may do

    raw = next(ingest(config.log_source, "once").open().event_batches())
    (planted.built.folder / "left.txt").write_text(spelt(raw.head(4)))
    found = watch.leaks(planted, raw, N_EVENTS)
    assert {leak.partition(" in ")[0] for leak in found if "came back" in leak} >= OF_EVENTS
    assert "number of events in what came back" in found
    assert any(leak.endswith("left.txt") for leak in found)
