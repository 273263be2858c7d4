"""The schema for editors: every key, with what it means, as the loader has them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from flows.cli.main import run
from flows.config.json_schema import json_schema
from flows.config.keys import fields
from flows.config.model.experiment import Config
from flows.config.model.sections import Privacy

kinds = pytest.mark.parametrize("kind", ["release", "site", "cate"])


def sections(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "", schema
    yield from schema["$defs"].items()


@kinds
def test_every_key_is_explained(kind: str) -> None:
    for place, section in sections(json_schema(kind)):
        assert section["additionalProperties"] is False
        for name, key in section["properties"].items():
            is_section = "$ref" in json.dumps(key)
            assert is_section or key.get("description"), f"{place}.{name}"
            assert "``" not in key.get("description", "")


@kinds
def test_every_reference_leads_somewhere(kind: str) -> None:
    schema = json_schema(kind)
    text = json.dumps(schema)
    for name in schema["$defs"]:
        assert f'"#/$defs/{name}"' in text
    assert text.count("#/$defs/") >= len(schema["$defs"])


def test_it_has_the_keys_of_the_loader() -> None:
    schema = json_schema("release")
    assert set(schema["properties"]) == set(fields(Config)) - {"directory"}
    assert set(schema["required"]) == {
        *("experiment", "source", "columns", "arms", "privacy"),  # and outcome or outcomes
    }
    assert "default" not in schema["properties"]["outcome"]
    of_one, of_several = (
        schema["$defs"][name]["properties"] for name in ("Outcome", "NamedOutcome")
    )
    assert set(of_several) == {*of_one, "name", "column", "share"}
    assert all(key["description"] for key in of_several.values())
    privacy = schema["$defs"]["Privacy"]["properties"]
    assert set(privacy) == set(Privacy.model_fields)
    assert "noisy-histogram" in privacy["mechanism"]["enum"]
    assert privacy["min_stratum"]["default"] == 10


@pytest.mark.parametrize("arguments", [[], ["site"], ["cate", "--json"]])
def test_the_program_prints_it(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(["schema", *arguments]) == 0
    kind = arguments[0] if arguments else "release"
    assert json.loads(capsys.readouterr().out) == json_schema(kind)


def test_no_other_kind_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "log"]) == 2
    assert "'log' is not one of" in capsys.readouterr().err
