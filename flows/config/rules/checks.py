"""What the keys of a configuration must be like together; every error names a key."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import get_args

from flows.config.model.declared import OF_OUTCOMES, Declared
from flows.config.model.experiment import Config
from flows.config.model.sections import Arms, LogSection, Privacy, Publish, Quarantine
from flows.config.rules.clusters import check_private_clusters
from flows.config.rules.joint import check_joint
from flows.config.rules.metrics import check_decision, check_ratios
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
from flows.config.rules.public_facts import check_margins, check_public_facts
from flows.runtime.paths import check_place, check_source, is_address
from flows.schedule.paths_of_periods import has_period, is_misspelt, tells_days_apart
from privatizers.planning.aggregate_design import AggregateName
from schemas.errors import ConfigError, InputError, SeveralConfigError, shown

_LONGEST_NAME = 100  # characters: two such names and an ending fit into the name of a file
_MOST_ARMS = 2_000  # each is compared with control, which takes time as the square of their number
_OF_RELEASES = "belongs to the configuration of a release; leave the key out"
_LEAST_SHARE = 1e-9  # of units, of an arm or a segment: no log has so many that one would be in it
_PLACES = (
    *("publish.key_file", "publish.signing_key", "quarantine.directory"),
    *("ledger.key_file", "run.spill_directory", "run.metrics_directory"),
)
"""All but that of releases, and the ledger's, which :mod:`flows.ledger.database` reads."""


_ADDRESSES = {
    "flightsql": "grpc+tls://user@host:port",
    "postgresql": "postgresql://user@host/database",
    "iceberg": "sqlite:///catalogue.db",
}
_FLIGHT = re.compile(
    r"(?:grpc\+tls://(?:[^/?#@:\s]+@)?(?:[\w.-]+|\[[\da-fA-F:]+\])"
    r"|grpc://(?:[^/?#@:\s]+@)?(?:localhost|127\.0\.0\.1|\[::1\])):\d{1,5}",
    re.ASCII,
)
_PASSWORDS = {"flightsql": "FLIGHTSQL_PASSWORD", "postgresql": "PGPASSWORD, PGPASSFILE"}
_SECRET = re.compile(r"://[^/@]*:[^/@]*@|[?&](?:ssl)?password=")


def check_config(config: Config) -> None:
    """Raise ConfigError, with all that is found, unless the keys go together.

    What rests on other keys is looked at once these are found sound.
    """
    private = config.private_clusters
    _all(
        partial(check_length, "experiment", config.experiment),
        partial(_check_log_source, config),
        partial(_check_places, config),
        partial(check_form, config),
    )
    of_outcomes = [check_several]
    if not config.named_outcomes:
        of_outcomes = [check_columns, check_outcome, check_grain]
    _all(
        *(partial(check, config) for check in of_outcomes),
        partial(check_arms, config.arms),
        partial(_check_publish, config.publish),
        partial(_check_unused, config.privacy),
        partial(_check_payers, config),
        partial(check_public_facts, config),
        partial(check_margins, config),
        *([] if private is None else [partial(check_private_clusters, config, private)]),
        partial(_check_goals, config.privacy),
        partial(check_ratios, config),
        partial(check_notify, config),
        partial(_check_retention, config),
        partial(check_decision, config),
    )
    if not config.named_outcomes:
        check_planned_grid(config)
        check_design(config)
    check_joint(config)
    _check_schedule(config)


def _all(*checks: Callable[[], None]) -> None:
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
    """Every path but the log's can be one."""
    for place in _PLACES:
        section, _, key = place.partition(".")
        path = getattr(getattr(config, section), key)
        if path is not None:
            check_place(config.directory, path, place)
    check_published(config)


def _check_log_source(config: Config) -> None:
    of_what = dict.fromkeys((one.column for one in config.outcomes), "an outcome's column")
    hidden = config.log_source.roster_columns(outcomes=False)[1]
    check_log_source(config, of_what | dict.fromkeys(hidden, "a column of private clusters"))
    wanted, private = config.log_source.roster_columns(outcomes=True)
    check_apart({*wanted} - private, private)


def check_apart(public: Iterable[str], private: Iterable[str]) -> None:
    """Raise ConfigError where a public name is that of an object with what is private, or within.

    Of JSON Lines: an object is read as its text, with all of its fields.
    """
    for one, other in product(sorted(public), sorted(private)):
        if one.startswith(f"{other}.") or other.startswith(f"{one}."):
            raise ConfigError(
                "columns",
                f"{shown(one)} and {shown(other)}: one is an object that holds the other, of which "
                f"{shown(other)} is protected and {shown(one)} is not. Name fields apart",
            )


def check_published(config: Declared) -> None:
    """Raise ConfigError where what is published can go neither into a folder nor into a store."""
    written = config.publish.directory
    if not is_address(written):
        check_place(config.directory, written, "publish.directory")
    try:
        _ = config.store
    except InputError as error:
        problem = str(error)
    else:
        return
    raise ConfigError("publish.directory", problem)


def check_log(directory: Path, pattern: str, key: str) -> None:
    """Raise ConfigError where a pattern could name no file of a log, here or in a store."""
    if is_misspelt(pattern):
        raise ConfigError(
            key,
            f"{shown(pattern)}: behind {{period: stands how a day is written, such as "
            "{period:%Y%m%d}, of %Y %y %m %d %j %G %V %u alone",
        )
    check_source(directory, pattern, key)


def check_log_source(config: Declared, columns: Mapping[str, str]) -> None:
    """Raise ConfigError where a log is neither files nor tables that can be, or half of each.

    ``columns`` are those that do not tell a period, and what they are.
    """
    source, directory = config.source, config.directory
    _check_tables(source, columns)
    for key, pattern in source.patterns.items():
        if pattern:
            check_log(directory, pattern, key)
    for places in (source.patterns, source.tables):
        if len({_identity(source, directory, place) for place in places.values()}) < len(places):
            key, place = [*places.items()][-1]
            raise ConfigError(key, f"{shown(place)} is that of exposures, too: {OF_OUTCOMES}")
    for key, name in source.tables.items():
        if source.kind == "delta":
            check_place(directory, name, key)


def _identity(source: LogSection, directory: Path, place: str) -> Path:
    """What names of one table or pattern have in common, as far as these tell."""
    name = place.removeprefix("public.") if source.kind == "postgresql" else place
    return (directory / name).resolve()


def _check_tables(source: LogSection, columns: Mapping[str, str]) -> None:
    if source.table is None:
        of_tables = source.model_dump(
            include={"kind", "at", "period", "outcomes_table"}, by_alias=True, exclude_none=True
        )
        for key in of_tables:
            raise ConfigError(f"source.{key}", "belongs to source.table, which is missing")
        if not source.path:
            raise ConfigError("source.path", "missing: name the log's files, or source.table")
        return
    if source.kind is None:
        raise ConfigError("source.in", 'missing: say what keeps source.table, such as "delta"')
    _check_address(source)
    of_files = source.model_dump(
        include={"path", "outcomes_path", "delimiter", "repeated"}, exclude_defaults=True
    )
    for key in of_files:
        raise ConfigError(f"source.{key}", "is of files, and source.table is given: leave one out")
    if source.period is not None and source.period in columns:
        raise ConfigError(
            "source.period",
            f"{shown(source.period)} is {columns[source.period]}, and who is in a period must not "
            "follow from anything that is protected",
        )


def _check_address(source: LogSection) -> None:
    """Refuse an address that what keeps the tables cannot have, or that holds a secret."""
    example, at = _ADDRESSES.get(source.kind or "", ""), source.at
    if not example:
        if at is not None:
            raise ConfigError("source.at", f'belongs to another source.in than "{source.kind}"')
        return
    if at is None:
        raise ConfigError("source.at", f"missing: say where the tables are, such as {example}")
    if (names := _PASSWORDS.get(source.kind or "")) and _SECRET.search(at):
        raise ConfigError("source.at", f"holds a password; leave it to the environment ({names})")
    begins = example.partition("//")[0] + "//"
    if source.kind == "flightsql":
        if _FLIGHT.fullmatch(at) is None:
            raise ConfigError(
                "source.at",
                f"has to be such as {example}; grpc://localhost:port, without TLS, is of this "
                "machine alone",
            )
        if "source.outcomes_table" in source.tables:
            raise ConfigError(
                "source.outcomes_table",
                'does not go with "flightsql": two tables of it cannot be read of one moment; keep '
                "outcomes beside their units, or in another source.in",
            )
    elif not at.startswith(begins):
        raise ConfigError("source.at", f"has to begin with {begins}, such as {example}")


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


def _check_payers(config: Config) -> None:
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


def _check_unused(privacy: Privacy) -> None:
    """Keys that the account, or the mechanism, has no use for keep their defaults."""
    name = privacy.mechanism
    unused: dict[str, str] = {}
    if privacy.account != "unit":
        unused |= dict.fromkeys(
            ("returning", "spent"),
            'needs account = "unit": an account of the population does not know who was in a '
            "release",
        )
    if name in get_args(AggregateName):
        unused |= dict.fromkeys(
            ("resampling_probability", "truncation_threshold"),
            f"does not go with {name}: it publishes no units, so no outcome is resampled; leave "
            "the key out",
        )
        unused["strata_statistic"] = (
            f"does not go with {name}, which says itself what it publishes of the strata; leave "
            "the key out"
        )
    if name == "cluster-optimal-dp":
        unused |= dict.fromkeys(
            ("resampling_probability", "truncation_threshold", "noise_scale"),
            f"does not go with {name}, which is solved for privacy.epsilon; leave the key out",
        )
    else:
        unused["learn_from"] = (
            'goes with mechanism = "cluster-optimal-dp" alone, whose tables are learnt; leave the '
            "key out"
        )
    given = privacy.model_dump(include=set(unused), exclude_defaults=True)
    raise_found((f"privacy.{key}", f"{json.dumps(given[key])} {unused[key]}") for key in given)


def _check_goals(privacy: Privacy) -> None:
    if not (privacy.overall_effect or privacy.segment_shares):
        raise ConfigError(
            "privacy.overall_effect",
            "false, and segment_shares is empty: that leaves nothing to plan for",
        )
    for share in privacy.segment_shares:
        if not _LEAST_SHARE <= share < 1:
            raise ConfigError(
                "privacy.segment_shares", f"{share!r} is not from {_LEAST_SHARE} to below 1"
            )


def _check_publish(publish: Publish) -> None:
    if publish.unit_id == "keyed-hash" and publish.key_file is None:
        raise ConfigError("publish.key_file", 'missing: unit_id = "keyed-hash" needs a key')
    if publish.unit_id == "plain" and publish.key_file is not None:
        raise ConfigError("publish.key_file", 'belongs to unit_id = "keyed-hash"')


def _check_retention(config: Config) -> None:
    if config.retention is not None:
        _ = config.retention.lengths


def _check_schedule(config: Config) -> None:
    """A schedule goes with where the log is, and with its events."""
    if config.schedule is None:
        return
    _ = config.calendar
    source, events = config.source, config.schedule.events
    if source.table is not None:
        if source.period is None:
            raise ConfigError(
                "source.period", "missing: with [schedule] a period is a day, whose rows it tells"
            )
    elif not tells_days_apart(source.path):
        problem = "writes different days alike" if has_period(source.path) else "has no {period}"
        raise ConfigError(
            "source.path",
            f"{problem}; with [schedule] a period is a day, whose files it names",
        )
    if source.grain == "unit":
        if events is not None:
            raise ConfigError("schedule.events", 'belongs to grain = "event"')
        return
    if source.window is None:
        raise ConfigError(
            "source.window",
            "missing: with [schedule] and outcome events a period is due once its window is over",
        )
    if events is not None and not has_period(source.outcomes_path or ""):
        raise ConfigError(
            "schedule.events", "is about files of days, and source.outcomes_path has no {period}"
        )
