"""The configuration: strict, and every refusal names its key."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from flows.config.load import load, period_of
from flows.config.model.experiment import Config
from flows.config.model.sections import LogSection, SourceSection
from flows.config.resolve import resolve_design
from privatizers.accounting.accountant import delta_at, pure_epsilon
from privatizers.accounting.budget import Budget
from privatizers.mechanisms.parameters import event_of
from schemas.errors import ConfigError
from tests.conftest import Builder, toml

OWN: dict[str, Any] = {"epsilon": None}
"""Privacy settings that give the parameters themselves."""


def refusal(experiment: Builder, **sections: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        experiment(**sections).load()
    assert caught.value.exit_code == 2
    return caught.value


def test_a_small_configuration_takes_the_defaults(experiment: Builder) -> None:
    config = experiment().load()
    assert config.outcome.missing_value == 0.0
    assert config.outcome.rounding == "stochastic"
    assert config.privacy.min_stratum == 10
    assert config.arms.expected_shares == (0.5, 0.5)
    assert not config.arms.same_shares
    assert config.privacy.delta == 0.0


def test_texts_stand_for_numbers_in_their_order(experiment: Builder) -> None:
    outcome = experiment(outcome={"values": ["no", "yes"], "missing": "yes"}).load().outcome
    assert outcome.grid == (0.0, 1.0)
    assert outcome.missing_value == 1.0
    assert outcome.numbers_of_texts == {"no": 0.0, "yes": 1.0}
    often = {"values": ["never", "weekly", "daily"], "scores": [0, 1, 7], "missing": 0.5}
    outcome = experiment(outcome=often).load().outcome
    assert outcome.grid == (0.0, 1.0, 7.0)
    assert outcome.missing_value == 0.5
    assert experiment().load().outcome.texts == ()


def test_what_is_written_is_never_in_an_object_store_but_releases(experiment: Builder) -> None:
    error = refusal(experiment, quarantine={"directory": "s3://bucket/aside"})
    assert error.problem == (
        "'s3://bucket/aside' is no place on this machine; name a folder or file here: no object "
        "store has the locks and the renaming at once that it needs"
    )
    source = {
        "path": "s3://bucket/{period}/*.csv",
        "grain": "event",
        "outcomes_path": "gs://other/a.csv",
    }
    config = experiment(source=source, columns={"time": "ts"}, outcome={"aggregate": "sum"}).load()
    assert config.source.path == source["path"]


def test_a_plan_keeps_texts_while_it_keeps_the_grid(experiment: Builder) -> None:
    often = {"values": ["never", "rarely", "often"], "scores": [0, 1, 2], "missing": "rarely"}
    privacy = {"mechanism": "auto", "epsilon": 1.0}
    sizes = np.full((40, 2), 50)
    config = experiment(outcome=often, privacy=privacy).load()
    kept = resolve_design(config, sizes).config.outcome
    assert kept.numbers_of_texts == {"never": 0.0, "rarely": 1.0, "often": 2.0}
    assert (kept.grid, kept.missing_value) == ((0.0, 1.0, 2.0), 1.0)
    privacy |= {"epsilon": 0.3}
    config = experiment(outcome=often | {"levels": "auto"}, privacy=privacy).load()
    coarse = resolve_design(config, sizes).config.outcome
    assert coarse.grid == (0.0, 2.0)
    assert (coarse.texts, coarse.missing_value) == ((), 1.0)


def test_every_key_of_the_contract_is_known(experiment: Builder) -> None:
    config = experiment(
        source={"grain": "unit"},
        columns={"cluster": ["region", "channel"]},
        arms={"treatments": ["mens", "womens"], "same_shares": True},
        outcome={"missing": 1, "rounding": "nearest", "guess": [4, 3, 2, 1]},
        privacy={
            "mechanism": "auto",
            "delta": 0.0,
            "population": "customers",
            "budget_epsilon": 20.0,
            "budget_delta": 0.0,
            "strata_statistic": "counts",
            "min_stratum": 5,
            "segment_shares": [0.1, 0.5],
        },
        publish={"directory": "out", "unit_id": "plain"},
        ledger={"url": "sqlite:///ledger.sqlite"},
        quarantine={"directory": "aside"},
        run={"memory_limit": "8GB"},
    ).load()
    assert config.arms.names == ("none", "mens", "womens")
    assert config.columns.clusters == ("region", "channel")
    assert config.outcome.guess == (4.0, 3.0, 2.0, 1.0)


def test_paths_are_relative_to_the_file_wherever_one_stands(
    experiment: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = experiment(publish={"directory": "out"}, quarantine={"directory": "../aside"})
    monkeypatch.chdir(built.folder.parent)
    config = load(Path(built.folder.name, "trial.toml"))
    monkeypatch.chdir("/")
    assert config.releases == built.folder / "out" / "trial"
    assert config.quarantined == built.folder / "../aside" / "trial"
    absolute = str(tmp_path / "elsewhere")
    config = experiment(publish={"directory": absolute}).load()
    assert config.releases == tmp_path / "elsewhere" / "trial"


def test_a_home_folder_is_filled_in(experiment: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    config = experiment(publish={"directory": "~/out"}).load()
    monkeypatch.setenv("HOME", "/somewhere")
    assert config.releases == Path("/somewhere/out/trial")


MEANT = {
    "paths": "path",
    "clusters": "cluster",
    "treatment": "treatments",
    "value": "values",
    "eps": "epsilon",
    "uri": "url",
    "threads": None,
}


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("source", "paths"),
        ("columns", "clusters"),
        ("arms", "treatment"),
        ("outcome", "value"),
        ("privacy", "eps"),
        ("publish", "folder"),
        ("ledger", "uri"),
        ("quarantine", "path"),
        ("run", "threads"),
    ],
)
def test_an_unknown_key_is_named(experiment: Builder, section: str, key: str) -> None:
    error = refusal(experiment, **{section: {key: "x"}})
    told = f"{section}.{key}: unknown key; remove it or correct its spelling"
    meant = MEANT.get(key)
    assert str(error) == (told if meant is None else f"{told}; did you mean `{meant}`?")


@pytest.mark.parametrize("line", ["directory = 'x'", "seed = 1", "[plans]\nx = 1"])
def test_an_unknown_key_at_the_top_is_named(experiment: Builder, line: str) -> None:
    config = experiment().config
    config.write_text(line + "\n" + config.read_text() if "[" not in line else toml({}) + line)
    with pytest.raises(ConfigError, match="unknown key"):
        load(config)


def test_a_missing_key_is_named(experiment: Builder) -> None:
    assert str(refusal(experiment, columns={"unit": None})).startswith("columns.unit: missing")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("source", "path", 3),
        ("source", "path", ""),
        ("source", "grain", "session"),
        ("columns", "unit", 7),
        ("columns", "cluster", 7),
        ("columns", "cluster", ["region", 7]),
        ("arms", "control", True),
        ("arms", "treatments", "mail"),
        ("arms", "treatments", [1]),
        ("arms", "same_shares", "yes"),
        ("arms", "same_shares", 1),
        ("arms", "shares", "equal"),
        ("arms", "shares", {"none": "half", "mail": 1.0}),
        ("outcome", "values", "0, 1"),
        ("outcome", "values", [0, "1"]),
        ("outcome", "values", [0, True]),
        ("outcome", "values", [0, float("nan")]),
        ("outcome", "values", [0, float("inf")]),
        ("outcome", "missing", "0"),
        ("outcome", "rounding", "up"),
        ("outcome", "guess", "normal"),
        ("privacy", "mechanism", "laplace"),
        ("privacy", "epsilon", "2"),
        ("privacy", "epsilon", True),
        ("privacy", "epsilon", float("nan")),
        ("privacy", "epsilon", float("inf")),
        ("privacy", "strata_statistic", "medians"),
        ("privacy", "min_stratum", 1.5),
        ("privacy", "min_stratum", 0),
        ("privacy", "segment_shares", 0.1),
        ("publish", "directory", ""),
        ("publish", "unit_id", "hidden"),
        ("publish", "key_file", ""),
        ("publish", "key_file", 3),
        ("ledger", "url", 1),
        ("quarantine", "directory", 1),
        ("quarantine", "at_most", 1.0),
        ("quarantine", "at_most", -0.1),
        ("quarantine", "at_most", "5 %"),
        ("quarantine", "at_most", float("nan")),
        ("arms", "sample_ratio", "stop"),
        ("run", "memory_limit", 8),
        ("run", "memory_limit", "lots"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_key(
    experiment: Builder, section: str, key: str, value: object
) -> None:
    error = refusal(experiment, **{section: {key: value}})
    assert error.key.startswith(f"{section}.{key}")
    assert "\n" not in str(error)


def test_a_wrong_value_is_shown_as_it_is_our_own(experiment: Builder) -> None:
    assert "'two'" in str(refusal(experiment, privacy={"epsilon": "two"}))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a.b", "..", "a\n", "é"])
def test_an_experiment_has_a_plain_name(experiment: Builder, name: str) -> None:
    config = experiment().config
    config.write_text(config.read_text().replace('"trial"', toml({}, name).split(" = ")[1].strip()))
    with pytest.raises(ConfigError, match="experiment"):
        load(config)


AUTO: dict[str, Any] = {"mechanism": "auto"}
FINE: dict[str, Any] = {"values": None, "low": 0, "high": 10, "levels": "auto"}
PARAMETERS: dict[str, Any] = OWN | AUTO | {"resampling_probability": 0.5, "noise_scale": 5.0}

IMPOSSIBLE: list[tuple[str, dict[str, dict[str, Any]]]] = [
    ("columns.cluster", {"columns": {"cluster": []}}),
    ("columns.arm", {"columns": {"arm": "customer"}}),
    ("columns.outcome", {"columns": {"outcome": "customer"}}),
    ("columns.cluster", {"columns": {"cluster": "clicks"}}),
    ("columns.cluster[1]", {"columns": {"cluster": ["region", "region"]}}),
    ("arms.treatments", {"arms": {"treatments": []}}),
    ("arms.treatments", {"arms": {"treatments": ["mail", "mail"]}}),
    ("arms.treatments", {"arms": {"treatments": ["mail", "none"]}}),
    ("arms.treatments", {"arms": {"treatments": ["mail", ""]}}),
    ("arms.shares", {"arms": {"shares": {"none": 1.0}}}),
    ("arms.sample_ratio", {"arms": {"sample_ratio": "refuse", "shares": "undeclared"}}),
    ("arms.shares", {"arms": {"shares": {"none": 1.0, "mail": 1.0, "fax": 1.0}}}),
    ("arms.shares", {"arms": {"shares": {"none": 1.0, "mail": 0.0}}}),
    ("arms.shares", {"arms": {"shares": {"none": 1.0, "mail": -1.0}}}),
    ("outcome.values", {"outcome": {"values": []}}),
    ("outcome.values", {"outcome": {"values": [1]}}),
    ("outcome.values", {"outcome": {"values": [0, 2, 1]}}),
    ("outcome.values", {"outcome": {"values": [0, 1, 1]}}),
    ("outcome.values", {"outcome": {"values": [-1.7e308, 1.7e308]}}),
    ("outcome.low", {"outcome": {"low": 0.0}}),
    ("outcome", {"outcome": {"values": None}}),
    ("outcome", {"outcome": {"values": None, "low": 0.0, "high": 1.0}}),
    ("outcome.high", {"outcome": {"values": None, "low": 1.0, "high": 1.0, "levels": 3}}),
    ("outcome.levels", {"outcome": {"values": None, "low": 0.0, "high": 1.0, "levels": 1}}),
    ("outcome.missing", {"outcome": {"missing": -0.1}}),
    ("outcome.missing", {"outcome": {"missing": 3.1}}),
    ("source.path", {"source": {"path": "s3://bucket"}}),
    ("source.path", {"source": {"path": "s3:///key"}}),
    ("source.path", {"source": {"path": "s3://bucket/logs/"}}),
    ("source.path", {"source": {"path": "gs://bucket-{period}/log.csv"}}),
    ("source.path", {"source": {"path": "https://host/log.csv"}}),
    ("publish.directory", {"publish": {"directory": "gs://bucket/releases"}}),
    ("publish.directory", {"publish": {"directory": "s3://bucket//releases"}}),
    ("publish.signing_key", {"publish": {"signing_key": "s3://bucket/signing.pem"}}),
    (
        "publish.key_file",
        {"publish": {"unit_id": "keyed-hash", "key_file": "gs://bucket/ids.key"}},
    ),
    ("quarantine.directory", {"quarantine": {"directory": "gs://bucket/quarantine"}}),
    ("ledger.key_file", {"ledger": {"key_file": "s3://bucket/account.key"}}),
    ("run.spill_directory", {"run": {"spill_directory": "s3://bucket/spill"}}),
    ("outcome.values", {"outcome": {"values": ["yes"]}}),
    ("outcome.values", {"outcome": {"values": ["no", "no"]}}),
    ("outcome.values", {"outcome": {"values": ["no", ""]}}),
    ("outcome.values", {"outcome": {"values": ["no", " yes"]}}),
    ("outcome.scores", {"outcome": {"values": ["no", "maybe", "yes"]}}),
    ("outcome.scores", {"outcome": {"values": ["no", "yes"], "scores": [0, 1, 2]}}),
    ("outcome.scores", {"outcome": {"values": ["no", "yes"], "scores": [1, 0]}}),
    ("outcome.scores", {"outcome": {"values": ["no", "yes"], "scores": []}}),
    ("outcome.scores", {"outcome": {"scores": [0, 1, 2, 3]}}),
    ("outcome.missing", {"outcome": {"missing": "no"}}),
    ("outcome.missing", {"outcome": {"values": ["no", "yes"], "missing": "No"}}),
    ("outcome.missing", {"outcome": {"values": ["no", "yes"], "missing": 2}}),
    ("outcome.low", {"outcome": {"values": ["no", "yes"], "low": 0}}),
    ("outcome.guess", {"outcome": {"guess": [1, 1, 1]}}),
    ("outcome.guess", {"outcome": {"guess": [1, 1, 1, -1]}}),
    ("outcome.guess", {"outcome": {"guess": [0, 0, 0, 0]}}),
    ("privacy.epsilon", {"privacy": {"epsilon": None}}),
    ("privacy.epsilon", {"privacy": {"epsilon": 0.0}}),
    ("privacy.epsilon", {"privacy": {"epsilon": -1.0}}),
    ("privacy.epsilon", {"privacy": {"epsilon": 1e-17}}),
    ("privacy.epsilon", {"privacy": {"epsilon": 5e-324}}),
    ("privacy.epsilon", {"privacy": {"epsilon": 1e300}}),
    ("privacy.delta", {"privacy": {"delta": -1e-6}}),
    ("privacy.delta", {"privacy": {"delta": 1.0}}),
    ("privacy.noise_scale", {"privacy": {"noise_scale": 1.0}}),
    ("privacy.strata_statistic", {"privacy": {"strata_statistic": "none"}}),
    ("privacy.strata_statistic", {"privacy": {"strata_statistic": "means"}}),  # of cluster-dp
    ("outcome.levels", {"outcome": FINE}),  # of cluster-dp
    ("outcome.levels", {"outcome": {"levels": "auto"}}),
    ("outcome.levels", {"outcome": FINE, "privacy": PARAMETERS}),  # nothing is planned
    ("outcome.low", {"outcome": FINE | {"values": [0, 1]}, "privacy": AUTO}),
    ("outcome.levels", {"outcome": {"levels": 4}}),
    ("outcome", {"outcome": FINE | {"high": None}, "privacy": AUTO}),
    ("outcome.rounding", {"outcome": FINE | {"rounding": "nearest"}, "privacy": AUTO}),
    ("outcome.rounding", {"outcome": {"levels": "auto", "rounding": "nearest"}, "privacy": AUTO}),
    ("outcome.guess", {"outcome": FINE | {"guess": [1]}, "privacy": AUTO}),
    ("outcome.guess", {"outcome": FINE | {"guess": []}, "privacy": AUTO}),
    ("outcome.guess", {"outcome": FINE | {"guess": [1, -1, 1]}, "privacy": AUTO}),
    ("outcome.guess", {"outcome": {"levels": "auto", "guess": [1, 1]}, "privacy": AUTO}),
    ("privacy.segment_shares", {"privacy": AUTO | {"segment_shares": [0.1, 0.0]}}),
    ("privacy.segment_shares", {"privacy": AUTO | {"segment_shares": [1e-300]}}),
    ("privacy.segment_shares", {"privacy": AUTO | {"segment_shares": [1.0]}}),
    ("privacy.segment_shares", {"privacy": AUTO | {"segment_shares": [-0.1]}}),
    (
        "privacy.strata_statistic",
        {
            "outcome": {"values": [0, 1, 3.14159265]},
            "privacy": AUTO | {"strata_statistic": "means"},
        },
    ),
    ("privacy.truncation_threshold", {"privacy": AUTO | {"truncation_threshold": 0.25}}),
    *(
        (f"privacy.{key}", {"privacy": {"mechanism": name, key: value}})
        for name in ("noisy-histogram", "noisy-horvitz-thompson")
        for key, value in (
            ("resampling_probability", 0.5),
            ("truncation_threshold", 0.1),
            ("strata_statistic", "counts"),
            ("strata_statistic", "none"),
        )
    ),
]


@pytest.mark.parametrize(("key", "sections"), IMPOSSIBLE)
def test_an_impossible_value_names_its_key(
    experiment: Builder, key: str, sections: dict[str, dict[str, Any]]
) -> None:
    assert refusal(experiment, **sections).key == key


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("resampling_probability", {"resampling_probability": None}),
        ("resampling_probability", {"resampling_probability": 0.0}),
        ("resampling_probability", {"resampling_probability": 1.0}),
        ("resampling_probability", {"resampling_probability": 1.5}),
        ("resampling_probability", {"resampling_probability": -0.5}),
        ("truncation_threshold", {"truncation_threshold": None}),
        ("truncation_threshold", {"truncation_threshold": 0.0}),
        ("truncation_threshold", {"truncation_threshold": -0.1}),
        ("truncation_threshold", {"truncation_threshold": 0.2501}),
        ("truncation_threshold", {"mechanism": "uniform-prior-dp", "truncation_threshold": 0.2}),
        ("noise_scale", {"noise_scale": None}),
        ("noise_scale", {"noise_scale": 0.0}),
        ("noise_scale", {"noise_scale": -1.0}),
        ("noise_scale", {"noise_scale": float("inf")}),
    ],
)
def test_an_impossible_parameter_names_its_key(
    experiment: Builder, key: str, changed: dict[str, Any]
) -> None:
    sound = {"resampling_probability": 0.8, "truncation_threshold": 0.02, "noise_scale": 10.0}
    assert experiment(privacy=OWN | sound).load().design().epsilon > 0
    assert refusal(experiment, privacy=OWN | sound | changed).key == f"privacy.{key}"


@pytest.mark.parametrize("noise_scale", [5e-324, 1e300])
def test_a_noise_scale_that_arithmetic_cannot_hold_is_refused(
    experiment: Builder, noise_scale: float
) -> None:
    """Too small, ε is infinite; too large, noisy counts wrap around and show the true ones."""
    privacy = {"mechanism": "auto", "resampling_probability": 0.5, "noise_scale": noise_scale}
    assert refusal(experiment, privacy=OWN | privacy).key == "privacy.noise_scale"


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("source.outcomes_path", {"source": {"outcomes_path": "x"}}),
        ("source.window", {"source": {"window": "7d"}}),
        ("outcome.aggregate", {"outcome": {"aggregate": "sum"}}),
        ("outcome.cap", {"outcome": {"cap": 2.0}}),
        ("columns.time", {"columns": {"time": "ts"}}),
        ("columns.event", {"columns": {"event": "id"}}),
        ("columns.outcome_time", {"columns": {"outcome_time": "ts"}}),
        ("columns.outcome_unit", {"columns": {"outcome_unit": "person"}}),
        ("publish.key_file", {"publish": {"key_file": "key"}}),
    ],
)
def test_a_key_without_the_setting_it_belongs_to_is_refused(
    experiment: Builder, key: str, sections: dict[str, dict[str, Any]]
) -> None:
    assert refusal(experiment, **sections).key == key


EVENTS: dict[str, dict[str, Any]] = {
    "source": {"grain": "event", "outcomes_path": "events/{period}/*.csv"},
    "columns": {"time": "ts"},
    "outcome": {"aggregate": "sum"},
}
"""Settings of grain "event", and no more of them than it takes."""


def with_events(**sections: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: keys | sections.get(name, {}) for name, keys in (sections | EVENTS).items()}


def test_events_take_their_units_and_times_from_columns_of_the_same_name(
    experiment: Builder,
) -> None:
    config = experiment(**EVENTS).load()
    assert (config.source.grain, config.outcome.aggregate) == ("event", "sum")
    assert (config.columns.unit_of_events, config.columns.time_of_events) == ("customer", "ts")
    assert (config.source.window_microseconds, config.outcome.cap) == (None, None)


def test_every_key_of_events_is_known(experiment: Builder) -> None:
    config = experiment(
        **with_events(
            source={"window": "12h"},
            columns={"event": "id", "outcome_time": "at", "outcome_unit": "person"},
            outcome={"cap": 2.5},
        )
    ).load()
    assert (config.columns.unit_of_events, config.columns.time_of_events) == ("person", "at")
    assert (config.columns.event, config.outcome.cap) == ("id", 2.5)
    assert config.source.window_microseconds == 12 * 3600 * 10**6


@pytest.mark.parametrize("aggregate", ["count", "any"])
def test_events_that_are_counted_need_no_value(experiment: Builder, aggregate: str) -> None:
    sections = with_events(columns={"outcome": None}, outcome={"aggregate": aggregate})
    assert experiment(**sections).load().columns.outcome == ""
    sections = with_events(outcome={"aggregate": aggregate})
    assert experiment(**sections).load().columns.outcome == "clicks"


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("source.outcomes_path", {"source": {"outcomes_path": None}}),
        ("source.outcomes_path", {"source": {"outcomes_path": ""}}),
        ("source.outcomes_path", {"source": {"outcomes_path": 3}}),
        ("columns.time", {"columns": {"time": None}}),
        ("columns.time", {"columns": {"time": ""}}),
        ("columns.time", {"columns": {"time": "customer"}}),
        ("columns.time", {"columns": {"time": "region"}}),
        ("columns.outcome", {"columns": {"outcome": None}}),
        ("columns.outcome", {"columns": {"outcome": None}, "outcome": {"aggregate": "max"}}),
        ("columns.outcome", {"columns": {"outcome": ""}, "outcome": {"aggregate": "count"}}),
        ("columns.outcome", {"columns": {"outcome": "ts"}}),
        ("columns.outcome", {"columns": {"outcome": "customer"}}),
        ("columns.outcome", {"columns": {"outcome": "at", "outcome_time": "at"}}),
        ("columns.event", {"columns": {"event": "clicks"}}),
        ("columns.event", {"columns": {"event": ""}}),
        ("columns.event", {"columns": {"event": 1}}),
        ("columns.outcome_time", {"columns": {"outcome_time": "customer"}}),
        ("columns.outcome_time", {"columns": {"outcome_time": ""}}),
        ("columns.time", {"columns": {"outcome_unit": "ts"}}),
        ("columns.outcome_unit", {"columns": {"outcome_unit": 5}}),
        ("outcome.aggregate", {"outcome": {"aggregate": None}}),
        ("outcome.aggregate", {"outcome": {"aggregate": "mean"}}),
        ("outcome.cap", {"outcome": {"cap": 0.0}}),
        ("outcome.cap", {"outcome": {"cap": -1.0}}),
        ("outcome.cap", {"outcome": {"cap": "2"}}),
        ("outcome.cap", {"outcome": {"cap": float("inf")}}),
        ("outcome.cap", {"outcome": {"cap": float("nan")}}),
        ("outcome.cap", {"outcome": {"values": [5, 6], "cap": 5.0}}),
        ("outcome.cap", {"outcome": {"values": [-6, -5], "cap": 4.0}}),
        ("source.window", {"source": {"window": 7}}),
        *[
            ("source.window", {"source": {"window": window}})
            for window in ("", "7", "d", "0d", "-1d", "1.5h", "7 d", "7D", "1w", "7d\n", "\u0667d")
        ],
        ("source.window", {"source": {"window": "36526d"}}),
        ("source.window", {"source": {"window": "9999999999d"}}),
    ],
)
def test_events_are_configured_strictly(
    experiment: Builder, key: str, sections: dict[str, dict[str, Any]]
) -> None:
    error = refusal(experiment, **with_events(**sections))
    assert error.key == key
    assert "\n" not in str(error)


def test_columns_of_two_logs_may_share_a_name(experiment: Builder) -> None:
    columns = {"outcome": "variant", "event": "region"}
    assert experiment(**with_events(columns=columns)).load().columns.outcome == "variant"


@pytest.mark.parametrize(
    ("window", "seconds"),
    [("7d", 604_800), ("12h", 43_200), ("30m", 1_800), ("90s", 90), ("36525d", 3_155_760_000)],
)
def test_a_window_is_a_number_and_its_unit(experiment: Builder, window: str, seconds: int) -> None:
    source = experiment(**with_events(source={"window": window})).load().source
    assert source.window_microseconds == seconds * 10**6


def test_a_row_of_grain_unit_needs_its_outcome(experiment: Builder) -> None:
    error = refusal(experiment, columns={"outcome": None})
    assert str(error) == "columns.outcome: missing; it has to be given"


def test_hashed_ids_need_a_key(experiment: Builder) -> None:
    error = refusal(experiment, publish={"unit_id": "keyed-hash"})
    assert str(error) == 'publish.key_file: missing: unit_id = "keyed-hash" needs a key'


def test_the_key_is_not_read_with_the_configuration(experiment: Builder) -> None:
    publish = experiment(publish={"unit_id": "keyed-hash", "key_file": "nowhere"}).load().publish
    assert (publish.unit_id, publish.key_file) == ("keyed-hash", "nowhere")


@pytest.mark.parametrize(
    ("outcome", "grid"),
    [
        ({"values": [-5, 0, 2.5]}, (-5.0, 0.0, 2.5)),
        ({"values": None, "low": 0.0, "high": 500.0, "levels": 5}, (0, 125, 250, 375, 500)),
        ({"values": None, "low": 0.1, "high": 0.7, "levels": 2}, (0.1, 0.7)),
    ],
)
def test_the_grid_holds_exactly_its_declared_ends(
    experiment: Builder, outcome: dict[str, Any], grid: tuple[float, ...]
) -> None:
    config = experiment(outcome=outcome).load()
    assert config.outcome.grid == pytest.approx(grid)
    assert (config.outcome.grid[0], config.outcome.grid[-1]) == (grid[0], grid[-1])
    assert config.outcome.missing_value == grid[0]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        (None, (0.5, 0.5)),
        ({"mail": 3, "none": 1}, (0.25, 0.75)),
        ("undeclared", None),
    ],
)
def test_intended_shares_follow_the_order_of_the_arms(
    experiment: Builder, shares: object, expected: tuple[float, ...] | None
) -> None:
    assert experiment(arms={"shares": shares}).load().arms.expected_shares == expected


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [(None, ()), ("region", ("region",)), (["a", "b"], ("a", "b")), (["a"], ("a",))],
)
def test_a_cluster_is_no_column_one_or_several(
    experiment: Builder, cluster: object, expected: tuple[str, ...]
) -> None:
    assert experiment(columns={"cluster": cluster}).load().columns.clusters == expected


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1, 2.0, 7.25])
@pytest.mark.parametrize("mechanism", ["auto", "cluster-dp", "cluster-free-dp", "uniform-prior-dp"])
def test_the_epsilon_asked_for_is_the_one_stated(
    experiment: Builder, mechanism: str, epsilon: float
) -> None:
    config = experiment(privacy={"mechanism": mechanism, "epsilon": epsilon, "delta": 1e-9}).load()
    assert config.is_planned == (mechanism == "auto")
    chosen = resolve_design(config, np.array([[40, 40]])).design
    assert (chosen.epsilon, chosen.delta) == (epsilon, 1e-9)
    assert config.cost == Budget(epsilon, 1e-9)


@pytest.mark.parametrize(
    ("outcome", "ends", "n_values"),
    [
        (FINE, (0.0, 10.0), 1001),
        (FINE | {"guess": [5, 3, 1, 1]}, (0.0, 10.0), 4),
        ({"levels": "auto"}, (0.0, 3.0), 4),
    ],
)
def test_a_grid_to_be_planned_has_values_and_no_points_yet(
    experiment: Builder, outcome: dict[str, Any], ends: tuple[float, float], n_values: int
) -> None:
    config = experiment(outcome=outcome, privacy=AUTO).load()
    assert config.is_planned
    assert config.outcome.ends == ends
    assert config.outcome.missing_value == ends[0]
    assert len(config.outcome.support) == len(config.outcome.weights) == n_values
    assert sum(config.outcome.weights) == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="no grid before it is planned"):
        _ = config.outcome.grid


def test_means_are_released_on_any_grid_in_whole_steps(experiment: Builder) -> None:
    privacy = {"mechanism": "uniform-prior-dp", "strata_statistic": "means"}
    config = experiment(outcome={"values": [0, 0.1, 0.5, 2]}, privacy=privacy).load()
    parameters = config.design().mechanism.parameters
    assert parameters.strata_statistic == "means"
    assert parameters.noise_scale == pytest.approx(20 / (0.1 * 2.0))  # a tenth of ε = 2
    error = refusal(experiment, outcome={"values": [0, 1, 3.14159265]}, privacy=privacy)
    assert error.key == "privacy.strata_statistic"
    assert "whole steps apart" in str(error)


def test_declared_parameters_leave_nothing_to_plan(experiment: Builder) -> None:
    config = experiment(privacy=PARAMETERS).load()
    assert not config.is_planned
    assert config.design().mechanism.name == "uniform-prior-dp"
    assert config.cost.epsilon == config.design().epsilon


def test_a_file_that_is_no_toml_says_where(experiment: Builder) -> None:
    config = experiment().config
    config.write_text("experiment = \n")
    with pytest.raises(ConfigError, match=r"trial\.toml: not valid TOML: .*line 1"):
        load(config)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: there is no such file"):
        load(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="is a folder, not a file"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'experiment = "\xe9"')
    with pytest.raises(ConfigError, match=r"latin\.toml: is not text in UTF-8"):
        load(tmp_path / "latin.toml")


def test_a_configuration_cannot_be_changed(experiment: Builder) -> None:
    config: Config = experiment().load()
    with pytest.raises(ValidationError, match="frozen"):
        config.experiment = "other"


def test_a_refusal_survives_being_pickled(experiment: Builder) -> None:
    error = refusal(experiment, privacy={"epsilon": -1.0})
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - just pickled here
    assert (str(again), again.key) == (str(error), error.key)


@pytest.mark.parametrize("period", ["2026-11-20", "once", "0", "A_b-9"])
def test_a_period_is_taken_as_it_is(period: str) -> None:
    assert period_of(LogSection(path="logs/{period}.csv"), period) == period
    assert period_of(LogSection(path="log.csv"), period) == period


@pytest.mark.parametrize("period", ["", "-1", "_a", "a b", "a/b", "..", "a.b", "a\n", "é", "a*"])
def test_a_period_that_is_no_name_is_refused(period: str) -> None:
    with pytest.raises(ConfigError, match="--period"):
        period_of(LogSection(path="log.csv"), period)


def test_without_a_period_the_path_must_not_need_one() -> None:
    assert period_of(LogSection(path="log.csv"), None) == "once"
    with pytest.raises(ConfigError, match=r"--period: missing: source\.path holds"):
        period_of(LogSection(path="logs/{period}.csv"), None)
    with pytest.raises(ConfigError, match=r"--period: missing: source\.outcomes_path holds"):
        period_of(SourceSection(path="log.csv", outcomes_path="events/{period}.csv"), None)
    assert period_of(SourceSection(path="log.csv", outcomes_path="events.csv"), None) == "once"
    assert period_of(SourceSection(path="log.csv", outcomes_path="events/{period}.csv"), "p") == "p"


def test_with_a_delta_less_is_resampled_for_the_same_epsilon(experiment: Builder) -> None:
    pure, relaxed = (
        experiment(privacy={"epsilon": 0.5, "delta": delta}).load().design()
        for delta in (0.0, 1e-3)
    )
    assert (relaxed.epsilon, relaxed.delta) == (0.5, 1e-3)
    rates = [one.mechanism.parameters.resampling_probability or 1.0 for one in (relaxed, pure)]
    assert rates == sorted(rates)
    assert rates[0] < rates[1]
    assert delta_at(event_of(relaxed.mechanism.parameters), 0.5) <= 1e-3


def test_parameters_with_a_delta_state_the_epsilon_at_it(experiment: Builder) -> None:
    own = OWN | {
        "resampling_probability": 0.8,
        "truncation_threshold": 0.02,
        "noise_scale": 10.0,
    }
    design = experiment(privacy=own | {"delta": 1e-4}).load().design()
    event = event_of(design.mechanism.parameters)
    assert design.epsilon < pure_epsilon(event)
    assert delta_at(event, design.epsilon) <= 1e-4
