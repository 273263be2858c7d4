"""Flows as deployments find them; tests/deploy/test_prefect.py tries the shipped ones."""

from pathlib import Path
from typing import Any

import pytest
from prefect import Flow
from prefect.flows import load_flow_from_entrypoint

from flows.effects.multisite import aggregate, site
from flows.operate.due import nightly
from flows.release import release

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "entrypoint",
    ["flows.release:release", "flows.release.release", f"{ROOT}/flows/release.py:release"],
)
def test_the_flow_is_found_by_its_entry_point(entrypoint: str) -> None:
    found: Flow[..., Any] = load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)
    assert found.name == "clusterdp-release"
    assert list(found.parameters.properties) == [
        "config_path", "period", "revise", "schedule_timezone",
    ]  # fmt: skip
    assert (found.persist_result, found.retries, found.log_prints) == (False, 0, False)


def test_a_flow_is_always_the_same_and_knows_where_it_stands() -> None:
    from flows.release import release as again  # noqa: PLC0415 - made at each of these imports

    assert release is again
    assert release._entrypoint == "flows.release:release"
    assert (nightly._entrypoint, nightly.name) == ("flows.operate.due:nightly", "clusterdp-nightly")
    assert (site._entrypoint, site.name) == ("flows.effects.multisite:site", "clusterdp-site")
    assert aggregate.name == "clusterdp-aggregate"


def test_what_is_no_flow_is_no_attribute() -> None:
    import flows.effects.multisite  # noqa: PLC0415 - the module itself
    import flows.release  # noqa: PLC0415 - the module itself

    for module in (flows.release, flows.effects.multisite):
        assert not hasattr(module, "nothing")
