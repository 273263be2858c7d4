"""The file of an effect model: one JSON document, every field of it, and how it is read back.

It holds the declaration, the noisy sums in whole steps, and for readers what follows from the two.
Whoever reads it works the latter out again: nothing of it is taken on trust, and nothing is run. A
checksum over the content shows when a file was changed by hand or cut short. It is no signature:
whoever wants to can work out a new one; ``clusterdp ledger`` and digests are for that.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.effects.design import check_design
from schemas.effects.model import (
    NEIGHBOURS,
    EffectDesign,
    Feature,
    Learner,
    LevelFeature,
    Neighbours,
    NoisySums,
    NumberFeature,
    Propensity,
    Subgroups,
)
from schemas.errors import ConfigError, InputError, in_short, shown
from schemas.json_text import checksum, parsed
from schemas.names import EFFECTS, NAME, PERIOD, ReleaseName

SCHEMA_VERSION: Final = 1
KIND: Final = "clusterdp-effect-model"

_CHECKSUM = "checksum"
_INSTANT = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"
_MOST = 2**53  # of a whole number: beyond, doubles skip some
_MOST_SUMS = 250_000  # of one kind

Text = Annotated[str, Field(min_length=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-_MOST, le=_MOST)]


@dataclass(frozen=True)
class ModelHead:
    """Which model it is."""

    experiment: str
    period: str
    revision: int
    created_at: str
    """UTC, as ``2026-11-20T03:15:00Z``."""
    control: str
    treatment: str
    learner: Learner
    package_version: str

    @property
    def model_id(self) -> str:
        """``EXPERIMENT+cate.PERIOD.rN``."""
        return ReleaseName(f"{self.experiment}{EFFECTS}", self.period, self.revision).release_id


@dataclass(frozen=True)
class ModelDocument:
    """What stands in the file of a model."""

    head: ModelHead
    design: EffectDesign
    n_rows: int
    sums: tuple[NoisySums, ...]
    fitted: dict[str, Any]
    """What follows from the rest, for readers; see :mod:`flows.effects.released.model_file`."""


def guarantee(design: EffectDesign) -> str:
    """Say in words what is promised of a model."""
    common = (
        f"({design.epsilon:g}, {design.delta:g})-differential privacy: had one unit's "
        f"{_PROTECTED[design.neighbours]} been anything else, everything in this file would have "
        f"been as probable up to a factor of e^{design.epsilon:g}, but for a probability of "
        f"{design.delta:g}. "
    )
    return common + _NOT_PROTECTED[design.neighbours]


_PROTECTED: Final[dict[Neighbours, str]] = {
    "row": "whole row (outcome, arm, features, propensity)",
    "outcome": "outcome",
}
_NOT_PROTECTED: Final[dict[Neighbours, str]] = {
    "row": "Which units take part, and how many, is public.",
    "outcome": "Arms, features and propensities are not protected: exact sums of them are in this "
    "file, and which units take part is public.",
}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Feature(_Strict):
    name: Text
    low: Number | None = None
    high: Number | None = None
    scale: Literal["linear", "log"] | None = None
    levels: list[Text] | None = None
    other: Text | None = None
    missing: Number | Text | None = None


class _Subgroups(_Strict):
    name: Text
    feature: Text
    edges: list[Number] | None


class _Propensity(_Strict):
    kind: Literal["value", "column", "learn"]
    value: Number | None
    bound: Number


class _Design(_Strict):
    features: Annotated[list[_Feature], Field(max_length=1_000)]
    subgroups: Annotated[list[_Subgroups], Field(max_length=1_000)]
    outcome_low: Number
    outcome_high: Number
    propensity: _Propensity
    pairs: list[Annotated[list[Text], Field(min_length=2, max_length=2)]]
    targeting: bool


class _Sums(_Strict):
    name: Text
    rho: Annotated[Number, Field(ge=0)]
    sensitivity: Annotated[Number, Field(ge=0)]
    step: Annotated[Number, Field(gt=0)]
    scale: Annotated[Number, Field(ge=0)]
    steps: Annotated[list[Whole], Field(max_length=_MOST_SUMS)]


class _Document(_Strict):
    schema_version: int
    kind: str
    model_id: Text
    experiment: Annotated[str, Field(pattern=f"^{NAME}$")]
    period: Annotated[str, Field(pattern=f"^{PERIOD}$")]
    revision: Annotated[Whole, Field(ge=1)]
    created_at: Annotated[str, Field(pattern=_INSTANT)]
    package_version: Text
    guarantee: Text
    neighbours: Neighbours
    protected: Text
    epsilon: Annotated[Number, Field(gt=0)]
    delta: Annotated[Number, Field(gt=0, lt=0.5)]
    learner: Learner
    control: Text
    treatment: Text
    n_rows: Annotated[Whole, Field(ge=1)]
    design: _Design
    sums: Annotated[list[_Sums], Field(max_length=100)]
    fitted: dict[str, Any]


def to_text(document: ModelDocument) -> str:
    """Return the JSON text of a model, its checksum included; InputError if it is unsound."""
    head, design = document.head, document.design
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "model_id": head.model_id,
        "experiment": head.experiment,
        "period": head.period,
        "revision": head.revision,
        "created_at": head.created_at,
        "package_version": head.package_version,
        "guarantee": guarantee(design),
        "neighbours": design.neighbours,
        "protected": NEIGHBOURS[design.neighbours],
        "epsilon": design.epsilon,
        "delta": design.delta,
        "learner": head.learner,
        "control": head.control,
        "treatment": head.treatment,
        "n_rows": document.n_rows,
        "design": _design_content(design),
        "sums": [_sums_content(each) for each in document.sums],
        "fitted": document.fitted,
    }
    _read(content, head.model_id)
    content[_CHECKSUM] = checksum(content)
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _design_content(design: EffectDesign) -> dict[str, Any]:
    propensity = design.propensity
    return {
        "features": [dict(_feature_content(each)) for each in design.features],
        "subgroups": [
            {
                "name": each.name,
                "feature": each.feature,
                "edges": None if each.edges is None else list(each.edges),
            }
            for each in design.subgroups
        ],
        "outcome_low": design.low,
        "outcome_high": design.high,
        "propensity": {
            "kind": propensity.kind,
            "value": propensity.value,
            "bound": propensity.bound,
        },
        "pairs": [list(pair) for pair in design.pairs],
        "targeting": design.targeting,
    }


def _feature_content(feature: Feature) -> Iterator[tuple[str, Any]]:
    yield "name", feature.name
    if isinstance(feature, NumberFeature):
        yield from (("low", feature.low), ("high", feature.high))
        yield "scale", "log" if feature.log else "linear"
    else:
        yield from (("levels", list(feature.levels)), ("other", feature.other))
    yield "missing", feature.missing


def _sums_content(sums: NoisySums) -> dict[str, Any]:
    return {
        "name": sums.name,
        "rho": sums.rho,
        "sensitivity": sums.sensitivity,
        "step": sums.step,
        "scale": sums.scale,
        "steps": [int(each) for each in sums.steps],
    }


def from_text(text: str, place: str) -> ModelDocument:
    """Read a model back; ``place`` names it in errors.

    Raises InputError where it is no model, of another schema version, changed after it was
    written, or unsound.
    """
    content = parsed(text, place, "an effect model")
    if content.get("kind") != KIND:
        raise InputError(f"{place}: not an effect model (one is made by clusterdp cate CONFIG)")
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{place}: an effect model of schema version {shown(version)}, and this program reads "
            f"version {SCHEMA_VERSION}; read it with the clusterdp that made it"
        )
    given = content.pop(_CHECKSUM, None)
    if given != checksum(content):
        raise InputError(
            f"{place}: altered by hand, or cut short (its checksum does not fit its content); get "
            "the file again from where it was published"
        )
    return _read(content, place)


def _read(content: dict[str, Any], place: str) -> ModelDocument:
    """Read the content of a document; InputError, naming the field, where it is unsound."""
    try:
        found = _Document.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = in_short(".".join(map(str, first["loc"])))
        message = first["msg"][0].lower() + first["msg"][1:]
        problem = f"{place}: {key}: {message}"
    else:
        return _checked(found, place)
    raise InputError(problem)


def _checked(found: _Document, place: str) -> ModelDocument:
    head = ModelHead(
        experiment=found.experiment,
        period=found.period,
        revision=found.revision,
        created_at=found.created_at,
        control=found.control,
        treatment=found.treatment,
        learner=found.learner,
        package_version=found.package_version,
    )
    if found.model_id != head.model_id:
        raise InputError(f"{place}: model_id is not {head.model_id}, as its other fields say")
    if found.control == found.treatment:
        raise InputError(f"{place}: control and treatment are the same arm")
    design = _design(found, place)
    for name, said in (
        ("guarantee", guarantee(design)),
        ("protected", NEIGHBOURS[found.neighbours]),
    ):
        if getattr(found, name) != said:
            raise InputError(f"{place}: {name} is not what epsilon, delta and neighbours say")
    for each in found.sums:
        if math.frexp(each.step)[0] != 0.5:
            raise InputError(f"{place}: the step of the sums {shown(each.name)} is no power of two")
    sums = tuple(
        NoisySums(
            each.name,
            each.rho,
            each.sensitivity,
            each.step,
            each.scale,
            np.array(each.steps, dtype=np.int64),
        )
        for each in found.sums
    )
    return ModelDocument(head, design, found.n_rows, sums, found.fitted)


def _design(found: _Document, place: str) -> EffectDesign:
    given, share = found.design, found.design.propensity
    features = []
    for number, each in enumerate(given.features):
        feature = _feature(each)
        if feature is None:
            raise InputError(
                f"{place}: design.features[{number}] is neither a number with low and high nor "
                "one of several levels"
            )
        features.append(feature)
    design = EffectDesign(
        features=tuple(features),
        subgroups=tuple(
            Subgroups(each.name, each.feature, None if each.edges is None else tuple(each.edges))
            for each in given.subgroups
        ),
        low=given.outcome_low,
        high=given.outcome_high,
        propensity=Propensity(share.kind, share.value, share.bound),
        epsilon=found.epsilon,
        delta=found.delta,
        neighbours=found.neighbours,
        pairs=tuple((one, other) for one, other in given.pairs),
        targeting=given.targeting,
    )
    try:
        check_design(design)
    except ConfigError as error:
        problem = f"{place}: {error}"
    else:
        return design
    raise InputError(problem)


def _feature(given: _Feature) -> Feature | None:
    """One of the two kinds; None where the fields are those of neither."""
    missing = given.missing
    if given.levels is not None:
        if given.low is not None or given.high is not None or isinstance(missing, float):
            return None
        return LevelFeature(given.name, tuple(given.levels), given.other, missing)
    if given.low is None or given.high is None or isinstance(missing, str) or given.other:
        return None
    return NumberFeature(given.name, given.low, given.high, given.scale == "log", missing)
