"""What a configuration of private clusters must be like, and what does not go with them."""

import math
from collections import Counter

from flows.config.model.experiment import Config
from flows.config.model.sections import GREATEST_FEATURE, PrivateClusters
from privatizers.planning.design import check_range, check_workable
from schemas.errors import ConfigError, shown

_NOT_PLANNED = (
    "the sizes that a plan is made of are private here: name a mechanism, such as "
    '"uniform-prior-dp", or give parameters in place of epsilon'
)
_MOST_CLUSTERS = 10_000  # a unit keeps its cluster with probability e^ε/(e^ε + k − 1): next to none
_ONE_SHARE = (
    "a randomised cluster holds units of all clusters, so effects can be told only where every "
    "cluster was randomised with the same arm shares; set it to true if that is so (else no "
    "release with private clusters is of use)"
)


def check_private_clusters(config: Config, private: PrivateClusters) -> None:
    """Labels or centres, a price that leaves something, and nothing that would look at clusters."""
    _check_cluster_source(config, private)
    names = private.names
    key = f"private_clusters.{'labels' if private.centres is None else 'centres'}"
    if len(names) < 2:
        raise ConfigError(key, "fewer than 2: name all clusters there may be")
    if len(names) > _MOST_CLUSTERS:
        raise ConfigError(
            key, f"{len(names):,} clusters; at most {_MOST_CLUSTERS:,} can be private"
        )
    for name, times in Counter(names).items():
        if not name or times > 1:
            why = "is named twice" if name else "is no name of a cluster"
            raise ConfigError(key, f"{shown(name)} {why}")
    if private.missing_name not in names:
        raise ConfigError(
            "private_clusters.missing", f"{shown(private.missing)} is none of the declared clusters"
        )
    if not config.arms.same_shares:
        raise ConfigError("arms.same_shares", f"private_clusters needs it: {_ONE_SHARE}")
    if config.is_planned:
        raise ConfigError("privacy.mechanism", f'"auto" with private_clusters: {_NOT_PLANNED}')
    _check_cluster_price(config, private)


def _check_cluster_source(config: Config, private: PrivateClusters) -> None:
    cluster = config.columns.cluster
    if (private.labels is None) == (private.centres is None):
        raise ConfigError(
            "private_clusters", "give either labels (and columns.cluster), or centres and features"
        )
    if private.centres is None:
        if len(config.columns.clusters) != 1:
            raise ConfigError(
                "columns.cluster", "private_clusters.labels needs it to name one column"
            )
        if private.features is not None or private.centres_epsilon:
            key = "features" if private.features is not None else "centres_epsilon"
            raise ConfigError(f"private_clusters.{key}", "belongs to private_clusters.centres")
        return
    if cluster is not None:
        raise ConfigError(
            "columns.cluster",
            "given together with private_clusters.centres: a unit's cluster is that of the "
            "nearest centre, and a cluster published as it stands is not private",
        )
    _check_centres(config, private.centres, private.features or ())


def _check_centres(
    config: Config, centres: dict[str, tuple[float, ...]], features: tuple[str, ...]
) -> None:
    if not features:
        raise ConfigError("private_clusters.features", "missing: name the columns of the centres")
    columns, by_events = config.columns, config.source.grain == "event"
    others = {columns.unit: "unit", columns.arm: "arm"}
    if by_events:
        others[columns.time or ""] = "time"
    else:
        others |= {one.column: "outcome" for one in config.outcomes}
    for name, times in Counter(features).items():
        if name in others or times > 1 or not name:
            why = f"is columns.{others[name]} already" if name in others else "is named twice"
            if name in others and config.named_outcomes and others[name] == "outcome":
                why = "is the column of an outcome already"
            raise ConfigError("private_clusters.features", f"{shown(name)} {why}")
    for name, point in centres.items():
        if len(point) != len(features):
            raise ConfigError(
                f"private_clusters.centres.{name}",
                f"has {len(point)} number(s) for {len(features)} feature(s)",
            )
        if max(map(abs, point)) > GREATEST_FEATURE:
            raise ConfigError(
                f"private_clusters.centres.{name}",
                f"numbers beyond ±{GREATEST_FEATURE:g} cannot be computed with",
            )


def _check_cluster_price(config: Config, private: PrivateClusters) -> None:
    if not 1e-9 <= private.epsilon <= 700:
        raise ConfigError(
            "private_clusters.epsilon", f"{private.epsilon!r} is not from 1e-09 to 700"
        )
    whole = config.privacy.epsilon
    if whole is None:
        return
    check_range("epsilon", whole, 0, math.inf)
    check_workable("epsilon", whole, 1e-9, 700.0)
    cost = config.cluster_cost.epsilon
    if cost >= whole:
        raise ConfigError(
            "private_clusters.epsilon",
            f"clusters cost {cost:g} of privacy.epsilon {whole:g}, which leaves nothing for "
            "outcomes; privacy.epsilon is the price of both together",
        )
