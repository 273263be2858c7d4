"""What the keys of a site's configuration must be like together; every error names a key."""

import itertools
from collections import Counter
from collections.abc import Mapping

from flows.config.rules.checks import (
    check_apart,
    check_arms,
    check_length,
    check_log_source,
    check_no_guards,
    check_published,
)
from flows.effects.config.effects import EffectConfig
from flows.effects.config.site import SPLITS, Covariate, SiteColumns, SiteConfig, SiteOutcome
from flows.runtime.paths import check_place
from schemas.effects.design import check_range
from schemas.errors import ConfigError, shown

_MOST_CELLS = 1_000_000


def check_site_config(config: SiteConfig) -> None:
    """Raise ConfigError unless the keys go together."""
    check_length("experiment and site.name together", config.series)
    matched = {f"covariates[{at}].column": one.column for at, one in enumerate(config.covariates)}
    check_places(config, keys_of_columns(config.columns, matched))
    check_arms(config.arms)
    n_treatments = len(config.arms.treatments)
    if n_treatments != 1:
        named = f"{n_treatments} are named: a site compares one with control"
        raise ConfigError("arms.treatments", named)
    check_no_guards(config.quarantine, config.arms)
    check_range("outcome", config.outcome.low, config.outcome.high)
    check_missing(config.outcome)
    for number, one in enumerate(config.covariates):
        _check_covariate(f"covariates[{number}]", one)
    _check_design(config)
    _ = config.mechanism


def check_places(config: SiteConfig | EffectConfig, columns: Mapping[str, str]) -> None:
    """Raise ConfigError where the log, of these ``columns``, or a path is none that can be used."""
    outcome, unit = config.columns.outcome, config.columns.unit
    check_log_source(config, columns)
    check_apart({*columns} - {outcome}, [outcome])
    check_apart([unit], {*columns} - {unit})  # of which more than outcomes may be protected
    check_published(config)
    check_place(config.directory, config.quarantine.directory, "quarantine.directory")


def keys_of_columns(columns: SiteColumns, others: Mapping[str, str]) -> dict[str, str]:
    """Return the key of each column; ConfigError where one column means two things."""
    seen: dict[str, str] = {}
    own = {f"columns.{name}": getattr(columns, name) for name in ("unit", "arm", "outcome")}
    for key, name in {**own, **others}.items():
        if name in seen:
            raise ConfigError(key, f"{shown(name)} is {seen[name]} already")
        seen[name] = key
    return seen


def check_missing(outcome: SiteOutcome) -> None:
    """Raise ConfigError where a missing outcome counts as one that there cannot be."""
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
