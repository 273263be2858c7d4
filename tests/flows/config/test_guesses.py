"""Which column is which, by names and types alone."""

import pytest

from flows.config.guesses import Kind, control_of, recognised


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (["customer_id", "variant", "region", "clicks"], "customer_id variant clicks region"),
        (["User ID", "Treatment-Group", "Y"], "User ID|Treatment-Group|Y|"),
        (["id", "arm", "group"], "id arm - -"),
        (["row", "recency", "value"], "- - - -"),
        ([], "- - - -"),
    ],
)
def test_usual_names_are_recognised(columns: list[str], found: str) -> None:
    names = found.split("|") if "|" in found else found.split(" ")
    expected = dict(zip(("unit", "arm", "outcome", "cluster"), names, strict=True))
    told = recognised(dict.fromkeys(columns, "text"), (), ())
    assert told == {key: name for key, name in expected.items() if name not in ("", "-")}


def test_types_decide_too() -> None:
    columns: dict[str, Kind] = {"id": "number", "user": "integer", "arm": "number", "y": "other"}
    assert recognised(columns, (), ()) == {"unit": "user"}


def test_what_is_known_is_not_guessed() -> None:
    columns: dict[str, Kind] = dict.fromkeys(("id", "user", "arm"), "text")
    assert recognised(columns, ("id",), ("unit",)) == {"arm": "arm"}
    assert recognised(columns, ("id",), ()) == {"unit": "user", "arm": "arm"}


@pytest.mark.parametrize(
    ("labels", "control"),
    [
        (["mail", "none"], "none"),
        (["No E-Mail", "Mens E-Mail"], "No E-Mail"),
        (["Control", "Treatment"], "Control"),
        (["new-control", "new"], "new-control"),
        (["control", "placebo"], None),
        (["a", "b"], None),
        (["uncontrolled", "nothing"], None),
        ([], None),
    ],
)
def test_a_label_that_says_so_is_the_control(labels: list[str], control: str | None) -> None:
    assert control_of(labels) == control
