"""Several rows of a unit: the first counts where they agree in all that is public, if so declared.

The same out of core, and by workers, is in ``spill/test_out_of_core.py`` and
``orchestration/test_workers.py``.
"""

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.raw.ingest import ingest
from flows.raw.validate import validate
from schemas.errors import ConfigError, ConflictError, InputError
from schemas.roster import Repeats, Roster
from tests.conftest import EXACT, Builder, Experiment, a_log, plain_rows, released
from tests.support.surroundings import Command

FIRST: dict[str, Any] = {"source": {"repeated": "first"}}

Line = tuple[Any, ...]
SOUND: list[Line] = [("a", "none", "east", 1.0), ("b", "mail", "east", 2.0)]
"""Two faultless rows, so that every arm has a unit."""


def a_table(*lines: Line, **more: list[Any]) -> pl.DataFrame:
    """The sound rows and these (customer, variant, region, clicks), and columns of ``more``."""
    names = ["customer", "variant", "region", "clicks"]
    frame = pl.DataFrame([*SOUND, *lines], names, orient="row")
    return frame.with_columns(pl.Series(name, [None, None, *value]) for name, value in more.items())


def judge(built: Experiment) -> tuple[dict[str, float], Roster]:
    """The outcome of each unit that is kept, but for the sound ones, and the roster."""
    config = built.load()
    kept, _, roster = validate(config.log_facts, ingest(config.log_source, "once"))
    frame = plain_rows(kept.open())
    found = dict(zip(frame["unit"], frame["outcome"], strict=True))
    assert (found.pop("a"), found.pop("b")) == (1.0, 2.0)
    return found, roster


def test_the_first_row_counts_where_all_agree(experiment: Builder) -> None:
    lines = [("x", "mail", "east", outcome) for outcome in (3.0, 0.0, 1.0)]
    found, roster = judge(experiment(a_table(*lines), **FIRST))
    assert found == {"x": 3.0}
    assert (roster.quarantined, roster.repeats) == (0, Repeats(n_unused=2))
    assert roster.warnings == ()


def test_the_first_is_by_the_names_of_files_then_as_rows_stand(experiment: Builder) -> None:
    names = ["logs/10.csv", "logs/9.parquet", "logs/a.jsonl"]
    files = {
        name: a_table(("x", "mail", "east", float(n)), ("x", "mail", "east", 0.0))
        if n == 1
        else pl.DataFrame([("x", "mail", "east", float(n))], a_table().schema, orient="row")
        for name, n in zip(names, (2, 1, 3), strict=True)
    }
    assert judge(experiment(files, "logs/*", **FIRST))[0] == {"x": 2.0}


PUBLIC = {"attributes": ["country"], "privacy_unit": "payer", "assigned_by": "home"}


@pytest.mark.parametrize("differs", ["variant", "region", "country", "payer", "home", None])
def test_a_unit_whose_rows_differ_in_something_public_is_set_aside(
    experiment: Builder, differs: str | None
) -> None:
    log = a_table(*[("x", "mail", "east", 3.0)] * 2).with_columns(
        country=pl.lit("land"), payer=pl.col("customer"), home=pl.col("customer")
    )
    if differs is not None:
        other = pl.lit("none" if differs == "variant" else "other")
        is_last = pl.int_range(pl.len()) == log.height - 1
        log = log.with_columns(pl.when(is_last).then(other).otherwise(differs).alias(differs))
    built = experiment(log, columns=PUBLIC, privacy={"rows_each": 2}, **FIRST)
    found, roster = judge(built)
    if differs is None:
        assert (found, roster.quarantined, roster.repeats) == ({"x": 3.0}, 0, Repeats(n_unused=1))
        return
    rule = "unit_in_two_arms" if differs == "variant" else "unit_twice"
    assert (found, roster.quarantined_by_rule) == ({}, {rule: 2})
    assert roster.repeats == Repeats(n_lost=1)
    (warning,) = roster.warnings
    assert warning == (
        "people (units) with several rows, none of which is released: 1. Rows of 1 differ in arm, "
        "cluster or something else that is public: mend the log"
    )


@pytest.mark.parametrize(
    ("countries", "kept"), [([None, None], True), ([None, "land"], False), (["land", ""], False)]
)
def test_nulls_agree_with_nulls_alone(
    experiment: Builder, countries: list[str | None], kept: bool
) -> None:
    log = a_table(*[("x", "mail", "east", 3.0)] * 2, country=countries)
    found, _ = judge(experiment(log, columns={"attributes": ["country"]}, **FIRST))
    assert bool(found) == kept


def test_a_unit_with_a_faulty_row_is_set_aside_whole(experiment: Builder) -> None:
    log = a_table(
        ("x", "mail", "east", 3.0), ("x", "mail", None, 3.0), *[("y", "fax", "east", 0.0)] * 2
    )
    found, roster = judge(experiment(log, **FIRST))
    by_rule = {"cluster_missing": 1, "arm_not_declared": 2, "unit_twice": 1}
    assert (found, roster.quarantined_by_rule) == ({}, by_rule)
    assert roster.repeats == Repeats(n_lost=1)  # the other is lost for its arm


def test_private_clusters_decide_nothing_of_who_is_released(experiment: Builder) -> None:
    """They are protected, so rows that differ in them alone agree; that of the first counts."""
    log = a_table(*(("x", "mail", region, 3.0) for region in ("east", "west", None)))
    sections: dict[str, Any] = {
        "privacy": {"mechanism": "uniform-prior-dp"},
        "arms": {"same_shares": True},
        "private_clusters": {"epsilon": 1.0, "labels": ["west", "east"]},
    }
    built = experiment(log, **sections, **FIRST)
    config = built.load()
    kept, _, roster = validate(config.log_facts, ingest(config.log_source, "once"))
    assert plain_rows(kept.open()).filter(unit="x").select("cluster", "outcome").rows() == [
        ("east", 3.0)
    ]
    assert roster.repeats == Repeats(n_unused=2)


def test_without_it_people_are_counted_and_the_cure_is_named(experiment: Builder) -> None:
    lines: list[Line] = [
        *[("x", "mail", "east", 3.0)] * 3,
        *[("y", "none", "east", 3.0)] * 2,
        ("z", "none", "east", 0.0),
        ("z", "none", "west", 0.0),
        ("v", "none", "east", 0.0),
        ("v", "mail", "east", 0.0),
    ]
    checked = experiment(a_table(*lines)).check()
    assert checked.roster.quarantined_by_rule == {"unit_twice": 7, "unit_in_two_arms": 2}
    assert checked.as_json()["repeated"] == {"n_lost": 4, "n_alike": 2, "n_unused": 0}
    assert checked.warnings == (
        'people (units) with several rows, none of which is released: 4. With repeated = "first" '
        "under [source] 2 of them are kept, by the first row of each: their rows agree in all that "
        "is public. Rows of 2 differ in arm, cluster or something else that is public: mend the "
        "log",
    )


def test_a_log_of_repeated_rows_alone_is_refused_with_the_cure(experiment: Builder) -> None:
    log = pl.concat([a_log(8)] * 2)
    with pytest.raises(InputError, match=r'With repeated = "first" under \[source\] 8 of them'):
        experiment(log).check()
    built = experiment(pl.concat([log, a_log(20)[8:]]), quarantine={"at_most": 0.1})
    with pytest.raises(InputError, match=r'people .*: 8\. With repeated = "first"') as caught:
        built.run()
    assert caught.value.key == "quarantine.at_most"


def test_what_is_not_used_is_told(experiment: Builder, command: Command) -> None:
    built = experiment(pl.concat([a_log(40), a_log(8)]), **FIRST)
    assert "rows not used   8: after the first of a unit with several" in (
        command("check", built.config).stdout
    )


def test_exposures_may_repeat_as_they_are(experiment: Builder) -> None:
    source = {"repeated": "first", "grain": "event", "outcomes_path": "events.parquet"}
    sections = {"columns": {"time": "seen"}, "outcome": {"aggregate": "count"}}
    with pytest.raises(ConfigError, match=r"^source\.repeated: belongs to grain"):
        experiment(a_log(8), source=source, **sections).load()


# a release, and the same again


def test_the_rows_that_count_are_released_and_known_again(experiment: Builder) -> None:
    log, again = a_log(40), a_log(40)[:12].with_columns(clicks=pl.lit(0.0))

    def built(*frames: pl.DataFrame) -> Experiment:
        return experiment(pl.concat(frames), privacy=EXACT, **FIRST)

    result = built(log, again).run()
    outcomes = released(result.path, "units").sort("unit_id")["outcome_randomised"]
    assert outcomes.equals(log["clicks"], check_names=False)
    assert built(log, again.with_columns(clicks=pl.lit(3.0))).run().status == "unchanged"
    assert built(log).run().status == "unchanged"  # these are the rows that it was made from
    with pytest.raises(ConflictError):
        built(again, log).run()
    changed = log.with_columns(clicks=pl.when(pl.int_range(40) == 3).then(1.0).otherwise("clicks"))
    assert changed["clicks"][3] != log["clicks"][3]
    with pytest.raises(ConflictError):
        built(changed, again).run()


@pytest.mark.process
def test_whatever_the_outcomes_are_nothing_else_changes(experiment: Builder) -> None:
    lines: list[Line] = [
        *[("x", "mail", "east", 0.0)] * 3,
        ("z", "none", "east", 0.0),
        ("z", "none", "west", 0.0),
        *[("u", "fax", "east", 0.0)] * 2,
    ]
    any_outcome = st.none() | st.floats() | st.sampled_from([math.nan, math.inf])

    def public_side(outcomes: list[float | None]) -> tuple[Any, ...]:
        log = a_table(*lines).with_columns(pl.Series("clicks", outcomes, dtype=pl.Float64))
        config = experiment(log, **FIRST).load()
        kept, aside, roster = validate(config.log_facts, ingest(config.log_source, "once"))
        frame = plain_rows(kept.open())
        left_out = pl.concat(aside.open().faulty_rows.frames())
        return frame.drop("outcome").rows(), roster, left_out.rows()

    zeros = public_side([0.0] * 9)
    assert [unit for unit, *_ in zeros[0]] == ["a", "b", "x"]

    @settings(max_examples=25, deadline=None)  # each example reads a log
    @given(st.lists(any_outcome, min_size=9, max_size=9))
    def changes_nothing(outcomes: list[float | None]) -> None:
        assert public_side(outcomes) == zeros

    changes_nothing()
