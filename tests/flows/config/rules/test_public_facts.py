"""Which columns may be attributes, and which may say what was randomised."""

from typing import Any

import pytest

from privatizers.planning.design import MARGINS_SHARE
from schemas.errors import ConfigError
from tests.conftest import Builder, Section, a_log

PARAMETERS = {"resampling_probability": 0.5, "truncation_threshold": 0.1, "noise_scale": 9.0}
EVENTS: dict[str, Section] = {
    "source": {"grain": "event", "outcomes_path": "events.parquet"},
    "outcome": {"aggregate": "count"},
}


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (["clicks"], "is columns.outcome already; an outcome is protected"),
        (["customer"], "is columns.unit already"),
        (["variant"], "is columns.arm already"),
        (["home"], "is columns.assigned_by already"),
        (["country", "country"], "named twice"),
        (["country", "Country"], "named twice"),
        (["unit_id"], "clusterdp's own"),
        (["Cluster"], "clusterdp's own"),
        (["ARM"], "clusterdp's own"),
        (["assigned_to"], "clusterdp's own"),
        (["segment"], "clusterdp's own"),
        (["outcome"], "clusterdp's own"),
        (["outcome_debiased"], "clusterdp's own"),
        (["x_randomised"], "clusterdp's own"),
        (["weight"], "clusterdp's own"),
        (["spend_Debiased"], "clusterdp's own"),
        (["rowid"], "clusterdp's own"),
        (["zip code"], "give the column a name of its own: attributes = { NAME = "),
        (["2nd"], "give the column a name of its own: attributes = { NAME = "),
        ([""], "give the column a name of its own: attributes = { NAME = "),
        (['a"b'], "give the column a name of its own: attributes = { NAME = "),
        (["größe"], "give the column a name of its own: attributes = { NAME = "),
        (["a" * 64], "give the column a name of its own: attributes = { NAME = "),
        ({"where": "clicks"}, "is columns.outcome already; an outcome is protected"),
        ({"where": "customer"}, "is columns.unit already"),
        ({"zip code": "region"}, "give the column a name of its own: attributes = { NAME = 'reg"),
        ({"outcome": "region"}, "another name: attributes = { NAME = 'region' }"),
        ({"zip": "region", "ZIP": "state"}, "named twice"),
        ([f"a{number}" for number in range(51)], "51 attributes; at most 50"),
    ],
)
def test_an_attribute_has_a_name_and_a_meaning_of_its_own(
    experiment: Builder, attributes: list[str] | dict[str, str], words: str
) -> None:
    columns = {"attributes": attributes, "assigned_by": "home"}
    with pytest.raises(ConfigError) as caught:
        experiment(a_log(8), columns=columns).load()
    assert caught.value.key == "columns.attributes"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("clicks", "is columns.outcome already; an outcome is protected"),
        ("customer", "is columns.unit already"),
        ("variant", "is columns.arm already"),
        ("region", "every cluster would have one arm"),
    ],
)
def test_a_group_has_a_meaning_of_its_own(experiment: Builder, group: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(a_log(8), columns={"assigned_by": group}).load()
    assert caught.value.key == "columns.assigned_by"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "sections",
    [
        {"columns": {"privacy_unit": "clicks"}},
        {
            "columns": {"outcome": None, "privacy_unit": "income"},
            "outcome": None,
            "outcomes": [
                {"name": "visit", "column": "clicks", "values": [0, 1]},
                {"name": "income", "column": "income", "values": [0, 1]},
            ],
        },
        {
            "columns": {"privacy_unit": "region"},
            "privacy": {"mechanism": "uniform-prior-dp"},
            "arms": {"same_shares": True},
            "private_clusters": {"epsilon": 1.0, "labels": ["east", "west"]},
        },
    ],
    ids=["the outcome", "one of several", "private clusters"],
)
def test_who_pays_is_nothing_that_is_protected(
    experiment: Builder, sections: dict[str, Any]
) -> None:
    """Else whether a run succeeds, and who is in it, would depend on it."""
    privacy = {"rows_each": 2, **sections.get("privacy", {})}
    with pytest.raises(ConfigError, match=r"protected|private clusters") as caught:
        experiment(a_log(8), **{**sections, "privacy": privacy}).load()
    assert caught.value.key == "columns.privacy_unit"


@pytest.mark.parametrize("key", ["attributes", "assigned_by"])
@pytest.mark.parametrize("name", ["seen", "event", "happened"])
def test_what_belongs_to_events_is_no_public_fact(experiment: Builder, key: str, name: str) -> None:
    columns = {
        "time": "seen",
        "event": "event",
        "outcome_time": "happened",
        key: [name] if key == "attributes" else name,
    }
    with pytest.raises(ConfigError, match=rf"columns.{key}: '{name}' is columns."):
        experiment(a_log(8), columns=columns, **EVENTS).load()


@pytest.mark.parametrize("key", ["attributes", "assigned_by"])
@pytest.mark.parametrize(
    "sections",
    [
        {"privacy": {"mechanism": "noisy-histogram"}},
        {
            "privacy": {"mechanism": "uniform-prior-dp"},
            "arms": {"same_shares": True},
            "private_clusters": {"epsilon": 1.0, "labels": ["east", "west"]},
        },
    ],
)
def test_public_facts_need_units_with_public_clusters(
    experiment: Builder, key: str, sections: dict[str, Any]
) -> None:
    columns = {key: ["country"] if key == "attributes" else "home"}
    with pytest.raises(ConfigError) as caught:
        experiment(a_log(8), columns=columns, **sections).load()
    assert caught.value.key == f"columns.{key}"


def test_a_column_of_clusters_may_be_an_attribute(experiment: Builder) -> None:
    built = experiment(a_log(8), columns={"attributes": ["region"]})
    assert built.load().columns.attributes == ("region",)
    built = experiment(
        a_log(8), columns={"assigned_by": "home", "privacy_unit": "home"}, privacy={"rows_each": 2}
    )
    assert built.load().columns.assigned_by == "home"


SEVERAL = """
[[outcomes]]
name = "visit"
column = "visits"
values = [0, 1]
[[outcomes]]
name = "Spend"
column = "clicks"
values = [0, 1, 2]
"""


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("visits", r"'visits' is outcomes[0].column already; an outcome is protected"),
        ("clicks", r"'clicks' is outcomes[1].column already; an outcome is protected"),
        ("spend", "'spend' is a name of clusterdp's own"),
        ("VISIT", "'VISIT' is a name of clusterdp's own"),
    ],
)
def test_no_attribute_is_one_of_several_outcomes(
    experiment: Builder, attribute: str, words: str
) -> None:
    built = experiment(a_log(8), columns={"outcome": None, "attributes": [attribute]})
    written = built.config.read_text().replace("[outcome]\nvalues = [0, 1, 2, 3]\n", "")
    built.config.write_text(written + SEVERAL)
    with pytest.raises(ConfigError) as caught:
        built.load()
    assert caught.value.key == "columns.attributes"
    assert words in str(caught.value)


NO_UNITS = {"mechanism": "noisy-histogram"}


@pytest.mark.parametrize(
    ("margins", "words", "privacy"),
    [
        (["nowhere"], "'nowhere' is none of columns.attributes; name it there, too", {}),
        ([["country", "nowhere"]], "'nowhere' is none of columns.attributes", {}),
        (["country", "country"], "'country' is there twice", {}),
        ([["age", "country"], ["country", "age"]], "'country, age' is there twice", {}),
        ([["age", "age"]], "'age, age' has to name attributes, each of them once", {}),
        ([[]], "has to name attributes", {}),
        ({"country": 0.0}, "0.0 is a share that is not from 0.001 to 1000", {}),
        ({"country": 1, "age": 2000}, "2000.0 is a share that is not from", {}),
        ([["age", "a1"]] * 21, "21 of them; at most 20 can be", {}),
        (["country"], "are reconciled with released units", NO_UNITS),
        (["country"], "are paid from privacy.epsilon", {"epsilon": None, **PARAMETERS}),
    ],
)
def test_margins_are_of_published_attributes(
    experiment: Builder, margins: Any, words: str, privacy: dict[str, Any]
) -> None:
    columns = {"attributes": ["country", "age"]}
    with pytest.raises(ConfigError) as caught:
        experiment(a_log(8), columns=columns, privacy={"margins": margins, **privacy}).load()
    assert f"privacy.margins: {words}" in str(caught.value) or words in str(caught.value)
    assert "privacy.margins" in str(caught.value)


def test_margins_need_a_grid_of_whole_steps(experiment: Builder) -> None:
    odd = {"values": [0, 1, 3.14159265358979]}
    for mechanism in ("auto", "cluster-dp", "cluster-optimal-dp"):
        privacy = {"margins": ["age"], "mechanism": mechanism}
        made = experiment(
            a_log(80).with_columns(age=1),
            outcome=odd,
            columns={"attributes": ["age"]},
            privacy=privacy,
        )
        with pytest.raises(ConfigError, match="margins: need a grid whose points lie whole steps"):
            made.run()


def test_two_outcomes_with_margins_are_drawn_apart(experiment: Builder) -> None:
    outcomes = [{"name": one, "column": "clicks", "values": [0, 1, 3]} for one in ("a", "b")]
    parts: dict[str, Any] = {
        "outcome": None,
        "outcomes": outcomes,
        "columns": {"outcome": None, "attributes": ["age"]},
    }
    tables = {"mechanism": "cluster-optimal-dp", "margins": ["age"]}
    with pytest.raises(ConfigError, match=r"privacy.joint: does not go with privacy.margins"):
        experiment(a_log(8), **parts, privacy={**tables, "joint": "yes"}).load()
    assert experiment(a_log(8), **parts, privacy={**tables, "joint": "auto"}).load().margins


def test_shares_of_margins_follow_their_weights(experiment: Builder) -> None:
    columns = {"attributes": ["country", "age"]}
    equal = experiment(columns=columns, privacy={"margins": ["country", ["age", "country"]]}).load()
    assert equal.margins == (("country",), ("age", "country"))
    assert equal.margin_shares == (MARGINS_SHARE / 2, MARGINS_SHARE / 2)
    weighted = experiment(
        columns=columns, privacy={"margins": {"country": 3, "age,country": 1}}
    ).load()
    assert weighted.margins == equal.margins
    assert weighted.margin_shares == pytest.approx((0.75 * MARGINS_SHARE, 0.25 * MARGINS_SHARE))
