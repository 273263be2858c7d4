"""What columns of public facts may be: attributes, what was randomised, and who pays."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from flows.config.model.experiment import Config
from privatizers.planning.aggregate_design import AggregateName
from schemas.errors import ConfigError, shown
from schemas.names import COLUMN, TAKEN, is_derived
from schemas.tables import MARGIN_OF, MOST_ATTRIBUTES, UNNAMED

_OUTCOME = "columns.outcome"
_MOST_MARGINS = 20  # each takes its part of epsilon
_WEIGHTS = 1e-3, 1e3


def check_public_facts(config: Config) -> None:
    """Raise ConfigError unless attributes, ``assigned_by`` and ``privacy_unit`` can be public."""
    columns = config.columns
    if columns.attributes:
        _check_published(config, "columns.attributes")
        _check_attributes(config)
    if columns.assigned_by is not None:
        key = "columns.assigned_by"
        _check_published(config, key)
        _check_free(key, (columns.assigned_by,), _taken(config))
        if columns.assigned_by in columns.clusters:
            raise ConfigError(
                key,
                f"{shown(columns.assigned_by)} is columns.cluster already: every cluster would "
                "have one arm, and effects are told within clusters. Leave columns.cluster out, or "
                "name larger clusters",
            )
    if columns.privacy_unit is not None:
        _check_payer(config, columns.privacy_unit)


def _check_attributes(config: Config) -> None:
    key, columns = "columns.attributes", config.columns
    named = columns.named_attributes
    if len(named) > MOST_ATTRIBUTES:
        raise ConfigError(key, f"{len(named):,} attributes; at most {MOST_ATTRIBUTES} can be")
    groups = {
        "columns.privacy_unit": columns.privacy_unit,
        "columns.assigned_by": columns.assigned_by,
    }
    _check_free(key, named.values(), _taken(config) | groups)
    ours = {*TAKEN, UNNAMED, *(one.name.lower() for one in config.outcomes)}
    seen: set[str] = set()
    for name in columns.attributes:
        plain = name.lower()  # DuckDB takes names that differ in case alone for one
        if plain in seen:
            raise ConfigError(key, f"{shown(name)} is named twice (case does not count)")
        seen.add(plain)
        problem = None
        if not re.fullmatch(COLUMN, name):
            problem = (
                "cannot be the name of a published column: it has to begin with a letter and have "
                "letters, digits and _ alone, at most 63; give the column a name of its own"
            )
        elif plain in ours or is_derived(plain):
            problem = "is a name of clusterdp's own in a release; give the column another name"
        if problem is not None:
            as_written = f"attributes = {{ NAME = {shown(named[name])} }}"
            raise ConfigError(key, f"{shown(name)} {problem}: {as_written}")


def check_margins(config: Config) -> None:
    """Raise ConfigError unless margins are of published attributes, and of units."""
    problem = next(_margin_problems(config), None) if config.margins else None
    if problem is not None:
        raise ConfigError("privacy.margins", problem)


def _margin_problems(config: Config) -> Iterator[str]:
    given, seen = config.privacy.margins, set[frozenset[str]]()
    if config.private_clusters is not None or config.privacy.mechanism in get_args(AggregateName):
        yield (
            "are reconciled with released units by published attributes, and neither goes with "
            "private_clusters or a mechanism without units; leave one of them out"
        )
    if len(config.margins) > _MOST_MARGINS:
        yield f"{len(config.margins)} of them; at most {_MOST_MARGINS} can be"
    for names in config.margins:
        for name in names:
            if name not in config.columns.named_attributes:
                yield f"{shown(name)} is none of columns.attributes; name it there, too"
        if not names or len({*names}) < len(names):
            yield f"{shown(MARGIN_OF.join(names))} has to name attributes, each of them once"
        if frozenset(names) in seen:
            yield f"{shown(MARGIN_OF.join(names))} is there twice"
        seen.add(frozenset(names))
    low, high = _WEIGHTS
    for weight in given.values() if isinstance(given, dict) else ():
        if not low <= weight <= high:
            yield f"{weight!r} is a share that is not from {low:g} to {high:g}"


def _check_payer(config: Config, name: str) -> None:
    """Who pays decides who is released, and nothing protected may decide that."""
    key = "columns.privacy_unit"
    _check_free(key, (name,), _outcome_columns(config))
    private = config.private_clusters
    if private is not None and name in (*config.columns.clusters, *(private.features or ())):
        raise ConfigError(
            key,
            f"{shown(name)} tells private clusters, and who pays is public; name another column",
        )


def _taken(config: Config) -> dict[str, str | None]:
    """The columns that have another meaning, by their keys, which no public fact may have."""
    columns = config.columns
    return _outcome_columns(config) | {
        f"columns.{key}": getattr(columns, key)
        for key in ("unit", "arm", "time", "event", "outcome_time")
    }


def _outcome_columns(config: Config) -> dict[str, str | None]:
    return {
        f"outcomes[{number}].column" if config.named_outcomes else _OUTCOME: one.column or None
        for number, one in enumerate(config.outcomes)
    }


def _check_free(key: str, names: Iterable[str], taken: Mapping[str, str | None]) -> None:
    for name in names:
        for other, column in taken.items():
            if name != column:
                continue
            private = other == _OUTCOME or other.startswith("outcomes[")
            why = "; an outcome is protected, and never published as it is" * private
            raise ConfigError(key, f"{shown(name)} is {other} already{why}")


def _check_published(config: Config, key: str) -> None:
    """Units are published, and nothing beside them could tell what is private of them."""
    if config.privacy.mechanism in ("noisy-histogram", "noisy-horvitz-thompson"):
        raise ConfigError(
            key,
            f'mechanism "{config.privacy.mechanism}" publishes no units, which it would stand '
            "beside; leave the key out, or take another mechanism",
        )
    if config.private_clusters is not None:
        raise ConfigError(
            key,
            "does not go with private_clusters: what is published of a unit as it is could tell "
            "its cluster; leave one of the two out",
        )
