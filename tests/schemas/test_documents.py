"""Dataclasses as documents and back: all fields and no others, each of its own type."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from schemas.arrays import Floats
from schemas.documents import (
    Document,
    OpenDocument,
    Sort,
    fields_of,
    opened,
    parsed_as,
    plain,
    sealed,
    taken,
)
from schemas.errors import InputError

SECRET = 8675309
SORT = Sort("a-kind", 3, "a paper", "draw CONFIG")


@dataclass(frozen=True)
class Inner:
    weight: float
    tags: tuple[str, ...] = ("none",)


@dataclass(frozen=True)
class Outer(Document):
    name: str
    count: int
    one: Inner
    many: tuple[Inner, ...]
    way: Literal["up", "down"] = "up"
    note: str | None = None


@dataclass(frozen=True)
class Loose(OpenDocument):
    name: str
    count: int = 0


FOUND = Outer("π", 2**60, Inner(0.1 + 0.2), (Inner(1e-300, ()), Inner(-0.0, ("a", "b"))), "down")


def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(FOUND.as_json()))
    return found


def test_a_document_comes_back_as_it_was() -> None:
    assert parsed_as(Outer, content(), "x") == FOUND
    assert list(content()) == ["name", "count", "one", "many", "way", "note"]


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda one: one.update(count=True), "count: input should be a valid integer"),
        (lambda one: one.update(count=float(SECRET)), "count: input should be a valid integer"),
        (lambda one: one.update(count=f"{SECRET}"), "count: input should be a valid integer"),
        (lambda one: one.update(name=SECRET), "name: input should be a valid string"),
        (lambda one: one.update(name=""), "name: string should have at least 1"),
        (lambda one: one.update(way=f"{SECRET}"), "way: input should be 'up' or 'down'"),
        (lambda one: one.update(more=SECRET), "more: no such field"),
        (lambda one: one.update({"m" * 9999: SECRET}), "mmm.*…: no such field"),
        (lambda one: one.pop("name"), "name: field required"),
        (lambda one: one.pop("note"), "note: field required"),
        (lambda one: one.update(one=[SECRET]), "one: input should be an object"),
        (lambda one: one["one"].update(weight=float("nan")), "one.weight: input should be a fini"),
        (lambda one: one["one"].update(weight=float("inf")), "one.weight: input should be a fini"),
        (lambda one: one["one"].update(weight=True), "one.weight: input should be a valid number"),
        (lambda one: one["one"].update(weight=10**400), "one.weight: input should be a finite"),
        (lambda one: one["many"][1].update(more=SECRET), "many.1.more: no such field"),
        (lambda one: one["many"][1].pop("tags"), "many.1.tags: field required"),
        (lambda one: one["many"][1]["tags"].append(SECRET), "many.1.tags.2: input should be a val"),
    ],
)
def test_what_is_none_is_refused_by_its_key_and_without_its_value(
    change: Change, says: str
) -> None:
    document = content()
    change(document)
    with pytest.raises(InputError, match=f"^x: {says}") as caught:
        parsed_as(Outer, document, "x")
    assert str(SECRET) not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("document", [[], 3, None, "x", True])
def test_a_document_is_an_object(document: object) -> None:
    with pytest.raises(InputError, match=r"^x: the document: input should be an object"):
        parsed_as(Outer, document, "x")


def test_an_open_document_may_have_more_and_no_less() -> None:
    assert parsed_as(Loose, {"name": "", "count": 1, "more": 2}, "x") == Loose("", 1)
    for document, says in (({"name": "a"}, "count: field"), ({"name": 1, "count": 1}, "name: ")):
        with pytest.raises(InputError, match=f"^x: {says}"):
            parsed_as(Loose, document, "x")


@dataclass(frozen=True)
class Shown:
    path: Path
    numbers: Floats
    outer: Outer
    named: dict[str, tuple[int, ...]]


def test_everything_has_a_spelling() -> None:
    shown = Shown(Path("/a/b"), np.array([0.5, 1.0]), FOUND, {"x": (1, 2)})
    found = fields_of(shown)
    assert found == {
        "path": "/a/b",
        "numbers": [0.5, 1.0],
        "outer": FOUND.as_json(),
        "named": {"x": [1, 2]},
    }
    json.dumps(found, allow_nan=False)
    assert plain(np.float64(0.5)) == 0.5
    assert plain(None) is None


def test_a_part_is_taken_of_the_first_that_has_it() -> None:
    assert taken(Inner, Inner(1.0), Inner(2.0, ()), tags=("x",)) == Inner(1.0, ("x",))
    assert taken(Loose, FOUND) == Loose("π", 2**60)
    with pytest.raises(TypeError, match="weight"):
        taken(Inner, FOUND)


SOUND = {"kind": "a-kind", "schema_version": 3, "name": "é"}


def test_what_is_sealed_is_opened() -> None:
    text = sealed(SOUND, indent=1)
    assert opened(text, "x", SORT) == SOUND
    assert opened(json.dumps(dict(sorted(json.loads(text).items()))), "x", SORT) == SOUND


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (sealed(SOUND | {"kind": "other"}, indent=1), "not a paper .*clusterdp draw CONFIG"),
        (sealed(SOUND | {"schema_version": 4}, indent=1), "a paper of schema version 4, .*3; vers"),
        (sealed(SOUND, indent=1).replace("é", "e"), "altered by hand, or cut short"),
        (json.dumps(SOUND), "altered by hand, or cut short"),
        (
            sealed(SOUND, indent=1).replace('"name"', '"kind": 1, "name"'),
            "stands in it twice",
        ),
        (sealed(SOUND, indent=1)[:-3], "not a JSON document, or cut short; a paper is one"),
    ],
)
def test_what_is_not_as_it_was_sealed_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=f"^x: .*{says}"):
        opened(text, "x", SORT)
