"""A model's file: written, read back and worked out again; altered or hostile ones are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators.effects.models.fit import fit
from flows.effects.released.model_file import ModelFile, read_model, write_model
from privatizers.effects.models.lattice_sums import noisy_sums
from privatizers.effects.models.moments import STAGES, KnownMoments, released
from schemas.effects.file import KIND, ModelHead, guarantee
from schemas.effects.model import (
    EffectDesign,
    LevelFeature,
    Neighbours,
    NumberFeature,
    Propensity,
    Subgroups,
)
from schemas.errors import ClusterdpError, InputError
from schemas.json_text import checksum

HEAD = ModelHead("mail", "once", 1, "2026-11-20T03:15:00Z", "none", "mail", "moments", "0.1.0")
N_ROWS = 5_000


def a_design(
    propensity: Propensity = Propensity("value", 0.4),  # noqa: B008 - never changes
    neighbours: Neighbours = "row",
) -> EffectDesign:
    return EffectDesign(
        features=(
            NumberFeature("age", 18.0, 90.0, missing=40.0),
            NumberFeature("income", 1e3, 1e6, scale="log"),
            LevelFeature("sex", ("f", "m", "x"), other="x", missing="f"),
        ),
        subgroups=(Subgroups("age", "age", (30.0, 60.0)), Subgroups("sex", "sex")),
        low=0.0,
        high=10.0,
        propensity=propensity,
        epsilon=1.0,
        delta=1e-6,
        neighbours=neighbours,
        pairs=(("age", "income"),),
    )


def a_model(design: EffectDesign | None = None) -> ModelFile:
    """A model of sums that nobody drew: numbers that look like noise."""
    chosen = a_design() if design is None else design
    known = KnownMoments(chosen, N_ROWS)
    for stage in STAGES:  # scales follow from the sums before
        known = released(known, stage, (), lambda query, steps: noisy_sums(query, odd(steps)))
    return ModelFile(HEAD, fit(chosen, N_ROWS, tuple(known.sums.values())))


def odd(steps: np.ndarray) -> np.ndarray:
    return np.arange(len(steps), dtype=np.int64) * 7919 % 4001 + 60_000


def written(folder: Path, file: ModelFile | None = None) -> Path:
    path = folder / "model.json"
    path.unlink(missing_ok=True)
    write_model(a_model() if file is None else file, path)
    return path


@pytest.mark.parametrize("neighbours", ["row", "outcome"])
@pytest.mark.parametrize(
    "propensity", [Propensity("value", 0.4), Propensity("column"), Propensity("learn")]
)
def test_a_model_is_read_back(
    tmp_path: Path, propensity: Propensity, neighbours: Neighbours
) -> None:
    given = a_model(a_design(propensity, neighbours))
    found = read_model(written(tmp_path, given))
    assert found.head == given.head
    assert found.model.design == given.model.design
    assert found.model.ate == given.model.ate
    assert found.model.subgroups == given.model.subgroups
    assert np.array_equal(found.model.coefficients, given.model.coefficients)


def test_a_reader_finds_everything_in_it(tmp_path: Path) -> None:
    content = json.loads(written(tmp_path).read_text(encoding="utf-8"))
    assert (content["kind"], content["schema_version"]) == (KIND, 2)
    assert content["model_id"] == "mail+cate.once.r1"
    assert content["guarantee"] == guarantee(a_design())
    assert "1e-06)-differential privacy" in content["guarantee"]
    assert {type(step) for each in content["sums"] for step in each["steps"]} == {int}
    assert {"name", "rho", "sensitivity", "step", "scale", "steps"} == set(content["sums"][0])
    fitted = content["fitted"]
    assert set(fitted) >= {
        "degree", "basis", "coefficients", "covariance", "ate", "subgroups", "importance", "curves",
        "no_intervals", "warnings", "queries",
    }  # fmt: skip
    assert len(fitted["covariance"]) == len(fitted["coefficients"])


Change = Callable[[dict[str, Any]], object]


def altered(path: Path, change: Change, *, sign: bool) -> Path:
    """The file after a change by hand; ``sign``: with a checksum that fits."""
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    if sign:
        content.pop("checksum", None)
        content["checksum"] = checksum(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def first_sum(content: dict[str, Any]) -> None:
    content["sums"][-1]["steps"][0] += 1


def effects_sum(content: dict[str, Any]) -> None:
    next(each for each in content["sums"] if each["name"] == "effects")["steps"][1] += 4_000


@pytest.mark.parametrize(
    "change",
    [first_sum, lambda one: one.update(epsilon=0.5), lambda one: one["fitted"].clear()],
)
def test_any_change_by_hand_shows(tmp_path: Path, change: Change) -> None:
    path = altered(written(tmp_path), change, sign=False)
    with pytest.raises(InputError, match=f"^{path}: altered by hand, or cut short"):
        read_model(path)


def coefficient(value: object) -> Change:
    def change(content: dict[str, Any]) -> None:
        content["fitted"]["coefficients"][1] = value

    return change


def of(place: str, value: object) -> Change:
    """Set the field at a dotted place, a number being a position."""

    def change(content: dict[str, Any]) -> None:
        *steps, last = (int(part) if part.isdecimal() else part for part in place.split("."))
        found: Any = content
        for step in steps:
            found = found[step]
        found[last] = value

    return change


LIES: list[tuple[str, object]] = [
    *(("ate", None), ("ate.estimate", 12.5), ("ate.std_error", 1e-9), ("subgroups", [])),
    *(("curves.0.effects.0", 0.5), ("curves.0.at.0", 1.0), ("warnings", ["all is well"])),
    *(("importance.0.importance", 0.5), ("covariance.0.1", 0.25), ("basis.0.mean", 1.0)),
    *(("n_complete", 7.0), ("degree", True), ("queries.0.rho", 1e-6), ("no_intervals", "none")),
]


@pytest.mark.parametrize("place", ["coefficients.1", "ate.estimate", "covariance.0.1"])
def test_what_another_machine_rounds_otherwise_is_the_same(tmp_path: Path, place: str) -> None:
    def rounded(content: dict[str, Any]) -> None:
        *steps, last = (int(part) if part.isdecimal() else part for part in place.split("."))
        found: Any = content["fitted"]
        for step in steps:
            found = found[step]
        found[last] *= 1.0 + 1e-12

    read_model(altered(written(tmp_path), rounded, sign=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (coefficient(0.125), "altered by hand, or fitted otherwise"),
        (coefficient("x"), "altered by hand, or fitted otherwise"),
        (coefficient(10**400), "altered by hand, or fitted otherwise"),
        (effects_sum, "altered by hand, or fitted otherwise"),
        (of("n_rows", 4_000), "altered by hand, or fitted otherwise"),
        (lambda one: one["fitted"].pop("coefficients"), "altered by hand, or fitted otherwise"),
        (lambda one: one["fitted"]["coefficients"].pop(), "altered by hand, or fitted otherwise"),
        *(
            (of(f"fitted.{place}", value), "altered by hand, or fitted otherwise")
            for place, value in LIES
        ),
        (lambda one: one["fitted"].update(note="sure"), "altered by hand, or fitted otherwise"),
        (lambda one: one.pop("sums"), "sums: field required"),
        (lambda one: one["sums"].pop(), "its sums are not those of a model"),
        (lambda one: one["sums"][0]["steps"].pop(), "its sums are not those of a model"),
        (lambda one: one["sums"].reverse(), "its sums are not those of a model"),
        (of("sums.0.steps.0", 0.5), r"sums\.0\.steps\.0: input should be a valid integer"),
        (of("sums.0.steps.0", 2**60), r"sums\.0\.steps\.0: input should be less"),
        (of("sums.0.step", 0.3), "the step of the sums 'histograms' is no power of two"),
        (of("sums.0.scale", -1.0), r"sums\.0\.scale: "),
        (of("sums.4.step", 2.0**1000), "its sums are not those of a model|fitted otherwise"),
        (of("n_rows", 0), "n_rows: "),
        (of("n_rows", True), "n_rows: "),
        (of("epsilon", "1"), "epsilon: "),
        (of("epsilon", 3.0), "guarantee is not what the other fields say"),
        (of("guarantee", "all is well"), "guarantee is not what"),
        (of("model_id", "mail+cate.once.r2"), "model_id is not what the other fields say"),
        (of("treatment", "none"), "control and treatment are the same arm"),
        (of("learner", "tree"), "learner: "),
        (of("more", 1), "more: no such field"),
        (of("created_at", "yesterday"), "created_at: "),
        (of("design.features.0.high", 17.0), r"features\[0\].high: 17.0 is not above"),
        (of("design.features.0.high", None), r"design.features.0.number.high: input should be"),
        (
            lambda one: one["design"]["features"][0].pop("high"),
            r"design.features.0.number.high: field req",
        ),
        (
            of("design.features.0.levels", ["a", "b"]),
            r"design.features.0.levels.missing: input should",
        ),
        (
            of("design.features.2.levels.0", 5),
            r"design.features.2.levels.levels.0: input should be",
        ),
        (of("design.features.2", 5), r"design.features.2.number: input should be an object"),
        (of("design.pairs.0", ["age"]), r"design.pairs.0.1: field required"),
        (
            lambda one: one["design"]["propensity"].pop("bound"),
            r"design.propensity.bound: field required",
        ),
        (
            lambda one: one["design"]["subgroups"][1].pop("edges"),
            r"design.subgroups.1.edges: field requ",
        ),
        (of("design.features.2.levels", ["f"]), r"features\[2\].levels: fewer than 2"),
        (of("design.features.2.levels", ["f"] * 5_000), r"features\[2\].levels: 5,000"),
        (of("design.features", []), "features: none is declared"),
        (of("design.subgroups.0.feature", "x"), r"subgroups\[0\].feature: 'x' is none"),
        (of("design.propensity.value", 2.0), "propensity.value: 2.0 is not between"),
        (of("kind", "clusterdp-site-report"), "not an effect model"),
        (of("schema_version", 1), "an effect model of schema version 1, and this program reads"),
    ],
)
def test_an_unsound_model_is_refused_checksum_or_not(
    tmp_path: Path, change: Change, message: str
) -> None:
    path = altered(written(tmp_path), change, sign=True)
    with pytest.raises(InputError, match=f"^{path}: ({message})"):
        read_model(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a JSON document"),
        ("[1]", "not a JSON document"),
        ("{", "not a JSON document"),
        ("[" * 100_000, "not a JSON document"),
        ('{"kind": NaN}', "not a JSON document"),
        ('{"kind": "\\ud800"}', "holds half a character"),
        ('{"kind": 1, "kind": 2}', "the field 'kind' stands in it twice"),
        ("{}", "not an effect model"),
    ],
)
def test_other_texts_are_no_models(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_model(path)


def test_files_that_are_none_or_far_too_large(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="an effect model is a JSON document"):
        read_model(tmp_path / "none.json")
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(60_000_000)
    with pytest.raises(InputError, match="far too large"):
        read_model(path)


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ClusterdpError, match="cannot write here"):
        write_model(a_model(), tmp_path / "no folder" / "model.json")
