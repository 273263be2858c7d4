"""The bill of materials: all that a run needs, and nothing that moves by itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy.supply.__main__ import main
from deploy.supply.locked import ROOT, RUN, here, installed_by

MADE_AT = 1_750_000_000


pytestmark = pytest.mark.process  # the schema of CycloneDX takes more than a unit test has


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    into = tmp_path_factory.mktemp("made") / "dist"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", str(MADE_AT))
        assert main(["report", "--into", str(into)]) == 0
        yield into


def bill_in(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("clusterdp-*.cdx.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def name_in(reference: str) -> str:
    return reference.partition("==")[0]


def test_it_holds_what_a_run_installs_and_no_more(made: Path) -> None:
    bill = bill_in(made)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"].startswith("2025-06-15T15:06:40")
    assert bill["metadata"]["component"]["name"] == "clusterdp"
    run = installed_by([ROOT / RUN], here())
    of_npm = [one for one in bill["components"] if one["purl"].startswith("pkg:npm/")]
    assert {one["purl"] for one in of_npm} == {
        "pkg:npm/%40duckdb/duckdb-wasm@1.32.0",
        "pkg:npm/fzstd@0.1.1",
    }
    components = [one for one in bill["components"] if one not in of_npm]
    assert {one["name"]: one["version"] for one in components} == {
        name: one.version for name, one in run.items()
    }
    for one in components:
        assert {each["content"] for each in one["hashes"]} == set(run[one["name"]].hashes)
        assert one["licenses"], one["name"]
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"


@pytest.mark.parametrize(
    ("url", "holds"), [("https://a.example/b?c#d", True), ("b", True), ("https://a b", False)]
)
def test_the_schema_knows_an_address(url: str, holds: bool) -> None:
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6"}
    links = {"externalReferences": [{"type": "website", "url": url}]}
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill | links))
    assert (fault is None) == holds


def test_it_says_what_needs_what(made: Path) -> None:
    needs = {
        name_in(each["ref"]): {name_in(one) for one in each.get("dependsOn", [])}
        for each in bill_in(made)["dependencies"]
    }
    assert {"duckdb", "polars", "opendp", "prefect", "causaldata"} <= needs["clusterdp"]
    assert "polars-runtime-32" in needs["polars"]
    reached, left = set[str](), {"clusterdp"}
    while left:
        reached |= left
        left = {each for one in left for each in needs[one]} - reached
    assert reached == set(needs)  # nothing is locked that nobody asks for


def test_two_are_the_same_bytes(made: Path, tmp_path: Path) -> None:
    assert main(["report", "--into", str(tmp_path / "again")]) == 0
    names = sorted(path.name for path in made.iterdir())
    assert len(names) == 2
    for name in names:
        assert (made / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_the_licences_are_told_for_runs_and_for_tests(made: Path) -> None:
    (path,) = made.glob("*.licences.txt")
    run, tests = path.read_text(encoding="utf-8").split("For building and tests alone")
    assert "\nprefect " in run
    assert "\nhypothesis " in tests
    assert "\n@duckdb/duckdb-wasm " in tests
    assert "GPL-3.0-only" not in run.replace("LGPL-3.0-only", "")
