"""The configuration of a site: one TOML file a site and experiment, read strictly.

Its sections are those of a release's configuration wherever they say the same. Nothing here reads
data; covariates are declared with their domain, so that none is learnt from data.
"""

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError

from flows.config.experiment import Config, _check_arms, _plain, check_length
from flows.config.sections import (
    Arms,
    Columns,
    Ledger,
    Name,
    Number,
    Numbers,
    Outcome,
    Privacy,
    Quarantine,
    Section,
    Source,
    Texts,
)
from flows.config.toml_file import read_toml
from flows.runtime.paths import absolute, check_place
from privatizers.accounting.budget import Budget
from privatizers.sites.dp_matching import GlobalMatching, Shares, SmoothMatching
from privatizers.sites.randomised_trial import RandomisedTrial
from schemas.errors import ConfigError, shown
from schemas.site import Design

_NAME = r"^[A-Za-z0-9_-]+$"
_GREATEST = 1e70  # of an outcome or an edge, as in a release's configuration
_LEAST = 1e-60  # of their range: its square stays within doubles
_MOST_CELLS = 1_000_000

SiteMechanism = RandomisedTrial | SmoothMatching | GlobalMatching

Estimator = Literal["difference-in-means", "smooth-dp-matching", "global-dp-matching"]

SPLITS: dict[Estimator, dict[str, float]] = {
    "difference-in-means": {"effect": 4.0, "variance": 1.0},
    "smooth-dp-matching": {"effect": 1.0, "variance": 1.0, "bound": 1.0},
    "global-dp-matching": {"effect": 1.0, "variance": 1.0},
}
"""What epsilon is split between, in the order of ``privacy.split``, and the weights without it.

In a trial the variance costs nothing up to a quarter of what the effect gets."""


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class Site(Section):
    """Who reports."""

    name: Annotated[str, Field(pattern=_NAME)]


class SiteSource(Section):
    """Where the site's log lies: one row a unit."""

    path: Name


class SiteColumns(Section):
    """Which columns of the log mean what."""

    unit: Name
    arm: Name
    outcome: Name


class SiteOutcome(Section):
    """The range that outcomes are clipped to; B is its width."""

    low: Number
    high: Number
    missing: Number | None = None

    @property
    def bound(self) -> float:
        """B, in the unit of the outcomes."""
        return self.high - self.low

    @property
    def missing_value(self) -> float:
        """What a missing or unreadable outcome counts as."""
        return self.low if self.missing is None else self.missing


class Covariate(Section):
    """One column that units are matched on, with its whole domain; either values or edges."""

    column: Name
    values: Annotated[Texts | Numbers | None, BeforeValidator(_as_tuple)] = None
    edges: Numbers | None = None

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


class SitePrivacy(Section):
    """What one report may cost, and how that is split."""

    epsilon: Annotated[Number, Field(gt=0)]
    delta: Annotated[Number, Field(ge=0, lt=0.5)] = 0.0
    split: Numbers | None = None
    """Weights by which epsilon is split; see :data:`SPLITS`."""
    population: Annotated[str, Field(pattern=r"\S")] | None = None
    budget_epsilon: Annotated[Number, Field(ge=0)] | None = None
    budget_delta: Annotated[Number, Field(ge=0)] | None = None


class SitePublish(Section):
    """Where reports go."""

    directory: Name = "reports"


class SiteConfig(Section):
    """One site's part in an experiment: its log, covariates, privacy parameters and places."""

    experiment: Annotated[str, Field(pattern=_NAME)]
    design: Design
    site: Site
    source: SiteSource
    columns: SiteColumns
    arms: Arms
    outcome: SiteOutcome
    privacy: SitePrivacy
    covariates: Annotated[tuple[Covariate, ...], BeforeValidator(_as_tuple)] = ()
    publish: SitePublish = SitePublish()
    ledger: Ledger = Ledger()
    quarantine: Quarantine = Quarantine()
    directory: Path = Field(default=Path(), exclude=True)
    """The folder of the file; set by :func:`load_site`, not a key."""

    def path(self, relative: str) -> Path:
        """A path of the file, made absolute."""
        return absolute(self.directory, relative, shown(relative))

    @property
    def series(self) -> str:
        """``EXPERIMENT@SITE``: what the reports are called in the ledger; no experiment can be."""
        return f"{self.experiment}@{self.site.name}"

    @property
    def reports(self) -> Path:
        """The folder of this site's reports."""
        return self.path(self.publish.directory) / self.series

    @property
    def quarantined(self) -> Path:
        """The folder of this site's rows that were set aside."""
        return self.path(self.quarantine.directory) / self.series

    @property
    def population(self) -> str:
        """Who pays for the reports: experiments on the same people name the same."""
        return self.privacy.population or self.experiment

    @property
    def cost(self) -> Budget:
        """What one report costs."""
        return Budget(self.privacy.epsilon, self.privacy.delta)

    @property
    def budget(self) -> Budget:
        """What the population may pay in all; infinite where nothing is declared."""
        declared = (self.privacy.budget_epsilon, self.privacy.budget_delta)
        return Budget(*(math.inf if one is None else one for one in declared))

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
    def mechanism(self) -> SiteMechanism:
        """What draws the report; ConfigError where privacy or range are nothing it can be."""
        epsilon, high, split = self.privacy.epsilon, self.outcome.bound, self.split
        if self.design == "trial":
            return RandomisedTrial(epsilon, high, split["variance"] / split["effect"])
        if self.estimator == "smooth-dp-matching":
            return SmoothMatching(epsilon, self.privacy.delta, high, Shares(**split))
        return GlobalMatching(epsilon, high, split["effect"] / sum(split.values()))

    @property
    def n_cells(self) -> int:
        """|X|, the size of the declared domain of all covariates together."""
        return math.prod(one.n_cells for one in self.covariates)

    @property
    def reading(self) -> Config:
        """An experiment in the same place, for what finds the files of a log."""
        columns = self.columns
        return Config(
            experiment=self.experiment,
            source=Source(path=self.source.path),
            columns=Columns(unit=columns.unit, arm=columns.arm, outcome=columns.outcome),
            arms=self.arms,
            outcome=Outcome(low=self.outcome.low, high=self.outcome.high, levels=2),
            privacy=Privacy(epsilon=self.privacy.epsilon),
            directory=self.directory,
        )

    def checked(self) -> Self:
        """Return this configuration if its keys go together; raises ConfigError if not."""
        check_length("experiment and site.name together", self.series)
        _check_places(self)
        _check_columns(self)
        _check_two_arms(self.arms)
        _check_range(self.outcome)
        for number, one in enumerate(self.covariates):
            _check_covariate(f"covariates[{number}]", one)
        _check_design(self)
        _ = self.mechanism
        return self


def load_site(path: Path) -> SiteConfig:
    """Read and check a site's configuration; raises ConfigError naming the key at fault."""
    content = read_toml(path)
    if "directory" in content:
        raise ConfigError("directory", "unknown key; remove it or correct its spelling")
    try:
        config = SiteConfig.model_validate(content)
    except ValidationError as error:
        raise _plain(error) from None
    return config.model_copy(update={"directory": path.absolute().parent}).checked()


def is_site(path: Path) -> bool:
    """Whether a configuration is a site's, by its ``[site]``; ConfigError if it cannot be read."""
    return "site" in read_toml(path)


def _check_places(config: SiteConfig) -> None:
    absolute(config.directory, config.source.path, "source.path")
    check_place(config.directory, config.publish.directory, "publish.directory")
    check_place(config.directory, config.quarantine.directory, "quarantine.directory")


def _check_columns(config: SiteConfig) -> None:
    """No column means two things."""
    columns = config.columns
    named = {"columns.unit": columns.unit, "columns.arm": columns.arm}
    named["columns.outcome"] = columns.outcome
    for number, one in enumerate(config.covariates):
        named[f"covariates[{number}].column"] = one.column
    seen: dict[str, str] = {}
    for key, name in named.items():
        if name in seen:
            raise ConfigError(key, f"{shown(name)} is {seen[name]} already")
        seen[name] = key


def _check_two_arms(arms: Arms) -> None:
    _check_arms(arms)
    if len(arms.treatments) != 1:
        raise ConfigError(
            "arms.treatments", f"{len(arms.treatments)} are named: a site compares one with control"
        )


def _check_range(outcome: SiteOutcome) -> None:
    for key in ("low", "high"):
        if abs(getattr(outcome, key)) > _GREATEST:
            raise ConfigError(f"outcome.{key}", f"beyond ±{_GREATEST:g} nothing can be computed")
    if outcome.low >= outcome.high:
        raise ConfigError("outcome.high", f"{outcome.high} is not above outcome.low {outcome.low}")
    if outcome.bound < _LEAST:
        raise ConfigError("outcome.high", f"less than {_LEAST:g} above outcome.low")
    missing = outcome.missing
    if missing is not None and not outcome.low <= missing <= outcome.high:
        raise ConfigError("outcome.missing", f"{missing} lies outside [low, high]")


def _check_covariate(key: str, one: Covariate) -> None:
    if (one.values is None) == (one.edges is None):
        raise ConfigError(key, "give either values or edges")
    if one.values is not None:
        if not one.values:
            raise ConfigError(f"{key}.values", "empty: name the values it can have")
        twice = next((value for value, n in Counter(one.values).items() if n > 1), None)
        if twice is not None:
            raise ConfigError(f"{key}.values", f"{shown(twice)} is named twice")
    if one.edges is not None:
        if len(one.edges) < 2:
            raise ConfigError(f"{key}.edges", "at least 2 edges are needed, around one bin")
        if any(upper <= lower for lower, upper in itertools.pairwise(one.edges)):
            raise ConfigError(f"{key}.edges", "the edges must increase, without repeats")


def _check_design(config: SiteConfig) -> None:
    privacy = config.privacy
    if config.design == "trial":
        if config.covariates:
            raise ConfigError("covariates", 'belong to design = "matching"; remove them')
        if privacy.delta:
            raise ConfigError("privacy.delta", 'a trial needs none: 0 with design = "trial"')
    elif not config.covariates:
        raise ConfigError("covariates", 'design = "matching" needs at least one to match on')
    elif config.n_cells > _MOST_CELLS:
        raise ConfigError(
            "covariates", f"{shown(config.n_cells)} cells together; at most {_MOST_CELLS:,} can be"
        )
    parts = SPLITS[config.estimator]
    if privacy.split is not None and (len(privacy.split) != len(parts) or min(privacy.split) <= 0):
        raise ConfigError(
            "privacy.split",
            f"not {len(parts)} weights above 0, of {', '.join(parts)} ({config.estimator})",
        )
