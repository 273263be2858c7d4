"""The file of an effect model: one JSON document, every field of it, and how it is read back.

It holds the declaration, the noisy sums in whole steps, and for readers what follows from the two.
Whoever reads it works the latter out again: nothing of it is taken on trust, and nothing is run. A
checksum over the content shows when a file was changed by hand or cut short. It is no signature:
whoever wants to can work out a new one; ``clusterdp ledger`` and digests are for that.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Discriminator, Field, Tag

from schemas.documents import Document, Sort, opened, parsed_as, plain, sealed, taken
from schemas.effects.design import check_design
from schemas.effects.model import (
    NEIGHBOURS,
    Agreed,
    EffectDesign,
    Learner,
    LevelFeature,
    Neighbours,
    NoisySums,
    NumberFeature,
    Propensity,
    SiteSums,
    Subgroups,
)
from schemas.errors import ConfigError, InputError, shown
from schemas.names import EFFECTS, NAME, PERIOD, ReleaseName

SCHEMA_VERSION: Final = 2
KIND: Final = "clusterdp-effect-model"
SORT: Final = Sort(KIND, SCHEMA_VERSION, "an effect model", "cate CONFIG")

_INSTANT = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"
_MOST = 2**53  # of a whole number: beyond, doubles skip some
_MOST_SUMS = 250_000  # of one kind
MOST_SITES: Final = 1_000

Amount = Annotated[float, Field(ge=0)]
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
    site: str | None = None
    """The site whose sums alone it has, for a model of many."""

    @property
    def model_id(self) -> str:
        """``EXPERIMENT+cate.PERIOD.rN``; of one site's ``EXPERIMENT@SITE+cate.PERIOD.rN``."""
        series = effects_series(self.experiment, self.site)
        return ReleaseName(series, self.period, self.revision).release_id


@dataclass(frozen=True)
class ModelDocument:
    """What stands in the file of a model."""

    head: ModelHead
    design: EffectDesign
    n_rows: int
    sums: tuple[NoisySums, ...]
    fitted: dict[str, Any]
    """What follows from the rest, for readers; see :mod:`flows.effects.released.model_file`."""


def effects_series(experiment: str, site: str | None) -> str:
    """What the models of an experiment are called, or what one site reports for them."""
    return f"{experiment}{'' if site is None else f'@{site}'}{EFFECTS}"


def guarantee(design: EffectDesign) -> str:
    """Say in words what is promised of a model."""
    sites = () if design.agreed is None else design.agreed.sites
    if sites:
        each = ", ".join(f"{one.site} ({one.epsilon:g}, {one.delta:g})" for one in sites)
        most = replace(design, agreed=None)
        return (
            f"By site, what the people there pay, (epsilon, delta): {each}. So for everybody "
            f"{guarantee(most)} Nobody may be at two sites: what they pay there adds up."
        )
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


def _kind_of(feature: object) -> str:
    return "levels" if isinstance(feature, dict) and "levels" in feature else "number"


_Feature = Annotated[
    Annotated[NumberFeature, Tag("number")] | Annotated[LevelFeature, Tag("levels")],
    Discriminator(_kind_of),
]


@dataclass(frozen=True)
class _Design:
    """What was declared of the model, but for what stands beside it."""

    features: Annotated[tuple[_Feature, ...], Field(max_length=1_000)]
    subgroups: Annotated[tuple[Subgroups, ...], Field(max_length=1_000)]
    outcome_low: float
    outcome_high: float
    propensity: Propensity
    pairs: tuple[tuple[str, str], ...]
    targeting: bool


@dataclass(frozen=True)
class _Sums:
    """One vector of :class:`schemas.effects.model.NoisySums`."""

    name: str
    rho: Amount
    sensitivity: Amount
    step: Annotated[float, Field(gt=0)]
    scale: Amount
    steps: Annotated[tuple[Whole, ...], Field(max_length=_MOST_SUMS)]


@dataclass(frozen=True)
class _Document(Document):
    """The fields of the file, in their order, but for the checksum."""

    schema_version: int
    kind: str
    model_id: str
    experiment: Annotated[str, Field(pattern=f"^{NAME}$")]
    period: Annotated[str, Field(pattern=f"^{PERIOD}$")]
    revision: Annotated[Whole, Field(ge=1)]
    created_at: Annotated[str, Field(pattern=_INSTANT)]
    package_version: str
    guarantee: str
    neighbours: Neighbours
    protected: str
    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=0.5)]
    learner: Learner
    control: str
    treatment: str
    n_rows: Annotated[Whole, Field(ge=1)]
    design: _Design
    sums: Annotated[tuple[_Sums, ...], Field(max_length=9 * MOST_SITES)]
    fitted: dict[str, Any]


@dataclass(frozen=True)
class _Site(SiteSums):
    """One site of a model of many."""

    site: Annotated[str, Field(pattern=f"^{NAME}$")]
    revision: Annotated[Whole, Field(ge=1)]
    n_rows: Annotated[Whole, Field(ge=1)]
    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=0.5)]


@dataclass(frozen=True)
class _Agreed(Agreed):
    """What sites agreed on."""

    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    usual: Annotated[tuple[tuple[float, float] | None, ...], Field(max_length=1_000)]
    sites: Annotated[tuple[_Site, ...], Field(max_length=MOST_SITES)]


@dataclass(frozen=True)
class _SitesDocument(_Document):
    """The same, of one site among many or of them all."""

    site: Annotated[str, Field(pattern=f"^{NAME}$")] | None
    agreed: _Agreed


def to_text(document: ModelDocument) -> str:
    """Return the JSON text of a model, its checksum included; InputError if it is unsound."""
    head, design = document.head, document.design
    content = plain(
        taken(
            _Document if design.agreed is None else _SitesDocument,
            document,
            head,
            design,
            schema_version=SCHEMA_VERSION,
            kind=KIND,
            guarantee=guarantee(design),
            protected=NEIGHBOURS[design.neighbours],
            design=taken(_Design, design, outcome_low=design.low, outcome_high=design.high),
        )
    )
    _read(content, head.model_id)
    return sealed(content, indent=1)


def from_text(text: str, place: str) -> ModelDocument:
    """Read a model back; ``place`` names it in errors.

    Raises InputError where it is no model, of another schema version, changed after it was
    written, or unsound.
    """
    return _read(opened(text, place, SORT), place)


def _read(content: dict[str, Any], place: str) -> ModelDocument:
    """Read the content of a document; InputError, naming the field, where it is unsound."""
    found = parsed_as(_SitesDocument if "agreed" in content else _Document, content, place)
    head = taken(ModelHead, found)
    if found.control == found.treatment:
        raise InputError(f"{place}: control and treatment are the same arm")
    design = _design(found, place)
    if design.agreed is not None:
        _check_sites(design, design.agreed, head, place)
    for name, said in (
        ("model_id", head.model_id),
        ("guarantee", guarantee(design)),
        ("protected", NEIGHBOURS[found.neighbours]),
    ):
        if getattr(found, name) != said:
            raise InputError(f"{place}: {name} is not what the other fields say")
    for each in found.sums:
        if math.frexp(each.step)[0] != 0.5:
            raise InputError(f"{place}: the step of the sums {shown(each.name)} is no power of two")
    sums = tuple(
        taken(NoisySums, each, steps=np.array(each.steps, dtype=np.int64)) for each in found.sums
    )
    return ModelDocument(head, design, found.n_rows, sums, found.fitted)


def _check_sites(design: EffectDesign, agreed: Agreed, head: ModelHead, place: str) -> None:
    """Refuse sites that are none, or of which the model says other things than they add up to."""
    sites = agreed.sites
    costs = {(one.epsilon, one.delta) for one in sites} or {(design.epsilon, design.delta)}
    most = tuple(map(max, zip(*costs, strict=True)))
    for broken, rule in (
        (bool(sites) == (head.site is not None), "either one site's or of several"),
        (head.learner != "moments", "sites add up the sums of moments alone"),
        (list(agreed.names) != sorted({*agreed.names}), "sites by their names, each once"),
        (most != (design.epsilon, design.delta), "epsilon and delta are the greatest of a site"),
    ):
        if broken:
            raise InputError(f"{place}: agreed: {rule}")


def _design(found: _Document, place: str) -> EffectDesign:
    given = found.design
    agreed = None
    if isinstance(found, _SitesDocument):
        sites = tuple(taken(SiteSums, one) for one in found.agreed.sites)
        agreed = taken(Agreed, found.agreed, sites=sites)
    ends = {"low": given.outcome_low, "high": given.outcome_high}
    design = taken(EffectDesign, found, given, **ends, agreed=agreed)
    try:
        check_design(design)
    except ConfigError as error:
        problem = f"{place}: {error}"
    else:
        return design
    raise InputError(problem)
