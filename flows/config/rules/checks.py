"""What the keys of a configuration must be like together; every error names a key."""

from collections import Counter
from collections.abc import Callable
from functools import partial

from flows.config.model.experiment import Config
from flows.config.model.sections import Arms, Privacy, Publish, Quarantine
from flows.config.rules.clusters import check_private_clusters
from flows.config.rules.goal import check_decision
from flows.config.rules.joint import check_joint
from flows.config.rules.notify import check_notify
from flows.config.rules.outcomes import (
    check_columns,
    check_design,
    check_form,
    check_grain,
    check_outcome,
    check_planned_grid,
    check_several,
    raise_found,
)
from flows.config.rules.public_facts import check_public_facts
from flows.config.rules.ratios import check_ratios
from flows.config.rules.retention import check_retention
from flows.runtime.paths import check_place, check_source
from schemas.errors import ConfigError, SeveralConfigError, shown

_LONGEST_NAME = 100  # characters: two such names and an ending fit into the name of a file
_MOST_ARMS = 2_000  # each is compared with control, which takes time as the square of their number
_OF_RELEASES = "belongs to the configuration of a release; leave the key out"
_LEAST_SHARE = 1e-9  # of units, of an arm: no log has so many that one of them would be in it


def check_config(config: Config) -> None:
    """Raise ConfigError, with all that is found, unless the keys go together.

    What rests on other keys is looked at once these are found sound.
    """
    several, privacy, private = bool(config.named_outcomes), config.privacy, config.private_clusters
    _all(
        partial(check_length, "experiment", config.experiment),
        partial(_check_places, config),
        partial(check_form, config),
    )
    _all(
        *([] if several else [partial(check_columns, config)]),
        partial(check_arms, config.arms),
        *([] if several else [partial(check_outcome, config)]),
        partial(_check_publish, config.publish),
        partial(_check_budget, privacy),
        partial(_check_account, privacy),
        partial(_check_payers, config),
        partial(_check_without_units, privacy),
        partial(_check_tables, privacy),
        *([] if several else [partial(check_grain, config)]),
        partial(check_public_facts, config),
        *([] if private is None else [partial(check_private_clusters, config, private)]),
        partial(_check_goals, privacy),
        *([partial(check_several, config)] if several else []),
        partial(check_ratios, config),
        partial(check_notify, config),
        partial(check_retention, config),
        partial(check_decision, config),
    )
    if not several:
        check_planned_grid(config)
        check_design(config)
    check_joint(config)


def _all(*checks: Callable[[], None]) -> None:
    """Make every check; raise ConfigError with what they found."""
    found: list[tuple[str, str]] = []
    for check in checks:
        try:
            check()
        except SeveralConfigError as error:
            found += [(error.key, error.problem), *error.others]
        except ConfigError as error:
            found.append((error.key, error.problem))
    raise_found(found)


def check_length(key: str, name: str) -> None:
    """Raise ConfigError where a name is too long to be part of a file's name."""
    if len(name) > _LONGEST_NAME:
        raise ConfigError(key, f"has {len(name):,} characters; at most {_LONGEST_NAME} can be")


def _check_places(config: Config) -> None:
    """Every path but the ledger's, which :mod:`flows.ledger.database` reads, can be one."""
    written = {
        "source.path": config.source.path,
        "source.outcomes_path": config.source.outcomes_path,
        "publish.directory": config.publish.directory,
        "publish.key_file": config.publish.key_file,
        "publish.signing_key": config.publish.signing_key,
        "quarantine.directory": config.quarantine.directory,
        "ledger.key_file": config.ledger.key_file,
        "run.spill_directory": config.run.spill_directory,
        "run.metrics_directory": config.run.metrics_directory,
    }
    for key, path in written.items():
        if path is None:
            continue
        if key.startswith("source."):  # a pattern: what it matches is found out later
            check_source(config.directory, path, key)
        else:
            check_place(config.directory, path, key)


def check_arms(arms: Arms) -> None:
    """Raise ConfigError for arms that cannot be: repeated, unnamed, or without a share."""
    if not arms.treatments:
        raise ConfigError("arms.treatments", "empty: name at least one treatment arm")
    if len(arms.names) > _MOST_ARMS:
        raise ConfigError(
            "arms.treatments",
            f"{len(arms.names):,} arms with control; at most {_MOST_ARMS:,} can be",
        )
    for name, times in Counter(arms.names).items():
        if not name:
            raise ConfigError("arms.treatments", "an arm's name is empty")
        if times > 1:
            raise ConfigError("arms.treatments", f"{shown(name)} is named twice (control counts)")
    _check_shares(arms)
    if arms.sample_ratio == "refuse" and arms.shares == "undeclared":
        raise ConfigError(
            "arms.sample_ratio",
            '"refuse" needs intended shares, and arms.shares is "undeclared": declare them, or '
            "leave one of the two keys out",
        )


def check_no_guards(quarantine: Quarantine, arms: Arms | None = None) -> None:
    """Raise ConfigError where a site or an effect model has a guard that releases alone have."""
    if quarantine.at_most is not None:
        raise ConfigError("quarantine.at_most", _OF_RELEASES)
    if arms is not None and arms.sample_ratio != "warn":
        raise ConfigError("arms.sample_ratio", _OF_RELEASES)


def _check_shares(arms: Arms) -> None:
    if isinstance(arms.shares, dict):
        if set(arms.shares) != set(arms.names):
            raise ConfigError("arms.shares", "must name each declared arm once, and no other")
        if any(share <= 0 for share in arms.shares.values()):
            raise ConfigError("arms.shares", "every share must be greater than 0")
        for name, share in zip(arms.names, arms.expected_shares or (), strict=True):
            if share < _LEAST_SHARE:
                raise ConfigError(
                    "arms.shares",
                    f"{shown(name)} has less than {_LEAST_SHARE:g} of all: nobody would be in it",
                )


def _check_budget(privacy: Privacy) -> None:
    if privacy.population is not None and not privacy.population.strip():
        raise ConfigError(
            "privacy.population", "empty; leave the key out for the experiment's name"
        )
    for key in ("budget_epsilon", "budget_delta"):
        amount = getattr(privacy, key)
        if amount is not None and amount < 0:
            raise ConfigError(f"privacy.{key}", f"{amount!r} is below 0")


def _check_payers(config: Config) -> None:
    """Who pays, and for how many rows, go together."""
    column, rows_each = config.columns.privacy_unit, config.privacy.rows_each
    if column is not None and rows_each is None:
        raise ConfigError(
            "privacy.rows_each",
            "missing: with columns.privacy_unit, say how many rows of one are released at most; "
            "each pays that many times the price",
        )
    if column is None and rows_each is not None:
        raise ConfigError("privacy.rows_each", "belongs to columns.privacy_unit, which is missing")
    if column is not None and config.privacy.account == "population":
        raise ConfigError(
            "columns.privacy_unit",
            'needs privacy.account = "unit": an account of the population does not know who was '
            "in a release",
        )


def _check_account(privacy: Privacy) -> None:
    """What only accounts by unit can do."""
    if privacy.account == "unit":
        return
    for key, default in (("returning", "charge"), ("spent", "refuse")):
        if getattr(privacy, key) != default:
            raise ConfigError(
                f"privacy.{key}",
                f'"{getattr(privacy, key)}" needs account = "unit": an account of the population '
                "does not know who was in a release",
            )


def _check_without_units(privacy: Privacy) -> None:
    """What a mechanism that publishes no units has no use for."""
    name = privacy.mechanism
    if name not in ("noisy-histogram", "noisy-horvitz-thompson"):
        return
    for key in ("resampling_probability", "truncation_threshold"):
        if getattr(privacy, key) is not None:
            raise ConfigError(
                f"privacy.{key}",
                f"does not go with {name}: it publishes no units, so no outcome is resampled; "
                "leave the key out",
            )
    if privacy.strata_statistic != "auto":
        raise ConfigError(
            "privacy.strata_statistic",
            f'"{privacy.strata_statistic}" does not go with {name}, which says itself what it '
            "publishes of the strata; leave the key out",
        )


def _check_tables(privacy: Privacy) -> None:
    """What tables that are solved for an epsilon have no use for."""
    if privacy.mechanism != "cluster-optimal-dp":
        if privacy.learn_from != "auto":
            raise ConfigError(
                "privacy.learn_from",
                f'"{privacy.learn_from}" goes with mechanism = "cluster-optimal-dp" alone, whose '
                "tables are learnt; leave the key out",
            )
        return
    for key in ("resampling_probability", "truncation_threshold", "noise_scale"):
        if getattr(privacy, key) is not None:
            raise ConfigError(
                f"privacy.{key}",
                "does not go with cluster-optimal-dp, which is solved for privacy.epsilon; "
                "leave the key out",
            )


def _check_goals(privacy: Privacy) -> None:
    """What a planner is to serve."""
    if not (privacy.overall_effect or privacy.segment_shares):
        raise ConfigError(
            "privacy.overall_effect",
            "false, and segment_shares is empty: that leaves nothing to plan for",
        )
    for share in privacy.segment_shares:
        if not 0 < share < 1:
            raise ConfigError(
                "privacy.segment_shares", f"{share!r} is not strictly between 0 and 1"
            )


def _check_publish(publish: Publish) -> None:
    """A key for hashed ids, and no other."""
    if publish.unit_id == "keyed-hash" and publish.key_file is None:
        raise ConfigError("publish.key_file", 'missing: unit_id = "keyed-hash" needs a key')
    if publish.unit_id == "plain" and publish.key_file is not None:
        raise ConfigError("publish.key_file", 'belongs to unit_id = "keyed-hash"')
