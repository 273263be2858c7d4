"""Rows are set aside by public faults alone, counted by rule, kept private; nothing else stops."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from flows.cli.main import run
from flows.raw.ingest import ingest
from flows.raw.privatize import privatize
from flows.raw.quarantine import write_quarantine
from flows.raw.validate import validate
from schemas.errors import InputError
from schemas.names import ReleaseName
from schemas.raw import rules
from schemas.roster import Roster
from tests.conftest import (
    SENTINEL,
    Builder,
    Experiment,
    a_log,
    made_units,
    plain_rows,
    rows,
    sealed_rows,
    told,
)
from tests.support.modes import mode

NAME = "trial.once.r1"

SOUND = [("a", "none", "east", 1.0), ("b", "mail", "east", 2.0)]
"""Two faultless rows, so that every arm has a unit."""

Row = tuple[Any, Any, Any, Any]


def judge(built: Experiment) -> tuple[pl.DataFrame, Roster]:
    """The rows that are kept and the roster, as a run makes them."""
    config = built.load()
    kept, aside, roster = validate(config.log_facts, ingest(config.log_source, "once"))
    write_quarantine(config.quarantined, aside, NAME)
    return plain_rows(kept.open()), roster


def counted(experiment: Builder, *faulty: Row) -> dict[str, int]:
    kept, roster = judge(experiment(rows(*SOUND, *faulty)))
    assert sorted(kept["unit"]) == ["a", "b"]
    assert roster.quarantined == len(faulty) == sum(roster.quarantined_by_rule.values())
    return roster.quarantined_by_rule


# what is set aside


@pytest.mark.parametrize(
    ("faulty", "expected"),
    [
        ([(None, "none", "east", 1.0)], {"unit_missing": 1}),
        ([("", "none", "east", 1.0), (None, "mail", "west", 1.0)], {"unit_missing": 2}),
        ([("x", None, "east", 1.0), ("y", "", "east", 1.0)], {"arm_missing": 2}),
        ([("x", "none", None, 1.0), ("y", "none", "", 1.0)], {"cluster_missing": 2}),
        ([("x", "fax", "east", 1.0), ("y", "NONE", "east", 1.0)], {"arm_not_declared": 2}),
        ([("x", "none", "east", 1.0), ("x", "mail", "east", 1.0)], {"unit_in_two_arms": 2}),
        ([("x", "none", "east", 1.0)] * 2, {"unit_twice": 2}),
        ([("x", "none", "east", 1.0)] * 5, {"unit_twice": 5}),
        ([("x", "none", "east", 1.0), ("x", "none", "west", 2.0)], {"unit_twice": 2}),
        (
            [(None, "none", "e", 0.0), ("x", "fax", "e", 0.0), *[("y", "mail", "e", 0.0)] * 2],
            {"unit_missing": 1, "arm_not_declared": 1, "unit_twice": 2},
        ),
    ],
)
def test_rows_are_counted_by_the_rule_they_break(
    experiment: Builder, faulty: list[Row], expected: dict[str, int]
) -> None:
    assert counted(experiment, *faulty) == expected


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ((None, None, None, None), "unit_missing"),
        ((None, "fax", None, None), "unit_missing"),
        (("x", None, None, None), "arm_missing"),
        (("x", "fax", None, None), "cluster_missing"),
    ],
)
def test_a_row_counts_once_under_the_first_rule_it_breaks(
    experiment: Builder, row: Row, rule: str
) -> None:
    assert counted(experiment, row) == {rule: 1}


def test_a_unit_in_three_rows_of_two_arms_is_set_aside_whole(experiment: Builder) -> None:
    found = counted(experiment, *[("x", arm, "east", 1.0) for arm in ("none", "none", "mail")])
    assert found == {"unit_in_two_arms": 3}


def test_a_unit_with_one_sound_row_is_set_aside_whole(experiment: Builder) -> None:
    assert counted(experiment, ("x", "none", "east", 1.0), ("x", "fax", "east", 1.0)) == {
        "arm_not_declared": 1,
        "unit_in_two_arms": 1,
    }
    assert counted(experiment, ("x", "none", "east", 1.0), ("x", "none", "", 1.0)) == {
        "cluster_missing": 1,
        "unit_twice": 1,
    }


def test_two_rows_without_a_unit_are_not_the_same_unit(experiment: Builder) -> None:
    missing = (None, "none", "east", 1.0), (None, "mail", "east", 1.0)
    assert counted(experiment, *missing) == {"unit_missing": 2}


def test_units_that_are_integers_are_judged_alike(experiment: Builder) -> None:
    numbered = [(1, "none"), (2, "mail"), (2, "mail"), (None, "none"), (3, "mail")]
    kept, roster = judge(experiment(rows(*[(unit, arm, "east", 1.0) for unit, arm in numbered])))
    assert kept["unit"].to_list() == [1, 3]
    assert roster.quarantined_by_rule == {"unit_missing": 1, "unit_twice": 2}


def test_a_faultless_log_is_kept_whole(experiment: Builder) -> None:
    kept, roster = judge(experiment(a_log(240)))
    assert kept.height == 240
    assert roster == Roster(
        n_units=240,
        n_clusters=2,
        units_by_arm={"none": 120, "mail": 120},
        quarantined=0,
        quarantined_by_rule={},
        sample_ratio_p=1.0,
    )


@pytest.mark.parametrize("column", ["clicks", "variant"])
@pytest.mark.parametrize("ids", ["text", "integer"])
def test_kept_rows_stand_by_unit_whatever_the_order_of_the_log(
    experiment: Builder, column: str, ids: str
) -> None:
    log = a_log(60)
    if ids == "integer":
        log = log.with_columns(customer=(pl.int_range(60) * 7919) % 1009 - 500)
    kept, _ = judge(experiment(log.sort(column, descending=True)))
    assert kept["unit"].to_list() == sorted(log["customer"])
    assert kept["outcome"].to_list() == log.sort("customer")["clicks"].to_list()


def test_every_rule_is_tried_here(experiment: Builder) -> None:
    faults: list[Row] = [
        (None, "none", "e", 1.0),
        ("p", None, "e", 1.0),
        ("q", "none", None, 1.0),
        ("r", "fax", "e", 1.0),
        ("s", "none", "e", 1.0),
        ("s", "mail", "e", 1.0),
        ("t", "none", "e", 1.0),
        ("t", "none", "e", 1.0),
    ]
    assert list(counted(experiment, *faults)) == [rule.name for rule in rules(("none", "mail"))]


# what stops a run


def refusal(built: Experiment) -> str:
    with pytest.raises(InputError) as caught:
        judge(built)
    assert str(SENTINEL) not in told(caught.value)
    assert built.files == ["log.parquet", "trial.toml"]
    return str(caught.value)


def test_nothing_left_says_why(experiment: Builder) -> None:
    log = rows(("a", "fax", "east", SENTINEL), ("b", "fax", "east", 1.0), (None, "none", "e", 1.0))
    assert refusal(experiment(log)) == (
        "no row is left: all 3 were set aside (unit_missing 1, arm_not_declared 2); "
        "check columns and arms in the configuration"
    )


def test_a_declared_arm_without_units_is_named(experiment: Builder) -> None:
    log = rows(("a", "none", "east", SENTINEL), ("b", "mail", "east", 1.0), ("c", "x", "e", 1.0))
    absent = experiment(log, arms={"treatments": ["mail", "fax"]})
    assert refusal(absent) == (
        "arms.treatments: the declared arm 'fax' has no units in this log "
        "(rows set aside: arm_not_declared 1)"
    )
    absent = experiment(log, arms={"control": "nobody"})
    assert "did you mean" not in refusal(absent)
    assert "arms.control: the declared arm 'nobody' has no units" in refusal(absent)


@pytest.mark.parametrize("command", [["check"], ["plan"], ["release"]])
@pytest.mark.parametrize(
    ("arms", "key", "meant"),
    [
        ({"control": "gate 30", "treatments": ["gate_40"]}, "arms.control", "gate_30"),
        ({"control": "gate_30", "treatments": ["Gate40"]}, "arms.treatments", "gate_40"),
        ({"control": "none", "treatments": ["Gate40"]}, "arms.treatments", "gate_40"),
    ],
)
def test_a_label_that_is_spelt_alike_is_asked_for(
    experiment: Builder,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    arms: dict[str, object],
    key: str,
    meant: str,
) -> None:
    built = experiment(a_log(40, arms=("gate_30", "gate_40")), arms=arms)
    assert run([*command, str(built.config)]) == 2
    told = capsys.readouterr().err
    night = "trial once: " if command == ["release"] else ""
    assert told.startswith(f"clusterdp: {night}{key}: the declared arm ")
    assert told.endswith(f"; did you mean {meant!r}?\n")


def test_what_may_be_no_labels_of_arms_is_not_told(experiment: Builder) -> None:
    """Units' ids, say, in a column that was taken for the arms'."""
    built = experiment(rows(*((f"u{i}", f"mail{i}", "east", SENTINEL) for i in range(60))))
    assert "did you mean" not in refusal(built)


def test_an_arm_whose_units_were_all_set_aside_has_none(experiment: Builder) -> None:
    log = rows(("a", "none", "east", 1.0), *[("b", "mail", "east", 1.0)] * 2)
    assert "'mail' has no units in this log (rows set aside: unit_twice 2)" in refusal(
        experiment(log)
    )


# the quarantine file


def aside(experiment: Builder, *, outcome: float = SENTINEL) -> Experiment:
    """An experiment with two rows to set aside and four to keep."""
    return experiment(
        rows(
            ("a", "none", "east", 1.0),
            ("x", "fax", "east", outcome),
            ("b", "mail", "east", outcome),
            (None, "none", "west", outcome),
        )
    )


def test_rows_set_aside_are_kept_for_the_operator_without_their_outcome(
    experiment: Builder,
) -> None:
    built = aside(experiment)
    judge(built)
    found = pl.read_parquet(built.quarantine / f"{NAME}.parquet")
    assert set(found.columns) == {"rule", "unit", "arm", "cluster", "source_file", "source_row"}
    assert found.select("rule", "unit", "arm", "cluster", "source_file", "source_row").rows() == [
        ("arm_not_declared", "x", "fax", "east", str(built.folder / "log.parquet"), 2),
        ("unit_missing", None, "none", "west", str(built.folder / "log.parquet"), 4),
    ]


def test_the_file_of_each_row_is_named(experiment: Builder) -> None:
    parts = {
        "logs/a.csv": rows(("a", "none", "e", 1.0), ("b", "fax", "e", 1.0)),
        "logs/b.parquet": rows(("c", "mail", "e", 1.0), ("d", "fax", "e", 1.0)),
    }
    built = experiment(parts, source={"path": "logs/*"})
    built.run()
    found = pl.read_parquet(built.quarantine / f"{NAME}.parquet")
    assert found["source_file"].to_list() == [str(built.folder / name) for name in parts]
    assert found["source_row"].to_list() == [2, 2]


def test_the_quarantine_is_for_its_owner_alone(experiment: Builder) -> None:
    built = aside(experiment)
    judge(built)
    assert mode(built.quarantine / f"{NAME}.parquet") == 0o600
    assert mode(built.quarantine) == 0o700
    assert built.files == ["log.parquet", f"quarantine/trial/{NAME}.parquet", "trial.toml"]


def test_without_faults_there_is_no_quarantine_file(experiment: Builder) -> None:
    built = aside(experiment)
    judge(built)
    judge(experiment(a_log()))
    assert list(built.quarantine.iterdir()) == []  # that of the earlier attempt is gone too


def test_judging_alone_writes_nothing(experiment: Builder) -> None:
    built = aside(experiment)
    before = built.entries
    config = built.load()
    _, found, roster = validate(config.log_facts, ingest(config.log_source, "once"))
    assert found.n_rows == roster.quarantined == 2
    assert built.entries == before


def test_what_is_set_aside_holds_no_outcome_and_cannot_be_looked_at(experiment: Builder) -> None:
    config = aside(experiment).load()
    _, found, _ = validate(config.log_facts, ingest(config.log_source, "once"))
    assert repr(found) == "<sealed, 2 rows>"
    assert "outcome" not in pl.concat(found.open().faulty_rows.frames()).columns
    assert str(SENTINEL) not in repr(found.open())


def test_rows_set_aside_keep_their_unit_where_released_ids_are_hashed(
    experiment: Builder, tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    log = rows(*SOUND, ("x", "fax", "east", 1.0))
    built = experiment(log, publish={"unit_id": "keyed-hash", "key_file": str(tmp_path / "key")})
    judge(built)
    assert pl.read_parquet(built.quarantine / f"{NAME}.parquet")["unit"].to_list() == ["x"]


def test_a_dry_run_keeps_nothing(experiment: Builder) -> None:
    built = aside(experiment)
    before = built.entries
    roster = built.check().roster
    assert roster.quarantined_by_rule == {"unit_missing": 1, "arm_not_declared": 1}
    assert built.entries == before


# the sample ratio


def sized(sizes: dict[str, int]) -> pl.DataFrame:
    arms = [arm for arm, size in sizes.items() for _ in range(size)]
    return pl.DataFrame(
        {
            "customer": range(len(arms)),
            "variant": arms,
            "region": ["east"] * len(arms),
            "clicks": [1.0] * len(arms),
        }
    )


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ({"none": 100, "mail": 100}, None),
        ({"none": 90, "mail": 110}, None),
        ({"none": 40, "mail": 160}, {"none": 1, "mail": 4}),
        ({"none": 60, "mail": 140}, {"none": 1, "mail": 4}),
        ({"none": 20, "mail": 30, "fax": 25}, None),
        ({"none": 20, "mail": 30, "fax": 25}, {"none": 0.5, "mail": 0.3, "fax": 0.2}),
    ],
)
def test_the_sample_ratio_is_pearsons_test(
    experiment: Builder, sizes: dict[str, int], shares: dict[str, float] | None
) -> None:
    arms = {"treatments": [arm for arm in sizes if arm != "none"], "shares": shares}
    _, roster = judge(experiment(sized(sizes), arms=arms))
    observed = np.array(list(sizes.values()))
    weights: NDArray[np.float64] = np.array(list((shares or dict.fromkeys(sizes, 1.0)).values()))
    expected = chisquare(observed, weights / weights.sum() * observed.sum()).pvalue
    assert roster.sample_ratio_p == pytest.approx(expected, rel=1e-12)


def test_rows_set_aside_do_not_count_in_the_sample_ratio(experiment: Builder) -> None:
    extra = rows(*[(f"x{i}", "fax", "east", 1.0) for i in range(50)])
    log = sized({"none": 30, "mail": 30}).with_columns(pl.col("customer").cast(pl.String))
    assert judge(experiment(pl.concat([log, extra])))[1].sample_ratio_p == 1.0


def test_undeclared_shares_are_not_tested(experiment: Builder) -> None:
    _, roster = judge(experiment(sized({"none": 5, "mail": 95}), arms={"shares": "undeclared"}))
    assert roster.sample_ratio_p is None
    assert roster.warnings == ()


def test_a_mismatch_is_an_alarm_and_stops_nothing(experiment: Builder) -> None:
    built = experiment(sized({"none": 60, "mail": 140}))
    result = built.run()
    assert result.status == "published"
    (warning,) = result.roster.warnings
    assert warning.startswith(
        "sample ratio mismatch (p = 1.5e-08): the arm sizes (none 60, mail 140)"
    )


def test_a_likely_imbalance_is_no_alarm(experiment: Builder) -> None:
    assert judge(experiment(sized({"none": 90, "mail": 110})))[1].warnings == ()


# outcomes change nothing of who is in a release

FAULTS: list[Row] = [
    ("a", "none", "east", 0.0),
    ("b", "mail", "east", 0.0),
    ("c", "none", "west", 0.0),
    ("d", "mail", "west", 0.0),
    ("d", "mail", "west", 0.0),
    ("e", "fax", "west", 0.0),
    (None, "mail", "west", 0.0),
    ("f", None, "west", 0.0),
    ("g", "none", "east", 0.0),
    ("g", "mail", "east", 0.0),
    ("h", "mail", "north", 0.0),
]


@pytest.mark.process
def test_whatever_the_outcomes_are_the_public_side_is_the_same(experiment: Builder) -> None:
    zeros = public_side(experiment, [0.0] * len(FAULTS))
    any_outcome = st.none() | st.floats() | st.sampled_from([math.nan, math.inf])

    @settings(max_examples=25, deadline=None)  # each example reads a log and writes a quarantine
    @given(st.lists(any_outcome, min_size=len(FAULTS), max_size=len(FAULTS)))
    def changes_nothing(outcomes: list[float | None]) -> None:
        assert public_side(experiment, outcomes) == zeros

    changes_nothing()


def public_side(experiment: Builder, outcomes: list[float | None]) -> tuple[Any, ...]:
    """Everything of a run that must not depend on an outcome."""
    log = rows(*FAULTS).with_columns(pl.Series("clicks", outcomes, dtype=pl.Float64))
    built = experiment(log)
    kept, roster = judge(built)
    config = built.load()
    sealed = sealed_rows(kept, config.arms.names)
    tables = privatize(config, sealed, config.design(), ReleaseName("trial", "once", 1))
    return (
        kept.drop("outcome").rows(),
        roster,
        (built.quarantine / f"{NAME}.parquet").read_bytes(),
        tables.strata.rows(),
        tables.pools.rows(),
        made_units(tables).select("unit_id", "cluster", "arm").rows(),
        tables.debias.select("pool", "arm", "outcome").rows(),
    )
