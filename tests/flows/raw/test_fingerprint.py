"""What a release is made from is known again by keyed digests: the same, and nothing else."""

import hmac
import itertools
import json
import re
import stat
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.config.keys import fields
from flows.config.model.experiment import Config
from flows.config.model.sections import ConfigSection
from flows.config.resolve import resolve_design, resolve_release
from flows.ledger.rules import Fingerprint
from flows.raw.fingerprint import KEY_FILE, _text
from flows.raw.ingest import ingest
from flows.raw.validate import validate
from privatizers.mechanisms.cluster_optimal_dp import ClusterOptimalDP
from privatizers.noise.randomness import secret_key
from privatizers.planning.optimal_design import OptimalDesign
from schemas.errors import ClusterdpError, InputError
from schemas.raw import attribute_columns
from tests.conftest import (
    PATIENCE,
    SENTINEL,
    Builder,
    Content,
    Experiment,
    a_log,
    rows,
    sealed_rows,
    told,
)
from tests.support.known_again import fingerprint_of
from tests.support.odd_files import NO_FILES

Row = tuple[str | int, str, str, float]


def kept_rows(rows: list[Row], unit_type: Any = None) -> pl.DataFrame:
    """Rows (unit, arm, cluster, outcome) as they come from the log's validation."""
    units, arms, clusters, outcomes = zip(*rows, strict=True)
    return pl.DataFrame(
        {
            "unit": pl.Series(units, dtype=unit_type),
            "arm": pl.Series(arms),
            "cluster": pl.Series(clusters),
            "outcome": pl.Series(outcomes, dtype=pl.Float64),
            "source_file": pl.Series([0] * len(rows), dtype=pl.UInt32),
            "source_row": pl.Series(range(len(rows)), dtype=pl.UInt64),
        }
    )


SIZES = np.array([[30, 40], [50, 20]])
"""Of the strata, for what is planned."""


def of_frame(config: Config, frame: pl.DataFrame) -> Fingerprint:
    chosen = resolve_design(config, SIZES)
    return fingerprint_of(chosen.config, sealed_rows(frame, arms_of(frame)), chosen.design)


def arms_of(frame: pl.DataFrame) -> tuple[str, ...]:
    return tuple(frame["arm"].unique(maintain_order=True))


def of_run(built: Experiment, period: str = "once") -> Fingerprint:
    """The fingerprint of what a run would release."""
    config = built.load()
    kept, _, _ = validate(config.log_facts, ingest(config.log_source, period))
    return fingerprint_of(config, kept, config.design())


def key_of(built: Experiment) -> Path:
    return built.folder / "quarantine" / KEY_FILE


# what the digests are


def spelt(parts: Iterator[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def unit_parts(units: list[Any], tag: str) -> Iterator[bytes]:
    yield tag.encode()
    yield str(len(units)).encode()
    if tag == "text":
        yield from text_parts(units)
    else:
        yield b"".join(struct.pack("<q" if tag == "int64" else "<Q", unit) for unit in units)


def text_parts(texts: list[str]) -> Iterator[bytes]:
    encoded = [text.encode() for text in texts]
    yield b"".join(
        struct.pack("<q", sum(map(len, encoded[:end]))) for end in range(len(encoded) + 1)
    )
    yield b"".join(encoded)


def label_parts(labels: list[str]) -> Iterator[bytes]:
    names = sorted(set(labels), key=str.encode)
    yield from text_parts(names)
    yield b"".join(struct.pack("<I", names.index(label)) for label in labels)


def row_parts(rows: list[Row], tag: str) -> Iterator[bytes]:
    ordered = sorted(rows, key=lambda row: str(row[0]).encode() if tag == "text" else row[0])
    units, arms, clusters, outcomes = map(list, zip(*ordered, strict=True))
    yield b"rows"
    yield from unit_parts(units, tag)
    yield from label_parts(arms)
    yield from label_parts(clusters)
    yield b"".join(struct.pack("<d", outcome or 0.0) for outcome in outcomes)


def digest(key: bytes, parts: Iterator[bytes]) -> str:
    which = hmac.new(key, b"which key", "sha256").hexdigest()[:8]
    return f"k-{which}:{hmac.new(key, spelt(parts), 'sha256').hexdigest()}"


def expected_rows(key: bytes, rows: list[Row], tag: str) -> str:
    """The digest of rows made a row at a time."""
    return digest(key, row_parts(rows, tag))


def expected_units(key: bytes, units: list[Any], tag: str) -> str:
    """The digest of sorted unit ids made one at a time."""
    return digest(key, itertools.chain([b"units"], unit_parts(units, tag)))


ROWS: list[Row] = [
    ("c", "none", "west", 0.0),
    ("a", "mail", "east", 2.5),
    ("b" * 40, "none", "east", 1.0),
    ("é", "mail", "west", -0.0),
]


@pytest.mark.parametrize(
    ("units", "kind", "tag"),
    [
        (["c", "a", "b" * 40, "é"], pl.String, "text"),
        ([3, -1, 0, 2**63 - 1], pl.Int64, "int64"),
        ([3, 1, 0, 2**64 - 1], pl.UInt64, "uint64"),
    ],
)
def test_digests_are_hmacs_of_all_that_the_rows_hold(
    experiment: Builder, units: list[Any], kind: Any, tag: str
) -> None:
    built = experiment()
    given_rows = [(unit, *rest) for unit, (_, *rest) in zip(units, ROWS, strict=True)]
    found = of_frame(built.load(), kept_rows(given_rows, kind))
    key = key_of(built).read_bytes()
    assert found.rows == expected_rows(key, given_rows, tag)
    assert found.units == expected_units(key, sorted(units), tag)


@pytest.mark.process
def test_any_rows_in_any_order_have_the_digest_of_the_same_rows(experiment: Builder) -> None:
    """Whatever the texts are, and however the frame came by its memory."""
    built = experiment()
    config = built.load()
    readable = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
    outcome = st.sampled_from([0.0, -0.0, 1.0, 2.5, 3.0])
    row = st.tuples(readable, st.sampled_from(["none", "mail"]), readable, outcome)
    some_rows = st.lists(row, min_size=1, max_size=12, unique_by=lambda one: one[0])

    @settings(max_examples=60, deadline=None)  # the first one makes the key
    @given(some_rows, st.integers(0, 3), st.integers(0, 12))
    def is_as_spelt(some: list[Row], before: int, cut: int) -> None:
        cut = min(cut, len(some))
        padding: list[Row] = [("padding", "x", "y", 9.0)] * before
        parts = [kept_rows(padding + part)[before:] for part in (some[cut:], some[:cut]) if part]
        found = of_frame(config, pl.concat(parts, rechunk=False))
        assert found.rows == expected_rows(key_of(built).read_bytes(), some, "text")

    is_as_spelt()


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (1, 3), (0, 2), (1, 1)])
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_texts_within_a_larger_memory_are_those_texts_alone(
    start: int, stop: int, cut: int
) -> None:
    """However they come in parts, too."""
    texts = ["one", "zwölf", "a text of more than twelve bytes"]
    part = pl.Series(texts)[start:stop]
    found = list(_text(lambda: iter([part[:cut], part[cut:]]), len(part)))
    pieces = [b"".join(map(bytes, one.pieces)) for one in found]
    assert pieces == [*text_parts(texts[start:stop])]
    assert [one.length for one in found] == [len(piece) for piece in pieces]


def test_the_three_digests_are_of_one_key_and_differ(experiment: Builder) -> None:
    found = of_run(experiment())
    digests = (found.rows, found.units, found.settings)
    assert all(re.fullmatch(r"k-[0-9a-f]{8}:[0-9a-f]{64}", digest) for digest in digests)
    assert len({digest.partition(":")[0] for digest in digests}) == 1
    assert len(set(digests)) == 3


# the same rows


def test_the_order_of_the_log_does_not_matter(experiment: Builder) -> None:
    log = a_log(240)
    shuffled = [log.sort("clicks"), log.sort("clicks", descending=True), log[::2].vstack(log[1::2])]
    digests = {of_run(experiment(one)).rows for one in [log, *shuffled]}
    assert len(digests) == 1


def test_nor_do_its_files(experiment: Builder) -> None:
    log = a_log(240)
    whole = of_run(experiment(log))
    contents: dict[str, Content] = {
        "logs/a.parquet": log[200:],
        "logs/b.csv": log[:90],
        "logs/c.jsonl.gz": log[90:200],
    }
    assert of_run(experiment(contents, source={"path": "logs/*"})) == whole


@pytest.mark.parametrize("file", ["log.csv", "log.csv.gz", "log.jsonl"])
def test_nor_does_its_format_where_types_are_the_same(experiment: Builder, file: str) -> None:
    assert of_run(experiment(a_log(), file)) == of_run(experiment(a_log()))


def test_outcomes_that_are_mapped_alike_are_the_same(experiment: Builder) -> None:
    def of_outcomes(*outcomes: object) -> str:
        logged = [(f"u{i}", ("none", "mail")[i % 2], "east", one) for i, one in enumerate(outcomes)]
        text = [(unit, arm, cluster, str(one)) for unit, arm, cluster, one in logged]
        return of_run(experiment(rows(*text))).rows

    assert of_outcomes("", 1, 99, -0.0) == of_outcomes("rubbish", 1.0, 3, 0)
    assert of_outcomes(0, 1, 99, 0) != of_outcomes(0, 1, 2, 0)


def test_faulty_rows_do_not_matter(experiment: Builder) -> None:
    log = a_log(60)
    faulty = pl.concat([log, rows((None, "none", "east", 1.0), ("x", "fax", "east", 1.0))])
    assert of_run(experiment(faulty)) == of_run(experiment(log))


# other rows

BASE: list[Row] = [("ab", "none", "east", 1.0), ("c", "mail", "west", 2.0)]

OTHER: dict[str, list[Row]] = {
    "an outcome": [("ab", "none", "east", 1.0), ("c", "mail", "west", 2.0 + 1e-15)],
    "outcomes changed places": [("ab", "none", "east", 2.0), ("c", "mail", "west", 1.0)],
    "arms changed places": [("ab", "mail", "east", 1.0), ("c", "none", "west", 2.0)],
    "clusters changed places": [("ab", "none", "west", 1.0), ("c", "mail", "east", 2.0)],
    "a cluster's name": [("ab", "none", "east", 1.0), ("c", "mail", "westx", 2.0)],
    "where a cluster's name ends": [("ab", "none", "eastw", 1.0), ("c", "mail", "est", 2.0)],
    "an arm's name": [("ab", "none", "east", 1.0), ("c", "post", "west", 2.0)],
    "arm and cluster exchanged": [("ab", "east", "none", 1.0), ("c", "west", "mail", 2.0)],
    "where an id ends": [("a", "none", "east", 1.0), ("bc", "mail", "west", 2.0)],
    "an id": [("ab", "none", "east", 1.0), ("d", "mail", "west", 2.0)],
    "a unit more": [*BASE, ("d", "mail", "west", 2.0)],
    "a unit less": BASE[:1],
}


@pytest.mark.parametrize("changed", OTHER.values(), ids=OTHER)
def test_other_rows_have_another_digest(experiment: Builder, changed: list[Row]) -> None:
    config = experiment().load()
    base, other = (of_frame(config, kept_rows(one)) for one in (BASE, changed))
    assert base.rows != other.rows
    same_units = {row[0] for row in BASE} == {row[0] for row in changed}
    assert (base.units == other.units) == same_units
    assert base.settings == other.settings


def test_the_type_of_ids_matters(experiment: Builder) -> None:
    config = experiment().load()
    given_rows: list[Row] = [(1, "none", "east", 1.0), (2, "mail", "east", 2.0)]
    frame = kept_rows(given_rows, pl.Int64)
    kinds = [frame.with_columns(pl.col("unit").cast(kind)) for kind in (pl.UInt64, pl.String)]
    found = [of_frame(config, one) for one in [frame, *kinds]]
    assert len({one.rows for one in found}) == len({one.units for one in found}) == 3


# public facts

FACTS = kept_rows(
    [(f"u{place}", "none" if place % 2 else "mail", "east", 1.0) for place in range(6)]
)


def with_facts(*columns: pl.Series) -> pl.DataFrame:
    names = attribute_columns(len(columns))
    return FACTS.with_columns(
        column.alias(name) for name, column in zip(names, columns, strict=True)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a", "b", None, "", "e", "f"], ["a", "b", "", None, "e", "f"]),
        (["a", "b", "c", "d", "e", "f"], ["b", "a", "c", "d", "e", "f"]),
        ([0, 1, 2, 3, 4, 5], [None, 1, 2, 3, 4, 5]),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [0, 1, 2, 3, 4, 5]),
        ([True, False] * 3, [None, False, *[True, False] * 2]),
        ([True, False] * 3, [1, 0] * 3),
    ],
)
def test_a_changed_attribute_is_another_row(
    experiment: Builder, one: list[Any], other: list[Any]
) -> None:
    config = experiment(columns={"attributes": ["x"]}).load()
    first, second = (of_frame(config, with_facts(pl.Series(values))) for values in (one, other))
    assert first.rows != second.rows
    assert (first.units, first.settings) == (second.units, second.settings)


def test_attributes_in_another_order_are_other_rows(experiment: Builder) -> None:
    config = experiment(columns={"attributes": ["x", "y"]}).load()
    x, y = pl.Series(["a", "b"] * 3), pl.Series(["b", "a"] * 3)
    assert of_frame(config, with_facts(x, y)).rows != of_frame(config, with_facts(y, x)).rows


def test_zeros_are_one_zero_and_households_are_in_the_rows(experiment: Builder) -> None:
    config = experiment(columns={"attributes": ["x"], "assigned_by": "home"}).load()
    homes = [pl.Series("assigned", values, dtype=pl.UInt64) for values in ([1, 2] * 3, [1] * 6)]
    zeros = [pl.Series([zero, 1.0] * 3) for zero in (0.0, -0.0)]
    first, same = (of_frame(config, with_facts(zero).with_columns(homes[0])) for zero in zeros)
    assert first == same
    assert of_frame(config, with_facts(zeros[0]).with_columns(homes[1])).rows != first.rows


def test_the_order_of_a_log_with_public_facts_does_not_matter(experiment: Builder) -> None:
    log = a_log(80).with_columns(
        pl.concat_str(pl.lit("h"), pl.int_range(pl.len()) % 2).alias("home"),
        (pl.int_range(pl.len()) % 7).alias("age"),
    )
    columns = {"attributes": ["age"], "assigned_by": "home"}
    first = of_run(experiment(log, columns=columns))
    files: dict[str, Content] = {"1.parquet": log[50:].reverse(), "2.parquet": log[:50]}
    again = of_run(experiment(files, source={"path": "[12].parquet"}, columns=columns))
    assert first.rows == again.rows


# settings

OWN: dict[str, Any] = {"epsilon": None, "resampling_probability": 0.5, "noise_scale": 4.0}
"""Parameters that leave nothing to plan."""


def private(**changes: Any) -> dict[str, Any]:
    """What makes clusters private, and more of it."""
    keys = {"epsilon": 0.5, "labels": ["east", "west"]} | changes
    columns = {"cluster": None if keys.get("centres") else "region"}
    return {"private_clusters": keys, "arms": {"same_shares": True}, "columns": columns}


CENTRES: dict[str, Any] = {
    "labels": None,
    "centres": {"old": [60.0], "young": [20.0]},
    "features": ["age"],
}

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "privacy.returning": [{"privacy": {"returning": "set_aside"}}],
    "privacy.spent": [{"privacy": {"spent": "set_aside"}}],
    "privacy.rows_each": [
        {"columns": {"privacy_unit": "home"}, "privacy": {"rows_each": 2}},
        {"columns": {"privacy_unit": "home"}, "privacy": {"rows_each": 3}},
    ],
    "columns.privacy_unit": [{"columns": {"privacy_unit": "house"}, "privacy": {"rows_each": 2}}],
    "columns.attributes": [
        {"columns": {"attributes": ["age"]}},
        {"columns": {"attributes": ["years"]}},
        {"columns": {"attributes": ["age", "years"]}},
        {"columns": {"attributes": {"named": "age"}}},
    ],
    "columns.assigned_by": [{"columns": {"assigned_by": "home"}}],
    "arms.control": [{"arms": {"control": "nobody"}}],
    "arms.treatments": [
        {"arms": {"treatments": ["mail", "fax"]}},
        {"arms": {"treatments": ["fax"]}},
    ],
    "arms.same_shares": [{"arms": {"same_shares": True}}],
    "outcome.values": [{"outcome": {"values": [0, 1, 2, 3.5]}}, {"outcome": {"values": [0, 3]}}],
    "outcome.low": [{"outcome": {"values": None, "low": -1, "high": 3, "levels": 4}}],
    "outcome.high": [{"outcome": {"values": None, "low": 0, "high": 4, "levels": 4}}],
    "outcome.levels": [{"outcome": {"values": None, "low": 0, "high": 3, "levels": 5}}],
    "outcome.missing": [{"outcome": {"missing": 1}}],
    "outcome.decimal": [{"outcome": {"decimal": ","}}],
    # By what people are known again, where that decides who is released.
    "source.ids": [{"source": {"ids": "exact"}, "privacy": {"returning": "set_aside"}}],
    "outcome.scores": [
        {"outcome": {"values": ["a", "b", "c", "d"], "scores": [0, 1, 2, 3]}},
        {"outcome": {"values": ["a", "b", "c", "d"], "scores": [0, 1, 2, 4]}},
        {"outcome": {"values": ["a", "b", "c", "e"], "scores": [0, 1, 2, 3]}},
    ],
    "outcome.rounding": [{"outcome": {"rounding": "nearest"}}],
    "outcome.guess": [{"outcome": {"guess": [1, 2, 3, 4]}}],
    "outcome.label": [{"outcome": {"label": "Clicks in a week"}}],
    "outcome.measured_in": [{"outcome": {"measured_in": "clicks"}}],
    "outcome.role": [
        {"outcome": {"role": "primary"}},
        {"outcome": {"role": "secondary"}},
        {"outcome": {"role": "guardrail", "margin": 1}},
    ],
    "outcome.margin": [{"outcome": {"role": "guardrail", "margin": 0.5}}],
    "outcome.direction": [
        {"outcome": {"direction": "decrease"}},
        {"outcome": {"role": "primary", "direction": "decrease"}},
    ],
    "decision.primary": [{"outcome": {"role": "primary"}, "decision": {"primary": "any"}}],
    "privacy.mechanism": [
        {"privacy": {"mechanism": "auto"}},
        {"privacy": {"mechanism": "cluster-free-dp"}},
    ],
    "privacy.epsilon": [{"privacy": {"epsilon": 2.1}}],
    "privacy.delta": [{"privacy": {"delta": 1e-6}}],
    "privacy.strata_statistic": [{"privacy": {"mechanism": "auto", "strata_statistic": "means"}}],
    "privacy.margins": [
        {"columns": {"attributes": ["age", "years"]}, "privacy": {"margins": ["age"]}},
        {"columns": {"attributes": ["age", "years"]}, "privacy": {"margins": [["age", "years"]]}},
        {
            "columns": {"attributes": ["age", "years"]},
            "privacy": {"margins": {"age": 1, "years": 2}},
        },
    ],
    "privacy.min_stratum": [{"privacy": {"min_stratum": 11}}],
    "private_clusters.epsilon": [private(), private(epsilon=0.6)],
    "private_clusters.labels": [private(labels=["east", "west", "south"])],
    "private_clusters.missing": [private(missing="west")],
    "private_clusters.centres": [private(**CENTRES)],
    "private_clusters.centres_epsilon": [private(**CENTRES, centres_epsilon=0.1)],
    "publish.unit_id": [{"publish": {"unit_id": "keyed-hash", "key_file": "a.key"}}],
    "publish.key_file": [{"publish": {"unit_id": "keyed-hash", "key_file": "b.key"}}],
}
"""Settings that can affect a release, each with changes of it."""


def of_events(**changes: dict[str, Any]) -> dict[str, Any]:
    """What makes a log one of events, and more."""
    base: dict[str, dict[str, Any]] = {
        "source": {"grain": "event", "outcomes_path": "events.csv"},
        "columns": {"time": "ts"},
        "outcome": {"aggregate": "sum"},
    }
    return changes | {name: keys | changes.get(name, {}) for name, keys in base.items()}


def scheduled(**changes: str) -> dict[str, Any]:
    """A schedule, and more of it."""
    return {"source": {"path": "{period}.csv"}, "schedule": {"since": "2026-11-01"} | changes}


def mailed(changes: dict[str, Any]) -> dict[str, Any]:
    """Somebody who is told by mail, and more of it."""
    email = {"smtp": "mail.example.org", "from": "us@example.org", "to": ["ops@example.org"]}
    return {"notify": {"email": email | changes}}


TABLE = {"path": None, "table": "lake/people", "in": "delta"}

INNOCENT: dict[str, list[dict[str, Any]]] = {
    "privacy.account": [{"privacy": {"account": "population"}}],
    "ledger.key_file": [{"ledger": {"key_file": "other.key"}}],
    "source.path": [{"source": {"path": "elsewhere/*.csv"}}],
    "source.repeated": [{"source": {"repeated": "first"}}],  # which rows count is in the rows
    "source.delimiter": [{"source": {"delimiter": ";"}}],
    "source.table": [{"source": {**TABLE, "table": "lake/others"}}],
    "source.in": [{"source": TABLE}],
    "source.at": [{"source": {**TABLE, "in": "postgresql", "at": "postgresql://reader@lake/web"}}],
    "source.period": [{"source": {**TABLE, "period": "day"}}],
    "columns.unit": [{"columns": {"unit": "person"}}],
    "columns.arm": [{"columns": {"arm": "group"}}],
    "columns.outcome": [{"columns": {"outcome": "visits"}}],
    "columns.cluster": [{"columns": {"cluster": None}}, {"columns": {"cluster": ["a", "b"]}}],
    "arms.shares": [
        {"arms": {"shares": "undeclared"}},
        {"arms": {"shares": {"none": 1, "mail": 2}}},
    ],
    "arms.sample_ratio": [{"arms": {"sample_ratio": "refuse"}}],
    "quarantine.at_most": [{"quarantine": {"at_most": 0.5}}],
    "privacy.population": [{"privacy": {"population": "others"}}],
    "privacy.budget_epsilon": [{"privacy": {"budget_epsilon": 9.0}}],
    "privacy.budget_delta": [{"privacy": {"budget_delta": 0.1}}],
    "privacy.segment_shares": [{"privacy": {"segment_shares": [0.1]}}],
    "privacy.overall_effect": [{"privacy": {"overall_effect": False}}],
    "publish.directory": [{"publish": {"directory": "out"}}],
    "ledger.url": [{"ledger": {"url": "sqlite:///other.sqlite"}}],
    "run.memory_limit": [{"run": {"memory_limit": "1GB"}}],
    "run.spill_directory": [{"run": {"spill_directory": "elsewhere"}}],
    "run.workers": [{"run": {"workers": 2}}],
    "run.metrics_directory": [{"run": {"metrics_directory": "metrics"}}],
    "notify.webhook_file": [{"notify": {"webhook_file": "webhook"}}],
    "notify.on": [{"notify": {"webhook_file": "webhook", "on": ["failed"]}}],
    "notify.set_aside_above": [{"notify": {"webhook_file": "webhook", "set_aside_above": 0.2}}],
    "email.smtp": [mailed({"smtp": "localhost:2525"})],
    "email.from": [mailed({"from": "others@example.org"})],
    "email.to": [mailed({"to": ["others@example.org"]})],
    "email.security": [mailed({"security": "tls"})],
    "email.user": [mailed({"user": "us", "password_file": "one"})],
    "email.password_file": [mailed({"user": "us", "password_file": "other"})],
    "publish.signing_key": [{"publish": {"signing_key": "signing.pem"}}],
    "retention.quarantine": [{"retention": {"quarantine": "30d"}}],
    "retention.spill": [{"retention": {"spill": "2d"}}],
    "retention.releases": [{"retention": {"releases": "400d"}}],
    "retention.prefect": [{"retention": {"prefect": "30d"}}],
    "schedule.since": [scheduled(), scheduled(since="2026-11-02")],
    "schedule.timezone": [scheduled(timezone="Europe/Zurich")],
    "schedule.lateness": [scheduled(lateness="3h")],
    "schedule.missing_after": [scheduled(missing_after="3d")],
    "schedule.until": [scheduled(until="2026-12-31")],
    # What events come to is in the rows.
    "schedule.events": [
        of_events(
            source={"path": "{period}.csv", "outcomes_path": "{period}.json", "window": "1d"},
            schedule={"since": "2026-11-01", "events": events},
        )
        for events in ("required", "may_be_absent")
    ],
    "source.grain": [of_events()],
    "source.outcomes_path": [of_events(source={"outcomes_path": "more.csv"})],
    "source.outcomes_table": [
        of_events(source={**TABLE, "outcomes_path": None, "outcomes_table": "lake/more"})
    ],
    "source.window": [of_events(source={"window": "7d"})],
    "columns.time": [of_events(columns={"time": "at"})],
    "columns.event": [of_events(columns={"event": "id"})],
    "columns.outcome_time": [of_events(columns={"outcome_time": "at"})],
    "columns.outcome_unit": [of_events(columns={"outcome_unit": "person"})],
    "outcome.aggregate": [of_events(outcome={"aggregate": "max"})],
    "outcome.cap": [of_events(outcome={"cap": 2.0})],
}
"""Settings that cannot, each with changes of it."""

ELSEWHERE = {
    "private_clusters.features",  # tried below
    "privacy.learn_from",  # likewise, of tables
    "experiment",  # tried below
    *("outcomes", "ratios"),  # tried below
    "privacy.joint",  # of two outcomes, see tests/flows/test_joint_release.py
    "quarantine.directory",  # where the key is
    *("privacy.resampling_probability", "privacy.truncation_threshold", "privacy.noise_scale"),
}


def settings_of(built: Experiment) -> str:
    facts = [pl.lit(1, pl.UInt64).alias(name) for name in ("assigned", *attribute_columns(2))]
    return of_frame(built.load(), kept_rows(BASE).with_columns(facts)).settings


@pytest.fixture
def keys(experiment: Builder) -> None:
    """Keys of unit ids, in the folder of the experiment."""
    folder = experiment().folder
    for name, content in (
        ("a.key", b"a" * 32),
        ("b.key", b"b" * 32),
        ("again.key", b"a" * 32 + b"\n"),
    ):
        (folder / name).write_bytes(content)


@pytest.mark.usefixtures("keys")
def test_every_setting_that_can_affect_a_release_matters(experiment: Builder) -> None:
    changes = [change for changes in SETTINGS.values() for change in changes]
    found = [settings_of(experiment(**change)) for change in [{}, *changes]]
    assert len(set(found)) == len(found)


@pytest.mark.usefixtures("keys")
def test_no_other_setting_matters(experiment: Builder) -> None:
    base = settings_of(experiment())
    for changes in INNOCENT.values():
        for change in changes:
            assert settings_of(experiment(**change)) == base, change


def test_every_key_is_tried_here() -> None:
    assert {*SETTINGS, *INNOCENT, *ELSEWHERE} == set(keys_of(Config))


def keys_of(section: type[ConfigSection], prefix: str = "") -> Iterator[str]:
    for name, field in fields(section).items():
        options = [one for one in get_args(field.annotation) if one is not type(None)]
        kind = options[0] if len(options) == 1 else field.annotation  # a section may be left out
        if isinstance(kind, type) and issubclass(kind, ConfigSection):
            yield from keys_of(kind, f"{name}.")
        else:
            yield f"{prefix}{name}"


def test_the_experiment_matters(experiment: Builder) -> None:
    config = experiment().load()
    other = config.model_copy(update={"experiment": "other"})
    assert of_frame(config, kept_rows(BASE)).settings != of_frame(other, kept_rows(BASE)).settings


SEVERAL: list[dict[str, Any]] = [
    {"name": "clicks", "column": "clicks", "values": [0, 1, 2, 3]},
    {"name": "sent", "column": "sent", "values": [0, 1]},
]
"""Two outcomes."""
SECOND = (pl.col("outcome") * 2.0 + 1.0).alias("outcome 2")


def of_several(
    experiment: Builder, outcomes: list[dict[str, Any]], frame: pl.DataFrame, **sections: Any
) -> Fingerprint:
    """The digests of a release of several outcomes."""
    columns = {"outcome": None}
    config = experiment(outcome=None, columns=columns, outcomes=outcomes, **sections).load()
    chosen = resolve_release(config, SIZES)
    return fingerprint_of(chosen.config, sealed_rows(frame, arms_of(frame)), chosen.designs)


@pytest.mark.usefixtures("keys")
def test_every_setting_of_each_of_several_outcomes_matters(experiment: Builder) -> None:
    frame = kept_rows(BASE).with_columns(SECOND)
    first, second = SEVERAL
    changed = [
        [first, second],
        [first, second | {"name": "posted"}],
        [first, second | {"share": 0.25}],
        [first, second | {"label": "Sent it on"}],
        [first, second | {"measured_in": "share"}],
        [first, second | {"role": "primary"}],
        [first | {"role": "primary"}, second],
        [first, second | {"direction": "decrease"}],
        [first, second | {"values": [0, 2]}],
        [first, second | {"missing": 1}],
        [first, second | {"rounding": "nearest"}],
        [first, second | {"guess": [1, 2]}],
        [first | {"name": "sent"}, second | {"name": "clicks"}],
    ]
    found = [of_several(experiment, outcomes, frame).settings for outcomes in changed]
    found.append(of_several(experiment, SEVERAL, frame, privacy={"epsilon": 2.5}).settings)
    found.append(of_several(experiment, SEVERAL, frame, privacy={"delta": 1e-9}).settings)
    ratio = {"name": "rate", "numerator": "sent", "denominator": "clicks"}
    found += [
        of_several(experiment, SEVERAL, frame, ratios=[one]).settings
        for one in (ratio, ratio | {"label": "Sent on"})
    ]
    assert len(set(found)) == len(found)
    # Where a column is found does not matter: the rows hold what is in it.
    elsewhere = [first, second | {"column": "other"}]
    assert of_several(experiment, elsewhere, frame).settings == found[0]


def test_every_one_of_several_outcomes_matters(experiment: Builder) -> None:
    frame = kept_rows(BASE).with_columns(SECOND)
    other = frame.with_columns(pl.col("outcome 2") + 1.0)
    swapped = frame.rename({"outcome": "outcome 2", "outcome 2": "outcome"})
    found = [of_several(experiment, SEVERAL, one) for one in (frame, other, swapped)]
    assert len({one.rows for one in found}) == 3
    assert len({one.units for one in found}) == len({one.settings for one in found}) == 1


@pytest.mark.parametrize("change", [{"epsilon": 2.5}, {"delta": 1e-9}])
def test_what_is_stated_matters_even_where_nothing_else_changes(
    experiment: Builder, change: dict[str, Any]
) -> None:
    config = experiment().load()
    frame = kept_rows(BASE)
    sealed, design = sealed_rows(frame, arms_of(frame)), config.design()
    stated = [fingerprint_of(config, sealed, one) for one in (design, replace(design, **change))]
    assert stated[0].settings != stated[1].settings


def test_where_private_centres_lie_is_in_the_rows_alone(experiment: Builder) -> None:
    """They decide which cluster a unit is in, which is digested, and nothing else."""
    base = settings_of(experiment(**private(**CENTRES)))
    others: list[dict[str, Any]] = [
        {"centres": {"old": [61.0], "young": [20.0]}, "missing": "old"},
        {"features": ["tenure"]},
        {"centres": {"young": [20.0], "old": [60.0]}, "missing": "old"},
    ]
    for other in others:
        assert settings_of(experiment(**private(**CENTRES | other))) == base, other


PARAMETERS = {
    "epsilon": None,
    "resampling_probability": 0.8,
    "truncation_threshold": 0.02,
    "noise_scale": 10.0,
}


def test_declared_parameters_matter(experiment: Builder) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"resampling_probability": 0.81},
        {"truncation_threshold": 0.03},
        {"noise_scale": 11.0},
    ]
    found = [settings_of(experiment(privacy=PARAMETERS | change)) for change in changes]
    assert len(set(found)) == len(changes)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"outcome": {"missing": 0}}),
        ({}, {"outcome": {"values": [0.0, 1.0, 2, 3]}}),
        ({}, {"outcome": {"values": None, "low": 0, "high": 3, "levels": 4}}),
        ({}, {"privacy": {"strata_statistic": "counts"}}),
        ({"privacy": {"mechanism": None}}, {"privacy": {"mechanism": "auto"}}),
        (
            {"privacy": {"mechanism": "auto"}},
            {"privacy": {"mechanism": "auto"}, "outcome": {"guess": [2, 2, 2, 2]}},
        ),
        (
            {"privacy": OWN | {"mechanism": "auto"}},
            {"privacy": OWN | {"mechanism": "uniform-prior-dp"}},
        ),
        (
            {"publish": {"unit_id": "keyed-hash", "key_file": "a.key"}},
            {"publish": {"unit_id": "keyed-hash", "key_file": "again.key"}},
        ),
    ],
)
def test_the_same_settings_spelt_in_another_way_are_the_same(
    experiment: Builder, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert settings_of(experiment(**one)) == settings_of(experiment(**other))


def test_what_a_plan_depends_on_matters_as_far_as_it_changes_the_design(
    experiment: Builder,
) -> None:
    """Shares of segments and the declared statistic enter by the design that follows alone."""
    auto: dict[str, Any] = {"mechanism": "auto"}
    changes: list[dict[str, Any]] = [
        {},
        {"strata_statistic": "counts"},
        {"strata_statistic": "means"},
        {"strata_statistic": "means", "segment_shares": []},
        {"epsilon": 2.5},
        {"delta": 1e-3},
    ]
    found = [settings_of(experiment(privacy=auto | change)) for change in changes]
    assert len(set(found)) == len(changes)
    less = auto | {"epsilon": 1.0}
    coarse = experiment(privacy=less, outcome={"levels": "auto"})
    assert len(resolve_design(coarse.load(), SIZES).config.outcome.grid) < 4
    assert settings_of(coarse) not in (*found, settings_of(experiment(privacy=less)))
    same = auto | {"segment_shares": [0.02], "strata_statistic": "none"}
    assert settings_of(experiment(privacy=same)) == found[0]


def test_what_tables_are_solved_for_matters(experiment: Builder) -> None:
    """Grid, guess, what they keep and the noise of counts; the guess as far as it is one."""
    optimal: dict[str, Any] = {"mechanism": "cluster-optimal-dp", "strata_statistic": "counts"}
    changes: list[dict[str, Any]] = [
        {"privacy": optimal},
        {"privacy": optimal, "outcome": {"guess": [4, 3, 2, 1]}},
        {"privacy": optimal, "outcome": {"values": [0, 1, 2, 4]}},
        {"privacy": optimal | {"epsilon": 2.5}},
        {"privacy": optimal | {"strata_statistic": "none", "learn_from": "arms"}},
        {"privacy": optimal | {"learn_from": "nothing"}},
        {"privacy": optimal | {"mechanism": "uniform-prior-dp"}},
    ]
    found = [settings_of(experiment(**change)) for change in changes]
    assert len(set(found)) == len(changes)
    same = {"privacy": optimal, "outcome": {"guess": [2, 2, 2, 2]}}
    assert settings_of(experiment(**same)) == found[0]


@pytest.mark.parametrize(
    "change",
    [
        {"response_epsilon": 1.5},
        {"noise_scale": 99.0},
        {"arm_noise_scale": 99.0},
        {"learns": False, "arm_noise_scale": None},
        {"guess": (0.4, 0.3, 0.2, 0.1)},
        {"grid": (0.0, 1.0, 2.0, 4.0)},
    ],
)
def test_each_parameter_of_tables_is_in_what_is_digested(
    experiment: Builder, change: dict[str, Any]
) -> None:
    privacy = {"mechanism": "cluster-optimal-dp", "strata_statistic": "counts"}
    config = experiment(privacy=privacy).load()
    chosen = resolve_design(config, SIZES)
    assert isinstance(chosen.design, OptimalDesign)
    parameters = replace(chosen.design.mechanism.parameters, **change)
    other = replace(chosen.design, mechanism=ClusterOptimalDP(parameters))
    sealed = sealed_rows(kept_rows(BASE), arms_of(kept_rows(BASE)))
    one, two = (fingerprint_of(chosen.config, sealed, each) for each in (chosen.design, other))
    assert one.settings != two.settings
    assert one.rows == two.rows


def test_no_key_of_unit_ids_is_in_what_is_digested(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents: list[dict[str, Any]] = []
    dumps = json.dumps

    def spy(document: dict[str, Any], **how: Any) -> str:
        documents.append(document)
        return dumps(document, **how)

    built = experiment(publish={"unit_id": "keyed-hash", "key_file": "key"})
    (built.folder / "key").write_bytes(b"some secret words")
    monkeypatch.setattr("flows.config.settings.json.dumps", spy)
    settings_of(built)
    (document,) = documents
    assert document["unit_id_key"]
    assert "some secret words" not in dumps(document)
    assert b"some secret words".hex() not in dumps(document)


# the key


def test_the_key_is_made_on_first_use_and_kept(experiment: Builder) -> None:
    built = experiment()
    first = of_run(built)
    key = key_of(built).read_bytes()
    assert len(key) == 32
    assert stat.S_IMODE(key_of(built).stat().st_mode) == 0o600
    assert stat.S_IMODE(key_of(built).parent.stat().st_mode) == 0o700
    assert of_run(built) == first
    assert key_of(built).read_bytes() == key
    assert built.files == ["log.parquet", "quarantine/digest.key", "trial.toml"]


def test_digests_under_another_key_can_be_told_apart(experiment: Builder) -> None:
    built = experiment()
    first = of_run(built)
    key_of(built).unlink()
    second = of_run(built)
    assert not first.same_key(second)
    for name in ("rows", "units", "settings"):
        codes = [getattr(one, name).partition(":")[2] for one in (first, second)]
        assert codes[0] != codes[1]


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 31, b"x" * 33])
def test_a_damaged_key_is_named_and_left_alone(experiment: Builder, content: bytes) -> None:
    built = experiment()
    key_of(built).parent.mkdir()
    key_of(built).write_bytes(content)
    with pytest.raises(InputError) as caught:
        of_run(built)
    assert str(caught.value).startswith(
        f"{key_of(built)}: this key is damaged ({len(content)} bytes, not 32); put it back"
    )
    assert key_of(built).read_bytes() == content


@pytest.mark.parametrize(("make", "says"), NO_FILES)
def test_a_key_that_is_no_file_is_named_and_not_waited_for(
    experiment: Builder, make: Callable[[Path], object], says: str
) -> None:
    built = experiment()
    key_of(built).parent.mkdir(parents=True)
    make(key_of(built))
    with pytest.raises(InputError, match=re.escape(f"digest.key: {says}")):
        of_run(built)


def test_a_key_that_cannot_be_made_is_named(experiment: Builder) -> None:
    built = experiment()
    key_of(built).parent.mkdir()
    key_of(built).symlink_to("nowhere")
    with pytest.raises(InputError, match=r"digest\.key: there is a link of this name to nothing"):
        of_run(built)


def test_runs_at_once_make_one_key(experiment: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    built = experiment()
    config, frame, n_runs = built.load(), kept_rows(BASE), 8
    all_at = Barrier(n_runs)

    def run(_: int) -> Fingerprint:
        all_at.wait(timeout=PATIENCE)  # none has a key yet
        return of_frame(config, frame)

    def slowly() -> bytes:
        time.sleep(0.02)
        return secret_key()

    monkeypatch.setattr("flows.runtime.reading.key_files.secret_key", slowly)
    with ThreadPoolExecutor(n_runs) as pool:
        found = set(pool.map(run, range(n_runs)))
    assert len(found) == 1
    assert [path.name for path in key_of(built).parent.iterdir()] == [KEY_FILE]


def test_a_key_that_another_run_made_first_stays(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the folder's lock does not keep that run out."""
    built = experiment()
    winner = b"w" * 32

    def too_late() -> bytes:
        key_of(built).write_bytes(winner)
        return secret_key()

    monkeypatch.setattr("flows.runtime.reading.key_files.secret_key", too_late)
    found = of_frame(built.load(), kept_rows(BASE))
    assert key_of(built).read_bytes() == winner
    assert found.rows == expected_rows(winner, BASE, "text")
    assert [path.name for path in key_of(built).parent.iterdir()] == [KEY_FILE]


def test_a_run_that_dies_while_making_the_key_leaves_none(
    experiment: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = experiment()

    def dies() -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("flows.runtime.reading.key_files.secret_key", dies)
        with pytest.raises(KeyboardInterrupt):
            of_run(built)
    assert not key_of(built).exists()
    assert of_run(built) == of_run(built)
    assert [path.name for path in key_of(built).parent.iterdir()] == [KEY_FILE]


# nothing of anybody's row


def test_a_failure_tells_no_row(experiment: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*parts: object) -> str:
        raise ValueError(SENTINEL, parts)

    monkeypatch.setattr("flows.raw.fingerprint._digest", fails)
    with pytest.raises(ClusterdpError, match="fingerprint failed with ValueError") as caught:
        of_run(experiment())
    assert str(SENTINEL) not in told(caught.value)


def test_a_fingerprint_does_not_show(experiment: Builder) -> None:
    found = of_run(experiment())
    assert repr(found) == "Fingerprint()"
