"""Columns that may be the cluster, compared: by public sizes and the guess at outcomes alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np

from flows.config.model.experiment import Config
from flows.config.resolve import ResolvedRelease, question, resolve_release
from flows.config.rules.checks import check_config
from privatizers.planning.aggregate_design import AggregateDesign
from privatizers.planning.forecast import forecast
from privatizers.planning.margin_split import Crossed, effects_of_values
from schemas.arrays import Floats, Ints
from schemas.documents import fields_of
from schemas.errors import ConfigError, shown

KEY = "--clusters"
EVERYBODY, TENTH, OWN, OF_NOW = "everybody", "a tenth", "its own values", "values of now"
_TENTH = 0.1

Columns = tuple[str, ...]
"""One column, or several that together name a cluster; none for no clusters."""
Errors = dict[tuple[str, int, str], float]
"""Standard errors by outcome, arm and of whom; of values their geometric mean."""


@dataclass(frozen=True)
class Forecast:
    """What is predicted of one effect."""

    metric: str
    arm: str
    of: str
    """``everybody``, ``a tenth``, ``its own values`` or ``values of now``; of values the geometric
    mean over all that have units in both arms."""
    std_error: float
    std_error_now: float
    """With the clusters that are configured."""


@dataclass(frozen=True)
class Clustering:
    """Columns that may be the cluster, and what they would bring."""

    cluster: Columns
    is_configured: bool
    n_units: int
    """Without those whose value is missing."""
    n_clusters: int
    n_strata: int | None
    """Small clusters share one."""
    smallest_stratum: int | None
    """The fewest units of an arm in a stratum."""
    predicted: tuple[Forecast, ...] = ()
    problem: str | None = None
    """Why no effect can be estimated; else None."""

    @property
    def name(self) -> str:
        """The columns as they are asked for."""
        return "+".join(self.cluster) or "no clusters"

    def of_now(self, of: str | None = None) -> float | None:
        """Standard errors over those of now, of one kind or all; geometric mean over effects.

        None where nothing is predicted. Over all, each kind counts alike.
        """
        kinds = dict.fromkeys(one.of for one in self.predicted if of in (None, one.of))
        means = [
            np.mean(
                [log(one.std_error / one.std_error_now) for one in self.predicted if one.of == kind]
            )
            for kind in kinds
        ]
        return exp(float(np.mean(means))) if means else None

    def as_json(self) -> dict[str, Any]:
        """Its row in the document of ``clusterdp plan --clusters --json``."""
        return fields_of(self) | {"std_errors_of_now": self.of_now()}


def candidates(config: Config, given: Sequence[str | Sequence[str]]) -> list[Columns]:
    """Return the columns to compare with the cluster of now, which may be among those given.

    Raises ConfigError that names the one that cannot be the cluster, and why.
    """
    listed = [given] if isinstance(given, str) else given
    asked = [(one,) if isinstance(one, str) else tuple(one) for one in listed]
    if not all(name.strip() for one in asked for name in one) or not all(asked):
        raise ConfigError(KEY, "an empty name: name columns of the log, such as country,device")
    found: dict[frozenset[str], Columns] = {}
    for columns in asked:
        if frozenset(columns) in found or len({*columns}) < len(columns):
            raise ConfigError(KEY, f"{shown('+'.join(columns))} is named twice")
        try:
            check_config(with_clusters(config, columns))
        except ConfigError as error:
            raise ConfigError(KEY, f"{shown('+'.join(columns))}: {error.problem}") from None
        found[frozenset(columns)] = columns
    found.pop(frozenset(config.columns.clusters), None)
    return list(found.values())


def with_clusters(config: Config, columns: Columns) -> Config:
    """Return a configuration with these columns as the cluster."""
    update = {"cluster": columns or None}
    return config.model_copy(update={"columns": config.columns.model_copy(update=update)})


def configured(config: Config, sizes: Ints) -> tuple[Clustering, ResolvedRelease, Errors]:
    """Return the clusters of now, and the designs and errors that others are compared with."""
    chosen, errors = _designed(config, sizes)
    clustering = _laid_out(config, chosen, sizes, errors, errors)
    return replace(clustering, is_configured=True), chosen, errors


def compared(
    config: Config, crossed: Crossed, now: tuple[Clustering, ResolvedRelease, Errors]
) -> Clustering:
    """Return what other clusters bring; ``config`` has them, and what ``now`` was made for has not.

    Margins are left out, as they are of ``now``: they would follow.
    """
    clustering, chosen_now, errors_now = now
    sizes = crossed.turned.sizes_now
    try:
        chosen, errors = _designed(config, sizes)
    except ConfigError as error:
        n_units, n_clusters = int(sizes.sum()), len(sizes)
        names = config.columns.clusters
        return Clustering(names, False, n_units, n_clusters, None, None, (), error.problem)
    others = errors_now | _of_values(config, chosen_now, crossed, OWN)
    errors |= _of_values(config, chosen, replace(crossed.turned, other=crossed.other), OWN)
    if clustering.n_clusters > 1:
        others |= _of_values(config, chosen_now, replace(crossed, other=crossed.now), OF_NOW)
        errors |= _of_values(config, chosen, crossed.turned, OF_NOW)
    return _laid_out(config, chosen, sizes, errors, others)


def in_order(found: Sequence[Clustering]) -> tuple[Clustering, ...]:
    """Return clusterings, best first: by all that is predicted of them."""
    return tuple(sorted(found, key=lambda one: (one.of_now() or np.inf, not one.is_configured)))


def _designed(config: Config, sizes: Ints) -> tuple[ResolvedRelease, Errors]:
    plain = config.with_margins_share(0.0)
    chosen, errors = resolve_release(plain, sizes), {}
    for view, one in zip(plain.views, chosen.outcomes, strict=True):
        asked = replace(question(view, sizes), segment_shares=(_TENTH,))
        for effect in forecast(asked, one.config.outcome.grid, one.design.mechanism):
            of = EVERYBODY if effect.segment_share is None else TENTH
            errors[view.outcomes[0].name, effect.arm, of] = effect.std_error
    if not errors:
        units = "2 units of a treatment arm and of control"
        raise ConfigError(KEY, f"no effect can be estimated: no cluster has {units}")
    return chosen, errors


def _of_values(config: Config, chosen: ResolvedRelease, crossed: Crossed, of: str) -> Errors:
    """Errors of effects within the other clusters of ``crossed``, with those of now."""
    found: Errors = {}
    for view, one in zip(config.with_margins_share(0.0).views, chosen.outcomes, strict=True):
        if isinstance(one.design, AggregateDesign):
            continue
        asked, grid = question(view, crossed.sizes_now), one.config.outcome.grid
        variances = effects_of_values(crossed, asked, grid, one.design.mechanism)
        for arm, of_arm in enumerate(variances, start=1):
            known: Floats = of_arm[np.isfinite(of_arm)]
            if known.size:
                error = exp(float(np.log(known).mean()) / 2.0)
                found[view.outcomes[0].name, arm, of] = error
    return found


def _laid_out(
    config: Config, chosen: ResolvedRelease, sizes: Ints, errors: Errors, now: Errors
) -> Clustering:
    pool_of = chosen.outcomes[0].design.mechanism.pool_of(sizes, config.privacy.min_stratum)
    pools = np.zeros((int(pool_of.max()) + 1, sizes.shape[1]), dtype=np.int64)
    np.add.at(pools, pool_of, sizes)
    arms = config.arms.names
    predicted = tuple(
        Forecast(metric, arms[arm], of, error, now[metric, arm, of])
        for (metric, arm, of), error in errors.items()
        if (metric, arm, of) in now
    )
    return Clustering(
        config.columns.clusters,
        False,
        int(sizes.sum()),
        len(sizes),
        len(pools),
        int(pools.min()),
        predicted,
    )
