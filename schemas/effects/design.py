"""What a declaration of an effect model must be like, wherever it was read: errors name a key."""

import itertools
import math
from collections.abc import Iterable
from typing import Final

from schemas.effects.model import (
    Agreed,
    EffectDesign,
    Feature,
    LevelFeature,
    NumberFeature,
    Propensity,
    Subgroups,
    level_names,
)
from schemas.errors import ConfigError, shown

GREATEST: Final = 1e70
"""Of a bound, as of an outcome anywhere: what is computed of it stays within doubles."""

LEAST: Final = 1e-60
"""Of the width between two bounds, likewise."""

LEAST_SHARE: Final = 0.001
"""Of a propensity and of its bound: noise grows as its inverse."""

MOST_TERMS: Final = 400
"""Of a model, at degree 2: sums are as many as their square, and so is what each row costs."""

TAKEN: Final = ("all", "predicted effect")
"""Names of partitions that every model has."""

SITE: Final = "site"
"""The partition of units by the sites that added their sums."""

_MOST_LEVELS = 200  # of one feature; each is a term
_MOST_CELLS = 1_000  # of all partitions together


def check_design(design: EffectDesign) -> None:
    """Raise ConfigError, naming the key, unless a model can be made of a declaration."""
    check_range("outcome", design.low, design.high)
    if not design.features:
        raise ConfigError("features", "none is declared; name what effects may differ by")
    _check_distinct("features", "name", (each.name for each in design.features))
    for number, each in enumerate(design.features):
        _check_feature(f"features[{number}]", each)
    _check_pairs(design)
    if n_terms(design) > MOST_TERMS:
        raise ConfigError(
            "features",
            f"{n_terms(design):,} terms together (two for a number, one less than there are levels "
            f"for those, one for a pair); at most {MOST_TERMS} can be",
        )
    _check_distinct("subgroups", "name", (each.name for each in design.subgroups))
    for number, groups in enumerate(design.subgroups):
        _check_subgroups(f"subgroups[{number}]", design, groups)
    if sum(len(level_names(design, groups)) for groups in design.subgroups) > _MOST_CELLS:
        raise ConfigError("subgroups", f"over {_MOST_CELLS:,} subgroups; declare fewer")
    _check_propensity(design.propensity)
    _check_price(design)
    if design.agreed is not None:
        _check_agreed(design, design.agreed)


def check_range(key: str, low: float, high: float) -> None:
    """Raise ConfigError unless ``low`` and ``high`` are bounds that can be computed with."""
    for name, bound in (("low", low), ("high", high)):
        if not abs(bound) <= GREATEST:
            raise ConfigError(f"{key}.{name}", f"beyond ±{GREATEST:g} nothing can be computed")
    if low >= high:
        raise ConfigError(f"{key}.high", f"{high} is not above {key}.low {low}")
    if high - low < LEAST:
        raise ConfigError(f"{key}.high", f"less than {LEAST:g} above {key}.low")


def n_terms(design: EffectDesign) -> int:
    """Return the number of terms at degree 2: 1, each feature's, and one for each pair."""
    width = {each.name: _width(each) for each in design.features}
    return 1 + sum(width.values()) + len(design.pairs)


def _width(feature: Feature) -> int:
    return 2 if isinstance(feature, NumberFeature) else len(feature.levels) - 1


def _check_distinct(key: str, name: str, given: Iterable[str]) -> None:
    seen: dict[str, int] = {}
    for number, each in enumerate(given):
        if not each:
            raise ConfigError(f"{key}[{number}].{name}", "empty; give a name")
        if each in seen:
            raise ConfigError(
                f"{key}[{number}].{name}", f"{shown(each)} is {key}[{seen[each]}].{name} already"
            )
        seen[each] = number


def _check_feature(key: str, feature: Feature) -> None:
    if isinstance(feature, LevelFeature):
        _check_levels(key, feature)
        return
    check_range(key, feature.low, feature.high)
    if feature.scale == "log" and feature.low <= 0:
        raise ConfigError(
            f"{key}.scale",
            f'"log" needs {key}.low above 0, where logarithms begin, not {feature.low}; raise it '
            '(what is less counts as it), or leave out scale = "log"',
        )
    missing = feature.missing
    if missing is not None and not feature.low <= missing <= feature.high:
        raise ConfigError(f"{key}.missing", f"{missing} lies outside [low, high]")


def _check_levels(key: str, feature: LevelFeature) -> None:
    if len(feature.levels) < 2:
        raise ConfigError(f"{key}.levels", "fewer than 2: name all levels that there can be")
    if len(feature.levels) > _MOST_LEVELS:
        raise ConfigError(
            f"{key}.levels", f"{len(feature.levels):,}; at most {_MOST_LEVELS} can be"
        )
    seen: set[str] = set()
    for level in feature.levels:
        if not level:
            raise ConfigError(f"{key}.levels", "one is empty, which stands for a missing value")
        if level in seen:
            raise ConfigError(f"{key}.levels", f"{shown(level)} is named twice")
        seen.add(level)
    for name, named in (("other", feature.other), ("missing", feature.missing)):
        if named is not None and named not in seen:
            raise ConfigError(f"{key}.{name}", f"{shown(named)} is none of {key}.levels")


def _check_pairs(design: EffectDesign) -> None:
    names = {each.name for each in design.features}
    seen: set[frozenset[str]] = set()
    for number, pair in enumerate(design.pairs):
        key = f"pairs[{number}]"
        for name in pair:
            if name not in names:
                raise ConfigError(key, f"{shown(name)} is none of the features")
        if pair[0] == pair[1]:
            raise ConfigError(key, f"{shown(pair[0])} is paired with itself; name two features")
        if frozenset(pair) in seen:
            raise ConfigError(key, "the same pair is named twice")
        seen.add(frozenset(pair))


def _check_subgroups(key: str, design: EffectDesign, groups: Subgroups) -> None:
    if groups.name in TAKEN:
        raise ConfigError(f"{key}.name", f"{shown(groups.name)} is in every model; name another")
    if groups.feature not in {each.name for each in design.features}:
        raise ConfigError(
            f"{key}.feature",
            f"{shown(groups.feature)} is none of the features; declare it under [[features]]",
        )
    feature, edges = design.feature(groups.feature), groups.edges
    if isinstance(feature, LevelFeature):
        if edges is not None:
            raise ConfigError(
                f"{key}.edges", f"{shown(feature.name)} has levels, which are its subgroups"
            )
        return
    if not edges:
        raise ConfigError(
            f"{key}.edges", f"missing: {shown(feature.name)} is a number; say where to cut it"
        )
    if any(upper <= lower for lower, upper in itertools.pairwise(edges)):
        raise ConfigError(f"{key}.edges", "the edges must increase, without repeats")
    if not feature.low < edges[0] <= edges[-1] < feature.high:
        raise ConfigError(
            f"{key}.edges",
            f"an edge is not between low and high of {shown(feature.name)}, so nobody is beyond it",
        )


def _check_propensity(propensity: Propensity) -> None:
    value, bound = propensity.value, propensity.bound
    if propensity.kind == "value":
        if value is None or not LEAST_SHARE <= value <= 1 - LEAST_SHARE:
            raise ConfigError(
                "propensity.value", f"{value} is not between {LEAST_SHARE} and {1 - LEAST_SHARE}"
            )
    elif not LEAST_SHARE <= bound < 0.5:
        raise ConfigError("propensity.bound", f"{bound} is not between {LEAST_SHARE} and 0.5")


def _check_agreed(design: EffectDesign, agreed: Agreed) -> None:
    if design.targeting:
        raise ConfigError(
            "targeting", "a site parts nobody by its own prediction: it is no other's"
        )
    if SITE in {groups.name for groups in design.subgroups}:
        raise ConfigError("subgroups", f"{shown(SITE)} is what sites themselves are; name another")
    if len(agreed.usual) != len(design.features):
        raise ConfigError("usual", "not one for each feature")
    for feature, ends in zip(design.features, agreed.usual, strict=True):
        if ends is None:
            continue
        if isinstance(feature, LevelFeature):
            raise ConfigError("usual", f"{shown(feature.name)} has levels; this is for numbers")
        if not feature.low <= ends[0] < ends[1] <= feature.high:
            raise ConfigError(
                "usual",
                f"low and high of {shown(feature.name)} do not rise between those of the feature",
            )


def _check_price(design: EffectDesign) -> None:
    if not 0 < design.epsilon < math.inf:
        raise ConfigError("privacy.epsilon", f"{design.epsilon} is not above 0")
    if design.delta == 0:
        raise ConfigError(
            "privacy.delta",
            "0, or left out: the sums of an effect model have Gaussian noise, which keeps no "
            "promise for epsilon alone; declare a delta above 0 and well below 1 divided by the "
            "number of units, such as 1e-6",
        )
    if not 0 < design.delta < 0.5:
        raise ConfigError("privacy.delta", f"{design.delta} is not between 0 and 0.5")
