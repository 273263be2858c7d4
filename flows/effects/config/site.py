"""The configuration of a site: one TOML file a site and experiment, read strictly.

Its sections are those of a release's configuration wherever they say the same. Nothing here reads
data; covariates are declared with their domain, so that none is learnt from data.
"""

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from flows.config.model.declared import Declared, LogFacts, Spill
from flows.config.model.sections import (
    Arms,
    ConfigSection,
    LedgerSection,
    LogSection,
    Name,
    Number,
    Numbers,
    Quarantine,
    Texts,
    as_tuple,
)
from privatizers.accounting.budget import Budget
from privatizers.effects.sites.dp_matching import EpsilonSplit, GlobalMatching, SmoothMatching
from privatizers.effects.sites.randomised_trial import RandomisedTrial
from schemas.effects.site import Design
from schemas.errors import ConfigError
from schemas.names import NAME

Estimator = Literal["difference-in-means", "smooth-dp-matching", "global-dp-matching"]

SPLITS: dict[Estimator, dict[str, float]] = {
    "difference-in-means": {"effect": 4.0, "variance": 1.0},
    "smooth-dp-matching": {"effect": 1.0, "variance": 1.0, "bound": 1.0},
    "global-dp-matching": {"effect": 1.0, "variance": 1.0},
}
"""What epsilon is split between, in the order of ``privacy.split``, and the weights without it.

In a trial the variance costs nothing up to a quarter of what the effect gets."""


_KEYS = {"epsilon": "privacy.epsilon", "delta": "privacy.delta", "high": "outcome"} | dict.fromkeys(
    ("shares", "effect_share", "variance_ratio"), "privacy.split"
)
"""The key behind each parameter of a mechanism."""


class Site(ConfigSection):
    """Who reports."""

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    """The name of the site: letters, digits, - and _."""


class SiteSource(LogSection):
    """Where the site's log lies: one row a unit."""


class SiteColumns(ConfigSection):
    """Which columns of the log mean what."""

    unit: Name
    """The id of a unit: text or a whole number."""
    arm: Name
    """The arm that a unit was given, or the treatment that it had."""
    outcome: Name
    """The outcome."""


class SiteOutcome(ConfigSection):
    """The range that outcomes are clipped to; B is its width."""

    low: Number
    """The least value; what is less is clipped to it."""
    high: Number
    """The greatest value; what is greater is clipped to it."""
    missing: Number | None = None
    """What a missing or unreadable outcome counts as; None: ``low``."""

    @property
    def bound(self) -> float:
        """B, in the unit of the outcomes."""
        return self.high - self.low

    @property
    def missing_value(self) -> float:
        """What a missing or unreadable outcome counts as."""
        return self.low if self.missing is None else self.missing


class Covariate(ConfigSection):
    """One column that units are matched on, with its whole domain; either values or edges."""

    column: Name
    """The column of the log."""
    values: Annotated[Texts | Numbers | None, BeforeValidator(as_tuple)] = None
    """All values that there may be; anything else is a value of its own."""
    edges: Numbers | None = None
    """Of a number: where its bins meet, increasing."""

    @property
    def is_number(self) -> bool:
        """Whether it is read as a number, not as text."""
        return self.values is None or not isinstance(self.values[0], str)

    @property
    def n_cells(self) -> int:
        """How many cells it has: one a value or bin, and one for whatever is none of them."""
        if self.edges is not None:
            return len(self.edges)
        return len(self.values or ()) + 1


class SitePrivacy(ConfigSection):
    """What one report may cost, and how that is split."""

    epsilon: Annotated[Number, Field(gt=0)]
    """ε of one report."""
    delta: Annotated[Number, Field(ge=0, lt=0.5)] = 0.0
    """δ of one report; above 0, matching adds noise that suits the data ("smooth-dp-matching")."""
    split: Numbers | None = None
    """Weights by which epsilon is split; see :data:`SPLITS`."""
    population: Annotated[str, Field(pattern=r"\S")] | None = None
    """Who pays: experiments on the same people name the same; None: the experiment."""
    budget_epsilon: Annotated[Number, Field(ge=0)] | None = None
    """The most ε that the population may pay over all reports; None: no limit."""
    budget_delta: Annotated[Number, Field(ge=0)] | None = None
    """The same of δ."""


class SitePublish(ConfigSection):
    """Where reports go."""

    directory: Name = "reports"
    """The folder of reports. Or one in a store, ``s3://bucket/folder``, where what is in
    ``reports`` is put up."""


class SiteConfig(Declared):
    """One site's part in an experiment: its log, covariates, privacy parameters and places."""

    experiment: Annotated[str, Field(pattern=f"^{NAME}$")]
    """The name of the experiment, the same at every site."""
    design: Design
    """Whether arms were randomised, or people are matched on covariates."""
    site: Site
    source: SiteSource
    columns: SiteColumns
    arms: Arms
    outcome: SiteOutcome
    privacy: SitePrivacy
    covariates: Annotated[tuple[Covariate, ...], BeforeValidator(as_tuple)] = ()
    publish: SitePublish = SitePublish()
    ledger: LedgerSection = LedgerSection()
    quarantine: Quarantine = Quarantine()
    directory: Path = Field(default=Path(), exclude=True)
    """The folder of the file; not a key of it."""

    @property
    def series(self) -> str:
        """``EXPERIMENT@SITE``: what the reports are called in the ledger; no experiment can be."""
        return f"{self.experiment}@{self.site.name}"

    @property
    def cost(self) -> Budget:
        """What one report costs."""
        return Budget(self.privacy.epsilon, self.privacy.delta)

    @property
    def spill(self) -> Spill:
        """Where a log is landed that is a table."""
        return Spill(self.quarantine_folder, "1GB")

    @property
    def log_facts(self) -> LogFacts:
        """What judges the rows of its logs; its clusters are cells of private covariates."""
        return LogFacts(
            arms=self.arms.names,
            unit_column=self.columns.unit,
            arm_column=self.columns.arm,
            at_most=self.quarantine.at_most,
            clusters="dropped",
            n_clusters=1,
            least_in_arm=2,
            tells_arms=not self.protects_arms,
            tells_rows=False,
        )

    @property
    def estimator(self) -> Estimator:
        """By design; matching without a delta has to make noise for the worst data there is."""
        if self.design == "trial":
            return "difference-in-means"
        return "smooth-dp-matching" if self.privacy.delta else "global-dp-matching"

    @property
    def split(self) -> dict[str, float]:
        """Weights of what epsilon is split between; only proportions count."""
        declared = SPLITS[self.estimator]
        weights = self.privacy.split or tuple(declared.values())
        return dict(zip(declared, weights, strict=True))

    @property
    def mechanism(self) -> RandomisedTrial | SmoothMatching | GlobalMatching:
        """What draws the report; ConfigError where privacy or range are nothing it can be."""
        epsilon, high, split = self.privacy.epsilon, self.outcome.bound, self.split
        try:
            if self.design == "trial":
                return RandomisedTrial(epsilon, high, split["variance"] / split["effect"])
            if self.estimator == "smooth-dp-matching":
                return SmoothMatching(epsilon, self.privacy.delta, high, EpsilonSplit(**split))
            return GlobalMatching(epsilon, high, split["effect"] / sum(split.values()))
        except ConfigError as error:
            raise ConfigError(_KEYS[error.key], error.problem) from None

    @property
    def n_cells(self) -> int:
        """|X|, the size of the declared domain of all covariates together."""
        return math.prod(one.n_cells for one in self.covariates)

    @property
    def protects_arms(self) -> bool:
        """Whether arms and covariates are protected, as outcomes are: where none was randomised."""
        return self.design == "matching"
