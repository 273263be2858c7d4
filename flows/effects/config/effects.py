"""The configuration of an effect model: one TOML file a model, read strictly.

Its sections are those of a release's configuration wherever they say the same. Nothing here reads
data; features are declared with their bounds or levels, so that none of them is learnt from data.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from flows.config.model.declared import Declared, Spill
from flows.config.model.sections import (
    ConfigSection,
    LedgerSection,
    Name,
    Number,
    Numbers,
    Quarantine,
    Texts,
    as_tuple,
)
from flows.effects.config.site import SiteColumns, SiteOutcome, SiteSource
from privatizers.accounting.budget import Budget
from schemas.documents import taken
from schemas.effects.file import effects_series
from schemas.effects.model import (
    Agreed,
    EffectDesign,
    Feature,
    Learner,
    LevelFeature,
    Neighbours,
    NumberFeature,
    Propensity,
    Subgroups,
)
from schemas.names import AGREED, NAME

_Level = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class EffectSource(SiteSource):
    """Where the log is: one row a unit, with its features."""


class EffectArms(ConfigSection):
    """The two arms that are compared; a row of any other takes no part."""

    control: Name
    """The arm without the treatment."""
    treatments: Texts
    """The other arm: a list of one."""


class FeatureSection(ConfigSection):
    """What effects may differ by: a column of numbers between bounds, or of declared levels."""

    name: Name
    """The column of the log."""
    low: Number | None = None
    """Of a number: what is less counts as it."""
    high: Number | None = None
    """Of a number: what is greater counts as it."""
    scale: Literal["linear", "log"] | None = None
    """Of a number: whether it, or its logarithm, is cut into equal bins; None: "linear"."""
    levels: Annotated[Texts | tuple[_Level, ...] | None, BeforeValidator(as_tuple)] = None
    """All levels that there are, as text or whole numbers."""
    other: str | _Level | None = None
    """Of levels: the one that any other value counts as; None: such a row counts as zeros."""
    missing: Number | _Level | str | None = None
    """What a missing or unreadable value counts as; None: such a row counts as zeros."""

    @property
    def is_number(self) -> bool:
        """Whether it is a number, not one of several levels."""
        return self.levels is None

    @property
    def feature(self) -> Feature:
        """The same, as the model takes it; its keys are checked to fit one another."""
        if self.levels is not None:
            levels = tuple(map(str, self.levels))
            ends = (None if one is None else str(one) for one in (self.other, self.missing))
            return LevelFeature(self.name, levels, *ends)
        if self.low is None or self.high is None or isinstance(self.missing, str):
            raise AssertionError("the keys of a number are checked to be there")
        missing = None if self.missing is None else float(self.missing)
        return NumberFeature(self.name, self.low, self.high, self.scale or "linear", missing)


class SubgroupSection(ConfigSection):
    """Subgroups whose average effects are wanted: by the levels of a feature, or between edges."""

    name: Name
    """What this division of all units is called."""
    feature: Name
    """The feature it goes by."""
    edges: Numbers | None = None
    """Of a number: where one subgroup ends and the next begins, increasing."""


class PropensitySection(ConfigSection):
    """How probable the treatment was for whom; one of ``value``, ``column`` and ``learn``."""

    value: Number | None = None
    """The same for everybody, as in most trials: the share of the treatment among the two arms."""
    column: Name | None = None
    """A column of the log with each unit's own."""
    learn: bool = False
    """Whether it is learnt from the features, at a part of epsilon; there are no intervals then."""
    bound: Number | None = None
    """Of a column, or learnt: propensities count as at least this, and at most 1 minus this; None:
    0.1 where they are learnt, and to be given beside ``column``."""


class EffectPrivacy(ConfigSection):
    """What is protected, and what one model may cost."""

    epsilon: Annotated[Number, Field(gt=0)]
    """ε of one model, everything in its file together."""
    delta: Annotated[Number, Field(ge=0, lt=0.5)] = 0.0
    """δ of one model; it has to be above 0, as noise is Gaussian."""
    neighbours: Neighbours = "row"
    """What is protected of a unit: outcome, arm and features ("row"), or the outcome alone."""
    learner: Learner = "moments"
    """How effects are learnt; the others divide the units between several smaller models, and are
    there to be compared with."""
    population: Annotated[str, Field(pattern=r"\S")] | None = None
    """Who pays: experiments on the same people name the same; None: the experiment."""
    budget_epsilon: Annotated[Number, Field(ge=0)] | None = None
    """The most ε that the population may pay over all releases and models; None: no limit."""
    budget_delta: Annotated[Number, Field(ge=0)] | None = None
    """The same of δ."""


class Moments(ConfigSection):
    """What makes a model the report of one site, for an effect model of many sites."""

    site: Annotated[str, Field(pattern=f"^{NAME}$")]
    """The name of the site: letters, digits, - and _."""
    agreed: Name
    """The public TOML file that every site has: experiment, arms, outcome, propensity, features,
    subgroups, pairs, degree and usual stand in it, and not here."""


class Usual(ConfigSection):
    """Where sites agree: between which values of a number about two thirds of all people are.

    Numbers without one are taken to be spread evenly between their bounds.
    """

    feature: Name
    """The feature, a number."""
    low: Number
    """What a sixth of people are below."""
    high: Number
    """What a sixth of people are above."""


class EffectPublish(ConfigSection):
    """Where models go."""

    directory: Name = "releases"
    """The folder of releases; the models of an experiment go to a folder of its name in it. Or one
    in a store, ``s3://bucket/folder``, where what is in ``releases`` is put up."""


class EffectRun(ConfigSection):
    """The memory and the folder that a run may use."""

    memory_limit: Annotated[
        str, Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})? ?(KB|MB|GB|TB|KiB|MiB|GiB|TiB)$")
    ] = "1GB"
    """The memory that rows may take while they are put into order."""
    spill_directory: Name | None = None
    """The folder for rows that do not fit into memory; None for the quarantine's folder."""


class EffectConfig(Declared):
    """One effect model: its log, features, privacy parameters and places."""

    experiment: Annotated[str, Field(pattern=f"^{NAME}$")]
    """The name of the experiment, that of its releases where there are any."""
    pairs: Annotated[
        tuple[Annotated[Texts, Field(min_length=2, max_length=2)], ...], BeforeValidator(as_tuple)
    ] = ()
    """Pairs of features whose product is to take part, such as ``[["age", "income"]]``; each makes
    noise for all others, so none is there unless it is declared."""
    targeting: bool = True
    """Whether people are parted into fifths by what the model predicts, with the effect in each:
    what there is to gain by treating some first. Only where the propensity is declared."""
    degree: Literal[1, 2] | None = None
    """Where sites agree: curves along features (2), or straight lines (1); None: 1."""
    usual: Annotated[tuple[Usual, ...], BeforeValidator(as_tuple)] = ()
    source: EffectSource
    columns: SiteColumns
    arms: EffectArms
    outcome: SiteOutcome
    features: Annotated[tuple[FeatureSection, ...], BeforeValidator(as_tuple)]
    propensity: PropensitySection
    privacy: EffectPrivacy
    subgroups: Annotated[tuple[SubgroupSection, ...], BeforeValidator(as_tuple)] = ()
    publish: EffectPublish = EffectPublish()
    ledger: LedgerSection = LedgerSection()
    quarantine: Quarantine = Quarantine()
    run: EffectRun = EffectRun()
    moments: Moments | None = None
    directory: Path = Field(default=Path(), exclude=True)
    """The folder of the file; not a key of it."""

    @property
    def series(self) -> str:
        """``EXPERIMENT+cate``: what its models are called in the ledger; no experiment can be."""
        return effects_series(self.experiment, self.site)

    @property
    def site(self) -> str | None:
        """The site whose sums alone a model has; None where it is of no site."""
        return None if self.moments is None else self.moments.site

    @property
    def agreed(self) -> Agreed | None:
        """What sites agreed on, and its digest: of its keys that are no defaults."""
        if self.moments is None:
            return None
        content = self.model_dump(mode="json", include={*AGREED}, exclude_defaults=True)
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        usual = {one.feature: (one.low, one.high) for one in self.usual}
        return Agreed(
            hashlib.sha256(text.encode()).hexdigest(),
            self.degree or 1,
            tuple(usual.get(one.name) for one in self.features),
        )

    @property
    def folder_name(self) -> str:
        """Models lie in the folder of the experiment's releases."""
        return self.experiment

    @property
    def spill(self) -> Spill:
        """Where rows go that do not fit into memory."""
        directory = self.path(self.run.spill_directory or self.quarantine.directory)
        return Spill(directory, self.run.memory_limit)

    @property
    def cost(self) -> Budget:
        """What one model costs."""
        return Budget(self.privacy.epsilon, self.privacy.delta)

    @property
    def treatment(self) -> str:
        """The name of the one treatment."""
        return self.arms.treatments[0]

    @property
    def design(self) -> EffectDesign:
        """The declaration as the model takes it."""
        declared, propensity = self.propensity, Propensity("value", self.propensity.value)
        if declared.value is None:
            bound = 0.1 if declared.bound is None else declared.bound
            kind: Literal["column", "learn"] = "learn" if declared.column is None else "column"
            propensity = Propensity(kind, None, bound)
        return taken(
            EffectDesign,
            self,
            self.outcome,
            self.privacy,
            features=tuple(each.feature for each in self.features),
            subgroups=tuple(taken(Subgroups, each) for each in self.subgroups),
            propensity=propensity,
            targeting=self.targeting and self.moments is None,
            pairs=tuple((one, other) for one, other in self.pairs),
        )
