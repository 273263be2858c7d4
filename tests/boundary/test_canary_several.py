"""Canaries in each of three outcomes, one of them text, beside attributes and households.

As in :mod:`tests.boundary.test_canary`, whose search and surroundings these are.
"""

from pathlib import Path

import pytest

from flows.cli.main import run
from flows.released.report import write_report
from schemas.errors import StepError
from tests.boundary.canary import Explosive, contents
from tests.boundary.planted import Planted, plant_several
from tests.boundary.test_canary import Failure, as_a_panic, in_a_chain
from tests.boundary.watched import Watch
from tests.conftest import Builder, released, told

OUTCOMES = {"clicks", "spend", "answer"}


@pytest.mark.parametrize("events", [False, True], ids=["units", "events"])
@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_the_search_finds_what_is_planted(
    experiment: Builder, ending: str, *, events: bool
) -> None:
    planted = plant_several(experiment, ending, events=events)
    pieces = [piece for log in planted.built.folder.glob("log.*") for piece in contents(log)]
    found = {one.name for one in planted.secrets if any(map(one.is_in, pieces))}
    assert found == {*OUTCOMES, "household", "id set aside", *(["event id"] if events else [])}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("ending", "events"),
    [("parquet", False), ("csv", False), ("jsonl", True), ("csv", True)],
)
def test_a_release_of_three_outcomes_holds_none_of_them(
    request: pytest.FixtureRequest, experiment: Builder, watch: Watch, ending: str, *, events: bool
) -> None:
    """Nor a page of it and other commands: these run no flow, so one of the two ways has them.

    One of the formats is of a release that is planned, by sizes: it takes longest.
    """
    mechanism = "auto" if ending == "parquet" else "uniform-prior-dp"
    planted = plant_several(experiment, ending, mechanism, events=events)
    result = planted.built.run()
    again = planted.built.run()
    assert (result.status, again.status) == ("published", "unchanged")
    assert result.roster.quarantined_by_rule == {"arm_not_declared": 1, "assigned_arms": 2}
    units = released(result.path, "units")
    drawn = ["clicked_randomised", "spent_randomised", "answered_randomised"]
    assert units.columns[4::3] == [*drawn, "country"]
    assert len(units) == 46
    if request.node.callspec.params["way"] == "plain":
        _page_and_commands(planted, result.path, has_page=ending != "csv")
    assert watch.leaks(planted, result, again) == []


def _page_and_commands(planted: Planted, release: Path, *, has_page: bool) -> None:
    if has_page:  # it shows the file alone, in which logs of another format are no different
        page = write_report(release, planted.built.folder / "page.html")
        page.chmod(0o600)  # it may be read by anybody, which is looked for below
    config = str(planted.built.config)
    for command in (["check", config], ["plan", config, "--json"], ["ledger", config]):
        assert run(command) == 0


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("target", "at_stake", "failure", "ending", "events"),
    [
        ("flows.raw.ingest.text_outcome", {"answer"}, in_a_chain, "csv", False),
        ("flows.raw.ingest.map_outcomes", {"clicks"}, in_a_chain, "parquet", False),
        ("flows.raw.validate._attributed", OUTCOMES - {"answer"}, as_a_panic, "parquet", True),
        ("flows.raw.drawing.strata_counts.StrataCounter.of", {"clicks"}, in_a_chain, "csv", False),
        ("flows.raw.drawing.unit_stream._Drawing.drawn", set(), in_a_chain, "parquet", False),
        ("flows.raw.fingerprint._other_parts", {"clicks"}, as_a_panic, "parquet", False),
    ],
)
def test_a_step_that_fails_tells_no_outcome(
    experiment: Builder,
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    at_stake: set[str],
    failure: Failure,
    ending: str,
    *,
    events: bool,
) -> None:
    planted = plant_several(experiment, ending, events=events)
    explosive = Explosive(failure)
    with monkeypatch.context() as failing:
        failing.setattr(target, explosive)
        with pytest.raises(StepError) as caught:
            planted.built.run()
    assert at_stake <= {one.name for one in planted.secrets if one.is_in(explosive.said)}
    assert explosive.said
    assert watch.leaks(planted, told(caught.value), caught.value) == []
    assert not list(planted.built.releases.glob("*"))
